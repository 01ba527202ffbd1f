"""The deviation of query sets starts at nothing and grows with the agreement of gradients (ALGORITHM §3)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.meta.curriculum import Curriculum


@pytest.mark.parametrize(("similarity", "b"), [(-1.0, 0.0), (0.0, 2**0.5 - 1), (1.0, 1.0)])
def test_b_at_the_ends_and_the_middle(similarity, b):
    assert Curriculum(similarity=similarity).b == pytest.approx(b, abs=1e-15)


def test_b_follows_m():
    assert Curriculum(m=9.0, similarity=0.0).b == pytest.approx((3 - 1) / 8)


def test_it_starts_without_any_deviation():
    curriculum = Curriculum()
    assert curriculum.b == 0
    assert [curriculum.share(np.random.default_rng(seed)) for seed in range(20)] == [1.0] * 20


def test_a_b_too_small_to_draw_with_is_no_deviation_at_all():
    # b ≈ ln 2·(1+s)/2 near s = −1
    below, above = (Curriculum(similarity=-1 + 2 * b / np.log(2)) for b in (0.9e-6, 1.1e-6))
    assert 0 < below.b < 1e-6 < above.b
    assert below.share(np.random.default_rng(0)) == 1.0
    assert Curriculum(similarity=0.0, alpha=1e-7).share(np.random.default_rng(0)) == 1.0


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(1.1, 20))
def test_b_rises_with_s_between_0_and_1(one, other, m):
    low, high = (Curriculum(m=m, similarity=s).b for s in sorted((one, other)))
    assert 0 <= low <= high <= 1 + 1e-12


@pytest.mark.parametrize("similarity", [-1.5, 1.0000001, 7.0])
def test_a_similarity_beyond_its_range_by_rounding_counts_as_its_end(similarity):
    assert Curriculum(similarity=similarity).b in (0.0, 1.0)


@pytest.mark.parametrize(("alpha", "similarity"), [(1.0, 0.0), (2.0, -0.8), (0.5, 1.0)])
def test_the_share_is_a_beta_draw_whose_mean_is_the_tasks_own_part(alpha, similarity):
    curriculum = Curriculum(alpha=alpha, similarity=similarity)
    chance = np.random.default_rng(1)
    drawn = np.array([curriculum.share(chance) for _ in range(4000)])
    assert ((drawn >= 0) & (drawn <= 1)).all()
    b = curriculum.b
    deviation = (b / ((1 + b) ** 2 * (alpha * (1 + b) + 1))) ** 0.5  # of Beta(α, bα)
    assert drawn.mean() == pytest.approx(1 / (1 + b), abs=4 * deviation / 4000**0.5)
    assert drawn.std() == pytest.approx(deviation, rel=0.1)


def test_the_deviation_grows_with_s():
    def deviation(similarity):
        chance = np.random.default_rng(2)
        curriculum = Curriculum(similarity=similarity)
        return 1 - np.mean([curriculum.share(chance) for _ in range(2000)])

    assert deviation(-0.9) < deviation(-0.3) - 0.05 < deviation(0.9) - 0.1


def test_vanilla_has_b_1_whatever_s():
    curriculum = Curriculum("vanilla")
    assert curriculum.b == 1
    chance = np.random.default_rng(3)
    assert np.mean([curriculum.share(chance) for _ in range(2000)]) == pytest.approx(0.5, abs=0.03)


def test_none_never_mixes_but_b_follows_s_all_the_same():
    curriculum = Curriculum("none")
    curriculum.follow(1.0)
    assert curriculum.share(np.random.default_rng(0)) == 1.0
    assert curriculum.b == 1


def test_s_is_that_of_the_last_step_unless_smoothed():
    plain, smoothed = Curriculum(), Curriculum(smoothing=0.5)
    for similarity in (0.6, 0.2):
        plain.follow(similarity)
        smoothed.follow(similarity)
    assert plain.similarity == 0.2
    assert smoothed.similarity == pytest.approx(0.5 * (0.5 * -1 + 0.5 * 0.6) + 0.5 * 0.2)


def test_the_draws_are_those_of_the_generator():
    curriculum = Curriculum(similarity=0.5)
    first, again = (curriculum.share(np.random.default_rng(7)) for _ in range(2))
    assert first == again != curriculum.share(np.random.default_rng(8))
