"""One page per rule: its docstring, and cfglint at work on its fixtures: before, finding, after."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from markdown_text import fenced, prose, table
from run import REPOSITORY, alone, cfglint

from cfglint_rules import registry
from cfglint_rules.catalogue import FAMILIES
from cfglint_rules.registry import RULES
from cfglint_rules.rule import Rule
from cfglint_train.frameworks.registry import listed, naming

FIXTURES = REPOSITORY / "fixtures" / "rules"
FOLDER = "rules"
_SETTINGS = "cfglint.toml"
_LONG = 40
"""Lines; a longer file is shown folded."""


def pages() -> dict[str, str]:
    """Every page by its path below docs/."""
    return {f"{FOLDER}/index.md": _index(), **{f"{FOLDER}/{rule.code}.md": _page(rule) for rule in RULES.values()}}


def navigation() -> list[dict[str, object]]:
    """The pages by family, for the site's navigation."""
    sections: list[dict[str, object]] = [
        {"All rules": f"{FOLDER}/index.md"},
        {"Failures that users met": f"{FOLDER}/failures.md"},
    ]
    for family, rules in families():
        sections.append({FAMILIES[family]: [{f"{one.code} {one.name}": f"{FOLDER}/{one.code}.md"} for one in rules]})
    return sections


def families() -> Iterator[tuple[str, list[Rule]]]:
    """Yield each family with its rules."""
    for family in FAMILIES:
        rules = sorted(rule for rule in RULES.values() if rule.code.startswith(family))
        if rules:
            yield family, rules


def _index() -> str:
    parts = [
        "# Rules\n",
        f"{len(RULES)} rules. `cfglint rule CODE` prints the text of a page, `cfglint rules --output-format json` all "
        "of them. Codes and families select: `--select MEM,CKP001`, `--ignore PRF`.\n",
    ]
    for family, rules in families():
        rows = [
            (f"[{rule.code}]({rule.code}.md)", f"`{rule.name}`", summary(rule), rule.severity, rule.fix or "")
            for rule in rules
        ]
        parts.append(
            f"## {FAMILIES[family]} ({family})\n\n{table(('code', 'name', 'finding', 'severity', 'fix'), rows)}"
        )
    return "\n".join(parts)


def summary(rule: Rule) -> str:
    """Return what a rule reports, from the first line of its docstring."""
    text = registry.module(rule).__doc__.strip().split("\n\n")[0].partition(": ")[2]
    return prose(" ".join(text.split()), lambda words: words)


def _page(rule: Rule) -> str:
    _, _, body = registry.module(rule).__doc__.strip().partition("\n\n")
    named = [one.title for one in listed().values() if rule.particular and one.name in naming(rule.code)]
    facts = (
        rule.severity,
        f"{rule.fix} fix" if rule.fix else "no fix",
        ", ".join(named) or "all frameworks",
        f"since {rule.since}",
    )
    short = summary(rule)
    return "\n".join(
        (
            f"# {rule.code} {rule.name}\n",
            f"{short[0].upper()}{short[1:]}\n",
            f"*{' · '.join(facts)}*\n",
            prose(body, lambda text: _linked(text, rule)) + "\n",
            "\n".join(_at_work(rule)),
        )
    )


_DOCS = re.compile(r"\bdocs/([\w/-]+\.md)\b")
_CODE = re.compile(r"\b[A-Z]{3}\d{3}\b")
_ISSUE = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)\b")
_PAPER = re.compile(r"\barXiv:(\d{4}\.\d{4,5})\b")


def _linked(text: str, rule: Rule) -> str:
    """Links to pages, other rules, issues and papers."""
    text = _DOCS.sub(lambda found: f"[{found[0]}](../{found[1]})", text)
    text = _ISSUE.sub(lambda found: f"[{found[0]}](https://github.com/{found[1]}/issues/{found[2]})", text)
    text = _PAPER.sub(lambda found: f"[{found[0]}](https://arxiv.org/abs/{found[1]})", text)
    return _CODE.sub(
        lambda found: f"[{found[0]}]({found[0]}.md)" if found[0] in RULES and found[0] != rule.code else found[0], text
    )


# --- at work ---------------------------------------------------------------------------------------------------------


def _at_work(rule: Rule) -> Iterator[str]:
    with alone(FIXTURES / rule.code / "fires") as folder:
        yield from _shown(rule, folder)


def _shown(rule: Rule, folder: Path) -> Iterator[str]:
    only = ["--select", rule.code]
    settings = ["--config", _SETTINGS] if (folder / _SETTINGS).exists() else ["--isolated"]
    found = _smallest(rule, folder, [*settings, *only])
    if found is None:
        # It is about the other rules (an unused suppression), which have to be on.
        only = []
        found = _smallest(rule, folder, [*settings, *only])
    assert found is not None, f"{rule.code} fires on none of its fixtures"
    name, files = found
    yield "## Executed example\n"
    for path in (*settings[1:], *files):
        yield _file(folder / path, path)
    said = cfglint(*settings, *only, name, folder=folder)
    yield fenced(f"$ {' '.join(('cfglint', *only, name))}\n{said}", ".console")
    if rule.fix is None:
        return
    for unsafe in ((), ("--unsafe-fixes",)):
        diff = cfglint(*settings, *only, *unsafe, "--diff", name, folder=folder)
        if diff.startswith("---"):
            yield f"What `cfglint {' '.join(('--fix', *unsafe))}` changes:\n"
            yield fenced(diff, ".diff")
            return


def _smallest(rule: Rule, folder: Path, flags: list[str]) -> tuple[str, list[str]] | None:
    """The shortest of the rule's fixtures, by the file that is named to cfglint, with all files of its run.

    A fixture whose fix can be shown comes before one without.
    """
    choices = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _SETTINGS):
        name = path.relative_to(folder).as_posix()
        told = json.loads(cfglint(*flags, "--output-format", "json", name, folder=folder))
        found = [one for one in told["findings"] if one["code"] == rule.code]
        if not found:
            continue
        files = dict.fromkeys([name, *(file["path"] for file in told["files"])])
        usual = {None: 0, "display": 1, "unsafe": 2, "safe": 3}
        best = max(usual[one["fix"] and one["fix"]["applicability"]] for one in found)
        choices.append((-best, sum((folder / file).stat().st_size for file in files), name, list(files)))
    return min(choices)[2:] if choices else None


def _file(path: Path, name: str) -> str:
    text = path.read_bytes().decode("utf-8", "replace")
    block = fenced(text, name, title=name)
    if text.count("\n") <= _LONG:
        return block
    inside = "".join(f"    {line}\n" if line else "\n" for line in block.split("\n"))
    return f'??? example "{name} ({text.count(chr(10))} lines)"\n\n{inside}'
