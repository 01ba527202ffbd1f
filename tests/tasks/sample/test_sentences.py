import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.sample.sentences import sentence_spans

PIECES = st.sampled_from(
    [
        *"abcZ.!?…,;:'\"”)(«。！」1é \n\t\u00a0\u2028",
        "\n\n",
        "Dr. ",
        "U.S. ",
        "e.g. ",
        "The ",
        "word ",
        "end. ",
        "... ",
        "1. ",
    ]
)


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(["Dr. Smith met Mrs. J. Brown of St. Louis.", "They talked."], id="titles"),
        pytest.param(["The U.S. Army left the U.S.", "The rest stayed."], id="country-that-may-end"),
        pytest.param(["Some fruit, e.g. Apples, keeps well.", "Others, i.e. Pears, do not."], id="latin"),
        pytest.param(["Pi is 3.14, not 3.", "It cost $1.50."], id="decimals"),
        pytest.param(["J. A. Smith and Samuel L. Jackson came.", "He sat down."], id="initials"),
        pytest.param(['He said "Go away."', "Then he left.", "(It was late.)", "“Why?”", "Nobody knew."], id="quotes"),
        pytest.param(["Well... maybe not.", "I see…", "Fine."], id="ellipsis"),
        pytest.param(["It was No. 5 on the list.", "No. 6 won.", "He said no.", "We left."], id="numero"),
        pytest.param(["See https://a.example/x.y?z=1.", "It works at www.example.org too."], id="addresses"),
        pytest.param(["What?!", "No way!", "Really?", "Yes."], id="marks"),
        pytest.param(["At 5 p.m. Eastern time we met on Jan. 5.", "At 6 a.m. we left."], id="times"),
        pytest.param(["Smith et al. (2010) saw it in Fig. 3.", "Acme Inc. and Co. Ltd. agreed."], id="papers"),
        pytest.param(["Élan was lost.", "Était-ce vrai?", "Oui."], id="accents"),
    ],
)
def test_hard_cases_are_cut_where_a_reader_would(expected):
    assert sentences(" ".join(expected)) == expected


def test_list_items_keep_their_numbers():
    assert sentences("1. First item\n2. Second item\nb. Third item") == [
        "1. First item",
        "2. Second item",
        "b. Third item",
    ]


def test_a_small_accented_letter_does_not_begin_a_sentence():
    assert sentences("Il est venu. étrange.") == ["Il est venu. étrange."]


def test_full_width_stops_need_no_space():
    assert sentences("你好。再见！「好。」走") == ["你好。", "再见！", "「好。」", "走"]


def test_a_paragraph_always_ends_a_sentence():
    assert sentences("A heading\n\nthe first line of it, Mr.\n\nSmith") == [
        "A heading",
        "the first line of it, Mr.",
        "Smith",
    ]


def test_hard_wrapped_lines_run_on_and_short_lines_do_not():
    wrapped = "It was the best of times, it was the worst of times, it was the\nage of wisdom. A title\nBy a poet"
    assert sentences(wrapped) == [wrapped[:78], "A title", "By a poet"]


@pytest.mark.parametrize("text", ["", " \n\t ", "\u2028"])
def test_blank_text_has_no_sentence(text):
    assert sentence_spans(text) == []


@given(st.lists(PIECES, max_size=60).map("".join))
def test_spans_are_ordered_disjoint_and_cover_all_that_is_not_space(text):
    spans = sentence_spans(text)
    position = 0
    for start, end in spans:
        assert position <= start < end
        assert text[position:start].strip() == ""
        assert text[start:end] == text[start:end].strip()
        position = end
    assert text[position:].strip() == ""


@given(st.lists(PIECES, max_size=30).map("".join), st.lists(PIECES, max_size=30).map("".join))
def test_paragraphs_are_split_independently(first, second):
    joined = f"{first.strip()}\n\n{second.strip()}"
    assert sentences(joined) == [*sentences(first.strip()), *sentences(second.strip())]
