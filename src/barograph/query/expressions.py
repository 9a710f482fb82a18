"""Expressions of series, as a person writes them: `train/loss - eval/loss`, `ema(train/loss, 0.99)`.

In:   text; a function that reads a series by its name.
Out:  the series that is meant, point by point; a sentence for text that can't be read. Nothing of it is ever executed.

    sum      = product { ("+" | "-") product }
    product  = power { ("*" | "/") power }
    power    = ["-"] atom [ ("^" | "**") power ]
    atom     = number | name | 'name' | "name" | function | "(" sum ")"
    function = WORD "(" sum { "," sum } ")"              WORD: one of `FUNCTIONS`

Names have slashes and hyphens, so `-` and `/` are signs where a blank or a bracket stands before them; a name with
blanks, brackets, `+`, `*`, `^` or a comma stands in quotes. Two series meet at the steps of the one with fewer points,
where the other is taken on the line between its points; what lies before its first or behind its last is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core import columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONGEST = 2_000  # characters
_DEEPEST = 50  # brackets and functions inside one another
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?=[\s()+*^,]|$)")
_NAME = re.compile(r"[^\s()+*^,'\"]+")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_SIGN = re.compile(r"\*\*|[+\-*/^]")
_LOOKS = re.compile(r"[()'\"^*,]|\s[-+/]|[-+/]\s|^-")  # of an expression, and not of a name that is misspelt
_EXAMPLE = "write for example: train/loss - eval/loss, or ema(train/loss, 0.99)"


class ExpressionError(KeyError, ValueError):
    """The text is not an expression of series; the message says where and what to write.

    A KeyError too, as for any other name that no run has.
    """

    __str__ = Exception.__str__


class Points(NamedTuple):
    """A series on its way through an expression. rest: further columns of the same points, such as their times."""

    step: NDArray[Any]
    value: NDArray[Any]
    rest: tuple[NDArray[Any], ...] = ()

    def at(self, keep: Any) -> Points:
        return Points(self.step[keep], self.value[keep], tuple(column[keep] for column in self.rest))


class Node(NamedTuple):
    """A part of an expression. kind: number, name, negative, function, or a sign; said: its number or its name."""

    kind: str
    said: Any
    parts: tuple[Any, ...] = ()


Read = Callable[[str], Points]


# -- functions ----------------------------------------------------------------------------------------


class Function(NamedTuple):
    """takes: series, then constants, each with the sentence that says what it may be and the test of that.

    run: of points' steps and values, and of the constants; without `takes` it is a function of each value.
    """

    run: Callable[..., Any]
    says: str
    takes: tuple[tuple[str, Callable[[float], bool]], ...] = ()
    least: int = 1
    most: int = 1
    pointwise: bool = True


_FACTOR = (("a factor of at least 0 and less than 1", lambda value: 0.0 <= value < 1.0),)
_WINDOW = (("a whole number of points, 1 to 100,000", lambda value: 1 <= value <= 100_000 and value == int(value)),)


def _numpy(name: str) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        import numpy

        return getattr(numpy, name)(*values)

    return run


def _along(name: str, empty: float) -> Callable[..., Any]:
    """A running reduction over the finite values; the others stay where they are."""

    def run(step: Any, values: Any) -> Any:
        import numpy

        finite = numpy.isfinite(values)
        made = getattr(numpy, name).accumulate(numpy.where(finite, values, empty))
        return numpy.where(finite, made, values)

    return run


def _slope(step: Any, values: Any) -> Any:
    """The change a step since the point before; the first has none."""
    import numpy

    made = numpy.full(len(values), numpy.nan)
    apart = numpy.diff(step).astype(float)
    made[1:] = numpy.where(apart > 0, numpy.diff(values) / numpy.where(apart > 0, apart, 1.0), numpy.nan)
    return made


FUNCTIONS: dict[str, Function] = {
    "ema": Function(
        lambda step, values, factor: columns.smooth(values, factor),
        "ema(x, 0.99): the exponential moving average with this factor, without bias",
        _FACTOR,
        pointwise=False,
    ),
    "mean": Function(
        lambda step, values, points: columns.running_mean(values, int(points)),
        "mean(x, 25): the mean of this many points around each",
        _WINDOW,
        pointwise=False,
    ),
    "gaussian": Function(
        lambda step, values, points: columns.gaussian(values, int(points)),
        "gaussian(x, 25): a bell-shaped mean of this many points around each",
        _WINDOW,
        pointwise=False,
    ),
    "slope": Function(_slope, "slope(x): the change a step since the point before", pointwise=False),
    "best": Function(_along("minimum", float("inf")), "best(x): the smallest so far", pointwise=False),
    "highest": Function(_along("maximum", float("-inf")), "highest(x): the largest so far", pointwise=False),
    "sum": Function(_along("add", 0.0), "sum(x): the sum so far", pointwise=False),
    "log": Function(_numpy("log"), "log(x): the natural logarithm"),
    "log10": Function(_numpy("log10"), "log10(x)"),
    "exp": Function(_numpy("exp"), "exp(x): a perplexity, of a loss"),
    "sqrt": Function(_numpy("sqrt"), "sqrt(x)"),
    "abs": Function(_numpy("abs"), "abs(x)"),
    "min": Function(_numpy("minimum"), "min(x, y): the smaller of two", least=2, most=2),
    "max": Function(_numpy("maximum"), "max(x, y): the larger of two", least=2, most=2),
}


# -- parsing ------------------------------------------------------------------------------------------


def parse(text: str) -> Node:
    """The expression that a text is; a plain name is one. Raises ExpressionError, whose sentence names the place."""
    if len(text) > _LONGEST:
        raise ExpressionError(f"an expression of {len(text):,} characters is too long; {_LONGEST:,} are allowed")
    reader = _Parser(text)
    node = reader.sum(0)
    reader.blanks()
    if reader.at < len(text):
        raise reader.sorry("expected +, -, *, / or the end")
    if next(_names(node), None) is None:
        raise ExpressionError(f"the expression {text.strip()[:60]!r} has no series in it; {_EXAMPLE}")
    return node


def expression(text: str) -> Node | None:
    """The expression that a text is, None for what can only be a name. Raises ExpressionError."""
    return parse(text) if _LOOKS.search(text.strip()) else None


def names_in(node: Node) -> list[str]:
    """The series that an expression reads, each once."""
    return list(dict.fromkeys(_names(node)))


def _names(node: Node) -> Iterator[str]:
    if node.kind == "name":
        yield node.said
    for part in node.parts:
        yield from _names(part)


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.at = 0

    def sorry(self, why: str, at: int | None = None) -> ExpressionError:
        at = self.at if at is None else at
        where = f"at character {at + 1} ({self.text[at : at + 20]})" if at < len(self.text) else "at its end"
        return ExpressionError(f"the expression cannot be read {where}: {why}; {_EXAMPLE}")

    def blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def takes(self, *signs: str) -> str:
        """The next sign, if it is one of these."""
        self.blanks()
        match = _SIGN.match(self.text, self.at)
        found = match[0] if match else self.text[self.at : self.at + 1]
        if found not in signs:
            return ""
        self.at += len(found)
        return found

    def sum(self, depth: int) -> Node:
        node = self.product(depth)
        while sign := self.takes("+", "-"):
            node = Node(sign, None, (node, self.product(depth)))
        return node

    def product(self, depth: int) -> Node:
        node = self.power(depth)
        while sign := self.takes("*", "/"):
            node = Node(sign, None, (node, self.power(depth)))
        return node

    def power(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self.sorry("too much inside one another")
        if self.takes("-"):
            return Node("negative", None, (self.power(depth + 1),))
        node = self.atom(depth)
        if self.takes("^", "**"):
            return Node("^", None, (node, self.power(depth + 1)))
        return node

    def atom(self, depth: int) -> Node:
        self.blanks()
        start = self.at
        if self.takes("("):
            node = self.sum(depth + 1)
            self.close()
            return node
        if match := _NUMBER.match(self.text, self.at):
            self.at = match.end()
            return Node("number", float(match[0]))
        if match := _QUOTED.match(self.text, self.at):
            self.at = match.end()
            return Node("name", re.sub(r"\\(.)", r"\1", match[1] or match[2] or "", flags=re.DOTALL))
        if self.text[self.at : self.at + 1] in ("'", '"') and self.at < len(self.text):
            raise self.sorry("a quote that is not closed")
        match = _NAME.match(self.text, self.at)
        if match is None or match[0] in ("/", "-"):
            raise self.sorry("expected a series, a number or a bracket")
        self.at = match.end()
        if self.text[self.at : self.at + 1] == "(":
            return self.function(match[0], start, depth)
        return Node("name", match[0])

    def close(self) -> None:
        if not self.takes(")"):
            raise self.sorry("expected )")

    def function(self, name: str, start: int, depth: int) -> Node:
        known = FUNCTIONS.get(name)
        if known is None:
            raise self.sorry(f"there is no function {name[:30]}; there are {', '.join(sorted(FUNCTIONS))}", start)
        self.at += 1
        parts = [self.sum(depth + 1)]
        while self.takes(","):
            parts.append(self.sum(depth + 1))
        self.close()
        series = len(parts) - len(known.takes)
        if not known.least <= series <= known.most:
            raise self.sorry(f"write {known.says}", start)
        for part, (says, fits) in zip(parts[series:], known.takes, strict=True):
            if part.kind != "number" or not fits(part.said):
                raise self.sorry(f"{name} takes {says}", start)
        return Node("function", name, tuple(parts))


_WEIGHT = {"+": 1, "-": 1, "*": 2, "/": 2, "negative": 3, "^": 4}


def written(node: Node) -> str:
    """An expression as text that reads as the same expression again."""
    if node.kind == "number":
        return repr(node.said)
    if node.kind == "name":
        plain = _NAME.fullmatch(node.said) and not _NUMBER.fullmatch(node.said) and node.said[0] not in "-/"
        return node.said if plain else "'" + re.sub(r"(['\\])", r"\\\1", node.said) + "'"
    if node.kind == "function":
        return f"{node.said}({', '.join(written(part) for part in node.parts)})"
    texts = [f"({written(part)})" if part.kind in _WEIGHT else written(part) for part in node.parts]
    return f"-{texts[0]}" if node.kind == "negative" else f"{texts[0]} {node.kind} {texts[1]}"


# -- evaluating ---------------------------------------------------------------------------------------


def evaluate(node: Node, read: Read) -> Points:
    """The series that an expression is; `read` gives those that it names, sorted by step, and raises what it likes."""
    import numpy

    with numpy.errstate(all="ignore"):  # what is not a number is a mark in the result
        made = _made(node, read)
    assert isinstance(made, Points)  # `parse` refuses what has no series
    return made


def _made(node: Node, read: Read) -> Points | float:
    if node.kind == "number":
        return float(node.said)
    if node.kind == "name":
        return read(node.said)
    if node.kind == "function":
        known = FUNCTIONS[node.said]
        if known.pointwise:
            return _each(known.run, [_made(part, read) for part in node.parts])
        found = _made(node.parts[0], read)
        constants = [part.said for part in node.parts[1:]]
        if not isinstance(found, Points):
            return found  # of a constant all of these are the constant, but for what changes nothing
        return found._replace(value=known.run(found.step, found.value, *constants))
    return _each(_numpy(_SIGNS[node.kind]), [_made(part, read) for part in node.parts])


_SIGNS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "^": "float_power", "negative": "negative",
}  # fmt: skip


def _each(run: Callable[..., Any], parts: list[Points | float]) -> Points | float:
    """A function of each value, of one series or constant or of two."""
    if len(parts) == 2 and isinstance(parts[0], Points) and isinstance(parts[1], Points):
        first, second = together(parts[0], parts[1])
        return first._replace(value=run(first.value, second.value), rest=first.rest)
    base = next((part for part in parts if isinstance(part, Points)), None)
    values = [part.value if isinstance(part, Points) else part for part in parts]
    return float(run(*values)) if base is None else base._replace(value=run(*values))


def together(first: Points, second: Points) -> tuple[Points, Points]:
    """Two series at the same steps: those of the one with fewer points, that lie within the other.

    The rest of both is that of the one with fewer points.
    """
    import numpy

    if len(first.step) == len(second.step) and bool((first.step == second.step).all()):
        return first, second
    swapped = len(second.step) < len(first.step)
    few, many = (second, first) if swapped else (first, second)
    if not len(few.step):
        return few, few
    inside = (few.step >= many.step[0]) & (few.step <= many.step[-1])
    few = few.at(inside)
    other = Points(few.step, columns.align(few.step, many.step, numpy.asarray(many.value)), few.rest)
    return (other, few) if swapped else (few, other)
