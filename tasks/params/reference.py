"""The reference of the parameters: every dotted key with its type, range, default and meaning."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from storage.atomic import write_bytes
from tasks.params.schema import Params
from tasks.params.schema_base import ParamGroup, shown

KeyPath = tuple[str, ...]
REQUIRED = "required"
START, END = (
    "<!-- generated: make it anew with `python -m tasks.params.reference docs/parameters.md` -->",
    "<!-- end -->",
)

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}
_ABOUT = {
    "seed": "The one number all chance follows from.",
    "precision": "The number format of products with a model's weights; a stage may have its own.",
}  # of the keys that belong to no group
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@dataclass(frozen=True)
class Parameter:
    """A key of params.yaml that holds a value."""

    key: str
    type: str
    default: str
    description: str


@cache
def parameters() -> tuple[Parameter, ...]:
    """Return every parameter, in the order of params.yaml."""
    return tuple(_parameters(Params, ()))


def _parameters(group: type[ParamGroup], path: KeyPath) -> Iterator[Parameter]:
    for name, field in group.model_fields.items():
        inner = group_type(field.annotation)
        if inner is not None:
            yield from _parameters(inner, (*path, name))
            continue
        yield _parameter((*path, name), field)


def _parameter(path: KeyPath, field: FieldInfo) -> Parameter:
    bounds = " and ".join(_bounds(field.metadata))
    default = REQUIRED if field.default is PydanticUndefined else shown(field.default)
    spelled = ", ".join(filter(None, (spell(field.annotation), bounds)))
    return Parameter(".".join(path), spelled, default, field.description or "")


def entry_parameters(key: str) -> tuple[Parameter, ...]:
    """Return the parameters of each entry of a mapping of groups, with NAME for the entry's name; none elsewhere."""
    annotation = value_type(tuple(key.split(".")))
    group = group_type(get_args(annotation)[1]) if get_origin(annotation) is dict else None
    fields = group.model_fields if group else {}
    return tuple(_parameter((*key.split("."), "NAME", name), field) for name, field in fields.items())


def group_type(annotation: Any) -> type[ParamGroup] | None:
    """Return the group that a field holds, or None if it holds a value."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, ParamGroup) else None


def spell(annotation: Any) -> str:
    """Return a type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        constraints = [item for part in arguments[1:] for item in getattr(part, "metadata", ())]
        return " ".join((spell(arguments[0]), *_bounds(constraints)))
    if origin is Literal:
        return " | ".join(str(value) for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join("null" if part is NoneType else spell(part) for part in arguments)
    if origin is list:
        return f"list of: {spell(arguments[0])}"
    if origin is dict:
        return f"mapping of name to {spell(arguments[1])}"
    return "a group of keys" if group_type(annotation) else _WORDS[annotation]


def _bounds(constraints: Iterable[Any]) -> Iterator[str]:
    for constraint in constraints:
        for bound, sign in _BOUNDS.items():
            value = getattr(constraint, bound, None)
            if value is not None:
                yield f"{sign} {value}"


def value_type(path: KeyPath) -> Any:
    """Return the annotation of the value at a key: the type of a group, of a field, or of an entry of a mapping.

    Raises:
        KeyError: with the part of the path that the schema does not have.
    """
    here: Any = Params
    for depth, name in enumerate(path):
        group = group_type(here)
        if group is not None:
            if name not in group.model_fields:
                raise KeyError(path[: depth + 1])
            here = group.model_fields[name].annotation
        elif get_origin(here) is dict:
            here = get_args(here)[1]
        else:
            raise KeyError(path[: depth + 1])
    return here


def group_names() -> list[str]:
    """Return the names of the groups at the top of params.yaml, in their order."""
    return [name for name, field in Params.model_fields.items() if group_type(field.annotation)]


def nearest_key(path: KeyPath) -> str | None:
    """Return the valid key most like an unknown one: on its level, of that name elsewhere, or similar."""
    *parents, leaf = path
    try:
        group = group_type(value_type(tuple(parents)))
    except KeyError:
        group = None
    beside = get_close_matches(leaf, group.model_fields if group else (), n=1)
    if beside:
        return ".".join((*parents, beside[0]))
    every = [parameter.key for parameter in parameters()]
    namesakes = [key for key in every if key.rpartition(".")[2] == leaf]
    close = namesakes or get_close_matches(".".join(path), every, n=1)
    if close:
        return close[0]
    leaves = {key.rpartition(".")[2]: key for key in reversed(every)}
    alike = get_close_matches(leaf, leaves, n=1)
    return leaves[alike[0]] if alike else None


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by dotted key; a list is one value, and so is an empty mapping."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= {f"{name}.{key}": inner for key, inner in flatten(value).items()}
        else:
            flat[name] = value
    return flat


def reference() -> str:
    """Return the tables of docs/parameters.md."""
    lines = []
    title = None
    for parameter in parameters():
        stage = parameter.key.partition(".")[0]
        if stage != title:
            title = stage
            group = group_type(Params.model_fields[stage].annotation)
            about = (group.__doc__ or "").splitlines()[0] if group else _ABOUT[stage]
            lines += ["", f"## {stage}", "", about, "", "| key | type | default | meaning |", "|---|---|---|---|"]
        for row in (parameter, *entry_parameters(parameter.key)):
            type_ = row.type.replace("|", "\\|")
            lines.append(f"| `{row.key}` | {type_} | `{row.default}` | {row.description} |")
    return "\n".join([*lines, ""])


def with_reference(text: str) -> str:
    """Return a page with the tables between its marks replaced by new ones."""
    head, _, rest = text.partition(START)
    return f"{head}{START}\n{reference()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    write_bytes(page, with_reference(page.read_text("utf-8")).encode())
