"""Targets: where messages go. Mail, Slack and a hundred others through Apprise.

In:   a message, in a thread that may wait.
Out:  the message at its target, or a TargetError whose sentence says why not, without a secret in it.

Apprise is the optional extra `barograph[alerts]`; it is imported when the first address is opened.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from barograph.sidecar.alerts.addresses import masked, scrubbed
from barograph.sidecar.alerts.alert import Alert, clean, compose

INSTALL = "pip install 'barograph[alerts]'"


class TargetError(Exception):
    """A message was not taken. `lasting`: no later one will be, so that trying again is of no use."""

    def __init__(self, sentence: str, lasting: bool = False):
        super().__init__(sentence)
        self.lasting = lasting


class Target(Protocol):
    """A place for messages. Both methods are called in one thread, may wait, and raise TargetError."""

    name: str
    gathers: bool  # many alerts become one message

    def open(self) -> None:
        """Get ready, and refuse what can never work."""

    def send(self, alerts: Sequence[Alert], about: str, more: int) -> None:
        """Bring the alerts there as one message; `about` says what run it is, `more` counts those left out."""


class Address:
    """A target that Apprise reaches by its address."""

    gathers = True

    def __init__(self, address: str):
        self.name = masked(address)
        self._address = address
        self._service: Any = None

    def open(self) -> None:
        try:
            with _listening() as said:
                import apprise

                asset = apprise.AppriseAsset(app_id="Barograph", app_desc="Barograph", secure_logging=True)
                found = apprise.Apprise.instantiate(self._address, asset=asset, suppress_exceptions=True)
        except ImportError:
            raise TargetError(f"alerts to {self.name} need Apprise: run {INSTALL}", lasting=True) from None
        except Exception as error:
            raise TargetError(f"{self.name} can't be opened: {self._reason([str(error)])}", lasting=True) from None
        if found is None:
            raise TargetError(self._why_not(said), lasting=True)
        if "overflow=" not in self._address:  # a long message is cut, where it would be refused
            found.overflow_mode = apprise.OverflowMode.TRUNCATE
        self._service = found

    def _why_not(self, said: list[str]) -> str:
        kind = self._address.partition("://")[0].strip().lower()
        kinds: list[str] = []
        with contextlib.suppress(Exception):
            from apprise import plugins

            known: Any = plugins.N_MGR
            kinds = sorted(str(item) for item in known.schemas())
        if kinds and kind not in kinds:
            nearest = difflib.get_close_matches(kind, kinds, n=1, cutoff=0.0)[0]
            return f"there is no kind of address {kind}://; the nearest one is {nearest}://"
        return f"{self.name} is not a whole address of its kind; see Apprise's page on {kind}:// for its form"

    def send(self, alerts: Sequence[Alert], about: str, more: int) -> None:
        title, body, gravest = compose(alerts, about, more)
        self.post(title, body, gravest)

    def post(self, title: str, body: str, kind: str) -> None:
        """One message; kind: "info", "warning", "critical" or "recovered"."""
        began = time.monotonic()
        with _listening() as said:
            try:
                taken = self._notify(title, body, {"critical": "failure", "recovered": "success"}.get(kind, kind))
            except Exception as error:  # a plugin's own mistake
                said.append(f"{type(error).__name__}: {error}")
                taken = False
        if not taken:
            took = time.monotonic() - began
            raise TargetError(f"{self._reason(said)} after {took:.1f} s" if took > 1 else self._reason(said))

    def _notify(self, title: str, body: str, sort: str) -> bool:
        """In this very thread: Apprise.notify takes one from a pool, and an interpreter waits for a pool's threads
        before it ends, however long."""
        import apprise
        from apprise import conversion

        convert: Any = conversion.convert_between
        resolve = getattr(self._service, "resolve_format", None)  # from Apprise 2.0 on: a service may have several
        form = resolve(apprise.NotifyFormat.TEXT) if resolve is not None else self._service.notify_format
        if self._service.title_maxlen <= 0:  # the title will be a part of the body
            title = convert(apprise.NotifyFormat.TEXT, form, content=title)
        body = convert(apprise.NotifyFormat.TEXT, form, content=body)
        kind = getattr(apprise.NotifyType, sort.upper())  # an enumeration, or in Apprise 1 a class of words
        return bool(self._service.notify(body=body, title=title, notify_type=kind, body_format=form))

    def _reason(self, said: list[str]) -> str:
        return scrubbed(clean(said[-1], 200), self._address).rstrip(".") if said else "it gave no reason"


# -- trying one out ------------------------------------------------------------------------------------------


class TargetTest(NamedTuple):
    """Whether a target took a message, and a sentence for people."""

    taken: bool
    sentence: str


def test_target(address: str, timeout: float = 30.0) -> TargetTest:
    """Send a message to the address now; `barograph alerts test`. Waits at most `timeout` seconds."""
    target, problem = Address(address), []
    if target.name == "****":
        return TargetTest(False, "That is not an address; write one such as mailto://user:password@gmail.com.")

    def attempt() -> None:
        try:
            target.open()
            target.post("Barograph: a test", "Alerts of your trainings will arrive here.", "info")
        except TargetError as error:
            problem.append(str(error))
        except Exception as error:
            problem.append(f"{type(error).__name__}: {scrubbed(clean(str(error), 200), address)}")

    thread = threading.Thread(target=attempt, name="barograph-alert-test", daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        return TargetTest(False, f"{target.name} did not answer within {timeout:g} s.")
    if problem:
        return TargetTest(False, f"{target.name} did not take the message: {problem[0]}.")
    return TargetTest(True, f"{target.name} took the message.")


test_target.__test__ = False  # type: ignore[attr-defined]  # for pytest, which calls what begins like that

# -- what Apprise says ---------------------------------------------------------------------------------------

_LOGGERS = ("apprise", "urllib3.connectionpool", "urllib3.util.retry")
_heard: dict[int, list[str]] = {}  # thread → what was said in it


class _Ear(logging.Filter):
    """Keeps what is said in a thread of ours from the user's logs: addresses are among it."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = _heard.get(threading.get_ident())
        if said is None:
            return True
        if record.levelno >= logging.WARNING and len(said) < 100:
            with contextlib.suppress(Exception):
                said.append(record.getMessage())
        return False


_ear = _Ear()


@contextlib.contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect what Apprise says in this thread meanwhile."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_ear)  # once, however often it is added
    said = _heard[threading.get_ident()] = []
    try:
        yield said
    finally:
        _heard.pop(threading.get_ident(), None)
