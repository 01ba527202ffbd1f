"""A meta step with the structure of the authors' released code, reimplemented.

Every row is padded to 412 tokens behind a prompt of 100, with loops over tasks and over micro-batches of 16 support and
8 query examples, transformers' T5 with eager attention, first order, query sets mixed with a partner's at the encoder's
hidden states, and the query gradient of the similarity taken at θ'. Where the released code departs from its paper (it
keeps only the last task's gradient and averages H over padding), this follows the paper.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from random_steps import B, Gradients, Problem
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from model.meta.meta_step import MixedTask, StepForm
from model.prompt.regularizer import gate_loss
from model.text.tokenized_tasks import Example

PADDED, SUPPORT_BATCH, QUERY_BATCH = 412, 16, 8  # as in the released code
SAME = StepForm(order=1, similarity_at="theta_prime")  # our step that must have the same numbers


def released_step(case: Problem) -> Gradients:
    """Take a step as the released code does: by tasks and micro-batches, with rows of full length, first order."""
    phi = dict(case.regularizer.named_parameters())
    total, of_phi = torch.zeros_like(case.prompt), [torch.zeros_like(one) for one in phi.values()]
    losses, similarities = [], []
    for mixed in case.tasks:
        theta = case.prompt.clone().requires_grad_()
        inner, hidden_mean = _support_gradient(case.model, theta, mixed.task.support)
        gates = case.regularizer.gates(hidden_mean[None])
        regulated = case.regularizer(inner[None], gates)[0]
        step = SAME.inner_rate * regulated
        adapted = (theta - step).detach().requires_grad_()
        loss, outer = _query_gradient(case.model, adapted, mixed)
        penalty = gate_loss(gates, B).sum() / len(case.tasks)
        gradients = torch.autograd.grad([step, penalty], list(phi.values()), [-outer, torch.ones_like(penalty)])
        total += outer
        of_phi = [one + more for one, more in zip(of_phi, gradients, strict=True)]
        losses.append(loss)
        similarities.append(cosine_similarity(outer.flatten(), regulated.detach().flatten(), dim=0, eps=1e-30))
    return Gradients(torch.stack(losses), torch.stack(similarities), total, dict(zip(phi, of_phi, strict=True)))


def _support_gradient(model: Any, theta: Tensor, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Return ∇θ of the mean loss [P, d], and the mean hidden state of the encoder over examples and positions [d]."""
    gradient, hidden_sum, positions = torch.zeros_like(theta), torch.zeros(theta.shape[1]), 0
    for at in range(0, len(examples), SUPPORT_BATCH):
        batch = examples[at : at + SUPPORT_BATCH]
        hidden, mask = _encoded(model, theta, batch)
        loss = _losses(model, hidden, mask, batch)[0].sum() / len(examples)
        gradient += torch.autograd.grad(loss, theta)[0]
        hidden_sum += (hidden.detach() * mask.unsqueeze(-1)).sum((0, 1))
        positions += int(mask.sum())
    return gradient, hidden_sum / positions


def _query_gradient(model: Any, theta: Tensor, mixed: MixedTask) -> tuple[Tensor, Tensor]:
    """Return the mean mixed loss and its gradient [P, d]."""
    assert mixed.partner is not None
    gradient, total, share = torch.zeros_like(theta), torch.zeros(()), mixed.share
    size = len(mixed.task.query)
    for at in range(0, size, QUERY_BATCH):
        own, theirs = mixed.task.query[at : at + QUERY_BATCH], mixed.partner.query[at : at + QUERY_BATCH]
        hidden, mask = _encoded(model, theta, own)
        other, other_mask = _encoded(model, theta, theirs)
        blend = share * hidden * mask.unsqueeze(-1) + (1 - share) * other * other_mask.unsqueeze(-1)
        of_own, of_theirs = _losses(model, blend, mask | other_mask, own, theirs)
        loss = (share * of_own + (1 - share) * of_theirs).sum() / size
        gradient += torch.autograd.grad(loss, theta)[0]
        total += loss.detach()
    return total, gradient


def _encoded(model: Any, theta: Tensor, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Return the hidden states [rows, P + 412, d] and their mask."""
    ids, mask = torch.zeros(len(examples), PADDED, dtype=torch.long), torch.zeros(len(examples), PADDED)
    for row, example in enumerate(examples):
        ids[row, : len(example.input_ids)] = torch.from_numpy(example.input_ids)
        mask[row, : len(example.input_ids)] = 1
    inputs = torch.cat([theta.expand(len(examples), -1, -1), model.get_input_embeddings()(ids)], 1)
    mask = torch.cat([torch.ones(len(examples), len(theta)), mask], 1)
    return model.get_encoder()(inputs_embeds=inputs, attention_mask=mask).last_hidden_state, mask.bool()


def _losses(model: Any, hidden: Tensor, mask: Tensor, *sets: Sequence[Example]) -> list[Tensor]:
    """Return the cross-entropy of each row [rows] for each of the sets, whose targets differ only in the last token."""
    targets = [torch.from_numpy(np.stack([example.target_ids for example in examples])).long() for examples in sets]
    read = torch.cat([torch.zeros_like(targets[0][:, :1]), targets[0][:, :-1]], 1)
    output = model(encoder_outputs=(hidden,), attention_mask=mask.long(), decoder_input_ids=read, use_cache=False)
    logits = output.logits.transpose(1, 2)
    return [cross_entropy(logits, wanted, reduction="none").sum(1) for wanted in targets]


def released_passes(case: Problem) -> None:
    """Make the passes through the backbone of the reference."""
    theta = case.prompt.clone().requires_grad_()
    for mixed in case.tasks:
        _support_gradient(case.model, theta, mixed.task.support)
        _query_gradient(case.model, theta, mixed)
