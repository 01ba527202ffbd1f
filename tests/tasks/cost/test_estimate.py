"""Estimates follow from parameters, data and machine; what is known replaces what is assumed."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from model.prompt.passes import Passes
from model.prompt.rows import Row
from model.t5.backbone import backbone_of
from model.text.tokenized_tasks import Example
from storage import paths
from storage.errors import InputError
from tasks.cost.data import SENTENCE_BYTES, data_of
from tasks.cost.devices import DEVICES, device_named
from tasks.cost.estimate import estimate, plan_of, precision_of
from tasks.cost.machine import Machine, named_machine
from tasks.cost.shapes import KNOWN, shape_of
from tasks.cost.work import FORWARD, PASS, STAGES, TWICE, metatrain
from tasks.cost.work import tune as tune_work
from tasks.params.file import load, read, validate
from tasks.params.overrides import override

REPOSITORY = Path(__file__).parents[3]
A100 = named_machine(DEVICES["A100-80"], None)


def profile(name, *settings):
    return validate(override(read(REPOSITORY / "profiles" / f"{name}.yaml"), settings))


def cost(params, machine=A100):
    return {stage.stage: stage for stage in estimate(plan_of(params, None), machine, "x").stages}


def processor(memory=64e9, cores=2, low=()):
    rates = {
        (model, kind, precision): rate
        for model in ("backbone", "embedder")
        for kind in (FORWARD, PASS, TWICE)
        for precision, rate in {"float32": 1e11, **dict.fromkeys(low, 2e11)}.items()
    }
    return Machine("made", None, cores, cores, memory, 1.0, rates, 1e9, ())


@pytest.mark.parametrize("path", sorted((REPOSITORY / "profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_profile_can_be_estimated_before_anything_has_run(path):
    stages = estimate(plan_of(load(path), None), A100, path.stem).stages
    assert [stage.stage for stage in stages] == list(STAGES)
    assert all(stage.seconds > 0 and stage.host_memory > 0 and math.isfinite(stage.seconds) for stage in stages)
    assert all(stage.assumptions for stage in stages if stage.operations)


@pytest.mark.parametrize(
    ("name", "published"),
    [("t5-small", 60.5e6), ("t5-base", 222.9e6), ("flan-t5-small", 77e6), ("flan-t5-xl", 2.85e9), ("t5-3b", 2.85e9)],
)
def test_the_shapes_have_the_published_numbers_of_parameters(name, published):
    assert KNOWN[name].parameters == pytest.approx(published, rel=0.01)


def test_operations_are_those_that_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import T5Config, T5ForConditionalGeneration

    shape = KNOWN["tiny-t5"]
    sizes = {"d_model": 48, "d_kv": 12, "d_ff": 96, "num_heads": 4, "num_layers": 2}
    config = T5Config(vocab_size=900, decoder_start_token_id=0, feed_forward_proj="gated-gelu", **sizes)
    model = T5ForConditionalGeneration(config).eval().requires_grad_(requires_grad=False)
    ids = np.arange(3, 63, dtype=np.int32)
    rows = [Row(Example("e", 0, ids, np.array([5, 6], np.int32)), 0, 1.0) for _ in range(4)]
    import torch

    passes = Passes(backbone_of(model, recompute=True))  # without oneDNN's operator, which torch does not count
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        passes.losses_of(torch.randn(1, 8, 48), rows)
    assert counter.get_total_flops() == pytest.approx(shape.operations(4, 68), rel=0.1)


def test_more_steps_cost_proportionally_more():
    few, many = (cost(profile("official-code", f"metatrain.steps={steps}"))["metatrain"] for steps in (10_000, 100_000))
    assert many.seconds / few.seconds == pytest.approx(10, rel=0.01)


def test_the_second_order_costs_half_as_much_again_as_the_first():
    first, second = (
        metatrain(plan_of(profile("official-code", f"metatrain.order={order}"), None)).all_operations
        for order in (1, 2)
    )
    assert second / first == pytest.approx(1.5, rel=0.05)


def test_plain_steps_cost_less_than_those_of_the_second_order():
    none, half, every = (
        metatrain(plan_of(profile("official-code", "metatrain.order=2", f"metatrain.plain_steps={steps}"), None))
        for steps in (0, 50_000, 100_000)
    )
    assert every.all_operations < 0.6 * none.all_operations
    assert half.all_operations == pytest.approx((none.all_operations + every.all_operations) / 2, rel=1e-3)
    assert "the first 50,000 of them plain" in half.assumptions[0]


def test_bfloat16_takes_effect_where_a_parameter_asks_for_it():
    low, full = (
        cost(profile("paper-t5-base", f"metatrain.precision={name}"))["metatrain"] for name in ("auto", "float32")
    )
    assert low.seconds < full.seconds / 5
    assert low.device_memory < full.device_memory


def test_auto_is_float32_where_there_is_no_bfloat16():
    params = profile("paper-t5-base")
    assert precision_of(params, "metatrain", A100) == "bfloat16"
    assert precision_of(params, "metatrain", named_machine(DEVICES["V100"], None)) == "float32"
    assert precision_of(params, "tune", processor()) == "float32"
    assert precision_of(params, "tune", processor(low=["bfloat16"])) == "bfloat16"


def test_a_processor_that_computes_in_bfloat16_takes_less_time():
    both = [processor(low=low) for low in ((), ("bfloat16",))]
    slow, fast = (cost(profile("quickstart"), machine)["metatrain"].seconds for machine in both)
    assert fast < 0.8 * slow


def test_fine_tuning_says_how_many_gpus_share_its_weights():
    lines = cost(profile("paper-flan-t5-xl"), named_machine(DEVICES["RTX-4090"], None))["tune"].assumptions
    [line] = [line for line in lines if line.startswith("fine-tuning: ")]
    assert line.endswith("which 3 of these GPUs share (FSDP2, under torchrun)")
    assert "fine-tuning: 57.0 GB" in line  # the 20 bytes of a weight that stage tune itself counts
    without = profile("paper-flan-t5-xl", "tune.methods=[pt]")
    assert not any("fine-tuning" in line for line in cost(without)["tune"].assumptions)


def test_weights_that_stay_on_every_gpu_between_passes_need_more_gpus():
    small = named_machine(DEVICES["RTX-4090"], None)
    shared, whole = (
        cost(profile("paper-flan-t5-xl", f"tune.fine_tuning.reshard_after_forward={reshard}"), small)["tune"]
        for reshard in ("true", "false")
    )
    assert (shared.devices, whole.devices) == (3, 6)
    assert shared.fits
    assert whole.device_memory < 24e9
    alone = cost(profile("paper-flan-t5-xl"))["tune"]
    assert (alone.devices, alone.fits) == (1, True)
    assert 57e9 < alone.device_memory < 80e9


def test_rows_are_as_long_as_the_method_makes_them():
    tokens = {
        method: tune_work(plan_of(profile("paper-t5-base", f"tune.methods=[{method}]"), None)).tokens
        for method in ("zero-shot", "few-shot", "pt", "p-tuning-v2")
    }
    assert tokens["p-tuning-v2"] < 0.6 * tokens["pt"]  # no prompt of 100 tokens before each text
    assert tokens["few-shot"] > 10 * tokens["zero-shot"]  # five seeds, and demonstrations in every row


def test_bfloat16_without_units_takes_as_long_as_it_was_measured_to():
    params = profile("quickstart", "precision=bfloat16")
    slow, even = (cost(params, replace(processor(), slow_down=factor))["metatrain"].seconds for factor in (70.0, 1.0))
    assert slow > 30 * even


def test_memory_is_within_the_aim_of_what_an_idle_machine_measured():
    record = orjson.loads((REPOSITORY / "benchmarks/records/cost.json").read_bytes())
    measured = {row["stage"]: row["peak_mb"] * 1e6 for row in record["rows"]}
    machine = processor(record["machine"]["memory_gb"] * 1e9, record["machine"]["usable_cores"], ["bfloat16"])
    ratios = {
        name: stage.host_memory / measured[name] for name, stage in cost(profile("offline-tiny"), machine).items()
    }
    assert {name: round(ratio, 2) for name, ratio in ratios.items() if not 1 / 1.3 < ratio < 1.3} == {}


def test_chunks_are_halved_until_they_fit_the_gpu():
    small = cost(profile("paper-flan-t5-xl"), named_machine(DEVICES["RTX-4090"], None))["metatrain"]
    assert small.fits
    assert small.device_memory < 24e9
    assert any("halved" in line for line in small.assumptions)


def test_a_model_that_cannot_fit_is_said_not_to():
    params = profile("paper-flan-t5-xl", "acquire.backbone=hf:google/flan-t5-xxl")
    assert not cost(params, named_machine(DEVICES["T4"], None))["metatrain"].fits
    assert not cost(profile("paper-t5-base"), processor(memory=1e9))["metatrain"].fits


def test_support_sets_are_read_twice_if_their_graphs_do_not_fit():
    params = profile("paper-t5-base", "metatrain.variants=[supmer]", "tune.methods=[supmer]")
    much, little = (cost(params, processor(memory))["metatrain"] for memory in (2000e9, 40e9))
    assert little.operations > much.operations


def test_what_sample_has_counted_replaces_the_assumption(tmp_path):
    params = profile("quickstart")
    assert data_of(params, tmp_path).sentences == pytest.approx(0.7e6 / SENTENCE_BYTES)
    metrics = tmp_path / paths.SAMPLE_METRICS
    metrics.parent.mkdir(parents=True)
    metrics.write_bytes(orjson.dumps({"sentences": 6000, "bytes": 690_000, "sources": {"news": {}}}))
    assert data_of(params, tmp_path).sentences == 6000
    assert data_of(profile("quickstart", "sample.budget_mb=0.1"), tmp_path).sentences < 1000


def test_the_shape_of_a_local_model_is_read_from_its_folder(tmp_path):
    config = {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64, "num_layers": 3, "vocab_size": 100}
    (tmp_path / "config.json").write_bytes(orjson.dumps(config))
    shape = shape_of(f"path:{tmp_path}", None)
    assert (shape.width, shape.layers, shape.decoder_layers, shape.inner) == (32, 3, 3, 32)


def test_a_model_of_unknown_shape_is_refused_with_what_to_do():
    with pytest.raises(InputError, match="`supmer run acquire` first"):
        shape_of("hf:someone/something", None)


@pytest.mark.parametrize(
    ("written", "meant"), [("a100-80", "A100-80"), ("A100 80GB", "A100-80"), ("rtx4090", "RTX-4090"), ("t4", "T4")]
)
def test_devices_are_found_however_they_are_written(written, meant):
    assert device_named(written).name == meant


def test_an_unknown_device_is_refused_with_the_table():
    with pytest.raises(InputError, match=r"--device RTX-4080: not in the table .*did you mean RTX-4090"):
        device_named("RTX-4080")
