"""Lint, estimate, fit and the HTML page give the same verdict and peak on the same run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.fitting import places
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.reports.answer import format_answer
from cfglint_train.reports.estimate import build_estimate
from cfglint_train.reports.html.run import PageRun, describe_run
from tests.support.corpus import CORPUS
from tests.support.linting import change_directory

STRIDE = 12
"""Every twelfth file of a framework is tested; the whole corpus takes minutes."""
STATED = api.Options(gpu="A100-40GB", nodes=1, gpus_per_node=8)
NOT_FITTING = ("probably does not fit", "does not fit")
RECIPES = [
    path
    for folder, pattern in (("axolotl", "*.y*ml"), ("llamafactory", "*.yaml"), ("olmo", "*.yaml"))
    for path in sorted((CORPUS / folder).rglob(pattern))[4::STRIDE]
]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for name in ("axolotl", "llamafactory", "olmo"):
        shutil.copytree(CORPUS / name, folder / name)
        (folder / name / ".git").mkdir()
    return folder


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.relative_to(CORPUS).as_posix())
def test_every_command_tells_the_same_story(copies: Path, path: Path) -> None:
    name, *inner = path.relative_to(CORPUS).parts
    with change_directory(copies / name):
        file = str(Path(*inner))
        linted, estimated = api.lint([file], STATED).raw, api.estimate([file], STATED).raw
        fitted = api.fit([file], STATED).ladders
        assert len(linted.runs) == len(estimated.runs) == len(fitted)
        if len(estimated.runs) != 1:
            return
        run = places.choose_worse(estimated.runs[0])
        worst = places.judge_place(run, "gpu")
        judgement = fitted[0].judgement
        if worst is None or not run.estimate.has_step:
            assert judgement is None
            return
        page = PageRun(build_estimate(estimated.runs[0])).estimate
        atoms = [atom for finding in linted.findings for atom in finding.atoms if atom.quantity[:4] == "gpu:"]
        story = worst.phase.name, worst.verdict, worst.budget.expected
        assert judgement is not None
        assert (judgement.phase.name, judgement.verdict, judgement.budget.expected) == story
        assert page.worst is not None
        assert (page.worst.phase, page.worst.verdict, page.worst.expected) == story
        assert describe_run(page).lower().startswith(f"{worst.verdict}: ")
        assert format_answer(places.choose_worse(linted.runs[0])) == format_answer(run)
        words = {word for atom in atoms for word in NOT_FITTING if f" {word} on one GPU" in f" {atom.message}"}
        assert bool(words) is (worst.verdict in NOT_FITTING)
        if worst.verdict in NOT_FITTING:
            figure = f"{worst.phase.title} {worst.verdict} on one GPU: {format_gib(worst.budget.expected)} expected"
            subject = f"{worst.verdict} on one GPU: {format_gib(worst.budget.expected)} expected"
            assert any(figure in atom.message or subject in atom.message for atom in atoms)
