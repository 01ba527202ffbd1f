"""Generated parts of a Markdown page: each stands between two comments that name the program that makes it."""

import re
from collections.abc import Iterable, Sequence


def marks(name: str, program: str) -> tuple[str, str]:
    """Return the comments before and after a generated part."""
    return f"<!-- {name}: made by {program} -->", f"<!-- end of {name} -->"


def with_part(page: str, name: str, program: str, content: str) -> str:
    """Return the page with the text between the comments of a part replaced; raise ValueError if it has none."""
    start, end = marks(name, program)
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    made, count = pattern.subn(lambda _: f"{start}\n\n{content}\n\n{end}", page)
    if count != 1:
        raise ValueError(f"{count} parts between {start} and {end}: one is expected")
    return made


def without_parts(page: str) -> str:
    """Return the page without its generated parts."""
    return re.sub(r"<!-- ([\w -]+): made by [^>]*-->.*?<!-- end of \1 -->", "", page, flags=re.DOTALL)


def part_names(page: str, program: str) -> list[str]:
    """Return the names of the parts that a program makes."""
    return re.findall(rf"<!-- ([\w -]+): made by {re.escape(program)} -->", page)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    head, *lines = ["| " + " | ".join(map(str, cells)) + " |" for cells in (columns, *rows)]
    return "\n".join([head, "|" + "---|" * len(columns), *lines])
