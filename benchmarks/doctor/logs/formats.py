"""The formats that trainings are written in, by name.

In:   a `Training`, the name of a format, a folder.
Out:  the file or folder that `barograph doctor` is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from logs import newer_text, tables, text
from logs.curves import Training


@dataclass(frozen=True)
class Format:
    """How a training is written.

    file: its name. steps_a_row: 0 if it has the training's own steps; otherwise it names none that count through the
    run, and a reader can but count rows, or batches where it says how many.
    """

    file: str
    write: Callable[[Training, Path], None]
    steps_a_row: int = 0

    def steps(self, one: Training) -> list[int]:
        """The steps that a reader can know; (rows,)."""
        own: list[int] = one.step.tolist()
        return [row * self.steps_a_row for row in range(one.rows)] if self.steps_a_row else own


def printed(lines: Callable[[Training], list[str]], steps_a_row: int = 0, file: str = "train.log") -> Format:
    """A format of lines."""

    def write(one: Training, path: Path) -> None:
        path.write_bytes(("\n".join(lines(one)) + "\n").encode())

    return Format(file, write, steps_a_row)


FORMATS: dict[str, Format] = {
    "nanogpt": printed(text.nanogpt),
    "build_nanogpt": printed(text.build_nanogpt),
    "llm_c": printed(text.llm_c, file="main.log"),
    "modded_nanogpt": printed(text.modded_nanogpt),
    "megatron": printed(text.megatron),
    "torchtitan": printed(text.torchtitan),
    "fairseq": printed(text.fairseq),
    "trainer_printed": printed(text.trainer_printed, steps_a_row=1),
    "progress_bar": printed(text.progress_bar),
    "logger_lines": printed(text.logger_lines),
    "step_lines": printed(text.step_lines),
    "counted_lines": printed(text.counted_lines),
    "tutorial_lines": printed(text.tutorial_lines, steps_a_row=10),
    "keras": printed(text.keras),
    "epoch_bars": printed(text.epoch_bars),
    "epoch_blanks": printed(text.epoch_blanks),
    "epoch_pairs": printed(text.epoch_pairs),
    "epoch_table": Format("history.csv", tables.epoch_table),
    "step_table": Format("losses.csv", tables.step_table),
    "filled_table": Format("losses.csv", tables.filled_table),
    "json_lines": Format("metrics.jsonl", tables.json_lines),
    "lightning": Format("metrics.csv", tables.lightning),
    "wandb_export": Format("wandb_export.csv", tables.wandb_export),
    "trainer_state": Format("trainer_state.json", tables.trainer_state),
    "llama_factory": Format("trainer_log.jsonl", tables.llama_factory),
    "tensorboard": Format("events", tables.tensorboard),
}

NEWER_FORMATS: dict[str, Format] = {
    "losses_first": printed(newer_text.losses_first),
    "completed": printed(newer_text.completed),
    "keyed": printed(newer_text.keyed),
    "json_messages": printed(newer_text.json_messages, file="train.jsonl"),
    "pipeline": printed(newer_text.pipeline),
    "batches_of_epochs": printed(newer_text.batches_of_epochs, steps_a_row=10),
    "epochs_said": printed(newer_text.epochs_said),
    "epochs_below": printed(newer_text.epochs_below),
    "epochs_short": printed(newer_text.epochs_short),
    "validations": printed(newer_text.validations),
    "perplexities": printed(newer_text.perplexities),
    "updates": printed(newer_text.updates),
    "adversarial": printed(newer_text.adversarial, steps_a_row=1),
    "words": printed(newer_text.words, file="output.log"),
    "words_page": printed(newer_text.words, file="README.md"),
    "words_table": printed(newer_text.words, file="results.csv"),
}
"""Those of the second set; the first set's cases keep theirs."""

TELL_EPOCHS = ("epoch_table", "keras", "epoch_bars", "epoch_blanks", "epoch_pairs")
"""A row an epoch, with its evaluation."""
TELL_STEPS = tuple(name for name in FORMATS if name not in TELL_EPOCHS)
"""A row a step or every n-th."""
TELL_ANYTHING = ("trainer_state", "trainer_printed", "tensorboard", "step_table", "json_lines")
"""Every series of a training, whatever its name."""
TELL_LOSS = ("step_table", "json_lines", "tensorboard", "logger_lines")
"""The loss with all its digits."""
TELL_TIME = ("nanogpt", "build_nanogpt", "megatron", "torchtitan")
TELL_NORM = ("trainer_state", "build_nanogpt", "torchtitan", "llm_c", "megatron", "tensorboard", "step_table")
TELL_SCALE = ("megatron", "fairseq")
TELL_RATE = ("trainer_state", "build_nanogpt", "llm_c", "megatron", "step_table", "tensorboard", "json_lines")
TELL_EVALUATIONS = ("nanogpt", "trainer_state", "tensorboard", "llm_c", "megatron", "step_table", "fairseq")
TELL_FINETUNING = ("trainer_state", "trainer_printed", "llama_factory", "lightning")

NEWER_STEPS = ("losses_first", "completed", "keyed", "json_messages", "pipeline", "batches_of_epochs")
NEWER_EPOCHS = ("epochs_said", "epochs_below", "keras", "epoch_table", "epoch_bars")
NEWER_ANYTHING = ("keyed", "json_messages", "trainer_state", "trainer_printed", "step_table", "tensorboard")
NEWER_EVALUATIONS = ("losses_first", "completed", "keyed", "json_messages", "pipeline", "nanogpt", "trainer_state",
                     "megatron", "step_table")  # fmt: skip
NEWER_POLICIES = ("updates", "keyed", "json_messages", "step_table")
NO_TRAINING = ("words", "words_page", "words_table")


def format_of(name: str) -> Format:
    """A format of either set."""
    return FORMATS.get(name) or NEWER_FORMATS[name]


def write(one: Training, name: str, folder: Path) -> Path:
    """Write a training into a new folder; returns the path that holds the log."""
    folder.mkdir(parents=True)
    told = format_of(name)
    path = folder / told.file
    told.write(one, path)
    return path
