"""Tiny random models with a tokenizer that knows seven words."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration


def save_tokenizer(folder):
    words = {word: number for number, word in enumerate(["<pad>", "</s>", "<unk>", "A", "sentence", "to", "see"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # noqa: S106 - a word, no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    named = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    inputs = ["input_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **named).save_pretrained(folder)


def save_backbone(folder):
    torch.manual_seed(0)
    settings = {"vocab_size": 20, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_heads": 2, "num_layers": 1}
    T5ForConditionalGeneration(T5Config(**settings, decoder_start_token_id=0)).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_embedder(folder):
    torch.manual_seed(0)
    settings = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(**settings, intermediate_size=8, max_position_embeddings=16)).save_pretrained(folder)
    save_tokenizer(folder)
    return folder
