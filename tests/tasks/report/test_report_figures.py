"""The figures and samples of the report: lines, maps and colours, each with its query; data never become markup."""

import json
import re

from support import report_room
from support.report_page import Page, html, markdown
from support.report_room import NASTY, furnish, run, score_rows, write_tuning
from tasks.report.data import report_queries


def test_zero_shot_is_a_line_over_steps_and_over_shots(root):
    sweep = score_rows({"supmer": 0.9, "pt-vocabulary": 0.8}, tested=("movies",), shots=4)
    write_tuning(root, score_rows() + sweep)
    run(root, tune={"shot_sweep": [4]})
    page = html(root)
    for key in ("accuracy-over-steps", "accuracy-over-shots"):
        figure = page[page.index(f'id="{key}"') :].partition("</figure>")[0]
        plot = json.loads(Page(figure).of("svg")[0]["attrs"]["data-plot"])
        assert {"Zero-shot", "SUPMER"} <= {series["name"] for series in plot["series"]}
        assert len({*next(series["values"] for series in plot["series"] if series["name"] == "Zero-shot")}) == 1
    ticks = [text["text"] for text in Page(figure).of("text", **{"class": "tick middle"})]
    assert ticks == ["4", "16"]


def test_a_method_has_the_same_colour_in_every_report(tmp_path):
    colours = []
    for name, levels in (
        ("few", {"pt": 0.7, "supmer": 0.8}),
        ("many", {"ft": 0.7, "lora": 0.7, "pt": 0.7, "supmer": 0.8}),
    ):
        run(furnish(tmp_path / name, scores=score_rows(levels)), tune={"methods": ["pt", "supmer"]})
        page = Page(html(tmp_path / name))
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
    maps = [json.loads(svg["attrs"]["data-map"]) for svg in Page(figure).of("svg")]
    assert len(maps) == 3
    assert all(len(places) == 20 for places in maps)
    assert all(0 <= place["x"] <= 340 and 42 <= place["y"] <= 260 for places in maps for place in places)
    assert "The council of the city" in maps[0][0]["about"]


def test_a_sweep_over_shots_gets_its_figure_and_its_absence_a_line(root):
    run(root)
    assert "No sweep over the number of examples ran" in html(root)
    write_tuning(root, score_rows() + score_rows({"supmer": 0.9, "pt-vocabulary": 0.8}, tested=("movies",), shots=64))
    run(root, tune={"shot_sweep": [64]})
    assert "No sweep" not in html(root)
    assert len(Page(html(root)).of("figure", id="accuracy-over-shots")) == 1
    assert "64 examples" not in markdown(root)  # the main table is of 16


def test_variants_without_an_inner_step_are_named_and_long_trainings_are_thinned(tmp_path):
    furnish(tmp_path, variants=("supmer", "ppt-sp"), steps=5_000)
    run(tmp_path)
    assert "Not measured by PPT (sp)" in html(tmp_path)
    assert "Not trained in this run: SUPMER w/o task augmentation" in html(tmp_path)
    plots = [
        json.loads(one["attrs"]["data-plot"]) for one in Page(html(tmp_path)).of("svg") if "data-plot" in one["attrs"]
    ]
    assert max(len(plot["x"]) for plot in plots) <= 202


def test_nothing_of_the_data_becomes_markup(tmp_path):
    furnish(tmp_path, text=NASTY)
    run(tmp_path)
    page = Page(html(tmp_path))
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
    for plot in Page(text).of("svg"):
        assert len(plot["attrs"]["aria-label"]) > 20
    for query in report_queries(report_room.params()):
        if query.name not in {"topics", "shots"}:
            assert (
                query.command.replace("'", "&#39;").replace('"', "&#34;").replace("<", "&lt;").replace(">", "&gt;")
                in text
            )


def test_tasks_are_shown_as_the_model_sees_them(made):
    root, _ = made
    samples = Page(html(root)).of("bdi")
    assert [one for one in samples if one["attrs"].get("class") == "span-slot" and one["text"].startswith("⟨μ ")]
    template = [one["text"] for one in samples if one["attrs"].get("class") == "span-template"]
    assert any(text.startswith("Are these two sentences about the same topic?") for text in template)
