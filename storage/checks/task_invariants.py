"""Invariants of every task, as queries over the views that find violations (ALGORITHM §2).

The module `storage.checks.task_evidence` makes `placed_tasks`, `promised_tasks` and `labeled_rows`.
"""

from dataclasses import dataclass

from storage import paths
from storage.task_formats import ANCHOR_KINDS, CHOICES


@dataclass(frozen=True)
class TaskClaim:
    """A claim, the views it is checked against, and a query whose first column holds the ids that violate it."""

    name: str
    views: tuple[str, ...]
    offenders: str
    broken: str


# SQL counts the elements of lists from 1; labels count from 0. A sentence id is DOCUMENT_ID:INDEX.
_PARTS = """(SELECT task_id, example_id, split, sp_mc_ss, unnest(sentence_ids) AS id, unnest(texts) AS text,
    unnest(clusters) AS cluster FROM (SELECT *, format AS sp_mc_ss FROM tasks WHERE format <> 'labeled'))"""
_PLACES = f"""(SELECT *, split_part(id, ':', 1) AS document_id, TRY_CAST(split_part(id, ':', 2) AS INTEGER) AS "index"
    FROM {_PARTS})"""
_NEXT = """(SELECT example_id, kind, label, candidate,
        split_part(candidate, ':', 1) = split_part(anchor, ':', 1) AS same,
        TRY_CAST(split_part(candidate, ':', 2) AS INTEGER) - TRY_CAST(split_part(anchor, ':', 2) AS INTEGER)
            AS distance, part
    FROM (SELECT example_id, kind, label, sentence_ids[1] AS anchor, unnest(sentence_ids[2:]) AS candidate,
        generate_subscripts(sentence_ids[2:], 1) - 1 AS part FROM tasks WHERE kind IN ('sp-next', 'mc-next')))"""
# The anchors of tasks about clusters, and the partners: sentences of the same cluster that are paired with an anchor.
_ANCHORS = """(SELECT task_id, role, sentence_ids[1] AS id FROM tasks WHERE kind IN ('sp-cluster', 'mc-cluster'))"""
_PARTNERS = """(SELECT task_id, role, example_id, sentence_ids[1] AS anchor, sentence_ids[label + 2] AS partner
    FROM tasks WHERE kind = 'mc-cluster' OR kind = 'sp-cluster' AND label = 0)"""
_KINDS = ", ".join(f"('{kind}', '{form.format}', {form.parts}, {form.labels})" for kind, form in ANCHOR_KINDS.items())

CLAIMS = (
    TaskClaim(
        "examples have the parts of their kind",
        ("tasks",),
        f"""SELECT example_id FROM tasks LEFT JOIN (VALUES {_KINDS}) AS known(kind, format, parts, labels) USING (kind)
        WHERE role NOT IN ('support', 'query') OR label NOT BETWEEN 0 AND tasks.labels - 1
            OR len(sentence_ids) <> len(texts) OR len(clusters) <> len(texts)
            OR (choices IS NOT NULL) <> (kind = 'ss') OR (anchor_cluster IS NULL) <> (kind = 'ss')
            OR CASE WHEN tasks.format = 'labeled' THEN NOT starts_with(kind, 'labeled-')
                ELSE known.format IS DISTINCT FROM tasks.format OR known.parts <> len(texts)
                    OR known.labels <> tasks.labels OR len(choices) <> {CHOICES} END""",
        "examples do not have the parts of their kind",
    ),
    TaskClaim(
        "example ids are unique",
        ("tasks",),
        "SELECT example_id FROM tasks GROUP BY example_id HAVING count(*) > 1",
        "example ids occur more than once in tasks",
    ),
    TaskClaim(
        "tasks are whole",
        ("tasks",),
        """SELECT DISTINCT task_id FROM (
            SELECT task_id, count(*) AS n,
                count(*) <> max(position) + 1 OR count(DISTINCT position) <> count(*) AS gaps,
                max(count(*)) OVER (PARTITION BY role) AS usual, count(*) OVER (PARTITION BY task_id) AS roles
            FROM tasks GROUP BY task_id, role) WHERE gaps OR n <> usual OR roles <> 2
        UNION SELECT task_id FROM tasks GROUP BY task_id
            HAVING count(DISTINCT (format, kind, split, labels, anchor_cluster)) > 1""",
        "tasks lack examples, or are of more than one kind, split or cluster",
    ),
    TaskClaim(
        "the rows of a task lie together in one file, the support set first",
        ("placed_tasks",),
        """SELECT task_id FROM placed_tasks GROUP BY task_id HAVING min(filename) <> max(filename)
            OR max(file_row_number) - min(file_row_number) + 1 <> count(*)
            OR max(file_row_number) FILTER (role = 'support') > min(file_row_number) FILTER (role = 'query')
            OR max(file_row_number - position) FILTER (role = 'support') <> min(file_row_number)
            OR max(file_row_number - position) FILTER (role = 'query')
                <> min(file_row_number - position) FILTER (role = 'query')""",
        "tasks do not lie together, their rows in order",
    ),
    TaskClaim(
        "all tasks are there",
        ("tasks", "promised_tasks"),
        """SELECT format || '-' || split || ' (' || coalesce(t.tasks, 0) || ' of ' || coalesce(p.tasks, 0) || ')'
        FROM promised_tasks p
            FULL JOIN (SELECT format, split, count(DISTINCT task_id) AS tasks FROM tasks GROUP BY ALL) t
            USING (format, split) WHERE t.tasks IS DISTINCT FROM p.tasks""",
        f"formats do not have the tasks that {paths.MATERIALIZE_METRICS} counts",
    ),
    TaskClaim(
        "labels are balanced within a set, and with them the positions of the right choice",
        ("tasks",),
        """SELECT DISTINCT task_id FROM (SELECT task_id, role, max(labels) AS labels, sum(n) AS n, max(n) AS most,
                CASE WHEN count(*) < max(labels) THEN 0 ELSE min(n) END AS least
            FROM (SELECT task_id, role, labels, label, count(*) AS n FROM tasks GROUP BY ALL) GROUP BY task_id, role)
        WHERE most - least > 1""",
        "tasks have a set whose labels are not balanced",
    ),
    TaskClaim(
        "support and query are disjoint",
        ("tasks",),
        """SELECT DISTINCT task_id
        FROM (SELECT task_id, CASE format WHEN 'labeled' THEN texts ELSE texts[:1] END AS asked FROM tasks)
        GROUP BY task_id, asked HAVING count(*) > 1
        UNION SELECT DISTINCT task_id FROM tasks GROUP BY task_id, sentence_ids[1] HAVING count(*) > 1""",
        "tasks ask about the same sentence more than once",
    ),
    TaskClaim(
        "no sentence stands against itself",
        ("tasks",),
        """SELECT example_id FROM tasks WHERE format IN ('sp', 'mc')
            AND (list_contains(sentence_ids[2:], sentence_ids[1]) OR list_contains(texts[2:], texts[1]))""",
        "examples compare a sentence with itself",
    ),
    TaskClaim(
        "choices are different",
        ("tasks",),
        """SELECT example_id FROM tasks WHERE format = 'mc' AND (len(list_distinct(sentence_ids[2:])) < 4
            OR len(list_distinct(texts[2:])) < 4) OR format = 'ss' AND len(list_distinct(choices)) < 4""",
        "examples offer a choice twice",
    ),
    TaskClaim(
        "sentences are those of the corpus",
        ("tasks", "sentences"),
        f"""SELECT DISTINCT p.example_id FROM {_PLACES} p LEFT JOIN sentences s USING (document_id, "index")
        WHERE s.text IS DISTINCT FROM p.text""",
        "examples hold a text that is not the corpus's under that id",
    ),
    TaskClaim(
        "claims about what follows are true",
        ("tasks",),
        f"""SELECT DISTINCT example_id FROM {_NEXT} WHERE NOT coalesce(CASE
            WHEN kind = 'sp-next' AND label = 1 THEN NOT same
            WHEN kind = 'sp-next' AND label = 2 THEN same AND abs(distance) >= 2
            WHEN kind = 'sp-next' OR part = label THEN same AND distance = 1
            ELSE NOT same OR abs(distance) >= 2 END, false)""",
        "examples are wrong about what follows",
    ),
    TaskClaim(
        "clusters are those assigned",
        ("tasks", "assignments"),
        f"""SELECT DISTINCT p.example_id FROM {_PLACES} p LEFT JOIN assignments a USING (document_id, "index")
        WHERE p.cluster IS DISTINCT FROM CASE p.sp_mc_ss WHEN 'sp' THEN a.sp WHEN 'mc' THEN a.mc ELSE a.ss END
            OR a.document_id IS NULL""",
        "examples name a cluster that the sentence is not in",
    ),
    TaskClaim(
        "claims about clusters are true",
        ("tasks",),
        """SELECT example_id FROM tasks WHERE clusters[1] IS NULL OR NOT coalesce(CASE
            WHEN kind <> 'ss' AND anchor_cluster <> clusters[1] THEN false
            WHEN kind = 'sp-cluster' THEN (clusters[1] = clusters[2]) = (label = 0)
            WHEN kind = 'mc-cluster' THEN clusters[label + 2] = clusters[1]
                AND len(list_filter(clusters[2:], lambda one: one = clusters[1])) = 1
            WHEN kind = 'ss' THEN choices[label + 1] = clusters[1]
            ELSE true END, false)
        UNION SELECT task_id FROM tasks WHERE kind = 'ss' GROUP BY task_id
            HAVING count(DISTINCT list_sort(choices)) > 1""",
        "examples are wrong about clusters",
    ),
    TaskClaim(
        "a set of ss has as many sentences of each cluster",
        ("tasks",),
        f"""SELECT DISTINCT task_id FROM (SELECT task_id, role, clusters[1] AS cluster, count(*) AS n
            FROM tasks WHERE kind = 'ss' GROUP BY ALL)
        GROUP BY task_id, role HAVING count(*) <> {CHOICES} OR max(n) - min(n) > 1""",
        "tasks have a set of ss with more sentences of one cluster than of another",
    ),
    TaskClaim(
        "no sentence that one set asks about stands in the other as partner, and no pair stands mirrored",
        ("tasks",),
        f"""SELECT DISTINCT p.example_id FROM {_PARTNERS} p JOIN {_ANCHORS} a
            ON a.task_id = p.task_id AND a.id = p.partner AND a.role <> p.role
        UNION SELECT p.example_id FROM {_PARTNERS} p JOIN {_PARTNERS} q
            ON q.task_id = p.task_id AND q.anchor = p.partner AND q.partner = p.anchor""",
        "examples pair a sentence with one that the other set asks about, or with its own mirror image",
    ),
    TaskClaim(
        "validation documents are in validation tasks alone, and training documents in training tasks",
        ("tasks", "documents"),
        f"""SELECT DISTINCT p.example_id FROM {_PLACES} p LEFT JOIN documents d USING (document_id)
        WHERE d.split IS DISTINCT FROM p.split""",
        "examples hold a sentence of a document of the other split",
    ),
    TaskClaim(
        "no training task holds a text of a validation document",
        ("tasks", "documents", "sentences"),
        f"""SELECT DISTINCT p.example_id FROM {_PARTS} p SEMI JOIN (
            SELECT text FROM sentences SEMI JOIN (FROM documents WHERE split = 'validation') USING (document_id)) v
            ON v.text = p.text WHERE p.split = 'train'""",
        "examples of training tasks hold a text that validation documents have",
    ),
    TaskClaim(
        "labeled examples are in one split alone",
        ("tasks",),
        """SELECT id FROM (SELECT DISTINCT sentence_ids[1] AS id, split FROM tasks WHERE format = 'labeled')
        GROUP BY id HAVING count(*) > 1""",
        "labeled examples are in training and in validation tasks",
    ),
    TaskClaim(
        "labeled examples are those of their set",
        ("tasks", "labeled_rows"),
        """SELECT example_id FROM tasks t LEFT JOIN labeled_rows r ON r.id = t.sentence_ids[1]
        WHERE t.format = 'labeled' AND split_part(t.sentence_ids[1], ':', 1) IN (SELECT name FROM labeled_rows)
            AND (r.texts IS DISTINCT FROM t.texts OR r.label IS DISTINCT FROM t.label)""",
        "labeled examples are not those of their files",
    ),
)
