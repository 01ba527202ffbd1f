"""Cards of prompts that were exported to PEFT or imported from it, with example programs."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from model.text.templates import MARK, SENTINEL, Sentinel, Template, Text
from storage.prompts.peft_adapter import Adapter

if TYPE_CHECKING:
    from model.tuning.downstream import Downstream

_LOAD = """{imports}
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

base = {base!r}
tokenizer = AutoTokenizer.from_pretrained(base{revision})
model = AutoModelForSeq2SeqLM.from_pretrained(base{revision})
"""

_PREDICT_IMPORTS = "import torch\nfrom peft import PeftModel"
_PREDICT = """model = PeftModel.from_pretrained(model, ".").eval()  # "." is this folder

template = {template!r}
labels = {labels!r}


def probabilities(examples):
    texts = [template.format(**example) for example in examples]
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    scores = []
    for target in labels.values():
        ids = tokenizer(target, add_special_tokens=False, return_tensors="pt").input_ids.repeat(len(texts), 1)
        with torch.no_grad():
            logits = model(**inputs, labels=ids).logits
        scores.append(logits.log_softmax(-1).gather(2, ids.unsqueeze(2)).sum((1, 2)))
    return torch.stack(scores, 1).softmax(1)


for example in probabilities([{example!r}]).tolist():
    print(dict(zip(labels, example)))
"""

_TUNE_IMPORTS = "from peft import PeftConfig, get_peft_model, load_peft_weights, set_peft_model_state_dict"
_TUNE = """config = PeftConfig.from_pretrained(".")  # "." is this folder
config.inference_mode = False
model = get_peft_model(model, config)
set_peft_model_state_dict(model, load_peft_weights("."))
model.print_trainable_parameters()
"""


def adapter_card(adapter: Adapter, made_for: str, task: "Downstream | None") -> str:
    """Return the card of an exported adapter; `made_for` is the prompt's own description of its backbone."""
    tokens, width = adapter.prompt.shape
    revision = f", revision={adapter.revision!r}" if adapter.revision else ""
    rows = [("backbone", f"`{adapter.base}`" + (f" at {adapter.revision}" if adapter.revision else ""))]
    rows += [("made for", made_for)] if made_for else []
    rows += [("prompt", f"{tokens} tokens of width {width}")]
    if task is None:
        what = "A start for prompt tuning, not a classifier: tune it on labeled examples of your task."
        imports, code = _TUNE_IMPORTS, _TUNE
        note = "A gradient regularizer, if the prompt has one, is not part of a PEFT adapter.\n"
    else:
        what = (
            f"A soft prompt that makes the frozen backbone a classifier; tuned on `{task.dataset or 'labeled texts'}`."
        )
        template = _formattable(task.template)
        rows += [
            ("template", f"`{task.text.replace(MARK, SENTINEL)}`"),
            ("longest input", f"{task.max_length} tokens, the prompt not counted"),
        ]
        rows += [(f"label {name}", f"`{task.template.target(number)}`") for number, name in enumerate(task.labels)]
        labels = {name: task.template.target(number) for number, name in enumerate(task.labels)}
        example = {_identifier(name): f"A {name} to label." for name in task.template.fields}
        imports, code = _PREDICT_IMPORTS, _PREDICT.format(template=template, labels=labels, example=example)
        note = "Cut texts that are too long before they go into the template: the template itself must stay whole.\n"
    load = _LOAD.format(imports=imports, base=adapter.base, revision=revision)
    model = made_for.partition(", files ")[0] if adapter.names_a_folder and made_for else adapter.base
    head = f"{_front(adapter)}# Soft prompt for {model}\n\n{what}\n\n{_table(rows)}"
    return f"{head}\n```python\n{load}{code}```\n\n{note}"


def imported_card(adapter: Adapter, origin: str, digest: str, task: "Downstream | None") -> str:
    """Return the card of a prompt that was imported from an adapter."""
    tokens, width = adapter.prompt.shape
    rows = [
        ("prompt", f"{tokens} tokens of width {width}"),
        ("from", f"`{origin}` (SHA-256 `{digest}`)"),
        ("backbone", f"`{adapter.base or 'not recorded'}`" + (f" at {adapter.revision}" if adapter.revision else "")),
    ]
    if task is not None:
        rows += [("template", f"`{task.text}`"), ("labels", ", ".join(task.labels))]
    said = "Converted by `supmer import` from an adapter of type PROMPT_TUNING; the numbers are its own."
    return f"# A soft prompt from Hugging Face PEFT\n\n{said}\n\n{_table(rows)}"


def _formattable(template: Template) -> str:
    """Return the template for `str.format`; fields are renamed to identifiers, because dots and digits are syntax."""
    parts = []
    for piece in template.pieces:
        match piece:
            case Text(number):
                parts.append(f"{{{_identifier(template.fields[number])}}}")
            case Sentinel():
                parts.append(SENTINEL)
            case literal:
                parts.append(str(literal).replace("{", "{{").replace("}", "}}"))
    return "".join(parts)


def _identifier(name: str) -> str:
    return name if name.isidentifier() else "text_" + re.sub(r"\W", "_", name)


def _front(adapter: Adapter) -> str:
    """Return the front matter of a card, which the hub reads."""
    base = "" if adapter.base.startswith((".", "/")) else f"base_model: {adapter.base}\n"
    return f"---\n{base}library_name: peft\ntags:\n- prompt-tuning\n---\n\n"


def _table(rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| {name} | {' '.join(value.split()).replace('|', '&#124;')} |\n" for name, value in rows]
    return "| | |\n|---|---|\n" + "".join(lines)
