"""The options of `supmer run` and the parameters of the flow are the same request."""

import pytest

from flows.retries import Retries
from flows.run.request import Places, Request, assignments, mapping
from storage.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ("[1,2]", [1, 2]),
        ("path:/data/texts", "path:/data/texts"),
    ],
)
def test_a_setting_is_typed_in_the_flow_and_comes_back_as_it_was_written(text, value):
    assert mapping([f"a.b={text}"]) == {"a.b": value}
    assert assignments({"a.b": value}) == (f"a.b={text}",)


@pytest.mark.parametrize("text", ["1.50", "[1, 2]", '"quoted"', "1e3", "", "a=b"])
def test_a_text_that_typing_would_change_stays_text(text):
    assert mapping([f"a.b={text}"]) == {"a.b": text}
    assert assignments({"a.b": text}) == (f"a.b={text}",)


def test_settings_may_be_nested():
    assert assignments({"sample": {"min_words": 60, "budget_mb": 5}, "seed": 1}) == (
        "sample.min_words=60",
        "sample.budget_mb=5",
        "seed=1",
    )


def test_every_parameter_of_the_flow_is_documented_and_comes_from_the_request():
    from prefect.utilities.callables import parameter_schema

    from flows.run.pipeline import supmer

    places = Places(2, "dask", "tcp://10.0.0.1:8786", ranks=3)
    request = Request(places, ("sample",), "acquire", "sample", ("sample",), ("seed=1",), Retries(4, 5.0))
    about = parameter_schema(supmer).properties
    assert about.keys() == request.parameters().keys()
    assert all(parameter["description"] for parameter in about.values())
    assert supmer.validate_parameters(request.parameters())["settings"] == {"seed": 1}


def test_an_address_that_is_none_is_refused():
    with pytest.raises(InputError, match="--dask nowhere: not a scheduler address"):
        Places(1, "dask", "nowhere")
