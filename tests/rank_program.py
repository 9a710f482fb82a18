"""Real trainings on several ranks under gloo, for tests and benchmarks.

    python tests/rank_program.py SCENARIO RANKS FOLDER

The program imports torch once and forks its ranks, each with the variables that torchrun sets; every rank
trains a small model on data of its own and records a run. A scenario says what goes wrong.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forked_python

if __name__ == "__main__":
    import torch
    import torch.distributed as distributed

    import barograph
    from barograph.probes.ranks.reduction import Ranks, checksum
    from barograph.probes.ranks.waiting import time_collectives, watch_collectives


def launch(scenario: str, ranks: int, folder: Path, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    """Run a scenario to its end and return what it printed."""
    source = str(Path(__file__).parent.parent / "src")
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = (sys.executable, "-W", "ignore", __file__, scenario, str(ranks), folder)
    return forked_python.run(*command, capture_output=True, text=True, timeout=seconds, env=environment)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fork_rank(main: Callable[[int], None], rank: int, ranks: int, port: int) -> int:
    """A child that is one rank of a launch. It never returns here."""
    child = os.fork()
    if child:
        return child
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    code = 1
    try:
        main(rank)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start(folder: str, **options: Any) -> Any:
    run = barograph.init(project="p", output_dir=folder, verbosity=-2, git=False, wide_threshold=1000, **options)
    said: set[str] = set()

    def warn(sentence: str, key: str | None = None) -> None:
        if (key or sentence) not in said:
            said.add(key or sentence)
            print(f"[{run.rank}] {sentence}", flush=True)

    run.warn = warn
    return run


def training(rank: int, data_parallel: bool = True) -> Iterator[tuple[int, Any, float]]:
    """A model that learns on this rank's own data: (step, model, loss), without end."""
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    if data_parallel:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(100 + rank)
    step = 0
    while True:
        inputs = torch.randn(8, 16, generator=data)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        yield step, model, loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1


def reduce(rank: int) -> None:
    """Everything that can be said of values: equal and different ones, NaN, many, other names, a lost step."""
    distributed.init_process_group("gloo")
    run = start(sys.argv[3])
    ranks = Ranks(run)
    for step, model, loss in training(rank):
        if step == 20:
            break
        values = {"loss": loss.detach(), "lr": 0.05, "rank/squared": rank * rank, "tokens": 100.0 + rank}
        if step == 5 and rank == 2:
            values["loss"] = float("nan")
        if step == 6:
            values |= {f"layer/{number}": number + rank / 8 for number in range(150)}
        if step == 7 and rank == 3:
            values["extra"] = 1.0
        marks: dict[str, Any] = {"fingerprint": 7 if step == 11 and rank < 2 else 1000 * step + rank}
        if step in (12, 13):
            with torch.no_grad():
                if step == 13 and rank == 1:
                    next(model.parameters()).add_(1e-6)
            marks["checksum"] = checksum(model.parameters())
        if step == 9 and rank == 3:
            continue
        run.log({f"own/{name}": value for name, value in values.items()}, step=step)
        ranks.reduce(step, values, sums=("tokens",), **marks)
    run.finish()


def late(rank: int) -> None:
    """Rank 1 takes part in the training from the start and calls reduce later; nobody waits for it."""
    distributed.init_process_group("gloo")
    run = start(sys.argv[3])
    ranks = Ranks(run)
    if rank == 1:
        time.sleep(0.5)
    began = time.perf_counter()
    for step in range(30):
        ranks.reduce(step, {"x": float(rank)})
    print(f"[{rank}] took {time.perf_counter() - began:.4f}", flush=True)
    time.sleep(1.5)
    run.finish()


def absent(rank: int) -> None:
    """Only rank 0 calls reduce: nothing is reduced, and nobody hangs."""
    distributed.init_process_group("gloo")
    run = start(sys.argv[3])
    ranks = Ranks(run) if rank == 0 else None
    for step in range(30):
        if ranks is not None:
            ranks.reduce(step, {"x": 1.0})
        distributed.barrier()
    run.finish()
    print(f"[{rank}] done", flush=True)


def slow(rank: int) -> None:
    """Rank 2 is 20% slower from step 40 to step 160; every step sleeps, so that two cores do for four ranks."""
    distributed.init_process_group("gloo")
    run = start(sys.argv[3])
    ranks = Ranks(run)
    model: Any = None
    for step, model, _ in training(rank):
        if step == 0:
            ranks.waits = watch_collectives(model)
        if step == 260:
            break
        if step:
            ranks.reduce(step - 1, {"x": 1.0})
        chance = (step * 7 + rank * 3) % 11 / 11  # some jitter, the same every time
        time.sleep(0.030 * (1.2 if rank == 2 and 40 <= step < 160 else 1.0) + 0.002 * chance)
        if rank == 0 and step % 50 == 49:
            time.sleep(0.2)  # rank 0 evaluates
    run.finish()


def waited(rank: int) -> None:
    """Three ways to measure waiting, rank 1 being slow; the hook leaves the gradients as they are."""
    distributed.init_process_group("gloo")
    trained = []
    for watched in (False, True):
        for step, model, _ in training(rank):
            if watched and step == 0:
                waits = watch_collectives(model)
            if step == 20:
                break
            time.sleep(0.02 if rank == 1 else 0)
        trained.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.equal(*trained), "the hook changed the training"
    ddp = waits.take()
    assert waits.take() is None and not waits.reducing
    with time_collectives() as collectives:
        for _ in range(10):
            time.sleep(0.02 if rank == 1 else 0)
            distributed.all_reduce(torch.ones(3))
    python = collectives.take()
    distributed.barrier()
    assert collectives.take() is None, "measured after the context"
    run = start(sys.argv[3])
    ranks = Ranks(run, wait=True)
    own = 0.0
    for step in range(10):
        time.sleep(0.02 if rank == 1 else 0)
        reduced = ranks.reduce(step, {"rank": float(rank), "not a number": math.nan if rank == 2 else 1.0})
        assert reduced is not None
        assert reduced["rank"][:5] == (0.0, 1.0, 2.0, 0, 2), reduced
        assert reduced["not a number"].max_rank == 2 and reduced["not a number"].non_finite == 1
        own += ranks._waited if step else 0.0
    run.finish()
    print(f"[{rank}] waited {ddp:.1f} {python:.1f} {own:.1f}", flush=True)


def kill(rank: int) -> None:
    """Rank 3 is killed; the others say so."""
    distributed.init_process_group("gloo")
    run = start(sys.argv[3])
    ranks = Ranks(run)
    told = threading.Event()
    say = ranks._broken

    def broken(reason: str) -> None:
        say(reason)
        told.set()

    ranks._broken = broken  # type: ignore[method-assign]
    met = Path(sys.argv[3]).with_suffix(".met")
    for step in range(1000):
        if rank == 0 and ranks.last is not None:
            met.touch()
        if step == 15:  # all are connected, however slowly
            while not met.exists():
                ranks.reduce(step, {"x": float(rank)})
                time.sleep(0.02)
                if rank == 0 and ranks.last is not None:
                    met.touch()
            if rank == 3:
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        ranks.reduce(step, {"x": float(rank)})
        run.log({"x": 1.0}, step=step)
        if step >= 19:
            told.wait(60)
            break
    run.finish()


def elastic(rank: int) -> None:
    """Two ranks; then the process group is made anew and a third joins; then the third has gone."""
    run = start(sys.argv[3])
    ranks = Ranks(run)
    for number, (world, port) in enumerate(((2, "MASTER_PORT"), (3, "PORT_2"), (2, "PORT_3"))):
        if rank < world:
            address = f"tcp://127.0.0.1:{os.environ[port]}"
            distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
            for step in range(10 * number, 10 * number + 10):
                ranks.reduce(step, {"rank": float(rank)})
                distributed.barrier()
                time.sleep(0.02)
            time.sleep(0.3)
            distributed.destroy_process_group()
    run.finish()


SCENARIOS: dict[str, Callable[[int], None]] = {
    name: made
    for name, made in list(globals().items())
    if name in ("reduce", "late", "absent", "slow", "kill", "elastic", "waited")
}


def main() -> None:
    scenario, ranks = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    port = free_port()
    os.environ.update(PORT_2=str(free_port()), PORT_3=str(free_port()))
    children = {fork_rank(SCENARIOS[scenario], rank, ranks, port): rank for rank in range(ranks)}
    codes = {}
    while children:
        child, status = os.wait()
        codes[children.pop(child)] = os.waitstatus_to_exitcode(status)
    print("codes", [codes[rank] for rank in range(ranks)], flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        signal.alarm(150)
        main()
