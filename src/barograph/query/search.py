"""Runs by what is known of them: words anywhere, conditions on fields, both at once.

In:   words as typed, each a word, a phrase, a condition such as `config.lr > 1e-3`, or a pair such as `lr=3e-4`.
Out:  the runs that have them all, with the places where they were found, the best first.

A word is looked for in name, id, tags, project, notes, configuration, commit, branch, command and host; what is not
there, in the findings that the doctor recorded. Capital letters don't matter, and a part of a word is enough.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barograph.query import curation
from barograph.query.filters import FIELDS, Condition, FilterError, matches, parse
from barograph.query.findings import recorded_findings
from barograph.query.stored import StoredRun

# How much a place says, for the order of what was found; whole words and beginnings count more.
_PLACES = {
    "name": 20, "id": 20, "tag": 16, "project": 10, "commit": 10, "notes": 8, "config": 6, "branch": 5, "finding": 4,
    "command": 2, "host": 2,
}  # fmt: skip
_OPERATORS = re.compile(r"[=<>~]")
_PAIR = re.compile(r"([\w./-]+?)\s*(==|!=|<=|>=|[=<>])\s*(\S.*)", re.DOTALL)
_AROUND = 36  # characters shown on each side of a word that was found
_LONGEST_VALUE = 2_000  # characters of one value that are looked at
_MOST_LEAVES = 5_000


@dataclass(frozen=True)
class Hit:
    """A run that has all words. found: a place for each word → the text around it. score: for the order alone."""

    run: StoredRun
    score: float
    found: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        about = curation.over(self.run.dir, self.run.manifest)
        return {
            "project": self.run.project,
            "id": self.run.id,
            "name": str(about.get("name") or self.run.id),
            "status": self.run.status,
            "created": about.get("created"),
            "tags": list(about.get("tags") or []),
            "archived": about.get("archived") is True,
            "dir": str(self.run.dir),
            "found": self.found,
        }


@dataclass
class Found:
    """hits: the best first. looked_at: how many runs there are. nearest: a known word, where nothing was found."""

    hits: list[Hit] = field(default_factory=list)
    looked_at: int = 0
    nearest: str | None = None


@dataclass(frozen=True)
class SearchTerms:
    """What was typed, sorted: words and phrases in small letters, conditions, pairs of a key's end and a value."""

    words: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    pairs: tuple[tuple[str, str, str], ...] = ()


def search(words: Sequence[str], runs: Iterable[StoredRun], *, findings: bool = True) -> Found:
    """Those of some runs, the newest last as `catalog.runs` gives them, that have all words.

    findings: also look into what the doctor recorded. Raises ValueError without a word,
    FilterError for a condition that can't be read.
    """
    wanted = read(words)
    if not (wanted.words or wanted.conditions or wanted.pairs):
        raise ValueError("say what to search for: a word, a phrase, or a condition such as 'config.lr > 1e-3'")
    known = list(runs)
    result = Found(looked_at=len(known))
    vocabulary: set[str] = set()
    for run in reversed(known):  # the newest first, and first among equals
        hit = look(run, wanted, findings, vocabulary)
        if hit is not None:
            result.hits.append(hit)
    result.hits.sort(key=lambda item: -item.score)
    if not result.hits and len(wanted.words) == 1:
        near = difflib.get_close_matches(wanted.words[0], vocabulary, 1, 0.7)
        result.nearest = near[0] if near else None
    return result


def choose(runs: Iterable[StoredRun], words: Sequence[str]) -> list[StoredRun]:
    """The runs that have all words or meet the conditions, in their order; findings are not looked at.

    What `barograph ls WORDS…` and a page's filter box take. Raises FilterError for a condition that can't be read.
    """
    wanted = read(words)
    return [run for run in runs if look(run, wanted, findings=False) is not None]


def read(words: Sequence[str]) -> SearchTerms:
    """Tell words from conditions. Words that make one condition together, as a shell splits it, are one.

    Raises FilterError for what has a condition's signs and is none.
    """
    given = [word.strip() for word in words if word.strip()]
    joined = " ".join(given)
    if _OPERATORS.search(joined):
        try:
            return SearchTerms(conditions=(parse(joined),))
        except FilterError as error:
            if not any(_PAIR.fullmatch(word) for word in given):
                raise
            whole: FilterError = error
    plain: list[str] = []
    conditions: list[Condition] = []
    pairs: list[tuple[str, str, str]] = []
    for word in given:
        if not _OPERATORS.search(word):
            plain.append(word.casefold())
            continue
        try:
            conditions.append(parse(word))
        except FilterError:
            pair = _PAIR.fullmatch(word)
            if pair is None or pair[1].lower() in FIELDS or word.lower().startswith("config."):
                raise whole from None
            pairs.append((pair[1], pair[2], pair[3].strip()))
    return SearchTerms(tuple(plain), tuple(conditions), tuple(pairs))


def look(run: StoredRun, wanted: SearchTerms, findings: bool = True, vocabulary: set[str] | None = None) -> Hit | None:
    """Whether a run has all that is wanted, and where; None if it has not. vocabulary: gets the run's words."""
    if not all(matches(condition, run) for condition in wanted.conditions):
        return None
    found: dict[str, str] = {}
    score = 0.0
    leaves: list[tuple[str, Any]] | None = None
    for key, operator, value in wanted.pairs:
        leaves = list(_leaves(run.config)) if leaves is None else leaves
        held = _meets(run, leaves, key, operator, value)
        if held is None:
            return None
        found["config"] = held
        score += _PLACES["config"]
    missing = list(wanted.words)
    for place, text in _texts(run, leaves) if missing else ():
        lower = text.casefold()
        if vocabulary is not None and place in ("name", "tag", "project", "config"):
            vocabulary.update(word for word in re.split(r"[\W_]+", lower[:200]) if len(word) > 2)
        for word in list(missing):
            if (at := lower.find(word)) >= 0:
                missing.remove(word)
                score += _weight(place, lower, word, at)
                found.setdefault(place, _around(text, at, len(word)))
        if not missing and vocabulary is None:
            break
    if missing and findings:
        for text in _findings(run):
            lower = text.casefold()
            for word in list(missing):
                if (at := lower.find(word)) >= 0:
                    missing.remove(word)
                    score += _weight("finding", lower, word, at)
                    found.setdefault("finding", _around(text, at, len(word)))
            if not missing:
                break
    return None if missing else Hit(run, score, found)


def _weight(place: str, text: str, word: str, at: int) -> float:
    weight = float(_PLACES[place])
    if text == word:
        return 2 * weight
    begins = at == 0 or not text[at - 1].isalnum()
    after = at + len(word)
    ends = after == len(text) or not text[after].isalnum()
    return weight * (1.5 if begins and ends else 1.2 if begins else 1.0)


def _around(text: str, at: int, length: int) -> str:
    """The word that was found and what stands around it, on one line."""
    low, high = max(0, at - _AROUND), min(len(text), at + length + _AROUND)
    shown = " ".join(text[low:high].split())
    return ("…" if low else "") + shown + ("…" if high < len(text) else "")


def _texts(run: StoredRun, leaves: list[tuple[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """What is known of a run, the places that say most first."""
    about = run.manifest  # once: it is long
    about = curation.over(run.dir, about) if about else {}
    project = str(about.get("project") or run.dir.resolve().parent.name)
    yield "name", str(about.get("name") or run.id)
    yield "id", f"{project}/{run.id}"
    for tag in about.get("tags") or ():
        yield "tag", str(tag)
    yield "project", project
    if notes := about.get("notes"):
        yield "notes", str(notes)
    if commit := about.get("repo_commit"):
        yield "commit", str(commit)
    git = about.get("git")
    if isinstance(git, Mapping) and git.get("branch"):
        yield "branch", str(git["branch"])
    config = about.get("config")
    leaves = list(_leaves(config if isinstance(config, Mapping) else run.config)) if leaves is None else leaves
    for key, value in leaves:
        yield "config", f"{key}={_value(value)}"
    command = about.get("command")
    if command:
        yield "command", " ".join(map(str, command)) if isinstance(command, list) else str(command)
    if host := about.get("host"):
        yield "host", str(host)


def _findings(run: StoredRun) -> Iterator[str]:
    """What the doctor recorded while the run went on, as far as it stands."""
    with contextlib.suppress(OSError):
        for record in recorded_findings(run):
            yield f"{record.fields.get('rule', '')}: {record.fields.get('message', '')}"


def _leaves(config: Mapping[str, Any], lead: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Dotted keys and plain values of a configuration."""
    for key, value in itertools.islice(config.items(), _MOST_LEAVES):
        path = f"{lead}{key}"
        if isinstance(value, Mapping) and value and depth < 20:
            yield from _leaves(value, f"{path}.", depth + 1)
        else:
            yield path, value


def _value(value: Any) -> str:
    return (f"{value:.10g}" if isinstance(value, float) else str(value))[:_LONGEST_VALUE]


def _meets(run: StoredRun, leaves: Sequence[tuple[str, Any]], key: str, operator: str, value: str) -> str | None:
    """The entry of the configuration whose key ends so and whose value compares so; None if there is none."""
    wanted = key.casefold()
    for path, held in leaves:
        lower = path.casefold()
        if lower == wanted or re.split(r"[./]", lower)[-1] == wanted or lower.endswith(f".{wanted}"):
            try:
                if matches(parse(f"config.{path} {operator} {value}"), run):
                    return f"{path}={_value(held)}"
            except FilterError:  # a key with signs of the language in it, or a value of several words
                if operator in ("=", "==") and _value(held).casefold() == value.casefold():
                    return f"{path}={_value(held)}"
    return None
