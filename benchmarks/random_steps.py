"""A meta step on random tokens: a frozen T5 with random weights, a prompt, ψφ unlike the identity, and mixed tasks."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import T5Config, T5ForConditionalGeneration

from model.meta.meta_step import MixedTask, StepForm, meta_gradients
from model.prompt.passes import Passes
from model.prompt.regularizer import GradientRegularizer
from model.t5.backbone import backbone_of
from model.text.tokenized_tasks import Example, Task

VOCABULARY, RANK = 32_128, 64
SHARE, B = 0.7, 0.3  # w of every mixture, and the target of the gates


@dataclass(frozen=True)
class Problem:
    """The input of a step; `model` is transformers', `passes` are ours with the same weights, `low` in bfloat16."""

    model: Any
    passes: Passes
    prompt: Tensor
    regularizer: GradientRegularizer
    tasks: list[MixedTask]
    low: Passes | None = None


@dataclass(frozen=True)
class Gradients:
    """The result of a step, ours or the reference's."""

    query_loss: Tensor
    similarity: Tensor
    prompt: Tensor
    regularizer: dict[str, Tensor]


def random_problem(
    shape: dict[str, Any], prompt_tokens: int, lengths: tuple[int, int], tasks: int, examples: int
) -> Problem:
    """Return a step whose prompt is of the vocabulary; each of the tasks is mixed with the next."""
    torch.manual_seed(0)
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **shape)
    model = T5ForConditionalGeneration(config).eval().requires_grad_(requires_grad=False)
    prompt = model.get_input_embeddings().weight[torch.randint(VOCABULARY, (prompt_tokens,))].clone()
    regularizer = GradientRegularizer(config.d_model, RANK)
    with torch.no_grad():
        regularizer.up.normal_(std=config.d_model**-0.5)
    chance = np.random.default_rng(0)
    made = [task_of(chance, lengths, examples) for _ in range(tasks)]
    mixed = [MixedTask(task, made[(number + 1) % tasks], SHARE) for number, task in enumerate(made)]
    return Problem(model, Passes(backbone_of(model)), prompt, regularizer, mixed)


def bfloat16_passes(case: Problem) -> Passes:
    """Return passes with the same weights in bfloat16."""
    return Passes(backbone_of(copy.deepcopy(case.model).to(torch.bfloat16)))


def task_of(chance: np.random.Generator, lengths: tuple[int, int], examples: int) -> Task:
    """Return a task of random tokens."""
    labels = tuple(np.array([VOCABULARY - 29, word], dtype=np.int32) for word in (4273, 150, 2087))

    def example(number: int) -> Example:
        ids = chance.integers(3, VOCABULARY - 100, chance.integers(*lengths, endpoint=True), dtype=np.int32)
        return Example("e", number % len(labels), ids, labels[number % len(labels)])

    support, query = (tuple(example(number) for number in range(examples)) for _ in range(2))
    return Task("t", "sp", "sp-next", labels, support, query)


def our_step(case: Problem, form: StepForm) -> Gradients:
    """Take a step with `model.meta.meta_step`."""
    result = meta_gradients(case.passes, case.prompt, case.regularizer, case.tasks, form, B)
    return Gradients(result.measures.query_loss, result.measures.similarity, result.prompt, result.regularizer)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds by the clock, and the processor time of all threads."""
    start, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - processor


def cosine(one: Tensor, other: Tensor) -> float:
    """Return the cosine between two tensors."""
    return float(cosine_similarity(one.flatten(), other.flatten(), dim=0))


def met(condition: bool) -> str:
    """Return the word for an aim that is met, or not."""
    return "met" if condition else "missed"
