"""Elements: texts and attributes are escaped, markup is not escaped twice."""

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from tasks.report.page.markup import inner, tag


def test_texts_and_attributes_are_escaped():
    made = tag("td", '<b>"&', class_='x" onload="', data_value=1.5)
    assert made == '<td class="x&#34; onload=&#34;" data-value="1.5">&lt;b&gt;&#34;&amp;</td>'


def test_markup_is_taken_as_it_is():
    assert inner(tag("b", "<"), "<", None) == "<b>&lt;</b>&lt;"


def test_an_attribute_is_left_out_or_bare():
    assert tag("div", hidden=True, title=None, open=False) == "<div hidden></div>"


@given(st.text())
def test_no_text_opens_an_element_or_holds_control_characters(text):
    made = tag("p", text, title=text)
    assert made.count("<") == 2
    assert not set(made) & {"\x00", "\x0b", "\x1b", "\x7f", "\u2028"}
    assert isinstance(made, Markup)
