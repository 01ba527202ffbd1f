"""An encoder-decoder whose weights are trained, as a backbone for the passes; on one device, or sharded over ranks."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from model.meta.ranks import Ranks
from model.t5.backbone import refuse_too_long, special_ids
from model.t5.precision import Precision, weights_dtype
from storage.errors import UNLOADABLE, InputError, first_line

Result = TypeVar("Result")


class Trainee(torch.nn.Module):
    """A transformers model with float32 weights, which keeps to `eval()` mode: nothing is dropped out.

    It is a `model.t5.backbone.Backbone`. The parameters that require a gradient are trained.

    Attributes:
        dtype: the type of products; if it is bfloat16, passes compute under autocast.
    """

    def __init__(self, model: Any, device: torch.device, precision: Precision) -> None:
        super().__init__()
        self.model = model.eval()
        self.width: int = model.get_input_embeddings().weight.shape[1]
        self.vocabulary: int = model.get_output_embeddings().weight.shape[0]
        self.device = device
        self.dtype = weights_dtype(precision)
        self.start_id, self.pad_id = special_ids(model.config)
        self.side_by_side = False

    def forward(self, work: Callable[[], Result]) -> Result:
        """Return `work()`; FSDP has the weights ready inside a forward pass only, so every pass goes through here."""
        return work()

    def run(self, work: Callable[[], Result]) -> Result:
        """Return `work()`, which may use the backbone."""
        return cast("Result", self(work))

    def embed(self, ids: Tensor) -> Tensor:
        """Return the token embeddings."""
        embedded: Tensor = self.model.get_input_embeddings()(ids)
        return embedded

    def encode(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Run the model's own encoder."""
        refuse_too_long(self.model.config, inputs)
        output = self.model.get_encoder()(inputs_embeds=inputs, attention_mask=mask.long(), return_dict=True)
        hidden: Tensor = output.last_hidden_state
        return hidden

    def decode(self, hidden: Tensor, mask: Tensor, ids: Tensor) -> Tensor:
        """Run the model's own decoder and output layer."""
        output = self.model(
            encoder_outputs=(hidden,), attention_mask=mask.long(), decoder_input_ids=ids, use_cache=False
        )
        return cast("Tensor", output.logits).float()

    def let_go(self) -> None:
        """Give back the weights of other ranks that a pass left here; they would hide a later change of weights."""
        from torch.distributed.fsdp import FSDPModule

        for module in self.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """Return the trained parameters by name; a matrix with several names has the first."""
        named = self.model.named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}


def count_weights(folder: Path) -> int:
    """Return the number of weights of a model, from its configuration alone."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            model = AutoModelForSeq2SeqLM.from_config(config)
    except (*UNLOADABLE, StrictDataclassError) as error:
        raise InputError(f"{folder}: cannot be read as an encoder-decoder ({first_line(error)})") from error
    return sum(parameter.numel() for parameter in model.parameters())


def prepared(
    model: Any, device: torch.device, precision: Precision, ranks: Ranks, *, recompute: bool, reshard: bool
) -> Trainee:
    """Return a loaded model ready for training on a device, or on all ranks together.

    Args:
        model: a transformers model with float32 weights, on the CPU.
        device: the device of this process.
        precision: of products.
        ranks: the processes; if there are several, FSDP2 shards weights, gradients and the optimizer's state.
        recompute: compute the activations of a layer again in the backward pass (gradient checkpointing).
        reshard: with several ranks, give back the weights of other ranks after each layer (as ZeRO-3 does) instead of
            after the backward pass (as ZeRO-2 does).
    """
    trainee = Trainee(model, device, precision)
    layers = _layers(model)
    if recompute:
        for layer in layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    if ranks.count == 1:
        return trainee.to(device)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (ranks.count,))
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(trainee, mesh=mesh, reshard_after_forward=reshard)
    return trainee


def _layers(model: Any) -> list[Any]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor that may be sharded as a whole one on the CPU; every rank must call it."""
    from torch.distributed.tensor import DTensor

    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()
