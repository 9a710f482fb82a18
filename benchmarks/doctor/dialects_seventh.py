"""The seventh family of words and layouts: as libraries of ten years print, counts of batches, samples and tokens,
other languages, objects over several lines, values ahead of their bar, ranks with losses of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from dialects import Plan, Row, Words, coloured, crlf, loss_last, one_line, plain_wrap, stamp, utf16

Lines = list[tuple[str, Row | None]]

TONGUES = [
    ("第 {s} 步", "训练损失", "学习率", "：", "，"),
    ("步数: {s}/{n}", "损失", "学习率", ": ", ", "),
    ("Schritt {s} von {n}", "Trainingsverlust", "Lernrate", ": ", ", "),
    ("Шаг {s}/{n}", "потери", "скорость обучения", ": ", " | "),
    ("Paso {s}", "pérdida", "tasa de aprendizaje", " = ", "; "),
]
"""How a step is written; loss and learning rate; what joins a name and its value, and what parts two."""


def batches_of(plan: Plan) -> int:
    """How many batches an epoch has: about a quarter of the run."""
    return max(4, -(-plan.total // 4))


def estimator(plan: Plan) -> Lines:
    """Loss first, the step behind it, and the speed on a line between."""
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss).split()[0]
        lines.append((f"loss = {shown}, step = {step} ({12 + at % 3}.{at % 10}31 sec)", (step, shown)))
        lines.append((f"global_step/sec: {8 + at % 2}.{at % 10}4", None))
    return lines


def speedometer(plan: Plan) -> Lines:
    """Batches of an epoch with their speed ahead of the loss; the epoch's own figures at its end."""
    lines: Lines = []
    batches, name = batches_of(plan), plan.loss.strip().replace(" ", "-")
    last = 0
    for step, loss in plan.rows:
        epoch, batch = divmod(step, batches)
        if epoch != last:
            lines.append((f"Epoch[{last}] Time cost={100 + step % 9}.12", None))
            last = epoch
        shown = plan.number(loss).split()[0]
        speed = f"{1200 + step * 7 % 100}.25 samples/sec"
        lines.append((f"Epoch[{epoch}] Batch [{batch}/{batches}]\tSpeed: {speed}\t{name}={shown}", (step, shown)))
    return lines


def samples_of_an_epoch(plan: Plan) -> Lines:
    """How many samples of the epoch were seen, with their share; 64 a batch."""
    lines: Lines = []
    batches = batches_of(plan)
    for step, loss in plan.rows:
        epoch, batch = divmod(step, batches)
        shown, seen, whole = plan.number(loss).split()[0], batch * 64, batches * 64
        row = (epoch * whole + seen, shown)
        lines.append((f"Train Epoch: {epoch + 1} [{seen}/{whole} ({100 * batch // batches}%)]\tLoss: {shown}", row))
    return lines


def accuracy_first(plan: Plan) -> Lines:
    """A row of semicolons where accuracy and perplexity stand ahead of the cross-entropy."""
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss).split()[0]
        begin = f"Step {step}/{plan.total}; acc: {3 + at % 40}.{at % 10}0; ppl: {2.7 ** min(loss, 20):.2f}"
        lines.append(
            (f"{begin}; xent: {shown}; lr: 0.00030; {5000 + at}/{4000 + at} tok/s; {at * 3} sec", (step, shown))
        )
    return lines


def arrows(plan: Plan) -> Lines:
    """A heading with the step within the epoch and the global one; values with their averages behind arrows below."""
    lines: Lines = []
    batches, name = batches_of(plan), plan.loss.strip().replace(" ", "_")
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        lines.append(("", None))
        lines.append((f"   --> STEP: {step % batches}/{batches} -- GLOBAL_STEP: {step}", None))
        lines.append((f"     | > {name}: {shown}  ({loss * 1.01:.5f})", None))
        lines.append((f"     | > grad_norm: {1 + step % 7 / 10:.3f}  (1.20011)", None))
        lines.append(("     | > step_time: 0.4310  (0.43811)", (step, shown)))
    return lines


def epochs_and_steps(plan: Plan) -> Lines:
    """A table whose heading comes once, with a rule below it; epochs and steps are both counted."""
    batches, name = batches_of(plan), plan.loss.strip().replace(" ", "_")
    lines: Lines = [(f"{'E':<4} {'#':>7}  {name:>18}  {'SCORE':>6}", None)]
    lines.append((f"{'-' * 4} {'-' * 7}  {'-' * 18}  {'-' * 6}", None))
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss).split()[0]
        lines.append((f"{step // batches:>3}  {step:>7}  {shown:>18}  {min(0.99, at / 100):>6.2f}", (step, shown)))
    return lines


def event_first(plan: Plan) -> Lines:
    """A structured log for people: level, padded event, then keys in the alphabet's order."""
    name = plan.loss.strip().replace(" ", "_").replace("/", ".")
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        keys = {"grad_norm": f"{1 + step % 9 / 10:.2f}", name: shown, "lr": "0.0003", "step": str(step)}
        body = " ".join(f"{key}={keys[key]}" for key in sorted(keys))
        lines.append((f"2025-08-14 {stamp(step)} [info     ] {'optimizer_step':<30} {body}", (step, shown)))
    return lines


def tongues(plan: Plan) -> Lines:
    """Step, loss and learning rate in another language."""
    count, name, rate, joint, gap = plan.draw("tongue", TONGUES)
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        head = count.format(s=step, n=plan.total)
        lines.append((gap.join([head, f"{name}{joint}{shown}", f"{rate}{joint}3.0e-04"]), (step, shown)))
    return lines


def values_ahead(plan: Plan) -> Lines:
    """A progress bar that has the values in its description, ahead of the bar."""
    lines: Lines = []
    name = plan.loss.strip()
    for step, loss in plan.rows:
        shown, share = plan.number(loss).split()[0], 100 * step // max(1, plan.total)
        drawn = "█" * (share // 10) + " " * (10 - share // 10)
        clock = f"{step // 60:02d}:{step % 60:02d}<{(plan.total - step) // 60:02d}:00, 35.1{step % 10}it/s"
        text = f"{name} {shown} | lr 3.0e-04: {share:3d}%|{drawn}| {step}/{plan.total} [{clock}]"
        lines.append((text, (step, shown)))
    return lines


def pretty_object(plan: Plan) -> Lines:
    """An object over several lines, indented."""
    how = plan.draw("object over lines", ["json", "python"])
    key = plan.draw("its step", ["step", "global_step", "iteration"])
    name = plan.loss.strip().replace(" ", "_")
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0].lstrip("+")
        if how == "json":
            text = json.dumps({"lr": 3e-4, name: "LOSS", key: step}, indent=2).replace('"LOSS"', shown).splitlines()
        else:
            text = [f"{{'{key}': {step},", f" '{name}': {shown},", " 'lr': 0.0003}"]
        lines += [(line, None) for line in text[:-1]]
        lines.append((text[-1], (step, shown)))
    return lines


def parts_behind(plan: Plan) -> Lines:
    """The whole loss and then its parts, which add up to it."""
    lines: Lines = []
    name = plan.loss.strip().replace(" ", "_")
    for step, loss in plan.rows:
        shown = f"{loss:.4f}"
        parts = f"{name}_a: {0.7 * loss:.4f} {name}_b: {0.3 * loss:.4f}"
        lines.append((f"{plan.step.format(s=step, n=plan.total)} {name}: {shown} [{parts}] lr: 3e-4", (step, shown)))
    return lines


def completed(plan: Plan) -> Lines:
    """What was done, with seconds, speed and the weight of its tokens; the loss at the end."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        speed = f"seconds: {1 + step % 5 / 10:.3f}, TFLOP/s/device: 180.{step % 10}, Tokens/s/device: 9120.{step % 7}"
        lines.append((f"completed step: {step}, {speed}, total_weights: 65536, loss: {shown}", (step, shown)))
    return lines


def tokens_alone(plan: Plan) -> Lines:
    """No step: how many tokens, or samples, were seen; 4096 or 32 a step."""
    text, each = plan.draw("count", [
        ("tokens {s:,} / {n:,} | loss {v}", 4096), ("consumed_tokens={s} loss={v} lr=3.0e-04", 4096),
        ("tokens_seen: {s} - loss: {v}", 4096), ("samples={s} loss={v}", 32),
        ("seen {s} examples, loss {v}", 32),
    ])  # fmt: skip
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        lines.append((text.format(s=step * each, n=plan.total * each, v=shown), (step * each, shown)))
    return lines


def ranks_apart(plan: Plan) -> Lines:
    """Each of two or four ranks prints a loss of its own, in an order that varies."""
    tag, ranks = plan.draw("tag", ["[GPU{r}] ", "rank {r} | ", "worker{r}: "]), plan.draw("ranks", [2, 4])
    name = plan.loss.strip()
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        for place in range(ranks):
            rank = (place + at) % ranks if at % 3 == 0 else place
            shown = f"{loss * (1 + 0.01 * rank):.4f}"
            text = f"{tag.format(r=rank)}step {step} {name} {shown} lr 3e-4"
            lines.append((text, (step, shown) if rank == 0 else None))
    return lines


def carriage(text: str) -> tuple[bytes, str]:
    """Lines that are drawn over one another, with a line break at times."""
    rows = text.splitlines()
    return "".join(row + ("\n" if at % 7 == 6 else "\r") for at, row in enumerate(rows)).encode() + b"\n", "log"


def container(text: str) -> tuple[bytes, str]:
    """As a container's runtime keeps what was printed."""
    rows = [
        json.dumps({"log": row + "\n", "stream": "stdout", "time": f"2025-08-14T{stamp(at)}.118Z"})
        for at, row in enumerate(text.splitlines())
    ]
    return ("\n".join(rows) + "\n").encode(), "log"


def with_mark(text: str) -> tuple[bytes, str]:
    """UTF-8 with a byte order mark."""
    return text.encode("utf-8-sig"), "txt"


NUMBERS: list[Callable[[float], str]] = [
    lambda value: f"{value:.4f}", lambda value: f"{value:.5f}", lambda value: f"{value:.3f}",
    lambda value: f"{value:.4e}", lambda value: f"{value:10.6f}", lambda value: f"{value:.12f}",
    lambda value: f"{value:.4f} (running {value * 1.02:.4f})", lambda value: f"{value:.3f} bits per token",
]  # fmt: skip

SEVENTH = Words(
    steps=["trainstep {s}", "batch_idx={s}", "ITERATION {s}/{n}", "step_num: {s}", "{s} steps", "Optim step {s}",
           "num_update {s}", "minibatch: {s}", "iter_num={s}", "Step:{s:>8}", "train [{s}/{n}]", "global_batch {s}",
           "opt_steps: {s}", "Step {s} ({n} in all)", "update_step={s:05d}", "Iters {s}"],
    losses=["train_loss_step", "loss_train", "Train-loss", "loss_lm", "token_nll", "train xent", "seq2seq loss",
            "rec_loss", "train_bce", "Huber loss", "Avg. loss", "running loss", "denoising_loss", "noise_mse",
            "train_cost", "loss", "Loss", "cross_ent", "mean_nll", "loss_sum", "lm_head_loss"],
    eval_losses=["val_loss_epoch", "Valid-loss", "loss_valid", "eval xent", "val_bce", "Test loss", "held-out nll"],
    joints=["=", ": ", " = ", " ", "\t", ":", " | "],
    gaps=[", ", "  ", " | ", "; ", " - ", "\t"],
    numbers=NUMBERS,
    extras=["lr{j}{lr}", "grad_norm{j}{norm}", "{ms} ms/it", "tok/s{j}{tok}", "eta{j}{eta}", "gpu_mem{j}61%",
            "samples/s{j}{tok}", "clipped{j}0", "beta2{j}0.95", "wall{j}{ms}s"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: "", lambda step, chance: "INFO:trainer:",
        lambda step, chance: f"2025-08-14 {stamp(step)}.{step % 1000:03d} | INFO     | ",
        lambda step, chance: f"[{stamp(step)} 0d00h] ",
        lambda step, chance: f"I0814 {stamp(step)}.004 77 loop.py:9] ",
        lambda step, chance: "(TrainWorker pid=4121, ip=10.2.0.7) ", lambda step, chance: "train/0 [0]:",
        lambda step, chance: f"{1_755_160_000 + step} ", lambda step, chance: "\x1b[36m(trainer pid=812)\x1b[0m ",
        lambda step, chance: f"Thu Aug 14 {stamp(step)} UTC 2025 - ",
    ],
    noise=["Validation loss decreased (2.4113 --> 2.3801). Saving model ...", "EarlyStopping counter: 3 out of 10",
           "Saved state to /scratch/job_41/{s}", "[repeated 3x across cluster]", "GradScaler: 32768.0", "", "...",
           "WARNING worker 3 is 12 batches behind", "Shuffling 120000 documents (seed 17)", "cuda memory 31.2/80.0"],
    layouts=[one_line, loss_last, estimator, speedometer, samples_of_an_epoch, accuracy_first, arrows,
             epochs_and_steps, event_first, tongues, values_ahead, pretty_object, parts_behind, completed,
             tokens_alone, ranks_apart],
    wraps=[plain_wrap] * 7 + [crlf, utf16, coloured, carriage, container, with_mark],
    counted=(speedometer, samples_of_an_epoch, tongues, tokens_alone, epochs_and_steps),
    bare=(arrows, pretty_object, ranks_apart),
)  # fmt: skip
