"""ψ starts at the identity, turns rows without stretching them, and has derivatives everywhere (ALGORITHM §4)."""

import pytest
import torch

from model.prompt.regularizer import GradientRegularizer, gate_loss


def moved(gate="vector", dtype=torch.float64):
    """A regularizer away from its start."""
    torch.manual_seed(3)
    regularizer = GradientRegularizer(8, 3, gate).to(dtype)
    with torch.no_grad():
        for parameter in regularizer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return regularizer


@pytest.mark.parametrize("gate", ["vector", "scalar"])
def test_it_is_the_identity_at_the_start_whatever_the_gates(gate):
    regularizer = GradientRegularizer(8, 3, gate).double()
    gradient = torch.randn(2, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(regularizer(gradient, regularizer.gates(torch.randn(2, 8).double())), gradient)
    torch.testing.assert_close(regularizer(gradient, torch.ones(2, 8).double()), gradient)


def test_h_is_affine_and_keeps_the_norm_of_each_row():
    regularizer = moved()
    gradient = torch.randn(2, 5, 8, dtype=torch.float64)
    with torch.no_grad():
        h = regularizer(gradient, torch.ones(2, 8).double())
    torch.testing.assert_close(h.norm(dim=-1), gradient.norm(dim=-1))
    up, down, shift = (regularizer.get_parameter(name).detach() for name in ("up", "down", "shift"))
    row = gradient[1, 2]
    affine = row + up @ (down @ row) + shift
    torch.testing.assert_close(h[1, 2], affine * row.norm() / affine.norm())
    assert not torch.allclose(h, gradient, rtol=0.1)


def test_a_gate_of_zero_leaves_the_gradient_and_gates_blend_each_dimension():
    regularizer = moved()
    gradient = torch.randn(1, 5, 8, dtype=torch.float64)
    with torch.no_grad():
        h = regularizer(gradient, torch.ones(1, 8).double())
        torch.testing.assert_close(regularizer(gradient, torch.zeros(1, 8).double()), gradient)
        z = torch.rand(1, 8, dtype=torch.float64)
        torch.testing.assert_close(regularizer(gradient, z), z * h + (1 - z) * gradient)


def test_each_task_has_gates_of_its_own():
    regularizer = moved()
    gradient = torch.randn(2, 5, 8, dtype=torch.float64)
    z = torch.stack([torch.zeros(8), torch.ones(8)]).double()
    with torch.no_grad():
        both = regularizer(gradient, z)
        torch.testing.assert_close(both[0], gradient[0])
        torch.testing.assert_close(both[1], regularizer(gradient[1:], z[1:])[0])


@pytest.mark.parametrize(("gate", "number"), [("vector", 8), ("scalar", 1)])
def test_gates_are_between_0_and_1_one_or_one_a_dimension_and_pass_no_gradient_to_the_hidden_states(gate, number):
    regularizer = moved(gate)
    hidden = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    gates = regularizer.gates(hidden)
    assert gates.shape == (3, number)
    assert ((gates > 0) & (gates < 1)).all()
    expected = torch.sigmoid(hidden @ regularizer.gate.weight.T + regularizer.gate.bias)
    torch.testing.assert_close(gates, expected)
    gates.sum().backward()
    assert hidden.grad is None
    assert regularizer.gate.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("start", [True, False])
def test_rows_of_zeros_have_finite_first_and_second_derivatives(start, dtype):
    regularizer = GradientRegularizer(8, 3).to(dtype) if start else moved(dtype=dtype)
    gradient = torch.randn(1, 4, 8, dtype=dtype)
    gradient[0, 1] = 0
    gradient.requires_grad_()
    gates = torch.full((1, 8), 0.5, dtype=dtype)
    towards = torch.randn(1, 4, 8, dtype=dtype)
    (first,) = torch.autograd.grad((regularizer(gradient, gates) * towards).sum(), gradient, create_graph=True)
    second = torch.autograd.grad((first * towards).sum(), [gradient, regularizer.up, regularizer.shift])
    for derivative in (first, *second):
        assert torch.isfinite(derivative).all()


def test_the_gate_loss_is_each_tasks_mean_squared_distance_from_b():
    gates = torch.tensor([[0.2, 0.6], [0.5, 0.5]])
    torch.testing.assert_close(gate_loss(gates, 0.5), torch.tensor([(0.09 + 0.01) / 2, 0.0]))


def test_a_regularizer_of_another_width_than_its_prompt_is_refused():
    import numpy as np

    from model.tuning.official import regularizer_of
    from storage.errors import InputError
    from storage.prompts.prompt_artifact import PromptArtifact

    held = {name: one.detach().numpy() for name, one in GradientRegularizer(6, 2).named_parameters()}
    artifact = PromptArtifact(np.zeros((3, 4), np.float32), held, {})
    with pytest.raises(InputError, match="for rows of 6 numbers, but the prompt's rows have 4"):
        regularizer_of(artifact)
