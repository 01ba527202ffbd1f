"""Label words that vary: what is drawn, and that only the inner step can solve such tasks."""

import math

import numpy as np
import pytest
import torch

from model.meta.curriculum import Curriculum
from model.meta.meta_step import MixedTask, StepForm
from model.meta.objectives import MetaObjective, PlainObjective
from model.meta.ranks import Ranks
from model.meta.trainer import Rates, Trainer
from model.prompt.passes import Passes
from model.t5.backbone import backbone_of
from model.text.label_words import asked_cluster, drawn_words, named_clusters, reworded, word_bank
from model.text.templates import ANCHOR_TEMPLATES
from model.text.tokenization import TemplateTokenizer
from model.text.tokenized_tasks import Example, Task
from storage.errors import InputError
from storage.tables.task_shards import StoredExample, StoredTask
from support import tiny_tokenizers
from support.meta_examples import t5

BANK = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")


def draw(seed=0):
    return np.random.default_rng(seed)


class TestDrawing:
    @pytest.mark.parametrize("kind", ["sp-next", "sp-cluster"])
    @pytest.mark.parametrize("form", ["sentinel", "instruction"])
    def test_pairs_get_different_words_of_the_bank(self, kind, form):
        template = ANCHOR_TEMPLATES[kind][form]
        seen = {reworded(template, kind, BANK, draw(seed)).verbalizer for seed in range(20)}
        assert len(seen) > 10
        assert all(len(set(words)) == len(template.verbalizer) and set(words) <= set(BANK) for words in seen)

    def test_an_instruction_names_them_in_an_order_that_tells_nothing(self):
        template = ANCHOR_TEMPLATES["sp-cluster"]["instruction"]
        first = 0
        for seed in range(200):
            drawn = reworded(template, "sp-cluster", BANK, draw(seed))
            text = drawn.render(["One.", "Two."], []).text
            assert "yes" not in text
            places = [text.index(f" {word}") for word in drawn.verbalizer]
            first += places[0] < places[1]
        assert 70 < first < 130

    @pytest.mark.parametrize("kind", ["mc-next", "mc-cluster", "ss"])
    def test_choices_keep_their_letters_and_answer_by_a_permutation(self, kind):
        template = ANCHOR_TEMPLATES[kind]["instruction"]
        drawn = [reworded(template, kind, BANK, draw(seed)) for seed in range(50)]
        assert {"".join(sorted(one.verbalizer)) for one in drawn} == {"ABCD"}
        assert len({one.verbalizer for one in drawn}) > 10
        assert all(one.pieces == template.pieces for one in drawn)

    def test_words_of_the_bank_are_one_token_each(self):
        tokenizer = TemplateTokenizer.of(tiny_tokenizers.unigram(), 64)
        bank = word_bank(tokenizer, 8)
        assert len(set(bank)) == 8
        assert all(tokenizer.length(word) == 1 for word in bank)

    def test_a_tokenizer_without_words_is_refused_in_a_line(self, monkeypatch):
        tokenizer = TemplateTokenizer.of(tiny_tokenizers.unigram(), 64)
        monkeypatch.setattr(TemplateTokenizer, "words", lambda _self: iter(["a", "of", "Yes", "1999"]))
        with pytest.raises(InputError, match=r"words of one token.*varied_label_words"):
            word_bank(tokenizer)


def permuted_tasks():
    """Two inputs, two labels, both ways to call them: what one task teaches, the other contradicts."""
    words = [np.array([5], np.int32), np.array([6], np.int32)]
    tasks = []
    for number, named in enumerate((words, words[::-1])):
        examples = tuple(
            Example(f"{number}-{label}", label, np.array([20 + 7 * label] * 3, np.int32), named[label])
            for label in range(2)
        )
        tasks.append(Task(f"t{number}", "sp", "sp-cluster", tuple(named), examples, examples))
    return tasks


def trained(objective, steps=200, rate=0.3):
    tasks = permuted_tasks()
    torch.manual_seed(0)
    rates = Rates(rate, 1e-3, steps)
    trainer = Trainer(objective, torch.randn(4, 16, dtype=torch.float64), Curriculum("none"), rates, Ranks())
    for _ in range(steps):
        trainer.train([MixedTask(task) for task in tasks], len(tasks))
    return trainer.held_out([tasks], ["sp-cluster"]).kinds[0]


def among_labels(loss, mass):
    """The part of a loss that is left when the label words have all the probability: chance is log 2."""
    return loss + math.log(mass)


class TestLearning:
    def test_no_prompt_solves_them_without_the_inner_step(self):
        found = trained(PlainObjective(Passes(backbone_of(t5(gated=True)))))
        assert found.right_before <= 0.5
        assert among_labels(found.loss_before, found.mass_before) >= math.log(2) - 0.01

    def test_with_the_inner_step_one_does(self):
        form = StepForm(order=2, inner_rate=0.5, inner_form="rms")
        found = trained(MetaObjective(Passes(backbone_of(t5(gated=True))), None, form))
        assert found.right_before <= 0.5
        assert found.right_after == 1.0
        assert among_labels(found.loss_after, found.mass_after) < 0.5 * math.log(2)
        assert found.loss_after < found.loss_before - 0.5


class TestNamedClusters:
    def stored(self, size=12):
        chance = np.random.default_rng(1)
        examples = []
        for number in range(size):
            choices = tuple(int(cluster) for cluster in chance.permutation([3, 8, 11, 40]))
            label = choices.index([3, 8, 11, 40][number % 4])
            role = "support" if number < size // 2 else "query"
            examples.append(StoredExample(f"e{number}", role, label, (f"text {number}",), (f"s{number}",), choices))
        return StoredTask("t", "ss", "ss", 4, tuple(examples))

    def test_a_label_is_the_same_cluster_wherever_its_centroid_stood(self):
        task = self.stored()
        for seed in range(20):
            named, clusters = named_clusters(task, draw(seed))
            assert len(clusters) == named.labels
            assert 2 <= named.labels <= 4
            clusters = {}
            by_id = {example.example_id: example for example in task.examples}
            for example in named.examples:
                before = by_id[example.example_id]
                assert example.choices == ()
                assert clusters.setdefault(example.label, before.choices[before.label]) == before.choices[before.label]
            assert set(clusters) == set(range(named.labels))

    @pytest.mark.parametrize("form", ["sentinel", "instruction"])
    def test_it_is_asked_in_the_words_that_were_drawn(self, form):
        words = drawn_words(BANK, 3, draw())
        template = asked_cluster(form, words, draw())
        assert template.verbalizer == words
        assert template.slots == 0
        text = template.render(["A sentence."], []).text
        assert all((word in text) == (form == "instruction") for word in words)
