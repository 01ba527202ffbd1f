"""The report stage: its inputs and queries, the lineage it shows, and the same bytes for the same inputs."""

import json
import re
import shlex
from pathlib import Path

from ruamel.yaml import YAML

from storage.queries.report_queries import ask
from storage.queries.views import connect, datasets
from support import report_room
from support.command_line import resolve
from support.report_page import Page, html, markdown, markdown_table
from support.report_room import event, run
from tasks.report.data import report_queries

REPOSITORY = Path(__file__).parents[3]
STAGE = YAML(typ="safe").load((REPOSITORY / "dvc.yaml").read_text())["stages"]["report"]


def test_dvc_yaml_declares_what_the_tests_run_with():
    declared = {path for path in STAGE["deps"] if path.startswith("data/")}
    assert declared == set(report_room.INPUTS)
    assert [*STAGE["outs"], *STAGE["metrics"]] == report_room.OUTPUTS
    assert "tasks/report" in STAGE["deps"]  # with its figures, styles and scripts


def test_every_query_reads_the_views_it_names_and_only_declared_inputs(made):
    root, _ = made
    named = {dataset.name: dataset.path for dataset in datasets(root)}
    with connect(root) as connection:
        for query in report_queries(report_room.params()):
            assert set(query.views) == set(re.findall(r"(?:FROM|JOIN) (\w+)", query.text)), query.name
            assert {named[view] for view in query.views} <= set(report_room.INPUTS)
            assert ask(root, connection, query) or query.name == "shots"


def test_every_query_can_be_pasted_into_a_shell():
    for query in report_queries(report_room.params()):
        assert not set('"$`\\!') & set(query.text)
        assert query.command == f'supmer sql "{" ".join(query.text.split())}"'


def test_a_query_on_a_table_not_made_has_no_rows(tmp_path):
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    with connect(tmp_path) as connection:
        assert all(ask(tmp_path, connection, query) == [] for query in report_queries(report_room.params()))


def test_the_lineage_names_sources_with_licence_and_hash_filters_with_counts_and_the_commit(made):
    root, _ = made
    text = markdown(root)
    sources = markdown_table(text, "Sources, with their licences")
    assert [row[:4] for row in sources if row[1] == "movies"] == [
        ["datasets", "movies", "wheel:movies-data==0.2.0", "MIT"]
    ]
    corpus = next(row for row in sources if row[1] == "news")
    assert corpus[-1] == report_room.digest("corpus", "news")[:12]  # every hash of the report has this length
    excluded = markdown_table(text, "What the filters left out")
    assert ["too\\_short", "9", "12.2"] in excluded
    assert "Git commit: 0123456789ab." in text
    stages = markdown_table(text, "What each stage took")
    assert [row[0] for row in stages[2:]] == list(report_room.STAGES)
    assert stages[2][1:6] == ["ran", "3.5", "–", "494 kB", "300 MB"]


def test_the_same_inputs_give_the_same_bytes_whatever_ran_again_since(root):
    run(root)
    before = [(root / path).read_bytes() for path in report_room.OUTPUTS]
    again = event(
        "sample", {path: report_room.digest(path)[:32] + ".dir" for path in report_room.STAGES["sample"][1]}, 1, 999.0
    )
    with (root / "lineage/events.jsonl").open("ab") as file:
        file.write(json.dumps(again).encode() + b"\n")
    run(root)
    assert [(root / path).read_bytes() for path in report_room.OUTPUTS] == before


def test_without_events_the_stages_are_there_and_their_times_are_not(root):
    report_room.write_history(root, runs=False)
    run(root)
    stages = markdown_table(markdown(root), "What each stage took")
    assert {row[1] for row in stages[2:]} == {"no event"}
    assert "No event records the run that made acquire, sample" in markdown(root)


def test_commands_to_go_on_with_are_ones_the_command_line_takes(made):
    root, _ = made
    commands = [
        one["attrs"]["data-copy"]
        for one in Page(html(root)).of("button", **{"class": "copy"})
        if "data-copy" in one["attrs"]
    ]
    assert "supmer verify" in commands
    for command in commands:
        verb, context, words = resolve(shlex.split(command)[1:])
        verb.make_context(context.info_name, words, parent=context.parent)
