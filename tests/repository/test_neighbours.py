"""Order of files: a script and the configuration that it starts come one after the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.repository.scheduling import sort_turns
from tests.support.configs import AXOLOTL
from tests.support.linting import change_directory

STARTS = "#!/bin/bash\naccelerate launch --config_file all/fsdp.yaml -m axolotl.cli.train {}\n"


def list_order(folder: Path) -> list[str]:
    """Return the names of all files in the order in which they are assigned to processes."""
    with change_directory(folder):
        workspace = dispatch.open_workspace(LintOptions())
        turns = list(enumerate(workspace.collect(["."])))
        sorted_turns = sort_turns(turns, workspace.repositories)
        assert sorted(sorted_turns) == turns
        return [os.path.basename(path) for _, path in sorted_turns]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in (".git", "all", "jobs"):
        (tmp_path / name).mkdir()
    for number in range(3):
        (tmp_path / f"all/run{number}.yaml").write_text(AXOLOTL)
    (tmp_path / "all/fsdp.yaml").write_text("distributed_type: FSDP\n")
    return tmp_path


def test_a_script_stands_behind_the_configuration_that_it_starts(here: Path) -> None:
    """Check that the scripts do not follow the launcher's file, which all of them name."""
    for number in (2, 0, 1):
        (here / f"jobs/{9 - number}.sh").write_text(STARTS.format(f"all/run{number}.yaml"))
    assert list_order(here) == ["fsdp.yaml", "run0.yaml", "9.sh", "run1.yaml", "8.sh", "run2.yaml", "7.sh"]


def test_a_script_that_names_itself_stands_behind_what_it_starts(here: Path) -> None:
    (here / "jobs/a.sh").write_text("#!/bin/bash\n# sbatch jobs/a.sh\naxolotl train all/run1.yaml\n")
    assert list_order(here) == ["fsdp.yaml", "run0.yaml", "run1.yaml", "a.sh", "run2.yaml"]


def test_other_scripts_stay_where_they_are(here: Path) -> None:
    (here / "jobs/a.sh").write_text("#!/bin/bash\naxolotl train $1\n")
    assert list_order(here) == ["fsdp.yaml", "run0.yaml", "run1.yaml", "run2.yaml", "a.sh"]
