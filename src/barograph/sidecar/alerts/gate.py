"""Which messages about a cause are sent: once a cause, not again before a cool-down, and its end if its start was sent.

In:   a cause that stands, or is over; the moment in seconds of any clock that only goes forward.
Out:  whether to say so.
"""

from __future__ import annotations

from barograph.sidecar.alerts.alert import rank

_MOST_CAUSES = 4096  # a loop that invents causes must not grow the process


class _State:
    __slots__ = ("sent_at", "sent_rank", "told")

    def __init__(self) -> None:
        self.told = -1  # the level told since the cause began; -1: not told
        self.sent_at = float("-inf")
        self.sent_rank = -1


class Gate:
    """Pure: no clock and no thread of its own.

    A cause is sent when it begins. While it lasts it is not sent again, but for a more severe level. Within
    `cooldown` seconds of the last message on it a new beginning is held back; if it still lasts after that, it is sent
    then. An end is sent exactly where the beginning was.
    """

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def stands(self, cause: str, level: str, now: float, cooldown: float) -> bool:
        """The cause is there; may be said as often as it is seen. Whether to tell it now."""
        state, grave = self._state(cause), rank(level)
        if grave <= state.told:
            return False
        if state.told < 0 and now - state.sent_at < cooldown and grave <= state.sent_rank:
            return False
        state.told = state.sent_rank = grave
        state.sent_at = now
        return True

    def over(self, cause: str) -> bool:
        """The cause is gone. Whether to send that: its beginning was sent."""
        state = self._states.get(cause)
        if state is None or state.told < 0:
            return False
        state.told = -1
        return True

    def happens(self, cause: str, level: str, now: float, cooldown: float) -> bool:
        """Something that has no end, such as a call for an alert. Whether to tell it."""
        result = self.stands(cause, level, now, cooldown)
        self._states[cause].told = -1
        return result

    def sent(self, cause: str, level: str, moment: float) -> None:
        """It was sent before, by another process perhaps: the cool-down runs from then on."""
        state = self._state(cause)
        if moment > state.sent_at:
            state.sent_at, state.sent_rank = moment, rank(level)

    def _state(self, cause: str) -> _State:
        state = self._states.get(cause)
        if state is None:
            if len(self._states) >= _MOST_CAUSES:
                idle = next((name for name, state in self._states.items() if state.told < 0), None)
                del self._states[idle if idle is not None else next(iter(self._states))]
            state = self._states[cause] = _State()
        return state
