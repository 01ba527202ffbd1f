"""The text of pages in Markdown or HTML: paragraphs apart, without markup, scripts and front matter."""

import re
from html.parser import HTMLParser

_DROPPED = frozenset({"head", "math", "noscript", "script", "style", "svg", "template"})
_BLOCK_TAGS = """address article aside blockquote body dd details div dl dt fieldset figcaption figure footer form h1
    h2 h3 h4 h5
    h6 header hr html li main nav ol p pre section summary table td th tr ul"""
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*\r?\n", re.DOTALL | re.MULTILINE)


class _Paragraphs(HTMLParser):
    """A parser that gathers the visible text of each paragraph."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.paragraphs: list[str] = []
        self._words: list[str] = []
        self._dropped: list[str] = []  # the open elements whose text is not shown

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - the base class's
        if tag in _DROPPED:
            self._dropped.append(tag)
        if tag == "br":
            self._words.append(" ")
        if tag in _BLOCKS:
            self.end_paragraph()
        if tag == "body":  # a head that is never closed
            self._dropped.clear()

    def handle_endtag(self, tag: str) -> None:
        if tag in self._dropped:
            del self._dropped[self._dropped.index(tag) :]
        if tag in _BLOCKS:
            self.end_paragraph()

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self._words.append(data)

    def end_paragraph(self) -> None:
        """End the paragraph; one without words leaves no trace."""
        text = " ".join("".join(self._words).split())
        self._words = []
        if text:
            self.paragraphs.append(text)


def html_text(page: str) -> str:
    """Return the visible text of an HTML page, with a blank line between paragraphs."""
    parser = _Paragraphs()
    parser.feed(page)
    parser.close()
    parser.end_paragraph()
    return "\n\n".join(parser.paragraphs)


def markdown_text(page: str) -> str:
    """Return the text of a Markdown page (CommonMark and tables), without front matter."""
    from markdown_it import MarkdownIt

    return html_text(MarkdownIt("commonmark").enable("table").render(_FRONT_MATTER.sub("", page, count=1)))
