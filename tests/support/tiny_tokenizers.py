"""Small trained tokenizers of the three families that encoder-decoders use, with their special and end tokens."""

import random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PROSE = "the of and river city council market music garden letter winter morning journey question answer yes no"
WORDS = PROSE.split()
START, UNKNOWN = "<s>", "<unk>"
SENTINELS = [f"<extra_id_{number}>" for number in range(3)]


def sentence(generator, words=8):
    return " ".join(generator.choices(WORDS, k=words)).capitalize() + "."


def _corpus():
    generator = random.Random(0)
    return [sentence(generator) for _ in range(200)] + ["maybe A. B. C. D. Answer: Label 1 2 3 4 5 Which sentence?"]


def _wrapped(tokenizer, **named):
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"} | named
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=inputs, extra_special_tokens=SENTINELS, **names
    )


def unigram():
    """Return a tokenizer like that of T5: ▁ marks the start of a word, and </s> is at the end."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    special = ["<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(
        _corpus(),
        trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token=UNKNOWN, show_progress=False),
    )
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in SENTINELS])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return _wrapped(tokenizer)


def byte_level():
    """Return a tokenizer like that of BART: bytes, with <s> at the start and </s> at the end."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", *SENTINELS]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        _corpus(),
        trainers.BpeTrainer(vocab_size=350, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return _wrapped(tokenizer, bos_token=START)


def word_level():
    """Return a tokenizer of whole words without end and pad tokens; <unk> takes the place of a centroid."""
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(_corpus(), trainers.WordLevelTrainer(special_tokens=["<unk>", *SENTINELS]))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN, extra_special_tokens=SENTINELS)
