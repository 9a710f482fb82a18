"""What requests ask, checked: bodies of a bounded size, whole numbers, runs by their keys.

In:   requests.
Out:  plain values, or an error with a sentence and the status that goes with it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barograph.views.server.answers import error_answer
from barograph.views.server.events import TooMany
from barograph.views.server.layers import NotThere
from barograph.views.server.places import Places, RunPlace, canonical
from barograph.views.server.security import MOST_BODY
from barograph.views.server.series import sentence
from barograph.views.server.slow import StillWorking

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

# what may stand behind a run's key
RUNS = "/api/runs/"
ACTIONS = ("names", "layers", "histograms", "experts", "media", "findings", "system", "report.html")
# and behind it in the address of its page
PAGES = "/run/"
TABS = ("overview", "charts", "layers", "media", "system", "doctor")


class TooLarge(ValueError):
    """The request is larger than anything that is asked for."""


class Missing(RuntimeError):
    """A part of Barograph that is not installed."""


async def body_of(request: Request, most: int = MOST_BODY) -> bytes:
    """The request's body. Raises TooLarge, also where the request didn't say how long it is."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > most:
            raise TooLarge(f"a request may have {most >> 10:,} kB")
    return bytes(found)


def number_of(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number of the query, within its bounds. Raises ValueError."""
    said = request.query_params.get(name)
    if said is None or not said.strip():
        return default
    try:
        return min(max(int(said[:18]), low), high)
    except ValueError:
        raise ValueError(f"{name} is a whole number, not {said[:40]!r}") from None


def run_and_action(
    places: Places, request: Request, lead: str = RUNS, actions: Sequence[str] = ACTIONS
) -> tuple[RunPlace, str]:
    """The run that an address behind `lead` names, and what is asked of it, "" for the run itself.

    The address is taken as it was sent, since a run's folder may have a percent sign. Runs don't lie in runs, so it has
    one reading at most. Raises KeyError.
    """
    path = request.scope["raw_path"].decode("latin-1")
    if not path.startswith(lead):
        raise KeyError("there is no such run here")
    path = path[len(lead) :].rstrip("/")
    head, _, tail = path.rpartition("/")
    if tail in actions and head and canonical(path) not in places.known():
        return places.find(head), tail
    return places.find(path), ""


_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (TooLarge, 413), (Missing, 501), (StillWorking, 503), (TooMany, 503), (NotThere, 404), (KeyError, 404),
    (FileNotFoundError, 404), (PermissionError, 403), (ValueError, 400),
)  # fmt: skip


def answer_to(error: BaseException) -> Response:
    """The answer to a request that went wrong: a sentence, never a stack trace."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    said: Any = sentence(error)
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if status == 500 and not isinstance(error, OSError):
        logging.getLogger("barograph.server").error("a request failed", exc_info=error)
        said = f"the server failed ({type(error).__name__}); its terminal has the details"
    headers = {"retry-after": "2"} if status == 503 else None
    return error_answer(status, str(said)[:1000], headers)
