"""The options of a tuning on a user's own examples, checked before torch is imported: a typo is answered at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from model.text.datasets import DatasetForm
from model.text.templates import Form
from model.text.tokenization import TemplateTokenizer
from storage import paths
from storage.counts import counted
from storage.errors import InputError
from storage.prompts.prompt_artifact import PROMPT, read_prompt, refuse_other_backbone
from storage.sources.source import read_manifest
from storage.vectors.sentence_vectors import model_hash
from tasks.methods import METHODS
from tasks.params.learning_schema import SEEDS

if TYPE_CHECKING:
    from tasks.labeled.numbered_rows import LeftOut

MANY_PIECES = 4  # tokens of a label word from which it is worth another one
_FORMS = """write LABEL=WORD,LABEL=WORD or, for labels with commas, JSON or a .json file: {"LABEL": "WORD"}"""


def parse_verbalizer(text: str | None) -> dict[str, str] | None:
    """Return the word of each label from `1=terrible,5=great`, from a JSON object, or from the name of a .json file."""
    if text is None:
        return None
    if text.lstrip().startswith("{"):
        return _json_words("--verbalizer", text.encode())
    if text.endswith(".json"):
        return _json_words(f"--verbalizer {text}", _content(text))
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(label.strip() and word.strip() for label, _, word in pairs):
        raise InputError(f"--verbalizer {text}: {_FORMS}")
    words = {label.strip(): word.strip() for label, _, word in pairs}
    if len(words) < len(pairs):
        raise InputError(f"--verbalizer {text}: names a label twice: give each label one word")
    return words


def _content(text: str) -> bytes:
    try:
        return Path(text).read_bytes()
    except OSError as error:
        raise InputError(f"--verbalizer {text}: cannot be read ({error.strerror}): {_FORMS}") from None


def _json_words(where: str, content: bytes) -> dict[str, str]:
    try:
        words = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg} at column {error.colno}): {_FORMS}") from None
    if not isinstance(words, dict) or not all(isinstance(word, str) and word.strip() for word in words.values()):
        raise InputError(f"{where}: not an object of labels and words: {_FORMS}")
    return {label: word.strip() for label, word in words.items()}


def parse_numbers(option: str, text: str | None, kind: type[int | float]) -> list[Any]:
    """Return the numbers of an option like `10,20`; [] if it is not given."""
    if text is None:
        return []
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text}: write numbers with commas between them, for example 10,20") from None
    if len(set(numbers)) < len(numbers):
        raise InputError(f"{option} {text}: name each value once")
    if kind is float and not all(0 < rate < float("inf") for rate in numbers):
        raise InputError(f"{option} {text}: rates must be above 0")
    if kind is int and not all(0 <= seed < SEEDS for seed in numbers):
        raise InputError(f"{option} {text}: seeds must be from 0 to {SEEDS - 1:,}")
    return numbers


def check_start(method: str, prompt: Path | None, prompts: Path, fields: int) -> None:
    """Raise InputError if the start of a tuning is not there: the folder `prompt`, or the prompt that a method needs.

    Args:
        method: the name of a row of the table of methods; used if `prompt` is None.
        prompt: the folder of the prompt that the user named, if any.
        prompts: the folder of the prompts that `metatrain` learned.
        fields: the number of texts of an example.
    """
    if prompt is not None:
        read_prompt(prompt)
    elif METHODS[method].start == "learned":
        learned_folder(method, prompts, fields)
    else:
        refuse_shipped(method)


def check_backbone(output: Path, prompt: Path | None) -> None:
    """Raise InputError if there is no backbone, or the prompt that the user named was learned for another.

    Args:
        output: the output of `acquire` that holds the backbone.
        prompt: the folder of the prompt, if there is one.
    """
    source = read_manifest(output)[0]
    if prompt is not None:
        backbone = {"source": source.spec.partition("#")[0], "hash": model_hash(source)}
        refuse_other_backbone(read_prompt(prompt).about, str(prompt), backbone)


def refuse_shipped(method: str) -> None:
    """Raise InputError if a method starts from a shipped prompt, which the user has to name."""
    if METHODS[method].start == "shipped":
        raise InputError(f"method {method}: name the prompt itself: --prompt {paths.SHIPPED_PROMPTS}/NAME")


def learned_folder(method: str, prompts: Path, fields: int) -> Path:
    """Return the folder of the prompt that a method starts from; raise InputError if there is none."""
    folder = prompts / METHODS[method].prompt_for(fields)
    if not (folder / PROMPT).is_file():
        raise InputError(f"method {method}: no prompt in {folder}: `supmer run metatrain` makes it, if it is a variant")
    return folder


def left_out_in_words(left_out: LeftOut) -> str:
    """Return the rows that are not used, with reasons, or "" if all are used."""
    reasons = (
        (left_out.blank, "without text"),
        (left_out.unlabeled, "without a label"),
        (left_out.neutral, "rated too near to 0"),
        (left_out.duplicates - left_out.contradictions, "with texts that occurred before"),
        (left_out.contradictions, "with texts that occurred before under another label"),
        (left_out.tested - left_out.contradicted, "with texts that are in the test set"),
        (left_out.contradicted, "with texts that are in the test set under another label"),
    )
    parts = [f"{count:,} {reason}" for count, reason in reasons if count]
    total = sum(count for count, _ in reasons)
    return f"{counted(total, 'row')} left out: {', '.join(parts)}" if parts else ""


def word_warnings(dataset: DatasetForm, form: Form, tokenizer: TemplateTokenizer) -> Iterator[str]:
    """Yield warnings about label words: numbers, words that the tokenizer does not know, words of many tokens."""
    words = dataset.words if form == "sentinel" else dataset.instruction_words
    if all(word.lstrip("-").isdecimal() for word in words):
        spoken = ",".join(f"{label}=WORD" for label in dataset.labels[:2]) + (",…" if len(dataset.labels) > 2 else "")
        yield f"the label words are numbers: words that say what each label means do better (--verbalizer {spoken})"
    unknown = [word for word in words if not tokenizer.knows(word)]
    if unknown:
        listed = ", ".join(map(repr, unknown))
        yield f"the tokenizer does not know all characters of the label words {listed}: choose others by --verbalizer"
    long = [(word, pieces) for word in words if (pieces := tokenizer.length(word)) >= MANY_PIECES]
    if long:
        listed = ", ".join(f"{word!r} ({pieces} tokens)" for word, pieces in long)
        yield f"the tokenizer breaks label words into many pieces: {listed}; common words do better (--verbalizer)"


def chance_warning(scores: Sequence[float], majority_share: float) -> str:
    """Return a warning if the mean score is not above that of always giving the most frequent label, else ""."""
    mean = sum(scores) / len(scores)
    if mean > majority_share:
        return ""
    always = f"always giving the most frequent label would reach {majority_share:.3f}"
    return f"accuracy {mean:.3f} is at or below chance ({always}): check labels and words, or use more shots or epochs"
