"""Predictions for test examples after a tuned prompt, after demonstrations, or without either."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.prompt.memory import halved, within_memory
from model.prompt.passes import Passes
from model.prompt.prediction import LabelScores, label_scores
from model.text.demonstrations import Demonstration, DemonstrationPacker
from model.text.tokenized_tasks import Ids
from storage.hashing import json_hash
from storage.prompts.prompt_artifact import Array, theta_hash
from tasks.labeled.dataset import LabeledDataset, LabeledExample, few_shot_split
from tasks.tune.tokenized_form import TokenizedForm


@dataclass(frozen=True)
class Evaluated:
    """Predictions, and the hash of what preceded the examples: of θ, or of the demonstrations."""

    examples: Sequence[LabeledExample]
    scores: LabelScores
    tuned_hash: str

    @property
    def score(self) -> float:
        """The share of correct predictions."""
        return float((np.array([example.label for example in self.examples]) == self.scores.predicted).mean())

    def rows(self) -> list[dict[str, Any]]:
        """Return the predictions as rows of a table."""
        scores = self.scores
        predictions = zip(self.examples, scores.predicted.tolist(), scores.log_probabilities.tolist(), strict=True)
        return [
            {
                "example_id": example.example_id,
                "label": example.label,
                "predicted": predicted,
                "log_probabilities": likely,
                "tuned_hash": self.tuned_hash,
            }
            for example, predicted, likely in predictions
        ]


def with_prompt(passes: Passes, words: TokenizedForm, prompt: Array, examples: Sequence[LabeledExample]) -> Evaluated:
    """Label examples after a prompt [P, d]."""
    return labeled(passes, words, torch.from_numpy(prompt.copy()), examples, theta_hash(prompt))


def labeled(
    passes: Passes, words: TokenizedForm, prompt: Tensor, examples: Sequence[LabeledExample], tuned_hash: str
) -> Evaluated:
    """Label examples after a prompt [P, d], or with prefixes [P, W] if the passes take prefixes."""
    inputs = [example.input_ids for example in words.examples(examples)]
    return Evaluated(examples, _scores(passes, words, prompt, inputs), tuned_hash)


def with_nothing(passes: Passes, words: TokenizedForm, examples: Sequence[LabeledExample]) -> Evaluated:
    """Label examples with the template alone."""
    inputs = [example.input_ids for example in words.examples(examples)]
    return Evaluated(examples, _scores(passes, words, _no_prompt(passes), inputs), json_hash(["zero-shot"]))


def with_demonstrations(
    passes: Passes,
    words: TokenizedForm,
    source: LabeledDataset,
    draw: tuple[int, int],
    room: int,
    examples: Sequence[LabeledExample],
) -> Evaluated:
    """Label examples after demonstrations: the training examples of `source` for a draw (shots, seed).

    `room` is the number of tokens for everything together.
    """
    tokenizer = words.tokenizer.limited(room)
    shown = [Demonstration(example.texts, example.label) for example in few_shot_split(source, *draw).train]
    demonstrated = TokenizedForm.of(source.form, words.template.form, tokenizer).template
    packer = DemonstrationPacker(tokenizer, demonstrated, words.template, shown)
    inputs = [np.array(ids, np.int32) for ids in packer.encode([example.texts for example in examples])]
    content = json_hash([room, [[*example.texts, str(example.label)] for example in shown]])
    return Evaluated(examples, _scores(passes, words, _no_prompt(passes), inputs), content)


def _no_prompt(passes: Passes) -> Tensor:
    return torch.zeros(0, passes.backbone.width)


def _scores(passes: Passes, words: TokenizedForm, prompt: Tensor, inputs: Sequence[Ids]) -> LabelScores:
    prompts = prompt[None].to(passes.backbone.device)
    return within_memory(
        lambda: label_scores(passes, prompts, [0] * len(inputs), inputs, words.label_ids),
        lambda: halved(passes, lambda _line: None),
    )
