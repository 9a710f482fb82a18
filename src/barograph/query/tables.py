"""The tables that SQL sees, column by column: the documented schema.

In:   nothing.
Out:  names, types and one sentence for each column; the Arrow schema of a table; all of it as text.

A change here is a change of what users' queries may rely on: columns may be added, never renamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow


class Column(NamedTuple):
    """kind: a key of `KINDS`."""

    name: str
    kind: str
    about: str


class Table(NamedTuple):
    name: str
    about: str
    columns: tuple[Column, ...]


KINDS = {
    "text": "VARCHAR",
    "texts": "VARCHAR[]",
    "whole": "BIGINT",
    "number": "DOUBLE",
    "flag": "BOOLEAN",
    "time": "TIMESTAMP WITH TIME ZONE",
}
"""What a column holds → its type in SQL."""

_PROJECT = Column("project", "text", "the project that groups the run")
_RUN = Column("run", "text", "the run's id; project/id where two projects have a run of one id")
_SEGMENT = Column("segment", "whole", "the stretch between starts and resumes; 0 is history before a fork")
_POINT = (
    _PROJECT,
    _RUN,
    Column("name", "text", "the series, such as train/loss"),
    Column("step", "whole", "optimizer steps"),
    Column("time", "time", "when it was logged, UTC; null where the log does not say"),
    Column("value", "number", "the number; NaN and infinities are kept"),
    _SEGMENT,
    Column("rank", "whole", "the rank that logged it"),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "runs",
            "one row a run",
            (
                _PROJECT,
                _RUN,
                Column("name", "text", "the run's name"),
                Column("status", "text", "how it ended, or running, silent, stuck, stalled, hung, crashed, diverged"),
                Column("tags", "texts", "words to find it by"),
                Column("notes", "text", "what it is about"),
                Column("created", "time", "the first start"),
                Column("finished", "time", "the end; null while it goes on, and after a crash"),
                Column("wall_seconds", "number", "in which a process was there, over all starts, in seconds"),
                Column("gpu_hours", "number", "wall time times GPUs"),
                Column("cost", "number", "in the currency of the price per GPU hour"),
                Column("step", "whole", "the last step"),
                Column("total_steps", "whole", "the planned steps"),
                Column("loss", "number", "the last training loss"),
                Column("eval_loss", "number", "the last evaluation loss"),
                Column("world_size", "whole", "processes of the launch"),
                Column("host", "text", "the machine of rank 0"),
                Column("repo_commit", "text", "the commit of the code"),
                Column("dir", "text", "the run's folder"),
            ),
        ),
        Table("points", "one row a number of a series: the live branch, of rank 0 or the lowest that has it", _POINT),
        Table(
            "all_points",
            "as points, with what a resume or rewind superseded, and of all ranks",
            (*_POINT, Column("live", "flag", "whether it belongs to the live branch")),
        ),
        Table(
            "configs",
            "one row a value of a run's configuration",
            (
                _PROJECT,
                _RUN,
                Column("key", "text", "nested names joined by dots, such as optim.lr"),
                Column("value", "text", "the value as text; lists as JSON; null where it is none"),
                Column("number", "number", "the value where it is a number, or a text that is one"),
            ),
        ),
        Table(
            "findings",
            "one row a finding that the doctor recorded while the run went on, or finds now if no sidecar watched it",
            (
                _PROJECT,
                _RUN,
                Column("rule", "text", "the rule that saw it"),
                Column("family", "text", "loss, gradient, data, speed, memory and so on"),
                Column("kind", "text", "what sort of trouble"),
                Column("severity", "text", "critical, warning or info"),
                Column("step", "whole", "where it began"),
                Column("last_step", "whole", "up to where it was seen"),
                Column("found", "whole", "the step with which it could first be known"),
                Column("time", "time", "when it was recorded last; null where it was not"),
                Column("message", "text", "one sentence with the numbers"),
                Column("causes", "texts", "the likely cause and the next ones"),
                Column("remedies", "texts", "what to do"),
                Column("evidence", "text", "the numbers, as JSON"),
                Column("confidence", "number", "0 to 1"),
                _SEGMENT,
            ),
        ),
        Table(
            "checkpoints",
            "one row a checkpoint that was saved",
            (
                _PROJECT,
                _RUN,
                Column("step", "whole", "the step that it was saved at"),
                Column("path", "text", "where the checkpoint is"),
                Column("metadata", "text", "where its metadata is"),
                Column("val_loss", "number", "the validation loss it was saved with"),
                Column("val_bpb", "number", "the validation bits per byte it was saved with"),
                Column("live", "flag", "false where a resume, rewind or fork has discarded the branch that it is of"),
                _SEGMENT,
            ),
        ),
        Table(
            "evaluations",
            "one row an evaluation: points of eval/loss and of what other programs call it",
            (
                _PROJECT,
                _RUN,
                Column("name", "text", "the series: eval/loss, val_loss, validation/loss and so on"),
                Column("step", "whole", "optimizer steps"),
                Column("time", "time", "when it was logged, UTC"),
                Column("loss", "number", "the evaluation's loss"),
                Column("tokens", "number", "tokens it was measured on, where eval/eval_tokens says so"),
                Column("duration_ms", "number", "how long it took, where eval/duration_ms says so"),
                _SEGMENT,
            ),
        ),
    )
}


def schema(name: str) -> pyarrow.Schema:
    """A table's Arrow schema."""
    import pyarrow

    types: dict[str, Any] = {
        "text": pyarrow.string(),
        "texts": pyarrow.list_(pyarrow.string()),
        "whole": pyarrow.int64(),
        "number": pyarrow.float64(),
        "flag": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", "UTC"),
    }
    return pyarrow.schema([(column.name, types[column.kind]) for column in TABLES[name].columns])


def schema_text() -> str:
    """The schema as `barograph sql --schema` prints it."""
    blocks = []
    for table in TABLES.values():
        size = max(len(column.name) for column in table.columns)
        lines = [f"{table.name}: {table.about}"]
        lines += [
            f"  {column.name:<{size}}  {KINDS[column.kind].replace('TIMESTAMP WITH TIME ZONE', 'TIMESTAMPTZ'):<11}  "
            f"{column.about}"
            for column in table.columns
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def schema_markdown() -> str:
    """The schema as it is in docs/guides/sql.md."""
    blocks = []
    for table in TABLES.values():
        lines = [f"### `{table.name}`", "", f"{table.about[0].upper()}{table.about[1:]}.", "",
                 "| column | type | what it is |", "|---|---|---|"]  # fmt: skip
        lines += [f"| `{column.name}` | {KINDS[column.kind]} | {column.about} |" for column in table.columns]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
