"""The data of the report, read once: the rows of its queries, the sources, the stages, and examples in words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from model.text.templates import anchor_template
from storage import paths
from storage.errors import InputError
from storage.lineage.previous_report import PreviousReport, previous_report
from storage.lineage.stage_runs import StageFacts, stages_above
from storage.queries import report_queries as ask_for
from storage.queries.report_queries import Query, Row, ask
from storage.queries.views import connect, one_line_errors, refuse_damaged
from storage.sources.source import NAMED_ROLES, SINGLE_ROLES, AcquiredSource, read_manifest
from tasks.methods import SUPMER
from tasks.params.schema import Params
from tasks.report.comparisons import reference_of
from tasks.report.mistakes import MOST_MISTAKES
from tasks.report.page.parts import Sample, Span
from tasks.report.result_tables import result_metrics
from tasks.report.shown_examples import backbone_tokenizer, in_words
from tasks.stage.contract import Stage

_TOPIC = 60  # length, in characters, of the sentence that stands for a centroid


@dataclass(frozen=True)
class ReportData:
    """The rows of each query by its name, and the data that are not tables.

    Attributes:
        queries: the queries that were run, by name.
        sources: the sources from outside, by role.
        stages: the stages above the report, upstream first.
        read_from: those of the stages whose outputs the report reads itself.
        reference: the method that the others are compared with, if any was tuned.
        metrics: the figures of the result tables, as `dvc metrics` reads them.
        previous: the report before this one, if there is one.
    """

    params: Params
    queries: dict[str, Query]
    rows: dict[str, list[Row]]
    samples: tuple[Sample, ...]
    sources: dict[str, list[AcquiredSource]]
    stages: list[StageFacts]
    read_from: tuple[str, ...]
    reference: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    previous: PreviousReport | None = None


def gather(stage: Stage) -> ReportData:
    """Run every query and read the other data, from declared inputs alone (and from the events: see docs/report.md)."""
    params = stage.params
    queries = {query.name: query for query in report_queries(params)}
    # With one thread, sums have a fixed order, so that the same tables give the same digits.
    with connect(stage.root, threads=1) as connection, one_line_errors(stage.root):
        refuse_damaged(stage.root, connection)
        rows = {name: _in_order(ask(stage.root, connection, query), params) for name, query in queries.items()}
    roles = (*SINGLE_ROLES, *NAMED_ROLES)
    sources = {role: read_manifest(stage.input(paths.source(role))) for role in roles}
    stages, read_from = stages_above(stage.root, stage.inputs)
    metrics = result_metrics(rows["results"], params.tune)
    return ReportData(
        params,
        queries,
        rows,
        tuple(_samples(stage.root, params, rows["task_samples"], rows["topics"])),
        sources,
        stages,
        read_from,
        reference_of(params.tune.methods),
        metrics,
        previous_report(stage.root, stages, metrics_file(metrics)),
    )


def metrics_file(metrics: dict[str, Any]) -> bytes:
    """Return the content of metrics.json."""
    return orjson.dumps(metrics, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def _in_order(rows: list[Row], params: Params) -> list[Row]:
    """Return the rows of datasets in the order of params.yaml; the order within a dataset stays."""
    domains = params.tune.domains
    order = [*params.tune.datasets, str(domains.source), *domains.targets]
    place = {name: number for number, name in reversed(list(enumerate(order)))}
    return sorted(rows, key=lambda row: place.get(row.get("dataset", ""), len(order)))


def report_queries(params: Params) -> list[Query]:
    """Return every query of the report, with the numbers of the parameters filled in."""
    shots = params.tune.shots
    reference = reference_of(params.tune.methods) or SUPMER
    return [
        ask_for.RESULTS,
        ask_for.paired(reference),
        ask_for.confusion(shots),
        ask_for.mistakes(reference, shots, MOST_MISTAKES),
        ask_for.COSTS,
        ask_for.curves(shots),
        ask_for.SHOTS,
        ask_for.sensitivity(shots),
        ask_for.STEPS,
        ask_for.HELD_OUT,
        ask_for.KINDS,
        ask_for.CLUSTER_MAP,
        ask_for.CLUSTER_SIZES,
        ask_for.clusters(params.report.cluster_samples),
        ask_for.TASKS,
        ask_for.task_samples(params.report.task_samples),
        ask_for.TOPICS,
        ask_for.DOCUMENTS,
        ask_for.EXCLUDED,
        ask_for.PROMPTS,
    ]


def _samples(root: Path, params: Params, rows: Sequence[Row], topics: Sequence[Row]) -> list[Sample]:
    metatrain = params.metatrain
    tokenizer = backbone_tokenizer(root, Path(paths.BACKBONE), metatrain.max_length)
    nearest = {(row["format"], row["cluster"]): str(row["text"]) for row in topics}
    samples = []
    for row in rows:
        template = anchor_template(row["kind"], metatrain.template, len(row["texts"]), row["labels"])
        slots = [_slot(cluster, nearest.get((row["format"], cluster))) for cluster in row["choices"]]
        try:
            seen = in_words(template, row["label"], row["texts"], slots, tokenizer)
        except InputError as error:
            raise InputError(f"report: {row['example_id']}: {error}") from error
        marked = sorted(
            [(span, "text") for span in seen.rendered.texts] + [(span, "slot") for span in seen.rendered.slots]
        )
        tokens = "" if seen.tokens is None else f", {seen.tokens} tokens"
        cut = f", cut from {seen.full_tokens}" if seen.full_tokens != seen.tokens else ""
        about = f"{row['role']} example, label {row['label']} of {row['labels']}{tokens}{cut}"
        title = f"{row['kind']}  {row['example_id']}"
        samples.append(Sample(title, about, tuple(_spans(seen.rendered.text, marked)), seen.target))
    return samples


def _spans(text: str, marked: Sequence[tuple[tuple[int, int], str]]) -> list[Span]:
    """Return a text cut at its marked spans; the pieces between them are the template's."""
    spans, end = [], 0
    for (start, stop), kind in marked:
        spans += [Span("template", text[end:start]), Span(kind, text[start:stop])]
        end = stop
    return [span for span in (*spans, Span("template", text[end:])) if span.text]


def _slot(cluster: int, topic: str | None) -> str:
    if topic is None:
        return f"⟨μ {cluster}⟩"
    short = topic if len(topic) <= _TOPIC else topic[: _TOPIC - 1].rstrip() + "…"
    return f"⟨μ {cluster}: {short}⟩"
