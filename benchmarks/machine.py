"""What watching the machine costs: processor time in percent of one core, and memory.

    python benchmarks/machine.py [--seconds N] [--devices N] [--json]

"counted" replays N seconds (a sample a second, a record every ten) as fast as they go, by the thread's own
processor time: host from this machine, devices from the real driver where there is one, else from recorded
answers, whose cost is Python's side alone. "live" lets a run stand still for N/10 seconds, with and without the
sampler, and compares the processes' time and memory: that has the threads' waking up in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import barograph
from barograph.probes.machine.host import Host
from barograph.probes.machine.nvml import Nvidia
from barograph.probes.machine.readings import MissingError

ANSWERS = str(Path(__file__).parents[1] / "tests")
RECORD_SECONDS = 10

LIVE = """
import json, os, sys, time, psutil, barograph
sys.path.insert(0, sys.argv[1])
from nvml_answers import Nvml, h100
from barograph.probes.machine.sampler import Machine
from barograph.probes.machine.nvml import Nvidia
folder, devices, seconds, watched = sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5] == "yes"
run = barograph.init(project="p", dir=folder, verbosity=-2, git=False, machine=False)
backends = [Nvidia(Nvml([h100(index) for index in range(devices)]), {})]
if watched:
    Machine(run, backends=backends).start()
for step in range(3):  # every run records: the store's libraries are there in both
    run.log({"x": 1.0}, step=step)
    time.sleep(1)
began, spent = time.monotonic(), time.process_time()
time.sleep(seconds)
spent, took = time.process_time() - spent, time.monotonic() - began
print(json.dumps([100 * spent / took, psutil.Process().memory_info().rss / 2**20]))
run.finish()
"""


def devices_backend(count: int) -> tuple[Any, str]:
    """The real driver's devices, or recorded answers of that number of H100."""
    backend = Nvidia()
    try:
        backend.open()
        return backend, f"{len(backend.models())} real"
    except MissingError:
        sys.path.insert(0, ANSWERS)
        from nvml_answers import Nvml, h100

        backend = Nvidia(Nvml([h100(index) for index in range(count)]), {})
        backend.open()
        return backend, f"{count} recorded"


def counted(seconds: int, count: int) -> dict[str, Any]:
    """Percent of one core of each part, by thread time."""
    with tempfile.TemporaryDirectory() as folder:
        run = barograph.init(project="p", dir=folder, verbosity=-2, git=False, machine=False)
        assert run is not None
        backend, which = devices_backend(count)
        host = Host(run.dir)
        real = which.endswith("real")
        spent: dict[str, list[float]] = {"devices": [], "host": []}
        for second in range(seconds):
            now = time.monotonic() if real else float(second)
            if real:
                time.sleep(0.05)  # or the driver answers from what it kept
            began = time.thread_time()
            backend.sample(now)
            if second % RECORD_SECONDS == 0:
                for fields in backend.records(now):
                    run.record("gpu", second, fields)
            middle = time.thread_time()
            host.sample(now)
            if second % RECORD_SECONDS == 0:
                run.record("host", second, host.record(now))
            spent["devices"].append(middle - began)
            spent["host"].append(time.thread_time() - middle)
        backend.close()
        run.finish()
    return {"devices_are": which} | {name: 100 * sum(took) / seconds for name, took in spent.items()}


def live(seconds: float, count: int, rounds: int = 3) -> dict[str, float]:
    """Medians of a still run with and without the sampler, in turns."""
    found: dict[str, list[list[float]]] = {"yes": [], "no": []}
    for _ in range(rounds):
        for watched, values in found.items():
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [sys.executable, "-c", LIVE, ANSWERS, folder, str(count), str(seconds), watched],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                values.append(json.loads(done.stdout))
    middle = {key: [statistics.median(column) for column in zip(*rows, strict=True)] for key, rows in found.items()}
    return {
        "with": middle["yes"][0],
        "without": middle["no"][0],
        "memory_mib": middle["yes"][1] - middle["no"][1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=200, help="seconds that are replayed; a tenth of them live")
    parser.add_argument("--devices", type=int, default=8, help="devices with recorded answers")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = counted(options.seconds, options.devices)
    seen = live(options.seconds / 10, options.devices)
    if options.json:
        print(json.dumps({"counted": rows, "live": seen}))
        return
    total = rows["devices"] + rows["host"]
    print(f"counted  devices ({rows['devices_are']})   {rows['devices']:.3f}% of one core")
    print(f"counted  host                     {rows['host']:.3f}%")
    print(f"counted  together                 {total:.3f}%   (target 0.2%)")
    print(f"live     with the sampler         {seen['with']:.3f}%")
    print(f"live     without                  {seen['without']:.3f}%")
    print(f"live     the sampler's share      {seen['with'] - seen['without']:.3f}%   (target 0.2%)")
    print(f"live     memory                   {seen['memory_mib']:+.1f} MiB")


if __name__ == "__main__":
    main()
