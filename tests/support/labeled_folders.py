"""Datasets as folders for tests: files of every kind, in the layout of the sources."""

from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from storage.sources.source import AcquiredSource, SourceFile


def write_rows(path: Path, rows):
    """Write rows to a Parquet or JSON lines file, according to its suffix, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
    return path


def write_named_parquet(path: Path, rows, names, column="label"):
    """Write Parquet as the `datasets` library does: the schema has the names of the numbers in the label column."""
    features = {column: {"names": names, "_type": "ClassLabel"}, "text": {"dtype": "string", "_type": "Value"}}
    table = pa.Table.from_pylist(rows)
    described = table.replace_schema_metadata({"huggingface": orjson.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(described, path)


def acquired(name, folder: Path):
    """Return a folder, with everything below it, as an acquired source."""
    files = tuple(
        SourceFile(path.relative_to(folder).as_posix(), str(path), path.stat().st_size, "")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )
    return AcquiredSource(name, f"path:{folder}", "", str(folder), files)


def texts_and_labels(count, labels=2, word="text"):
    """Return rows with distinct texts, taking the labels in turn."""
    return [{"text": f"{word} {number}", "label": number % labels} for number in range(count)]


def shown(dataset, examples):
    """(texts, name of the label) of examples."""
    return [(*example.texts, dataset.form.labels[example.label]) for example in examples]


def shown_train(dataset):
    return shown(dataset, dataset.train)
