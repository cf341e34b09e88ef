"""One page per rule: its docstring, and cfglint run on its fixtures: config, finding, fix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from markdown_text import format_code_block, format_prose, format_table
from run import REPOSITORY, copy_to_repository, run_cfglint

from cfglint_rules import registry
from cfglint_rules.catalogue import FAMILIES
from cfglint_rules.registry import RULES
from cfglint_rules.rule import Rule
from cfglint_train.frameworks.registry import find_frameworks_of_rule, list_frameworks

FIXTURES = REPOSITORY / "fixtures" / "rules"
FOLDER = "rules"
_SETTINGS = "cfglint.toml"
_LONG = 40
"""Number of lines above which a file is folded."""


def build_pages() -> dict[str, str]:
    """Return every page by its path below docs/."""
    return {
        f"{FOLDER}/index.md": _build_index(),
        **{f"{FOLDER}/{rule.code}.md": _build_page(rule) for rule in RULES.values()},
    }


def build_navigation() -> list[dict[str, object]]:
    """Return the pages by family, for the site's navigation."""
    sections: list[dict[str, object]] = [
        {"All rules": f"{FOLDER}/index.md"},
        {"Failures that users met": f"{FOLDER}/failures.md"},
    ]
    for family, rules in yield_families():
        sections.append(
            {FAMILIES[family]: [{f"{rule.code} {rule.name}": f"{FOLDER}/{rule.code}.md"} for rule in rules]}
        )
    return sections


def yield_families() -> Iterator[tuple[str, list[Rule]]]:
    """Yield each family with its rules."""
    for family in FAMILIES:
        rules = sorted(rule for rule in RULES.values() if rule.code.startswith(family))
        if rules:
            yield family, rules


def _build_index() -> str:
    parts = [
        "# Rules\n",
        f"{len(RULES)} rules. `cfglint rule CODE` prints the text of a page, `cfglint rules --output-format json` all "
        "of them. Codes and families select: `--select MEM,CKP001`, `--ignore PRF`.\n",
    ]
    for family, rules in yield_families():
        rows = [
            (f"[{rule.code}]({rule.code}.md)", f"`{rule.name}`", extract_summary(rule), rule.severity, rule.fix or "")
            for rule in rules
        ]
        parts.append(
            f"## {FAMILIES[family]} ({family})\n\n{format_table(('code', 'name', 'finding', 'severity', 'fix'), rows)}"
        )
    return "\n".join(parts)


_SYMPTOMS = re.compile(r"^## Symptoms\n(.+?)\.?\n\n", re.MULTILINE | re.DOTALL)


def build_metadata(path: str) -> dict[str, object]:
    """Return the metadata of a page: the symptoms of a rule, by which the site's search finds its page."""
    rule = RULES.get(Path(path).stem)
    match = None if rule is None else _SYMPTOMS.search(registry.load_module(rule).__doc__)
    if match is None:
        return {}
    return {"tags": " ".join(match[1].replace("`", "").split()).split(", "), "hide": ["tags"]}


def extract_summary(rule: Rule) -> str:
    """Return the text that says what a rule reports, from the first line of its docstring."""
    text = registry.load_module(rule).__doc__.strip().split("\n\n")[0].partition(": ")[2]
    return format_prose(" ".join(text.split()), lambda words: words)


def _build_page(rule: Rule) -> str:
    _, _, body = registry.load_module(rule).__doc__.strip().partition("\n\n")
    frameworks = [
        manifest.title
        for manifest in list_frameworks().values()
        if rule.particular and manifest.name in find_frameworks_of_rule(rule.code)
    ]
    facts = (
        rule.severity,
        f"{rule.fix} fix" if rule.fix else "no fix",
        ", ".join(frameworks) or "all frameworks",
        f"since {rule.since}",
    )
    headline = extract_summary(rule)
    return "\n".join(
        (
            f"# {rule.code} {rule.name}\n",
            f"{headline[0].upper()}{headline[1:]}\n",
            f"*{' · '.join(facts)}*\n",
            format_prose(body, lambda text: _add_links(text, rule)) + "\n",
            "\n".join(_yield_example(rule)),
        )
    )


_DOCS = re.compile(r"\bdocs/([\w/-]+\.md)\b")
_CODE = re.compile(r"\b[A-Z]{3}\d{3}\b")
_ISSUE = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)\b")
_PAPER = re.compile(r"\barXiv:(\d{4}\.\d{4,5})\b")


def _add_links(text: str, rule: Rule) -> str:
    """Add links to pages, other rules, issues and papers."""
    text = _DOCS.sub(lambda match: f"[{match[0]}](../{match[1]})", text)
    text = _ISSUE.sub(lambda match: f"[{match[0]}](https://github.com/{match[1]}/issues/{match[2]})", text)
    text = _PAPER.sub(lambda match: f"[{match[0]}](https://arxiv.org/abs/{match[1]})", text)
    return _CODE.sub(
        lambda match: f"[{match[0]}]({match[0]}.md)" if match[0] in RULES and match[0] != rule.code else match[0], text
    )


# --- executed examples -----------------------------------------------------------------------------------------------


def _yield_example(rule: Rule) -> Iterator[str]:
    with copy_to_repository(FIXTURES / rule.code / "fires") as folder:
        yield from _run_example(rule, folder)


def _run_example(rule: Rule, folder: Path) -> Iterator[str]:
    selection = ["--select", rule.code]
    settings = ["--config", _SETTINGS] if (folder / _SETTINGS).exists() else ["--isolated"]
    smallest = _find_smallest(rule, folder, [*settings, *selection])
    if smallest is None:
        # The rule is about other rules (an unused suppression), so all rules have to be on.
        selection = []
        smallest = _find_smallest(rule, folder, [*settings, *selection])
    assert smallest is not None, f"{rule.code} fires on none of its fixtures"
    name, files = smallest
    yield "## Executed example\n"
    for path in (*settings[1:], *files):
        yield _format_file(folder / path, path)
    output = run_cfglint(*settings, *selection, name, folder=folder)
    yield format_code_block(f"$ {' '.join(('cfglint', *selection, name))}\n{output}", ".console")
    if rule.fix is None:
        return
    for unsafe in ((), ("--unsafe-fixes",)):
        diff = run_cfglint(*settings, *selection, *unsafe, "--diff", name, folder=folder)
        if diff.startswith("---"):
            yield f"What `cfglint {' '.join(('--fix', *unsafe))}` changes:\n"
            yield format_code_block(diff, ".diff")
            return


def _find_smallest(rule: Rule, folder: Path, flags: list[str]) -> tuple[str, list[str]] | None:
    """Return the smallest of the rule's fixtures: the file passed to cfglint, and all files of its run.

    A fixture with a fix that can be shown comes first.
    """
    choices = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _SETTINGS):
        name = path.relative_to(folder).as_posix()
        report = json.loads(run_cfglint(*flags, "--output-format", "json", name, folder=folder))
        findings = [finding for finding in report["findings"] if finding["code"] == rule.code]
        if not findings:
            continue
        files = dict.fromkeys([name, *(file["path"] for file in report["files"])])
        usual = {None: 0, "display": 1, "unsafe": 2, "safe": 3}
        best = max(usual[finding["fix"] and finding["fix"]["applicability"]] for finding in findings)
        choices.append((-best, sum((folder / file).stat().st_size for file in files), name, list(files)))
    return min(choices)[2:] if choices else None


def _format_file(path: Path, name: str) -> str:
    text = path.read_bytes().decode("utf-8", "replace")
    block = format_code_block(text, name, title=name)
    if text.count("\n") <= _LONG:
        return block
    inside = "".join(f"    {line}\n" if line else "\n" for line in block.split("\n"))
    return f'??? example "{name} ({text.count(chr(10))} lines)"\n\n{inside}'
