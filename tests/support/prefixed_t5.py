"""Prefixes in transformers' own T5: its attention layers with keys and values concatenated, the plain reference."""

from contextlib import contextmanager
from types import MethodType
from unittest.mock import patch

import torch
from torch.nn.functional import pad


def attention_layers(model, place):
    """Return the attention layers of a place, in order."""
    if place == "encoder":
        return [block.layer[0].SelfAttention for block in model.encoder.block]
    if place == "decoder":
        return [block.layer[0].SelfAttention for block in model.decoder.block]
    return [block.layer[1].EncDecAttention for block in model.decoder.block]


@contextmanager
def prefixed(model, layers):
    """Put keys and values before those of a T5; `layers`: place → [P, layers, 2, h, k]."""
    patches = []
    for place, values in layers.items():
        for number, layer in enumerate(attention_layers(model, place)):
            patches.append(patch.object(layer, "forward", MethodType(_forward(values[:, number]), layer)))
    for one in patches:
        one.start()
    try:
        yield model
    finally:
        for one in patches:
            one.stop()


def _forward(prefix):
    def forward(self, hidden_states, mask=None, key_value_states=None, position_bias=None, **_):
        source = hidden_states if key_value_states is None else key_value_states
        rows, length, _ = hidden_states.shape

        def by_head(states):
            return states.view(rows, -1, self.n_heads, self.key_value_proj_dim).transpose(1, 2)

        query, key, value = by_head(self.q(hidden_states)), by_head(self.k(source)), by_head(self.v(source))
        if position_bias is None:
            if self.has_relative_attention_bias:
                position_bias = self.compute_bias(length, source.shape[1], device=query.device)
            else:
                position_bias = query.new_zeros(1, self.n_heads, length, source.shape[1])
        if mask is None and self.is_decoder and key_value_states is None:  # transformers leaves it to torch's kernel
            mask = torch.full((length, length), -torch.inf, dtype=query.dtype).triu(1)
        before = [part.transpose(0, 1).expand(rows, -1, -1, -1).to(query) for part in prefix.unbind(1)]
        added = position_bias if mask is None else position_bias + mask
        scores = query @ torch.cat([before[0], key], 2).transpose(2, 3) + pad(added, (prefix.shape[0], 0))
        weights = scores.softmax(-1)
        pooled = (weights @ torch.cat([before[1], value], 2)).transpose(1, 2).reshape(rows, length, -1)
        return self.o(pooled), position_bias, weights

    return forward
