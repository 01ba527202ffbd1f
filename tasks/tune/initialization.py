"""The start of tuning: normal noise, random words of the vocabulary, or a learned prompt with its regularizer."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from model.prompt.initial_prompt import Initialization, initial_prompt
from model.t5.backbone import Backbone
from model.tuning.official import regularizer_of
from model.tuning.runs import Regularizer
from storage.errors import InputError
from storage.prompts.prompt_artifact import PromptArtifact, read_prompt
from tasks.methods import METHODS


@dataclass(frozen=True)
class Start:
    """θ and ψφ* at the start of every run of a method: a learned artifact, or an initialization by seed."""

    tokens: int
    initialization: Initialization = "normal"
    artifact: PromptArtifact | None = None

    def prompt(self, backbone: Backbone, seed: int) -> Tensor:
        """Return θ of a run, [P, d]."""
        if self.artifact is None:
            return initial_prompt(backbone, self.tokens, self.initialization, seed)
        return torch.from_numpy(self.artifact.prompt.copy()).to(backbone.device)

    def regularizer(self, backbone: Backbone) -> Regularizer | None:
        """Return ψφ*, frozen, or None if there is none."""
        regularizer = regularizer_of(self.artifact) if self.artifact else None
        return regularizer.to(backbone.device).requires_grad_(requires_grad=False) if regularizer else None


def read_start(method: str, tokens: int, prompts: Path, fields: int) -> Start:
    """Return the start of a method; a learned prompt is read from its folder in `prompts`."""
    row = METHODS[method]
    if row.start != "learned":
        return Start(tokens, cast("Initialization", row.start))
    folder = prompts / row.prompt_for(fields)
    artifact = read_prompt(folder)
    if len(artifact.prompt) != tokens:
        raise InputError(f"{folder}: has {len(artifact.prompt)} tokens, not metatrain.prompt_tokens = {tokens}")
    return Start(tokens, artifact=artifact)


def refuse_misfit(artifact: PromptArtifact, where: str, width: int, backbone: dict[str, str]) -> None:
    """Raise InputError if a prompt was learned for another backbone, by its width or its own description."""
    own = artifact.prompt.shape[1]
    if own != width:
        raise InputError(
            f"{where}: its rows have {own} numbers, the backbone {backbone['source']} takes {width}: "
            "give a prompt that was learned for this backbone"
        )
    learned = artifact.about.get("backbone")
    # An imported prompt may know its backbone only by name, or not at all.
    if isinstance(learned, dict) and learned.get("hash") and learned["hash"] != backbone["hash"]:
        raise InputError(
            f"{where}: was learned for {learned.get('source')} ({str(learned['hash'])[:12]}), the backbone here is "
            f"{backbone['source']} ({backbone['hash'][:12]}): a prompt fits the backbone it was learned for"
        )
