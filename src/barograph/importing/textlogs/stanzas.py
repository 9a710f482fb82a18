"""Logs whose rows are several lines: OLMo, Composer, the tables of Stable-Baselines3 and Spinning Up, RLlib's results.

In:   `[step=10/1000,epoch=0]` and then lines `    train/CrossEntropyLoss=2.3`;
      `[batch=10/4800]:` and then lines ` Train loss/train/total: 2.3`;
      lines `|    ep_rew_mean    | 200 |` between two lines of dashes, under headings `| rollout/ |  |`; lines
      `Evaluation/AverageReturn    192.4` between two lines of two dashes each;
      lines `  episode_reward_mean: 22.5`, one of which says `training_iteration: 7`.
Out:  the names as printed, in tables with their heading before them. The step of a table is its time steps, else its
      epoch or iteration.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms, trials

_TWO = rb"(?>(?!----)[^\n\s|](?:[^\n |]| (?! )){0,100} {2,80}[^\n\s|]{1,40} {0,8})"  # a row of two columns
_STANZA = expression(
    rb"(?m)\[step=\d{1,15}(?:/\d+)?(?:,epoch=\d+)?\]\n(?:[ \t]+[^\n=\[\]]{1,100}=[^\n]{1,60}\n?){1,400}"
    rb"|\[batch=\d{1,15}/\d+\]:\n(?:[ \t]+(?:Train|Eval) [^\n:]{1,100}: [^\n]{1,60}\n?){1,400}"
    rb"|^[ ]{0,4}-{12,}\n(?:[ ]{0,4}\|[^\n|]{1,100}\|[^\n|]{1,60}\|\n){1,200}[ ]{0,4}-{12,}$"
    rb"|^-{4,}[ ]{1,4}-{4,}\n(?:" + _TWO + rb"\n){2,200}+-{4,}[ ]{1,4}-{4,}$"
)
_BEGUN = expression(  # a table of two columns that goes on, and the line above it
    rb"(?m)(?:^([^\n]*)\n)?^-{4,}[ ]{1,4}-{4,}\n((?:" + _TWO + rb"\n){0,200}+)\Z"
)
_PAIR = expression(_TWO + rb"$")
_RESULT = expression(  # of RLlib: one line says the iteration
    rb"(?m)^(?:[ \t]{0,40}[A-Za-z][\w/.-]{0,80}:(?:[ \t][^\n]{0,300})?\n){4,400}+"
)
_ITERATION = expression(rb"(?m)^[ \t]{0,8}training_iteration: (\d{1,15})$")
_ENTRY = expression(rb"\x1f ?([A-Za-z][\w/.-]{0,80}): (" + forms.NUMBER + rb")(?=\x1f|\s*$)")
_OF_PROCESS = frozenset(
    (b"pid", b"date", b"timestamp", b"node_ip", b"time_since_restore", b"time_this_iter_s", b"iterations_since_restore")
)
_RESULT_HEAD = expression(rb"\[training_iteration=(\d{1,15})(?: trial=([^\]\n]{1,80}))?\] ")
_TRIAL = expression(rb"(?m)^[ \t]{0,8}trial_id: ([\w-]{1,80})$")
_OPEN = expression(rb"\[(?:step|batch)=\d+(?:/\d+)?(?:,epoch=\d+)?\]:?\n(?:[ \t]++[^\n]*\n)*+$")
_HEAD = expression(rb"\[(?:step|batch)=(\d{1,15})(?:/\d+)?(?:,epoch=\d+)?\]:? ")
_EQUALS = expression(rb"\x1f ?([^\x1f=]{1,100})=(" + forms.NUMBER + rb")(?=\x1f|\s*$)")
_COLON = expression(rb"\x1f ?(?:Train )?([^\x1f:]{1,100}): (" + forms.NUMBER + rb")(?=\x1f|\s*$)")
_PAIRS = expression(rb"\x1f ?([^|\x1f]{1,100}?) ([^ |\x1f]{1,40})(?=\x1f)")  # of two columns with blanks between
_CELLS = expression(rb"\|\s*([^|\x1f]{1,100}?)\s*\|\s*([^|\x1f]{0,60}?)\s*\|")
_NUMBER = expression(forms.NUMBER)
_COUNTS = (
    "total_timesteps",
    "TotalEnvInteracts",
    "TotalEnvSteps",
    "timesteps",
    "Epoch",
    "epoch",
    "Iteration",
    "iterations",
    "step",
    "steps",
    "iteration",
    "global_step",
)


def _stanza(line: bytes) -> forms.Parsed | None:
    found = _HEAD.search(line) if b"\x1f" in line else None
    if found is None:
        return None
    pairs = (_COLON if found[0].startswith(b"[batch") else _EQUALS).findall(line, found.end() - 1)
    names = {name.decode("utf-8", "replace").strip(): value for name, value in pairs}
    return (found.start(), found[1], tuple(names), tuple(names.values()), True) if names else None


def _table(line: bytes) -> forms.Parsed | None:
    if b"\x1f" not in line or not line.lstrip(b" ").startswith(b"----"):
        return None
    heading, step, names = "", None, {}
    for key, value in _CELLS.findall(line) or _PAIRS.findall(line):
        name = key.decode("utf-8", "replace")
        if not value:
            heading = name if name.endswith("/") else ""
        elif _NUMBER.fullmatch(value):
            names[heading + name] = value
    for count in _COUNTS:
        step = step or next((value for name, value in names.items() if name.rpartition("/")[2] == count), None)
    step = _whole(step or b"")
    if step is None or len(names) < 2:
        return None
    return 0, step, tuple(names), tuple(names.values()), True


def _result(line: bytes) -> forms.Parsed | None:
    found = _RESULT_HEAD.search(line) if b"\x1f" in line else None
    if found is None:
        return None
    names: dict[str, bytes] = {}
    for name, value in _ENTRY.findall(line, found.end() - 1):
        if name not in _OF_PROCESS:
            names.setdefault(name.decode(), value)
    names.pop("training_iteration", None)
    if found[2]:
        names = {f"{found[2].decode()} {name}": value for name, value in names.items()}
    return (found.start(), found[1], tuple(names), tuple(names.values()), True) if names else None


def _whole(text: bytes) -> bytes | None:
    """A count, which a table may write as `8e+04`."""
    try:
        number = float(text)
    except ValueError:
        return None
    return b"%d" % number if number.is_integer() and 0 <= number < 1e15 else None


def _joined(found: re.Match[bytes], own: dict[str, Any]) -> bytes:
    """The lines of a result in the place of its first one, with the iteration ahead, and the trial where several run
    at once and it is not the first one."""
    said, trial = _ITERATION.search(found[0]), _TRIAL.search(found[0])
    if said is None:
        return found[0]
    lines = [b" ".join(line.split()) for line in found[0].split(b"\n")]
    first = own.setdefault("trial", trial[1].decode()) if trial else ""
    other = b" trial=%s" % trial[1] if trial and own.get("apart") and trial[1].decode() != first else b""
    return b"[training_iteration=%s%s] \x1f" % (said[1], other) + b"\x1f".join(lines) + b"\n" * found[0].count(b"\n")


def _last_row(text: bytes) -> bytes:
    """The last row of a text that ends ahead of another one."""
    found = _OPEN.search(text[: text.rfind(b"\n") + 1], max(text.rfind(b"[step="), text.rfind(b"[batch="), 0))
    return found[0] if found else b""


def _begun(text: bytes) -> int | None:
    """Where a table of two columns begins that goes on at a text's end; None where none does."""
    dashes = text.rfind(b"\n---") + 1
    found = (
        _BEGUN.match(text, text.rfind(b"\n", 0, max(dashes - 1, 0)) + 1) if text.startswith(b"---", dashes) else None
    )
    if found is None or (not found[2] and found[1] is not None and _PAIR.match(found[1])):
        return None  # that line ends a table
    return found.end(1) + 1 if found[1] is not None else found.start()


def _names_of(lines: bytes) -> list[bytes]:
    """What the lines of a row are called, [] for a row without lines."""
    return [line.replace(b": ", b"=").partition(b"=")[0] for line in lines.split(b"\n")[1:-1]]


class Stanzas(engine.Dialect):
    kind = "stanzas"
    about = "rows of several lines: OLMo, Composer, Stable-Baselines3, Spinning Up, RLlib"
    hints = (b"[step=", b"[batch=", b"----", b"training_iteration")
    shapes = (forms.Lines(_stanza), forms.Lines(_table), forms.Lines(_result))
    aliases: ClassVar[engine.Aliases] = {
        "train/CrossEntropyLoss": "train/loss",
        "train/CE loss": "train/loss",
        "loss/train/total": "train/loss",
        "optim/total_grad_norm": "train/norm",
        "optim/total grad norm": "train/norm",
        "train/loss": "train/loss",
    }

    def prepare(self, text: bytes, own: dict[str, Any]) -> bytes:
        if not any(hint in text for hint in self.hints):
            return text

        def join(match: re.Match[bytes]) -> bytes:
            lines = [b" ".join(line.split()) for line in match[0].split(b"\n")]
            return lines[0] + b" \x1f" + b"\x1f".join(lines[1:]) + b"\n" * match[0].count(b"\n")

        if b"training_iteration: " in text:
            own["apart"] = own.get("apart") or trials.in_turn(_TRIAL.findall(text))
            text = _RESULT.sub(lambda found: _joined(found, own), text)
        return _STANZA.sub(join, text)

    def hold(self, text: bytes) -> int:
        """A row that may go on: nothing but its lines stand behind its beginning, and it has not yet said all that the
        row before it says."""
        match = _OPEN.search(text, max(text.rfind(b"[step="), text.rfind(b"[batch="), 0))
        if match and _names_of(match[0]) == _names_of(_last_row(text[: match.start()])):
            return 0
        if match:
            return len(text) - match.start()
        dashes = text.rfind(b"\n---") + 1
        if text.endswith(b"|\n") and text.startswith(b"---", dashes):
            return len(text) - dashes
        begun = _begun(text)
        return 0 if begun is None else len(text) - begun


SOURCE = Stanzas()
