"""Markdown and HTML are read as text, each file as one document; where rows are needed they are refused."""

import pytest

from storage.errors import InputError
from storage.records.documents import read_documents
from storage.records.pages import html_text, markdown_text
from storage.records.parts import Part
from storage.records.reader import reader_of


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>One &amp; two</p><p>three</p>", "One & two\n\nthree"),
        ("<html><head><title>T</title><style>p {}</style></head><body>a<br>b</body></html>", "a b"),
        ("<html><head><title>T<body>shown", "shown"),
        ("<p>a<script>var x = '<p>';</script>b</p>", "ab"),
        ("<ul><li>one<li>two</ul>", "one\n\ntwo"),
        ("plain &lt;text&gt;", "plain <text>"),
        ("<p>never closed <b>bold", "never closed bold"),
        ("", ""),
    ],
)
def test_html_is_read_as_its_visible_paragraphs(page, text):
    assert html_text(page) == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("# Title\n\nSome *words* and a [link](http://x.org).\n", "Title\n\nSome words and a link."),
        ("---\ntitle: x\n---\nText\nin lines\n", "Text in lines"),
        ("- one\n- two\n\n| a | b |\n|---|---|\n| c | d |\n", "one\n\ntwo\n\na\n\nb\n\nc\n\nd"),
        ("a\n\n---\n\nb\n", "a\n\nb"),
    ],
)
def test_markdown_is_read_without_markup_and_front_matter(page, text):
    assert markdown_text(page) == text


@pytest.mark.parametrize(("name", "content"), [("a.md", "# One\n\ntwo"), ("a.htm", "<h1>One</h1>two")])
def test_a_page_is_one_document(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    (document,) = read_documents(Part(tmp_path / name, name), "any field")
    assert (document.text, document.row) == ("One\n\ntwo", 1)


def test_a_page_where_rows_are_needed_is_refused(tmp_path):
    (tmp_path / "a.md").write_text("x")
    with pytest.raises(InputError, match=r"a.md: a page of markdown has no rows: convert it to JSON lines or CSV"):
        reader_of(Part(tmp_path / "a.md", "a.md"))
