"""Which series plays a role, and whether another one did before.

In:   the channels of a run, and how many rows each has.
Out:  the channel of a role; the roles that another channel has taken over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core.roles import RECORDED, ROLES, candidates, is_of_held_out
from barograph.core.unnamed import accuracy_beside, evaluation_by_rows, loss_by_rows, measured_by_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barograph.doctor.kernel.channels import Channel

_DECIDED = 64  # rows after which the one of several series that plays a role is chosen


class _Choice(NamedTuple):
    """channels: how many there were; finished: whether the run was over; names: of those that may play the role;
    decided: whether more rows can't change it; follows: a role by whose series it was chosen, and that series;
    pending: those of which rows are waited for, with how many they had.
    """

    channels: int
    finished: bool
    names: list[str]
    decided: bool
    channel: Channel | None
    follows: tuple[str, Channel | None] | None = None
    pending: tuple[tuple[Channel, int], ...] = ()


class PlayedRoles:
    """Of several series that may play a role, the one that had most rows when the first of them had `_DECIDED`: so the
    answer depends on what was logged, not on when somebody asked. Before that names decide alone, at the end of a
    shorter run all its rows. `evaluation` is the first series of data held out, whatever it measures. What no name
    tells, a loss of the training or of an evaluation, or such a measure, is known by its rows (`unnamed`).
    """

    def __init__(self, channels: Mapping[str, Channel], facts: Mapping[str, Any]):
        self._channels, self._facts = channels, facts
        self._chosen: dict[str, _Choice] = {}
        self._decided_at: dict[str, tuple[bool, int]] = {}  # role → whether it is a time, and which time or step
        self._replaced: set[str] = set()

    def channel(self, role: str) -> Channel | None:
        """The series that plays a role now; None if there is none."""
        known = self._chosen.get(role)
        finished = bool(self._facts.get("finished"))
        if (
            known is None
            or known.channels != len(self._channels)
            or not (known.decided or self._waits(known))
            or known.finished != finished
        ):
            before, known = known, self._decide(role, finished)
            self._chosen[role] = known
            if before is None or (before.channel is None and before.follows is None and not before.pending):
                return known.channel  # nobody has asked, or what has come is new
            if before.channel is not known.channel:
                self._replaced.add(role)
        return known.channel

    def replaced(self) -> set[str]:
        """The roles that another series plays than before; each is named once."""
        for role in list(self._chosen):
            self.channel(role)
        result, self._replaced = self._replaced, set()
        return result

    def _waits(self, choice: _Choice) -> bool:
        """Whether nothing has come that decides who plays a role."""
        still = all(one.end == rows for one, rows in choice.pending)
        if choice.follows is not None:
            role, channel = choice.follows
            return still and self.channel(role) is channel
        return still and all(self._channels[name].end <= _DECIDED for name in choice.names)

    def _decide(self, role: str, finished: bool) -> _Choice:
        if role == "evaluation":
            logged = (pair for pair in self._channels.items() if not pair[0].startswith(RECORDED))
            held_out = [channel for name, channel in logged if is_of_held_out(name)]
            first = min(held_out, key=lambda one: (one.began[1], one.began[0], one.name), default=None)
            if first is None:
                return self._by_rows(role, finished)
            return _Choice(len(self._channels), finished, [], True, first)
        names = candidates(role, self._channels, lambda name: 0)
        channels = [self._channels[name] for name in names]
        if not names and role in ("eval_loss", "eval_accuracy"):
            return self._by_rows(role, finished)
        if not names and role == "loss":
            found, pending = loss_by_rows(self._channels)
            counts = tuple((channel, channel.end) for channel in pending)
            return _Choice(len(self._channels), finished, [], not pending, found, pending=counts)
        if len(names) < 2:
            return _Choice(len(self._channels), finished, names, True, channels[0] if channels else None)
        if role not in self._decided_at:
            full = [rows for channel in channels if len(rows := channel.rows(_DECIDED, _DECIDED + 1))]
            if full:
                timed = any(rows.time.any() for rows in full)
                self._decided_at[role] = timed, min(int((rows.time if timed else rows.step)[0]) for rows in full)
        decided = role in self._decided_at
        if decided:
            timed, moment = self._decided_at[role]

            def count(name: str) -> int:
                rows = self._channels[name].rows(0, _DECIDED + 2)
                return int(((rows.time if timed else rows.step) <= moment).sum())

            names = candidates(role, self._channels, count)
        elif finished:
            names = candidates(role, self._channels)
        if role == "loss" and (decided or finished) and names[0] not in ROLES[role][0]:
            names = sorted(names, key=self._is_of_nothing)
        return _Choice(len(self._channels), finished, names, decided, self._channels[names[0]])

    def _by_rows(self, role: str, finished: bool) -> _Choice:
        """Who plays a role of the evaluation that no name tells: by its rows, or beside what is known by its rows."""
        followed = "eval_loss" if role == "eval_accuracy" else "loss"
        beside, found = self.channel(followed), None
        pending: list[Channel] = []
        if beside is not None and role == "eval_loss":
            found, pending = evaluation_by_rows(self._channels, beside)
        elif beside is not None and role == "evaluation":
            found, pending = measured_by_rows(self._channels, beside)
        elif beside is not None and self._chosen[followed].follows is not None:
            found = accuracy_beside(self._channels, beside)
        counts = tuple((channel, channel.end) for channel in pending)
        return _Choice(len(self._channels), finished, [], False, found, (followed, beside), counts)

    def _is_of_nothing(self, name: str) -> bool:
        """Whether a series is 0 from its first row on: the loss of a part that is not trained."""
        rows = self._channels[name].rows(0, _DECIDED + 2)
        return len(rows) > 0 and not rows.value.any()
