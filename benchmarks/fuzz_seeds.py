"""Small logs of our own making, one or more of every kind that `barograph import` reads.

In:   a folder; an interpreter that has the trackers' libraries (those that it lacks are left out and named).
Out:  a folder for each seed, with one log in it: a file, or the files of a tracker's store.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import barograph

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # what writes the formats by hand is there

TRACKERS = {
    "aim": """
import aim, numpy
run = aim.Run(repo=".", experiment="fuzz", system_tracking_interval=None, log_system_params=False,
              capture_terminal_logs=False)
run.name = "first"
run["hparams"] = {"lr": 3e-4, "layers": [1, 2, {"a": None}]}
for step in range(60):
    run.track({"loss": 3.0 / (step + 1), "lr": 1e-4 * step}, step=step)
    run.track(0.5 + step, name="loss", step=step, context={"subset": "val"})
run.track(aim.Distribution(hist=numpy.array([1, 2, 3]), bin_range=(0.0, 3.0)), name="weights", step=8)
run.track(aim.Text("hello"), name="sample", step=9)
if CLOSED: run.close()
os._exit(0)
""",
    "mlflow": """
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
client = MlflowClient(URI)
run = client.create_run(client.create_experiment("fuzz"), run_name="first", tags={"k": "v"})
key = run.info.run_id
for step in range(60):
    both = [Metric("train/loss", 3.0 / (step + 1), 1_700_000_000_000 + 1000 * step, step),
            Metric("lr", 1e-4 * step, 1_700_000_000_000 + 1000 * step, step)]
    client.log_batch(key, both)
client.log_batch(key, [], [Param("lr", "3e-4")], [RunTag("seed", "1")])
client.set_terminated(key)
""",
    "trackio": """
import trackio
run = trackio.init("fuzz", name="first", config={"lr": 3e-4}, auto_log_gpu=False, auto_log_cpu=False, embed=False)
for step in range(60):
    run.log({"loss": 3.0 / (step + 1), "lr": 1e-4 * step, "who": "text"}, step=step)
run.finish()
""",
    "wandb": """
import wandb
run = wandb.init(project="fuzz", name="first", config={"lr": 3e-4}, mode="offline",
                 settings=wandb.Settings(x_disable_machine_info=True, silent=True))
run.define_metric("tok/*", step_metric="tokens")
print("hello world")
for step in range(60):
    run.log({"loss": 3.0 / (step + 1), "tokens": 1000 * step, "tok/loss": 1.5 + step, "nest": {"a": step},
             "hist": wandb.Histogram(np_histogram=([1, 2], [0.0, 1.0, 2.0])), "who": "text"})
run.finish()
""",
}
HEAD = "import os, sys\nCLOSED, URI = sys.argv[1] == 'closed', sys.argv[1]\n"


def make(folder: Path, python: str = sys.executable) -> list[Path]:
    """The seeds' folders."""
    _tables(folder)
    _documents(folder)
    _events(folder)
    _wandb(folder)
    _databases(folder)
    for path in sorted((ROOT / "tests" / "textlogs").iterdir()):
        _put(folder, f"text-{path.name}", path.name, path.read_bytes())
    _put(folder, "text-mlperf", "result_0.txt", (ROOT / "tests" / "mlperf" / "result_0.txt").read_bytes())
    for name, library, argument in (
        ("aim-closed", "aim", "closed"), ("aim-killed", "aim", "killed"), ("mlflow-db", "mlflow", "sqlite:///mlflow.db"),
        ("mlflow-files", "mlflow", "mlruns"), ("trackio", "trackio", ""), ("wandb-offline", "wandb", ""),
    ):  # fmt: skip
        _run(folder / name, library, argument, python)
    return sorted(path for path in folder.iterdir() if path.is_dir())


def _put(folder: Path, seed: str, name: str, content: str | bytes) -> None:
    (folder / seed).mkdir(parents=True)
    (folder / seed / name).write_bytes(content.encode() if isinstance(content, str) else content)


def _tables(folder: Path) -> None:
    rows = [{"step": step, "loss": 3.0 / (step + 1), "lr": 1e-4 * step} for step in range(60)]
    _put(folder, "csv", "log.csv", "step,loss,lr\n" + "".join(f"{r['step']},{r['loss']},{r['lr']}\n" for r in rows))
    semicolons = "".join(f'{r["step"]};{str(r["loss"]).replace(".", ",")};"x"\n' for r in rows)
    _put(folder, "csv-comma", "log.csv", "Schritt;loss;wer\n" + semicolons)
    _put(folder, "jsonl", "rows.jsonl", "".join(json.dumps(r | {"nested": {"a": [1, 2]}}) + "\n" for r in rows))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    _put(folder, "json-columns", "log.json", json.dumps(columns))
    _put(folder, "json-list", "log.json", json.dumps(rows))
    exported = "".join(f'"{r["step"]}","{r["loss"]}","{r["loss"]}","{r["loss"]}"\n' for r in rows)
    _put(folder, "wandb-csv", "export.csv", '"Step","a - loss","a - loss__MIN","a - loss__MAX"\n' + exported)
    lightning = "".join(f"0,1e-4,{r['step']},{r['loss']},{'' if r['step'] % 5 else 2.0}\n" for r in rows)
    (folder / "lightning").mkdir()
    _put(folder / "lightning", "version_0", "metrics.csv", "epoch,lr-AdamW,step,train_loss_step,val_loss\n" + lightning)
    (folder / "lightning" / "version_0" / "hparams.yaml").write_text("lr: 0.0003\nmodel:\n  width: 768\n")


def _documents(folder: Path) -> None:
    history = [{"epoch": s / 60, "step": s, "loss": 3.0 / s, "learning_rate": 1e-4 * s} for s in range(1, 60)]
    state = {"best_metric": None, "epoch": 1.0, "global_step": 59, "max_steps": 60, "log_history": history}
    _put(folder, "huggingface", "trainer_state.json", json.dumps(state, indent=2))
    step = (
        '  {{"log": "step", "time": "2026-01-15 10:30:{0:02d}.937641674", "step": {0}, "epoch": 0.5, '
        '"step_tokens": 1000, "duration_ms": 10, "norm": 0.5, "loss": {1}, "lr": 0.001}}'
    )
    lines = [
        step.format(at, loss)
        for at, loss in ((0, "2.5"), (1, "nan"), (2, '"nan"'), (3, "-inf"), *((n, 1.5) for n in range(4, 60)))
    ]
    first = '  {"log": "option", "time": "2026-01-15 10:30:00.000000001", "step": 0, "name": "lr", "value": 0.001}'
    gpu = '  {"log": "gpu", "time": "2026-01-15 10:30:09.000000001", "step": 9, "id": 0, "power": 300, "fan": -1}'
    _put(folder, "surogate", "log-run.json", "[\n" + ",\n".join([first, *lines, gpu]) + "\n]\n")
    quiet = {"verbosity": -2, "git": False, "machine": False, "watchdog": False}
    run = barograph.init("fuzz", dir=str(folder / "own"), **quiet)
    for at in range(60):
        run.log_step(at, 0.1, 1000, 10.0, 0.5, 3.0 / (at + 1), 1e-4)
    run.finish()
    [log] = (folder / "own").rglob("training.json")
    content = log.read_bytes()
    shutil.rmtree(folder / "own")
    _put(folder, "own", "training.json", content)


def _events(folder: Path) -> None:
    from wire_format import field, framed, scalar_event, start_event, version_event

    events = [scalar_event(tag, step, 3.0 / (step + 1)) for step in range(40) for tag in ("loss", "lr")]
    histogram = b"".join(field(n, v) for n, v in ((1, 0.0), (2, 1.0), (3, 9.0), (4, 2.0), (5, 3.0)))
    histogram += field(6, b"\0" * 8 + b"\0\0\0\0\0\0\xf0\x3f") + field(7, b"\0\0\0\0\0\0\0\x40" * 2)
    summary = field(1, field(1, "weights") + field(5, histogram))
    events += [start_event(20), field(1, 1.7e9) + field(2, 21) + field(5, summary)]
    name = "events.out.tfevents.1700000000.host.1.0"
    _put(folder, "tensorboard", name, b"".join(map(framed, [version_event(), *events])))


def _wandb(folder: Path) -> None:
    from wire_format import field, history, item, leveldb_log

    run = field(1, 1) + field(17, field(1, "abcd1234") + field(3, "fuzz") + field(5, field(1, item("lr", 3e-4))))
    rows = [history(step, {"loss": 3.0 / (step + 1), "who": "text", "_timestamp": 1.7e9 + step}) for step in range(60)]
    _put(folder, "wandb-file", "run-abcd1234.wandb", leveldb_log([run, *rows]))


def _databases(folder: Path) -> None:
    from test_import_mlflow import SCHEMA as MLFLOW
    from test_import_trackio import SCHEMA as TRACKIO

    for name, file, schema in (("mlflow-old", "mlflow.db", MLFLOW), ("trackio-old", "fuzz.db", TRACKIO)):
        (folder / name).mkdir()
        connection = sqlite3.connect(folder / name / file)
        connection.executescript(schema)
        for step in range(60):
            if name == "mlflow-old":
                row = ("loss", 3.0 / (step + 1), 1_700_000_000_000 + step, "r1", step, 0)
                connection.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", row)
            else:
                text = json.dumps({"loss": 3.0 / (step + 1), "bad": "NaN"})
                some = ("2026-01-15T10:30:00", "first", step, text)
                connection.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", some)
        connection.commit()
        connection.close()


def _run(folder: Path, library: str, argument: str, python: str) -> None:
    """A seed out of the library itself, in a process of its own."""
    from tracker_programs import environment

    folder.mkdir()
    command = [python, "-c", HEAD + TRACKERS[library], argument]
    variables = environment(folder, WANDB_DIR=str(folder), WANDB_ERROR_REPORTING="false")
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
    if done.returncode:
        print(f"no seed {folder.name}: {done.stderr.strip().splitlines()[-1][:100]}")
        shutil.rmtree(folder)
        return
    for path in sorted(folder.rglob("*"), reverse=True):  # caches and logs of the library, which no importer reads
        if path.is_file() and path.stat().st_size > 1_000_000:
            path.unlink()
    for cache in (".cache", ".config", ".local"):
        shutil.rmtree(folder / cache, ignore_errors=True)
