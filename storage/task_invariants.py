"""What must hold of every task, as queries over the views that find where it does not (ALGORITHM §2)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskClaim:
    """A claim, the views it is checked against, and the query whose first column names what breaks it."""

    name: str
    views: tuple[str, ...]
    offenders: str
    broken: str


# Lists count from 1 in SQL, labels from 0. A sentence id is DOCUMENT_ID:INDEX.
_PARTS = """(SELECT task_id, example_id, split, sp_mc_ss, unnest(sentence_ids) AS id, unnest(texts) AS text,
    unnest(clusters) AS cluster FROM (SELECT *, format AS sp_mc_ss FROM tasks WHERE format <> 'labeled'))"""
_PLACES = f"""(SELECT *, split_part(id, ':', 1) AS document_id, TRY_CAST(split_part(id, ':', 2) AS INTEGER) AS "index"
    FROM {_PARTS})"""
_NEXT = """(SELECT example_id, kind, label, candidate,
        split_part(candidate, ':', 1) = split_part(anchor, ':', 1) AS same,
        split_part(candidate, ':', 2)::INTEGER - split_part(anchor, ':', 2)::INTEGER AS distance, part
    FROM (SELECT example_id, kind, label, sentence_ids[1] AS anchor, unnest(sentence_ids[2:]) AS candidate,
        generate_subscripts(sentence_ids[2:], 1) - 1 AS part FROM tasks WHERE kind IN ('sp-next', 'mc-next')))"""

CLAIMS = (
    TaskClaim(
        "examples have the parts of their kind",
        ("tasks",),
        """SELECT example_id FROM tasks LEFT JOIN (VALUES ('sp-next', 'sp', 2, 3), ('sp-cluster', 'sp', 2, 2),
            ('mc-next', 'mc', 5, 4), ('mc-cluster', 'mc', 5, 4), ('ss', 'ss', 1, 4))
            AS known(kind, format, parts, labels) USING (kind)
        WHERE role NOT IN ('support', 'query') OR label NOT BETWEEN 0 AND tasks.labels - 1
            OR len(sentence_ids) <> len(texts) OR len(clusters) <> len(texts)
            OR (choices IS NOT NULL) <> (kind = 'ss') OR (anchor_cluster IS NULL) <> (kind = 'ss')
            OR CASE WHEN tasks.format = 'labeled' THEN NOT starts_with(kind, 'labeled-')
                ELSE known.format IS DISTINCT FROM tasks.format OR known.parts <> len(texts)
                    OR known.labels <> tasks.labels OR len(choices) <> 4 END""",
        "examples do not have the parts of their kind",
    ),
    TaskClaim(
        "example ids are unique",
        ("tasks",),
        "SELECT example_id FROM tasks GROUP BY example_id HAVING count(*) > 1",
        "example ids stand more than once in tasks",
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
        f"""SELECT DISTINCT example_id FROM {_NEXT} WHERE NOT CASE
            WHEN kind = 'sp-next' AND label = 1 THEN NOT same
            WHEN kind = 'sp-next' AND label = 2 THEN same AND abs(distance) >= 2
            WHEN kind = 'sp-next' OR part = label THEN same AND distance = 1
            ELSE NOT same OR abs(distance) >= 2 END""",
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
        "validation documents are in validation tasks alone, and training documents in training tasks",
        ("tasks", "documents"),
        f"""SELECT DISTINCT p.example_id FROM {_PLACES} p LEFT JOIN documents d USING (document_id)
        WHERE d.split IS DISTINCT FROM p.split""",
        "examples hold a sentence of a document of the other split",
    ),
    TaskClaim(
        "labeled examples are in one split alone",
        ("tasks",),
        """SELECT id FROM (SELECT DISTINCT sentence_ids[1] AS id, split FROM tasks WHERE format = 'labeled')
        GROUP BY id HAVING count(*) > 1""",
        "labeled examples are in training and in validation tasks",
    ),
)
