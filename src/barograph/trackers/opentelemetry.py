"""OpenTelemetry: numbers as metrics, the run as a span, over OTLP and HTTP.

In:   rows from the training or a mirror; where to, by OpenTelemetry's own variables.
Out:  a gauge for each series, each point with its time and step; when the run ends a span, with findings and alerts as
      its events.

Messages are put together from the protocol's definitions (`opentelemetry-proto`), so that a point has the time at which
it was logged, not the one at which it is sent; the SDK's exporter is not needed.
"""

from __future__ import annotations

import hashlib
import os
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from barograph import __version__
from barograph.core.values import flatten, number
from barograph.trackers.backend import TrackerBackend
from barograph.trackers.options import word

ENDPOINT = "http://localhost:4318"
_TIMEOUT = 10.0  # seconds, as in OpenTelemetry's own exporters
_MOST_POINTS = 5000  # of a request
_MOST_EVENTS = 128  # of a span, OpenTelemetry's own limit


class OpenTelemetryBackend(TrackerBackend):
    """Sends to the collector that `otel_endpoint` or `OTEL_EXPORTER_OTLP_ENDPOINT` names."""

    name = "OpenTelemetry"
    package = "opentelemetry.proto"
    install = 'pip install "barograph[otel]"'
    takes_text = False
    marks = False

    def _open(self) -> None:
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
        from opentelemetry.proto.common.v1 import common_pb2
        from opentelemetry.proto.metrics.v1 import metrics_pb2
        from opentelemetry.proto.resource.v1 import resource_pb2
        from opentelemetry.proto.trace.v1 import trace_pb2

        self._service: Any = metrics_service_pb2
        self._trace_service: Any = trace_service_pb2
        self._common: Any = common_pb2
        self._metrics: Any = metrics_pb2
        self._resource: Any = resource_pb2
        self._trace: Any = trace_pb2
        self.run_id = str(self._before.get("run_id") or word(self._config, "run_id", "name"))
        self._began = float(self._before.get("began") or time.time())
        self._latest = float(self._before.get("latest") or self._began)
        self._events: list[dict[str, Any]] = list(self._before.get("events") or [])
        self._options: dict[str, Any] = {}
        self._points: dict[str, list[Any]] = {}
        self._count = 0
        if self._run_config:
            self._write_config(flatten(self._run_config, self.sender.odd))

    def _write_config(self, config: dict[str, Any]) -> None:
        self._options |= {f"config.{name}": value for name, value in config.items() if value is not None}

    def _write(self, metrics: dict[str, Any], step: int, seconds: float) -> None:
        self._began, self._latest = min(self._began, seconds), max(self._latest, seconds)
        attributes = self._attributes({"step": step})
        for name, value in metrics.items():
            point = self._metrics.NumberDataPoint(
                time_unix_nano=int(seconds * 1e9), as_double=float(number(value)), attributes=attributes
            )
            self._points.setdefault(name, []).append(point)
            self._count += 1
        if self._count >= _MOST_POINTS:
            self._flush()

    def _write_note(self, title: str, content: str, level: str, step: int, seconds: float) -> None:
        if len(self._events) < _MOST_EVENTS:
            event = {"name": title, "seconds": seconds, "text": content, "level": level, "step": step}
            self._events.append(event)

    def _flush(self) -> None:
        if not self._points:
            return
        metrics = [
            self._metrics.Metric(name=name, gauge=self._metrics.Gauge(data_points=points))
            for name, points in self._points.items()
        ]
        request = self._service.ExportMetricsServiceRequest(resource_metrics=[
            self._metrics.ResourceMetrics(
                resource=self._of_run(),
                scope_metrics=[self._metrics.ScopeMetrics(scope=self._scope(), metrics=metrics)],
            )
        ])  # fmt: skip
        self._post("metrics", request.SerializeToString())
        self._points, self._count = {}, 0

    def _close(self) -> None:
        self._flush()
        trace = self._trace
        events = [
            trace.Span.Event(
                name=event["name"],
                time_unix_nano=int(event["seconds"] * 1e9),
                attributes=self._attributes({name: event[name] for name in ("text", "level", "step")}),
            )
            for event in self._events
        ]
        identity = hashlib.sha256(f"{word(self._config, 'project')}\0{self.run_id}\0{self._began}".encode()).digest()
        codes = {None: trace.Status.STATUS_CODE_UNSET, 0: trace.Status.STATUS_CODE_OK}
        span = trace.Span(
            trace_id=identity[:16],
            span_id=identity[16:24],
            name=word(self._config, "name") or self.run_id,
            kind=trace.Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=int(self._began * 1e9),
            end_time_unix_nano=int(self._latest * 1e9),
            attributes=self._attributes(self._options),
            events=events,
            status=trace.Status(code=codes.get(self.exit_code, trace.Status.STATUS_CODE_ERROR)),
        )
        request = self._trace_service.ExportTraceServiceRequest(resource_spans=[
            trace.ResourceSpans(
                resource=self._of_run(), scope_spans=[trace.ScopeSpans(scope=self._scope(), spans=[span])]
            )
        ])  # fmt: skip
        self._post("traces", request.SerializeToString())

    def _state(self) -> dict[str, Any]:
        return {"run_id": self.run_id, "began": self._began, "latest": self._latest, "events": self._events}

    # -- messages --------------------------------------------------------------------------------------

    def _of_run(self) -> Any:
        names = {"service.name": "barograph", "barograph.project": word(self._config, "project")}
        names |= {"barograph.run": self.run_id} | _pairs(os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
        return self._resource.Resource(attributes=self._attributes(names))

    def _scope(self) -> Any:
        return self._common.InstrumentationScope(name="barograph", version=__version__)

    def _attributes(self, values: Mapping[str, Any]) -> list[Any]:
        found = []
        for name, value in values.items():
            kind = {bool: "bool_value", int: "int_value", float: "double_value"}.get(type(value), "string_value")
            fits = kind != "int_value" or -(1 << 63) <= value < 1 << 63
            given = {kind: value if kind != "string_value" else str(value)} if fits else {"string_value": str(value)}
            found.append(self._common.KeyValue(key=name, value=self._common.AnyValue(**given)))
        return found

    def _post(self, what: str, content: bytes) -> None:
        """Send a message. Raises OSError where the collector doesn't take it."""
        own = os.environ.get(f"OTEL_EXPORTER_OTLP_{what.upper()}_ENDPOINT")
        base = word(self._config, "otel_endpoint") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or ENDPOINT
        if not base.startswith(("http://", "https://")):
            raise ValueError(f"the endpoint of OpenTelemetry is an address of HTTP, not {base!r}")
        headers = _pairs(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")) | {"Content-Type": "application/x-protobuf"}
        request = urllib.request.Request(own or f"{base.rstrip('/')}/v1/{what}", content, headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            answer.read()


def _pairs(text: str) -> dict[str, str]:
    """`name=value,…`, as OpenTelemetry's variables have it."""
    words = (word.partition("=") for word in text.split(",") if "=" in word)
    return {name.strip(): urllib.parse.unquote(value.strip()) for name, _, value in words}
