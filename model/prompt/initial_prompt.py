"""Initialization of a soft prompt θ [P, d]."""

from typing import Literal

import torch
from torch import Tensor

from model.t5.backbone import Backbone

Initialization = Literal["normal", "vocabulary"]


def initial_prompt(backbone: Backbone, tokens: int, initialization: Initialization, seed: int) -> Tensor:
    """Return a prompt of `tokens` rows at the scale of the backbone's token embeddings, in float32 or wider.

    T5's embeddings are large (a standard deviation of about 13 in the small models). A prompt at a much smaller scale
    has no effect on any layer, and one at a much larger scale drowns out the text.
    """
    chance = torch.Generator().manual_seed(seed)
    if initialization == "vocabulary":
        ids = torch.randint(backbone.vocabulary, (tokens,), generator=chance)
        return _master(backbone.embed(ids.to(backbone.device)))
    table = _master(backbone.embed(torch.arange(backbone.vocabulary, device=backbone.device)))
    noise = torch.randn(tokens, backbone.width, generator=chance, dtype=table.dtype)
    return noise.to(backbone.device) * table.std()


def _master(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32)).detach().clone()
