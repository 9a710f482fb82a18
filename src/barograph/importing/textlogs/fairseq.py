"""fairseq and metaseq: JSON on log lines, and the older forms.

In:   `2021-08-13 14:59:32 | INFO | train_inner | {"epoch": 1, "loss": "20.714", …, "num_updates": "10", …}`,
      `[2022-01-01 10:00:00,123][train_inner][INFO] - {…}`, the same with `train`, `valid` and `test`;
      `| epoch 001:    100 / 1102 loss=10.2, nll_loss=9.9, …, num_updates=100, lr=…`,
      `| epoch 001 | valid on 'valid' subset | valid_loss 8.1 | valid_ppl 274 | num_updates 138`, newer `| loss 8.1 |`.
Out:  the names as printed: `loss` of train_inner, `train_loss` of a whole epoch, `valid_loss`. The step is num_updates.

Losses are in base 2 (bits), as fairseq prints them, and stay so; `ppl` is 2 to that power. A note says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.source import ImportedPoints, Item
from barograph.importing.textlogs import engine, forms

_TAG = expression(
    rb"(?:\| INFO \| |\]\[|\[)(train_inner|train|valid|test|dev)((?:/|_)?[\w.-]{0,60})"
    rb"(?:\]\[INFO\])?(?: \||\]| -)[^{\n]{0,20}(\{\"[^\n]*\})\s*$"
)
_PAIR = expression(rb'"([^"]{1,100})": ?(?:"([^"]{0,100})"|([^",}\]\[{\s]{1,60}))(?=\s*[,}])')
_OLD = expression(rb"\| ?epoch (\d+):\s+(\d+) /\s*(\d+) (?=\w+=)")
_OLD_PAIR = expression(rb"(?<!\w)(\w{1,60})=(" + forms.NUMBER + rb")(?=[\s,(]|$)")
_EPOCH = expression(rb"\| ?epoch (\d+) \| (?:(valid|test) on '([^']{1,60})' subset \| )?(?=\w+ [-+\d])")
_EPOCH_PAIR = expression(rb"\| ?(\w{1,60}) (" + forms.NUMBER + rb")(?=\s*(?:\||$))")
_NO_NUMBER = expression(rb"^\s*(?:null|none|true|false|n/a)?\s*$", re.I)


def _json(line: bytes) -> forms.Parsed | None:
    match = _TAG.search(line)
    if match is None:
        return None
    tag = match[1].decode()
    prefix = f"{tag}{match[2].decode('utf-8', 'replace')} " if match[2] else ""
    names: dict[str, Any] = {}
    step = None
    for key, quoted, bare in _PAIR.findall(match[3]):
        value = quoted or bare
        name = key.decode("utf-8", "replace")
        if name == "num_updates" or name.endswith("_num_updates"):
            step = value if value.isdigit() and len(value) < 16 else step
        elif not _NO_NUMBER.match(value):
            names[prefix + name] = value
    if not names or step is None:
        return None
    return match.start(), step, tuple(names), tuple(names.values()), tag == "train_inner"


def _old(line: bytes) -> forms.Parsed | None:
    match = _OLD.search(line)
    if match is not None:
        names = {key.decode(): value for key, value in _OLD_PAIR.findall(line, match.end())}
        step = names.pop("num_updates", None)
        main = True
        names["epoch"] = match[1]
    else:
        match = _EPOCH.search(line)
        if match is None:
            return None
        names = {key.decode(): value for key, value in _EPOCH_PAIR.findall(line, match.end() - 2)}
        step = next((names.pop(key) for key in list(names) if key.endswith("num_updates")), None)
        if not match[2]:  # the whole epoch's means, in the names that the JSON form has
            names = {key if key.startswith("train_") else f"train_{key}": value for key, value in names.items()}
        elif match[3] in (b"valid", b"test"):  # newer versions leave the subset out of the names
            subset = match[3].decode()
            names = {key if key.startswith(f"{subset}_") else f"{subset}_{key}": value for key, value in names.items()}
        else:
            names = {f"{match[3].decode('utf-8', 'replace')} {key}": value for key, value in names.items()}
        main = False
    if step is None or not step.isdigit() or len(step) > 15 or not names:
        return None
    return match.start(), step, tuple(names), tuple(names.values()), main


class Fairseq(engine.Dialect):
    kind = "fairseq"
    about = "fairseq and metaseq, JSON and older forms"
    hints = (b"num_updates",)
    looks = expression(
        rb"(?:train_inner|\| valid|\]\[valid|\| train)\b[^{]{0,20}\{\"|\| ?epoch \d+(?::\s+\d+ / \d+ | \| )\w+[ =]"
    )
    shapes = (forms.Lines(_json), forms.Lines(_old))
    closers = (b"}",)

    def refine(self, points: ImportedPoints, own: dict[str, Any], segment: int) -> Iterator[Item]:
        if "told" not in own and any(name.endswith("loss") for name in points.names):
            own["told"] = True
            yield engine.note(points, "fairseq prints losses in base 2: multiply by 0.6931 to compare with others.")
        yield points

    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "nll_loss": "train/nll_loss",
        "ppl": "train/perplexity",
        "wps": "train/tokens_per_second",
        "ups": "train/steps_per_second",
        "wpb": "train/step_tokens",
        "bsz": "train/batch_size",
        "lr": "train/lr",
        "gnorm": "train/norm",
        "clip": "train/clip_percent",
        "loss_scale": "train/loss_scale",
        "train_wall": "train/wall_seconds",
        "wall": "train/elapsed_seconds",
        "gb_free": "memory/free_gb",
        "epoch": "train/epoch",
        "train_loss": "train/epoch_loss",
        "valid_loss": "eval/loss",
        "valid_nll_loss": "eval/nll_loss",
        "valid_ppl": "eval/perplexity",
        "valid_best_loss": "eval/best_loss",
    }


SOURCE = Fairseq()
