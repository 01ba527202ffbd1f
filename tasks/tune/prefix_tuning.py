"""Prefix-Tuning and P-Tuning v2: trained keys and values before those of the backbone's attention layers.

Prefix-Tuning trains a network that gives the keys and values, and drops it afterwards. P-Tuning v2 trains them
directly. The settings of a method are those of its group in `tune`; the one with a `hidden_size` trains a network.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.prompt.passes import Passes
from model.prompt.prefixes import PrefixNetwork, PrefixPasses, PrefixShape, initial_prefixes
from model.t5.backbone import Backbone
from model.tuning.runs import Regularizer
from storage.prompts.prefix_artifact import PREFIXES, PrefixArtifact, prefixes_hash, read_prefixes, write_prefixes
from tasks.cards.tuned_card import tuned_card
from tasks.stage.contract import Record
from tasks.tune.evaluation import Evaluated, labeled
from tasks.tune.method_module import EvaluationJob, TuningJob
from tasks.tune.tuned_seeds import tuned_seeds


@dataclass(frozen=True)
class PrefixStart:
    """Random prefixes, or a random network that gives them, drawn by the seed of a run.

    Attributes:
        shape: the attention layers that have prefixes.
        tokens: P, the prefix positions.
        hidden: the hidden size of the network; None if keys and values are trained directly.
    """

    shape: PrefixShape
    tokens: int
    hidden: int | None = None

    def passes(self, passes: Passes) -> Passes:
        """Return passes of the same backbone with prefixes instead of prompts."""
        return PrefixPasses.after(self.shape, passes.backbone)

    def prompt(self, backbone: Backbone, seed: int) -> Tensor:
        """Return the keys and values [P, W], or the numbers of the network, at the start of a run."""
        network = self.network()
        start = network.initial(seed) if network else initial_prefixes(self.tokens, self.shape.width, seed)
        return start.to(backbone.device, torch.promote_types(backbone.dtype, torch.float32))

    def regularizer(self, _backbone: Backbone) -> Regularizer | None:
        """Return None: a regularizer is learned for the gradients of prompts."""
        return None

    def network(self) -> PrefixNetwork | None:
        """Return the network, if there is one."""
        return PrefixNetwork(self.tokens, self.hidden, self.shape.width) if self.hidden else None

    def hash(self, tuned: Tensor) -> str:
        """Return the hash of the file of some prefixes."""
        return prefixes_hash(self.shape.tensors(tuned))

    def write(self, folder: Path, tuned: Tensor, about: dict[str, Any]) -> None:
        """Write prefixes [P, W] as a folder that `supmer predict` can use."""
        places = ", ".join(_PLACE_NAMES[place] for place in self.shape.places)
        what = (
            f"`{PREFIXES}` holds keys and values at {self.tokens} positions before those of every layer: {places}.\n"
            "They get no relative position bias. They are for the attention layers"
        )
        write_prefixes(
            folder,
            PrefixArtifact(self.shape.tensors(tuned), about),
            tuned_card(about["downstream"], "Prefixes", what),
        )


_PLACE_NAMES = {
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
    "cross": "attention of the decoder to the encoder",
}


def tune(job: TuningJob) -> dict[str, Record]:
    """Tune seeds of one dataset together, each from its own random start."""
    settings = {key.rpartition(".")[2]: value for key, value in job.tuning.settings.items()}
    shape = PrefixShape.of(job.passes.backbone, settings["places"], job.start_name or f"tune: {job.tuning.method}")
    return tuned_seeds(job, PrefixStart(shape, settings["length"], settings.get("hidden_size")))


def evaluate(job: EvaluationJob) -> Evaluated:
    """Label examples with the tuned prefixes."""
    assert job.tuned is not None  # `tune` wrote it
    artifact = read_prefixes(job.tuned)
    shape = PrefixShape.fitting(artifact, job.passes.backbone, str(job.tuned))
    passes = PrefixPasses.after(shape, job.passes.backbone)
    return labeled(passes, job.words, shape.joined(artifact), job.examples, prefixes_hash(artifact.tensors))
