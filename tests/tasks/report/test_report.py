"""The report stage: the tables and figures of made-up results, in HTML, in Markdown and as metrics."""

import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import takewhile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from storage import paths
from storage.queries.report_queries import ask
from storage.queries.views import connect, datasets
from support import report_room
from support.command_line import resolve
from support.report_room import NASTY, event, furnish, run, score_rows, write_tuning
from tasks.report.data import report_queries

REPOSITORY = Path(__file__).parents[3]
STAGE = YAML(typ="safe").load((REPOSITORY / "dvc.yaml").read_text())["stages"]["report"]


@pytest.fixture
def root(tmp_path):
    return furnish(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A workspace with the report of the quickstart's methods, and the stage's record; only to be read."""
    root = furnish(tmp_path_factory.mktemp("report"))
    return root, run(root)


class Found(HTMLParser):
    """Elements of a page by name, with the text in each."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attrs": dict(attrs), "text": ""}
        self.elements.append(element)
        if tag not in {"meta", "br"}:
            self._open.append(element)

    def handle_endtag(self, tag):
        while self._open and self._open.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def of(self, tag, **attrs):
        return [one for one in self.elements if one["tag"] == tag and attrs.items() <= one["attrs"].items()]


def html(root):
    return (root / paths.REPORT_PAGE).read_text()


def markdown(root):
    return (root / paths.REPORT_TEXT).read_text()


def markdown_table(text, caption):
    """The cells of the table below a caption, by row."""
    below = text[text.index(f"**{caption}") :].splitlines()[2:]
    lines = takewhile(bool, below)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


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


def first_lines(root):
    return markdown(root).partition("\n- Backbone")[0]


@pytest.mark.parametrize(
    ("levels", "other", "clear"),
    [
        ({"pt-vocabulary": 0.4, "supmer": 0.9}, "PT (vocabulary start)", True),
        ({"pt": 0.9, "supmer": 0.4}, "PT (normal start)", True),
        ({"pt": 0.7, "supmer": 0.72}, "PT (normal start)", False),
        ({"zero-shot": 0.9, "supmer": 0.4}, "Zero-shot inference", True),
    ],
)
def test_the_first_sentence_says_in_plain_words_whether_supmer_helped(tmp_path, levels, other, clear):
    root = furnish(tmp_path, scores=score_rows(levels))
    run(root)
    first = first_lines(root).splitlines()[2]
    worth = (
        r"that difference is more than chance \(95 % interval" if clear else "seeds? that difference could be chance"
    )
    assert re.match(rf"On movies SUPMER reached \d+\.\d %, {re.escape(other)} \d+\.\d %; .*{worth}", first)


def test_equal_figures_are_no_difference_and_one_seed_is_named(tmp_path):
    alike = [row | {"score": row["score"] and 0.5} for row in score_rows({"pt": 0.5, "zero-shot": 0.5, "supmer": 0.5})]
    run(furnish(tmp_path / "alike", scores=alike))
    assert "On movies SUPMER reached 50.0 %, PT (normal start) 50.0 %: no difference." in first_lines(
        tmp_path / "alike"
    )
    run(furnish(tmp_path / "one", scores=score_rows({"pt": 0.68, "supmer": 0.7}, seeds=(10,))))
    assert "; with one seed that difference could be chance." in first_lines(tmp_path / "one")


def test_without_supmer_the_others_are_compared_with_the_most_telling_method(tmp_path):
    root = furnish(tmp_path, scores=score_rows({"zero-shot": 0.5, "pt": 0.9}))
    run(root, tune={"methods": ["zero-shot", "pt"]})
    assert "On movies PT (normal start) reached" in first_lines(root)
    assert "How much better is PT (normal start)?" in markdown(root)


def test_differences_are_paired_and_have_an_interval(made):
    table = markdown_table(markdown(made[0]), "How much better is SUPMER?")
    assert table[0] == ["method", "movies", *(f"{name} (tuned on movies)" for name in report_room.DOMAINS[1:])]
    assert [row[0] for row in table[2:]] == [
        "Zero-shot inference", "PT (vocabulary start)", "SUPMER w/o gradient regularizer",
    ]  # fmt: skip
    assert all(re.fullmatch(r"\**[+−]?\d+\.\d\** \([+−]?\d+\.\d to [+−]?\d+\.\d\)", cell) for cell in table[2][1:])


def test_mistakes_are_shown_with_label_names_and_their_text(made):
    root, _ = made
    text = markdown(root)
    table = markdown_table(text, "The errors that SUPMER is surest of")
    for dataset, said, true, predicted, probability, wrong, example in table[2:]:
        number = int(example.partition(":")[2]) - 1
        assert said == f"Review {number} of {dataset}, test."
        assert (true, predicted) in {("negative", "positive"), ("positive", "negative")}
        assert 50 < int(probability) <= 100
        assert re.fullmatch("[123] of 3", wrong)
    shares = [row[5] for row in table[2:]]
    assert shares == sorted(shares, reverse=True)
    assert "What SUPMER confuses" in text
    assert re.search(r"movies: \d+ of 150 predictions are right; most often (nega|posi)tive is taken for", text)


def test_words_that_are_not_plain_are_explained(made):
    words = Found(html(made[0])).of("dt")
    explained = {element["text"] for element in words}
    assert {"sp", "mc", "ss", "shots", "zero-shot", "SUPMER w/o mgr"} <= explained
    assert "SUPMER w/o ta" not in explained  # not in this run
    assert "- **shots**: labeled examples per label" in markdown(made[0])


def test_zero_shot_is_a_line_over_steps_and_over_shots(root):
    sweep = score_rows({"supmer": 0.9, "pt-vocabulary": 0.8}, tested=("movies",), shots=4)
    write_tuning(root, score_rows() + sweep)
    run(root, tune={"shot_sweep": [4]})
    page = html(root)
    for key in ("accuracy-over-steps", "accuracy-over-shots"):
        figure = page[page.index(f'id="{key}"') :].partition("</figure>")[0]
        plot = json.loads(Found(figure).of("svg")[0]["attrs"]["data-plot"])
        assert {"Zero-shot", "SUPMER"} <= {series["name"] for series in plot["series"]}
        assert len({*next(series["values"] for series in plot["series"] if series["name"] == "Zero-shot")}) == 1
    ticks = [text["text"] for text in Found(figure).of("text", **{"class": "tick middle"})]
    assert ticks == ["4", "16"]


def test_a_method_has_the_same_colour_in_every_report(tmp_path):
    colours = []
    for name, levels in (
        ("few", {"pt": 0.7, "supmer": 0.8}),
        ("many", {"ft": 0.7, "lora": 0.7, "pt": 0.7, "supmer": 0.8}),
    ):
        run(furnish(tmp_path / name, scores=score_rows(levels)), tune={"methods": ["pt", "supmer"]})
        page = Found(html(tmp_path / name))
        series = [
            one for svg in page.of("svg") for one in json.loads(svg["attrs"].get("data-plot", "{}")).get("series", ())
        ]
        colours.append({one["name"]: one["style"] for one in series if one["name"] in {"PT", "SUPMER"}})
        keys = {svg["attrs"]["class"] for svg in page.of("span") if svg["attrs"].get("class", "").startswith("key")}
        assert {f"key {style}" for style in colours[-1].values()} <= keys
    assert colours[0] == colours[1]
    assert len(set(colours[0].values())) == 2


def test_clusters_have_a_map_that_tells_their_sentences(made):
    page = html(made[0])
    figure = page[page.index('id="cluster-map"') :].partition("</figure>")[0]
    maps = [json.loads(svg["attrs"]["data-map"]) for svg in Found(figure).of("svg")]
    assert len(maps) == 3
    assert all(len(places) == 20 for places in maps)
    assert all(0 <= place["x"] <= 340 and 42 <= place["y"] <= 260 for places in maps for place in places)
    assert "The council of the city" in maps[0][0]["about"]


def metrics_event(root, place, metrics, parameters):
    """Return the event of an earlier report whose metrics DVC's cache holds, after a run of tune."""
    content = json.dumps(metrics).encode()
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    cached = root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
    cached.parent.mkdir(parents=True)
    cached.write_bytes(content)
    tuned = event("tune", {}, place)
    tuned["run"]["facets"]["executionParameters"] = {
        "parameters": [{"key": key, "value": value} for key, value in parameters.items()]
    }
    return [tuned, event("report", {paths.REPORT_METRICS: md5}, place + 1)]


def test_a_second_run_is_compared_with_the_one_before_whatever_came_after(root):
    run(root)
    assert "Since the previous run" not in markdown(root)
    now = json.loads((root / paths.REPORT_METRICS).read_text())
    then = json.loads(json.dumps(now))
    then["few-shot"]["movies"]["supmer"]["mean"] -= 2.5
    then["few-shot"]["movies"]["ft"] = {"mean": 66.6, "deviation": None, "seeds": 1}
    events = metrics_event(root, 20, then, {"tune.note": report_room.NASTY, "tune.rate": "0.2"})
    with (root / "lineage/events.jsonl").open("ab") as file:
        file.write(b"".join(json.dumps(one).encode() + b"\n" for one in events))
    run(root)
    page = (root / paths.REPORT_TEXT).read_bytes()
    figures = markdown_table(markdown(root), "Accuracies that differ")
    mean = now["few-shot"]["movies"]["supmer"]["mean"]
    assert figures[2:] == [
        ["few-shot", "movies", "Fine-tuning of all weights", "66.6", "–", "–"],
        ["few-shot", "movies", "SUPMER", f"{mean - 2.5:.1f}", f"{mean:.1f}", "+2.5"],
    ]
    assert markdown_table(markdown(root), "Parameters that have changed")[2:] == [["tune", "tune.rate", "0.2", "0.1"]]
    own = hashlib.md5((root / paths.REPORT_METRICS).read_bytes(), usedforsecurity=False).hexdigest()
    with (root / "lineage/events.jsonl").open("ab") as file:
        file.write(json.dumps(event("report", {paths.REPORT_METRICS: own}, 30)).encode() + b"\n")
    run(root)
    assert (root / paths.REPORT_TEXT).read_bytes() == page


def test_the_tables_say_how_many_examples_were_tested_and_what_their_choice_is_worth(tmp_path):
    even = [row | {"score": row["score"] and 0.5, "examples": 100} for row in score_rows({"supmer": 0.5})]
    run(furnish(tmp_path / "even", scores=even))
    text = markdown(tmp_path / "even")
    error = "whose choice alone gives a score a standard error of up to 5.0 points."
    assert f"Tested on 100 test examples, {error}" in text
    assert f"Tested on 100 test examples of each, {error}" in text
    uneven = [row | {"examples": 400 if row["tested_on"] == "movies" else 100} for row in even]
    run(furnish(tmp_path / "uneven", scores=uneven))
    assert "Tested on 400 examples of movies, 100 examples of products," in markdown(tmp_path / "uneven")


def test_prompts_listed_are_those_that_were_tuned(made):
    table = markdown_table(markdown(made[0]), "Prompts: the start")
    assert {row[2] for row in table[2:]} == {"16"}
    assert {row[1] for row in table[2:]} == {"PT (vocabulary start)", "SUPMER", "SUPMER w/o gradient regularizer"}


def test_results_are_means_with_deviation_over_the_chosen_runs_and_the_best_is_bold(made):
    root, _ = made
    rows = score_rows()
    table = markdown_table(markdown(root), "Domain generalization")
    assert table[0] == [
        "method",
        "movies (source)",
        "products (target)",
        "editorials (target)",
        "tweets (target)",
        "average",
    ]
    supmer = next(row for row in table if row[0] == "SUPMER")
    scores = [
        100 * row["score"]
        for row in rows
        if row["method"] == "supmer" and row["tested_on"] == "movies" and row["chosen"]
    ]
    mean = sum(scores) / 3
    deviation = (sum((score - mean) ** 2 for score in scores) / 2) ** 0.5
    assert supmer[1] == f"**{mean:.1f} ± {deviation:.1f}**"
    assert [cell.startswith("**") for cell in supmer[1:]] == [True] * 5
    zero = next(row for row in table if row[0] == "Zero-shot inference")
    assert all(re.fullmatch(r"\d+\.\d", cell) for cell in zero[1:])


def test_metrics_hold_the_same_figures(made):
    root, _ = made
    metrics = json.loads((root / paths.REPORT_METRICS).read_text())
    table = markdown_table(markdown(root), "Few-shot learning")
    assert set(metrics) == {"few-shot", "domains"}
    figure = metrics["few-shot"]["movies"]["supmer"]
    assert figure["seeds"] == 3
    assert (
        next(row for row in table if row[0] == "SUPMER")[1] == f"**{figure['mean']:.1f} ± {figure['deviation']:.1f}**"
    )
    average = metrics["domains"]["average"]["supmer"]["mean"]
    means = [metrics["domains"][name]["supmer"]["mean"] for name in report_room.DOMAINS]
    assert average == pytest.approx(sum(means) / 4, abs=1e-3)


def test_methods_that_print_alike_share_the_best_and_an_incomplete_average_is_in_brackets(root):
    rows = score_rows({"supmer": 0.8, "pt": 0.8, "metapt": 0.7}, seeds=(10,))
    for row in rows:
        row["score"] = {"pt": 0.8001, "supmer": 0.8, "metapt": 0.8 if row["tested_on"] == "products" else 0.7}[
            row["method"]
        ]
    kept = [row for row in rows if not (row["method"] == "pt" and row["tested_on"] == "tweets")]
    write_tuning(root, kept)
    run(root)
    table = markdown_table(markdown(root), "Domain generalization")
    pt, metapt, supmer = table[2:]
    assert (pt[1], metapt[1], supmer[1]) == ("**80.0**", "70.0", "**80.0**")
    assert (pt[2], metapt[2], supmer[2]) == ("80.0", "80.0", "80.0")  # nobody is better than the others
    assert (pt[4], pt[5]) == ("–", "(80.0)")
    assert supmer[5] == "**80.0**"


def test_runs_that_broke_are_told_and_do_not_break_the_report(root):
    rows = score_rows()
    for row in rows:
        if row["method"] == "pt-vocabulary" and row["seed"] == 10:
            row |= {"status": "nan", "score": None, "validation_score": float("nan")}
    write_tuning(root, rows)
    run(root)
    text = markdown(root)
    assert "PT (vocabulary start) on movies (2 of 3 runs)" in text
    assert "not finite: PT (vocabulary start) on movies (1 of 3)." in text
    assert "not finite: PT (vocabulary start) (1 of 3)." in text  # one prompt, tested everywhere
    plots = " ".join(one["attrs"]["data-plot"] for one in Found(html(root)).of("svg") if "data-plot" in one["attrs"])
    assert "nan" not in plots.lower()
    assert "nan" not in " ".join(re.findall(r'points="([^"]*)"', html(root)))


def test_the_papers_figures_stand_beside_ours_where_dataset_and_method_match(root):
    rows = score_rows({"pt": 0.7, "supmer": 0.85, "ft": 0.8}, tuned=("sst-2",), tested=("sst-2",))
    rows += score_rows({"pt": 0.7, "supmer": 0.85, "ft": 0.8}, tuned=("cr",), tested=("cr",))
    rows += score_rows({"supmer": 0.85}, tuned=("airlines",), tested=("airlines", "books"))
    write_tuning(root, rows)
    tune = {
        "datasets": ["sst-2", "cr"],
        "domains": {"source": "airlines", "targets": ["books"]},
        "methods": ["pt", "supmer"],
    }
    run(root, tune=tune, report={"datasets": [], "paper_figures": "t5-base"})
    table = markdown_table(markdown(root), "Few-shot learning")
    assert [row[0] for row in table[2:]] == ["Fine-tuning of all weights", "PT (normal start)", "SUPMER"]
    assert table[-1][1].endswith("(paper 87.3 ± 0.5)")
    assert table[-1][3].endswith("(paper 88.3 ± 0.4)")  # of these two datasets, not of the paper's twelve
    domains = markdown_table(markdown(root), "Domain generalization")
    assert domains[-1][2].endswith("(paper 85.3 ± 0.6)")
    assert "for T5-base" in markdown(root)


def test_without_a_matching_backbone_the_absence_of_the_papers_figures_is_said(made):
    root, _ = made
    assert "report.paper_figures" in markdown(root)
    assert "paper 8" not in markdown(root)


def test_a_sweep_over_shots_gets_its_figure_and_its_absence_a_line(root):
    run(root)
    assert "No sweep over the number of examples ran" in html(root)
    write_tuning(root, score_rows() + score_rows({"supmer": 0.9, "pt-vocabulary": 0.8}, tested=("movies",), shots=64))
    run(root, tune={"shot_sweep": [64]})
    assert "No sweep" not in html(root)
    assert len(Found(html(root)).of("figure", id="accuracy-over-shots")) == 1
    assert "64 examples" not in markdown(root)  # the main table is of 16


def test_a_run_without_tuning_says_so(root):
    write_tuning(root, [])
    run(root, tune={"datasets": [], "domains": {"source": None, "targets": []}}, report={"datasets": []})
    assert "there is no result table" in html(root)
    assert "No curve of tuning" in html(root)
    assert json.loads((root / paths.REPORT_METRICS).read_text()) == {}


def test_variants_without_an_inner_step_are_named_and_long_trainings_are_thinned(tmp_path):
    furnish(tmp_path, variants=("supmer", "ppt-sp"), steps=5_000)
    run(tmp_path)
    assert "Not measured by PPT (sp)" in html(tmp_path)
    assert "Not trained in this run: SUPMER w/o task augmentation" in html(tmp_path)
    plots = [
        json.loads(one["attrs"]["data-plot"]) for one in Found(html(tmp_path)).of("svg") if "data-plot" in one["attrs"]
    ]
    assert max(len(plot["x"]) for plot in plots) <= 202


def test_nothing_of_the_data_becomes_markup(tmp_path):
    furnish(tmp_path, text=NASTY)
    run(tmp_path)
    page = Found(html(tmp_path))
    assert len(page.of("script")) == 1
    assert not page.of("img")
    assert [one for one in page.of("td") if "window.hurt = 1" in one["text"]]
    assert not [one for one in page.elements if any(name.startswith("on") for name in one["attrs"])]
    text = markdown(tmp_path)
    assert "<script>" not in text
    assert "\\<script\\>" in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "window" in line]
    assert rows
    assert all(re.sub(r"\\\|", "", row).count("|") in {4, 5, 8} for row in rows)


def test_every_table_and_figure_shows_its_query_or_command_and_every_plot_has_words_and_data(made):
    root, record = made
    text = html(root)
    figures = text.split("<figure")[1:]
    assert len(figures) == record["tables"] + record["figures"] + 1  # and the samples
    for figure in figures:
        assert "<summary>SQL</summary>" in figure or "<summary>Command</summary>" in figure
    for plot in Found(text).of("svg"):
        assert len(plot["attrs"]["aria-label"]) > 20
    for query in report_queries(report_room.params()):
        if query.name not in {"topics", "shots"}:
            assert (
                query.command.replace("'", "&#39;").replace('"', "&#34;").replace("<", "&lt;").replace(">", "&gt;")
                in text
            )


def test_tasks_are_shown_as_the_model_sees_them(made):
    root, _ = made
    samples = Found(html(root)).of("bdi")
    assert [one for one in samples if one["attrs"].get("class") == "span-slot" and one["text"].startswith("⟨μ ")]
    template = [one["text"] for one in samples if one["attrs"].get("class") == "span-template"]
    assert any(text.startswith("Are these two sentences about the same topic?") for text in template)


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
    import shlex

    root, _ = made
    commands = [
        one["attrs"]["data-copy"]
        for one in Found(html(root)).of("button", **{"class": "copy"})
        if "data-copy" in one["attrs"]
    ]
    assert "supmer verify" in commands
    for command in commands:
        verb, context, words = resolve(shlex.split(command)[1:])
        verb.make_context(context.info_name, words, parent=context.parent)


def test_methods_of_all_groups_stand_in_the_papers_order_with_what_they_take(root):
    methods = ["zero-shot", "prefix-tuning", "p-tuning-v2", "pt", "unified-ppt", "metapt", "supmer", "only-sp"]
    write_tuning(root, score_rows(dict.fromkeys(methods, 0.7), tested=("movies",)))
    run(root, tune={"methods": [*reversed(methods[:4])], "domains": {}}, report={"datasets": ["movies"]})
    table = markdown_table(markdown(root), "Few-shot learning")
    assert table[0] == ["method", "movies", "tuned parameters (cost)", "time per seed (cost)", "peak memory (cost)"]
    assert [row[0].strip("*") for row in table[2:] if row[0]] == [
        "Zero-shot inference",
        "Prefix-Tuning",
        "P-Tuning v2",
        "PT (normal start)",
        "Unified-PPT",
        "MetaPT",
        "SUPMER",
        "SUPMER (only sp)",
    ]
    costs = {row[0].strip("*"): row[2:] for row in table[2:] if row[0]}
    assert costs["Zero-shot inference"] == ["0", "–", "–"]
    assert costs["P-Tuning v2"] == ["1,600", "90.0 s", "1.50 GB"]
