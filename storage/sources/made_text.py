"""Generated text: stories about a few topics, and reviews with a sentiment; the same seed gives the same text.

It is meant for tests and for machines without network: plain English sentences with a vocabulary of about three hundred
words, enough to distinguish topics and to learn praise and blame. It does not replace a corpus.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """The words of one topic."""

    people: str
    things: str
    deeds: str  # in the past tense, with an object
    looks: str
    places: str


TOPICS = {
    "sea": Topic(
        "captain sailor fisherman diver pilot",
        "boat net anchor harbour wave whale lighthouse sail",
        "steered watched repaired followed painted",
        "blue salty stormy deep rusty",
        "near the island|beyond the bay|under the bridge of the ship|along the coast",
    ),
    "kitchen": Topic(
        "cook baker waiter grandmother guest",
        "bread soup onion kettle oven cake knife recipe",
        "stirred tasted baked served burned",
        "warm sweet crisp bitter fresh",
        "on the old stove|before dinner|at the long table|with a wooden spoon",
    ),
    "football": Topic(
        "striker goalkeeper coach referee captain",
        "ball goal match league stadium penalty trophy jersey",
        "kicked won missed defended celebrated",
        "fast tired famous young lucky",
        "in the second half|before the final whistle|in front of the crowd|on the wet grass",
    ),
    "music": Topic(
        "singer drummer pianist conductor composer",
        "song guitar concert melody violin orchestra rhythm choir",
        "played practised recorded sang rehearsed",
        "loud gentle slow cheerful sad",
        "on the small stage|late in the evening|after the applause|in the empty hall",
    ),
    "garden": Topic(
        "gardener neighbour farmer child botanist",
        "rose tree seed fence tomato bee meadow apple",
        "planted watered picked trimmed sold",
        "green ripe tall dry wild",
        "behind the house|in early spring|beside the stream|under the warm sun",
    ),
    "city": Topic(
        "mayor driver policeman architect student",
        "street tram tower market bridge station square museum",
        "crossed built visited closed planned",
        "busy narrow modern noisy grey",
        "in the centre of town|during the strike|next to the river|at rush hour",
    ),
    "science": Topic(
        "professor chemist engineer astronomer doctor",
        "telescope planet theory experiment machine cell laboratory result",
        "measured tested published proved observed",
        "precise strange small bright complex",
        "in the journal|at the university|with great care|for the third time",
    ),
    "money": Topic(
        "banker investor minister clerk owner",
        "loan price company budget tax share profit contract",
        "paid raised signed lost borrowed",
        "high risky cheap annual secret",
        "at the end of the year|during the crisis|in the report|against all advice",
    ),
}

SUBJECTS = {
    "movies": "film story actor scene ending plot dialogue picture director camera",
    "products": "phone battery charger screen keyboard cable case speaker button manual",
    "editorials": "law speech plan election argument decision policy reform court debate",
    "tweets": "morning train party weekend weather game coffee friend trip news",
}
PRAISE = "wonderful brilliant excellent lovely superb delightful charming perfect great splendid"
BLAME = "awful dreadful boring horrible weak disappointing clumsy useless terrible poor"
LIKED = "loved enjoyed admired praised recommended"
DISLIKED = "hated regretted disliked returned avoided"

_STORY = (
    "The {look} {thing} was {look} {place}.",
    "A {person} {deed} the {thing} {place}.",
    "The {person} and the {person} {deed} the {look} {thing}.",
    "Every {person} {deed} one {thing}, and then another {thing}.",
    "{place}, the {person} {deed} a {look} {thing}.",
    "Nobody knew why the {person} {deed} the {thing} and the {thing} {place}.",
    "It was the {look} {thing} that the {person} {deed} {place}.",
)
_REVIEW = (
    "The {thing} was {word} and the {thing} was {word}.",
    "I {verb} the {thing}, a {word} {thing}.",
    "What a {word} {thing}, everybody {verb} the {thing}.",
    "A {word} {thing} with a {word} {thing}.",
    "We {verb} it because the {thing} is so {word}.",
)


@dataclass(frozen=True)
class Review:
    """A text and its label, negative or positive."""

    text: str
    label: str


def stories(documents: int, seed: int) -> Iterator[str]:
    """Yield documents of about two hundred words, each about one topic."""
    names = sorted(TOPICS)
    for number in range(documents):
        draw = random.Random(f"stories/{seed}/{number}")  # noqa: S311 - no secret
        topic = TOPICS[names[number % len(names)]]
        sentences = [_story_sentence(draw, topic) for _ in range(draw.randint(14, 22))]
        yield "\n\n".join(" ".join(sentences[i : i + 5]) for i in range(0, len(sentences), 5))


def reviews(examples: int, subject: str, seed: int) -> Iterator[Review]:
    """Yield reviews of a subject, alternately negative and positive."""
    things = SUBJECTS[subject].split()
    for number in range(examples):
        draw = random.Random(f"reviews/{subject}/{seed}/{number}")  # noqa: S311 - no secret
        good = number % 2 == 1
        words, verbs = (PRAISE, LIKED) if good else (BLAME, DISLIKED)
        named = {"thing": things, "word": words.split(), "verb": verbs.split()}
        chosen = draw.sample(_REVIEW, draw.randint(1, 2))
        text = " ".join(_filled(draw, pattern, named) for pattern in chosen)
        yield Review(text, "positive" if good else "negative")


def _story_sentence(draw: random.Random, topic: Topic) -> str:
    words = {
        "person": topic.people.split(),
        "thing": topic.things.split(),
        "deed": topic.deeds.split(),
        "look": topic.looks.split(),
        "place": topic.places.split("|"),
    }
    return _filled(draw, draw.choice(_STORY), words)


def _filled(draw: random.Random, pattern: str, words: dict[str, list[str]]) -> str:
    """Return the pattern with every {name} replaced by a different word from `words[name]`."""
    left = {name: draw.sample(listed, len(listed)) for name, listed in words.items()}
    text = pattern
    for name, listed in left.items():
        while f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", listed.pop(), 1)
    return text[0].upper() + text[1:]
