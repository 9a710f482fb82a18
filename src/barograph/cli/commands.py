"""How commands are declared, and what they share: arguments, types, printing.

In:   a parser.
Out:  a command's parser, with the function that runs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable


class Commands:
    """The commands of a parser."""

    def __init__(self, parser: argparse.ArgumentParser):
        self._made = parser.add_subparsers(dest="command", metavar="COMMAND")

    def add(self, name: str, function: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        """A command. text: what it does, as a verb phrase without a full stop."""
        made = self._made.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        made.set_defaults(function=function)
        return made

    @staticmethod
    def common(made: argparse.ArgumentParser, run: bool = True, as_json: bool = True) -> None:
        """The arguments that most commands have: RUN, --dir, --json."""
        if run:
            made.add_argument("run", metavar="RUN", help="a run's id, name, folder, or a log file")
        made.add_argument("--dir", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)")
        if as_json:
            made.add_argument("--json", action="store_true", help="print JSON")


def words(text: str) -> list[str]:
    """Words with commas between them."""
    return [word.strip() for word in text.split(",") if word.strip()]


def count(word: str) -> int:
    """A whole number from 0."""
    try:
        number = int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number
