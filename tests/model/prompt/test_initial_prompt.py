"""A prompt starts at the scale of the backbone's embeddings, from its seed alone."""

import pytest
import torch

from model.prompt.initial_prompt import initial_prompt
from model.t5.backbone import backbone_of
from support.meta_examples import t5

FORMS = ["normal", "vocabulary"]


@pytest.fixture(scope="module")
def model():
    made = t5()
    with torch.no_grad():
        made.shared.weight.mul_(13)
    return made


def test_vocabulary_rows_are_rows_of_the_embeddings(model):
    prompt = initial_prompt(backbone_of(model), 30, "vocabulary", seed=1)
    same = (prompt[:, None] == model.shared.weight[None]).all(dim=-1)
    assert same.any(dim=1).all()
    assert same.any(dim=0).sum() > 10


def test_normal_rows_have_the_spread_of_the_embeddings(model):
    prompt = initial_prompt(backbone_of(model), 400, "normal", seed=1)
    table = model.shared.weight
    assert prompt.std().item() == pytest.approx(table.std().item(), rel=0.05)
    assert abs(prompt.mean().item()) < 0.1 * table.std().item()


@pytest.mark.parametrize("form", FORMS)
def test_the_seed_decides_and_nothing_else(model, form):
    backbone = backbone_of(model)
    torch.manual_seed(5)
    first = initial_prompt(backbone, 6, form, seed=1)
    torch.manual_seed(6)
    assert torch.equal(first, initial_prompt(backbone, 6, form, seed=1))
    assert not torch.equal(first, initial_prompt(backbone, 6, form, seed=2))
    assert first.shape == (6, backbone.width)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("weights", "prompt"), [("bfloat16", "float32"), ("float32", "float32"), ("float64",) * 2])
def test_it_is_float32_or_wider(form, weights, prompt):
    backbone = backbone_of(t5(dtype=getattr(torch, weights)))
    assert initial_prompt(backbone, 3, form, seed=0).dtype == getattr(torch, prompt)


@pytest.mark.parametrize("form", FORMS)
def test_changing_it_leaves_the_backbone_alone(model, form):
    before = model.shared.weight.clone()
    prompt = initial_prompt(backbone_of(model), 3, form, seed=0)
    assert prompt.is_leaf
    assert not prompt.requires_grad
    prompt.zero_()
    assert torch.equal(model.shared.weight, before)
