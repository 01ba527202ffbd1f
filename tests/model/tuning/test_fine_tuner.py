"""Training of weights: a plain PyTorch loop, and bfloat16 products beside float32 master weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from model.meta.ranks import Ranks
from model.t5.precision import Precision
from model.text.tokenized_tasks import pad
from model.tuning.fine_tuner import FineTuner
from model.tuning.runs import TuneForm, TuneRun
from model.tuning.trainee import prepared
from support.meta_examples import example, t5

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
LABELS = (np.array([5, 6], np.int32), np.array([5, 7], np.int32))
FORM = TuneForm(batch_size=4, epochs=3, evaluate_every=2)
RATE = 0.01


def model():
    return t5(dtype=torch.float32, tied=False)


def tuner(precision: Precision, rate=RATE):
    chance = np.random.default_rng(1)
    rows = [replace(example(chance, target=LABELS[one % 2]), label=one % 2) for one in range(16)]
    trainee = prepared(model(), CPU, precision, Ranks(), recompute=False, reshard=False)
    return FineTuner(trainee, TuneRun(torch.empty(0), rate, 1, rows[:10], rows[10:]), LABELS, FORM, 2, Ranks())


def losses(tuned):
    tuned.tune()
    return np.array([point.train_loss for point in tuned.result().curve[1:]])


def plain_losses(run):
    """Train with transformers' own loss and torch's AdamW; return the mean loss between evaluations."""
    plain = model()
    adam = torch.optim.AdamW(plain.parameters(), lr=RATE, weight_decay=FORM.weight_decay)
    means, between = [], []
    for step in range(run.steps(FORM)):
        batch = pad(run.batch(step, FORM), 0)
        ids, mask, labels = (torch.from_numpy(part).long() for part in (batch.input_ids, batch.mask, batch.target_ids))
        logits = plain(input_ids=ids, attention_mask=mask, labels=labels).logits
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / len(ids)
        adam.zero_grad()
        loss.backward()
        adam.step()
        between.append(loss.item())
        if (step + 1) % FORM.evaluate_every == 0 or step + 1 == run.steps(FORM):
            means.append(np.mean(between))
            between = []
    return np.array(means)


def test_it_is_a_plain_loop_with_adamw():
    tuned = tuner("float32")
    assert losses(tuned) == pytest.approx(plain_losses(tuned.run), rel=1e-4)


def test_bfloat16_computes_products_in_bfloat16_and_keeps_float32_master_weights():
    tuned, products = tuner("bfloat16"), []
    layer = tuned.trainee.model.encoder.block[0].layer[1].DenseReluDense.wi
    layer.register_forward_hook(lambda _layer, _inputs, output: products.append(output.dtype))
    low = losses(tuned)
    assert {*products} == {torch.bfloat16}
    assert {tensor.dtype for tensor in tuned.tensors().values()} == {torch.float32}
    assert {weight.dtype for weight in tuned.trainee.trained().values()} == {torch.float32}
    high = losses(tuner("float32"))
    assert low == pytest.approx(high, rel=0.05)
    assert not np.array_equal(low, high)


def test_steps_too_small_for_bfloat16_weights_are_not_lost():
    tuned = tuner("bfloat16", rate=1e-5)
    before = {name: weight.detach().clone() for name, weight in tuned.trainee.trained().items()}
    while not tuned.ended:
        tuned.descend()
    name = "encoder.block.0.layer.1.DenseReluDense.wi.weight"
    after = tuned.trainee.trained()[name].detach()
    moved = after != before[name]
    rounded = after.bfloat16() != before[name].bfloat16()
    assert moved.float().mean() > 0.9
    assert rounded.float().mean() < 0.5  # weights in bfloat16 would have stayed where they were
