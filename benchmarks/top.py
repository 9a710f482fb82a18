"""What `barograph top` costs: a live run of many steps and series, looked at once a second.

    python benchmarks/top.py [--steps 1000000] [--series 2000] [--seconds 60]

A process writes the run's past straight into its store (eight series at each step, the others at each hundredth),
then goes on to log a hundred steps a second. `top` runs on a pseudo-terminal of 120 × 40 that is read as fast as it
writes. Printed: the time to the first page and to all of it, and page by page the share of a core, the bytes a second
on the line, and memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl

LINES = {"train/loss": 2.0, "train/norm": 1.0, "train/lr": 1e-3, "train/tokens_per_second": 5e4, "train/mfu": 0.4,
         "speed/step_ms": 10.0, "train/accuracy": 0.5, "train/step_tokens": 4096.0}  # fmt: skip
PAGES = {"overview": b"1", "overview, last 1/64": b"++++++", "time": b"02", "machine": b"3", "ranks": b"4",
         "findings": b"5", "log": b"6"}  # fmt: skip
EVERY = 100  # steps between two rows of the wide series

TRAIN = """
import sys, time
import numpy
import barograph
from barograph.store.seal import seal
from barograph.store.write import ImportWriter

folder, steps, series, every, lines = sys.argv[1], *map(int, sys.argv[2:5]), eval(sys.argv[5])
run = barograph.init(project="p", name="r", dir=folder, verbosity=-2, git=False, machine=False, total_steps=steps * 2)
generator = numpy.random.default_rng(0)
wide = tuple(f"layers/{number // 8}/statistic_{number % 8}" for number in range(series - len(lines)))
past = ImportWriter(run.dir / "store" / "past")
begun = time.time_ns() // 1000 - steps * 10_000
for names, stride in ((tuple(lines), 1), (wide, every)):
    middle = numpy.array([lines.get(name, 1.0) for name in names])
    for low in range(0, steps, 10_000 * stride if stride > 1 else 10_000):
        step = numpy.arange(low, min(steps, low + (10_000 if stride == 1 else 10_000 * stride)), stride)
        value = middle * (1 + 0.05 * generator.standard_normal((len(step), len(names))))
        past.points(names, step, begun + step * 10_000, value, 1)
past.commit(0, ())
seal(run.dir)
print(run.dir, flush=True)
step = steps
while True:
    noise = 1 + 0.05 * generator.standard_normal(len(lines))
    run.log({name: value * one for (name, value), one in zip(lines.items(), noise)}, step=step)
    if step % every == 0:
        run.log_wide(dict(zip(wide, generator.standard_normal(len(wide)).tolist())), step=step)
    step += 1
    time.sleep(0.01)
"""


class Line:
    """`top` on a pseudo-terminal."""

    def __init__(self, run: str, columns: int, rows: int):
        self.bytes = 0
        self.seen = b""
        self.process, self._line = pty.fork()
        if not self.process:
            os.environ["TERM"] = "xterm-256color"
            os.execv(
                sys.executable,
                [
                    sys.executable,
                    "-c",
                    "import sys; from barograph.views.top.command import top; top(sys.argv[1])",
                    run,
                ],
            )
        ioctl(self._line, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds: float, until: bytes = b"") -> float:
        """Read for so long, or until something is seen; how long it took."""
        began = time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            if select.select([self._line], [], [], left)[0]:
                try:
                    data = os.read(self._line, 1 << 16)
                except OSError:  # it has ended
                    break
                self.bytes += len(data)
                self.seen += data
                if until and until in self.seen:
                    break
        return time.monotonic() - began

    def press(self, keys: bytes) -> None:
        os.write(self._line, keys)

    def cost(self) -> tuple[float, float]:
        """Seconds of processor time, MiB of memory."""
        with open(f"/proc/{self.process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> None:
        self.press(b"q")
        self.read(0.5)
        os.close(self._line)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.process, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--series", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="that each page is watched")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = [folder, str(options.steps), str(options.series), str(EVERY), repr(LINES)]
        training = subprocess.Popen([sys.executable, "-c", TRAIN, *words], stdout=subprocess.PIPE, text=True)
        try:
            assert training.stdout is not None
            run = training.stdout.readline().strip()
            line = Line(run, 120, 40)
            first = line.read(60.0, b"train/loss")
            line.read(10.0)
            print(f"first page after {first:.2f} s; in its first ten seconds {line.cost()[0]:.2f} s of a core")
            print(f"{'page':<22} {'of a core':>10} {'bytes/s':>9} {'MiB':>6}")
            for page, keys in PAGES.items():
                line.press(keys)
                line.read(5.0)
                before, sent = line.cost()[0], line.bytes
                took = line.read(options.seconds)
                after, memory = line.cost()
                print(
                    f"{page:<22} {(after - before) / took:>10.2%} {(line.bytes - sent) / took:>9,.0f} {memory:>6,.0f}"
                )
            line.close()
        finally:
            training.kill()
            training.wait()


if __name__ == "__main__":
    main()
