"""Sentence boundaries: one compiled expression finds the candidates, and a few rules decide each."""

import re

# The expression begins with one character class, so that the search runs at the speed of a scan.
_CANDIDATE = re.compile(
    r"""[.!?…\n。！？](?:"""
    r"""(?<=\n)\s*"""  # a line break
    r"""|(?<=[。！？])[」』”’）]*\s*"""  # a full-width stop, which needs no space after it
    r"""|['"”’»)\]]*\s+(?=[^a-z\s]))"""  # a stop, closing marks, space, and anything but a small letter
)


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_CLOSERS = "'\"”’»)]"
_OPENERS = "'\"“‘«([¿¡-–—*•"
_QUOTES = '"“‘«'
_FULL_WIDTH = "。！？"
_STOPS = (".", "!", "?", "…", ":", ";")

# Abbreviations before a name or a number: never the end of a sentence.
_BEFORE_NAMES = _words(
    """adm approx brig ca capt cf cmdr co-op col comdr cpl dept dr ed eds e.g eg est et-al fig figs
    fr gen gov hon i.e ie lt maj messrs mlle mme mr mrs ms mt mts op pp pres prof
    rep reps rev rs sec sen sens sgt ss supt univ viz vol vols vs v"""
)
# Abbreviations that may end a sentence: they do so before a word that usually begins one.
_MAY_END = _words(
    """a.d a.k.a a.m al apr aug ave b.a b.c b.sc bros co corp d.c dec etc feb inc jan jr jul jun ltd m.a m.d mar no nov
    oct p.m ph.d plc rd sep sept sr st ste u.k u.n u.s u.s.a"""
)
_NUMBERED = _words("art ch fig figs no nos nr op p para pp sect v vol")
_STARTERS = _words(
    """A According After All Although An And Another Any As At Because Before Both But By Despite During Each Even Every
    For From Further He Her Here His How However I If In It Its Later Many Meanwhile Most My No Nor Not Now On One Only
    Or Other Others Our Over She Since So Some Such That The Their Then There These They This Those Though Through
    Thus To Today Two Under Until We Were What When Where Whether Which While Who Why With Within Yet You Your"""
)
_TAILS = frozenset(word[-4:] for word in _BEFORE_NAMES | _MAY_END | _NUMBERED if len(word) >= 4)
_FULL_LINE = range(50, 101)  # length of a line of hard-wrapped prose; shorter is a heading or verse, longer a paragraph
_WORD = re.compile(r"[^\W_]+")
_ENUMERATOR = re.compile(r"\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the sentences of a text as (start, end) offsets, in order, without the white space around them.

    Together they cover every character that is not white space; a paragraph break always ends a sentence.
    """
    spans: list[tuple[int, int]] = []
    start = len(text) - len(text.lstrip())
    limit = len(text.rstrip())
    for match in _CANDIDATE.finditer(text, start, limit):
        at, after = match.span()
        if text[at] == "\n":
            if not _ends_line(text, at, after):
                continue
            end = len(text[start:at].rstrip()) + start
        else:
            tail = text[at - 4 : at]
            # Three stops in four follow a plain word, and need no closer look.
            plain = tail.isalpha() and tail.islower() and tail not in _TAILS and not text[after : after + 1].islower()
            if not plain and not _ends_sentence(text, start, at, after):
                continue
            end = at + 1 if text[at + 1 : after] == " " else len(text[at:after].rstrip()) + at
        if end > start:
            spans.append((start, end))
        start = after
    if limit > start:
        spans.append((start, limit))
    return spans


def _ends_sentence(text: str, start: int, at: int, after: int) -> bool:
    """True if the stop at `at` ends the sentence that began at `start`; the next word begins at `after`."""
    mark, following = text[at], text[after : after + 1]
    if mark in _FULL_WIDTH or text.count("\n", at, after) > 1:
        return True
    if following.islower() or mark != "." or text[at - 1 : at] == ".":
        return not following.islower()
    token = text[max(text.rfind(" ", start, at), text.rfind("\n", start, at), start - 1) + 1 : at]
    word = token.lstrip(_OPENERS).lower()
    if word in _NUMBERED and following.isdigit():
        return False
    if at - len(token) == start and _ENUMERATOR.fullmatch(token):
        return False  # `1.`, `b.` or `iv.` that opens a sentence numbers an item, and belongs to the text after it
    if word in _MAY_END or (len(word) == 1 and word.isalpha()) or _is_initials(word):
        return _starts_sentence(text, after)
    return word not in _BEFORE_NAMES


def _is_initials(word: str) -> bool:
    """True for single letters with points between them: `j.k`, `u.s.s.r`."""
    return len(word) > 2 and word[1::2].strip(".") == "" and word[::2].isalpha()


def _starts_sentence(text: str, after: int) -> bool:
    """True if the word at `after` is one that usually begins a sentence, or a quotation opens there."""
    match = _WORD.match(text, after)
    if match is None:
        return text[after] in _QUOTES
    return match[0] in _STARTERS and not text.startswith(".", match.end())  # `A.` would be an initial


def _ends_line(text: str, at: int, after: int) -> bool:
    """True if a line break ends the sentence: always between paragraphs, not inside hard-wrapped prose."""
    line = text[text.rfind("\n", 0, at) + 1 : at].strip()
    if len(line) not in _FULL_LINE or text.count("\n", at, after) > 1:
        return True
    return line.rstrip(_CLOSERS).endswith(_STOPS) or not (text[after].isalnum() or text[after] in _OPENERS)
