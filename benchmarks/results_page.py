"""Make the tables of docs/results.md from benchmarks/records/: `python benchmarks/results_page.py`.

Each table stands between two comments; the text around them is written by hand, without figures. `--check` changes
nothing and fails if a table is not what the records give. `--headline` also prints the table of headline ratios.
"""

import argparse
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from pages import part_names, table, with_part, without_parts  # noqa: E402
from precision_tables import agreement, bfloat16, bfloat16_headlines  # noqa: E402
from records import ROOT, Row, read  # noqa: E402
from tables import middle, part, rows_of, seconds  # noqa: E402

from tasks.methods import METHODS  # noqa: E402

PAGE, PROGRAM = ROOT / "docs" / "results.md", "benchmarks/results_page.py"
OLDER = "## Older figures"
TIMES = r"s|ms|min|h|seconds?|minutes?|hours?|days?"
UNITS = rf"(?:{TIMES}|[kMGT]i?B|×|times|%|percent|points?|[GTP]?FLOP|sentences|examples|vectors|tasks|steps)"
FIGURE = re.compile(rf"\d[\d.,]*(?: [kMGT])?\s?{UNITS}(?:/s)?(?![\w-])")
DECIMAL = re.compile(r"\d\.\d")


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a table is out of date")
    parser.add_argument("--headline", action="store_true", help="print the table of headline ratios")
    options = parser.parse_args()
    page = PAGE.read_text("utf-8")
    made = filled(page)
    if options.headline:
        print(headline())
    if not options.check:
        PAGE.write_text(made, "utf-8")
    elif problems := [*typed_figures(page), *([] if page == made else [f"{PAGE.name}: out of date: run {PROGRAM}"])]:
        raise SystemExit("\n".join(problems))


def filled(page: str) -> str:
    """Return the page with every table made from the records."""
    for name in part_names(page, PROGRAM):
        page = with_part(page, name, PROGRAM, TABLES[name]())
    return page


def typed_figures(page: str) -> list[str]:
    """Return the lines with a table or a figure outside the generated parts and the section of older figures."""
    kept = without_parts(page).partition(OLDER)[0]
    lines = [line for line in kept.splitlines() if line.startswith("|") or _has_figure(_without_code(line))]
    return [f"{PAGE.name}: typed by hand, not from a record: {line[:100]}" for line in lines]


def _has_figure(line: str) -> bool:
    """Return True if a line has a number with a unit, or a decimal number that is not an aim."""
    sentences = re.split(r"(?<=[.:;])\s", line)
    return any(FIGURE.search(text) or (DECIMAL.search(text) and "aim" not in text) for text in sentences)


def _without_code(line: str) -> str:
    return re.sub(r"`[^`]*`", "", line)


def cluster() -> str:
    """Return the table of k-means and of assignment."""
    records, rows = rows_of("cluster", "way", "rows")
    shown = []
    for (way, count), row in rows.items():
        speed = f"{count / middle(row, 'cpu_seconds'):,.0f} vectors/s" if way == "assignment" else ""
        peak = f"{row['peak_mb']:.0f} MB" if "peak_mb" in row else ""
        inertia = f"{row['inertia']:,.0f}" if "inertia" in row else ""
        shown.append((way, f"{count:,}", seconds(row), f"{middle(row, 'cpu_seconds'):.1f} s", inertia, speed, peak))
    return part(records, ("", "vectors", "time", "processor time", "inertia", "speed per core", "peak memory"), shown)


def embed() -> str:
    """Return the table of the embed stage against a bare encoder."""
    records, rows = rows_of("embed", "sentences", "way", leave_out="precision")
    speeds = {key: key[0] / middle(row, "seconds") for key, row in rows.items()}
    shown = []
    for (count, way), speed in speeds.items():
        bare = speeds[count, "SentenceTransformer.encode"]
        shown.append((way, f"{count:,}", f"{speed:.0f}", f"{speed / bare:.2f} ×"))
    return part(records, ("", "sentences", "sentences/s", "against the bare encoder (aim 1.1)"), shown)


def growth() -> str:
    """Return the table of how stages grow with the text."""
    records, rows = rows_of("growth", "stage", "text_mb")
    stages: dict[str, list[Row]] = {}
    for (stage, _), row in sorted(rows.items(), key=lambda item: item[0][1]):
        stages.setdefault(stage, []).append(row)
    shown = []
    for stage, (small, *_, large) in stages.items():
        before, after = middle(small, "cpu_seconds"), middle(large, "cpu_seconds")
        ratio = f"{after / before:.1f} (of {large['text_mb'] / small['text_mb']:.1f} × the text)"
        shown.append((stage, f"{before:.1f} s", f"{after:.1f} s", ratio))
    return part(records, ("stage", "processor time, less text", "more text", "growth"), shown)


def materialize() -> str:
    """Return the table of making tasks."""
    records, rows = rows_of("materialize", "sentences")
    shown = []
    for (count,), row in sorted(rows.items()):
        whole = middle(row, "seconds")
        drawn, all_ = (row["examples"] / spent for spent in (middle(row, "draw_seconds"), whole))
        core = row["examples"] / middle(row, "worker_cpu_seconds")
        speeds = (f"{speed:,.0f}" for speed in (drawn, all_, core))
        shown.append(
            (f"{count:,}", seconds(row), *speeds, f"{row['peak_mb']:.0f} MB", f"{row['mapped_peak_mb']:.0f} MB")
        )
    columns = ("sentences", "time", "examples/s drawn", "examples/s, whole stage", "per core of the workers")
    return part(records, (*columns, "peak memory", "with mapped pages"), shown)


def cost() -> str:
    """Return the table of estimates against measured runs of profiles."""
    records, rows = rows_of("cost", "profile", "stage")
    shown = []
    for (profile, stage), row in rows.items():
        cells = [profile, stage, seconds(row), f"{row['estimated_seconds']:.1f} s"]
        cells.append(f"{row['estimated_seconds'] / middle(row, 'seconds'):.2f}")
        if "peak_mb" in row:
            memory = (row["peak_mb"], row["estimated_mb"])
            cells += [*(f"{amount / 1000:.2f} GB" for amount in memory), f"{memory[1] / memory[0]:.2f}"]
        shown.append([*cells, *[""] * (8 - len(cells))])
    columns = ("profile", "stage", "time", "estimated", "ratio (aim 0.67 to 1.5)")
    return part(records, (*columns, "peak memory", "estimated", "ratio (aim 0.77 to 1.3)"), shown)


def scale() -> str:
    """Return the table of the stages at millions of sentences."""
    records, rows = rows_of("scale", "stage", "sentences")
    smallest = {stage: min(count for name, count in rows if name == stage) for stage, _ in rows}
    shown = []
    for (stage, count), row in sorted(rows.items(), key=lambda item: (STAGES.index(item[0][0]), item[0][1])):
        first = rows[stage, smallest[stage]]
        cost = middle(row, "cpu_seconds") / count * 1e6
        growth_ = f"{cost / (middle(first, 'cpu_seconds') / smallest[stage] * 1e6):.2f} ×"
        alike = row.get("peak_without_files") == first.get("peak_without_files")
        memory = f"{row['peak_mb'] / first['peak_mb']:.2f} ×" if alike else "with pages of mapped files: not comparable"
        shown.append(
            (
                stage,
                f"{count:,}",
                seconds(row),
                f"{middle(row, 'cpu_seconds'):,.0f} s",
                f"{cost:.1f} s",
                growth_,
                f"{row['peak_mb']:,.0f} MB",
                memory,
            )
        )
    columns = ("stage", "sentences", "time", "processor time", "for a million", "of the smallest's (linear: 1)")
    return part(records, (*columns, "peak memory", "of the smallest's (aim: at most 1.5)"), shown)


STAGES = ("sample", "cluster", "materialize")


def meta_step() -> str:
    """Return the table of meta steps against the released structure."""
    records, rows = rows_of("meta_step", "shape", "kind", "tasks", "examples", "threads", "step")
    shown = list(_meta_steps(rows))
    columns = (
        "model, kind",
        "tasks × examples, threads",
        "step",
        "time",
        "× as fast as the reference",
        "of its memory",
    )
    return part(records, columns, shown)


def _meta_steps(rows: dict[tuple[Any, ...], Row]) -> Iterator[tuple[str, ...]]:
    """Yield the line of each step, with its speed and its memory relative to the reference."""
    for key, row in rows.items():
        shape, kind, tasks, examples, threads, step = key
        if step == "products":
            continue
        reference = rows[*key[:-1], "reference"]
        faster = middle(reference, "seconds") / middle(row, "seconds")
        memory = f"{row['peak_mb'] / reference['peak_mb']:.3f}" if "peak_mb" in row else ""
        size = f"{tasks} × {examples}, {threads}"
        yield f"{shape}, {kind}", size, step, f"{middle(row, 'seconds'):.2f} s", f"{faster:.2f}", memory


def minhash() -> str:
    """Return the table of MinHash implementations."""
    records, rows = rows_of("minhash", "way")
    shown = [
        (
            way,
            f"{row['text_mb'] / middle(row, 'cpu_seconds'):.1f} MB/s",
            f"{row['recall']:.3f}",
            f"{row['precision']:.3f}",
        )
        for (way,), row in rows.items()
    ]
    return part(records, ("", "text per second of processor time", "recall", "precision"), shown)


def orchestration() -> str:
    """Return the table of what Prefect costs, and of the quick commands."""
    records, rows = rows_of("orchestration", "way")
    shown = []
    for (way,), row in rows.items():
        loop = rows.get(("plain loop",))
        aim = f"aim {row['aim']:g} s" if "aim" in row else ""
        against = f"{middle(row, 'seconds') / middle(loop, 'seconds'):.2f} ×" if "shards" in row and loop else aim
        shown.append((way, f"{middle(row, 'seconds'):.2f} s", against))
    return part(records, ("", "time", "against the plain loop (aim of the fan-out: 1.1)"), shown)


def predict() -> str:
    """Return the table of prediction against PEFT."""
    records, rows = rows_of("predict", "texts", "labels", "threads", "way")
    shown = []
    for (texts, labels, threads, way), row in rows.items():
        plain = rows[texts, labels, threads, "PEFT, a pass for each label"]
        clock, cpu = (middle(plain, name) / middle(row, name) for name in ("seconds", "cpu_seconds"))
        speed = f"{row['examples'] / middle(row, 'seconds'):.1f}"
        shown.append((f"{texts}, {labels}", threads, way, speed, f"{clock:.2f} ×", f"{cpu:.2f} ×"))
    return part(records, ("", "threads", "way", "examples/s", "by the clock", "by processor time"), shown)


def prefixes() -> str:
    """Return the table of tuning prefixes together, apart and by PEFT."""
    records, rows = rows_of("prefixes", "tokens", "way")
    shown = []
    for (tokens, way), row in rows.items():
        peft = middle(rows[tokens, "PEFT"], "cpu_seconds")
        spent, apart = middle(row, "cpu_seconds"), row.get("largest_difference")
        differs = f"{apart:.0e}" if apart is not None else ""
        shown.append((way, row["runs"], tokens, f"{spent:.2f} s", f"{peft / spent:.2f} ×", differs))
    columns = ("way", "runs", "prefix positions", "processor time of a step", "as fast as PEFT", "losses differ by")
    return part(records, columns, shown)


def fine_tuning() -> str:
    """Return the table of fine-tuning against a plain loop."""
    records, rows = rows_of("fine_tuning", "shape", "batch", "threads", "precision", "way")
    shown = []
    for (*size, way), row in rows.items():
        plain = rows[*size, "plain loop"]
        clock, cpu = (f"{middle(plain, name) / middle(row, name):.2f} ×" for name in ("seconds", "cpu_seconds"))
        cells = (f"{middle(row, 'seconds'):.2f} s", clock, cpu, f"{row['largest_difference']:.0e}")
        shown.append((*size, way, *cells))
    size_columns = ("model", "examples", "threads", "precision", "way", "time of a step")
    return part(records, (*size_columns, "by the clock (aim 1)", "by processor time", "losses differ by"), shown)


def profile() -> str:
    """Return the table of the largest parts of each stage."""
    records, rows = rows_of("profile", "profile", "stage")
    shown = []
    for (name, stage), row in rows.items():
        parts = "; ".join(f"{100 * share:.0f} % `{part}`" for part, share in row["parts"][:5])
        shown.append((name, stage, f"{middle(row, 'cpu_seconds'):.1f} s", parts))
    return part(records, ("profile", "stage", "processor time", "largest parts"), shown)


def reader() -> str:
    """Return the table of the task reader."""
    records, rows = rows_of("reader", "way")
    shown = [
        (
            way,
            f"{row['tasks'] / middle(row, 'seconds'):.1f}",
            f"{1000 * middle(row, 'cpu_seconds') / row['tasks']:.0f} ms",
        )
        for (way,), row in rows.items()
    ]
    return part(records, ("", "tasks/s", "processor time per task"), shown)


def sample() -> str:
    """Return the table of the sample stage."""
    records, rows = rows_of("sample", "way")
    shown = []
    for (way,), row in rows.items():
        speed = f"{row['text_mb'] / middle(row, 'cpu_seconds'):.1f} MB/s"
        peak = f"{middle(row, 'peak_mb'):.0f} MB" if "peak_mb" in row else ""
        shown.append((way, f"{row['text_mb']:,.0f} MB", speed, peak))
    return part(records, ("", "text", "per second of processor time", "peak memory"), shown)


def soak() -> str:
    """Return the tables of kills, faults and fuzz cases, and of the kills by stage."""
    records = read("soak")[-1:]
    rows = records[0]["rows"] if records else []
    shown = [(row["part"], row["number"], *row["wrong"].values()) for row in rows]
    counts = part(records, ("", "number", *(rows[0]["wrong"] if rows else ())), shown)
    kills = [(*group.split(" | "), number) for row in rows for group, number in row["groups"].items() if " | " in group]
    kinds, stages = (list(dict.fromkeys(kill[place] for kill in kills)) for place in (0, 1))
    numbers = {(kind, stage): number for kind, stage, number in kills}
    by_stage = [(stage, *(numbers.get((kind, stage), 0) for kind in kinds)) for stage in stages]
    return f"{counts}\n\n{table(('killed in', *kinds), by_stage)}" if kills else counts


def systems() -> str:
    """Return the table of the paper's systems on one backbone."""
    records, rows = _systems_in("auto")
    names = [name for name in METHODS if any(system == name for _, system in rows)]
    sets = list(dict.fromkeys(name for name, _ in rows))
    shown = []
    for system in names:
        own = {name: rows[name, system] for name in sets if (name, system) in rows}
        scores = [_score(own[name]) if name in own else "" for name in sets]
        tuned = [row for row in own.values() if row["seconds"]]
        spent = " / ".join(f"{middle(row, 'seconds'):.0f}" for row in tuned)
        peak = max((row["peak_mb"] for row in tuned if row["peak_mb"]), default=None)
        parameters = max(row["parameters"] for row in own.values())
        cells = (f"{parameters:,}" if parameters else "", spent, f"{peak / 1000:.1f} GB" if peak else "")
        shown.append((METHODS[system].title, *scores, *cells))
    return part(records, ("system", *sets, "tuned parameters", "seconds of a seed, by set", "peak memory"), shown)


def _systems_in(precision: str) -> tuple[list[Row], dict[tuple[str, str], Row]]:
    """Return the records of the systems in a precision, and their rows by set and system, the newest of each."""
    records = [one for one in read("systems") if one["arguments"].get("precision", "auto") == precision]
    return records, {(row["set"], row["system"]): row for record in records for row in record["rows"]}


def precisions() -> str:
    """Return the table of scores in both precisions, for the systems that were run in both."""
    (low_records, low), (high_records, high) = (_systems_in(precision) for precision in ("auto", "float32"))
    shown = [(name, METHODS[system].title, _score(low[name, system]), _score(high[name, system]))
             for name, system in high if (name, system) in low]  # fmt: skip
    return part([*low_records, *high_records], ("set", "system", "bfloat16 (auto)", "float32"), shown)


def _score(row: Row) -> str:
    scores = [100 * score for score in row["score"]]
    return f"{statistics.mean(scores):.1f}" + (f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else "")


def tuning() -> str:
    """Return the table of tuning against PEFT."""
    records, rows = rows_of("tuning", "shape", "threads", "way")
    shown = []
    for (shape, threads, way), row in rows.items():
        peft = rows[shape, threads, "PEFT"]
        clock, cpu = (middle(peft, name) / middle(row, name) for name in ("seconds", "cpu_seconds"))
        shown.append(
            (shape, threads, way, seconds(row), f"{clock:.2f} ×", f"{cpu:.2f} ×", f"{row['largest_difference']:.0e}")
        )
    columns = ("model", "threads", "way", "time", "by the clock (aim 1.8)", "by processor time", "losses differ by")
    return part(records, columns, shown)


def headline() -> str:
    """Return the table of the headline ratios: those of `make bench-quick`."""
    lines, used = [], []
    for benchmark, name, select in HEADLINES:
        for record in read(benchmark):
            if record["arguments"] == {"quick": True}:
                used += [record] if record not in used else []
                lines += [(name, ratio) for ratio in select(record["rows"])]
    for record, line in bfloat16_headlines():
        used += [record] if record not in used else []
        lines.append(line)
    return part(used, ("what", "ratio"), lines)


def _step_ratios(rows: Sequence[Row]) -> Iterator[str]:
    times = {row["step"]: middle(row, "seconds") for row in rows if "seconds" in row}
    memory = {row["step"]: row["peak_mb"] for row in rows if "peak_mb" in row}
    faster, share = times["reference"] / times["first order"], memory["first order"] / memory["reference"]
    yield f"{faster:.1f} × as fast, {share:.3f} of the memory"


def _second_order(rows: Sequence[Row]) -> Iterator[str]:
    times = {row["step"]: middle(row, "seconds") for row in rows if "seconds" in row}
    yield f"{times['second order, kept graph'] / times['first order']:.2f} × the time of the first order"


def _against(first: str, way: str) -> Callable[[Sequence[Row]], Iterator[str]]:
    def ratio(rows: Sequence[Row]) -> Iterator[str]:
        times = {row["way"]: middle(row, "cpu_seconds") for row in rows}
        yield f"{times[first] / times[way]:.2f} × as fast by processor time"

    return ratio


HEADLINES = (
    ("meta_step", "meta step, first order, against the released structure", _step_ratios),
    ("meta_step", "meta step, second order", _second_order),
    ("tuning", "15 tuning runs together, against PEFT", _against("PEFT", "ours")),
    ("predict", "prediction, against PEFT with a pass for each label", _against("PEFT, a pass for each label", "ours")),
    ("predict", "prediction, against PEFT at its best", _against("PEFT, sorted, passes shared", "ours")),
    (
        "cluster",
        "k-means, against scikit-learn's MiniBatchKMeans",
        _against("scikit-learn MiniBatchKMeans", "the stage, one format"),
    ),
)
_MADE = (
    agreement,
    bfloat16,
    cluster,
    cost,
    embed,
    fine_tuning,
    growth,
    headline,
    materialize,
    meta_step,
    minhash,
    orchestration,
    predict,
    precisions,
    prefixes,
    profile,
    reader,
)
TABLES: dict[str, Callable[[], str]] = {made.__name__: made for made in (*_MADE, sample, scale, soak, systems, tuning)}


if __name__ == "__main__":
    main()
