"""Commands that rewrite files, run over one text, with the laws that the result must obey.

Independent readers that accepted the text still accept it, no line that no edit touches is lost, a second run changes
nothing, and no certain finding is new.
"""

from __future__ import annotations

import ast
import io
import json
import random
import subprocess
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from ruamel.yaml import YAML

from cfglint_train import api
from cfglint_train.documents.document import BOM, Document, Edit
from cfglint_train.findings import draft
from cfglint_train.findings.finding import SEVERITIES, Finding
from cfglint_train.fixing.loop import FixOutcome
from cfglint_train.foundation.errors import UsageError
from cfglint_train.front.migrate.goal import parse_goal
from cfglint_train.front.migrate.rewrite import migrate
from cfglint_train.judging.result import Result, Trouble
from cfglint_train.settings.settings import Settings
from tests.support.bash import BASH


def _parse_python(source: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about backslashes in strings
        ast.parse(source)


def _parse_bash(source: bytes) -> None:
    if BASH is not None:
        done = subprocess.run([BASH, "-n"], input=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode or done.stdout:  # an unterminated here-document is only a warning
            raise ValueError(done.stdout.decode(errors="replace"))


JUDGES: Mapping[str, Mapping[str, Callable[[bytes], Any]]] = {
    "yaml": {
        "PyYAML": lambda source: yaml.load(source, yaml.SafeLoader),
        "ruamel.yaml": lambda source: YAML(typ="safe", pure=True).load(io.BytesIO(source)),
    },
    "json": {"json": json.loads},
    "shell": {"bash -n": _parse_bash},
    "python": {"ast": _parse_python},
}


def find_refusals(syntax: str, source: bytes) -> dict[str, str]:
    """Return the parsers that reject a text, each with its reason."""
    reasons = {}
    for name, judge in JUDGES[syntax].items():
        try:
            judge(source)
        except Exception as error:  # any exception means that the text is rejected
            reasons[name] = f"{type(error).__name__}: {error}"
    return reasons


class Edits(list[tuple[Document, Edit]]):
    """Edits that a command made or tried, each with its document."""

    def list_touched_lines(self) -> Iterator[bytes]:
        """Yield every line that an edit touches."""
        for document, edit in self:
            source = document.source
            start = max(source.rfind(b"\n", 0, edit.span.start), source.rfind(b"\r", 0, edit.span.start)) + 1
            yield from source[start : document.find_line_end(edit.span.end)].splitlines()


@contextmanager
def record_edits() -> Iterator[Edits]:
    """Record every edit that is written as a fix within the block."""
    edits, original = Edits(), draft.write_fix

    def rewrite_and_record(*arguments: Any) -> draft.WrittenFix:
        result = original(*arguments)
        edits.extend((document, edit) for document, document_edits in result.edits for edit in document_edits)
        return result

    with mock.patch.object(draft, "write_fix", rewrite_and_record):
        yield edits


def find_damage(syntax: str, before: bytes, after: bytes, touched: Iterable[bytes]) -> Iterator[str]:
    """Yield the damage in a rewritten text, except in the `touched` lines."""
    accepted = JUDGES[syntax].keys() - find_refusals(syntax, before)
    rejections = find_refusals(syntax, after)
    yield from (f"{name} takes it no longer: {rejections[name]}" for name in accepted & rejections.keys())
    if before.startswith(BOM) != after.startswith(BOM):
        yield "the byte-order mark changed"
    if b"\r" not in before and b"\r" in after:
        yield "there are carriage returns"
    if before.count(b"\r\n") == before.count(b"\n") and after.count(b"\r\n") != after.count(b"\n"):
        yield "some lines end otherwise than the others"
    if before.endswith(b"\n") and after and not after.endswith(b"\n"):
        yield "the last line has no end"
    lost = Counter(before.splitlines()) - Counter(after.splitlines()) - Counter(touched)
    if lost:
        yield f"lines that no edit touches are gone: {list(lost)}"


def list_failures(troubles: Iterable[Trouble], reasons: Iterable[str] = ()) -> Iterator[str]:
    """Yield the failures of cfglint itself."""
    yield from (trouble.message for trouble in troubles if trouble.is_internal)
    yield from (reason for reason in reasons if "please report it" in reason)


def find_new_certain_findings(before: Iterable[Finding], after: Iterable[Finding]) -> Iterator[str]:
    """Yield the rules that have more certain errors and warnings than they had findings before.

    A finding does not count as new if it was hidden before: by a setting unknown to cfglint, or by a finding that is
    gone now and was more severe, or was as severe and of the same family or about the syntax.
    """
    if any(finding.code == "CHK001" for finding in before):
        return
    counts = Counter(finding.code for finding in before)
    gone_weights = [
        _weigh_finding(finding)
        for finding in before
        if finding.code in counts - Counter(finding.code for finding in after)
    ]
    certain = [
        finding for finding in after if finding.certainty in ("stated", "followed") and finding.severity != "info"
    ]
    for code in Counter(finding.code for finding in certain) - counts:
        weight, family = min(_weigh_finding(finding) for finding in certain if finding.code == code)
        if not any(
            other_weight < weight or (other_weight == weight and other_family in (family, "SYN"))
            for other_weight, other_family in gone_weights
        ):
            yield f"a certain finding is new: {code}"


def _weigh_finding(finding: Finding) -> tuple[int, str]:
    """Return the severity (0 is the most severe) and the family."""
    return SEVERITIES.index(finding.severity), finding.code[:3]


CLUSTERS = (
    api.Options(isolated=True),
    api.Options(isolated=True, gpu="RTX4090", gpus_per_node=1, nodes=1),
    api.Options(isolated=True, gpu="A100-80GB", gpus_per_node=8, nodes=8, host_memory="1TB", disk="2TB"),
)


class Rewriting:
    """Results of the commands over one text, in the working directory."""

    def __init__(self, path: str, syntax: str, source: bytes, options: api.Options) -> None:
        """Lint the text once, as the baseline."""
        self.path, self.syntax, self.source, self.options = path, syntax, source, options
        self.changed: list[str] = []
        """Commands that changed the text."""
        self.result: Result = self._lint(source)

    def find_problems(self) -> Iterator[str]:
        """Yield every problem, with the command that caused it."""
        yield from (f"lint: {text}" for text in list_failures(self.result.troubles))
        for unsafe in (False, True):
            applicabilities = {"safe", "unsafe"} if unsafe else {"safe"}
            if any(
                finding.intent is not None and finding.intent.applicability in applicabilities
                for finding in self.result.findings
            ):
                command = "--unsafe-fixes" if unsafe else "--fix"
                yield from self._check_command(command, lambda source, unsafe=unsafe: self._fix(source, unsafe))
        if self.result.runs:
            yield from self._check_command("fit", self._fit)
        for framework in sorted({file.framework for file in self.result.files}):
            try:
                parse_goal([framework])
            except UsageError:
                continue  # it has no releases
            yield from self._check_command(
                f"migrate --to {framework}", lambda source, to=framework: self._migrate(source, to)
            )

    def _check_command(self, command: str, run_command: Callable[[bytes], tuple[bytes, list[str]]]) -> Iterator[str]:
        with record_edits() as edits:
            after, failed = run_command(self.source)
        problems = list(failed)
        if after != self.source:
            self.changed.append(command)
            migrates = command.startswith("migrate")
            pragmas = [line for line in self.source.splitlines() if b"# cfglint:" in line] if migrates else []
            problems += find_damage(self.syntax, self.source, after, [*edits.list_touched_lines(), *pragmas])
            again, failed = run_command(after)
            problems += failed
            if again != after:
                problems.append("a second time changes it again")
            if not migrates:  # its goal is a release that no file states
                problems += find_new_certain_findings(self.result.findings, self._lint(after).findings)
        yield from (f"{command}: {text}" for text in problems)

    def _lint(self, source: bytes) -> Result:
        return api.lint(options=self.options, sources={self.path: source}).raw

    def _fix(self, source: bytes, unsafe: bool) -> tuple[bytes, list[str]]:
        return self._get_outcome(source, api.fix(options=self.options, sources={self.path: source}, unsafe=unsafe).raw)

    def _fit(self, source: bytes) -> tuple[bytes, list[str]]:
        fitted = api.fit(options=self.options, sources={self.path: source}, change=True)
        assert fitted.fixed is not None
        return self._get_outcome(source, fitted.fixed)

    def _get_outcome(self, source: bytes, fixed: FixOutcome) -> tuple[bytes, list[str]]:
        failed = list_failures(fixed.result.troubles, (refusal.reason for refusal in fixed.refused))
        return fixed.sources.get(self.path, source), list(failed)

    def _migrate(self, source: bytes, framework: str) -> tuple[bytes, list[str]]:
        Path(self.path).write_bytes(source)
        outcome = migrate([self.path], parse_goal([framework]), lambda _: Settings(""))
        Path(self.path).unlink()
        reasons = [item.message for file in outcome.files for item in file.items]
        return next((file.source for file in outcome.files), source), list(list_failures(outcome.troubles, reasons))


def build_rewriting(path: Path, syntax: str, source: bytes, draw: random.Random) -> Rewriting:
    """Return the commands over one text, for a random cluster."""
    return Rewriting(path.name, syntax, source, draw.choice(CLUSTERS))
