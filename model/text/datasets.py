"""The datasets known by name: the paper's twelve sets and six domains, Yelp-5, IMDB and the quickstart's sets.

Each has a template and a verbalizer in both forms of `model.text.templates`. The paper prints neither for its
downstream sets: the sentinel forms are the usual patterns for these sets ("It was <X>." is the paper's own example),
and the instructions were written for this project. Other sets need no entry: `tasks.labeled.dataset` makes a form.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from model.text.templates import MARK, Form, Template, labeled_text, parse_template
from storage.errors import InputError

Metric = Literal["accuracy"]
Split = Literal["test", "validation"]
SHORT, LONG = 128, 256  # tokens; ALGORITHM §6
YES_NO = ("yes", "no")
_BRACES = re.compile("[{}]")


@dataclass(frozen=True)
class DatasetForm:
    """The templates and label words of a dataset, and how its files are read.

    Attributes:
        name: the name in `acquire.datasets`.
        fields: the names of the texts in the templates, in the order of an example's texts.
        labels: the names of the labels; integers in files without label names count in this order.
        sentinel: the template for plain T5, with `<X>`; "" if there is none.
        instruction: the template for instruction-tuned backbones, without `<X>`; "" if there is none.
        words: the verbalizer of the sentinel form, a word for each label.
        instruction_words: the verbalizer of the instruction form.
        max_length: the longest input in tokens, without the prompt.
        metric: the score of the set.
        title: the name in docs/datasets.md.
        columns: possible columns of the fields in sources; the first that a row has are used; () means `fields`.
        label_columns: possible columns of the label in sources; the first that a row has is used.
        synonyms: other names of labels in sources → names in `labels`; case, `_`, `-` and spaces do not matter.
        column_orders: label columns whose integers count in another order than `labels`.
        rating_columns: label columns that contain a rating, whose sign is the label.
        only: columns and the value that a row must have there, if it has the column: files may hold other sets too.
        least_rating: rows with a rating closer to 0 than this are left out.
        leaves_out_blanks: True if rows with an empty text are left out instead of refused, as the published set has
            some.
        test_split: which labeled files are the test set if a source has both test and validation files.
        otherwise: the form for sources whose rows lack a field of this one.
    """

    name: str
    fields: tuple[str, ...]
    labels: tuple[str, ...]
    sentinel: str
    instruction: str
    words: tuple[str, ...]
    instruction_words: tuple[str, ...]
    max_length: int = SHORT
    metric: Metric = "accuracy"
    title: str = ""
    columns: tuple[tuple[str, ...], ...] = ()
    label_columns: tuple[str, ...] = ("label",)
    synonyms: Mapping[str, str] = field(default_factory=dict)
    column_orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rating_columns: tuple[str, ...] = ()
    only: tuple[tuple[str, str], ...] = ()
    least_rating: float = 1.0
    leaves_out_blanks: bool = False
    test_split: Split = "test"
    otherwise: "DatasetForm | None" = None


def dataset_template(form: Form, dataset: DatasetForm) -> Template:
    """Return the template of a dataset in a form; raise InputError if it has none in that form."""
    text, words = (
        (dataset.sentinel, dataset.words) if form == "sentinel" else (dataset.instruction, dataset.instruction_words)
    )
    if not text:
        raise InputError(
            f"{dataset.name}: its template has {MARK}, but the backbone takes instructions: write it without {MARK}"
        )
    return parse_template(text, dataset.fields, words)


# Columns that are tried for the texts of a set without an entry.
USUAL_COLUMNS = (
    ("text",),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("sentence",),
)

_TEXT = (("text",), ("sentence",), ("content",), ("review",))
_PAIR = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2"))
_NAMED_FIRST = ("label_text", "label")  # SetFit's files have names and numbers, and number labels differently

_SENTIMENT_NAMES = {"neg": "negative", "pos": "positive", "terrible": "negative", "great": "positive"}


def _sentiment(name: str, title: str, max_length: int = SHORT, test_split: Split = "test") -> DatasetForm:
    """Return a form for binary sentiment; all use the same words, so that a prompt can be tested on other domains."""
    return DatasetForm(
        name=name,
        title=title,
        fields=("text",),
        labels=("negative", "positive"),
        sentinel="{text} It was <X>.",
        instruction="Is the sentiment of this review negative or positive? {text} Answer:",
        words=("terrible", "great"),
        instruction_words=("negative", "positive"),
        max_length=max_length,
        columns=_TEXT,
        label_columns=_NAMED_FIRST,
        synonyms=_SENTIMENT_NAMES,
        test_split=test_split,
    )


def _rated(name: str, title: str) -> DatasetForm:
    """Return a form for snippets with the mean rating, −4 to 4, of about twenty people; below ±1 it is not clear."""
    return replace(
        _sentiment(name, title),
        label_columns=("sentiment", "label_text", "label"),
        rating_columns=("sentiment",),
        least_rating=1.0,
    )


def _paraphrase(name: str, title: str, what: str, labels: tuple[str, str]) -> DatasetForm:
    return DatasetForm(
        name=name,
        title=title,
        fields=("sentence1", "sentence2"),
        labels=labels,
        sentinel='Do "{sentence1}" and "{sentence2}" have the same meaning? <X>.',
        instruction=f"Do these two {what}s mean the same? {what.capitalize()} 1: {{sentence1}} "
        f"{what.capitalize()} 2: {{sentence2}} Answer yes or no:",
        words=("no", "yes"),
        instruction_words=("no", "yes"),
        columns=_PAIR,
        label_columns=_NAMED_FIRST,
        synonyms={"different": labels[0], "no": labels[0], "false": labels[0]}
        | {"same": labels[1], "yes": labels[1], "true": labels[1], "paraphrase": labels[1]},
        test_split="validation",
    )


def _entailment(name: str, title: str, labels: tuple[str, ...], words: tuple[str, ...], asked: str) -> DatasetForm:
    return DatasetForm(
        name=name,
        title=title,
        fields=("sentence1", "sentence2"),
        labels=labels,
        sentinel="{sentence2}? <X>, {sentence1}",
        instruction=f"{{sentence1}} Does it follow that {{sentence2}} {asked}",
        words=words,
        instruction_words=words,
        max_length=LONG,
        columns=_PAIR,
        label_columns=_NAMED_FIRST,
        test_split="validation",
    )


_SENSE_NAMES = {"false": "different", "no": "different", "f": "different", "not_same": "different"} | {
    "true": "same",
    "yes": "same",
    "t": "same",
}

_WIC = DatasetForm(
    name="wic",
    title="WiC",
    fields=("word", "sentence1", "sentence2"),
    labels=("different", "same"),
    sentinel='"{sentence1}" / "{sentence2}" Similar sense of "{word}"? <X>.',
    instruction='Does the word "{word}" mean the same in both sentences? Sentence 1: {sentence1} '
    "Sentence 2: {sentence2} Answer yes or no:",
    words=("no", "yes"),
    instruction_words=("no", "yes"),
    max_length=LONG,
    label_columns=_NAMED_FIRST,
    synonyms=_SENSE_NAMES,
    test_split="validation",
)
# Some copies of WiC leave out the word; it is then the word that both sentences share.
_WIC_PAIR = replace(
    _WIC,
    fields=("sentence1", "sentence2"),
    sentinel='"{sentence1}" / "{sentence2}" Similar sense of the shared word? <X>.',
    instruction="Does the word that both sentences share mean the same in both? Sentence 1: {sentence1} "
    "Sentence 2: {sentence2} Answer yes or no:",
)

_ENTRIES = (
    _sentiment("sst-2", "SST-2", test_split="validation"),
    DatasetForm(
        name="sst-5",
        title="SST-5",
        fields=("text",),
        labels=("very negative", "negative", "neutral", "positive", "very positive"),
        sentinel="{text} It was <X>.",
        instruction="How good is the film by this review: terrible, bad, okay, good or great? {text} Answer:",
        words=("terrible", "bad", "okay", "good", "great"),
        instruction_words=("terrible", "bad", "okay", "good", "great"),
        columns=_TEXT,
        label_columns=_NAMED_FIRST,
        synonyms={"terrible": "very negative", "bad": "negative", "okay": "neutral"}
        | {"good": "positive", "great": "very positive"},
    ),
    replace(_sentiment("mr", "MR"), only=(("source", "rotten_tomatoes"),)),
    replace(_sentiment("cr", "CR", LONG), label_columns=(*_NAMED_FIRST, "sentiment"), rating_columns=("sentiment",)),
    DatasetForm(
        name="subj",
        title="SUBJ",
        fields=("text",),
        labels=("subjective", "objective"),
        sentinel="{text} This is <X>.",
        instruction="Is this sentence subjective, an opinion, or objective, a fact? {text} "
        "Answer with subjective or objective:",
        words=("subjective", "objective"),
        instruction_words=("subjective", "objective"),
        max_length=LONG,
        columns=_TEXT,
        label_columns=_NAMED_FIRST,
    ),
    DatasetForm(
        name="trec",
        title="TREC",
        fields=("text",),
        labels=("description", "entity", "abbreviation", "human", "location", "numeric"),
        sentinel="<X>: {text}",
        instruction="What does this question ask for: a description, an entity, an expression, a human, a location "
        "or a number? {text} Answer:",
        words=("description", "entity", "expression", "human", "location", "number"),
        instruction_words=("description", "entity", "expression", "human", "location", "number"),
        columns=_TEXT,
        label_columns=("label_coarse_text", "coarse_label", "label_text", "label"),
        synonyms={"desc": "description", "enty": "entity", "abbr": "abbreviation", "hum": "human", "loc": "location"}
        | {"description and abstract concepts": "description", "entities": "entity", "expression": "abbreviation"}
        | {"human beings": "human", "person": "human", "locations": "location"}
        | {"num": "numeric", "number": "numeric", "numeric values": "numeric"},
        column_orders={
            "coarse_label": ("abbreviation", "entity", "description", "human", "location", "numeric"),
        },
    ),
    _entailment(
        "cb",
        "CB",
        ("entailment", "contradiction", "neutral"),
        ("yes", "no", "maybe"),
        "Answer yes, no or maybe:",
    ),
    _entailment("rte", "RTE", ("entailment", "not_entailment"), YES_NO, "Answer yes or no:"),
    DatasetForm(
        name="qnli",
        title="QNLI",
        fields=("question", "sentence"),
        labels=("entailment", "not_entailment"),
        sentinel="{sentence} Question: {question} Answer: <X>.",
        instruction="Does this sentence answer the question? Question: {question} Sentence: {sentence} "
        "Answer yes or no:",
        words=YES_NO,
        instruction_words=YES_NO,
        columns=(("question", "sentence"), ("sentence1", "sentence2"), ("text1", "text2")),
        label_columns=_NAMED_FIRST,
        test_split="validation",
    ),
    replace(_WIC, otherwise=_WIC_PAIR),
    _paraphrase("mrpc", "MRPC", "sentence", ("not_equivalent", "equivalent")),
    replace(_paraphrase("qqp", "QQP", "question", ("not_duplicate", "duplicate")), leaves_out_blanks=True),
    _sentiment("airlines", "Airlines", LONG),
    _sentiment("books", "Books", LONG),
    _sentiment("dvds", "DVDs", LONG),
    _sentiment("electronics", "Electronics", LONG),
    _sentiment("kitchen", "Kitchen", LONG),
    _sentiment("restaurants", "Restaurants", LONG),
    DatasetForm(
        name="yelp-5",
        title="Yelp-5",
        fields=("text",),
        labels=("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
        sentinel="{text} It was <X>.",
        instruction="How good is it by this review: terrible, bad, okay, good or great? {text} Answer:",
        words=("terrible", "bad", "okay", "good", "great"),
        instruction_words=("terrible", "bad", "okay", "good", "great"),
        max_length=LONG,
        columns=_TEXT,
        label_columns=_NAMED_FIRST,
        synonyms={"1 stars": "1 star", "2 star": "2 stars", "3 star": "3 stars", "4 star": "4 stars"}
        | {"5 star": "5 stars"},
    ),
    replace(_sentiment("imdb", "IMDB", LONG), label_columns=(*_NAMED_FIRST, "sentiment"), only=(("source", "imdb"),)),
    _rated("movies", "Movie reviews"),
    _rated("products", "Product reviews"),
    _rated("editorials", "Editorials"),
    _rated("tweets", "Tweets"),
    DatasetForm(
        name="sms",
        title="SMS spam",
        fields=("text",),
        labels=("ham", "spam"),
        sentinel="{text} This is <X>.",
        instruction="Is this text message spam or normal? {text} Answer:",
        words=("normal", "spam"),
        instruction_words=("normal", "spam"),
        columns=(("text",), ("sms",), ("message",)),
        label_columns=("spam", "label_text", "label"),
        synonyms={"normal": "ham", "not_spam": "ham"},
    ),
)

DATASETS: dict[str, DatasetForm] = {entry.name: entry for entry in _ENTRIES}

# Other common names of the sets.
ALIASES: dict[str, str] = {
    "sst2": "sst-2",
    "sst5": "sst-5",
    "rotten-tomatoes": "mr",
    "airline": "airlines",
    "book": "books",
    "dvd": "dvds",
    "electronic": "electronics",
    "kitchen-appliances": "kitchen",
    "restaurant": "restaurants",
    "yelp5": "yelp-5",
    "yelp-review-full": "yelp-5",
    "sms-spam": "sms",
}


def dataset_form(name: str) -> DatasetForm | None:
    """Return the entry of a dataset under any of its names, or None; case and `_` instead of `-` do not matter."""
    key = name.lower().replace("_", "-")
    return DATASETS.get(ALIASES.get(key, key))


def own_form(
    name: str,
    fields: tuple[str, ...],
    labels: tuple[str, ...],
    template: str | None = None,
    words: tuple[str, ...] | None = None,
    max_length: int = SHORT,
) -> DatasetForm:
    """Return the form of a set without an entry, from its fields and labels or from the user's template and words.

    A template without `<X>` gets one at its end in the sentinel form. One that ends with `<X>` loses it in the
    instruction form. A template with `<X>` in the middle has no instruction form. Raise InputError if it is invalid.
    """
    label_words = words or labels
    wrong = next((field for field in fields if not field.strip() or _BRACES.search(field)), None)
    if wrong is not None:
        raise InputError(f"{name}: a template cannot hold the field {wrong!r}: rename it, without braces")
    if template is None:
        sentinel, instruction = (labeled_text(form, fields, label_words) for form in ("sentinel", "instruction"))
    elif MARK not in template:
        sentinel, instruction = f"{template} {MARK}", template
    else:
        head, _, tail = template.partition(MARK)
        sentinel, instruction = template, head.rstrip() if tail.strip(" .") == "" else ""
    own = DatasetForm(name, fields, labels, sentinel, instruction, label_words, label_words, max_length)
    parse_template(sentinel, fields, label_words)  # report an invalid template at once
    return own
