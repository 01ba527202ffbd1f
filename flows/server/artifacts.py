"""Prefect artifacts that show the work of a stage: a page, a table of details, and a link to the report."""

from __future__ import annotations

import csv
import os
import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.terminal import size
from storage import paths
from storage.errors import first_line
from storage.sources.source import NAMED_ROLES, SINGLE_ROLES, read_manifest

if TYPE_CHECKING:
    from flows.dvc_state.dag import Node

Row = dict[str, Any]
Details = Callable[[Path, dict[str, Any]], list[Row]]

REPORT_URL = "SUPMER_REPORT_URL"  # environment variable: the address of the report for a browser that shows Prefect
REPORT_PLACE = "/report"  # path of the report on the servers that this program starts
MOST_ROWS = 500


def tell_prefect(
    root: Path, node: Node, why: tuple[str, ...], record: dict[str, Any], say: Callable[[str], None]
) -> None:
    """Add the stage's artifacts to the current flow run; a failure here must not fail the stage."""
    try:
        from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
        from prefect.context import FlowRunContext

        if FlowRunContext.get() is None:
            return
        create_markdown_artifact(page(node, why, record), key=node.name.replace("@", "-"), description=node.description)
        if node.name in DETAILS:
            title, details = DETAILS[node.name]
            rows = details(root, record)
            cut = f" (the first {MOST_ROWS} of {len(rows):,})" if len(rows) > MOST_ROWS else ""
            create_table_artifact(rows[:MOST_ROWS], key=f"{node.name}-table", description=f"{title}{cut}")
        if node.name == "report":
            create_link_artifact(
                report_link(root), link_text="The report", key="report-link", description=str(root / paths.REPORT_PAGE)
            )
    except Exception as error:  # noqa: BLE001 - whatever the error is, the stage has done its work
        say(f"{node.name}: its page in Prefect's interface is incomplete: {first_line(error)}")


def report_link(root: Path) -> str:
    """Return the address of the report: on a server of this program, else its file, which a browser may not open."""
    return os.environ.get(REPORT_URL) or (root / paths.REPORT_PAGE).resolve().as_uri()


def report_is_served() -> None:
    """Note that this program started the server that the runs report to; that server also serves the report."""
    os.environ.setdefault(REPORT_URL, f"{REPORT_PLACE}/")


def page(node: Node, why: tuple[str, ...], record: dict[str, Any]) -> str:
    """Return the Markdown page of a stage: why it ran, its time and memory, and the measures of its record."""
    figures: Row = {}
    if "rows" in record:
        figures["rows"] = f"{record['rows']:,}"
    figures["bytes written"] = size(record.get("output_bytes"))
    figures["seconds"] = f"{record.get('seconds', 0):,.1f}"
    figures["peak memory"] = size(record.get("peak_memory_bytes"))
    known = {"rows", "output_bytes", "seconds", "peak_memory_bytes"}
    figures |= {name: value for name, value in _flat(record).items() if name not in known}
    lines = [
        "## Why it ran",
        "",
        *(f"- {_text(reason)}" for reason in why),
        "",
    ]  # Prefect shows name and description above
    lines += ["## Result", "", "| measure | value |", "|---|---|"]
    lines += [f"| {_text(name)} | {_text(value)} |" for name, value in figures.items()]
    lines += ["", "Written: " + ", ".join(f"`{path}`" for path in node.outputs), ""]
    return "\n".join(lines)


def _flat(record: dict[str, Any], prefix: str = "") -> Row:
    """Return the measures of a nested record by dotted names."""
    figures: Row = {}
    for name, value in record.items():
        if isinstance(value, dict):
            figures |= _flat(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            figures[f"{prefix}{name}"] = value
    return figures


def _text(value: object) -> str:
    """Return a value as the text of a cell of a Markdown table."""
    if value is None:
        return "–"
    shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return shown.replace("|", "\\|").replace("\n", " ")


def _sources(root: Path, _record: dict[str, Any]) -> list[Row]:
    return [
        {
            "role": role,
            "name": source.name,
            "source": source.spec.partition("#")[0],
            "revision": source.revision,
            "licence": source.licence,
            "files": len(source.files),
            "bytes": sum(file.bytes for file in source.files),
        }
        for role in (*SINGLE_ROLES, *NAMED_ROLES)
        for source in read_manifest(root / paths.source(role))
    ]


def _exclusions(_root: Path, record: dict[str, Any]) -> list[Row]:
    most_first = sorted(record["excluded"].items(), key=lambda item: -item[1])
    return [{"reason": reason, "documents": count} for reason, count in most_first]


def _vectors(root: Path, record: dict[str, Any]) -> list[Row]:
    from storage.parquet import count_rows

    common = {name: record[name] for name in ("model", "dimension", "dtype")}
    shards = sorted((root / paths.EMBEDDINGS).glob("*.parquet"))
    return [
        {"shard": path.stem, "sentences": count_rows(path), "bytes": path.stat().st_size} | common for path in shards
    ]


def _cluster_sizes(root: Path, _record: dict[str, Any]) -> list[Row]:
    with (root / paths.CLUSTER_SIZES_PLOT).open(newline="") as file:
        return list(csv.DictReader(file))


def _tasks(_root: Path, record: dict[str, Any]) -> list[Row]:
    return [
        {"split": split, "format": name, "tasks": count}
        for split, formats in record["by_format"].items()
        for name, count in formats.items()
    ]


def _trainings(_root: Path, record: dict[str, Any]) -> list[Row]:
    variants = {name: value for name, value in record.items() if isinstance(value, dict)}
    return [{"variant": name} | _flat(value) for name, value in variants.items()]


def _scores(root: Path, _record: dict[str, Any]) -> list[Row]:
    """Return the mean and deviation of scores over the seeds, each with the learning rate that validation chose."""
    import pyarrow.parquet as pq

    columns = ["dataset", "tested_on", "method", "shots", "chosen", "score"]
    scores_by_key: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in pq.read_table(root / paths.SCORES, columns=columns).to_pylist():
        if row["chosen"] and row["score"] is not None:
            scores_by_key[row["dataset"], row["tested_on"], row["method"], row["shots"]].append(row["score"])
    return [
        dict(zip(("dataset", "tested on", "method", "shots"), key, strict=True))
        | {
            "mean": round(statistics.mean(scores), 4),
            "deviation": round(statistics.stdev(scores), 4) if len(scores) > 1 else None,
            "seeds": len(scores),
        }
        for key, scores in sorted(scores_by_key.items())
    ]


DETAILS: dict[str, tuple[str, Details]] = {
    "acquire": ("Sources that were fetched", _sources),
    "sample": ("Excluded documents, by reason", _exclusions),
    "embed": ("Vectors by shard", _vectors),
    "cluster": ("Training sentences of each cluster, largest first", _cluster_sizes),
    "materialize": ("Tasks by format", _tasks),
    "metatrain": ("The prompts that were trained, with their held-out losses", _trainings),
    "tune": ("Scores, mean and deviation over seeds", _scores),
}
