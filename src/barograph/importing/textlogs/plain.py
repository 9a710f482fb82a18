"""Whatever else says a step and a loss on one line.

In:   `step 100 loss=0.52`, `Epoch 3 | loss: 0.5 | acc 0.91`, `[Epoch 1/10][Batch 5/100] loss 0.4 lr 1e-3`,
      `iter=5 train_loss=…`, `Epoch: [2][100/5005] Loss 1.23 (1.30)`, `Validation: epoch 3, loss 0.61`.
Out:  names as written, with "val" or "test" before them on a line about that. Steps as written; of an epoch and a
      batch, the batches of the epochs before are added; lines that say only an epoch have x = "epoch".

A line counts if it says a step, an iteration, a batch or an epoch, and at least one known measure (loss, accuracy,
perplexity, a rate, a norm …) with a number. A line with a loss or an accuracy and no step has that of the line above
it that says one, such as `Epoch 3 of 20`; where many such lines stand below one, or none says any, they are numbered.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.source import ImportedPoints, Item
from barograph.importing.textlogs import (
    agents,
    anew,
    averaged,
    below,
    carried,
    classes,
    columns,
    counting,
    drawn,
    engine,
    forms,
    headings,
    heldout,
    listed,
    measures,
    not_numbers,
    objects,
    pairs,
    paragraphs,
    plain_lines,
    prefixes,
    programs,
    rates,
    relaunched,
    repeated,
    rounded,
    several,
    tallies,
    trials,
    uncounted,
    wrapped,
)

_HINTS = (  # every row has one of these in it
    "tep;TEP;poch;POCH;ter;ITER;atch;pdate;upd;Upd;UPD;it ;riterion;bce;auc;-error;-merror;ndcg;"
    "cross_ent;Acc;uber;erlust;perte;Perte;rdida;perd;Perd;chritt;aso ;asso ;tape ;poque;poca;poka;it:;"
    "it=;s=;ep ;%|;Train: ;oss;ost;bjective;acc;nll;ppl;erplexity;ntropy;xent;Xent;ce;CE;xe;XE;bpb;"
    "bpc; rate,;Score;ing error;ACC;ound ;OUND ;pisode ;l_t;L_t;NLL;LOSS;PPL;eward;mse;MSE;mae;MAE;msle;MSLE;mape;MAPE;"
    "Rew;obj=;ad_norm;ad norm;nt norm;strat;erlies;rlust;ehler;osten;osto;rreur;Trin ;J(;f(x);"
    " L=; L =;i =;k =;n =;L:; E =;损;損;손실;отер;误差;誤差;오차;шибка;轮;步;エポ;에포크;에폭;поха;Шаг;шаг;ayıp;aybı;"
    "PSNR;psnr;SSIM;ssim;LPIPS;lpips;FID;fid;dice;Dice;DICE;IoU;iou;IOU;ean IU;accard;HD95;hd95;recision;ecall;"
    "NDCG;MRR;mrr;AUROC;auroc;AUPRC;auprc;DSC;dsc;Top-;Top1;Top5;top1;top5;top-1;AUC;appa;F1;f1;chrf;chrF;"
    "lr;LR;earning ;earning_;WER;wer;CER;cer:;cer ;cer=;EER;BLEU;leu;rror rate;rror Rate;xact;viance;ELBO;tion score;"
    "progress: (;rain error;tion error;est error;率;% (;%) ;t mát;трат;oût;비용;로스;代价;ℒ; --;----;====;****"
)
_UNIT = expression(rb"(?<=\d)(it/s|s/it) {1,4}(?=[A-Za-z_][\w./-]{0,60}\s?[:=] ?[-\d])")  # of a bar, and a name
_MAY_COUNT = ("_lead", "_first:", "_seen:")  # names of numbers that are a step if they rise
_STRAYS = 4  # times more rows have an epoch alone: those with a step are strays


def _of_data_held_out(name: str) -> bool:
    found = heldout.PHASE.match(name.encode())
    return found is not None and heldout.phase_of(found) != ""


class Plain(engine.Dialect):
    kind = "plain"
    about = "any line with a step and a loss"
    hints = tuple(_HINTS.encode().split(b";"))
    shapes = (forms.Lines(plain_lines.row),)
    last_resort = True
    bare = True
    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "Loss": "train/loss",
        "acc": "train/accuracy",
        "accuracy": "train/accuracy",
        "ppl": "train/perplexity",
        "val loss": "eval/loss",
        "val Loss": "eval/loss",
        "val acc": "eval/accuracy",
        "val accuracy": "eval/accuracy",
        "val ppl": "eval/perplexity",
        "test loss": "test/loss",
        "test acc": "test/accuracy",
        "ms/iter": "train/duration_ms",
        "ms/step": "train/duration_ms",
        "s/it": ("train/duration_ms", 1000.0),
        **dict.fromkeys(("tok/s", "tokens/s"), "train/tokens_per_second"),
        "L.r": "train/lr",
    }

    def prepare(self, text: bytes, own: dict[str, Any]) -> bytes:
        text = averaged.stats(several.headed(several.with_steps(not_numbers.spelled_out(text), own)), own)
        text = text.replace(b"=, ", b"=") if b"=, " in text else text  # of a bar: `loss=, 2.3`
        text = _UNIT.sub(rb"\1, ", text) if b"it/s " in text or b"s/it " in text else text
        text = wrapped.on_one_line(trials.named(text, own), own)
        text = listed.named(rounded.spread(drawn.with_epochs(text, own), own))
        text = pairs.names_as_words(objects.on_one_line(below.named(text, own), own))
        return headings.said_below(columns.said_in_rows(classes.named(text, own), own), own)

    def rows_of(self, lines: list[bytes], picks: list[int], own: dict[str, Any]) -> tuple[list[forms.Raw], list[int]]:
        """Rows that say an accuracy or scores alone, and no step, are rows where others say a step."""
        rows, left = super().rows_of(lines, picks, own)
        if own.get("steps") or own.get("above") or any(name[0] == "_" for row in rows for name in row.names):
            return rows, left
        bare = [
            row
            for row in rows
            if (all(map(measures.ACCURACY.fullmatch, row.names)) and b"Acc" in lines[row.where[0]])
            or all(map(measures.SCORE.fullmatch, row.names))
        ]
        if not bare:
            return rows, left
        return [row for row in rows if all(row is not one for one in bare)], left + [
            at for row in bare for at in row.where.tolist()
        ]

    def hold(self, text: bytes) -> int:
        return objects.unfinished(text) or paragraphs.unfinished(text)

    def counted(self, lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
        """Rows with what counts among their numbers."""
        rows = counting.told_apart(rows, own)
        rows = _begun(lines, [row for row in rows if not _is_tally(lines, row)])
        rows = carried.bars_once(lines, rows, own)
        rows = counting.beside_bests(counting.not_planned(rows, own), own)
        rows = counting.of_evaluators(counting.losses_by_course(rows, own), own)
        rows = counting.in_stages(counting.settled(self.leads(lines, rows, own), own), own)
        rows = counting.of_shorter_bars(repeated.evaluations(counting.of_other_lengths(rows, own), own), own)
        rows = counting.lasts_of_evaluations(rows)
        rows = uncounted.of_epochs(rows, own)
        many = uncounted.many_an_epoch(rows, own)
        return [
            uncounted.without_count(row, own, many) for row in rows if not (own.get("second") and "_drawn" in row.names)
        ]

    def place(self, lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any], ahead: bytes) -> list[forms.Raw]:
        """A step for each row, out of its step, batch and epoch, or of those of the line above it."""
        relaunched.opened(lines, own)
        rows = self.counted(lines, rows, own)
        order = sorted(
            (int(index), number, at) for number, row in enumerate(rows) for at, index in enumerate(row.where)
        )
        counts = [{name: row.columns[at] for at, name in enumerate(row.names) if name[0] == "_"} for row in rows]
        values = [frozenset(name for name in row.names if name[0] != "_") for row in rows]
        # a step, or ["epoch", n], for each row; the bare ones: that of the line above
        steps: list[list[Any]] = [[None] * len(row.where) for row in rows]
        heads: list[list[int]] = [[-1] * len(row.where) for row in rows]  # the line that says it
        head = -1
        above, named = own.get("above"), frozenset[str]()
        again, early = set[int](), list[tuple[int, int]]()
        stepped = sum(
            len(row.where) for row, count in zip(rows, counts, strict=True) if "_step" in count or "_batch" in count
        )
        by_epoch = sum(
            len(row.where)
            for row, count in zip(rows, counts, strict=True)
            if list(count) == ["_epoch"] or (not count and "\n".join(row.names) in own.get("numbers", ()))
        )
        if "below" not in own:
            _find_order(order, counts, values, own)
        if "anew" not in own and stepped:
            own["anew"] = anew.begins(order, rows, counts, values)
        stray = "steps" not in own and _STRAYS * stepped < by_epoch
        waiting = list[tuple[int, int]]()  # rows without a step behind the last line that says one
        for _, number, at in order:
            now = {name: tallies.whole(column[at]) for name, column in counts[number].items() if column[at] != b""}
            if now:
                head = int(rows[number].where[at])
                over = not values[number] and ((now.pop("_over", 0) and not own.get("ahead")) or own.get("below"))
                found_step = self.step(now, own, bool(values[number]), rows[number].main)
                if found_step is not None and "_aside" not in now:
                    own["now"] = found_step
                if found_step is not None or stray or not isinstance(above, int):
                    above = ["epoch", now["_epoch"]] if found_step is None else found_step
                named = frozenset[str]() if stray else values[number]
                steps[number][at] = ["epoch", now["_epoch"]] if found_step is None else above
                if found_step is None and over:  # what stands above it is this epoch's
                    for other, place in waiting:
                        if not isinstance(steps[other][place], int):
                            steps[other][place] = ["epoch", now["_epoch"]]
                    above = ["epoch", now["_epoch"] + (own.get("begun") != now["_epoch"])]
                elif found_step is None:
                    own["begun"] = now["_epoch"]
                waiting.clear()
            elif values[number] <= named:
                again.add(int(rows[number].where[at]))  # the same is said again
            else:
                steps[number][at], heads[number][at] = above, head
                waiting.append((number, at))
                early += [(number, at)] if above is None else []
                own["between"] = True
                own["steps"] = own.get("steps") or isinstance(above, int)
        for number, at in early:
            steps[number][at] = steps[number][at] or _before(steps[number])
        own["above"] = above
        own["per_step"] = sorted(
            {*own.get("per_step", ()), *(name for count, names in zip(counts, values, strict=True)
                                         if "_step" in count or "_batch" in count for name in names)}
        )[:200]  # fmt: skip
        if stray:
            own.pop("steps", None)
        placed = self.put(lines, rows, steps, counts, heads, again, own)
        axis = agents.axis_of(lines, rows, own)
        return [row._replace(x=axis) if row.x == "step" else row for row in placed]

    def put(
        self,
        lines: list[bytes],
        rows: list[forms.Raw],
        steps: list[list[Any]],
        counts: list[dict[str, Any]],
        heads: list[list[int]],
        again: set[int],
        own: dict[str, Any],
    ) -> list[forms.Raw]:
        """Rows at the steps that were found for them; `dropped` are the lines for which there is none."""
        dropped = list[int]()
        placed: list[forms.Raw] = []
        several = any(numbered for numbered in own.get("numbers", {}).values())  # rows of training in an epoch
        for row, found, count, said in sorted(
            zip(rows, steps, counts, heads, strict=True), key=lambda item: not item[0].main
        ):
            kept = [at for at, name in enumerate(row.names) if name[0] != "_"]
            if not kept or (rates.are_alone(row.names) and all(step is None for step in found)):
                continue
            row = row._replace(names=tuple(row.names[at] for at in kept), columns=[row.columns[at] for at in kept])
            if not count and own.get("beside"):
                placed.append(row._replace(steps=None, main=False))
                continue
            scores = rates.are_alone(row.names) or all(map(measures.SCORE.fullmatch, row.names))  # below one epoch
            scores &= not count and any(step is not None for step in found)
            if not count and not scores and not self.has_own(row, found, said, own):
                numbered = uncounted.numbered(row, own, not any(counts), relaunched.places(lines, own))
                several |= bool(numbered) and row.main
                placed += numbered
                dropped += [] if numbered else [index for index in row.where.tolist() if index not in again]
                continue
            for counted in (True, False):
                picks = [at for at, step in enumerate(found) if step is not None and isinstance(step, int) is counted]
                if not picks:
                    continue
                part = forms.picked(row, picks)
                if counted:
                    part = part._replace(steps=[found[at] for at in picks])
                    placed.append(carried.evaluations_once(part, own))
                elif (
                    own.get("steps") or own.get("often") or (not row.main and several)
                ):  # means of an epoch, between rows that count steps
                    names = tuple(
                        f"epoch {name}" if name in own["per_step"] and not _of_data_held_out(name) else name
                        for name in part.names
                    )
                    axis = part.x if own.get("steps") else "row"
                    placed.append(part._replace(names=names, steps=None, main=False, x=axis))
                else:
                    placed.append(part._replace(steps=[found[at][1] for at in picks], x="epoch"))
        own["dropped"] = dropped
        return placed

    @staticmethod
    def leads(lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
        """A number ahead of a row without a step is its step if it rises from row to row, else a value or nothing."""
        known = own.setdefault("leads", {})
        stepped = sum(len(row.where) for row in rows if "_step" in row.names or "_batch" in row.names)
        result = []
        for row in rows:
            at = next((at for at, name in enumerate(row.names) if name.startswith(_MAY_COUNT)), None)
            if at is None:
                result.append(row)
                continue
            said = [one for one, index in enumerate(row.where) if not programs.announces_best(lines[max(index - 1, 0)])]
            row = forms.picked(row, said) if 0 < len(said) < len(row.where) else row
            key, name = "\n".join(row.names), row.names[at].partition(":")[2]
            if key not in known:
                numbers = _once([tallies.whole(row.columns[at][one]) for one in _of_one_rank(lines, row)])
                rising = sum(late > early for early, late in itertools.pairwise(numbers))
                enough = 2 if name else 1
                other = (own.get("steps") or _STRAYS * stepped >= len(row.where)) and not counting.is_said_above(
                    row, rows
                )
                found = not other and rising >= enough and rising >= 0.9 * (len(numbers) - 1)
                if len(known) < 100 and len(numbers) > 8:
                    known[key] = found
            else:
                found = known[key]
            renamed = "_step" if found else name
            if found and row.names[at].startswith("_seen"):
                own["axis"] = name
            names = (*row.names[:at], *([renamed] if renamed else []), *row.names[at + 1 :])
            columns = [column for place, column in enumerate(row.columns) if place != at or renamed]
            result.append(row._replace(names=names, columns=columns))
        return result

    @staticmethod
    def has_own(row: forms.Raw, above: list[Any], said: list[int], own: dict[str, Any]) -> bool:
        """Whether rows without a step have each a line above them that says one."""
        key, numbers = "\n".join(row.names), own.setdefault("numbers", {})
        different = sum(step is not None for step, _ in itertools.groupby(above))
        rows = len(list(itertools.groupby(zip(above, *row.columns, strict=True))))  # several ranks print the same
        below = [len(list(group)) for line, group in itertools.groupby(said) if line >= 0]
        # before and after: the first one is the row
        alike = different > counting.ENOUGH and set(below) == {2} and not own.get("per_step")
        if key not in numbers and not alike and (different < uncounted.OWN_HEADING * rows or not different):
            if len(above) < uncounted.NUMBERED and not own.get("steps") and len(numbers) < 100:
                return bool(different)
            numbers[key] = 0
        return key not in numbers

    def refine(self, points: ImportedPoints, own: dict[str, Any], segment: int) -> Iterator[Item]:
        if points.x == "row" and not own.get("told"):
            own["told"] = True
            yield engine.note(points, "These lines say no step: rows are numbered 1, 2, 3.")
        yield points

    @staticmethod
    def step(said: dict[str, int], own: dict[str, Any], valued: bool, main: bool) -> int | None:
        """A row's step; None if it says an epoch alone. valued: it has values, and is not a heading. main: it is about
        training."""
        between, own["between"] = own.get("between"), "_batches" not in said
        spoken = said
        if "_batch" not in said and "_step" not in said:
            if not valued:
                own["headed"] = said["_epoch"]
            elif own.get("anew") == ("training" if main else "held out"):  # the steps below begin anew
                own["base"], own["count"] = int(own.get("base", 0)) + int(own.get("count", 0)), 0
            return None
        if "_aside" in said and "now" in own:
            return int(own["now"])
        if valued:
            own["steps"] = True
        count = said["_batch"] if "_batch" in said else said["_step"]
        epoch = said.get("_epoch")
        if epoch is None and (valued or ("_batch" in said and not said.get("_batches"))):
            epoch = own.get("headed")
            if epoch is None and valued and not said.get("_batches"):
                own["epoch"], own["count"] = -1, count
                if own.get("anew") and main:
                    own["base"] = int(own.get("base", 0)) + (count == 0 < own.get("base", 0))
                    return int(own.get("base", 0)) + count
            elif epoch is not None:
                said = {"_batch": count, **said}
        if epoch is None and said.get("_batches"):
            # bars of one length, one after the other, are epochs; one that was left in its middle was broken off
            length, last = said["_batches"], int(own.get("bar", 0))
            if length < own.setdefault("length", length):
                return int(own["now"]) if "now" in own else count  # a shorter one between them is an evaluation
            if count < last or (between and count == last == length):  # another one, or full anew
                own["base"] = int(own.get("base", 0)) + int(own["length"]) if last >= 0.8 * own["length"] else 0
            own["bar"], own["length"] = count, length
            return int(own.get("base", 0)) + count
        if epoch is None or "_batch" not in said:
            return count
        first = own.setdefault("first_epoch", epoch)
        if said.get("_batches") and "_epoch" not in spoken and main and _goes_on(own, epoch, count, said["_batches"]):
            return count
        if said.get("_batches"):
            return _behind(own, epoch, said["_batches"], main) + count if epoch >= first else count
        if not valued and epoch == own.get("epoch") and count < own.get("count", 0):
            return int(own.get("bases", {}).get(str(epoch), 0)) + count  # a heading of something else, such as a test
        if valued and not main and epoch == own.get("epoch") and count < own.get("count", 0) and "now" in own:
            return int(own["now"])  # an evaluation counts its own batches
        # no length is said: a count that falls as the epoch rises begins anew, behind the last one
        bases, last = own.setdefault("bases", {}), own.get("epoch", epoch)
        base = int(bases.get(str(last), 0))
        # a row that says no epoch may stand between
        falls = epoch > last and count <= own.get("count", 0) and (last >= 0 or own.get("said") != epoch)
        own["said"] = epoch
        if epoch > last and said.get("_of") and (falls or own.get("of_epoch")):
            own["of_epoch"] = True  # the length is the epoch's
            base += (epoch - last) * said["_of"]
        elif falls:
            base += int(own["count"]) + (count == 0)
        elif epoch < last:
            base = int(bases.get(str(epoch), base))
        if len(bases) < 10_000:
            bases[str(epoch)] = base
        own["epoch"], own["count"] = epoch, count
        return base + count


def _find_order(
    order: list[tuple[int, int, int]], counts: list[Any], values: list[frozenset[str]], own: dict[str, Any]
) -> None:
    """Whether epochs are printed below their values: ahead of the first one stands all that stands between two others,
    and nothing behind the last one."""
    groups: list[set[str]] = [set()]
    for _, number, at in order:
        count = {name for name, column in counts[number].items() if column[at] != b""}
        if not count:
            groups[-1] |= values[number] - {rates.NAME}
        elif count - {"_over"} == {"_epoch"} and not values[number]:
            groups.append(set())
        elif count & {"_step", "_batch"}:
            own["below"] = False  # steps count
            return
    if len(groups) > counting.ENOUGH:
        first, *between, last = groups
        own["below"] = bool(first) and not last and all(names == first for names in between)
        own["ahead"] = not first and bool(last) and all(names == last for names in between)
    elif len(groups) > 2 and own.get("above") is None:  # a file's first two epochs, or three
        own["ahead"] = not groups[0] and bool(groups[-1]) and all(names == groups[-1] for names in groups[1:-1])


def _of_one_rank(lines: list[bytes], row: forms.Raw) -> list[int]:
    """Which of some rows are those of the first one's rank."""
    ranks = [prefixes.rank(lines[index][:start]) for index, start in zip(row.where, row.starts, strict=True)]
    return [at for at, rank in enumerate(ranks) if rank == ranks[0]]


def _once(numbers: list[int]) -> list[int]:
    """Numbers that several processes print one after the other, once each: they come as often, and count in hundreds.

    An epoch that several rows say goes up by one.
    """
    groups = [(number, len(list(same))) for number, same in itertools.groupby(numbers)]
    often = max(times for _, times in groups) if groups else 1
    whole = sum(times == often for _, times in groups) >= len(groups) - 2  # the first and the last may be cut
    far = all(late - early > 1 for (early, _), (late, _) in itertools.pairwise(groups))
    return [number for number, _ in groups] if often > 1 and whole and far and len(groups) > 2 else numbers


def _goes_on(own: dict[str, Any], epoch: int, count: int, length: int) -> bool:
    """Whether a bar below a heading of an epoch counts on where it stood below the last one: it is the whole run's."""
    before = own.get("bar_of_run")
    own["bar_of_run"] = [epoch, count, length, bool(before and before[3])]
    if before is None or length != before[2] or count < before[1]:
        own["bar_of_run"][3] = False
    elif epoch > before[0] and count > before[1]:
        own["bar_of_run"][3] = True
    return bool(own["bar_of_run"][3])


def _behind(own: dict[str, Any], epoch: int, length: int, main: bool) -> int:
    """The batches of the epochs before, which may have been longer or shorter: another batch size, more data."""
    last, base, before = own.get("along") or (epoch, (epoch - own["first_epoch"]) * length, length)
    if epoch > last:
        base += (epoch - last) * before
    elif epoch < last:
        base = (epoch - own["first_epoch"]) * length
    if main:
        own["along"] = [epoch, base, length]
    return int(base)


def _is_tally(lines: list[bytes], row: forms.Raw) -> bool:
    """Whether rows count rounds and whole numbers of losses: games, or packets."""
    losses = [
        column for name, column in zip(row.names, row.columns, strict=True) if name.lower().endswith(("loss", "losses"))
    ]
    whole = losses and all(isinstance(text, bytes) and text.isdigit() for column in losses for text in column)
    return bool(whole and tallies.ROUND.search(line := lines[row.where[0]]) and not tallies.STEP.search(line))


def _begun(lines: list[bytes], rows: list[forms.Raw]) -> list[forms.Raw]:
    """Rows without those of bars that have counted nothing yet, where others have: the value comes again beside the
    first count."""
    counts = [row.columns[row.names.index("_batch")] if "_batches" in row.names else () for row in rows]
    if not any(count != b"0" for column in counts for count in column):
        return rows
    result = []
    for row, column in zip(rows, counts, strict=True):
        kept = [at for at, count in enumerate(column) if count != b"0" or b"<?," not in lines[row.where[at]]]
        if len(kept) == len(column):
            result.append(row)
        elif kept:
            result.append(forms.picked(row, kept))
    return result


def _before(found: list[Any]) -> Any:
    """The step of a row ahead of the first heading, if it is the only one: as far before the next row as that is
    before the one behind it."""
    if found.count(None) != 1:
        return None
    later = [step for step in found if step is not None]
    numbers = [step if isinstance(step, int) else step[1] for step in later]
    gap = next((number - numbers[0] for number in numbers if number != numbers[0]), 1) if numbers else 0
    first = numbers[0] - gap if gap > 0 else 0
    return None if first < 1 else first if isinstance(later[0], int) else ["epoch", first]


SOURCE = Plain()
