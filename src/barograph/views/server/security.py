"""Who may ask what: hosts, origins, the token, the headers of every answer.

In:   requests, before anything looks at them.
Out:  the same requests if they may pass, else a refusal with one sentence; answers with headers that tie the page down.

Against another machine: the server listens on loopback; elsewhere every request needs the token. Against a name that is
made to lead here (DNS rebinding): `Host` must be an address or a name of this machine. Against another page in the same
browser: `Origin` and `Sec-Fetch-Site` must be our own, and edits need a word that only our page can read. Against names
and notes that want to be script: a content-security policy without inline script, and no guessing of types.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from barograph.views.server.addresses import is_loopback
from barograph.views.server.answers import error_answer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY = 1 << 20
MOST_HEAD = 64 << 10
EDIT_HEADER = b"x-barograph-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
HEADERS: dict[bytes, bytes] = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=()",
}


@dataclass
class Access:
    """Who may come in. token: None where it needs none. hosts: names beside addresses and those of loopback.

    proxy: the address that a proxy has for this server, https://host/path. edit_token: what every edit has to bring
    along. cookie: the name under which a browser keeps the token.
    """

    token: str | None = None
    is_loopback: bool = True
    proxy: str = ""
    hosts: frozenset[str] = frozenset()
    port: int = 0
    edit_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def origin(self) -> str:
        """Of the proxy's address."""
        return "/".join(self.proxy.split("/")[:3])

    @property
    def base(self) -> str:
        """The path of the proxy's address, without a / at its end; empty where the page is at the top."""
        return self.proxy[len(self.origin) :].rstrip("/")

    @property
    def cookie(self) -> str:
        # cookies are shared by all ports of a host
        return f"barograph-{self.port}"


class Guard:
    """ASGI middleware around the whole server."""

    def __init__(self, app: ASGIApp, access: Access):
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = {}
        doubled = set()
        for name, value in scope["headers"]:
            doubled.update({name} & headers.keys())
            headers[name] = value
        scope = self._below_base(scope)
        refusal = self._refusal(scope, headers, doubled)
        secured = _secured(send)
        if refusal is not None:
            await error_answer(*refusal)(scope, receive, secured)
            return
        if (redirect := self._with_token(scope)) is not None:
            await secured({"type": "http.response.start", "status": 303, "headers": redirect})
            await secured({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, secured)

    # -- inside ---------------------------------------------------------------------------------------

    def _below_base(self, scope: Scope) -> Scope:
        base = self._access.base
        if not base or not f"{scope['path']}/".startswith(f"{base}/"):
            return scope
        path = scope.get("raw_path", scope["path"].encode("latin-1", "replace"))[len(base) :] or b"/"
        return {**scope, "path": scope["path"][len(base) :] or "/", "raw_path": path}

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes], doubled: set[bytes]) -> tuple[int, str] | None:
        """Status and sentence for a request that may not pass; None for one that may."""
        if doubled & {b"host", b"origin", b"content-length", b"authorization", EDIT_HEADER}:
            return 400, "a header stands twice in the request"
        if sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope["query_string"]) > MOST_HEAD:
            return 431, f"a request's headers and address may have {MOST_HEAD >> 10} kB"
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._host_is_ours(host):
            return 403, f"this server is not called {_name_of(host)[:100]!r}; open it by its address, or as localhost"
        if not self._origin_is_ours(scope, headers, host):
            return 403, "another site asked for this; open the page itself"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > MOST_BODY:
            return 413, f"a request may have {MOST_BODY >> 20} MB"
        if self._access.token is not None and not self._has_token(scope, headers):
            return 401, "this needs the token that `barograph view` printed: open the address with ?token= once"
        method = scope["method"]
        if method in ("PUT", "POST", "PATCH"):
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            if kind != b"application/json" and (length != b"0" or b"transfer-encoding" in headers):
                return 415, "a request's body has to be application/json"
        if method in ("GET", "HEAD") or (method == "POST" and scope["path"] == "/api/series"):
            return None
        if method not in ("PUT", "POST", "DELETE"):
            return 405, f"there is no {method[:20]} here"
        said = headers.get(EDIT_HEADER, b"")
        if not hmac.compare_digest(said, self._access.edit_token.encode()):
            return 403, "an edit needs the header X-Barograph-Token with the word from /api/about; reload the page"
        return None

    def _host_is_ours(self, host: str) -> bool:
        """An address can't be rebound; a name has to be one of ours. On loopback only loopback's own pass."""
        name = _name_of(host)
        if is_loopback(name) or name.rstrip(".") in self._access.hosts:
            return True
        if self._access.is_loopback:
            return False
        try:
            ipaddress.ip_address(name.split("%")[0])
        except ValueError:
            return False
        return True

    def _origin_is_ours(self, scope: Scope, headers: dict[bytes, bytes], host: str) -> bool:
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() != self._access.origin:
            scheme, _, where = origin.decode("latin-1").partition("://")
            if scheme not in ("http", "https") or where.lower() != host.lower():
                return False
        site = headers.get(b"sec-fetch-site", b"none")
        if site in (b"none", b"same-origin"):
            return True
        # somebody may link to the page; nothing else of it can be had from another site
        return headers.get(b"sec-fetch-mode") == b"navigate" and not scope["path"].startswith(("/api/", "/assets/"))

    def _has_token(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        token = (self._access.token or "").encode()
        said = headers.get(b"authorization", b"")
        found = [said[7:]] if said[:7].lower() == b"bearer " else []
        for part in headers.get(b"cookie", b"").split(b";"):
            name, _, value = part.strip().partition(b"=")
            if name == self._access.cookie.encode():
                found.append(value)
        found += [value.encode() for name, value in _query(scope) if name == "token"]
        return any([hmac.compare_digest(item, token) for item in found])

    def _with_token(self, scope: Scope) -> list[tuple[bytes, bytes]] | None:
        """A page opened with the token in its address: the browser keeps it, and the address loses it."""
        if self._access.token is None or scope["method"] != "GET" or scope["path"].startswith("/api/"):
            return None
        asked = _query(scope)
        rest = [(name, value) for name, value in asked if name != "token"]
        if len(rest) == len(asked):
            return None
        path = self._access.base + "/" + scope.get("raw_path", b"/").decode("latin-1").split("?")[0].lstrip("/\\")
        where = path + (f"?{urlencode(rest)}" if rest else "")
        below = self._access.base or "/"
        kept = f"{self._access.cookie}={self._access.token}; Path={below}; HttpOnly; SameSite=Lax; Max-Age=2592000"
        return [(b"location", where.encode()), (b"set-cookie", kept.encode()), (b"cache-control", b"no-store")]


def _query(scope: Scope) -> list[tuple[str, str]]:
    try:
        return parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        return []


def _name_of(host: str) -> str:
    """The host of `host:port`, in small letters; [::1] without its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") <= 1 else host


def _secured(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: list[Any] = list(message.get("headers", ()))
            known = {name.lower() for name, _ in headers}
            headers += [(name, value) for name, value in HEADERS.items() if name not in known]
            if b"cache-control" not in known:
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await send(message)

    return sending
