"""A lineage on a terminal: runs and segments as a tree over the steps, what was kept and discarded, the sums.

In:   a lineage, the terminal's width, whether it shows colours.
Out:  lines that fit.

    ━ steps that count   ╌ steps that were discarded   · a fork's history, which belongs to its source
"""

from __future__ import annotations

from collections.abc import Iterator

from barograph.analysis.lineage.tracks import TrackPart
from barograph.analysis.lineage.tree import Lineage, LineageBranch, Spent
from barograph.core.text import compact, duration, escape, money, number, padded, percent, width

_KEPT, _THROWN, _SHARED = "━", "╌", "·"
_BOLD, _DIM, _END = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_MOST_PARTS = 12  # segments of one run that are drawn: the first and the last ones
_MOST_RUNS = 24
_SAID = 26  # columns of the words behind a bar


def lines(lineage: Lineage, columns: int = 100, colour: bool = False, most_runs: int = _MOST_RUNS) -> list[str]:
    """The tree and the sums. columns: at least 60 are used."""
    columns = max(60, columns)
    last = max((part.last or 0 for branch in lineage.trunk.walk() for part in branch.parts), default=0)
    labels = min(34, max(22, columns - 24 - _SAID))
    bar = columns - labels - _SAID - 4
    scale = _Scale(last, bar)
    drawn = [f"  {padded('LINEAGE', labels)} {scale.head()}"]
    if lineage.lost is not None:
        drawn.append(f"  {padded(f'forked from {escape(lineage.lost.name)}, which is missing', columns - 4)}")
    drawn += _runs(lineage, scale, labels, most_runs, colour)
    drawn += ["", *_sums(lineage)]
    return drawn


class _Scale:
    """Steps 0 to `last` on this many columns."""

    def __init__(self, last: int, bar: int):
        self.last, self.bar = max(1, last), bar

    def head(self) -> str:
        right = f" {self.last:,}"
        return f"0 {'─' * max(0, self.bar - 2 - len(right))}{right}"

    def at(self, step: int) -> int:
        return min(self.bar - 1, max(0, int(step * self.bar / (self.last + 1))))

    def draw(self, part: TrackPart, shared: int | None, colour: bool) -> str:
        cells = [" "] * self.bar
        if shared is not None:
            cells[: self.at(shared)] = _SHARED * self.at(shared)
        if part.first is not None and part.last is not None:
            low, high = self.at(part.first), self.at(part.last)
            kept = -1 if part.kept_to is None else self.at(part.kept_to)
            for at in range(low, high + 1):
                cells[at] = _KEPT if at <= kept else _THROWN
            if part.thrown and part.kept_to is not None and kept >= high:
                cells[high] = _THROWN  # a few steps in a wide column are seen too
        text = "".join(cells).rstrip()
        if not colour:
            return text
        for sign in (_THROWN, _SHARED):
            text = text.replace(sign, f"{_DIM}{sign}{_END}")
        return text


def _runs(lineage: Lineage, scale: _Scale, labels: int, most: int, colour: bool) -> Iterator[str]:
    count = sum(1 for _ in lineage.trunk.walk())
    shown = 0
    stack: list[tuple[LineageBranch, str, str]] = [(lineage.trunk, "", "")]
    while stack:
        branch, lead, below = stack.pop()
        shown += 1
        if shown > most and branch is not lineage.asked:
            continue
        name = escape(branch.run.name)
        step = "" if branch.fork_step is None else f"fork at step {branch.fork_step:,}  "
        mark = " ◂" if branch is lineage.asked and count > 1 else ""
        head = f"{lead}{_BOLD if colour else ''}{name}{_END if colour else ''}{mark}  {step}{escape(branch.run.status)}"
        yield f"  {head}"
        parts = _some(branch.parts)
        for at, part in enumerate(parts):
            ends = at == len(parts) - 1 and not branch.forks
            if part is None:
                yield f"  {below}│  … {len(branch.parts) - _MOST_PARTS:,} segments more"
                continue
            label = f"{below}{'└' if ends else '├'}─ {part.segment.number} {escape(part.segment.kind)}"
            shared = branch.fork_step if part.segment.source else None
            drawn = scale.draw(part, shared, colour)
            gap = " " * max(0, scale.bar - width([_bare(drawn)]))
            yield f"  {padded(label, labels)} {drawn}{gap} {_said(part)}".rstrip()
        for at, fork in reversed(list(enumerate(branch.forks))):
            ends = at == len(branch.forks) - 1
            stack.append((fork, f"{below}{'└' if ends else '├'}─ ", f"{below}{'   ' if ends else '│  '}"))
    if count > most:
        yield f"  … {count:,} runs in all; `--json` has them all"


def _some(parts: list[TrackPart]) -> list[TrackPart | None]:
    if len(parts) <= _MOST_PARTS:
        return list(parts)
    half = _MOST_PARTS // 2
    return [*parts[:half], None, *parts[-half:]]


def _said(part: TrackPart) -> str:
    if part.first is None:
        return "no steps"
    whole = f"{part.first:,}–{part.last:,}"
    if not part.thrown:
        return whole
    return f"{whole}, all discarded" if part.kept_to is None else f"{whole}, kept to {part.kept_to:,}"


def _sums(lineage: Lineage) -> Iterator[str]:
    asked, everyone = lineage.asked, list(lineage.trunk.walk())
    rows: list[tuple[str, Spent, float | None]] = []
    for name, spent in (("kept", asked.kept), ("discarded", asked.thrown)):
        share = spent.seconds / asked.wall if spent.seconds is not None and asked.wall else None
        rows.append((name, spent, share))
    if asked.wall and asked.kept.seconds is not None and asked.thrown.seconds is not None:
        steps = asked.kept.seconds + asked.thrown.seconds
        part = max(0.0, 1 - steps / asked.wall)
        rest = Spent(
            0, None, max(0.0, asked.wall - steps),
            None if asked.gpu_hours is None else max(0.0, asked.gpu_hours - _sum(asked, "gpu_hours")),
            None if asked.cost is None else max(0.0, asked.cost - _sum(asked, "cost")),
        )  # fmt: skip
        rows.append(("all else", rest, part))
    head = "OF THIS RUN" if len(everyone) > 1 else "STEPS OF THE RUN"
    if asked.inherited is not None:
        rows.append((f"before the fork, in {escape(asked.source.name if asked.source else '')}", asked.inherited, None))
    if len(everyone) > 1:
        rows += [
            (f"kept, all {len(everyone)} runs", lineage.kept, None),
            (f"discarded, all {len(everyone)} runs", lineage.thrown, None),
        ]
    columns = [("STEPS", [f"{item.steps:,}" if item.steps else "" for _, item, _ in rows])]
    for title, cells in (
        ("TOKENS", [compact(item.tokens) if item.tokens else "" for _, item, _ in rows]),
        ("TIME", ["" if item.seconds is None else duration(item.seconds) for _, item, _ in rows]),
        ("SHARE", ["" if share is None else percent(share) for _, _, share in rows]),
        ("GPU HOURS", ["" if item.gpu_hours is None else number(item.gpu_hours, 3) for _, item, _ in rows]),
        ("COST", ["" if item.cost is None else money(item.cost) for _, item, _ in rows]),
    ):
        if any(cells):
            columns.append((title, cells))
    left = max(len(head), *(min(34, width([name])) for name, _, _ in rows))
    sizes = [max(len(title), *(len(cell) for cell in cells)) for title, cells in columns]
    yield f"  {head:<{left}}" + "".join(f"  {title:>{size}}" for (title, _), size in zip(columns, sizes, strict=True))
    for at, (name, _, _) in enumerate(rows):
        cells_here = (f"  {cells[at]:>{size}}" for (_, cells), size in zip(columns, sizes, strict=True))
        yield f"  {padded(name, left)}{''.join(cells_here)}".rstrip()


def _sum(branch: LineageBranch, name: str) -> float:
    return float(getattr(branch.kept, name) or 0.0) + float(getattr(branch.thrown, name) or 0.0)


def _bare(text: str) -> str:
    for code in (_BOLD, _DIM, _END):
        text = text.replace(code, "")
    return text
