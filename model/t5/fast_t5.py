"""T5's forward pass for soft prompts: the same numbers as transformers', in less time.

It is faster for these reasons, none of which is an approximation:
- the scale of a layer norm is folded into the matrices that follow it, and matrices with the same input are joined;
- padding is left out of everything except attention;
- cross-attention never projects the encoder's tokens: with few target positions it is cheaper to bring the query into
  the encoder's space (q·W_k) and to project the pooled states (W_v after the softmax), because
  q·(H·W_kᵀ)ᵀ = (q·W_k)·Hᵀ and p·(H·W_vᵀ) = (p·H)·W_vᵀ;
- matrix products and attention use the kernels that are fastest for these shapes (`model.t5.products`,
  `model.t5.attention`).
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from model.t5.attention import attended
from model.t5.derivatives import gated_tanh_gelu, relu, rms_normed, tanh_gelu
from model.t5.packing import Packing
from model.t5.prefix_attention import AttentionShape, LayerPrefix, Prefixes, attended_after, weights_after
from model.t5.products import FrozenMatrix
from model.t5.recomputing import directly, recomputed

FAMILY = ("t5", "mt5")
_MASKED = -1e9  # added to a score that must not count; finite, so that a fully masked row gives no NaN

Activation = Callable[[Tensor], Tensor]


def is_fast(model: Any) -> bool:
    """Return True if a transformers model is of the T5 family and has the structure that this module expects."""
    blocks = getattr(getattr(model, "encoder", None), "block", None)
    return model.config.model_type in FAMILY and blocks is not None


class FastT5:
    """A frozen T5 (v1.0 or gated, tied or untied output, also mT5 and ByT5); see `model.t5.backbone.Backbone`."""

    def __init__(self, model: Any, start_id: int, pad_id: int, *, recompute: bool = False) -> None:
        config = model.config
        self._embeddings: Tensor = model.get_input_embeddings().weight.detach()
        head = model.get_output_embeddings().weight.detach()
        packs = not recompute  # recomputing saves memory, and a second layout of the weights would use it up
        self._head = FrozenMatrix(head.to(torch.promote_types(head.dtype, torch.float32)), packs=packs)
        self.width: int = config.d_model
        self.vocabulary: int = head.shape[0]
        self.device, self.dtype = self._embeddings.device, self._embeddings.dtype
        self.start_id, self.pad_id = start_id, pad_id
        self.side_by_side = self.device.type == "cpu" and not recompute  # chunks in parallel need more memory
        self.layers = len(model.encoder.block)
        self.attention = AttentionShape(self.layers, len(model.decoder.block), config.num_heads, config.d_kv)
        self._epsilon: float = config.layer_norm_epsilon
        self._scale: float = config.d_model**-0.5 if getattr(config, "scale_decoder_outputs", False) else 1.0
        self._run = recomputed if recompute else directly
        heads, act = config.num_heads, _activation(config, model.encoder.block[0].layer[-1].DenseReluDense.act)
        self._encoder = [_Layer(block, heads, act, packs=packs) for block in model.encoder.block]
        self._decoder = [_Layer(block, heads, act) for block in model.decoder.block]  # few positions: no second layout
        self._encoder_norm: Tensor = model.encoder.final_layer_norm.weight.detach()
        self._decoder_norm: Tensor = model.decoder.final_layer_norm.weight.detach()
        self._encoder_bias = _PositionBias(model.encoder, config, both_ways=True)
        self._decoder_bias = _PositionBias(model.decoder, config, both_ways=False)

    def embed(self, ids: Tensor) -> Tensor:
        """Return the token embeddings."""
        return embedding(ids, self._embeddings)

    def encode(self, inputs: Tensor, mask: Tensor, prefixes: Prefixes | None = None) -> Tensor:
        """Run the encoder; every position attends to its prefix and to all positions of its row but padding."""
        bias = self._encoder_bias(inputs.shape[1], inputs.dtype)
        if not bool(mask.all()):
            bias = bias + torch.where(mask, 0.0, _MASKED).to(bias.dtype)[:, None, None, :]
        packing = Packing(mask)
        hidden = packing.packed(inputs)
        for number, layer in enumerate(self._encoder):
            prefix = prefixes.at("encoder", number) if prefixes else None
            hidden = self._run(self._encoder_layer, layer, hidden, bias, packing, prefix)
        return packing.padded(self._norm(hidden) * self._encoder_norm)

    def _encoder_layer(
        self, layer: "_Layer", hidden: Tensor, bias: Tensor, packing: Packing, prefix: LayerPrefix | None
    ) -> Tensor:
        hidden = hidden + layer.attend(self._norm(hidden), bias, packing, prefix)
        return hidden + layer.feed_forward(self._norm(hidden))

    def decode(self, hidden: Tensor, mask: Tensor, ids: Tensor, prefixes: Prefixes | None = None) -> Tensor:
        """Run the decoder over a few target positions."""
        causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
        bias = self._decoder_bias(ids.shape[1], hidden.dtype) + torch.where(causal, 0.0, _MASKED).to(hidden.dtype)
        unseen = torch.where(mask, 0.0, _MASKED).to(hidden.dtype)[:, None, :]
        state, packing = self.embed(ids).to(hidden.dtype), Packing(torch.ones_like(ids, dtype=torch.bool))
        for number, layer in enumerate(self._decoder):
            own, cross = (prefixes.at("decoder", number), prefixes.at("cross", number)) if prefixes else (None, None)
            state = state + packing.padded(layer.attend(packing.packed(self._norm(state)), bias, packing, own))
            state = state + layer.attend_encoded(self._norm(state), hidden, unseen, cross)
            state = state + layer.feed_forward(self._norm(state))
        output = packing.packed(self._norm(state) * self._decoder_norm * self._scale)
        with torch.autocast(hidden.device.type, enabled=False):  # in bfloat16, likely labels could get equal logits
            return packing.padded(self._head(output.to(self._head.dtype)))

    def _norm(self, hidden: Tensor) -> Tensor:
        return rms_normed(hidden, self._epsilon)


def _activation(config: Any, otherwise: Activation) -> Activation:
    """Return the activation of the feed-forward layers: this project's function if there is one, else `otherwise`."""
    own = {"relu": relu, "gelu_new": tanh_gelu, "gelu_pytorch_tanh": tanh_gelu}
    return own.get(config.dense_act_fn, otherwise)


class _Layer:
    """The matrices of one block, with h heads of k dimensions each."""

    def __init__(self, block: Any, heads: int, activation: Activation, *, packs: bool = False) -> None:
        attention, norm = block.layer[0].SelfAttention, block.layer[0].layer_norm
        self.heads, self.activation = heads, activation
        self.query_key_value = _after(norm, attention.q, attention.k, attention.v, packs=packs)  # [3·h·k, d]
        self.output = FrozenMatrix(attention.o.weight, packs=packs)
        if len(block.layer) == 3:  # a decoder's block
            cross, norm = block.layer[1].EncDecAttention, block.layer[1].layer_norm
            self.cross_query = _after(norm, cross.q)
            self.cross_key: Tensor = _by_head(cross.k, heads)  # [h, k, d]
            self.cross_value: Tensor = _by_head(cross.v, heads)
            self.cross_output = FrozenMatrix(cross.o.weight)
        dense, norm = block.layer[-1].DenseReluDense, block.layer[-1].layer_norm
        self.gated = hasattr(dense, "wi_0")
        inner = (dense.wi_0, dense.wi_1) if self.gated else (dense.wi,)
        self.inner = _after(norm, *inner, packs=packs)
        self.outer = FrozenMatrix(dense.wo.weight, packs=packs)

    def attend(self, normed: Tensor, bias: Tensor, packing: Packing, prefix: LayerPrefix | None = None) -> Tensor:
        """Return self-attention, after a prefix if there is one, [positions, d] → [positions, d]."""
        projected = packing.padded(self.query_key_value(normed.to(self.output.dtype)))
        projected = projected.view(packing.rows, packing.length, 3, self.heads, -1)
        pooled = attended(projected, bias) if prefix is None else attended_after(prefix, projected, bias)
        return self.output(packing.packed(pooled))

    def attend_encoded(
        self, normed: Tensor, encoded: Tensor, unseen: Tensor, prefix: LayerPrefix | None = None
    ) -> Tensor:
        """Return cross-attention, computed in the encoder's space: [rows, t, d], [rows, n, d] → [rows, t, d]."""
        rows, positions, width = normed.shape
        query = self.cross_query(normed.to(self.cross_query.dtype)).view(rows, positions, self.heads, -1)
        brought = torch.einsum("rthk,hkd->rhtd", query, self.cross_key).reshape(rows, -1, width)  # [rows, h·t, d]
        encoded = encoded.to(brought.dtype)
        scores = brought @ encoded.transpose(1, 2) + unseen
        if prefix is None:
            weights = scores.softmax(-1)
        else:
            scores = scores.view(rows, self.heads, positions, -1)
            before, own = weights_after(prefix, query.transpose(1, 2), scores)
            weights = own.flatten(1, 2)
        pooled = (weights.to(encoded.dtype) @ encoded).view(rows, self.heads, positions, width)
        context = torch.einsum("rhtd,hkd->rthk", pooled, self.cross_value)
        if prefix is not None:
            context = context + prefix.pooled(before).transpose(1, 2)
        return self.cross_output(context.flatten(2))

    def feed_forward(self, normed: Tensor) -> Tensor:
        """Return the output of the dense layers, gated or not."""
        inner = self.inner(normed.to(self.inner.dtype))
        if self.gated and self.activation is tanh_gelu:
            active = gated_tanh_gelu(inner)
        elif self.gated:
            gate, through = inner.chunk(2, dim=-1)
            active = self.activation(gate) * through
        else:
            active = self.activation(inner)
        return self.outer(active.to(self.outer.dtype))


class _PositionBias:
    """The learned bias of relative positions, [1, h, n, n]; it is cached for the longest input so far."""

    def __init__(self, stack: Any, config: Any, *, both_ways: bool) -> None:
        self._weight: Tensor = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach()
        self._buckets: int = config.relative_attention_num_buckets
        self._farthest: int = config.relative_attention_max_distance
        self._both_ways = both_ways
        self._kept = torch.empty(0)

    def __call__(self, length: int, dtype: torch.dtype) -> Tensor:
        kept = self._kept  # a local reference: another thread may replace it with a shorter one
        if kept.shape[-1] < length:
            positions = torch.arange(length, device=self._weight.device)
            buckets = self._bucket(positions[None, :] - positions[:, None])
            kept = self._kept = embedding(buckets, self._weight).permute(2, 0, 1).unsqueeze(0).contiguous()
        return kept[:, :, :length, :length].to(dtype)

    def _bucket(self, distance: Tensor) -> Tensor:
        """Return T5's buckets: one for each near distance, then by the logarithm of the distance."""
        buckets, base = self._buckets, torch.zeros_like(distance)
        if self._both_ways:
            buckets //= 2
            base = (distance > 0).long() * buckets
            distance = distance.abs()
        else:
            distance = -distance.clamp(max=0)
        exact = buckets // 2
        steps = torch.log(distance.float().clamp(min=1) / exact) / math.log(self._farthest / exact)
        far = (exact + (steps * (buckets - exact)).long()).clamp(max=buckets - 1)
        return base + torch.where(distance < exact, distance, far)


def _by_head(layer: Any, heads: int) -> Tensor:
    """Return the matrix of a projection, [h·k, d], as [h, k, d]."""
    weight: Tensor = layer.weight.detach()
    return weight.view(heads, -1, weight.shape[1])


def _after(norm: Any, *layers: Any, packs: bool = False) -> FrozenMatrix:
    """Return linear layers with the same input as one matrix, with the scale of the norm before them folded in."""
    together = torch.cat([layer.weight.detach() for layer in layers])
    wide = torch.promote_types(together.dtype, torch.float32)
    scaled: Tensor = together.to(wide) * norm.weight.detach().to(wide)
    return FrozenMatrix(scaled.to(together.dtype), packs=packs)
