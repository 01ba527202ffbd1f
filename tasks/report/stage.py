"""Stage `report`: all measurements on one page, as HTML, as Markdown, and as metrics for DVC."""

from storage import paths
from storage.atomic import write_bytes
from tasks.report.data import gather, metrics_file
from tasks.report.page.html_page import page
from tasks.report.page.markdown_page import markdown
from tasks.report.page.parts import Figure, Table
from tasks.report.sections import build
from tasks.stage.contract import Record, Stage


def run(stage: Stage) -> Record:
    """Query the tables, build the report, and write it."""
    data = gather(stage)
    report = build(data)
    write_bytes(stage.output(paths.REPORT_PAGE), page(report).encode())
    write_bytes(stage.output(paths.REPORT_TEXT), markdown(report).encode())
    write_bytes(stage.output(paths.REPORT_METRICS), metrics_file(data.metrics))
    parts = [part for section in report.sections for part in section.parts]
    return {
        "rows": sum(map(len, data.rows.values())),
        "tables": sum(isinstance(part, Table) for part in parts),
        "figures": sum(isinstance(part, Figure) for part in parts),
    }
