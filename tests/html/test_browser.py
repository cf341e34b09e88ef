"""The page in a browser: charts, clicks, keyboard, narrow screens, dark mode, and attacks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.html.pages import ATTACKS, render_folder, render_hostile_page
from tests.html.test_page import read_data
from tests.support.linting import FIXTURES

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]


@pytest.fixture(scope="module")
def browser() -> Iterator:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class OpenPage:
    """A page in the browser, with all its messages, errors and requests."""

    def __init__(self, browser, path: Path, **context) -> None:
        """Open `path` in a new browser context."""
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **context})
        self.page = self.context.new_page()
        self.noise: list[str] = []
        self.page.on("console", lambda message: self.noise.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.noise.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.noise.append("dialog"))
        self.page.on("request", lambda request: self.noise.append(request.url))
        self.page.goto(path.as_uri())
        self.noise.remove(path.as_uri())

    def scroll_through(self) -> None:
        """Scroll past everything, so that every chart is drawn."""
        for chart in self.page.locator(".chart").all():
            chart.scroll_into_view_if_needed()
            chart.locator("svg").first.wait_for()
        self.page.evaluate("scrollTo(0, 0)")


@pytest.fixture
def opened(browser, tmp_path) -> Iterator:
    pages: list[OpenPage] = []

    def open_page(text: str, **context) -> OpenPage:
        path = tmp_path / f"{len(pages)}.html"
        path.write_text(text)
        pages.append(OpenPage(browser, path, **context))
        return pages[-1]

    yield open_page
    for page in pages:
        page.context.close()


@pytest.fixture(scope="module")
def report() -> str:
    return render_folder(FIXTURES / "rules" / "MEM001" / "fires")


def test_every_chart_is_drawn_and_nothing_is_asked_for(opened, report):
    opened_page = opened(report)
    opened_page.scroll_through()
    charts = read_data(report)["charts"]
    assert opened_page.page.locator(".chart > svg").count() == len(charts)
    assert opened_page.noise == []


def test_the_bars_are_as_long_as_the_numbers(opened, report):
    opened_page = opened(report)
    opened_page.scroll_through()
    document = read_data(report)
    for name, chart in document["charts"].items():
        if chart["kind"] != "bars":
            continue
        drawn = opened_page.page.locator(f'[data-chart="{name}"] g[aria-label="bar"] > rect')
        widths: dict[str, float] = {}
        for box in drawn.all():
            phase = box.locator("title").text_content().partition(":")[0]
            widths[phase] = widths.get(phase, 0) + float(box.get_attribute("width"))
        sizes = {phase["name"]: sum(size for _, size in phase["parts"]) for phase in chart["phases"]}
        longest = max(sizes, key=sizes.__getitem__)
        scale = widths[longest] / sizes[longest]
        for phase, size in sizes.items():
            assert widths.get(phase, 0) == pytest.approx(size * scale, abs=3), (name, phase)
        if chart["capacity"]:
            line = opened_page.page.locator(f'[data-chart="{name}"] g[aria-label="rule"] > line').last
            start = min(float(box.get_attribute("x")) for box in drawn.all())
            assert float(line.get_attribute("x1")) - start == pytest.approx(chart["capacity"] * scale, abs=3)


def test_the_grid_is_walked_with_the_keyboard_and_clicked(opened, report):
    opened_page = opened(report)
    opened_page.scroll_through()
    grids = [
        (name, opened_page)
        for name, opened_page in read_data(report)["charts"].items()
        if opened_page["kind"] == "grid"
    ]
    name, chart = next((name, grid) for name, grid in grids if min(grid["own"]) > 0)  # with cells above and to the left
    figure = opened_page.page.locator(f'figure:has([data-chart="{name}"])')
    cells, readout = figure.locator('g[aria-label="cell"] > rect'), figure.locator(".readout")
    assert cells.count() == len(chart["rows"]) * len(chart["columns"])
    assert "(the current run)" in readout.text_content()
    assert figure.locator('rect[tabindex="0"]').count() == 1

    selected = figure.locator('rect[tabindex="0"]')
    selected.focus()
    row, column = chart["own"]

    def describe_cell(down: int, across: int) -> str:
        return f"micro batch {chart['rows'][down]}, sequence length {chart['columns'][across]}"

    assert readout.text_content().startswith(describe_cell(row, column))
    opened_page.page.keyboard.press("ArrowUp")
    assert readout.text_content().startswith(describe_cell(row - 1, column))
    opened_page.page.keyboard.press("ArrowLeft")
    assert readout.text_content().startswith(describe_cell(row - 1, column - 1))
    opened_page.page.keyboard.press("End")
    assert readout.text_content().startswith(describe_cell(row - 1, len(chart["columns"]) - 1))
    opened_page.page.keyboard.press("ArrowRight")
    assert readout.text_content().startswith(describe_cell(row - 1, len(chart["columns"]) - 1))
    opened_page.page.keyboard.press("Home")
    assert readout.text_content().startswith(describe_cell(row - 1, 0))
    cells.nth(len(chart["columns"]) + 1).click()
    assert readout.text_content().startswith(describe_cell(1, 1))
    assert figure.locator('rect[tabindex="0"]').get_attribute("aria-label") == readout.text_content()
    assert opened_page.page.evaluate("document.activeElement.getAttribute('aria-label')") == readout.text_content()
    assert opened_page.noise == []


def test_everything_can_be_reached_with_the_tabulator(opened, report):
    opened_page = opened(report)
    opened_page.scroll_through()
    opened_page.page.keyboard.press("Tab")
    assert opened_page.page.evaluate("document.activeElement.textContent") == "Skip to the report"
    met = set()
    for _ in range(80):
        opened_page.page.keyboard.press("Tab")
        met.add(opened_page.page.evaluate("document.activeElement.tagName"))
    assert {"INPUT", "A", "SUMMARY", "rect"} <= met


def test_findings_are_filtered(opened):
    opened_page = opened(render_folder(FIXTURES / "cases"))
    articles, shown = opened_page.page.locator("article.finding:visible"), opened_page.page.locator(".shown")
    total = articles.count()
    errors = opened_page.page.locator("article.error").count()
    assert 0 < errors < total
    assert shown.text_content() == ""
    opened_page.page.get_by_label(re.compile("errors?$")).uncheck()
    assert articles.count() == total - errors
    assert shown.text_content() == f"{total - errors} of {total} findings shown"
    opened_page.page.get_by_label(re.compile("errors?$")).check()
    opened_page.page.get_by_placeholder("rule, path or words").fill("prf001 olmo_core")
    assert articles.count() == 1
    assert opened_page.page.locator(".file:visible").count() == 1
    opened_page.page.get_by_placeholder("rule, path or words").fill("nothing like that")
    assert articles.count() == 0


@pytest.mark.parametrize("width", [320, 390, 768, 1200])
def test_no_page_is_wider_than_its_window(opened, report, width):
    opened_page = opened(report, viewport={"width": width, "height": 800})
    opened_page.scroll_through()
    for summary in opened_page.page.locator("summary").all():
        summary.click()
    assert opened_page.page.evaluate("document.documentElement.scrollWidth") <= width
    for drawing in opened_page.page.locator(".chart > svg").all():
        box = drawing.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width + 1
    assert opened_page.noise == []


def test_charts_follow_the_width_of_the_window(opened, report):
    opened_page = opened(report)
    opened_page.scroll_through()
    drawing = opened_page.page.locator(".chart > svg").first
    before = drawing.get_attribute("width")
    opened_page.page.set_viewport_size({"width": 400, "height": 800})
    pytest.importorskip("playwright.sync_api").expect(drawing).not_to_have_attribute("width", before)
    assert int(drawing.get_attribute("width")) < 400 < int(before)


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_inaccessible(opened, report, scheme, width):
    """Run axe-core's rules, including contrast, with every table unfolded."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    opened_page = opened(report, color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
    opened_page.scroll_through()
    for summary in opened_page.page.locator("summary").all():
        summary.click()
    violations = axe.Axe().run(opened_page.page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(rule["id"], [node["html"][:200] for node in rule["nodes"]][:3]) for rule in violations] == []


def test_dark_and_light_differ(opened, report):
    backs = [
        opened(report, color_scheme=scheme).page.evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert backs == ["rgb(255, 255, 255)", "rgb(18, 22, 31)"]


def test_without_scripts_everything_is_still_told(opened, report):
    opened_page = opened(report, java_script_enabled=False)
    for summary in opened_page.page.locator("summary").all():
        summary.click()
    assert opened_page.page.locator("article.finding:visible").count() == report.count("<article")
    assert opened_page.page.locator("table:visible").count() == report.count("<table")
    assert not opened_page.page.locator(".filters").is_visible()


def test_many_runs_unfold_by_their_link(opened, tmp_path):
    from cfglint_train import api
    from cfglint_train.reports import html
    from tests.html.pages import join_lines
    from tests.support.configs import AXOLOTL

    sources = {f"{number:02}.yaml": AXOLOTL for number in range(20)}
    opened_page = opened(join_lines(html.report(api.lint(sources=sources, options=api.Options(isolated=True)).raw)))
    assert opened_page.page.locator(".chart:visible").count() == 0
    opened_page.page.get_by_role("link", name="07.yaml").click()
    opened_page.page.locator("#run-7 .chart > svg").first.wait_for()
    assert opened_page.page.locator("details[open]").count() == 1
    assert opened_page.noise == []


@pytest.mark.parametrize("number", range(len(ATTACKS)), ids=lambda number: repr(ATTACKS[number]))
def test_no_attack_runs(opened, number):
    opened_page = opened(render_hostile_page(number))
    opened_page.scroll_through()
    for element in opened_page.page.locator("h3, h4, article").all():
        element.hover()
    assert opened_page.page.evaluate("window.pwned") is None
    assert opened_page.noise == []


def test_the_policy_stops_what_the_page_does_not_bring(opened, report):
    """Insert a script as if the escaping had a hole."""
    hole = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"
    opened_page = opened(report.replace("<main", f"{hole}<main"))
    assert opened_page.page.evaluate("window.pwned") is None
    assert any("Content Security Policy" in line for line in opened_page.noise)
