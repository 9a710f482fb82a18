"""Ranks: what a packed reduction costs beside a bare all_reduce, and how fast a straggler is named.

    python benchmarks/ranks.py reduction [--rounds N]    # 4 gloo ranks, 50 values
    python benchmarks/ranks.py simulation [--seeds N]    # +15% on 1 of 4 ranks; healthy runs of 2,000 steps
    python benchmarks/ranks.py real                      # four processes, one of them 15% slower

`reduction` has all calls take turns after a barrier, in one run, on every rank, and gives rank 0's medians:
the rank that also writes the record. "waits" is `Ranks(wait=True)`, from the call to all ranks' values in hand
and in the log; "returns" is the default, what the training loop pays while a thread does the rest.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from barograph.probes.ranks.straggler import StragglerWatch

RANKS = 4


def spawn(main: Callable[[int, str], None]) -> None:
    """Fork the ranks of one launch, with torchrun's variables, and wait for them."""
    with socket.socket() as probe, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        for rank in range(RANKS):
            if os.fork() == 0:
                os.environ.update(
                    RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(RANKS),
                    MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                )  # fmt: skip
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
                code = 1
                try:
                    main(rank, folder)
                    code = 0
                except Exception:
                    sys.excepthook(*sys.exc_info())
                finally:
                    sys.stdout.flush()
                    os._exit(code)
        for _ in range(RANKS):
            os.wait()


def reduction(options: argparse.Namespace) -> None:
    import torch  # before the fork: once

    torch.set_num_threads(1)

    def main(rank: int, folder: str) -> None:
        import torch.distributed as distributed

        import barograph
        from barograph.probes.ranks.reduction import Ranks

        distributed.init_process_group("gloo")
        run = barograph.init(project="p", output_dir=folder, verbosity=-2, git=False)
        waits, returns = Ranks(run, wait=True), Ranks(run)
        one, fifty = torch.ones(1), torch.ones(50)
        values = {f"value/{number}": number + rank * 0.1 for number in range(50)}
        same = {f"value/{number}": float(number) for number in range(50)}
        step = [0]

        def reduce(ranks: Ranks, given: dict[str, float]) -> None:
            step[0] += 1
            ranks.reduce(step[0], given, step_ms=1.0, wait_ms=0.5)

        calls: dict[str, Callable[[], Any]] = {
            "all_reduce of 1 number": lambda: distributed.all_reduce(one),
            "all_reduce of 50 numbers": lambda: distributed.all_reduce(fifty),
            "reduce of 50 values, waits": lambda: reduce(waits, values),
            "reduce of 50 values, waits, equal on all": lambda: reduce(waits, same),
            "reduce of 50 values, returns": lambda: reduce(returns, values),
        }
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(options.rounds):
            for name, call in calls.items():
                distributed.barrier()
                began = time.perf_counter()
                call()
                taken[name].append((time.perf_counter() - began) * 1e6)
        run.finish()
        if rank == 0:
            medians = {name: statistics.median(times[20:]) for name, times in taken.items()}
            print(f"{'':42} {'p10':>7} {'median':>7} {'p90':>7}   of 1    of 50")
            for name, times in taken.items():
                tenths = statistics.quantiles(times[20:], n=10)
                ratios = [medians[name] / medians[bare] for bare in list(medians)[:2]]
                print(
                    f"{name:42} {tenths[0]:7.0f} {medians[name]:7.0f} {tenths[8]:7.0f}   "
                    f"{ratios[0]:.2f}    {ratios[1]:.2f}   (µs)"
                )

    spawn(main)


def times(seed: int, steps: int, noise: float, slow: float, since: int) -> list[tuple[int, list[float], list[float]]]:
    """Step and wait times of a synchronous training on four ranks; rank 1 is `slow` times slower from a step on."""
    chance = random.Random(seed)
    found = []
    for step in range(steps):
        work = [100 * chance.lognormvariate(0, noise) for _ in range(RANKS)]
        for rank in range(RANKS):
            if chance.random() < 0.01:
                work[rank] *= chance.uniform(1.5, 6)  # garbage collection, a neighbour
        if step % 50 == 0:
            work[0] += 400  # rank 0 evaluates
        if step % 200 < 3:
            work[0] += 2000  # and writes checkpoints
        if step >= since:
            work[1] *= slow
        whole = max(work) + 5
        found.append((step, [whole] * RANKS, [whole - own for own in work]))
    return found


def simulation(options: argparse.Namespace) -> None:
    print("jitter   +15%: named within 50   median delay   most    healthy runs of 2,000 steps with a name")
    for noise in (0.01, 0.03, 0.05, 0.08, 0.1, 0.2, 0.4):
        delays, wrong = [], 0
        for seed in range(options.seeds):
            judge = StragglerWatch()
            for step, steps, waits in times(seed, 600, noise, 1.15, 200):
                named = [finding.rank for finding in judge.observe(step, steps, waits)]
                if named:
                    delays += [step - 199] if named == [1] and step >= 200 else []
                    break
            judge = StragglerWatch()
            wrong += any(judge.observe(*row) for row in times(10_000 + seed, 2000, noise, 1.0, 0))
        within = sum(delay <= 50 for delay in delays)
        middle, most = (statistics.median(delays), max(delays)) if delays else (float("nan"), 0)
        print(
            f"{noise:5.0%}    {within:5} of {options.seeds:<5}        {middle:8.0f}    {most:6}    "
            f"{wrong:5} of {options.seeds}"
        )


def real(options: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(1)

    def main(rank: int, folder: str) -> None:
        import torch.distributed as distributed

        import barograph
        from barograph.probes.ranks.reduction import Ranks
        from barograph.probes.ranks.waiting import time_collectives

        distributed.init_process_group("gloo")
        run = barograph.init(project="p", output_dir=folder, verbosity=-2, git=False)
        ranks, chance = Ranks(run), random.Random(rank)
        with time_collectives() as waits:
            ranks.waits = waits
            for step in range(options.steps):
                slow = 1.15 if rank == 1 and step >= options.steps // 2 else 1.0
                time.sleep(0.020 * slow * chance.lognormvariate(0, 0.03))
                distributed.all_reduce(torch.ones(1000))
                ranks.reduce(step, {"x": 1.0})
        run.finish()
        if rank == 0:
            (stored,) = barograph.runs(folder)
            for record in stored.records("straggler"):
                about = record.fields
                print(
                    f"rank {about['rank']} named at step {record.step}, {record.step - options.steps // 2 + 1} steps "
                    f"after it became slower; {about['slower_by']:.1%} slower since step {about['since']}"
                )

    spawn(main)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("reduction", "simulation", "real"))
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    {"reduction": reduction, "simulation": simulation, "real": real}[options.what](options)


if __name__ == "__main__":
    main()
