"""Finding one's way among up to hundreds of thousands of names.

In:   a run's sorted names; a regular expression, or the path of a group.
Out:  the names that match; the groups and names one step below.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

LONGEST_PATTERN = 1_000


def matching(names: list[str], pattern: str, limit: int) -> dict[str, Any]:
    """`{"names": the first `limit` that match, "total": how many do}`.

    The pattern is a regular expression of RE2, found anywhere in a name; small letters stand for large ones too, unless
    it has a large one itself. RE2 needs time in proportion to the text, whatever the pattern. Raises ValueError with a
    sentence for a pattern that is none.
    """
    import pyarrow
    import pyarrow.compute

    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"a pattern of {len(pattern):,} characters is too long; {LONGEST_PATTERN:,} are allowed")
    try:
        column = pyarrow.array([_sound(name) for name in names], pyarrow.large_string())
        hits = pyarrow.compute.match_substring_regex(column, pattern=pattern, ignore_case=pattern == pattern.lower())
    except (pyarrow.ArrowException, ValueError) as error:
        said = str(error).split("expression: ")[-1].splitlines()[0]
        raise ValueError(f"{pattern[:100]!r} is not a regular expression: {said[:200]}") from None
    places = pyarrow.compute.indices_nonzero(hits)
    return {"names": [names[at] for at in places.slice(0, limit).to_pylist()], "total": len(places)}


def _sound(name: str) -> str:
    """A name as Arrow can hold it: half a surrogate pair is written out."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace").decode()
    return name


def below(names: list[str], prefix: str) -> dict[str, Any]:
    """One step of the tree: `groups`, each with its number of series, and `leaves`, full names.

    prefix: the path of a group, such as `gradients/`; "" for the top. names: sorted.
    """
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    groups: list[dict[str, Any]] = []
    leaves: list[str] = []
    at = bisect_left(names, prefix)
    size = len(prefix)
    if prefix and at < len(names) and names[at] == prefix:
        at += 1  # a name that ends with a slash is a leaf of the step above
    while at < len(names) and names[at].startswith(prefix):
        name = names[at]
        cut = name.find("/", size)
        if cut < 0 or cut == len(name) - 1:
            leaves.append(name)
            at += 1
            continue
        group = name[: cut + 1]
        # all that begin with the group: up to the first text behind "group/", as "0" follows "/"
        end = bisect_left(names, f"{group[:-1]}0", at)
        if groups and groups[-1]["prefix"] == group:
            groups[-1]["count"] += end - at
        else:
            groups.append({"name": name[size:cut], "prefix": group, "count": end - at})
        at = end
    return {"groups": groups, "leaves": leaves}


def families(names: list[str]) -> dict[str, int]:
    """How many series each family, the first part of a name, has; those without one are under their own name's ""."""
    result: dict[str, int] = {}
    for name in names:
        family, slash, _ = name.partition("/")
        key = family if slash else ""
        result[key] = result.get(key, 0) + 1
    return result
