"""The eleventh family of words and layouts: what people print by hand in many languages, adversaries with losses of
their own, evaluations between rows, tables of other makers, bars of other libraries, terminals and cells of notebooks.
"""

# ruff: noqa: E501, letters of other scripts are two columns wide
from __future__ import annotations

import json
from collections.abc import Callable

from dialects import Plan, Words, crlf, loss_last, one_line, packed, plain_wrap, stamp
from dialects_tenth import Lines, batches_of, filled

one_a_line = [
    filled("turkish", "Turkish.", "Adım {s}, Kayıp: {v}", "Eğitim adımı {s}/{n} - kayıp: {v} - doğruluk: 0.3{k}",
           "İterasyon {s} | Eğitim kaybı: {v}"),
    filled("polish", "Polish.", "Krok {s}: strata = {v}", "Iteracja {s}, funkcja straty: {v}, dokładność: 0.3{k}",
           "krok {s} z {n}, strata treningowa: {v}"),
    filled("dutch", "Dutch.", "Stap {s}, verlies {v}", "stap {s}/{n}: verlies = {v}, nauwkeurigheid = 0.3{k}"),
    filled("vietnamese", "Vietnamese.", "Bước {s}, mất mát: {v}", "Bước {s}/{n} - Hàm mất mát: {v} - Độ chính xác: 0.3{k}"),
    filled("ukrainian", "Ukrainian.", "Крок {s}: втрати = {v}", "Ітерація {s}, функція втрат: {v}, точність: 0.3{k}"),
    filled("swedish", "Swedish and Danish.", "Steg {s}, förlust: {v}", "steg {s}: förlust = {v}, noggrannhet = 0.3{k}",
           "Trin {s}: tab = {v}"),
    filled("german_by_hand", "German, commas in numbers too.", "Iteration {s}: Fehler = {v}", "Schritt {s}: Kosten {v}",
           "Durchlauf {s}, Trainingsfehler: {v}", "Lernschritt {s}, mittlerer Verlust {v}"),
    filled("spanish_by_hand", "Spanish, French, Italian.", "Paso {s}: costo = {v}", "Itération {s} : coût = {v}",
           "Iterazione {s}, costo: {v}", "Época 1, lote {s}: pérdida {v}", "Étape {s}, erreur d'entraînement : {v}"),
    filled("chinese_by_hand", "Chinese, with brackets and colons of its own width.",
           "【步数】{s}【损失】{v}【学习率】0.0003", "步数：{s}；损失：{v}；耗时：0.{k}秒", "第 {s} 次迭代，代价函数：{v}",
           "迭代{s}次, 误差={v}", "global_step：{s}，训练误差：{v}"),
    filled("japanese_by_hand", "Japanese.", "{s}ステップ目: 損失 {v}", "学習回数 {s} 回, 誤差 {v}", "イテレーション {s} 損失関数 {v}"),
    filled("korean_by_hand", "Korean.", "{s}번째 스텝 손실: {v}", "스텝: {s} 비용: {v}", "이터레이션 {s}, 로스: {v}"),
    filled("two_players", "An adversary and its maker, the maker first.",
           "[{s}/{n}] loss_gen: {v}, loss_disc: {w}", "step {s} G_loss={v} D_loss={w}", "Step {s} | gen loss {v} | dis loss {w}",
           "iter {s}: [G loss: {v}] [D loss: {w}]", "[step {s}] Loss_G: {v} Loss_D: {w} D(x): 0.3{k}"),
    filled("parts_then_total", "Parts of the loss, then all of it.",
           "step {s}: recon {w}, kld 0.{k}, total {v}", "iter {s} mse_loss {w} reg_loss 0.{k} total_loss {v}",
           "[{s}] rec: {w} | kl: 0.{k} | loss: {v}", "step {s} loss {v} (ce {w} + z 0.{k})",
           "step {s} losses: box={w} cls=0.{k} total={v}"),
    filled("rates_first", "A rate ahead of everything.",
           "{k}.31 it/s | step {s} | loss {v}", "({k}.3 ms) step {s}: loss {v}", "lr 3.0e-04 step {s} loss {v}",
           "elapsed 0:0{k} step {s} loss {v}", "{k}% done, step {s}, loss {v}"),
    filled("with_plan", "How many there will be, in words.", "step {s} out of {n}: loss={v}", "[{s} of {n}] loss={v}",
           "step {s} ({n} in all): loss={v}", "step <{s}/{n}> loss <{v}>", "Step: {s}/{n} => Loss: {v}"),
    filled("arrows", "Arrows and pictures between name and value.", "step {s} --> loss {v}", "step {s} ⇒ loss ≈ {v}",
           "step {s} :: loss :: {v}", "{s} => loss => {v}", "step {s} … loss … {v}", "step-{s} loss~{v}"),
    filled("units", "Units behind the value.", "step {s}, loss {v} bits/char", "step {s} loss={v}nats lr=3e-4",
           "step {s}: {v} nats/token", "step {s}: loss {v} (nats)", "step {s} loss: {v} dB"),
    filled("greek", "Letters of mathematics.", "t={s} L={v} η=0.0003", "k = {s}, f(x) = {v}, |g| = 1.21",
           "n={s} ℒ={v} ‖∇‖=1.21", "iter {s} J(θ) = {v}", "iter {s}  E = {v}  |dE/dw| = 0.1{k}", digits=".6f"),
    filled("code_like", "As a program shows its variables.", "step={s}, loss=Tensor({v})", "loss={v!s} step={s}",
           "Metrics(step={s}, loss={v}, lr=0.0003)", "{{step: {s}, loss: {v}, lr: 0.0003}}", "<step={s} loss={v}>",
           "dict(step={s}, loss={v})", "step={s} metrics={{'loss': {v}, 'acc': 0.3{k}}}"),
    filled("arrays", "Values as arrays print them.", "step {s} loss Array({v}, dtype=float32)", "step {s} loss [[{v}]]",
           "step {s} loss tf.Tensor({v}, shape=(), dtype=float32)", "step {s} loss: DeviceArray({v}, dtype=float32)",
           "step {s}, loss: <tf.Tensor: shape=(), dtype=float32, numpy={v}>", "step {s} loss: [np.float64({v})]"),
    filled("clocks", "A clock inside of the row.", "step {s} @ {t} loss {v}", "{t} > step {s} > loss {v}",
           "step {s} [{t}<01:02:03, 1.9{k}it/s] loss {v}", "[{t}] ({s}/{n}) loss: {v}", "step {s}; {t}; loss {v}"),
    filled("many_rates", "Rates with slashes.", "step {s} | 51.{k}k tok/s | 3.1 s/step | mfu 41.2% | loss {v}",
           "step: {s} tok/s/gpu: 51{k} loss: {v} lr: 3e-4 mem: 61.2GB(76%)", "{s}: loss {v}, {k} img/s, 0.3 s/b"),
    filled("tuned", "A tuner's and an experiment's names ahead.", "exp_07/lr3e-4/step {s}: loss {v}",
           "run=base-1 step={s} loss={v}", "[run 3] step {s} loss {v}", "(seed 1) step {s}: loss {v}",
           "model_a: step {s}: loss {v}"),
    filled("named_by_metric", "The measure's own name.", "step {s} | MSE {v} | MAE {w}", "step {s}, RMSE: {v}",
           "iter {s}: BCE = {v}", "iteration {s}, NLL {v}", "step {s} train_mse={v} r2=0.3{k}", "step {s} CE: {v}"),
    filled("evolved", "Rounds of trees and of federations.", "Round {s}: train loss {v}, clients 10",
           "round {s}/{n} server loss={v}", "[Round {s}] avg train loss: {v}", "{s}: train-rmse:{v}", "[{s}] train-logloss={v}"),
    filled("json_behind", "A word, and an object behind it.", 'METRICS {{"step": {s}, "loss": {v}, "lr": 0.0003}}',
           'train: {{"step":{s},"loss":{v}}}', '@@ {{"iter": {s}, "train_loss": {v}}}',
           '[metrics] {{"global_step": {s}, "train": {{"loss": {v}}}}}'),
    filled("bars_of_others", "Bars of other libraries.",
           "Training [####------] {s}/{n} loss: {v}", "⠙ Training… {s}/{n} • loss {v}", "[{s}/{n}] ▕███▌ ▏ loss={v}",
           "Training   ━━━━━╸          {s}/{n} 0:01:02 loss: {v}", "|███   | {s}/{n} [12%] in 1:02 (1.9/s, loss={v})"),
    filled("marks", "Marks of a list or a heading.", "* step {s}: loss {v}", "- step {s} loss {v}", "+ step {s} loss {v}",
           "== step {s} == loss {v}", "*** step {s} *** loss {v}", "• step {s}: loss {v}", "| step {s} | loss {v} |"),
]  # fmt: skip


def evaluated_between(plan: Plan) -> Lines:
    """An evaluation every few rows, whose loss has the same name."""
    form = plan.draw("form", ["[{d}] step {s} loss {v}", "{d} | step {s} | loss {v}", "step {s} {d}_loss: {v}",
                              "({d}) step {s}: loss={v}"])  # fmt: skip
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = f"{loss:.4f}"
        lines.append((form.format(d="train", s=step, v=shown), (step, shown)))
        if at % 5 == 4:
            lines.append((form.format(d="eval", s=step, v=f"{loss + 0.2:.4f}"), None))
    return lines


def epochs_with_both(plan: Plan) -> Lines:
    """Epochs of a handful of batches, and the means of each epoch."""
    lines: Lines = []
    batches, last = batches_of(plan), 0
    for step, loss in plan.rows:
        epoch, batch = divmod(step, batches)
        if epoch != last:
            lines.append((f"====> Epoch: {epoch} Average loss: {loss + 0.1:.4f} Val loss: {loss + 0.2:.4f}", None))
            last = epoch
        shown = f"{loss:.6f}"
        lines.append((f"Train Epoch: {epoch + 1} | Batch {batch}/{batches} | Loss: {shown}", (step, shown)))
    return lines


def wide_table(plan: Plan) -> Lines:
    """A table with a column for everything, in a frame of its own letters."""
    lines: Lines = [("╔═══════╤══════════╤═══════════╤════════╗", None),
                    ("║ Step  │ Loss     │ LR        │ Time   ║", None),
                    ("╠═══════╪══════════╪═══════════╪════════╣", None)]  # fmt: skip
    for step, loss in plan.rows:
        shown = f"{loss:.4f}"
        lines.append((f"║ {step:<5} │ {shown:<8} │ 3.000e-04 │ 0.3{step % 10}s  ║", (step, shown)))
    return [*lines, ("╚═══════╧══════════╧═══════════╧════════╝", None)]


def latex_table(plan: Plan) -> Lines:
    """A table as somebody pastes it from a paper's script, or from an org file."""
    mark = plan.draw("mark", ["&", "|"])
    end = r" \\" if mark == "&" else " |"
    begin = "" if mark == "&" else "| "
    lines: Lines = [(f"{begin}step {mark} loss {mark} lr{end}", None)]
    lines.append((r"\hline" if mark == "&" else "|------+--------+------|", None))
    for step, loss in plan.rows:
        shown = f"{loss:.4f}"
        lines.append((f"{begin}{step} {mark} {shown} {mark} 3e-4{end}", (step, shown)))
    return lines


def keyed_lines(plan: Plan) -> Lines:
    """A key and a value a line, a blank line behind each row."""
    form = plan.draw("form", ["{k}: {v}", "{k:<12}{v}", "  {k} -> {v}", "{k}={v}", "{k}\t{v}"])
    lines: Lines = []
    for step, loss in plan.rows:
        shown = f"{loss:.5f}"
        lines += [(form.format(k="step", v=step), None), (form.format(k="loss", v=shown), None)]
        lines += [(form.format(k="lr", v="0.0003"), None), ("", (step, shown))]
    return lines


def tab_rows(plan: Plan) -> Lines:
    """Columns by tabs, commas or bars with a heading among other text."""
    mark = plan.draw("mark", ["\t", ",", " | ", "  "])
    names = plan.draw("names", [("step", "train_loss", "lr"), ("iter", "loss", "time"), ("#iter", "loss", "lr"),
                                ("global_step", "loss", "grad_norm")])  # fmt: skip
    lines: Lines = [(mark.join(names), None)]
    for step, loss in plan.rows:
        shown = f"{loss:.5f}"
        lines.append((mark.join((str(step), shown, "0.0003")), (step, shown)))
    return lines


def objects_with_noise(plan: Plan) -> Lines:
    """An object a line of several kinds, the rows among them."""
    lines: Lines = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = f"{loss:.6f}"
        body = json.dumps({"event": "train", "step": step, "metrics": {"loss": "LOSS", "lr": 3e-4}})
        lines.append((body.replace('"LOSS"', shown), (step, shown)))
        if at % 7 == 3:
            lines.append((json.dumps({"event": "checkpoint", "step": step, "path": f"out/{step}"}), None))
    return lines


def cell(text: str) -> tuple[bytes, str]:
    """As a notebook keeps what a cell printed."""
    output = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
    code = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [output], "source": ["train()"]}
    book = {"cells": [code], "metadata": {"kernelspec": {"name": "python3"}}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False).encode(), "ipynb"


def captured(text: str) -> tuple[bytes, str]:
    """As a terminal shows it, with a prompt around it."""
    return f"(base) user@host:~/run$ python train.py\n{text}(base) user@host:~/run$ exit\n".encode(), "txt"


def followed(text: str) -> tuple[bytes, str]:
    """As `tail -f` of two files shows it."""
    return f"==> err.log <==\nsome warning\n\n==> out.log <==\n{text}".encode(), "txt"


def fenced(text: str) -> tuple[bytes, str]:
    """As an issue has it."""
    body = f"### What happened\n\nIt stands still.\n\n<details><summary>log</summary>\n\n```shell\n{text}```\n\n</details>\n"
    return body.encode(), "md"


PLAIN: list[Callable[[str], tuple[bytes, str]]] = [plain_wrap] * 8

ELEVENTH = Words(
    steps=["Step {s} -", "step={s}/{n}", "Iter: {s}", "updates: {s}", "train step {s}:", "Global step {s}", "[Step {s}]",
           "it {s}/{n}", "(iter {s})", "STEP {s}:", "cur_step: {s}", "step no. {s}", "n={s}", "step > {s}"],
    losses=["L", "tr_loss", "trn_loss", "Training Loss", "train-loss", "lossTrain", "loss_value", "cur_loss", "running_loss",
            "loss_avg", "Total loss", "nll_loss", "mse", "loss.item()", "batch_loss"],
    eval_losses=["va_loss", "Validation Loss", "val-loss", "test_loss", "lossVal"],
    joints=[": ", "=", " = ", " ", " => ", ":"],
    gaps=[", ", " | ", "   ", " ; ", " - ", "\t|\t"],
    numbers=[lambda value: f"{value:.4f}", lambda value: f"{value:.2f}", lambda value: f"{value:.8f}",
             lambda value: f"{value:.4e}", lambda value: repr(value), lambda value: f"{value:.3f} (+0.001)"],
    extras=["LR{j}{lr}", "gn{j}{norm}", "dt{j}{ms}ms", "toks/s{j}{tok}", "epoch{j}1", "bs{j}32", "t{j}{ms}s", "{frac}%"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: "",
        lambda step, chance: f"{stamp(step)} INFO trainer ", lambda step, chance: f"2025-10-02 {stamp(step)},118 trainer INFO ",
        lambda step, chance: f"INFO 2025-10-02 {stamp(step)},118 loop.py:88] ", lambda step, chance: "[main] ",
        lambda step, chance: f"{stamp(step)[3:]} ", lambda step, chance: f"2025-10-02T{stamp(step)}+02:00 ",
        lambda step, chance: "train.py | ", lambda step, chance: f"Thu Oct  2 {stamp(step)} 2025: ",
        lambda step, chance: f"[{step * 0.31:.6f}] ", lambda step, chance: "\x1b[32mINFO\x1b[0m:     ",
        lambda step, chance: f"[2025-10-02 {stamp(step)}] [INFO] [trainer.py:88:fit] ",
        lambda step, chance: "rank 0 | ",
    ],
    noise=["Saved model to ./ckpt/{s}.pt", "Epoch took 12.3 s", "", "....", "best val loss: 2.31 (step {s})", "lr decayed",
           "GPU mem 61.2 / 80.0 GB", "shuffling 51200 examples", "eval in 3 steps", "sample 1: once upon a time"],
    layouts=[one_line, loss_last, *one_a_line, evaluated_between, epochs_with_both, wide_table, latex_table, keyed_lines,
             tab_rows, objects_with_noise],
    wraps=[*PLAIN, crlf, packed, cell, captured, followed, fenced],
    counted=(*one_a_line, evaluated_between, epochs_with_both),
    bare=(wide_table, latex_table, keyed_lines, tab_rows, objects_with_noise),
)  # fmt: skip
