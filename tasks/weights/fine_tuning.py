"""Fine-tuning of all weights (the method `ft`), in one process or on several ranks."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch

from model.device import device, total_memory
from model.meta.ranks import Ranks
from model.prompt.passes import Passes
from model.prompt.prediction import LabelScores
from model.prompt.sizes import TRAINED_WEIGHT_BYTES
from model.t5.backbone import load_backbone, load_model
from model.tuning.fine_tuner import FineTuner
from model.tuning.trainee import Trainee, count_weights, prepared, whole
from storage.atomic import write_bytes
from storage.errors import InputError
from storage.prompts.weights_artifact import describe_weights, has_weights, kept_weights, read_weights
from tasks.cards.tuned_card import tuned_card
from tasks.labeled.dataset import LabeledExample
from tasks.methods import KEEP
from tasks.stage.contract import Record
from tasks.stage.torchrun import rank_count
from tasks.tune.evaluation import Evaluated, labeled
from tasks.tune.method_module import EvaluationJob, TuningJob
from tasks.tune.tokenized_form import TokenizedForm
from tasks.weights.seeds import tuned_seeds

SCORES = "test-scores.json"
_KEPT = ("The folder holds the weights, all trained,", "It is a model of its own, and needs no other backbone.")
_DROPPED = (
    "The weights were not kept: set `tune.fine_tuning.keep` to keep them. They were those",
    "Their scores are in the tables.",
    "There is nothing to predict with: the folder holds this description alone.",
)
_SHARE = 0.5  # of a GPU's memory that weights may take if activations are to fit beside them
_GIGA = 1e9
_OTHERS = (".safetensors", ".bin", ".h5", ".msgpack", ".onnx", ".pt", ".md", ".index.json")  # not of the tokenizer


@dataclass(frozen=True)
class AllWeights:
    """All weights of the backbone as what is trained."""

    job: TuningJob
    ranks: Ranks

    def setting(self, name: str) -> Any:
        """Return a parameter of `tune.fine_tuning`."""
        return self.job.tuning.settings[f"tune.fine_tuning.{name}"]

    @property
    def micro_batch(self) -> int:
        """The most rows of one pass."""
        return int(self.setting("micro_batch") or self.job.tuning.batch_size)

    @property
    def in_less_memory(self) -> str:
        """The parameters that a user can change if memory runs out, in words."""
        return "lower tune.fine_tuning.micro_batch, set tune.fine_tuning.gradient_checkpointing"

    def trainee(self, _seed: int) -> Trainee:
        """Return the model with the weights of the start, the same for every seed."""
        return prepared(
            load_model(self.job.model),
            device(),
            self.job.tuning.precision,
            self.ranks,
            recompute=self.setting("gradient_checkpointing"),
            reshard=self.setting("reshard_after_forward"),
        )

    def write(self, folder: Path, tuner: FineTuner, about: Record, digest: str) -> None:
        """Write the best weights, which the tuner holds, or else the label scores of the tests; every rank calls it."""
        keep = self.job.tests is None or self.job.tuning.settings[KEEP]
        weights = {name: whole(weight) for name, weight in tuner.trainee.trained().items()} if keep else {}
        scores = {} if keep else self._test_scores(tuner)
        if not self.ranks.first:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if keep:
            self._save(folder, weights)
        else:
            write_bytes(folder.parent / SCORES, orjson.dumps(scores))
        card = tuned_card(about["downstream"], "Fine-tuned weights", *(_KEPT if keep else _DROPPED))
        describe_weights(folder, about | {"tuned_hash": digest}, card)

    def _test_scores(self, tuner: FineTuner) -> dict[str, list[float]]:
        """Return the log-probabilities of the labels of every test example, by the hash of what the model reads."""
        found: dict[str, list[float]] = {}
        for test in self.job.tests or ():
            inputs = [example.input_ids for example in test.words.examples(test.examples)]
            rows = tuner.scores(inputs, test.words.label_ids).log_probabilities.tolist()
            found |= dict(zip(_keys(test.words, test.examples), rows, strict=True))
        return found

    def _save(self, folder: Path, weights: dict[str, torch.Tensor]) -> None:
        model = load_model(self.job.model)
        model.load_state_dict(weights, strict=False)  # a matrix with several names is there once
        model.save_pretrained(folder)
        for path in sorted(self.job.model.iterdir()):
            if path.is_file() and not path.name.endswith(_OTHERS) and not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)


def tune(job: TuningJob, ranks: Ranks | None = None) -> dict[str, Record]:
    """Fine-tune every seed with every learning rate, one after the other; under torchrun on all ranks together."""
    ranks = ranks or Ranks()
    if ranks.first:
        job.say(_memory(job, ranks))
    return tuned_seeds(job, AllWeights(job, ranks))


def ranks_for(payload: Record) -> int:
    """Return the number of ranks for a shard: as many as the user wants, one, or all GPUs if one is too small."""
    gpus = torch.cuda.device_count()
    if gpus and not payload["ranks"]:
        model = Path(payload["places"]["backbone"])
        return (
            1 if count_weights(model) * TRAINED_WEIGHT_BYTES < _SHARE * total_memory(torch.device("cuda", 0)) else gpus
        )
    return rank_count(payload["ranks"], gpus)


def tune_on_ranks(payload: Record, folder: Path, ranks: int) -> dict[str, Record]:
    """Fine-tune the seeds of a shard on several ranks."""
    from tasks.weights.torchrun import tune_on_ranks as tuned  # it imports this module

    return tuned(payload, folder, ranks)


def _memory(job: TuningJob, ranks: Ranks) -> str:
    """Return a line about the memory that tuning needs; raise InputError if it is more than there is."""
    weights, there = count_weights(job.model), total_memory(device())
    name, share = f"{job.tuning.dataset}/{job.tuning.method}", ranks.count if device().type == "cuda" else 1
    needed = weights * TRAINED_WEIGHT_BYTES / share
    line = f"{name}: {weights / 1e6:,.1f} million weights take {needed / _GIGA:,.1f} GB"
    where = "each GPU" if share > 1 else "this GPU" if device().type == "cuda" else "this machine"
    if needed > there:
        raise InputError(
            f"{line} with gradients and AdamW, and {where} has {there / _GIGA:,.1f} GB: take more GPUs or a smaller "
            "backbone, or leave ft out"
        )
    return f"{line} with gradients, AdamW and the best weights, besides activations; {where} has {there / _GIGA:,.1f}"


def evaluate(job: EvaluationJob) -> Evaluated:
    """Label examples with the weights, or take the labels that tuning found before the weights were dropped."""
    assert job.tuned is not None  # `tune` wrote it
    if not has_weights(job.tuned):
        return _stored(job, job.tuned)
    about = kept_weights(job.tuned)
    backbone = load_backbone(job.tuned, device(), precision=about["downstream"]["precision"])
    nothing = torch.zeros(0, backbone.width)
    return labeled(Passes.for_tuning(backbone), job.words, nothing, job.examples, about["tuned_hash"])


def _stored(job: EvaluationJob, folder: Path) -> Evaluated:
    stored = orjson.loads((folder.parent / SCORES).read_bytes())
    scores = np.array([stored[key] for key in _keys(job.words, job.examples)])
    return Evaluated(job.examples, LabelScores(scores, scores.argmax(axis=1)), read_weights(folder)["tuned_hash"])


def _keys(words: TokenizedForm, examples: Sequence[LabeledExample]) -> list[str]:
    """Return a key for each example; ids are those of a file's rows, which several test sets may share."""
    labels = b"".join(ids.tobytes() for ids in words.label_ids)
    return [hashlib.sha256(labels + example.input_ids.tobytes()).hexdigest() for example in words.examples(examples)]
