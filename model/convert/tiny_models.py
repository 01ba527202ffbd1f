"""Make a tiny T5 and a tiny sentence embedder from generated text, for tests and for machines without a network.

The same seed gives the same models. The T5 (0.2 M parameters) is trained by T5's span denoising. The embedder is latent
semantic analysis: it places words close together that occur in the same sentences.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from model.device import single_threaded
from storage.sources.made_text import SUBJECTS, reviews, stories

VOCABULARY = 800
SENTINELS = [f"<extra_id_{number}>" for number in range(100)]
DIMENSION = 32
STEPS = 200
_BATCH, _WINDOW, _SPAN, _NOISE = 16, 24, 3, 0.15  # spans of three tokens, 15 % noise, as in T5
_RATE = 8e-3


def save_tiny_t5(folder: Path, seed: int = 1, steps: int = STEPS) -> dict[str, float]:
    """Make, train and save a T5 with its tokenizer; return its loss at the start and the end of training."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would show the writing of a single file
    sentences = list(made_sentences(seed))
    tokenizer = _tokenizer(sentences)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=48,
        d_kv=12,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=tokenizer.pad_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    # With one thread, sums are always in the same order, so the same seed gives the same weights.
    with single_threaded(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = T5ForConditionalGeneration(config).train()
        losses = _train(model, tokenizer, sentences, random.Random(f"denoising/{seed}"), steps)  # noqa: S311
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tenth = max(steps // 10, 1)
    return {"first_loss": float(np.mean(losses[:tenth])), "last_loss": float(np.mean(losses[-tenth:]))}


def save_tiny_embedder(folder: Path, seed: int = 1) -> None:
    """Make and save a sentence embedder that sentence-transformers loads."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    sentences = list(made_sentences(seed))
    tokenizer = _tokenizer(sentences).backend_tokenizer
    words = StaticEmbedding(tokenizer, embedding_weights=_latent_directions(tokenizer, sentences))
    SentenceTransformer(modules=[words, Normalize()], device="cpu").save(str(folder), create_model_card=False)


def made_sentences(seed: int) -> Iterator[str]:
    """Yield the training text: sentences of stories, and reviews with “It was great.” or “It was terrible.” added."""
    for document in stories(160, seed):
        yield from (f"{sentence.strip()}." for sentence in document.replace("\n", " ").split(".") if sentence.strip())
    for subject in sorted(SUBJECTS):
        for review in reviews(500, subject, seed + 1):
            yield f"{review.text} It was {'great' if review.label == 'positive' else 'terrible'}."


def _tokenizer(sentences: Sequence[str]) -> Any:
    """Return a byte-level BPE tokenizer, which can write any text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "</s>", "<unk>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in SENTINELS])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        extra_special_tokens=SENTINELS,
        pad_token="<pad>",  # noqa: S106 - names of tokens, no passwords
        eos_token="</s>",  # noqa: S106
        unk_token="<unk>",  # noqa: S106
        model_max_length=512,
    )


def _train(model: Any, tokenizer: Any, sentences: Sequence[str], draw: random.Random, steps: int) -> list[float]:
    import torch

    ids = tokenizer(list(sentences), add_special_tokens=False).input_ids
    first = tokenizer.convert_tokens_to_ids(SENTINELS[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps)
    losses = []
    for _ in range(steps):
        pairs = [_corrupted(row[-_WINDOW:], first, tokenizer.eos_token_id, draw) for row in draw.choices(ids, k=_BATCH)]
        inputs = _padded([source for source, _ in pairs], tokenizer.pad_token_id)
        labels = _padded([target for _, target in pairs], -100)
        loss = model(input_ids=inputs, attention_mask=inputs != tokenizer.pad_token_id, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def _corrupted(ids: Sequence[int], sentinel: int, end: int, draw: random.Random) -> tuple[list[int], list[int]]:
    """Return a sentence with spans replaced by sentinels, and the target: each sentinel with the tokens it replaced."""
    source, target, place, number = [], [], 0, 0
    while place < len(ids):
        # Single tokens are hidden as often as spans, because the labels of templates are single words.
        length = draw.choice((1, _SPAN))
        if draw.random() < _NOISE and place + length <= len(ids):
            source.append(sentinel + number)
            target += [sentinel + number, *ids[place : place + length]]
            place, number = place + length, number + 1
        source += ids[place : place + 1]
        place += 1
    if not target:
        source[-2:-1], target = [sentinel], [sentinel, *ids[-2:-1]]
    return [*source, end], [*target, end]


def _padded(rows: Sequence[Sequence[int]], value: int) -> Any:
    import torch

    width = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])


def _latent_directions(tokenizer: Any, sentences: Sequence[str]) -> Any:
    """Return a vector for each token: the matrix tokens × sentences, weighted by rarity, reduced by its SVD."""
    counts = np.zeros((tokenizer.get_vocab_size(), len(sentences)))
    for number, encoded in enumerate(tokenizer.encode_batch(list(sentences), add_special_tokens=False)):
        np.add.at(counts[:, number], encoded.ids, 1.0)
    rarity = np.log(len(sentences) / (1.0 + (counts > 0).sum(1)))
    weighted = counts * rarity[:, None]
    values, directions = np.linalg.eigh(weighted @ weighted.T)  # there are fewer tokens than sentences
    strongest = directions[:, ::-1][:, :DIMENSION] * np.sqrt(np.maximum(values[::-1][:DIMENSION], 0.0)) ** 0.5
    signs = np.sign(strongest[np.abs(strongest).argmax(0), np.arange(strongest.shape[1])])
    # Tokens that are in no sentence get a small random vector, so that a text of such tokens has a vector too.
    unseen = 1e-3 * np.random.default_rng(0).standard_normal(strongest.shape)
    return (strongest * signs * rarity[:, None] + unseen).astype(np.float32)
