"""The report as one HTML file that fetches nothing: style, script and plots are in it, and it forbids the rest."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from tasks.report.markup import inner, tag
from tasks.report.parts import (
    Cell,
    Column,
    Commands,
    Figure,
    Graph,
    Lines,
    Note,
    Origin,
    Panel,
    Part,
    Report,
    Sample,
    Samples,
    Section,
    Strips,
    Table,
)
from tasks.report.plot_dag import dag
from tasks.report.plots import lines, strips

STYLE, SCRIPT = Path(__file__).with_name("report.css"), Path(__file__).with_name("report.js")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_LONG = 30  # rows beyond which a table scrolls within its own box
_MANY = 10  # columns beyond which they stand closer
_WIDE = 40  # letters beyond which a cell's text is broken into lines


def page(report: Report) -> str:
    """The whole file."""
    script = SCRIPT.read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"{_POLICY}; script-src 'sha256-{digest}'"
    numbers = Numbers()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", report.title),
        tag("style", Markup(STYLE.read_text("utf-8"))),  # noqa: S704 - our own file
    )
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#results", class_="skip"),
        _header(report),
        tag("main", *(_section(section, numbers) for section in report.sections), id="main"),
        tag("div", id="tip", role="status", hidden=True),
        tag("script", Markup(script)),  # noqa: S704 - our own file
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


class Numbers:
    """Counts tables and figures, each for itself."""

    def __init__(self) -> None:
        self._next = {"Table": 1, "Figure": 1}

    def take(self, kind: str) -> str:
        """The next number of a kind, as the caption begins."""
        number = self._next[kind]
        self._next[kind] += 1
        return f"{kind} {number}"


def _header(report: Report) -> Markup:
    links = [tag("li", tag("a", section.title, href=f"#{section.key}")) for section in report.sections]
    facts = [tag("div", tag("dt", name), tag("dd", _text(value))) for name, value in report.facts]
    return tag(
        "header",
        tag(
            "div",
            tag("h1", report.title),
            tag("button", "Theme: system", type="button", id="theme", hidden=True),
            class_="top",
        ),
        *(tag("p", _prose(line), class_="summary") for line in report.summary),
        tag("dl", *facts, class_="facts"),
        tag("nav", tag("ul", *links), aria_label="Sections"),
    )


def _section(section: Section, numbers: Numbers) -> Markup:
    return tag(
        "section",
        tag("h2", section.title, id=f"{section.key}-title"),
        tag("p", _prose(section.lead), class_="lead") if section.lead else None,
        *(_part(part, numbers) for part in section.parts),
        id=section.key,
        aria_labelledby=f"{section.key}-title",
    )


def _part(part: Part, numbers: Numbers) -> Markup:
    match part:
        case Table():
            return _table_figure(part, numbers.take("Table"))
        case Figure():
            return _figure(part, numbers.take("Figure"))
        case Samples():
            return _samples(part)
        case Note():
            return tag("p", _prose(part.text), class_="note")
        case Commands():
            return _commands(part)


def _caption(number: str, caption: str) -> Markup:
    return tag("figcaption", tag("span", f"{number}.", class_="number"), " ", _prose(caption))


def _table_figure(table: Table, number: str) -> Markup:
    return tag(
        "figure",
        _caption(number, table.caption),
        _table(table, f"{number}. {table.caption}"),
        *_notes(table.notes),
        tag("div", _origin(table.origin), _copy_table(table.key), class_="tools"),
        id=table.key,
        class_="table",
    )


def _figure(figure: Figure, number: str) -> Markup:
    panels = [_panel(panel, figure, place) for place, panel in enumerate(figure.panels)]
    data = None
    if figure.data:
        label = f"{number}, data"
        shown = inner(_table(figure.data, label), *_notes(figure.data.notes), tag("p", _copy_table(figure.data.key)))
        data = tag("details", tag("summary", "Data"), tag("div", shown, id=figure.data.key))
    return tag(
        "figure",
        _caption(number, figure.caption),
        tag("div", *panels, class_=f"panels of-{min(len(panels), 5)}"),
        *_notes(figure.notes),
        tag("div", _origin(figure.origin), data, class_="tools"),
        id=figure.key,
        class_="plots half" if len(panels) == 1 else "plots",
    )


def _panel(panel: Panel, figure: Figure, place: int) -> Markup:
    """A panel; the first of a figure says the whole in words, the others name themselves."""
    words = f"{figure.caption} {figure.alternative}"
    match panel:
        case Lines():
            return lines(panel, words if place == 0 else f"{panel.title}: {panel.y_title} over {panel.x_title}")
        case Strips():
            return strips(panel, words if place == 0 else f"{panel.title}: {panel.x_title} of every run")
        case Graph():
            return dag(panel, words)


def _table(table: Table, label: str) -> Markup:
    grouped = any(column.group for column in table.columns)
    long = " long" if len(table.rows) > _LONG else ""
    dense = "dense" if len(table.columns) > _MANY else None
    body = [
        tag("tr", *_cells(row, table), class_="break" if place in table.breaks else None)
        for place, row in enumerate(table.rows)
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("thead", _groups(table.columns) if grouped else None, tag("tr", *map(_heading, table.columns))),
            tag("tbody", *body),
            class_=dense,
        ),
        class_=f"scroll{long}",
        role="region",
        aria_label=label,
        tabindex="0",
    )


def _groups(columns: Sequence[Column]) -> Markup:
    spans = [(group, len(list(run))) for group, run in groupby(columns, key=lambda column: column.group)]
    return tag(
        "tr",
        *(
            tag("th", group, colspan=count, scope="colgroup", class_="group") if group else tag("td", colspan=count)
            for group, count in spans
        ),
        class_="groups",
    )


def _heading(column: Column) -> Markup:
    button = tag("button", column.title, tag("span", class_="arrow", aria_hidden="true"), type="button")
    return tag("th", button, scope="col", aria_sort="none", class_="number" if column.numeric else None)


def _cells(row: Sequence[Cell], table: Table) -> Iterator[Markup]:
    for place, (cell, column) in enumerate(zip(row, table.columns, strict=True)):
        deviates = any(other[place].deviation for other in table.rows)
        flags = {"number": column.numeric, "best": cell.best, "code": cell.code, "wide": len(cell.text) > _WIDE}
        classes = " ".join(name for name, wanted in flags.items() if wanted)
        name, scope = ("th", "row") if place == 0 else ("td", None)
        yield tag(name, _cell(cell, deviates=deviates), scope=scope, class_=classes or None, data_value=cell.value)


def _cell(cell: Cell, *, deviates: bool) -> Markup:
    """A cell's text; the deviation is a subscript that copies as “ ± ”, and takes its room where others have one."""
    figure = _text(cell.text) if not cell.code else tag("code", cell.text)
    if cell.best:
        figure = tag("strong", figure)
    if cell.deviation:
        figure += tag("sub", tag("span", " ± ", class_="unseen"), cell.deviation)
    elif deviates:
        figure += tag("sub", aria_hidden="true")
    if cell.beside:
        figure += tag("small", tag("span", " paper ", class_="unseen"), cell.beside, class_="paper")
    return figure


def _text(text: str) -> Markup:
    """Text of data, isolated from the direction of what stands around it; its lines stay lines."""
    if "\n" in text:
        return tag("ul", *(tag("li", tag("bdi", line)) for line in text.split("\n")), class_="texts")
    return tag("bdi", text) if not text.isascii() else inner(text)


def _prose(text: str) -> Markup:
    """Our own words, in which backticks mark code."""
    parts = re.split(r"`([^`]+)`", text)
    return inner(*(tag("code", part) if number % 2 else part for number, part in enumerate(parts)))


def _notes(notes: Iterable[str]) -> list[Markup]:
    listed = list(notes)
    return [tag("p", _prose(" ".join(listed)), class_="remark")] if listed else []


def _origin(origin: Origin) -> Markup | None:
    """What made a part, to be read and to be run."""
    if origin.queries:
        blocks = [
            inner(tag("pre", tag("code", query.text), tabindex="0"), _command(query.command))
            for query in origin.queries
        ]
        return tag("details", tag("summary", "SQL"), *blocks, class_="sql")
    if origin.command:
        return tag("details", tag("summary", "Command"), _command(origin.command))
    return None


def _command(command: str) -> Markup:
    copy = tag("button", "Copy", type="button", class_="copy", data_copy=command, aria_label=f"Copy: {command[:60]}")
    return tag("div", tag("code", command), copy, class_="command")


def _copy_table(key: str) -> Markup:
    return tag("button", "Copy table", type="button", class_="copy", data_table=key)


def _samples(part: Samples) -> Markup:
    return tag(
        "figure",
        tag("figcaption", _prose(part.caption)),
        tag("ol", *map(_sample, part.samples), class_="samples"),
        tag("div", _origin(part.origin), class_="tools"),
        id=part.key,
    )


def _sample(sample: Sample) -> Markup:
    words = [tag("bdi", span.text, class_=f"span-{span.kind}") for span in sample.spans]
    return tag(
        "li",
        tag("p", tag("strong", sample.title), " ", tag("span", sample.about, class_="about")),
        tag("p", *words, class_="input"),
        tag("p", tag("span", "target ", class_="about"), tag("bdi", sample.target, class_="target")),
    )


def _commands(part: Commands) -> Markup:
    return tag("ul", *(tag("li", _command(line), tag("p", what)) for line, what in part.lines), class_="commands")
