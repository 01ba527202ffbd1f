"""The plan of materialization: the number of tasks of each format, and the clusters with enough sentences for them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from storage.counts import counted
from storage.errors import InputError
from storage.pools.row_arrays import Integers
from storage.pools.sentence_pool import Grouped, Pool
from storage.task_formats import CHOICES, FORMATS, KINDS, LABELED, LABELS, SPLITS
from tasks.params.schema import MaterializeParams
from tasks.stage.contract import Record


@dataclass(frozen=True)
class Sizes:
    """The numbers of examples in a support and a query set.

    `hard` is the share of mc-next's wrong choices that come from the same document.
    """

    support: int
    query: int
    hard: float

    @property
    def total(self) -> int:
        """The number of examples in a task."""
        return self.support + self.query

    def largest(self, labels: int) -> int:
        """Return the largest number of examples of one label in a task, over both sets."""
        return -(-self.support // labels) + -(-self.query // labels)


def sizes_of(params: MaterializeParams) -> Sizes:
    """Return the sizes that params.yaml asks for."""
    return Sizes(params.support_size, params.query_size, params.hard_negative_share)


def shared_out(total: int, parts: Mapping[str, float]) -> dict[str, int]:
    """Divide `total` by parts, rounding up the largest remainders; every part above 0 gets one if there are enough."""
    whole = sum(parts.values())
    exact = {name: total * part / whole for name, part in parts.items()}
    shares = {name: int(share) for name, share in exact.items()}
    for name in sorted(parts, key=lambda name: (shares[name] - exact[name], name))[: total - sum(shares.values())]:
        shares[name] += 1
    for name in parts:
        largest = max(shares, key=lambda other: (shares[other], other))
        if parts[name] > 0 and shares[name] == 0 and shares[largest] > 1:
            shares[largest] -= 1
            shares[name] += 1
    return shares


def task_counts(params: MaterializeParams) -> dict[tuple[str, str], int]:
    """Return the number of tasks of each format and split.

    Labeled tasks are added in proportion to their parts; if no format has a part, all tasks are labeled.
    """
    mix = _mix(params)
    labeled = params.labeled
    counts: dict[tuple[str, str], int] = {}
    for split, total in zip(SPLITS, (params.train_tasks, params.validation_tasks), strict=True):
        shares = shared_out(total, mix) if any(mix.values()) else {}
        if labeled.datasets:
            added = round(total * labeled.labeled_parts / labeled.unlabeled_parts) if shares else total
            shares[LABELED] = max(added, 1)
        counts |= {(name, split): count for name, count in shares.items() if count}
    return counts


def _mix(params: MaterializeParams) -> dict[str, float]:
    """Return the parts of the formats, in their order."""
    mix = params.format_mix
    parts = {"sp": mix.sp, "mc": mix.mc, "ss": mix.ss}
    return {name: parts[name] for name in FORMATS}


def unmade(params: MaterializeParams, counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """Yield a line for each split in which a format with a part gets too few tasks to have one of each of its kinds."""
    totals = {"train_tasks": params.train_tasks, "validation_tasks": params.validation_tasks}
    for split, (key, total) in zip(SPLITS, totals.items(), strict=True):
        mixed = [name for name, part in _mix(params).items() if part > 0]
        lacking = [kind for name in mixed for kind in KINDS[name][counts.get((name, split), 0) :]]
        if lacking:
            yield f"materialize.{key}: {total}: too few for a {split} task of {', '.join(lacking)}"


def anchors(pool: Pool, kind: str, split: str) -> Grouped:
    """Return the group of sentences that a kind's anchors are drawn from."""
    return pool.group("next" if kind.endswith("-next") else "members", kind.partition("-")[0], split)


def needed(kind: str, sizes: Sizes) -> int:
    """Return the number of anchors that a cluster must have: no anchor is used twice in a task."""
    return sizes.largest(CHOICES) if kind == "ss" else sizes.total


def usable(pool: Pool, kind: str, split: str, sizes: Sizes) -> Integers:
    """Return the clusters with enough anchors for a task of this kind; none if the tasks lack something else."""
    group = anchors(pool, kind, split)
    enough: Integers = group.clusters[group.sizes >= needed(kind, sizes)]
    if kind == "ss":
        return enough if len(enough) >= CHOICES else enough[:0]
    if kind.endswith("-next"):
        return enough if pool.documents(split) > 1 else enough[:0]
    others = len(group.rows) - group.sizes[np.isin(group.clusters, enough)]
    return enough[others >= LABELS[kind] - 1]


def check(pool: Pool, counts: Mapping[tuple[str, str], int], sizes: Sizes) -> Record:
    """Return the clusters that each kind uses and skips; raise InputError if a kind that is wanted has none."""
    figures: Record = {}
    for (name, split), count in counts.items():
        for kind in KINDS.get(name, ())[:count]:
            clusters = usable(pool, kind, split, sizes)
            group = anchors(pool, kind, split)
            if not len(clusters):
                raise _impossible(pool, kind, split, sizes)
            skipped = np.setdiff1d(group.clusters, clusters)
            record = {"clusters": len(clusters), "anchors": len(group.rows), "skipped_clusters": skipped.tolist()}
            figures.setdefault(kind, {})[split] = record
    return figures


def _impossible(pool: Pool, kind: str, split: str, sizes: Sizes) -> InputError:
    """Return the error that says, in numbers, why no task of a kind can be made, and what to change."""
    group = anchors(pool, kind, split)
    more = "sample.validation_share" if split == "validation" else "sample.budget_mb"
    numbers = (
        f"{counted(len(group.rows), 'anchor')} in {counted(len(group.clusters), 'cluster')} of "
        f"{counted(pool.documents(split), 'document')}"
    )
    wants = f"{CHOICES} clusters" if kind == "ss" else "a cluster"
    wants += f" of {needed(kind, sizes)} or more (the largest has {max(group.sizes, default=0)})"
    wants += {"next": ", and a second document", "cluster": ", and others beside it"}.get(kind.partition("-")[2], "")
    return InputError(
        f"params.yaml: materialize.support_size: {sizes.support} and query_size: {sizes.query}: no {split} task of "
        f"{kind} can be made: {numbers}, it takes {wants}: lower them or cluster.clusters, or raise {more}"
    )


def pool_formats(counts: Mapping[tuple[str, str], int]) -> Sequence[str]:
    """Return the formats that are made from the corpus."""
    return [name for name in FORMATS if any(wanted == name for wanted, _ in counts)]


def sizes_record(sizes: Sizes) -> Record:
    """Return the sizes as JSON; `Sizes(**record)` reads them back."""
    return asdict(sizes)
