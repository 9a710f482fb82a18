"""The server's routes. Each says what is asked and who answers; the work is done in the other files.

In:   a folder of runs, who may ask.
Out:  an ASGI application: `docs/how/view-safety.md` says what it lets pass.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import barograph
from barograph.core.record import encode_fields, mark_non_finite
from barograph.query.groups import split_keys
from barograph.query.stored import StoredRun
from barograph.views.server import details, edits, layers, media, names, points, saved, series
from barograph.views.server.answers import error_answer, frame_answer, gzipped, json_answer, packed_before
from barograph.views.server.conclusions import Conclusions
from barograph.views.server.events import Hub
from barograph.views.server.filtering import select
from barograph.views.server.grouping import MOST_COLUMNS, grouped, groups_as_json
from barograph.views.server.memory import Memory
from barograph.views.server.page import ASSETS, Page
from barograph.views.server.places import Places, RunPlace, key_of
from barograph.views.server.reading import SeriesReading
from barograph.views.server.requests import PAGES, TABS, answer_to, body_of, number_of, run_and_action
from barograph.views.server.rows import RunRow
from barograph.views.server.security import Access, Guard
from barograph.views.server.slow import SlowAnswers
from barograph.views.server.table import RunTable, rows_as_json

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send

    Handler = Callable[[Request], Coroutine[Any, Any, Response]]

LIVE = "/api/live"
COLUMN_BYTES = 96 << 20  # columns kept, packed
FIRST_MILLISECONDS = 300  # the page's first question for runs, as in web/src/api/client.ts
ANSWER_BYTES = 32 << 20  # buckets kept: 600 series of 400 take 13 MB
_NAME_BYTES = 8 << 20  # packed lists of names
_FIRST_ROWS_MOST = 200  # more are not filled in within ...
_FIRST_ROWS_SECONDS = 0.25  # what rows are waited for when they are first asked for; the rest comes as events


class Server:
    """Everything that answers need. `app`: the application. One for each folder that is served."""

    def __init__(self, root: str | Path, access: Access | None = None, assets: Path = ASSETS):
        self.access = access or Access()
        self.places = Places(root)
        self.reading = SeriesReading(self.places, Memory(COLUMN_BYTES))
        self.series = series.SeriesAnswers(self.reading, Memory(ANSWER_BYTES))
        self.slow = SlowAnswers()  # seconds: findings, comparisons, reports
        self.quick = SlowAnswers(4)  # less than that: overviews don't wait behind the others
        self.table = RunTable(self.places, diagnose=self.diagnosis, opened=self.reading.opened)
        self.conclusions = Conclusions(self.places, self.reading, self.table, self.slow, self._rows_within)
        self.hub = Hub(self.table)
        self.table.changed = self.hub.rows_changed
        self.page = Page(assets, self.access.base)
        self._name_lists = Memory(_NAME_BYTES)
        self._severities: dict[str, list[str]] = {}  # of each run's findings, by the last diagnosis
        self.media = media.MediaAnswers(self.places, self.reading, self.quick)
        self.app = Guard(_first(_application(self), self.table), self.access)

    def close(self) -> None:
        """End what is going on. From the thread of the event loop."""
        self.hub.close()
        self.table.close()
        self.slow.close()
        self.quick.close()
        self.series.close()

    # -- answers: each is called in a thread ---------------------------------------------------------

    def about(self, request: Request) -> Response:
        about = {
            "version": barograph.__version__,
            "root": str(self.places.root),
            "token_needed": self.access.token is not None,
            "edit_token": self.access.edit_token,
        }
        return json_answer(request, about)

    def runs(self, request: Request) -> Response:
        within = number_of(request, "within", 0, 0, 60_000) / 1000
        if within and (some := self.table.first_rows(within)) is not None:
            left = self.places.left_out.values()
            return json_answer(request, rows_as_json(some, "", left, max(1, self.table.found - len(some))))
        first = not self.table.is_ready
        self.table.refresh()
        if first and len(self.table.rows()) < _FIRST_ROWS_MOST:
            self.table.wait_filled(_FIRST_ROWS_SECONDS)
        rows, said = self.table.rows(), request.query_params.get("filter", "")
        if said:
            rows = select(rows, said, self.places)
        stamp = f"{self.access.edit_token[:6]}-{self.table.version}"
        body = rows_as_json(rows, stamp, self.places.left_out.values())
        return json_answer(request, body, etag=stamp if not said else "")

    def groups(self, request: Request) -> Response:
        asked = request.query_params
        rows = self._rows_within(request)
        made = grouped(rows, split_keys(asked.get("by", "")), asked.getlist("column")[:MOST_COLUMNS])
        return json_answer(request, groups_as_json(made))

    def _rows_within(self, request: Request) -> list[RunRow]:
        """The rows that a view shows: those of a project, of a filter, without the archived ones."""
        asked = request.query_params
        project, archived = asked.get("project"), asked.get("archived") == "1"
        rows = [row for row in self.hub.current_rows() if archived or not row.data["archived"]]
        rows = [row for row in rows if not project or row.data["project"] == project]
        return select(rows, asked.get("filter", ""), self.places)

    def run(self, request: Request, place: RunPlace) -> Response:
        row = self.table.whole_row(place.key)
        state = (row.signature, self.reading.state(place), row.data["status"])

        def work() -> bytes:
            return msgspec.json.encode(mark_non_finite(details.overview(self.reading, self.table, row)))

        # keyed by the state: an edit is seen at once
        rest = self.quick.get(("run", place.key, row.signature[1]), state, work)
        return json_answer(request, msgspec.json.encode(mark_non_finite(details.head(row)))[:-1] + b"," + rest[1:])

    def names(self, request: Request, place: RunPlace) -> Response:
        asked = request.query_params
        found = self.reading.names(place)
        if "match" in asked:
            limit = number_of(request, "limit", 1_000, 0, 100_000)
            return json_answer(request, names.matching(found, asked["match"], limit))
        if "tree" in asked:
            return json_answer(request, names.below(found, asked["tree"]))
        return packed_before(request, *self._all_names(place, found))

    def _all_names(self, place: RunPlace, found: list[str]) -> tuple[bytes, str]:
        """The packed list of all names, and what names it: 100,000 take a tenth of a second to pack."""
        state = self.reading.state(place)
        seen, body, etag = self._name_lists.get(place.key) or (None, b"", "")
        if seen != state:
            histograms = self.reading.names(place, histograms=True)
            text = encode_fields({"names": found, "histograms": histograms})
            body, etag = gzipped(text), hashlib.sha256(text).hexdigest()[:20]
            self._name_lists.put(place.key, (state, body, etag), len(body))
        return body, etag

    def layers(self, request: Request, place: RunPlace) -> Response:
        asked = request.query_params
        buckets = number_of(request, "buckets", 200, 1, layers.MOST_BUCKETS)
        made = layers.heat_map(self.reading, place, asked.get("table"), asked.get("field"), buckets)
        return frame_answer(request, made)

    def histograms(self, request: Request, place: RunPlace) -> Response:
        most = number_of(request, "most", 120, 2, layers.MOST_HISTOGRAMS)
        return frame_answer(request, layers.histograms(self.reading, place, request.query_params.get("name"), most))

    def experts(self, request: Request, place: RunPlace) -> Response:
        buckets = number_of(request, "buckets", 200, 1, layers.MOST_BUCKETS)
        return frame_answer(request, layers.experts(self.reading, place, buckets))

    def diagnosis(self, place: RunPlace) -> bytes:
        """What the rules say of a stored run, worked out once for each state of it; the table shows the same."""
        row = self.table.get(place.key)
        status, counts = (row.data["status"], row.data["findings"]) if row is not None else ("", {})
        # of a run that is over, or has new findings, nothing that is out of date is given
        recorded = tuple(counts.values()) if row is not None and row.live else ()

        def work() -> bytes:
            found = _diagnosis(self.reading.run(place))
            self._severities[place.key] = [str(finding["severity"]) for finding in found["findings"]]
            return msgspec.json.encode(mark_non_finite(found))

        answer = self.slow.get(("findings", place.key, status, recorded), self.reading.state(place), work)
        self.table.diagnosed(place.key, self._severities[place.key])
        return answer

    def findings(self, request: Request, place: RunPlace) -> Response:
        return json_answer(request, self.diagnosis(place))

    def system(self, request: Request, place: RunPlace) -> Response:
        def work() -> bytes:
            return msgspec.json.encode(mark_non_finite(details.system(self.reading, place)))

        state = self.reading.state(place), self.table.row(place.key).data["status"]
        return json_answer(request, self.quick.get(("system", place.key), state, work))

    def report(self, request: Request, place: RunPlace) -> Response:
        from starlette.responses import Response

        from barograph.views.report.webpage import report_html

        def work() -> bytes:
            return str(report_html(self.reading.run(place))).encode()

        body = self.slow.get(("report", place.key), self.reading.state(place), work)
        name = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in place.dir.name)
        # a file for the disk: it has its scripts inside and must never run as a page of this server
        headers = {
            "content-disposition": f'attachment; filename="{name}.html"',
            "content-security-policy": "sandbox; default-src 'none'",
        }
        return Response(body, 200, headers, "text/html; charset=utf-8")

    def curves(self, request: Request, asked: series.Request) -> Response:
        """A frame for a chart; with a format, the points themselves as a file."""
        from starlette.responses import Response

        kind = request.query_params.get("format")
        if kind is None:
            return frame_answer(request, self.series.answer(asked))
        body = points.points_file(self.reading, asked, kind)
        return Response(body, 200, {"content-disposition": f'attachment; filename="points.{kind}"'}, points.MEDIA[kind])

    def layout(self, request: Request) -> Response:
        folder = edits.project_folder(self.table, request.path_params["project"])
        return json_answer(request, edits.read_layout(folder, self.places.root))

    def put_layout(self, request: Request, body: bytes) -> Response:
        folder = edits.project_folder(self.table, request.path_params["project"])
        return json_answer(request, edits.write_layout(folder, body))

    def views(self, request: Request) -> Response:
        folder = saved.folder_of(self.table, request.query_params.get("project", ""))
        return json_answer(request, msgspec.to_builtins(saved.read(folder, self.places.root)))

    def put_views(self, request: Request, body: bytes) -> Response:
        folder = saved.folder_of(self.table, request.query_params.get("project", ""))
        return json_answer(request, msgspec.to_builtins(saved.change(folder, self.places.root, body)))

    def edit(self, request: Request, place: RunPlace, body: bytes) -> Response:
        edits.edit(place, edits.parse(body))
        row = self.table.row(place.key)
        self.hub.rows_changed([place.key])
        return json_answer(request, row.raw)

    def delete(self, request: Request, place: RunPlace) -> Response:
        entry = edits.trash(place, self.places.root)
        self.table.refresh(force=True)
        self.hub.rows_changed([place.key])
        return json_answer(request, {"id": entry})

    def restore(self, request: Request) -> Response:
        folder = edits.restore(self.places.root, request.path_params["entry"])
        changed = self.table.refresh(force=True)
        self.hub.rows_changed(changed)
        return json_answer(request, {"key": key_of(folder.resolve().relative_to(self.places.root).parts)})

    def trashed(self, request: Request) -> Response:
        return json_answer(request, {"trash": edits.trashed(self.places.root)})


def _matching(server: Server, request: Request) -> Response:
    """The keys of the runs that a filter lets through; the page has their rows."""
    rows = select(server.hub.current_rows(), request.query_params.get("filter", ""), server.places)
    return json_answer(request, msgspec.json.encode({"keys": [row.data["key"] for row in rows]}))


def _first(app: ASGIApp, table: RunTable) -> ASGIApp:
    """Requests go before what the table does by itself; nobody waits for the end of a stream of events."""

    async def first(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == LIVE:
            return await app(scope, receive, send)
        with table.requests.at_work():
            await app(scope, receive, send)

    return first


def _answering(handler: Handler) -> Handler:
    """Whatever goes wrong becomes a sentence."""

    @wraps(handler)
    async def handled(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            return answer_to(error)

    return handled


def _threaded(work: Callable[[Request], Response]) -> Handler:
    """On a thread of its own."""
    from starlette.concurrency import run_in_threadpool

    @wraps(work)
    async def handled(request: Request) -> Response:
        return await run_in_threadpool(work, request)

    return _answering(handled)


def _diagnosis(run: StoredRun) -> dict[str, Any]:
    """What the doctor says of a run; its rules are loaded when they are asked."""
    from barograph.doctor import diagnose

    return diagnose(run)


def _live(server: Server) -> Handler:
    from starlette.responses import StreamingResponse

    @_answering
    async def live(request: Request) -> Response:
        events = server.hub.stream(request.query_params.getlist("run") or None)
        first = await anext(events)  # what is refused is refused before the answer begins

        async def all_events() -> Any:
            yield first
            async for event in events:
                yield event

        return StreamingResponse(all_events(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    return live


def _application(server: Server) -> Starlette:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.routing import Route

    of_run: dict[str, Callable[[Request, RunPlace], Response]] = {
        "": server.run, "names": server.names, "layers": server.layers, "histograms": server.histograms,
        "experts": server.experts, "media": server.media.answer, "findings": server.findings, "system": server.system,
        "report.html": server.report,
    }  # fmt: skip

    def read_run(request: Request) -> Response:
        place, action = run_and_action(server.places, request)
        return of_run[action](request, place)

    @_answering
    async def edit_run(request: Request) -> Response:
        body = await body_of(request)
        place, action = await run_in_threadpool(run_and_action, server.places, request)
        if action:
            raise KeyError(f"there is nothing to edit in {action}")
        if request.method == "DELETE":
            return await run_in_threadpool(server.delete, request, place)
        return await run_in_threadpool(server.edit, request, place, body)

    @_answering
    async def read_series(request: Request) -> Response:
        asked = series.parse(await body_of(request))
        return await run_in_threadpool(server.curves, request, asked)

    def saving(save: Callable[[Request, bytes], Response]) -> Handler:
        @_answering
        async def handled(request: Request) -> Response:
            return await run_in_threadpool(save, request, await body_of(request))

        return handled

    def asset(request: Request) -> Response:
        return server.page.file(request, request.path_params["path"])

    return Starlette(
        routes=[
            *_quick_routes(server),
            Route("/api/runs/{path:path}", _threaded(read_run), methods=["GET"]),
            Route("/api/runs/{path:path}", edit_run, methods=["PUT", "DELETE"]),
            Route("/api/series", read_series, methods=["POST"]),
            Route("/api/projects/{project:path}/layout", saving(server.put_layout), methods=["PUT"]),
            Route("/api/views", saving(server.put_views), methods=["PUT"]),
            Route(LIVE, _live(server)),
            Route("/assets/{path:path}", _threaded(asset)),
            Route("/{path:path}", _page(server)),
        ]
    )


def _quick_routes(server: Server) -> list[Route]:
    """Those that a function of the server answers by itself."""
    from starlette.routing import Route

    return [
        Route("/api/about", _threaded(server.about)),
        Route("/api/runs", _threaded(server.runs)),
        Route("/api/matching", _threaded(lambda request: _matching(server, request))),
        Route("/api/groups", _threaded(server.groups)),
        Route("/api/compare", _threaded(server.conclusions.compare)),
        Route("/api/similar", _threaded(server.conclusions.similar)),
        Route("/api/importance", _threaded(server.conclusions.importance)),
        Route("/api/projects/{project:path}/layout", _threaded(server.layout), methods=["GET"]),
        Route("/api/views", _threaded(server.views), methods=["GET"]),
        Route("/api/trash", _threaded(server.trashed)),
        Route("/api/trash/{entry}/restore", _threaded(server.restore), methods=["POST"]),
    ]


def _page(server: Server) -> Handler:
    """The page, at every address that a view may have."""
    from starlette.responses import Response

    def page(request: Request) -> Response:
        path = request.path_params["path"]
        if path == "favicon.ico":  # browsers ask for it whatever the page says
            return Response(status_code=204)
        if path.startswith("api/") or path == "api" or "." in path.rpartition("/")[2]:
            return error_answer(404, "there is nothing at this address")
        answer = server.page.index(request)
        if not path:  # the runs are on their way while the page's script is
            first = f"{server.access.base}/api/runs?within={FIRST_MILLISECONDS}"
            answer.headers["link"] = f"<{first}>; rel=preload; as=fetch; crossorigin=anonymous"
            return answer
        with contextlib.suppress(KeyError):
            server.reading.read_ahead(run_and_action(server.places, request, PAGES, TABS)[0])
        return answer

    return _threaded(page)
