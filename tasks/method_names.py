"""Methods as the paper's tables name and group them, in the order of their rows."""

from dataclasses import dataclass

NOTHING, WEIGHTS, PROMPTS, OURS, ABLATIONS, DATA = "inference", "more parameters", "prompts", "supmer", "parts", "data"


@dataclass(frozen=True)
class MethodName:
    """A method's title, its short one for a plot, and the group of rows it stands in."""

    title: str
    short: str
    group: str


METHODS = {
    "zero-shot": MethodName("Zero-shot inference", "Zero-shot", NOTHING),
    "few-shot": MethodName("Few-shot inference", "Few-shot", NOTHING),
    "prefix-tuning": MethodName("Prefix tuning", "Prefix", WEIGHTS),
    "p-tuning-v2": MethodName("P-tuning v2", "P-tuning v2", WEIGHTS),
    "ft": MethodName("Fine-tuning of all weights", "FT", WEIGHTS),
    "pt": MethodName("PT (normal start)", "PT", PROMPTS),
    "pt-vocabulary": MethodName("PT (vocabulary start)", "PT (vocab.)", PROMPTS),
    "ppt": MethodName("PPT", "PPT", PROMPTS),
    "unified-ppt": MethodName("Unified-PPT", "Unified-PPT", PROMPTS),
    "metapt": MethodName("MetaPT", "MetaPT", PROMPTS),
    "supmer": MethodName("SUPMER", "SUPMER", OURS),
    "only-sp": MethodName("SUPMER (only sp)", "only sp", ABLATIONS),
    "only-mc": MethodName("SUPMER (only mc)", "only mc", ABLATIONS),
    "only-ss": MethodName("SUPMER (only ss)", "only ss", ABLATIONS),
    "without-ta": MethodName("SUPMER w/o task augmentation", "w/o ta", ABLATIONS),
    "without-curriculum": MethodName("SUPMER w/o curriculum", "w/o curriculum", ABLATIONS),
    "without-mgr": MethodName("SUPMER w/o gradient regularizer", "w/o mgr", ABLATIONS),
    "supmer-labeled": MethodName("SUPMER (only labeled)", "labeled", DATA),
    "supmer-mixed": MethodName("SUPMER (labeled + unlabeled)", "mixed", DATA),
}
# PPT trains a prompt for each format, as a variant of its own.
VARIANTS = METHODS | {f"ppt-{name}": MethodName(f"PPT ({name})", f"PPT {name}", PROMPTS) for name in ("sp", "mc", "ss")}

# Who is drawn first where lines are too many, and has a colour of its own.
_FIRST = ("supmer", "pt", "pt-vocabulary", "ppt", "unified-ppt", "metapt", "ft")


def method_name(method: str) -> MethodName:
    """The name of a method or variant; one nobody listed is called as it is."""
    return VARIANTS.get(method) or MethodName(method, method, PROMPTS)


def in_order(methods: set[str]) -> list[str]:
    """Methods as rows of a table: in the paper's order, strangers last."""
    known = list(VARIANTS)
    return sorted(methods, key=lambda method: (known.index(method) if method in known else len(known), method))


def most_telling(methods: set[str]) -> list[str]:
    """Methods as lines of a plot: SUPMER, then what it is compared with first."""
    first = [method for method in _FIRST if method in methods]
    return [*first, *(method for method in in_order(methods) if method not in first)]
