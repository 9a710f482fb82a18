"""A run's life cycle against what comes at a bad moment: other ranks, signals, refusals, a second writer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from run_starts import only, start


def test_ranks_that_come_late_go_on_with_the_run_that_rank_0_went_on_with(tmp_path: Path) -> None:
    run = start(tmp_path)
    for step in range(5):
        run.log({"loss": 1.0}, step=step)
    run.finish()
    script = (
        "import sys, barograph; r = barograph.init(project='p', dir=sys.argv[1], verbosity=-2, git=False, resume='auto')"
        ";r.log({f'rank{r.rank}': 1.0}); r.log({f'rank{r.rank}': 2.0}); print(r.id, flush=True); sys.stdin.read();"
        "r.finish()"
    )
    common = {"WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "localhost", "MASTER_PORT": "29501"}
    ranks, ids = [], []
    for rank in range(3):  # each comes when the ones before are at work
        environment = os.environ | common | {"RANK": str(rank)}
        ranks.append(
            subprocess.Popen(
                [sys.executable, "-c", script, tmp_path],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        out = ranks[-1].stdout
        assert out is not None
        ids.append(out.readline().strip())
    for process in ranks:
        process.communicate(timeout=60)
    assert ids == [run.id] * 3
    back = only(tmp_path)
    assert [segment.kind for segment in back.segments] == ["start", "resume"] and back.status == "finished"
    for rank in range(3):
        assert back.series(f"rank{rank}").step.tolist() == [5, 6]
