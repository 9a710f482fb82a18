"""Where a store on a ClickHouse server is: `clickhouse://user@host:8123/database`.

In:   an address as a person gives it, in an option, a variable or a command.
Out:  its parts; the same address without its password, which is what may be printed and stored.

The password is best kept out of the address: `BAROGRAPH_CLICKHOUSE_PASSWORD` has it, or the file that `password_file=`
names. Options behind a `?`: secure=1 (TLS), ca=FILE, password_file=FILE, timeout=SECONDS, cluster=NAME.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from barograph.core.options import PASSWORD_VARIABLE

SCHEME = "clickhouse"
MARK = ".fetched.json"  # in the folder of a run that is a copy of one on a server
PORT, SECURE_PORT = 8123, 8443
_OPTIONS = ("secure", "ca", "password_file", "timeout", "cluster")
_DATABASE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLUSTER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class ServerAddress:
    """A database on a server. ca: a file of certificates that the server's must be signed by; timeout in seconds;
    cluster: of the server's configuration, whose servers have the tables together."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    secure: bool = False
    ca: str | None = None
    timeout: float = 60.0
    cluster: str = ""

    def __str__(self) -> str:
        """As it may be printed: without the password."""
        options = ({"secure": "1"} if self.secure else {}) | ({"cluster": self.cluster} if self.cluster else {})
        ending = f"?{urlencode(options)}" if options else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}://{self.user}@{host}:{self.port}/{self.database}{ending}"


def is_address(text: object) -> TypeGuard[str]:
    """Whether this names a server and not a folder."""
    return isinstance(text, str) and text.startswith(f"{SCHEME}://")


def has_password(text: str) -> bool:
    """Whether an address has a password in it."""
    return ":" in text.partition("://")[2].partition("/")[0].rpartition("@")[0]


def parse_address(text: str) -> ServerAddress:
    """The parts of an address. Raises ValueError with a sentence that doesn't repeat a password."""
    form = "an address is clickhouse://user@host:8123/database"
    if not is_address(text):
        raise ValueError(form)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"the host or port is wrong; {form}") from None
    if not parts.hostname:
        raise ValueError(f"the host is missing; {form}")
    database = unquote(parts.path.strip("/")) or "barograph"
    if not _DATABASE.fullmatch(database):
        raise ValueError(f"{database!r} is not the name of a database: it has letters, digits and _ alone")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise ValueError(f"an address has no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}")
    cluster = options.get("cluster", "")
    if cluster and not _CLUSTER.fullmatch(cluster):
        raise ValueError(f"{cluster!r} is not the name of a cluster: it has letters, digits, _, - and . alone")
    secure = options.get("secure", "0").lower() in ("1", "true", "yes")
    try:
        timeout = float(options.get("timeout", 60))
        if not 0 < timeout < 86_400:
            raise ValueError
    except ValueError:
        raise ValueError(f"timeout={options['timeout']} is not a number of seconds") from None
    return ServerAddress(
        parts.hostname,
        port or (SECURE_PORT if secure else PORT),
        database,
        unquote(parts.username or "default"),
        _password(unquote(parts.password) if parts.password is not None else None, options.get("password_file")),
        secure,
        options.get("ca"),
        timeout,
        cluster,
    )


def _password(given: str | None, file: str | None) -> str:
    if given is not None:
        return given
    if file is not None:
        try:
            return Path(file).expanduser().read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the password's file {file} can't be read ({type(error).__name__})") from None
    return os.environ.get(PASSWORD_VARIABLE, "")
