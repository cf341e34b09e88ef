"""Settings: where they are found, what is valid, how errors are reported, and which source overrides another."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_rules import registry
from cfglint_train.foundation.globs import Glob, is_covered, is_match, split_path
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.selection import Selection, build_settings_resolver
from cfglint_train.settings import cluster_facts
from cfglint_train.settings.error import SettingsError
from cfglint_train.settings.positions import find_key
from cfglint_train.settings.settings import FORMATS, Settings, discover, load_settings, measure_precision
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, CONTRADICTED, DEEPSPEED, LIMITED, REMOTE_CODE, SMALL, TWICE
from tests.support.linting import change_directory


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def list_findings(here: Path, *arguments: str, form: str = "json") -> list[str]:
    """Return the findings as path:code."""
    outcome = run_cfglint("--output-format", form, *arguments, cwd=here)
    assert outcome.code in (0, 1), outcome
    return [f"{finding['path']}:{finding['code']}" for finding in json.loads(outcome.out)["findings"]]


# --- discovery -------------------------------------------------------------------------------------------------------


def test_the_nearest_file_counts_and_nothing_is_merged(here):
    write_file(here / "cfglint.toml", 'select = ["SEC"]')
    write_file(here / "a" / "pyproject.toml", '[tool.cfglint]\nselect = ["SYN"]')
    write_file(here / "a" / "b" / "pyproject.toml", '[project]\nname = "not about cfglint"')
    text = TWICE + "trust_remote_code: true\n"
    for folder in ("", "a/", "a/b/", "c/"):
        write_file(here / f"{folder}config.yaml", text)
    assert list_findings(here) == [
        "a/b/config.yaml:SYN003",
        "a/config.yaml:SYN003",
        "c/config.yaml:SEC001",
        "config.yaml:SEC001",
    ]


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (("cfglint.toml", ".cfglint.toml", "pyproject.toml"), "cfglint.toml"),
        ((".cfglint.toml", "pyproject.toml"), ".cfglint.toml"),
        (("pyproject.toml",), "pyproject.toml"),
    ],
)
def test_the_order_within_a_folder(here, present, expected):
    for name in present:
        text = f'select = ["{"SYN" if name == expected else "SEC"}"]'
        write_file(here / name, f"[tool.cfglint]\n{text}" if name == "pyproject.toml" else text)
    cache: dict[str, Settings | None] = {}
    settings = discover(str(here), cache)
    assert settings is not None
    assert settings.source == str(here / expected)
    assert settings.select == ("SYN",)
    assert cache[str(here)] is settings


@pytest.mark.parametrize(
    "text",
    [
        "[tool.cfglint]\nselect = ['SYN']",
        "[ tool . 'cfglint' ]\nselect = ['SYN']",
        "[tool]\ncfglint.select = ['SYN']",
        "[tool]\n\"cfglint\" = {select = ['SYN']}",
        "tool = {cfglint = {select = ['SYN']}}",
        "tool.cfglint.select = ['SYN']",
    ],
)
def test_every_spelling_of_the_table(here, text):
    write_file(here / "pyproject.toml", text)
    settings = discover(str(here), {})
    assert settings is not None
    assert settings.select == ("SYN",)


@pytest.mark.parametrize(
    "text",
    ["[project]\nname = 'x'", "tool = 3\n# cfglint", "[tool.other]\nx = 'cfglint'", "[broken", "[x\ncfglint-train"],
)
def test_a_pyproject_of_something_else_is_passed_by(here, text):
    write_file(here / "sub" / "pyproject.toml", text)
    write_file(here / "cfglint.toml", "fix = true")
    settings = discover(str(here / "sub"), {})
    assert settings is not None
    assert settings.source == str(here / "cfglint.toml")


def test_config_and_isolated(here):
    write_file(here / "cfglint.toml", 'select = ["SEC"]')
    write_file(here / "other" / "mine.toml", 'select = ["SYN"]\nexclude = ["legacy/**"]')
    write_file(here / "config.yaml", TWICE + "trust_remote_code: true\n")
    write_file(here / "legacy" / "config.yaml", TWICE)
    assert list_findings(here, "config.yaml") == ["config.yaml:SEC001"]
    assert list_findings(here, "--config", "other/mine.toml", "config.yaml") == ["config.yaml:SYN003"]
    # Patterns are relative to the folder of the settings file.
    assert "legacy/config.yaml:SYN003" in list_findings(here, "--config", "other/mine.toml")
    assert {"config.yaml:SYN003", "config.yaml:SEC001"} <= set(list_findings(here, "--isolated", "config.yaml"))


def test_config_of_a_pyproject_without_the_table(here):
    write_file(here / "pyproject.toml", "[project]")
    outcome = run_cfglint("--config", "pyproject.toml", cwd=here)
    assert (outcome.code, outcome.err) == (2, "cfglint: pyproject.toml: it has no [tool.cfglint] table\n")


def test_settings_of_a_companion_are_found_wrong_where_it_is_read(here):
    write_file(here / "configs" / "config.yaml", AXOLOTL + "deepspeed: ../shared/ds.json\n")
    write_file(here / "shared" / "ds.json", CONTRADICTED)
    write_file(here / "shared" / "cfglint.toml", "selct = []")
    outcome = run_cfglint("configs/config.yaml", cwd=here)
    assert outcome.code == 2
    assert outcome.err == (
        "cfglint: shared/cfglint.toml:1:1: unknown setting selct; did you mean select?\n"
        "   1 | selct = []\n     | ^^^^^\n"
    )


# --- extend ----------------------------------------------------------------------------------------------------------


def test_extend_completes_and_overrides(here):
    write_file(
        here / "base" / "cfglint.toml",
        """
        select = ["SYN"]
        ignore = ["SYN005"]
        exclude = ["old/*.yaml"]
        extend-safe-fixes = ["SEC001"]
        output-format = "concise"
        [hardware]
        gpu = "H100"
        nodes = 4
        [releases]
        torch = "2.2"
        [per-file-ignores]
        "old/**" = ["SYN003"]
        """,
    )
    write_file(
        here / "cfglint.toml",
        """
        extend = "base/cfglint.toml"
        extend-select = ["SEC"]
        ignore = []
        extend-exclude = ["new"]
        extend-safe-fixes = ["CKP003"]
        [hardware]
        nodes = 8
        """,
    )
    settings = discover(str(here), {})
    assert settings is not None
    assert settings.root == str(here)
    assert settings.select == ("SYN", "SEC")
    assert settings.ignore == ()
    assert settings.safe_fixes == ("SEC001", "CKP003")
    assert settings.output_format == "concise"
    assert settings.facts == {"gpu": "H100", "nodes": "8", "torch": "2.2"}
    # Patterns are relative to the folder of the file that states them.
    assert settings.is_excluded(str(here / "base" / "old" / "x.yaml"))
    assert not settings.is_excluded(str(here / "old" / "x.yaml"))
    assert settings.is_excluded(str(here / "new" / "x.yaml"))
    assert settings.list_ignored(str(here / "base" / "old" / "deep" / "x.yaml")) == ("SYN003",)
    assert settings.list_ignored(str(here / "old" / "x.yaml")) == ()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"cfglint.toml": "extend = 'cfglint.toml'"}, "cfglint.toml:1:1: extend refers back to cfglint.toml"),
        (
            {"cfglint.toml": "extend = 'a.toml'", "a.toml": "extend = 'cfglint.toml'"},
            "a.toml:1:1: extend refers back to",
        ),
        ({"cfglint.toml": "extend = 'a.toml'"}, "a.toml: No such file or directory"),
        ({"cfglint.toml": "extend = ['a.toml']"}, "cfglint.toml:1:1: extend must be a path, not ['a.toml']"),
        (
            {"cfglint.toml": "extend = 'sub/pyproject.toml'", "sub/pyproject.toml": "[project]"},
            "sub/pyproject.toml: it has no [tool.cfglint] table, but cfglint.toml extends it",
        ),
        ({"cfglint.toml": "extend = 'a.toml'", "a.toml": "nodes = 3"}, "a.toml:1:1: unknown setting nodes; "),
    ],
)
def test_extend_that_leads_nowhere_is_2(here, files, message):
    for name, text in files.items():
        write_file(here / name, text)
    outcome = run_cfglint(cwd=here)
    assert outcome.code == 2
    assert outcome.err.startswith(f"cfglint: {message}")


# --- errors in settings ----------------------------------------------------------------------------------------------

LISTS = (
    "select",
    "ignore",
    "extend-select",
    "extend-ignore",
    "fixable",
    "unfixable",
    "extend-safe-fixes",
    "extend-unsafe-fixes",
    "exclude",
    "extend-exclude",
)
BOOLEANS = ("fix", "unsafe-fixes", "force-exclude", "fail-on-assumed", "require-checked", "resumable")
WRONG = [
    *((f'{key} = "MEM"', f"{key} must be a list of strings, not 'MEM'") for key in LISTS),
    *((f"{key} = [1]", f"{key} must be a list of strings, not [1]") for key in LISTS),
    *((f'{key} = "yes"', f"{key} must be true or false, not 'yes'") for key in BOOLEANS),
    *((f'{key} = ["QQQ"]', f"{key}: unknown rule QQQ") for key in LISTS if "exclude" not in key),
    *(
        (f"max-cpu-seconds = {given}", "max-cpu-seconds must be a positive number, not ")
        for given in ("0", "-1", '"9"', "true", "inf", "nan")
    ),
    ("fix = 1", "fix must be true or false, not 1"),
    ('output-format = "xml"', "output-format must be one of text, concise, grouped, json,"),
    ("output-format = 3", f"output-format must be one of {', '.join(FORMATS)}, not 3"),
    ('fail-on = "always"', "fail-on must be one of error, warning, info, never, not 'always'"),
    ("fail-on = 3", "fail-on must be one of error, warning, info, never, not 3"),
    ("cache-dir = 3", "cache-dir must be a path, not 3"),
    ('cache-dir = ""', "cache-dir must be a path, not ''"),
    ("severity = 3", "severity must be a table, not 3"),
    ('severity = {KEY002 = "mild"}', "severity.KEY002 must be one of error, warning, info, off, not 'mild'"),
    ('severity = {KEY002 = ["info"]}', "severity.KEY002 must be one of error, warning, info, off, not ['info']"),
    ('severity = {QQQ = "info"}', "severity: unknown rule QQQ"),
    ("rule-url = 3", "rule-url must be a URL with {code} or {name} in it, not 3"),
    ('rule-url = "https://example.org/rules"', "rule-url must be a URL with {code} or {name} in it, not 'https"),
    ('rule-url = "javascript:{code}"', "rule-url must be a URL with {code} or {name} in it, not 'javascript"),
    ('rule-url = "https://x/{code}\\u001b[31m"', "rule-url must be a URL with {code} or {name} in it"),
    ("per-file-ignores = 3", "per-file-ignores must be a table, not 3"),
    ('per-file-ignores = {"a" = "SYN"}', "per-file-ignores.'a' must be a list of strings, not 'SYN'"),
    ('per-file-ignores = {"a" = ["SYN01"]}', "per-file-ignores.'a': unknown rule SYN01; did you mean SYN001?"),
    ("hardware = 3", "hardware must be a table, not 3"),
    ("hardware = {gpus = 8}", "unknown setting hardware.gpus; did you mean gpu?"),
    ("hardware = {nodes = 0}", "hardware.nodes must be a positive integer, not '0'"),
    ("hardware = {nodes = true}", "hardware.nodes must be a number or a string, not True"),
    ("hardware = {nodes = 1.5}", "hardware.nodes must be a number or a string, not 1.5"),
    ("hardware = {nodes = [1]}", "hardware.nodes must be a number or a string, not [1]"),
    (
        'hardware = {gpus-per-node = "all"}',
        "hardware.gpus-per-node must be a positive integer",
    ),
    ('hardware = {gpu = "abacus"}', "hardware.gpu: unknown GPU 'abacus'"),
    ("hardware = {gpu-memory = 80}", "hardware.gpu-memory: 80 has no unit"),
    ('hardware = {host-memory = "lots"}', "hardware.host-memory: 'lots' is not a size"),
    ('hardware = {disk = "0TB"}', "hardware.disk: '0TB' must be more than zero"),
    ("releases = []", "releases must be a table, not []"),
    ("releases = {torch = 2.2}", "releases.torch must be a release in quotes, not 2.2"),
    ('releases = {torch = "new"}', "releases.torch: torch=new is not a release"),
    ('releases = {pytorch = "2.2"}', "unknown setting releases.pytorch; did you mean torch?"),
    ("overrides = {}", "overrides must be a list of tables ([["),
    ("overrides = [3]", "overrides must be a list of tables ([["),
    ("overrides = [{}]", "overrides[0].paths is missing"),
    ('overrides = [{paths = "a"}]', "overrides[0].paths must be a list of strings, not 'a'"),
    ('overrides = [{paths = ["a"]}, {paths = ["a"], select = []}]', "unknown setting overrides[1].select; "),
    ('overrides = [{paths = ["a"], ignore = "SYN"}]', "overrides[0].ignore must be a list of strings, not 'SYN'"),
    ('overrides = [{paths = ["a"], ignore = ["QQQ"]}]', "overrides[0].ignore: unknown rule QQQ"),
    ('overrides = [{paths = ["a"], hardware = {gpu = 1}}]', "overrides[0].hardware.gpu: "),
    (
        'overrides = [{paths = ["a"], releases = {torch = 2}}]',
        "overrides[0].releases.torch must be a release in quotes",
    ),
    ("selct = []", "unknown setting selct; did you mean select?"),
    ("unsafe_fixes = true", "unknown setting unsafe_fixes; did you mean unsafe-fixes?"),
    ("zzzzzz = 1", "unknown setting zzzzzz; known: baseline, cache-dir, exclude, extend, "),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
@pytest.mark.parametrize("name", ["cfglint.toml", "pyproject.toml"])
def test_wrong_settings_are_2_with_file_and_key(here, name, text, message):
    prefix = "tool.cfglint." if name == "pyproject.toml" else ""
    write_file(here / name, f"[tool.cfglint]\n{text}" if prefix else text)
    outcome = run_cfglint(cwd=here)
    assert outcome.code == 2
    assert outcome.out == ""
    line, source_line, *marks = outcome.err.splitlines()
    if message.startswith("unknown setting "):
        message = f"unknown setting {prefix}{message.removeprefix('unknown setting ')}"
    else:
        message = prefix + message
    place = re.match(rf"cfglint: {name}:(\d+):(\d+): ", line)
    assert place is not None, line
    assert line[place.end() :].startswith(message)
    number, column = int(place[1]), int(place[2])
    assert number == (2 if prefix else 1)
    assert source_line.removeprefix(f"{number:>4} | ") == text[:120]
    assert marks[0].startswith(f"     | {' ' * (column - 1)}^")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"select = [\n'MEM'\nfix = true", "cfglint.toml:3:1: "),
        (b"fix = true\nfix = true\n", "cfglint.toml:2:11: "),
        (b"# ok\nselect = ['\xff']", "not UTF-8: byte 0xff (at line 2)"),
        (b"x = " + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_text_that_is_no_toml_is_2_with_the_line(here, source, message):
    (here / "cfglint.toml").write_bytes(source)
    outcome = run_cfglint(cwd=here)
    assert outcome.code == 2
    assert outcome.err.startswith("cfglint: cfglint.toml:")
    assert message in outcome.err
    assert outcome.err.count("\n") == (3 if message.endswith(": ") else 1)


@pytest.mark.parametrize(
    ("text", "key", "place"),
    [
        ("a = 1\n\n[x]\n# y\ny = [\n 1,\n]\nz = 2\n", "x.y", (5, 1)),
        ("a = 1\n\n[x]\n# y\ny = [\n 1,\n]\nz = 2\n", "x.z", (8, 1)),
        ("[[o]]\np = 1\n[[o]]\nq = {r = {s = 1}}\n", "o[1].q.r.s", (4, 11)),
        ("[[o]]\np = 1\n[[o]]\nq = 1\n", "o[1].p", (3, 3)),
        ("[t]\n'a b' = 1\n", "t.'a b'", (2, 1)),
        ("a = 1\n", "b", None),
        ("x = [\n" + "1,\n" * 1000 + "]\ny = 1\n", "y", None),
    ],
)
def test_the_place_of_a_setting(text, key, place):
    """Give up early if the lines of a file cannot be parsed one by one."""
    position = find_key(text, key)
    assert (None if position is None else (position.line, position.column)) == place


def test_a_byte_order_mark_is_no_error(here):
    (here / "cfglint.toml").write_bytes(b"\xef\xbb\xbfselect = ['SYN']")
    settings = discover(str(here), {})
    assert settings is not None
    assert settings.select == ("SYN",)


def test_a_table_that_is_none(here):
    write_file(here / "pyproject.toml", "[tool]\ncfglint = 3")
    with pytest.raises(SettingsError, match=r"pyproject\.toml: tool\.cfglint must be a table, not 3"):
        discover(str(here), {})


def test_the_rule_of_a_base_is_complained_of_where_it_stands(here):
    write_file(here / "base.toml", 'ignore = ["QQQ"]')
    write_file(here / "cfglint.toml", 'extend = "base.toml"\nignore = []')
    assert run_cfglint(cwd=here).err.startswith("cfglint: base.toml:1:1: ignore: unknown rule QQQ")


def test_a_file_outside_the_working_folder_is_named_in_full(here):
    write_file(here / "cfglint.toml", "x = 1")
    (here / "sub").mkdir()
    assert run_cfglint(cwd=here / "sub").err.startswith(f"cfglint: {here}/cfglint.toml:1:1: unknown setting x")


# --- every key has an effect -----------------------------------------------------------------------------------------


def test_every_key_is_read(here):
    path = write_file(
        here / "cfglint.toml",
        """
        select = ["MEM", "SYN"]
        extend-select = ["SEC001"]
        ignore = ["SYN005"]
        extend-ignore = ["malformed-pragma"]
        fixable = ["MEM"]
        unfixable = ["MEM003"]
        extend-safe-fixes = ["SEC001"]
        extend-unsafe-fixes = ["XFL"]
        exclude = ["x"]
        extend-exclude = ["y/"]
        fix = true
        unsafe-fixes = true
        force-exclude = true
        output-format = "json"
        fail-on = "error"
        fail-on-assumed = true
        require-checked = true
        resumable = false
        cache-dir = "kept"
        max-cpu-seconds = 60
        [severity]
        KEY002 = "info"
        unbounded-checkpoints = "off"
        [per-file-ignores]
        "*.json" = ["XFL"]
        [hardware]
        nodes = 2
        gpus-per-node = "4"
        gpu = "H100"
        gpu-memory = "96GB"
        host-memory = "480GiB"
        disk = "3TB"
        [releases]
        torch = "2.8.0+cu128"
        llama-factory = "v0.9.3"
        olmo-core = "2.0.1.post1"
        [[overrides]]
        paths = ["b/**"]
        ignore = ["MEM004"]
        hardware = {nodes = 8}
        releases = {torch = "2.4rc1"}
        """,
    )
    settings = load_settings(str(path))
    assert settings._replace(selectors=()) == Settings(
        root=str(here),
        source=str(path),
        select=("MEM", "SYN", "SEC001"),
        ignore=("SYN005", "malformed-pragma"),
        fixable=("MEM",),
        unfixable=("MEM003",),
        safe_fixes=("SEC001",),
        unsafe_fixes=("XFL",),
        per_file_ignores=((Glob("*.json", str(here)), ("XFL",)),),
        exclude=(Glob("x", str(here)), Glob("y/", str(here))),
        facts={
            "nodes": "2",
            "gpus-per-node": "4",
            "gpu": "H100",
            "gpu-memory": "96GB",
            "host-memory": "480GiB",
            "disk": "3TB",
            "torch": "2.8.0+cu128",
            "llamafactory": "v0.9.3",
            "olmo_core": "2.0.1.post1",
        },
        overrides=settings.overrides,
        output_format="json",
        fix=True,
        apply_unsafe=True,
        force_exclude=True,
        severity={"KEY002": "info", "unbounded-checkpoints": "off"},
        fail_on="error",
        fail_on_assumed=True,
        require_checked=True,
        resumable=False,
        cache_dir=str(here / "kept"),
        max_cpu_seconds=60.0,
    )
    [override] = settings.overrides
    assert override == ((Glob("b/**", str(here)),), {"nodes": "8", "torch": "2.4rc1"}, ("MEM004",))
    assert {selector.selector for selector in settings.selectors} == {
        *("MEM", "SYN", "SEC001", "SYN005", "malformed-pragma", "MEM003", "XFL", "MEM004", "KEY002"),
        "unbounded-checkpoints",
    }


def test_a_severity_is_given_to_a_rule_a_family_or_a_name(here):
    write_file(here / "config.yaml", TWICE)

    def list_severities(text: str, *arguments: str) -> list[str]:
        write_file(here / "cfglint.toml", text)
        findings = json.loads(run_cfglint("--select", "SYN", "--output-format", "json", *arguments, cwd=here).out)[
            "findings"
        ]
        return [finding["severity"] for finding in findings]

    assert list_severities("") == ["warning"]
    assert list_severities('severity = {SYN003 = "error"}') == ["error"]
    assert list_severities('severity = {duplicate-key = "info", SYN = "error"}') == ["info"]
    assert list_severities('severity = {ALL = "error"}') == ["error"]
    assert list_severities('severity = {SYN003 = "off"}') == []
    assert list_severities('severity = {SYN003 = "off"}', "--select", "SYN003") == ["warning"]
    write_file(here / "base.toml", 'severity = {SYN003 = "off", SYN001 = "info"}')
    assert list_severities('extend = "base.toml"\nseverity = {SYN003 = "info"}') == ["info"]


def test_a_severity_does_not_make_an_assumption_certain(here):
    write_file(here / "config.yaml", LIMITED)
    for severity, capped in (("error", "warning"), ("warning", "warning"), ("info", "info")):
        write_file(here / "cfglint.toml", f'severity = {{MEM001 = "{severity}"}}\nselect = ["MEM001"]')
        [finding] = json.loads(run_cfglint("--output-format", "json", cwd=here).out)["findings"]
        assert (finding["certainty"], finding["severity"]) == ("assumed", capped)


def test_output_format(here):
    write_file(here / "config.yaml", TWICE)
    for form in FORMATS:
        write_file(here / "cfglint.toml", f'output-format = "{form}"\nselect = ["SYN"]')
        isolated = run_cfglint("--isolated", *SMALL, "--output-format", form, cwd=here).out
        assert run_cfglint(cwd=here).out == isolated.replace(" --isolated", "")  # in commands to copy
    assert run_cfglint("--output-format", "concise", cwd=here).lines[0].startswith("config.yaml:10:1: warning SYN003")


# --- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matching", "not_matching"),
    [
        ("old", ("old/x.yaml", "a/old/b/x.yaml", "old"), ("older/x.yaml", "a/b.old")),
        ("old/", ("old/x.yaml",), ("older/x.yaml",)),
        ("*.json", ("a.json", "b/a.json"), ("a.yaml",)),
        ("a/*.yaml", ("a/x.yaml", "a/b/x.yaml"), ("b/a/x.yaml", "a/x.yml")),
        ("./a/x.yaml", ("a/x.yaml",), ("b/a/x.yaml",)),
        ("a/b", ("a/b/c/x.yaml", "a/b"), ("a/bc/x.yaml", "b/x.yaml")),
        ("**/x.yaml", ("x.yaml", "a/x.yaml", "a/b/x.yaml"), ("a/yx.yaml",)),
        ("a/**/x.yaml", ("a/x.yaml", "a/b/c/x.yaml"), ("b/x.yaml",)),
        ("a/**", ("a/x.yaml", "a/b/x.yaml"), ("b/x.yaml",)),
        ("x?.yaml", ("x1.yaml",), ("x.yaml", "x12.yaml")),
        ("x[12].yaml", ("x1.yaml",), ("x3.yaml",)),
        ("x[!12].yaml", ("x3.yaml",), ("x1.yaml",)),
        ("*.{yaml,yml}", ("a.yaml", "b/a.yml"), ("a.json",)),
        ("{a,b/{c,d}}/x.yaml", ("a/x.yaml", "b/d/x.yaml"), ("b/x.yaml",)),
        ("x[1.yaml", ("x[1.yaml",), ("x1.yaml",)),
        ("x{1.yaml", ("x{1.yaml",), ("x1.yaml",)),
        ("x[b-a].yaml", ("x[b-a].yaml",), ("xa.yaml",)),
        ("a.b", ("a.b",), ("a+b", "acb")),
    ],
)
@pytest.mark.parametrize("root", ["/work/repo", "/w[x]/r*{a,b}?"])
def test_patterns(pattern, matching, not_matching, root):
    for path in matching:
        assert is_covered(split_path(f"{root}/{path}", root), Glob(pattern, root)), path
    for path in not_matching:
        assert not is_covered(split_path(f"{root}/{path}", root), Glob(pattern, root)), path


def test_patterns_upwards_and_absolute():
    folder = "/work/repo/sub"
    assert is_covered(split_path("/work/repo/a/x.yaml", folder), Glob("../a/*.yaml", folder))
    assert is_covered(split_path("/data/x.yaml", folder), Glob("/data/**", folder))
    # A bare folder name does not match folders outside the root.
    assert not is_covered(split_path("/build/x.yaml", folder), Glob("build", folder))
    assert is_covered(split_path("/build/x.yaml", folder), Glob("x.yaml", folder))


NAMES = st.text("ab*?[]{},!.x-", min_size=1, max_size=6).filter(lambda name: name.strip("."))


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_no_pattern_is_too_odd(parts):
    glob = Glob("/".join(parts), "/r")
    assert is_covered(split_path("/r/a/b", "/r"), glob) in (True, False)
    assert not is_match(split_path("/r/a/b", "/r"), glob) or is_covered(split_path("/r/a/b", "/r"), glob)


@given(st.lists(st.text("abx.-_", min_size=1, max_size=6).filter(lambda n: n.strip(".")), min_size=1, max_size=4))
def test_a_path_is_the_pattern_of_itself(parts):
    path = "/".join(parts)
    place = split_path(f"/r/{path}", "/r")
    assert is_covered(place, Glob(f"/r/{path}", "/r"))
    assert is_match(place, Glob(f"./{path}", "/r"))
    assert all(is_covered(place, Glob(part, "/r")) for part in parts)


def test_per_file_ignores(here):
    write_file(
        here / "cfglint.toml",
        """
        select = ["SYN003", "SEC"]
        [per-file-ignores]
        "legacy/**" = ["SYN"]
        "!kept.yaml" = ["trust-remote-code"]
        """,
    )
    text = TWICE + "trust_remote_code: true\n"
    for name in ("legacy/config.yaml", "config.yaml", "kept.yaml"):
        write_file(here / name, text)
    # Exempt rules are off, even if they are selected more precisely elsewhere.
    assert list_findings(here) == ["config.yaml:SYN003", "kept.yaml:SYN003", "kept.yaml:SEC001"]
    assert list_findings(here, "--select", "SYN003", "legacy") == []


def test_overrides_follow_one_another(here):
    write_file(
        here / "cfglint.toml",
        """
        [hardware]
        gpu = "A100-80GB"
        gpu-memory = "40GB"
        nodes = 1
        [[overrides]]
        paths = ["big/**"]
        ignore = ["SYN"]
        hardware = {nodes = 4, gpu = "H100"}
        [[overrides]]
        paths = ["big/biggest.yaml"]
        hardware = {nodes = 64}
        """,
    )
    settings = discover(str(here), {})
    assert settings is not None
    assert settings.collect_facts(str(here / "a.yaml")) == {"gpu": "A100-80GB", "gpu-memory": "40GB", "nodes": "1"}
    # Another GPU does not inherit the memory of the first.
    assert settings.collect_facts(str(here / "big" / "a.yaml")) == {"gpu": "H100", "nodes": "4"}
    assert settings.collect_facts(str(here / "big" / "biggest.yaml")) == {"gpu": "H100", "nodes": "64"}
    assert settings.list_ignored(str(here / "big" / "a.yaml")) == ("SYN",)


# --- selection -------------------------------------------------------------------------------------------------------


def list_enabled(flags: LintOptions, **settings) -> set[str]:
    """Return the codes that are on for a file."""
    chosen = flags._replace(settings=Settings("/r", **settings))
    return set(Selection(build_settings_resolver(chosen.settings), chosen).list_enabled("/r/x.yaml"))


def list_family(prefix: str) -> set[str]:
    return {code for code in registry.RULES if code.startswith(prefix)}


ALL = set(registry.RULES)


@pytest.mark.parametrize(
    ("settings", "flags", "expected"),
    [
        ({}, {}, ALL),
        ({"select": ("MEM",)}, {}, list_family("MEM")),
        ({"select": ("mem",)}, {}, list_family("MEM")),
        ({"select": ()}, {}, set()),
        ({"ignore": ("MEM",)}, {}, ALL - list_family("MEM")),
        ({"ignore": ("ALL",)}, {}, set()),
        ({"select": ("MEM",), "ignore": ("MEM001",)}, {}, list_family("MEM") - {"MEM001"}),
        ({"select": ("MEM001",), "ignore": ("MEM",)}, {}, {"MEM001"}),
        ({"select": ("step-exceeds-gpu",), "ignore": ("MEM",)}, {}, {"MEM001"}),
        ({"select": ("MEM",), "ignore": ("step-exceeds-gpu",)}, {}, list_family("MEM") - {"MEM001"}),
        ({"select": ("MEM001",), "ignore": ("MEM001",)}, {}, set()),
        # Flags replace `select`, and win a tie.
        ({"select": ("MEM",)}, {"select": ("SYN",)}, list_family("SYN")),
        ({"ignore": ("MEM001",)}, {"select": ("MEM001",)}, {"MEM001"}),
        ({"ignore": ("MEM001",)}, {"select": ("MEM",)}, list_family("MEM") - {"MEM001"}),
        ({"ignore": ("MEM",)}, {"select": ("MEM",)}, list_family("MEM")),
        ({"select": ("MEM001",)}, {"ignore": ("MEM",)}, set()),
        ({}, {"select": ("MEM001", "SYN"), "ignore": ("MEM", "SYN001")}, {"MEM001"} | list_family("SYN") - {"SYN001"}),
        ({}, {"select": ("MEM",), "ignore": ("MEM",)}, set()),
    ],
)
def test_the_more_precise_selector_wins(settings, flags, expected):
    assert list_enabled(LintOptions(**flags), **settings) == expected


SELECTORS = st.lists(st.sampled_from(["ALL", "MEM", "MEM002", "MEM001", "SYN", "step-exceeds-gpu"]), max_size=3).map(
    tuple
)


@given(SELECTORS, SELECTORS)
def test_ignoring_more_never_selects_more(select, ignore):
    assert list_enabled(LintOptions(), select=select, ignore=ignore) <= list_enabled(LintOptions(), select=select)
    assert list_enabled(LintOptions(), select=select) == {
        code for selector in select for code in registry.match_selector(selector)
    }


def test_selectors():
    assert measure_precision((), "MEM001", "step-exceeds-gpu") == -1
    assert measure_precision(("ALL",), "MEM001", "step-exceeds-gpu") == 0
    assert measure_precision(("M", "mem0"), "MEM001", "step-exceeds-gpu") == -1  # not codes, families or names
    assert measure_precision(("all", "mem"), "MEM001", "step-exceeds-gpu") == 3
    assert measure_precision(("step-exceeds-gpu",), "MEM001", "step-exceeds-gpu") == 6
    assert measure_precision(("step-exceeds", "EM001", ""), "MEM001", "step-exceeds-gpu") == -1


# --- fixes -----------------------------------------------------------------------------------------------------------


def get_applicability(here: Path, settings: str) -> dict[str, str | None]:
    write_file(here / "cfglint.toml", 'select = ["SEC001", "BAT001"]\n' + settings)
    findings = json.loads(run_cfglint("--output-format", "json", cwd=here).out)["findings"]
    return {finding["code"]: finding["fix"] and finding["fix"]["applicability"] for finding in findings}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", {"SEC001": "unsafe", "BAT001": "safe"}),
        ('extend-safe-fixes = ["SEC001"]', {"SEC001": "safe", "BAT001": "safe"}),
        ('extend-safe-fixes = ["SEC"]\nextend-unsafe-fixes = ["SEC001"]', {"SEC001": "unsafe", "BAT001": "safe"}),
        ('extend-safe-fixes = ["SEC001"]\nextend-unsafe-fixes = ["SEC"]', {"SEC001": "safe", "BAT001": "safe"}),
        ('extend-safe-fixes = ["SEC"]\nextend-unsafe-fixes = ["SEC"]', {"SEC001": "unsafe", "BAT001": "safe"}),
        ('extend-unsafe-fixes = ["ALL"]', {"SEC001": "unsafe", "BAT001": "unsafe"}),
        ('unfixable = ["BAT"]', {"SEC001": "unsafe", "BAT001": None}),
        ('unfixable = ["ALL"]', {"SEC001": None, "BAT001": None}),
        ('unfixable = ["ALL"]\nfixable = ["BAT001"]', {"SEC001": None, "BAT001": "safe"}),
        ('fixable = ["SEC"]', {"SEC001": "unsafe", "BAT001": None}),
        ('fixable = ["SEC"]\nunfixable = ["trust-remote-code"]', {"SEC001": None, "BAT001": None}),
        ("fixable = []", {"SEC001": None, "BAT001": None}),
    ],
)
def test_which_fixes_are_offered_and_how(here, settings, expected):
    write_file(here / "config.yaml", REMOTE_CODE)
    write_file(here / "ds.json", DEEPSPEED)
    assert get_applicability(here, settings) == expected
    run_cfglint("--fix", cwd=here)
    assert ("trust_remote_code: false" in (here / "config.yaml").read_text()) == (expected["SEC001"] == "safe")
    assert ((here / "ds.json").read_text() != DEEPSPEED) == (expected["BAT001"] == "safe")


# --- precedence ------------------------------------------------------------------------------------------------------
#
# flags > pragma > settings > launch script > config > assumption, one test per neighbouring pair.

SCRIPT = "torchrun --nnodes 3 --nproc_per_node 4 -m axolotl.cli.train config.yaml\n"


def count_nodes(here: Path, *arguments: str) -> int:
    outcome = run_cfglint("estimate", "--output-format", "json", *arguments, "config.yaml", cwd=here)
    assert outcome.code == 0, outcome
    [run] = json.loads(outcome.out)["runs"]
    node_count: int = run["nodes"]
    return node_count


def test_flags_win_over_pragmas(here):
    write_file(here / "config.yaml", "# cfglint: nodes=5\n" + AXOLOTL)
    assert count_nodes(here) == 5
    assert count_nodes(here, "--nodes", "6") == 6


def test_pragmas_win_over_settings(here):
    write_file(here / "cfglint.toml", "hardware = {nodes = 4}")
    write_file(here / "config.yaml", AXOLOTL)
    assert count_nodes(here) == 4
    write_file(here / "config.yaml", "# cfglint: nodes=5\n" + AXOLOTL)
    assert count_nodes(here) == 5


def test_settings_win_over_launch_scripts(here):
    write_file(here / "run.sh", SCRIPT)
    write_file(here / "config.yaml", AXOLOTL)
    assert count_nodes(here) == 3
    write_file(here / "cfglint.toml", "hardware = {nodes = 4}")
    assert count_nodes(here) == 4


def test_launch_scripts_win_over_configurations(here):
    write_file(
        here / "accelerate.yaml",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\n"
        "num_machines: 2\nnum_processes: 16\n",
    )
    write_file(here / "config.yaml", AXOLOTL)
    launch = "accelerate launch --config_file accelerate.yaml"
    write_file(here / "run.sh", f"{launch} -m axolotl.cli.train config.yaml\n")
    assert count_nodes(here) == 2
    write_file(here / "run.sh", f"{launch} --num_machines 3 --num_processes 24 -m axolotl.cli.train config.yaml\n")
    assert count_nodes(here) == 3


def test_configurations_win_over_assumptions(here):
    write_file(here / "config.yaml", AXOLOTL)
    assert count_nodes(here) == 1
    estimate = json.loads(run_cfglint("estimate", "--output-format", "json", "config.yaml", cwd=here).out)["runs"][0]
    assert any("set `nodes`" in assumption for assumption in estimate["assumptions"])
    write_file(here / "config.yaml", "# cfglint: nodes=1 gpus-per-node=8 gpu=H100\n" + AXOLOTL)
    estimate = json.loads(run_cfglint("estimate", "--output-format", "json", "config.yaml", cwd=here).out)["runs"][0]
    assert not [item for item in estimate["assumptions"] if "GPU" in item or "node" in item]


def test_another_gpu_does_not_come_with_the_memory_of_a_weaker_source(here):
    write_file(here / "cfglint.toml", 'hardware = {gpu-memory = "24GB"}')
    write_file(here / "config.yaml", AXOLOTL)

    def get_capacity(*arguments: str) -> float:
        shown = run_cfglint("estimate", "--output-format", "json", *arguments, "config.yaml", cwd=here)
        phases = json.loads(shown.out)["runs"][0]["phases"]
        size: float = next(phase["gpu"]["capacity"] for phase in phases if phase["gpu"])
        return size / 2**30

    assert get_capacity() < 24
    assert get_capacity("--gpu", "A100-80GB") > 79
    # The same source may state both.
    assert get_capacity("--gpu", "A100", "--gpu-memory", "40GB") < 40


def test_releases_in_the_same_order(here):
    def get_release(*arguments: str) -> str:
        outcome = run_cfglint("estimate", "--output-format", "json", *arguments, "config.yaml", cwd=here)
        version: str = json.loads(outcome.out)["runs"][0]["release"]
        return version

    write_file(here / "config.yaml", AXOLOTL)
    newest = get_release()
    write_file(here / "cfglint.toml", 'releases = {axolotl = "0.9.0"}')
    assert get_release() == "0.9.0" != newest
    write_file(here / "config.yaml", "# cfglint: axolotl=0.10.0\n" + AXOLOTL)
    assert get_release() == "0.10.0"
    assert get_release("--release", "axolotl=0.11.0") == "0.11.0"
    assert get_release("--release", "axolotl==0.11.0") == "0.11.0"


def test_the_last_pragma_of_a_file_wins_and_companions_may_speak_too(here):
    write_file(here / "config.yaml", "# cfglint: nodes=5\n" + AXOLOTL + "# cfglint: nodes=7\n")
    assert count_nodes(here) == 7
    write_file(here / "config.yaml", AXOLOTL)
    write_file(here / "run.sh", "# cfglint: nodes=9\n" + SCRIPT)
    assert count_nodes(here) == 9
    write_file(here / "config.yaml", "# cfglint: nodes=5\n" + AXOLOTL)
    assert count_nodes(here) == 5


NUMBERS = ("nodes", "gpus-per-node")


@given(
    st.dictionaries(st.sampled_from(cluster_facts.HARDWARE_FACTS), st.text(max_size=3)),
    st.dictionaries(st.sampled_from(cluster_facts.HARDWARE_FACTS), st.text(max_size=3)),
)
def test_overlay(weaker, stronger):
    result = cluster_facts.merge_facts(weaker, stronger)
    assert stronger.items() <= result.items()
    dropped = {"gpu-memory"} if "gpu" in stronger else set()
    if "gpu" in stronger and weaker.get("gpu", stronger["gpu"]) != stronger["gpu"]:
        dropped |= {"tokens-per-second", "price-per-gpu-hour"}
    if any(weaker.get(name, stronger.get(name)) != stronger.get(name, weaker.get(name)) for name in NUMBERS):
        dropped.add("tokens-per-second")
    kept = weaker.keys() - stronger.keys() - dropped
    assert set(result) == set(stronger) | kept
    assert all(result[name] == weaker[name] for name in kept)


def test_settings_are_looked_for_from_the_file_not_from_the_working_folder(here):
    write_file(here / "cfglint.toml", 'select = ["SEC"]')
    write_file(here / "sub" / "cfglint.toml", 'select = ["SYN"]')
    write_file(here / "sub" / "config.yaml", TWICE)
    with change_directory(here):
        resolve = build_settings_resolver(None)
        assert resolve("sub/config.yaml").select == ("SYN",)
        assert resolve("config.yaml").select == ("SEC",)
        assert resolve(str(here / "sub" / "x" / "config.yaml")).select == ("SYN",)
