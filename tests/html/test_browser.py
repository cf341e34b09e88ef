"""The page in a browser without scripts: bars, folding, keyboard, phones, dark mode, print, and attacks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfglint_train import api
from tests.html.pages import ATTACKS, render_folder, render_hostile_page
from tests.support.command import run_cfglint
from tests.support.linting import FIXTURES, isolate_folder

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FIRES = FIXTURES / "rules" / "MEM001" / "fires"
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
        self.context = browser.new_context(
            **{"viewport": {"width": 1200, "height": 900}, "java_script_enabled": False, **context}
        )
        self.page = self.context.new_page()
        self.noise: list[str] = []
        self.page.on("console", lambda message: self.noise.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.noise.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.noise.append("dialog"))
        self.page.on("request", lambda request: self.noise.append(request.url))
        self.page.goto(path.as_uri())
        self.noise.remove(path.as_uri())

    def unfold(self) -> None:
        """Open all folded parts, the outer ones first."""
        while (closed := self.page.locator("details:not([open]) > summary:visible")).count():
            closed.first.click()


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
    folder = isolate_folder(FIRES)
    return run_cfglint("estimate", "--isolated", "--format", "html", "axolotl.yaml", cwd=folder).out


UNKNOWN = "base_model: my/model-8b\nmicro_batch_size: 4\nsequence_len: 2048\nlearning_rate: 1e-5\nbf16: true\n"


@pytest.fixture(scope="module")
def pages(report, tmp_path_factory) -> dict[str, str]:
    """Pages of each kind: a run that does not fit, an unknown model, several runs, several kinds of hardware."""
    folder = tmp_path_factory.mktemp("unknown")
    (folder / "train.yaml").write_text(UNKNOWN)
    across = ("fit", "--isolated", "--across", "H100x8,RTX4090x2", "--output-format", "html", "axolotl.yaml")
    pages_by_name = {
        "run": report,
        "unknown": run_cfglint("estimate", "--isolated", "--format", "html", "train.yaml", cwd=folder).out,
        "runs": render_folder(FIXTURES / "cases"),
        "hardware": run_cfglint(*across, cwd=isolate_folder(FIRES)).out,
    }
    assert "Not estimated: " in pages_by_name["unknown"]
    return pages_by_name


def test_the_bars_are_as_long_as_the_numbers(opened, report):
    opened_page = opened(report)
    (record,) = api.estimate(isolate_folder(FIRES) / "axolotl.yaml", api.Options(isolated=True)).runs
    drawn = opened_page.page.locator("#run-0 tbody svg.bar")
    assert drawn.count() == len(record.timeline)
    line = drawn.first.locator("path.limit").bounding_box()
    limit = line["x"] + line["width"] / 2 - drawn.first.bounding_box()["x"]
    for bar, moment in zip(drawn.all(), record.timeline):
        boxes = [path.bounding_box() for path in bar.locator("path:not(.limit)").all()]
        length = boxes[-1]["x"] + boxes[-1]["width"] - boxes[0]["x"]
        assert length == pytest.approx(limit * moment.percent / 100, abs=5), moment
    assert opened_page.noise == []


def test_everything_can_be_reached_with_the_tabulator(opened, report):
    opened_page = opened(report, java_script_enabled=True)
    opened_page.page.keyboard.press("Tab")
    assert opened_page.page.evaluate("document.activeElement.textContent") == "Skip to the report"
    met = set()
    for _ in range(40):
        opened_page.page.keyboard.press("Tab")
        met.add(opened_page.page.evaluate("document.activeElement.tagName"))
    assert {"A", "SUMMARY", "DIV"} <= met


def test_a_command_is_selected_by_a_click(opened, report):
    opened_page = opened(report, java_script_enabled=True)
    opened_page.page.locator(".change code.copy").click(click_count=1)
    opened_page.page.locator(".change code.copy").dblclick()
    selected = opened_page.page.evaluate("getSelection().toString()").strip()
    assert selected == "cfglint fit --write axolotl.yaml --isolated"


@pytest.mark.parametrize("width", [320, 390, 768, 1200])
@pytest.mark.parametrize("name", ["run", "unknown", "runs", "hardware"])
def test_no_page_is_wider_than_its_window(opened, pages, name, width):
    opened_page = opened(pages[name], viewport={"width": width, "height": 800}, java_script_enabled=True)
    opened_page.unfold()
    assert opened_page.page.evaluate("document.documentElement.scrollWidth") <= width
    for drawing in opened_page.page.locator("svg.bar").all():
        box = drawing.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width + 1
    assert opened_page.noise == []


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["run", "unknown", "runs", "hardware"])
def test_nothing_is_inaccessible(opened, pages, name, scheme, width):
    """Run axe-core's rules, including contrast, with every table unfolded."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    context = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    opened_page = opened(pages[name], **context, bypass_csp=True, java_script_enabled=True)
    opened_page.unfold()
    violations = axe.Axe().run(opened_page.page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(rule["id"], [node["html"][:200] for node in rule["nodes"]][:3]) for rule in violations] == []


def test_dark_and_light_differ(opened, report):
    backs = [
        opened(report, color_scheme=scheme, java_script_enabled=True).page.evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        for scheme in ("light", "dark")
    ]
    assert backs == ["rgb(255, 255, 255)", "rgb(18, 22, 31)"]


def test_without_scripts_everything_is_shown(opened, report):
    opened_page = opened(report)
    opened_page.unfold()
    assert opened_page.page.locator("article.finding:visible").count() == report.count("<article")
    assert opened_page.page.locator("table:visible").count() == report.count("<table")
    assert opened_page.page.locator("svg.bar:visible").count() == report.count('<svg class="bar"')
    assert opened_page.noise == []


def test_in_print_everything_is_unfolded_and_colored(opened, report):
    opened_page = opened(report, viewport={"width": 700, "height": 990}, java_script_enabled=True)
    table = opened_page.page.locator("details table").first
    legend = opened_page.page.locator(".legend li").first
    assert not table.is_visible()
    opened_page.page.emulate_media(media="print")
    assert table.evaluate("item => item.checkVisibility({contentVisibilityAuto: true})")
    assert legend.evaluate("item => getComputedStyle(item).printColorAdjust") == "exact"
    assert opened_page.page.locator(".time thead th").first.bounding_box()["height"] > 10
    assert opened_page.page.evaluate("document.documentElement.scrollWidth") <= 700


def test_the_table_of_runs_leads_to_their_details(opened):
    opened_page = opened(render_folder(FIXTURES / "cases"))
    link = opened_page.page.locator("#runs a").first
    name = link.text_content()
    link.click()
    assert opened_page.page.locator("section.run:target h2").text_content() == name
    opened_page.unfold()
    assert opened_page.page.locator("section.run:target svg.bar:visible").count() > 2


@pytest.mark.parametrize("number", range(len(ATTACKS)), ids=lambda number: repr(ATTACKS[number]))
def test_no_attack_runs(opened, number):
    opened_page = opened(render_hostile_page(number), java_script_enabled=True)
    opened_page.unfold()
    for element in opened_page.page.locator("h3, h4, article").all():
        element.hover()
    assert opened_page.page.evaluate("window.pwned") is None
    assert opened_page.noise == []


def test_the_policy_stops_what_the_page_does_not_bring(opened, report):
    """Insert a script as if the escaping had a hole."""
    hole = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"
    opened_page = opened(report.replace("<main", f"{hole}<main"), java_script_enabled=True)
    assert opened_page.page.evaluate("window.pwned") is None
    assert any("Content Security Policy" in line for line in opened_page.noise)
