"""Meta-training in bfloat16 descends along the gradients of float32: every kind of task, both forms, both orders."""

import numpy as np
import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from model.meta.meta_step import MixedTask, StepForm, meta_gradients
from model.prompt.passes import Passes
from model.prompt.regularizer import GradientRegularizer
from model.prompt.rows import Centroids
from model.t5.backbone import backbone_of
from model.text.tokenization import TemplateTokenizer
from storage.task_formats import ANCHOR_KINDS
from support import tiny_tokenizers
from support.task_tables import write_tasks
from tasks.metatrain.task_reader import TaskReader

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTH, TOKENS = 64, 8
COSINE = {"prompt": 0.99, "regularizer": 0.98}


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizers.unigram()


@pytest.fixture(scope="module")
def tasks(tmp_path_factory, tokenizer):
    """Two tasks of each kind in each form, the second as the partner of the first."""
    folder = write_tasks(tmp_path_factory.mktemp("tasks"), dict.fromkeys(ANCHOR_KINDS, 2))
    made = {}
    for form in ("sentinel", "instruction"):
        for kind in ANCHOR_KINDS:
            options = {"seed": 3, "batch_size": 2, "kinds": (kind,)}
            with TaskReader(folder, TemplateTokenizer.of(tokenizer, 512), form, **options).once() as stream:
                made[form, kind] = next(stream).tasks
    return made


def random_t5(tokenizer):
    """Return a random gated T5 whose decoder looks at the encoder, so that prompts matter."""
    torch.manual_seed(0)
    shape = {"d_model": WIDTH, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 2}
    config = T5Config(vocab_size=len(tokenizer), feed_forward_proj="gated-gelu", decoder_start_token_id=0, **shape)
    model = T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for block in model.decoder.block:
            for layer in (block.layer[1].EncDecAttention.v, block.layer[1].EncDecAttention.o):
                layer.weight.mul_(4)
    return model


@pytest.fixture(scope="module")
def both(tokenizer):
    """Passes through the same weights in float32 and in bfloat16."""
    vectors = torch.from_numpy(np.random.default_rng(1).normal(size=(20, WIDTH)).astype(np.float32))
    centroids = Centroids(vectors, {("ss", number): number for number in range(20)})
    return [Passes(backbone_of(random_t5(tokenizer).to(dtype)), centroids) for dtype in (torch.float32, torch.bfloat16)]


def cosine(one, other):
    return torch.cosine_similarity(one.flatten(), other.flatten(), dim=0).item()


def regularizer_of():
    torch.manual_seed(1)
    regularizer = GradientRegularizer(WIDTH, 8)
    with torch.no_grad():
        for parameter in regularizer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return regularizer


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", ANCHOR_KINDS)
@pytest.mark.parametrize("form", ["sentinel", "instruction"])
def test_the_gradients_point_where_those_of_float32_do(tasks, both, form, kind, order):
    task, partner = tasks[form, kind]
    torch.manual_seed(2)
    theta, step = torch.randn(TOKENS, WIDTH), StepForm(order=order, inner_rate=0.1, inner_form="rms")
    wide, low = (
        meta_gradients(passes, theta, regularizer_of(), [MixedTask(task, partner, 0.7)], step, 0.3) for passes in both
    )
    assert low.prompt.dtype == torch.float32
    assert cosine(low.prompt, wide.prompt) > COSINE["prompt"]
    assert low.prompt.norm().item() == pytest.approx(wide.prompt.norm().item(), rel=0.1)
    assert low.regularizer.keys() == wide.regularizer.keys()
    for name, gradient in wide.regularizer.items():
        assert low.regularizer[name].dtype == torch.float32
        assert cosine(low.regularizer[name], gradient) > COSINE["regularizer"], name
