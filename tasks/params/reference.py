"""The schema seen from outside: every knob by its dotted key, with its type, range, default and meaning."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from storage.atomic import write_bytes
from tasks.params.schema import Params
from tasks.params.schema_base import Section, shown

KeyPath = tuple[str, ...]
REQUIRED = "required"
START, END = (
    "<!-- generated: make it anew with `python -m tasks.params.reference docs/parameters.md` -->",
    "<!-- end -->",
)

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@dataclass(frozen=True)
class Knob:
    """One key of params.yaml that holds a value."""

    key: str
    type: str
    default: str
    description: str


@cache
def knobs() -> tuple[Knob, ...]:
    """Every knob, in the order of params.yaml."""
    return tuple(_knobs(Params, ()))


def _knobs(section: type[Section], path: KeyPath) -> Iterator[Knob]:
    for name, field in section.model_fields.items():
        inner = section_type(field.annotation)
        if inner is not None:
            yield from _knobs(inner, (*path, name))
            continue
        bounds = " and ".join(_bounds(field.metadata))
        default = REQUIRED if field.default is PydanticUndefined else shown(field.default)
        spelled = ", ".join(filter(None, (spell(field.annotation), bounds)))
        yield Knob(".".join((*path, name)), spelled, default, field.description or "")


def section_type(annotation: Any) -> type[Section] | None:
    """The section a field holds, or None if it holds a value."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def spell(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        constraints = [one for part in arguments[1:] for one in getattr(part, "metadata", ())]
        return " ".join((spell(arguments[0]), *_bounds(constraints)))
    if origin is Literal:
        return " | ".join(str(value) for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join("null" if part is NoneType else spell(part) for part in arguments)
    if origin is list:
        return f"list of: {spell(arguments[0])}"
    if origin is dict:
        return f"mapping of name to {spell(arguments[1])}"
    return _WORDS[annotation]


def _bounds(constraints: Iterable[Any]) -> Iterator[str]:
    for constraint in constraints:
        for bound, sign in _BOUNDS.items():
            value = getattr(constraint, bound, None)
            if value is not None:
                yield f"{sign} {value}"


def value_type(path: KeyPath) -> Any:
    """The annotation of the value at a key: a section's type, a field's, or that of a mapping's entry.

    Raises:
        KeyError: with the part of the path that the schema does not have.
    """
    here: Any = Params
    for depth, name in enumerate(path):
        section = section_type(here)
        if section is not None:
            if name not in section.model_fields:
                raise KeyError(path[: depth + 1])
            here = section.model_fields[name].annotation
        elif get_origin(here) is dict:
            here = get_args(here)[1]
        else:
            raise KeyError(path[: depth + 1])
    return here


def sections() -> list[str]:
    """The sections of params.yaml, in their order."""
    return [name for name, field in Params.model_fields.items() if section_type(field.annotation)]


def nearest_key(path: KeyPath) -> str | None:
    """The valid key most like an unknown one: at its own level, or a key of that name elsewhere, or the like."""
    *parents, leaf = path
    try:
        section = section_type(value_type(tuple(parents)))
    except KeyError:
        section = None
    beside = get_close_matches(leaf, section.model_fields if section else (), n=1)
    if beside:
        return ".".join((*parents, beside[0]))
    every = [knob.key for knob in knobs()]
    namesakes = [key for key in every if key.rpartition(".")[2] == leaf]
    close = namesakes or get_close_matches(".".join(path), every, n=1)
    if close:
        return close[0]
    leaves = {key.rpartition(".")[2]: key for key in reversed(every)}
    alike = get_close_matches(leaf, leaves, n=1)
    return leaves[alike[0]] if alike else None


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted key; a list is one value, and so is an empty mapping."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= {f"{name}.{key}": inner for key, inner in flatten(value).items()}
        else:
            flat[name] = value
    return flat


def reference() -> str:
    """The tables of docs/parameters.md."""
    lines = []
    title = None
    for knob in knobs():
        stage = knob.key.partition(".")[0]
        if stage != title:
            title = stage
            section = section_type(Params.model_fields[stage].annotation)
            about = (section.__doc__ or "").splitlines()[0] if section else "The one number all chance follows from."
            lines += ["", f"## {stage}", "", about, "", "| key | type | default | meaning |", "|---|---|---|---|"]
        type_ = knob.type.replace("|", "\\|")
        lines.append(f"| `{knob.key}` | {type_} | `{knob.default}` | {knob.description} |")
    return "\n".join([*lines, ""])


def with_reference(text: str) -> str:
    """A page with the tables between its marks made anew."""
    head, _, rest = text.partition(START)
    return f"{head}{START}\n{reference()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    write_bytes(page, with_reference(page.read_text("utf-8")).encode())
