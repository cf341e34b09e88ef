"""Memory that a fix promises, which is the estimate of the fixed files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfglint_rules import registry
from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings.draft import write_fix
from cfglint_train.findings.verdicts import EVALUATION_PHASE, ROLLOUT_PHASE, judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.memory.budget import STEP_PHASES
from tests.support.corpus import REPOSITORY
from tests.support.linting import copy_folder, list_runs

FIXTURES = REPOSITORY / "fixtures" / "rules"
RULES = [rule for rule in registry.RULES.values() if rule.code.startswith("MEM") and rule.fix is not None]
_PROMISE = re.compile(r" -> ([\d.,]+ [KMG]iB)[,)]")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_what_a_fix_promises_is_estimated_of_the_fixed_files(rule, tmp_path: Path):
    folder, checked = FIXTURES / rule.code / "fires", 0
    for number, run in enumerate(list_runs(folder)):
        for report in registry.get_checker(rule)(run):
            fix = report.resolve_remedy().fix
            promise = None if fix is None else _PROMISE.search(fix.message)
            if fix is None or promise is None:
                continue
            try:
                sources = write_fix(run, fix).render_sources()
            except CannotEdit:
                continue
            fixed_folder = copy_folder(folder, tmp_path / str(number))
            for path, source in sources.items():
                (fixed_folder / path).write_bytes(source)
            [fixed_run] = [
                candidate
                for candidate in list_runs(fixed_folder)
                if candidate.main.document.path == run.main.document.path
            ]
            judgements = [
                judge(fixed_run, "gpu", phases)
                for phases in (STEP_PHASES, (*STEP_PHASES, ROLLOUT_PHASE), (EVALUATION_PHASE,))
            ]
            assert promise[1] in [
                format_gib(candidate.budget.expected) for candidate in judgements if candidate is not None
            ], fix.message
            checked += 1
    assert checked
