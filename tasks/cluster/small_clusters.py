"""Small clusters: they are merged into the nearest large one or dropped, and the result is summarized in figures."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from storage.counts import counted
from storage.errors import InputError
from tasks.params.schema import ClusterParams
from tasks.stage.contract import Record

NEEDED = {"sp": 2, "mc": 2, "ss": 4}  # the least number of clusters that an example compares
DROPPED = -1

Sums = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass
class Tally:
    """Sums over the sentences of each of K clusters, added up shard by shard.

    Attributes:
        size: number of all sentences, [K].
        training: number of sentences of training documents, [K]; only these count in `sums` and `squares`.
        sums: sums of vectors, [K, dimension].
        squares: sums of squared norms, [K].
    """

    size: Counts
    training: Counts
    sums: Sums
    squares: Sums

    @classmethod
    def empty(cls, clusters: int, dimension: int) -> "Tally":
        """Return a tally with nothing counted."""
        counts = np.zeros((2, clusters), np.int64)
        return cls(counts[0], counts[1], np.zeros((clusters, dimension)), np.zeros(clusters))

    def add(self, labels: npt.NDArray[np.int64], train: npt.NDArray[np.bool_], vectors: Sums, squares: Sums) -> None:
        """Count a batch: all labels [n], the mask of training sentences [n], and their vectors and squared norms."""
        clusters = len(self.size)
        self.size += np.bincount(labels, minlength=clusters)
        mine = labels[train]
        if len(mine) == 0:
            return
        self.training += np.bincount(mine, minlength=clusters)
        self.squares += np.bincount(mine, squares, clusters)
        order = np.argsort(mine, kind="stable")
        present, starts = np.unique(mine[order], return_index=True)
        self.sums[present] += np.add.reduceat(vectors[order], starts)

    def __iadd__(self, other: "Tally") -> Self:
        self.size += other.size
        self.training += other.training
        self.sums += other.sums
        self.squares += other.squares
        return self

    def arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, for a file of numpy."""
        return {f"{prefix}_{name}": getattr(self, name) for name in ("size", "training", "sums", "squares")}

    @classmethod
    def of(cls, arrays: Any, prefix: str) -> "Tally":
        """Return the tally that `arrays` wrote."""
        return cls(*(arrays[f"{prefix}_{name}"] for name in ("size", "training", "sums", "squares")))


@dataclass(frozen=True)
class Settled:
    """The clusters of one format after small ones were merged or dropped.

    `into[c]` is the cluster that cluster c became: itself, a larger one, or DROPPED; `tally` counts by the old
    clusters.
    """

    tally: Tally
    into: npt.NDArray[np.int32]

    @cached_property
    def kept(self) -> list[int]:
        """The remaining clusters, by their k-means numbers."""
        return [cluster for cluster, target in enumerate(self.into.tolist()) if cluster == target]

    @cached_property
    def final(self) -> Tally:
        """The tally by the remaining clusters; the rows of merged and dropped clusters are zero."""
        tally = Tally.empty(*self.tally.sums.shape)
        alive = self.into != DROPPED
        for mine, before in ((tally.size, self.tally.size), (tally.training, self.tally.training)):
            np.add.at(mine, self.into[alive], before[alive])
        np.add.at(tally.sums, self.into[alive], self.tally.sums[alive])
        np.add.at(tally.squares, self.into[alive], self.tally.squares[alive])
        return tally

    @cached_property
    def centroids(self) -> npt.NDArray[np.float32]:
        """The mean of each cluster's training sentences [K, dimension]; zero for a merged or dropped cluster."""
        counts = np.maximum(self.final.training, 1)[:, None]
        return (self.final.sums / counts).astype(np.float32)

    def merged(self, cluster: int) -> list[int]:
        """Return the clusters that were merged into `cluster`."""
        return [other for other in np.flatnonzero(self.into == cluster).tolist() if other != cluster]

    def outcome(self, cluster: int) -> str:
        """Return the fate of a cluster in one word."""
        if self.into[cluster] == cluster:
            return "kept"
        if self.tally.size[cluster] == 0:
            return "empty"
        return "dropped" if self.into[cluster] == DROPPED else "merged"


def settle(name: str, tally: Tally, centroids: npt.NDArray[np.float32], params: ClusterParams) -> Settled:
    """Merge clusters with fewer than `min_size` training sentences into the nearest k-means centroid, or drop them."""
    large = np.flatnonzero(tally.training >= params.min_size)
    needed = min(NEEDED[name], params.clusters)
    if len(large) < needed:
        largest = int(tally.training.max())
        raise InputError(
            f"params.yaml: cluster.min_size: {params.min_size}: leaves {counted(len(large), 'cluster')} for "
            f"{name}, which needs {needed} (the largest has {largest:,} training sentences): lower it or "
            "cluster.clusters, or add text"
        )
    into = np.full(params.clusters, DROPPED, np.int32)
    into[large] = large
    if params.small == "merge":
        for small in np.flatnonzero((into == DROPPED) & (tally.size > 0)).tolist():
            distances = ((centroids[large] - centroids[small]) ** 2).sum(axis=1)
            into[small] = large[int(distances.argmin())]
    return Settled(tally, into)


def figures(settled: Settled) -> Record:
    """Return the inertia, the sizes, and the numbers of empty, merged and dropped clusters."""
    tally = settled.final
    sizes = tally.training[settled.kept]
    sentences = int(sizes.sum())
    within = float((tally.squares[settled.kept] - (tally.sums[settled.kept] ** 2).sum(axis=1) / sizes).sum())
    total = float(tally.squares.sum() - (tally.sums.sum(axis=0) ** 2).sum() / sentences)
    outcomes = [settled.outcome(cluster) for cluster in range(len(settled.into))]
    return {
        "clusters": len(settled.kept),
        "sentences": sentences,
        "inertia": within,
        "inertia_per_sentence": within / sentences,
        "explained_variance": 1 - within / total if total > 0 else 1.0,
        "size": {
            "min": int(sizes.min()),
            "median": float(np.median(sizes)),
            "mean": float(sizes.mean()),
            "max": int(sizes.max()),
        },
        **{word: outcomes.count(word) for word in ("empty", "merged", "dropped")},
        "dropped_sentences": int(settled.tally.size.sum() - tally.size.sum()),
    }
