"""The report as one HTML file that fetches nothing, made from the Jinja2 templates in `templates/`.

Style, script and plots are in the file, and its content security policy forbids everything else. The environment
escapes all text; only plots are markup already.
"""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tasks.report.page.colours import style_class
from tasks.report.page.markup import cleaned
from tasks.report.page.parts import Figure, Graph, Lines, Map, Matrix, Panel, Part, Report, Strips, Table
from tasks.report.page.plot_dag import dag
from tasks.report.page.plot_maps import circle_map, matrix
from tasks.report.page.plots import lines, strips

TEMPLATES = Path(__file__).with_name("templates")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_CODE = re.compile(r"`([^`]+)`")


def page(report: Report) -> str:
    """Return the whole file."""
    style, script = ((TEMPLATES / name).read_text("utf-8") for name in ("report.css", "report.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            numbers=_numbers(report),
            policy=f"{_POLICY}; script-src 'sha256-{digest}'",
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"prose": _prose, "kind": _kind, "drawn": _drawn, "style_class": style_class}
    return environment


def _numbers(report: Report) -> dict[str, str]:
    """Return the number of each table and figure by its key, as its caption begins: `Table 1`, `Figure 1`."""
    numbers, counts = {}, {"Table": 0, "Figure": 0}
    for section in report.sections:
        for part in section.parts:
            if isinstance(part, Table | Figure):
                counts[_kind(part)] += 1
                numbers[part.key] = f"{_kind(part)} {counts[_kind(part)]}"
    return numbers


def _kind(part: Part) -> str:
    """Return the name of a part's class, by which the template chooses a macro."""
    return type(part).__name__


def _prose(text: str) -> Markup:
    """Return the report's own prose as markup, in which backticks mark code."""
    escaped = str(escape(cleaned(text)))
    return Markup(_CODE.sub(r"<code>\1</code>", escaped))  # noqa: S704 - escaped above


def _drawn(panel: Panel, figure: Figure, place: int) -> Markup:
    """Return a panel as SVG; the first panel of a figure has the text of the whole figure, the others only a name."""
    words = f"{figure.caption} {figure.alternative}"
    match panel:
        case Lines():
            return lines(panel, words if place == 0 else f"{panel.title}: {panel.y_title} over {panel.x_title}")
        case Strips():
            return strips(panel, words if place == 0 else f"{panel.title}: {panel.x_title} of every run")
        case Map():
            return circle_map(panel, words if place == 0 else f"{panel.title}: {panel.subtitle}")
        case Matrix():
            return matrix(panel, words if place == 0 else f"{panel.title}: predictions by true label")
        case Graph():
            return dag(panel, words)
