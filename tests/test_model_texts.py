"""What the watch sees of texts: targets of smoothed labels, masked models, the direction of reading, ignored tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from watched_trainings import findings_of_training  # noqa: E402

from barograph.probes.model.texts import of_padding  # noqa: E402

LETTERS, MASK, ROWS, PLACES = 24, 23, 16, 24
OURS = {"target_shift", "unmasked_targets", "text_across", "ignored_token", "end_untold", "answers_ignored",
        "answers_cut", "start_twice", "padding_targets", "tags_elsewhere", "masked_beside", "read_across"}  # fmt: skip
Batch = Callable[[int], tuple[Any, Any]]


def dice(step: int) -> Any:
    return torch.Generator().manual_seed(step)


def written(rows: int, length: int, step: int) -> Any:
    """Texts in which a letter says much of the next one; MASK and 0 are none of theirs."""
    chances = torch.rand(LETTERS - 2, LETTERS - 2, generator=dice(9)) ** 6
    text = torch.randint(0, LETTERS - 2, (rows, length), generator=dice(step))
    for at in range(1, length):
        text[:, at] = torch.multinomial(chances[text[:, at - 1]], 1, generator=dice(step + at))[:, 0]
    return text + 1


class Reader(nn.Module):
    """A recurrent language model, or an encoder of single letters."""

    def __init__(self, batch_first: bool = True, recurrent: bool = True) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.words, self.layer = nn.Embedding(LETTERS, 16), nn.GRU(16, 16, batch_first=batch_first)
        self.head, self.recurrent = nn.Linear(16, LETTERS), recurrent

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        return self.head(self.layer(x)[0] if self.recurrent else x)


def trained(folder: Path, model: nn.Module, batch: Batch, steps: int = 40, **how: Any) -> dict[str, dict[str, Any]]:
    """Findings of these rules."""

    def loss_of(model: nn.Module, step: int) -> Any:
        inputs, targets = batch(step)
        return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), **how)

    return {
        rule: item for rule, item in findings_of_training(folder, model, loss_of, steps, 3e-3).items() if rule in OURS
    }


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_targets_of_smoothed_labels_are_compared_with_the_inputs(tmp_path: Path, ahead: int) -> None:
    def batch(step: int) -> tuple[Any, Any]:
        text = written(ROWS, PLACES + 2, step)
        return text[:, :PLACES], text[:, ahead : ahead + PLACES]

    found = trained(tmp_path, Reader(), batch, 12, label_smoothing=0.1)
    assert set(found) == (set() if ahead == 1 else {"target_shift"})


@pytest.mark.parametrize(
    ("kind", "found"), [("text", {"target_shift"}), ("echo", set()), ("text in columns", {"target_shift"})]
)
def test_targets_one_place_behind_are_found_in_a_text_and_not_in_an_echo_of_random_tokens(
    tmp_path: Path, kind: str, found: set[str]
) -> None:
    """`logits[:, 1:]` against `tokens[:, :-1]`."""

    def batch(step: int) -> tuple[Any, Any]:
        text = torch.randint(1, LETTERS, (ROWS, PLACES), generator=dice(step))
        text = text if kind == "echo" else written(ROWS, PLACES, step)
        behind = text.roll(1, 1).index_fill(1, torch.tensor([0]), -100)
        return (text.T, behind.T) if kind == "text in columns" else (text, behind)

    assert set(trained(tmp_path, Reader(kind != "text in columns"), batch, 40)) == found


@pytest.mark.parametrize("answers", [True, False])
def test_answers_that_are_not_shifted_are_no_masks_that_were_left_out(tmp_path: Path, answers: bool) -> None:
    """Prompts have no targets, so that less than half of all places do."""

    def batch(step: int) -> tuple[Any, Any]:
        text = written(ROWS, PLACES, step)
        return text, text.clone() if not answers else torch.where(torch.arange(PLACES) < 16, -100, text)

    found = trained(tmp_path, Reader(), batch, 12)
    assert list(found) == ["target_shift"] and found["target_shift"]["causes"][0].startswith("labels shifted")


@pytest.mark.parametrize(
    ("kind", "found"), [("in the model", set()), ("nowhere", {"target_shift"}), ("cast", {"target_shift"})]
)
def test_a_model_that_shifts_its_tokens_itself_is_told_by_what_it_embeds(
    tmp_path: Path, kind: str, found: set[str]
) -> None:
    class Shifting(Reader):
        def forward(self, tokens: Any) -> Any:
            if kind == "in the model":
                tokens = torch.cat([torch.zeros_like(tokens[:, :1]), tokens[:, :-1]], 1)
            return super().forward(tokens.long())

    def batch(step: int) -> tuple[Any, Any]:
        text = written(ROWS, PLACES, step)
        return text.int() if kind == "cast" else text, text.clone()

    assert set(trained(tmp_path, Shifting(), batch, 12)) == found


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("ahead", "found"), [(1, set()), (2, {"target_shift"})])
def test_tokens_whose_rows_are_taken_by_hand_are_told_from_positions_that_are_embedded(
    tmp_path: Path, ahead: int, found: set[str], padded: bool
) -> None:
    """Positions count from the first token of each row, and are 0 in padding, as the tokens are."""

    class Placed(Reader):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.words = nn.Parameter(torch.randn(LETTERS, 16)), nn.Embedding(PLACES + 1, 16)

        def forward(self, tokens: Any) -> Any:
            text = tokens != 0
            x = self.rows[tokens] + self.words(text.cumsum(1) * text)
            return self.head(self.layer(x)[0])

    def batch(step: int) -> tuple[Any, Any]:
        text = written(ROWS, PLACES + ahead, step)
        if padded:
            long = torch.randint(8, PLACES - 4, (ROWS, 1), generator=dice(step))
            text = text.masked_fill(torch.arange(PLACES + ahead) >= long, 0)
        return text[:, :PLACES], text[:, ahead:].masked_fill(text[:, ahead:] == 0, -100)

    assert set(trained(tmp_path, Placed(), batch, 12)) - {"end_untold"} == found


class Translator(nn.Module):
    """An encoder, and a decoder that is given the other text."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.source, self.target = nn.Embedding(LETTERS, 16), nn.Embedding(LETTERS, 16)
        self.encoder, self.decoder = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, LETTERS)

    def forward(self, source: Any, target: Any) -> Any:
        return self.head(self.decoder(self.target(target), self.encoder(self.source(source))[1])[0])


@pytest.mark.parametrize("ahead", [1, 2])
def test_targets_of_a_decoder_that_are_shifted_twice_are_no_tags(tmp_path: Path, ahead: int) -> None:
    def loss_of(model: nn.Module, step: int) -> Any:
        sizes = torch.randint(8, PLACES, (ROWS, 1), generator=dice(step))
        text = written(ROWS, PLACES, step) * (torch.arange(PLACES) < sizes)
        output = model(text, text[:, :-1])[:, : PLACES - ahead]
        return functional.cross_entropy(output.flatten(0, 1), text[:, ahead:].flatten(), ignore_index=0)

    found = findings_of_training(tmp_path, Translator(), loss_of, 12).keys() & {"target_shift", "tags_elsewhere"}
    assert found == (set() if ahead == 1 else {"target_shift"})


@pytest.mark.parametrize("before", ["the target", "another text"])
def test_a_decoder_that_writes_a_masked_text_anew_counts_all_of_it_on_purpose(tmp_path: Path, before: str) -> None:
    """Not one whose second text has nothing to do with the targets, and that is no help."""

    def loss_of(model: nn.Module, step: int) -> Any:
        text = written(ROWS, PLACES, step)
        given = torch.where(torch.rand(text.shape, generator=dice(step)) < 0.3, MASK, text)
        other = text if before == "the target" else written(ROWS, PLACES, step + 1000)
        start = torch.full((ROWS, 1), MASK)
        output = model(given, torch.cat([start, other[:, :-1]], 1))
        return functional.cross_entropy(output.flatten(0, 1), text.flatten())

    found = findings_of_training(tmp_path, Translator(), loss_of, 12)
    assert ("unmasked_targets" in found) == (before == "another text")


MASKED: dict[str, str | None] = {
    "right": None, "few": None, "all counted": "labels not masked", "after": "labels taken after masking",
    "inputs unmasked": "labels can be seen", "discrete diffusion": None, "letters repaired": None,
    "of the next": "labels shifted: as for a decoder", "of the one before": "labels shifted: as for a decoder",
}  # fmt: skip


@pytest.mark.parametrize("kind", MASKED)
def test_a_masked_model_that_is_asked_what_it_is_given_is_found(tmp_path: Path, kind: str) -> None:
    def batch(step: int) -> tuple[Any, Any]:
        text, draw = written(ROWS, PLACES, step), dice(step)
        told = torch.rand(text.shape, generator=draw) < (0.04 if kind == "few" else 0.15)
        if kind == "discrete diffusion":
            told = torch.rand(text.shape, generator=draw) < torch.rand(ROWS, 1, generator=draw)
        told[:, 3] = True
        chance, other = torch.rand(text.shape, generator=draw), torch.randint(1, 22, text.shape, generator=draw)
        given = torch.where(told & (chance < 0.8), MASK, torch.where(told & (chance > 0.9), other, text))
        if kind == "letters repaired":
            given = torch.where(told, other, text)
        labels = torch.where(told, text, -100)
        if kind in ("all counted", "discrete diffusion", "letters repaired"):
            labels = text
        elif kind == "after":
            labels = torch.where(told, given, -100)
        elif kind.startswith("of the"):
            labels = labels.roll(-1 if kind == "of the next" else 1, 1)
        return (text if kind == "inputs unmasked" else given), labels

    found = trained(tmp_path, Reader(recurrent=False), batch, 12)
    wanted = MASKED[kind]
    assert bool(found) == (wanted is not None)
    assert wanted is None or next(iter(found.values()))["causes"][0].startswith(wanted)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["along", "across", "unrelated letters", "copied", "sorted rows", "one family"])
def test_a_text_that_is_read_across_is_found_in_both_layouts(tmp_path: Path, kind: str, batch_first: bool) -> None:
    book = written(1, 4000, 3)[0]
    count = len(book) // ROWS
    columns = book[: count * ROWS].view(count, ROWS) if kind == "across" else book[: count * ROWS].view(ROWS, count).T

    def batch(step: int) -> tuple[Any, Any]:
        at = PLACES * step % (count - PLACES - 1)
        piece = columns[at : at + PLACES + 1]
        if kind == "unrelated letters":
            piece = torch.randint(1, LETTERS, piece.shape, generator=dice(step))
        elif kind == "copied":  # a mark at the same place of each row
            half = torch.randint(2, LETTERS, (PLACES // 2, ROWS), generator=dice(step))
            piece = torch.cat([half, torch.ones(1, ROWS, dtype=torch.long), half])
        elif kind == "one family":  # each row differs from the one beside it in some letters, which mean nothing
            piece = torch.randint(1, LETTERS, (PLACES + 1, 1), generator=dice(step)).repeat(1, ROWS)
            for row in range(1, ROWS):
                other = torch.randint(1, LETTERS, (PLACES + 1,), generator=dice(step + 99 * row))
                kept = torch.rand(PLACES + 1, generator=dice(step + row)) < 0.7
                piece[:, row] = torch.where(kept, piece[:, row - 1], other)
        elif kind == "sorted rows":
            piece = piece[:, piece[0].argsort()]
        return (piece[:-1].T, piece[1:].T) if batch_first else (piece[:-1], piece[1:])

    found = trained(tmp_path, Reader(batch_first), batch)
    assert set(found) == ({"text_across"} if kind == "across" else set())
    if kind == "across":
        assert (found["text_across"]["severity"], found["text_across"]["step"]) == ("critical", 0)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    ("kind", "wrong"), [("rows", False), ("places first", True), ("of one length", False), ("sorted by length", None)]
)
def test_a_tagger_whose_texts_go_along_the_other_dimension_is_found(
    tmp_path: Path, kind: str, wrong: bool | None, batch_first: bool
) -> None:
    """Each letter's tag is that of the one before: no targets are the next tokens."""

    def batch(step: int) -> tuple[Any, Any]:
        long = LETTERS - 2  # an output that has as many lines as classes would be that of pairs
        tokens = torch.randint(1, LETTERS, (ROWS, long), generator=dice(step))
        lengths = torch.randint(long // 3, long - 3, (ROWS,), generator=dice(step + 1))
        if kind == "sorted by length":
            lengths = lengths.sort(descending=True).values
        ends = torch.arange(long) >= lengths[:, None]
        tokens = tokens if kind == "of one length" else tokens.masked_fill(ends, 0)
        tags = tokens.roll(1, 1) * 5 % 7
        tags = tags if kind == "of one length" else tags.masked_fill(ends, -100)
        return (tokens.T, tags.T) if kind == "places first" else (tokens, tags)

    found = trained(tmp_path, Reader(batch_first), batch, 10)
    if wrong is not None and kind != "of one length":
        assert ("read_across" in found) == (wrong == batch_first)
    elif kind == "of one length" or batch_first:
        assert "read_across" not in found


@pytest.mark.parametrize(
    ("kind", "severity"),
    [
        ("a letter", "warning"), ("padding", None), ("padding in front", None), ("ends", "info"), ("prompts", None),
        ("nothing", None),
    ],
)  # fmt: skip
def test_a_token_that_is_never_a_target_is_found(tmp_path: Path, kind: str, severity: str | None) -> None:
    def batch(step: int) -> tuple[Any, Any]:
        text = written(ROWS, PLACES + 1, step)
        lengths = torch.randint(8, PLACES, (ROWS, 1), generator=dice(step))
        if kind in ("a letter", "ends"):
            text = torch.where(torch.rand(text.shape, generator=dice(step)) < 0.1, 0, text)
        elif kind.startswith("padding"):
            text = torch.where(torch.arange(PLACES + 1) < lengths, text, 0)
        text = text.flip(1) if kind == "padding in front" else text
        after = text[:, 1:]
        if kind == "prompts":
            after = torch.where(torch.arange(PLACES) < lengths, -100, after)
        return text[:, :-1], torch.where(after == 0, -100, after) if kind == "ends" else after

    index = 0 if kind in ("a letter", "padding", "padding in front") else -100
    found = trained(tmp_path, Reader(), batch, 12, ignore_index=index)
    assert found.get("ignored_token", {}).get("severity") == severity


@pytest.mark.parametrize(
    ("kind", "rule"),
    [("right", None), ("no end", "end_untold"), ("inverted", "answers_ignored"), ("start", "start_twice"),
     ("cut", "answers_cut")],
)  # fmt: skip
def test_which_parts_of_prompts_and_answers_are_targets_is_seen(tmp_path: Path, kind: str, rule: str | None) -> None:
    begin, end, places = LETTERS - 1, LETTERS - 2, torch.arange(PLACES + 1)

    def batch(step: int) -> tuple[Any, Any]:
        text = written(ROWS, PLACES + 1, step).clamp_max(LETTERS - 3)
        lengths = torch.randint(12, PLACES - 3, (ROWS, 1), generator=dice(step))
        prompts = torch.randint(3, 9, (ROWS, 1), generator=dice(step))
        text[:, 0] = begin
        if kind == "start":
            text[:, 1] = begin
        if kind != "no end":
            text = torch.where(places == lengths - 1, end, text)
        inputs = torch.where(places < lengths, text, 0)
        counted = (places >= prompts) & (places < lengths) if kind != "inverted" else places < prompts
        labels = torch.where(counted, text, -100)
        most = 6 if kind == "cut" else PLACES
        return inputs[:, :most], labels[:, 1 : most + 1]

    model = Reader()
    model.config = SimpleNamespace(eos_token_id=0)  # the padding's token
    found = trained(tmp_path, model, batch, 12)
    assert set(found) == ({rule} if rule else set())
    assert rule is None or found[rule]["severity"] == "warning"


@pytest.mark.parametrize(("value", "share"), [(0.1, 0.25), (float("nan"), None), (float("inf"), None)])
def test_a_gradient_that_is_not_finite_says_nothing_of_padding(value: float, share: float | None) -> None:
    tokens = torch.tensor([[3, 4, 5, 6, 0, 0, 0, 0], [5, 3, 6, 4, 2, 0, 0, 0]] * 2)
    gradient = torch.full((4, 8, 7), value)
    gradient[:, :4].scatter_(2, tokens[:, :4, None], -6 * value)
    gradient[:, 4:, 0] = -6 * value
    gradient[:, 6:] = 0.0 if share else value
    alive = (gradient != 0).any(2)
    found = float(of_padding(tokens, gradient, alive, torch.tensor(0.0)))
    assert found != found if share is None else found > 0


def test_a_penalty_on_all_logits_asks_for_no_padding() -> None:
    tokens = torch.tensor([[3, 4, 5, 6, 0, 0, 0, 0], [5, 3, 6, 4, 2, 0, 0, 0]] * 2)
    logits = torch.randn(4, 8, 7, requires_grad=True)
    penalty = 1e-2 * logits.logsumexp(-1).square().mean()
    (
        functional.cross_entropy(logits.flatten(0, 1), tokens.masked_fill(tokens == 0, -100).flatten()) + penalty
    ).backward()
    gradient = logits.grad
    assert not float(of_padding(tokens, gradient, (gradient != 0).any(2), torch.tensor(0.0))) > 0


class Sorter(nn.Module):
    """A classifier of texts that is asked for each next letter beside."""

    def __init__(self) -> None:
        super().__init__()
        self.reader, self.answer = Reader(), nn.Linear(16, 3)

    def forward(self, tokens: Any) -> tuple[Any, Any]:
        read = self.reader.layer(self.reader.words(tokens))[0]
        return self.answer(read[:, -1]), self.reader.head(read)


@pytest.mark.parametrize(("ahead", "told"), [(0, True), (1, False), (2, True)])
def test_a_text_that_is_asked_for_beside_the_answer_has_targets_one_place_ahead(
    tmp_path: Path, ahead: int, told: bool
) -> None:
    def loss_of(model: nn.Module, step: int) -> Any:
        text = written(ROWS, PLACES, step)
        answer, beside = model(text)
        wanted = beside[:, : PLACES - ahead].flatten(0, 1), text[:, ahead:].flatten()
        return functional.cross_entropy(answer, text[:, 0] % 3) + 0.3 * functional.cross_entropy(*wanted)

    assert ("target_shift" in findings_of_training(tmp_path, Sorter(), loss_of, 40, 3e-3)) is told


class TwoTowers(nn.Module):
    """Matches numbers with texts, and is asked for hidden letters beside."""

    def __init__(self) -> None:
        super().__init__()
        self.reader, self.numbers = Reader(recurrent=False), nn.Linear(4, 16)

    def forward(self, numbers: Any, tokens: Any, hidden: Any) -> tuple[Any, Any]:
        words = self.reader.words(tokens).mean(1)
        return self.numbers(numbers) @ words.T, self.reader.head(self.reader.words(hidden))


@pytest.mark.parametrize("moved", [-1, 0, 1])
def test_a_masked_text_beside_the_answer_has_its_targets_where_tokens_are_hidden(tmp_path: Path, moved: int) -> None:
    def loss_of(model: nn.Module, step: int) -> Any:
        text = written(ROWS, PLACES, step)
        at = torch.rand(text.shape, generator=dice(step)) < 0.15
        scores, said = model(torch.randn(ROWS, 4, generator=dice(step)), text, text.masked_fill(at, MASK))
        wanted = text.masked_fill(~at, -100)
        said, wanted = (said[:, :-1], wanted[:, 1:]) if moved > 0 else (said, wanted)
        said, wanted = (said[:, 1:], wanted[:, :-1]) if moved < 0 else (said, wanted)
        match = functional.cross_entropy(scores, torch.arange(ROWS))
        return match + functional.cross_entropy(said.flatten(0, 1), wanted.flatten())

    assert ("masked_beside" in findings_of_training(tmp_path, TwoTowers(), loss_of, 40, 3e-3)) is (moved != 0)
