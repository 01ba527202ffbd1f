"""The description of a tuned folder, whatever it holds: a prompt, prefixes, trained weights or an adapter."""

from pathlib import Path
from typing import Any

from storage.prompts.prefix_artifact import is_prefixes, read_prefixes
from storage.prompts.prompt_artifact import read_prompt
from storage.prompts.weights_artifact import (
    is_adapter,
    is_weights,
    kept_weights,
    read_adapter_description,
    refuse_classifier,
)


def description_of(folder: Path) -> dict[str, Any]:
    """Return the description of a tuned folder; raise InputError if it is none."""
    refuse_classifier(folder)
    if is_weights(folder):
        return kept_weights(folder)
    if is_adapter(folder):
        return read_adapter_description(folder)
    return (read_prefixes(folder) if is_prefixes(folder) else read_prompt(folder)).about
