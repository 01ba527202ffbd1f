"""Drawing of one anchor task: the sentences of its examples, and the label of each (ALGORITHM §2).

Every random choice follows from a hash of the seed, the format, the split and the task's number, so that a task is the
same whichever process draws it. Sets are balanced by construction: labels are laid out evenly, then shuffled.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from storage.errors import InputError
from storage.pools.row_arrays import Array, Integers
from storage.pools.sentence_pool import Grouped, Pool
from storage.task_formats import CHOICES, KINDS
from tasks.materialize.plan import Sizes, usable

_WRONG = CHOICES - 1
_ROUNDS = 32  # rounds of redrawing sentences that clash, before the remaining candidates are listed


@dataclass(frozen=True)
class Drawn:
    """One task of n examples, the support set first.

    Attributes:
        rows: the sentences of each example, the anchor first, [n, parts].
        labels: the right label of each example, [n].
        choices: the clusters whose centroids are the choices A–D, [n, 4]; for ss only.
        cluster: the cluster of the anchors; None for ss.
    """

    rows: Integers
    labels: Integers
    choices: Integers | None
    cluster: int | None


def generator(*names: str | int) -> np.random.Generator:
    """Return the random generator that belongs to these names alone."""
    digest = hashlib.sha256(":".join(map(str, names)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def balanced(rng: np.random.Generator, size: int, labels: int) -> Integers:
    """Return `size` labels in random order, with counts that differ by at most one; `rng` draws which are higher."""
    whole, rest = divmod(size, labels)
    laid_out = np.concatenate([np.repeat(np.arange(labels), whole), rng.permutation(labels)[:rest]])
    return rng.permutation(laid_out)


def distinct(rng: np.random.Generator, limits: Integers, width: int) -> Integers:
    """Return, for each limit, `width` different numbers below it, uniform and in random order, [n, width].

    If a limit is below `width`, only as many numbers as the limit are different.
    """
    drawn = np.empty((len(limits), width), np.int64)
    for column in range(width):
        # Draw a number among those left, then count it up past the numbers taken, from the smallest.
        value = rng.integers(0, np.maximum(limits - column, 1))
        for taken in np.sort(drawn[:, :column], axis=1).T:
            value += value >= taken
        drawn[:, column] = np.minimum(value, np.maximum(limits - 1, 0))
    return drawn


@lru_cache(maxsize=8)
def _turn(seed: int, kind: str, split: str, turn: int, clusters: int) -> Integers:
    return generator(seed, kind, split, "turn", turn).permutation(clusters)


def cluster_of(seed: int, kind: str, split: str, number: int, clusters: Array) -> int:
    """Return the cluster of the kind's task `number`; no cluster is used again before all others were used."""
    turn, place = divmod(number, len(clusters))
    return int(clusters[_turn(seed, kind, split, turn, len(clusters))[place]])


class Drawer:
    """Draw tasks of one format and split."""

    def __init__(self, pool: Pool, format_: str, split: str, sizes: Sizes, seed: int) -> None:
        self._pool, self._format, self._split, self._sizes, self._seed = pool, format_, split, sizes, seed
        self._members = pool.group("members", format_, split)
        self._next = pool.group("next", format_, split) if format_ != "ss" else self._members
        self._keys = pool.sentences["key"]
        self._kinds = KINDS[format_]
        self._draw = {
            "sp-next": self._sp_next,
            "sp-cluster": self._sp_cluster,
            "mc-next": self._mc_next,
            "mc-cluster": self._mc_cluster,
        }
        self._usable = {kind: usable(pool, kind, split, sizes) for kind in self._kinds}

    def kind(self, number: int) -> str:
        """Return the kind of a task; the kinds of a format alternate."""
        return self._kinds[number % len(self._kinds)]

    def draw(self, number: int) -> Drawn:
        """Return the format's task `number`."""
        kind = self.kind(number)
        rng = generator(self._seed, self._format, self._split, number)
        clusters = self._usable[kind]
        if kind == "ss":
            return self._ss(rng, clusters)
        cluster = cluster_of(self._seed, kind, self._split, number // len(self._kinds), clusters)
        rows, labels = self._draw[kind](rng, cluster)
        return Drawn(rows, labels, None, cluster)

    def _labels(self, rng: np.random.Generator, labels: int) -> Integers:
        return np.concatenate([balanced(rng, size, labels) for size in (self._sizes.support, self._sizes.query)])

    def _anchors(self, rng: np.random.Generator, group: Grouped, cluster: int) -> Integers:
        start, end = group.span(cluster)
        return group.rows[start + rng.choice(end - start, self._sizes.total, replace=False)]

    def _sp_next(self, rng: np.random.Generator, cluster: int) -> tuple[Integers, Integers]:
        anchors, labels = self._anchors(rng, self._next, cluster), self._labels(rng, 3)
        second = anchors + 1
        wrong = np.flatnonzero(labels)
        second[wrong] = self._not_following(rng, anchors[wrong], (labels[wrong] == 2).astype(np.int64), 1)[:, 0]
        return np.column_stack([anchors, second]), labels

    def _mc_next(self, rng: np.random.Generator, cluster: int) -> tuple[Integers, Integers]:
        anchors, labels = self._anchors(rng, self._next, cluster), self._labels(rng, CHOICES)
        total = len(anchors) * _WRONG
        wanted = (rng.permutation(total) < round(self._sizes.hard * total)).reshape(-1, _WRONG).sum(axis=1)
        possible = np.maximum(self._pool.document_column("texts", anchors) - 3, 0)
        wrong = self._not_following(rng, anchors, np.minimum(wanted, possible), _WRONG)
        return _placed(anchors, anchors + 1, rng.permuted(wrong, axis=1), labels), labels

    def _sp_cluster(self, rng: np.random.Generator, cluster: int) -> tuple[Integers, Integers]:
        labels = self._labels(rng, 2)
        second = self._other_clusters(rng, cluster, 1)[:, 0]
        same = np.flatnonzero(labels == 0)
        anchors, second[same] = self._same_cluster(rng, cluster, same)
        return np.column_stack([anchors, second]), labels

    def _mc_cluster(self, rng: np.random.Generator, cluster: int) -> tuple[Integers, Integers]:
        labels = self._labels(rng, CHOICES)
        anchors, same = self._same_cluster(rng, cluster, np.arange(self._sizes.total))
        return _placed(anchors, same, self._other_clusters(rng, cluster, _WRONG), labels), labels

    def _ss(self, rng: np.random.Generator, clusters: Integers) -> Drawn:
        """Draw four clusters and as many sentences of each; the order of the choices is drawn for every example."""
        chosen = rng.choice(clusters, CHOICES, replace=False)
        own, labels = self._labels(rng, CHOICES), self._labels(rng, CHOICES)
        rows = np.empty(len(own), np.int64)
        for number, cluster in enumerate(chosen):
            start, end = self._members.span(int(cluster))
            mine = np.flatnonzero(own == number)
            rows[mine] = self._members.rows[start + rng.choice(end - start, len(mine), replace=False)]
        others = np.array([[other for other in range(CHOICES) if other != number] for number in range(CHOICES)])
        order = _inserted(chosen[own], chosen[rng.permuted(others[own], axis=1)], labels)
        return Drawn(rows[:, None], labels, order, None)

    def _same_cluster(self, rng: np.random.Generator, cluster: int, examples: Integers) -> tuple[Integers, Integers]:
        """Draw the anchors from the members of a cluster, and a partner from the cluster for each of `examples`.

        Partners are not anchors of the task, and no partner occurs twice. If the cluster is too small for that, the
        remaining examples take the next anchor of their own set as a partner: no sentence is in both the support set
        and the query set, and no pair occurs in both orders.
        """
        start, end = self._members.span(cluster)
        total, wanted = self._sizes.total, len(examples)
        rows = self._members.rows[start + rng.choice(end - start, min(total + wanted, end - start), replace=False)]
        anchors, partners = rows[:total], rows[total:]
        if len(partners) < wanted:
            support = self._sizes.support
            following = np.concatenate([np.roll(anchors[:support], -1), np.roll(anchors[support:], -1)])[examples]
            following[rng.permutation(wanted)[: len(partners)]] = partners
            partners = following
        return anchors, partners

    def _other_clusters(self, rng: np.random.Generator, cluster: int, width: int) -> Integers:
        """Draw, for each example, `width` different sentences of other clusters."""
        start, end = self._members.span(cluster)
        rest = len(self._members.rows) - (end - start)
        drawn = distinct(rng, np.full(self._sizes.total, rest), width)
        return self._members.rows[drawn + (drawn >= start) * (end - start)]

    def _not_following(self, rng: np.random.Generator, anchors: Integers, hard: Integers, width: int) -> Integers:
        """Draw, for each anchor, `width` sentences that do not follow it: `hard` from its document, then from others.

        Their texts differ from each other, from the anchor's, and from the text of the sentence that follows the
        anchor.
        """
        first, block, distant = self._surroundings(anchors)
        drawn = first[:, None] + distinct(rng, distant, width)
        drawn += (drawn >= block[:, :1]) * (block[:, 1:] - block[:, :1])
        is_hard = np.arange(width) < hard[:, None]
        easy = self._members.rows[rng.integers(0, len(self._members.rows), drawn.shape)]
        rows = np.column_stack([anchors, anchors + 1, np.where(is_hard, drawn, easy)])
        self._settle(rng, rows, np.column_stack([np.zeros((len(anchors), 2), bool), is_hard]))
        return rows[:, 2:]

    def _surroundings(self, anchors: Integers) -> tuple[Integers, Integers, Integers]:
        """Return the first row of each anchor's document, the rows within one sentence of it, the number of others."""
        first, count = (self._pool.document_column(name, anchors) for name in ("first", "rows"))
        indexes = self._pool.sentences["index"]
        before = (anchors > first) & (indexes[anchors - 1] == indexes[anchors] - 1)
        block = np.column_stack([anchors - before, anchors + 2])
        return first, block, count - (block[:, 1] - block[:, 0])

    def _settle(self, rng: np.random.Generator, rows: Integers, hard: Array) -> None:
        """Redraw, in place, sentences that repeat a text to their left, and easy choices of the same document."""
        documents = self._pool.sentences["document"]
        for turn in range(2 * _ROUNDS):
            keys = self._keys[rows]
            bad = ~hard & (documents[rows] == documents[rows[:, :1]])
            bad[:, :2] = False
            for column in range(2, rows.shape[1]):
                bad[:, column] |= (keys[:, column : column + 1] == keys[:, :column]).any(axis=1)
            if not bad.any():
                return
            for example, column in np.argwhere(bad & hard):
                rows[example, column] = self._other_distant(rng, rows[example], hard[example], column)
            easy = np.argwhere(bad & ~hard)
            if turn < _ROUNDS:
                rows[tuple(easy.T)] = self._members.rows[rng.integers(0, len(self._members.rows), len(easy))]
            else:
                for example, column in easy:
                    rows[example, column] = self._other_document(rng, rows[example], column)
        raise AssertionError("what was drawn from what is left still repeats")

    def _other_distant(self, rng: np.random.Generator, row: Integers, hard: Array, column: int) -> int:
        """Draw a sentence of the anchor's document that is not next to it and whose text no hard choice has yet."""
        first, block, distant = self._surroundings(row[:1])
        left = np.setdiff1d(np.arange(first[0], first[0] + distant[0] + np.ptp(block[0])), np.arange(*block[0]))
        kept = [place for place in range(len(row)) if place < 2 or (hard[place] and place != column)]
        left = left[~np.isin(self._keys[left], self._keys[row[kept]])]
        return int(rng.choice(left))

    def _other_document(self, rng: np.random.Generator, row: Integers, column: int) -> int:
        """Draw from a list of the sentences of other documents than the anchor's, if random draws found none."""
        rows = self._members.rows
        documents = self._pool.sentences["document"]
        left = rows[documents[rows] != documents[row[0]]]
        left = left[~np.isin(self._keys[left], self._keys[np.delete(row, column)])]
        if not len(left):
            raise InputError(
                f"materialize: no sentence of another {self._split} document is left as a wrong choice of "
                f"{self._format}-next: raise sample.budget_mb, or set materialize.format_mix.{self._format} to 0"
            )
        return int(rng.choice(left))


def _inserted(right: Integers, wrong: Integers, labels: Integers) -> Integers:
    """Return the choices [n, 1 + wrong], with the right one at the position of its label."""
    examples, width = np.arange(len(labels)), wrong.shape[1] + 1
    placed = np.empty((len(labels), width), np.int64)
    placed[examples, labels] = right
    for column in range(width - 1):
        placed[examples, column + (column >= labels)] = wrong[:, column]
    return placed


def _placed(anchors: Integers, right: Integers, wrong: Integers, labels: Integers) -> Integers:
    return np.column_stack([anchors, _inserted(right, wrong, labels)])
