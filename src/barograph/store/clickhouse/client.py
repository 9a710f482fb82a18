"""One connection to a ClickHouse server over its HTTP interface, which every version has.

In:   an address; statements, and bytes in the format Native.
Out:  rows, bytes; a `ServerError` with one sentence where the server is away, refuses or says no.

Nothing here repeats a statement: whoever sends rows must know whether they may be sent twice.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from barograph.core.lazy import lazy
from barograph.store.clickhouse.address import ServerAddress

if TYPE_CHECKING:
    import http.client as http_client
    import ssl
else:
    http_client, ssl = lazy("http.client"), lazy("ssl")

OLDEST = (18, 16)
# an INSERT that was answered has arrived, and is asked for where it went to
_ON_CLUSTER = {"insert_distributed_sync": "1", "load_balancing": "in_order"}
_IDLE_SECONDS = 1.0  # a connection that was idle longer is not used again: servers close those after 3
_CODE = re.compile(r"Code: (\d+)")
_UNKNOWN_DATABASE, _UNKNOWN_TABLE, _READONLY, _DENIED, _NO_SPACE = 81, 60, 164, 497, 243
_LOGIN = (192, 193, 194, 516)  # unknown user, wrong password, password required, authentication failed


class ServerError(OSError):
    """The server can't be reached, or says no. code: the server's, 0 where it did not answer."""

    def __init__(self, sentence: str, code: int = 0):
        super().__init__(sentence)
        self.code = code

    @property
    def may_pass(self) -> bool:
        """Whether the same may succeed later without anybody changing a right or a name."""
        return self.code not in (_UNKNOWN_DATABASE, _UNKNOWN_TABLE, _READONLY, _DENIED, *_LOGIN)


class Client:
    """For one thread. Reconnects by itself with the next statement."""

    def __init__(self, address: ServerAddress):
        self.address = address
        self._connection: http_client.HTTPConnection | None = None
        self._used = 0.0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, statement: str, data: bytes | None = None, *, database: bool = True) -> bytes:
        """Run a statement; with data, an INSERT of it. Raises ServerError."""
        where = {"database": self.address.database} if database else {}
        settings = {"wait_end_of_query": "1", **where, **(_ON_CLUSTER if self.address.cluster else {})}
        if data is None:
            body = statement.encode("utf-8", "surrogatepass")
        else:
            settings["query"], body = statement, data
        status, answer = self._ask(f"/?{urlencode(settings)}", body)
        if status != http_client.OK:
            raise self._refusal(status, answer)
        return answer

    def rows(self, statement: str, database: bool = True) -> list[list[Any]]:
        """The rows of a SELECT: text and numbers, whole numbers perhaps as text."""
        answer = self.run(f"{statement} FORMAT JSONCompact", database=database)
        rows: list[list[Any]] = json.loads(answer.decode("utf-8", "surrogatepass"))["data"]
        return rows

    def version(self) -> tuple[int, int]:
        """The server's version. Raises ServerError where it is too old."""
        text = self.run("SELECT version()", database=False).decode().strip()
        found = re.match(r"(\d+)\.(\d+)", text)
        version = (int(found[1]), int(found[2])) if found else (0, 0)
        if version < OLDEST:
            raise ServerError(f"{self._name} is ClickHouse {text}; it takes {OLDEST[0]}.{OLDEST[1]} or newer")
        return version

    @property
    def _name(self) -> str:
        return f"the server {self.address.host}:{self.address.port}"

    def _ask(self, path: str, body: bytes) -> tuple[int, bytes]:
        headers = {
            "X-ClickHouse-User": self.address.user,
            "X-ClickHouse-Key": self.address.password,
            "Content-Type": "application/octet-stream",
        }
        try:
            if time.monotonic() - self._used > _IDLE_SECONDS:
                self.close()
            if self._connection is None:
                self._connection = self._connect()
            self._connection.request("POST", path, body, _plain(headers))
            response = self._connection.getresponse()
            answer = response.status, response.read()
            self._used = time.monotonic()
            return answer
        except ssl.SSLError as error:
            self.close()
            reason = getattr(error, "verify_message", "") or error.reason or "no TLS"
            raise ServerError(f"{self._name} can't be trusted or speaks no TLS ({reason})") from None
        except (OSError, http_client.HTTPException) as error:
            early = isinstance(error, (BrokenPipeError, ConnectionResetError)) and self._early()
            self.close()
            if early:
                return early
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ServerError(f"{self._name} did not answer ({reason})") from None

    def _early(self) -> tuple[int, bytes] | None:
        """What the server said before it had read all that it was sent: that it refuses it."""
        with contextlib.suppress(OSError, http_client.HTTPException):
            if self._connection is not None and self._connection.sock is not None:  # else it was reset at once
                response = self._connection.getresponse()
                return response.status, response.read()
        return None

    def _connect(self) -> http_client.HTTPConnection:
        address = self.address
        if not address.secure:
            return http_client.HTTPConnection(address.host, address.port, timeout=address.timeout)
        context = ssl.create_default_context(cafile=address.ca)
        return http_client.HTTPSConnection(address.host, address.port, timeout=address.timeout, context=context)

    def _refusal(self, status: int, answer: bytes) -> ServerError:
        text = answer.decode("utf-8", "replace")
        found = _CODE.search(text)
        code = int(found[1]) if found else 0
        user, database = self.address.user, self.address.database
        if code in _LOGIN or status in (http_client.UNAUTHORIZED, http_client.FORBIDDEN):
            sentence = f"{self._name} does not let {user!r} in: wrong name or password"
        elif code == _UNKNOWN_DATABASE:
            sentence = f"{self._name} has no database {database!r}; `barograph fleet migrate` creates it"
        elif code == _UNKNOWN_TABLE:
            sentence = f"the tables in {database!r} are missing; `barograph fleet migrate` creates them"
        elif code in (_READONLY, _DENIED):
            sentence = f"{self._name} does not allow {user!r} to do this: {_first(text)}"
        elif code == _NO_SPACE or "No space left on device" in text:
            sentence = f"{self._name} has no disk space left"
        elif not code:
            sentence = f"{self._name} answered with HTTP {status}; is it the HTTP port of a ClickHouse server?"
        else:
            sentence = f"{self._name} says: {_first(text)}"
        return ServerError(sentence, code)


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value.encode("utf-8").decode("latin-1") for name, value in headers.items()}


def _first(text: str) -> str:
    """What an exception of the server says, on one line."""
    told = re.sub(r"^Code: \d+[.,] ?(?:e\.displayText\(\) = )?(?:DB::Exception: )*", "", text.strip())
    return " ".join(told.split(", e.what()")[0].split())[:300]


def quote(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"


def listed(values: Sequence[int]) -> str:
    """Whole numbers for IN: never empty."""
    return f"({', '.join(map(str, values)) or 'NULL'})"
