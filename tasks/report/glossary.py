"""The words of the report that are not plain English, each with a sentence; docs/glossary.md has more."""

from collections.abc import Iterable

from tasks.methods import METHODS, ZERO_SHOT, in_order

WORDS = (
    ("backbone", "the pretrained language model, which stays as it is while prompts are learned"),
    ("soft prompt", "a short list of vectors put before the input; only they are learned"),
    ("tuning", "learning a prompt (or prefixes, an adapter, all weights) from a few labeled examples of one dataset"),
    ("meta-training", "learning a good start for tuning, from many small tasks made of unlabeled text"),
    ("shots", "labeled examples per label that tuning may use: with 16 shots and two labels, 32 examples"),
    (ZERO_SHOT, "the backbone answers without a prompt and without any labeled example"),
    ("few-shot", "the backbone is shown the labeled examples in its input and is not trained"),
    (
        "seed",
        "a number that decides which examples are drawn, their order, and a random start; runs repeat with several",
    ),
    ("validation", "as many labeled examples as there are shots, which choose the learning rate and the best step"),
    ("anchor task", "a small task made of unlabeled sentences: some examples to learn from, some to check on"),
    ("support, query", "the examples of a task to learn from, and those to check on afterwards"),
    ("inner step", "one step of learning on the support examples, before the query examples are asked"),
    ("cluster, centroid", "sentences about similar things, and the mean of their vectors (μ)"),
    ("sp", "sentence pairs: do two sentences follow each other, or belong to the same cluster?"),
    ("mc", "multiple choice: which of several sentences follows this one, or belongs to its cluster?"),
    ("ss", "single sentences: which of four centroids does this sentence belong to?"),
    ("λ, b", "the share of another task that is mixed into a task, and the curriculum that lets it grow"),
    ("gate z", "how much of each gradient the regularizer lets through, from 0 to 1"),
)
"""Words that every report uses, with their meaning."""


def terms(methods: Iterable[str]) -> list[tuple[str, str]]:
    """Return the words of a report that shows these methods, with their meaning."""
    rows = [METHODS[name] for name in in_order(set(methods)) if name in METHODS]
    return [*WORDS, *((f"SUPMER {row.short}", row.meaning) for row in rows if row.meaning)]
