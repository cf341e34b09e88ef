"""Expected findings of small repositories: `expect.json` in each folder of fixtures/acceptance.

why       why this is expected, with the evidence
args      flags for cfglint (lint, `--fix` and estimate alike)
paths     the paths to lint; the whole repository by default
must      findings that must be reported: path; key (text of a line that the finding marks, or that its message names);
          code (a prefix); level (one or a list); says (a regular expression over message, help, notes and the fix's
          text); at_most (the largest number of findings)
must_not  findings that must not be reported: the same fields, and at_least (the mildest severity that counts)
fix       after `--fix`: safe_must_not_change (lines that must remain), safe_must_give (lines that must appear),
          safe_must_not_give (texts that must not appear anywhere); the same with unsafe_ after `--fix --unsafe-fixes`;
          path limits them to one file
estimate  path; gpu_max_gib and gpu_min_gib (bounds of the highest expected GPU memory); must_estimate; run (index of
          the run in the file); nodes, gpus_per_node; says (a regular expression over the whole output)
exit, output, prints_not   of a plain lint: its exit code, regular expressions over its output, texts that no report
          prints
commands  other commands, each in a fresh copy: args; exit (a code, or several); says and says_not (regular
          expressions over the output); lines and lines_not (path: lines that are, or are not, in that file afterwards)
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cfglint_schemas.vocabulary import load
from cfglint_train.plan.fields import FIELDS
from tests.support.command import run_cfglint

Expectation = Mapping[str, Any]

SEVERITIES = ("info", "warning", "error")
GIB = 2**30

FINDING = {"path", "key", "code", "level", "says"}
KNOWN_FIELDS = {
    "": {"why", "args", "paths", "must", "must_not", "fix", "estimate", "exit", "output", "prints_not", "commands"},
    "must": FINDING | {"at_most"},
    "must_not": FINDING | {"at_least"},
    "fix": {"path"}
    | {f"{how}_must_{what}" for how in ("safe", "unsafe") for what in ("not_change", "give", "not_give")},
    "estimate": {"path", "gpu_max_gib", "gpu_min_gib", "must_estimate", "run", "nodes", "gpus_per_node", "says"},
    "commands": {"args", "exit", "says", "says_not", "lines", "lines_not"},
}
_ISOLATED = {"check", "fit", "estimate", "migrate"}


def read_expectation(case: Path) -> Expectation:
    """Return the case's `expect.json`; raise AssertionError if it asserts nothing or has an unknown field."""
    expect = json.loads((case / "expect.json").read_text())
    assert expect.get("why"), "no why"
    assert expect.keys() - {"why", "args", "paths"}, "asserts nothing"
    for part, known_fields in KNOWN_FIELDS.items():
        section = expect.get(part, {}) if part else expect
        for entry in section if isinstance(section, list) else [section]:
            assert not entry.keys() - known_fields, f"unknown: {sorted(entry.keys() - known_fields)}"
            if part in ("must", "must_not") and entry.get("path"):
                assert (case / entry["path"]).is_file(), entry["path"]
                assert "key" not in entry or entry["key"] in (case / entry["path"]).read_text(), entry["key"]
    return expect


def list_failures(case: Path, folder: Path) -> list[str]:
    """Return a message for every expectation that the repository does not meet; copies are made in `folder`."""
    expect = read_expectation(case)
    repository = _copy_repository(case, folder / "linted")
    return [
        *_check_findings(expect, repository),
        *_check_estimate(expect, repository),
        *_check_fixes(expect, case, folder),
        *_check_commands(expect, case, folder),
    ]


def _copy_repository(case: Path, folder: Path) -> Path:
    shutil.copytree(case, folder)
    (folder / "expect.json").unlink()
    (folder / ".git").mkdir(exist_ok=True)
    return folder


def _build_arguments(expect: Expectation) -> list[str]:
    return ["--isolated", *expect.get("args", []), *expect.get("paths", ["."])]


def _check_findings(expect: Expectation, folder: Path) -> Iterator[str]:
    done = run_cfglint("--output-format", "json", "--exit-zero", *_build_arguments(expect), cwd=folder)
    findings = json.loads(done.out)["findings"]
    yield from (
        f"names a field of the plan: {finding['message']}"
        for finding in findings
        if finding["code"].startswith("CHK") and _has_plan_field(finding)
    )
    for wish in expect.get("must", []):
        matching = [finding for finding in findings if _is_expected(finding, wish, folder)]
        if not matching:
            yield f"must be said: {wish}"
        elif len(matching) > wish.get("at_most", len(matching)):
            yield f"said {len(matching)} times: {wish}"
    for wish in expect.get("must_not", []):
        yield from (
            f"must not be said: {wish}: {finding['path']}:{finding['line']} {finding['code']} {finding['severity']} "
            f"{finding['message']}"
            for finding in findings
            if _is_expected(finding, wish, folder)
        )
    if not expect.keys() & {"exit", "output", "prints_not"}:
        return
    plain = run_cfglint(*_build_arguments(expect), cwd=folder)
    printed = plain.out + plain.err
    if plain.code != expect.get("exit", plain.code):
        yield f"exit code {plain.code}, not {expect['exit']}"
    yield from (
        f"prints nothing like {finding!r}"
        for finding in expect.get("output", [])
        if not re.search(finding, printed, re.I)
    )
    yield from (f"prints {finding!r}" for finding in expect.get("prints_not", []) if finding in printed + done.out)


def _has_plan_field(finding: Mapping[str, Any]) -> bool:
    """Return whether a finding names a field of the plan instead of a setting.

    Users never write plan fields. OLMo has some settings of the same names.
    """
    names = re.findall(r"[a-z_]+\.[a-z_]+", f"{finding['message']} {finding.get('help') or ''}")
    return any(word in FIELDS and load("olmo").find_fact(tuple(word.split(".")), "0.6.0") is None for word in names)


def _is_expected(finding: Mapping[str, Any], wish: Expectation, folder: Path) -> bool:
    """Return whether a finding of the JSON report meets an entry of `must` or `must_not`."""
    if wish.get("path") and finding["path"].removeprefix("./") != wish["path"]:
        return False
    if wish.get("key"):
        start = finding.get("line") or 1
        marked = _read_lines(folder / finding["path"])[start - 1 : finding.get("end_line") or start]
        if not any(wish["key"] in line for line in marked) and wish["key"] not in finding["message"]:
            return False
    levels = wish.get("level", SEVERITIES)
    mildest = SEVERITIES.index(wish.get("at_least", "info"))
    texts = [finding["message"], finding.get("help"), (finding.get("fix") or {}).get("message"), *finding["notes"]]
    return (
        finding["code"].startswith(wish.get("code", ""))
        and finding["severity"] in ([levels] if isinstance(levels, str) else levels)
        and SEVERITIES.index(finding["severity"]) >= mildest
        and re.search(wish.get("says", ""), " ".join(filter(None, texts)), re.I) is not None
    )


def _read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8-sig", errors="replace").splitlines()


def _check_estimate(expect: Expectation, folder: Path) -> Iterator[str]:
    wish = expect.get("estimate")
    if wish is None:
        return
    flags = ("--isolated", *expect.get("args", []))
    done = run_cfglint("estimate", "--format", "json", *flags, wish["path"], cwd=folder)
    runs = json.loads(done.out)["runs"] if done.out else []
    estimated = [run for run in runs if run["phases"]]
    if bool(estimated) != wish.get("must_estimate", True):
        yield f"{len(estimated)} runs are estimated: {[run.get('missing') for run in runs] or done.err}"
        return
    if not re.search(wish.get("says", ""), done.out + done.err, re.I):
        yield f"the estimate does not say {wish['says']!r}"
    if not estimated:
        return
    run = estimated[wish.get("run", 0)]
    for name in ("nodes", "gpus_per_node"):
        if run.get(name) != wish.get(name, run.get(name)):
            yield f"{name} is {run.get(name)}, not {wish[name]}"
    peak = max((phase["gpu"]["expected"] for phase in run["phases"] if phase.get("gpu")), default=0) / GIB
    if not wish.get("gpu_min_gib", peak) <= peak <= wish.get("gpu_max_gib", peak):
        yield f"{peak:.1f} GiB"


def _check_fixes(expect: Expectation, case: Path, folder: Path) -> Iterator[str]:
    wishes = expect.get("fix", {})
    for how, flags in (("safe", ("--fix",)), ("unsafe", ("--fix", "--unsafe-fixes"))):
        if not any(name.startswith(f"{how}_") for name in wishes):
            continue
        fixed = _copy_repository(case, folder / how)
        run_cfglint(*flags, "--exit-zero", *_build_arguments(expect), cwd=fixed)
        paths = [fixed / wishes["path"]] if "path" in wishes else sorted(fixed.rglob("*"))
        lines = [line.lstrip() for path in paths if path.is_file() for line in _read_lines(path)]
        fixed_lines = [*lines, *map(str.rstrip, lines)]  # some fixtures are about trailing white space
        yield from _check_written_lines(wishes, how, fixed_lines)


def _check_commands(expect: Expectation, case: Path, folder: Path) -> Iterator[str]:
    """Yield the unmet expectations of other commands, each run in its own copy."""
    for number, wish in enumerate(expect.get("commands", [])):
        copy, args = _copy_repository(case, folder / f"command_{number}"), wish["args"]
        isolated = ["--isolated"] if args[0] in _ISOLATED or args[0].startswith("-") else []
        done = run_cfglint(*args, *isolated, cwd=copy)
        printed, name = done.out + done.err, f"cfglint {' '.join(args)}"
        codes = wish.get("exit", done.code)
        if done.code not in (codes if isinstance(codes, list) else [codes]):
            yield f"{name}: exit code {done.code}, not {codes}"
        says, says_not = wish.get("says", []), wish.get("says_not", [])
        matching = {pattern for pattern in (*says, *says_not) if re.search(pattern, printed, re.I | re.S)}
        yield from (f"{name}: prints nothing like {pattern!r}" for pattern in says if pattern not in matching)
        yield from (f"{name}: prints {pattern!r}" for pattern in says_not if pattern in matching)
        for kind in ("lines", "lines_not"):
            for path, lines in wish.get(kind, {}).items():
                file_lines = set(map(str.strip, _read_lines(copy / path)))
                failing = [line for line in lines if (line.strip() in file_lines) != (kind == "lines")]
                yield from (f"{name}: {kind} of {path}: {line!r}" for line in failing)


def _check_written_lines(wishes: Expectation, how: str, fixed_lines: Iterable[str]) -> Iterator[str]:
    line_set = set(fixed_lines)
    for line in (*wishes.get(f"{how}_must_not_change", []), *wishes.get(f"{how}_must_give", [])):
        if line.lstrip() not in line_set:
            yield f"{line!r} is not there after a fix that is {how}"
    for text in wishes.get(f"{how}_must_not_give", []):
        yield from (f"{text!r} after a fix that is {how}: {line!r}" for line in sorted(line_set) if text in line)
