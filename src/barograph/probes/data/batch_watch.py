"""What the batches were like: tokens seen, padding, lengths, epochs, and whether a batch came again.

In:   each batch of a training, as the loop has it: `watch.observe(batch)`.
Out:  records of kind `data`, one warning when a batch comes again, and a state for the checkpoint's metadata that
      finds a replay after a resume.

A batch on a device is read there; its figures are recorded by a later call, when they have arrived. Figures are this
rank's own, times `ranks` where that is given.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barograph.probes.data import batches
from barograph.probes.data.batches import MeasuredBatch, PendingBatch
from barograph.probes.data.fingerprints import BatchWindow, SeenBatches, SeenRows
from barograph.probes.recording import Recording

_ROWS_READ = 256  # of one batch: more would cost the loop time
_QUEUED = 1024  # batches whose figures are still on a device


class LoaderState(NamedTuple):
    """Where a data loader of Parquet files stands [the picoLLM run analysis]."""

    pq_idx: int = 0  # file
    rg_idx: int = 0  # row group within it
    epoch: int = 0


class _Waiting(NamedTuple):
    """One batch on its way to a record."""

    step: int
    tokens: int | None
    lengths: Sequence[int] | None
    epoch: float | None
    position: dict[str, Any] | None
    measured: MeasuredBatch | PendingBatch


class DataWatch:
    """Watches the batches of one run on one rank. Its calls never raise, and never wait for a device.

    pad_id: the id that fills rows up; needed for padding where the batch has no attention mask. Only runs of it
    at a row's ends count, since some tokenizers end documents with the same id.
    window: different batches that are remembered, to find repeats.
    fingerprint: whether batches are compared at all.
    every: record every `every` steps; what lies between is in the next record.
    ranks: ranks that see the same number of tokens each, for `tokens_seen` of the whole run; 1 counts this rank's.
    ignore_id: the label that the loss leaves out (-100 in torch's cross entropy).
    """

    def __init__(
        self,
        run: Recording,
        *,
        pad_id: int | None = None,
        window: int = 4096,
        fingerprint: bool = True,
        every: int = 1,
        ranks: int = 1,
        ignore_id: int = -100,
    ):
        self.tokens_seen = 0
        self.last_fingerprint: int | None = None  # of the batch read last
        self.last_labels = 0  # what tells the labels of its rows; 0 where nothing does
        self.last_step: int | None = None  # its step
        self.repeats = 0  # batches that came again within an epoch
        self._run = run
        self._pad_id, self._ignore_id = pad_id, ignore_id
        self._compare = fingerprint
        self._every, self._ranks = max(1, every), max(1, ranks)
        self._window = BatchWindow(window)
        self._rows = SeenRows()
        self._waiting: deque[_Waiting] = deque()
        self._current: _Gathered | None = None
        self._epoch: int | None = None
        self._step = -1
        self._recorded = 0  # steps since the last record
        self._restored_at: int | None = None
        self._lock = threading.RLock()
        run.at_finish.append(self.flush)

    def observe(
        self,
        batch: Any,
        step: int | None = None,
        tokens: int | None = None,
        lengths: Any = None,
        epoch: float | None = None,
        position: Mapping[str, Any] | LoaderState | None = None,
    ) -> None:
        """Look at one batch (a micro-batch is one: those of a step are added up). Microseconds.

        batch: token ids as a tensor or array (rows × columns, any integer type), a mapping with `input_ids`,
        `attention_mask` and `labels`, a pair (inputs, targets), or nested lists of ids.
        step: the optimizer step that it is for; the run's current one if not given.
        tokens: how many it holds, if that is not what its padding says.
        lengths: of the documents in it, where rows are packed.
        epoch: the pass over the data; a batch that comes again in another epoch is not a fault.
        position: the loader's state, such as {pq_idx, rg_idx, epoch} [the picoLLM run analysis].
        """
        try:
            step = self._run.current_step if step is None else int(step)
            parts = batches.find(batch, labelled=self._run.world_size > 1)
            if parts is None:
                self._run.warn(
                    f"no token ids were found in a batch ({type(batch).__name__}); give observe the tensor or array "
                    "of ids, or a mapping that has input_ids",
                    key="data batch",
                )
                return
            where = None
            if position is not None:
                where = position._asdict() if isinstance(position, LoaderState) else dict(position)
            if epoch is None and where is not None:
                epoch = where.get("epoch")
            sizes = None if lengths is None else [int(item) for item in _plain(lengths)]
            measured = batches.measure(parts, self._pad_id, self._ignore_id, self._compare)
            self._waiting.append(_Waiting(step, tokens, sizes, epoch, where, measured))
            if len(self._waiting) > _QUEUED:
                self._waiting.popleft()
                self._run.warn("the device lags 1,024 batches behind; figures of the oldest were left out", "data lag")
            self.poll()
        except Exception as error:
            self._failed(error)

    def poll(self) -> None:
        """Record what has arrived from the device. Any thread; returns at once where another is at it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            while self._waiting:
                first = self._waiting[0]
                if isinstance(first.measured, PendingBatch) and not first.measured.ready():
                    break
                self._waiting.popleft()
                found = first.measured.read() if isinstance(first.measured, PendingBatch) else first.measured
                self._account(first, found)
        except Exception as error:
            self._failed(error)
        finally:
            self._lock.release()

    def flush(self, timeout: float = 2.0) -> None:
        """Record everything observed so far, also the step that is not over. Waits for the device that long."""
        self._arrive(timeout)
        with self._lock:
            try:
                self._write()
            except Exception as error:
                self._failed(error)

    def _arrive(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        self.poll()
        while self._waiting and time.monotonic() < end:
            time.sleep(0.001)
            self.poll()

    # -- going on ------------------------------------------------------------------------------------

    def state(self, timeout: float = 1.0) -> dict[str, Any]:
        """What `restore` takes, fit for JSON: `run.save_checkpoint(path, step, data=watch.state())`.

        Some 50 kB for a full window of 4096 batches. Each rank has its own. Waits up to `timeout` seconds for
        figures that are still on the device.
        """
        self._arrive(timeout)
        with self._lock:
            return {
                "version": 1,
                "tokens_seen": self.tokens_seen,
                "step": self._step,
                "epoch": self._epoch,
                "window": self._window.state(),
            }

    def restore(self, state: Any) -> bool:
        """Go on from a `state`. False, with a warning, where it is damaged; the watch then starts afresh."""
        with self._lock:
            try:
                if not isinstance(state, Mapping) or state.get("version") != 1:
                    raise ValueError("it is not what state() gives")
                seen, step = int(state["tokens_seen"]), int(state["step"])
                self._window.restore(state["window"])
                self.tokens_seen, self._step, self._restored_at = seen, step, step
                self._epoch = None if state.get("epoch") is None else int(state["epoch"])
                return True
            except Exception as error:
                self._run.warn(
                    f"the data state of the checkpoint was not taken up ({type(error).__name__}: {error}); "
                    "tokens and repeats are counted from here on",
                    key="data state",
                )
                return False

    # -- one batch after the other, in order ---------------------------------------------------------

    def _account(self, item: _Waiting, batch: MeasuredBatch) -> None:
        if item.step != self._step:
            if item.step < self._step:
                self._rewind(item.step)
            elif self._current is not None:
                self._recorded += 1
                if self._recorded >= self._every:
                    self._write()
            self._step = item.step
        if self._current is None:
            self._current = _Gathered(item.step)
        gathered = self._current
        gathered.step = item.step
        tokens = gathered.add(item, batch)
        before = self.tokens_seen
        self.tokens_seen += tokens * self._ranks
        if item.epoch is not None:
            self._epoch = int(item.epoch)
        if self._compare:
            self.last_fingerprint, self.last_labels, self.last_step = batch.fingerprint, batch.marked, item.step
            self._look_for_repeats(gathered, batch, SeenBatches(item.step, self._epoch, before))

    def _look_for_repeats(self, gathered: _Gathered, batch: MeasuredBatch, seen: SeenBatches) -> None:
        gathered.fingerprint = batch.fingerprint
        earlier = self._window.see(batch.fingerprint, seen)
        marks = batch.rows[:_ROWS_READ].tolist()
        gathered.repeated_rows += self._rows.see(marks, seen.epoch)
        gathered.rows_read += len(marks)
        if earlier is None:
            return
        if earlier.epoch != seen.epoch:
            gathered.earlier_epoch += 1
            gathered.after.add(seen.step - earlier.step)
            return
        self.repeats += 1
        gathered.repeats += 1
        gathered.repeat_of = earlier.step
        self._run.warn(self._sentence(seen.step, earlier.step), key="repeated batch")

    def _sentence(self, step: int, earlier: int) -> str:
        if step == earlier:
            return (
                f"two batches of step {step} hold the same tokens: the micro-batches of a step should differ; "
                "take the next batch from the loader in each of them"
            )
        if self._restored_at is not None and earlier <= self._restored_at < step:
            return (
                f"the batch of step {step} is that of step {earlier}, from before the resume at step "
                f"{self._restored_at}: the data loader began anew; restore its position, or skip to where it was"
            )
        return (
            f"the batch of step {step} is that of step {earlier} again, in the same epoch: the loader repeats data; "
            "look at its sampler and its end of file, or give observe the epoch if a new one began"
        )

    def _rewind(self, step: int) -> None:
        """The run went back: what was seen at this step or later is seen anew."""
        self._write()
        before = self._window.forget_from(step)
        if before is not None:
            self.tokens_seen = before
        self._rows.clear()

    def _write(self) -> None:
        gathered, self._current, self._recorded = self._current, None, 0
        if gathered is None:
            return
        fields = gathered.fields()
        fields["tokens_seen"] = self.tokens_seen
        if self._compare:
            fields["repeats_total"] = self.repeats
        self._run.record("data", gathered.step, fields)

    def _failed(self, error: Exception) -> None:
        self._run.warn(
            f"the batches could not be read: {type(error).__name__}: {error}; data figures are missing",
            key=f"data {type(error).__name__}",
        )


class _Gathered:
    """The batches of one record."""

    def __init__(self, step: int):
        self.step = step
        self.batches = self.sequences = self.tokens = self.counted = self.size = self.labels = self.ignored = 0
        self.repeats = self.earlier_epoch = self.repeated_rows = self.rows_read = 0
        self.padding_known, self.has_tokens = True, False
        self.repeat_of: int | None = None
        self.after: set[int] = set()  # how many steps before batches came in an earlier epoch
        self.fingerprint: int | None = None
        self.epoch: float | None = None
        self.position: dict[str, Any] | None = None
        self.lengths: list[Any] = []
        self.classes: Counter[int] = Counter()  # labels of rows

    def add(self, item: _Waiting, batch: MeasuredBatch) -> int:
        """Take a batch up; the tokens it holds."""
        counted = sum(item.lengths) if item.lengths is not None else int(batch.lengths.sum())
        tokens = counted if item.tokens is None else int(item.tokens)
        self.batches += 1
        self.sequences += len(batch.rows) if item.lengths is None else len(item.lengths)
        self.tokens += tokens
        # a batch of floats has no tokens; where lengths are given, what they leave of the batch is padding
        known = batch.padding_known or item.lengths is not None
        self.padding_known = self.padding_known and known and len(batch.lengths) > 0 and counted <= batch.size
        self.size += batch.size
        self.counted += counted
        self.has_tokens = self.has_tokens or item.tokens is not None or not batch.is_float
        self.labels += batch.labels
        self.ignored += batch.ignored
        self.classes.update(dict(batch.classes))
        self.lengths.append(batch.lengths if item.lengths is None else item.lengths)
        self.epoch = item.epoch if item.epoch is not None else self.epoch
        self.position = item.position if item.position is not None else self.position
        return tokens

    def fields(self) -> dict[str, Any]:
        """The record's fields; what is not known is absent."""
        fields: dict[str, Any] = {"batches": self.batches, "sequences": self.sequences}
        if self.has_tokens:  # a batch of images has none
            fields["tokens"] = self.tokens
        if self.padding_known and self.size:
            fields["padding_share"] = round(1 - self.counted / self.size, 6)
        if self.labels:
            fields["ignored_share"] = round(self.ignored / self.labels, 6)
        if self.classes:
            fields["label_rows"] = self.classes.total()
            fields["label"], count = max(self.classes.items(), key=lambda one: (one[1], -one[0]))
            fields["label_share"] = round(count / self.classes.total(), 6)
        fields |= _spread(self.lengths)
        if self.epoch is not None:
            fields["epoch"] = self.epoch
        if self.position is not None:
            fields["position"] = self.position
        if self.fingerprint is not None:
            fields["fingerprint"] = f"{self.fingerprint:016x}"
            fields["repeats"] = self.repeats
            fields["repeated_rows_share"] = round(self.repeated_rows / self.rows_read, 6) if self.rows_read else 0.0
        if self.earlier_epoch:
            fields["repeats_of_earlier_epochs"] = self.earlier_epoch
        if len(self.after) == 1 and self.earlier_epoch == self.batches:
            fields["repeats_after"] = min(self.after)
        if self.repeat_of is not None:
            fields["repeat_of"] = self.repeat_of
        return fields


def _spread(lengths: list[Any]) -> dict[str, float]:
    """Minimum, mean, maximum, standard deviation (population) and 5th and 95th percentile of sequence lengths."""
    import numpy

    every = numpy.concatenate([numpy.asarray(length, numpy.int64) for length in lengths])  # a copy: it is sorted below
    if not every.size:
        return {}
    low, high = int(every.min()), int(every.max())
    if low == high:  # the ordinary case of packed rows
        spread = {"mean": float(low), "std": 0.0, "p5": float(low), "p95": float(low)}
    else:
        every.sort()
        p5, p95 = (_between(every, share * (len(every) - 1)) for share in (0.05, 0.95))
        spread = {"mean": float(every.mean()), "std": float(every.std()), "p5": p5, "p95": p95}
    return {"length_min": low, "length_max": high} | {f"length_{name}": round(item, 3) for name, item in spread.items()}


def _between(ordered: Any, place: float) -> float:
    """A percentile as NumPy's default has it, a tenth of its time: linear between the two neighbours."""
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low]) + (place - low) * (float(ordered[high]) - float(ordered[low]))


def _plain(lengths: Any) -> Any:
    """Lengths as a list. Those on a device would have to be waited for."""
    if getattr(getattr(lengths, "device", None), "type", "cpu") != "cpu":
        raise TypeError("lengths are on a device; give them as a list or on the CPU")
    return lengths.tolist() if hasattr(lengths, "tolist") else lengths
