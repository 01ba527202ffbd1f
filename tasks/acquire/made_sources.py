"""Sources that the program makes itself, written as files like any other: `made:stories`, `made:tiny-t5` and others."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from storage.atomic import write_bytes
from storage.sources.made_text import reviews, stories
from storage.sources.source import SourceSpec

LICENCE = "MIT"  # this project's own
TEST_PARTS = 2  # one review in two is a test example


def make(spec: SourceSpec, folder: Path) -> str:
    """Make the files of a source in `folder`, and return their licence."""
    options: dict[str, Any] = dict(spec.options)
    match spec.location:
        case "tiny-t5":
            from model.convert.tiny_models import save_tiny_t5

            save_tiny_t5(folder, options["seed"])
        case "tiny-embedder":
            from model.convert.tiny_models import save_tiny_embedder

            save_tiny_embedder(folder, options["seed"])
        case "stories":
            texts = stories(options["documents"], options["seed"])
            _write_lines(folder / "stories.jsonl", ({"id": i, "text": text} for i, text in enumerate(texts)))
        case "reviews":
            _write_reviews(folder, options)
    return LICENCE


def _write_reviews(folder: Path, options: dict[str, Any]) -> None:
    made = list(reviews(options["examples"], options["about"], options["seed"]))
    half = len(made) // TEST_PARTS
    for name, part in (("train", made[half:]), ("test", made[:half])):
        _write_lines(folder / f"{name}.jsonl", ({"text": review.text, "label": review.label} for review in part))


def _write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
