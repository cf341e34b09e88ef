"""The built site: no warning, every link and anchor exists, and nothing is loaded from other sites."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from cfglint_rules import registry

REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


class _Page(HTMLParser):
    """The links, loaded resources and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.anchors.update(filter(None, (values.get("id"), values.get("name"))))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        elif tag in ("script", "img", "iframe", "source") and values.get("src"):
            self.loads.append(values["src"] or "")
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(values["href"] or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("material", reason="the docs extra is not installed")
    folder = tmp_path_factory.mktemp("site")
    process = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "WARNING" not in process.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, _Page]:
    return {path: _Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}


@pytest.mark.slow
def test_every_rule_has_a_page(site):
    for code in registry.RULES:
        assert (site / "rules" / code / "index.html").exists()


def test_what_makes_the_pages_is_no_page(site):
    assert not (site / "build").exists()


def test_links_and_anchors_lead_somewhere(site, pages):
    checked = 0
    for path, page in pages.items():
        for link in page.links:
            if link.startswith(("https://", "mailto:")):
                continue
            assert "://" not in link, link
            name, anchor = urldefrag(unquote(link))
            target = (path.parent / name).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), (path, link)
            if anchor and target in pages:
                assert anchor in pages[target].anchors, (path, link)
            checked += 1
    assert checked > 1000


def test_nothing_is_fetched_from_elsewhere(site, pages):
    for path, page in pages.items():
        for load in page.loads:
            assert "//" not in load, (path, load)
            assert (path.parent / load.partition("?")[0]).resolve().is_file(), (path, load)


SEARCHES = {
    "out of memory": ["MEM001"],
    "oom": ["MEM001"],
    "cuda out of memory": ["MEM001"],
    "host out of memory": ["HST001"],
    "checkpoint host memory": ["CKP001", "CKP003"],
    "no space left on device": ["CKP004"],
    "unknown key": ["KEY001"],
    "renamed key": ["KEY002"],
    "gradient checkpointing": ["MEM002"],
    "gradient_checkpointing": ["MEM002"],
    "loss is nan": ["XFL004"],
    "nccl timeout": ["PAR003"],
    "removed-key": ["KEY002"],
    "step exceeds gpu": ["MEM001"],
}
"""Words that a user types -> the rules whose pages come first."""


def test_the_search_finds_rules_by_their_symptoms(site):
    process = subprocess.run(
        ["node", str(Path(__file__).with_name("search.mjs")), str(site), *SEARCHES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    pages = json.loads(process.stdout)
    assert {query: pages[query][: len(codes)] for query, codes in SEARCHES.items()} == {
        query: [f"rules/{code}/" for code in codes] for query, codes in SEARCHES.items()
    }
