"""The size that a fix of memory promises is that of the fixed files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfglint_rules import registry
from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings.draft import rewrite
from cfglint_train.findings.verdicts import EVALUATION, ROLLOUT, STEP, judge
from cfglint_train.foundation.sizes import gib
from tests.support.corpus import REPOSITORY
from tests.support.linting import copied, runs_in

FIXTURES = REPOSITORY / "fixtures" / "rules"
RULES = [rule for rule in registry.RULES.values() if rule.code.startswith("MEM") and rule.fix is not None]
_PROMISE = re.compile(r" -> ([\d.,]+ [KMG]iB)[,)]")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_what_a_fix_promises_is_estimated_of_the_fixed_files(rule, tmp_path: Path):
    folder, kept = FIXTURES / rule.code / "fires", 0
    for number, run in enumerate(runs_in(folder)):
        for report in registry.checker(rule)(run):
            fix = report.remedied().fix
            promise = None if fix is None else _PROMISE.search(fix.message)
            if fix is None or promise is None:
                continue
            try:
                sources = rewrite(run, fix).sources()
            except CannotEdit:
                continue
            here = copied(folder, tmp_path / str(number))
            for path, source in sources.items():
                (here / path).write_bytes(source)
            [after] = [one for one in runs_in(here) if one.main.document.path == run.main.document.path]
            judged = [judge(after, "gpu", phases) for phases in (STEP, (*STEP, ROLLOUT), (EVALUATION,))]
            assert promise[1] in [gib(one.budget.expected) for one in judged if one is not None], fix.message
            kept += 1
    assert kept
