"""Datasets as meta-training tasks: examples are grouped by k-means over their vectors, tasks drawn within a group.

MetaPT does so with Yelp-5 (ALGORITHM §7). A part of the examples of every group is put aside for validation tasks. The
rows go to the same table as the anchor tasks, with the format `labeled`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.device import device
from model.sentence_encoder import encode, load_encoder
from model.t5.precision import Precision
from storage import paths
from storage.counts import counted
from storage.errors import InputError
from storage.parquet import write_shard
from storage.pools.labeled_pool import LabeledPool, LabeledSet, write_groups, write_set
from storage.pools.row_arrays import Array, Integers
from storage.sources.source import AcquiredSource, read_manifest
from storage.tables.task_table import TASKS
from storage.task_formats import LABELED, SPLITS
from storage.vectors.sentence_vectors import bad_rows, model_hash, spoiled
from tasks.cluster.kmeans import one_core
from tasks.labeled.dataset import columns_to_read
from tasks.materialize.anchor_tasks import balanced, cluster_of, generator
from tasks.materialize.plan import Sizes, sizes_of, sizes_record
from tasks.materialize.task_writer import SHARD, Content, lists, task_table
from tasks.stage.contract import Record, Shard, ShardResult, Stage
from tasks.stage.precision import stage_precision

_VECTORS = "vectors.npy"
_PART_EXAMPLES = 4_096
_POINTS_PER_GROUP = 256
_ITERATIONS = 20
_GROUP_TASKS = 64
_SHARD_TASKS = 500
_SHOWN_FILES = 5


def labeled_tasks(
    stage: Stage, counts: Mapping[tuple[str, str], int], folder: Path
) -> tuple[Record, list[ShardResult]]:
    """Group the datasets and draw tasks from them; return the figures of each set, and the shards."""
    wanted = {split: counts[LABELED, split] for split in SPLITS if (LABELED, split) in counts}
    if not wanted:
        return {}, []
    names = stage.params.materialize.labeled.datasets
    acquired = {source.name: source for source in read_manifest(stage.input(paths.DATASETS))}
    sets = [
        write_set(folder / name, acquired[name], stage.root, columns_to_read(acquired[name], stage.root))
        for name in names
    ]
    sizes = sizes_of(stage.params.materialize)
    precision = stage_precision(stage, stage.params.materialize.labeled.precision)
    figures: Record = {}
    for labeled_set in sets:
        without = f", without {counted(labeled_set.tested, 'row')} that tune tests on" if labeled_set.tested else ""
        examples = f"{counted(labeled_set.rows, 'example')} of {_listed(labeled_set.files)}"
        stage.reporter.say(f"materialize: {labeled_set.name}: {examples}{without}")
        vectors = _vectors(stage, labeled_set, folder / labeled_set.name, precision)
        groups = grouped(vectors, stage.params.materialize.labeled.groups, stage.params.seed, labeled_set.name)
        write_groups(
            folder / labeled_set.name, labeled_set, _cells(stage, labeled_set, folder / labeled_set.name, groups)
        )
        kind = f"{LABELED}-{labeled_set.name}"
        figures[kind] = {split: _check(folder / labeled_set.name, labeled_set, split, sizes) for split in wanted}
        figures[kind] |= {"files": list(labeled_set.files), "tested": labeled_set.tested}
        figures[kind] |= {"precision": precision, "duplicates": labeled_set.duplicates}
        figures[kind] |= {"conflicts": labeled_set.conflicts}
    labeled = stage.params.materialize.labeled.model_dump(exclude={"labeled_parts", "unlabeled_parts", "precision"})
    payload: Record = {
        "sets": [labeled_set.content for labeled_set in sets],
        "labeled": labeled,
        "model": model_hash(_model(stage)),
        "precision": precision,
    }
    payload |= {"seed": stage.params.seed, "sizes": sizes_record(sizes)}
    return figures, stage.map("labeled", write_labeled, _shards(wanted, payload, folder), "tasks")


def _listed(files: Sequence[str]) -> str:
    more = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
    return ", ".join(files[:_SHOWN_FILES]) + more


def _shards(wanted: Mapping[str, int], payload: Record, folder: Path) -> Iterator[Shard]:
    for split, count in wanted.items():
        for number, first in enumerate(range(0, count, _SHARD_TASKS)):
            tasks = min(_SHARD_TASKS, count - first)
            own = {"split": split, "first": first, "tasks": tasks}
            yield Shard(f"{LABELED}-{split}-{number:05d}", payload | own, tasks, {"folder": str(folder)})


def _model(stage: Stage) -> AcquiredSource:
    """Return the model whose vectors are grouped."""
    return read_manifest(stage.input(paths.source(stage.params.materialize.labeled.model)))[0]


def _vectors(stage: Stage, labeled: LabeledSet, folder: Path, precision: Precision) -> list[Array]:
    """Return one vector for each example, in parts [n, d] that worker processes write and this process maps."""
    model = stage.params.materialize.labeled.model
    source = _model(stage)
    payload = {"set": labeled.content, "fields": labeled.fields, "model": model, "model_hash": model_hash(source)}
    payload |= {"name": labeled.name, "precision": precision}
    hint = {"folder": str(folder), "model_path": str(stage.root / source.folder)}
    shards = []
    for first in range(0, labeled.rows, _PART_EXAMPLES):
        last = min(first + _PART_EXAMPLES, labeled.rows)
        shards.append(Shard(f"{labeled.name}#{first}", payload | {"first": first, "last": last}, last - first, hint))
    results = stage.map(f"vectors-{labeled.name}", write_vectors, shards, "examples")
    return [np.load(result.folder / _VECTORS, mmap_mode="r") for result in results]


def write_vectors(payload: Record, folder: Path) -> Record:
    """Embed one part of a set, with the fields of an example as one text."""
    examples = np.arange(payload["first"], payload["last"])
    texts = LabeledPool(Path(payload["folder"])).texts(examples, payload["fields"]).to_pylist()
    joined = [" ".join(texts[start : start + payload["fields"]]) for start in range(0, len(texts), payload["fields"])]
    place = device(payload["first"] // _PART_EXAMPLES)
    encoder = load_encoder(
        payload["model"], Path(payload["model_path"]), payload["model_hash"], place, payload["precision"]
    )
    vectors = encode(encoder, joined)
    if (bad := bad_rows(vectors)).size:
        what = f"the {payload['model']} gives {spoiled(vectors[bad[0]])} for {joined[bad[0]][:40]!r}"
        raise InputError(f"acquire.datasets.{payload['name']}: {what}: the model is damaged, or not made for this text")
    np.save(folder / _VECTORS, vectors)
    return {"rows": len(vectors)}


def grouped(parts: Sequence[Array], groups: int, seed: int, name: str) -> Integers:
    """Return the group of each vector, whose parts are [n, d], by k-means.

    k-means is trained on a bounded sample, and vectors are assigned part by part.
    """
    ends = np.cumsum([len(part) for part in parts])
    total = int(ends[-1])
    if total < groups:
        text = f"is above the {total} different examples of {name}"
        raise InputError(f"params.yaml: materialize.labeled.groups: {groups} {text}: lower it, or give more examples")
    points = min(total, groups * _POINTS_PER_GROUP)
    drawn = np.sort(generator(seed, LABELED, name, "sample").choice(total, points, replace=False))
    pieces = np.split(drawn, np.searchsorted(drawn, ends[:-1]))
    sample = np.concatenate(
        [part[piece - end + len(part)] for part, piece, end in zip(parts, pieces, ends, strict=True)]
    )
    with one_core() as faiss:
        settings = {"niter": _ITERATIONS, "seed": seed % 2**31, "min_points_per_centroid": 1}
        means = faiss.Kmeans(sample.shape[1], groups, max_points_per_centroid=points, **settings)
        means.train(sample)
        nearest = [means.index.search(np.ascontiguousarray(part), 1)[1][:, 0] for part in parts]
    groups_of_rows: Integers = np.concatenate(nearest).astype(np.int64)
    return groups_of_rows


def _cells(stage: Stage, labeled: LabeledSet, folder: Path, groups: Integers) -> dict[str, Integers]:
    """Return the examples by split, group and label; the same share of each group and label is for validation."""
    share = stage.params.materialize.labeled.validation_share
    labels = LabeledPool(folder).labels(labeled.fields)
    cells = {}
    for group in range(stage.params.materialize.labeled.groups):
        for label in range(labeled.labels):
            members = np.flatnonzero((groups == group) & (labels == label))
            rng = generator(stage.params.seed, LABELED, labeled.name, "split", group, label)
            validation = rng.permutation(members)[: round(share * len(members))]
            cells[f"validation/{group}/{label}"] = np.sort(validation)
            cells[f"train/{group}/{label}"] = np.setdiff1d(members, validation)
    return cells


def usable_groups(cells: Mapping[str, Array], split: str, labels: int, sizes: Sizes) -> Integers:
    """Return the groups with enough examples of every label."""
    groups = sorted({int(key.split("/")[1]) for key in cells})
    enough = sizes.largest(labels)
    fit = [g for g in groups if all(len(cells[f"{split}/{g}/{label}"]) >= enough for label in range(labels))]
    return np.array(fit, np.int64)


def _check(folder: Path, labeled: LabeledSet, split: str, sizes: Sizes) -> Record:
    """Return the figures of a split of a set; raise InputError if it can give no task."""
    cells = LabeledPool(folder).cells()
    usable = usable_groups(cells, split, labeled.labels, sizes).tolist()
    counted = {key: len(examples) for key, examples in cells.items() if key.startswith(f"{split}/")}
    groups = {int(key.split("/")[1]) for key in counted}
    if not usable:
        least = max(min(counted[f"{split}/{group}/{label}"] for label in range(labeled.labels)) for group in groups)
        share = ", raise materialize.labeled.validation_share" if split == "validation" else ""
        raise InputError(
            f"params.yaml: materialize.labeled.groups: {len(groups)}: no group of {labeled.name} has "
            f"{sizes.largest(labeled.labels)} {split} examples of each of {labeled.labels} labels (the best has "
            f"{least}): lower it or support_size and query_size{share}"
        )
    return {"groups": len(usable), "examples": sum(counted.values()), "skipped_groups": sorted(groups - {*usable})}


def write_labeled(payload: Record, folder: Path) -> Record:
    """Draw and write one shard of labeled tasks; the sets alternate."""
    sizes = Sizes(**payload["sizes"])
    pools = [LabeledPool(Path(payload["folder"]) / name) for name in payload["labeled"]["datasets"]]
    drawers = [_Drawer(pool, payload["split"], sizes, payload["seed"]) for pool in pools]

    def tables() -> Iterator[pa.Table]:
        for number in range(payload["first"], payload["first"] + payload["tasks"]):
            turn, place = divmod(number, len(drawers))
            content = drawers[place].draw(number, turn)
            yield task_table(LABELED, payload["split"], [number], sizes, content)

    def row_groups() -> Iterator[pa.Table]:
        waiting: list[pa.Table] = []
        for table in tables():
            waiting.append(table)
            if len(waiting) == _GROUP_TASKS:
                yield pa.concat_tables(waiting)
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting)

    provenance = {"stage": "materialize", "format": LABELED} | {
        key: payload[key] for key in ("split", "seed", "sizes", "first", "labeled")
    }
    rows = write_shard(folder / SHARD, TASKS, row_groups(), provenance)
    return {"rows": rows, "tasks": payload["tasks"]}


class _Drawer:
    """Draw tasks of one set and split."""

    def __init__(self, pool: LabeledPool, split: str, sizes: Sizes, seed: int) -> None:
        assert pool.set is not None
        self._pool, self._set, self._split, self._sizes, self._seed = pool, pool.set, split, sizes, seed
        self._cells = pool.cells()
        self._usable = usable_groups(self._cells, split, self._set.labels, sizes)

    def draw(self, number: int, turn: int) -> Content:
        """Return task `number`, which is task `turn` of the set."""
        rng = generator(self._seed, LABELED, self._split, number)
        kind = f"{LABELED}-{self._set.name}"
        group = cluster_of(self._seed, kind, self._split, turn, self._usable)
        labels = np.concatenate(
            [balanced(rng, size, self._set.labels) for size in (self._sizes.support, self._sizes.query)]
        )
        examples = np.empty(len(labels), np.int64)
        for label in range(self._set.labels):
            mine = np.flatnonzero(labels == label)
            cell = self._cells[f"{self._split}/{group}/{label}"]
            examples[mine] = rng.choice(cell, len(mine), replace=False)
        fields = self._set.fields
        rows = np.repeat(self._pool.row_numbers(examples, fields), fields)
        ids = pc.binary_join_element_wise(pa.repeat(self._set.name, len(rows)), pa.array(rows).cast(pa.string()), ":")
        return Content(
            [kind],
            [self._set.labels],
            labels,
            lists(self._pool.texts(examples, fields), fields),
            lists(ids, fields),
            lists(pa.repeat(pa.scalar(group, pa.int32()), len(rows)), fields),
            pa.nulls(len(examples), pa.list_(pa.int32())),
            pa.repeat(pa.scalar(group, pa.int32()), len(examples)),
        )
