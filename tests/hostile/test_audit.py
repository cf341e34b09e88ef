"""Audit of every command on a hostile repository: what it opens, changes, executes, starts and connects to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.configs import AXOLOTL, DEEPSPEED
from tests.support.corpus import REPOSITORY, SHARED

pytestmark = pytest.mark.slow

INPUTS = SHARED / "hostile" / "inputs"
ROOTS = [REPOSITORY / root for root in ("lint", "rules", "schemas")]
INSTALLED = {
    os.path.realpath(path)
    for path in (
        *ROOTS,
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(path for path in sys.path if "-packages" in path),
    )
}
TRAP = "import os\nopen(os.environ['TRAP'], 'w').write(__name__)\n"
HOSTILE = {
    "tags.yaml": AXOLOTL + 'x: !!python/object/apply:os.system ["touch $TRAP"]\ny: !include /etc/passwd\n',
    "away.yaml": AXOLOTL + "deepspeed: {outside}/ds.json\nbase_model_config: {outside}\nlora_rr: 8\n",
    "up.yaml": AXOLOTL + "deepspeed: ../outside/ds.json\naccelerate_config: ~/ds.json\n",
    "run.sh": "source {outside}/env.sh\n. ../outside/env.sh\nX=$(touch $TRAP)\n`touch $TRAP`\n"
    "deepspeed --module openrlhf.cli.train_sft --pretrain $(cat {outside}/env.sh) --zero_stage 3 --micro_batch 1\n"
    "accelerate launch --config_file {outside}/ds.json train.py @{outside}/env.sh\n",
    "train.py": TRAP + "from olmo_core.config import Config\nexec(open('{outside}/env.sh').read())\n"
    "__import__('os').system('touch ' + os.environ['TRAP'])\n",
    "requirements.txt": "-r {outside}/env.sh\n-c ../outside/env.sh\naxolotl==0.21.0\n",
    "pyproject.toml": "[project]\nname = 'x'\ndependencies = ['torch @ file://{outside}/env.sh']\n",
    "openrlhf/__init__.py": TRAP,
    "openrlhf/cli/__init__.py": TRAP,
    "openrlhf/cli/train_sft.py": TRAP + "parser.add_argument('--x', type=exec(open('{outside}/env.sh').read()))\n",
    **{f"{name}.py": TRAP for name in ("yaml", "json", "sitecustomize", "tree_sitter", "cfglint_train", "conftest")},
}
COMMANDS = [
    (".",),
    ("--fix", "--unsafe-fixes", "."),
    ("fit", "."),
    ("fit", "--write", "."),
    ("estimate", "."),
    ("migrate", "--to", "axolotl", "."),
]
WRITING = COMMANDS[1], COMMANDS[3], COMMANDS[5]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Create a repository next to a folder that it points to in every way."""
    outside, home = tmp_path / "outside", tmp_path / "repository"
    (home / ".git").mkdir(parents=True)
    outside.mkdir()
    (outside / "ds.json").write_text(DEEPSPEED)
    (outside / "env.sh").write_text("export X=1\n")
    (outside / "train_sft.py").write_text("parser.add_argument('--x')\n")
    (outside / "requirements.txt").write_text("axolotl==0.20.0\n")
    for name, text in HOSTILE.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text.replace("{outside}", str(outside)))
    (home / "link.json").symlink_to(outside / "ds.json")
    for name in ("folder", "requirements", "llamafactory", "axolotl", "axolotl.yaml"):
        (home / name).symlink_to(outside)
    for path in sorted(INPUTS.glob("*")):
        shutil.copy(path, home / path.name)
    return home


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_stays_in_the_repository(repository: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    report, trap, cache = tmp_path / "report", tmp_path / "trapped", tmp_path / "cache"
    outside = read_files(tmp_path / "outside")
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path / "outside"), "XDG_CACHE_HOME": str(cache),
        "PYTHONPATH": os.pathsep.join(map(str, ROOTS)), "PYTHONDONTWRITEBYTECODE": "1", "TRAP": str(trap),
    }  # fmt: skip
    program = REPOSITORY / "tests" / "support" / "audited.py"
    process = subprocess.run(
        [sys.executable, str(program), str(report), *words],
        cwd=repository,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert process.returncode in (0, 1, 2), process.stderr.decode()
    assert b"Traceback" not in process.stderr + process.stdout, process.stderr.decode()
    assert not trap.exists(), trap.read_text()
    events = {tuple(line.split("\t")[:2]) for line in report.read_text().splitlines()}
    assert len(events) > 100
    can_read = (*INSTALLED, str(program.parent), str(repository), str(cache), os.devnull)
    may_write = (str(cache), os.devnull, *([str(repository)] if words in WRITING else []))
    for kind, what in sorted(events):
        assert kind in ("read", "write", "exec"), (kind, what)
        if kind == "exec":
            compiler = what.rpartition(" ")[2]  # a text that is compiled, by the file that compiles it
            assert what.startswith("<frozen ") or is_below(os.path.realpath(compiler), INSTALLED), what
        elif kind == "write":
            assert is_below(what, may_write), what
        elif not is_below(what, can_read):
            # Settings in folders above a repository belong to its user.
            assert what in map(str, repository.parents), what
    assert read_files(tmp_path / "outside") == outside


def read_files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def is_below(path: str, folders: object) -> bool:
    assert isinstance(folders, (tuple, set))
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)
