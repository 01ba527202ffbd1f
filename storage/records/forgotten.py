"""The list of documents that must never be used: `forgotten.csv`, which is under version control."""

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from storage.atomic import write_bytes
from storage.errors import InputError

REASON = "forgotten"
_COLUMNS = ["document_id", "date", "why"]
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Forgotten:
    """A document that must not be used: the date of the decision, and its reason."""

    document_id: str
    date: str
    why: str

    def __str__(self) -> str:
        return f"{self.date}: {self.why}"


def read_forgotten(path: Path) -> dict[str, Forgotten]:
    """Return the list by document id; raise InputError, with the line, if it is damaged. No file means an empty list.

    A damaged list is never taken as a shorter one: a document on it would come back.
    """
    try:
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path.name}: cannot be read ({error}): restore it from git") from error
    if not rows or rows[0] != _COLUMNS:
        raise InputError(f"{path.name}: its first line should be {','.join(_COLUMNS)}: restore it from git")
    listed: dict[str, Forgotten] = {}
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if len(row) != len(_COLUMNS) or not _ID.fullmatch(row[0]):
            raise InputError(f"{path.name}: row {number}: not a document id of 32 hex digits, a date and a reason")
        listed.setdefault(row[0], Forgotten(*row))
    return listed


def is_empty_list(md5: str) -> bool:
    """True if a list with this md5 names no document."""
    return md5 == hashlib.md5(_csv([]), usedforsecurity=False).hexdigest()


def write_forgotten(path: Path, listed: Mapping[str, Forgotten] | Iterable[Forgotten]) -> None:
    """Write the list, sorted by id, so that the order of decisions makes no difference."""
    write_bytes(path, _csv(listed.values() if isinstance(listed, Mapping) else listed))


def _csv(entries: Iterable[Forgotten]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(
        (entry.document_id, entry.date, entry.why) for entry in sorted(entries, key=lambda entry: entry.document_id)
    )
    return text.getvalue().encode()
