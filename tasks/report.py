"""Stage `report`: all that was measured on one page, as HTML, as Markdown, and as metrics for DVC."""

import orjson

from storage.atomic import write_bytes
from tasks.contract import Record, Stage
from tasks.report_data import gather
from tasks.report_html import page
from tasks.report_markdown import markdown
from tasks.report_parts import Figure, Table
from tasks.report_sections import build

PAGE, TEXT, METRICS = "report/index.html", "report/report.md", "report/metrics.json"


def run(stage: Stage) -> Record:
    """Ask, draw and write."""
    data = gather(stage)
    report = build(data)
    write_bytes(stage.output(PAGE), page(report).encode())
    write_bytes(stage.output(TEXT), markdown(report).encode())
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    write_bytes(stage.output(METRICS), orjson.dumps(report.metrics, option=options))
    parts = [part for section in report.sections for part in section.parts]
    return {
        "rows": sum(map(len, data.rows.values())),
        "tables": sum(isinstance(part, Table) for part in parts),
        "figures": sum(isinstance(part, Figure) for part in parts),
    }
