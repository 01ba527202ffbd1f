"""The paper's own figures from paper_figures.txt, for comparison."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

AVERAGE = "average"
TABLES = Path(__file__).with_suffix(".txt")
_TITLE = re.compile(r"\[(?P<backbone>\S+) (?P<experiment>\S+)\]")
_CELL = re.compile(r"\(?(\d+\.\d)(?:±(\d+\.\d))?\)?")


@dataclass(frozen=True)
class PaperFigure:
    """A cell of the paper's tables, in percent; inference has no deviation."""

    mean: float
    deviation: float | None


Figures = dict[tuple[str, str], PaperFigure]
"""Figures by method and dataset, `average` among the datasets."""


def paper_figures(backbone: str, experiment: str) -> Figures:
    """Return every figure of a backbone (t5-base, flan-t5-xl) and an experiment (few-shot, domains)."""
    return _tables()[backbone, experiment]


@cache
def _tables() -> dict[tuple[str, str], Figures]:
    tables: dict[tuple[str, str], Figures] = {}
    figures: Figures = {}
    columns: list[str] = []
    for line in TABLES.read_text("utf-8").splitlines():
        first, *rest = line.split() or ("#",)
        if title := _TITLE.match(line):
            figures = tables.setdefault((title["backbone"], title["experiment"]), {})
        elif first == "method":
            columns = rest
        elif first != "#":
            for column, cell in zip(columns, rest, strict=True):
                if printed := _CELL.fullmatch(cell):
                    deviation = float(printed[2]) if printed[2] else None
                    figures[first, column] = PaperFigure(float(printed[1]), deviation)
    return tables
