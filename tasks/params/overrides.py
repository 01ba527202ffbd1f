"""`-S stage.key=value`: values are written into the text of params.yaml, and the rest of the text stays as it is."""

import copy
from collections.abc import Iterable
from dataclasses import replace
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from storage.errors import InputError
from tasks.params.expansion import expands_too_far
from tasks.params.file import Document, parse
from tasks.params.messages import unknown
from tasks.params.reference import KeyPath, group_type, value_type
from tasks.params.schema_base import shown


def override(document: Document, assignments: Iterable[str]) -> Document:
    """Return the document with each `stage.key=value` set, not yet checked by the schema; the file is untouched."""
    for assignment in assignments:
        path, text = _split(assignment)
        try:
            value, written = _value(path, text)
            document = _assigned(document, path, value, written)
        except RecursionError:
            raise InputError(f"-S: {'.'.join(path)}: nested too deeply: write a plain value or list") from None
    return document


def reset(document: Document, keys: Iterable[str], values: dict[str, Any]) -> Document:
    """Return the document with each key as it is in `values`, not yet checked by the schema.

    A key that `values` does not have is removed. Raise InputError for a key that the schema or the document lacks.
    """
    for key in keys:
        path = _split(f"{key}=")[0]
        entry, known = _at(values, path), _at(document.values, path)
        if known is _ABSENT:
            raise InputError(f"{key}: is not set in {document.name}: `supmer params show` lists the keys")
        document = _removed(document, path) if entry is _ABSENT else _assigned(document, path, entry, shown(entry))
    return document


_ABSENT = object()


def _at(values: Any, path: KeyPath) -> Any:
    for name in path:
        if not isinstance(values, dict) or name not in values:
            return _ABSENT
        values = values[name]
    return values


def _removed(document: Document, path: KeyPath) -> Document:
    """Return the document without one entry of a mapping; its parent is written anew, on the parent's line."""
    parent = {name: value for name, value in _at(document.values, path[:-1]).items() if name != path[-1]}
    return _assigned(document, path[:-1], parent, shown(parent))


def _assigned(document: Document, path: KeyPath, value: Any, written: str) -> Document:
    refusal = f"-S: {'.'.join(path)}: cannot be set where it stands in {document.name}: edit the file by hand"
    try:
        changed = parse(document.path, _with_value(document.text, path, written))
    except InputError:
        raise InputError(refusal) from None
    if changed.values != _expected(document.values, path, value):  # other keys may share an anchor, for example
        raise InputError(refusal)
    return replace(changed, assigned=document.assigned | {path})


def _split(assignment: str) -> tuple[KeyPath, str]:
    key, equals, text = assignment.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise InputError(f"-S: {assignment}: expected KEY=VALUE, for example sample.budget_mb=5")
    try:
        group = group_type(value_type(path))
    except KeyError:
        head, _, tail = unknown(path).partition("; ")
        value = f" (got {text})" if text else ""
        raise InputError(f"-S: {key}: {head}{value}" + (f"; {tail}" if tail else "")) from None
    if group is not None:
        keys = ", ".join(group.model_fields)
        raise InputError(f"-S: {key}: a group, set one of its keys ({keys})")
    return path, text


def _value(path: KeyPath, text: str) -> tuple[Any, str]:
    """Return the value and its YAML; text is taken literally, so that a source may contain ':' and '#'."""
    stripped = text.strip()
    kinds = _kinds(value_type(path))
    if str in kinds and stripped[:1] not in ("'", '"') and not (type(None) in kinds and stripped in ("null", "~")):
        return stripped, _quoted(stripped)
    try:
        if expands_too_far(stripped):
            raise InputError(f"-S: {'.'.join(path)}: its aliases (*name) stand for too many values: write them out")
        value = YAML(typ="safe", pure=True).load(stripped)
    except (YAMLError, ValueError) as error:
        reason = getattr(error, "problem", None) or "not YAML"
        raise InputError(f"-S: {'.'.join(path)}: not valid YAML: {reason} (got {text})") from None
    return value, stripped if stripped != "~" and _reads_as(stripped, value) else shown(value)


def _reads_as(text: str, value: Any) -> bool:
    """True if every parser reads the text as this value, wherever it stands on a line.

    DVC uses libyaml if it is installed, which refuses `{k: path:/x}`, unlike the parser of ruamel.yaml. A lone `-` is
    text within braces, but begins a list on a line of its own.
    """
    places = (f"{{k: {text}}}", f"k: {text}\n")
    try:
        return all(
            YAML(typ="safe", pure=pure).load(place) == {"k": value} for pure in (True, False) for place in places
        )
    except (YAMLError, ValueError, RecursionError):
        return False


def _kinds(annotation: Any) -> set[Any]:
    """Return the plain types that a value may have."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return set().union(*(_kinds(part) for part in get_args(annotation)))
    return {annotation}


def _quoted(text: str) -> str:
    """Return a string as YAML, plain if that reads back as the same string wherever it stands."""
    return text if text.isprintable() and _reads_as(text, text) else f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"


def _expected(values: dict[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    result = copy.deepcopy(values)
    here = result
    for name in path[:-1]:
        if not isinstance(here.get(name), dict):
            here[name] = {}
        here = here[name]
    here[path[-1]] = value
    return result


def _with_value(text: str, path: KeyPath, written: str) -> str:
    """Return the text with one value replaced or added; every other character stays."""
    node: Node = YAML().compose(text)
    after = 0
    for depth, name in enumerate(path):
        if not isinstance(node, MappingNode):
            return _replaced(text, node, after, _nested(path[depth:], written))
        entries = {key.value: (key, value) for key, value in node.value}
        if name not in entries:
            return _added(text, node, name, _nested(path[depth + 1 :], written))
        key, node = entries[name]
        after = key.end_mark.index + 1
    return _replaced(text, node, after, written)


def _nested(path: KeyPath, written: str) -> str:
    for name in reversed(path):
        written = f"{{{_quoted(name)}: {written}}}"
    return written


def _replaced(text: str, node: Node, after: int, written: str) -> str:
    """Return the text with the node's value replaced; `after` is the end of its key and colon."""
    start, end = node.start_mark.index, _end(node, after)
    if end == after or _is_block(node):  # no value, or one on the lines below: the new one goes on the key's line
        start, written = after, f" {written}"
    return text[:start] + written + text[end:]


def _added(text: str, mapping: MappingNode, name: str, written: str) -> str:
    end = _end(mapping, 0)
    if not _is_block(mapping):
        comma = ", " if mapping.value else ""
        return text[: end - 1].rstrip() + f"{comma}{_quoted(name)}: {written}" + text[end - 1 :]
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    indent = " " * mapping.value[0][0].start_mark.column
    return f"{text[:line_end]}\n{indent}{_quoted(name)}: {written}{text[line_end:]}"


def _is_block(node: Node) -> bool:
    return isinstance(node, MappingNode | SequenceNode) and not node.flow_style


def _end(node: Node, after: int) -> int:
    """Return the end of a node's own text; the marks of blocks and absent values lie after the comments that follow."""
    if isinstance(node, MappingNode) and _is_block(node):
        key, value = node.value[-1]
        return _end(value, key.end_mark.index + 1)
    if isinstance(node, SequenceNode) and _is_block(node):
        return _end(node.value[-1], after)
    start, end = int(node.start_mark.index), int(node.end_mark.index)
    return after if start == end else end
