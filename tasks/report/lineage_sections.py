"""The sections of the report on provenance: the DAG with the cost of each stage, and the lineage of the prompt."""

import json

from storage import paths
from storage.counts import counted
from storage.lineage.stage_runs import StageFacts
from storage.queries.report_queries import Row
from storage.sources.source import AcquiredSource
from tasks.methods import METHODS, SUPMER, in_order, label
from tasks.report.data import ReportData
from tasks.report.page.colours import style_of
from tasks.report.page.parts import (
    HASH,
    NONE,
    Box,
    Cell,
    Column,
    Commands,
    Figure,
    Graph,
    Note,
    Origin,
    Part,
    Section,
    Table,
    number,
    short_hash,
    words,
)

OWN = "report"  # the stage of this module
_ALL_FILES = 6  # files of a source that are named one by one


def pipeline_section(data: ReportData) -> Section:
    """Return the section with the DAG and a table of its stages."""
    boxes = [Box(stage.name, _facts(stage), stage.upstream) for stage in data.stages]
    boxes.append(Box(OWN, "this report", data.read_from))
    edges = "; ".join(f"{box.name} reads {', '.join(box.upstream) or 'what is outside'}" for box in boxes)
    figure = Figure("dag", "The pipeline: an arrow leads from a stage to one that reads its outputs.", f"{edges}.",
                    (Graph(tuple(boxes)),), Origin(command="supmer dag"))  # fmt: skip
    unknown = [stage.name for stage in data.stages if stage.time is None]
    notes = ["The report's own time and memory are not known while it is written: see `supmer lineage report`."]
    if unknown:
        notes.append(f"No event records the run that made {', '.join(unknown)}: restored, or made without supmer.")
    lead = (
        "Seconds, memory and commits are those of the first run that made exactly these outputs, as "
        "lineage/events.jsonl recorded it when this report was written. The events are not an input of the report: a "
        "later run that gives the same bytes does not change it."
    )
    return Section("pipeline", "Pipeline", lead, (figure, _stage_table(data, tuple(notes))))


def _facts(stage: StageFacts) -> str:
    parts = [counted(sum(stage.rows.values()), "row")] if stage.rows else []
    parts += [_duration(stage.seconds)] if stage.seconds is not None else []
    parts += [_size(stage.peak_memory_bytes)] if stage.peak_memory_bytes else []
    return " · ".join(parts) or "made"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def _stage_table(data: ReportData, notes: tuple[str, ...]) -> Table:
    columns = (
        Column("stage"), Column("state"), Column("seconds", numeric=True), Column("rows", numeric=True),
        Column("wrote", numeric=True), Column("peak memory", numeric=True), Column("ended"), Column("git commit"),
    )  # fmt: skip
    rows = []
    for stage in data.stages:
        memory = stage.peak_memory_bytes
        rows.append(
            (
                words(stage.name),
                words("ran" if stage.time else "no event"),
                number(stage.seconds, ",.1f"),
                number(sum(stage.rows.values()) if stage.rows else None),
                Cell(_size(stage.bytes), stage.bytes),
                Cell(_size(memory), memory) if memory else Cell(NONE, None),
                words(stage.time[:19].replace("T", " ") if stage.time else NONE),
                words(_commit(stage.git_commit), code=True),
            )
        )
    return Table(
        "stages", "What each stage took.", columns, tuple(rows), Origin(command="supmer lineage report"), notes=notes
    )


def _commit(commit: str | None) -> str:
    if commit is None:
        return NONE
    return commit.rstrip("+")[:HASH] + (" with changes" if commit.endswith("+") else "")


def lineage_section(data: ReportData) -> Section:
    """Return the section with sources, filters and their counts, prompts and their hashes, and parameters."""
    parts: list[Part] = [_source_table(data)]
    documents = data.rows["documents"]
    if documents:
        parts.append(_document_table(data))
    excluded = data.rows["excluded"]
    parts.append(_excluded_table(data) if excluded else Note("No document was excluded."))
    parts.append(_prompt_table(data) if data.rows["prompts"] else Note("No prompt was tuned in this run."))
    parts.append(_parameter_table(data))
    commits = sorted({stage.git_commit for stage in data.stages if stage.git_commit})
    of = (
        ", ".join(_commit(commit) for commit in commits)
        or "none: the workspace is not under git, or no event records it"
    )
    lead = f"What the prompt was made of, down to the files from outside. Git commit: {of}."
    return Section("lineage", "Lineage of the prompt", lead, tuple(parts))


def _source_table(data: ReportData) -> Table:
    rows = []
    for role, sources in data.sources.items():
        for source in sources:
            revision = f" at {source.revision[:HASH]}" if source.revision else ""
            rows.append(
                (
                    words(role),
                    words(source.name),
                    words(source.spec.partition("#")[0] + revision, code=True),
                    words(source.licence or "unknown"),
                    number(len(source.files)),
                    Cell(_size(size := sum(file.bytes for file in source.files)), size),
                    words(_hashes(source), code=True),
                )
            )
    columns = (
        Column("role"), Column("name"), Column("source"), Column("licence"), Column("files", numeric=True),
        Column("size", numeric=True), Column("SHA-256"),
    )  # fmt: skip
    return Table(
        "sources",
        "Sources, with their licences and hashes.",
        columns,
        tuple(rows),
        Origin(command="supmer lineage artifacts/prompt"),
        notes=(
            "Hashes are shortened; full ones are in data/sources/ROLE/source.json, and `supmer verify` checks them.",
        ),
    )


def _hashes(source: AcquiredSource) -> str:
    if len(source.files) == 1:
        return source.files[0].sha256[:HASH]
    listed = [f"{file.name} {file.sha256[:HASH]}" for file in source.files[:_ALL_FILES]]
    more = len(source.files) - _ALL_FILES
    return ", ".join(listed) + (f", and {more:,} more" if more > 0 else "")


def _document_table(data: ReportData) -> Table:
    names = ("documents", "put_aside", "sentences", "words", "bytes")
    titles = ("documents", "of them for validation", "sentences", "words", "bytes")
    rows = tuple((words(row["source"]), *(number(int(row[name])) for name in names)) for row in data.rows["documents"])
    columns = (Column("corpus"), *(Column(title, numeric=True) for title in titles))
    note = (
        "Sentences as they were cut; `sample.min_sentence_words` and `max_sentence_words` say which of them are used."
    )
    origin = Origin((data.queries["documents"],))
    return Table("documents", "What was kept of the corpus.", columns, rows, origin, notes=(note,))


def _excluded_table(data: ReportData) -> Table:
    excluded = data.rows["excluded"]
    total = sum(row["documents"] for row in excluded) + sum(row["documents"] for row in data.rows["documents"])
    rows = tuple(
        (words(row["reason"]), number(row["documents"]), number(100 * row["documents"] / total, ".1f"))
        for row in excluded
    )
    return Table(
        "excluded",
        "What the filters left out, by reason.",
        (Column("reason"), Column("documents", numeric=True), Column("% of all read", numeric=True)),
        rows,
        Origin((data.queries["excluded"],)),
        notes=("Excluded documents are kept with their reason: `supmer trace DOCUMENT` finds them.",),
    )


def _prompt_table(data: ReportData) -> Table:
    columns = (
        Column("tuned on"), Column("method"), Column("shots", numeric=True), Column("seed", numeric=True),
        Column("learning rate", numeric=True),
        Column("best step", numeric=True), Column("validation, %", numeric=True), Column("start"),
        Column("tuned prompt"), Column("status"),
    )  # fmt: skip
    rows = tuple(
        (
            words(row["dataset"]),
            words(label(row["method"]).title, style=style_of(row["method"])),
            number(row["shots"], "d"),
            number(row["seed"], "d"),
            number(row["learning_rate"], "g"),
            number(row["best_step"]),
            number(row["validation"], ".1f"),
            short_hash(row["started_from"]),
            short_hash(row["tuned_hash"]),
            words(row["status"]),
        )
        for row in sorted(data.rows["prompts"], key=_method_order)
    )
    caption = "Prompts: the start, and what was tuned from it with the learning rate that validation chose."
    return Table("prompts", caption, columns, rows, Origin((data.queries["prompts"],)))


def _method_order(row: Row) -> tuple[str, int, int, int]:
    """Return the place of a tuned prompt: by dataset, then by the order of the methods in the other tables."""
    return row["dataset"], in_order([*METHODS, row["method"]]).index(row["method"]), row["shots"], row["seed"]


def _parameter_table(data: ReportData) -> Table:
    rows = tuple(
        (words(stage.name), words(key, code=True), words(_value(value), code=True))
        for stage in data.stages
        for key, value in stage.parameters.items()
    )
    columns = (Column("stage"), Column("parameter"), Column("value"))
    caption = "Parameters of every stage, as dvc.lock has them."
    return Table("parameters", caption, columns, rows, Origin(command="supmer lineage report"))


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def next_section(data: ReportData) -> Section:
    """Return the section with commands to continue with."""
    tune = data.params.tune
    sweep = ("supmer run -S 'tune.shot_sweep=[4,8,32]'", "measure other numbers of examples")
    lines: list[tuple[str, str]] = [
        ("supmer status", "what is fresh, what is not, and why"),
        ("supmer show tasks -n 3", "more examples as the model sees them"),
        ("supmer show clusters", "what each cluster is about"),
        ("supmer sql", "the tables there are"),
        ("supmer lineage artifacts/prompt", "the tree behind the prompt, with every hash"),
        ("supmer verify", "hash everything again"),
        *_with_a_tuned_prompt(data),
        *([] if tune.shot_sweep else [sweep]),
        ("supmer run -S 'tune.seeds=[10,20,30,40,50]'", "the paper's five seeds"),
        ("supmer run -S acquire.corpus.mine=path:/data/texts", "learn from your own text"),
        ("supmer params use paper-t5-base", "the paper's own setting"),
    ]
    lead = "From the folder of the workspace, with its environment active:"
    return Section("next", "What to do next", lead, (Commands(tuple(lines)),))


def _with_a_tuned_prompt(data: ReportData) -> list[tuple[str, str]]:
    """Return commands for tuning, and for the tuned prompt with the best validation score, if there is one."""
    tuned = [row for row in data.rows["prompts"] if row["validation"] is not None]
    lines = [
        ("supmer tune --data my.jsonl --text review --label stars --output my-prompt", "tune on your own examples")
    ]
    if tuned:
        best = max(tuned, key=lambda row: (row["validation"], row["method"] == SUPMER))
        folder = f"{paths.TUNED_PROMPTS}/{best['dataset']}/{best['method']}"
        lines.append((f"supmer predict --prompt {folder} --data new.jsonl", "label new texts"))
        lines.append((f"supmer export --to peft my-adapter --prompt {folder}", "take the prompt to Hugging Face PEFT"))
    return lines
