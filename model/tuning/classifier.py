"""A classifier with a tuned prompt or prefixes: it predicts labels and their probabilities for texts."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

import numpy as np
import torch
from torch import Tensor

from model.device import device
from model.prompt.memory import halved, within_memory
from model.prompt.passes import Passes
from model.prompt.prediction import label_scores, label_tokens
from model.prompt.prefixes import PrefixPasses, PrefixShape
from model.t5.backbone import Backbone, load_backbone
from model.t5.precision import Precision, WantedPrecision, choose
from model.text.tokenization import TemplateTokenizer
from model.tuning.downstream import Downstream
from model.tuning.lora import adapted_backbone
from storage.errors import InputError
from storage.prompts.local_backbone import backbone_folder
from storage.prompts.prefix_artifact import PrefixArtifact, is_prefixes, read_prefixes
from storage.prompts.prompt_artifact import PromptArtifact, read_prompt
from storage.prompts.weights_artifact import (
    is_adapter,
    is_weights,
    kept_weights,
    read_adapter_description,
    refuse_classifier,
)

Texts = str | Sequence[str] | Mapping[str, str]
"""An example: its text, or all its texts, in order or by name, if the template has several fields."""


def _reader(
    artifact: PromptArtifact | PrefixArtifact, backbone: Backbone, folder: Path, where: Path
) -> tuple[Passes, Tensor]:
    """Return passes and the prompt [P, d] or the prefixes [P, W] that they take; raise InputError at a misfit."""
    if isinstance(artifact, PrefixArtifact):
        shape = PrefixShape.fitting(artifact, backbone, str(folder))
        return PrefixPasses.after(shape, backbone), shape.joined(artifact)
    if backbone.width != artifact.prompt.shape[1]:
        raise InputError(
            f"{where}: has the width {backbone.width}, and {folder} was tuned for one of {artifact.prompt.shape[1]}: "
            "give the backbone that it was tuned for"
        )
    return Passes.for_tuning(backbone), torch.from_numpy(np.array(artifact.prompt))


def _chosen(precision: WantedPrecision) -> Precision:
    """Return the precision for the device; warn if it is slow there."""
    if precision not in get_args(WantedPrecision):
        raise InputError(f"precision: {precision!r} should be one of {', '.join(get_args(WantedPrecision))}")
    choice = choose(precision, device())
    if choice.warning:
        warnings.warn(choice.warning, stacklevel=3)  # names the line that calls `from_pretrained`
    return choice.precision


@dataclass(frozen=True)
class Prediction:
    """The most likely label, and the probabilities of all labels, which sum to 1."""

    label: str
    probabilities: dict[str, float]


class PromptedClassifier:
    """A frozen backbone with a prompt or prefixes that were tuned for one task, or one whose weights were trained.

    Attributes:
        task: the task that the prompt was tuned for: labels, template, maximum length.
        precision: the precision of the backbone's products, "float32" or "bfloat16".
    """

    def __init__(self, task: Downstream, passes: Passes, prompt: Tensor, folder: Path) -> None:
        self.task = task
        self._tokenizer = TemplateTokenizer.from_folder(folder, task.max_length)
        self._label_ids = label_tokens(self._tokenizer, task.template)
        self._passes = passes
        backbone = passes.backbone
        self.precision = str(backbone.dtype).removeprefix("torch.")
        self._prompts = prompt.to(backbone.device, torch.promote_types(backbone.dtype, torch.float32))[None]

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        backbone: str | Path | None = None,
        *,
        any_backbone: bool = False,
        precision: WantedPrecision = "auto",
    ) -> "PromptedClassifier":
        """Load the classifier of a tuned prompt, prefixes, weights or adapter, like from artifacts/tuned/movies/supmer.

        Raise InputError if the folder is not a tuned prompt or the backbone does not fit it.

        Args:
            folder: the folder of a tuned prompt.
            backbone: the folder of the model it was tuned for; by default the backbone of the prompt's workspace.
                Trained weights take none.
            any_backbone: accept a backbone whose files differ from those that the prompt was tuned for.
            precision: of the backbone's products: "float32", "bfloat16", or "auto" for bfloat16 where the device
                computes in it. A UserWarning says what bfloat16 costs on a device without units for it.
        """
        folder = Path(folder)
        refuse_classifier(folder)
        if is_weights(folder):
            if backbone is not None:
                raise InputError(f"{folder}: holds trained weights, which need no other backbone: leave it out")
            task = Downstream.of(kept_weights(folder), folder)
            loaded = load_backbone(folder, device(), precision=_chosen(precision))
            return cls(task, Passes.for_tuning(loaded), torch.zeros(0, loaded.width), folder)
        if is_adapter(folder):
            about = read_adapter_description(folder)
            task = Downstream.of(about, folder)
            given = None if backbone is None else Path(backbone)
            where = backbone_folder(folder, about, given, any_backbone=any_backbone)
            loaded = adapted_backbone(where, folder, device(), _chosen(precision))
            return cls(task, Passes.for_tuning(loaded), torch.zeros(0, loaded.width), where)
        artifact = read_prefixes(folder) if is_prefixes(folder) else read_prompt(folder)
        task = Downstream.of(artifact.about, folder)
        backbone_path = None if backbone is None else Path(backbone)
        where = backbone_folder(folder, artifact.about, backbone_path, any_backbone=any_backbone)
        loaded = load_backbone(where, device(), precision=_chosen(precision))
        return cls(task, *_reader(artifact, loaded, folder, where), where)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels, in order."""
        return self.task.labels

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of an example's texts, in order."""
        return self.task.template.fields

    def predict(self, examples: Iterable[Texts]) -> list[Prediction]:
        """Return a prediction for each example, in order; raise InputError if an example lacks a text."""
        if isinstance(examples, str | Mapping):
            raise InputError("predict takes a list of examples: write predict([text])")
        rows = [self._texts(number, example) for number, example in enumerate(examples)]
        inputs = [np.array(encoded.ids, np.int32) for encoded in self._tokenizer.encode(self.task.template, rows)]
        scores = within_memory(
            lambda: label_scores(self._passes, self._prompts, [0] * len(inputs), inputs, self._label_ids),
            lambda: halved(self._passes, lambda _message: None),
        )
        if not np.isfinite(scores.log_probabilities).all():
            raise InputError("the backbone gives numbers that are not finite with this prompt: one of them is damaged")
        return [
            Prediction(self.labels[best], dict(zip(self.labels, map(float, row), strict=True)))
            for best, row in zip(scores.predicted, scores.probabilities, strict=True)
        ]

    def _texts(self, number: int, example: Texts) -> tuple[str, ...]:
        texts: tuple[str | None, ...]
        if isinstance(example, Mapping):
            texts = tuple(example.get(name) for name in self.fields)
        else:
            texts = (example,) if isinstance(example, str) or not isinstance(example, Sequence) else tuple(example)
        if len(texts) != len(self.fields) or not all(isinstance(text, str) and text.strip() for text in texts):
            raise InputError(f"texts[{number}]: should be {' and '.join(self.fields)}, as texts that are not empty")
        return cast("tuple[str, ...]", texts)
