"""Keys that params.yaml had in earlier versions, and their replacements."""

from collections.abc import Sequence

RENAMED: dict[str, str] = {}
"""The new key by the old one; of a group of keys, the new name of the group."""

REMOVED = {
    "metatrain.optimizer": "θ and φ are always trained with Adam",
    "tune.optimizer": "prompts are always tuned with AdamW",
}
"""Why a key, or a group of keys, is no longer there."""


def changed(path: Sequence[str]) -> str | None:
    """Return the message about a key of an earlier version, or None if no version had it."""
    for end in range(len(path), 0, -1):
        key, rest = ".".join(path[:end]), path[end:]
        if key in RENAMED:
            return f"renamed; write {'.'.join([RENAMED[key], *rest])} instead"
        if key in REMOVED:
            return f"no longer a key; {REMOVED[key]}: leave it out"
    return None
