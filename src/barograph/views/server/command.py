"""The command `barograph view`.

In:   a folder of runs, where to listen.
Out:  a server that goes on until it is interrupted; an exit code.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import webbrowser
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barograph.core.options import TOKEN_VARIABLE
from barograph.query.folders import keep_fetching, place_name, runs_folder
from barograph.store.clickhouse.address import is_address
from barograph.views.server.addresses import is_loopback, own_names
from barograph.views.server.security import Access

if TYPE_CHECKING:
    from barograph.views.server.app import Server

HOST, PORT = "127.0.0.1", 6060
_PROXY = re.compile(r"(https?://[A-Za-z0-9.-]+(?::\d+)?)((?:/[A-Za-z0-9._~-]+)*)")
_PORTS = 40  # looked at for a free one, from PORT on
_SHORTEST_TOKEN = 16
_SWITCH_SECONDS = 0.001  # between threads: an answer is a few milliseconds, and passes through several of them
_M_ARENA_MAX = -8  # of glibc's malloc.h
_M_MMAP_THRESHOLD = -3


def view(
    dir: str | os.PathLike[str] | None = None,
    port: int | None = None,
    host: str = HOST,
    open_browser: bool = True,
    token: str | None = None,
    url: str = "",
) -> int:
    """Serve the page of a folder of runs (a project, one run) until Ctrl-C; returns the exit code.

    dir: by default `BAROGRAPH_DIR`, else `runs`. port: None or 0 for a free one near 6060. host: any other than
    loopback needs a token. token: by default `BAROGRAPH_TOKEN`, else one is made where one is needed. url: the address
    that a proxy has for this server; it needs a token too. Raises ValueError and OSError with one sentence.
    """
    root = runs_folder(dir)
    if dir is not None and not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root}; name one that holds runs, or leave it out")
    try:
        import uvicorn
        from starlette import applications  # noqa: F401
    except ImportError:
        raise ValueError('the page needs starlette and uvicorn: pip install "barograph[view]"') from None
    from barograph.views.server.app import Server

    local = is_loopback(host)
    if port is not None and not 0 <= port < 1 << 16:
        raise ValueError(f"a port is a number from 0 to 65535, not {port}")
    token = _token(token)
    proxy = _proxy(url)
    if token is None and (proxy or not local):
        import secrets

        token = secrets.token_urlsafe(24)
    listening = _listen(host, port)
    _few_arenas()
    sys.setswitchinterval(_SWITCH_SECONDS)
    bound = listening.getsockname()[1]
    names = frozenset() if local else own_names(host)
    access = Access(token, local, proxy, names | _host_of(proxy), bound)
    server = Server(root, access)
    shown = f"{proxy}/" if proxy else f"http://{_shown(host, local)}:{bound}/"
    config = uvicorn.Config(
        server.app, log_level="error", access_log=False, server_header=False, lifespan="off", ws="none", http="h11",
        loop="asyncio", timeout_graceful_shutdown=2, timeout_keep_alive=30,
    )  # fmt: skip
    shown += f"?token={token}" if token else ""
    print(f"Barograph shows {place_name(dir)} at {shown}  (Ctrl-C ends it)", flush=True)
    if proxy:
        print(f"The proxy passes on to http://{_shown(host, local)}:{bound}, with the path as it is.", flush=True)
    if token:
        notes = "" if is_address(place_name(dir)) else " and edit their notes"
        print(f"Whoever has this address with its token can read these runs{notes}.", flush=True)
    threading.Thread(target=_warm, args=(server,), daemon=True).start()
    if open_browser and not proxy and _has_browser():
        where = f"http://{'127.0.0.1' if local or host in ('0.0.0.0', '::') else host}:{bound}/"
        opened = threading.Timer(0.3, webbrowser.open, [where + (f"?token={token}" if token else "")])
        opened.daemon = True
        opened.start()
    stop = threading.Event()
    keep_fetching(dir, stop)
    try:
        _server_class()(config, server).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        stop.set()
        listening.close()
    return 0


def _token(given: str | None) -> str | None:
    """The token that is given, or that the environment has. Raises ValueError where others would guess it."""
    token, what = (given, "a token") if given is not None else (os.environ.get(TOKEN_VARIABLE) or None, TOKEN_VARIABLE)
    if token is not None and len(token) < _SHORTEST_TOKEN:
        raise ValueError(f"{what} of {len(token)} characters is too short; give {_SHORTEST_TOKEN} or more")
    if token is not None and not (token.isascii() and token.replace("-", "").replace("_", "").isalnum()):
        raise ValueError(f"{what} has a character that it can't have; give letters, digits, - and _")
    return token


def _proxy(url: str) -> str:
    """An address without a / at its end. Raises ValueError."""
    found = _PROXY.fullmatch(url.rstrip("/"))
    if url and found is None:
        raise ValueError(f"{url!r} is not the address of a page, such as https://team.example/barograph")
    return found[1].lower() + found[2] if found else ""


def _host_of(proxy: str) -> frozenset[str]:
    host = urlsplit(proxy).hostname
    return frozenset([host]) if host else frozenset()


def _server_class() -> type:
    import uvicorn

    class QuietServer(uvicorn.Server):
        """uvicorn's, which ends the streams of events before it waits for them."""

        def __init__(self, config: uvicorn.Config, served: Server):
            super().__init__(config)
            self._served = served

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            self._served.close()
            await super().shutdown(sockets)

    return QuietServer


def _listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens. Raises OSError with a sentence."""
    candidates = [port] if port else [*range(PORT, PORT + _PORTS), 0]
    reason: OSError | None = None
    for candidate in candidates:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, candidate, type=socket.SOCK_STREAM)[0]
        except socket.gaierror:
            raise OSError(
                f"there is no address {host!r} to listen at; leave out --host for this machine alone"
            ) from None
        result = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            result.bind(address)
            result.listen(2048)
            return result
        except OSError as error:
            result.close()
            reason = error
    said = reason.strerror if reason is not None else "no port"
    free = "leave out --port for a free one" if port else "end another server first"
    raise OSError(f"can't listen on {host}:{port or PORT} ({said}); {free}")


def _shown(host: str, local: bool) -> str:
    if local and host != "::1":
        return "localhost" if host == "localhost" else host
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _has_browser() -> bool:
    """Whether there is a screen: over ssh a browser would start in the terminal itself."""
    if sys.platform in ("darwin", "win32"):
        return not os.environ.get("SSH_CONNECTION")
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _few_arenas() -> None:
    """Have threads share memory that was freed: else each of dozens keeps its own, hundreds of megabytes in all."""
    if sys.platform == "linux":
        import contextlib
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
            library = ctypes.CDLL(None)
            library.mallopt(_M_ARENA_MAX, 2)
            library.mallopt(_M_MMAP_THRESHOLD, 1 << 20)  # larger columns go back to the system when they are let go


def _warm(server: Server) -> None:
    """Look at the runs, and load what the first chart would wait for."""
    import gc

    server.table.refresh()
    gc.freeze()  # rows stay: no collection has to look at thousands of them again
    import numpy  # noqa: F401
    import pyarrow.compute  # noqa: F401
