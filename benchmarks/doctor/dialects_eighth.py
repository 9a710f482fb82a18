"""The eighth family of words and layouts: a trainer and an evaluator in one file, one value a line, rows of a
table among other text, panels, documents, epochs with both sets, batches of an epoch, other languages than the seventh.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from dialects import Plan, Row, Words, crlf, html, loss_last, markdown, one_line, packed, plain_wrap, stamp

Lines = list[tuple[str, Row | None]]

TONGUES = [
    ("ステップ {s}/{n}", "損失", "学習率", ": ", ", "),
    ("Étape {s}", "perte", "taux d'apprentissage", " : ", " - "),
    ("스텝 {s}", "손실", "학습률", ": ", " | "),
    ("Passo {s} de {n}", "perda", "taxa de aprendizado", "=", ", "),
    ("Passo {s}/{n}", "perdita", "tasso", ": ", ", "),
    ("迭代 [{s}/{n}]", "平均损失", "lr", "=", " "),
]
"""How a step is written; loss and learning rate; what joins a name and its value, and what parts two."""


def batches_of(plan: Plan) -> int:
    """How many batches an epoch has: about a third of the run."""
    return max(4, -(-(plan.total + 1) // 3))


def short(plan: Plan) -> str:
    return plan.loss.strip().replace(" ", "_")


def two_sets(plan: Plan) -> Lines:
    """Iterations with the training's loss and the other one, which is n/a but for each tenth row."""
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss).split()[0]
        other = f"{loss + 0.2:.3f}" if at % 10 == 9 else "n/a"
        begin = f"Epoch {1 + step // batches_of(plan)} | iter {step}"
        lines.append((f"{begin} | loss train: {shown}, val: {other} | iter time: {231 + at % 17}.47 ms", (step, shown)))
    return lines


def completed_bar(plan: Plan) -> Lines:
    """A bar of the epoch's batches whose description says the epoch, the batch and its loss."""
    lines: Lines = []
    batches = batches_of(plan)
    for step, loss in plan.rows:
        epoch, batch = divmod(step, batches)
        shown, share = plan.number(loss).split()[0], 100 * (batch + 1) // batches
        said = f"Training Epoch: {epoch + 1}/3, step {batch}/{batches} completed (loss: {shown})"
        lines.append((f"{said}: {share:3d}%|{'█' * (share // 10):10}| {batch + 1}/{batches} [00:31<01:10,  1.2s/it]",
                      (epoch * batches + batch, shown)))  # fmt: skip
    return lines


def epochs_table(plan: Plan) -> Lines:
    """A row an epoch under a heading: both losses, a measure and a time."""
    lines: Lines = [(f"{'epoch':<10}{'train_loss':<12}{'valid_loss':<12}{'accuracy':<10}{'time':<8}", None)]
    for at, (_, loss) in enumerate(plan.rows):
        shown = f"{loss:.6f}"
        row = f"{at:<10}{shown:<12}{loss + 0.1:<12.6f}{min(0.99, at / 90):<10.6f}{'00:3' + str(at % 10):<8}"
        lines.append((row, (at, shown)))
    return lines


def rounds(plan: Plan) -> Lines:
    """A round in brackets, and the loss of each set behind its name."""
    measure = plan.draw("measure", ["logloss", "rmse", "mlogloss", "loss"])
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.5f}"
        lines.append((f"[{step}]\ttrain-{measure}:{shown}\teval-{measure}:{loss + 0.1:.5f}", (step, shown)))
    return lines


def spans(plan: Plan) -> Lines:
    """A structured log with spans: time, level, span, module, message, then keys."""
    name = short(plan).replace("/", ".")
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        head = f"2025-09-02T{stamp(step)}.{step % 1000:06d}Z  INFO run{{seed=7}}: trainer::fit: step done"
        lines.append((f"{head} tokens=524288 {name}={shown} lr=0.0003 step={step}", (step, shown)))
    return lines


def marked_rows(plan: Plan) -> Lines:
    """Rows of a table behind a word, to be found with grep; the heading has the word as well."""
    word = plan.draw("mark", ["METRICS", "csv", "#train"])
    lines: Lines = [(f"{word},step,{short(plan)},lr,seconds", None)]
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss).split()[0]
        lines.append((f"{word},{step},{shown},0.0003,{0.31 * at:.2f}", (step, shown)))
    return lines


def quiet_epochs(plan: Plan) -> Lines:
    """An epoch's heading and a line with the times and the losses of both sets."""
    lines: Lines = []
    for at, (_, loss) in enumerate(plan.rows, 1):
        shown = f"{loss:.4f}"
        lines.append((f"Epoch {at}/{len(plan.rows)}", None))
        both = f"loss: {shown} - accuracy: {min(0.99, at / 90):.4f} - val_loss: {loss + 0.2:.4f}"
        lines.append((f"32/32 - 5s - 150ms/step - {both} - val_accuracy: 0.4012", (at, shown)))
    return lines


def recipe(plan: Plan) -> Lines:
    """An epoch a line: the rate, then both sets parted by a dash, the words ahead of their values."""
    lines: Lines = []
    for at, (_, loss) in enumerate(plan.rows, 1):
        shown = f"{loss:.2e}" if plan.draw("digits", ["few", "many"]) == "few" else f"{loss:.5f}"
        rest = f"valid loss: {loss + 0.1:.2f}, valid CER: {30 - at / 9:.2f}"
        lines.append((f"epoch: {at}, lr: {1e-3 * 0.97**at:.2e} - train loss: {shown} - {rest}", (at, shown)))
    return lines


def detector(plan: Plan) -> Lines:
    """What is left of the time first, then the iteration, the total and the losses of its parts."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.4g}"
        parts = f"loss_cls: {0.6 * loss:.4g}  loss_box_reg: {0.4 * loss:.4g}"
        rest = f"time: 0.{231 + step % 17}  data_time: 0.0081  lr: 0.0003  max_mem: 8{step % 10}12M"
        lines.append((f" eta: 1:0{step % 6}:31  iter: {step}  total_loss: {shown}  {parts}  {rest}", (step, shown)))
    return lines


def phases(plan: Plan) -> Lines:
    """Phase, epoch and batch in brackets; averages behind the values; a rate in capitals."""
    how = plan.draw("phase", ["wide", "shares"])
    lines: Lines = []
    batches = batches_of(plan)
    for step, loss in plan.rows:
        epoch, batch = divmod(step, batches)
        shown = f"{loss:.4f}"
        if how == "wide":
            rest = f"lr: 3.0000e-04  eta: 2:11:0{step % 10}  time: 0.4213  data_time: 0.0113  loss: {shown}"
            text = f"Epoch(train) [{epoch + 1}][{batch:>5}/{batches}]  {rest}  loss_cls: {shown}"
        else:
            rest = f"Time: 0.31{step % 10}s, 3291.20/s  LR: 3.000e-04  Data: 0.012 (0.021)"
            done = f"[{batch:>4}/{batches} ({100 * batch // batches:>3}%)]"
            text = f"Train: {epoch} {done}  Loss: {shown} ({loss:.3f})  {rest}"
        lines.append((text, (epoch * batches + batch, shown)))
    return lines


def panel(plan: Plan) -> Lines:
    """A frame with the step in its upper edge, and a value a line."""
    name = short(plan)
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        title = f" step {step} "
        lines.append((f"╭{title:─^34}╮", None))
        for key, value in ((name, shown), ("lr", "3.0e-04"), ("tokens/s", f"{51000 + step % 401}")):
            lines.append((f"│ {key:<17}{value:>15} │", None))
        lines.append((f"╰{'─' * 34}╯", (step, shown)))
    return lines


def documents(plan: Plan) -> Lines:
    """A YAML document a row."""
    key = plan.draw("its step", ["step", "iteration", "global_step"])
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0].lstrip("+")
        lines += [("---", None), (f"{key}: {step}", None), (f"{short(plan)}: {shown}", None)]
        lines.append(("lr: 3.0e-4", (step, shown)))
    return lines


def one_value_a_line(plan: Plan) -> Lines:
    """Each value an object of its own: what it is called, what it is, and the step."""
    how = plan.draw("value", ["json", "words"])
    name = plan.loss.strip()
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0].lstrip("+")
        for key, value in (("lr", "0.0003"), (name, shown), ("grad_norm", f"{1 + step % 7 / 10:.2f}")):
            if how == "json":
                text = f'METRIC {{"name": {json.dumps(key)}, "value": {value}, "step": {step}}}'
            else:
                text = f"[metric] step={step} name={key.replace(' ', '_')} value={value}"
            lines.append((text, (step, shown) if key == name else None))
    return lines


def trainer_and_evaluator(plan: Plan) -> Lines:
    """Two programs in one file: one trains, one evaluates what it finds, behind by some steps."""
    tags = plan.draw("two programs", [("[train] ", "[eval] "), ("trainer | ", "evaluator | "), ("T> ", "validation> ")])
    name = plan.loss.strip()
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = f"{loss:.4f}"
        lines.append((f"{tags[0]}{stamp(step)} step {step} {name} {shown} lr 3e-4", (step, shown)))
        if at % 5 == 4:
            behind = plan.rows[at - 3][0]
            lines.append((f"{tags[1]}{stamp(step)} step {behind} {name} {loss + 0.3:.4f} examples 4096", None))
    return lines


def progress_words(plan: Plan) -> Lines:
    """How far it is in two counts, the loss between, rates in words."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown, share = plan.number(loss).split()[0], 100 * step / max(1, plan.total)
        text = f"{share:5.1f}% done, {step:,} of {plan.total:,} updates; {plan.loss.strip()} now {shown}; 4.1 updates/s"
        lines.append((text, (step, shown)))
    return lines


def tongues(plan: Plan) -> Lines:
    """Step, loss and learning rate in another language."""
    count, name, rate, joint, gap = plan.draw("tongue", TONGUES)
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        head = count.format(s=step, n=plan.total)
        lines.append((gap.join([head, f"{name}{joint}{shown}", f"{rate}{joint}0.0003"]), (step, shown)))
    return lines


def rates_first(plan: Plan) -> Lines:
    """Speed and rate ahead of the step, the loss ahead of it too."""
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss).split()[0]
        rest = plan.gap.join([*plan.values(at), f"{plan.loss}{plan.joint}{shown}"])
        lines.append((f"{rest}{plan.gap}{plan.step.format(s=step, n=plan.total)}", (step, shown)))
    return lines


def notebook(text: str) -> tuple[bytes, str]:
    """The output of a notebook's cell."""
    rows = [row + "\n" for row in text.splitlines()]
    cell = {"cell_type": "code", "execution_count": 3, "metadata": {}, "source": ["trainer.fit(model)\n"],
            "outputs": [{"name": "stdout", "output_type": "stream", "text": rows}]}  # fmt: skip
    book = {"cells": [cell], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1).encode(), "ipynb"


def cluster(text: str) -> tuple[bytes, str]:
    """As a cluster's node keeps what was printed: time, stream, a letter."""
    rows = (f"2025-09-02T{stamp(at)}.118402117Z stdout F {row}\n" for at, row in enumerate(text.splitlines()))
    return "".join(rows).encode(), "log"


def redrawn(text: str) -> tuple[bytes, str]:
    """Each line is preceded by the codes that erase the one before, and has a bold beginning."""
    return "".join(f"\x1b[2K\r\x1b[1m{row[:4]}\x1b[0m{row[4:]}\n" for row in text.splitlines()).encode(), "log"


NUMBERS: list[Callable[[float], str]] = [
    lambda value: f"{value:.4f}", lambda value: f"{value:.6f}", lambda value: f"{value:.2f}",
    lambda value: f"{value:.5e}", lambda value: f"{value:>9.4f}", lambda value: repr(value),
    lambda value: f"{value:.4f} ({value * 1.01:.4f})", lambda value: f"{value:.3f} nats/token",
]  # fmt: skip

EIGHTH = Words(
    steps=["gradient step {s}", "batch {s} of {n}", "upd={s}", "STEP: {s}", "Iter {s:>7} |", "global iter {s}",
           "<{s}/{n}>", "step {s} (of {n})", "t={s}", "Opt. step {s}", "trainer step: {s}", "[Step {s:>6}]",
           "it {s}/{n}", "n_steps={s}", "Iteration no. {s}", "train/step: {s}"],
    losses=["train/loss_epoch", "loss_mlm", "sft_nll", "Train cross-entropy", "tot_loss", "ddpm_loss", "bc_loss",
            "kd loss", "avg_train_loss", "loss:train", "mean token loss", "contrastive loss", "criterion", "loss_avg",
            "smooth_loss", "LM loss", "ctc_loss", "train_logloss", "loss", "Loss"],
    eval_losses=["val/loss_epoch", "loss_dev", "dev cross-entropy", "Evaluation loss", "validation nll",
                 "val ctc loss"],
    joints=["=", ": ", " = ", " ", ":", " is ", "\t"],
    gaps=[", ", " | ", "  ", " ", "; ", " // ", "\t"],
    numbers=NUMBERS,
    extras=["lr{j}{lr}", "|grad|{j}{norm}", "dt{j}{ms}ms", "tgs{j}{tok}", "eta{j}{eta}", "hbm{j}71.2GiB",
            "momentum{j}0.9", "frames/s{j}{tok}", "skipped{j}0", "wd{j}0.1"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: "",
        lambda step, chance: f"{stamp(step)}.{step % 1000:03d} INFO  ",
        lambda step, chance: f"[2025-09-02 {stamp(step)},117][train.py][line:88][INFO] ",
        lambda step, chance: "node-3/0: ", lambda step, chance: f"09/02/2025 {stamp(step)} PM - INFO - train - ",
        lambda step, chance: f"2025-09-02 {stamp(step)}+0200 train[77] <Info>: ", lambda step, chance: "| INFO | ",
        lambda step, chance: f"[{step * 0.31:9.2f}s] ", lambda step, chance: "stdout F ",
        lambda step, chance: f"(RolloutWorker pid=9, ip=10.0.0.9) {stamp(step)} ",
    ],
    noise=["New best! 2.3114 < 2.3290, copying to best.pt", "val set: 512 batches in 12.4 s", "Lowest loss yet: 2.31",
           "Writing shard 00012-of-00128", "checkpoint every 500 steps", "queue: 37 batches ready", "", "* * *",
           "RuntimeWarning: overflow encountered in exp", "node-3 joined at 12:00:31", "learning rate warm-up ends"],
    layouts=[one_line, loss_last, two_sets, completed_bar, epochs_table, rounds, spans, marked_rows, quiet_epochs,
             recipe, detector, phases, panel, documents, one_value_a_line, trainer_and_evaluator, progress_words,
             tongues, rates_first],
    wraps=[plain_wrap] * 7 + [crlf, packed, markdown, html, notebook, cluster, redrawn],
    counted=(two_sets, completed_bar, rounds, phases, marked_rows, tongues, one_value_a_line),
    bare=(epochs_table, quiet_epochs, recipe, panel, documents, trainer_and_evaluator),
)  # fmt: skip
