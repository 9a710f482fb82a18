"""Everything there is is documented, and what is documented is there."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from barograph.cli import _parser
from barograph.record import KINDS

DOCS = Path(__file__).parents[1] / "docs"


def commands() -> dict[str, argparse.ArgumentParser]:
    (sub,) = [action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(sub.choices)


def test_every_kind_of_record_is_documented_and_no_other() -> None:
    text = (DOCS / "records.md").read_text()
    assert set(re.findall(r"^\| `([\w-]+)` \|", text, re.M)) == set(KINDS)


def test_every_command_and_each_of_its_options_is_documented() -> None:
    text = (DOCS / "commands.md").read_text()
    found = commands()
    assert set(re.findall(r"^## `barograph (\w+)`", text, re.M)) == set(found)
    for name, parser in found.items():
        section = text.split(f"## `barograph {name}`")[1].split("\n## ")[0]
        for action in parser._actions:
            for option in action.option_strings:
                if option.startswith("--") and option not in ("--help", "--dir", "--json"):
                    assert option in section, f"docs/commands.md: {name} lacks {option}"


def test_every_command_explains_itself() -> None:
    for parser in commands().values():
        assert parser.description
        for action in parser._actions:
            assert action.help
