"""How commands are declared, and what they share: arguments, types, printing.

In:   a parser.
Out:  a command's parser, with the function that runs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

GROUPS = {
    "look": "look at runs",
    "understand": "understand them",
    "keep": "keep them in order",
    "exchange": "bring in and out",
    "run": "run something",
}


class Commands:
    """The commands of a parser, in groups by what they are for."""

    def __init__(self, parser: argparse.ArgumentParser):
        self._parsers = parser.add_subparsers(
            prog="barograph", dest="command", metavar="COMMAND", help=argparse.SUPPRESS
        )
        self._texts: dict[str, dict[str, str]] = {title: {} for title in GROUPS.values()}

    def add(
        self, name: str, function: Callable[[argparse.Namespace], int], group: str, text: str, more: str = ""
    ) -> argparse.ArgumentParser:
        """A command. text: what it does, a verb phrase without a full stop; more: further sentences of its help."""
        self._texts[GROUPS[group]][name] = text
        description = f"{text[0].upper()}{text[1:]}. {more}".strip()
        parser = self._parsers.add_parser(name, description=description)
        parser.set_defaults(function=function)
        return parser

    def listing(self) -> str:
        """Every command in a line, under the headings of their groups."""
        blocks = [
            "\n".join([title, *(f"  {name:<9} {text}" for name, text in texts.items())])
            for title, texts in self._texts.items()
        ]
        return "\n\n".join(blocks)

    @staticmethod
    def common(parser: argparse.ArgumentParser, run: bool = True, as_json: bool = True) -> None:
        """The arguments that most commands have: RUN, --dir, --json."""
        if run:
            parser.add_argument("run", metavar="RUN", help="a run's id, name or folder, or a log file")
        parser.add_argument("--dir", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)")
        if as_json:
            parser.add_argument("--json", action="store_true", help="print JSON")


def words(text: str) -> list[str]:
    """Words with commas between them."""
    return [word.strip() for word in text.split(",") if word.strip()]


def count(word: str) -> int:
    """A whole number from 0."""
    try:
        number = int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number
