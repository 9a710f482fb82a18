"""The page of each rule: what it means, how it is computed, where it comes from, what to do, how to silence it.

In:   a rule's class: its words and thresholds.
Out:  Markdown, as it is in docs/rules/, and as `barograph doctor --explain RULE` prints it.

`python -m barograph.doctor.pages docs/rules` writes all pages, and docs/sources.md beside the folder.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from barograph.doctor.kernel.registry import rule_classes
from barograph.doctor.kernel.rule import Rule, in_words
from barograph.doctor.kernel.sources import cite, sources_page
from barograph.doctor.kernel.thresholds import ALERT_THRESHOLDS

_WORDS = {
    "row": "A row is one logged value of a series.",
    "table": "A table is one record of a statistic for all layers.",
}


def page_of(rule: type[Rule]) -> str:
    """A rule's page as Markdown."""
    lines = [f"# {rule.name}", "", rule.about, ""]
    lines += [f"Family: {rule.family}. Kind: {rule.kind}. Highest severity: {rule.severity}.", ""]
    text = inspect.cleandoc(rule.__doc__ or "")
    first, _, rest = text.partition("\n\n")
    text = rest if first == rule.about else text  # the page has said it above
    lines += [text, ""] if text else []
    words = [words for word, words in _WORDS.items() if re.search(rf"(?<!in a )\b{word}s?\b", text)]
    lines += [" ".join(words), ""] if words else []
    needs = ", ".join(in_words(need, "`") for need in rule.needs)
    lines += [
        "## Required data",
        "",
        f"{needs or 'nothing'}." + (f" At least {rule.least} rows." if rule.least > 1 else ""),
    ]
    lines += [""]
    if rule.thresholds:
        lines += ["## Thresholds", "", "| threshold | value | where it comes from |", "|---|---|---|"]
        lines += [f"| `{rule.name}.{name}` | {value:g} | {why} |" for name, (value, why) in rule.thresholds.items()]
        lines += [""]
    named = [(name, threshold) for name, (_, of, threshold) in ALERT_THRESHOLDS.items() if of == rule.name]
    lines += [
        f"The stability guide calls `{rule.name}.{threshold}` `{name}`; either name may be set."
        for name, threshold in named
    ]
    lines += [""] if named else []
    cited = [f"- {cite(entry)}" for entry in rule.sources] or ["Barograph's own."]
    lines += ["## Sources", "", *cited, "", "## Turn it off or change its thresholds", "", "```python"]
    lines += [f'barograph.init(..., silence=["{rule.name}"])']
    if rule.thresholds:
        name, (value, _) = next(iter(rule.thresholds.items()))
        lines += [f'barograph.init(..., thresholds={{"{rule.name}.{name}": {f"{value:g}".replace("e+", "e")}}})']
    lines += ["```", "", "```sh", f"barograph doctor RUN --silence {rule.name}", "```"]
    return "\n".join(lines) + "\n"


def index() -> str:
    """The table of all rules, for docs/doctor.md."""
    lines = ["| rule | family | highest severity | what it means |", "|---|---|---|---|"]
    for name, rule in rule_classes().items():
        lines.append(f"| [`{name}`](rules/{name}.md) | {rule.family} | {rule.severity} | {rule.about} |")
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """All pages into a folder; those of rules that are gone go."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{name}.md": page_of(rule) for name, rule in rule_classes().items()}
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, page in pages.items():
        (folder / name).write_text(page)
    (folder.parent / "sources.md").write_text(sources_page())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
