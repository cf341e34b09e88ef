"""Every upstream example on five clusters, fixed: the framework's own reader takes what it took before, with the meant
settings and no other; the effective batch stays; what can fit does; fixed twice is fixed once.

Each example goes to one of the clusters in turn. CFGLINT_ALL_PAIRS=1 takes every example to every cluster.
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

from cfglint_train.findings.verdicts import STEP, judge
from cfglint_train.fitting.smallest import smallest
from cfglint_train.fixing import loop
from cfglint_train.fixing.write import write_all
from cfglint_train.judging import dispatch
from cfglint_train.runs.run import Run
from tests.support import oracle
from tests.support.corpus import CORPUS, needs_corpus
from tests.support.linting import contents, options, working_in

pytestmark = [pytest.mark.oracle, needs_corpus]

CLUSTERS = (("24GB", 1, 1), ("24GB", 8, 1), ("80GB", 8, 1), ("80GB", 8, 8), ("80GB", 8, 64))
"""Memory of a GPU, GPUs of a node, nodes."""
PROJECTS = ("accelerate", "axolotl", "deepspeed", "llamafactory", "olmo")
WHOLE = bool(os.environ.get("CFGLINT_ALL_PAIRS"))

JUDGES = {
    "axolotl": ("axolotl_validation.py", "base_model"),
    "llamafactory": ("llamafactory_arguments.py", "model_name_or_path"),
    "olmo": ("olmo_structured.py", "model"),
    "deepspeed": ("deepspeed_config.py", "zero_optimization"),
}
"""The reader that is asked, and a key by which its files are known."""

DISTRIBUTIONS = {"axolotl": "axolotl", "llamafactory": "llamafactory", "olmo": "ai2-olmo", "deepspeed": "deepspeed"}


class Fixed(NamedTuple):
    """What a fix made of some files on one cluster."""

    cluster: tuple[str, int, int]
    unsafe: bool
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    runs_before: tuple[Run, ...]
    runs: tuple[Run, ...]
    again: int
    """Fixes that the same call makes a second time."""
    refused: tuple[loop.Refused, ...]
    said: frozenset[str]
    """The files of which it is still said that a training step does not fit."""

    def changed(self) -> Iterator[tuple[str, bytes, bytes]]:
        """Path, old and new content of each file that is another one."""
        for path, source in self.after.items():
            if source != self.before[path]:
                yield path, self.before[path], source


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Fixed]:
    made = []
    for number, cluster in enumerate(CLUSTERS):
        for project in PROJECTS:
            folder = tmp_path_factory.mktemp("upstream") / project
            shutil.copytree(CORPUS / project, folder)
            with working_in(folder):
                made += list(_fixed(folder, number, cluster))
    return made


def _fixed(folder: Path, number: int, cluster: tuple[str, int, int]) -> Iterator[Fixed]:
    gpu, local, nodes = cluster
    releases = {name: oracle.releases()[of] for name, of in DISTRIBUTIONS.items()}
    chosen = options(gpu=gpu, gpus_per_node=str(local), nodes=str(nodes), **releases)
    workspace = dispatch.workspace_for(chosen)
    paths = workspace.collect(["."])
    paths = paths if WHOLE else paths[number :: len(CLUSTERS)]
    runs = dispatch.lint(workspace, paths, chosen).runs
    for unsafe in (False, True):
        before = contents(folder)
        fixed = loop.fix_all(paths, chosen, unsafe, {})
        assert write_all(fixed) == []
        again = loop.fix_all(paths, chosen, unsafe, {})
        said = frozenset(one.path for one in fixed.result.findings if one.code == "MEM001")
        after = fixed.result.runs
        yield Fixed(cluster, unsafe, before, contents(folder), runs, after, len(again.applied), fixed.refused, said)
        runs = fixed.result.runs


def test_fixed_twice_is_fixed_once(outcomes: list[Fixed]) -> None:
    assert [(one.cluster, one.unsafe) for one in outcomes if one.again or one.refused] == []
    assert sum(len(list(one.changed())) for one in outcomes) > 40


def _content(path: str, source: bytes) -> Any:
    try:
        return json.loads(source) if path.endswith(".json") else yaml.safe_load(source)
    except (ValueError, yaml.YAMLError):
        return None


def _without_auto(value: Any) -> Any:
    """A section without what the launcher fills in."""
    if not isinstance(value, dict):
        return value
    return {key: _without_auto(one) for key, one in value.items() if one != "auto"}


class Judged(NamedTuple):
    """A changed file: its settings and the framework's own words, before and after."""

    fixed: Fixed
    path: str
    old: dict[str, Any]
    new: dict[str, Any]
    old_verdict: dict[str, Any]
    new_verdict: dict[str, Any]


def judged(framework: str, outcomes: list[Fixed]) -> list[Judged]:
    """The changed files of a framework that its reader took before they were changed."""
    program, key = JUDGES[framework]
    pairs = []
    for one in outcomes:
        for path, before, after in one.changed():
            old, new = _content(path, before), _content(path, after)
            if isinstance(old, dict) and key in old:
                pairs.append((one, path, old, new))
    asked = [_asked(framework, content) for _, _, old, new in pairs for content in (old, new)]
    verdicts = oracle.judge(program, asked, recorded=False)
    every = [Judged(*pair, *both) for pair, both in zip(pairs, zip(verdicts[::2], verdicts[1::2]), strict=True)]
    return [one for one in every if one.old_verdict["accepted"]]


def _short(value: Any) -> Any:
    """The content without most of its long lists, the files of a data set: they take OLMo's reader most of its time."""
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return value[:3] if isinstance(value, list) and len(value) > 20 else value


def _asked(framework: str, content: Any) -> Any:
    content = _short(content)
    return {"train_batch_size": 1, **_without_auto(content)} if framework == "deepspeed" else content


@pytest.fixture(scope="module")
def asked(outcomes: list[Fixed]) -> Callable[[str], list[Judged]]:
    """Asks each reader once."""
    return cache(lambda framework: judged(framework, outcomes))


Asked = Callable[[str], list[Judged]]

LEAST = {"axolotl": 20, "llamafactory": 1, "olmo": 30, "deepspeed": 1}
"""Changed files that the reader took."""


@pytest.mark.parametrize("framework", JUDGES)
def test_what_the_reader_took_it_takes(framework: str, asked: Asked) -> None:
    found = asked(framework)
    refused = [
        (one.path, one.fixed.cluster, one.new_verdict["why"]) for one in found if not one.new_verdict["accepted"]
    ]
    assert refused == []
    assert len(found) >= LEAST[framework]


@pytest.mark.parametrize("framework", ["axolotl", "llamafactory", "olmo"])
def test_only_the_meant_settings_change(framework: str, asked: Asked) -> None:
    """What the framework resolves differs at the keys that the fix wrote, and nowhere else."""
    wrong = []
    for one in asked(framework):
        meant = {_plain(route) for route, _ in _differences(one.old, one.new)}
        resolved = dict(_differences(one.old_verdict["values"], one.new_verdict["values"]))
        strange = {route: pair for route, pair in resolved.items() if not _covered(route, meant)}
        if strange and one.new_verdict["accepted"]:
            wrong.append((one.path, one.fixed.cluster, sorted(meant), strange))
    assert wrong == []


FOLLOWS = {
    "ring_attn_func": "context_parallel_size",
    **dict.fromkeys(
        ("attn_supports_packing", "attn_decontaminates_packing", "attn_uses_flash_lib", "attn_needs_dtype_cast"),
        "attn_implementation",
    ),
}
"""What axolotl computes from a setting."""

Route = tuple[str, ...]


def _differences(old: Any, new: Any, at: Route = ()) -> Iterator[tuple[Route, tuple[Any, Any]]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _differences(old.get(key), new.get(key), (*at, key))
    elif old != new:
        yield at, (old, new)


def _plain(route: Route) -> Route:
    """A route as axolotl resolves it: keys of `fsdp_config` have no prefix."""
    return (route[0], *(step.removeprefix("fsdp_") for step in route[1:])) if route[0] == "fsdp_config" else route


def _covered(route: Route, meant: set[Route]) -> bool:
    route = (FOLLOWS.get(route[0], route[0]), *route[1:])
    return any(route[: len(one)] == one or one[: len(route)] == route for one in meant)


def test_the_effective_batch_stays(outcomes: list[Fixed]) -> None:
    moved = []
    for one in outcomes:
        before = {run.main.document.path: run.plan.batch for run in one.runs_before}
        for run in one.runs:
            old, new = before.get(run.main.document.path), run.plan.batch
            if old is None or None in (old.micro, old.accumulation, new.micro, new.accumulation):
                continue
            if old.micro * old.accumulation != new.micro * new.accumulation:
                moved.append((run.main.document.path, one.cluster, one.unsafe, old, new))
    assert moved == []


@cache
def _above(run: Run) -> bool:
    judged = judge(run, "gpu", STEP)
    return judged is not None and judged.budget.expected > judged.capacity


def test_nothing_is_left_above_capacity_that_can_fit(outcomes: list[Fixed]) -> None:
    """For runs that do not fit on assumptions alone, nothing is reported and nothing written."""
    left = []
    for one in outcomes:
        for run in one.runs:
            said = one.unsafe and run.main.document.path in one.said and _above(run)
            found = smallest(run) if said else None
            if found is not None:
                left.append((run.main.document.path, one.cluster, found.settings))
    assert left == []
