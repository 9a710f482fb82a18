"""A third family of words and layouts, with which no reader was tuned: see `dialects.py`."""

from __future__ import annotations

from dialects import Plan, Row, Words, crlf, loss_last, one_line, plain_wrap, stamp, table


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


WORDS = Words(
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
