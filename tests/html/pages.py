"""Pages for the tests, and a strict HTML parser."""

from __future__ import annotations

from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

from cfglint_train import api
from cfglint_train.reports import html
from tests.support.linting import change_directory, isolate_folder

REPOSITORY = Path(__file__).resolve().parents[2]
VOID = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"))

ATTACKS = (
    "</script><script>parent.pwned = 1</script>",
    "</style><script>parent.pwned = 1</script>",
    "\"><img src=x onerror='parent.pwned = 1'>",
    "' onmouseover='parent.pwned = 1",
    "<!--<script>",
    "-->",
    "&lt;b&gt;&amp;",
    "javascript:parent.pwned=1",
    "\u2028\u2029\x00\x1b[31m",
    "\u202eesrever",
    "]]>",
    "{{7*7}}${7*7}`",
)

HOSTILE = """\
base_model: Qwen/Qwen2.5-0.5B
datasets: [{path: data/train.jsonl, type: alpaca}]
output_dir: "%s"
micro_batch_size: 4
gradient_accumulation_steps: 1
sequence_len: 2048
trust_remote_code: true
"%s": 1
micro_batch_size: 4
"""


class Reader(HTMLParser):
    """The elements of a page; fails on unclosed and mismatched elements."""

    def __init__(self, text: str) -> None:
        """Parse `text`."""
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, tag
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in self._open:
            self.texts.setdefault(tag, []).append(data)

    def find_elements(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def get_text(self, tag: str = "body") -> str:
        return "".join(self.texts.get(tag, ()))


def join_lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines).encode().decode()


def render_hostile_page(number: int = 0) -> str:
    """Return a page about a configuration whose path, keys and values are attacks."""
    attack = ATTACKS[number]
    quoted = attack.replace("\\", "\\\\").replace('"', '\\"')
    quoted = "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in quoted)
    path = f"{attack.replace(chr(0), '')}.yaml"
    options = api.Options(isolated=True, gpu="H100", nodes=1)
    with TemporaryDirectory() as empty, change_directory(Path(empty)):
        return join_lines(html.report(api.lint(sources={path: HOSTILE % (quoted, quoted)}, options=options).raw))


def render_folder(folder: Path) -> str:
    return render_file(isolate_folder(folder))


def render_file(path: Path) -> str:
    return join_lines(html.report(api.lint(path, api.Options(isolated=True)).raw))
