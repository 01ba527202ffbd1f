"""The fast path of the T5 family gives the numbers of transformers' own forward pass."""

import numpy as np
import pytest
import torch
from transformers import MT5Config, MT5ForConditionalGeneration

from model.meta.meta_step import MixedTask, StepForm, meta_gradients
from model.prompt.passes import Passes
from model.prompt.regularizer import GradientRegularizer
from model.prompt.rows import Row
from model.t5.backbone import HuggingFaceBackbone, backbone_of
from model.t5.fast_t5 import FastT5
from storage.errors import InputError
from support.meta_examples import SHAPE, bart, example, t5, task

pytestmark = pytest.mark.usefixtures("one_thread")

LABELS = [(5, 6), (7,), (8, 9, 10), (5, 6, 7, 8, 9)]


def mt5():
    torch.manual_seed(1)
    config = MT5Config(**SHAPE, decoder_start_token_id=0, pad_token_id=0)
    model = MT5ForConditionalGeneration(config)
    with torch.no_grad():
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.3)
    return model.double().eval()


MODELS = {
    "v1.0": t5,
    "v1.0 with its own output layer": lambda: t5(tied=False),
    "gated": lambda: t5(gated=True, tied=False),
    "gated with a shared output layer": lambda: t5(gated=True),
    "unequal depths": lambda: t5(num_layers=1, num_decoder_layers=3),
    "heads narrower than the width": lambda: t5(d_kv=2, num_heads=3),
    "mt5": mt5,
}


def rows_of(chance, lengths, prompts=2):
    """Rows of several lengths and target lengths, every third one mixed."""
    return [
        Row(
            example(chance, length=n, target=LABELS[number % 4]),
            number % prompts,
            0.3,
            example(chance, target=LABELS[(number + 1) % 4]) if number % 3 == 0 else None,
            0.6 if number % 3 == 0 else 1.0,
        )
        for number, n in enumerate(lengths)
    ]


def compared(model, rows, prompts, tolerance):
    """Tolerances are 1e-6 at best: transformers sums T5's layer norms in float32, whatever the model's type."""
    fast, generic = backbone_of(model), backbone_of(model, fast=False)
    assert isinstance(fast, FastT5)
    assert isinstance(generic, HuggingFaceBackbone)
    found, expected = (Passes(one, chunk_tokens=120).run(prompts, rows) for one in (fast, generic))
    assert expected.gradients.abs().max() > 1e-3
    for part in ("losses", "gradients", "hidden_mean"):
        torch.testing.assert_close(getattr(found, part), getattr(expected, part), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_losses_gradients_and_hidden_states_are_transformers_own(name):
    chance = np.random.default_rng(0)
    prompts = torch.from_numpy(chance.normal(size=(2, 4, 16)))
    compared(MODELS[name](), rows_of(chance, [3, 9, 5, 12, 7]), prompts, 1e-6)


@pytest.mark.parametrize("gated", [False, True])
def test_in_float32_they_agree_to_1e_5(gated):
    chance = np.random.default_rng(1)
    prompts = torch.from_numpy(chance.normal(size=(2, 4, 16)).astype(np.float32))
    compared(t5(gated=gated, dtype=torch.float32), rows_of(chance, [3, 9, 5, 12]), prompts, 1e-5)


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [
        ({"relative_attention_max_distance": 20, "relative_attention_num_buckets": 8}, [70, 30]),
        ({}, [300, 12]),  # T5's own 32 buckets up to a distance of 128
    ],
)
def test_inputs_longer_than_the_farthest_bucket_agree(shape, lengths):
    chance = np.random.default_rng(2)
    prompts = torch.from_numpy(chance.normal(size=(2, 4, 16)))
    compared(t5(**shape), rows_of(chance, lengths), prompts, 1e-6)


def test_targets_longer_than_the_farthest_bucket_agree():
    chance = np.random.default_rng(3)
    model = t5(relative_attention_max_distance=10, relative_attention_num_buckets=6)
    prompts = torch.from_numpy(chance.normal(size=(1, 4, 16)))
    compared(model, [Row(example(chance, target=chance.integers(3, 50, 25)), 0, 1.0)], prompts, 1e-6)


def test_a_short_input_after_a_long_one_has_its_own_position_bias():
    chance = np.random.default_rng(4)
    model, prompts = t5(), torch.from_numpy(chance.normal(size=(1, 4, 16)))
    short = [Row(example(chance, length=5), 0, 1.0)]
    backbone = backbone_of(model)
    fresh = Passes(backbone_of(model)).losses_of(prompts, short)
    Passes(backbone).losses_of(prompts, [Row(example(chance, length=50), 0, 1.0)])
    torch.testing.assert_close(Passes(backbone).losses_of(prompts, short), fresh)


@pytest.mark.parametrize("gated", [False, True])
def test_bfloat16_weights_agree_loosely_and_the_prompt_stays_float32(gated):
    chance = np.random.default_rng(5)
    prompts = torch.from_numpy(chance.normal(size=(2, 4, 16)).astype(np.float32))
    rows = rows_of(chance, [3, 9, 5, 12])
    exact = Passes(backbone_of(t5(gated=gated, dtype=torch.float32))).run(prompts, rows)
    low = t5(gated=gated, dtype=torch.float32).to(torch.bfloat16)
    for fast in (True, False):
        found = Passes(backbone_of(low, fast=fast)).run(prompts, rows)
        assert found.losses.dtype == found.gradients.dtype == torch.float32
        torch.testing.assert_close(found.losses, exact.losses, rtol=0.03, atol=0.03)
        cosine = torch.cosine_similarity(found.gradients.flatten(), exact.gradients.flatten(), dim=0)
        assert cosine > 0.98
        assert found.gradients.norm() == pytest.approx(exact.gradients.norm().item(), rel=0.1)


@pytest.mark.parametrize("fast", [True, False])
def test_second_order_steps_run_in_bfloat16(fast):
    chance = np.random.default_rng(6)
    mixed, prompt = [MixedTask(task(chance))], torch.from_numpy(chance.normal(size=(4, 16)).astype(np.float32))
    passes = Passes(backbone_of(t5(dtype=torch.float32).to(torch.bfloat16), fast=fast))
    found = meta_gradients(passes, prompt, GradientRegularizer(16, 2), mixed, StepForm(inner_rate=5.0))
    assert found.prompt.dtype == torch.float32
    assert torch.isfinite(found.prompt).all()


@pytest.mark.parametrize("order", [1, 2])
def test_other_families_run_in_bfloat16_with_norms_in_float32(order):
    chance = np.random.default_rng(8)
    mixed, prompt = [MixedTask(task(chance))], torch.from_numpy(chance.normal(size=(4, 8)).astype(np.float32))
    form = StepForm(inner_rate=0.1, order=order)
    wide, low = (
        meta_gradients(Passes(backbone_of(bart(dtype))), prompt, None, mixed, form).prompt
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert low.dtype == torch.float32
    assert torch.cosine_similarity(low.flatten(), wide.flatten(), dim=0) > 0.98


def test_more_positions_than_a_model_has_are_refused():
    chance = np.random.default_rng(9)
    passes, rows = Passes(backbone_of(bart(torch.float32))), [Row(example(chance, length=62), 0, 1.0)]
    with pytest.raises(InputError, match="reads at most 64 positions, and prompt and text take 66"):
        passes.losses_of(torch.zeros(1, 4, 8), rows)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("keep_graph", [True, False])
def test_recomputing_activations_changes_neither_losses_nor_gradients_nor_second_order_steps(fast, keep_graph):
    chance = np.random.default_rng(7)
    model = t5(gated=True)
    prompts = torch.from_numpy(chance.normal(size=(2, 4, 16)))
    rows = rows_of(chance, [3, 9, 5, 12])
    plain, saving = (backbone_of(model, fast=fast, recompute=recompute) for recompute in (False, True))
    expected, found = (Passes(one, chunk_tokens=60).run(prompts, rows) for one in (plain, saving))
    torch.testing.assert_close(found.losses, expected.losses)
    torch.testing.assert_close(found.gradients, expected.gradients)
    first, second = task(chance), task(chance)
    mixed, form = [MixedTask(first, second, 0.4)], StepForm(inner_rate=5.0, keep_graph=keep_graph)
    regularizer = GradientRegularizer(16, 2).double()
    wanted, steps = (meta_gradients(Passes(one), prompts[0], regularizer, mixed, form, 0.3) for one in (plain, saving))
    torch.testing.assert_close(steps.prompt, wanted.prompt)
    for name, value in wanted.regularizer.items():
        torch.testing.assert_close(steps.regularizer[name], value)


def test_recomputing_really_runs_layers_again(monkeypatch):
    chance = np.random.default_rng(8)
    prompts, rows = torch.from_numpy(chance.normal(size=(1, 4, 16))), [Row(example(chance), 0, 1.0)]
    calls = []
    original = FastT5._encoder_layer
    monkeypatch.setattr(FastT5, "_encoder_layer", lambda *given: calls.append(1) or original(*given))
    Passes(backbone_of(t5())).run(prompts, rows)
    once, calls[:] = len(calls), []
    Passes(backbone_of(t5(), recompute=True)).run(prompts, rows)
    assert (once, len(calls)) == (2, 4)


def test_another_family_takes_the_generic_path():
    chance = np.random.default_rng(9)
    backbone = backbone_of(bart())
    assert isinstance(backbone, HuggingFaceBackbone)
    prompts = torch.from_numpy(chance.normal(size=(2, 4, 8)))
    found = Passes(backbone).run(prompts, rows_of(chance, [3, 9, 5]))
    assert (found.losses > 0).all()
    assert found.gradients.abs().amax((1, 2)).min() > 0
