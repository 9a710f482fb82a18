"""`barograph run`: the program is as without it, and what it printed and wrote is a run."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import patient
from programs import python, recorded, run, until, wrapped
from sidecar_runs import ENVIRONMENT, own_records

import barograph
from barograph.core import manifest
from barograph.query import catalog
from barograph.query.stored import StoredRun
from barograph.sidecar.program.intake import FollowedFile, Intake
from barograph.sidecar.program.output import OutputFile, drop_read, last_lines, parts

ROWS = """
import sys, time
for step in range({rows}):
    print(f"step {{step}}: train loss {{3 / (step + 1):.4f}}, val loss {{3.1 / (step + 1):.4f}}", flush=True)
"""


# -- the program is as without it ---------------------------------------------------------------------

PROGRAMS = {
    "nothing": "",
    "a failure": "import sys; print('no'); sys.exit(7)",
    "an exception": "raise ValueError('shape mismatch')",
    "bytes": "import os\nfor _ in range(40): os.write(1, os.urandom(70_000))",
    "no line break": "print('x' * 3_000_000, end='')",
    "both outputs": "import os\nfor i in range(300): os.write(1 + i % 2, b'%d\\n' % i)",
    "a closed input": "import sys; print(repr(sys.stdin.read()))",
    "a signal": "import os, signal; print('now', flush=True); os.kill(os.getpid(), signal.SIGTERM)",
    "a crash": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_bytes_and_exit_code_are_those_of_the_program(tmp_path: Path, name: str) -> None:
    code = PROGRAMS[name].replace("os.urandom(70_000)", "bytes(range(256)) * 280")
    plain = subprocess.run(python(code), capture_output=True, input=b"words\n", cwd=tmp_path, env=ENVIRONMENT)
    ours = run(tmp_path, *python(code), capture_output=True, input=b"words\n")
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert recorded(tmp_path).manifest["status"] == {0: "finished", -15: "killed", -11: "crashed"}.get(
        plain.returncode, "failed"
    )


def test_one_pipe_for_both_outputs_keeps_their_order(tmp_path: Path) -> None:
    done = run(tmp_path, *python(PROGRAMS["both outputs"]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.stdout.split() == [b"%d" % number for number in range(300)]


def test_what_cannot_start_says_so_as_a_shell_does_and_leaves_no_run(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("no program")
    for command, code in (("there-is-none", 127), ("./plain.txt", 126), (str(tmp_path), 126)):
        done = run(tmp_path, command, capture_output=True)
        assert done.returncode == code and command.encode() in done.stderr
    assert not list((tmp_path / "runs").glob("*/*"))


def test_a_folder_that_cannot_be_written_only_costs_the_record(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    done = run(tmp_path, *python("print('hello')"), capture_output=True)
    assert done.returncode == 0 and done.stdout == b"hello\n" and b"nothing is recorded" in done.stderr


def test_a_reader_that_goes_away_ends_the_program_as_without_us(tmp_path: Path) -> None:
    code = "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nwhile True: print('line')"
    process = subprocess.Popen(wrapped(tmp_path, *python(code)), stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert process.stdout is not None and process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.wait(patient(60)) == -signal.SIGPIPE


def test_a_signal_to_us_alone_is_passed_on(tmp_path: Path) -> None:
    code = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(41))
print("ready", flush=True)
while True: signal.pause()
"""
    process = subprocess.Popen(wrapped(tmp_path, *python(code)), stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.wait(patient(60)) == 41


def test_when_we_are_killed_the_program_is_hung_up_on_and_the_run_says_how_it_ended(tmp_path: Path) -> None:
    code = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.1)"
    process = subprocess.Popen(wrapped(tmp_path, *python(code)), stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    about = until(
        lambda: next((m for m in map(manifest.read, (tmp_path / "runs").glob("*/*")) if "program" in m), None)
    )
    process.kill()
    process.wait()
    process.stdout.close()
    assert until(lambda: not os.path.exists(f"/proc/{about['program']['pid']}"))
    assert recorded(tmp_path).manifest["status"] in ("killed", "crashed")


def test_what_a_program_leaves_behind_keeps_its_output(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"(while [ ! -e {gate} ]; do sleep 0.1; done; echo late) & echo early; exit 3"
    process = subprocess.Popen(wrapped(tmp_path, "sh", "-c", script), stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert process.wait(patient(60)) == 3
    gate.touch()
    assert process.stdout is not None
    assert process.stdout.read() == b"early\nlate\n"
    process.stdout.close()
    assert recorded(tmp_path).manifest["program"]["exit_code"] == 3


# -- in a terminal ----------------------------------------------------------------------------------------


class Terminal:
    """A terminal, with a session of its own and a command in it."""

    def __init__(self, command: list[str], folder: Path):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(command[0], command, ENVIRONMENT)
        self.text = b""
        self.resize(31, 97)

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_for(self, word: bytes) -> None:
        until_ = time.monotonic() + patient(60)
        while word not in self.text:
            assert time.monotonic() < until_, self.text
            if select.select([self.master], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self.text += os.read(self.master, 4096)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> int:
        """The exit code, once all was read."""
        with contextlib.suppress(OSError):
            while chunk := os.read(self.master, 4096):
                self.text += chunk
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.master)
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(code: str) -> Terminal:
        opened.append(Terminal(wrapped(tmp_path, *python(code)), tmp_path))
        return opened[-1]

    yield start
    for item in opened:
        item.close()


def test_in_a_terminal_the_program_has_one_of_the_same_size(terminal: Callable[..., Terminal]) -> None:
    code = """
import os, shutil, signal, sys
print(*map(os.isatty, range(3)), shutil.get_terminal_size(), "\\x1b[31mred\\x1b[0m", flush=True)
changed = []
signal.signal(signal.SIGWINCH, lambda *_: changed.append(1))
print("asks", flush=True)
word = input("who? ")
while os.get_terminal_size(1).columns != 50: signal.pause()
print("hello", word, os.get_terminal_size(1).lines)
"""
    window = terminal(code)
    window.wait_for(b"who? ")
    window.type(b"me\n")
    window.resize(20, 50)
    assert window.end() == 0
    assert b"True True True" in window.text and b"\x1b[31mred" in window.text and b"hello me 20" in window.text


def test_ctrl_c_reaches_the_program_once(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    code = """
import time
try:
    print("ready", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(1)  # a second one would end it here
    print("saved", flush=True)
    raise SystemExit(9)
"""
    window = terminal(code)
    window.wait_for(b"ready")
    window.type(b"\x03")
    assert window.end() == 9 and b"saved" in window.text
    assert recorded(tmp_path).manifest["status"] == "failed"


JOBS = """
import os, signal, sys
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(pid, os.WUNTRACED)
print("stopped", os.WIFSTOPPED(status), flush=True)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, pid)
os.killpg(pid, signal.SIGCONT)
_, status = os.waitpid(pid, 0)
os._exit(os.waitstatus_to_exitcode(status))
"""


def test_ctrl_z_stops_both_and_fg_goes_on(tmp_path: Path) -> None:
    code = "print('ready', flush=True)\ninput()\nprint('went on', flush=True)\nraise SystemExit(4)"
    window = Terminal([sys.executable, "-c", JOBS, *wrapped(tmp_path, *python(code))], tmp_path)
    try:
        window.wait_for(b"ready")
        window.type(b"\x1a")
        window.wait_for(b"stopped True")
        window.type(b"\n")
        assert window.end() == 4 and b"went on" in window.text
    finally:
        window.close()


# -- what it printed and wrote is a run -----------------------------------------------------------------------


def test_printed_numbers_are_series_of_a_run_with_command_output_and_end(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ROWS.format(rows=12) + "raise SystemExit(5)")
    more = ("--project", "gpt", "--tag", "try")
    done = run(tmp_path, sys.executable, "train.py", "--api-key", "sk-verysecret", more=more, stdout=subprocess.PIPE)
    assert done.returncode == 5
    stored = recorded(tmp_path)
    assert stored.series("train/loss").step.tolist() == list(range(12))
    assert stored.series("eval/loss").value.tolist()[:2] == pytest.approx([3.1, 1.55])
    about = stored.manifest
    assert (about["project"], about["tags"], about["status"]) == ("gpt", ["try"], "failed")
    assert about["name"].startswith("train") and about["program"]["exit_code"] == 5
    assert about["command"][:2] == [sys.executable, "train.py"] and "sk-verysecret" not in json.dumps(about)
    assert (stored.dir / "output" / "output-0001.log").read_bytes() == done.stdout
    end = [record for record in stored.records("end")][-1]
    assert end.fields["exit_code"] == 5 and end.fields["last"][-1].startswith("step 11:")


def test_findings_and_the_programs_own_use_of_the_machine_come_while_it_runs(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = f"""
import os, time
ballast = bytearray(200_000_000)
step = 0
while not os.path.exists({str(gate)!r}):
    print(f"step {{step}}: train loss {{'nan' if step > 20 else 2.5:}}, val loss 2.0", flush=True)
    step += 1
    time.sleep(0.1)
"""
    environment = ENVIRONMENT | {"BAROGRAPH_MACHINE": "true", "BAROGRAPH_MACHINE_SECONDS": "1"}
    process = subprocess.Popen(wrapped(tmp_path, *python(code)), stdout=subprocess.DEVNULL, env=environment)
    try:
        folder = until(lambda: next((path.parent for path in (tmp_path / "runs").glob("*/*/training.json")), None))
        assert until(lambda: own_records(folder, "finding"))
        assert until(lambda: any(r.get("process_rss", 0) > 2e8 for r in own_records(folder, "host")))
        assert manifest.read(folder)["status"] == "running"
    finally:
        gate.touch()
        assert process.wait(patient(60)) == 0
    assert recorded(tmp_path).manifest["status"] == "finished"


def test_a_program_that_is_a_run_itself_is_that_one_run(tmp_path: Path) -> None:
    code = f"""
import barograph
run = barograph.init(project="own", name="mine", dir={str(tmp_path / "runs")!r}, console="none")
for step in range(5):
    print(f"step {{step}}: train loss 9.0, val loss 9.0", flush=True)
    run.log({{"train/loss": 1.0 / (step + 1)}}, step=step)
run.finish()
"""
    assert run(tmp_path, *python(code), stdout=subprocess.DEVNULL).returncode == 0
    stored = recorded(tmp_path)
    assert stored.dir == tmp_path / "runs" / "own" / "mine"
    assert stored.series("train/loss").value.tolist()[:2] == [1.0, 0.5]
    assert until(lambda: manifest.read(stored.dir)["program"].get("exit_code") == 0)
    assert "step 4" in (stored.dir / "output" / "output-0001.log").read_text()


def test_files_that_the_program_keeps_open_and_files_that_are_named_are_followed(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = f"""
import json, os, time
log = open("metrics.jsonl", "w")
for step in range(30):
    log.write(json.dumps({{"step": step, "train/loss": 2.0 - step / 100}}) + "\\n")
    log.flush()
    with open("later.csv", "a") as table:
        table.write("step,eval/loss\\n" if step == 0 else f"{{step}},{{3.0 - step / 100}}\\n")
while not os.path.exists({str(gate)!r}): time.sleep(0.1)
"""
    command = wrapped(tmp_path, *python(code), more=("--follow", str(tmp_path / "later.csv")))
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT)
    try:
        assert until(lambda: len(list((tmp_path / "runs").glob("*/*/training.json"))) == 1)
        assert until(lambda: "train/loss" in catalog.runs(tmp_path / "runs")[0].names())
    finally:
        gate.touch()
        assert process.wait(patient(60)) == 0
    stored = recorded(tmp_path)
    assert stored.series("train/loss").step.tolist() == list(range(30))
    assert stored.series("eval/loss").step.tolist() == list(range(1, 30))


@pytest.mark.slow
def test_the_ranks_of_a_launcher_are_one_run(tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    (tmp_path / "printing.py").write_text(
        "import os\nrank = os.environ['RANK']\n"
        "for step in range(6):\n"
        "    print(f'[rank {rank}] step {step}: train loss {3 + int(rank)}, val loss 2', flush=True)\n"
    )
    (tmp_path / "recording.py").write_text(
        f"import barograph\nrun = barograph.init(project='p', name='both', dir={str(tmp_path / 'own' / 'runs')!r}, "
        "console='none')\nfor step in range(6):\n    run.log({'train/loss': 1.0 + run.about.rank}, step=step)\n"
        "run.finish()\n"
    )
    assert run(tmp_path, *launcher, "printing.py", stdout=subprocess.PIPE).returncode == 0
    stored = recorded(tmp_path)
    assert set(stored.series("train/loss").value.tolist()) <= {3.0, 4.0} and len(stored.series("train/loss").step) == 6
    (tmp_path / "own").mkdir()
    done = subprocess.run(
        wrapped(tmp_path / "own", *launcher, str(tmp_path / "recording.py")), env=ENVIRONMENT, timeout=patient(120)
    )
    assert done.returncode == 0
    stored = recorded(tmp_path / "own")
    assert stored.series("train/loss").value.tolist() == [1.0] * 6
    assert until(lambda: "exit_code" in manifest.read(stored.dir)["program"])


# -- parts of the output -----------------------------------------------------------------------------------------


def test_output_goes_on_in_further_parts_and_they_are_read_as_one(tmp_path: Path) -> None:
    folder = tmp_path / "output"
    folder.mkdir()
    lines = [f"step {step}: train loss {3 / (step + 1):.4f}, val loss 2.0000\n".encode() for step in range(400)]
    file = OutputFile(folder, "output", part_bytes=4000)
    opened: list[barograph.Run] = []

    def open_run() -> Any:
        if not opened:
            opened.append(barograph.init(dir=tmp_path, name="run", console="none", sidecar=False))
        return opened[0]

    intake, before = Intake(open_run, {}), None
    seen: dict[Path, FollowedFile] = {}
    for first in range(0, 400, 50):
        file.write(b"".join(lines[first : first + 20]))
        for line in lines[first + 20 : first + 50]:
            file.write(line[:9])
            file.write(line[9:])
        for path in parts(folder):
            if path not in seen:
                before = seen[path] = intake.add(path, before)
        intake.read()
    file.close()
    intake.read(final=True)
    opened[0].finish()
    assert len(parts(folder)) > 3
    assert b"".join(path.read_bytes() for path in parts(folder)) == b"".join(lines)
    assert StoredRun(opened[0].dir).series("train/loss").step.tolist() == list(range(400))
    assert last_lines(folder, 2) == [line.decode().strip() for line in lines[-2:]]
    number = len(parts(folder))
    drop_read(folder, "output", number)
    assert [path.name for path in parts(folder)] == [f"output-{n:04d}.log" for n in (1, number - 1, number)]
