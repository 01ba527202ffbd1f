"""The base class of all groups of params.yaml: strict types, shared types, refusal of impossible combinations."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from storage.errors import InputError
from storage.sources.source import parse_spec

IMPOSSIBLE = "impossible"
ONE_BY_ONE = "values one by one"  # a validation context in which combinations are not checked
SAID_WHOLE = frozenset({"repeated", "source"})  # refusals whose text already shows the value

_Items = TypeVar("_Items", bound=Sequence[Any])


@dataclass(frozen=True)
class Impossible:
    """The refusal of `key: value`, which `text` explains by the values of the `others` (all keys in full)."""

    key: str
    value: Any
    text: str
    others: tuple[str, ...]


def impossible(key: str, value: Any, text: str, *others: str) -> Impossible:
    """Return the refusal of a combination that cannot work."""
    return Impossible(key, value, text, others)


class ParamGroup(BaseModel):
    """A group of keys of params.yaml: immutable and strictly typed; unknown keys are refused, 1 is accepted for 1.0."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    def problems(self) -> Iterator[Impossible]:
        """Yield the combinations of values that cannot work; groups inside this one yield their own."""
        yield from ()

    @model_validator(mode="after")
    def _possible(self, info: ValidationInfo) -> Self:
        problems = () if info.context == ONE_BY_ONE else tuple(self.problems())
        if problems:
            text = "; ".join(f"{problem.key}: {problem.text}" for problem in problems)
            raise PydanticCustomError(IMPOSSIBLE, "{text}", {"text": text, "problems": problems})
        return self


def defaults(group: type[ParamGroup]) -> Any:
    """Return a field that holds a group, by default with the defaults of the group."""
    return Field(default_factory=group)


def shown(value: Any) -> str:
    """Return a value on one line, as params.yaml could have it; 20.0 and 20 look alike."""
    value = _shortest(value)
    if value is None or isinstance(value, str | bool | list | dict):
        try:
            return json.dumps(value, ensure_ascii=False, default=str)
        except TypeError:  # YAML allows keys that JSON does not
            return str(value)
    return str(value)


def _shortest(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    if isinstance(value, list):
        return [_shortest(item) for item in value]
    return {key: _shortest(item) for key, item in value.items()} if isinstance(value, dict) else value


def _distinct(values: _Items) -> _Items:
    for position, value in enumerate(values):
        if value in values[:position]:  # every entry is a run or a row, so a repeated one is a mistake
            raise PydanticCustomError("repeated", "{text}", {"text": f"names {value} more than once"})
    return values


def _parsed(spec: str) -> str:
    try:
        parse_spec(spec)
    except InputError as error:
        raise PydanticCustomError("source", "{text}", {"text": str(error)}) from None
    return spec


Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
"""The name of a source or dataset: also a folder's, and a part of a dotted key."""
Source = Annotated[str, AfterValidator(_parsed)]
"""The origin of something: `hf:…`, `path:…` or `wheel:…`."""
Distinct = AfterValidator(_distinct)
