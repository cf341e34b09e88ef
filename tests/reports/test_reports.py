"""Reports over hostile text: no file may steer a terminal, forge a workflow command, or leak secrets."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cfglint_train.documents.document import Document, Edit, Position, Span
from cfglint_train.findings.finding import SEVERITIES, FileEdit, Finding, Related, Remedy
from cfglint_train.judging.result import CheckedFile, Result, Trouble
from cfglint_train.plan.origin import Place
from cfglint_train.reports import escape, github, text
from cfglint_train.reports.style import Style
from cfglint_train.settings.settings import FORMATS
from tests.support import runner
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, CONTRADICTED, DEEPSPEED, TWICE
from tests.support.hostile import (
    PIECES,
    RESULTS,
    find_control_characters,
    render_report,
    write_folder_with_all_kinds,
    write_hostile_folder,
)

SCHEMA = Draft202012Validator(json.loads(Path(__file__).parents[1].joinpath("report.schema.json").read_text()))
PEOPLE = ("text", "concise", "grouped")


# --- no format obeys a file ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=40, deadline=None)
@given(RESULTS)
def test_nothing_is_forged(form, result):
    output = render_report(result, form)
    assert find_control_characters(output) == []
    assert "##[" not in output
    commands = [command for line in runner.split_lines(output) if (command := runner.parse_command(line)) is not None]
    assert form == "github" or commands == []
    for command in commands:
        assert command.name in ("error", "warning", "notice")
    if form == "github":
        assert len(commands) <= len(result.troubles) + len(result.findings)
        # The commands come first, one line each, and no later line is a command.
        heads = runner.split_lines(output)[: len(commands)]
        assert all(runner.parse_command(line) is not None for line in heads)


@pytest.mark.parametrize("form", PEOPLE)
@given(RESULTS)
@settings(max_examples=25, deadline=None)
def test_colours_and_links_are_the_only_escapes(form, result):
    style = Style(color=True, links=True, pages="https://example.org/{code}")
    plain = re.sub(r"\x1b\]8;;(?:https://example\.org/[A-Z]{3}\d{3})?\x1b\\", "", render_report(result, form, style))
    plain = re.sub(r"\x1b\[(?:\d+(?:;\d+)*)?m", "", plain)
    assert find_control_characters(plain) == []
    assert plain == render_report(result, form)


@pytest.mark.slow
@pytest.mark.parametrize("form", PEOPLE)
@given(RESULTS, st.integers(1, 200))
@settings(max_examples=40, deadline=None)
def test_the_width_breaks_lines_and_forges_nothing(form, result, width):
    output = render_report(result, form, Style(width=width))
    assert find_control_characters(output) == []
    assert [line for line in runner.split_lines(output) if runner.parse_command(line) is not None] == []
    # The text is the same with and without wrapping; frames of long lines show as much as fits.
    if form == "grouped":
        assert re.sub(r"\n +\| ", " ", output) == re.sub(r"\n +\| ", " ", render_report(result, form))


@pytest.mark.parametrize("form", FORMATS)
@given(RESULTS)
@settings(max_examples=5, deadline=None)
def test_the_same_result_is_reported_the_same(form, result):
    assert render_report(result, form) == render_report(result, form)


@given(st.lists(PIECES, max_size=6).map("".join))
@settings(max_examples=300)
def test_escapes_are_stable_and_say_no_less(piece):
    for function in (escape.escape_text, escape.escape_line_start, escape.escape_source_line):
        assert function(function(piece)) == function(piece)
        assert "\n" not in function(piece)
    harmless = "".join(char for char in piece if char.isascii() and char.isprintable())
    harmless = harmless.replace("##", "")
    assert escape.escape_text(harmless) == harmless
    assert escape.escape_source_line(harmless) == harmless
    assert escape.escape_diff_line(f"+a{harmless}") == f"+a{harmless}"


# --- GitHub ----------------------------------------------------------------------------------------------------------


def build_finding(message="m", path="x.yaml", severity="error", start=(1, 1), end=(1, 2), code="MEM001") -> Finding:
    return Finding(code, "step-exceeds-gpu", severity, message, path, Position(*start), Position(*end))


def build_result(
    *findings: Finding, troubles: tuple[Trouble, ...] = (), secrets: frozenset[str] = frozenset()
) -> Result:
    return Result((), tuple(findings), troubles, (), (), secrets)


def list_commands(result: Result) -> list[runner.Command]:
    return [command for line in github.report(result) if (command := runner.parse_command(line)) is not None]


VISIBLE = st.lists(
    st.one_of(
        st.sampled_from(["%", "%25", "%0A", ",", ":", "::", "=", ";", " ", "::error::", "a", "é", "日", "#", "[", "]"]),
        st.characters(categories=["L", "N", "P", "S", "Zs"]),
    ),
    max_size=30,
).map("".join)


@given(VISIBLE.filter(lambda message: "##[" not in message), VISIBLE.filter(lambda path: path and "##[" not in path))
@settings(max_examples=200, deadline=None)
def test_messages_and_properties_survive_the_round_trip(message, path):
    [command] = list_commands(build_result(build_finding(message, path, start=(3, 5), end=(3, 9))))
    assert command == (
        "error",
        {"file": path, "title": "MEM001 step-exceeds-gpu", "line": "3", "endLine": "3", "endColumn": "9", "col": "5"},
        message,
    )


@given(st.lists(st.sampled_from(["\n", "\r", "a", "%", " "]), max_size=12).map("".join))
def test_line_breaks_survive_too(message):
    [command] = list_commands(build_result(build_finding(message, f"dir\n{message}x")))
    assert command.data == message
    assert command.properties["file"] == f"dir\n{message}x"


def test_columns_only_on_one_line():
    [command] = list_commands(build_result(build_finding(start=(1, 5), end=(4, 2))))
    assert command.properties == {"file": "x.yaml", "title": "MEM001 step-exceeds-gpu", "line": "1", "endLine": "4"}


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 500])
def test_nine_of_each_kind_and_one_notice_says_how_many_are_left(count):
    findings = [
        build_finding(f"{severity} {number}", path=f"{number:03}.yaml", severity=severity)
        for number in range(count)
        for severity in reversed(SEVERITIES)
    ]
    parsed = list_commands(build_result(*findings))
    kinds = {"error": "error", "warning": "warning", "info": "notice"}
    shown = min(count, 9)
    left = 3 * (count - shown)
    names = [name for severity in SEVERITIES for name in [kinds[severity]] * shown]
    assert [command.name for command in parsed] == names + ["notice"] * (left > 0)
    for severity in SEVERITIES:
        messages = [command.data for command in parsed if command.data.startswith(severity)]
        assert messages == [f"{severity} {number}" for number in range(shown)]
    if left:
        assert parsed[-1].data == f"{left} more: see the log of this step"
    # The runner keeps them all.
    assert all(sum(command.name == name for command in parsed) <= runner.MAX_ANNOTATIONS for name in kinds.values())
    # The log lists them all.
    log = [line for line in github.report(build_result(*findings)) if runner.parse_command(line) is None]
    assert sum(": error MEM001 " in line for line in log) == count


def test_findings_on_changed_lines_come_first():
    findings = [
        build_finding(str(number), path=f"{number:03}.yaml", severity=severity)
        for number in range(30)
        for severity in SEVERITIES
    ]
    lines = github.render_commands(build_result(*findings), "the summary", lambda item: item.message in ("7", "29"))
    parsed = [runner.parse_command(line) for line in lines]
    assert [command.data for command in parsed if command.name == "error"] == ["7", "29", *map(str, range(7))]
    assert parsed[-1].data == "63 more: see the summary"


def test_an_annotation_says_what_helps():
    remedy = Remedy("safe", "do this", (FileEdit("x", Edit(Span(0, 0), ""), Position(1, 1), Position(1, 1)),))
    [command] = list_commands(build_result(build_finding()._replace(help="look there", fix=remedy)))
    assert command.data == "m\nhelp: look there\nfix (safe): do this"
    refused = remedy._replace(edits=(), refused="it cannot be written")
    [command] = list_commands(build_result(build_finding()._replace(fix=refused)))
    assert command.data == "m\ndo this (not applied automatically: it cannot be written)"


def test_what_kept_us_from_work_is_annotated_first():
    troubles = (
        Trouble("a.yaml", "KeyError: 1", Position(2, 3), "MEM001", is_internal=True),
        Trouble("b.yaml", "no", None),
    )
    parsed = list_commands(build_result(*(build_finding() for _ in range(20)), troubles=troubles))
    assert parsed[0] == (
        "error",
        {"file": "a.yaml", "title": "cfglint", "line": "2", "endLine": "2", "endColumn": "3", "col": "3"},
        "rule MEM001 crashed (please report it): KeyError: 1",
    )
    assert parsed[1] == ("error", {"file": "b.yaml", "title": "cfglint"}, "no")
    assert len(parsed) == 10
    assert parsed[-1].data.startswith("13 more")
    assert parsed[-1].name == "notice"


def test_long_messages_are_cut_before_they_are_escaped():
    [command] = list_commands(build_result(build_finding("%" * 5000)))
    assert command.data == "%" * 4093 + "..."


def test_paths_are_given_from_the_root_of_the_checkout(tmp_path):
    folder = tmp_path / "checkout" / "train"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(TWICE)
    environment = {"GITHUB_WORKSPACE": str(tmp_path / "checkout")}
    arguments = ("--select", "SYN", "--output-format", "github")

    def list_annotated_files(*paths, cwd: Path) -> list[str]:
        shown = run_cfglint(*arguments, *paths, cwd=cwd, environment=environment)
        return [command.properties["file"] for line in shown.lines if (command := runner.parse_command(line))]

    assert list_annotated_files("config.yaml", cwd=folder) == ["train/config.yaml"]
    assert list_annotated_files(folder / "config.yaml", cwd=tmp_path) == ["train/config.yaml"]
    assert list_annotated_files("../../outside.yaml", cwd=folder) == ["../../outside.yaml"]


# --- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(RESULTS)
def test_json_is_one_valid_object(result):
    output = render_report(result, "json")
    report = json.loads(output)
    SCHEMA.validate(report)
    assert output.isascii()
    json.dumps(report, ensure_ascii=False).encode("utf-8")  # rejects lone surrogates, as strict readers do
    for reported, shown in zip(result.findings, report["findings"]):
        if not find_control_characters(reported.message, "") and "\ufffd" not in reported.message:
            assert shown["message"] == reported.message
        assert (shown["line"], shown["end_column"]) == (reported.start.line, reported.end.column)


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA.schema)
    with_junk = {"version": 1, "files": [], "findings": [], "errors": [], "junk": 1}
    assert not SCHEMA.is_valid(with_junk)
    assert not SCHEMA.is_valid({"version": 2, "files": [], "findings": [], "errors": []})


def test_json_of_real_files(tmp_path):
    folder = write_folder_with_all_kinds(tmp_path)
    outcome = run_cfglint("--output-format", "json", cwd=folder)
    assert outcome.code == 2
    report = json.loads(outcome.out)
    SCHEMA.validate(report)
    assert outcome.out == run_cfglint("--output-format", "json", cwd=folder).out
    assert outcome.out == run_cfglint("--output-format", "json", "d.yaml", "c", "b", "a.yaml", cwd=folder).out
    assert [file["path"] for file in report["files"]] == [
        "a.yaml",
        "b/ds.json",
        "b/remote.yaml",
        "c/ds.json",
        "c/main.yaml",
    ]
    assert {file["path"]: file["role"] for file in report["files"]}["c/ds.json"] == "companion"
    places = [(entry["path"], entry["line"], entry["column"], entry["code"]) for entry in report["findings"]]
    assert places == sorted(places)
    assert [error["path"] for error in report["errors"]] == ["d.yaml"]
    # Edits applied by hand give the same file as --fix.
    [contradiction] = [entry for entry in report["findings"] if entry["code"] == "XFL001"]
    [edit] = contradiction["fix"]["edits"]
    lines = CONTRADICTED.splitlines()
    line = lines[edit["line"] - 1]
    lines[edit["line"] - 1] = line[: edit["column"] - 1] + edit["content"] + line[edit["end_column"] - 1 :]
    run_cfglint("--fix", "--select", "XFL001", "c", cwd=folder)
    assert (folder / "c" / "ds.json").read_text().splitlines() == lines


# --- text ------------------------------------------------------------------------------------------------------------


def render_frame(source: str, start: int, end: int) -> list[str]:
    document = Document("x.yaml", source.encode())
    place = Place(document, Span(len(source[:start].encode()), len(source[:end].encode())))
    first, last = document.locate(place.span.start), document.locate(place.span.end)
    finding_in_source = Finding("MEM001", "step-exceeds-gpu", "error", "m", "x.yaml", first, last, place)
    return list(text.full(build_result(finding_in_source)))[1:3]


@pytest.mark.parametrize(
    ("source", "marked"),
    [
        ("a: 1\nkey: value\nb: 2", "key: value"),
        ("a: 1\nkey: value", "value"),
        ("\ufeffkey: value\n", "key"),
        ("\tkey: value\n", "key"),
        ("a: \x1b[31m key: value", "key"),
        ("a: 日本語 key: value", "key"),
        ("a: e\u0301 key: 日本", "日本"),
        ("x" * 100_000 + " key: value " + "y" * 1000, "key"),
        ("key: " + "y" * 1000, "key: " + "y" * 1000),
        ("key: value\r\nb: 1\r\n", "value"),
    ],
)
def test_the_carets_stand_below_what_is_meant(source, marked):
    start = source.index(marked)
    shown, carets = render_frame(source, start, start + len(marked))
    assert len(shown) < 200
    assert carets.startswith("     | ")
    column = carets.index("^")
    columns = ""
    for char in shown:
        columns += char + ("\0" if unicodedata.east_asian_width(char) in "WF" else "")
    columns = "".join(char for char in columns if not unicodedata.combining(char))
    marked_columns = columns[column : column + carets.count("^")].replace("\0", "")
    assert marked_columns == marked[: len(marked_columns)]
    assert len(marked_columns) == min(len(marked), len(marked_columns)) >= min(len(marked), 100)


def test_a_place_behind_the_end_and_an_empty_one():
    assert render_frame("key: value", 10, 10) == ["   1 | key: value", "     |           ^"]
    assert render_frame("a\n", 2, 2) == ["   2 | ", "     | ^"]


def test_a_span_of_many_lines_marks_the_first_to_its_end():
    assert render_frame("key:\n  a: 1\n  b: 2\n", 0, 18) == ["   1 | key:", "     | ^^^^"]


def test_the_places_of_a_file_are_shown_in_its_order():
    document, other_document = Document("x.yaml", b"a: 1\nb: 2\nc: 3\n"), Document("y.yaml", b"d: 4\ne: 5\n")
    own_place = Place(document, Span(5, 9))
    places = (
        (other_document, 5, "fourth"),
        (document, 10, "third"),
        (document, 0, "first"),
        (other_document, 0, "second"),
    )
    related = tuple(Related(Place(target, Span(start, start + 4)), label) for target, start, label in places)
    finding_with_related = Finding(
        "KEY006", "refused", "error", "m", "x.yaml", Position(2, 1), Position(2, 5), own_place, related=related
    )
    shown = [
        line
        for line in text.full(build_result(finding_with_related))
        if line.startswith((" ", "-")) and "=" not in line
    ]
    assert shown == [
        "   1 | a: 1",
        "     | ---- first",
        "   2 | b: 2",
        "     | ^^^^",
        "   3 | c: 3",
        "     | ---- third",
        "  --> y.yaml:1:1",
        "   1 | d: 4",
        "     | ---- second",
        "  --> y.yaml:2:1",
        "   2 | e: 5",
        "     | ---- fourth",
    ]


def test_a_run_that_is_not_read_is_shown_with_its_line(tmp_path):
    script = "deepspeed train.py --deepspeed_config ds.json --model_name_or_path org/model\n"
    (tmp_path / "run.sh").write_text(script)
    lines = run_cfglint("run.sh", cwd=tmp_path).lines
    index = next(number for number, line in enumerate(lines) if "CHK005" in line)
    assert lines[index + 1 : index + 3] == [f"   1 | {script.strip()}", "     |           ^^^^^^^^"]


def test_the_summary_counts():
    remedy = Remedy("safe", "x", (FileEdit("x", Edit(Span(0, 0), ""), Position(1, 1), Position(1, 1)),))
    unsafe = remedy._replace(applicability="unsafe")
    findings = [
        build_finding()._replace(fix=remedy),
        build_finding(severity="warning")._replace(fix=unsafe),
        build_finding(severity="info"),
    ]
    files = (CheckedFile("a", "axolotl", "main"), CheckedFile("b", "axolotl", "main"))
    shown = list(text.render_summary(build_result(*findings)._replace(files=files)))
    assert shown == [
        "Found 1 error, 1 warning, 1 info in 2 files.",
        "1 finding fixable with --fix (1 more with --unsafe-fixes).",
    ]
    assert list(text.render_summary(build_result(findings[1])))[1] == "1 finding fixable with --fix --unsafe-fixes."
    assert list(text.render_summary(build_result(findings[2]))) == ["Found 1 info in 0 files."]
    unread = findings[2]._replace(code="CHK005")
    shown = list(text.render_summary(build_result(unread)))
    assert shown == ["Found 1 info in 1 file.", "1 run was found but not read."]


# --- real files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [*FORMATS, "diff", "fix"])
def test_hostile_files(tmp_path, form):
    folder = write_hostile_folder(tmp_path)
    arguments = {"diff": ["--diff", "--unsafe-fixes"], "fix": ["--fix", "--unsafe-fixes"]}.get(
        form, ["--output-format", form]
    )
    outcome = run_cfglint(*arguments, "--verbose", cwd=folder)
    assert outcome.code == 2
    for output in (outcome.out, outcome.err):
        assert find_control_characters(output) == []
        forged = [command for line in runner.split_lines(output) if (command := runner.parse_command(line)) is not None]
        assert forged == [] or (form == "github" and output is outcome.out)
    assert outcome.out
    if form == "json":
        SCHEMA.validate(json.loads(outcome.out))
    if form == "github":
        files = {command.properties.get("file") for line in outcome.lines if (command := runner.parse_command(line))}
        assert "100%, a:b.yaml" in files or len(files) >= 9


def test_hostile_estimates(tmp_path):
    (tmp_path / "::error::x.yaml").write_text(AXOLOTL.replace("Qwen/", "##[error]/\\x1b[31m"))
    (tmp_path / "b.yaml").write_text(
        AXOLOTL.replace("base_model: Qwen/Qwen2.5-0.5B", 'base_model: "::error::\\e[31m\\n::error::x"')
    )
    for form in ("text", "json"):
        outcome = run_cfglint("estimate", "--output-format", form, "::error::x.yaml", "b.yaml", cwd=tmp_path)
        assert outcome.out
        for line in runner.split_lines(outcome.out + outcome.err):
            assert runner.parse_command(line) is None
        assert find_control_characters(outcome.out + outcome.err) == []


# --- secrets ---------------------------------------------------------------------------------------------------------

TOKEN = "hf_" + "aB3dE6gH9j" * 4
OPAQUE = "f00dfacecafebeef5eedbead1234567890abcdef"


@pytest.fixture
def leaky(tmp_path) -> Path:
    """Write secrets next to everything that reports show: marked and related lines, diff context, messages."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(
        f"base_model: Qwen/Qwen2.5-0.5B  # {TOKEN}\n"
        f"hub_token: {TOKEN}\n"
        f"wandb_api_key: '{OPAQUE}'\n"
        f"hub_token: {TOKEN}\n"
        f"trust_remote_code: true  # not {TOKEN}\n"
        f"unknown_key_{OPAQUE}: 1\n" + AXOLOTL.replace("base_model: Qwen/Qwen2.5-0.5B\n", "")
    )
    (tmp_path / "ds.json").write_text(
        DEEPSPEED.replace(
            '    "train_micro',
            f'    "wandb": {{"enabled": true, "team": "{TOKEN}", "group": "{OPAQUE}"}},\n    "train_micro',
        ).replace('"group"', '"api_key"')
    )
    (tmp_path / "broken.yaml").write_text(f"base_model: x\nhub_token: {TOKEN}\nx: *{TOKEN}\n")
    return tmp_path


@pytest.mark.parametrize("form", [*FORMATS, "diff", "fix"])
@pytest.mark.parametrize("more", [(), ("--ignore", "SEC002"), ("--select", "SYN,SEC001,BAT001")])
def test_secrets_are_shown_nowhere(leaky, form, more):
    arguments = {"diff": ["--diff", "--unsafe-fixes"], "fix": ["--fix", "--unsafe-fixes"]}.get(
        form, ["--output-format", form]
    )
    outcome = run_cfglint(*arguments, *more, "--verbose", cwd=leaky)
    for secret in (TOKEN, OPAQUE):
        assert secret not in outcome.out + outcome.err
        assert secret[5:25] not in outcome.out + outcome.err
    if form in ("text", "diff"):
        assert "*" * len(TOKEN) in outcome.out
    if form == "fix":
        # The secret is masked in the output but left in the file.
        assert (leaky / "config.yaml").read_text().count(TOKEN) == 4
        assert "trust_remote_code: false" in (leaky / "config.yaml").read_text()
    if form == "diff":
        assert "lines of the diff are masked or escaped; apply it with --fix, not with patch" in outcome.err


def test_an_edit_that_holds_a_secret_is_not_shown():
    edit = FileEdit("x.yaml", Edit(Span(0, 0), f"token: {TOKEN}"), Position(1, 1), Position(1, 1))
    leaking = build_finding(f"say {TOKEN}")._replace(fix=Remedy("safe", f"write {TOKEN}", (edit,)))
    shown = json.loads(render_report(build_result(leaking, secrets=frozenset([TOKEN])), "json"))["findings"][0]
    assert shown["fix"]["edits"] == []
    assert shown["fix"]["applicability"] == "display"
    assert TOKEN not in json.dumps(shown)


def test_longer_secrets_are_hidden_before_those_inside_them():
    output = render_report(
        build_result(build_finding(f"{TOKEN}xyz {TOKEN}"), secrets=frozenset([TOKEN, TOKEN + "xyz"])), "concise"
    )
    assert "xyz" not in output
