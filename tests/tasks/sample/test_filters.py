import pytest

from tasks.params.languages import LANGUAGES
from tasks.params.schema import SampleParams
from tasks.sample.filters import (
    Inspection,
    alphabetic_share,
    inspect,
    known_languages,
    language_of,
    repeated_line_share,
)

ENGLISH = "The committee met in the old town hall and talked about the roads that were washed away by the flood. "
GERMAN = "Der Ausschuss tagte im alten Rathaus und sprach über die Straßen, die von der Flut weggespült worden waren. "
FRENCH = "Le comité s'est réuni dans l'ancienne mairie et a parlé des routes qui avaient été emportées par les eaux. "
DUTCH = "De commissie kwam bijeen in het oude stadhuis en sprak over de wegen die door de vloed waren weggespoeld. "


def inspected(text: str, params: SampleParams) -> Inspection:
    return inspect(text, text.encode(), params)


def letters(text: str) -> float:
    return alphabetic_share(text, text.encode())


def reason(text: str, **changes: object) -> str | None:
    rejection = inspected(text.strip(), SampleParams(min_words=5, **changes)).rejection
    return rejection and rejection.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ENGLISH * 3, None),
        ("", "empty"),
        ("Too few words", "too_short"),
        (GERMAN * 3, "language"),
        ("1 2 3 4 5 6 7 8 9 10 11 12 13 14", "word_length"),
        ("a b c d e f g h i j k l m n", "word_length"),
        ("1,000 20,000 3,500 4,750 5,125 65,000 about 17,000", "not_alphabetic"),
        ("Subscribe to our letter today\n" * 5, "repeated_lines"),
    ],
)
def test_each_test_has_its_reason(text, expected):
    assert reason(text) == expected


def test_too_long_a_document_is_left_out():
    assert reason(ENGLISH * 3, max_words=20) == "too_long"


def test_the_detail_says_by_how_much():
    rejection = inspected("Too few words", SampleParams()).rejection
    assert rejection is not None
    assert rejection.detail == "3 words"


@pytest.mark.parametrize(("text", "code"), [(ENGLISH, "en"), (GERMAN, "de"), (FRENCH, "fr"), (DUTCH, "nl")])
@pytest.mark.parametrize("expected", ["en", "de"])
def test_languages_are_told_apart(text, code, expected):
    assert language_of(text, expected) == code


def test_english_without_small_words_is_left_to_the_model():
    assert language_of("Breaking news: police arrest three men outside central London train station", "en") == "en"


def test_any_language_passes_where_none_is_asked_for():
    assert reason(GERMAN * 3, language=None) is None


def test_letters_of_every_script_count():
    assert letters("Привет мир") == 1.0
    assert letters("ab 12") == 0.5
    assert letters("é—") == 0.5
    assert letters("") == 0.0


def test_repeated_lines_are_those_seen_before():
    assert repeated_line_share("a\n\nb\na\na") == 0.5
    assert repeated_line_share("") == 0.0


def test_the_languages_that_params_yaml_may_name_are_those_of_the_model():
    assert known_languages() == LANGUAGES
