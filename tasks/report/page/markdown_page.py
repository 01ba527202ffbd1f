"""The report in Markdown: the same sections and tables; a figure is shown by its alternative text and data."""

import re
from collections.abc import Iterator

from tasks.report.page.parts import (
    Cell,
    Commands,
    Figure,
    Glossary,
    Note,
    Origin,
    Part,
    Report,
    Samples,
    Section,
    Table,
)

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_DATA_ROWS = 20  # rows of a figure's data


def markdown(report: Report) -> str:
    """Return the whole file."""
    lines = [f"# {escaped(report.title)}", "", *(f"{escaped(line)}\n" for line in report.summary)]
    lines += [f"- {escaped(name)}: {escaped(value)}" for name, value in report.facts]
    for section in report.sections:
        lines += _section(section)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def escaped(text: str) -> str:
    """Return text that Markdown prints unchanged on one line; words between backticks stay code."""
    parts = re.split(r"(`[^`]+`)", _UNPRINTABLE.sub(" ", text))
    return "".join(part if number % 2 else _SPECIAL.sub(r"\\\1", part) for number, part in enumerate(parts))


def _data(text: str) -> str:
    """Return text from data, in which nothing is markup, not even backticks."""
    return _SPECIAL.sub(r"\\\1", _UNPRINTABLE.sub(" ", text)).replace("\n", " / ")


def _section(section: Section) -> Iterator[str]:
    yield from ("", f"## {escaped(section.title)}", "")
    if section.lead:
        yield from (escaped(section.lead), "")
    for part in section.parts:
        yield from _part(part)


def _part(part: Part) -> Iterator[str]:
    match part:
        case Table():
            yield from (
                f"**{escaped(part.caption)}**",
                "",
                *_table(part),
                "",
                *_notes(part.notes),
                *_origin(part.origin),
            )
        case Figure():
            yield from (f"**{escaped(part.caption)}**", "", escaped(part.alternative), "", *_notes(part.notes))
            if part.data and len(part.data.rows) <= _DATA_ROWS:
                yield from (*_table(part.data), "")
            yield from _origin(part.origin)
        case Samples():
            yield from (f"**{escaped(part.caption)}**", "")
            for sample in part.samples:
                text = "".join(span.text for span in sample.spans)
                yield f"- {_data(sample.title)} ({_data(sample.about)}): {_data(text)} → **{_data(sample.target)}**"
            yield from ("", *_origin(part.origin))
        case Note():
            yield from (escaped(part.text), "")
        case Glossary():
            yield from (*(f"- **{escaped(word)}**: {escaped(meaning)}." for word, meaning in part.terms), "")
        case Commands():
            yield from (*(f"    {command:<55} # {what}" for command, what in part.lines), "")


def _table(table: Table) -> Iterator[str]:
    yield "| " + " | ".join(_heading(column.title, column.group) for column in table.columns) + " |"
    yield "|" + "|".join("--:" if column.numeric else "---" for column in table.columns) + "|"
    for row in table.rows:
        yield "| " + " | ".join(_cell(cell) for cell in row) + " |"


def _heading(title: str, group: str) -> str:
    return _data(f"{title} ({group})" if group else title)


def _cell(cell: Cell) -> str:
    text = _data(cell.text) + (f" ± {cell.deviation}" if cell.deviation else "")
    marked = f"**{text}**" if cell.best else text
    marked += f" ({_data(cell.below)})" if cell.below else ""
    return f"{marked} (paper {cell.beside})" if cell.beside else marked


def _notes(notes: tuple[str, ...]) -> Iterator[str]:
    if notes:
        yield from (escaped(" ".join(notes)), "")


def _origin(origin: Origin) -> Iterator[str]:
    for query in origin.queries:
        yield from (f"    {query.command}", "")
    if origin.command:
        yield from (f"    {origin.command}", "")
