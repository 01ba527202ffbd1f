"""The report as a whole: the summary, and the sections in order."""

from collections.abc import Sequence

from storage.queries.report_queries import Row
from tasks.methods import META_TRAINED, METHODS, SUPMER, in_order, label, most_telling
from tasks.report.data import ReportData
from tasks.report.figures import (
    AT_CHANCE,
    Styles,
    accuracy_over_shots,
    accuracy_over_steps,
    cluster_sizes,
    gradient_alignment,
    initialization_sensitivity,
    learned_in_words,
    styles_of,
    tasks_learned,
    training_losses,
    tuning_losses,
)
from tasks.report.lineage_sections import lineage_section, next_section, pipeline_section
from tasks.report.parts import Cell, Column, Note, Origin, Part, Report, Samples, Section, Table, number, words
from tasks.report.result_tables import PAPER_NAMES, result_metrics, result_tables, with_costs

_ALIKE = 0.05  # points; smaller than a printed digit


def build(data: ReportData) -> Report:
    """Return the report."""
    params, rows = data.params, data.rows
    styles = styles_of(
        {row["method"] for name in ("curves", "shots", "sensitivity") for row in rows[name]}
        | {row["variant"] for name in ("steps", "held_out") for row in rows[name]}
    )
    tables = result_tables(rows["results"], params.tune, params.report)
    return Report(
        "SUPMER: what this run found",
        tuple(_summary(tables, learned_in_words(rows["kinds"], SUPMER))),
        tuple(_facts(data)),
        (
            _results(data, tables),
            _tuning(data, styles),
            _meta_training(data, styles),
            _tasks(data),
            pipeline_section(data),
            lineage_section(data),
            next_section(data),
        ),
        result_metrics(rows["results"], params.tune),
    )


def _summary(tables: Sequence[Table], learned: str) -> list[str]:
    """Return the last column of each table in words: the best, and the methods that matter most, in their order.

    The sentence on what meta-training learned comes after the results, but first if it learned nothing.
    """
    summarized = {method.title for method in METHODS.values() if method.summarized}
    lines = []
    for table in tables:
        ranked = sorted(
            ((row[-1].value, row) for row in table.rows if isinstance(row[-1].value, float)),
            key=lambda pair: -pair[0],
        )
        several = table.columns[-1].title == "average"
        of = f"on average over {len(table.columns) - 2} datasets" if several else f"on {table.columns[-1].title}"
        said = ", ".join(
            f"{row[0].text} {row[-1].text}" + (f" ± {row[-1].deviation}" if row[-1].deviation else "")
            for place, (_, row) in enumerate(ranked)
            if place == 0 or row[0].text in summarized
        )
        if ranked:
            lead = "Tuned on one domain, tested on all" if table.key == "domains" else "Few-shot learning"
            verdict = " ".join(_verdict(table))
            lines.append(f"{lead}, {of}: {verdict} Accuracy in percent: {said}.".replace(":  ", ": "))
    if not lines:
        lines.append("Nothing was tuned and tested in this run, so there is no result table.")
    if learned:
        lines.insert(0 if AT_CHANCE in learned else len(lines), learned)
    return lines


def _verdict(table: Table) -> list[str]:
    """Return sentences on whether SUPMER helped: its last column against prompt tuning and against no tuning."""
    last = {row[0].text: row[-1] for row in table.rows if isinstance(row[-1].value, float)}
    ours = METHODS[SUPMER].title
    if ours not in last:
        return []
    compared = [name for name, method in METHODS.items() if method.summarized and not method.is_ours]
    others = [METHODS[name].title for name in most_telling(compared)]
    return [_compared(ours, last[ours], other, last[other]) for other in others if other in last]


def _compared(ours: str, our_cell: Cell, theirs: str, their_cell: Cell) -> str:
    """Return a sentence on a difference of printed figures, and on whether the deviations over seeds cover it."""
    difference = float(our_cell.text) - float(their_cell.text)
    if abs(difference) < _ALIKE:
        return f"{ours} and {theirs} are alike."
    deviations = [float(cell.deviation) for cell in (our_cell, their_cell) if cell.deviation]
    if not deviations:
        weight = "from one seed: it may be chance"
    elif abs(difference) > sum(deviations):
        weight = "more than the deviations over seeds"
    else:
        weight = "within the deviations over seeds: it may be chance"
    side = "above" if difference > 0 else "below"
    return f"{ours} is {abs(difference):.1f} points {side} {theirs}, {weight}."


def _facts(data: ReportData) -> list[tuple[str, str]]:
    """Return the run in a few pairs of words."""
    params = data.params
    documents = data.rows["documents"]
    tasks = sum(row["train_tasks"] for row in data.rows["tasks"])
    variants = in_order({row["variant"] for row in data.rows["held_out"]})
    facts = [("Backbone", _short_spec(data.sources["backbone"][0].spec))]
    if documents:
        sentences = sum(int(row["sentences"]) for row in documents)
        facts.append(
            ("Corpus", f"{sum(row['documents'] for row in documents):,} documents, {sentences:,} sentences cut")
        )
    if tasks:
        facts.append(("Anchor tasks", f"{tasks:,} for training"))
    if variants:
        facts.append(("Meta-trained", ", ".join(label(variant).short for variant in variants)))
    seeds = len(params.tune.seeds)
    facts.append(("Tuning", f"{params.tune.shots} examples per label, {seeds} seed{'' if seeds == 1 else 's'}"))
    return facts


def _short_spec(spec: str) -> str:
    return spec.partition("#")[0].partition(":")[2] or spec


def _results(data: ReportData, tables: Sequence[Table]) -> Section:
    parts: list[Part] = [with_costs(table, data.rows["costs"]) for table in tables[:1]]
    parts += tables[1:]
    if not tables:
        parts.append(Note("No dataset was tuned: `tune.datasets` and `tune.domains` of params.yaml name none."))
    if data.params.report.paper_figures is None:
        known = " and ".join(PAPER_NAMES.values())
        parts.append(
            Note(f"The paper's figures are not shown: they are for {known}, and `report.paper_figures` names neither.")
        )
    return Section("results", "Results", "", tuple(parts))


def _tuning(data: ReportData, styles: Styles) -> Section:
    rows, queries, tune = data.rows, data.queries, data.params.tune
    curves = accuracy_over_steps(rows["curves"], styles, queries["curves"], tune.shots)
    losses = tuning_losses(rows["curves"], styles, queries["curves"])
    shots = accuracy_over_shots(rows["shots"], styles)
    sensitivity = initialization_sensitivity(rows["sensitivity"], styles, queries["sensitivity"])
    sweep = "No sweep over the number of examples ran: `tune.shot_sweep` of params.yaml is empty."
    parts = (
        curves or Note("No curve of tuning: no method of this run is trained."),
        losses,
        sensitivity or Note("No spread over seeds and learning rates: no method of this run is trained."),
        shots or Note(sweep if not tune.shot_sweep else "No method was tested with several numbers of examples."),
    )
    return Section("tuning", "Tuning", "", tuple(part for part in parts if part))


def _meta_training(data: ReportData, styles: Styles) -> Section:
    rows = data.rows
    figure, notes = gradient_alignment(rows["steps"], styles)
    losses = training_losses(rows["steps"], rows["held_out"], styles)
    learned = tasks_learned(rows["kinds"], styles)
    drawn = [part for part in (learned, figure) if part]
    parts: list[Part] = [losses or Note("No meta-training has left a log."), *drawn]
    parts += [Note(text) for text in notes]
    return Section("meta-training", "Meta-training", _not_trained(rows["steps"]), tuple(parts))


def _not_trained(steps: Sequence[Row]) -> str:
    """Return a line that names SUPMER and its ablations that were not trained."""
    there = {row["variant"] for row in steps}
    parts = [name for name, learned in META_TRAINED.items() if name == SUPMER or learned.takes_out]
    missing = [METHODS[name].title for name in parts if name not in there]
    return f"Not trained in this run: {', '.join(missing)}." if missing else ""


def _tasks(data: ReportData) -> Section:
    rows, queries = data.rows, data.queries
    parts: list[Part] = []
    sizes = cluster_sizes(rows["cluster_sizes"])
    if sizes:
        parts.append(sizes)
    if rows["clusters"]:
        listed = tuple(
            (words(row["format"]), number(row["cluster"], "d"), number(row["size"]), words("\n".join(row["nearest"])))
            for row in rows["clusters"]
        )
        columns = (
            Column("format"),
            Column("cluster", numeric=True),
            Column("sentences", numeric=True),
            Column("nearest to its centroid"),
        )
        caption = "The largest clusters, with the sentences nearest to their centroids."
        parts.append(Table("clusters", caption, columns, listed, Origin((queries["clusters"],))))
    if rows["tasks"]:
        names = ("labels", "train_tasks", "validation_tasks", "examples")
        counted = tuple((words(row["kind"]), *(number(row[name]) for name in names)) for row in rows["tasks"])
        kinds = (Column("kind"), *(Column(name.replace("_", " "), numeric=True) for name in names))
        parts.append(Table("tasks", "Anchor tasks by kind.", kinds, counted, Origin((queries["tasks"],))))
    if data.samples:
        caption = "Examples of the tasks as the model sees them; ⟨μ⟩ stands for a cluster's centroid, a vector."
        parts.append(Samples("samples", caption, data.samples, Origin((queries["task_samples"],))))
    if not parts:
        parts.append(Note("No anchor tasks were made."))
    return Section("tasks", "Clusters and tasks", "", tuple(parts))
