"""Small clusters: merged into the nearest large one or dropped, and what that leaves, in figures."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from storage.errors import InputError
from tasks.params.schema import ClusterParams
from tasks.stage.contract import Record

NEEDED = {"sp": 2, "mc": 2, "ss": 4}  # clusters an example compares at least
DROPPED = -1

Sums = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass
class Tally:
    """What is summed over the sentences of each of K clusters, shard after shard.

    Attributes:
        size: all sentences, [K].
        training: those of training documents, [K]; the two below are of these alone.
        sums: sums of vectors, [K, dimension].
        squares: sums of squared norms, [K].
    """

    size: Counts
    training: Counts
    sums: Sums
    squares: Sums

    @classmethod
    def empty(cls, clusters: int, dimension: int) -> "Tally":
        """Nothing counted yet."""
        counts = np.zeros((2, clusters), np.int64)
        return cls(counts[0], counts[1], np.zeros((clusters, dimension)), np.zeros(clusters))

    def add(self, labels: npt.NDArray[np.int64], train: npt.NDArray[np.bool_], vectors: Sums, squares: Sums) -> None:
        """Count a batch: all labels [n], which are of training documents [n], and these: vectors, squared norms."""
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
        """The arrays by name, for numpy's file."""
        return {f"{prefix}_{name}": getattr(self, name) for name in ("size", "training", "sums", "squares")}

    @classmethod
    def of(cls, arrays: Any, prefix: str) -> "Tally":
        """The opposite of `arrays`."""
        return cls(*(arrays[f"{prefix}_{name}"] for name in ("size", "training", "sums", "squares")))


@dataclass(frozen=True)
class Settled:
    """The clusters of one format after the small ones are gone.

    `into[c]` is the cluster that cluster c became: itself, a larger one, or DROPPED; `tally` is by the clusters before.
    """

    tally: Tally
    into: npt.NDArray[np.int32]

    @cached_property
    def kept(self) -> list[int]:
        """The clusters that are left, by their k-means numbers."""
        return [cluster for cluster, target in enumerate(self.into.tolist()) if cluster == target]

    @cached_property
    def final(self) -> Tally:
        """The tally by the clusters after: rows of clusters that are gone are zero."""
        tally = Tally.empty(*self.tally.sums.shape)
        alive = self.into != DROPPED
        for mine, before in ((tally.size, self.tally.size), (tally.training, self.tally.training)):
            np.add.at(mine, self.into[alive], before[alive])
        np.add.at(tally.sums, self.into[alive], self.tally.sums[alive])
        np.add.at(tally.squares, self.into[alive], self.tally.squares[alive])
        return tally

    @cached_property
    def centroids(self) -> npt.NDArray[np.float32]:
        """The mean of each cluster's training sentences [K, dimension]; zero where the cluster is gone."""
        counts = np.maximum(self.final.training, 1)[:, None]
        return (self.final.sums / counts).astype(np.float32)

    def merged(self, cluster: int) -> list[int]:
        """The clusters that were merged into one."""
        return [one for one in np.flatnonzero(self.into == cluster).tolist() if one != cluster]

    def outcome(self, cluster: int) -> str:
        """What became of a cluster, in a word."""
        if self.into[cluster] == cluster:
            return "kept"
        if self.tally.size[cluster] == 0:
            return "empty"
        return "dropped" if self.into[cluster] == DROPPED else "merged"


def settle(name: str, tally: Tally, centroids: npt.NDArray[np.float32], params: ClusterParams) -> Settled:
    """Merge clusters of fewer training sentences than `min_size` into the nearest by k-means centroid, or drop them."""
    large = np.flatnonzero(tally.training >= params.min_size)
    needed = min(NEEDED[name], params.clusters)
    if len(large) < needed:
        largest = int(tally.training.max())
        raise InputError(
            f"params.yaml: cluster.min_size: {params.min_size}: leaves {len(large)} clusters for {name}, which needs "
            f"{needed} (the largest has {largest:,} training sentences): lower it or cluster.clusters, or add text"
        )
    into = np.full(params.clusters, DROPPED, np.int32)
    into[large] = large
    if params.small == "merge":
        for small in np.flatnonzero((into == DROPPED) & (tally.size > 0)).tolist():
            distances = ((centroids[large] - centroids[small]) ** 2).sum(axis=1)
            into[small] = large[int(distances.argmin())]
    return Settled(tally, into)


def figures(settled: Settled) -> Record:
    """Inertia, sizes, and how many clusters were empty, merged or dropped."""
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
