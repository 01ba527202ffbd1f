"""Tuning of prefixes: a plain PyTorch loop, runs together against one at a time, and resuming bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from model.prompt.prefixes import PrefixNetwork, PrefixPasses, PrefixShape, initial_prefixes
from model.t5.backbone import backbone_of
from model.t5.prefix_attention import PLACES
from model.tuning.runs import TuneForm, TuneRun
from model.tuning.tuner import Tuner, tune
from support.meta_examples import example, t5
from support.prefixed_t5 import prefixed

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENS, HIDDEN = 3, 5
LABELS = (np.array([5, 6], np.int32), np.array([5, 7], np.int32))
FORM = TuneForm(batch_size=4, epochs=3, evaluate_every=2)


def passes_of(model):
    backbone = backbone_of(model)
    return PrefixPasses(backbone, chunk_tokens=60, shape=PrefixShape.of(backbone, PLACES, "test"))


def examples(chance, count):
    return [replace(example(chance, target=LABELS[one % 2]), label=one % 2) for one in range(count)]


def make_run(passes, seed, rate=0.1, *, network=False):
    chance, width = np.random.default_rng(seed), passes.shape.width
    made = PrefixNetwork(TOKENS, HIDDEN, width) if network else None
    start = made.initial(seed) if made else initial_prefixes(TOKENS, width, seed)
    return TuneRun(start.double(), rate, seed, examples(chance, 10), examples(chance, 6), network=made)


def plain_loop(model, shape, run):
    """Train with torch's own modules and AdamW, example by example; return the losses and the final prefixes."""
    if run.network is None:
        trained = [torch.nn.Parameter(run.prompt.clone())]
        layers = lambda: trained[0]  # noqa: E731
    else:
        sizes = [TOKENS * HIDDEN, HIDDEN * HIDDEN, HIDDEN, shape.width * HIDDEN, shape.width]
        parts = torch.split(run.prompt.clone(), sizes)
        module = torch.nn.Sequential(
            torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, shape.width)
        ).double()
        embedding = torch.nn.Parameter(parts[0].view(TOKENS, HIDDEN).clone())
        with torch.no_grad():
            for parameter, part in zip(module.parameters(), parts[1:], strict=True):
                parameter.copy_(part.view_as(parameter))
        trained = [embedding, *module.parameters()]
        layers = lambda: module(embedding)  # noqa: E731
    adam = torch.optim.AdamW(trained, lr=run.learning_rate)
    losses = []
    for step in range(run.steps(FORM)):
        batch = run.batch(step, FORM)
        loss = 0
        for one in batch:
            ids, target = (torch.from_numpy(part).long()[None] for part in (one.input_ids, one.target_ids))
            with prefixed(model, shape.layers(layers())):
                logits = model(input_ids=ids, labels=target).logits
            loss = loss + cross_entropy(logits[0], target[0], reduction="sum") / len(batch)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses, layers().detach()


@pytest.mark.parametrize("network", [False, True])
def test_a_run_is_a_plain_loop_over_transformers_layers_with_torchs_adamw(network):
    model = t5()
    passes = passes_of(model)
    run = make_run(passes, 1, 0.05, network=network)
    tuner = Tuner(passes, [run], LABELS, FORM)
    losses = []
    while not tuner.ended:
        tuner.descend()
        losses = list(tuner.losses()[0])
    expected, prefixes = plain_loop(model, passes.shape, run)
    assert losses == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(tuner._courses[0].given(), prefixes, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("network", [False, True])
def test_runs_together_are_the_runs_one_at_a_time(network):
    passes = passes_of(t5())
    runs = [make_run(passes, seed, rate, network=network) for seed in (1, 2, 3) for rate in (0.01, 0.1)]
    alone = [one for run in runs for one in tune(passes, [run], LABELS, FORM)]
    for one, other in zip(tune(passes, runs, LABELS, FORM), alone, strict=True):
        assert one.prompt.shape == (TOKENS, passes.shape.width)
        torch.testing.assert_close(one.prompt, other.prompt, rtol=1e-7, atol=1e-7)
        assert (one.status, one.best.step) == (other.status, other.best.step)


@pytest.mark.parametrize("network", [False, True])
def test_a_resumed_run_goes_on_bit_for_bit(network):
    passes = passes_of(t5())
    runs = [make_run(passes, seed, network=network) for seed in (1, 2)] + [make_run(passes, 3, 1e200, network=network)]
    whole, first, second = (Tuner(passes, runs, LABELS, FORM) for _ in range(3))
    whole.tune()
    first.evaluate()
    for _ in range(4):
        first.advance()
    second.resume(*first.state())
    second.tune()
    for one, other in zip(second.results(), whole.results(), strict=True):
        assert torch.equal(one.prompt, other.prompt)
        assert (one.best, one.curve, one.steps, one.status) == (other.best, other.curve, other.steps, other.status)
