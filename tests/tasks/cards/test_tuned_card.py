"""The card of a tuned prompt: labels are data, and may hold anything."""

from tasks.cards.tuned_card import tuned_card

DOWNSTREAM = {
    "dataset": "mine",
    "labels": ["negative", "positive"],
    "words": ["bad", "good"],
    "template": "{text} It was <X>.",
    "status": "ok",
    "shots": 16,
    "method": "pt",
    "start": "0" * 64,
    "data": "1" * 64,
    "seed": 10,
    "learning_rate": 0.3,
    "precision": "float32",
    "validation_score": 0.5,
    "max_length": 24,
    "backbone": {"source": "hf:org/name", "hash": "2" * 64},
}


def test_labels_and_words_are_escaped():
    labels = ["<script>alert(1)</script>", "[a](http://b)", "two\n\n# lines"]
    card = tuned_card(
        DOWNSTREAM | {"labels": labels, "words": ["*a*", "`b`", "c|d"]}, "Prompt", "`prompt.safetensors` holds θ"
    )
    assert "<script>" not in card
    assert r"\<script\>alert(1)\</script\> (“\*a\*”), \[a\](http://b) (“\`b\`”), two \# lines (“c\|d”)." in card


def test_plain_labels_and_the_template_stay_as_they_are():
    card = tuned_card(DOWNSTREAM, "Prompt", "`prompt.safetensors` holds θ")
    assert "Labels and their words: negative (“bad”), positive (“good”)." in card
    assert "\n    {text} It was <X>.\n" in card
