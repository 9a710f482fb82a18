"""What stands before each line's own text: numbers of lines, times and names that a collector or a logger writes.

In:   `     7\tstep 10 loss 2.31`; `train.log:7:step 10 loss 2.31`; `2025-10-02T12:00:01.118Z step 10 loss 2.31`;
      `train_1  | step 10 loss 2.31`; `12:00:01.118 [main] INFO step 10 loss 2.31`.
Out:  `step 10 loss 2.31`, and what stood before it, which may say a time or a rank.

A collector's own words are left out of every text; a logger's for readers that know no logger's line by its beginning.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from barograph.core.patterns import expression

_LOOKED_AT = 60  # lines that decide
_LEAST = 3  # lines of them
_SHARE = 0.9  # of the lines have what is written before each of them
_SOME = 0.5  # have what a logger writes, or a program among others
_LONGEST = 200  # bytes of it

_NUMBERED = expression(rb"(?: {5}\d| {4}\d\d| {3}\d{3}|  \d{4}| \d{5}|\d{6,9})\t")  # `cat -n`
_LINE = expression(
    rb"\d{1,9}[:-](?=\s?[\[(]?" + rb"(?:19|20)\d\d[-/.]\d\d[-/.]\d\d[ T_]\d\d:)"
)  # `grep -n` in one file
_FOUND = expression(rb"[\w./-]{0,100}\.(?:log|txt|out|err|stdout)[:-]\d{1,9}[:-]")  # `grep -n`
_TIMED = expression(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)[ \t]")
_SERVICE = expression(rb"[A-Za-z][\w.-]{0,40}[_-]\d{1,3}\s{1,20}\| ?")  # docker compose
_POD = expression(rb"\[pod/[\w./-]{1,200}\] ")  # of Kubernetes
_LAUNCHED = expression(rb"\[\d{1,4},mpirank:\d{1,6},algo-\d{1,6}\]<std\w{3}>: ?")  # of SageMaker
_MINUTES = expression(rb"\d\d:\d\d (?=\S)")
_SCRIPT = expression(rb"[\w./-]{1,80}\.(?:py|sh|jl|r|R|ipynb)(?::\d{1,6})? {0,2}[|:>-] ")
_RANKED = expression(rb"(?i:rank|worker|gpu|node|proc(?:ess)?)[ _:#-]?\d{1,6} ?[|>-] ")
_TAG = expression(
    rb"\[(?!(?i:train|training|val|valid|validation|test|eval|evaluation|dev|step|epoch|iter|iteration|batch|loss)[\]:])"
    rb"[A-Za-z][\w.:-]{0,30}\] (?=\S)"
)
_ACTOR = expression(rb"\((?:[\w.:]{1,60} )?pid=\d{1,9}(?:, ip=[\d.]{7,15})?\) ")  # of Ray
_HOST = expression(  # of a shell for many machines
    rb"(?!(?i:epoch|step|iter|fold|layer|loss|train|val|test|eval|batch|model|run|trial))"
    rb"[a-z][a-z.-]{1,24}\d{1,4}: (?=\S)"
)
_PRINTED = expression(rb'\[1\] "(?=[\[A-Za-z\d])')  # R's
_QUOTED = expression(rb"(?:> ?){1,4}")
_KNITTED = expression(rb" {0,4}#[#>](?: |$)")  # an output in a page of knitr's or reprex's
_CHAIN = expression(rb"Chain \d{1,3}:(?: |$)")  # of Stan
_DIGITS = expression(rb"(\d{1,9})[^\d]$")

_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_TIME = (
    rb"(?:(?:\d{4}[-/.]\d\d[-/.]\d\d|\d\d[-/.]\d\d(?:[-/.]\d{2,4})?|[A-Z][a-z]{2} {1,2}\d{1,2})[ T_]{1,2}"
    rb"(?:(?:"
    + _CLOCK
    + rb")(?:Z| ?[+-]\d\d:?\d\d| UTC| GMT)?)|"
    + _CLOCK
    + rb"|[IWEF]\d{4} "
    + _CLOCK
    + rb"|1\d{9}\.\d{1,9})"
)
_LEVEL = rb"(?:INFO|LOG|INF|DEBUG|DBG|DEBG|NOTICE|WARN(?:ING)?|TRACE|info|debug|Info)(?![\w./(])"
_SOURCE = rb"(?:[\w./-]{1,80}\.(?:py|go|cc|cpp|cu|rs|jl|java|kt|scala|c|h|lua|ts|js)(?::| line )\d{1,6}(?::\w{1,40})?)"
_CLASS = rb"(?:(?:[a-z]\w{0,24}\.){1,8}[A-Z]\w{1,60}(?: -|:)(?=\s))"  # of Java
_NAME = (
    rb"\[(?!(?i:train|training|val|valid|validation|test|eval|evaluation|dev|rank|gpu|"
    rb"(?:global_?)?(?:step|iter|iteration|epoch|batch|update|episode|round)s?|loss)[\]:])"
    rb"[A-Za-z][A-Za-z_.:-]{0,40}\]"
)
_LOGGER = (  # `- __main__ - `, a process's number
    rb"(?:(?<=- )(?!(?i:train|training|val|valid|validation|test|eval|dev|step|epoch|loss|iter) )"
    rb"[A-Za-z_][\w.]{0,40}(?= {1,4}- )|(?<=\d )[a-z_][a-z_.]{0,30}(?= {1,4}"
    + _LEVEL
    + rb")|(?<= )\[\d{1,7}\](?= "
    + _LEVEL
    + rb")|(?<=\| )[\w.]{1,80}:(?!\w{0,40}(?i:val|test|eval))[\w<>]{1,60}:\d{1,6}(?= - )"  # loguru's place
    rb"|(?<=- )\s{0,24}[A-Za-z_][\w.]{0,60}: \[\s{0,8}" + _LEVEL + rb"\](?= - ))"  # timm's
)
_WORD = expression(  # a logger's name, where it stands on each line
    rb"(?!(?i:train|training|val|valid|validation|test|eval|evaluation|dev|step|epoch|iter|iteration|batch|round|loss|at|"
    rb"it|update|after|up|episode|cost|rank) )"
    rb"(?:(?:trainer|main|root|loop|runner|engine|fit) (?=\d)|"
    rb"[a-z_][a-z_.]{1,30} (?=[A-Za-z\[(]|\xd0|\xd1|[\xe3-\xed]))"
)
_BETWEEN = rb"[\s|:>-]{0,8}"
_ELEMENT = (
    rb"(?:[\[(](?:" + _TIME + rb"|" + _LEVEL + rb"|" + _SOURCE + rb"|1\d{9}\.\d{1,9})(?: ?" + _LEVEL + rb")?[\])]"
    rb"|" + _TIME + rb"(?=[\s|\]:,-])|" + _LEVEL + rb"|" + _SOURCE + rb"[\])]?)"
)
_LOGGED = expression(
    rb"(?:<\d{1,3}>1 \S{19,40} \S{1,60} \S{1,40} \S{1,20} \S{1,20} (?:-|\[[^\]\n]{0,80}\]) "  # syslog's newer form
    rb"|\d\d-\d\d " + _CLOCK + rb"\s{1,3}\d{1,7}\s{1,3}\d{1,7} [VDIWEF] [\w.-]{1,40}\s{0,20}: "  # Android's
    rb"| {0,8}[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d " + _CLOCK + rb" \d{4}:? "  # of C's own
    rb"| {0,8}\[\s{0,8}\d{1,9}\.\d{6}\] "  # the kernel's
    rb"|\(\d{1,9}\.\d{1,3}s\) "  # since the beginning
    rb"| {0,8}[A-Z][a-z]{2} [ \d]\d "
    + _CLOCK
    + rb" [\w.-]{1,60} [\w./@-]{1,60}(?:\[\d{1,7}\])?: "  # syslog's older form
    rb"| {0,8}\[[DEFIVW] (?:\d{6} )?" + _TIME + rb"(?: [A-Za-z_][\w.]{0,40}:\d{1,6})?\] "  # and Tornado's
    rb"| {0,8}"
    + _ELEMENT
    + rb"(?:"
    + _BETWEEN
    + rb"(?:"
    + _ELEMENT
    + rb"|"
    + _CLASS
    + rb"|"
    + _NAME
    + rb"(?=[\s:\[])|[DEFIVW](?=\s)|"
    + _LOGGER
    + rb")){0,7}"
    rb"[\s|:>-]{1,8}(?:#{1,3}[ \t]{1,4})?)"  # a mark behind it begins no heading
)


def collected(text: bytes) -> tuple[bytes, list[bytes] | None]:
    """A text without what a collector wrote before its lines, and that."""
    leads: list[bytes] | None = None
    for pattern, share, fits in (*_COLLECTED, *_COLLECTED):  # one may stand behind the other
        sample = _sample(text)
        found = [match for line in sample if (match := pattern.match(line))]
        if len(found) < max(_LEAST, share * len(sample)):
            continue
        if fits is not None and not fits([match[0] for match in found]):
            continue
        text, leads = _without(text, pattern, leads)
    return text, leads


def logged(text: bytes, leads: list[bytes] | None = None) -> tuple[bytes, list[bytes] | None]:
    """A text without what a logger wrote before its lines, and that behind `leads`."""
    sample = _sample(text)
    found = sum(1 for line in sample if _LOGGED.match(line))
    if not found or found < _SOME * len(sample):
        return text, leads
    text, leads = _without(text, _LOGGED, leads)
    words = Counter(match[0] for line in _sample(text) if (match := _WORD.match(line))).most_common(1)
    if words and words[0][1] >= found:
        text, leads = _without(text, re.compile(re.escape(words[0][0])), leads)
    return text, leads


def _sample(text: bytes) -> list[bytes]:
    """Some lines of a text that are not empty, of its beginning and of its middle."""
    lines = text[: 1 << 13].split(b"\n")[: _LOOKED_AT // 2]
    half = len(text) // 2
    if half > 1 << 13:
        lines += text[half : half + (1 << 13)].split(b"\n")[1 : 1 + _LOOKED_AT // 2]
    return [line for line in lines if line.strip()]


def _without(text: bytes, pattern: re.Pattern[bytes], leads: list[bytes] | None) -> tuple[bytes, list[bytes]]:
    lines = text.split(b"\n")
    cut = leads or [b""] * len(lines)
    for index, line in enumerate(lines):
        if found := pattern.match(line, 0, _LONGEST):
            lines[index] = line[found.end() :]
            cut[index] += b"" if pattern is _LINE else found[0]  # a line's number isn't a rank
    return b"\n".join(lines), cut


def _numbers(found: list[bytes]) -> list[int]:
    return [int(match[1]) for text in found if (match := _DIGITS.search(text))]


def _follows(found: list[bytes]) -> bool:
    """Whether numbers go up by one, but for the gap between the two samples."""
    pairs = list(pairwise(_numbers(found)))
    return sum(late == early + 1 for early, late in pairs) >= _SHARE * len(pairs)


def _numbered(found: list[bytes]) -> bool:
    """Whether numbers go up and aren't ranks, which begin at 0."""
    return _rises(found) and _numbers(found)[0] > 0


def _same(found: list[bytes]) -> bool:
    """Whether all are the same text."""
    return len(set(found)) == 1


def _rises(found: list[bytes]) -> bool:
    """Whether numbers go up."""
    return all(early < late for early, late in pairwise(_numbers(found)))


_COLLECTED = (
    (_PRINTED, _SOME, None),
    (_QUOTED, _SHARE, None),
    (_KNITTED, _SHARE, _same),
    (_CHAIN, _SHARE, _same),
    (_TIMED, _SOME, None),
    (_SERVICE, _SOME, None),
    (_POD, _SOME, None),
    (_LAUNCHED, _SHARE, _same),
    (_SCRIPT, _SOME, _same),
    (_RANKED, _SOME, _same),
    (_TAG, _SOME, _same),
    (_MINUTES, _SOME, None),
    (_ACTOR, _SOME, None),
    (_HOST, _SOME, _same),
    (_FOUND, _SHARE, _rises),
    (_LINE, _SHARE, _numbered),
    (_NUMBERED, _SHARE, _follows),
)
