from hypothesis import given
from hypothesis import strategies as st

from tasks.sample.words import words_of

TEXT = st.text(st.sampled_from("ab é—\u00a0\u2009\u3000 \t\n\r\x0b\x1c\x00"), max_size=40).map(str.strip)


@given(TEXT)
def test_words_are_counted_as_by_split(text):
    assert words_of(text, text.encode()).number == len(text.split())


@given(TEXT)
def test_a_line_of_a_regular_text_has_one_word_more_than_spaces(text):
    if words_of(text, text.encode()).regular:
        for line in filter(None, text.split("\n")):
            assert len(line.split()) == line.count(" ") + 1
            assert " ".join(line.split()) == line


def test_double_spaces_and_tabs_are_irregular():
    assert [
        words_of(text, text.encode()).regular for text in ("a b\n\nc", "a  b", "a \nb", "a\tb", "a\u00a0b", "")
    ] == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]
