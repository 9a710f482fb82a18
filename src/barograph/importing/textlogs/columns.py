"""Rows under a heading that says their names once, as text in which each row says them.

In:   `  step |   loss |       lr` and below it `    10 | 2.3013 | 3.0e-04`; with blanks, tabs or bars between, behind
      whatever a logger writes first; tables of Markdown too.
Out:  `step=10, loss=2.3013, lr=3.0e-04` in the row's place.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import data_tables, forms, pads, tongues
from barograph.importing.textlogs.gist import gist

_COUNT = (
    rb"(?:(?:(?:global|train(?:ing)?)[ _])?(?:steps?|iter(?:ation)?s?|updates?|epochs?|batch|rounds?|episodes?)|"
    rb"itn?\.?|(?:e|ep|nr|#)(?=[ \t]{2}|[ \t]*\|))"
)
_MEASURE = (
    rb"loss|(?:train(?:ing)?|test|val(?:idation)?)[ _]error|"
    rb"nll|ppl|perplexity|x-?ent|cross.?ent(?:ropy)?(?![a-z])|(?<![a-z])(?:[cx]e|bce)(?![a-z])|acc(?:uracy)?|reward|bpb|"
    rb"r?mse|deviance|(?<![a-z])elbo(?![a-z])|(?<![a-z])l_total(?![a-z])|(?<![a-z])l[12]_(?:trn|tst|train|test|val)(?![a-z])|objective|criterion|(?<![a-z])cost|"
    rb"(?<![a-z])(?:box|giou|conf|wh)[ \t|]{1,40}(?:obj|cls|conf|id)(?![a-z])"
)
_HEADING = expression(
    rb"(?im)(?<![\w./])" + _COUNT + rb"[ \t|,]{1,40}(?=[a-z#][^\n=:{}\"]{1,500}$)"
    rb"(?=[^\n]{0,400}?(?:" + _MEASURE + rb"))"
)
_BEGINS = {  # the words of `_COUNT` in small letters, each with what must follow
    word: expression(rb"(?m)" + word + end + rb"[ \t|,]{1,40}(?=[a-z#][^\n=:{}\"]{1,500}$)")
    for end, words in (
        (rb"s?", (b"step", b"iter", b"iteration", b"update", b"epoch", b"batch", b"round", b"episode")),
        (rb"n?\.?", (b"it",)),
        (rb"(?=[ \t]{2}|[ \t]*\|)", (b"e", b"ep", b"nr", b"#")),
    )
    for word in words
}
_OF_VALUES = expression(  # a heading of measures alone, below which rows say no step
    rb"(?im)^[ \t|]{0,8}(?:(?:tra?i?n(?:ing)?|val?(?:id(?:ation)?)?|test|dev|eval|avg|mean|total)[ _.-]?)?"
    rb"(?:loss|acc(?:uracy)?|mse|mae|ppl|cost)(?:[_-](?:train|tr|val|test))?[ \t|,]{1,40}[a-z][^\n=:{}\"\d]{1,300}$"
)
_ONE_VALUE = expression(  # the same of one column: `Cost function value`, `% mean class accuracy (train set)`
    rb"(?im)^[ \t%]{0,8}(?:[a-z]{1,20}[ _]){0,3}(?:loss|cost|acc(?:uracy)?|perplexity|"
    rb"(?<=ing )error|(?<=tion )error|(?<=test )error)"
    rb"(?:[ _](?:function|value|values|history)){0,2}(?: \((?:train|test|val(?:id(?:ation)?)?) set\))?[ \t]*\r?$"
)
_FIRST = expression(rb"(?i)(?<![\w./])" + _COUNT + rb"(?=[\s|,])")
_SAID = expression(rb"(?i)" + _MEASURE)
_WORD = expression(rb"[A-Za-z\x80-\xff][\w ./@%()#:'\x80-\xff-]{0,60}|#")
_NUMBER = expression(forms.NUMBER + rb"(?:%|[kKMGT]i?B?)?")
_WHOLE = expression(rb"(\d{1,15})(?:/\d{1,15})?")
_BAR = expression(
    rb":?\s{1,8}\d{1,3}%\s?(?:\||[^\x00-\x7f])[^\n]{0,300}?\s(\d{1,15})/(\d{1,15})(?!\d)"
)  # behind the last cell
_OF_DATA = expression(  # `train loss`
    rb"(?i)(?<![\w.])(train(?:ing)?|val(?:id(?:ation)?)?|test|eval|dev) (loss|acc(?:uracy)?|err(?:or)?)(?!\w)"
)
_QUALIFIED = expression(rb"(?i)\|[ \t]{0,8}(?:[a-z]{1,20} ){1,3}$")
_OF_THINGS = expression(  # ahead of what counts: a row is one of several models, not a step of one
    rb"(?i)(?<![a-z])(?:models?|methods?|names?|configs?|configuration|experiments?|runs?|datasets?|tasks?|variants?|"
    rb"settings?|approach|architectures?|algorithms?|optimizers?|systems?|versions?|networks?|backbones?|presets?|size)"
    rb"[ \t]{0,20}\|[^\n]{0,80}$"
)
_OF_SET = expression(rb"(?i)(.{1,60}?)(?: function)?(?: values?| history)?(?: \((train|test|val\w{0,8}) set\))?$")
_ASIDE = expression(  # `training's loss`, `loss (curr)`, `MAE (eV/Å)`
    rb"'s(?=[ _])|[ _]?\((?:[a-z]{1,12}|[A-Za-z\x80-\xff%][A-Za-z\d\x80-\xff/^%.-]{0,14})\)"
)
_DATA_BEHIND = expression(rb"(?i)(.{1,60}?)[ _]?\((train(?:ing)?|val(?:id(?:ation)?)?|test|eval|dev)\)")  # `Loss (val)`
_THOUSANDS = expression(rb"\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,12})?")
_VALUED = expression(rb"[ #:]\d{1,15}\.\d{2,}$")
_PLURAL = expression(rb"(?i)(?:epochs|steps|iterations)")
_SETTING = expression(
    rb"(?i)(?:batch[ _-]?size|batch|optimi[sz]er|model|dropout|params|parameters|data ?set|hidden[ _]size|layers|seed|"
    rb"notes?|comments?|description|setup|changes?)"
)
_COMMENT = expression(rb"[ \t]{0,8}[#%;][ \t]{1,8}(?=" + _COUNT + rb"[ \t])")  # ahead of a heading: `#  step    rmse`
_AHEAD = expression(  # as Hugging Face's model cards begin their table
    rb"(?i)\|?[ \t]{0,20}(?:train(?:ing)?[ _])?loss[ \t]{0,20}\|[ \t]{0,20}epochs?[ \t]{0,20}\|"
    rb"[ \t]{0,20}steps?[ \t]{0,20}\|"
)
_SHORT = {b"#": b"step", b"e": b"epoch", b"ep": b"epoch"} | dict.fromkeys(
    (b"it", b"itn", b"nr", b"round", b"rounds"), b"iteration"
)
_PARTS = {b"box", b"giou", b"obj", b"cls", b"dfl", b"seg", b"conf"}  # of a detector's loss, where no name says loss
_AN_ERROR = expression(rb"(?i)(?:^|[_ ])(?:r?mse|mae|error)$")  # beside which `obj` is the objective
_BESIDE_PARTS = {b"total", b"xy", b"wh", b"id", b"x", b"y", b"w", b"h"}
_MOST = 60  # columns
_FEW = 2  # and a row with empty cells has more that are not
_COLUMN = expression(rb"[^\s]{1,60}(?: [^\s]{1,60}){0,6}")  # of a table with two blanks between its cells
_VALUES = (b"loss", b"acc", b"error", b"cost", b"mse", b"mae", b"ppl", b"perplexity")
_ROWS = 4  # below a heading that names no step
_FRAME = {mark.encode(): b" " for mark in "─━═"} | dict.fromkeys(
    map(str.encode, "│┃║┌┬┐├┼┤└┴┘╭╮╰╯┏┳┓┣╋┫┗┻┛╒╤╕╞╪╡╘╧╛╔╦╗╠╬╣╚╩╝┡╇┩"), b"|"
)
_DRAWN = expression(rb"\xe2[\x94\x95][\x80-\xbf]")
_CELLS = rb"\|([^|\n\d]{1,60}(?:\|[^|\n\d]{1,60}){2,40})\|\n"
_TWO_LINES = expression(  # a heading of two lines between rules, as MATLAB prints it
    rb"(?m)^([ \t]{0,20})" + _CELLS + rb"[ \t]{0,20}" + _CELLS + rb"(?=[ \t]{0,20}\|[-=]{8,2000}\|\n)"
)
_STACKED = expression(  # a heading of two lines of words, each above the other: `example` and `counter`
    rb"(?m)^[ \t]{0,8}((?:[A-Za-z]{2,20}[ \t]{1,16}){2,20}[A-Za-z]{2,20})[ \t\r]*\n"
    rb"[ \t]{0,8}((?:[a-z]{2,20}[ \t]{1,20}){2,20}[a-z]{2,20})[ \t\r]*\n(?=[ \t]{0,16}[\d.-])"
)
_COUNTER = expression(
    rb"(?i)(?:example|iteration|iter|step|sample|update|batch|epoch)_(?:counter|count|number|no|index)"
)
_WIDEST = 4096  # bytes of a row
_COMMA = expression(rb"(?<=\d),(?=\d)")  # in the numbers of other countries
_SEMICOLONS = expression(rb"[A-Za-z#\x80-\xff][^;=:{}\d]{0,40}(?:;[^;=:{}]{1,40}){1,40};?\r?$")  # a heading
_AMPERSANDS = expression(rb"(?m)^([^&\n]{1,80}(?: & [^&\n]{1,80}?){1,40}) ?\\\\(?: ?\\hline)?(?=\r?$)")  # LaTeX's
_ABOVE_RULE = expression(  # a heading of Markdown's, above its rule
    rb"(?m)^[ \t]{0,8}\|?(?:[^\n|\d]{1,60}\|){1,40}[^\n|\d]{0,60}"
    rb"(?=\n[ \t]{0,8}\|?[ \t]{0,8}:?-{2,60}[-:| \t]{0,2000}\r?\n)"
)
_CELL_OF_NUMBER = expression(rb"\d[\d./ ]{0,20};")
_NO_VALUE = (b"", b"-", b"--", b"None", b"n/a", b"N/A", b"#na#", b"No log", b"No Log")
_TIME = expression(
    rb"\d{1,4}(?::[0-5]\d){1,2}(?:\.\d{1,6})?|\d{1,9}(?:\.\d{1,9})?(?:[mu]?s|secs?|m(?:in)?|h)|"
    rb"(?:\d{1,4}(?:d|h|m|min) ?){1,3}\d{1,4}(?:\.\d{1,6})?(?:h|m|min|s|sec)|"
    rb"\d{1,2} [A-Z][a-z]{2} \d{1,2}:[0-5]\d(?::[0-5]\d)?"
)
_TOOK = expression(rb"(?<=\d)[ \t]{1,40}\(\d{1,4}(?::[0-5]\d){1,2}\)[ \t\r]*$")  # fastai's `1 0.4 0.3 (00:13)`
_NOT_A_NUMBER = expression(rb"(?i)(?<![a-z])nan(?![a-z])")
_LETTERS = expression(rb"[A-Za-z]{3}")
_ROW = expression(rb"[ \t]{0,8}\|[^\n]{1,4000}\|[ \t\r]{0,8}$")
_NOTES = expression(rb"(?i)(?<=\S)[ \t]{2,40}(?:notes?|comments?)[ \t\r]*$")  # the last name of a heading
_NOTE = expression(rb"(?<=\d)[ \t]{2,40}[A-Z][A-Za-z ,.!]{1,60}$")  # `MEDIAN CONVERGED`, in that column
_OF_PARTS = expression(rb"(?i)(?:^|[_ ])loss(?:es)?$")
_LIST = expression(rb"\[[^\[\]\n]{0,400}\]")  # of a loss's parts: `[0.12, 3.4e-05]`


def said_in_rows(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which the rows of tables say their names; own: the heading that goes on in the next text."""
    if b"\xe2\x94" in text or b"\xe2\x95" in text:  # a table with drawn lines
        text = _DRAWN.sub(lambda found: _FRAME.get(found[0], found[0]), text)
    if b"==|\n" in text or b"--|\n" in text:
        text = _TWO_LINES.sub(_as_one, text)
    if b" & " in text and (own.get("ampersands") or len(_AMPERSANDS.findall(text)) > 2):
        own["ampersands"] = True
        text = _AMPERSANDS.sub(lambda found: found[1].replace(b" & ", b" | "), text)
    if b";" in text:
        text = _as_columns(text, own)
    if b"--" in text and b"|" in text:
        text = _ABOVE_RULE.sub(lambda found: tongues.words_in_english(found[0]), text)
    text = data_tables.said_in_rows(text, own)
    if "stacked" in own or b"count" in text or b"number" in text or b"index" in text:
        text = _below_stacked(text, own)
    between, *names = [word.encode() for word in own.get("heading", [""])]
    heads = _headings(text)
    if not names and not heads:
        return text
    begin = at = 0 if names else min(heads)
    lines = text[begin:].split(b"\n")
    rows: dict[int, tuple[bytes, list[tuple[bytes, bytes]]]] = {}  # below one heading
    for index, line in enumerate(lines):
        here, at = at, at + len(line) + 1
        if here in heads and (found := heading(line) or heading_of_values(line, lines[index + 1 : index + 1 + _ROWS])):
            _put(lines, rows, own)
            own.pop("turns", None), own.pop("far", None)
            own["noted"] = _NOTES.search(line) is not None
            between, *names = _by_words(found, line, lines[index + 1 : index + 1 + _ROWS])
            own["turned"] = _AHEAD.match(line) is not None
            own["counted"] = 0 if _FIRST.search(line) is None else None
            own["places"] = _places(line, len(names)) if between == b"  " else []
        elif names and own.get("counted") is not None:
            row = values_of(line, between, names)
            own["counted"], names = own["counted"] + 1, names if row else []  # the table ends here
            lines[index] = b"step %d: %s" % (own["counted"], row) if row else line
        elif names and len(line) < _WIDEST:
            line = _turned(line) if own.get("turned") and line.count(b"|") >= len(names) else line
            line = _NOTE.sub(b"", line.rstrip()) if own.get("noted") else line
            cells = cells_of(line, between, len(names)) or _below_names(line, own.get("places", []))
            if cells:
                rows[index] = cells[0], _each(names, cells[1:])
    _put(lines, rows, own)
    if names or "heading" in own:
        own["heading"] = [word.decode("utf-8", "replace") for word in (between, *names)] if names else [""]
    return text[:begin] + b"\n".join(lines)


def _put(lines: list[bytes], rows: dict[int, tuple[bytes, list[tuple[bytes, bytes]]]], own: dict[str, Any]) -> None:
    """The rows below a heading in the place of their lines, each with its names; none are left."""
    if any(b"nan" in cell.lower() for _, said in rows.values() for _, cell in said):
        filled = pads.without([said for _, said in rows.values()], own)
        rows.update({index: (rows[index][0], said) for index, said in zip(rows, filled, strict=True)})
    for index, (first, said) in rows.items():
        pairs = (name + b"=" + cell for name, cell in said if not _says_nothing(cell, name))
        lines[index] = first + b" " + b", ".join(pairs)
    rows.clear()


def _as_columns(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which tables with semicolons, in whose numbers there may be commas, have bars; own: how many semicolons
    the rows of the table have that goes on in the next text."""
    lines, count = text.split(b"\n"), int(own.get("semicolons", 0))
    for index, line in enumerate(lines):
        here = line.count(b";") if len(line) < _WIDEST else 0
        if here and here == count and _CELL_OF_NUMBER.match(line):
            lines[index] = _COMMA.sub(b".", line.rstrip(b"\r; ")).replace(b";", b" | ")
        elif here and _SEMICOLONS.match(line):
            head = tongues.words_in_english(line.rstrip(b"\r; "))
            if _SAID.search(head) and _FIRST.match(head.replace(b";", b" ") + b" "):
                lines[index], count = head.replace(b";", b" | "), here
    if count:
        own["semicolons"] = count
    return b"\n".join(lines)


def _below_stacked(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which rows below a heading of two lines say their names, what counts first; own: the heading that goes
    on in the next text."""
    names, begin, done = [name.encode() for name in own.pop("stacked", ())], 0, []
    for found in _STACKED.finditer(text):
        above, below = found[1].split(), found[2].split()
        heads = [one + b"_" + other for one, other in zip(above, below, strict=False)]
        if len(above) == len(below) and _SAID.search(found[2]) and any(map(_COUNTER.fullmatch, heads)):
            rows, names = _rows_below(text[begin : found.end()], names)[0], heads
            begin = found.end()
            done.append(rows)
    rows, names = _rows_below(text[begin:], names)
    if names:
        own["stacked"] = [name.decode() for name in names]
    return b"".join([*done, rows])


def _rows_below(text: bytes, names: list[bytes]) -> tuple[bytes, list[bytes]]:
    """A text whose first lines are rows under such names, up to one that is none; the names that still hold."""
    if not names:
        return text, names
    lines, at = text.split(b"\n"), next(at for at, name in enumerate(names) if _COUNTER.fullmatch(name))
    for index, line in enumerate(lines):
        cells = line.split() if len(line) < _WIDEST else []
        if not len(names) <= len(cells) <= len(names) + 1 or _WHOLE.fullmatch(cells[at]) is None:
            if line.strip() or index < len(lines) - 1:
                return b"\n".join(lines), []
            break
        said = [(name, cell) for name, cell in zip(names, cells, strict=False) if _NUMBER.fullmatch(cell)]
        lines[index] = b"step %s: %s" % (cells[at], b", ".join(name + b"=" + cell for name, cell in said))
    return b"\n".join(lines), names


def _as_one(found: re.Match[bytes]) -> bytes:
    """A heading of two lines as one, and a line that is empty; itself where its cells do not stand below each other."""
    above, below = found[2].split(b"|"), found[3].split(b"|")
    if [*map(len, above)] != [*map(len, below)]:
        return found[0]
    cells = (b" ".join((one + b" " + other).split()) for one, other in zip(above, below, strict=True))
    return found[1] + b"| " + b" | ".join(cells) + b" |\n\n"


def _headings(text: bytes) -> set[int]:
    """Where headings begin. A word is looked for in a text that has it, and a line is looked at once for each."""
    little, found = gist(text).lower(), set[int]()
    words = [begins for word, begins in _BEGINS.items() if word in little and begins.search(little)]
    low = text.lower() if words else b""
    for begins in words:
        end = -1  # of the line that was looked at last
        for match in begins.finditer(low):
            if match.start() < end:
                continue
            start, end = text.rfind(b"\n", 0, match.start()) + 1, text.find(b"\n", match.end())
            end = end if end >= 0 else len(text)
            if _HEADING.search(text, start, end):
                found.add(start)
    for pattern in (_OF_VALUES, _ONE_VALUE) if any(word in little for word in _VALUES) else ():
        if pattern.search(little):
            found.update(match.start() for match in pattern.finditer(text))
    return found


def _places(line: bytes, count: int) -> list[int]:
    """Where the names of a heading begin; [] where two of them run together."""
    places = [found.start() for found in _COLUMN.finditer(line)]
    return places if len(places) == count else []


def _below_names(line: bytes, places: list[int]) -> list[bytes]:
    """A row with empty cells whose numbers begin right below their names, as `cells_of` gives it."""
    words = {found.start(): found[0] for found in _COLUMN.finditer(line)} if len(places) > _FEW else {}
    if (
        not _FEW < len(words) < len(places)
        or not words.keys() <= {*places}
        or _WHOLE.fullmatch(line.split()[0]) is None
    ):
        return []
    if places[0] not in words or not all(map(_NUMBER.fullmatch, words.values())):
        return []
    return [b"", *(words.get(place, b"") for place in places)]


def _turned(line: bytes) -> bytes:
    """A row of a model card, `| Training Loss | Epoch | Step | Validation Loss |`, with its step first."""
    cells = line.strip().strip(b"|").split(b"|")
    return b"| " + b" | ".join([cells[2].strip(), *(cell.strip() for at, cell in enumerate(cells) if at != 2)]) + b" |"


def heading(line: bytes) -> list[bytes]:
    """What stands between the names of a heading, and its names from the one that counts steps on; [] for a
    sentence."""
    line = _turned(line) if _AHEAD.match(line) else line
    if comment := _COMMENT.match(line):
        line = line[comment.end() :]
    line = _NOTES.sub(b"", line)
    first = _FIRST.search(line)
    if first is None:
        return []
    if _QUALIFIED.search(line[: first.start()]) or _OF_THINGS.search(line[: first.start()]):
        return []  # `Best step` counts nothing
    between, cells = _names(line[first.start() :])
    if not 2 <= len(cells) <= _MOST or not all(map(_WORD.fullmatch, cells)):
        return []
    if any(map(_VALUED.search, cells)):
        return []  # `Iteration #7   val loss at 2.31`
    if _PLURAL.fullmatch(cells[0]) and any(map(_SETTING.fullmatch, cells)):
        return []  # how long trials with such settings were trained
    cells = [_ASIDE.sub(b"", _DATA_BEHIND.sub(rb"\2 \1", cell)) for cell in cells]
    cells = [_SHORT.get(cell.lower().rstrip(b"."), cell).replace(b" ", b"_") for cell in cells]
    if not any(b"loss" in cell.lower() for cell in cells):
        parts = any(cell.lower() in _PARTS for cell in cells)
        named = _PARTS | _BESIDE_PARTS if parts else _PARTS
        if any(map(_AN_ERROR.search, cells)) and sum(cell.lower() in named for cell in cells) == 1:
            named = set()
        cells = [cell + b"_loss" if cell.lower() in named else cell for cell in cells]
    return [between, *cells]


def _by_words(found: list[bytes], line: bytes, below: list[bytes]) -> list[bytes]:
    """A heading whose names have two blanks between them: each word by itself, where the rows below have as many
    numbers as it has words, `# Epoch batch         loss`."""
    words = line.strip(b" \t\r#%;").split()
    rows = [row.split() for row in below if row.strip() and not row.lstrip().startswith(b"#")]
    fits = found[0] == b"  " and len(words) > len(found) - 1 and bool(rows) and all(map(_WORD.fullmatch, words))
    alone = fits and all(len(row) == len(words) and all(map(_NUMBER.fullmatch, row)) for row in rows)
    return [found[0], *words] if alone else found


def heading_of_values(line: bytes, below: list[bytes]) -> list[bytes]:
    """What stands between the names of a heading that names no step, and its names; [] where no rows stand below it."""
    between, cells = _names(line)
    if _ONE_VALUE.match(line):
        found = _OF_SET.match(line.strip(b" \t\r%"))
        cells = [(found[2] + b" " if found[2] else b"") + found[1]] if found else []
    elif not _OF_VALUES.match(line):
        return []
    if not 1 <= len(cells) <= _MOST or len(set(cells)) < len(cells):
        return []
    names = [_ASIDE.sub(b"", cell).replace(b" ", b"_") for cell in cells]
    return [between, *names] if len(below) == _ROWS and all(values_of(row, between, names) for row in below) else []


def values_of(line: bytes, between: bytes, names: list[bytes]) -> bytes:
    """A row below such a heading, perhaps with its index ahead, as text that says the names; b"" for any other line."""
    if len(line) > _WIDEST or b"." not in line:
        return b""
    cells = line.split() if between.isspace() else [cell.strip() for cell in line.strip(b" \t|\r").split(between)]
    if len(cells) == len(names) + 1 and _WHOLE.fullmatch(cells[0]):
        cells = cells[1:]
    if len(cells) != len(names) or not all(map(_NUMBER.fullmatch, cells)):
        return b""
    return b", ".join(name + b"=" + cell for name, cell in zip(names, cells, strict=True))


def _names(line: bytes) -> tuple[bytes, list[bytes]]:
    """What stands between the names of a heading, and these."""
    rest = line.strip(b" \t|\r")
    between = next((mark for mark in (b"|", b"\t", b"  ", b",") if mark in rest), b" ")
    rest = _OF_DATA.sub(rb"\1_\2", rest) if between == b" " else rest
    return between, [cell.strip() for cell in rest.split(between) if cell.strip()]


def _each(names: list[bytes], cells: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The names and numbers of a row; of a list a name for each, and the sum of a loss's parts.

    Parts that are 0 in every list but the first were left out of an evaluation: those of the first stand for them.
    """
    said, first = list[tuple[bytes, bytes]](), list[float]()
    for name, cell in zip(names, cells, strict=True):
        parts = _parts(cell)
        if len(parts) < 2:
            said.append((name, cell))
            continue
        if _OF_PARTS.search(name):
            numbers = [*map(float, parts)]
            first = first if len(first) == len(numbers) else numbers
            whole = sum(number or of_first for number, of_first in zip(numbers, first, strict=True))
            said.append((name, b"%.9g" % whole))
        said += [(b"%s_%d" % (name, at), part) for at, part in enumerate(parts, 1)]
    return said


def _parts(cell: bytes) -> list[bytes]:
    """A cell's number, or the numbers of a list; [] for anything else."""
    if _NUMBER.fullmatch(cell):
        return [cell]
    parts = cell.split(b",") if b"," in cell else []
    return parts if all(map(_NUMBER.fullmatch, parts)) else []


def _plain(cell: bytes) -> bytes:
    """A cell without the marks of the best so far, and without separators of thousands."""
    cell = cell.strip(b"*'\"[]")
    return cell.replace(b",", b"") if b"," in cell and _THOUSANDS.fullmatch(cell) else cell


def _is_note(cell: bytes) -> bool:
    """Whether a cell holds words."""
    return _LETTERS.search(cell) is not None and not (_NUMBER.fullmatch(cell) or _says_nothing(cell))


def _says_nothing(cell: bytes, name: bytes = b"") -> bool:
    """Whether a cell is empty, or a time of day or how long something took; or a deviance on no rows, which R calls
    NaN."""
    if cell.lower() in (b"nan", b"-nan") and name.endswith(b"eviance"):
        return True
    return cell in _NO_VALUE or _TIME.fullmatch(cell.replace(b"_", b" ")) is not None


def cells_of(line: bytes, between: bytes, count: int) -> list[bytes]:
    """What a logger writes first, and the numbers at a line's end, as many as there are names; [] for anything else."""
    if b"%" in line and (drawn := _BAR.search(line)):  # a row that is drawn again and again counts once its bar is full
        behind = line[drawn.end() :].partition(b"]")[2]
        if len(behind.split()) == count:
            line = behind  # a bar goes before the row, and goes on
        elif drawn[1] != drawn[2] and _NOT_A_NUMBER.search(line, 0, drawn.start()) is None:
            return []  # a mean of the epoch that is NaN stays so
        else:
            line = line[: drawn.start()]
    if line.endswith((b")", b") ", b")\r")):
        line = _TOOK.sub(b"", line)
    if b"[" in line:
        line = _LIST.sub(lambda found: found[0].replace(b" ", b""), line)
    if between.isspace() and between != b"\t":
        apart = [cell.strip() for cell in line.strip().split(b"  ") if cell.strip()] if between == b"  " else []
        if len(apart) == count and b" " in b"".join(apart) and _WHOLE.fullmatch(apart[0]):
            line = b"\t".join(cell.replace(b" ", b"_") if _TIME.fullmatch(cell) else cell for cell in apart)
        first, *cells = line.rsplit(None, count) if len(line.split(None, count)) > count else (b"", *line.split())
    elif between == b",":
        first, *cells = line.rsplit(b",", count) if line.count(b",") >= count else (b"", *line.split(b","))
        ahead, _, cells[0] = cells[0].rpartition(b" ")
        first, cells = first or ahead, [cell.strip() for cell in cells]
    else:
        first, *cells = (b"", *(cell.strip() for cell in line.strip(b" \t|").split(between)))
        cells = cells[-count:]
        first, _, cells[0] = cells[0].rpartition(b" ")  # a bar or a tab of the logger's own is left out with the rest
    cells = [_plain(cell) for cell in cells]
    if len(cells) != count or not _WHOLE.fullmatch(cells[0]):
        return []
    if between == b"|" and _is_note(cells[-1]) and _ROW.match(line):
        cells[-1] = b""  # of a table of Markdown: what somebody says of the row
    elif _SAID.search(line):
        return []
    numbers = sum(bool(_parts(cell)) or _WHOLE.fullmatch(cell) is not None for cell in cells)
    return [first, *cells] if numbers > 1 and numbers + sum(map(_says_nothing, cells)) == count else []
