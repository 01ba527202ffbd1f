"""The tables of bfloat16 against float32: speed, from four benchmarks, and agreement of gradients and predictions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from records import Row, read
from tables import middle, part, rows_of

LOW, WIDE = "bfloat16", "float32"
Line = tuple[str, Row, Row, float]
"""What is compared, the rows in float32 and in bfloat16, and the aim."""


def _steps(rows: Sequence[Row]) -> Iterator[Line]:
    by_step = {(row["step"], row["precision"]): row for row in rows}
    for order, aim in (("first order", 1.6), ("second order", 1.7)):
        yield f"meta step of the quickstart's shape, {order}", by_step[order, WIDE], by_step[order, LOW], aim


def _against_reference(rows: Sequence[Row]) -> Iterator[Line]:
    for own in _by(
        [row for row in rows if "seconds" in row], ("shape", "kind", "tasks", "examples", "threads"), "step"
    ):
        low = own.get("first order, bfloat16")
        if low:
            kind, aim = ("pairs", 10) if low["kind"] == "sp" else ("multi choice", 6)
            name = f"meta step on {kind}, {low['shape']}, against the released structure in float32"
            yield name, own["reference"], low, aim


def _tuning(rows: Sequence[Row]) -> Iterator[Line]:
    for own in _by(rows, ("shape", "threads"), "way"):
        if "ours, bfloat16" in own:
            low = own["ours, bfloat16"]
            yield f"{low['runs']} tuning runs together, {low['shape']}", own["ours"], low, 1.6
            yield f"{low['runs']} tuning runs, {low['shape']}, against PEFT in float32", own["PEFT"], low, 3


def _prediction(rows: Sequence[Row]) -> Iterator[Line]:
    for own in _by(rows, ("texts", "labels", "threads"), "way"):
        if "ours, bfloat16" in own:
            low = own["ours, bfloat16"]
            yield f"prediction, {low['texts']}, {low['labels']}", own["ours"], low, 1.6


def _encoders(rows: Sequence[Row]) -> Iterator[Line]:
    for own in _by([row for row in rows if "precision" in row], ("sentences",), "way"):
        if "embedder, bfloat16" in own:
            yield "embedder", own["embedder, float32"], own["embedder, bfloat16"], 1.5
        for precision in (LOW, WIDE):
            if f"backbone, {precision}" in own:
                name = f"the backbone's vectors in {precision}, against transformers' pass in float32"
                yield name, own["backbone, transformers"], own[f"backbone, {precision}"], 3


def _by(rows: Sequence[Row], keys: Sequence[str], name: str) -> list[dict[str, Row]]:
    """Return the rows in groups of equal values of some keys, each by the value of `name`."""
    groups: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), {})[row[name]] = row
    return list(groups.values())


COMPARED: dict[str, Callable[[Sequence[Row]], Iterator[Line]]] = {
    "step_precision": _steps,
    "meta_step": _against_reference,
    "tuning": _tuning,
    "predict": _prediction,
    "embed": _encoders,
}


def _newest() -> dict[str, tuple[Row, Line]]:
    """Return the newest record and line of each comparison."""
    lines: dict[str, tuple[Row, Line]] = {}
    for benchmark, compared in COMPARED.items():
        for record in read(benchmark):
            lines |= {line[0]: (record, line) for line in compared(record["rows"])}
    return lines


def bfloat16() -> str:
    """Return the table of speeds in bfloat16 against float32."""
    records, shown = [], []
    for record, (what, wide, low, aim) in _newest().values():
        records += [record] if record not in records else []
        clock, cpu = _ratio(wide, low, "seconds"), _ratio(wide, low, "cpu_seconds")
        agree = f"{low['cosine']:.5f}" if "cosine" in low else ""
        shown.append((what, clock, cpu, f"{aim:g}", agree))
    return part(records, ("what", "by the clock", "by processor time", "aim", "lowest cosine"), shown)


def bfloat16_headlines() -> Iterator[tuple[Row, tuple[str, str]]]:
    """Yield the records of `make bench-quick` in bfloat16, and a line of the headline table for each comparison."""
    for benchmark, compared in COMPARED.items():
        for record in read(benchmark):
            if record["arguments"] == {"quick": True}:
                for what, wide, low, _ in compared(record["rows"]):
                    told = what if "float32" in what else f"{what}, against float32"
                    yield record, (f"bfloat16: {told}", f"{_ratio(wide, low, 'cpu_seconds')} by processor time")


def _ratio(wide: Row, low: Row, name: str) -> str:
    return f"{middle(wide, name) / middle(low, name):.2f} ×" if name in wide and name in low else ""


def agreement() -> str:
    """Return the tables of the gradients and of the predictions in both precisions."""
    records, gradients = rows_of("precision", "form", "kind", "order", leave_out="set")
    shown = []
    for form, kind in dict.fromkeys(key[:2] for key in gradients):
        rows = [gradients[form, kind, order] for order in (1, 2)]
        shown.append((form, kind, *(f"{min(row[name]):.5f}" for row in rows for name in ("theta", "phi"))))
    columns = ("template", "kind", "∇θ, order 1", "∇φ, order 1", "∇θ, order 2", "∇φ, order 2")
    _, predictions = rows_of("precision", "set", "prompt", leave_out="form")
    lines = [_predicted(*key, row) for key, row in predictions.items()]
    asked = sum(row["rows"] for row in predictions.values())
    if asked:
        differing = [margin for row in predictions.values() for margin in row["margins"]]
        share = f"{100 * len(differing) / asked:.2f} %"
        lines.append(("all", "", f"{asked:,}", len(differing), share, _margin(differing), ""))
    heads = (
        "set",
        "prompt",
        "rows",
        "differ",
        "share (aim: at most 1 %)",
        "largest margin there",
        "median margin of all",
    )
    parts = [part(records, columns, shown)] + ([part([], heads, lines).partition("\n\n")[2]] if lines else [])
    return "\n\n".join(parts)


def _predicted(name: str, prompt: str, row: Row) -> tuple[object, ...]:
    differ = len(row["margins"])
    share = f"{100 * differ / row['rows']:.1f} %"
    return (name, prompt, row["rows"], differ, share, _margin(row["margins"]), f"{row['median_margin']:.2f}")


def _margin(margins: Sequence[float]) -> str:
    return f"{max(margins):.3f}" if margins else ""
