"""Runs the Python snippets of one document, as a reader would type them: python tests/snippets.py DOCUMENT

In:   a Markdown file; the working directory, where `make_runs` has put a few runs.
Out:  a traceback for the first snippet that fails, with the document's line; exit code 1.

A name that no snippet has made is a stand-in of the same name from here: a small model, a loader, a run.
`<!-- not run: REASON -->` above a snippet leaves it out.
"""

from __future__ import annotations

import ast
import random
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

QUIET: dict[str, Any] = {"console": "none", "git": False, "machine": False, "watchdog": False}
WIDTHS = (64, 128, 256)


class Snippet(NamedTuple):
    """A fenced block of a document."""

    line: int
    text: str
    reason: str  # why it is not run; empty if it is


def snippets(document: Path) -> Iterator[Snippet]:
    text = document.read_text()
    for match in re.finditer(r"(?:^<!-- not run: (.*?) -->\n\s*)?^```python\n(.*?)^```", text, re.M | re.S):
        yield Snippet(text[: match.start(2)].count("\n") + 1, match[2], match[1] or "")


def make_runs(folder: Path) -> None:
    """Runs and logs by the names that the documents use, below a folder."""
    import barograph

    sweep = [
        ("sweep", f"w{width}-{rate}", {"model": {"width": width}, "lr": rate})
        for width in WIDTHS
        for rate in (1e-3, 3e-3)
    ]
    named = [("gpt", name, {"lr": 0.001}) for name in ("A", "B", "a", "baseline", "candidate", "my-run")]
    for project, name, config in [*named, *sweep, ("demo", "demo", {})]:
        noise = random.Random(name)
        with barograph.init(
            project, name, config, folder / "runs", id=name, tags=[project], blackbox=False, doctor=False, **QUIET
        ) as run:
            for step in range(40):
                loss = 2 + 2 / (step + 1) + noise.gauss(0, 0.01)
                values = {"train/loss": loss, "train/norm": 1.0, "train/step_tokens": 1000, "eval/loss": loss + 0.1}
                run.log(values | {"gradients/blocks.0.attention.qkv.weight/norm": 1.0}, step=step)
    for name in ("logs", "llmc"):
        (folder / name).mkdir()
    lines = "".join(
        f"iter {step}: loss {2 + 50 / (step + 50):.4f}, time 10.00ms, mfu 12.30%\n" for step in range(0, 1000, 10)
    )
    for path in ("train.log", "logs/other-tool.log", "llmc/main.log"):
        (folder / path).write_text(lines)
    (folder / "training.json").write_text('[{"log": "step", "step": 1, "loss": 2.0}]')


# -- stand-ins ---------------------------------------------------------------------------------------------


def _model() -> Any:
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50)
            self.config = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 50, "block_size": 8}

        def forward(self, tokens: Any) -> Any:
            logits = self.head(self.embed(tokens))
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    return Model()


def _images() -> Any:
    import numpy

    return numpy.zeros((2, 8, 8, 3))


def _optimizer(names: dict[str, Any]) -> Any:
    import torch

    return torch.optim.AdamW(names["model"].parameters(), lr=1e-3)


def _batch() -> Any:
    import torch

    return torch.arange(32).reshape(4, 8)


def _run() -> Any:
    import barograph

    return barograph.init("gpt", "snippet", dir="runs", **QUIET)


def _clip() -> Any:
    import torch

    return torch.nn.utils.clip_grad_norm_


def _data_parallel() -> Any:
    return lambda model: model


STAND_INS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "run": lambda names: _run(),
    "model": lambda names: _model(),
    "optimizer": _optimizer,
    "batch": lambda names: _batch(),
    "loader": lambda names: [_batch() for _ in range(3)],
    "batches": lambda names: [(_batch(), _batch()) for _ in range(4)],
    "tokenizer": lambda names: types.SimpleNamespace(pad_token_id=0),
    "clip_grad_norm_": lambda names: _clip(),
    "DistributedDataParallel": lambda names: _data_parallel(),
    "parameters": lambda names: list(names["model"].parameters()),
    "names": lambda names: [f"p{number}" for number in range(len(names["parameters"]))],
    "steps": lambda names: 3,
    "images": lambda names: _images(),
    "samples": lambda names: [0.0] * 100,
    "rows": lambda names: [{"question": "1 + 1", "answer": 2}],
    "text": lambda names: "an answer",
    "prompt": lambda names: "a question",
    "step": lambda names: 1,
    "epoch": lambda names: 0,
    "ranks": lambda names: 1,
    "tokens": lambda names: 1000,
    "loss": lambda names: 2.5,
    "value": lambda names: 2.5,
    "val_loss": lambda names: 2.5,
    "norm": lambda names: 1.0,
    "local_norm": lambda names: 1.0,
    "lr": lambda names: 3e-4,
    "path": lambda names: "ckpt/model.pt",
    "save": lambda names: lambda *arguments: None,
    "evaluate": lambda names: lambda: None,
    "config": lambda names: types.SimpleNamespace(enable_wandb=False, enable_tensorboard=False),
}


IMPORTS = (ast.Import, ast.ImportFrom)
NEEDED = {"optimizer": ("model",), "parameters": ("model",), "names": ("parameters",)}


def fill(tree: ast.Module, names: dict[str, Any]) -> None:
    """Stand-ins for the names that a snippet uses and neither it nor one before it has made."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    made = {node.id for node in found if isinstance(node.ctx, ast.Store)}
    made |= {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, IMPORTS) for alias in node.names}
    for node in found:
        if node.id not in made:
            make(node.id, names)


def make(name: str, names: dict[str, Any]) -> None:
    if name in STAND_INS and name not in names:
        for needed in NEEDED.get(name, ()):
            make(needed, names)
        names[name] = STAND_INS[name](names)


def main(document: Path) -> int:
    import barograph

    names: dict[str, Any] = {"__name__": "__main__", "barograph": barograph}
    for snippet in snippets(document):
        if snippet.reason:
            continue
        source = "\n" * (snippet.line - 1) + snippet.text
        fill(ast.parse(source), names)
        try:
            exec(compile(source, str(document), "exec"), names)
        except Exception:
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
