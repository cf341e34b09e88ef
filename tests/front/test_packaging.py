"""Distributions: three packages, complete and without extra files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from pre_commit import clientlib
from tools.bump import bump_version

import cfglint_train
from cfglint_rules.catalogue import read
from cfglint_train.repository import files
from cfglint_train.version import VERSION
from tests.support.configs import REMOTE_CODE
from tests.support.corpus import REPOSITORY
from tests.support.upstream import list_tree

ROOTS = ("lint", "rules", "schemas")
MANIFESTS = (".pre-commit-hooks.yaml", "pre-commit-hooks.yaml")


CASES = "fixtures/cases/"


def locate_installed(name: str) -> str:
    """Return the installed path of a file: relative to its source root, or in the folder of the demo cases."""
    if name.startswith(CASES):
        return f"cfglint_train/front/cases/{name.removeprefix(CASES)}"
    return name.partition("/")[2]


UNSHIPPED = re.compile(r"lint/cfglint_train/calibration/data/|fixtures/cases/[^/]+/(fixed/|expected\.txt$)")
"""Measurements and the expected results of the cases: part of the repository, not of the wheel."""

CATALOGUE = "cfglint_rules/catalogue.json"
"""Catalogue that the build hook writes."""

SHIPPED = [name for name in list_tree(*ROOTS, CASES) if not UNSHIPPED.match(name)]

# --- names -----------------------------------------------------------------------------------------------------------


def test_modules_that_are_there_are_the_ones_that_git_has(tmp_path):
    """Check that git tracks every module: an ignored one works here but is missing everywhere else."""
    here = {str(path.relative_to(REPOSITORY)) for root in ROOTS for path in (REPOSITORY / root).rglob("*.py")}
    assert here == {name for name in list_tree(*ROOTS) if name.endswith(".py")}


# --- the distributions -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> dict[str, Path]:
    """Build an sdist, the wheel built from it, and a wheel built from the tree."""
    source = tmp_path_factory.mktemp("source")
    for name in list_tree():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, source / name)
    paths = {}
    for kind, flags in (("both", ()), ("direct", ("--wheel",))):
        out = source.with_name(f"{source.name}-{kind}")
        command = [sys.executable, "-m", "build", *flags, "--outdir", str(out), str(source)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stdout + process.stderr
        for path in out.iterdir():
            paths["sdist" if path.name.endswith(".gz") else f"{kind} wheel"] = path
        shutil.rmtree(source / "build", ignore_errors=True)
    return paths


@pytest.mark.slow
def test_the_wheel_holds_the_tree_and_nothing_else(distributions):
    expected = sorted([CATALOGUE, *(locate_installed(name) for name in SHIPPED)])
    for kind in ("both wheel", "direct wheel"):
        with zipfile.ZipFile(distributions[kind]) as wheel:
            names = wheel.namelist()
            information = f"cfglint_train-{VERSION}.dist-info"
            assert sorted(name for name in names if not name.startswith(information)) == expected
            scripts = wheel.read(f"{information}/entry_points.txt").decode()
            for name in SHIPPED:
                assert wheel.read(locate_installed(name)) == (REPOSITORY / name).read_bytes()
            assert json.loads(wheel.read(CATALOGUE)) == json.loads(
                json.dumps(read(str(REPOSITORY / "rules/cfglint_rules")))
            )
    assert "cfglint = cfglint_train.front.process:main" in scripts
    assert "cfglint-train = cfglint_train.front.process:main" in scripts


@pytest.mark.slow
def test_two_builds_make_the_same_wheel(distributions):
    """Build from the tree and from the sdist; the wheels must be identical byte for byte."""
    assert distributions["both wheel"].read_bytes() == distributions["direct wheel"].read_bytes()


@pytest.mark.slow
def test_the_sdist_holds_what_a_wheel_is_made_of(distributions):
    with tarfile.open(distributions["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*list_tree(*ROOTS, CASES), "pyproject.toml", "hatch_build.py", "README.md"} <= names


@pytest.mark.slow
def test_a_regular_installation_lints_and_fixes(distributions, tmp_path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = venv / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, str(distributions["both wheel"])], check=True)
    work = tmp_path / "work"
    shutil.copytree(REPOSITORY / "fixtures" / "cases", work / "cases")
    (work / "config.yaml").write_text(REMOTE_CODE)
    for command in (
        [str(venv / "bin" / "cfglint")],
        [str(venv / "bin" / "cfglint-train")],
        [str(python), "-m", "cfglint_train"],
    ):
        process = subprocess.run([*command, "--version"], cwd=work, capture_output=True, text=True, check=True)
        assert process.stdout == f"cfglint {VERSION}\n"
    cfglint = str(venv / "bin" / "cfglint")
    process = subprocess.run(
        [cfglint, "--output-format", "concise", "."], cwd=work, capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (1, "")
    assert "CKP001" in process.stdout
    assert "SEC001" in process.stdout
    process = subprocess.run([cfglint, "calibrate", "report"], cwd=work, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert "measurements are not installed" in process.stderr
    # The package links to the rule pages once the placeholder address is replaced.
    sarif = [cfglint, "--output-format", "sarif", "config.yaml"]
    process = subprocess.run(sarif, cwd=work, capture_output=True, text=True, check=False)
    assert "helpUri" not in process.stdout
    [metadata] = venv.rglob("cfglint_train-*.dist-info/METADATA")
    metadata.write_text(metadata.read_text(encoding="utf-8").replace("OWNER", "acme"), encoding="utf-8")
    process = subprocess.run(sarif, cwd=work, capture_output=True, text=True, check=False)
    assert '"helpUri": "https://acme.github.io/cfglint/rules/SEC001/"' in process.stdout
    # Every syntax and data file is included: lint all fixtures without an internal error.
    shutil.copytree(REPOSITORY / "fixtures", work / "fixtures")
    process = subprocess.run(
        [cfglint, "--output-format", "concise", "fixtures"], cwd=work, capture_output=True, text=True, check=False
    )
    assert "please report it" not in process.stdout + process.stderr
    subprocess.run([cfglint, "--fix-only", "--unsafe-fixes", "config.yaml"], cwd=work, capture_output=True, check=True)
    assert "trust_remote_code: true" not in (work / "config.yaml").read_text()
    modules = (
        "import cfglint_train.documents.shell.document, cfglint_train.documents.python.document, cfglint_train.api"
    )
    subprocess.run([str(python), "-c", modules], cwd=work, check=True)


# --- dependencies ----------------------------------------------------------------------------------------------------

DEPENDENCIES = [
    Requirement(stated)
    for stated in tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    if (marker := Requirement(stated).marker) is None or marker.evaluate()
]
BUILD = [
    Requirement(stated)
    for stated in tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["build-system"]["requires"]
]
EVERY_SYNTAX = [
    "fixtures/cases",
    "fixtures/openrlhf",
    "fixtures/deepspeed",
    "fixtures/olmo_core",
    "fixtures/rules/KEY004",
]


def pin_lowest(requirement: Requirement) -> str:
    (bound,) = (specifier.version for specifier in requirement.specifier if specifier.operator == ">=")
    return f"{requirement.name}=={bound}"


def test_every_dependency_ends_before_the_next_release_that_may_break():
    for requirement in DEPENDENCIES:
        assert sorted(bound.operator for bound in requirement.specifier) == ["<", ">="], requirement


@pytest.mark.slow
def test_the_lowest_and_the_newest_dependencies_read_alike(tmp_path):
    """Lint and diff every syntax with both sets of dependencies, isolated from other installed packages."""
    outcomes = []
    for kind in ("lowest", "newest"):
        folder = tmp_path / kind
        wanted = [pin_lowest(requirement) if kind == "lowest" else str(requirement) for requirement in DEPENDENCIES]
        install = [
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
            "--target",
            str(folder),
        ]
        subprocess.run([sys.executable, "-m", "pip", *install, *wanted], check=True)
        assert len(list(folder.glob("*.dist-info"))) == len(DEPENDENCIES)
        path = os.pathsep.join([*(str(REPOSITORY / root) for root in ROOTS), str(folder)])
        for words in (["--output-format", "json"], ["--diff", "--unsafe-fixes"]):
            process = subprocess.run(
                [sys.executable, "-S", "-m", "cfglint_train", "--isolated", "--no-cache", *words, *EVERY_SYNTAX],
                cwd=REPOSITORY, env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": str(tmp_path)},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert process.returncode == 1, process.stderr
            assert "please report it" not in process.stdout + process.stderr
            outcomes.append(process.stdout)
    assert all(len(outcome) > 1000 for outcome in outcomes)
    assert outcomes[:2] == outcomes[2:]


def test_the_draft_for_conda_needs_the_same():
    recipe = yaml.safe_load((REPOSITORY / ".github" / "conda" / "recipe.yaml").read_text())
    for kind, requirements in (("run", DEPENDENCIES), ("host", BUILD)):
        listed = [Requirement(item) for item in recipe["requirements"][kind] if "$" not in item and item != "pip"]
        assert {(item.name, item.specifier) for item in listed} == {
            (item.name.lower(), item.specifier) for item in requirements
        }


# --- pre-commit ------------------------------------------------------------------------------------------------------


def test_both_manifests_are_one():
    """Check that the dotted file, which pre-commit reads, is a regular file: Windows checks out symlinks as text."""
    first, second = (REPOSITORY / name for name in MANIFESTS)
    assert not first.is_symlink()
    assert second.readlink() == Path(first.name)


def test_the_manifest_is_valid():
    hooks = clientlib.load_manifest(str(REPOSITORY / MANIFESTS[0]))
    assert [hook["id"] for hook in hooks] == ["cfglint", "cfglint-fix"]
    for hook in hooks:
        assert hook["require_serial"] is True
        assert "--force-exclude" in hook["entry"].split()
        assert hook["language"] == "python"


@pytest.mark.parametrize("number", [0, 1])
def test_the_hooks_take_the_files_that_cfglint_reads(number):
    hook = yaml.safe_load((REPOSITORY / MANIFESTS[0]).read_text())[number]
    pattern = re.compile(hook["files"])
    for extension, syntax in files.SYNTAXES.items():
        configures = syntax not in (
            "notebook",
            "recipes",
        )  # these only contain launch commands; the hooks need not check them
        assert (pattern.search(f"runs/a.b{extension}") is not None) == configures
        assert not pattern.search(f"runs/a{extension}.txt")
        assert not pattern.search(f"runs/{extension[1:]}")
    for name in ("Makefile", "model.safetensors", "notes.md", "pyproject.toml", "x.pyc", "x.ipynb", "data.jsonl"):
        assert not pattern.search(name)


# --- the image -------------------------------------------------------------------------------------------------------

DOCKERFILE = REPOSITORY / "Dockerfile"


def test_hadolint_finds_nothing():
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        ["hadolint", str(DOCKERFILE)], env={**os.environ, "PATH": places}, capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stdout) == (0, "")


@pytest.mark.slow
def test_the_steps_of_the_image_make_a_command_that_lints(tmp_path):
    """Run the COPY and RUN steps of the Dockerfile's first stage in a temporary folder."""
    first, second = DOCKERFILE.read_text(encoding="utf-8").split("\nFROM ")[1:3]
    source, image = tmp_path / "source", tmp_path / "cfglint"
    source.mkdir()
    copied = [line.split()[1:] for line in first.splitlines() if line.startswith("COPY ")]
    for *names, target in copied:
        for name in names:
            for path in list_tree(name):
                below = path if name == target else Path(path).name if target != "./" else path
                (source / below).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(REPOSITORY / path, source / below)
    script = first[first.index("RUN ") :].removeprefix("RUN ").replace("/cfglint", str(image))
    process = subprocess.run(["bash", "-euc", script], cwd=source, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "USER 10001:10001" in second
    assert 'ENTRYPOINT ["cfglint"]' in second
    (tmp_path / "config.yaml").write_text(REMOTE_CODE)
    lint = [str(image / "bin" / "cfglint"), "--output-format", "concise", "config.yaml"]
    environment = {**os.environ, "CFGLINT_CACHE_DIR": "", "PYTHONPATH": ""}
    process = subprocess.run(lint, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "SEC001" in process.stdout, process.stderr


# --- the next version ------------------------------------------------------------------------------------------------


def test_a_patch_version_is_written_once_and_dated(tmp_path):
    (tmp_path / "lint" / "cfglint_train").mkdir(parents=True)
    module = tmp_path / "lint" / "cfglint_train" / "__init__.py"
    module.write_text('"""Text."""\n\n__version__ = "1.2.9"\n')
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\n- A change.\n")
    assert bump_version(tmp_path, "2026-01-02") == "1.2.10"
    assert module.read_text() == '"""Text."""\n\n__version__ = "1.2.10"\n'
    assert changelog.read_text() == "# Changelog\n\n## Unreleased\n\n## 1.2.10 - 2026-01-02\n\n- A change.\n"
    module.write_text("__version__ = version()\n")
    with pytest.raises(ValueError, match="expected a line"):
        bump_version(tmp_path, "2026-01-02")


def test_the_package_says_its_version_and_its_licence(distributions):
    with zipfile.ZipFile(distributions["direct wheel"]) as wheel:
        information = f"cfglint_train-{VERSION}.dist-info"
        metadata = wheel.read(f"{information}/METADATA").decode()
        assert wheel.read(f"{information}/licenses/LICENSE") == (REPOSITORY / "LICENSE").read_bytes()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert cfglint_train.__version__ == VERSION
    # Relative links to the repository would be broken on an index page.
    assert [link for link in re.findall(r"\]\(([^)]+)\)", metadata) if not link.startswith(("https://", "#"))] == []
