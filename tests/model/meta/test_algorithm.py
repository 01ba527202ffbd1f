"""Three meta steps of the trainer against ALGORITHM §3–5 written out with transformers' own forward pass.

Nothing of `model/` is used on the written-out side but the tasks: one example at a time, no padding, no chunks, the
derivative taken by autograd through everything. Tolerances are loose because transformers sums T5's layer norms in
float32, whatever the model's type.
"""

import math

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.meta.curriculum import Curriculum
from model.meta.meta_step import MixedTask, StepForm
from model.meta.objectives import MetaObjective
from model.meta.ranks import Ranks
from model.meta.trainer import Rates, Trainer
from model.prompt.passes import Passes
from model.prompt.regularizer import GradientRegularizer
from model.t5.backbone import backbone_of
from support.meta_examples import bart, hidden_of, loss_of, t5, task

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS, RATE, PHI_RATE, INNER, WEIGHT = 3, 0.1, 1e-2, 0.5, 2.0


class WrittenOut:
    """θ, φ (U, V, c, W, b by name) and s, moved by the algorithm's own words."""

    def __init__(self, model, theta, phi, order, inner, at, smoothing=0.0):
        self.model, self.order, self.inner, self.at, self.smoothing = model, order, inner, at, smoothing
        self.theta = theta.clone().requires_grad_()
        self.phi = {name: value.detach().clone().requires_grad_() for name, value in phi.items()}
        self.adam = torch.optim.Adam(
            [{"params": [self.theta], "lr": RATE}, {"params": list(self.phi.values()), "lr": PHI_RATE}]
        )
        self.s, self.done = -1.0, 0  # "s = −1 at the start"

    def b(self):
        return (2 ** ((1 + self.s) / 2) - 1) / (2 - 1)

    def support(self, prompt, examples):
        """The mean loss over examples, and H̄ over examples and positions."""
        states = [hidden_of(self.model, prompt, one) for one in examples]
        losses = [loss_of(self.model, state, one.target_ids) for state, one in zip(states, examples, strict=True)]
        return sum(losses) / len(losses), torch.cat(states).mean(0).detach()

    def query(self, prompt, own, partners, w):
        """H = w·H_i + (1−w)·H_j over zero-padded states; loss = w·CE(Y_i) + (1−w)·CE(Y_j)."""
        total = 0.0
        for one, other in zip(own, partners, strict=True):
            if w == 1:
                total = total + loss_of(self.model, hidden_of(self.model, prompt, one), one.target_ids)
                continue
            states = [hidden_of(self.model, prompt, example) for example in (one, other)]
            longest = max(map(len, states))
            ours, theirs = (torch.cat([s, s.new_zeros(longest - len(s), s.shape[1])]) for s in states)
            mixed = w * ours + (1 - w) * theirs
            total = total + w * loss_of(self.model, mixed, one.target_ids)
            total = total + (1 - w) * loss_of(self.model, mixed, other.target_ids)
        return total / len(own)

    def psi(self, g, h_bar):
        """ψφ(g) = z·h(g) + (1−z)·g; h(g) = g + U(Vg) + c, rescaled to the norm of its input, row by row."""
        if not self.phi:
            return g, None
        z = torch.sigmoid(self.phi["gate.weight"] @ h_bar + self.phi["gate.bias"])
        rows = []
        for row in g:
            h = row + self.phi["up"] @ (self.phi["down"] @ row) + self.phi["shift"]
            rows.append(z * (h / h.norm() * row.norm()) + (1 - z) * row)
        return torch.stack(rows), z

    def step(self, tasks):
        total, penalties, cosines, b = 0.0, [], [], self.b()
        for one in tasks:
            partners = one.partner.query if one.partner else one.task.query
            loss, h_bar = self.support(self.theta, one.task.support)
            (g,) = torch.autograd.grad(loss, self.theta, create_graph=True)
            if self.order == 1:  # "`order: 1` stops it there"
                g = g.detach()
            regulated, z = self.psi(g, h_bar)
            move = regulated / regulated.square().mean().sqrt() if self.inner == "rms" else regulated
            adapted = self.theta - INNER * move
            total = total + self.query(adapted, one.task.query, partners, one.share)
            where = (self.theta if self.at == "theta" else adapted).detach().requires_grad_()
            (q,) = torch.autograd.grad(self.query(where, one.task.query, partners, one.share), where)
            cosines.append(torch.cosine_similarity(q.flatten(), regulated.flatten(), dim=0).item())
            if z is not None:
                penalties.append((z - b).square().mean())
        penalty = WEIGHT * sum(penalties) / len(penalties) if penalties else torch.zeros(())
        of_theta = torch.autograd.grad(total, self.theta, retain_graph=True)
        of_phi = torch.autograd.grad(total + penalty, list(self.phi.values())) if self.phi else ()
        for held, found in (([self.theta], of_theta), (list(self.phi.values()), of_phi)):
            norm = math.sqrt(sum(float(one.square().sum()) for one in found))
            for value, one in zip(held, found, strict=True):
                value.grad = one * min(1.0, 1.0 / (norm + 1e-6))  # "norms … clipped to 1.0"
        for group, rate in zip(self.adam.param_groups, (RATE, PHI_RATE), strict=True):
            group["lr"] = rate * (1 - self.done / STEPS)  # "linear decay of both learning rates, no warm-up"
        self.adam.step()
        self.s = self.smoothing * self.s + (1 - self.smoothing) * float(np.mean(cosines))
        self.done += 1


def regularizer_of(width, gate):
    torch.manual_seed(1)
    regularizer = GradientRegularizer(width, 3, gate).double()
    with torch.no_grad():
        for parameter in regularizer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return regularizer


@pytest.mark.parametrize(
    ("order", "inner", "at", "gate", "mode", "smoothing"),
    [
        (2, "sgd", "theta", "vector", "curriculum", 0.0),  # the paper
        (1, "sgd", "theta_prime", "scalar", "curriculum", 0.5),  # the released code
        (2, "rms", "theta", "vector", "curriculum", 0.0),
        (2, "sgd", "theta", None, "curriculum", 0.0),  # without mgr
        (2, "rms", "theta_prime", "vector", "none", 0.0),  # without ta
    ],
)
@pytest.mark.parametrize("make", [lambda: t5(gated=True), bart], ids=["t5", "bart"])
def test_three_steps_are_those_written_out(make, order, inner, at, gate, mode, smoothing):
    model = make()
    backbone, chance = backbone_of(model), np.random.default_rng(5)
    theta = torch.from_numpy(chance.normal(size=(3, backbone.width)))
    regularizer = regularizer_of(backbone.width, gate) if gate else None
    written = WrittenOut(
        model, theta, dict(regularizer.named_parameters()) if regularizer else {}, order, inner, at, smoothing
    )
    form = StepForm(order, INNER, inner, at, WEIGHT)
    trainer = Trainer(
        MetaObjective(Passes(backbone, chunk_tokens=60), regularizer, form),
        theta,
        Curriculum(mode, smoothing=smoothing),
        Rates(RATE, PHI_RATE, STEPS),
        Ranks(),
    )
    labels = [((5, 6), (5, 7)), ((8,), (9, 10, 11))]
    for number in range(STEPS):
        pair = [task(chance, size=2, labels=labels[which]) for which in (0, 1)]
        b = written.b()
        w = 1.0 if mode == "none" or b < 1e-6 else float(np.random.default_rng(number).beta(1.0, b))
        assert trainer.curriculum.share(np.random.default_rng(number)) == pytest.approx(w, rel=1e-4)
        mixed = [MixedTask(one, pair[1 - which], w) for which, one in enumerate(pair)]
        trainer.train(mixed, 2)
        with sdpa_kernel(SDPBackend.MATH):  # what can be differentiated twice
            written.step(mixed)
        assert trainer.curriculum.similarity == pytest.approx(written.s, rel=1e-4)
    found = trainer.arrays()
    torch.testing.assert_close(torch.from_numpy(found.pop("prompt")), written.theta.detach(), rtol=1e-4, atol=1e-6)
    assert found.keys() == written.phi.keys()
    for name, value in written.phi.items():
        torch.testing.assert_close(torch.from_numpy(found[name]), value.detach(), rtol=1e-4, atol=1e-6)
