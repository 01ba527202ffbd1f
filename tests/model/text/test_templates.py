"""Templates say what the paper says; tokenization is that of the rendered text, and cuts nothing but texts."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.text.templates import ANCHOR_TEMPLATES, SENTINEL, anchor_template, labeled_template, parse_template
from model.text.tokenization import TemplateTokenizer, shortened
from storage.errors import InputError
from support import tiny_tokenizers

FAMILIES = ["unigram", "byte_level", "word_level"]
ALL = [(kind, form) for kind, forms in ANCHOR_TEMPLATES.items() for form in forms]


@pytest.fixture(scope="module")
def tokenizers():
    return {name: getattr(tiny_tokenizers, name)() for name in FAMILIES}


class TestTemplates:
    @pytest.mark.parametrize(
        ("kind", "texts", "slots", "text", "target"),
        [
            ("sp-next", ["One.", "Two."], [], "One. <extra_id_0>. Two.", "<extra_id_0> maybe"),
            (
                "mc-cluster",
                ["Q", "a", "b", "c", "d"],
                [],
                "Q? A.a B.b C.c D.d. Answer: <extra_id_0>",
                "<extra_id_0> C",
            ),
            (
                "ss",
                ["Q"],
                ["[1]", "[2]", "[3]", "[4]"],
                "Q? A.[1] B.[2] C.[3] D.[4]. Answer: <extra_id_0>",
                "<extra_id_0> C",
            ),
        ],
    )
    def test_the_sentinel_forms_are_the_papers(self, kind, texts, slots, text, target):
        template = ANCHOR_TEMPLATES[kind]["sentinel"]
        assert template.render(texts, slots).text == text
        assert template.target(2) == target

    def test_pairs_say_yes_no_and_maybe(self):
        assert ANCHOR_TEMPLATES["sp-next"]["sentinel"].verbalizer == ("yes", "no", "maybe")
        assert ANCHOR_TEMPLATES["sp-cluster"]["sentinel"].verbalizer == ("yes", "no")

    @pytest.mark.parametrize("kind", ANCHOR_TEMPLATES)
    def test_an_instruction_has_no_sentinel_and_its_target_is_the_word(self, kind):
        template = ANCHOR_TEMPLATES[kind]["instruction"]
        rendered = template.render(["text"] * len(template.fields), ["μ"] * template.slots)
        assert SENTINEL not in rendered.text
        assert template.target(0) == template.verbalizer[0]
        assert template.form == "instruction"
        assert ANCHOR_TEMPLATES[kind]["sentinel"].form == "sentinel"

    @pytest.mark.parametrize(("kind", "form"), ALL)
    def test_spans_are_where_the_texts_and_slots_are(self, kind, form):
        template = ANCHOR_TEMPLATES[kind][form]
        texts = [f"text{number}" for number in range(len(template.fields))]
        slots = [f"slot{number}" for number in range(template.slots)]
        rendered = template.render(texts, slots)
        assert [rendered.text[start:end] for start, end in rendered.texts] == texts
        assert [rendered.text[start:end] for start, end in rendered.slots] == slots

    def test_a_labeled_set_without_a_template_counts_its_labels_from_one(self):
        template = anchor_template("labeled-stars", "sentinel", 2, 5)
        assert template == labeled_template("sentinel", 2, 5)
        assert template.render(["Good", "Bad"], []).text == "Good Bad. Label: <extra_id_0>"
        assert template.target(4) == "<extra_id_0> 5"

    def test_braces_are_written_twice(self):
        assert parse_template("{{{a}}} <X>", ["a"], ["x"]).render(["t"], []).text == "{t} <extra_id_0>"

    @pytest.mark.parametrize(
        ("text", "fields", "words", "message"),
        [
            ("{a", ["a"], ["x"], "write {field}"),
            ("{b}", ["a"], ["x"], "no field b, there is a"),
            ("{a!r}", ["a"], ["x"], "takes no format"),
            ("{a:>9}", ["a"], ["x"], "takes no format"),
            ("{a} {a}", ["a"], ["x"], "a must be in it exactly once"),
            ("{a}", ["a", "b"], ["x"], "b must be in it exactly once"),
            ("{a} <X> <X>", ["a"], ["x"], "once only"),
            ("{a} {μ1}", ["a"], ["x"], "must be μ0 to μ0"),
            ("{a}", ["a"], [], "each label needs a word"),
            ("{a}", ["a"], ["x", "x"], "each label needs a word"),
        ],
    )
    def test_a_wrong_template_is_one_line(self, text, fields, words, message):
        with pytest.raises(InputError, match=message) as refused:
            parse_template(text, fields, words)
        assert "\n" not in str(refused.value)

    def test_wrong_numbers_of_texts_and_unknown_kinds_are_refused(self):
        with pytest.raises(InputError, match="takes 2 texts and 0 centroids, not 1 texts"):
            ANCHOR_TEMPLATES["sp-next"]["sentinel"].render(["one"], [])
        with pytest.raises(InputError, match="no such kind of task: there are sp-next, sp-cluster"):
            anchor_template("sp-other", "sentinel", 2, 2)


class TestTokenization:
    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize(("kind", "form"), ALL)
    def test_ids_are_those_of_the_rendered_text(self, tokenizers, family, kind, form):
        tokenizer, template = tokenizers[family], ANCHOR_TEMPLATES[kind][form]
        writer = TemplateTokenizer.of(tokenizer, 512)
        generator = random.Random(1)
        texts = [tiny_tokenizers.sentence(generator) for _ in template.fields]
        (encoded,) = writer.encode(template, [texts])
        rendered = template.render(texts, [writer.placeholder] * template.slots)
        assert encoded.ids == tokenizer(rendered.text)["input_ids"]
        assert encoded.full_length == len(encoded.ids)
        placeholder = tokenizer.convert_tokens_to_ids(writer.placeholder)
        assert [encoded.ids[position] for position in encoded.slots] == [placeholder] * template.slots
        assert list(encoded.slots) == sorted(set(encoded.slots))

    def test_the_target_has_the_sentinel_and_the_word_and_no_end(self, tokenizers):
        tokenizer = tokenizers["unigram"]
        writer = TemplateTokenizer.of(tokenizer, 512)
        sentinel, word = writer.target(ANCHOR_TEMPLATES["sp-next"]["sentinel"], 0)
        assert tokenizer.convert_ids_to_tokens([sentinel, word]) == ["<extra_id_0>", "▁yes"]
        assert writer.target(ANCHOR_TEMPLATES["sp-next"]["instruction"], 0) == [word]

    @pytest.mark.parametrize("family", FAMILIES)
    @settings(max_examples=60, deadline=None)
    @given(
        choice=st.sampled_from(ALL),
        texts=st.lists(
            st.text(alphabet="abc riveßcouncil .?é<>_0", max_size=60) | st.sampled_from(["", "<extra_id_0></s><pad>"]),
            min_size=5,
            max_size=5,
        ),
        max_length=st.integers(60, 120),
    )
    def test_cutting_keeps_the_template_whole(self, tokenizers, family, choice, texts, max_length):
        tokenizer, template = tokenizers[family], ANCHOR_TEMPLATES[choice[0]][choice[1]]
        own = texts[: len(template.fields)]
        try:
            (encoded,) = TemplateTokenizer.of(tokenizer, max_length).encode(template, [own])
        except InputError as error:
            assert "too short" in str(error)  # noqa: PT017 - a refusal is right for some of the examples
            return
        writer = TemplateTokenizer.of(tokenizer, 10_000)
        (whole,) = writer.encode(template, [own])
        assert len(encoded.ids) == min(len(whole.ids), max_length)
        assert encoded.full_length == len(whole.ids)
        remaining = iter(whole.ids)
        assert all(token in remaining for token in encoded.ids), "nothing is added, nothing changes its order"
        sentinel = tokenizer.convert_tokens_to_ids(SENTINEL)
        assert encoded.ids.count(sentinel) == (choice[1] == "sentinel")
        slot = tokenizer.convert_tokens_to_ids(writer.placeholder)
        assert [encoded.ids[position] for position in encoded.slots] == [slot] * template.slots
        plain = [writer.plain(text) for text in own]
        shown = [text[:kept] for text, kept in zip(plain, encoded.kept, strict=True)]
        for short, text in zip(shown, plain, strict=True):
            # A token of each text stays: less than a letter, where bytes are tokens.
            assert short or not text.strip() or writer.length(text.strip()[0]) > 1

    @pytest.mark.parametrize("family", FAMILIES)
    def test_letters_and_literals_survive_the_shortest_length(self, tokenizers, family):
        tokenizer, template = tokenizers[family], ANCHOR_TEMPLATES["mc-next"]["sentinel"]
        (bare,) = TemplateTokenizer.of(tokenizer, 512).encode(template, [["the"] * 5])
        generator = random.Random(0)
        texts = [" ".join(["the", *generator.choices(["river", "the"], k=30)]) for _ in range(5)]
        (encoded,) = TemplateTokenizer.of(tokenizer, len(bare.ids) + 3).encode(template, [texts])
        said = tokenizer.decode(encoded.ids)
        for literal in ("A", "B", "C", "D", "Answer", SENTINEL):
            assert literal in said

    def test_a_text_cannot_forge_special_tokens(self, tokenizers):
        tokenizer = tokenizers["unigram"]
        writer = TemplateTokenizer.of(tokenizer, 512)
        (encoded,) = writer.encode(ANCHOR_TEMPLATES["ss"]["sentinel"], [["a <pad> b <extra_id_0> </s> <extra_id_1>"]])
        special = [token for token in encoded.ids if token in tokenizer.all_special_ids]
        names = ["<pad>"] * 4 + ["<extra_id_0>", "</s>"]
        assert [name for name in tokenizer.convert_ids_to_tokens(special) if name != "<unk>"] == names

    def test_a_length_that_the_template_alone_exceeds_is_refused(self, tokenizers):
        writer = TemplateTokenizer.of(tokenizers["unigram"], 10)
        with pytest.raises(InputError, match="max_length = 10 is too short"):
            writer.encode(ANCHOR_TEMPLATES["mc-next"]["sentinel"], [["the river", "a", "b", "c", "d"]])

    def test_the_folder_of_a_model_gives_the_same_without_transformers(self, tokenizers, tmp_path):
        tokenizers["unigram"].save_pretrained(tmp_path)
        texts = [["The river.", "The city."]]
        template = ANCHOR_TEMPLATES["sp-next"]["sentinel"]
        direct = TemplateTokenizer.of(tokenizers["unigram"], 64).encode(template, texts)
        assert TemplateTokenizer.from_folder(tmp_path, 64).encode(template, texts) == direct

    def test_settings_of_the_callers_tokenizer_stay_and_do_not_cut(self, tokenizers):
        backend = tokenizers["unigram"].backend_tokenizer
        backend.enable_truncation(5)
        try:
            texts = [["The river and the city.", "The council of the city."]]
            (encoded,) = TemplateTokenizer.of(tokenizers["unigram"], 64).encode(
                ANCHOR_TEMPLATES["sp-next"]["sentinel"], texts
            )
            assert len(encoded.ids) > 5
            assert backend.truncation["max_length"] == 5
        finally:
            backend.no_truncation()

    def test_what_is_no_fast_tokenizer_is_refused_in_one_line(self, tmp_path):
        with pytest.raises(InputError, match=r"no tokenizer.json"):
            TemplateTokenizer.from_folder(tmp_path, 64)
        (tmp_path / "tokenizer.json").write_text("{}")
        with pytest.raises(InputError, match="cannot be read"):
            TemplateTokenizer.from_folder(tmp_path, 64)

    @pytest.mark.parametrize("settings", ["null", "3.5", '"pad"', "[]"])
    def test_settings_of_a_tokenizer_that_are_no_mapping_are_refused_in_one_line(self, tiny_models, tmp_path, settings):
        (tmp_path / "tokenizer.json").write_bytes((tiny_models / "backbone" / "tokenizer.json").read_bytes())
        (tmp_path / "tokenizer_config.json").write_text(settings)
        with pytest.raises(InputError, match="give it a pad token"):
            TemplateTokenizer.from_folder(tmp_path, 64)

    def test_the_sentinel_form_needs_a_tokenizer_with_the_sentinel(self, tiny_models):
        writer = TemplateTokenizer.from_folder(tiny_models / "backbone", 64)
        writer.require("instruction")
        with pytest.raises(InputError, match=r"set metatrain\.template to instruction"):
            writer.require("sentinel")


class TestShortening:
    @given(lengths=st.lists(st.integers(0, 30), min_size=1, max_size=6), share=st.floats(0, 1))
    def test_it_is_one_token_at_a_time_from_the_longest(self, lengths, share):
        room = int(sum(lengths) * share)
        expected = list(lengths)
        while sum(expected) > room:
            longest = max(expected)
            last = max(number for number, length in enumerate(expected) if length == longest)
            expected[last] -= 1
        assert shortened(lengths, room) == expected
