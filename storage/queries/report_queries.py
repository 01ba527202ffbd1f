"""The SQL of the report: one named query for each figure and table, which can be run again with `supmer sql`.

No query binds values or contains a double quote or a dollar sign, so that the command can be pasted into a shell.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from storage.queries.views import run_query, view_columns

Row = dict[str, Any]
POINTS = 200  # points of a meta-training curve: more would not be visible


@dataclass(frozen=True)
class Query:
    """A query: its name, the views it reads, and its text, formatted for people."""

    name: str
    views: tuple[str, ...]
    text: str

    @property
    def command(self) -> str:
        """The command line that runs the query."""
        return f'supmer sql "{" ".join(self.text.split())}"'


def ask(root: Path, connection: duckdb.DuckDBPyConnection, query: Query) -> list[Row]:
    """Return the rows of a query; none if one of its views has no shards."""
    if not all(view_columns(connection, view) for view in query.views):
        return []
    result = run_query(root, connection, query.text)
    return [dict(zip(result.columns, map(_finite, row), strict=True)) for batch in result.batches for row in batch]


def _finite(value: object) -> object:
    """Return the value, or None if it is NaN or infinite, as in runs that diverged."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


# The score of a method is the mean over seeds, each with the learning rate chosen for it by validation.
RESULTS = Query(
    "results",
    ("scores",),
    """\
SELECT dataset, tested_on, method, shots, count(*) AS runs, count(score) AS seeds,
       100 * avg(score) AS mean, 100 * stddev_samp(score) AS deviation,
       max(examples) AS examples, count(*) FILTER (WHERE status <> 'ok') AS troubled
FROM scores
WHERE chosen
GROUP BY ALL
ORDER BY ALL""",
)


def paired(reference: str) -> Query:
    """Return the query for the differences between a method and every other, by the same seeds and test examples.

    A method without a seed is compared with every seed of the reference. The variances are those of the mean
    difference of a seed and of a test example.
    """
    return Query(
        "paired",
        ("predictions",),
        f"""\
SELECT dataset, tested_on, shots, method, count(seed) AS seeds, count(example_id) AS examples,
       avg(gain) FILTER (WHERE seed IS NOT NULL) AS difference,
       var_samp(gain) FILTER (WHERE seed IS NOT NULL) AS seed_variance,
       var_samp(gain) FILTER (WHERE example_id IS NOT NULL) AS example_variance
FROM (SELECT dataset, tested_on, ours.shots AS shots, theirs.method AS method, ours.seed AS seed, example_id,
             100 * avg((ours.predicted = ours.label)::INT - (theirs.predicted = theirs.label)::INT) AS gain
      FROM predictions AS ours
      JOIN predictions AS theirs USING (dataset, tested_on, example_id)
      WHERE ours.method = '{reference}' AND theirs.method <> '{reference}'
        AND coalesce(theirs.seed, ours.seed) = ours.seed
        AND coalesce(nullif(theirs.shots, 0), ours.shots) = ours.shots
      GROUP BY GROUPING SETS ((dataset, tested_on, ours.shots, theirs.method, ours.seed),
                              (dataset, tested_on, ours.shots, theirs.method, example_id)))
GROUP BY dataset, tested_on, shots, method
ORDER BY dataset, tested_on, shots, method""",
    )


def confusion(shots: int) -> Query:
    """Return the query for the predictions of every method on the set it was tuned on, counted by label."""
    return Query(
        "confusion",
        ("predictions",),
        f"""\
SELECT dataset, method, label, label_name, predicted, predicted_name, count(*) AS predictions,
       count(DISTINCT seed) AS seeds
FROM predictions
WHERE tested_on = dataset AND (shots = {shots} OR shots = 0)
GROUP BY ALL
ORDER BY dataset, method, label, predicted""",
    )


def mistakes(method: str, shots: int, count: int) -> Query:
    """Return the query for the test examples of each set that a method gets wrong with the highest probability."""
    return Query(
        "mistakes",
        ("predictions", "tested_examples"),
        f"""\
SELECT dataset, example_id, any_value(texts) AS texts, any_value(wrongly.label_name) AS label,
       mode(predicted_name) AS predicted, count(*) AS wrong, any_value(runs) AS runs, 100 * avg(share) AS probability
FROM (SELECT *, count(*) OVER (PARTITION BY dataset, example_id) AS runs,
             1 / list_sum(list_transform(log_probabilities,
                                         lambda p: exp(p - list_max(log_probabilities)))) AS share
      FROM predictions
      WHERE method = '{method}' AND tested_on = dataset AND (shots = {shots} OR shots = 0)) AS wrongly
LEFT JOIN tested_examples USING (dataset, example_id)
WHERE predicted <> wrongly.label
GROUP BY dataset, example_id
QUALIFY row_number() OVER (PARTITION BY dataset ORDER BY count(*) DESC, avg(share) DESC, example_id) <= {count}
ORDER BY dataset, wrong DESC, probability DESC, example_id""",
    )


COSTS = Query(
    "costs",
    ("costs",),
    """\
SELECT method, max(parameters) AS parameters, avg(seconds) AS seconds, max(memory_bytes) AS memory_bytes
FROM costs
GROUP BY method
ORDER BY method""",
)


def curves(shots: int) -> Query:
    """Return the query for validation curves during tuning: means over seeds at the chosen learning rates."""
    return Query(
        "curves",
        ("curves", "scores"),
        f"""\
SELECT dataset, method, step, count(*) AS seeds,
       100 * avg(validation_score) AS mean, 100 * stddev_samp(validation_score) AS deviation,
       avg(train_loss) AS train_loss, avg(validation_loss) AS validation_loss
FROM curves
SEMI JOIN (FROM scores WHERE chosen) USING (dataset, method, shots, seed, learning_rate)
WHERE shots = {shots} AND isfinite(validation_score)
GROUP BY dataset, method, step
ORDER BY dataset, method, step""",
    )


SHOTS = Query(
    "shots",
    ("scores",),
    """\
SELECT dataset, method, shots, count(score) AS seeds,
       100 * avg(score) AS mean, 100 * stddev_samp(score) AS deviation
FROM scores
WHERE chosen AND tested_on = dataset
GROUP BY dataset, method, shots
QUALIFY count(*) OVER (PARTITION BY dataset, method) > 1
ORDER BY dataset, method, shots""",
)


def sensitivity(shots: int) -> Query:
    """Return the query for the validation scores of all runs, which show the effect of seed and learning rate."""
    return Query(
        "sensitivity",
        ("scores",),
        f"""\
SELECT dataset, method, count(*) AS runs, 100 * min(validation_score) AS lowest,
       100 * median(validation_score) AS middle, 100 * max(validation_score) AS highest,
       100 * stddev_samp(validation_score) AS deviation,
       list({{seed: seed, learning_rate: learning_rate, chosen: chosen, score: 100 * validation_score}}
            ORDER BY seed, learning_rate) AS each
FROM scores
WHERE tested_on = dataset AND shots = {shots} AND learning_rate IS NOT NULL AND isfinite(validation_score)
GROUP BY dataset, method
ORDER BY dataset, method""",
    )


# `lambda` is a keyword of SQL: as a column it needs the name of its table.
STEPS = Query(
    "steps",
    ("steps",),
    f"""\
SELECT variant, max(step) AS step, avg(similarity) AS similarity, avg(steps.lambda) AS mixed_in,
       avg(b) AS b, avg(gate) AS gate, avg(support_loss) AS support_loss, avg(query_loss) AS query_loss
FROM (SELECT *, (step - 1) // ceil(max(step) OVER (PARTITION BY variant) / {POINTS})::BIGINT AS bin
      FROM steps) AS steps
GROUP BY variant, bin
ORDER BY variant, step""",
)

# Always includes the initial prompt and the best one; if there are many validations, it takes every n-th.
HELD_OUT = Query(
    "held_out",
    ("held_out",),
    f"""\
SELECT variant, step, held_out_loss, best
FROM (SELECT variant, step, held_out_loss,
             step > 0 AND held_out_loss = min(held_out_loss) FILTER (step > 0) OVER (PARTITION BY variant) AS best,
             row_number() OVER (PARTITION BY variant ORDER BY step DESC) - 1 AS place,
             ceil(count(*) OVER (PARTITION BY variant) / {POINTS})::BIGINT AS every
      FROM held_out)
WHERE step = 0 OR best OR place % every = 0
ORDER BY variant, step""",
)

# Percentage of held-out examples answered correctly, by kind; `best` marks the prompt that is kept.
KINDS = Query(
    "kinds",
    ("kinds", "held_out"),
    f"""\
SELECT variant, kind, step, 100 * right_before AS right_before, 100 * right_after AS right_after,
       100 * chance AS chance, coalesce(loss_after, loss_before) AS loss, chance_loss,
       100 * coalesce(mass_after, mass_before) AS mass, examples, learned, best
FROM (SELECT variant, step,
             step > 0 AND held_out_loss = min(held_out_loss) FILTER (step > 0) OVER (PARTITION BY variant) AS best,
             row_number() OVER (PARTITION BY variant ORDER BY step DESC) - 1 AS place,
             ceil(count(*) OVER (PARTITION BY variant) / {POINTS})::BIGINT AS every
      FROM held_out)
JOIN kinds USING (variant, step)
WHERE step = 0 OR best OR place % every = 0
ORDER BY kind, variant, step""",
)

CLUSTER_SIZES = Query(
    "cluster_sizes",
    ("centroids",),
    """\
SELECT format, row_number() OVER (PARTITION BY format ORDER BY size DESC, cluster) AS place,
       cluster, size, training, len(merged) AS merged
FROM centroids
ORDER BY format, place""",
)


# The vectors are long: SQL shows them, the page only their map.
CLUSTER_MAP = Query(
    "cluster_map",
    ("centroids", "nearest"),
    """\
SELECT format, cluster, size, embedding, text
FROM centroids
LEFT JOIN (SELECT format, cluster, text FROM nearest WHERE rank = 1) USING (format, cluster)
ORDER BY format, size DESC, cluster""",
)


def clusters(count: int) -> Query:
    """Return the query for the largest clusters, alternating between formats, with their nearest sentences."""
    return Query(
        "clusters",
        ("centroids", "nearest"),
        f"""\
SELECT format, cluster, any_value(size) AS size, list(text ORDER BY rank) AS nearest
FROM (SELECT format, cluster, size, row_number() OVER (PARTITION BY format ORDER BY size DESC, cluster) AS place
      FROM centroids)
JOIN nearest USING (format, cluster)
WHERE rank <= 3
GROUP BY format, cluster, place
ORDER BY place, format
LIMIT {count}""",
    )


TASKS = Query(
    "tasks",
    ("tasks",),
    """\
SELECT kind, any_value(labels) AS labels,
       count(*) FILTER (WHERE split = 'train' AND role = 'support' AND position = 0) AS train_tasks,
       count(*) FILTER (WHERE split = 'validation' AND role = 'support' AND position = 0) AS validation_tasks,
       count(*) AS examples
FROM tasks
GROUP BY kind
ORDER BY kind""",
)


def task_samples(count: int) -> Query:
    """Return the query for sample training examples of each kind, drawn by the hash of the id: always the same."""
    return Query(
        "task_samples",
        ("tasks",),
        f"""\
SELECT kind, format, example_id, role, label, labels, texts, coalesce(choices, []) AS choices
FROM tasks
SEMI JOIN (SELECT unnest(min_by(example_id, md5(example_id), {count})) AS example_id
           FROM tasks WHERE split = 'train' GROUP BY kind) USING (example_id)
WHERE split = 'train'
ORDER BY kind, md5(example_id)""",
    )


TOPICS = Query("topics", ("nearest",), "SELECT format, cluster, text FROM nearest WHERE rank = 1 ORDER BY ALL")

DOCUMENTS = Query(
    "documents",
    ("documents",),
    """\
SELECT source, count(*) AS documents, count(*) FILTER (WHERE split = 'validation') AS put_aside,
       sum(sentences) AS sentences, sum(words) AS words, sum(bytes) AS bytes
FROM documents
GROUP BY source
ORDER BY source""",
)

EXCLUDED = Query(
    "excluded",
    ("excluded",),
    """\
SELECT reason, count(*) AS documents
FROM excluded
GROUP BY reason
ORDER BY documents DESC, reason""",
)

PROMPTS = Query(
    "prompts",
    ("scores",),
    """\
SELECT dataset, method, shots, any_value(prompt_hash) AS started_from, seed, learning_rate, best_step, steps, status,
       100 * validation_score AS validation, tuned_hash
FROM scores
WHERE chosen AND tested_on = dataset AND learning_rate IS NOT NULL
GROUP BY ALL
ORDER BY ALL""",
)
