"""The parts of a report: sections of tables, figures, samples and notes, the same for HTML and for Markdown."""

from dataclasses import dataclass
from itertools import groupby

from storage.queries.report_queries import Query

NONE = "–"  # shown in a cell without a value


@dataclass(frozen=True)
class Cell:
    """A cell: its text, the value to sort by, and the additions to a figure of a result table.

    Attributes:
        deviation: shown as a subscript.
        best: True if it is the best of its column.
        beside: the paper's figure.
        below: a second line, such as an interval.
        code: True if it is shown as code: hashes, parameters, ids.
        style: the style of the method that the cell names, shown as a mark of its colour.
    """

    text: str
    value: float | str | None = None
    deviation: str = ""
    best: bool = False
    beside: str = ""
    below: str = ""
    code: bool = False
    style: int | None = None


@dataclass(frozen=True)
class Column:
    """A column; neighbouring columns with the same `group` share a heading."""

    title: str
    numeric: bool = False
    group: str = ""


@dataclass(frozen=True)
class Origin:
    """The origin of a part: the queries that made it, or a command that shows the same."""

    queries: tuple[Query, ...] = ()
    command: str = ""


@dataclass(frozen=True)
class Table:
    """A table with its caption; `breaks` are the rows that start a group."""

    key: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    origin: Origin
    breaks: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The groups of neighbouring columns with their number of columns; an empty list if no column has a group."""
        if not any(column.group for column in self.columns):
            return []
        return [(group, len(list(run))) for group, run in groupby(self.columns, key=lambda column: column.group)]

    @property
    def deviating(self) -> frozenset[int]:
        """The numbers of the columns in which a cell has a deviation."""
        return frozenset(place for row in self.rows for place, cell in enumerate(row) if cell.deviation)


@dataclass(frozen=True)
class Point:
    """A point of a series, with the edges of its band if it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A named line; `style` numbers its colour and dashes, and `dots` is True if its points are drawn, too."""

    name: str
    style: int
    points: tuple[Point, ...]
    dotted: bool = False
    dots: bool = False
    labelled: bool = True


@dataclass(frozen=True)
class Lines:
    """A panel of lines over one x axis; `levels` are horizontal lines: (name, style, height)."""

    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    levels: tuple[tuple[str, int, float], ...] = ()


@dataclass(frozen=True)
class Dot:
    """A run in a strip; `filled` is True if it was chosen for its seed."""

    x: float
    filled: bool
    label: str


@dataclass(frozen=True)
class Strips:
    """A panel of rows of dots over one x axis; each row is (name, style, dots, middle)."""

    title: str
    x_title: str
    rows: tuple[tuple[str, int, tuple[Dot, ...], float], ...]


@dataclass(frozen=True)
class Box:
    """A stage in the drawing of the DAG."""

    name: str
    facts: str
    upstream: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """The DAG, upstream first."""

    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Place:
    """A circle on a map: its position, the area it stands for, and the lines shown when it is pointed at."""

    x: float
    y: float
    size: float
    name: str
    about: str


@dataclass(frozen=True)
class Map:
    """A panel of circles in two dimensions without axes."""

    title: str
    subtitle: str
    style: int
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Matrix:
    """A panel of counts by true label (row) and predicted label (column)."""

    title: str
    subtitle: str
    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


Panel = Lines | Strips | Graph | Map | Matrix


@dataclass(frozen=True)
class Figure:
    """Panels under one caption, with an `alternative` text in words and their data as a table."""

    key: str
    caption: str
    alternative: str
    panels: tuple[Panel, ...]
    origin: Origin
    data: Table | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Span:
    """A piece of an example as the model sees it: `template` words, a `text` of the corpus, or a `slot` for μ."""

    kind: str
    text: str


@dataclass(frozen=True)
class Sample:
    """An example: its origin, its input in pieces, its target."""

    title: str
    about: str
    spans: tuple[Span, ...]
    target: str


@dataclass(frozen=True)
class Samples:
    """Examples under one caption."""

    key: str
    caption: str
    samples: tuple[Sample, ...]
    origin: Origin


@dataclass(frozen=True)
class Note:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Commands:
    """Commands to type, each with a description."""

    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Glossary:
    """Words with their explanations."""

    terms: tuple[tuple[str, str], ...]


Part = Table | Figure | Samples | Note | Commands | Glossary


@dataclass(frozen=True)
class Section:
    """A section of the report."""

    key: str
    title: str
    lead: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Report:
    """The whole report: a title, a summary, a row of facts, and the sections."""

    title: str
    summary: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]


def words(text: object, *, code: bool = False, style: int | None = None) -> Cell:
    """Return a cell of text."""
    return Cell(str(text), str(text), code=code, style=style)


HASH = 12  # characters of a hash in the report: enough to tell any two apart


def short_hash(digest: str | None) -> Cell:
    """Return a cell with the first characters of a hash, or with a dash if there is none."""
    return words(digest[:HASH], code=True) if digest else Cell(NONE)


def number(value: float | None, form: str = ",") -> Cell:
    """Return a cell of a number, or of a dash if there is none."""
    return Cell(NONE, None) if value is None else Cell(format(value, form), +value)  # + turns True into 1, for sorting
