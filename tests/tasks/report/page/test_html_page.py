"""The page's templates: whatever the texts are, the elements are the same, and a designer's mistake is an error."""

from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from storage.queries.report_queries import Query
from tasks.report.page import html_page
from tasks.report.page.html_page import page
from tasks.report.page.parts import (
    Box,
    Cell,
    Column,
    Commands,
    Figure,
    Glossary,
    Graph,
    Map,
    Matrix,
    Note,
    Origin,
    Place,
    Report,
    Sample,
    Samples,
    Section,
    Span,
    Table,
)


class Elements(HTMLParser):
    """The names of a page's elements and their attributes, in order."""

    def __init__(self, text):
        super().__init__()
        self.names = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append((tag, *(name for name, _ in attrs)))


def report_of(text):
    """Return a report with a part of every kind, in which every text is `text`."""
    columns = (Column(text), Column(text, numeric=True, group=text))
    rows = ((Cell(text, text), Cell(text, text, deviation=text, best=True, beside=text)), (Cell(text), Cell("–", None)))
    queries = Origin((Query("name", (), text),))
    command = Origin(command=text)
    parts = (
        Table("a", text, columns, rows, queries, frozenset({1}), (text,)),
        Figure("b", text, text, (Graph((Box(text, text, ()),)),), command, Table("c", "", columns, rows, Origin())),
        Samples("d", text, (Sample(text, text, (Span("text", text),), text),), command),
        Figure("e", text, text, (Map(text, text, 0, (Place(0.0, 0.0, 1, text, text),)),), command),
        Figure("f", text, text, (Matrix(text, text, (text, text), ((1, 0), (0, 1))),), command),
        Note(text),
        Glossary(((text, text),)),
        Commands(((text, text),)),
    )
    return Report(text, (text,), ((text, text),), (Section("key", text, text, parts),))


PLAIN = Elements(page(report_of("é"))).names


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="`\n\r"), min_size=1, max_size=12).map(lambda text: f"é{text}"))
def test_no_text_adds_an_element_or_an_attribute_or_leaves_a_control_character(text):
    made = page(report_of(text))
    assert Elements(made).names == PLAIN
    assert not set(made) & {"\x00", "\x0b", "\x1b", "\x7f", "\u2028"}


def test_tables_and_figures_are_numbered_apart():
    made = page(report_of("x"))
    assert '<span class="number">Table 1.</span> x' in made
    assert '<span class="number">Figure 1.</span> x' in made
    assert 'aria-label="Figure 1, data"' in made


def test_a_misspelled_name_in_a_template_is_an_error(tmp_path, monkeypatch):
    for path in html_page.TEMPLATES.iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace("{{ report.title }}", "{{ report.tittle }}"))
    monkeypatch.setattr(html_page, "TEMPLATES", tmp_path)
    html_page._environment.cache_clear()
    try:
        with pytest.raises(UndefinedError, match="tittle"):
            page(report_of("x"))
    finally:
        html_page._environment.cache_clear()
