"""params.yaml as every verb reads it: whole, and of this version."""

from pathlib import Path

import pytest

from flows.options import overlaid
from storage.errors import InputError

PROFILE = (Path(__file__).parents[2] / "profiles" / "offline-tiny.yaml").read_text("utf-8")


def refusal(root, text):
    (root / "params.yaml").write_text(text, "utf-8")
    with pytest.raises(InputError) as caught:
        overlaid(root, ())
    return str(caught.value).splitlines()


def without(key):
    return "".join(line for line in PROFILE.splitlines(keepends=True) if not line.startswith(f"  {key}:"))


def test_a_file_of_an_earlier_version_is_refused_with_a_line_that_says_what_to_do(tmp_path):
    first, second = refusal(tmp_path, without("precision").replace("\ntune:\n", "\ntune:\n  optimizer: adamw\n"))
    assert first == (
        "params.yaml: written for an earlier version (it has the keys named below, and lacks embed.precision, "
        "cluster.precision, metatrain.precision, tune.precision): correct it, or "
        "`supmer params use PROFILE` replaces it and saves yours"
    )
    assert 'tune.optimizer: no longer a key (got "adamw")' in second


def test_an_unknown_key_is_one_line(tmp_path):
    [line] = refusal(tmp_path, PROFILE.replace("  min_words:", "  min_wrds:"))
    assert "sample.min_wrds: unknown key" in line


def test_the_default_of_a_missing_key_is_shown_as_params_yaml_has_it(tmp_path):
    [line] = refusal(tmp_path, without("chunk_tokens"))
    assert line == "params.yaml: metatrain.chunk_tokens: is missing: add it (its default is null)"
