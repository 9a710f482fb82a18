"""Answers: JSON, frames, files; packed where that saves time, and not sent again if the browser has them.

In:   bytes or JSON-ready data, the request.
Out:  responses.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barograph.core.record import encode_fields
from barograph.views.server.addresses import is_loopback
from barograph.views.server.frames import MEDIA

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

JSON = "application/json"
_WORTH_PACKING = 1_400  # bytes: what fits one packet gains nothing


def json_answer(request: Request, content: Mapping[str, Any] | bytes, status: int = 200, etag: str = "") -> Response:
    """JSON. Call it where it may take a while: in a thread."""
    body = content if isinstance(content, bytes) else encode_fields(content)
    return packed(request, body, JSON, status, etag)


def packed(request: Request, body: bytes, media: str, status: int = 200, etag: str = "") -> Response:
    """Bytes of any kind, with gzip if the client takes it and it is worth it.

    etag: what names the content; the browser then asks again each time, and gets 304 if it has that already.
    """
    from starlette.responses import Response

    headers = {"vary": "accept-encoding"}
    if etag:
        headers |= {"etag": f'"{etag}"', "cache-control": "no-cache"}
        if is_known(request, etag):
            return Response(status_code=304, headers=headers)
    if len(body) > _WORTH_PACKING and takes_gzip(request):
        body = gzipped(body)
        headers["content-encoding"] = "gzip"
    return Response(body, status, headers, media)


def gzipped(body: bytes) -> bytes:
    """Packed at the fastest level: on a local network more would take longer than it saves."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


def packed_before(request: Request, body: bytes, etag: str) -> Response:
    """JSON that `gzipped` has packed already."""
    from starlette.responses import Response

    headers = {"vary": "accept-encoding", "etag": f'"{etag}"', "cache-control": "no-cache"}
    if is_known(request, etag):
        return Response(status_code=304, headers=headers)
    if takes_gzip(request):
        return Response(body, 200, headers | {"content-encoding": "gzip"}, JSON)
    return Response(zlib.decompress(body, 31), 200, headers, JSON)


def frame_answer(request: Request, body: bytes) -> Response:
    """Columns: to another machine packed; on this one that would take longer than sending them."""
    from starlette.responses import Response

    client = request.client
    if client is not None and is_loopback(client.host):
        return Response(body, media_type=MEDIA)
    return packed(request, body, MEDIA)


def error_answer(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """One sentence, as JSON."""
    from starlette.responses import Response

    return Response(encode_fields({"error": sentence}), status, headers, JSON)


def takes_gzip(request: Request) -> bool:
    """Whether the client unpacks gzip."""
    said = request.headers.get("accept-encoding", "")
    return any(
        part.strip().split(";")[0] == "gzip" and "q=0" not in part.replace("q=0.", "") for part in said.split(",")
    )


def is_known(request: Request, etag: str) -> bool:
    """Whether the client says that it has this content already."""
    said = request.headers.get("if-none-match", "")
    return any(part.strip().removeprefix("W/") in (f'"{etag}"', "*") for part in said.split(",")) if said else False
