"""What the watch sees of examples: those that come again, those of evaluations, their order, what a model is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.doctor import diagnose
from barograph.probes.model.example_inputs import example_inputs
from barograph.probes.model.examples import ExampleLook
from barograph.probes.model.row_marks import fingerprints

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

Batch = Callable[[int], tuple[Any, Any]]


class Reader(nn.Module):
    """A language model or a classifier of texts, of one layer of attention."""

    def __init__(self, causal: bool = True, classes: int = 0):
        super().__init__()
        self.words, self.mix = nn.Embedding(40, 16), nn.Linear(16, 48)
        self.head, self.causal, self.classes = nn.Linear(16, classes or 40), causal, classes

    def forward(self, tokens: Any) -> Any:
        query, key, value = self.mix(self.words(tokens))[:, None].chunk(3, -1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)[:, 0]
        return self.head(mixed.mean(1) if self.classes else mixed)


def by_token(output: Any, target: Any) -> Any:
    return functional.cross_entropy(output.flatten(0, -2), target.flatten(), ignore_index=-100)


def train(
    folder: Path, model: Any, batch: Batch, evaluated: Batch | None = None, steps: int = 60, loss_of: Any = by_token,
    config: dict[str, Any] | None = None,
) -> dict[str, str]:  # fmt: skip
    """The gravest severity by rule."""
    torch.set_num_threads(1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False,
        config=config or {},
    )  # fmt: skip
    run.watch(model, optimizer, activations=10)
    for step in range(steps):
        inputs, targets = batch(step)
        loss = loss_of(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
        if evaluated is not None and step % 10 == 9:
            with torch.no_grad():
                inputs, targets = evaluated(step)
                run.log({"val_loss": loss_of(model(inputs), targets).item()}, step=step)
    run.finish()
    findings = diagnose(barograph.read(str(run.dir))[0])["findings"]
    told = [part for item in findings for part in (*item["evidence"].get("story", ()), item)]
    told.sort(key=lambda item: item["severity"] != "info")
    return {item["rule"]: item["severity"] for item in told}


def texts(count: int, length: int = 16, seed: int = 3) -> Any:
    return torch.randint(1, 40, (count, length + 1), generator=torch.Generator().manual_seed(seed))


def drawn(rows: Any, count: int = 16) -> Batch:
    generator = torch.Generator().manual_seed(4)

    def batch(step: int) -> tuple[Any, Any]:
        chosen = rows[torch.randperm(len(rows), generator=generator)[:count]]
        return chosen[:, :-1], chosen[:, 1:]

    return batch


def test_a_row_has_one_fingerprint_in_batches_of_any_size() -> None:
    rows = torch.randn(40, 3, 8, 8)
    assert torch.equal(fingerprints(rows)[7:20], fingerprints(rows[7:20]))
    assert len(set(fingerprints(rows).tolist())) == 40
    tokens = texts(40)
    padded = functional.pad(tokens, (0, 5))
    longer = functional.pad(tokens, (0, 9))
    assert torch.equal(fingerprints(padded), fingerprints(longer)) and len(set(fingerprints(padded).tolist())) == 40
    ended = functional.pad(tokens, (0, 5), value=7)
    assert torch.equal(fingerprints(ended), fingerprints(functional.pad(tokens, (0, 9), value=7)))
    short = torch.cartesian_prod(torch.arange(9), torch.arange(9), torch.arange(9))
    assert len(set(fingerprints(short).tolist())) == len(short)
    assert len(set(fingerprints(torch.arange(9)[:, None]).tolist())) == 1  # a number alone is no example
    moved = tokens.clone()
    moved[:, [2, 5]] = tokens[:, [5, 2]]
    same = tokens[:, 2] == tokens[:, 5]
    assert torch.equal(fingerprints(moved) == fingerprints(tokens), same)


@pytest.mark.parametrize(
    "kind", ["drawn", "copies", "one batch", "several times", "all at once", "few", "game", "new states"]
)
def test_examples_that_come_again_are_proven(tmp_path: Path, kind: str) -> None:
    rows = texts(2000)
    fresh = drawn(rows)

    def batch(step: int) -> tuple[Any, Any]:
        if kind in ("one batch", "all at once"):
            return rows[:16, :-1], rows[:16, 1:]
        if kind == "few":  # epochs of four batches, in another order each
            some = rows[torch.randperm(64, generator=torch.Generator().manual_seed(step // 4))[step % 4 * 16 :][:16]]
            return some[:, :-1], some[:, 1:]
        if kind == "game":  # of eight states, drawn from a memory
            some = rows[torch.randint(0, 8, (16,), generator=torch.Generator().manual_seed(step))]
            return some[:, :-1], some[:, 1:]
        if kind == "new states":  # a memory that has one more state with each step, up to ten
            some = rows[torch.randint(0, min(10, 2 + step), (16,), generator=torch.Generator().manual_seed(step))]
            return some[:, :-1], some[:, 1:]
        if kind == "several times":
            some = rows[step // 3 * 16 :][:16]
            return some[:, :-1], some[:, 1:]
        inputs, targets = fresh(step)
        return (inputs[:4].repeat(4, 1), targets[:4].repeat(4, 1)) if kind == "copies" else (inputs, targets)

    config = {} if kind in ("all at once", "game", "new states") else {"batch_size": 16}
    found = train(tmp_path, Reader(), batch, drawn(texts(50, seed=8)), config=config)
    assert (found.get("copied_examples") == "warning") == (kind == "copies")
    assert ("copied_examples" in found) == (kind in ("copies", "new states"))
    again = {"one batch": "warning", "several times": "warning", "all at once": "info", "game": "info"}
    assert found.get("repeated_examples") == again.get(kind)


@pytest.mark.parametrize("kind", ["apart", "evaluated", "trained", "both logged", "pictures", "whole input"])
def test_evaluation_examples_of_the_training_are_proven(tmp_path: Path, kind: str) -> None:
    rows, held = texts(400), texts(64, seed=8)
    if kind == "evaluated":
        held = rows[:64]
    elif kind == "trained":
        rows = torch.cat([rows[:200], held])
    model: Any = Reader()
    batch, evaluated, loss_of = drawn(rows), drawn(held, 64), by_token
    if kind in ("pictures", "whole input"):
        torch.manual_seed(3)
        model, loss_of = nn.Linear(12, 3), functional.mse_loss
        pictures = torch.randn(24 if kind == "whole input" else 300, 12)

        def batch(step: int) -> tuple[Any, Any]:
            chosen = pictures if kind == "whole input" else pictures[torch.randperm(300)[:24]]
            return chosen, chosen[:, :3]

        def evaluated(step: int) -> tuple[Any, Any]:
            return pictures[:24], pictures[:24, :3]

    if kind == "both logged":
        from_training = drawn(rows, 64)

        def loss_of(output: Any, target: Any) -> Any:
            if not torch.is_grad_enabled():
                model(from_training(0)[0])
            return by_token(output, target)

    found = train(tmp_path, model, batch, evaluated, 120, loss_of)
    assert (found.get("evaluation_examples") == "warning") == (kind in ("evaluated", "trained", "pictures"))


def test_two_images_of_one_caption_are_two_examples() -> None:
    look = ExampleLook()
    captions, pictures = texts(8), torch.randn(16, 3, 4)
    marks = []
    for part in (pictures[:8], pictures[8:], pictures[:8]):
        look.given([captions, part], True, True)
        assert look._rows is not None
        marks.append(look._rows.tolist())
        look._rows = None
    assert not set(marks[0]) & set(marks[1]) and marks[0] == marks[2]


@pytest.mark.parametrize(("sizes", "compared"), [((3, 8, 8), True), ((17,), False), ((17, 4), False)])
def test_pictures_beside_captions_are_compared_and_masks_beside_tokens_are_not(
    sizes: tuple[int, ...], compared: bool
) -> None:
    look, captions = ExampleLook(), texts(8)
    assert captions.shape[1] == 17
    look.given([captions, torch.rand(8, *sizes)], True, True)
    assert (look._alike._rows is not None) == compared


def test_examples_of_a_graph_are_the_nodes_that_are_asked_for() -> None:
    features, nodes = torch.randn(50, 6), torch.tensor([7, 3, 49, 3, 20])
    offsets, kinds = torch.tensor([0, 10, 10, 31, 50]), torch.randint(0, 6, (50,))
    for beside, rows in ((nodes, features[nodes]), (nodes[:3], features), (kinds, features), (offsets, features)):
        found, other = example_inputs([features, beside])
        assert found is not None and torch.equal(found, rows) and other is None


def test_a_graph_that_is_given_whole_with_other_nodes_each_time_is_not_one_batch(tmp_path: Path) -> None:
    features, kinds = torch.randn(400, 8), torch.randint(0, 3, (400,))
    asked = [torch.randperm(400)[:32] for _ in range(60)]

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 3)

        def forward(self, given: tuple[Any, Any]) -> Any:
            return self.look(*given)

        def look(self, all_of: Any, nodes: Any) -> Any:
            return self.net(all_of)[nodes]

    found = train(tmp_path, Graph(), lambda at: ((features, asked[at]), kinds[asked[at]]))
    assert not {"repeated_examples", "repeated_batches"} & set(found)


def test_rows_of_a_step_s_other_passes_are_counted_against_those_of_steps_before() -> None:
    look, rows = ExampleLook(), texts(24)

    def step(*passes: Any) -> dict[str, float]:
        given = [fingerprints(one).numpy() for one in passes]
        numbers = {"examples": ((), given[:1])} | (
            {"examples_beside": ((), [np.concatenate(given[1:])])} if given[1:] else {}
        )
        return {name: value for name, value in look.fields_of(numbers, 1).items() if name.startswith("beside_")}

    assert step(rows[:4]) == {}
    others = step(rows[4:8], rows[8:12], rows[8:12])  # those of this step are views of one thing, as it may be
    assert others["beside_rows"] == 8 and others["beside_again"] == 0 and others["beside_distinct"] == 4
    others = step(rows[12:16], rows[2:6], rows[10:14])
    assert others["beside_again"] == 6 / 8 and others["beside_distinct"] == 10


def test_an_input_that_is_evaluated_in_each_step_is_no_evaluation() -> None:
    class Current:
        def __init__(self) -> None:
            self.families: list[str] = []

        def put(self, family: str, names: Any, values: Any) -> None:
            self.families.append(family)

    look, current = ExampleLook(), Current()
    for _ in range(20):
        look.given([texts(8)], False, True)
        look.given([texts(8)], True, True)
        look.put(current)  # type: ignore[arg-type]
    assert current.families.count("evaluated") <= 3 and current.families.count("examples") == 20


@pytest.mark.parametrize("kind", ["causal", "not", "masked words"])
def test_attention_to_what_is_to_be_predicted_is_proven(tmp_path: Path, kind: str) -> None:
    fresh = drawn(texts(500))

    def batch(step: int) -> tuple[Any, Any]:
        inputs, targets = fresh(step)
        if kind == "masked words":
            hidden = torch.rand(inputs.shape) < 0.3
            return inputs.masked_fill(hidden, 0), inputs.masked_fill(~hidden, -100)
        return inputs, targets

    found = train(tmp_path, Reader(causal=kind == "causal"), batch, steps=30)
    assert (found.get("later_tokens") == "warning") == (kind == "not")


@pytest.mark.parametrize("kind", ["ignored", "counted", "mean of all", "mixed rows", "written over and over"])
def test_padding_that_the_loss_counts_is_proven(tmp_path: Path, kind: str) -> None:
    generator = torch.Generator().manual_seed(9)

    def batch(step: int) -> tuple[Any, Any]:
        rows = torch.randint(1, 40, (16, 25), generator=generator)
        behind = torch.arange(25)[None] >= torch.randint(8, 26, (16, 1), generator=generator)
        said = torch.randint(1, 40, (16, 1), generator=generator)  # what a policy says that has collapsed
        rows = torch.where(behind, said if kind == "written over and over" else 0, rows)
        targets = rows[:, 1:]
        if kind == "mixed rows":  # where one is padding, there may be a token of another
            targets = targets.roll(1, 0)
        return rows[:, :-1], targets if kind == "counted" else targets.masked_fill(targets == 0, -100)

    def loss_of(output: Any, target: Any) -> Any:
        whole = by_token(output, target)
        return whole * (target >= 0).float().mean() if kind == "mean of all" else whole

    found = train(tmp_path, Reader(), batch, steps=60, loss_of=loss_of)
    assert (found.get("padding_targets") == "warning") == (kind == "counted")
    assert (found.get("loss_weight") == "warning") == (kind == "mean of all")


class Blobs:
    """Points around a centre for each class, and a linear classifier of them."""

    def __init__(self, classes: int = 6):
        generator = torch.Generator().manual_seed(2)
        self.centres = 3 * torch.randn(classes, 12, generator=generator)

    def drawn(self, shares: list[float], rows: int = 32) -> tuple[Any, Any]:
        labels = torch.multinomial(torch.tensor(shares), rows, True)
        return self.centres[labels] + torch.randn(rows, 12), labels


@pytest.mark.parametrize("kind", ["clean", "random half", "a few", "hard", "both"])
def test_random_labels_are_proven(tmp_path: Path, kind: str) -> None:
    blobs = Blobs()
    if kind == "hard":
        blobs.centres *= 0.2
    equal = [1.0] * 6

    def noisy(step: int, rows: int = 32) -> tuple[Any, Any]:
        inputs, labels = blobs.drawn(equal, rows)
        share = {"random half": 0.5, "a few": 0.05, "both": 0.5}.get(kind, 0.0)
        return inputs, torch.where(torch.rand(rows) < share, torch.randint(0, 6, (rows,)), labels)

    def evaluated(step: int) -> tuple[Any, Any]:
        return noisy(step, 1000) if kind == "both" else blobs.drawn(equal, 1000)

    found = train(tmp_path, learner(6), noisy, evaluated, 300)
    assert (found.get("noisy_labels") == "warning") == (kind == "random half")


def learner(classes: int) -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, classes))


@pytest.mark.parametrize("kind", ["all", "some", "one of many"])
def test_classes_that_are_never_a_target_are_proven(tmp_path: Path, kind: str) -> None:
    shares = {"all": [0.9, 0.02, 0.02, 0.02, 0.02, 0.02], "some": [1.0, 1, 0, 0, 0, 0], "one of many": [1.0] * 5 + [0]}
    blobs = Blobs()
    found = train(tmp_path, learner(6), lambda step: blobs.drawn(shares[kind]), steps=340)
    assert found.get("missing_classes") == {"some": "warning", "one of many": "info"}.get(kind)


@pytest.mark.parametrize("kind", ["off by one", "one missing"])
def test_labels_that_are_off_by_one_and_kept_in_range_are_not_a_missing_class(tmp_path: Path, kind: str) -> None:
    blobs, model = Blobs(), learner(6)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    for step in range(340):
        inputs, labels = blobs.drawn([1.0] * 6 if kind == "off by one" else [0.0, *[1.0] * 5])
        loss = functional.cross_entropy(model(inputs), (labels + 1).clamp(max=5) if kind == "off by one" else labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
        if step % 20 == 19:
            inputs, labels = blobs.drawn([1.0] * 6, 400)
            with torch.no_grad():
                output = model(inputs)
            right = float((output.argmax(1) == labels).float().mean())
            run.log({"val/loss": functional.cross_entropy(output, labels).item(), "val/accuracy": right}, step=step)
    run.finish()
    findings = diagnose(barograph.read(str(run.dir))[0])["findings"]
    head = next(item for item in findings if item["severity"] == "warning")
    assert head["causes"][0].startswith("labels shifted" if kind == "off by one" else "rare class missing")


@pytest.mark.parametrize("kind", ["same", "moved", "percent", "hard"])
def test_an_evaluation_with_other_labels_is_proven(tmp_path: Path, kind: str) -> None:
    blobs = Blobs()
    model = learner(6)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    fixed = blobs.drawn([1.0] * 6, 200)
    if kind == "hard":  # learnt by heart, of no use
        fixed = torch.randn(200, 12), fixed[1]
    for step in range(200):
        chosen = torch.randperm(200)[:32]
        loss = functional.cross_entropy(model(fixed[0][chosen]), fixed[1][chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
        if step % 20 == 19:
            with torch.no_grad():
                inputs, labels = blobs.drawn([1.0] * 6, 200)
                some = 0 if kind == "moved" else 12  # right by chance: above 1 where a share is in percent
                labels[some:] = (labels[some:] + (kind in ("moved", "percent"))) % 6
                inputs = torch.randn(200, 12) if kind == "hard" else inputs
                output = model(inputs)
                right = float((output.argmax(1) == labels).float().mean())
                run.log({
                    "val/loss": functional.cross_entropy(output, labels).item(),
                    "val/accuracy": right * (100 if kind == "percent" else 1),
                }, step=step)  # fmt: skip
    run.finish()
    findings = diagnose(barograph.read(str(run.dir))[0])["findings"]
    told = {part["rule"] for item in findings for part in (*item["evidence"].get("story", ()), item)}
    assert ("other_labels" in told) == (kind in ("moved", "percent"))
    if kind in ("moved", "percent"):
        first = "the evaluation's classes are counted" if kind == "moved" else "training and evaluation"
        assert findings[0]["causes"][0].startswith(f"labels shifted: {first}")
