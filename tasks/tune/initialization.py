"""The start of tuning: normal noise, random words of the vocabulary, or a learned prompt with its regularizer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from model.prompt.initial_prompt import Initialization, initial_prompt
from model.prompt.passes import Passes
from model.t5.backbone import Backbone
from model.tuning.official import regularizer_of
from model.tuning.runs import Network, Regularizer
from storage.errors import InputError
from storage.prompts.prompt_artifact import PromptArtifact, read_prompt, refuse_other_backbone, theta_hash, write_prompt
from tasks.cards.tuned_card import tuned_card
from tasks.methods import METHODS


class TuningStart(Protocol):
    """The start of every run of a method, and the form in which its result is kept."""

    def passes(self, passes: Passes) -> Passes:
        """Return passes that read what is tuned."""

    def prompt(self, backbone: Backbone, seed: int) -> Tensor:
        """Return the numbers that a run trains, as they are at its start."""

    def regularizer(self, backbone: Backbone) -> Regularizer | None:
        """Return ψφ*, frozen, or None if there is none."""

    def network(self) -> Network | None:
        """Return the network that gives what the backbone gets; None if that is trained itself."""

    def hash(self, tuned: Tensor) -> str:
        """Return the hash of what was tuned, as its file would have it."""

    def write(self, folder: Path, tuned: Tensor, about: dict[str, Any]) -> None:
        """Write what was tuned to a folder, with its description and card."""


@dataclass(frozen=True)
class Start:
    """θ and ψφ* at the start of every run of a method: a learned artifact, or an initialization by seed."""

    tokens: int
    initialization: Initialization = "normal"
    artifact: PromptArtifact | None = None

    def passes(self, passes: Passes) -> Passes:
        """Return the passes as they are: they put prompts before the input."""
        return passes

    def prompt(self, backbone: Backbone, seed: int) -> Tensor:
        """Return θ of a run, [P, d]."""
        if self.artifact is None:
            return initial_prompt(backbone, self.tokens, self.initialization, seed)
        return torch.from_numpy(self.artifact.prompt.copy()).to(backbone.device)

    def regularizer(self, backbone: Backbone) -> Regularizer | None:
        """Return ψφ*, frozen, or None if there is none."""
        regularizer = regularizer_of(self.artifact) if self.artifact else None
        return regularizer.to(backbone.device).requires_grad_(requires_grad=False) if regularizer else None

    def network(self) -> Network | None:
        """Return None: a prompt is trained itself."""
        return None

    def hash(self, tuned: Tensor) -> str:
        """Return the hash of the file of θ."""
        return theta_hash(tuned.cpu().numpy())

    def write(self, folder: Path, tuned: Tensor, about: dict[str, Any]) -> None:
        """Write a prompt as a folder that `supmer predict` can use."""
        tokens, width = tuned.shape
        rows = f"{tokens} rows of {width} numbers"
        what = f"`prompt.safetensors` is θ, {rows} to stand before the encoder's input embeddings"
        card = tuned_card(about["downstream"], "Soft prompt", what)
        write_prompt(folder, PromptArtifact(tuned.cpu().numpy(), {}, about), card)


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
    refuse_other_backbone(artifact.about, where, backbone)
