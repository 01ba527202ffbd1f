"""Prompt tuning: one run against a plain PyTorch loop, many runs together against one at a time, dead ends apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from model.prompt.passes import Passes
from model.prompt.regularizer import GradientRegularizer
from model.t5.backbone import backbone_of
from model.tuning.official import ReleasedRegularizer
from model.tuning.runs import Point, Tuned, TuneForm, TuneRun, best_rate
from model.tuning.tuner import Tuner, grouped, tune
from support.meta_examples import bart, example, t5

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENS = 3
LABELS = (np.array([5, 6], np.int32), np.array([5, 7], np.int32), np.array([5, 8, 9], np.int32))
FORM = TuneForm(batch_size=4, epochs=3, evaluate_every=2)


def examples(chance, count):
    made = []
    for number in range(count):
        label = number % len(LABELS)
        made.append(replace(example(chance, target=LABELS[label]), label=label))
    return made


def make_run(backbone, seed, rate=0.1, regularizer=None, train=10, validation=7):
    chance, noise = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    prompt = torch.randn(TOKENS, backbone.width, generator=noise, dtype=torch.float64)
    return TuneRun(prompt, rate, seed, examples(chance, train), examples(chance, validation), regularizer)


def regularizer_of(width, kind=GradientRegularizer):
    torch.manual_seed(3)
    made = kind(width, 4) if kind is GradientRegularizer else kind(width, 4, 2, 6)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.5)
    return made.double()


def listening(**form):
    """A random T5 whose answers depend on what its encoder reads."""
    model = t5(**form)
    with torch.no_grad():
        for block in model.decoder.block:
            for layer in (block.layer[1].EncDecAttention.v, block.layer[1].EncDecAttention.o):
                layer.weight.mul_(20)
    return model


def passes_of(model, *, fast=True):
    return Passes(backbone_of(model, fast=fast), chunk_tokens=60)


def loss_by_hand(model, prompt, one, target):
    """The loss of one example alone, and the encoder's hidden states, through transformers' own forward pass."""
    ids, target = torch.from_numpy(one.input_ids).long(), torch.from_numpy(target).long()
    inputs = torch.cat([prompt, model.get_input_embeddings()(ids)])[None]
    output = model(inputs_embeds=inputs, labels=target[None])
    return cross_entropy(output.logits[0], target, reduction="sum"), output.encoder_last_hidden_state[0]


def plain_loop(model, run, form):
    """A PyTorch loop over one run, example by example, with torch's AdamW; its evaluations and its best prompt."""
    theta = torch.nn.Parameter(run.prompt.clone())
    adam = torch.optim.AdamW([theta], lr=run.learning_rate)
    points, best, best_theta = [], None, None
    for step in range(1, run.steps(form) + 1):
        batch = run.batch(step - 1, form)
        found = [loss_by_hand(model, theta, one, one.target_ids) for one in batch]
        adam.zero_grad()
        (sum(loss for loss, _ in found) / len(batch)).backward()
        if run.regularizer is not None:
            hidden_mean = torch.cat([hidden for _, hidden in found]).mean(0).detach()
            with torch.no_grad():
                gates = run.regularizer.gates(hidden_mean[None])
                theta.grad = run.regularizer(theta.grad[None], gates)[0]
        adam.step()
        if step % form.evaluate_every == 0 or step == run.steps(form):
            with torch.no_grad():
                likely = -torch.tensor(
                    [[loss_by_hand(model, theta, one, ids)[0] for ids in LABELS] for one in run.validation]
                )
            labels = torch.tensor([one.label for one in run.validation])
            score = float((likely.argmax(1) == labels).double().mean())
            loss = float(-likely[torch.arange(len(labels)), labels].mean())
            points.append((step, score, loss))
            if best is None or (score, -loss) > best:
                best, best_theta = (score, -loss), theta.detach().clone()
    return points, best_theta


@pytest.mark.parametrize(
    ("which", "kind"),
    [("fast", GradientRegularizer), ("fast", ReleasedRegularizer), ("generic", None), ("bart", GradientRegularizer)],
)
def test_a_run_is_a_plain_loop_with_torchs_adamw(which, kind):
    model = bart() if which == "bart" else listening(gated=True)
    passes = passes_of(model, fast=which == "fast")
    regularizer = None if kind is None else regularizer_of(passes.backbone.width, kind)
    run = make_run(passes.backbone, 1, 0.3, regularizer)
    (found,) = tune(passes, [run], LABELS, FORM)
    points, best = plain_loop(model, run, FORM)
    assert found.steps == 9
    assert [(one.step, one.validation_score) for one in found.curve[1:]] == [one[:2] for one in points]
    assert [one.validation_loss for one in found.curve[1:]] == pytest.approx([one[2] for one in points], rel=1e-6)
    torch.testing.assert_close(found.prompt, best, rtol=1e-6, atol=1e-6)


def many_runs(backbone):
    """Two methods with a regularizer, one without; three seeds and two rates each; sets of different sizes."""
    ours, theirs = (regularizer_of(backbone.width, kind) for kind in (GradientRegularizer, ReleasedRegularizer))
    return [
        make_run(backbone, seed, rate, regularizer, train=8 + seed)
        for regularizer in (ours, theirs, None)
        for seed in (1, 2, 6)
        for rate in (0.05, 0.3)
    ]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.prompt, other.prompt, rtol=1e-7, atol=1e-7)
        assert (one.status, one.steps, one.best.step) == (other.status, other.steps, other.best.step)
        assert [point.validation_loss for point in one.curve] == pytest.approx(
            [point.validation_loss for point in other.curve], rel=1e-9
        )
        assert [point.train_loss for point in one.curve[1:]] == pytest.approx(
            [point.train_loss for point in other.curve[1:]], rel=1e-9
        )


def test_runs_together_are_the_runs_one_at_a_time_whatever_the_groups():
    passes = passes_of(listening())
    runs = many_runs(passes.backbone)
    alone = [one for run in runs for one in tune(passes, [run], LABELS, FORM)]
    assert len({float(one.prompt.sum()) for one in alone}) == len(runs)
    for group_bytes in (1 << 30, 5 * 9 * TOKENS * 16 * 8):
        assert_same(tune(passes, runs, LABELS, FORM, group_bytes), alone)


def test_groups_are_of_like_size_and_within_the_bytes():
    runs = many_runs(passes_of(listening()).backbone)
    each = 9 * TOKENS * 16 * 8
    assert [len(group) for group in grouped(runs, 8 * each)] == [6, 6, 6]
    assert [len(group) for group in grouped(runs, 1)] == [1] * 18
    assert grouped([]) == []


def test_examples_come_in_another_order_each_epoch_and_for_each_seed_and_each_once():
    run = make_run(passes_of(listening()).backbone, 1)

    def epoch(one, number):
        return [id(example) for step in range(3) for example in one.batch(3 * number + step, FORM)]

    assert [len(run.batch(step, FORM)) for step in range(3)] == [4, 4, 2]
    assert {*epoch(run, 0)} == {*epoch(run, 1)} == {id(example) for example in run.train}
    orders = [epoch(run, 0), epoch(run, 1), epoch(replace(run, seed=2), 0), epoch(replace(run, seed=-2), 0)]
    assert len({tuple(order) for order in orders}) == 4
    assert epoch(replace(run, learning_rate=9), 0) == epoch(run, 0)


def test_a_run_that_becomes_nan_keeps_its_best_and_does_not_harm_the_others():
    passes = passes_of(listening())
    good = [make_run(passes.backbone, seed, 0.1) for seed in (1, 2)]
    wild = make_run(passes.backbone, 3, 1e200)
    broken = replace(wild, prompt=torch.full_like(wild.prompt, torch.inf))
    first, nan, born_dead, second = tune(passes, [good[0], wild, broken, good[1]], LABELS, FORM)
    assert (nan.status, born_dead.status) == ("nan", "nan")
    assert first.status != "nan"
    assert nan.steps < 9
    assert born_dead.steps == 0
    assert torch.isfinite(nan.prompt).all()
    assert_same([first, second], tune(passes, good, LABELS, FORM))


def test_a_run_that_gives_every_example_the_same_label_is_collapsed():
    passes = passes_of(listening())
    dull = replace(make_run(passes.backbone, 1, 1e-12), validation=[])
    chance = np.random.default_rng(0)
    same = [replace(one, input_ids=np.array([4, 9, 11], np.int32)) for one in examples(chance, 6)]
    collapsed, lively = tune(passes, [replace(dull, validation=same), make_run(passes.backbone, 3, 0.5)], LABELS, FORM)
    assert collapsed.status == "collapsed"
    assert collapsed.best.validation_score == pytest.approx(1 / 3)
    assert {point.labels for point in collapsed.curve} == {1}
    assert lively.status == "ok"


@pytest.mark.parametrize("stop", [1, 4, 8])
def test_a_resumed_run_goes_on_bit_for_bit(stop):
    passes = passes_of(listening())
    runs = [*many_runs(passes.backbone)[:5], make_run(passes.backbone, 3, 1e200)]
    whole = Tuner(passes, runs, LABELS, FORM)
    whole.tune()
    first = Tuner(passes, runs, LABELS, FORM)
    first.evaluate(first._courses)
    for _ in range(stop):
        first.advance()
    arrays, rest = first.state()
    second = Tuner(passes, runs, LABELS, FORM)
    second.resume(arrays, rest)
    second.tune()
    for one, other in zip(second.results(), whole.results(), strict=True):
        assert torch.equal(one.prompt, other.prompt)
        assert (one.best, one.curve, one.steps, one.status) == (other.best, other.curve, other.steps, other.status)


def test_the_best_checkpoint_has_the_highest_score_and_among_equals_the_lowest_loss():
    point = Point(10, 0.0, 0.5, 0.75, 2)
    assert point.beats(None)
    assert replace(point, validation_score=0.8, validation_loss=9.0).beats(point)
    assert replace(point, validation_loss=0.4).beats(point)
    assert not replace(point, step=20).beats(point)


def test_the_rate_is_chosen_by_validation_and_one_that_became_nan_last():
    def tuned(score, loss=1.0, status="ok"):
        return Tuned(torch.zeros(1, 1), Point(1, None, loss, score, 2), (), 1, status)

    assert best_rate([tuned(0.5), tuned(0.7), tuned(0.7)]) == 1
    assert best_rate([tuned(0.7), tuned(0.7, 0.5)]) == 1
    assert best_rate([tuned(0.9, status="nan"), tuned(0.2)]) == 1
    assert best_rate([tuned(0.9, status="nan")]) == 0


def test_memory_that_runs_out_only_makes_chunks_smaller(monkeypatch):
    passes = passes_of(listening())
    runs = many_runs(passes.backbone)[:3]
    expected = tune(passes, runs, LABELS, FORM)
    passes.chunk_tokens = 1000
    plain = Passes.losses

    def scarce(self, prompts, rows):
        if len(rows) > 10:
            raise torch.OutOfMemoryError
        return plain(self, prompts, rows)

    monkeypatch.setattr(Passes, "losses", scarce)
    found = tune(passes, runs, LABELS, FORM)
    assert passes.chunk_tokens < 1000
    assert_same(found, expected)
