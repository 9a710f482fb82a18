"""The colours and sizes of everything people see: page, report, notebook and pictures, in a light and a dark theme.

In:   nothing.
Out:  colours by name, the eight of lines, the ramp of heat maps, the type scale; the same as a style sheet's variables.

    python -m barograph.views.draw.palette web/src/style/tokens.css

The eight colours of lines stay apart for people with protanopia, deuteranopia and tritanopia too (a difference of at
least 20 in CIE Lab), and stand out from their ground by 3 : 1 or more; inks of text by 4.5 : 1. `tests/test_draw.py`
measures all of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

_THEMES = {  # light and dark
    "paper": ("#ffffff", "#101315"), "panel": ("#ffffff", "#101315"), "sunk": ("#f4f5f7", "#191e22"),
    "raised": ("#ffffff", "#1d2327"), "ink": ("#14181c", "#e8ebed"), "ink-2": ("#424b54", "#b4bcc4"),
    "ink-3": ("#616b75", "#919ba4"), "rule": ("#e4e7ea", "#252b30"), "rule-2": ("#cbd0d5", "#363e45"),
    "rule-strong": ("#89929b", "#6b757e"), "accent": ("#5640b8", "#b3a4f7"), "accent-soft": ("#ece9f8", "#2a2544"),
    "on-accent": ("#ffffff", "#14101f"), "focus": ("#5640b8", "#b3a4f7"), "good": ("#17713f", "#63cf93"),
    "good-soft": ("#e2f2e8", "#13301f"), "warn": ("#8a5300", "#eeb35a"), "warn-soft": ("#fbeed6", "#35270f"),
    "bad": ("#b3202f", "#ff8b90"), "bad-soft": ("#fbe5e6", "#3d181c"), "info": ("#2a5f9e", "#82b5f2"),
    "info-soft": ("#e4eef9", "#16283d"), "mute-soft": ("#e9ecee", "#242a2f"),
    "shade": ("rgba(20, 24, 28, 0.4)", "rgba(0, 0, 0, 0.6)"),
    "drop": ("0 1px 2px rgba(20, 24, 28, 0.06), 0 6px 24px rgba(20, 24, 28, 0.14)",
             "0 1px 2px rgba(0, 0, 0, 0.4), 0 8px 28px rgba(0, 0, 0, 0.5)"),
    "chart-grid": ("#eceef0", "#20262a"), "chart-axis": ("#616b75", "#919ba4"),
    "chart-cursor": ("#89929b", "#6b757e"), "chart-select": ("rgba(86, 64, 184, 0.1)", "rgba(179, 164, 247, 0.14)"),
    "chart-mark": ("#b3261e", "#ff8a80"), "less-2": ("#1c6a86", "#6cc3df"), "less-1": ("#8fc0cf", "#2d6678"),
    "zero": ("#f2f2f2", "#1d2022"), "more-1": ("#e3a88f", "#84492e"), "more-2": ("#ab4a1f", "#f09a6b"),
}  # fmt: skip
LIGHT = {name: light for name, (light, _) in _THEMES.items()}
DARK = {name: dark for name, (_, dark) in _THEMES.items()}
SIZES = {
    # one scale of type: ticks and badges, second lines, text, heads of sections, names, large figures
    "tiny": "11px", "small": "12px", "text": "13px", "lead": "15px", "title": "20px", "figure": "28px",
    "sans": 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif',
    "mono": 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono",'
            " monospace",
    "gap-1": "4px", "gap-2": "8px", "gap-3": "12px", "gap-4": "16px", "gap-5": "24px", "gap-6": "40px",
    "round": "4px", "row": "30px", "bar": "44px",
}  # fmt: skip
LINES = ("#0e30cf", "#db6c09", "#00a478", "#9270ae", "#9c6a37", "#4777ff", "#823236", "#504761")
DARK_LINES = ("#8276ff", "#f19756", "#32f8a6", "#af73ad", "#f0d228", "#98c9ff", "#e14e6d", "#bfc3c7")
COLOURS = len(LINES)
# dark violet over blue and green to yellow, even in lightness: Matplotlib's viridis, nine of its colours
RAMP = ("#440154", "#472c7a", "#3b518b", "#2c718e", "#21908d", "#27ad81", "#5cc863", "#aadc32", "#fde725")
NOT_FINITE = "#e41a80"  # a cell of a heat map

Rgb = tuple[int, int, int]


def rgb(colour: str) -> Rgb:
    """`#0e30cf` as (14, 48, 207)."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def variables(names: dict[str, str], lines: tuple[str, ...] = ()) -> str:
    """A theme as the declarations of a style sheet's variables: `--ink`, …, `--c0` to `--c7`."""
    named = {**names, **{f"c{at}": colour for at, colour in enumerate(lines)}}
    return ";".join(f"--{name}:{colour}" for name, colour in named.items())


def tokens() -> str:
    """The page's style sheet of variables."""

    def rule(selector: str, scheme: str, values: dict[str, str], indent: str = "") -> str:
        lines = [f"{indent}  --{name}: {value};" for name, value in values.items()]
        return "\n".join([f"{indent}{selector} {{", f"{indent}  color-scheme: {scheme};", *lines, f"{indent}}}"])

    before = {name: DARK[name] for name in ("paper", "ink")}
    return f"""\
/* Written by `python -m barograph.views.draw.palette`, which has the colours and sizes of every view.
   Whoever draws on a canvas reads these by name (shell/theme.ts, token()). */
{rule(":root", "light", LIGHT | SIZES)}

/* paper is white: dark inks are for screens */
@media screen {{
{rule(':root[data-theme="dark"]', "dark", DARK, "  ")}
}}

/* before the script has set the theme */
@media screen and (prefers-color-scheme: dark) {{
{rule(":root:not([data-theme])", "dark", before, "  ")}
}}
"""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(tokens())
