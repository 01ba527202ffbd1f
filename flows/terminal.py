"""Plain-text tables for a terminal: numbers aligned, long text cut to fit, nothing that could move the cursor."""

import shutil
from collections.abc import Sequence

import click
from rich.cells import cell_len, set_cell_size

GAP = "  "
NULL = "NULL"
NARROWEST = 6


def printable(value: object) -> str:
    """A value on one line; control characters of a corpus never reach the terminal."""
    text = NULL if value is None else str(value)
    return "".join(one if one.isprintable() else "↵" if one == "\n" else "·" for one in text)


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return "? B"
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def cut(text: str, width: int) -> str:
    """Text of at most `width` terminal cells, an ellipsis where something is missing."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[bool], indent: str = ""
) -> list[str]:
    """Lines of a table that fits into the terminal (120 columns where there is none)."""
    available = shutil.get_terminal_size((120, 24)).columns - len(indent)
    cells = [[printable(value) for value in row] for row in rows]
    natural = [max([cell_len(printable(name)), *(cell_len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    widths = _fitted(natural, numeric, available - len(GAP) * (len(columns) - 1))

    def line(values: Sequence[str], nulls: Sequence[bool]) -> str:
        shown = []
        for value, room, is_number, is_null in zip(values, widths, numeric, nulls, strict=True):
            text = cut(value, room)
            padding = " " * (room - cell_len(text))
            styled = click.style(text, dim=True) if is_null else text
            shown.append(padding + styled if is_number else styled + padding)
        return indent + GAP.join(shown).rstrip()

    header = line([printable(name) for name in columns], [False] * len(columns))
    body = [line(row, [value is None for value in raw]) for row, raw in zip(cells, rows, strict=True)]
    return [click.style(header, bold=True), indent + GAP.join("─" * room for room in widths), *body]


def _fitted(natural: Sequence[int], numeric: Sequence[bool], available: int) -> list[int]:
    """Widths that fit: the widest text columns give way first, numbers never."""
    widths = list(natural)
    while sum(widths) > available:
        widest = max((room for room, is_number in zip(widths, numeric, strict=True) if not is_number), default=0)
        if widest <= NARROWEST:
            break
        second = max(
            (room for room, number in zip(widths, numeric, strict=True) if not number and room < widest), default=0
        )
        tied = [i for i, room in enumerate(widths) if room == widest and not numeric[i]]
        surplus = sum(widths) - available
        lowered = max(second, widest - -(-surplus // len(tied)), NARROWEST)
        for i in tied:
            widths[i] = lowered
    return widths
