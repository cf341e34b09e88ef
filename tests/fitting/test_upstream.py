"""Fixes of every upstream example on five clusters.

The framework's own reader accepts what it accepted before, with the intended settings and no other change; the
effective batch stays; every run that can fit does; a second fix changes nothing. Each example goes to one of the
clusters in turn. CFGLINT_ALL_PAIRS=1 runs every example on every cluster.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from cfglint_train.findings.verdicts import judge
from cfglint_train.fitting.smallest import find_smallest
from cfglint_train.fixing import loop
from cfglint_train.fixing.write import write_sources
from cfglint_train.judging import dispatch
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.runs.run import Run
from tests.support import oracle
from tests.support.corpus import CORPUS, needs_corpus
from tests.support.linting import build_options, change_directory, read_contents

pytestmark = [pytest.mark.oracle, needs_corpus]

CLUSTERS = (("24GB", 1, 1), ("24GB", 8, 1), ("80GB", 8, 1), ("80GB", 8, 8), ("80GB", 8, 64))
"""Memory of a GPU, GPUs per node, nodes."""
PROJECTS = ("accelerate", "axolotl", "deepspeed", "llamafactory", "olmo")
WHOLE = bool(os.environ.get("CFGLINT_ALL_PAIRS"))

JUDGES = {
    "axolotl": ("axolotl_validation.py", "base_model"),
    "llamafactory": ("llamafactory_arguments.py", "model_name_or_path"),
    "olmo": ("olmo_structured.py", "model"),
    "deepspeed": ("deepspeed_config.py", "zero_optimization"),
}
"""The reader that is run, and a key by which its files are recognised."""

DISTRIBUTIONS = {"axolotl": "axolotl", "llamafactory": "llamafactory", "olmo": "ai2-olmo", "deepspeed": "deepspeed"}


class FixOutcome(NamedTuple):
    """Files of a cluster before and after a fix."""

    cluster: tuple[str, int, int]
    unsafe: bool
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    runs_before: tuple[Run, ...]
    runs: tuple[Run, ...]
    again: int
    """Fixes that the same call makes a second time."""
    refused: tuple[loop.Refused, ...]
    reported: frozenset[str]
    """Files for which it is still reported that a training step does not fit."""

    def list_changed(self) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield path, old and new content of each file that changed."""
        for path, source in self.after.items():
            if source != self.before[path]:
                yield path, self.before[path], source


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[FixOutcome]:
    results = []
    for number, cluster in enumerate(CLUSTERS):
        for project in PROJECTS:
            folder = tmp_path_factory.mktemp("upstream") / project
            shutil.copytree(CORPUS / project, folder)
            with change_directory(folder):
                results += list(_fix_project(folder, number, cluster))
    return results


def _fix_project(folder: Path, number: int, cluster: tuple[str, int, int]) -> Iterator[FixOutcome]:
    gpu, local, nodes = cluster
    releases = {name: oracle.read_releases()[of] for name, of in DISTRIBUTIONS.items()}
    chosen = build_options(gpu=gpu, gpus_per_node=str(local), nodes=str(nodes), **releases)
    workspace = dispatch.open_workspace(chosen)
    paths = workspace.collect(["."])
    paths = paths if WHOLE else paths[number :: len(CLUSTERS)]
    runs = dispatch.lint(workspace, paths, chosen).runs
    for unsafe in (False, True):
        before = read_contents(folder)
        fixed = loop.fix_all(paths, chosen, unsafe, {})
        assert write_sources(fixed) == []
        again = loop.fix_all(paths, chosen, unsafe, {})
        reported = frozenset(finding.path for finding in fixed.result.findings if finding.code == "MEM001")
        after = fixed.result.runs
        yield FixOutcome(
            cluster, unsafe, before, read_contents(folder), runs, after, len(again.applied), fixed.refused, reported
        )
        runs = fixed.result.runs


def test_fixed_twice_is_fixed_once(outcomes: list[FixOutcome]) -> None:
    assert [(outcome.cluster, outcome.unsafe) for outcome in outcomes if outcome.again or outcome.refused] == []
    assert sum(len(list(outcome.list_changed())) for outcome in outcomes) > 40


def _parse_content(path: str, source: bytes) -> Any:
    try:
        return json.loads(source) if path.endswith(".json") else yaml.safe_load(source)
    except (ValueError, yaml.YAMLError):
        return None


def _drop_auto(value: Any) -> Any:
    """Return the section without values that the launcher fills in."""
    if not isinstance(value, dict):
        return value
    return {key: _drop_auto(item) for key, item in value.items() if item != "auto"}


class JudgedFile(NamedTuple):
    """A changed file: its settings and the framework's verdict, before and after."""

    fixed: FixOutcome
    path: str
    old: dict[str, Any]
    new: dict[str, Any]
    old_verdict: dict[str, Any]
    new_verdict: dict[str, Any]


def judge_files(framework: str, outcomes: list[FixOutcome]) -> list[JudgedFile]:
    """Judge the changed files of a framework that its reader accepted before the change."""
    program, key = JUDGES[framework]
    pairs = []
    for outcome in outcomes:
        for path, before, after in outcome.list_changed():
            old, new = _parse_content(path, before), _parse_content(path, after)
            if isinstance(old, dict) and key in old:
                pairs.append((outcome, path, old, new))
    contents_ = [_prepare(framework, content) for _, _, old, new in pairs for content in (old, new)]
    verdicts = oracle.judge_questions(program, contents_, recorded=False)
    judged_files = [
        JudgedFile(*pair, *verdicts_of_pair)
        for pair, verdicts_of_pair in zip(pairs, zip(verdicts[::2], verdicts[1::2]), strict=True)
    ]
    return [outcome for outcome in judged_files if outcome.old_verdict["accepted"]]


def _shorten(value: Any) -> Any:
    """Shorten long lists, the files of a data set, which take OLMo's reader most of its time."""
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in value.items()}
    return value[:3] if isinstance(value, list) and len(value) > 20 else value


def _prepare(framework: str, content: Any) -> Any:
    content = _shorten(content)
    return {"train_batch_size": 1, **_drop_auto(content)} if framework == "deepspeed" else content


@pytest.fixture(scope="module")
def asked(outcomes: list[FixOutcome]) -> Callable[[str], list[JudgedFile]]:
    """Run each reader once."""
    return cache(lambda framework: judge_files(framework, outcomes))


JudgeFiles = Callable[[str], list[JudgedFile]]

LEAST = {"axolotl": 20, "llamafactory": 1, "olmo": 30, "deepspeed": 1}
"""Minimum number of changed files that the reader accepted."""


@pytest.mark.parametrize("framework", JUDGES)
def test_what_the_reader_took_it_takes(framework: str, asked: JudgeFiles) -> None:
    judged_files = asked(framework)
    refused = [
        (item.path, item.fixed.cluster, item.new_verdict["why"])
        for item in judged_files
        if not item.new_verdict["accepted"]
    ]
    assert refused == []
    assert len(judged_files) >= LEAST[framework]


@pytest.mark.parametrize("framework", ["axolotl", "llamafactory", "olmo"])
def test_only_the_meant_settings_change(framework: str, asked: JudgeFiles) -> None:
    """Change what the framework resolves only at the keys that the fix wrote."""
    wrong = []
    for item in asked(framework):
        intended = {_normalize(route) for route, _ in _list_differences(item.old, item.new)}
        resolved = dict(_list_differences(item.old_verdict["values"], item.new_verdict["values"]))
        strange = {route: pair for route, pair in resolved.items() if not _is_covered(route, intended)}
        if strange and item.new_verdict["accepted"]:
            wrong.append((item.path, item.fixed.cluster, sorted(intended), strange))
    assert wrong == []


FOLLOWS = {
    "ring_attn_func": "context_parallel_size",
    **dict.fromkeys(
        ("attn_supports_packing", "attn_decontaminates_packing", "attn_uses_flash_lib", "attn_needs_dtype_cast"),
        "attn_implementation",
    ),
}
"""Keys that axolotl computes from a setting."""

Route = tuple[str, ...]


def _list_differences(old: Any, new: Any, at: Route = ()) -> Iterator[tuple[Route, tuple[Any, Any]]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _list_differences(old.get(key), new.get(key), (*at, key))
    elif old != new:
        yield at, (old, new)


def _normalize(route: Route) -> Route:
    """Return a route as axolotl resolves it: keys of `fsdp_config` have no prefix."""
    return (route[0], *(step.removeprefix("fsdp_") for step in route[1:])) if route[0] == "fsdp_config" else route


def _is_covered(route: Route, intended: set[Route]) -> bool:
    route = (FOLLOWS.get(route[0], route[0]), *route[1:])
    return any(
        route[: len(intended_route)] == intended_route or intended_route[: len(route)] == route
        for intended_route in intended
    )


def test_the_effective_batch_stays(outcomes: list[FixOutcome]) -> None:
    moved = []
    for outcome in outcomes:
        before = {run.main.document.path: run.plan.batch for run in outcome.runs_before}
        for run in outcome.runs:
            old, new = before.get(run.main.document.path), run.plan.batch
            if old is None or None in (old.micro, old.accumulation, new.micro, new.accumulation):
                continue
            if old.micro * old.accumulation != new.micro * new.accumulation:
                moved.append((run.main.document.path, outcome.cluster, outcome.unsafe, old, new))
    assert moved == []


@cache
def _is_above_capacity(run: Run) -> bool:
    judgement = judge(run, "gpu", STEP_PHASES)
    return judgement is not None and judgement.budget.expected > judgement.capacity


def test_nothing_is_left_above_capacity_that_can_fit(outcomes: list[FixOutcome]) -> None:
    """Report and write nothing for runs that do not fit on assumptions alone."""
    unsolved = []
    for outcome in outcomes:
        for run in outcome.runs:
            is_reported = outcome.unsafe and run.main.document.path in outcome.reported and _is_above_capacity(run)
            solution = find_smallest(run) if is_reported else None
            if solution is not None:
                unsolved.append((run.main.document.path, outcome.cluster, solution.settings))
    assert unsolved == []
