"""The report as a whole: the summary, and the sections in order."""

from collections.abc import Sequence

from storage.counts import counted
from storage.queries.report_queries import Row
from tasks.methods import META_TRAINED, METHODS, SUPMER, ZERO_SHOT, in_order, label, most_telling
from tasks.report.cluster_figures import cluster_map, cluster_sizes
from tasks.report.comparisons import (
    Difference,
    Place,
    also_compared,
    averaged,
    compared_in_words,
    difference,
    difference_table,
)
from tasks.report.data import ReportData
from tasks.report.figures import (
    AT_CHANCE,
    accuracy_over_shots,
    accuracy_over_steps,
    gradient_alignment,
    initialization_sensitivity,
    learned_in_words,
    tasks_learned,
    training_losses,
    tuning_losses,
    untuned_levels,
)
from tasks.report.glossary import terms
from tasks.report.lineage_sections import lineage_section, next_section, pipeline_section
from tasks.report.mistakes import confusion, mistakes_table
from tasks.report.page.parts import (
    Column,
    Glossary,
    Note,
    Origin,
    Part,
    Report,
    Samples,
    Section,
    Table,
    number,
    words,
)
from tasks.report.previous_section import previous_section
from tasks.report.result_tables import DOMAINS, PAPER_NAMES, result_tables, with_costs


def build(data: ReportData) -> Report:
    """Return the report."""
    params, rows = data.params, data.rows
    tables = result_tables(rows["results"], params.tune, params.report)
    shown = {row["method"] for row in rows["results"]} | {row["variant"] for row in rows["steps"]}
    return Report(
        "SUPMER: what this run found",
        tuple(_summary(data, tables, learned_in_words(rows["kinds"], SUPMER))),
        tuple(_facts(data)),
        (
            _results(data, tables),
            *_mistakes(data),
            _tuning(data),
            _meta_training(data),
            _tasks(data),
            *previous_section(data),
            pipeline_section(data),
            lineage_section(data),
            Section("words", "Words", "", (Glossary(tuple(terms(shown))),)),
            next_section(data),
        ),
    )


def _summary(data: ReportData, tables: Sequence[Table], learned: str) -> list[str]:
    """Return the results in plain sentences: the last column of each table, SUPMER against the others.

    The sentence on what meta-training learned comes after the results, but first if it learned nothing.
    """
    lines = [" ".join(said) for table in tables if (said := _in_words(data, table))]
    if not lines:
        lines.append("Nothing was tuned and tested in this run, so there is no result table.")
    if learned:
        lines.insert(0 if AT_CHANCE in learned else len(lines), learned)
    return lines


def _in_words(data: ReportData, table: Table) -> list[str]:
    """Return the last column of a result table as sentences, each about two methods."""
    last = {row[0].text: row[-1] for row in table.rows if isinstance(row[-1].value, float)}
    if data.reference is None or not last:
        return []
    ours = label(data.reference).title
    compared = [name for name, method in METHODS.items() if method.summarized and name != data.reference]
    others = [name for name in most_telling(compared) if label(name).title in last]
    where = _where(data, table)
    if ours not in last or not others:
        best = max(last, key=lambda title: float(last[title].value or 0.0))
        return [f"{where} {best} reached {last[best].text} %."]
    first, *rest = [(label(name).title, _difference(data, table, name)) for name in others]
    compared_first = compared_in_words(ours, last[ours].text, first[0], last[first[0]].text, first[1])
    further = "; ".join(also_compared(title, last[title].text, found) for title, found in rest)
    return [f"{where} {compared_first}", *([f"Also: {further}."] if further else [])]


def _where(data: ReportData, table: Table) -> str:
    """Return the words before a result: where it was measured."""
    several = table.columns[-1].title == "average"
    if table.key == DOMAINS:
        return f"Tuned on {data.params.tune.domains.source}, on average over {len(table.columns) - 2} domains,"
    return f"On average over {len(table.columns) - 2} datasets" if several else f"On {table.columns[-1].title}"


def _difference(data: ReportData, table: Table, method: str) -> Difference | None:
    """Return the difference between the reference and a method over all datasets of a table; None if one is missing."""
    tune = data.params.tune
    by_place = {
        (row["dataset"], row["tested_on"]): difference(row)
        for row in data.rows["paired"]
        if row["method"] == method and row["shots"] == tune.shots
    }
    places = _places(data, table)
    if any(place not in by_place for place in places):
        return None
    return averaged([by_place[place] for place in places])


def _places(data: ReportData, table: Table) -> list[Place]:
    """Return the datasets that the columns of a result table were tuned and tested on."""
    source = str(data.params.tune.domains.source)
    names = [column.title for column in table.columns[1:] if column.title != "average"]
    return [(source if table.key == DOMAINS else name, name) for name in names]


def _facts(data: ReportData) -> list[tuple[str, str]]:
    """Return the run in a few pairs of words."""
    params = data.params
    documents = data.rows["documents"]
    tasks = sum(row["train_tasks"] for row in data.rows["tasks"])
    variants = in_order({row["variant"] for row in data.rows["held_out"]})
    facts = [("Backbone", _short_spec(data.sources["backbone"][0].spec))]
    if documents:
        sentences = sum(int(row["sentences"]) for row in documents)
        kept = sum(int(row["documents"]) for row in documents)
        facts.append(("Corpus", f"{counted(kept, 'document')}, {counted(sentences, 'sentence')} cut"))
    if tasks:
        facts.append(("Anchor tasks", f"{tasks:,} for training"))
    if variants:
        facts.append(("Meta-trained", ", ".join(label(variant).short for variant in variants)))
    tune = params.tune
    facts.append(("Tuning", f"{counted(tune.shots, 'example')} per label, {counted(len(tune.seeds), 'seed')}"))
    return facts


def _short_spec(spec: str) -> str:
    return spec.partition("#")[0].partition(":")[2] or spec


def _results(data: ReportData, tables: Sequence[Table]) -> Section:
    parts: list[Part] = [with_costs(table, data.rows["costs"]) for table in tables[:1]]
    parts += tables[1:]
    places = [place for table in tables for place in _places(data, table)]
    differences = data.reference and difference_table(
        data.rows["paired"], data.reference, data.queries["paired"], places, data.params.tune.shots
    )
    parts += [differences] if differences else []
    if not tables:
        parts.append(Note("No dataset was tuned: `tune.datasets` and `tune.domains` of params.yaml name none."))
    if data.params.report.paper_figures is None:
        known = " and ".join(PAPER_NAMES.values())
        parts.append(
            Note(f"The paper's scores are not shown: they are for {known}, and `report.paper_figures` names neither.")
        )
    return Section("results", "Results", "", tuple(parts))


def _mistakes(data: ReportData) -> list[Section]:
    """Return the section on what the reference gets wrong; none without predictions."""
    if data.reference is None:
        return []
    rows, queries, method = data.rows, data.queries, data.reference
    figure = confusion(rows["confusion"], method, queries["confusion"])
    table = mistakes_table(rows["mistakes"], method, queries["mistakes"])
    parts = tuple(part for part in (figure, table) if part)
    return [Section("mistakes", "Mistakes", "", parts)] if parts else []


def _tuning(data: ReportData) -> Section:
    rows, queries, tune = data.rows, data.queries, data.params.tune
    zero_shot = untuned_levels(rows["results"], ZERO_SHOT)
    curves = accuracy_over_steps(rows["curves"], queries["curves"], tune.shots, zero_shot)
    losses = tuning_losses(rows["curves"], queries["curves"])
    shots = accuracy_over_shots([row for row in rows["shots"] if row["method"] != ZERO_SHOT], zero_shot)
    sensitivity = initialization_sensitivity(rows["sensitivity"], queries["sensitivity"])
    sweep = "No sweep over the number of examples ran: `tune.shot_sweep` of params.yaml is empty."
    parts = (
        curves or Note("No curve of tuning: no method of this run is trained."),
        losses,
        sensitivity or Note("No spread over seeds and learning rates: no method of this run is trained."),
        shots or Note(sweep if not tune.shot_sweep else "No method was tested with several numbers of examples."),
    )
    return Section("tuning", "Tuning", "", tuple(part for part in parts if part))


def _meta_training(data: ReportData) -> Section:
    rows = data.rows
    figure, notes = gradient_alignment(rows["steps"])
    losses = training_losses(rows["steps"], rows["held_out"])
    learned = tasks_learned(rows["kinds"])
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
    parts += [figure for figure in (cluster_map(rows["cluster_map"]), cluster_sizes(rows["cluster_sizes"])) if figure]
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
