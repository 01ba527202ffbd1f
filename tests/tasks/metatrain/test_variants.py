"""What the names of variants mean."""

from pathlib import Path

import pytest

from model.meta.trainer import Rates
from storage.task_formats import LABELED
from support.training_room import metatrain_params
from tasks.metatrain.variants import Training, trainings
from tasks.params.file import load

PROFILES = Path(__file__).parents[3] / "profiles"

METAPT = {"augmentation": "none", "rank": None, "inner_rate": 0.08, "learning_rate": 0.025, "patience": 6}


def only(**changes):
    return trainings(metatrain_params(**changes), 8, "float32")[0]


@pytest.mark.parametrize(
    ("variant", "differs"),
    [
        ("only-sp", {"formats": ("sp",)}),
        ("only-mc", {"formats": ("mc",)}),
        ("only-ss", {"formats": ("ss",)}),
        ("without-ta", {"augmentation": "none"}),
        ("without-curriculum", {"augmentation": "vanilla"}),
        ("without-mgr", {"rank": None}),
        ("supmer-labeled", {"formats": (LABELED,)}),
        ("supmer-mixed", {"formats": ("sp", "mc", "ss", LABELED)}),
        ("metapt", METAPT | {"formats": (LABELED,)}),
        ("metapt-mixed", METAPT | {"formats": ("sp", "mc", "ss", LABELED)}),
    ],
)
def test_a_variant_is_supmer_but_for_what_its_name_says(variant, differs):
    assert vars(only(variants=[variant])) == vars(only()) | {"variant": variant} | differs


def test_ppt_is_a_plain_training_of_each_format():
    found = trainings(metatrain_params(variants=["ppt"], ppt={"batch_size": 32}), 8, "float32")
    assert [(one.variant, one.formats) for one in found] == [
        ("ppt-sp", ("sp",)),
        ("ppt-mc", ("mc",)),
        ("ppt-ss", ("ss",)),
    ]
    assert all(one.plain and not one.unified and one.tasks_per_batch == 4 and one.clip_norm is None for one in found)


def test_ppt_on_mixed_data_reads_the_labeled_tasks_for_every_prompt():
    found = trainings(metatrain_params(variants=["ppt-mixed"]), 8, "float32")
    assert [(one.variant, one.formats) for one in found] == [
        (f"ppt-mixed-{name}", (name, LABELED)) for name in ("sp", "mc", "ss")
    ]
    assert all(one.plain for one in found)


def test_a_training_travels_as_json():
    training = only()
    assert Training.from_json(training.to_json() | {"formats": list(training.formats)}) == training


def test_official_code_has_the_released_choices():
    (training,) = trainings(load(PROFILES / "official-code.yaml").metatrain, 64, "float32")
    assert (training.order, training.similarity_at, training.similarity_smoothing, training.gate) == (
        1,
        "theta_prime",
        0.5,
        "scalar",
    )
    paper = trainings(load(PROFILES / "paper-t5-base.yaml").metatrain, 64, "float32")[0]
    assert (paper.order, paper.similarity_at, paper.similarity_smoothing, paper.gate) == (2, "theta", 0.0, "vector")


def test_rates_fall_to_nothing_or_by_the_square_root():
    linear = Rates(1.0, 1e-4, steps=10, warmup_steps=2)
    assert [linear.at("prompt", step) for step in (0, 1, 2, 6, 9)] == [0.5, 1.0, 1.0, 0.5, 0.125]
    assert linear.at("regularizer", 0) == pytest.approx(0.5e-4)
    root = Rates(1.0, 1e-4, steps=10, schedule="inverse-square-root")
    assert [root.at("prompt", step) for step in (0, 3, 8)] == [1.0, 0.5, pytest.approx(1 / 3)]


def test_the_regularizer_may_warm_up_for_a_time_of_its_own():
    rates = Rates(1.0, 1.0, steps=10, warmup_steps=0, regularizer_warmup_steps=4)
    assert [rates.at("regularizer", step) for step in (0, 1, 3, 4)] == [0.25, 0.5, 1.0, 1.0]
    assert rates.at("prompt", 0) == 1.0
