"""Texts full of numbers that are not of a training: the open half of the second set.

In:   a random generator, the number of the case within its family.
Out:  a `Case`. There is nothing to say of any of them.
"""

from __future__ import annotations

from numpy.random import Generator

from logs.case import Case, Family, no_training
from logs.text import clock

MODELS = ("tiny-1b", "base-7b", "base-13b", "large-34b", "large-70b", "chat-7b", "chat-70b", "code-15b")
TASKS = ("arc_easy", "boolq", "hellaswag", "mmlu", "piqa", "truthfulqa", "winogrande", "gsm8k", "lambada", "openbookqa")


def continuous_integration(dice: Generator, number: int) -> Case:
    """Steps of a workflow, tests with their times, a test about losses that fails."""
    lines = [f"2025-03-11T{clock(0)}.1Z ##[group]Run pytest -q --durations=20"]
    for at in range(40):
        lines.append(f"2025-03-11T{clock(at)}.{at % 10}Z tests/test_step_{at}.py::test_loss_is_{dice.integers(1, 9)} "
                     f"PASSED [{2 * at + 2:3d}%]")  # fmt: skip
    lines += [f"2025-03-11T{clock(50)}.3Z {dice.uniform(0.1, 9):.2f}s call     tests/test_loss.py::test_step[{at}]"
              for at in range(20)]  # fmt: skip
    lines += ["E   AssertionError: loss at step 3 is 0.31, expected 0.3 +/- 1e-3", "1 failed, 39 passed in 41.20s"]
    lines += [f"Step {at}/12 : RUN pip install part{at} took {dice.uniform(1, 40):.1f}s" for at in range(1, 13)]
    return no_training(lines)


def installation(dice: Generator, number: int) -> Case:
    """Packages that are fetched and installed, with bars and versions."""
    lines = []
    for at in range(30):
        size = dice.uniform(0.1, 800)
        lines.append(f"Collecting package-{at}>=2.{at}")
        lines.append(f"  Downloading package_{at}-2.{at}.{dice.integers(9)}-cp311-manylinux_x86_64.whl ({size:.1f} MB)")
        lines.append(f"     {'━' * 40} {size:.1f}/{size:.1f} MB {dice.uniform(1, 90):.1f} MB/s eta 0:00:00")
    lines.append("Successfully installed " + " ".join(f"package-{at}-2.{at}" for at in range(30)))
    return no_training(lines)


def served_model(dice: Generator, number: int) -> Case:
    """A server of a model: requests, latencies, tokens a second, use of its cache."""
    lines = ["INFO 03-11 10:00:00 config.py:542] max_model_len=8192, dtype=bfloat16, seed=0"]
    for at in range(200):
        lines.append(
            f"INFO 03-11 {clock(at)} metrics.py:455] Avg prompt throughput: {dice.uniform(100, 4000):.1f} tokens/s, "
            f"Avg generation throughput: {dice.uniform(50, 900):.1f} tokens/s, Running: {dice.integers(1, 64)} reqs, "
            f"Waiting: {dice.integers(0, 9)} reqs, GPU KV cache usage: {dice.uniform(1, 90):.1f}%."
        )
        if at % 7 == 0:
            lines.append(f'INFO:     10.0.0.{at % 250}:5{at:04d} - "POST /v1/completions HTTP/1.1" 200 OK')
    return no_training(lines)


def settings(dice: Generator, number: int) -> Case:
    """What a program was given: rates, weights of losses, numbers of steps, in one of three ways."""
    pairs = {
        "learning_rate": 3e-4, "loss_weight": 0.1, "max_steps": 20000, "epochs": 3, "warmup_steps": 500,
        "aux_loss_coef": 0.01, "eval_steps": 250, "label_smoothing": 0.1, "grad_clip": 1.0, "loss": "cross_entropy",
        "seed": int(dice.integers(1000)), "log_every": 10, "kl_weight": 0.05, "accuracy_threshold": 0.9,
    }  # fmt: skip
    forms = ("  {0} ... {1}", "{0}: {1}", "--{0}={1} \\")
    text = forms[number % 3]
    return no_training(["arguments:", *(text.format(*pair) for pair in pairs.items()), "end of arguments"])


def scores_of_models(dice: Generator, number: int) -> Case:
    """A page with a table of models and what they score, losses among it."""
    lines = ["# Results", "", "| Model | Params | Val loss | MMLU | Epochs |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {name} | {dice.integers(1, 70)}B | {dice.uniform(1.5, 3):.3f} | {dice.uniform(25, 80):.1f} | 1 |"
        for name in MODELS
    ]
    lines += ["", "We trained for 3 epochs; the final loss of base-7b was 1.92 at step 143000."]
    return no_training(lines, "words_page")


def commits(dice: Generator, number: int) -> Case:
    """A history of commits whose messages speak of losses and steps."""
    said = ("Lower loss weight to 0.{a}", "Fix loss at step {a}00 being nan", "Bump to 1.{a}.0",
            "epoch {a}: rerun with lr 3e-4, loss 2.{a}", "Merge pull request #{a}{a} of accuracy-0.9{a}")  # fmt: skip
    lines = []
    for at in range(60):
        a = int(dice.integers(1, 9))
        lines += [f"commit {dice.integers(1 << 60):015x}", f"Date:   Tue Mar {1 + at % 28} {clock(at * 371)} 2025", ""]
        lines += [
            f"    {said[int(dice.integers(len(said)))].format(a=a)}",
            "",
            f" {a} files changed, {a}{a} insertions(+)",
        ]
    return no_training(lines)


def downloads(dice: Generator, number: int) -> Case:
    """Bars of files that are fetched, each drawn many times."""
    lines = []
    for file in range(6):
        size = int(dice.integers(200, 5000))
        drawn = "\r".join(
            f"model-0000{file}-of-00006.safetensors: {part:3d}%|{'█' * (part // 10):10}| "
            f"{size * part // 100}M/{size}M [00:{part // 2:02d}<00:{50 - part // 2:02d}, 98.{part % 10}MB/s]"
            for part in range(0, 101, 5)
        )
        lines.append(drawn)
    return no_training([*lines, f"Loading checkpoint shards: 100%|{'█' * 10}| 6/6 [00:09<00:00,  1.61s/it]"])


def tasks_evaluated(dice: Generator, number: int) -> Case:
    """One evaluation of one model: tasks with their measures and errors, perplexity among them."""
    lines = ["hf (pretrained=base-7b), gen_kwargs: (None), limit: None, num_fewshot: 0, batch_size: 16",
             "|    Tasks     |Version|Filter|n-shot|  Metric  |   |Value |   |Stderr|",
             "|--------------|------:|------|-----:|----------|---|-----:|---|-----:|"]  # fmt: skip
    for task in TASKS:
        metric, value = ("perplexity", dice.uniform(3, 9)) if task == "lambada" else ("acc", dice.uniform(0.2, 0.8))
        lines.append(
            f"|{task:<14}|      1|none  |     0|{metric:<10}|↑  |{value:.4f}|±  |{dice.uniform(0.002, 0.02):.4f}|"
        )
    lines.append("100%|██████████| 1319/1319 [04:11<00:00,  5.25it/s]")
    return no_training(lines)


def table_of_ablations(dice: Generator, number: int) -> Case:
    """A table of a paper as comma-separated values: a row a variant, with its final loss and steps."""
    lines = ["variant,lr,batch,steps,final_loss,accuracy"]
    lines += [
        f"{name}-{way},{10 ** dice.uniform(-4, -3):.1e},{2 ** dice.integers(5, 9)},100000,{dice.uniform(2, 3):.3f},"
        f"{dice.uniform(0.4, 0.7):.3f}"
        for name in MODELS
        for way in ("base", "no-norm", "no-bias")
    ]
    return no_training(lines, "words_table")


FAMILIES: tuple[Family, ...] = (
    continuous_integration, installation, served_model, settings, scores_of_models, commits, downloads,
    tasks_evaluated, table_of_ablations,
)  # fmt: skip
