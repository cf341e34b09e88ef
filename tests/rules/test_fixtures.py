"""Every rule against its fixtures: configs where it must fire, where it must stay silent, and the fixed files.

    fixtures/rules/<CODE>/fires/     each recognised file has a finding of the rule; `expected.txt` beside the
                                     folders lists path, line, message, fix, help and notes
    fixtures/rules/<CODE>/silent/    no file has a finding of the rule
    fixtures/rules/<CODE>/fixed/     `fires/` after `--fix --unsafe-fixes --select CODE`, byte for byte, if the rule
                                     has a fix

`CFGLINT_UPDATE=1 pytest tests/rules` rewrites `expected.txt` and `fixed/`; review the diff before committing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cfglint_rules import registry
from cfglint_train.findings.finding import SEVERITIES
from tests.support.cases import for_each
from tests.support.linting import NEEDED_RULES, build_options, copy_folder, fix, lint, list_parts, read_contents

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "rules"
UPDATE = bool(os.environ.get("CFGLINT_UPDATE"))
CODES = sorted(registry.RULES)


def list_findings(result, code: str):
    return [finding for finding in list_parts(result) if finding.code == code]


def describe_findings(result, code: str) -> list[str]:
    return [line for finding in list_findings(result, code) for line in describe_finding(finding)]


def describe_finding(finding):
    """Yield the message of a finding with its place, then its fix, help and notes."""
    fix = finding.fix
    ending = f" [{fix.applicability}]" if fix is not None else ""
    start = f"{finding.path}:{finding.start.line}:{finding.start.column}"
    yield f"{start} {finding.severity} {finding.message}{ending}"
    texts = [("fix", fix.message)] if fix is not None else []
    texts += [("help", finding.help)] if finding.help else []
    for kind, text in (*texts, *(("note", note) for note in finding.notes)):
        yield from f"  {kind}: {text}".splitlines()


def list_grounds(result, code: str) -> list[tuple[object, ...]]:
    return [
        (finding.path, finding.start, finding.rests_on, finding.fields_read) for finding in list_findings(result, code)
    ]


@for_each("code", CODES)
def test_every_rule_has_fixtures(code):
    assert (FOLDER / code / "fires").is_dir()
    assert (FOLDER / code / "silent").is_dir()
    assert (registry.RULES[code].fix is not None) == (FOLDER / code / "fixed").is_dir()


@pytest.fixture
def repository(tmp_path):
    """Return the root of a checkout, so that no other file of this repository is read for a fixture."""
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.mark.parametrize("code", CODES)
def test_fires_where_it_must(code, repository):
    folder = copy_folder(FOLDER / code / "fires", repository / "fires")
    result = lint(folder)
    lines = describe_findings(result, code)
    expected = FOLDER / code / "expected.txt"
    if UPDATE:
        expected.write_text("".join(f"{line}\n" for line in lines))
    assert [trouble for trouble in result.troubles if trouble.rule is not None] == []
    assert lines
    assert lines == expected.read_text().splitlines()
    mains = {file.path for file in result.files if file.role == "main"}
    pointed = {finding.path for finding in list_findings(result, code)}
    pointed |= {finding.run.main.document.path for finding in list_findings(result, code) if finding.run}
    assert mains <= pointed, "a configuration in fires/ has no finding"
    single_result = lint(folder, build_options(select=[code, *NEEDED_RULES.get(code, ())]))
    assert list_grounds(single_result, code) == list_grounds(result, code), (
        "the rules that run beside it change what it rests on"
    )


@pytest.mark.parametrize("code", CODES)
def test_stays_silent_where_it_must(code, repository):
    result = lint(copy_folder(FOLDER / code / "silent", repository / "silent"))
    said = [*result.findings, *(part for finding in result.findings for part in finding.parts if not part.left_to)]
    assert [finding for finding in said if finding.code == code] == []
    assert [trouble for trouble in result.troubles if trouble.rule is not None] == []
    assert result.files or registry.RULES[code].scope == "file", "nothing in silent/ was recognised"


FIXABLE = [code for code in CODES if registry.RULES[code].fix is not None]


@pytest.mark.parametrize("code", FIXABLE)
def test_fix_writes_exactly_the_fixed_files_and_nothing_twice(code, repository):
    folder = copy_folder(FOLDER / code / "fires", repository / "work")
    before = lint(folder)
    selection = build_options(select=[code, *NEEDED_RULES.get(code, ())])
    fixed = fix(folder, selection, unsafe=True)
    assert fixed.refused == ()
    if UPDATE:
        shutil.rmtree(FOLDER / code / "fixed", ignore_errors=True)
        shutil.copytree(folder, FOLDER / code / "fixed")
    assert read_contents(folder) == read_contents(FOLDER / code / "fixed")
    again = fix(folder, selection, unsafe=True)
    assert again.applied == ()
    assert read_contents(folder) == read_contents(FOLDER / code / "fixed")
    # The fixed findings are gone, and no new finding is as severe.
    after = lint(folder)
    claimed = [finding for finding in list_findings(before, code) if finding.fix and finding.fix.edits]
    unfixed = [finding for finding in list_findings(after, code) if finding.fix and finding.fix.edits]
    assert claimed
    assert unfixed == []
    worst = min(SEVERITIES.index(finding.severity) for finding in claimed)
    reported = {(finding.path, finding.code) for finding in before.findings}
    new = [
        finding
        for finding in after.findings
        if (finding.path, finding.code) not in reported and SEVERITIES.index(finding.severity) <= worst
    ]
    assert new == []


@for_each("code", CODES)
def test_documentation_has_its_sections(code):
    rule = registry.RULES[code]
    text = registry.load_module(rule).__doc__
    assert text.startswith(f"{code} {rule.name}: ")
    for section in ("## What it does", "## Why is this bad?", "## Example"):
        assert section in text
    assert (rule.fix is not None) == ("## Fix safety" in text)
    assert text.strip().split("\n")[0].endswith(".")


def test_codes_and_names_are_unique_and_well_formed():
    names = [rule.name for rule in registry.RULES.values()]
    assert len(set(names)) == len(names)
    for code, rule in registry.RULES.items():
        assert code == rule.code
        assert code[:3].isalpha()
        assert code[:3].isupper()
        assert code[3:].isdigit()
        assert rule.name == rule.name.lower()
        assert " " not in rule.name
