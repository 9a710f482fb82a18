"""Everything there is is documented, and what is documented is there."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import re
from pathlib import Path

import pytest

from barograph.cli import _parser
from barograph.cli.commands import GROUPS
from barograph.core.record import KINDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def commands() -> dict[str, argparse.ArgumentParser]:
    (sub,) = [action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(sub.choices)


def test_every_kind_of_record_is_documented_and_no_other() -> None:
    text = (DOCS / "reference" / "records.md").read_text()
    assert set(re.findall(r"^\| `([\w-]+)` \|", text, re.M)) == set(KINDS)


def test_every_command_and_each_of_its_options_is_documented() -> None:
    text = (DOCS / "reference" / "commands.md").read_text()
    found = commands()
    assert set(re.findall(r"^## `barograph (\w+)`", text, re.M)) == set(found)
    for name, parser in found.items():
        section = text.split(f"## `barograph {name}`")[1].split("\n## ")[0]
        for action in parser._actions:
            for option in action.option_strings:
                if option.startswith("--") and option not in ("--help", "--dir", "--json"):
                    assert option in section, f"docs/reference/commands.md: {name} lacks {option}"


DIALECT = re.compile(
    r"\bis no\b|\bare no\b|so many|remark|\btold\b|\bsaid\b|\bspread\b|\bgraver\b|\bcall it so\b", re.I
)


def test_every_command_explains_itself_in_plain_words() -> None:
    for name, parser in commands().items():
        assert parser.description
        for action in parser._actions:
            assert action.help
        assert not DIALECT.search(parser.format_help()), name


def test_the_help_lists_every_command_once_in_a_short_line_under_what_it_is_for() -> None:
    text = _parser().format_help()
    found = re.findall(r"^  (\w+) +(.+)$", text, re.M)
    assert sorted(name for name, _ in found) == sorted(commands())
    assert all(len(line) <= 80 for line in text.splitlines())
    for heading in GROUPS.values():
        assert re.search(rf"^{heading}\n  \w", text, re.M)


# turns that a reader has to guess at; each has a plain word: info finding, degrees of freedom, more severe, …
BANNED = re.compile(
    r"\bremarks?\b|(?<!degrees of )\bfreedom\b|\bgraver\b|\bforetold\b|\b[sS]o many\b|\b(?:is|are|was|were|be) told\b"
    r"|(?<![tT]here )\b(?:is|are) no\b(?! longer| further| more|ne| such)|\bstands? in\b|\bno longer so\b"
)
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
SOURCES = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "web" / "src").rglob("*.ts*"))]


def banned(path: Path) -> list[str]:
    lines = enumerate(path.read_text().splitlines(), 1)
    return [
        f"{path.relative_to(ROOT)}:{at}: {match[0]!r} in: {line.strip()[:100]}"
        for at, line in lines
        if (match := BANNED.search(line))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_written_in_plain_words(page: Path) -> None:
    assert not banned(page)


def test_messages_comments_and_names_are_plain_words() -> None:
    assert not [line for path in SOURCES for line in banned(path)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as a code forge makes them."""
    heads = [line.lstrip("#").strip() for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_headings_that_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!http)([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def resolve(name: str) -> object:
    """What a dotted name means: a module, or what is in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            found: object = importlib.import_module(".".join(parts[:count]))
            for part in parts[count:]:
                found = getattr(found, part)
            return found
    raise ModuleNotFoundError(name)


NAMES = {name: page for page in PAGES for name in re.findall(r"\bbarograph(?:\.[A-Za-z_]\w*)+", page.read_text())}
NAMES.pop("barograph.escaped", None)  # a tag of MLflow's runs


@pytest.mark.parametrize("name", sorted(NAMES))
def test_names_that_a_page_mentions_exist(name: str) -> None:
    try:
        assert resolve(name) is not None, NAMES[name]
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) or " needs " not in str(error):
            raise
        pytest.skip(str(error))  # an adapter's framework is not installed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_mentions_exist(page: Path) -> None:
    for path in re.findall(r"(?<![\w/.])(?:src|tests|docs|benchmarks|web)/[\w/.-]+\w", page.read_text()):
        assert page.name == "sources.md" or (ROOT / path).exists(), path
