"""LoRA (the method `lora`): an adapter of PEFT, tuned by the protocol of the other methods, in one process."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from model.device import device
from model.meta.ranks import Ranks
from model.prompt.passes import Passes
from model.tuning.fine_tuner import FineTuner
from model.tuning.lora import adapted_backbone, with_lora
from model.tuning.trainee import Trainee, prepared
from storage.atomic import write_bytes
from storage.prompts.weights_artifact import ADAPTER_KIND, describe_weights, read_adapter_description
from tasks.cards.tuned_card import tuned_card
from tasks.stage.contract import Record
from tasks.tune.evaluation import Evaluated, labeled
from tasks.tune.method_module import EvaluationJob, TuningJob
from tasks.weights.seeds import tuned_seeds

_CONFIG = "adapter_config.json"


@dataclass(frozen=True)
class LoraAdapter:
    """The matrices of a LoRA adapter as what is trained."""

    job: TuningJob
    ranks: Ranks

    def setting(self, name: str) -> Any:
        """Return a parameter of `tune.lora`."""
        return self.job.tuning.settings[f"tune.lora.{name}"]

    @property
    def micro_batch(self) -> int:
        """The most rows of one pass."""
        return int(self.setting("micro_batch") or self.job.tuning.batch_size)

    @property
    def in_less_memory(self) -> str:
        """The parameters that a user can change if memory runs out, in words."""
        return "lower tune.lora.micro_batch"

    def trainee(self, seed: int) -> Trainee:
        """Return the model with the matrices of the start: one random by the seed, the other zero."""
        model = with_lora(self.job.model, self.setting("rank"), self.setting("alpha"), seed)
        return prepared(model, device(), self.job.tuning.precision, self.ranks, recompute=False, reshard=False)

    def write(self, folder: Path, tuner: FineTuner, about: Record, digest: str) -> None:
        """Write the best matrices, which the tuner holds, as a folder that PEFT can load."""
        tuner.trainee.model.save_pretrained(folder)
        config = json.loads((folder / _CONFIG).read_bytes())
        config["target_modules"] = sorted(config["target_modules"])  # PEFT has a set
        config["base_model_name_or_path"] = about["backbone"]["source"]
        write_bytes(folder / _CONFIG, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())
        what = f"The folder holds a LoRA adapter of PEFT, of rank {self.setting('rank')}, for the attention layers"
        card = tuned_card(about["downstream"], "LoRA adapter", what)
        describe_weights(folder, about | {"tuned_hash": digest}, card, ADAPTER_KIND)


def tune(job: TuningJob) -> dict[str, Record]:
    """Tune every seed with every learning rate, one after the other."""
    return tuned_seeds(job, LoraAdapter(job, Ranks()))


def evaluate(job: EvaluationJob) -> Evaluated:
    """Label examples by the backbone with the adapter."""
    assert job.tuned is not None  # `tune` wrote it
    about = read_adapter_description(job.tuned)
    backbone = adapted_backbone(job.model, job.tuned, device(), about["downstream"]["precision"])
    nothing = torch.zeros(0, backbone.width)
    return labeled(Passes.for_tuning(backbone), job.words, nothing, job.examples, about["tuned_hash"])
