"""The family of words and layouts that was written before readers were changed: see `dialects.py`."""

from __future__ import annotations

from dialects import Plan, Row, Words, crlf, markdown, one_line, plain_wrap, stamp, utf16


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


WORDS = Words(
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
