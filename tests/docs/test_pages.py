"""Documentation pages: generated from the code, with valid links and real output."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from cfglint_rules import registry
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.settings.table import SETTINGS
from tests.support.guest import install_frameworks
from tests.support.linting import build_options, fix, lint, list_parts

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
WRITTEN_PAGES = sorted(path for path in DOCS.rglob("*.md"))
README = (REPOSITORY / "README.md").read_text()
CODES = sorted(registry.RULES)
PAGES = ("rule_pages", "failure_page", "framework_pages", "settings_page", "command_page")


@pytest.fixture(scope="module")
def build() -> Iterator[dict[str, ModuleType]]:
    """Return the modules in docs/build by name, imported as mkdocs imports them."""
    names = ("markdown_text", "run", "front_page", "fit_page", *PAGES)
    sys.path.insert(0, str(DOCS / "build"))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(DOCS / "build"))
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def generated(build) -> dict[str, str]:
    return {path: text for name in PAGES for path, text in build[name].build_pages().items()}


# --- generated pages -------------------------------------------------------------------------------------------------


def test_generated_pages_are_not_committed(generated):
    assert not [path for path in generated if (DOCS / path).exists()]
    tracked = subprocess.run(["git", "ls-files", "docs"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert not {f"docs/{path}" for path in generated} & set(tracked.stdout.split("\n"))


@pytest.mark.slow
def test_generated_pages_are_the_same_every_time(build, generated):
    for module in PAGES:
        for path, text in build[module].build_pages().items():
            assert text == generated[path], path


@pytest.mark.parametrize("code", CODES)
def test_a_rule_has_a_page_with_its_text_and_an_executed_example(generated, code):
    rule = registry.RULES[code]
    page = generated[f"rules/{code}.md"]
    assert page.startswith(f"# {code} {rule.name}\n")
    for heading in re.findall(r"^## .*$", registry.load_module(rule).__doc__, re.MULTILINE):
        assert f"\n{heading}\n" in page
    example = page.split("## Executed example", 1)[1]
    assert re.search(rf"^\S+:\d+:\d+: (error|warning|info) {code} ", example, re.MULTILINE)
    if rule.fix is not None:
        assert "```diff\n--- " in example, "the smallest fixture has a fix that can be shown"


def test_every_family_is_named_and_every_rule_is_in_the_navigation(build):
    pages = build["rule_pages"]
    assert {code[:3] for code in CODES} <= pages.FAMILIES.keys()
    listed = re.findall(r"rules/([A-Z]{3}\d{3})\.md", str(pages.build_navigation()))
    assert sorted(listed) == CODES


def test_words_of_a_docstring_become_links_but_its_code_does_not(build):
    linked = build["rule_pages"]._add_links
    rule = registry.RULES["MEM001"]
    assert linked("MEM001 and MEM002", rule) == "MEM001 and [MEM002](MEM002.md)"
    assert linked("docs/memory-model.md", rule) == "[docs/memory-model.md](../memory-model.md)"
    assert linked("a/b#12", rule) == "[a/b#12](https://github.com/a/b/issues/12)"
    assert linked("arXiv:2410.10989", rule) == "[arXiv:2410.10989](https://arxiv.org/abs/2410.10989)"
    prose = build["markdown_text"].format_prose(
        "MEM002 `MEM002` <x>\n    MEM002 <y>\nend", lambda text: linked(text, rule)
    )
    assert prose == "[MEM002](MEM002.md) `MEM002` &lt;x>\n\n    MEM002 <y>\n\nend"


def test_a_fence_is_longer_than_any_inside(build):
    assert build["markdown_text"].format_code_block("```\na\n````", "x.yaml") == "`````yaml\n```\na\n````\n`````\n"


def test_every_setting_and_command_is_on_its_page(build, generated):
    headings = re.findall(r"^## (\S+)$", generated["settings.md"], re.MULTILINE)
    assert set(SETTINGS) <= set(headings)
    from cfglint_train.front.cli import COMMANDS

    commands = re.findall(r"^## cfglint (\S+)$", generated["command-line.md"], re.MULTILINE)
    assert commands == list(COMMANDS)


def test_every_framework_is_named_by_its_title(build):
    """Check the handwritten lists of frameworks; the other lists are generated from the folders."""
    page = build["framework_pages"]
    titles = [
        entry_framework.title
        for entry_framework in list_frameworks().values()
        if entry_framework.package == entry_framework.name
    ]
    assert [title for entry in page.build_navigation() for title in entry] == titles
    assert page.LIST in (DOCS / "index.md").read_text()
    for text in (page.build_framework_list(), build["run"].run_cfglint("--help"), README.split("\n## ", 1)[0]):
        assert not [title for title in titles if title not in text]


def test_the_readme_has_the_generated_parts(build):
    """Check that the terminal example and the table of checks by area and framework are up to date."""
    page = build["front_page"]
    assert page.fill_readme(README) == README, "run python docs/build/front_page.py"
    assert {name for _, name, _ in page._PART.findall(README)} == page.build_parts().keys()
    assert page.CATCHES in (DOCS / "index.md").read_text()


def test_the_page_of_fit_lists_every_change(build):
    page = build["fit_page"]
    assert page.COSTS in (DOCS / "fit.md").read_text()
    for row in page.moves.load_table()["moves"]:
        assert f"| {row['name']} (`{row['field']}`) |" in page.build_cost_table()


def test_the_search_finds_the_rule_of_memory_by_its_usual_word(generated):
    words = {path: len(re.findall(r"\boom\b", text, re.IGNORECASE)) for path, text in generated.items()}
    assert words["rules/MEM001.md"] > 0


def test_consoles_never_cut_a_message(build):
    """Check that output on a page is wrapped as on a terminal of 100 columns."""
    shown = build["run"].run_cfglint("fixtures/cases/1-olmo-64-nodes")
    assert max(map(len, shown.splitlines())) <= 100


# --- written pages ---------------------------------------------------------------------------------------------------

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)


def find_anchors(text: str) -> set[str]:
    """Return the anchors that both GitHub and mkdocs give to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def find_broken_links(path: Path, text: str, generated: dict[str, str]) -> Iterator[str]:
    """Yield the links of a page that lead nowhere."""
    for target in _LINK.findall(_FENCE.sub("", text)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        name_in_docs = page.relative_to(DOCS).as_posix() if page.is_relative_to(DOCS) else ""
        there = page.exists() or name_in_docs in generated
        if not there or (anchor and anchor not in find_anchors(generated.get(name_in_docs) or page.read_text())):
            yield target


@pytest.mark.parametrize("path", [*WRITTEN_PAGES, *sorted(REPOSITORY.glob("*.md"))], ids=lambda path: path.name)
def test_links_lead_somewhere(path, generated):
    assert list(find_broken_links(path, path.read_text(), generated)) == []


def test_links_of_generated_pages_lead_somewhere(generated):
    for path, text in generated.items():
        assert list(find_broken_links(DOCS / path, text, generated)) == [], path


def test_the_navigation_names_pages_that_there_are(generated):
    config = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())
    entries = re.findall(r"[\w/-]+\.md", str(config["nav"]))
    named = set(entries)
    assert sorted(named) == sorted(entries)
    assert named <= {path.relative_to(DOCS).as_posix() for path in WRITTEN_PAGES} | generated.keys()
    assert {path for path in generated if "/" not in path} <= named


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (path.name, line)
        for path in WRITTEN_PAGES
        for block in re.findall(r"^```console exec\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ],
)
def test_commands_on_the_pages_run(build, path, line):
    program, *arguments = line.removeprefix("$ ").split()
    assert program == "cfglint"
    assert build["run"].run_cfglint(*arguments).strip()


def test_the_runner_refuses_what_fails(build):
    with pytest.raises(RuntimeError, match="unknown rule NO"):
        build["run"].run_cfglint("--select", "NO", "fixtures")


def find_titled_block(page: str, title: str) -> str:
    text = (DOCS / page).read_text()
    (block,) = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    return block


def test_the_framework_that_the_page_adds_works(tmp_path):
    """Follow contributing/framework.md, whose code blocks equal the files in tests/frameworks/guest."""
    page, guest = "contributing/framework.md", REPOSITORY / "tests" / "frameworks" / "guest"
    files = sorted(path for path in guest.iterdir() if path.is_file())
    place = tmp_path / "frameworks" / "guest"
    place.mkdir(parents=True)
    for path in files:
        block = find_titled_block(page, f"lint/cfglint_train/frameworks/guest/{path.name}")
        assert block == path.read_text(), path.name
        (place / path.name).write_text(block)
    source = find_titled_block(page, "run.yaml")
    here = tmp_path / "here"
    here.mkdir()
    (here / "run.yaml").write_text(source)
    with install_frameworks(place.parent, guest / "schemas"):
        findings = list_parts(lint(here, build_options(gpu="H100")))
        assert {"MEM001", "MEM002"} <= {finding.code for finding in findings}
        fix(here, build_options(gpu="H100"), unsafe=True)
    fixed = (here / "run.yaml").read_text()
    assert fixed == source.replace("micro_batch: 16", "micro_batch: 1") + "  accumulation: 16\n"


def test_pages_of_contributors_are_as_wide_as_the_code():
    for path in sorted((DOCS / "contributing").glob("*.md")):
        lines = _FENCE.sub("", path.read_text()).split("\n")
        assert not [line for line in lines if len(line) > 120 and not line.startswith("|")], path.name
