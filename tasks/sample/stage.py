"""Stage `sample`: read the corpus, filter and deduplicate documents, draw within the budget, split into sentences.

The stage reads the texts twice, which is cheaper than keeping them. `index` reads every unit (a file or a part of one),
applies the filters to each document and hashes its shingles. The selection is made from the indexes alone, for the
whole corpus at once. `write` reads again, and writes the sentences of the documents that stay and the other documents
with their reasons.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import orjson
import pyarrow as pa

from storage import paths
from storage.atomic import write_bytes
from storage.counts import counted
from storage.errors import InputError
from storage.hashing import file_hash
from storage.parquet import write_shard
from storage.records.forgotten import Forgotten, read_forgotten
from storage.records.selection import IndexFile, Selection
from storage.sources.source import read_manifest
from storage.tables.corpus_tables import DOCUMENTS
from tasks.params.schema import SampleParams
from tasks.sample.corpus_settings import limits
from tasks.sample.document_index import INDEX, band_names, index, index_params
from tasks.sample.reading_units import Unit, cut_corpus, ignored_in_words, shard_name
from tasks.sample.sentence_writer import WITHOUT_TEXT, write, write_params
from tasks.stage.contract import Record, Shard, ShardResult, Stage

_MEGABYTE = 1_000_000


def run(stage: Stage) -> Record:
    """Make the documents, sentences and excluded tables of the corpus."""
    params = stage.params.sample
    manifest = read_manifest(stage.input(paths.CORPUS))
    for line in ignored_in_words(manifest):
        stage.reporter.say(f"sample: {line}")
    units = cut_corpus(manifest, stage.root, int(params.shard_mb * _MEGABYTE))
    indexed = stage.map("index", index, [_index_shard(unit, params) for unit in units], "kB")
    work = stage.root / paths.SCRATCH / f"sample-{stage.fingerprint[:16]}"
    forgotten = read_forgotten(stage.input(paths.FORGOTTEN))
    with Selection(work) as selection:
        excluded = _select(selection, units, indexed, params, forgotten)
        verdicts = [_write_verdicts(selection, number, work) for number in range(len(units))]
        shards = [_write_shard(unit, verdict, params) for unit, verdict in zip(units, verdicts, strict=True)]
        written = stage.map("write", write, shards, "kB")
        held_out = selection.put_aside(params.validation_share, stage.params.seed)
        sources = _adopt(stage, selection, units, written)
    summary = _summary(sources, excluded, held_out)
    write_bytes(stage.output(paths.SAMPLE_METRICS), orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n")
    _write_plots(stage, excluded, written)
    return {"rows": summary["sentences"]} | summary


def _weight(unit: Unit) -> int:
    return max(round(unit.size / 1000), 1)


def _index_shard(unit: Unit, params: SampleParams) -> Shard:
    name = f"{unit.source}/{unit.name}#{unit.number}"
    return Shard(name, unit.payload() | {"params": index_params(params, unit.source)}, _weight(unit), unit.hint())


def _select(
    selection: Selection,
    units: Sequence[Unit],
    indexed: Sequence[ShardResult],
    params: SampleParams,
    forgotten: Mapping[str, Forgotten],
) -> dict[str, int]:
    """Make the selection; return the number of documents left out, by reason."""
    listed = selection.load(_index_files(units, indexed))
    if not listed:
        files = sum(len(unit.parts) for unit in units if unit.number == 0)
        raise InputError(
            f"{paths.CORPUS}: no document in {counted(files, 'file')}: add documents, or check "
            "acquire.corpus in params.yaml"
        )
    selection.forget({document: str(entry) for document, entry in forgotten.items()})
    drawn = selection.draw(limits(params))
    _check_budgets(selection, params, {unit.source for unit in units}, drawn)
    selection.link_near_duplicates(band_names(params.near_duplicates))
    excluded = selection.decide()
    if not drawn:
        reasons = ", ".join(f"{reason} {count}" for reason, count in list(excluded.items())[:3])
        raise InputError(
            f"{paths.CORPUS}: every one of {listed} documents is filtered out ({reasons}): relax sample.* filters"
        )
    return excluded


def _check_budgets(selection: Selection, params: SampleParams, sources: Collection[str], drawn: int) -> None:
    """Raise InputError if no text fits into the budget, or none of a corpus into its own."""
    needed = "no text fits (the smallest has {} bytes): raise it"
    for name, corpus in params.corpora.items():
        if name in sources and selection.is_shut_out(name):
            key = f"sample.corpora.{name}.budget_mb: {corpus.budget_mb:g}"
            raise InputError(f"params.yaml: {key}: {needed.format(selection.smallest_text(name))}")
    if not drawn and (smallest := selection.smallest_text()):
        raise InputError(f"params.yaml: sample.budget_mb: {params.budget_mb:g}: {needed.format(smallest)}")


def _index_files(units: Sequence[Unit], indexed: Sequence[ShardResult]) -> list[IndexFile]:
    """Return the indexes, each with the number of rows before its unit in the file."""
    files = []
    before = 0
    for unit, result in zip(units, indexed, strict=True):
        before = before if unit.number else 0
        files.append(IndexFile(result.folder / INDEX, unit.source, before))
        before += result.record["rows"]
    return files


def _write_verdicts(selection: Selection, number: int, work: Path) -> tuple[Path, bool]:
    """Write one unit's verdicts for its writer; return their path, and True if any of them needs the text."""
    verdicts = selection.verdicts(number)
    path = work / f"verdicts-{number}.parquet"
    reasons: set[str | None] = set()

    def noted() -> Iterator[pa.RecordBatch]:
        for batch in verdicts:
            reasons.update(batch.column("reason").unique().to_pylist())
            yield batch

    write_shard(path, verdicts.schema, noted(), {})
    return path, not reasons <= WITHOUT_TEXT


def _write_shard(unit: Unit, verdicts: tuple[Path, bool], params: SampleParams) -> Shard:
    path, texts = verdicts
    payload = unit.payload() | {
        "source": unit.source,
        "params": write_params(params, unit.source),
        "verdicts": file_hash(path),
    }
    hint = unit.hint() | {"verdicts_path": str(path), "texts": texts}
    return Shard(f"{unit.source}/{unit.name}#{unit.number}", payload, _weight(unit), hint)


def _adopt(
    stage: Stage, selection: Selection, units: Sequence[Unit], written: Sequence[ShardResult]
) -> dict[str, Counter[str]]:
    """Put the shards in their places under their names; return the figures of each source."""
    provenance = {"stage": "sample", "seed": stage.params.seed, "params": stage.params.sample.model_dump()}
    totals: dict[str, Counter[str]] = {}
    pairs = zip(units, written, strict=True)
    for (source, file), results in groupby(pairs, key=lambda pair: (pair[0].source, pair[0].name)):
        shards = [(result, shard) for _, result in results for shard in result.record["shards"]]
        for number, (result, shard) in enumerate(shards):
            name = shard_name(source, file, number)
            for kind, output in (("sentences", paths.SENTENCES), ("excluded", paths.EXCLUDED)):
                stage.adopt(result, f"{kind}-{shard['number']}.parquet", output, name)
            table = selection.with_split(result.folder / f"documents-{shard['number']}.parquet")
            table = table.append_column("shard", pa.array([name] * table.num_rows, pa.string()))
            origin = {"source": source, "parts": result.shard.payload["parts"]}
            write_shard(
                stage.output(paths.DOCUMENTS) / name, DOCUMENTS, [table.select(DOCUMENTS.names)], provenance | origin
            )
            figures = {key: shard[key] for key in ("documents", "bytes", "words", "sentences")}
            totals.setdefault(source, Counter()).update(figures)
    return totals


def _summary(sources: Mapping[str, Counter[str]], excluded: Mapping[str, int], held_out: int) -> Record:
    total: Counter[str] = sum(sources.values(), Counter())
    return {
        "documents": total["documents"],
        "validation_documents": held_out,
        "sentences": total["sentences"],
        "words": total["words"],
        "bytes": total["bytes"],
        "excluded": dict(excluded),
        "sources": {name: dict(figures) for name, figures in sorted(sources.items())},
    }


def _write_plots(stage: Stage, excluded: Mapping[str, int], written: Sequence[ShardResult]) -> None:
    lengths: Counter[int] = Counter()
    for result in written:
        for shard in result.record["shards"]:
            lengths.update(dict(shard["lengths"]))
    reasons = [f"{count},{reason}" for reason, count in excluded.items()]
    write_bytes(stage.output(paths.EXCLUDED_PLOT), "\n".join(["documents,reason", *reasons, ""]).encode())
    words = [f"{words},{count}" for words, count in sorted(lengths.items())]
    write_bytes(stage.output(paths.SENTENCE_WORDS_PLOT), "\n".join(["words,sentences", *words, ""]).encode())
