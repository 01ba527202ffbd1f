"""The report in a real browser: nothing from outside, no complaint, tables that sort, plots that speak, any width."""

import re

import pytest

from storage import paths
from support.browser import CHROMIUM, browsing
from support.report_room import NASTY, furnish, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]

RATIO = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const worst = {};
  for (const element of document.querySelectorAll("p, td, th, figcaption, summary, svg text, button, a, dt")) {
    const style = getComputedStyle(element);
    const ink = light(element instanceof SVGElement ? style.fill : style.color);
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    worst[element.tagName] = Math.min(worst[element.tagName] ?? 99, ratio);
  }
  return worst;
})()
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The report of a corpus that means harm."""
    root = furnish(tmp_path_factory.mktemp("report"), text=NASTY)
    run(root)
    return root / paths.REPORT_PAGE


@pytest.fixture(scope="module")
def page():
    with browsing() as page:
        yield page


def column(page, table, number):
    return page.ask(f"[...document.querySelectorAll('#{table} tbody tr')].map(row => row.cells[{number}].textContent)")


def test_it_fetches_nothing_but_itself_and_nobody_complains(page, path):
    page.open(path)
    page.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.complaints() == []
    assert page.fetched() == [path.as_uri()]


def test_text_of_the_corpus_is_text(page, path):
    page.open(path)
    assert page.ask("window.hurt") is None
    assert page.ask("document.querySelectorAll('script').length") == 1
    assert page.ask("document.querySelector('#clusters td bdi').textContent").startswith(
        "<script>window.hurt = 1</script>"
    )


def test_tables_and_plots_are_there_and_plots_have_size(page, path):
    page.open(path)
    assert page.ask("document.querySelectorAll('figure.table table').length") >= 9
    shapes = page.ask("[...document.querySelectorAll('svg.plot')].map(one => [one.clientWidth, one.clientHeight])")
    assert len(shapes) >= 10
    assert all(width > 200 and height > 100 for width, height in shapes)
    names = page.ask(
        "[...document.querySelectorAll('svg[role=img]')].map(one => one.getAttribute('aria-label').length)"
    )
    assert min(names) > 20
    assert page.ask("[...document.querySelectorAll('figure')].every(one => one.id && one.querySelector('figcaption'))")


def test_a_click_on_a_heading_sorts_by_it_and_a_second_click_turns_it_round(page, path):
    page.open(path)
    before = column(page, "domains", 0)
    page.ask("document.querySelector('#domains thead tr:last-child th:nth-child(3) button').click()")
    numbers = [float(re.match(r"[\d.]+?\.\d", text)[0]) for text in column(page, "domains", 2)]
    assert numbers == sorted(numbers, reverse=True)
    sorted_by = "document.querySelector('#domains thead tr:last-child th:nth-child(3)').getAttribute('aria-sort')"
    assert page.ask(sorted_by) == "descending"
    page.ask("document.querySelector('#domains thead tr:last-child th:nth-child(3) button').click()")
    assert column(page, "domains", 0) != before
    assert page.ask(sorted_by) == "ascending"
    assert [float(re.match(r"[\d.]+?\.\d", text)[0]) for text in column(page, "domains", 2)] == numbers[::-1]


def test_sizes_sort_as_numbers_and_empty_cells_stay_last(page, path):
    page.open(path)
    for _ in range(2):
        page.ask("document.querySelector('#stages thead th:nth-child(4) button').click()")
        assert column(page, "stages", 3)[-2:] == ["–", "–"]
    rows = [int(text.replace(",", "")) for text in column(page, "stages", 3)[:-2]]
    assert rows == sorted(rows)


def test_it_works_by_keyboard(page, path):
    page.open(path)
    page.press("Tab")
    assert page.ask("document.activeElement.className") == "skip"
    page.ask("document.querySelector('#few-shot thead tr:last-child th:nth-child(2) button').focus()")
    page.press("Enter")
    assert (
        page.ask("document.querySelector('#few-shot thead tr:last-child th:nth-child(2)').getAttribute('aria-sort')")
        == "descending"
    )
    page.ask("document.querySelector('#losses svg').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    told = page.ask("document.getElementById('tip').innerText")
    assert told.startswith("meta step 2")
    assert "SUPMER" in told
    page.press("Escape")
    assert page.ask("document.getElementById('tip').hidden")
    page.ask("document.querySelector('#domains summary').focus()")
    page.press("Enter")
    assert "FROM scores" in page.ask("document.querySelector('#domains details[open] pre').innerText")


def test_a_figure_copies_as_mean_and_deviation(page, path):
    page.open(path)
    copied = page.ask("""(() => {
        const cell = document.querySelector('#domains td.best');
        getSelection().selectAllChildren(cell);
        return getSelection().toString();
    })()""")
    assert re.fullmatch(r"\d+\.\d\s±\s\d\.\d", copied.strip())


def test_a_table_copies_as_rows_of_tabs(page, path):
    page.open(path)
    page.ask("navigator.clipboard.writeText = async (text) => { window.taken = text; }")
    page.ask("document.querySelector('#few-shot button[data-table]').click()")
    lines = page.ask("window.taken").splitlines()
    assert lines[0].split("\t")[2] == "cost"
    assert lines[1].startswith("method\tmovies\t")
    assert re.match(r"SUPMER\t\d+\.\d ± \d+\.\d\t", lines[4])


def test_a_map_tells_the_cluster_under_the_pointer_and_by_keys(page, path):
    page.open(path)
    page.ask("document.querySelector('#cluster-map svg').scrollIntoView()")
    page.ask("document.querySelector('#cluster-map svg').focus()")
    page.press("ArrowRight")
    told = page.ask("document.getElementById('tip').innerText")
    assert re.match(r"(sp|mc|ss), cluster \d+: \d+ sentences\n", told)
    assert "<script>window.hurt = 1</script>" in told
    page.press("Escape")
    assert page.ask("document.getElementById('tip').hidden")
    x, y = page.ask("""(() => {
        const box = document.querySelector('#cluster-map circle.place').getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2];
    })()""")
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert "sentences" in page.ask("document.getElementById('tip').innerText")


def test_a_table_that_scrolls_says_so_and_one_that_fits_does_not(page, path):
    hints = "[...document.querySelectorAll('.table > .more')].filter(one => !one.hidden).map(one => one.innerText)"
    page.open(path, width=360)
    page.wait_for("document.querySelectorAll('.more').length > 5")
    assert any(text.startswith("Scroll sideways for more columns") for text in page.ask(hints))
    page.open(path, width=1280)
    page.wait_for("document.querySelectorAll('.more').length > 5")
    assert page.ask("document.querySelector('#domains .more').hidden")
    assert page.ask("document.querySelector('#parameters .more').hidden") == page.ask(
        "document.querySelectorAll('#parameters tbody tr').length <= 30"
    )


def test_no_column_of_a_phone_breaks_words_into_a_few_letters(page, path):
    page.open(path, width=360)
    narrow = page.ask("""[...document.querySelectorAll('figure.table td, figure.table th, figure.table code')]
        .filter(cell => cell.textContent.trim().length > 8 && cell.getBoundingClientRect().height > 60)
        .map(cell => [cell.getBoundingClientRect().width, cell.textContent.trim().slice(0, 40)])
        .filter(([width]) => width < 80)""")
    assert narrow == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_never_scrolls_sideways_even_with_all_disclosed(page, path, width):
    page.open(path, width=width)
    page.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.ask("innerWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_the_paper(page, path, scheme):
    page.open(path, scheme=scheme)
    worst = page.ask(RATIO)
    assert {"P", "TD", "TH", "A", "text"} <= worst.keys()
    assert min(worst.values()) >= 4.5, worst


def test_the_theme_follows_the_system_until_one_is_chosen(page, path):
    page.open(path, scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.ask(paper)
    page.open(path, scheme="light")
    light = page.ask(paper)
    assert light != dark
    for expected in (light, dark, light):  # light, dark, and the system's again
        page.ask("document.getElementById('theme').click()")
        assert page.ask(paper) == expected


def test_without_script_everything_is_there(page, path):
    page.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(path)
        assert page.ask("document.getElementById('theme').hidden")
        assert page.ask("document.querySelectorAll('table tbody tr').length") > 40
        assert page.complaints() == []
    finally:
        page.send("Emulation.setScriptExecutionDisabled", value=False)
