"""Where threads are is said in the user's terms, for one process and for all ranks."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import barograph
from barograph.probes.ranks.stacks import describe, is_library, parse_dump, stacks, summary, where

USER, C10D = "/home/me/train.py:88 main", "/v/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:3000 "
WRAPPER = "/v/lib/python3.12/site-packages/torch/distributed/c10d_logger.py:83 wrapper"


def test_a_stack_is_read_in_the_users_terms() -> None:
    waits = where(["/home/me/train.py:9 <module>", USER, WRAPPER, C10D + "all_reduce"])
    assert describe(waits) == "waits in all_reduce (train.py:88)"
    assert describe(where([USER, "/home/me/data.py:61 load_batch"])) == "is in data.py:61 load_batch"
    inner = "/v/lib/python3.12/site-packages/numpy/core.py:5 concatenate"
    assert describe(where([USER, inner])) == "is in train.py:88 main, in a call of concatenate"
    assert describe(where([])) == "is in no code of yours"
    assert is_library("<frozen runpy>") and is_library(barograph.__file__) and is_library(os.__file__)
    assert not is_library(__file__)


def test_the_sentence_names_who_waits_where() -> None:
    waits, loads = where([USER, WRAPPER, C10D + "all_reduce"]), where(["/home/me/train.py:61 load_batch"])
    found = {0: waits, 1: waits, 2: loads, 3: waits}
    assert summary(found, 4, 121.2, 7) == (
        "No step for 121 s after step 7. Ranks 0, 1, 3 wait in all_reduce (train.py:88); "
        "rank 2 is in train.py:61 load_batch."
    )
    many = {rank: waits for rank in range(64) if rank != 9} | {9: {"gone": 4711, "host": "node1"}}
    assert summary(many, 65, 121, 7).endswith(
        "Ranks 0–8, 10–63 wait in all_reduce (train.py:88); rank 9 is gone (process 4711 on node1); "
        "rank 64 said nothing."
    )
    behind = {0: waits | {"step": 8}, 1: loads | {"step": 7}}
    assert summary(behind, 2, 121, 8).endswith("rank 1 is behind, at step 7.")


def test_a_dump_of_faulthandlers_is_read(tmp_path: Path) -> None:
    text = (
        'Timeout (0:00:02)!\nThread 0x00007f1 (most recent call first):\n  File "/home/me/other.py", line 3 in run\n\n'
        'Thread 0x00007f2 [python] (most recent call first):\n  File "/home/me/load.py", line 4 in hold\n'
        '  File "/home/me/train.py", line 9 in <module>\n'
    )
    assert describe(parse_dump(text)) == "is in load.py:4 hold"
    assert parse_dump("") == {}


def test_stacks_are_bounded() -> None:
    def deep(levels: int) -> list[dict[str, Any]]:
        return deep(levels - 1) if levels else stacks(threading.main_thread().ident)

    (main, *_) = deep(200)
    assert len(main["frames"]) == 60 and main["frames"][-1].endswith(" stacks")
