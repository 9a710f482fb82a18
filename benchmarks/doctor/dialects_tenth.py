"""The tenth family of words and layouts: toolkits of speech, vision and translation, programs in Rust, Go, Julia, R,
Fortran and MATLAB, structured loggers, words of other languages, values between other things, frames and collectors.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from dialects import Plan, Row, Words, crlf, loss_last, one_line, packed, plain_wrap, stamp

Lines = list[tuple[str, Row | None]]
Layout = Callable[[Plan], Lines]


def batches_of(plan: Plan) -> int:
    """How many batches an epoch has: about a quarter of the run."""
    return max(4, -(-(plan.total + 1) // 4))


def filled(name: str, about: str, *forms: str, digits: str = ".4f") -> Layout:
    """A layout of one line a row: `{s}` the step, `{n}` the last one, `{v}` the loss, `{w}` a smaller one, `{x}` a
    larger one, `{e}` an epoch, `{b}` the batch in it, `{m}` how many of them, `{t}` a time, `{k}` a figure."""

    def layout(plan: Plan) -> Lines:
        form = plan.draw("form", list(forms))
        lines: Lines = []
        for step, loss in plan.rows:
            shown = format(loss, digits)
            epoch, batch = divmod(step, batches_of(plan))
            known = {"s": step, "n": plan.total, "v": shown, "e": epoch + 1, "b": batch, "m": batches_of(plan)}
            others = {"w": format(0.6 * loss, digits), "x": format(loss + 0.1, digits), "k": 31 + step % 60}
            text = form.format(t=stamp(step), **known, **others)
            lines.append((text, (step, shown)))
        return lines

    layout.__name__, layout.__doc__ = name, about
    return layout


one_a_line = [
    filled("speed_first", "A speed ahead of the loss, in several units.",
           "Epoch[0] Batch [{s}]\tSpeed: {k}.18 samples/sec {k}71.60 tokens/sec 1.2{k} updates/sec\tcross-entropy={v}",
           "Epoch[0] Batch [{s}]\tSpeed: {k}.18 samples/sec\tcross-entropy-loss={v}\tlr=0.0003", digits=".6f"),
    filled("loss_is", "A value in words.", "epoch: 1 step: {s}, loss is {v}", "epoch 1, step {s}, loss is {v}",
           "[step {s}] loss now {v}, was {x}", digits=".7f"),
    filled("brackets_and_parens", "An epoch in brackets, a batch in parentheses.",
           "Epoch:[{e}/19]({b}/{m}) loss:{v} lr:0.00030000 epoch_Time:{k}.0min:",
           "Epoch [{e}/19] ({b}/{m}), loss {v}, lr 3.0e-04"),
    filled("names_in_brackets", "Names in brackets.", "[epoch]: 1, [batch]: {s}, [loss]: {v}",
           "[step]: {s} [loss]: {v} [lr]: 0.0003", digits=".9f"),
    filled("many_of_training", "Everything is of the training.",
           "iterations:{s}, train acc:0.3{k}, train loss:{v}, train loss ctc:{x}, train loss att:{w},"),
    filled("step_of_total", "A name for both numbers.", "Epoch {e}, step/total_step: {b}/{m} 25.00% Loss:{v}",
           "Epoch {e}, batch/batches: {b}/{m} Loss:{v}"),
    filled("whole_step", "The step of the run and the epoch's progress.",
           "Whole iter step:{s} - epoch progress:{e}/100 - total_loss:{v} - a_bce:0.7{k} "
           "- b_iou: 0.9{k}  batch_time: 0.9"),
    filled("samples_seen", "The samples of an epoch.", "Train Epoch: 1 [{s}/6000000] Loss: {v}",
           "Train Epoch: 1 [{s:>5}/600000 (12%)]\tLoss: {v}", digits=".6f"),
    filled("number_and_loss", "The step without a name.", "{s:>4} train loss:  {v} test acc: {k}.08%",
           "epoch: {s:>4} train loss:  {v} test acc: {k}.08%", digits=".5f"),
    filled("fraction_and_epoch", "A fraction ahead, the epoch with a part.",
           "{s}/{n} (epoch 0.{k}), train_loss = {v}, grad/param norm = 1.2e-01, time/batch = 0.2{k}s",
           "{s}/{n} (epoch 0), train_loss = {v}, time/batch = 0.2{k}", digits=".8f"),
    filled("sorted_pairs", "The step in brackets, names in order.",
           "[{s}] accuracy=0.3{k}, learning_rate=0.0003, loss={v}, steps_per_second=3.2{k}", digits=".6f"),
    filled("words_in_brackets", "All counts in brackets.",
           "[Train - Epoch 1 - Iteration {s}] Loss {v} | Accuracy {k}.200 %",
           "[Train] [Epoch 1] [Iter {s}] Loss {v} | Acc {k}.2", digits=".3f"),
    filled("fields_behind", "A message, and its fields.",
           "{t} INFO train::trainer: step complete step={s} loss={v} lr=0.0003 tokens_per_s=51{k}.5",
           "INFO train: optimizer stepped loss={v} step={s} grad_norm=1.2", digits=".7g"),
    filled("logfmt", "A key for the message too.",
           'time=2025-10-02T{t}.118Z level=INFO msg="train step" step={s} loss={v} lr=0.0003',
           'level=info ts=2025-10-02T{t}.118Z caller=loop.go:88 msg="step done" step={s} loss={v}', digits=".6f"),
    filled("padded_message", "A message in a field of fixed width.",
           "2025-10-02 {t} [info     ] train step                     loss={v} lr=0.0003 step={s}",
           "2025-10-02 {t} [info     ] progress                       step={s} train_loss={v}"),
    filled("source_behind", "Where it was printed, at the end of the line.",
           "[{t}] INFO     step={s} loss={v} lr=3.00e-04                              trainer.py:88",
           "           INFO     step={s} loss={v} lr=3.00e-04                              trainer.py:88"),
    filled("metric_of_data", "The data ahead of the measure.",
           "[LightGBM] [Info] Iteration:{s}, training binary_logloss : {v}",
           "[Info] iteration {s}, training mse : {v}", digits=".6f"),
    filled("dashes", "Everything is joined by dashes.",
           "epoch 1 - iter {s}/{n} - loss {v} - time (sec): {k}.31 - samples/sec: 51.{k} - lr: 0.1000 - momentum: 0.00",
           "Finished STEP {s}/{n}, loss = {v} (0.1{k} sec/batch), lr: 0.000300", digits=".8f"),
    filled("step_between", "The step between the name and the value.",
           "Train loss {s} {v} Grad Norm 1.212312 0.5{k}s/it", "Training loss {s}: {v} (0.5{k} s)", digits=".6f"),
    filled("columns_by_bars", "Columns of a progress line.",
           "Epoch 0 |   Training | Elapsed Time: 0:01:12 | Steps: {s} | Loss: {v}",
           "Epoch 0 | Training | 0:01:12 | Steps: {s} | Loss: {v} | 51.{k} it/s", digits=".6f"),
    filled("epoch_slash_batch", "An epoch and a batch with a slash.",
           "DEBUG TRAIN Batch 0/{s} loss {v} loss_att {w} loss_ctc {x} lr 0.00030000 rank 0",
           "TRAIN Batch 0/{s} loss {v} lr 0.00030000", digits=".6f"),
    filled("bars_without_names", "An epoch and a step by bars, then the loss and a progress bar.",
           "1|{s}|Loss: {v}: 12%|█▏        | {s}/{n} [01:02<07:38,  1.92it/s]", digits=".7g"),
    filled("in_a_function", "A place in a program and pairs without blanks.",
           "INFO train.py:323 in record_metrics -- tflops=63.3,step={s},loss={v},tgs (tokens/gpu/second)=40{k}.82,"
           "lr=4.0e-07,loss_scale=65536.0,grad_norm=63.6,micro_num=4,num_consumed_tokens=131072,inf_nan_skip_batches=0"),
    filled("for_one_batch", "A remark between the name and the step.",
           "Training loss (for one batch) at step {s}: {v}", "Training loss (over 100 batches) at step {s} is {v}"),
    filled("russian", "Russian.", "Эпоха 1 | Шаг {s} | Потери: {v}", "Шаг {s}/{n}, потеря на обучении: {v}",
           "Итерация {s}: ошибка обучения = {v}, функция потерь {v}"),
    filled("korean", "Korean.", "에포크 1, 배치 {s}: 손실 = {v}",
           "스텝 {s}/{n} - 훈련 손실: {v} - 정확도: 0.3{k}",
           "[반복 {s}] 손실값: {v}"),
    filled("japanese", "Japanese.", "エポック: 1, ステップ: {s}, 損失: {v}",
           "ステップ {s}/{n} 訓練損失={v} 学習率=0.0003",
           "反復回数: {s} 誤差: {v}"),
    filled("chinese", "Chinese.", "第1轮，第{s}批，损失值：{v}", "训练步数：{s}，训练损失：{v}，学习率：0.0003",
           "【训练】步骤 {s}/{n} | 当前损失 {v} | 用时 0.{k} 秒"),
    filled("fortran", "Numbers in fields of fixed width, as Fortran prints them.",
           " ITER {s:>9}   COST   {v}   STEP LENGTH   0.1{k}00E-02", " step= {s:>9}  loss=   {v}", digits="13.6E"),
    filled("printed_by_r", "A string in quotes behind the number of its line.",
           '[1] "step {s} loss {v}"', '[1] "Epoch 1, iteration {s}, loss: {v}, lr: 0.0003"', digits=".5f"),
    filled("minimised", "A minimiser's line.", "Iteration {s:>5} | Cost: {v}",
           "Iteration {s:>5} | Cost: {v}\r", digits=".6e"),
    filled("with_error", "A value with its error behind it.",
           "train: [███       ] data={s:07d}/{n:07d} loss={v}±0.01234 acc=31.20±0.31% t=00:00:05 ETA=00:10:31",
           "step {s} loss = {v} +- 0.0123 acc = 31.20 +- 0.31", digits=".5f"),
    filled("single_precision", "Numbers of single precision, as Julia shows them.",
           "(step, loss) = ({s}, {v}f0)", "[ Info: step = {s}, loss = {v}f0, lr = 0.0003f0", digits=".7g"),
    filled("emoji", "Pictures for names.", "🔥 Step {s} | 📉 Loss: {v} | ⏱ 0.{k} s",
           "✅ Step {s}/{n}: loss={v} ⚡ 51{k} tok/s"),
    filled("tokens_per_word", "Everything, by bars, counts with letters behind them.",
           "iteration: {s} / {n} | consumed_tokens: {k}.2M | elapsed_time_per_iteration_ms: 231 | "
           "tokens_per_sec: 51.0K | global_batch_size: 512 | lm_loss: {v} | lr: 0.0003 | model_tflops_per_gpu: 81",
           digits=".3g"),
    filled("events", "A logger of events.",
           "[10/02 {t} lb.utils.events]:  eta: 0:12:31  iteration: {s}/{n}  consumed_samples: 64{k}  total_loss: {v}  "
           "time: 0.2{k} s/iter  data_time: 0.001 s/iter total_throughput: 51.2 samples/s lr: 3.0e-04"),
]  # fmt: skip


def said_twice(plan: Plan) -> Lines:
    """Two loggers print the same row."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.3f}"
        text = f"Step {step} per-step time 0.{step % 90 + 10}s loss={shown}"
        lines.append((f"INFO:tensorflow:{text}", (step, shown)))
        lines.append((f"I1002 {stamp(step)}.956218 139735407601536 model_lib.py:652] {text}", None))
    return lines


def loss_then_step(plan: Plan) -> Lines:
    """The loss, its step behind it, and a rate on a line of its own."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.7g}"
        lines.append((f"INFO:tensorflow:global_step/sec: 8.{step % 90 + 10}", None))
        lines.append((f"INFO:tensorflow:loss = {shown}, step = {step} (12.{step % 90 + 10} sec)", (step, shown)))
    return lines


def two_lines_of_a_step(plan: Plan) -> Lines:
    """Losses, and the time of the same step."""
    lines: Lines = []
    batches = batches_of(plan)
    for step, loss in plan.rows:
        epoch, batch = divmod(step, batches)
        shown, head = f"{loss:.4f}", f"[INFO] Epoch {epoch + 1}/500, Step {batch}/{batches}"
        parts = f"lbox: {0.6 * loss:.4f}, lcls: {0.3 * loss:.4f}, dfl: {0.1 * loss:.4f}"
        lines.append((f"{head}, imgsize (640, 640), loss: {shown}, {parts}, cur_lr: 0.0003", (step, shown)))
        lines.append((f"{head}, step time: 95.{step % 90 + 10} ms", None))
    return lines


def minibatch_range(plan: Plan) -> Lines:
    """From one batch to another, with how much of an epoch that is."""
    lines: Lines = []
    last = 0
    for step, loss in plan.rows:
        shown = f"{loss:.8f}"
        head = f" Epoch[ 1 of 3]-Minibatch[{last + 1:>5}-{step:>5}, 12.34%]"
        lines.append((f"{head}: ce = {shown} * 1000; errs = 31.20% * 1000; time = 0.0159s; samplesPerSecond = 62703.8",
                      (step, shown)))  # fmt: skip
        last = step
    return lines


def paragraph(plan: Plan) -> Lines:
    """An epoch a paragraph."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.6f}"
        lines += [
            (f"Epoch {step} of {plan.total} took 12.{step % 90 + 10}s", None),
            (f"  training loss:\t\t{shown}", None),
        ]
        lines += [
            (f"  validation loss:\t\t{loss + 0.1:.6f}", None),
            ("  validation accuracy:\t\t31.20 %", (step, shown)),
        ]
    return lines


def timed_rows(plan: Plan) -> Lines:
    """A table without frames, whose last column is a time that is left."""
    names = plan.draw(
        "columns", ["      Iter       Train Loss   Remaining Time ", "  epoch    train loss    valid loss     dur"]
    )
    lines: Lines = [(names, None)]
    if "dur" in names:
        lines.append(("-------  ------------  ------------  ------", None))
    for step, loss in plan.rows:
        shown = f"{loss:.4f}"
        text = f"{step:>7}  {shown:>12}  {loss + 0.1:>12.4f}  1.2{step % 10}s" if "dur" in names else (
            f"{step:>10} {shown:>16} {'1.' + str(step % 90 + 10) + 'm':>16} ")  # fmt: skip
        lines.append((text, (step, shown)))
    return lines


def framed_pairs(plan: Plan) -> Lines:
    """A frame a row, keys in order, the step at last."""
    edge = "-" * 27
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.3g}"
        cells = (("grad_norm", "1.21"), ("loss", shown), ("loss_q0", f"{loss * 1.3:.3g}"), ("mse", f"{0.9 * loss:.3g}"),
                 ("samples", str(step * 64)), ("step", str(step)))  # fmt: skip
        lines.append((edge, None))
        lines += [(f"| {name:<11}| {value:<11}|", None) for name, value in cells]
        lines.append((edge, (step, shown)))
    return lines


def nested_fields(plan: Plan) -> Lines:
    """An object a line, what was measured in an object of its own."""
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.6g}"
        body = {"timestamp": f"2025-10-02T{stamp(step)}.118Z", "level": "INFO",
                "fields": {"message": "step", "step": step, "loss": "LOSS", "lr": 0.0003}}  # fmt: skip
        lines.append((json.dumps(body).replace('"LOSS"', shown), (step, shown)))
    return lines


def shown_values(plan: Plan) -> Lines:
    """A value a line, with its name."""
    names = plan.draw("names", [("step", "loss"), ("iteration", "train_loss"), ("i", "loss")])
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.7g}"
        lines += [(f"{names[0]} = {step}", None), (f"{names[1]} = {shown}", (step, shown))]
    return lines


def journal(text: str) -> tuple[bytes, str]:
    """As systemd's journal is exported."""
    rows = (json.dumps({"_HOSTNAME": "node-3", "PRIORITY": "6", "_PID": "77", "MESSAGE": row,
                        "__REALTIME_TIMESTAMP": str(1_759_400_000_000_000 + at)}, ensure_ascii=False)
            for at, row in enumerate(text.splitlines()))  # fmt: skip
    return ("\n".join(rows) + "\n").encode(), "jsonl"


def pods(text: str) -> tuple[bytes, str]:
    """As a cluster shows the lines of a pod."""
    return "".join(f"[pod/train-0/pytorch] {row}\n" for row in text.splitlines()).encode(), "log"


def algorithm(text: str) -> tuple[bytes, str]:
    """As a launcher in a cloud marks its lines."""
    return "".join(f"[1,mpirank:0,algo-1]<stdout>:{row}\n" for row in text.splitlines()).encode(), "log"


def marked(text: str) -> tuple[bytes, str]:
    """With a mark of its encoding, behind what the shell says."""
    return "\ufeffnohup: ignoring input\n+ python train.py --config base.yml\n".encode() + text.encode(), "out"


def pasted(text: str) -> tuple[bytes, str]:
    """As somebody pastes it, set in."""
    return ("Output:\n\n" + "".join(f"    {row}\n" for row in text.splitlines())).encode(), "txt"


TENTH = Words(
    steps=["Update step {s}", "Iteration: {s}/{n}", "[{s}/{n}]", "step_{s}", "Step({s})", "iter {s} of {n}",
           "steps={s}", "At iter. {s}", "n_iter: {s}", "optim step {s}", "#{s}",
           "TrainStep {s}", "step: {s} / {n}", "ITER {s:08d}"],
    losses=["reduced_train_loss", "loss/total", "train/total_loss", "loss_sum", "Loss/train_step", "lm-loss", "MSELoss",
            "L1Loss", "train_ce", "loss_mlm", "moving loss", "Batch Loss", "objective/loss", "training_loss", "ce loss",
            "train_loss_step", "negative log likelihood", "loss"],
    eval_losses=["val/total_loss", "validation_loss", "Val Loss", "eval_loss", "dev loss"],
    joints=[": ", "=", " = ", " ", ":", " is ", "\t"],
    gaps=[", ", " | ", "  ", "; ", " / ", " · "],
    numbers=[lambda value: f"{value:.4f}", lambda value: f"{value:.6f}", lambda value: f"{value:.3e}",
             lambda value: f"{value:.5g}", lambda value: f"{value:10.5f}", lambda value: f"{value:.4f} ({value:.4f})"],
    extras=["lr{j}{lr}", "grad{j}{norm}", "{ms} ms/it", "tps{j}{tok}", "mem{j}61.2GiB", "acc{j}0.312", "wd{j}0.1",
            "data{j}0.002s", "mom{j}0.9"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: "",
        lambda step, chance: f"10/02/2025 {stamp(step)} - INFO - __main__ -   ",
        lambda step, chance: "(Trainer pid=77, ip=10.0.0.1) ",
        lambda step, chance: "\x1b[36m(main_task pid=77)\x1b[0m ",
        lambda step, chance: f"[2025-10-02T{stamp(step)}+0000] ", lambda step, chance: "gpu01: ",
        lambda step, chance: f"Oct 02 {stamp(step)} host systemd-train[77]: ",
        lambda step, chance: f"[I 2025-10-02 {stamp(step)},118] ", lambda step, chance: "[1,0]<stdout>:",
        lambda step, chance: f"2025-10-02 {stamp(step)}.118 UTC [77] LOG:  ",
        lambda step, chance: f"[{stamp(step)}.118] [trainer] [info] ",
    ],
    noise=["Saving model checkpoint to runs/exp7/step-{s}", "Gradient overflow, skipping step", "", "~~~~~~~~",
           "GPU 0: 61.2GiB / 80.0GiB", "Loading cached indices from /tmp/x_{s}.npy", "saved checkpoint in 3.1 s",
           "new best: True", "val set has 512 examples", "Reusing dataset (2.3 GB)"],
    layouts=[one_line, loss_last, *one_a_line, said_twice, loss_then_step, two_lines_of_a_step, minibatch_range,
             paragraph, timed_rows, framed_pairs, nested_fields, shown_values],
    wraps=[plain_wrap] * 8 + [crlf, packed, journal, pods, algorithm, marked, pasted],
    counted=(*one_a_line, loss_then_step, minibatch_range),
    bare=(said_twice, two_lines_of_a_step, paragraph, timed_rows, framed_pairs, nested_fields, shown_values),
)  # fmt: skip
