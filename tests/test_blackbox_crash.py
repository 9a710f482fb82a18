"""The black box at the end of real processes: exceptions, SIGTERM, kill -9, NaN in a model's layer."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import forked_python
import pytest
from patience import patient

from barograph.training.blackbox.files import Box, read_blackbox
from barograph.views.blackbox import lines

HEAD = """
import math, os, signal, sys, threading, time
import barograph
from barograph.training.blackbox import crash

def begin():
    run = barograph.init(project="box", name="run", dir=sys.argv[1], verbosity=-2, git=False)
    return run, run._ending.blackbox

def train(run, first, last):
    for step in range(first, last):
        run.log_step(step, 0.0, 64, 3.0, 1.0, 2.0 - step / 100, 1e-3)

def ready():
    print("ready", flush=True)
"""


def start(folder: Path, body: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", HEAD + body, str(folder)], **options())


def options() -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src"), "OMP_NUM_THREADS": "1"}
    return {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def finish(process: subprocess.Popen[str], timeout: float = 60.0) -> str:
    """What it said on its standard error."""
    try:
        _, said = process.communicate(timeout=timeout)
        return said
    finally:
        process.kill()


def boxes(folder: Path) -> list[Box]:
    found = read_blackbox(folder / "box" / "run")
    assert not [box.damage for box in found if box.damage]
    return found


def last_step(box: Box) -> int:
    return max(record.step for record in box.records if record.kind == "step")


def test_an_exception_that_nobody_catches_leaves_a_box_and_its_traceback(tmp_path: Path) -> None:
    process = start(tmp_path, 'run, box = begin(); train(run, 0, 81); raise ValueError("the loss is not a number")\n')
    said = finish(process)
    assert process.returncode == 1 and said.count("ValueError: the loss is not a number") == 1
    (box,) = boxes(tmp_path)
    assert box.path.name == "80-exception" and last_step(box) == 80
    assert box.about["exception"]["type"] == "ValueError"
    assert any("ValueError: the loss is not a number" in line for line in lines(box))


def test_the_users_own_excepthook_is_called_as_before(tmp_path: Path) -> None:
    body = """
sys.excepthook = lambda kind, problem, trace: print("mine:", problem, file=sys.stderr)
run, box = begin()
train(run, 0, 3)
raise RuntimeError("out of luck")
"""
    process = start(tmp_path, body)
    said = finish(process)
    assert "mine: out of luck" in said and "Traceback" not in said
    assert [box.reason for box in boxes(tmp_path)] == ["exception"]


def test_memory_that_ran_out_is_named_so(tmp_path: Path) -> None:
    process = start(tmp_path, "run, box = begin(); train(run, 0, 5); bytearray(1 << 62)\n")
    finish(process)
    assert process.returncode == 1
    assert [box.reason for box in boxes(tmp_path)] == ["out-of-memory"]


WAITS = "ready()\nwhile True:\n    time.sleep(0.01)\n"


def test_sigterm_leaves_a_box_and_ends_the_process_as_it_always_did(tmp_path: Path) -> None:
    process = start(tmp_path, f"run, box = begin(); train(run, 0, 30)\n{WAITS}")
    ready(process)
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert process.returncode == -signal.SIGTERM
    (box,) = boxes(tmp_path)
    assert box.reason == "sigterm" and last_step(box) == 29


HANDLER = """
def mine(number, frame):
    os.write(1, b"mine\\n")  # the signal may come while `ready` is being printed
    os._exit(7)
"""


BEFORE = "signal.signal(signal.SIGTERM, mine)\nrun, box = begin()\ntrain(run, 0, 3)\n"
AFTER = "run, box = begin()\ntrain(run, 0, 3)\nassert callable(signal.signal(signal.SIGTERM, mine))\n"


@pytest.mark.parametrize(
    "body, left",
    [(BEFORE, True), (AFTER, False)],
    ids=["set before the run", "set after it"],
)
def test_the_users_own_handler_has_the_last_word(tmp_path: Path, body: str, left: bool) -> None:
    process = start(tmp_path, HANDLER + body + WAITS)
    ready(process)
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert process.returncode == 7
    assert bool(boxes(tmp_path)) is left


def test_a_handler_that_goes_on_may_be_called_again(tmp_path: Path) -> None:
    body = """
count = 0
def mine(number, frame):
    global count
    count += 1
signal.signal(signal.SIGTERM, mine)
run, box = begin()
train(run, 0, 3)
ready()
while count < 1: time.sleep(0.01)
train(run, 3, 9)
ready()
while count < 2: time.sleep(0.01)
run.finish()
assert signal.getsignal(signal.SIGTERM) is mine
"""
    process = start(tmp_path, body)
    for _ in range(2):
        ready(process)
        process.send_signal(signal.SIGTERM)
    said = finish(process)
    assert process.returncode == 0, said
    assert [last_step(box) for box in boxes(tmp_path)] == [2, 8]


def test_an_ignored_sigterm_stays_ignored(tmp_path: Path) -> None:
    body = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
run, box = begin()
train(run, 0, 3)
ready()
sys.stdin.readline()
run.finish()
assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + body, str(tmp_path)],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    ready(process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate("go on\n", timeout=60)
    assert process.returncode == 0, said


def test_nothing_is_left_behind_when_the_run_has_ended(tmp_path: Path) -> None:
    body = """
hook, handler = sys.excepthook, signal.getsignal(signal.SIGTERM)
run, box = begin()
train(run, 0, 3)
assert (sys.excepthook, signal.getsignal(signal.SIGTERM)) != (hook, handler)
run.finish()
assert (sys.excepthook, signal.getsignal(signal.SIGTERM)) == (hook, handler)
assert signal.set_wakeup_fd(-1) == -1
time.sleep(0.05)
assert not [thread for thread in threading.enumerate() if thread.name == "barograph-signals"]
"""
    process = start(tmp_path, body)
    said = finish(process)
    assert process.returncode == 0, said
    assert not boxes(tmp_path)


def test_a_run_that_begins_in_a_thread_touches_no_handler(tmp_path: Path) -> None:
    body = """
def work():
    global handler
    run, box = begin()
    handler = signal.getsignal(signal.SIGTERM)
    train(run, 0, 3)
    run.finish()
thread = threading.Thread(target=work); thread.start(); thread.join()
assert handler == signal.SIG_DFL
"""
    process = start(tmp_path, body)
    said = finish(process)
    assert process.returncode == 0, said


@pytest.mark.slow
def test_a_main_thread_that_stands_in_c_code_dies_of_sigterm_all_the_same(tmp_path: Path) -> None:
    body = """
import hashlib
crash.PATIENCE = 0.5
run, box = begin()
train(run, 0, 12)
ready()
hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000_000)  # minutes, without Python's lock
"""
    process = start(tmp_path, body)
    ready(process)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    finish(process)
    assert process.returncode == -signal.SIGTERM and time.monotonic() - began < patient(20)
    (box,) = boxes(tmp_path)
    assert box.reason == "sigterm" and last_step(box) == 11


@pytest.mark.slow
def test_a_forked_child_that_is_told_to_end_takes_nobody_along(tmp_path: Path) -> None:
    """As the workers of a data loader are."""
    body = """
crash.PATIENCE = 0.3
run, box = begin()
train(run, 0, 3)
child = os.fork()
if child == 0:
    while True: time.sleep(0.01)
time.sleep(0.2)
os.kill(child, signal.SIGTERM)
_, status = os.waitpid(child, 0)
assert os.WTERMSIG(status) == signal.SIGTERM
time.sleep(1.5)
run.finish()
"""
    process = start(tmp_path, body)
    said = finish(process)
    assert process.returncode == 0, said
    assert not boxes(tmp_path)


@pytest.mark.slow
def test_kill_9_while_a_box_is_written_leaves_whole_boxes_alone(tmp_path: Path) -> None:
    body = """
run, box = begin()
run.flush()
names = tuple(f"gradients/{place}/norm" for place in range(20_000))
for step in range(60):
    run.log(dict.fromkeys(names, float(step)), step=step)
    train(run, step, step + 1)
run.flush()
ready()
for number in range(10_000):
    box.dump(f"spike {number}", wait=True)
"""
    spread = random.Random(4)
    parts = 0
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        process = start(folder, body)
        ready(process)
        until = time.monotonic() + 30
        while not list((folder / "box" / "run" / "blackbox").glob(".box-*")) and time.monotonic() < until:
            pass
        time.sleep(spread.uniform(0.0, 0.02))
        process.kill()
        process.communicate()
        for box in boxes(folder):
            assert last_step(box) == 59 and box.tables[0].values.shape == (60, 20_000)
        parts += len(list((folder / "box" / "run" / "blackbox").glob(".box-*")))
    assert parts, "no process was killed while it wrote: the test has tested nothing"


TORCH = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
        self.spoils = False
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x))) * (math.nan if self.spoils else 1.0)

model = nn.Sequential(*(Block() for _ in range(4)), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
run, box = begin()
watch = run.watch(model, optimizer, histograms=0, activations=ACTIVATIONS, budget=None)
if watch not in box._watches:
    box.follow(watch)
data = run.watch_data()
poisoned = False
model[2].up.weight.register_hook(lambda gradient: gradient * (math.nan if poisoned else 1.0))

def go(steps, poison, checks=True):
    global poisoned
    for step in range(steps):
        batch = torch.randint(0, 50, (4, 8), generator=torch.Generator().manual_seed(step))
        data.observe(batch, step, position={"pq_idx": 0, "rg_idx": step, "epoch": 0})
        poison(step)
        loss = model(batch.float() / 50).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if checks and not math.isfinite(float(loss)):
            run.log({"train/loss": float(loss)}, step=step)
            raise FloatingPointError("loss")
        optimizer.step()
        run.log({"train/loss": float(loss)}, step=step)
    raise FloatingPointError("the end")
"""


def with_torch(folder: Path, body: str, activations: int = 0) -> str:
    """What a training said on its standard error."""
    pytest.importorskip("torch")
    code = HEAD + f"ACTIVATIONS = {activations}\n" + TORCH + body
    return finish(forked_python.start(sys.executable, "-c", code, folder, **options()), 120)


def torch_box(folder: Path, body: str, activations: int = 0) -> Box:
    said = with_torch(folder, body, activations)
    assert "FloatingPointError" in said, said
    (box,) = [box for box in boxes(folder) if box.about["reason"] == "exception"]  # a finding has its own
    return box


@pytest.mark.slow
def test_the_weight_that_went_bad_is_named_at_the_step_and_with_its_batch(tmp_path: Path) -> None:
    body = """
def poison(step):
    if step == 13:
        with torch.no_grad():
            model[1].down.weight[3, 4] = math.nan
go(20, poison)
"""
    box = torch_box(tmp_path, body)
    first = box.about["first_bad"]
    assert (first["what"], first["layer"], first["step"]) == ("weight", "1.down.weight", 13)
    assert box.about["batch"]["position"]["rg_idx"] == 13 and box.about["batch"]["step"] == 13
    assert len(box.about["batch"]["fingerprint"]) == 16
    (group,) = box.about["optimizers"][-1]["optimizers"][0]["groups"]
    assert group["lr"] == 1e-3 and group["betas"] == [0.9, 0.999]
    assert set(box.about["random"]["now"]) >= {"python", "torch"}
    assert "torch" in box.random_states()["now"]
    assert any("weight of 1.down.weight, step 13" in line for line in lines(box))


@pytest.mark.slow
def test_the_gradient_that_went_bad_is_named_though_all_weights_follow(tmp_path: Path) -> None:
    """The loop goes on for some steps: by then every layer is bad."""
    body = """
def poison(step):
    global poisoned
    poisoned = step == 13
go(17, poison, checks=False)
"""
    first = torch_box(tmp_path, body).about["first_bad"]
    assert (first["what"], first["layer"], first["step"]) == ("gradient", "2.up.weight", 13)
    assert first["layers"] == 1 and math.isnan(first["value"])


@pytest.mark.slow
def test_a_loss_that_went_bad_by_itself_blames_no_weight(tmp_path: Path) -> None:
    body = """
class Bad(nn.Module):
    def forward(self, x):
        return x * math.nan
def poison(step):
    if step == 13:
        model.append(Bad())
go(15, poison, checks=False)
"""
    box = torch_box(tmp_path, body)
    assert box.about["first_bad"]["what"] == "loss" and box.about["first_bad"]["step"] == 13
    assert {bad["what"] for bad in box.about["bad"]} >= {"loss", "gradient"}


@pytest.mark.slow
def test_an_activation_that_went_bad_is_named_where_activations_are_looked_at(tmp_path: Path) -> None:
    body = """
def poison(step):
    model[2].spoils = step == 13
go(15, poison, checks=False)
"""
    box = torch_box(tmp_path, body, activations=1)
    first = box.about["first_bad"]
    assert (first["what"], first["layer"], first["step"]) == ("activation", "2", 13)
    assert any(name.startswith("activations/2/") for table in box.tables for name in table.names)
    assert not [name for table in box.tables for name in table.names if name.startswith("train/")]


@pytest.mark.slow
def test_a_look_at_a_model_that_goes_on_training_is_made_by_the_thread_that_trains(tmp_path: Path) -> None:
    """From another thread it read gradients while a backward pass replaced them, and SIGSEGV ended the process."""
    body = """
from barograph.training.blackbox import live
threads = set()
kept = live.look
def look(*given):
    threads.add(threading.current_thread() is threading.main_thread())
    kept(*given)
live.look = look
def poison(step):
    global poisoned
    poisoned = step == 13
    if step == 14:
        box.dump("asked")
        box._writing[-1].join(0.5)  # nobody steps: it does not look
        assert not threads, threads
    if step == 15:
        deadline = time.monotonic() + 30
        box.dump("again")
        while box._writing[-1].is_alive() and not watch.at_rest and time.monotonic() < deadline:
            time.sleep(0.01)
    if step == 16:
        box._writing[-1].join(30)
        assert threads == {True}, threads
        raise KeyboardInterrupt
try:
    go(20, poison, checks=False)
except KeyboardInterrupt:
    run.finish()
"""
    said = with_torch(tmp_path, body)
    assert "Error" not in said, said
    found = {box.about["reason"]: box.about for box in boxes(tmp_path)}
    assert found["asked"]["bad_now"] == []
    assert {bad["what"] for bad in found["again"]["bad_now"]} >= {"weight", "gradient"}
