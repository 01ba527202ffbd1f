"""The samplers: balanced, distinct, uniform, every cluster in its turn."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.materialize.anchor_tasks import balanced, cluster_of, distinct, generator
from tasks.materialize.plan import shared_out, task_counts
from tasks.params.schema import FormatMixParams, LabeledTaskParams, MaterializeParams


@given(st.integers(0, 2**63 - 1), st.integers(0, 70), st.integers(1, 9))
def test_labels_are_balanced_whatever_their_number(seed, size, labels):
    counts = np.bincount(balanced(generator(seed), size, labels), minlength=labels)
    assert counts.sum() == size
    assert counts.max() - counts.min() <= 1


def test_the_remainder_goes_to_labels_drawn_by_the_seed():
    extra = Counter(int(np.bincount(balanced(generator(seed), 32, 3)).argmin()) for seed in range(300))
    assert min(extra.values()) > 60


@given(st.integers(0, 2**32), st.lists(st.integers(3, 12), min_size=1, max_size=6))
def test_distinct_numbers_are_distinct_and_below_their_limit(seed, limits):
    drawn = distinct(generator(seed), np.array(limits), 3)
    assert all(len({*row}) == 3 for row in drawn.tolist())
    assert (drawn >= 0).all()
    assert (drawn < np.array(limits)[:, None]).all()


def test_distinct_numbers_are_uniform():
    drawn = distinct(generator(1), np.full(12_000, 4), 3)
    counted = Counter(map(tuple, drawn.tolist()))
    assert len(counted) == 24
    assert min(counted.values()) > 400


@given(st.integers(0, 10**6), st.dictionaries(st.sampled_from("abcd"), st.floats(0, 10), min_size=1))
def test_tasks_are_shared_out_by_parts(total, parts):
    if not any(part > 1e-3 for part in parts.values()):
        return
    shares = shared_out(total, parts)
    assert sum(shares.values()) == total
    for name, part in parts.items():
        assert abs(shares[name] - total * part / sum(parts.values())) <= len(parts)
        assert shares[name] == 0 if part == 0 else (shares[name] > 0 or total < 2 * len(parts))


@given(st.integers(0, 2**63 - 1), st.integers(1, 9), st.integers(1, 40))
def test_every_cluster_has_its_turn_before_any_comes_again(seed, clusters, tasks):
    named = np.arange(clusters) * 5
    counts = Counter(cluster_of(seed, "sp-next", "train", number, named) for number in range(tasks))
    counts.update(dict.fromkeys(named.tolist(), 0))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_counts_follow_the_mix_and_labeled_tasks_are_added():
    mix = FormatMixParams(sp=2, mc=1, ss=0)
    labeled = LabeledTaskParams(datasets=["yelp"])
    params = MaterializeParams(train_tasks=90, validation_tasks=9, format_mix=mix, labeled=labeled)
    assert task_counts(params) == {
        ("sp", "train"): 60,
        ("mc", "train"): 30,
        ("labeled", "train"): 45,
        ("sp", "validation"): 6,
        ("mc", "validation"): 3,
        ("labeled", "validation"): 4,
    }
    alone = MaterializeParams(
        train_tasks=90, validation_tasks=9, format_mix=FormatMixParams(sp=0, mc=0, ss=0), labeled=labeled
    )
    assert task_counts(alone) == {("labeled", "train"): 90, ("labeled", "validation"): 9}
