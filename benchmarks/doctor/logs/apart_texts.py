"""Texts full of numbers that are not of a training: the half of the second set that is put away.

In:   a random generator, the number of the case within its family.
Out:  a `Case`. There is nothing to say of any of them.
"""

from __future__ import annotations

from numpy.random import Generator

from logs.case import Case, Family, no_training
from logs.curves import noise
from logs.text import clock


def built_program(dice: Generator, number: int) -> Case:
    """A program that is compiled: shares of the whole, sizes, warnings."""
    lines = []
    for at in range(120):
        lines.append(f"[{at * 100 // 120:3d}%] Building CXX object src/loss/CMakeFiles/loss.dir/kernel_{at}.cpp.o")
        if at % 9 == 0:
            lines.append(
                f"/src/loss/kernel_{at}.cpp:{dice.integers(9, 900)}:17: warning: loss of precision in step {at}"
            )
    return no_training([*lines, "make: *** finished in 312.4 s"])


def pods(dice: Generator, number: int) -> Case:
    """Events of a cluster: restarts, ages, memory, readiness."""
    lines = ["NAME                 READY   STATUS    RESTARTS   AGE     CPU    MEMORY"]
    lines += [
        f"trainer-{at:04x}-worker-{at % 8}   1/1     Running   {dice.integers(0, 4)}          {at}h     "
        f"{dice.integers(100, 9000)}m   {dice.integers(1, 60)}Gi"
        for at in range(40)
    ]
    lines += [
        f"{at}m  Warning  BackOff  pod/trainer-{at} Back-off restarting failed container (x{at})" for at in range(9)
    ]
    return no_training(lines)


def transactions(dice: Generator, number: int) -> Case:
    """A database that is measured: progress each five seconds."""
    lines = ["pgbench (16.2)", "starting vacuum...end."]
    lines += [
        f"progress: {5 * at}.0 s, {9000 + 400 * float(dice.normal()):.1f} tps, lat {dice.uniform(1, 3):.3f} ms "
        f"stddev {dice.uniform(0.2, 1):.3f}, 0 failed"
        for at in range(1, 120)
    ]
    return no_training([*lines, "number of transactions actually processed: 5374210"])


def echoes(dice: Generator, number: int) -> Case:
    """Packets and what is lost of them."""
    lines = ["PING node7 (10.0.0.7) 56(84) bytes of data."]
    for at in range(1, 200):
        took = 0.3 + abs(0.2 * float(dice.normal()))
        lines.append(f"64 bytes from node7 (10.0.0.7): icmp_seq={at} ttl=64 time={took:.3f} ms")
        if at % 50 == 0:
            lines.append(f"--- step {at // 50}: {at} packets transmitted, loss {dice.integers(0, 4)}% ---")
    return no_training([*lines, "199 packets transmitted, 199 received, 0% packet loss, time 198312ms"])


def encoded_film(dice: Generator, number: int) -> Case:
    """Frames that are encoded, drawn over one another."""
    drawn = "\r".join(
        f"frame={at * 25:5d} fps={dice.uniform(20, 90):.0f} q={dice.uniform(20, 30):.1f} size={at * 256:8d}kB "
        f"time=00:{at // 60:02d}:{at % 60:02d}.00 bitrate={dice.uniform(900, 2500):.1f}kbits/s speed={1.2:.2f}x"
        for at in range(150)
    )
    return no_training([drawn, "video:8123kB audio:812kB muxing overhead: 0.41%"])


def searched_settings(dice: Generator, number: int) -> Case:
    """What a search has tried: a row a trial, with its settings, its loss and the best one."""
    lines = ["trial,learning_rate,layers,dropout,val_loss,seconds"]
    lines += [
        f"{at},{10 ** dice.uniform(-5, -2):.2e},{dice.integers(2, 12)},{dice.uniform(0, 0.5):.2f},"
        f"{dice.uniform(0.3, 2.5):.4f},{dice.integers(30, 900)}"
        for at in range(40)
    ]
    return no_training(lines, "words_table")


def insured(dice: Generator, number: int) -> Case:
    """A table of an insurer: years, premiums, losses and their ratio."""
    lines = ["year,region,premium,loss,loss_ratio,claims"]
    lines += [
        f"{1990 + at},{('north', 'south', 'east')[at % 3]},{dice.integers(900, 4000)},{dice.integers(300, 3000)},"
        f"{dice.uniform(0.3, 1.1):.3f},{dice.integers(10, 900)}"
        for at in range(30)
    ]
    return no_training(lines, "words_table")


def traded(dice: Generator, number: int) -> Case:
    """Trades, their profit and loss, what is left."""
    left = 10_000 + 120 * noise(dice, 120, 0.99).cumsum() / 10
    lines = [
        f"2025-03-{1 + at // 6:02d} {clock(at * 700)} BUY 0.{dice.integers(1, 9)} @ {dice.uniform(90, 110):.2f} "
        f"profit/loss: {80 * float(dice.normal()):+.2f} balance: {left[at]:.2f}"
        for at in range(120)
    ]
    return no_training(lines)


def how_to_train(dice: Generator, number: int) -> Case:
    """A page about a training program: commands, defaults, what to expect, three lines of an example."""
    lines = ["# Training", "", "```", "python train.py --lr 3e-4 --max-steps 600000", "```", "",
             "After some hours you should see a loss of about 2.85:", "", "```",
             f"step 0: train loss 10.9{dice.integers(9)}, val loss 10.9{dice.integers(9)}", "...", "```", "",
             "| Setting | Default | Meaning |", "|---|---|---|", "| `lr` | 6e-4 | the peak |",
             "| `eval_interval` | 2000 | steps between |", "| `loss_scale` | 65536 | of float16 |"]  # fmt: skip
    return no_training(lines, "words_page")


FAMILIES: tuple[Family, ...] = (
    built_program, pods, transactions, echoes, encoded_film, searched_settings, insured, traded, how_to_train,
)  # fmt: skip
