"""Tiny frozen backbones and random tasks, for tests of the meta-learner."""

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration

from model.text.tokenized_tasks import CentroidSlot, Example, Task

SHAPE = {"vocab_size": 50, "d_model": 16, "d_kv": 4, "d_ff": 32, "num_heads": 4, "num_layers": 2}


def t5(*, gated=False, tied=True, dtype=torch.float64, seed=0, **shape):
    """Return a random T5 with nontrivial layer norms; if not tied, it has its own, unscaled output layer."""
    torch.manual_seed(seed)
    form = {"feed_forward_proj": "gated-gelu" if gated else "relu"}
    config = T5Config(**SHAPE | form | shape, decoder_start_token_id=0, pad_token_id=0, tie_word_embeddings=tied)
    model = T5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layer_norm" in name:
                parameter.uniform_(0.5, 1.5)
        if not tied:
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.3)
    return model.to(dtype).eval()


def bart(dtype=torch.float64):
    torch.manual_seed(0)
    shape = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(vocab_size=50, d_model=8, max_position_embeddings=64, init_std=0.3, **shape, **heads)
    return BartForConditionalGeneration(config).to(dtype).eval()


def example(chance, *, length=None, target=(5, 6), slots=(), label=0):
    size = length or int(chance.integers(3, 12))
    ids = chance.integers(3, 50, size).astype(np.int32)
    return Example("e", label, ids, np.array(target, np.int32), tuple(slots))


def task(chance, *, size=3, labels=((5, 6), (5, 7)), slots=False):
    """Return a task with `size` examples in each set, taking the labels in turn."""

    def one(number):
        places = [CentroidSlot(1, "ss", number % 2)] if slots else []
        label = number % len(labels)
        return example(chance, target=labels[label], slots=places, label=label)

    sets = [tuple(one(number) for number in range(size)) for _ in range(2)]
    return Task("t", "sp", "sp-next", tuple(np.array(label, np.int32) for label in labels), *sets)


def hidden_of(model, prompt, one):
    """Return the encoder's output for a single example, without other rows or padding: [P + n, d]."""
    ids = torch.from_numpy(one.input_ids).long()
    inputs = torch.cat([prompt, model.get_input_embeddings()(ids)])[None]
    return model.get_encoder()(inputs_embeds=inputs).last_hidden_state[0]


def loss_of(model, hidden, target):
    """Return the cross-entropy of a target, summed over its tokens, if the decoder sees all of `hidden` [n, d]."""
    target = torch.from_numpy(target).long()
    given = torch.cat([torch.tensor([model.config.decoder_start_token_id]), target[:-1]])
    everything = torch.ones(1, len(hidden), dtype=torch.long)
    logits = model(encoder_outputs=(hidden[None],), attention_mask=everything, decoder_input_ids=given[None]).logits[0]
    return cross_entropy(logits, target, reduction="sum")
