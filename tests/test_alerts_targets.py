"""Messages reach real servers through real Apprise; servers that don't answer cost one warning and no time."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from alert_receivers import FakeRun, HttpReceiver, SmtpReceiver, closed_port, give, hung_server
from hypothesis import given, settings
from hypothesis import strategies as some
from patience import patient, until

from barograph.core.record import Record
from barograph.sidecar.alerts import targets
from barograph.sidecar.alerts.addresses import masked, scrubbed
from barograph.sidecar.alerts.alert import Alert, clean, compose
from barograph.sidecar.alerts.alerts import Alerts
from barograph.sidecar.alerts.delivery import LIMIT, Delivery

pytest.importorskip("apprise")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of libraries that Apprise's plugins import


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    made = HttpReceiver()
    yield made
    made.close()


def quick(target: Any, **options: Any) -> Delivery:
    """A Delivery whose second try comes soon."""
    return Delivery(target, **options | {"pauses": (0.02, 0.04)})


def test_an_alert_arrives_by_http_with_the_run_it_is_of(tmp_path: Path, receiver: HttpReceiver) -> None:
    run = FakeRun(tmp_path, notify=[receiver.address])
    alerts = Alerts(run)
    run.current_step = 7
    assert alerts.send("Loss is odd", "train/loss is 12", "critical")
    assert alerts.close(10)
    (message,) = receiver.got
    assert message["title"] == "[critical] Loss is odd"
    assert message["type"] == "failure"
    assert "train/loss is 12" in message["message"] and "step 7" in message["message"]
    assert "calm-river of gpt" in message["message"] and str(tmp_path) in message["message"]
    assert run.records == [
        ("alert", 7, {"title": "Loss is odd", "text": "train/loss is 12", "level": "critical",
                      "cause": "Loss is odd: train/loss is 12"})
    ]  # fmt: skip
    assert not run.warnings


def test_an_alert_arrives_by_mail(tmp_path: Path) -> None:
    server = SmtpReceiver()
    try:
        run = FakeRun(tmp_path, notify=[f"mailto://127.0.0.1:{server.port}?from=me@example.com&to=you@example.com"])
        alerts = Alerts(run)
        alerts.send("The loss\nBcc: everyone@example.com", "<b>12 & more</b>")
        assert alerts.close(10)
        (mail,) = server.got
    finally:
        server.close()
    assert mail["Subject"] == "[warning] The loss Bcc: everyone@example.com"
    assert mail["Bcc"] is None and "you@example.com" in mail["To"]
    body = mail.get_body(("html", "plain"))
    assert body is not None
    text = body.get_content()
    assert "<b>12 & more</b>" in (text if body.get_content_type() == "text/plain" else unescape(text))
    assert "<b>" not in text or body.get_content_type() == "text/plain"
    assert not run.warnings


def test_text_is_no_markup_in_a_mail_that_is_a_page(tmp_path: Path) -> None:
    server = SmtpReceiver()
    try:
        form = f"mailto://127.0.0.1:{server.port}?from=me@example.com&to=you@example.com&format=html"
        alerts = Alerts(FakeRun(tmp_path, notify=[form]))
        alerts.send("x", "<script>12 & more</script>")
        assert alerts.close(10)
        (mail,) = server.got
    finally:
        server.close()
    body = mail.get_body(("html",))
    assert body is not None and "&lt;script&gt;" in body.get_content() and "<script" not in body.get_content()


def test_many_alerts_of_a_moment_are_one_message_and_those_after_it_wait(
    tmp_path: Path, receiver: HttpReceiver
) -> None:
    alerts = Alerts(FakeRun(tmp_path, notify=[receiver.address], alert_digest=3600.0))
    for number in range(30):
        alerts.send(f"Trouble {number}", level="critical" if number == 3 else "warning")
    assert until(lambda: receiver.got)
    for number in range(5):
        alerts.send(f"Later {number}")
    time.sleep(0.4)
    assert len(receiver.got) == 1
    assert alerts.close(10)
    first, second = receiver.got
    assert first["title"] == "[critical] 30 alerts: Trouble 0" and "and 10 more" in first["message"]
    assert second["title"] == "[warning] 5 alerts: Later 0"


def test_a_server_that_fails_at_first_gets_the_message_in_the_end() -> None:
    server = HttpReceiver(statuses=(500, 503))
    try:
        warned: dict[str, str] = {}
        delivery = quick(
            targets.Address(server.address), warn=lambda text, key: warned.update({key: text}), about=lambda: "run x"
        )
        delivery.put(Alert("one", "", "warning", "one"))
        assert until(lambda: server.got)
        delivery.end()
        assert delivery.wait(time.monotonic() + 10)
    finally:
        server.close()
    assert len(server.paths) == 3 and len(server.got) == 1
    assert delivery.delivered == 1 and delivery.lost == 0 and not warned


@pytest.mark.parametrize("kind", ["refused", "500", "hung"])
def test_a_target_that_takes_nothing_costs_one_warning_without_its_secrets(tmp_path: Path, kind: str) -> None:
    server = HttpReceiver(statuses=(500,) * 100)
    try:
        with hung_server() as hung:
            port = {"refused": closed_port(), "500": server.port, "hung": hung}[kind]
            address = f"json://someone:passw0rd@127.0.0.1:{port}/T0PSECRET/path?rto=0.1"
            run = FakeRun(tmp_path, notify=[address], alert_digest=0.0)
            alerts = Alerts(run, deliver=quick)
            for number in range(5):
                alerts.send(f"Trouble {number}")
                time.sleep(0.25)
            assert alerts.close(10)
    finally:
        server.close()
    (sentence,) = run.warnings
    assert f"json://127.0.0.1:{port}/****" in sentence
    for secret in ("passw0rd", "T0PSECRET", "someone"):
        assert secret not in sentence and secret not in str(run.records)
    assert len(run.titles) == 5


def test_a_hung_target_slows_neither_the_records_nor_another_target_nor_the_end(
    tmp_path: Path, receiver: HttpReceiver
) -> None:
    with hung_server() as port:
        run = FakeRun(tmp_path, notify=[f"json://127.0.0.1:{port}/?rto=2", receiver.address], alert_digest=0.0)
        alerts = Alerts(run, deliver=quick)
        began = time.perf_counter()
        for number in range(100):
            alerts.send(f"Trouble {number}")
        assert (time.perf_counter() - began) / 100 < patient(0.01)
        assert until(lambda: receiver.got)
        began = time.perf_counter()
        assert not alerts.close(0.3)
        assert time.perf_counter() - began < patient(1.0)
    assert len(run.titles) == 100


def test_a_process_ends_though_a_target_hangs(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import time, barograph
        from barograph.sidecar.alerts.alerts import Alerts
        from types import SimpleNamespace
        run = barograph.init(project="p", dir={str(tmp_path)!r}, verbosity=-2, git=False)
        alerts = Alerts(run, SimpleNamespace(notify=["json://127.0.0.1:PORT/?rto=60&cto=60"]))
        run.at_end.append(lambda: alerts.close(0.5))
        alerts.send("x")
        time.sleep(1.0)  # it is on its way
        print(time.time(), flush=True)
    """)
    with hung_server() as port:
        done = subprocess.run(
            [sys.executable, "-c", script.replace("PORT", str(port))], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    assert time.time() - float(done.stdout) < patient(6)
    assert "did not answer before the run's end" in done.stderr and done.stderr.count("\n") == 1


def test_the_queue_is_bounded_and_what_it_can_not_hold_is_counted(tmp_path: Path) -> None:
    class Slow:
        name, gathers = "slow", True
        got: list[tuple[int, int]]

        def __init__(self) -> None:
            self.got = []

        def open(self) -> None:
            time.sleep(0.3)

        def send(self, alerts: Any, about: str, more: int) -> None:
            self.got.append((len(alerts), more))

    target = Slow()
    delivery = Delivery(target, warn=lambda text, key: None, about=str)
    for number in range(LIMIT + 50):
        delivery.put(Alert(f"{number}", "", "warning", "c"))
    assert until(lambda: target.got)
    assert target.got == [(LIMIT, 50)]


def test_an_address_of_no_kind_is_told_at_once_with_the_nearest_kind(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, notify=["slakc://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"])
    alerts = Alerts(run)
    assert until(lambda: run.warnings)
    (sentence,) = run.warnings
    assert "slack://" in sentence and "T1JJ" not in sentence
    alerts.send("x")
    assert alerts.close(5)


def test_an_address_that_is_not_whole_is_told_at_once_without_its_secret(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, notify=["slack://TIiajkdnlazkcOXr"])
    alerts = Alerts(run)
    assert until(lambda: run.warnings)
    assert alerts.close(5)
    (sentence,) = run.warnings
    assert "slack://****" in sentence and "TIiaj" not in sentence


def test_without_apprise_one_warning_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    run = FakeRun(tmp_path, notify=["json://localhost", "json://localhost:81"])
    alerts = Alerts(run)
    alerts.send("x")
    assert alerts.close(5)
    assert all("pip install 'barograph[alerts]'" in sentence for sentence in run.warnings)
    assert run.titles == ["x"]


def test_what_apprise_says_does_not_reach_the_users_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, receiver: HttpReceiver
) -> None:
    caplog.set_level(logging.DEBUG)
    alerts = Alerts(FakeRun(tmp_path, notify=[receiver.address, f"json://127.0.0.1:{closed_port()}/secretpath"]))
    alerts.send("x")
    alerts.close(0.1)
    assert until(lambda: receiver.got)
    assert "secretpath" not in caplog.text
    logging.getLogger("apprise").warning("the user's own")
    assert "the user's own" in caplog.text


def test_a_level_of_an_address_keeps_milder_alerts_from_it(tmp_path: Path, receiver: HttpReceiver) -> None:
    alerts = Alerts(FakeRun(tmp_path, notify=[{"to": receiver.address, "level": "critical"}]))
    alerts.send("mild", level="warning")
    alerts.send("grave", level="critical")
    assert alerts.close(10)
    assert [message["title"] for message in receiver.got] == ["[critical] grave"]


def test_an_entry_with_addresses_of_its_own_goes_there_alone(tmp_path: Path, receiver: HttpReceiver) -> None:
    other = HttpReceiver()
    try:
        alerts = Alerts(FakeRun(tmp_path, notify=[receiver.address]))
        alerts.add("a", above=1, notify=[other.address])
        alerts.add("b", above=1)
        give(alerts, Record("metrics", time.time_ns() // 1000, 3, {"a": 2.0, "b": 2.0}))
        alerts.settle(False)
        assert alerts.close(10)
        assert [message["title"] for message in receiver.got] == ["[warning] b above 1"]
        assert [message["title"] for message in other.got] == ["[warning] a above 1"]
    finally:
        other.close()


def test_a_target_can_be_tried_out(receiver: HttpReceiver) -> None:
    answer = targets.test_target(receiver.address)
    assert answer == (True, f"json://127.0.0.1:{receiver.port}/**** took the message.")
    assert receiver.got[0]["title"] == "Barograph: a test"
    refused = targets.test_target(f"json://127.0.0.1:{closed_port()}/secretpath")
    assert not refused.taken and "secretpath" not in refused.sentence
    with hung_server() as port:
        slow = targets.test_target(f"json://127.0.0.1:{port}/?rto=3", timeout=0.2)
    assert not slow.taken and "did not answer within 0.2 s" in slow.sentence
    assert not targets.test_target("nonsense").taken
    assert "nearest one is json" in targets.test_target("jsonx://localhost").sentence


# -- secrets --------------------------------------------------------------------------------------------------

SECRET = some.text("abcdefghijkABCDEFG0123456789_-", min_size=8, max_size=30)


@given(secret=SECRET, form=some.sampled_from([
    "slack://{}/B2/C3", "json://user:{}@host.example/path", "json://host:80/{}", "json://host?token={}",
    "mailto://me:{}@gmail.com?to=a@b.c", "mailto://a:{}/c@host", "json://a:1?{}@host", "tgram://{}/1",
    "json://{}:pw@host", "discord://1/{}#x", "ntfy://{}", "json://u:p@{}@host", "form://u:p/{}@host:1",
]))  # fmt: skip
def test_a_masked_address_holds_no_part_of_its_secret(secret: str, form: str) -> None:
    address = form.format(secret)
    assert secret not in masked(address)
    assert secret not in scrubbed(f"could not reach {address} with {secret}: {secret}!", address)


def test_masked_addresses_show_their_kind_and_host_where_that_is_sure() -> None:
    assert masked("json://u:p@host.example:8080/x?y=z") == "json://host.example:8080/****"
    assert masked("https://hooks.slack.com/services/T/B/x") == "https://hooks.slack.com/****"
    assert masked("slack://T/B/x") == "slack://****"
    assert masked("password") == "****"


@settings(max_examples=50)
@given(some.text(max_size=300), some.text(max_size=300))
def test_any_title_and_text_make_a_message_of_one_titled_line(title: str, text: str) -> None:
    made, body, kind = compose([Alert(clean(title, 200), clean(text), "warning", "c")], "run x")
    assert len(made.splitlines()) <= 1 and made.isprintable() and kind == "warning"
    assert body.splitlines()[-1] == "run x"
