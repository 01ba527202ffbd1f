"""Tables for a terminal or a pipe: aligned numbers, one line for each row, no characters that move the cursor."""

import shutil
import sys
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from rich.box import Box

GAP = "  "
NULL = "NULL"
NARROWEST = 6


def printable(value: object) -> str:
    """Return a value as one line of text; control characters in a corpus never reach the terminal."""
    text = NULL if value is None else str(value)
    return "".join(character if character.isprintable() else "↵" if character == "\n" else "·" for character in text)


def size(count: int | None) -> str:
    """Return a number of bytes as text with a unit."""
    if count is None:
        return "? B"
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def cut(text: str, width: int) -> str:
    """Return a text cut to at most `width` terminal cells, with an ellipsis if something is missing."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[bool], indent: str = ""
) -> list[str]:
    """Return the lines of a table, one for each row, with numbers aligned to the right.

    In a terminal the longest texts are cut so that each line fits; numbers are never cut. Elsewhere nothing is cut.
    """
    cells = [[printable(value) for value in row] for row in rows]
    names = [printable(name) for name in columns]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    if sys.stdout.isatty():
        nulls = [[value is None for value in row] for row in rows]
        lines = _drawn(names, cells, nulls, widths, numeric, shutil.get_terminal_size().columns - len(indent))
    else:
        rule = ["─" * width for width in widths]
        lines = [_aligned(row, widths, numeric) for row in (names, rule, *cells)]
    return [indent + line.rstrip() for line in lines]


def _aligned(texts: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    """Return a line for a pipe. Rich would take 35 times as long: seconds for a few thousand rows."""
    padded = []
    for text, width, is_number in zip(texts, widths, numeric, strict=True):
        padding = " " * (width - cell_len(text))
        padded.append(padding + text if is_number else text + padding)
    return GAP.join(padded)


def _drawn(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    nulls: Sequence[Sequence[bool]],
    widths: Sequence[int],
    numeric: Sequence[bool],
    room: int,
) -> list[str]:
    """Return the lines of a table that fits into a terminal, if its numbers leave enough room."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def styled(text: str, style: str) -> Text:
        """Return a text that is cut instead of wrapped; the spaces that fill its cell have no style."""
        return Text.assemble((text, style), no_wrap=True, overflow="ellipsis")

    drawn = Table(box=_box(), show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    least = [width if is_number else min(width, NARROWEST) for width, is_number in zip(widths, numeric, strict=True)]
    for name, width, is_number in zip(names, least, numeric, strict=True):
        justify: Literal["right", "left"] = "right" if is_number else "left"
        drawn.add_column(styled(name, "bold"), justify=justify, min_width=width, no_wrap=is_number)
    for texts, row_nulls in zip(cells, nulls, strict=True):
        pairs = zip(texts, row_nulls, strict=True)
        drawn.add_row(*(styled(text, "dim" if is_null else "") for text, is_null in pairs))
    gaps = len(GAP) * len(names)
    console = Console(
        file=StringIO(),
        width=min(max(room, sum(least) + gaps), sum(widths) + gaps),
        force_terminal=True,  # click removes the styles where they are not wanted
        color_system="standard",
    )
    with console.capture() as captured:
        console.print(drawn)
    return captured.get().splitlines()


def _box() -> "Box":
    """Return the frame of a table: only a line below the headings."""
    from rich.box import Box

    return Box("    \n    \n ─  \n    \n    \n    \n    \n    \n")
