"""What a record's lines are: in one of several styles, at a verbosity, for a rank.

In:   records, in order.
Out:  lines, as parts of text with their colours.

What later lines need (trend, averages, pace) is kept up at every verbosity.
"""

from __future__ import annotations

from collections.abc import Callable

from barograph.core.record import Record
from barograph.core.terminal import TextLine, TextPart, line
from barograph.core.text import escape
from barograph.training.console import lines, rows, styles
from barograph.training.console.course import Course, number

QUIET, _DEFAULT, _VERBOSE = -1, 0, 1


class RecordLines:
    """The lines of one run's records; parameters as for `Console`."""

    def __init__(self, verbosity: int, style: str, rank: int, course: Course, clock: Callable[[], float]):
        self._style = styles.find(style)
        self.verbosity = verbosity if self._style is not None else -2
        self.rank, self._course, self._clock = rank, course, clock
        self._heading = ""  # of the block that the last line shown belongs to
        self._section: str | None = None  # whose start was the last line shown
        self._typed: set[str] = set()  # kinds that the loop logs by their own calls, not by `run.log`

    def of(self, record: Record, typed: bool = True) -> list[TextLine]:
        """A record's lines, in this style, at this verbosity, for this rank."""
        if record.kind == "metrics":
            found = [made for made in rows.described(record) if made.kind not in self._typed]
            return [shown for made in found for shown in self.of(made, typed=False)]
        if typed and record.kind in ("step", "eval"):
            self._typed.add(record.kind)
        handler = DRAWN.get(record.kind)
        shown = handler(self, record) if handler is not None else []
        if not shown:
            return []
        if record.kind not in _BLOCKS:
            self._heading = ""
        started = record.kind == "info" and _section_part(record) == "start"
        self._section = escape(record.fields.get("message", "")) if started else None
        if self.rank > 0:
            shown = [(TextPart(f"Rank {self.rank} | "), *parts) for parts in shown]
        return shown

    def shows(self, verbosity: int = _DEFAULT) -> bool:
        return self.verbosity >= verbosity and self.rank <= 0

    # -- one method a kind: what it shows; what it must remember in any case ---------------------------

    def _step(self, record: Record) -> list[TextLine]:
        step = self._course.step(record, self._clock())
        return [self._style.step(step)] if self._style is not None and self.shows() else []

    def _eval(self, record: Record) -> list[TextLine]:
        evaluation = self._course.evaluation(record)
        return [self._style.evaluation(evaluation)] if self._style is not None and self.shows(QUIET) else []

    def _moe(self, record: Record) -> list[TextLine]:
        self._course.moe(record)
        return [lines.router_line(record)] if self.shows(_VERBOSE) else []

    def _sol(self, record: Record) -> list[TextLine]:
        self._course.sol(record)
        return lines.sol_lines(record.fields) if self.shows() else []

    def _gpu(self, record: Record) -> list[TextLine]:
        return lines.gpu_lines(record) if self.shows(_VERBOSE) else []

    def _gpu_model(self, record: Record) -> list[TextLine]:
        # as Surogate: the first device always, the others on request
        first = number(record.fields.get("rank")) in (None, 0) and number(record.fields.get("id")) in (None, 0)
        return lines.gpu_model_lines(record.fields) if self.shows(_DEFAULT if first else _VERBOSE) else []

    def _allocator(self, record: Record) -> list[TextLine]:
        return self._under("[Memory]", lines.allocator_lines(record.fields)) if self.shows(_VERBOSE) else []

    def _dataset(self, record: Record) -> list[TextLine]:
        if not self.shows():
            return []
        return self._under("[Dataset]", lines.dataset_lines(record.fields, self.shows(_VERBOSE)))

    def _option(self, record: Record) -> list[TextLine]:
        return self._under("[Options]", [lines.option_line(record.fields)]) if self.shows(_VERBOSE) else []

    def _under(self, heading: str, shown: list[TextLine]) -> list[TextLine]:
        """The lines, below their heading where it does not stand yet."""
        if heading == self._heading or not shown:
            return shown
        self._heading = heading
        return [line(heading, "bold"), *shown]

    def _cmd(self, record: Record) -> list[TextLine]:
        return [lines.command_line(record.fields)] if self.shows(_VERBOSE) else []

    def _info(self, record: Record) -> list[TextLine]:
        message, part = escape(record.fields.get("message", "")), _section_part(record)
        # other ranks say only what they alone know
        if self.verbosity < (_VERBOSE if self.rank > 0 and part else _DEFAULT):
            return []
        if part == "start":
            return [line(f"{message} ...")]
        if part == "end":
            done = f"done in {lines.took(number(record.fields.get('duration_ms')))}"
            return [line(f"  {done}" if message in (self._section, "") else f"  {message}: {done}")]
        return [line(message)] if message else []

    def _sample(self, record: Record) -> list[TextLine]:
        return lines.sample_lines(record) if self.shows() else []

    def _finding(self, record: Record) -> list[TextLine]:
        hidden = record.fields.get("severity") == "info" and self.verbosity < _VERBOSE
        return [] if hidden or record.fields.get("merged") is True or not self.shows() else lines.finding_lines(record)

    def _alert(self, record: Record) -> list[TextLine]:
        title, told = escape(record.fields.get("title", ""), 200), escape(record.fields.get("text", ""), 400)
        if str(record.fields.get("cause", "")).startswith("doctor: ") and not record.fields.get("recovered"):
            return []  # its finding is drawn by its own record
        return [line(f"!! {title}: {told}" if told else f"!! {title}", "yellow")] if self.shows() else []

    def _checkpoint(self, record: Record) -> list[TextLine]:
        return [lines.checkpoint_line(record)] if self.shows() else []

    def _segment(self, record: Record) -> list[TextLine]:
        shown = lines.segment_line(record) if self.shows() else None
        return [shown] if shown else []

    def _end(self, record: Record) -> list[TextLine]:
        shown = lines.end_line(record) if self.shows() else None
        return [shown] if shown else []


def _section_part(record: Record) -> str:
    """Whether a message starts or ends a timed section; Surogate's own logs mark only the end, by its duration."""
    kind = record.fields.get("type")
    if kind == "section-start":
        return "start"
    if kind == "section-end" or (kind is None and "duration_ms" in record.fields):
        return "end"
    return ""


_BLOCKS = frozenset({"dataset", "option", "allocator"})
DRAWN: dict[str, Callable[[RecordLines, Record], list[TextLine]]] = {
    "step": RecordLines._step,
    "eval": RecordLines._eval,
    "moe": RecordLines._moe,
    "sol": RecordLines._sol,
    "gpu": RecordLines._gpu,
    "gpu-model": RecordLines._gpu_model,
    "allocator": RecordLines._allocator,
    "dataset": RecordLines._dataset,
    "option": RecordLines._option,
    "cmd": RecordLines._cmd,
    "info": RecordLines._info,
    "sample": RecordLines._sample,
    "finding": RecordLines._finding,
    "alert": RecordLines._alert,
    "checkpoint": RecordLines._checkpoint,
    "segment": RecordLines._segment,
    "end": RecordLines._end,
}
