"""Families of words and layouts beside the first, which is in `dialects.py`: each was written before any reader was
changed for it, and scored once before that.
"""

from __future__ import annotations

from dialects import Plan, Row, Words, crlf, loss_last, markdown, one_line, plain_wrap, stamp, table, utf16
from dialects_eighth import EIGHTH
from dialects_eleventh import ELEVENTH
from dialects_ninth import NINTH
from dialects_seventh import SEVENTH
from dialects_tenth import TENTH


def logfmt(plan: Plan) -> list[tuple[str, Row | None]]:
    """`level=info msg=train step=7 loss=2.5`."""
    name = plan.loss.strip().replace(" ", "_")
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        lines.append(
            (f'ts={stamp(step)} level=info msg="training progress" step={step} {name}={shown} lr=0.0003', (step, shown))
        )
    return lines


def message_json(plan: Plan) -> list[tuple[str, Row | None]]:
    """A row inside the message of a structured log."""
    lines: list[tuple[str, Row | None]] = []
    for (line, row), (step, _) in zip(one_line(plan), plan.rows, strict=True):
        text = line.replace("\t", " ")
        lines.append((f'{{"level": "info", "time": "2024-05-01T{stamp(step)}Z", "msg": "{text}"}}', row))
    return lines


def rule_lines(plan: Plan) -> list[tuple[str, Row | None]]:
    """A framed block for each row."""
    lines: list[tuple[str, Row | None]] = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss)
        lines += [("=" * 40, None), (plan.step.format(s=step, n=plan.total), None), ("-" * 40, None)]
        lines.append((f"{plan.loss:<24}{plan.joint}{shown}", (step, shown)))
        lines += [(value, None) for value in plan.values(at)]
    return lines


def markdown_table(plan: Plan) -> list[tuple[str, Row | None]]:
    """`| 100 | 2.5 | 3e-4 |` under a heading."""
    lines: list[tuple[str, Row | None]] = [
        (f"| Step | {plan.loss.strip()} | LR |", None), ("|---:|---:|---:|", None)]  # fmt: skip
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        lines.append((f"| {step} | {shown} | 3.0e-4 |", (step, shown)))
    return lines


def tuple_line(plan: Plan) -> list[tuple[str, Row | None]]:
    """Step and loss inside brackets after a word."""
    lines: list[tuple[str, Row | None]] = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss)
        head = plan.step.format(s=step, n=plan.total)
        lines.append(
            (f"[train] {head} ({', '.join([f'{plan.loss}{plan.joint}{shown}', *plan.values(at)])})", (step, shown))
        )
    return lines


APART = Words(
    steps=["optimizer_step={s}", "opt step {s}", "Step #{s}", "step {s} of {n}", "<step {s}>", "STEP {s}",
           "training step {s}/{n}", "@step {s}", "ITER {s:5d}", "step_idx: {s}", "trainer/global_step: {s}",
           "gstep {s}", "completed {s} updates", "Iteration={s}", "minibatch {s}/{n}", "step {s:_}"],
    losses=["softmax_loss", "token_loss", "train.loss", "ar_loss", "next_token_loss", "train_ce", "NLL", "LOSS",
            "nll_loss", "total_loss", "loss_total", "loss (train)", "train-loss", "smoothed loss", "trn_loss",
            "cross entropy", "batch loss", "xe", "loss_avg", "objective/loss"],
    eval_losses=["held-out loss", "heldout_nll", "loss (val)", "VAL LOSS", "valid.loss", "eval/nll", "dev/ce",
                 "validation_cross_entropy", "test_nll"],
    joints=["=", ": ", " ", " := ", " is ", "...", " : ", " => "],
    gaps=[", ", " / ", "   ", " · ", " ~ ", ",", " ; ", " │ "],
    numbers=[lambda value: f"{value:.5g}", lambda value: f"{value:.2f}", lambda value: f"{value:.7f}",
             lambda value: f"{value:>10.3f}", lambda value: f"{value:.3E}", lambda value: f"{value:.4f} bits/byte",
             lambda value: f"{value:.3f} [{value * 0.9:.3f}, {value * 1.1:.3f}]", lambda value: f"{value:.4f}*"],
    extras=["learning_rate{j}{lr}", "|g|{j}{norm}", "{tok} tok/s", "dt{j}{ms} ms", "{frac}% done", "ETA {eta}",
            "|grad|{j}{norm}", "vram{j}71.2GiB", "throughput{j}{tok}"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: f"2024-05-01T{stamp(step)}.123Z ",
        lambda step, chance: f"[{stamp(step)}][INFO][train.py:88] ", lambda step, chance: "<INFO> ",
        lambda step, chance: f"05/01/2024 {stamp(step)} - INFO - __main__ -   ", lambda step, chance: "[default0]:",
        lambda step, chance: f"{1714564800 + step}.123 ", lambda step, chance: "trainer-0 trainer ",
        lambda step, chance: f"INFO {stamp(step)} [core.py:12] ", lambda step, chance: "  >> ",
        lambda step, chance: f"[gpu-node-3:0/8] {stamp(step)} ", lambda step, chance: "[1,0]<stdout>:",
    ],
    noise=["checkpoint {s} written", "GPU 0: 71C, 1980 MHz", "resizing buffer to 4096", "--", "ok", "epoch done",
           "slurmstepd: info: cgroup memory 12G", "warning: loss scale reduced to 32768",
           "[W socket.cpp:464] retrying"],
    layouts=[one_line, one_line, logfmt, message_json, rule_lines, markdown_table, tuple_line],
    wraps=[plain_wrap] * 6 + [crlf, utf16, markdown],
)  # fmt: skip


def colon_fields(plan: Plan) -> list[tuple[str, Row | None]]:
    """`train:step:100:loss:2.5`-like fields, parted by a bar."""
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        name = plan.loss.strip().replace(" ", "_")
        lines.append((f"TRAIN || step:{step} || {name}:{shown} || t:{stamp(step)}", (step, shown)))
    return lines


def headed(plan: Plan) -> list[tuple[str, Row | None]]:
    """A heading that says the step, and the loss on a bulleted line below it."""
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss)
        lines += [(f"=== {plan.step.format(s=step, n=plan.total)} ===", None)]
        lines.append((f" * {plan.loss}{plan.joint}{shown}", (step, shown)))
    return lines


THIRD = Words(
    steps=["steps={s}", "Step: {s}", "upd {s}", "n_updates={s}", "global step {s}", "Iter [{s}/{n}]", "Step({s})",
           "step#{s}", "it={s}", "train_steps: {s}", "step no. {s}", "current_step={s}", "STEP={s:06d}"],
    losses=["mean_loss", "loss/train", "Train Loss", "lm_loss", "ce_loss", "running_loss", "cur_loss", "pretrain_loss",
            "log loss", "mlm_loss", "loss_val_free", "Loss", "train_nll", "causal_lm_loss", "token nll"],
    eval_losses=["val.loss", "Eval Loss", "eval-loss", "valid_nll", "val_ce", "validation loss", "test loss"],
    joints=["=", ": ", "= ", " = ", " -> ", ":", " "],
    gaps=[" || ", ", ", " - ", "  ", " * ", "; "],
    numbers=[lambda value: f"{value:.4f}", lambda value: f"{value:.6e}", lambda value: f"{value:8.4f}",
             lambda value: f"{value:.4f} nats", lambda value: f"{value:.3f} (+0.002)"],
    extras=["LR{j}{lr}", "gnorm{j}{norm}", "{ms}ms/step", "mem{j}40.1GB", "eta{j}{eta}", "tps{j}{tok}"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: f"[2025-02-03 {stamp(step)},120] ",
        lambda step, chance: f"{stamp(step)} | INFO | ", lambda step, chance: "worker-3: ",
        lambda step, chance: f"I0203 {stamp(step)}.000123 4242 trainer.cc:88] ", lambda step, chance: "(trainer) ",
        lambda step, chance: f"Feb 03 {stamp(step)} node7 train[4242]: ",
    ],
    noise=["saved step {s} to disk", "NCCL INFO ring 0", "gc collected 12 objects", "....", "GPU temp 66C"],
    layouts=[one_line, one_line, loss_last, table, colon_fields, headed],
    wraps=[plain_wrap] * 6 + [crlf],
)  # fmt: skip


def attributes(plan: Plan) -> list[tuple[str, Row | None]]:
    """`<train step="100" loss="2.5"/>`."""
    name = plan.loss.strip().replace(" ", "_").replace("/", "_")
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0].split("/")[0]
        lines.append((f'<train step="{step}" {name}="{shown}" lr="3e-4"/>', (step, shown)))
    return lines


def nested_json(plan: Plan) -> list[tuple[str, Row | None]]:
    """`{"event": "train", "step": 100, "metrics": {"loss": 2.5, "lr": 3e-4}}`."""
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0].split("/")[0]
        lines.append((
            f'{{"event": "train", "step": {step}, "metrics": {{"{plan.loss.strip()}": {shown}, "lr": 0.0003}}}}',
            (step, shown),
        ))  # fmt: skip
    return lines


def indented(plan: Plan) -> list[tuple[str, Row | None]]:
    """A line with the step, and each value on an indented one of its own, as YAML has it."""
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss)
        lines += [(f"- {plan.step.format(s=step, n=plan.total)}", None)]
        lines += [("    lr: 0.0003", None), (f"    {plan.loss}: {shown}", (step, shown))]
    return lines


def fixed_columns(plan: Plan) -> list[tuple[str, Row | None]]:
    """Columns under a heading that comes again each twenty rows."""
    lines: list[tuple[str, Row | None]] = []
    for at, (step, loss) in enumerate(plan.rows):
        if at % 20 == 0:
            lines.append((f"{'step':>10} {plan.loss.strip().replace(' ', '_'):>22} {'lr':>10} {'sec':>8}", None))
        shown = plan.number(loss).split()[0].split("/")[0]
        lines.append((f"{step:>10} {shown:>22} {'3.00e-04':>10} {0.2 * at:>8.1f}", (step, shown)))
    return lines


FOURTH = Words(
    steps=["step:{s}", "Step {s} of {n}", "iteration={s}", "[{s}/{n} steps]", "global step: {s}", "train step={s}",
           "Update {s}/{n}", "iter {s:>6}", "step = {s}", "Training step {s}", "n_iter: {s}", "step {s:,}/{n}"],
    losses=["loss", "train loss", "avg loss", "Loss_train", "tr_loss", "train_ce_loss", "epoch_loss", "loss_ema",
            "language_model_loss", "mse_loss", "train/total_loss", "contrastive_loss", "Cross-Entropy", "batch_loss",
            "loss_per_token", "sft_loss", "distill_loss", "Training Loss", "l1_loss", "dpo_loss"],
    eval_losses=["val loss", "eval_loss", "held_out_loss", "validation_loss", "Valid Loss", "dev loss"],
    joints=["=", ": ", " = ", ":", " ", " -> ", " == "],
    gaps=[", ", " | ", "  ", " / ", "; ", " - ", " \u2022 ", ","],
    numbers=[lambda value: f"{value:.4f}", lambda value: f"{value:.2e}", lambda value: f"{value:9.5f}",
             lambda value: f"{value:.4f}/tok", lambda value: f"{value:.3f} (EMA {value * 1.02:.3f})",
             lambda value: f"{value:.6f}"],
    extras=["lr{j}{lr}", "gn{j}{norm}", "{ms} ms", "{tok} tok/sec", "elapsed{j}{eta}", "gpu_mem{j}33.1GB"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: f"{stamp(step)} ",
        lambda step, chance: f"[{stamp(step)}] INFO trainer: ", lambda step, chance: "[trainer] ",
        lambda step, chance: f"2025/06/07 {stamp(step)} [INFO] ", lambda step, chance: "stdout: ",
        lambda step, chance: f"Jun  7 {stamp(step)} gpu01 train.sh[812]: ", lambda step, chance: "(pid=8123) ",
        lambda step, chance: f"2025-06-07T{stamp(step)}+00:00 node0 ",
    ],
    noise=["wrote checkpoint ckpt-{s}.pt", "nvidia-smi: 8 GPUs, 71 C", "WARNING: slow batch (3.1 s)", "gc.collect()",
           "resharding ...", "heartbeat ok", "----"],
    layouts=[one_line, one_line, loss_last, attributes, nested_json, indented, fixed_columns],
    wraps=[plain_wrap] * 6 + [crlf, markdown],
)  # fmt: skip


def record(plan: Plan) -> list[tuple[str, Row | None]]:
    """`StepMetrics(step=100, loss=2.5, lr=0.0003)`, as a class of data prints itself."""
    name = plan.loss.strip().replace(" ", "_").replace("/", "_").replace("-", "_")
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        lines.append((f"StepMetrics(step={step}, {name}={shown}, lr=0.0003, skipped=False)", (step, shown)))
    return lines


def sentence(plan: Plan) -> list[tuple[str, Row | None]]:
    """`At step 100 the training loss was 2.5, with a learning rate of 3e-4.`"""
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss)
        lines.append((f"At step {step} the {plan.loss} was {shown}, with a learning rate of 3e-4.", (step, shown)))
    return lines


def arrow_bar(plan: Plan) -> list[tuple[str, Row | None]]:
    """A drawn bar with counts, then times and values."""
    lines: list[tuple[str, Row | None]] = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss)
        done = 20 * step // max(plan.total, 1)
        rest = " - ".join([f"{plan.loss}: {shown}", *plan.values(at)])
        lines.append(
            (f"{step}/{plan.total} [{'=' * done}>{'.' * (20 - done)}] - 12s 24ms/step - {rest}", (step, shown))
        )
    return lines


def boxed(plan: Plan) -> list[tuple[str, Row | None]]:
    """A table of drawn lines."""
    lines: list[tuple[str, Row | None]] = [
        ("┌" + "─" * 12 + "┬" + "─" * 20 + "┬" + "─" * 12 + "┐", None),
        (f"│{'step':^12}│{plan.loss.strip():^20}│{'lr':^12}│", None),
        ("├" + "─" * 12 + "┼" + "─" * 20 + "┼" + "─" * 12 + "┤", None)]  # fmt: skip
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        lines.append((f"│{step:^12}│{shown:^20}│{'3.0e-04':^12}│", (step, shown)))
    return [*lines, ("└" + "─" * 12 + "┴" + "─" * 20 + "┴" + "─" * 12 + "┘", None)]


def nested_python(plan: Plan) -> list[tuple[str, Row | None]]:
    """`{'step': 100, 'train': {'loss': 2.5}, 'time': {'data': 0.01}}`."""
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        body = f"'train': {{'{plan.loss.strip()}': {shown}, 'lr': 0.0003}}, 'time': {{'data': 0.012, 'step': 0.31}}"
        lines.append((f"{{'step': {step}, {body}}}", (step, shown)))
    return lines


def sections(plan: Plan) -> list[tuple[str, Row | None]]:
    """`[step 100]` as a heading and values below it, with an empty line between blocks."""
    lines: list[tuple[str, Row | None]] = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss)
        lines += [(f"[{plan.step.format(s=step, n=plan.total)}]", None), ("lr = 0.0003", None)]
        lines += [(f"{plan.loss} = {shown}", (step, shown)), *((value, None) for value in plan.values(at)), ("", None)]
    return lines


FIFTH = Words(
    steps=["step {s}", "Batch {s}/{n}", "Step {s:>7}/{n}", "global_step: {s}", "iters: {s}", "Iteration #{s}",
           "num_steps={s}", "train_iter {s}", "step-{s}", "Optimizer step {s}", "s={s}", "[iter {s}]", "step: {s:,}",
           "progress: step {s} out of {n}"],
    losses=["loss", "train_loss", "Loss/train", "average loss", "policy_loss", "reconstruction_loss", "info_nce_loss",
            "ctc_loss", "vq_loss", "focal_loss", "logloss", "train_lm_loss", "loss_mean", "kd_loss", "token loss",
            "Total loss", "ELBO loss", "objective", "train.cross_entropy", "loss/ce"],
    eval_losses=["val loss", "validation/loss", "Val. loss", "evaluation loss", "holdout_loss", "eval_nll"],
    joints=["=", ": ", " = ", " ", ":", " at ", "\t"],
    gaps=[" ", ", ", " | ", "   ", "\t", " :: ", " + ", "; "],
    numbers=[lambda value: f"{value:.4f}", lambda value: f"{value:.3e}", lambda value: f"{value:.8f}",
             lambda value: f"{value:.3f} (best 2.001)", lambda value: f"{value:.3f} ↓",
             lambda value: f"{value:.2f} ± 0.03", lambda value: f"'{value:.4f}'"],
    extras=["lr{j}{lr}", "‖g‖{j}{norm}", "samples/s{j}{tok}", "step_time{j}{ms} ms", "remaining{j}{eta}",
            "loss_scale{j}65536", "tokens{j}1.2B", "epoch{j}1"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: f"[{stamp(step)}] ", lambda step, chance: "DEBUG:train:",
        lambda step, chance: f"2025-11-02 {stamp(step)}.441 | INFO     | train:main:212 - ",
        lambda step, chance: "train-job-0 | ", lambda step, chance: "[rank 0] ",
        lambda step, chance: f"{{{stamp(step)}}} ", lambda step, chance: "(main) INFO: ",
        lambda step, chance: f"+{step // 60:03d}:{step % 60:02d} ",
        lambda step, chance: f"Sun Nov  2 {stamp(step)} 2025 [1,0]<stderr>: ",
    ],
    noise=["saving to gs://bucket/step_{s}.ckpt", "2 of 8 workers slow", "reducer bucket size 25 MB", "=" * 30,
           "cache hit rate 0.93", "loss scaler: growth 2000", "evaluating on 512 batches"],
    layouts=[one_line, one_line, loss_last, record, sentence, arrow_bar, boxed, nested_python, sections],
    wraps=[plain_wrap] * 6 + [crlf, utf16],
)  # fmt: skip


def two_lines(plan: Plan) -> list[tuple[str, Row | None]]:
    """The step and the loss on one line, the rate with the step again on the next."""
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss)
        head = plan.step.format(s=step, n=plan.total) + plan.gap
        lines += [(f"{head}{plan.loss}{plan.joint}{shown}", (step, shown)), (f"{head}lr = 3e-4", None)]
    return lines


def parts_first(plan: Plan) -> list[tuple[str, Row | None]]:
    """The losses of parts ahead of the whole one, as detectors print them."""
    lines: list[tuple[str, Row | None]] = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss)
        parts = [f"aux_a{plan.joint}0.3101", f"aux_b{plan.joint}0.1207"]
        body = [*parts, f"{plan.loss}{plan.joint}{shown}", *plan.values(at)]
        lines.append((f"Epoch [1][{step}/{plan.total}]\t{plan.gap.join(body)}", (step, shown)))
    return lines


def bar_with_values(plan: Plan) -> list[tuple[str, Row | None]]:
    """A progress bar that has lost its drawing, behind the epoch's number."""
    name = plan.loss.strip().replace(" ", "_")
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        share = 100 * step // max(plan.total, 1)
        lines.append(
            (
                f"Epoch 0: {share:3d}% {step}/{plan.total} [01:10<00:24,  2.1it/s, {name}={shown}, v_num=7]",
                (step, shown),
            )
        )
    return lines


def short_table(plan: Plan) -> list[tuple[str, Row | None]]:
    """A table with a short first name, a time and sizes in it."""
    name = plan.loss.strip().replace(" ", "_")
    lines: list[tuple[str, Row | None]] = [(f"{'Itn.':<8}{'mem':>10}  {name:>24}  {'time':>8}", None)]
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        lines.append((f"{step:<8}{'2.31G':>10}  {shown:>24}  {'00:12':>8}", (step, shown)))
    return lines


SIXTH = Words(
    steps=["Up. {s}", "Train Iteration: {s}", "completed step: {s}", "[{s}]", "iter {s} step 1", "Step {s:>6}/{n}",
           "global_step={s}", "Iteration {s} (2.1 iter/s)", "update: {s}", "Total iter: {s}", "Iter: {s}/ {n}",
           "it: {s}", "({s}/{n})"],
    losses=["loss", "Cost", "total_loss", "training's logloss", "Loss", "avg loss", "train_loss", "lm loss",
            "loss (curr)", "reduced_train_loss", "step_loss", "objective", "Total Loss", "train ctc_loss"],
    eval_losses=["valid_0's logloss", "val_loss", "Validation loss", "eval loss", "dev_loss"],
    joints=["=", ": ", " = ", " : ", "= ", ":"],
    gaps=[", ", " : ", "  ", "; ", " | ", "\t"],
    numbers=[lambda value: f"{value:.4f}", lambda value: f"{value:.6E}", lambda value: f"{value:.5f} ({value:.5f})",
             lambda value: f"[{value:.6f}]", lambda value: f"{value:.4g}"],
    extras=["lr{j}{lr}", "{ms}ms", "time{j}0.2s", "grad norm{j}{norm}", "{tok} words/s", "eta{j}1 day, 2:03:04",
            "max_mem{j}2996M", "data_time{j}0.003"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: f"[2021-07-17 {stamp(step)}] ",
        lambda step, chance: f"[11/01 {stamp(step)} d2.utils.events]: ", lambda step, chance: "> ",
        lambda step, chance: f"I0918 {stamp(step)}.594841  5721 solver.cpp:195] ",
        lambda step, chance: f"[PC] 2020-11-11 {stamp(step)},446 (trainer:486) INFO: ",
        lambda step, chance: f"08/03 {stamp(step)} - engine - INFO - ",
        lambda step, chance: f"2022-12-08 {stamp(step)},371-INFO: ",
    ],
    noise=["Saving model weights to model/model.npz", "tensor([[338, 5387, 1181], [47185, 2950, 287]])",
           "kl just right!", "Loaded: 6.94 seconds", "3+2)69+59+(81)1(-4(2", "Exp name: base_1x.py", "elapsed 196.28"],
    layouts=[one_line, one_line, loss_last, two_lines, parts_first, bar_with_values, short_table],
    wraps=[plain_wrap] * 6 + [crlf, markdown],
)  # fmt: skip

FAMILIES = {"apart": APART, "third": THIRD, "fourth": FOURTH, "fifth": FIFTH, "sixth": SIXTH, "seventh": SEVENTH,
            "eighth": EIGHTH, "ninth": NINTH, "tenth": TENTH,
            "eleventh": ELEVENTH}  # fmt: skip
