"""Random sequences of edits to a repository: a report with any cache is the report without a cache, byte for byte.

`CFGLINT_FUZZ_TIMES` multiplies the number of sequences, and `CFGLINT_FUZZ_SEED` (1) seeds them.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest

from cfglint_train.foundation import filesystem
from cfglint_train.repository import index, known_facts, listing
from cfglint_train.repository.clues import CLUES, Question
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.texts import Texts
from cfglint_train.settings.settings import Settings
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, DEEPSPEED, LIMITED, TWICE, UNKNOWN_MODEL
from tests.support.replaying import install, list_unrecorded, read_questions, watch

TIMES = int(os.environ.get("CFGLINT_FUZZ_TIMES", "1"))
SEED = int(os.environ.get("CFGLINT_FUZZ_SEED", "1"))
SEQUENCES = 12
STEPS = 8
LONG_SEQUENCES = 4
LONG_STEPS = 60

FILES = {
    "a.yaml": AXOLOTL + "deepspeed: ds.json\n",
    "ds.json": DEEPSPEED,
    "run.sh": "#!/bin/bash\ntorchrun --nproc_per_node 8 -m axolotl.cli.train a.yaml\n",
    "requirements.txt": "axolotl==0.12.0\n",
    "configs/b.yaml": LIMITED,
    "configs/deep/c.yaml": TWICE,
    "configs/run_b.sh": "llamafactory-cli train configs/b.yaml\n",
    "train.py": "import subprocess\nsubprocess.run(['axolotl', 'train', 'configs/deep/c.yaml'])\n",
    "models/own/config.json": '{"model_type": "llama", "hidden_size": 64}\n',
    ".gitignore": "out/\n",
    "cfglint.toml": 'ignore = ["SEC"]\n',
}
SPARE = {
    "new.yaml": UNKNOWN_MODEL,
    "configs/new.yaml": AXOLOTL.replace("Qwen/Qwen2.5-0.5B", "models/own"),
    "configs/requirements.txt": "llamafactory==0.9.1\n",
    "pyproject.toml": "[tool.cfglint]\nnodes = 2\n",
    "../cfglint.toml": 'gpu = "A100-80GB"\n',
    "configs/cfglint.toml": 'gpu = "H100"\ngpus-per-node = 4\n',
    "configs/.gitignore": "new.yaml\nb.*\n",
    ".git/info/exclude": "new.*\n",
    "Dockerfile": "FROM x\nRUN pip install axolotl==0.11.0\nCMD axolotl train a.yaml\n",
    "axolotl/__init__.py": "",
    "axolotl/utils/schemas/config.py": "class A:\n    micro_batch_size: int\n",
    "out/x.yaml": TWICE,
    "README.md": "pip install git+https://github.com/someone/axolotl@abc\n",
    "plain": "#!/bin/sh\naxolotl train configs/deep/c.yaml\n",
    "../hub/models--example-lab--Nebula-9B/snapshots/1/config.json": '{"model_type": "llama"}\n',
}
QUICK = ("--ignore", "MEM,HST,PRF,CKP,PAR")
"""These rules take most of the time, and read nothing that other rules do not read."""
CALLS = (
    (*QUICK, "."), (*QUICK, "a.yaml"), (*QUICK, "configs"), (*QUICK, "--output-format", "json", "."), ("a.yaml",),
    (*QUICK, "a.yaml", "configs/b.yaml"), (*QUICK, "--verbose", "a.yaml"), ("--select", "BAT,CHK,KEY,XFL", "."),
)  # fmt: skip


class Edits:
    """Edits to a repository, drawn at random."""

    def __init__(self, root: Path, draw: random.Random) -> None:
        """Edit the repository at `root`."""
        self.root = root
        self.draw = draw

    def git(self, *words: str) -> None:
        names = "-c user.name=x -c user.email=x@example.org -c core.hooksPath=/dev/null".split()
        command = " ".join(["git", "-C", str(self.root), *names, *words, ">/dev/null", "2>&1"])
        os.system(command)

    def commit(self) -> None:
        self.git("commit", "--quiet", "--allow-empty", "--message", "x")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def pick(self) -> Path:
        """Return any file or link of the repository."""
        return self.draw.choice(
            [
                path
                for path in self.root.rglob("*")
                if ".git" not in path.parts and (path.is_file() or path.is_symlink())
            ]
        )

    def pick_folder(self) -> Path:
        return self.draw.choice(
            [self.root, *(path for path in self.root.rglob("*") if path.is_dir() and ".git" not in path.parts)]
        )

    def change_digit(self) -> None:
        """Change a file without a change of its size or mtime."""
        path = self.root / self.draw.choice(["a.yaml", "ds.json", "run.sh", "configs/b.yaml", "requirements.txt"])
        status = path.stat()
        text = path.read_text()
        places = [at for at, letter in enumerate(text) if letter.isdigit()]
        if places:
            at = self.draw.choice(places)
            path.write_text(text[:at] + str(self.draw.randint(1, 9)) + text[at + 1 :])
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def change_text(self) -> None:
        path = self.pick()
        lines = path.read_text().splitlines(keepends=True) or ["\n"]
        at = self.draw.randrange(len(lines))
        lines[at : at + 1] = self.draw.choice([[], [lines[at], lines[at]], [*self.draw.sample(lines, len(lines))]])
        path.write_text("".join(lines))

    def restore(self) -> None:
        name = self.draw.choice(list(FILES))
        self.write(name, FILES[name])

    def add(self) -> None:
        name = self.draw.choice(list(SPARE))
        self.write(name, SPARE[name])

    def drop(self) -> None:
        name = self.draw.choice(list(SPARE))
        (self.root / name).unlink()

    def remove(self) -> None:
        self.pick().unlink()

    def rename(self) -> None:
        self.pick().rename(self.pick_folder() / self.draw.choice(["a.yaml", "renamed.yaml", "run.sh", "ds.json"]))

    def rename_folder(self) -> None:
        folder = self.pick_folder()
        if folder != self.root:
            folder.rename(folder.with_name(self.draw.choice(["renamed", "configs", "deep"])))

    def swap_folders(self) -> None:
        """Replace a folder by a copy with other contents but the same names and times."""
        folder = self.root / "configs"
        copy = self.root.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy, symlinks=True)
        (copy / "b.yaml").write_text(LIMITED.replace("32768", "16384"))
        shutil.copystat(folder, copy)
        shutil.rmtree(folder)
        copy.rename(folder)

    def touch(self) -> None:
        moment = self.draw.choice([time.time(), 1_600_000_000])
        os.utime(self.pick(), (moment, moment))

    def permit(self) -> None:
        self.pick().chmod(self.draw.choice([0, 0o600, 0o644, 0o755]))

    def link(self) -> None:
        target = self.draw.choice(
            ["run.sh", "ds.json", "configs/b.yaml", "configs", "nowhere", "..", str(self.pick()), "../cfglint.toml"]
        )
        path = self.pick_folder() / self.draw.choice(["a.yaml", "ds.json", "linked", "configs", "l.yaml"])
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def link_hard(self) -> None:
        source, path = self.pick(), self.pick()
        path.unlink()
        os.link(source, path)

    def track(self) -> None:
        self.git(self.draw.choice(["add --all", "rm --cached --quiet -r configs", "reset --quiet", "status"]))

    def switch(self) -> None:
        self.git("add", "--all")
        self.commit()
        self.git("checkout", "--quiet", "--force", self.draw.choice(["main", "other"]))

    def forget(self) -> None:
        """Take the repository's mark away, or bring it back."""
        mark, away = self.root / ".git", self.root / "away"
        if mark.exists():
            mark.rename(away)
        else:
            away.rename(mark)

    def do_nothing(self) -> None:
        """Change nothing."""

    def apply(self) -> str:
        """Apply a random edit and return its name; an edit that is impossible changes nothing."""
        edits: list[Callable[[], None]] = [
            self.change_digit, self.change_digit, self.change_digit, self.change_text, self.restore, self.add, self.add,
            self.drop, self.remove, self.rename, self.rename_folder, self.swap_folders, self.touch, self.permit,
            self.link, self.link_hard, self.track, self.switch, self.forget, self.do_nothing, self.do_nothing,
        ]  # fmt: skip
        edit = self.draw.choice(edits)
        with suppress(OSError, ValueError, IndexError):
            edit()
        return edit.__name__


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a repository with two branches."""
    root = tmp_path_factory.mktemp("template")
    edits = Edits(root, random.Random(SEED))
    for name, text in FILES.items():
        edits.write(name, text)
    edits.git("init", "--quiet", "--initial-branch=main")
    edits.git("add", "--all")
    edits.commit()
    edits.git("checkout", "--quiet", "-b", "other")
    edits.write("a.yaml", TWICE)
    (root / "run.sh").unlink()
    edits.git("add", "--all")
    edits.commit()
    edits.git("checkout", "--quiet", "main")
    shutil.rmtree(root / ".git" / "hooks")
    return root


@pytest.mark.parametrize("number", range(SEQUENCES * TIMES))
def test_a_report_with_a_cache_is_the_report_without(
    number: int, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = install(tmp_path, monkeypatch)
    monkeypatch.setattr(index, "MIN_FILES_TO_CACHE", 1)
    monkeypatch.setattr(listing, "MIN_INDEX_TO_CACHE", 1)
    draw = random.Random(f"{SEED}-{number}")
    root = tmp_path / "around" / "repository"
    shutil.copytree(template, root)
    edits = Edits(root, draw)
    environment = {"HF_HUB_CACHE": str(tmp_path / "around" / "hub"), "HOME": str(tmp_path / "around")}
    words = draw.choice(CALLS)
    history = [str(words)]
    for _ in range(STEPS):
        time.sleep(0.005)  # no two edits around a lint within one tick of the kernel's clock
        history.append(edits.apply())
        time.sleep(0.005)
        before = read_all(stored)
        calls: set[tuple[str, str]] = set()
        with watch(tmp_path / "around", calls):
            outcome = run_cfglint(*words, cwd=root, environment=environment, replayed=True)
        after = read_all(stored)
        assert outcome == run_cfglint("--no-cache", *words, cwd=root, environment=environment), f"{number}: {history}"
        for name in after.keys() - before.keys() | {name for name in before if before[name] != after.get(name)}:
            assert not list_unrecorded(calls, read_questions(stored / name)), f"{number}: {history}"


@pytest.mark.parametrize("number", range(LONG_SEQUENCES * TIMES))
def test_cached_facts_are_those_of_the_files(
    number: int, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ask the index alone, which takes a hundredth of the time of a lint."""
    monkeypatch.setattr(filesystem, "TICK", 0)
    monkeypatch.setattr(index, "MIN_FILES_TO_CACHE", 1)
    monkeypatch.setattr(listing, "MIN_INDEX_TO_CACHE", 1)
    monkeypatch.setattr(known_facts, "_MAX_CHANGED", number % 3)
    root = tmp_path / "around" / "repository"
    shutil.copytree(template, root)
    edits = Edits(root, random.Random(f"{SEED}-{number}"))
    history = []
    signs = sorted({sign for clues in CLUES.values() for kind in clues.values() for sign in kind})
    for _ in range(LONG_STEPS):
        time.sleep(0.005)
        with suppress(OSError):
            edits.pick().write_bytes(b" ".join(edits.draw.sample(signs, 2)) + b" a.yaml\n")
        history.append(edits.apply())
        time.sleep(0.005)
        assert ask_index(root, str(tmp_path / "cache")) == ask_index(root, None), f"{number}: {history}"
    assert any((tmp_path / "cache" / "repositories").iterdir())


def ask_index(root: Path, cache: str | None) -> dict[str, list[object]]:
    """Return all answers that rest on cached facts."""
    repository_index = RepositoryIndex(
        str(root), lambda _: Settings(str(root)), Texts(), None, [str(root)], cache=lambda: cache
    )
    names = [path.rpartition("/")[2] for path in (*FILES, *SPARE)]
    return {
        **{question: list(repository_index.read_texts(question)) for question in get_args(Question)},
        **{name: list(repository_index.find_scripts_naming(name)) for name in names},
        **{f"{name} in Python": list(repository_index.find_python_naming(name)) for name in names},
        "files": list(repository_index.find_by_extension(("",))),
    }


def read_all(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}
