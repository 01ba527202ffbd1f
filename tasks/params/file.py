"""The only reader of params.yaml: values are checked against the schema, edits keep comments and order."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from ruamel.yaml.reader import ReaderError

from storage.atomic import write_bytes
from storage.errors import InputError
from tasks.params.expansion import expands_too_far
from tasks.params.messages import Place, combinations, refusals
from tasks.params.schema import Params
from tasks.params.schema_base import IMPOSSIBLE, ONE_BY_ONE


@dataclass(frozen=True)
class Document:
    """A parameter file: its text, its values, the keys set on the command line, and keys that YAML reads as numbers."""

    path: Path
    text: str
    values: dict[str, Any]
    assigned: frozenset[tuple[str, ...]] = field(default_factory=frozenset)
    not_text: tuple[tuple[str, ...], ...] = ()

    @property
    def name(self) -> str:
        """The path, relative to the working directory if the file is below it."""
        return str(self.path.relative_to(Path.cwd())) if self.path.is_relative_to(Path.cwd()) else os.fspath(self.path)

    def place(self, path: Sequence[Any]) -> Place:
        """Return the place of a key: `-S` if it was set there, else file and line (of its group, if it is absent)."""
        if any(tuple(path[: len(key)]) == key for key in self.assigned):
            return "-S"
        heads = (tuple(path[:end]) for end in range(len(path), 0, -1))
        line = next((self._lines[head] for head in heads if head in self._lines), None)
        return f"{self.name}:{line}" if line else self.name

    @cached_property
    def _lines(self) -> dict[tuple[Any, ...], int]:
        # Lines are needed only for a refusal: composing takes ten times as long as loading.
        return dict(_lines(YAML().compose(self.text)))


def load(path: Path) -> Params:
    """Return the parameters of a file; raise InputError with a line for each problem."""
    return validate(read(path))


def read(path: Path) -> Document:
    """Return the contents of a parameter file, parsed as YAML but not yet checked by the schema."""
    path = path.absolute()
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file: `supmer params use quickstart` makes a params.yaml") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start}): save it as UTF-8") from None
    return parse(path, text)


def parse(path: Path, text: str) -> Document:
    """Return the parameter file with this text."""
    document = Document(path, text, {})
    try:
        if expands_too_far(text):
            raise InputError(f"{document.name}: its aliases (*name) stand for too many values: write them out")
        loaded = YAML(typ="safe").load(text)  # the way DVC loads it, so that both see the same types
        values, not_text = _with_text_keys(loaded), tuple(_not_text(loaded))
    except RecursionError:
        raise InputError(f"{document.name}: nested too deeply, or a value that holds itself") from None
    except (YAMLError, ValueError) as error:
        raise InputError(_syntax_problem(document, error)) from None
    if values is None:
        raise InputError(f"{document.name}: empty: `supmer params use quickstart` fills it")
    if not isinstance(values, dict):
        kind = "a list" if isinstance(values, list) else "a single value"
        raise InputError(f"{document.name}:1: expected groups such as `sample:` at the top, got {kind}")
    return replace(document, values=values, not_text=not_text)


def validate(document: Document) -> Params:
    """Return the document's values as parameters; raise InputError with a line for each problem."""
    try:
        params = Params.model_validate(document.values)
    except ValidationError as error:
        lines = [*refusals(error, document.place), *_between_groups(document, error)]
        raise InputError("\n".join(dict.fromkeys(lines))) from None
    if document.not_text:  # DVC cannot sort such a name among others
        raise InputError(
            "\n".join(
                f"{document.place(path)}: {'.'.join(path)}: YAML does not read this name as text: write it in quotes, "
                f'"{path[-1]}"'
                for path in document.not_text
            )
        )
    return params


def _between_groups(document: Document, error: ValidationError) -> Iterator[str]:
    """Yield the problems between groups, which pydantic does not check after it refused a group."""
    if all(problem["type"] == IMPOSSIBLE for problem in error.errors()):  # else there are no groups to compare
        params = Params.model_validate(document.values, context=ONE_BY_ONE)
        yield from combinations(params.problems(), document.place)


def save(document: Document) -> None:
    """Write the document to its file, completely or not at all."""
    write_bytes(document.path, document.text.encode())


def _with_text_keys(value: Any) -> Any:
    """Return the value with strings as keys: a name such as 2024 is text, although YAML reads a number."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


def _not_text(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key that is not a string."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                yield (*path, str(key))
            yield from _not_text(item, (*path, str(key)))


def _lines(node: Node, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield the path and the line of each key and list item."""
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield (*path, str(key.value)), key.start_mark.line + 1
            yield from _lines(value, (*path, str(key.value)))
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            yield (*path, index), item.start_mark.line + 1
            yield from _lines(item, (*path, index))


def _syntax_problem(document: Document, error: Exception) -> str:
    """Return a line about the text that the YAML parser refuses."""
    if isinstance(error, ReaderError):
        line = document.text.count("\n", 0, error.position) + 1
        return f"{document.name}:{line}: a control character that YAML forbids: remove it"
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        return f"{document.name}: not valid YAML ({' '.join(str(error).split())})"
    mark = error.problem_mark
    where = f"{document.name}:{mark.line + 1}"
    source = document.text.splitlines()[mark.line : mark.line + 1]
    if isinstance(error, DuplicateKeyError):
        key = source[0][mark.column :].partition(":")[0].strip() if source else ""
        return f"{where}: {key}: given twice in one group: keep one"
    if source and "\t" in source[0][: len(source[0]) - len(source[0].lstrip())]:
        return f"{where}: a tab at the start of the line: YAML wants spaces"
    return f"{where}: not valid YAML ({error.problem})"
