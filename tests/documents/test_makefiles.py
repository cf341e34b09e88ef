"""Makefiles that start a configuration: their variables, if a single value of them can be determined."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.documents.makefiles import extract_commands
from tests.support.configs import AXOLOTL
from tests.support.linting import list_runs

RECIPE = "train:\n\t@torchrun --nnodes $(NODES) --nproc_per_node ${NP} -m axolotl.cli.train configs/run.yaml\n"


def read_cluster(root: Path, files: dict[str, str]) -> tuple[object, object]:
    (root / ".git").mkdir(exist_ok=True)
    for name, text in {"configs/run.yaml": AXOLOTL, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    [run] = list_runs(root)
    nodes = run.get_origin("launch.nodes")
    if nodes is not None and nodes.place is not None and nodes.assumption:
        assert "an example of how to start it" in nodes.assumption
    return run.plan.launch.nodes, run.plan.launch.gpus_per_node


@pytest.mark.parametrize(
    ("makefile", "found"),
    [
        ("NODES = 2\nNP := 4\n" + RECIPE, (2, 4)),
        ("NODES ?= 2  # of the partition\nexport NP ?= 4\n" + RECIPE, (2, 4)),
        ("ALL = 2\nNODES = $(ALL)\nNP = 4\n" + RECIPE, (2, 4)),
        ("NODES = 2\n" + RECIPE, (2, None)),
        ("NODES = 2\nNODES = 3\nNP = 4\n" + RECIPE, (None, 4)),
        ("NODES = 2\nNODES += 3\nNP = 4\n" + RECIPE, (None, 4)),
        ("ifdef BIG\nNODES = 2\nendif\nNP = 4\n" + RECIPE, (None, 4)),
        ("ifdef BIG\nNODES = 2\nelse\nNODES = 1\nendif\nNP = 4\n" + RECIPE, (None, 4)),
        ("NODES = 2\nNP = 4\nbig: NODES = 8\n" + RECIPE, (None, 4)),
        ("NODES = $(shell sinfo -h | wc -l)\nNP = 4\n" + RECIPE, (None, 4)),
        ("NODES = $(word 1,2 3)\nNP = 4\n" + RECIPE, (None, 4)),
        (
            "RUN = axolotl.cli.train configs/run.yaml\nNODES=2\nNP=4\n"
            + RECIPE.replace("axolotl.cli.train configs/run.yaml", "$(RUN)"),
            (2, 4),
        ),
        ("NODES = 2\nNP = 4\n" + RECIPE.replace("$(NODES)", "$@"), (None, 4)),
    ],
)
def test_variables_of_a_makefile(tmp_path: Path, makefile: str, found: tuple[object, object]) -> None:
    assert read_cluster(tmp_path, {"Makefile": makefile}) == found


@pytest.mark.parametrize(
    ("call", "nodes"),
    [
        ("make train NODES=4\n", None),
        ("make -C . NODES=$N train\n", None),
        ("make train\n", 2),
        ("make; NODES=4 x\n", 2),
    ],
)
@pytest.mark.parametrize("name", ["README.md", "go.sh"])
def test_what_a_call_of_make_sets_is_unknown(tmp_path: Path, name: str, call: str, nodes: int | None) -> None:
    files = {"Makefile": "NODES = 2\nNP = 4\n" + RECIPE, name: call}
    assert read_cluster(tmp_path, files) == (nodes, 4)


def test_every_line_keeps_its_number() -> None:
    text = "A = 1\n\n# x\ntrain: a b\n\t@echo $(A) $$HOME \\\n\t\t$< $(wildcard *.c)\n"
    assert extract_commands(text, ()) == 'A="1"\n\n\n\n  echo ${A}  $HOME \\\n\t\t$9 $(wildcard *.c)\n'
