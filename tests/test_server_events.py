"""What happens is told at once, to those who listen, and costs nothing while nobody does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from served_runs import finished, trained

from barograph.query import curation
from barograph.views.server import events as events_module
from barograph.views.server.app import Server
from barograph.views.server.events import Hub, TooMany


class Ear:
    """One listener; its events as they come."""

    def __init__(self, stream: AsyncIterator[bytes]):
        self._heard: asyncio.Queue[bytes] = asyncio.Queue()
        self._task = asyncio.create_task(self._listen(stream))

    async def _listen(self, stream: AsyncIterator[bytes]) -> None:
        async for piece in stream:
            for event in piece.split(b"\n\n"):
                self._heard.put_nowait(event)

    async def next(self, name: str, seconds: float = 10.0) -> Any:
        """The data of the next event of a name. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while True:
                event = await self._heard.get()
                if event.startswith(f"event: {name}\n".encode()):
                    return json.loads(event.split(b"data: ", 1)[1])

    async def quiet(self, name: str, seconds: float = 1.5) -> None:
        """Wait until nothing of a name has come for so long."""
        while True:
            try:
                await self.next(name, seconds)
            except TimeoutError:
                return


def hearing(root: Path, play: Callable[[Server], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        server = Server(root)
        server.table.refresh()
        await asyncio.to_thread(server.table.wait_filled, 20)
        try:
            await play(server)
        finally:
            server.close()

    asyncio.run(main())


@pytest.mark.slow
def test_a_logged_value_is_told_within_a_quarter_of_a_second(tmp_path: Path) -> None:
    run = trained(tmp_path, "live", 5)
    finished(tmp_path, "other", 5)

    async def play(server: Server) -> None:
        ear = Ear(server.hub.stream())
        await ear.quiet("points")
        took = []
        for step in range(5, 8):
            logged = time.monotonic()
            run.log({"train/loss": float(step)}, step=step)
            found = await ear.next("points")
            took.append(time.monotonic() - logged)
            assert found["run"] == "p/live" and found["step"] == step and abs(found["time"] - time.time()) < 5
            await ear.quiet("points")  # what the store took over from the log is told too
        assert sorted(took)[len(took) // 2] < 0.25, took

    hearing(tmp_path, play)
    run.finish()


def test_points_of_other_runs_are_not_told(tmp_path: Path) -> None:
    one, two = trained(tmp_path, "one", 3), trained(tmp_path, "two", 3)

    async def play(server: Server) -> None:
        ear = Ear(server.hub.stream(["p/two"]))
        await ear.quiet("points")
        one.log({"train/loss": 1.0}, step=3)
        two.log({"train/loss": 1.0}, step=4)
        assert (await ear.next("points"))["run"] == "p/two"

    hearing(tmp_path, play)
    one.finish()
    two.finish()


def test_wide_rows_that_no_log_has_are_told_too(tmp_path: Path) -> None:
    run = trained(tmp_path, "live", 3)

    async def play(server: Server) -> None:
        ear = Ear(server.hub.stream())
        await ear.quiet("points")
        run.log({f"wide/{at}": 1.0 for at in range(300)}, step=3)
        assert (await ear.next("points"))["run"] == "p/live"
        assert "wide/7" in server.reading.names(server.places.find("p/live"))

    hearing(tmp_path, play)
    run.finish()


@pytest.mark.slow
def test_new_edited_ended_and_deleted_runs_change_rows(tmp_path: Path) -> None:
    run = trained(tmp_path, "a", 3)

    async def play(server: Server) -> None:
        ear = Ear(server.hub.stream())
        await asyncio.to_thread(finished, tmp_path, "b", 3)
        while not any(row["key"] == "p/b" for row in (await ear.next("rows"))["rows"]):
            pass
        curation.edit(tmp_path / "p" / "a", notes="seen")
        while True:
            rows = await ear.next("rows")
            if any(row["key"] == "p/a" and row["notes"] == "seen" for row in rows["rows"]):
                break
        await asyncio.to_thread(run.finish)
        while not any(row["status"] == "finished" for row in (await ear.next("rows"))["rows"] if row["key"] == "p/a"):
            pass
        (tmp_path / "p" / "b").rename(tmp_path / ".b")
        while (await ear.next("rows"))["gone"] != ["p/b"]:
            pass

    hearing(tmp_path, play)


@pytest.mark.slow
def test_rows_are_told_once_a_second_at_most(tmp_path: Path) -> None:
    run = trained(tmp_path, "a", 3)

    async def play(server: Server) -> None:
        ear = Ear(server.hub.stream())

        await ear.quiet("rows")

        async def logging() -> None:
            for step in range(3, 60):
                run.log({"train/loss": 1.0}, step=step)
                await asyncio.sleep(0.05)

        task = asyncio.create_task(logging())
        times = []
        for _ in range(3):
            await ear.next("rows")
            times.append(time.monotonic())
        await task
        assert min(after - before for before, after in pairwise(times)) > 0.9

    hearing(tmp_path, play)
    run.finish()


def test_nobody_listening_is_no_work_and_the_last_to_go_ends_it(tmp_path: Path) -> None:
    finished(tmp_path, "a", 3)

    async def play(server: Server) -> None:
        assert server.hub._watcher is None
        stream = server.hub.stream()
        await anext(stream)
        await asyncio.sleep(0.5)
        assert server.hub.looks > 0 and server.hub.listening == 1
        await stream.aclose()
        await asyncio.sleep(0.5)
        looks = server.hub.looks
        await asyncio.sleep(0.5)
        assert server.hub.looks == looks and server.hub.listening == 0

    hearing(tmp_path, play)


def test_one_that_does_not_read_holds_no_more_than_a_row_for_each_run(tmp_path: Path) -> None:
    run = trained(tmp_path, "a", 3)

    async def play(server: Server) -> None:
        deaf = server.hub.stream()
        await anext(deaf)
        for step in range(3, 40):
            run.log({"train/loss": 1.0}, step=step)
            await asyncio.sleep(0.05)
        (listener,) = server.hub._listeners
        assert len(listener.points) == 1 and len(listener.rows) == 1

    hearing(tmp_path, play)
    run.finish()


def test_there_is_a_bound_to_listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "MOST_LISTENERS", 2)

    async def play(server: Server) -> None:
        streams = [server.hub.stream() for _ in range(3)]
        await anext(streams[0])
        await anext(streams[1])
        with pytest.raises(TooMany):
            await anext(streams[2])

    hearing(tmp_path, play)


def test_the_end_of_the_server_ends_the_streams(tmp_path: Path) -> None:
    async def play(server: Server) -> None:
        stream = server.hub.stream()
        await anext(stream)
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.05)
        server.hub.close()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(waiting, 2)

    hearing(tmp_path, play)


@pytest.mark.slow
def test_a_week_of_events_holds_no_more_memory_than_an_hour(tmp_path: Path) -> None:
    """Steps of a week, looked at one after the other: what is kept is bounded by the number of runs and names."""
    import tracemalloc

    run = trained(tmp_path, "a", 3)
    server = Server(tmp_path)
    server.table.refresh()
    server.table.wait_filled(20)
    place = server.places.find("p/a")

    def look(first: int, count: int) -> int:
        for step in range(first, first + count):
            run.log({"train/loss": float(step), "train/norm": 1.0}, step=step)
            if step % 20 == 0:
                server.hub._look(True)
                server.reading.series(place, ["train/loss"])
        return tracemalloc.get_traced_memory()[0]

    look(3, 1_000)
    server.reading._memory.limit = 100_000  # columns grow with the run; what is kept of them is bounded
    tracemalloc.start()
    early = look(1_003, 500)
    late = look(1_503, 4_000)
    tracemalloc.stop()
    assert len(server.reading._memory) <= 200 and server.reading._memory.held <= 100_000
    assert late - early < 3_000_000, f"{(late - early) / 1e6:.1f} MB more"
    run.finish()


def test_hub_without_a_loop_takes_news_quietly(tmp_path: Path) -> None:
    Hub(Server(tmp_path).table).rows_changed(["a"])
