"""Forks: evidence of a fork, and the findings that upstream's vocabulary then supports."""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import dedent

import pytest

from cfglint_rules.registry import RULES
from cfglint_train.findings.finding import SEVERITIES, Finding
from cfglint_train.frameworks.registry import list_packages
from cfglint_train.plan.certainty import LOWERED
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, LIMITED
from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, lint, list_runs

FIXTURES = sorted((REPOSITORY / "fixtures" / "rules").glob("KEY*/fires"))

# Files, with their texts, that install or contain a fork of axolotl, and the name that the finding uses for them.
EVIDENCE = {
    "pip": (
        "requirements.txt",
        "torch\naxolotl @ git+https://x:secret@github.com/lab/ax@4f1d2c3\n",
        "`github.com/lab/ax@4f1d2c3` is installed (requirements.txt:2)",
    ),
    "archive": (
        "requirements.txt",
        "axolotl @ https://github.com/lab/ax/archive/refs/heads/moe.zip\n",
        "`github.com/lab/ax@moe` is installed (requirements.txt:1)",
    ),
    "submodule beside the repository": (
        ".gitmodules",
        '[submodule "deps/ax"]\n\tpath = deps/ax\n\turl = ../axolotl.git\n',
        "`../axolotl.git` is a submodule (.gitmodules:1)",
    ),
    "editable": (
        "requirements.txt",
        "-e git+ssh://git@gitlab.lab.org/ml/ax.git@main#egg=axolotl",
        "`gitlab.lab.org/ml/ax@main` is installed (requirements.txt:1)",
    ),
    "namesake": (
        "requirements.txt",
        "git+https://github.com/lab/Axolotl.git",
        "`github.com/lab/Axolotl` is installed (requirements.txt:1)",
    ),
    "uv": (
        "pyproject.toml",
        '[project]\nname = "x"\ndependencies = ["axolotl"]\n[tool.uv.sources]\n'
        'axolotl = { git = "https://github.com/lab/ax", branch = "moe" }\n',
        "`github.com/lab/ax@moe` is installed (pyproject.toml:5)",
    ),
    "poetry": (
        "pyproject.toml",
        '[tool.poetry.dependencies]\naxolotl = { git = "git@github.com:lab/ax.git" }\n',
        "`github.com/lab/ax` is installed (pyproject.toml:2)",
    ),
    "folder": (
        "requirements.txt",
        "torch\n-e ./libs/axolotl[flash-attn]\n",
        "`./libs/axolotl` is installed (requirements.txt:2)",
    ),
    "uv's folder": (
        "pyproject.toml",
        '[project]\nname = "x"\ndependencies = ["axolotl"]\n[tool.uv.sources]\n'
        'axolotl = { path = "../ax", editable = true }\n',
        "`../ax` is installed (pyproject.toml:5)",
    ),
    "folder of an image": (
        "Dockerfile",
        "FROM x\nCOPY axolotl /opt/axolotl\nRUN pip install -e /opt/axolotl\n",
        "`/opt/axolotl` is installed (Dockerfile:3)",
    ),
    "uv.lock": (
        "uv.lock",
        '[[package]]\nname = "axolotl"\nversion = "0.21.0"\n'
        'source = { git = "https://github.com/lab/ax?branch=moe#4f1d2c3" }\n',
        "`github.com/lab/ax@moe` is installed (uv.lock:2)",
    ),
    "poetry.lock": (
        "poetry.lock",
        '[[package]]\nname = "axolotl"\nversion = "0.21.0"\n\n[package.source]\ntype = "git"\n'
        'url = "https://github.com/lab/ax.git"\nreference = "moe"\n',
        "`github.com/lab/ax@moe` is installed (poetry.lock:2)",
    ),
    "Dockerfile": (
        "Dockerfile",
        "FROM x\nRUN git clone https://github.com/lab/axolotl && pip install -e axolotl\n",
        "`github.com/lab/axolotl` is installed (Dockerfile:2)",
    ),
    "submodule": (
        ".gitmodules",
        '[submodule "x"]\n\tpath = x\n\turl = https://github.com/lab/x\n'
        '[submodule "third_party/ax"]\n\tpath = third_party/axolotl\n\turl = git@github.com:lab/ax.git\n',
        "`github.com/lab/ax` is a submodule (.gitmodules:4)",
    ),
    "a folder of an image": (
        "Dockerfile",
        "FROM x\nWORKDIR /workspace/axolotl\nCOPY third_party/a .\nRUN pip install -e .\n",
        "`/workspace/axolotl` is installed (Dockerfile:4)",
    ),
}
# Files that patch the installed axolotl and name `novelty_bonus`, and the text of the finding about them.
PATCHES = {
    "patch": (
        "clip.patch",
        "--- a/src/axolotl/args.py\n+++ b/src/axolotl/args.py\n@@ -1 +1,2 @@\n x = 1\n+novelty_bonus: int = 2\n",
        "`clip.patch` may patch `axolotl/args.py`",
    ),
    "patch inside a script": (
        "setup.sh",
        "cd axolotl && git apply <<'EOF'\n--- a/src/axolotl/train.py\n+++ b/src/axolotl/train.py\n@@ -1 +1 @@\n"
        '+cfg["novelty_bonus"]\nEOF\n',
        "`setup.sh` may patch `axolotl/train.py`",
    ),
    "edit in place": (
        "setup.sh",
        "pip install axolotl\nsed -i 's/a/novelty_bonus: int/' \\\n  $SITE/axolotl/train.py\n",
        "`setup.sh` may patch `axolotl/train.py`",
    ),
    "copied over": (
        "setup.sh",
        'cp fixes/train.py "$SITE/axolotl/train.py" && echo done\n',
        "`setup.sh` may patch `axolotl/train.py`",
    ),
    "copied over in an image": (
        "Dockerfile",
        "FROM x\nCOPY fixes/train.py /opt/venv/lib/python3.11/site-packages/axolotl/train.py\n",
        "`Dockerfile` may patch `axolotl/train.py`",
    ),
    "whenever Python starts": (
        "sitecustomize.py",
        'import axolotl.train\naxolotl.train.KEYS = ["novelty_bonus"]\n',
        "`sitecustomize.py` may patch `axolotl`",
    ),
}
NO_EVIDENCE = {
    "a branch of upstream": ("requirements.txt", "axolotl @ git+https://github.com/axolotl-ai-cloud/axolotl@main"),
    "Python that mentions an installed path": (
        "count.py",
        'WATCHED = "site-packages/axolotl/train.py"  # novelty_bonus\nopen("novelty_bonus.txt", "w")\n',
    ),
    "a patch that names another key": (
        "clip.patch",
        "--- a/src/axolotl/args.py\n+++ b/src/axolotl/args.py\n@@ -1 +1,2 @@\n x = 1\n+other: int = 2\n",
    ),
    "a patch elsewhere": (
        "demo/clip.patch",
        "--- a/src/axolotl/args.py\n+++ b/src/axolotl/args.py\n@@ -1 +1,2 @@\n x = 1\n+novelty_bonus: int = 2\n",
    ),
    "a release of upstream": ("requirements.txt", "axolotl @ git+https://github.com/axolotl-ai-cloud/axolotl@v0.21.0"),
    "another package": ("requirements.txt", "git+https://github.com/lab/axolotl-datasets@main"),
    "locked to a tag": (
        "uv.lock",
        '[[package]]\nname = "axolotl"\nversion = "0.21.0"\n'
        'source = { git = "https://github.com/axolotl-ai-cloud/axolotl?tag=v0.21.0#4f1d2c3" }\n',
    ),
    "the newest upstream": ("Dockerfile", "RUN git clone https://github.com/axolotl-ai-cloud/axolotl.git\n"),
    "a folder of another package": (
        "requirements.txt",
        "-e ./libs/metrics\n-e .\n./wheels/axolotl-0.21.0-py3-none-any.whl\n",
    ),
    "the clone of upstream": (
        "Dockerfile",
        "RUN git clone -b v0.21.0 https://github.com/axolotl-ai-cloud/axolotl /o/axolotl\n"
        "RUN pip install -e /o/axolotl\n",
    ),
    "a patch of another package": ("x.patch", "--- a/vllm/engine.py\n+++ b/vllm/engine.py\n@@ -1 +1 @@\n-a\n+b\n"),
    "a file of its own": ("tools/axolotl/run.py", "sed = 'sed -i s/a/b/ tools/axolotl/run.py'\n"),
    "a command that is a comment": ("setup.sh", "# sed -i s/a/b/ $SITE/axolotl/train.py\n"),
    "a copy of the framework's file": ("setup.sh", "cp $SITE/axolotl/train.py reference/\n"),
    "Python that finds it": ("find.py", "import axolotl\nprint(axolotl.__file__, open('found.txt', 'w'))\n"),
    "the repository itself in an image": (
        "Dockerfile",
        "FROM x\nWORKDIR /workspace/axolotl\nCOPY . .\nRUN pip install -e .[dev]\n",
    ),
    "the repository itself by its path in an image": (
        "Dockerfile",
        "FROM x\nCOPY --chown=me ./ /src/axolotl/\nRUN cd /src/axolotl && pip install -e /src/axolotl\n",
    ),
    "another submodule": (".gitmodules", '[submodule "x"]\n\tpath = evals\n\turl = https://github.com/lab/evals\n'),
}


def write_repository(folder: Path, **files: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text), encoding="utf-8")
    return folder


def list_key_findings(folder: Path) -> list[Finding]:
    return [finding for finding in lint(folder).findings if finding.code.startswith("KEY")]


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence_of_a_fork_folds_what_upstream_does_not_take(tmp_path: Path, name: str) -> None:
    path, text, expected = EVIDENCE[name]
    config = AXOLOTL + "novelty_bonus: 1\nsample_packing_efficiency: 1\nfsdp_trace: 2\n"
    (finding,) = list_key_findings(write_repository(tmp_path / "x", **{path: text, "config.yaml": config}))
    assert (finding.code, finding.severity, finding.fix) == ("KEY001", "info", None)
    assert finding.message.endswith(expected)
    assert "secret" not in str(finding)
    assert len(finding.related) == finding.message.count("`, `") > 0


def test_a_submodule_counts_where_no_requirement_installs_a_release_of_upstream(tmp_path: Path) -> None:
    files = {".gitmodules": EVIDENCE["submodule"][1], "config.yaml": AXOLOTL + "novelty_bonus: 1\n"}
    for text, severity in (("axolotl==0.9.2\n", "warning"), ("axolotl>=0.9\n", "info"), ("torch==2.6.0\n", "info")):
        (finding,) = list_key_findings(write_repository(tmp_path / text.strip(), **files, **{"requirements.txt": text}))
        assert finding.severity == severity


@pytest.mark.parametrize("name", NO_EVIDENCE)
def test_what_is_no_evidence_changes_nothing(tmp_path: Path, name: str) -> None:
    path, text = NO_EVIDENCE[name]
    (finding,) = list_key_findings(
        write_repository(tmp_path / "x", **{path: text, "config.yaml": AXOLOTL + "novelty_bonus: 1\n"})
    )
    assert (finding.code, finding.severity) == ("KEY001", "warning")


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_lowers_only_findings_about_keys_that_it_names(tmp_path: Path, name: str) -> None:
    path, text, expected = PATCHES[name]
    files = {path: text, "fixes/train.py": "novelty_bonus: int = 1\n"}
    folder = write_repository(tmp_path / "x", **files, **{"config.yaml": AXOLOTL + "novelty_bonus: 1\nfsdp_trace: 2\n"})
    findings_by_key = {finding.message.split("`")[1]: finding for finding in list_key_findings(folder)}
    assert {key: finding.severity for key, finding in findings_by_key.items()} == {
        "novelty_bonus": "info",
        "fsdp_trace": "warning",
    }
    assert [ground.value for ground in findings_by_key["novelty_bonus"].rests_on if ground.fact == LOWERED] == [
        expected
    ]


def test_what_a_patch_adds_is_known(tmp_path: Path) -> None:
    patch = """\
        --- a/openrlhf/cli/train_sft.py
        +++ b/openrlhf/cli/train_sft.py
        @@ -1,2 +1,3 @@
             parser.add_argument("--zpg", type=int, default=1)
        +    parser.add_argument("--ours", action="store_true")
             parser.add_argument("--bf16", action="store_true")
        """
    folder = write_repository(tmp_path / "x", **{"ours.patch": dedent(patch), "a.sh": format_script("--ours --mine")})
    assert list_unknown_flags(folder) == {"--ours": "info", "--mine": "error"}


@pytest.mark.parametrize("folder", FIXTURES, ids=lambda folder: folder.parent.name)
def test_a_fork_raises_no_severity_and_adds_one_finding_per_configuration(tmp_path: Path, folder: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "x")
    (copy / ".git").mkdir()
    before = list_severities(copy)
    names = [item.distributions[0] for item in list_packages().values()]
    pins = "".join(f"{name} @ git+https://github.com/lab/{name}@main\n" for name in names)
    (copy / "requirements.txt").write_text(pins)
    key_findings = [item for item in lint(copy).findings if RULES[item.code].rests_on_vocabulary]
    certainties = {(item.certainty, item.severity == "error") for item in key_findings}
    assert certainties == ({("assumed", False)} if key_findings else set())
    assert key_findings or folder.parent.name == "KEY007"  # the variables of an environment are no framework's
    assert all("vocabulary" in {ground.fact for ground in item.rests_on} for item in key_findings)
    assert {item.intent.applicability for item in key_findings if item.intent is not None} <= {"unsafe", "display"}
    after = list_severities(copy)
    assert all(SEVERITIES.index(after[key]) >= SEVERITIES.index(before[key]) for key in before.keys() & after.keys())
    assert {(key[0], after[key]) for key in after.keys() - before.keys()} <= {("KEY001", "info"), ("CHK001", "info")}
    (copy / "requirements.txt").unlink()
    assert list_severities(copy) == before


def list_severities(folder: Path) -> dict[tuple[object, ...], str]:
    """Return the severities of findings, by everything else that distinguishes them."""
    return {
        (finding.code, finding.path, finding.start, finding.message): finding.severity
        for finding in lint(folder).findings
    }


OPENRLHF = """\
#!/bin/bash
deepspeed --module {program} \\
   --pretrain meta-llama/Llama-3.1-8B \\
   --dataset data \\
   --max_len 2048 \\
   --zero_stage 3 \\
   --micro_train_batch_size 1 \\
   {flags}
"""
PARSER = """\
import argparse
parser = argparse.ArgumentParser()
for name in ("pretrain", "dataset", "save_path"):
    parser.add_argument(f"--{name}", type=str, default="x")
for name in ("max_len", "zero_stage", "micro_train_batch_size"):
    parser.add_argument(f"--{name}", type=int, default=1)
parser.add_argument("--estimator", choices=["ours", "theirs"])
parser.add_argument("--ours", action="store_true")
args = parser.parse_args()
"""


def format_script(flags: str, program: str = "openrlhf.cli.train_sft") -> str:
    return OPENRLHF.format(program=program, flags=flags)


def list_codes(folder: Path) -> list[tuple[str, str, str]]:
    return [(finding.code, finding.severity, finding.message) for finding in list_key_findings(folder)]


def list_unknown_flags(folder: Path) -> dict[str, str]:
    """Return the flags that are reported as unknown, with the severities."""
    return {message.split("`")[1]: severity for code, severity, message in list_codes(folder) if code == "KEY001"}


def test_the_parser_of_a_copy_decides(tmp_path: Path) -> None:
    files = {"openrlhf/cli/train_sft.py": PARSER, "scripts/a.sh": format_script("--ours --estimator ours")}
    folder = write_repository(tmp_path / "x", **files)
    assert list_codes(folder) == []
    (folder / "scripts" / "a.sh").write_text(
        format_script("--estimator upstream --adam_offload --zero_stages 2 --save_pat y")
    )
    assert sorted(message.partition(" not ")[0] for _, _, message in list_codes(folder)) == [
        "OpenRLHF in openrlhf/ has no `--adam_offload`: it is refused",
        "OpenRLHF in openrlhf/ has no `--zero_stages`: it is refused; did you mean `--zero_stage`?",
        '`--estimator` must be one of "ours", "theirs",',
    ]
    assert {severity for _, severity, _ in list_codes(folder)} == {"error"}


OLMO = (REPOSITORY / "fixtures" / "acceptance" / "forks" / "olmo-no-fork" / "configs" / "probe.yaml").read_text()
LLAMAFACTORY = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: lora\ndataset: d\noutput_dir: o\n"
TRL = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: d\npacking: true\nlearning_rate: 1.0e-5\nuse_peft: true\n"
VERSIONS = {
    "LLaMA-Factory": ("lf/src/llamafactory/extras/env.py", 'X = 1\nVERSION = "0.9.1"\n', "0.9.1", "env.py:2"),
    "LLaMA-Factory of 2024": ("src/llmtuner/__init__.py", '__version__ = "0.7.1"\n', "0.7.1", "__init__.py:1"),
    "LLaMA-Factory's command": ("src/llmtuner/cli.py", 'VERSION = "0.7.1"\n', "0.7.1", "cli.py:1"),
    "an unfinished one": ("src/llamafactory/extras/env.py", 'VERSION = "0.9.2.dev0"\n', "0.9.2", "env.py:1"),
    "axolotl": ("deps/axolotl/src/axolotl/__init__.py", '__version__ = "0.7.0"\n', "0.7.0", "__init__.py:1"),
    "axolotl's file": ("deps/axolotl/VERSION", "0.14.0\n", "0.14.0", "VERSION:1"),
    "TRL's file": ("VERSION", "1.4.0\n", "1.4.0", "VERSION:1"),
    "OLMo": ("olmo/version.py", '_MAJOR = "0"\n_MINOR = "5"\n# next\n_PATCH = "1"\n', "0.5.1", "version.py:1"),
    "OpenRLHF": ("version.txt", "0.6.1\n", "0.6.1", "version.txt:1"),
}
MARKS = {
    "LLaMA-Factory": ("llamafactory/hparams/a.py", "train.yaml", LLAMAFACTORY),
    "LLaMA-Factory of 2024": ("llmtuner/train/a.py", "train.yaml", LLAMAFACTORY),
    "LLaMA-Factory's command": ("llmtuner/train/a.py", "train.yaml", LLAMAFACTORY),
    "an unfinished one": ("llamafactory/hparams/a.py", "train.yaml", LLAMAFACTORY),
    "axolotl": ("axolotl/core/a.py", "train.yaml", AXOLOTL),
    "axolotl's file": ("src/axolotl/core/a.py", "train.yaml", AXOLOTL),
    "TRL's file": ("trl/trainer/sft_config.py", "train.yaml", TRL),
    "OLMo": ("olmo/model.py", "train.yaml", OLMO),
    "OpenRLHF": ("openrlhf/cli/a.py", "a.sh", OPENRLHF.format(program="openrlhf.cli.train_sft", flags="")),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_the_version_of_a_copy_is_the_release(tmp_path: Path, name: str) -> None:
    """Ignore the repository's requirement files; an unfinished version is between two releases."""
    version, text, expected, place = VERSIONS[name]
    mark, path, config = MARKS[name]
    above = version.rpartition(mark.split("/")[0])[0] or version.rpartition("VERSION")[0]
    files = {version: text, above + mark: "class A: pass\n", path: config, "requirements.txt": "transformers\n"}
    folder = write_repository(tmp_path / "x", **files)
    [run] = list_runs(folder)
    release = run.main.releases.by_package[run.framework.manifest.package]
    assert release.version == expected
    assert place in release.origin.note
    [run] = list_runs(folder, **{run.framework.manifest.package.replace("-", "_"): "0.3.0"})
    assert run.main.releases.by_package[run.framework.manifest.package].version == "0.3.0"


def test_the_name_of_a_copy_without_a_version_bounds_its_release(tmp_path: Path) -> None:
    files = {"src/llmtuner/train/a.py": "class A: pass\n", "train.yaml": LLAMAFACTORY}
    [run] = list_runs(write_repository(tmp_path / "x", **files))
    release = run.main.releases.by_package["llamafactory"]
    assert release.version == "0.7.1"
    assert "src/llmtuner (<0.8.0)" in release.origin.note
    (tmp_path / "x" / "src" / "llmtuner").rename(tmp_path / "x" / "src" / "llamafactory")
    [run] = list_runs(tmp_path / "x")
    assert run.main.releases.by_package["llamafactory"].version == "0.9.5"


def test_copies_of_two_versions_state_none(tmp_path: Path) -> None:
    files = {f"{folder_name}/openrlhf/openrlhf/cli/a.py": "" for folder_name in ("a", "b")}
    files |= {f"{folder_name}/openrlhf/version.txt": f"0.{number}.0\n" for number, folder_name in ((6, "a"), (7, "b"))}
    folder = write_repository(tmp_path / "x", **files, **{"train.sh": format_script("")})
    [run] = list_runs(folder)
    assert run.main.releases.by_package["openrlhf"].origin.kind != "user"
    (folder / "b" / "openrlhf" / "version.txt").write_text("0.6.0\n")
    [run] = list_runs(folder)
    assert run.main.releases.by_package["openrlhf"].version == "0.6.0"


def test_what_a_copy_requires_is_its_own_affair(tmp_path: Path) -> None:
    """Use only the text of a copy: OpenRLHF 0.5.8 on PyPI requires transformers 4.48.2, the copy does not."""
    pins = "transformers==4.46.3\n"
    files = {"version.txt": "0.5.8\n", "openrlhf/cli/train_sft.py": PARSER, "requirements.txt": pins}
    folder = write_repository(tmp_path / "x", **files, **{"a.sh": format_script("")})
    assert not [finding for finding in lint(folder).findings if finding.code.startswith("REL")]
    shutil.rmtree(folder / "openrlhf")
    (folder / "requirements.txt").write_text(pins + "openrlhf==0.5.8\n")
    assert [finding.code for finding in lint(folder).findings if finding.code.startswith("REL")] == ["REL003"]


def test_a_flag_that_takes_a_word_for_a_boolean_is_no_switch(tmp_path: Path) -> None:
    """Require a word after the flag: `type=bool` makes any word true, and argparse needs a word."""
    parser = PARSER.replace(
        'parser.add_argument("--ours", action="store_true")', 'parser.add_argument("--ours", type=bool)'
    )
    files = {"openrlhf/cli/train_sft.py": parser, "a.sh": format_script("--ours true")}
    assert list_codes(write_repository(tmp_path / "x", **files)) == []
    ((code, severity, message),) = list_codes(
        write_repository(tmp_path / "y", **{**files, "a.sh": format_script("--ours")})
    )
    assert (code, severity, message) == ("KEY004", "error", "`--ours` needs a value (a string): it is refused")


def test_a_word_that_no_flag_takes_is_said_once(tmp_path: Path) -> None:
    """Read `fi` after a backslash as a word of the command; the flag before it already has its value."""
    text = "if true; then\n" + format_script("").rstrip().removesuffix("\\") + " \\\n   --estimator ours \\\nfi\n"
    files = {"openrlhf/cli/train_sft.py": PARSER, "a.sh": text.replace("#!/bin/bash\n", "")}
    findings = lint(write_repository(tmp_path / "x", **files)).findings
    assert [finding.code for finding in findings if finding.severity == "error"] == ["SYN007"]


@pytest.mark.parametrize(("declared", "doubted"), [("", True), ('[submodule "x"]\n\tpath = x\n', False)])
def test_a_submodule_that_is_not_checked_out_leaves_an_empty_folder(
    tmp_path: Path, declared: str, doubted: bool
) -> None:
    (tmp_path / "axolotl").mkdir()
    (tmp_path / ".git").mkdir()
    if declared:
        (tmp_path / ".gitmodules").write_text(declared)
    (tmp_path / "run.yaml").write_text(AXOLOTL + "stranger: 1\n")
    (finding,) = [finding for finding in lint(tmp_path).findings if finding.code == "KEY001"]
    assert ("`axolotl`" in finding.message and "is empty" in finding.message) is doubted


def test_the_nearest_copy_counts(tmp_path: Path) -> None:
    other = PARSER.replace("--ours", "--mine")
    files = {
        "openrlhf/cli/train_sft.py": PARSER,
        "a/src/openrlhf/cli/train_sft.py": other,
        "a/scripts/a.sh": format_script("--mine"),
        "scripts/a.sh": format_script("--ours"),
        "b/one/OpenRLHF/openrlhf/cli/train_sft.py": PARSER,
        "b/two/OpenRLHF/openrlhf/cli/train_sft.py": PARSER,
        "b/scripts/a.sh": format_script("--ours"),
    }
    folder = write_repository(tmp_path / "x", **files)
    assert list_codes(folder) == []
    (folder / "b" / "two" / "OpenRLHF" / "openrlhf" / "cli" / "train_sft.py").write_text(other)
    ((code, severity, message),) = list_codes(folder)
    assert (code, severity) == ("KEY001", "info")
    assert message.endswith("the copy in `b/one/OpenRLHF/openrlhf` differs from the copy in `b/two/OpenRLHF/openrlhf`")


def test_a_copy_that_no_launch_uses_lowers_the_keys_that_it_declares(tmp_path: Path) -> None:
    folder = write_repository(
        tmp_path / "x", **{"demo/x/openrlhf/cli/train_sft.py": PARSER, "a.sh": format_script("--ours --mine")}
    )
    assert list_unknown_flags(folder) == {"--ours": "warning", "--mine": "error"}


def test_a_key_that_is_only_suggested_is_not_lowered(tmp_path: Path) -> None:
    copy = PARSER.replace("--ours", "--max_len")
    assert copy != PARSER
    folder = write_repository(
        tmp_path / "x", **{"demo/x/openrlhf/cli/train_sft.py": copy, "a.sh": format_script("--max_lenn 5")}
    )
    assert list_unknown_flags(folder) == {"--max_lenn": "error"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def f(:\n", "cannot be read"),
        ("from openrlhf.arguments import add\nadd(parser)\n" + PARSER, "cannot be read"),
        ("print(1)\n", "cannot be read"),
        (PARSER + "#" * 9_000_000, "is too large to be read"),
    ],
)
def test_a_copy_that_is_not_read_is_a_doubt(tmp_path: Path, text: str, why: str) -> None:
    folder = write_repository(
        tmp_path / "x", **{"openrlhf/cli/train_sft.py": text, "a.sh": format_script("--ours --mine")}
    )
    ((code, severity, message),) = list_codes(folder)
    assert (code, severity) == ("KEY001", "info")
    assert message.endswith(f"a fork may: the copy in `openrlhf` {why}")


@pytest.mark.parametrize(
    ("program", "evidence"),
    [
        ("openrlhf.cli.train_sft", None),
        ("openrlhf.cli.train_sft_dev", "`openrlhf.cli.train_sft_dev` is not an entry point of upstream"),
        ("openrlhf.cli.train_sft2", "`openrlhf.cli.train_sft2` is not an entry point of upstream"),
        ("lab.train_sft", "`lab.train_sft` is not an entry point of upstream"),
    ],
)
def test_an_entry_point_that_upstream_does_not_have_is_a_doubt(
    tmp_path: Path, program: str, evidence: str | None
) -> None:
    folder = write_repository(
        tmp_path / "x", **{"a.sh": format_script("--ours --adam_offload --bf16 --flash_attn", program)}
    )
    code, severity, message = list_codes(folder)[-1]
    assert (code, severity) == ("KEY001", "error" if evidence is None else "info")
    assert evidence is None or message.endswith(evidence)


@pytest.mark.parametrize(("release", "is_own"), [("0.3.2", True), ("0.3.6", False)])
def test_a_script_is_upstreams_entry_point_only_before_0_3_6(tmp_path: Path, release: str, is_own: bool) -> None:
    script = "# cfglint: nodes=1 gpus-per-node=7\ndeepspeed ../train_sft.py --train_batch_size 256 --max_epochs 1"
    script += " --micro_train_batch_size 2 --pretrain meta-llama/Llama-2-7b-hf --zero_stage 2 --bf16 --max_len 2048\n"
    files = {"scripts/a.sh": script, "requirements.txt": f"openrlhf=={release}\n"}
    result = lint(write_repository(tmp_path / "x", **files), build_options(select=["BAT002"]))
    assert bool(result.findings) is is_own


@pytest.mark.parametrize("program", ["openrlhf.cli.train_sfting", "openrlhf.cli.my_train", "lab.train_sft_dev"])
def test_other_programs_are_none_of_openrlhfs(tmp_path: Path, program: str) -> None:
    assert list_codes(write_repository(tmp_path / "x", **{"a.sh": format_script("--ours", program)})) == []


def test_an_entry_point_elsewhere_in_the_repository_says_nothing(tmp_path: Path) -> None:
    other = "python -m openrlhf.cli.train_acme --acme_coef 1\n"
    folder = write_repository(tmp_path / "x", **{"a.sh": format_script("--acme_coef 1"), "jobs/b.sh": other})
    assert list_unknown_flags(folder)["--acme_coef"] == "error"


def test_a_copy_without_the_entry_point_is_a_doubt(tmp_path: Path) -> None:
    files = {"openrlhf/cli/train_sft.py": PARSER, "a.sh": format_script("--ours", "openrlhf.cli.train_dpo")}
    ((_, severity, message),) = list_codes(write_repository(tmp_path / "x", **files))
    assert (severity, message.partition("; ")[2]) == ("info", "a fork may: the copy in `openrlhf` has no train_dpo")


def test_what_was_read_of_a_copy_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFGLINT_CACHE_DIR", str(tmp_path / "cache"))
    folder = write_repository(tmp_path / "x", **{"openrlhf/cli/train_sft.py": PARSER, "a.sh": format_script("--ours")})
    assert list_codes(folder) == []
    (cached,) = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    with monkeypatch.context() as patched:
        patched.setattr("cfglint_train.forks.vendored._read_table", None)
        assert list_codes(folder) == []
    (folder / "openrlhf" / "cli" / "train_sft.py").write_text(PARSER.replace("--ours", "--mine"))
    assert [code for code, _, _ in list_codes(folder)] == ["KEY001"]
    assert len([path for path in (tmp_path / "cache").rglob("*") if path.is_file()]) == 2
    cached.write_text("nonsense")
    (folder / "openrlhf" / "cli" / "train_sft.py").write_text(PARSER)
    assert list_codes(folder) == []


def test_a_flag_wins_over_the_environment_and_that_over_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_repository(tmp_path / "x", **{"openrlhf/cli/train_sft.py": PARSER, "a.sh": format_script("--ours")})
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.delenv("CFGLINT_CACHE_DIR", raising=False)

    def list_cache_folders(*arguments: str) -> list[str]:
        """Return the folders below `tmp_path` in which a lint has stored a text, and empty them."""
        assert run_cfglint(*arguments, "a.sh", cwd=folder).code == 0
        folders = {path.relative_to(tmp_path).parent for path in tmp_path.rglob("vocabulary/*")}
        for path in tmp_path.rglob("vocabulary/*"):
            path.unlink()
        return sorted(map(str, folders))

    assert list_cache_folders() == ["home/cfglint/vocabulary"]
    (folder / "cfglint.toml").write_text('cache-dir = "own"\n')
    assert list_cache_folders() == ["x/own/vocabulary"]
    monkeypatch.setenv("CFGLINT_CACHE_DIR", str(tmp_path / "stated"))
    assert list_cache_folders() == ["stated/vocabulary"]
    assert list_cache_folders("--cache-dir", "../flag") == ["flag/vocabulary"]
    assert list_cache_folders("--cache-dir", "../flag", "--no-cache") == []
    monkeypatch.setenv("CFGLINT_CACHE_DIR", "")
    assert list_cache_folders() == []


def test_a_folder_that_only_has_the_name_is_no_copy(tmp_path: Path) -> None:
    files = {
        "plugins/openrlhf/__init__.py": "",
        "openrlhf/cli/train_sft.py": PARSER,
        "plugins/a.sh": format_script("--ours"),
    }
    folder = write_repository(tmp_path / "x", **files)
    assert list_codes(folder) == []
    (folder / "openrlhf" / "cli" / "train_sft.py").unlink()
    (folder / "openrlhf" / "cli").rmdir()
    (folder / "openrlhf" / "notes.md").touch()  # an empty folder would be a submodule that is not checked out
    assert [(code, severity) for code, severity, _ in list_codes(folder)][-1] == ("KEY001", "error")


@pytest.mark.parametrize(
    ("part", "text", "config"),
    [
        (
            "src/llamafactory/hparams/finetuning_args.py",
            "@dataclass\nclass FinetuningArguments:\n    ours: float = 1.0\n",
            ("a.yaml", LIMITED + "ours: 1\ntheirs: 1\n"),
        ),
        (
            "openrlhf/cli/train_sft.py",
            "from openrlhf.arguments import add\nadd(parser)\nparser.add_argument('--ours', type=int)\n",
            ("a.sh", format_script("--ours 1 --theirs 1")),
        ),
    ],
)
def test_what_a_copy_of_a_part_declares_is_not_unknown(
    tmp_path: Path, part: str, text: str, config: tuple[str, str]
) -> None:
    path, content = config
    folder = write_repository(tmp_path / "x", **{part: text, path: content})
    ((code, severity, message),) = list_codes(folder)
    assert (code, severity) == ("KEY001", "info")
    assert "ours`" not in message
    assert "theirs`; a fork may" in message
    (folder / path).write_text(content.replace("theirs: 1\n", "").replace("--theirs 1", ""))
    assert list_codes(folder) == []


SFT = format_script("--ours")
FACTORY = LIMITED + "ours: 1\n"
PARTS = {
    "axolotl without the schemas": ("axolotl/core/builders.py", "a.yaml", AXOLOTL + "ours: 1\n"),
    "axolotl with one schema": ("axolotl/utils/schemas/training.py", "a.yaml", AXOLOTL + "ours: 1\n"),
    "LLaMA-Factory with one class": ("src/llamafactory/hparams/finetuning_args.py", "a.yaml", FACTORY),
    "LLaMA-Factory with one trainer": ("llamafactory/train/sft/trainer.py", "a.yaml", FACTORY),
    "LLaMA-Factory by its first name": ("src/llmtuner/hparams/parser.py", "a.yaml", FACTORY),
    "OpenRLHF with one trainer": ("openrlhf/trainer/sft_trainer.py", "a.sh", SFT),
    "OpenRLHF with what adds no flags": ("openrlhf/cli/batch_inference.py", "a.sh", SFT),
    "OLMo without its settings": ("OLMo/olmo/model.py", "a.yaml", OLMO + "ours: 1\n"),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_copy_of_a_part_is_a_doubt(tmp_path: Path, name: str) -> None:
    part, path, text = PARTS[name]
    folder = write_repository(tmp_path / "x", **{part: "class Ours: pass\n", path: text})
    ((code, severity, message),) = list_codes(folder)
    assert (code, severity) == ("KEY001", "info")
    assert message.endswith("cannot be read")
    (folder / part).rename(folder / part.rpartition("/")[2])
    assert {severity for code, severity, _ in list_codes(folder) if code == "KEY001"} <= {"error", "warning"}


def test_what_rests_on_upstreams_defaults_is_assumed_of_a_fork(tmp_path: Path) -> None:
    """Assume that a fork may build no reward model, although upstream builds one on eight GPUs by default."""
    script = (
        "python -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --advantage_estimator grpo "
        "--reward_pretrain Qwen/Qwen2.5-7B --actor_num_nodes 1 --actor_num_gpus_per_node 2 "
        "--micro_train_batch_size 1 --train_batch_size 4 --prompt_data d --bf16 --zero_stage 3\n"
    )
    (tmp_path / "train.sh").write_text(script.replace("grpo", "group_norm"))
    (tmp_path / "requirements.txt").write_text("openrlhf==0.6.1\n")
    assert "BAT002" in {finding.code for finding in lint(tmp_path).findings}
    (tmp_path / "requirements.txt").write_text("openrlhf @ git+https://github.com/lab/OpenRLHF@merged\n")
    (tmp_path / "train.sh").write_text(script)
    findings = lint(tmp_path).findings
    assert not {"BAT002", "CHK001"} & {finding.code for finding in findings}
    resting = [finding for finding in findings if any(ground.fact == "fork" for ground in finding.rests_on)]
    assert all(finding.certainty == "assumed" and finding.severity != "error" for finding in resting)


READMES = {
    "another owner": "git clone https://github.com/lab/axolotl.git\n",
    "pip": "pip install git+https://github.com/lab/axolotl@moe\n",
}
PLAIN = {
    "upstream's branch in a link": "Clone this [branch](https://github.com/axolotl-ai-cloud/axolotl/tree/moe) first.\n",
    "upstream's branch that is cloned": "```sh\ngit clone -b moe https://github.com/axolotl-ai-cloud/axolotl\n```\n",
    "upstream's commit": "git clone https://github.com/axolotl-ai-cloud/axolotl\ncd axolotl\ngit checkout 55cc214c\n",
    "upstream": "git clone https://github.com/axolotl-ai-cloud/axolotl\ncd axolotl\npip install -e .\n",
    "its main branch": "See https://github.com/axolotl-ai-cloud/axolotl/tree/main/examples.\n",
    "a release": "pip install git+https://github.com/axolotl-ai-cloud/axolotl@v0.9.2\n",
    "a mention": "Made with [axolotl](https://github.com/lab/axolotl) by a fork of /tree/.\n",
    "another repository": "git clone https://github.com/lab/data\ngit checkout 55cc214c\n",
}


TEXTS = [*((text, True) for text in READMES.values()), *((text, False) for text in PLAIN.values())]


@pytest.mark.parametrize(("text", "doubted"), TEXTS, ids=[*READMES, *PLAIN])
def test_a_read_me_file_that_has_a_fork_installed_is_evidence(tmp_path: Path, text: str, doubted: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text(f"# Training\n\n{text}")
    (tmp_path / "train.yaml").write_text(AXOLOTL + "moe_top_k: 8\n")
    (finding,) = (item for item in lint(tmp_path).findings if item.code == "KEY001")
    assert (finding.severity == "info") == doubted
    assert ("(README.md:" in finding.message) == doubted


def test_requirements_count_before_a_read_me_file(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text(READMES["pip"])
    (tmp_path / "requirements.txt").write_text("axolotl==0.21.0\n")
    (tmp_path / "train.yaml").write_text(AXOLOTL + "moe_top_k: 8\n")
    assert [item.severity for item in lint(tmp_path).findings if item.code == "KEY001"] == ["warning"]


def test_what_later_releases_refuse_a_fork_may_take(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.yaml").write_text(AXOLOTL + "streaming: true\n")  # without max_steps, an error since 0.13.1
    assert [item.severity for item in lint(tmp_path).findings if item.code == "KEY006"] == ["error"]
    (tmp_path / "README.md").write_text(READMES["pip"])
    assert [item.severity for item in lint(tmp_path).findings if item.code == "KEY006"] == ["info"]


def test_a_script_in_the_folder_of_a_package_is_the_repositorys_own(tmp_path: Path) -> None:
    """Report a program that is not read in the repository's own scripts, but not in those of a copied project."""
    launch_script = format_script("").replace("--module openrlhf.cli.train_sft", "cli/learn.py")
    files = {"openrlhf/cli/train_sft.py": PARSER, "openrlhf/cli/learn.py": "loss.backward()\n"}
    folder = write_repository(tmp_path / "x", **files, **{"openrlhf/scripts/a.sh": launch_script})
    assert [item.path for item in lint(folder).findings if item.code == "CHK005"] == ["openrlhf/scripts/a.sh"]
    copied = {f"OpenRLHF/{name}": text for name, text in files.items()}
    copied |= {"OpenRLHF/setup.py": "", "OpenRLHF/examples/scripts/a.sh": launch_script, "b.sh": format_script("")}
    assert not [item for item in lint(write_repository(tmp_path / "y", **copied)).findings if item.code == "CHK005"]


@pytest.mark.parametrize(
    ("name", "text", "place", "scope"),
    [
        (*PATCHES["edit in place"][:2], "setup.sh:2", "in the folder of the configuration or one above it"),
        (*PATCHES["patch"][:2], "clip.patch:2", "in the folder of the configuration or one above it"),
        (*EVIDENCE["pip"][:2], "requirements.txt:2", "in the folder of the configuration or one above it"),
        ("run.sh", "echo start\npython -m lab.train a.yaml\n", "run.sh:2", "a launch of the configuration uses it"),
    ],
)
def test_explain_shows_evidence_with_its_scope_and_place(
    tmp_path: Path, name: str, text: str, place: str, scope: str
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    source = f"{AXOLOTL}novelty_bonus: 1\n"
    (tmp_path / "a.yaml").write_text(source)
    line = len(source.splitlines())
    outcome = run_cfglint("--explain", f"KEY001:{line}", "a.yaml", cwd=tmp_path)
    assert f"{scope} ({place})" in " ".join(outcome.out.split()), outcome.out + outcome.err


def test_a_file_for_a_program_of_another_package_is_not_upstreams(tmp_path: Path) -> None:
    """The program reads the file with classes of its own, as in OptimalScale/LMFlow."""
    recipe = "model_name_or_path: m\nfinetuning_type: full\ntemplate: llama3\ncutoff_len: 512\nlab_key: 1\n"
    files = {
        "c.yaml": f"{recipe}do_train: true\noutput_dir: out\n",
        "train.py": "from lab.args import Arguments\n",
        "lab/args.py": "class Arguments: ...\n",
        "run.sh": "python train.py c.yaml\n",
    }
    (finding,) = lint(write_repository(tmp_path / "x", **files), build_options(select=["KEY001"])).findings
    assert finding.severity == "info"
    assert finding.message.endswith("`train.py` of the repository imports another package instead")
