"""What a made report shows: elements of its HTML, and tables of its Markdown."""

from html.parser import HTMLParser
from itertools import takewhile

from storage import paths


class Page(HTMLParser):
    """Elements of a page by name, with the text in each."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attrs": dict(attrs), "text": ""}
        self.elements.append(element)
        if tag not in {"meta", "br"}:
            self._open.append(element)

    def handle_endtag(self, tag):
        while self._open and self._open.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def of(self, tag, **attrs):
        return [one for one in self.elements if one["tag"] == tag and attrs.items() <= one["attrs"].items()]


def html(root):
    return (root / paths.REPORT_PAGE).read_text()


def markdown(root):
    return (root / paths.REPORT_TEXT).read_text()


def markdown_table(text, caption):
    """The cells of the table below a caption, by row."""
    below = text[text.index(f"**{caption}") :].splitlines()[2:]
    lines = takewhile(bool, below)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
