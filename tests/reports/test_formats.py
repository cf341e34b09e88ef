"""Report formats as their consumers read them: schemas, columns, and edits that do what they claim."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import cmarkgfm
import pytest
import xmlschema
from cmarkgfm.cmark import Options as CommonMark
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from cfglint_train import api
from cfglint_train.documents.document import Document, Edit, Position, Span
from cfglint_train.findings.finding import SEVERITIES, FileEdit, Finding, Related, Remedy
from cfglint_train.judging.result import CheckedFile, Result, Trouble
from cfglint_train.plan.origin import Place
from cfglint_train.reports import fixes, formats, markdown, places
from cfglint_train.reports.line_hash import compute_line_hashes
from cfglint_train.reports.style import Style
from cfglint_train.settings.settings import FORMATS
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, CONTRADICTED, DEEPSPEED, LIMITED, REMOTE_CODE, TWICE, UNKNOWN_MODEL
from tests.support.corpus import REPOSITORY
from tests.support.hostile import RESULTS, render_report, write_folder_with_all_kinds
from tests.support.linting import change_directory

OFFICIAL = Path(__file__).parents[1].joinpath("official")
SARIF = Draft7Validator(json.loads((OFFICIAL / "sarif-2.1.0.json").read_text()))
JUNIT = xmlschema.XMLSchema(str(OFFICIAL / "junit-10.xsd"))

_LINE = {"type": "integer", "minimum": 1}
_POSITION = {"type": "object", "required": ["line"], "properties": {"line": _LINE, "column": _LINE}}

# docs.gitlab.com, "Code Quality": required keys of an imported report. GitLab ignores other keys.
GITLAB = Draft202012Validator(
    {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["description", "check_name", "fingerprint", "severity", "location"],
            "additionalProperties": False,
            "properties": {
                "description": {"type": "string", "minLength": 1},
                "check_name": {"type": "string", "minLength": 1},
                "fingerprint": {"type": "string", "minLength": 8},
                "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
                "content": {
                    "type": "object",
                    "required": ["body"],
                    "additionalProperties": False,
                    "properties": {"body": {"type": "string", "minLength": 1}},
                },
                "location": {
                    "type": "object",
                    "required": ["path"],
                    "additionalProperties": False,
                    "oneOf": [{"required": ["lines"]}, {"required": ["positions"]}],
                    "properties": {
                        "path": {"type": "string", "minLength": 1},
                        "lines": {"type": "object", "required": ["begin"], "properties": {"begin": _LINE}},
                        "positions": {
                            "type": "object",
                            "required": ["begin"],
                            "properties": {"begin": _POSITION, "end": _POSITION},
                        },
                    },
                },
            },
        },
    }
)

# reviewdog `proto/rdf/reviewdog.proto`: reviewdog rejects keys that its release does not know.
_RANGE = {
    "type": "object",
    "required": ["start"],
    "additionalProperties": False,
    "properties": {"start": _POSITION, "end": _POSITION},
}
RDJSON = Draft202012Validator(
    {
        "type": "object",
        "required": ["source", "diagnostics"],
        "additionalProperties": False,
        "properties": {
            "source": {"type": "object", "required": ["name"], "properties": {"name": {"const": "cfglint"}}},
            "diagnostics": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["message", "location", "severity", "code"],
                    "additionalProperties": False,
                    "properties": {
                        "message": {"type": "string"},
                        "location": {
                            "type": "object",
                            "required": ["path"],
                            "additionalProperties": False,
                            "properties": {"path": {"type": "string"}, "range": _RANGE},
                        },
                        "severity": {"enum": ["ERROR", "WARNING", "INFO"]},
                        "code": {
                            "type": "object",
                            "required": ["value"],
                            "additionalProperties": False,
                            "properties": {"value": {"type": "string"}, "url": {"type": "string"}},
                        },
                        "suggestions": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["range", "text"],
                                "additionalProperties": False,
                                "properties": {"range": _RANGE, "text": {"type": "string"}},
                            },
                        },
                    },
                },
            },
        },
    }
)

PAGES = Style(pages="https://example.org/rules/{code}")


def lint(folder: Path, form: str, *arguments: str, **environment: str) -> str:
    return run_cfglint("--output-format", form, *arguments, cwd=folder, environment=environment).out


def test_the_settings_name_every_format():
    assert tuple(sorted(FORMATS)) == tuple(sorted(formats._REPORTERS))
    for form in FORMATS:
        assert callable(formats.find_reporter(form))


# --- SARIF -----------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(RESULTS)
def test_sarif_is_valid_whatever_the_text(result):
    log = json.loads(render_report(result, "sarif", PAGES))
    SARIF.validate(log)
    assert len(log["runs"][0]["results"]) == len(result.findings)


def lint_to_sarif(folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    log = json.loads(lint(folder, "sarif", *arguments, **environment))
    SARIF.validate(log)
    [run] = log["runs"]
    return run


def test_sarif_of_real_files(tmp_path):
    run = lint_to_sarif(write_folder_with_all_kinds(tmp_path))
    rules = run["tool"]["driver"]["rules"]
    assert run["columnKind"] == "utf16CodeUnits"
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
    for rule in rules:
        assert "## What it does" in rule["help"]["markdown"]
        assert rule["shortDescription"]["text"]
    reported = {
        (entry["ruleId"], entry["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        for entry in run["results"]
    }
    assert {("SYN003", "a.yaml"), ("XFL001", "c/ds.json"), ("SYN002", "d.yaml")} <= reported
    assert run["invocations"][0]["executionSuccessful"] is False
    clean = tmp_path / "clean"
    (clean / ".git").mkdir(parents=True)
    (clean / "a.yaml").write_text(AXOLOTL)
    assert lint_to_sarif(clean, "--select", "SYN") == {
        "columnKind": "utf16CodeUnits",
        "tool": run["tool"] | {"driver": run["tool"]["driver"] | {"rules": []}},
        "invocations": [{"executionSuccessful": True}],
        "results": [],
    }


def test_a_finding_across_files_tells_both_places(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "main.yaml").write_text(AXOLOTL + "deepspeed: ds.json\n")
    (tmp_path / "ds.json").write_text(CONTRADICTED)
    [result] = lint_to_sarif(tmp_path, "--select", "XFL001")["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "ds.json"
    related = [location["physicalLocation"]["artifactLocation"]["uri"] for location in result["relatedLocations"]]
    assert "main.yaml" in related
    assert len({location["id"] for location in result["relatedLocations"]}) == len(related)


def encode_units(text: str) -> bytes:
    return text.encode("utf-16-le")


def extract_region(source: str, region: dict[str, int]) -> str:
    """Return the text of a SARIF region, counted as GitHub does: lines, then UTF-16 code units."""
    lines = source.removeprefix("\ufeff").split("\n")
    if region["startLine"] == region["endLine"]:
        line = encode_units(lines[region["startLine"] - 1])
        return line[2 * (region["startColumn"] - 1) : 2 * (region["endColumn"] - 1)].decode("utf-16-le")
    first = encode_units(lines[region["startLine"] - 1])[2 * (region["startColumn"] - 1) :].decode("utf-16-le")
    last = encode_units(lines[region["endLine"] - 1] if region["endLine"] <= len(lines) else "")
    between = lines[region["startLine"] : region["endLine"] - 1]
    return "\n".join([first, *between, last[: 2 * (region["endColumn"] - 1)].decode("utf-16-le")])


@pytest.mark.parametrize("head", ["", "\ufeff", "# \U0001f600\r\n"])
def test_columns_of_sarif_are_utf_16(tmp_path, head):
    (tmp_path / ".git").mkdir()
    source = f'{head}deepspeed: {{"\U0001f600é": 1, "train_batch_size": 100, "train_micro_batch_size_per_gpu": 8, '
    source += '"gradient_accumulation_steps": 4}\n' + AXOLOTL
    (tmp_path / "config.yaml").write_bytes(source.encode())
    for result in lint_to_sarif(tmp_path, "--select", "BAT001,XFL001,SYN")["results"]:
        region = result["locations"][0]["physicalLocation"]["region"]
        text = extract_region(source.replace("\r\n", "\n"), region)
        assert text.strip('"').startswith(("train_", "gradient_")), text


def test_the_documents_columns():
    document = Document("x", "\ufeffa\U0001f600é: b\r\n\U0001f600".encode())
    assert places.compute_utf16_column(document, Position(1, 5)) == 6
    assert places.compute_utf8_column(document, Position(1, 5)) == 9
    assert places.compute_utf16_column(document, Position(2, 2)) == 3
    assert places.compute_utf8_column(document, Position(2, 2)) == 5
    assert places.compute_utf8_column(document, Position(9, 7)) == 7
    assert places.compute_utf16_column(None, Position(3, 7)) == 7
    assert places.get_line_text(document, 1) == "a\U0001f600é: b"
    assert places.get_line_text(document, 3) == ""


def apply_replacements(source: str, replacements: list[dict[str, Any]]) -> str:
    """Apply the replacements of a SARIF fix to the text."""
    lines = source.split("\n")

    def get_offset(line: int, column: int) -> int:
        before = sum(len(encode_units(change)) + 2 for change in lines[: line - 1])
        return before + 2 * (column - 1)

    data = encode_units(source)
    for change in sorted(
        replacements,
        key=lambda change: get_offset(change["deletedRegion"]["startLine"], change["deletedRegion"]["startColumn"]),
        reverse=True,
    ):
        region = change["deletedRegion"]
        start, end = (
            get_offset(region["startLine"], region["startColumn"]),
            get_offset(region["endLine"], region["endColumn"]),
        )
        data = data[:start] + encode_units(change["insertedContent"]["text"]) + data[end:]
    return data.decode("utf-16-le")


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("ds.json", DEEPSPEED, "BAT001"),
        ("ds.json", DEEPSPEED.replace('"zero', '"\U0001f600": "é",\n    "zero'), "BAT001"),
        ("config.yaml", REMOTE_CODE, "SEC001"),
        ("config.yaml", f"# \U0001f600\n{REMOTE_CODE}", "SEC001"),
    ],
)
def test_the_fixes_of_sarif_do_what_they_say(tmp_path, name, text, code):
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    [result] = lint_to_sarif(tmp_path, "--select", code)["results"]
    [fix] = result["fixes"]
    [change] = fix["artifactChanges"]
    assert change["artifactLocation"]["uri"] == name
    run_cfglint("--fix", "--unsafe-fixes", "--select", code, cwd=tmp_path)
    assert apply_replacements(text, change["replacements"]) == (tmp_path / name).read_text()


def list_fingerprints(folder: Path, *arguments: str) -> dict[str, list[str]]:
    fingerprints: dict[str, list[str]] = {}
    for result in lint_to_sarif(folder, *arguments)["results"]:
        path = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        fingerprints.setdefault(path, []).append(result["partialFingerprints"]["cfglint/v1"])
    return fingerprints


def test_fingerprints_survive_what_happens_around_a_finding(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.yaml").write_text(REMOTE_CODE)
    (tmp_path / "b.yaml").write_text(REMOTE_CODE)
    before = list_fingerprints(tmp_path, "--select", "SEC001")
    assert before["a.yaml"] != before["b.yaml"]
    (tmp_path / "a.yaml").write_text(f"# another line\n{REMOTE_CODE.replace('num_epochs: 1', 'num_epochs: 2')}")
    assert list_fingerprints(tmp_path, "--select", "SEC001") == before
    (tmp_path / "a.yaml").write_text(REMOTE_CODE.replace("trust_remote_code: true", "trust_remote_code: yes"))
    assert list_fingerprints(tmp_path, "--select", "SEC001")["a.yaml"] != before["a.yaml"]


def test_equal_lines_have_fingerprints_of_their_own(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.yaml").write_text(AXOLOTL + "test_datasets:\n" + "  - path: a\n    path: a\n" * 2)
    fingerprints = list_fingerprints(tmp_path, "--select", "SYN003")["a.yaml"]
    assert len(set(fingerprints)) == len(fingerprints) == 2


def test_paths_are_given_from_the_root_of_the_checkout(tmp_path):
    (tmp_path / "check out" / "é").mkdir(parents=True)
    (tmp_path / "check out" / "é" / "100%.yaml").write_text(TWICE)
    run = lint_to_sarif(tmp_path, "--select", "SYN", "check out", GITHUB_WORKSPACE=str(tmp_path / "check out"))
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "%C3%A9/100%25.yaml"
    assert unquote(uri) == "é/100%.yaml"
    outside = lint_to_sarif(
        tmp_path, "--select", "SYN", str(tmp_path / "check out"), GITHUB_WORKSPACE=str(tmp_path / "other")
    )
    uri = outside["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.startswith("file:///")


# Expected values of the unit tests of `src/fingerprints.ts` in github/codeql-action.
_GREETINGS = [
    "e9496ae3ebfced30:1", "fb7c023a8b9ccb3f:1", "ce8ba1a563dcdaca:1", "e20e36e16fcb0cc8:1", "b3edc88f2938467e:1",
    "c8e28b0b4002a3a0:1", "c129715d7a2bc9a3:1",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["c129715d7a2bc9a3:1"]),
        (" a\nb\n  \t\tc\n d", ["271789c17abda88f:1", "54703d4cd895b18:1", "180aee12dab6264:1", "a23a3dc5e078b07b:1"]),
        (" hello; \t\nworld!!!\n\n\n  \t\tGreetings\n End\n", _GREETINGS),
        (" hello; \t\nworld!!!\r\r\r  \t\tGreetings\r End\r", _GREETINGS),
        (" hello; \t\r\nworld!!!\r\n\r\n\r\n  \t\tGreetings\r\n End\r\n", _GREETINGS),
        (" hello; \t\nworld!!!\r\n\n\r  \t\tGreetings\r End\r\n", _GREETINGS),
        (
            "Lorem ipsum dolor sit amet.\n" * 10,
            [
                *(f"a7f2ff13bc495cf2:{number}" for number in range(1, 7)), "a7f2ff1481e87703:1", "a9cf91f7bbf1862b:1",
                "55ec222b86bcae53:1", "cc97dc7b1d7d8f7b:1", "c129715d7a2bc9a3:1",
            ],
        ),
    ],
)  # fmt: skip
def test_the_hash_of_a_line_is_githubs(text, expected):
    line_numbers = range(1, len(expected) + 1)
    assert list(compute_line_hashes(text, line_numbers).values()) == expected
    assert compute_line_hashes(text, [len(expected)]) == {len(expected): expected[-1]}
    assert compute_line_hashes(text, [len(expected) + 1]) == {}


# --- GitLab ----------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(RESULTS)
def test_gitlab_is_valid_whatever_the_text(result):
    issues = json.loads(render_report(result, "gitlab"))
    GITLAB.validate(issues)
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)


def test_gitlab_of_real_files(tmp_path):
    folder = write_folder_with_all_kinds(tmp_path)
    issues = json.loads(lint(folder, "gitlab"))
    GITLAB.validate(issues)
    places = {(issue["check_name"], issue["location"]["path"]) for issue in issues}
    assert {("SYN003", "a.yaml"), ("XFL001", "c/ds.json"), ("SYN002", "d.yaml")} <= places
    within = json.loads(lint(folder / "c", "gitlab", CI_PROJECT_DIR=str(folder)))
    assert {issue["location"]["path"] for issue in within} <= {"c/ds.json", "c/main.yaml"}
    # Fingerprints do not depend on the directory that cfglint runs in.
    assert {issue["fingerprint"] for issue in within} <= {issue["fingerprint"] for issue in issues}


# --- JUnit -----------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(RESULTS)
def test_junit_is_valid_whatever_the_text(result):
    output = render_report(result, "junit")
    root = ElementTree.fromstring(output)
    JUNIT.validate(root)
    assert len(root.findall(".//failure")) == len(result.findings) == int(root.attrib["failures"])
    assert int(root.attrib["tests"]) == len(root.findall(".//testcase"))
    assert int(root.attrib["errors"]) == len(root.findall(".//error"))


def test_junit_of_real_files(tmp_path):
    folder = write_folder_with_all_kinds(tmp_path)
    (folder / "clean.yaml").write_text(AXOLOTL)
    root = ElementTree.fromstring(lint(folder, "junit", "--select", "SYN,XFL"))
    suites = {suite.attrib["name"]: suite for suite in root}
    assert list(suites) == sorted(suites)
    assert [case.attrib["name"] for case in suites["clean.yaml"]] == ["cfglint"]
    [failure] = suites["a.yaml"].findall("testcase/failure")
    assert failure.attrib["type"] == "warning"
    headline, *locations = failure.text.splitlines()
    assert headline == f"a.yaml, line 10, column 1: {failure.attrib['message']}"
    assert locations == ["a.yaml:6:1: first here"]


# --- rdjson ----------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(RESULTS)
def test_rdjson_is_valid_whatever_the_text(result):
    RDJSON.validate(json.loads(render_report(result, "rdjson", PAGES)))


def apply_suggestion(source: str, suggestion: dict[str, Any]) -> str:
    """Apply a suggestion to the text: whole lines, including the last, without their line ending."""
    assert set(suggestion["range"]["start"]) == set(suggestion["range"]["end"]) == {"line"}
    lines = source.split("\n")
    first, last = suggestion["range"]["start"]["line"], suggestion["range"]["end"]["line"]
    assert 1 <= first <= last <= len(lines)
    return "\n".join([*lines[: first - 1], suggestion["text"], *lines[last:]])


@pytest.mark.parametrize(
    "text",
    [
        DEEPSPEED,
        DEEPSPEED.replace('"zero', '"\U0001f600": "é",\n    "zero'),
        DEEPSPEED.rstrip("\n"),
        '{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}',
    ],
)
def test_the_suggestions_of_rdjson_do_what_they_say(tmp_path, text):
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds.json").write_text(text)
    [diagnostic] = json.loads(lint(tmp_path, "rdjson", "--select", "BAT001"))["diagnostics"]
    [suggestion] = diagnostic["suggestions"]
    run_cfglint("--fix", "--select", "BAT001", cwd=tmp_path)
    assert apply_suggestion(text, suggestion) == (tmp_path / "ds.json").read_text()


def test_unsafe_fixes_are_not_suggested(tmp_path):
    (tmp_path / "config.yaml").write_text(REMOTE_CODE)
    [diagnostic] = json.loads(lint(tmp_path, "rdjson", "--select", "SEC001"))["diagnostics"]
    assert "suggestions" not in diagnostic


def test_columns_of_rdjson_are_bytes(tmp_path):
    (tmp_path / "ds.json").write_text('{"\U0001f600é": 1, ' + DEEPSPEED.replace("\n", "").removeprefix("{"))
    [diagnostic] = json.loads(lint(tmp_path, "rdjson", "--select", "BAT001"))["diagnostics"]
    line = (tmp_path / "ds.json").read_bytes()
    span = diagnostic["location"]["range"]
    assert line[span["start"]["column"] - 1 : span["end"]["column"] - 1].startswith(b'"train_batch_size"')


def build_edit(document: Document, start: int, end: int, text: str) -> FileEdit:
    edit = Edit(Span(start, end), text)
    return FileEdit(document.path, edit, document.locate(start), document.locate(end))


@given(
    st.lists(st.sampled_from(["a: 1", "", "é\U0001f600", "  - x"]), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.data(),
)
def test_hunks_are_the_lines_that_edits_change(lines, newline, ended, data):
    source = newline.join(lines) + newline * ended
    whole = source.encode()
    starts = [
        len(source[:offset].encode()) for offset in range(len(source) + 1) if source[offset - 1 : offset + 1] != "\r\n"
    ]
    cuts = sorted(data.draw(st.lists(st.sampled_from(starts), min_size=2, max_size=6)))
    document = Document("x.yaml", whole)
    edits, expected, offset = [], b"", 0
    for start, end in zip(cuts[::2], cuts[1::2]):
        if start < offset or (edits and start == offset):
            continue
        text = data.draw(st.sampled_from(["", "b", f"b{newline}", f"b{newline}c"]))
        edits.append(build_edit(document, start, end, text))
        expected += whole[offset:start] + text.encode()
        offset = end
    expected += whole[offset:]
    result, line = b"", 1
    parts = whole.splitlines(keepends=True)
    for hunk in fixes.build_hunks(edits, {"x.yaml": document}):
        result += b"".join(parts[line - 1 : hunk.line - 1])
        assert "".join(hunk.before).encode() == b"".join(parts[hunk.line - 1 : hunk.line - 1 + len(hunk.before)])
        result += "".join(hunk.after).encode()
        line = hunk.line + len(hunk.before)
    assert result + b"".join(parts[line - 1 :]) == expected


# --- JSON lines ------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(RESULTS)
def test_json_lines_are_the_records_of_the_object(result):
    report = json.loads(render_report(result, "json"))
    rows = [json.loads(line) for line in render_report(result, "json-lines").splitlines()]
    for kind, name in (("file", "files"), ("finding", "findings"), ("not_checked", "not_checked"), ("error", "errors")):
        records = [{key: value for key, value in row.items() if key != "type"} for row in rows if row["type"] == kind]
        assert records == report[name]


# --- grouped ---------------------------------------------------------------------------------------------------------


def test_grouped_findings(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.yaml").write_text(TWICE + "trust_remote_code: true\n")
    (tmp_path / "b.yaml").write_text(REMOTE_CODE)
    output = lint(tmp_path, "grouped", "--select", "SYN,SEC").splitlines()
    assert output[0] == "a.yaml"
    assert output[1].startswith("  10:1  warning  SYN003 ")
    assert output[2].startswith("  11:1  info     SEC001 [*] ")
    assert output[3:5] == ["", "b.yaml"]
    assert output[-2].startswith("Found 1 warning, 2 info in 2 files.")


# --- Markdown --------------------------------------------------------------------------------------------------------


def render_markdown(text: str) -> ElementTree.Element:
    """Render the text as GitHub does; HTML in it is kept, so that smuggled tags show."""
    page = cmarkgfm.github_flavored_markdown_to_html(text, options=CommonMark.CMARK_OPT_UNSAFE)
    page = page.replace("<br>", "<br/>").translate({0xFFFE: "?", 0xFFFF: "?"})  # XML does not allow these
    return ElementTree.fromstring(f"<div>{page}</div>")


OURS = {
    "div", "h2", "h3", "h4", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "code", "pre", "details",
    "summary", "br", "ul", "li",
}  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(RESULTS)
def test_markdown_makes_nothing_of_what_files_say(result):
    root = render_markdown(render_report(result, "markdown"))
    assert {element.tag for element in root.iter()} <= OURS
    rows = [row for table in root.iter("table") for row in table.iter("tr")]
    assert all(len(list(row)) in (3, 7) for row in rows)
    cells = sum(len(list(row)) == 3 for row in rows) - sum(1 for _ in root.iter("table"))
    assert cells == len(result.findings)


def test_words_in_backticks_are_code_in_pages_and_summaries(tmp_path):
    folder = write_folder_with_all_kinds(tmp_path)
    for output_format in ("markdown", "html"):
        output = lint(folder, output_format, "--gpu", "H100", "--nodes", "1", "--gpus-per-node", "8")
        body = re.sub(r"(?s)<script.*?</script>|<pre.*?</pre>|<style.*?</style>|```diff.*?```", "", output)
        assert "<code>train_batch_size</code>" in html.unescape(body)
        assert "&#96;" not in body
        if output_format == "html":
            assert "`" not in body


def test_markdown_of_real_files(tmp_path):
    folder = write_folder_with_all_kinds(tmp_path)
    output = lint(folder, "markdown", "--gpu", "H100", "--nodes", "1", "--gpus-per-node", "8")
    root = render_markdown(output)
    text = "".join(root.itertext())
    assert "Runs" in text
    assert "axolotl" in text
    assert "Qwen/Qwen2.5-0.5B" in text
    diffs = ["".join(pre.itertext()) for pre in root.iter("pre")]
    assert any('-    "train_batch_size": 100' in diff or '"train_batch_size"' in diff for diff in diffs)
    assert "█" in text or "░" in text
    assert "fits" in text


def test_a_summary_stays_below_what_github_takes():
    document = Document("x.yaml", b"key: value\n" * 2000)
    place = Place(document, Span(0, 3))
    findings = [
        Finding(
            "MEM001",
            "step-exceeds-gpu",
            severity,
            "m" * 20_000,
            f"{number % 9}.yaml",
            Position(1, 1),
            Position(1, 4),
            place,
        )
        for number in range(300)
        for severity in reversed(SEVERITIES)
    ]
    findings.sort(key=lambda finding: finding.sort_key)
    output = render_report(Result((), tuple(findings), (), (), (), frozenset()), "markdown")
    assert 100_000 < len(output.encode()) < markdown.MAX_BYTES + 1000 < 2**20
    assert output.rstrip().endswith("The log of the step has everything.")
    short = [finding._replace(message="m") for finding in findings]
    output = render_report(Result((), tuple(short), (), (), (), frozenset()), "markdown")
    assert output.count("| 1 |") == markdown.MAX_FINDINGS
    assert "700 more findings are not listed." in output
    # The most severe are listed.
    assert output.count("❌ error") == markdown.MAX_FINDINGS


def test_a_fence_is_longer_than_what_it_holds():
    document = Document("x.yaml", b"a: 1\n")
    edit = build_edit(document, 0, 4, "a: ````` </details> **b**")
    finding = Finding(
        "MEM001", "step-exceeds-gpu", "error", "m", "x.yaml", Position(1, 1), Position(1, 2),
        Place(document, Span(0, 1)), Remedy("safe", "x", (edit,)),
    )  # fmt: skip
    root = render_markdown(render_report(Result((), (finding,), (), (), (), frozenset()), "markdown"))
    [pre] = root.iter("pre")
    assert "".join(pre.itertext()) == "@@ x.yaml:1 @@\n-a: 1\n+a: ````` </details> **b**\n"


# --- all formats -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_the_order_of_arguments_does_not_matter(tmp_path, form):
    folder = write_folder_with_all_kinds(tmp_path)
    assert lint(folder, form) == lint(folder, form, "d.yaml", "c", "b", "a.yaml")


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_found_is_told_in_every_format(tmp_path, form):
    (tmp_path / "config.yaml").write_text(AXOLOTL)
    outcome = run_cfglint("--output-format", form, "--select", "SYN", cwd=tmp_path)
    assert outcome.code == 0
    if form in ("json", "gitlab", "rdjson", "sarif"):
        json.loads(outcome.out)
    if form == "junit":
        JUNIT.validate(ElementTree.fromstring(outcome.out))


def test_what_could_not_be_read_is_in_every_format():
    trouble = Trouble("x.yaml", "the lens fell", Position(3, 1), "MEM001", is_internal=True)
    result = Result((CheckedFile("x.yaml", "axolotl", "main"),), (), (trouble,), (), (), frozenset())
    for form in FORMATS:
        assert "the lens fell" in render_report(result, form), form


LINE_PER_FINDING = ("concise", "grouped")
"""Formats that show only a headline."""


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in LINE_PER_FINDING])
def test_help_notes_and_related_places_are_in_every_report(form):
    document, other_document = Document("a.yaml", b"a: 1\n"), Document("b.yaml", b"b: 2\n")
    finding = Finding(
        "XFL001", "deepspeed-contradicts", "error", "m", "a.yaml", Position(1, 1), Position(1, 2),
        Place(document, Span(0, 1)), related=(Related(Place(other_document, Span(0, 1)), "and this"),), help="do that",
        notes=("a first note", "a second one"), fix=Remedy("display", "or so"),
    )  # fmt: skip
    report = html.unescape(render_report(Result((), (finding,), (), (), (), frozenset()), form))
    for part in ("b.yaml", "and this", "do that", "a first note", "a second one"):
        assert part in report, part
    assert "or so" in report


def test_certainty_and_what_a_finding_rests_on_are_in_the_reports(tmp_path):
    (tmp_path / "config.yaml").write_text(LIMITED)
    arguments = ("--isolated", "--select", "MEM001")
    [finding] = json.loads(lint(tmp_path, "json", *arguments))["findings"]
    assert finding["certainty"] == "assumed"
    [length] = [ground for ground in finding["rests_on"] if ground["fact"] == "sequence.length"]
    assert (length["value"], length["grade"]) == (32768, "assumed")
    [note] = [note for note in finding["notes"] if "cutoff_len" in note]
    assert note == f"assumes {length['note']}"

    [result] = lint_to_sarif(tmp_path, *arguments)["results"]
    assert result["properties"]["certainty"] == "assumed"
    assert "sequence.length (assumed)" in result["properties"]["restsOn"]
    assert note in result["message"]["text"]

    page = html.unescape(lint(tmp_path, "html", *arguments))
    assert '<span class="chip assumed">assumed</span>' in page
    words = re.sub("`([^`]+)`", r"<code>\1</code>", length["note"])
    assert f"<li>sequence.length = 32768 (assumed): {words}</li>" in page
    assert f"note: {note}" in lint(tmp_path, "text", *arguments)
    with change_directory(tmp_path):
        [record] = api.lint("config.yaml", api.Options(isolated=True, select=["MEM001"])).findings
    assert record.certainty == "assumed"
    assert "sequence.length" in {ground.fact for ground in record.rests_on}


def test_a_stated_fact_is_a_ground_of_what_is_certain(tmp_path):
    (tmp_path / "config.yaml").write_text(f"# cfglint: gpu=H100 nodes=1 gpus-per-node=8\npacking: true\n{LIMITED}")
    [finding] = json.loads(lint(tmp_path, "json", "--isolated", "--select", "MEM001"))["findings"]
    assert (finding["certainty"], finding["severity"]) == ("stated", "error")
    [card] = [ground for ground in finding["rests_on"] if ground["fact"] == "gpu"]
    assert card["grade"] == "stated"
    assert card["note"] == "config.yaml:1"


def test_runs_that_were_not_checked_are_in_the_page(tmp_path):
    (tmp_path / "config.yaml").write_text(UNKNOWN_MODEL)
    assert "<li>Memory was not checked for 1 run</li>" in lint(tmp_path, "html", "--isolated")


def test_the_copies_of_official_schemas_are_what_their_list_says():
    from hashlib import sha256

    listed = (OFFICIAL / "README.md").read_text()
    for path in sorted(OFFICIAL.glob("*.*")):
        if path.name != "README.md":
            assert sha256(path.read_bytes()).hexdigest() in listed, path.name


@pytest.mark.slow
def test_a_report_is_the_same_in_every_process():
    """Compare processes with different hash seeds, in which sets have a different order."""
    command = [sys.executable, "-m", "cfglint_train", "--isolated", "--output-format", "json", "fixtures"]
    reports = {
        subprocess.run(
            command, cwd=REPOSITORY, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=False
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(reports) == 1
    assert "assumed" in str(reports)
