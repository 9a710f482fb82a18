"""The ninth family of words and layouts, put away: values ahead of their names, solvers, toolkits of translation, of
speech and of boosted trees, blocks and tables of other languages, commas in numbers, text quoted, numbered and found.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from dialects import Plan, Row, Words, crlf, loss_last, one_line, packed, plain_wrap, stamp

Lines = list[tuple[str, Row | None]]


def batches_of(plan: Plan) -> int:
    """How many batches an epoch has: about a third of the run."""
    return max(4, -(-(plan.total + 1) // 3))


def short(plan: Plan) -> str:
    return plan.loss.strip().replace(" ", "_").replace("(", "").replace(")", "")


def numbers_first(plan: Plan) -> Lines:
    """The step, a loss without a name, its average, which is called so, and everything else with its name behind."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.6f}"
        rest = f"0.000300 rate, {3 + step % 7 / 10:.6f} seconds, {step * 64} images"
        lines.append((f" {step}: {loss * (0.9 + step % 5 / 20):.6f}, {shown} avg loss, {rest}", (step, shown)))
    return lines


def units_behind(plan: Plan) -> Lines:
    """A step, and values whose names and units are behind them."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.2f}" if plan.draw("digits", ["few", "many"]) == "few" else f"{loss:.5f}"
        begin = f"{step:>5} {231 + step % 17}.47 ms run, 2.3{step % 10} ms python"
        lines.append((f"{begin}, {shown} loss, 0.000300 LR, 8.{step % 10}2 GB used, {900 + step % 31} GFLOPS",
                      (step, shown)))  # fmt: skip
    return lines


def solver(plan: Plan) -> Lines:
    """A step with its smoothed loss, the loss of the last batch among the net's outputs below, the rate on a third."""
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = f"{loss:.5g}"
        lines.append((f"Iteration {step} ({3 + at % 3}.{at % 10}1 iter/s, 6.2s/20 iters), loss = {shown}",
                      (step, shown)))  # fmt: skip
        lines.append((f"    Train net output #0: loss = {shown} (* 1 = {shown} loss)", None))
        lines.append((f"Iteration {step}, lr = 0.0003", None))
    return lines


def info_block(plan: Plan) -> Lines:
    """A message and a value a line, with lines that join them."""
    key = plan.draw("its step", ["step", "iteration", "iter"])
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        lines += [("┌ Info: training", None), (f"│   {key} = {step}", None), (f"│   {short(plan)} = {shown}", None)]
        lines.append(("└   lr = 0.0003", (step, shown)))
    return lines


def console_json(plan: Plan) -> Lines:
    """Time, level, place and message by tabs, and an object at the end."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0].lstrip("+")
        body = json.dumps({"step": step, short(plan): "LOSS", "lr": 3e-4}).replace('"LOSS"', shown)
        lines.append((f"2025-10-02T{stamp(step)}.{step % 1000:03d}Z\tINFO\ttrainer/loop.go:88\tstep done\t{body}",
                      (step, shown)))  # fmt: skip
    return lines


def listener(plan: Plan) -> Lines:
    """A thread, a level, a class and a sentence."""
    said = plan.draw("what it says", ["Loss at iteration {s} is {v}", "Cost after iteration {s}: {v}",
                                      "Loss after {s} iterations is {v}"])  # fmt: skip
    lines: Lines = []
    for step, loss in plan.rows:
        shown = repr(loss)
        head = f"{stamp(step)}.{step % 1000:03d} [main] INFO  o.e.train.listeners.ProgressListener - "
        lines.append((head + said.format(s=step, v=shown), (step, shown)))
    return lines


def two_headings(plan: Plan) -> Lines:
    """A table in a frame whose columns have their names on two lines."""
    edge = f"|{'=' * 78}|"
    names = (("Epoch", ""), ("Iteration", ""), ("Time Elapsed", "(hh:mm:ss)"), ("Mini-batch", "Loss"),
             ("Base Learning", "Rate"))  # fmt: skip
    lines: Lines = [(edge, None)]
    lines += [("|" + "|".join(f"{pair[place]:^15}" for pair in names) + "|", None) for place in (0, 1)]
    lines.append((edge, None))
    for step, loss in plan.rows:
        shown = f"{loss:.4f}"
        cells = (str(1 + step // batches_of(plan)), str(step), f"00:{stamp(step)[3:]}", shown, "0.0003")
        lines.append(("|" + "|".join(f"{cell:>14} " for cell in cells) + "|", (step, shown)))
    return [*lines, (edge, None)]


def boosted(plan: Plan) -> Lines:
    """Rounds of trees: the losses of both sets, what is best so far, the time."""
    how = plan.draw("rounds", ["possessive", "learn and test"])
    measure = plan.draw("measure", ["l2", "binary_logloss", "multi_logloss"])
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        if how == "possessive":
            shown = f"{loss:.6g}"
            text = f"[{step}]\ttraining's {measure}: {shown}\tvalid_1's {measure}: {loss + 0.1:.6g}"
        else:
            shown, other = f"{loss:.7f}", loss + 0.1
            best = f"best: {other:.7f} ({step})"
            text = f"{step}:\tlearn: {shown}\ttest: {other:.7f}\t{best}\ttotal: {at * 0.3:.2f}s\tremaining: 1m 3s"
        lines.append((text, (step, shown)))
    return lines


def updates_and_cost(plan: Plan) -> Lines:
    """Epochs, updates, sentences and the cost, parted by colons."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.8f}"
        begin = f"Ep. {1 + step // batches_of(plan)} : Up. {step} : Sen. {step * 64:,} : Cost {shown}"
        rest = f"Time {12 + step % 9}.31s : 9800.{step % 10}1 words/s : gNorm 1.2"
        lines.append((f"{begin} * {120_000 + step:,} : {rest}", (step, shown)))
    return lines


def tuner(plan: Plan) -> Lines:
    """The function's name, keys with padded values, and an arrow that grows."""
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = f"{loss:.6f}"
        begin = f"tune_callback: iter={step:>6} sample={1 + at}/{len(plan.rows)} sched=0.500000 loss={shown}"
        lines.append((f"{begin} dt=00:00:05 eta=00:1{at % 10}:31 |{'-' * (at % 20)}>", (step, shown)))
    return lines


def many_keys(plan: Plan) -> Lines:
    """All that is known of a step, joined by dashes, the loss somewhere between."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        pairs = [f"step:{step}", "tokens/mean:412.500", f"actor/entropy:{0.3 + step % 7 / 100:.3f}",
                 f"{short(plan)}:{shown}", "actor/lr:0.0003", "perf/mfu:0.41", f"timing_s/step:{3 + step % 5 / 10:.3f}",
                 "length/max:1024.000"]  # fmt: skip
        lines.append((" - ".join(pairs), (step, shown)))
    return lines


def dots(plan: Plan) -> Lines:
    """Dots behind the word, the step in brackets with the rest."""
    how = plan.draw("in brackets", ["Step... ({s} | Loss: {v}, Learning Rate: 0.0003)", "Step... ({s}/{n} | Loss: {v})",
                                    "Step.... [{s}/{n}] || Loss: {v} || LR: 3.0e-04"])  # fmt: skip
    lines: Lines = []
    for step, loss in plan.rows:
        shown = repr(loss)
        lines.append((how.format(s=step, n=plan.total, v=shown), (step, shown)))
    return lines


def over_frames(plan: Plan) -> Lines:
    """An epoch and a batch; the losses of the batch within brackets, the running ones in others."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.4g}"
        mine = f"loss[loss={shown}, ctc_loss={0.6 * loss:.4g}, over {2400 + step % 31}.00 frames.]"
        running = f"tot_loss[loss={1.02 * loss:.4g}, ctc_loss={0.61 * loss:.4g}, over 465668.99 frames.]"
        lines.append((f"Epoch 1, batch {step}, {mine}, {running}, batch size: {7 + step % 9}, lr: 3.00e-04",
                      (step, shown)))  # fmt: skip
    return lines


def quoted_values(plan: Plan) -> Lines:
    """Losses in quotes, as a dictionary prints them, without its braces."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.6f}"
        parts = f"'loss_cls': '{0.6 * loss:.6f}', 'loss_box': '{0.4 * loss:.6f}', 'loss': '{shown}'"
        lines.append((f"iter: {step}, lr: 0.000300, {parts}, time: 0.4{step % 10}6, eta: 0:1{step % 6}:31",
                      (step, shown)))  # fmt: skip
    return lines


def decimal_commas(plan: Plan) -> Lines:
    """A table as a spreadsheet of another country writes it: semicolons, and commas in numbers."""
    names = plan.draw("columns", ["step;loss;lr", "Schritt;Verlust;Lernrate", "iteration;train_loss;lr"])
    lines: Lines = [(names, None)]
    for step, loss in plan.rows:
        shown = f"{loss:.5f}"
        lines.append((f"{step};{shown.replace('.', ',')};0,0003", (step, shown)))
    return lines


def framed_groups(plan: Plan) -> Lines:
    """A frame a row: groups with their values below them."""
    edge = "-" * 37
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.5g}"
        cells = (("time/", ""), ("   fps", str(900 + step % 31)), ("   iterations", str(step)), ("train/", ""),
                 ("   learning_rate", "0.0003"), ("   loss", shown))  # fmt: skip
        lines.append((edge, None))
        lines += [(f"| {name:<21}| {value:<11}|", None) for name, value in cells]
        lines.append((edge, (step, shown)))
    return lines


def heavy_bar(plan: Plan) -> Lines:
    """An epoch's heading, and bars of heavy and thin lines with the loss behind."""
    lines: Lines = []
    batches, last = batches_of(plan), -1
    for step, loss in plan.rows:
        epoch, batch = divmod(step, batches)
        if epoch != last:
            lines.append((f"Epoch {epoch + 1}/3", None))
            last = epoch
        shown, share = f"{loss:.4f}", 20 * batch // batches
        bar = "━" * share + "─" * (20 - share)
        lines.append((f"{batch}/{batches} {bar} {3 + step % 9}s 61ms/step - accuracy: 0.3{step % 10}12 - loss: {shown}",
                      (epoch * batches + batch, shown)))  # fmt: skip
    return lines


def iterations_of_epoch(plan: Plan) -> Lines:
    """An epoch in brackets and the iteration in it, without blanks."""
    lines: Lines = []
    batches = batches_of(plan)
    for step, loss in plan.rows:
        epoch, batch = divmod(step, batches)
        shown = plan.number(loss).split()[0]
        lines.append((f"Epoch[{epoch + 1}] Iteration[{batch}/{batches}] {plan.loss.strip()}: {shown}",
                      (epoch * batches + batch, shown)))  # fmt: skip
    return lines


def headed_again(plan: Plan) -> Lines:
    """Columns whose heading comes again each ten rows, for those who watch."""
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        if at % 10 == 0:
            lines.append((f"{'step':>8} {short(plan)[:16]:>16} {'lr':>10} {'tok/s':>8}", None))
        shown = plan.number(loss).split()[0]
        lines.append((f"{step:>8} {shown:>16} {'3.0e-04':>10} {51_000 + step % 401:>8}", (step, shown)))
    return lines


def sentence(plan: Plan) -> Lines:
    """What happened, in words."""
    said = plan.draw("sentence", [
        "After {s} of {n} steps the {l} is {v} at a rate of 0.0003.", "Did step {s}: {l} {v}, took 231 ms",
        "{l} at step {s}: {v} (best {b} so far)", "At step {s}, {l} was {v}; grad norm was 1.21",
    ])  # fmt: skip
    lines: Lines = []
    best = 1e9
    for step, loss in plan.rows:
        shown, best = f"{loss:.4f}", min(best, loss)
        text = said.format(s=step, n=plan.total, l=plan.loss.strip(), v=shown, b=f"{best:.4f}")
        lines.append((text, (step, shown)))
    return lines


def with_reads(plan: Plan) -> Lines:
    """Two lines a step: what it cost, and what it gave."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        lines.append((f"[step {step}] forward 81 ms, backward 143 ms, optimizer 9 ms", None))
        lines.append((f"[step {step}] {plan.loss.strip()} {shown}, lr 3.0e-04", (step, shown)))
    return lines


def quoted(text: str) -> tuple[bytes, str]:
    """As somebody quotes it in an answer."""
    return ("On Thursday somebody wrote:\n\n" + "".join(f"> {row}\n" for row in text.splitlines())).encode(), "txt"


def numbered(text: str) -> tuple[bytes, str]:
    """With the number of each line, as `cat -n` prints them."""
    return "".join(f"{at:6d}\t{row}\n" for at, row in enumerate(text.splitlines(), 1)).encode(), "log"


def found(text: str) -> tuple[bytes, str]:
    """With the file's name and the number of the line, as grep prints them."""
    return "".join(f"train.log:{at}:{row}\n" for at, row in enumerate(text.splitlines(), 1)).encode(), "txt"


def workflow(text: str) -> tuple[bytes, str]:
    """As a workflow's runner keeps it: times, and groups of lines."""
    rows = ["##[group]Run python train.py", *text.splitlines(), "##[endgroup]"]
    return "".join(f"2025-10-02T{stamp(at)}.1184021Z {row}\n" for at, row in enumerate(rows)).encode(), "log"


def collected(text: str) -> tuple[bytes, str]:
    """As a cloud's collector hands it out: an object a line, with the text in it."""
    rows = (
        json.dumps({"insertId": f"a{at:04x}", "severity": "INFO", "textPayload": row,
                    "timestamp": f"2025-10-02T{stamp(at)}.118Z"}, ensure_ascii=False)
        for at, row in enumerate(text.splitlines())
    )  # fmt: skip
    return ("\n".join(rows) + "\n").encode(), "jsonl"


def recorded(text: str) -> tuple[bytes, str]:
    """As `script` records a terminal."""
    body = "".join(f"{row}\r\n" for row in text.splitlines())
    return f"Script started on 2025-10-02 12:00:00+00:00\n{body}\nScript done on 2025-10-02 15:00:00\n".encode(), "log"


NUMBERS: list[Callable[[float], str]] = [
    lambda value: f"{value:.4f}", lambda value: f"{value:.3f}", lambda value: f"{value:.8f}",
    lambda value: f"{value:.4g}", lambda value: f"{value:.2e}", lambda value: f"{value:>11.6f}",
    lambda value: f"{value:.4f} ± 0.0210", lambda value: f"{value:.4f} (ema {value * 1.02:.4f})",
]  # fmt: skip

NINTH = Words(
    steps=["optimizer.step #{s}", "Training step {s}:", "step {s} out of {n}", "({s}/{n})", "Batch: {s:>6}",
           "Step[{s}]", "iter#{s}", "update #{s}/{n}", "train_iter={s}", "STEP={s}/{n}", "step. {s}", "Steps done: {s}",
           "i={s}", "[Iteration {s} of {n}]", "step {s:>8,}", "Global Step: {s}"],
    losses=["loss_total", "L_total", "train objective", "sft/loss", "actor/loss", "pretrain_loss", "ar loss",
            "flow_loss", "diffusion loss", "train.xent", "per_token_loss", "loss (ema)", "elbo_loss", "train mse",
            "trainer/loss", "loss_step", "Loss_train", "train CE", "train cost", "loss"],
    eval_losses=["loss_valid_total", "val objective", "sft/eval_loss", "val.xent", "Loss_val", "test CE",
                 "validation cost"],
    joints=["=", ": ", " = ", " ", ":", " -> ", " : "],
    gaps=[", ", " | ", "  ", " - ", "; ", " • ", "\t"],
    numbers=NUMBERS,
    extras=["lr{j}{lr}", "gnorm{j}{norm}", "t/step{j}{ms}ms", "tok/sec{j}{tok}", "ETA{j}{eta}", "vram{j}61.2GB",
            "temp{j}64C", "MFU{j}41.2%", "bsz{j}512", "sparsity{j}0.0"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: "",
        lambda step, chance: f"{stamp(step)}.{step % 1000:03d} train.py:88 I ",
        lambda step, chance: f"2025/10/02 {stamp(step)} ", lambda step, chance: "INFO    [trainer] ",
        lambda step, chance: f"[INFO] [{1_759_400_000 + step}.118402117] [trainer_node]: ",
        lambda step, chance: f"10-02 {stamp(step)}.118  4711  4730 I Trainer : ",
        lambda step, chance: f"<134>1 2025-10-02T{stamp(step)}Z node-3 train 77 - - ",
        lambda step, chance: f"[{stamp(step)} INF] ", lambda step, chance: "train_1  | ",
        lambda step, chance: f"({step * 0.31:.1f}s) ",
    ],
    noise=["checkpoint written in 4.1 s (1.3 GB)", "best loss 2.31 at step {s}, patience 3/10", "", "-- 8< --",
           "resuming dataloader at shard 12 of 128", "W tensor cache is 91% full", "evaluating on 512 examples",
           "loss scale is now 32768", "learning rate schedule: cosine", "uploading to bucket: 100%"],
    layouts=[one_line, loss_last, numbers_first, units_behind, solver, info_block, console_json, listener,
             two_headings, boosted, updates_and_cost, tuner, many_keys, dots, over_frames, quoted_values,
             decimal_commas, framed_groups, heavy_bar, iterations_of_epoch, headed_again, sentence, with_reads],
    wraps=[plain_wrap] * 7 + [crlf, packed, quoted, numbered, found, workflow, collected, recorded],
    counted=(numbers_first, units_behind, console_json, listener, boosted, updates_and_cost, over_frames, heavy_bar,
             iterations_of_epoch),
    bare=(solver, info_block, two_headings, decimal_commas, framed_groups, headed_again),
)  # fmt: skip
