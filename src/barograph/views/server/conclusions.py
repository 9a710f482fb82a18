"""What the server concludes from several runs: comparisons, runs to compare with, which keys explain a metric.

In:   requests; the rows that a view shows.
Out:  JSON as in `comparisons`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.analysis.compare.comparison import compare
from barograph.analysis.compare.similar import similar
from barograph.analysis.importance.explain import explain
from barograph.core.record import mark_non_finite
from barograph.query.keys import flatten
from barograph.views.server.answers import json_answer
from barograph.views.server.places import Places
from barograph.views.server.reading import SeriesReading
from barograph.views.server.rows import RunRow
from barograph.views.server.slow import SlowAnswers
from barograph.views.server.table import RunTable

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MOST_COMPARED = 500


class Conclusions:
    """Each answer is called in a thread. rows: those that a request speaks of."""

    def __init__(
        self, places: Places, reading: SeriesReading, table: RunTable, slow: SlowAnswers,
        rows: Callable[[Request], list[RunRow]],
    ):  # fmt: skip
        self.places, self.reading, self.table, self.slow = places, reading, table, slow
        self._rows = rows

    def compare(self, request: Request) -> Response:
        asked = request.query_params
        keys = list(dict.fromkeys(asked.getlist("run")))
        if len(keys) > MOST_COMPARED:
            raise ValueError(f"{len(keys)} runs are too many to compare at once; {MOST_COMPARED} are allowed")
        places = [self.places.find(key) for key in keys]
        options = {name: asked.get(name) or None for name in ("metric", "x", "group", "baseline")}
        state = tuple(self.reading.state(place) for place in places)

        def work() -> bytes:
            runs = [self.reading.run(place) for place in places]
            baseline: Any = options["baseline"]
            if baseline in keys:
                baseline = runs[keys.index(baseline)]
            elif baseline is not None and ("/" in baseline or baseline.startswith((".", "~"))):
                raise KeyError(f"the baseline {baseline[:200]!r} is not one of the runs")
            made = compare(
                *runs, metric=options["metric"], x=options["x"], group=options["group"], baseline=baseline
            ).as_dict()
            folders = {str(place.dir): place.key for place in places}
            for side in made["sides"]:
                for item in side["runs"]:
                    item["key"] = folders.get(item["dir"])
            return msgspec.json.encode(mark_non_finite(made))

        return json_answer(request, self.slow.get(("compare", tuple(keys), *options.items()), state, work))

    def similar(self, request: Request) -> Response:
        self.table.refresh()
        run = self.table.row(request.query_params.get("run", ""))
        others = [row for row in self.table.rows() if row is not run and not row.data["archived"]]
        found = [
            {"key": others[item.at].data["key"], "keys": item.keys}
            for item in similar(run.traits, [row.traits for row in others])
        ]
        return json_answer(request, {"similar": found})

    def importance(self, request: Request) -> Response:
        asked = request.query_params
        metric, value = asked.get("metric", ""), asked.get("value", "last")
        if not metric or value not in ("last", "best"):
            raise ValueError("name a metric, and of its values the last or the best")
        kept = [row.data for row in self._rows(request)]
        values = [None if (found := row[value].get(metric)) is None else float(found) for row in kept]

        def work() -> bytes:
            found = explain([flatten(row["config"]) for row in kept], values, metric)
            return msgspec.json.encode(mark_non_finite(found.as_dict()))

        state = tuple((row["key"], number) for row, number in zip(kept, map(str, values), strict=True))
        return json_answer(
            request,
            self.slow.get(("importance", metric, value, asked.get("project"), asked.get("filter")), state, work),
        )
