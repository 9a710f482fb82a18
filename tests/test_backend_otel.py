"""OpenTelemetry: a run over OTLP to a receiver that decodes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from patience import patient

import barograph
from barograph.cli import main
from barograph.trackers.send import send

metrics_service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")


class Receiver:
    """An OTLP receiver over HTTP. refuse: how many requests are answered with an error first."""

    def __init__(self, refuse: int = 0) -> None:
        self.metrics: list[Any] = []
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        outer, left = self, [refuse]

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                if left[0] > 0:
                    left[0] -= 1
                    self.send_error(503)
                    return
                outer.take(self.path, content)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, path: str, content: bytes) -> None:
        if path == "/v1/metrics":
            for resource in metrics_service.ExportMetricsServiceRequest.FromString(content).resource_metrics:
                self.resources.append({each.key: each.value.string_value for each in resource.resource.attributes})
                self.metrics += [metric for scope in resource.scope_metrics for metric in scope.metrics]
        elif path == "/v1/traces":
            for resource in trace_service.ExportTraceServiceRequest.FromString(content).resource_spans:
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def points(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of a gauge."""
        return [
            (point.attributes[0].value.int_value, point.as_double)
            for metric in self.metrics
            if metric.name == name
            for point in metric.gauge.data_points
        ]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    result = Receiver()
    yield result
    result.server.shutdown()
    result.server.server_close()


def train(folder: Path, steps: int, fail: bool = False) -> Path:
    run = barograph.init(dir=folder, project="gpt", name="one", console="none", config={"lr": 0.1, "deep": {"n": 3}})
    for step in range(steps):
        run.log({"train/loss": 3.0 - step / 10, "odd näme": step}, step=step)
    run.finish("failed" if fail else None)
    return run.dir


def test_every_point_arrives_once_with_step_and_time_and_a_span_has_the_run(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=models%20a")
    folder = train(tmp_path, 40)
    command = ["sync", str(folder), "--to", "otel", "--out", receiver.address]
    assert main(command) == 0
    assert receiver.points("train/loss") == [(step, pytest.approx(3.0 - step / 10)) for step in range(40)]
    assert [value for _, value in receiver.points("odd näme")] == list(range(40))
    stored = barograph.StoredRun(folder).series("train/loss", x="time")
    times = [p.time_unix_nano for m in receiver.metrics if m.name == "train/loss" for p in m.gauge.data_points]
    assert times == pytest.approx([second * 1e9 for second in stored.x], abs=1e6)
    assert receiver.resources[0]["barograph.project"] == "gpt" and receiver.headers[0]["x-team"] == "models a"
    (span,) = receiver.spans
    assert span.name == "one" and len(span.trace_id) == 16 and len(span.span_id) == 8
    assert times[0] <= span.end_time_unix_nano and span.start_time_unix_nano <= times[0]
    given = {each.key: each.value for each in span.attributes}
    assert given["config.lr"].double_value == 0.1 and given["config.deep/n"].int_value == 3
    assert main(command) == 0  # the second time nothing is new
    assert len(receiver.points("train/loss")) == 40


def test_the_ends_of_runs_are_the_spans_status(tmp_path: Path, receiver: Receiver) -> None:
    for fail, code in ((False, 1), (True, 2)):
        folder = train(tmp_path / str(fail), 3, fail)
        assert main(["sync", str(folder), "--to", "otel", "--out", receiver.address]) == 0
        assert receiver.spans[-1].status.code == code


def test_an_address_that_does_not_answer_loses_nothing(tmp_path: Path, receiver: Receiver) -> None:
    folder = train(tmp_path, 5)
    refusing = Receiver(refuse=10_000)
    try:
        assert not send(folder, "otel", {"otel_endpoint": refusing.address}, patience=2.0).done
        assert 0 < len(refusing.headers) < 100 * patient(1)  # asked again, and not without a pause
    finally:
        refusing.server.shutdown()
        refusing.server.server_close()
    assert main(["sync", str(folder), "--to", "otel", "--out", receiver.address]) == 0
    assert [step for step, _ in receiver.points("train/loss")] == list(range(5))
