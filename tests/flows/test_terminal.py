"""Tables: plain and whole in a pipe, as wide as the window in a terminal; one line for each row in both."""

import sys

import click
import pytest
from rich.cells import cell_len

from flows.terminal import table

COLUMNS = ("view", "rows", "columns")
LONG = "document_id varchar, " * 12
ROWS = [("sentences", 12345, LONG), ("x", None, "日本語 [bold]x[/bold] :smile:\n\x1b[31m"), ("a b", 1, "")]
NUMERIC = (False, True, False)


def plain(lines):
    return [click.unstyle(line) for line in lines]


def test_in_a_pipe_nothing_is_cut_or_styled_whatever_the_window(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = table(COLUMNS, ROWS, NUMERIC, indent="  ")
    assert lines == plain(lines)
    assert lines[0] == "  view        rows  columns"
    assert lines[2] == f"  sentences  12345  {LONG.rstrip()}"
    assert lines[3:] == ["  x           NULL  日本語 [bold]x[/bold] :smile:↵·[31m", "  a b            1"]


@pytest.mark.parametrize("width", [40, 60, 119, 400])
def test_in_a_terminal_a_line_fits_and_numbers_are_whole(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = plain(table(COLUMNS, ROWS, NUMERIC, indent="  "))
    assert len(lines) == 2 + len(ROWS)
    assert max(map(cell_len, lines)) <= width
    assert lines[2].split()[:2] == ["sentences", "12345"]
    assert lines[2].endswith("…" if width < 280 else "varchar,")
    assert lines[3].startswith("  x           NULL  日本語 [bold]")
    assert not any("\x1b" in line for line in lines)


def test_a_terminal_too_narrow_for_the_numbers_shows_them_all_the_same(monkeypatch):
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = plain(table(("a", "b"), [(1234567890123, 9876543210)], (True, True)))
    assert lines[2].split() == ["1234567890123", "9876543210"]


def test_a_table_without_rows_has_its_headings():
    assert table(("a", "bc"), [], (True, False)) == ["a  bc", "─  ──"]
