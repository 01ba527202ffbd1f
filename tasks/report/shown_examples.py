"""Examples of tasks as the model sees them: the template filled in, texts cut to length, centroids marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.text.templates import Rendered, Template
from model.text.tokenization import TOKENIZER, TemplateTokenizer
from storage.sources.source import MANIFEST, read_manifest


@dataclass(frozen=True)
class InWords:
    """An example as one string with its spans, and its target; the numbers of tokens are None without a tokenizer."""

    rendered: Rendered
    target: str
    tokens: int | None
    full_tokens: int | None


def backbone_tokenizer(root: Path, backbone: Path, max_length: int) -> TemplateTokenizer | None:
    """Return the tokenizer of the acquired backbone; None if transformers would have to make a fast one first."""
    if not (root / backbone / MANIFEST).is_file():
        return None
    folder = root / read_manifest(root / backbone)[0].folder
    return TemplateTokenizer.from_folder(folder, max_length) if (folder / TOKENIZER).is_file() else None


def in_words(
    template: Template, label: int, texts: Sequence[str], slots: Sequence[str], tokenizer: TemplateTokenizer | None
) -> InWords:
    """Return the filled-in template; `slots` are the words that stand for centroids."""
    shown, tokens, full = _cut(template, texts, tokenizer)
    return InWords(template.render(shown, slots), template.target(label), tokens, full)


def _cut(
    template: Template, whole_texts: Sequence[str], tokenizer: TemplateTokenizer | None
) -> tuple[list[str], int | None, int | None]:
    if tokenizer is None:
        return list(whole_texts), None, None
    tokenizer.require(template.form)
    (encoded,) = tokenizer.encode(template, [whole_texts])
    plain = [tokenizer.plain(text) for text in whole_texts]
    texts = [
        text if kept >= len(text) else text[:kept].rstrip() + "…"
        for text, kept in zip(plain, encoded.kept, strict=True)
    ]
    return texts, len(encoded.ids), encoded.full_length
