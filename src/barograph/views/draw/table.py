"""The table, as HTML and as Markdown; for a terminal it is `core.text.table`.

In:   heads and rows of cells.
Out:  a `<table>` element, or lines of Markdown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from barograph.core.text import html

_DIM = ' class="dim"'


class Markup(str):
    """HTML that is written already; other cells are escaped."""

    __slots__ = ()


def tinted(words: str, kind: str) -> Markup:
    """Words in a colour of the page's: "good", "bad", "dim"; none for ""."""
    return Markup(f'<span class="{kind}">{html(words)}</span>' if kind else html(words))


def as_html(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = (), dim: Collection[int] = (),
    scope: str = ' scope="col"',
) -> str:  # fmt: skip
    """right: the columns that are set to the right. dim: the rows that matter less. scope: of the heads."""
    kinds = [' class="number"' if at in right else "" for at in range(len(heads))]
    top = "".join(f"<th{scope}{kind}>{_cell(head)}</th>" for head, kind in zip(heads, kinds, strict=True))
    body = "".join(
        f"<tr{_DIM if at in dim else ''}>"
        + "".join(f"<td{kind}>{_cell(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: str) -> str:
    return cell if isinstance(cell, Markup) else html(cell)


def as_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are Markdown already."""
    lines = [f"| {' | '.join(heads)} |", f"|{'|'.join(' --- ' for _ in heads)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
