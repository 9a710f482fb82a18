"""What is in a batch: its token ids, which of them are padding, which labels don't count.

In:   a batch as loaders give it: an array or tensor of ids, a mapping of Hugging Face's names, a pair
      (inputs, targets), lists of rows; on any device.
Out:  a `MeasuredBatch`: weighted sums for the fingerprint, length of each row, ignored labels; at once for what is in
      host memory, and for what is on a device when its copy has arrived, without waiting for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from barograph.core.values import DeviceValues
from barograph.probes.data import fingerprints, labels
from barograph.probes.memory.storages import is_tensor

TOKENS = ("input_ids", "tokens", "inputs", "input", "ids", "idx", "x")
LABELS = ("labels", "label", "targets", "target", "y")
MASK = ("attention_mask", "padding_mask", "mask")


class BatchParts(NamedTuple):
    """The arrays of a batch: `tokens` (rows, columns); `labels` and `mask` of any shape, or None."""

    tokens: Any
    labels: Any = None
    mask: Any = None
    lengths: tuple[int, ...] | None = None  # known from the batch itself: ragged lists
    of_rows: tuple[Any, ...] = ()  # whole numbers, one a row


class MeasuredBatch(NamedTuple):
    """What a batch holds. `lengths`: tokens of each row that are not padding; `padding_known`: or just its columns."""

    fingerprint: int
    rows: Any  # uint64, a fingerprint a row
    lengths: Any  # int64, one a row; empty for float batches, which have no tokens
    size: int  # token positions: rows × columns
    padding_known: bool
    labels: int  # labels there are
    ignored: int  # of them, those that the loss leaves out
    is_float: bool  # images and the like: no tokens
    marked: int = 0  # what tells the labels of its rows; 0 where nothing does
    classes: tuple[tuple[int, int], ...] = ()  # labels of its rows that are whole numbers, one a row, and how many each


def find(batch: Any, labelled: bool = False) -> BatchParts | None:
    """The arrays in a batch, or None where there are none. The first array found is taken for the tokens. labelled:
    whether labels of rows are looked for, which other ranks may have as well."""
    named: dict[str, Any] = {}
    if isinstance(batch, Mapping):
        named = {str(name).lower(): value for name, value in batch.items()}
    elif isinstance(batch, (list, tuple)) and _is_pair(batch):
        named = dict(zip(("tokens", "labels"), batch, strict=True))
    tokens = next((named[name] for name in TOKENS if _is_array(named.get(name))), None)
    if tokens is None:
        ragged = _ragged(next((named[name] for name in TOKENS if name in named), batch))
        if ragged is not None:
            return ragged
        tokens = next(_arrays(batch), None)
    if tokens is None:
        return None
    count = int(tokens.shape[0]) if labelled and len(tokens.shape) > 1 else 0
    of_rows = tuple(labels.find(batch, count, _device(tokens))) if count else ()
    wanted = next((named[name] for name in LABELS if _is_array(named.get(name))), None)
    mask = next((named[name] for name in MASK if _is_array(named.get(name))), None)
    rows = _as_rows(_local(tokens))
    if mask is not None:
        mask = _as_rows(_local(mask))
        if tuple(mask.shape) != tuple(rows.shape):  # a mask of pairs (causal, 4-dimensional) says nothing of padding
            mask = None
    return BatchParts(rows, None if wanted is None else _local(wanted), mask, of_rows=of_rows)


def _is_pair(batch: Any) -> bool:
    """Inputs and targets: of one shape, or a target a row."""
    if len(batch) != 2 or not all(_is_array(part) for part in batch):
        return False
    first, second = (tuple(part.shape) for part in batch)
    return first == second or (len(first) > 1 and second == first[:1])


def _is_array(value: Any) -> bool:
    if is_tensor(value):
        return not value.dtype.is_complex and value.device.type != "meta"
    return hasattr(value, "__array_interface__") and value.dtype.kind in "iufb"


def _arrays(value: Any, depth: int = 4) -> Iterator[Any]:
    if _is_array(value):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _arrays(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays(item, depth - 1)


def _ragged(value: Any) -> BatchParts | None:
    """Rows of ids of different lengths, lists or one-dimensional arrays, filled up with -1."""
    import numpy

    if not isinstance(value, (list, tuple)) or not value:
        return None
    if all(type(item) is int for item in value):
        value = [value]
    if all(is_tensor(row) and _is_array(row) and row.dim() == 1 for row in value):
        import torch

        filled = torch.nn.utils.rnn.pad_sequence(list(value), batch_first=True, padding_value=-1)
        return BatchParts(filled, lengths=tuple(len(row) for row in value))
    if not all(_is_row(row) for row in value):
        return None
    lengths = tuple(len(row) for row in value)
    rows = numpy.full((len(value), max(lengths)), -1, numpy.int64)
    for place, row in enumerate(value):
        rows[place, : len(row)] = row
    return BatchParts(rows, lengths=lengths)


def _is_row(row: Any) -> bool:
    if isinstance(row, (list, tuple)):
        return all(type(item) is int for item in row)
    return not is_tensor(row) and _is_array(row) and len(row.shape) == 1 and row.dtype.kind in "iu"


def _local(array: Any) -> Any:
    """This rank's shard of a DTensor; everything else as it is."""
    return array._local_tensor if hasattr(array, "_local_tensor") else array


def _as_rows(array: Any) -> Any:
    """Two dimensions: sequences are rows. Of integers the last axis is time, of floats the first is the batch."""
    if len(array.shape) == 2:
        return array
    if len(array.shape) < 2:
        return array.reshape(1, -1)
    if _is_float(array):
        return array.reshape(array.shape[0], -1)
    return array.reshape(-1, array.shape[-1])


def _is_float(array: Any) -> bool:
    return bool(array.dtype.is_floating_point if is_tensor(array) else array.dtype.kind == "f")


def measure(
    parts: BatchParts, pad_id: int | None, ignore_id: int, compare: bool = True
) -> MeasuredBatch | PendingBatch:
    """Read a batch: at once if it is in host memory, else queued on its device. Fingerprints only to `compare`."""
    home = _device(parts.tokens)
    # what lies elsewhere than the tokens would have to be waited for
    wanted, mask = (None if item is None or _device(item) != home else item for item in (parts.labels, parts.mask))
    if home is not None:
        return PendingBatch(parts._replace(labels=wanted, mask=mask), pad_id, ignore_id, compare)
    tokens, wanted, mask = _host(parts.tokens), _host(wanted), _host(mask)
    mark, rows = _no_marks(len(tokens))
    if compare:
        mark, rows = fingerprints.combine(fingerprints.host_sums(tokens), tokens.shape[1])
    lengths, known = _host_lengths(parts, tokens, mask, pad_id)
    is_float = _is_float(parts.tokens)
    ignored = 0
    if wanted is not None:
        import numpy

        ignored = int(numpy.count_nonzero(wanted == ignore_id))
    counted, marked = 0 if wanted is None else wanted.size, labels.host_mark(parts.of_rows) if compare else 0
    classes = labels.classes_of(wanted, len(tokens))
    return MeasuredBatch(mark, rows, lengths, tokens.size, known, counted, ignored, is_float, marked, classes)


def _no_marks(rows: int) -> tuple[int, Any]:
    import numpy

    return 0, numpy.zeros(rows, numpy.uint64)


def _device(array: Any) -> Any:
    """The accelerator that an array is on; None for host memory."""
    return array.device if is_tensor(array) and array.device.type != "cpu" else None


def _host(array: Any) -> Any:
    return fingerprints.host_array(array) if is_tensor(array) else array


def _host_lengths(parts: BatchParts, tokens: Any, mask: Any, pad_id: int | None) -> tuple[Any, bool]:
    import numpy

    rows, columns = tokens.shape
    if parts.lengths is not None:
        return numpy.array(parts.lengths), True
    if _is_float(parts.tokens):
        return numpy.zeros(0, numpy.int64), False
    if mask is not None:
        kept = mask != 0
        if numpy.count_nonzero(kept) == kept.size:  # the ordinary case, ten times as fast
            return numpy.full(rows, columns), True
        return numpy.count_nonzero(kept, axis=1), True
    if pad_id is None:
        return numpy.full(rows, columns), False
    if not columns or not ((tokens[:, -1] == pad_id) | (tokens[:, 0] == pad_id)).any():
        return numpy.full(rows, columns), True
    # padding stands at an end: the same id within a row is a document's end, not padding
    kept = tokens != pad_id
    first, last = kept.argmax(1), columns - kept[:, ::-1].argmax(1)
    return numpy.where(kept.any(1), last - first, 0), True


class PendingBatch:
    """A batch on a device: what was asked is queued there, its copy on the way."""

    def __init__(self, parts: BatchParts, pad_id: int | None, ignore_id: int, compare: bool = True):
        import torch

        tokens, wanted, mask = parts.tokens, parts.labels, parts.mask
        if tokens.dtype in (torch.uint16, torch.uint32, torch.uint64):  # devices can do little with these
            tokens = tokens.to(torch.int64)
        self.rows, self.columns = tokens.shape
        self.labels = 0 if wanted is None else wanted.numel()
        self.is_float = _is_float(tokens)
        self.known = parts.lengths  # before the device is asked
        with torch.no_grad():
            none = tokens.new_zeros((self.rows, 0), dtype=torch.int64)
            sums = fingerprints.device_sums(tokens.detach()) if compare else none
            self.chunks = sums.shape[1]
            pieces = [sums.flatten()]
            lengths = None if self.is_float or self.known else _device_lengths(tokens, mask, pad_id)
            self.has_lengths = lengths is not None
            if lengths is not None:
                pieces.append(lengths)
            if wanted is not None:
                pieces.append((wanted == ignore_id).sum().view(1))
            self._copy = DeviceValues({"all": torch.cat(pieces)})
        self._marks = labels.on_device(parts.of_rows) if compare else None

    def ready(self) -> bool:
        """Whether the copy has arrived; never waits."""
        return self._copy.ready() and (self._marks is None or self._marks.ready())

    def read(self) -> MeasuredBatch:
        """What the batch holds; call it when `ready`."""
        import numpy

        values = self._copy.values["all"].numpy()
        end = self.rows * self.chunks
        mark, rows = _no_marks(self.rows)
        if self.chunks:
            mark, rows = fingerprints.combine(values[:end].reshape(self.rows, self.chunks), self.columns)
        lengths = numpy.full(0 if self.is_float else self.rows, self.columns)
        if self.known:
            lengths = numpy.array(self.known)
        elif self.has_lengths:
            lengths = values[end : end + self.rows]
        ignored = int(values[-1]) if self.labels else 0
        is_known, marked = bool(self.known) or self.has_lengths, 0
        if self._marks is not None:
            marked = labels.device_mark(self._marks)
        return MeasuredBatch(
            mark, rows, lengths, self.rows * self.columns, is_known, self.labels, ignored, self.is_float, marked
        )


def _device_lengths(tokens: Any, mask: Any, pad_id: int | None) -> Any:
    import torch

    if mask is not None:
        return (mask != 0).sum(1)
    columns = tokens.shape[1]
    if pad_id is None or not columns:
        return None
    places = torch.arange(1, columns + 1, device=tokens.device)
    kept = tokens != pad_id
    last = (kept * places).amax(1)
    before = columns - (kept * places.flip(0)).amax(1)
    return (last - before).clamp_min(0)
