"""Settings on the command line: nonexistent keys, values and releases are rejected with a suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.settings.existing_releases import describe_missing_release
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL

JOB = "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-0.5B --dataset x --micro_train_batch_size 8\n"
LLAMAFACTORY = "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndataset: alpaca\ntemplate: qwen\noutput_dir: out\n"


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "axolotl.yaml").write_text(AXOLOTL)
    (tmp_path / "llamafactory.yaml").write_text(LLAMAFACTORY)
    (tmp_path / "run.sh").write_text(JOB)
    return tmp_path


@pytest.mark.parametrize("command", [(), ("estimate",), ("fit",)])
@pytest.mark.parametrize(
    ("word", "files", "said"),
    [
        ("micro_batch_sze=3", ("axolotl.yaml",), "no key of axolotl; did you mean micro_batch_size?"),
        ("per_device_train_batch_size=1", ("axolotl.yaml",), "no key of axolotl"),
        ("zzzzzz=1", ("axolotl.yaml", "run.sh"), "no key of axolotl or OpenRLHF"),
        ("micro_batch_size=abc", ("axolotl.yaml",), "axolotl expects an integer or null for `micro_batch_size`"),
        ("seed=none", ("axolotl.yaml", "llamafactory.yaml"), "LLaMA-Factory expects an integer for `seed`"),
    ],
)
def test_what_no_file_can_have_is_refused(here, command, word, files, said):
    outcome = run_cfglint(*command, "--set", word, *files, cwd=here)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"cfglint: --set {word}: {said}")


@pytest.mark.parametrize(
    ("word", "files"),
    [
        ("micro_batch_size=4", ("axolotl.yaml", "llamafactory.yaml")),
        ("per_device_train_batch_size=1", ("axolotl.yaml", "llamafactory.yaml")),
        ("datasets.0.path=other.jsonl", ("axolotl.yaml",)),
        ("lora_r=${RANK}", ("axolotl.yaml",)),
        ("micro_train_batch_size=4", ("run.sh",)),
        ("train.micro_batch_size=4", ("run.sh",)),
    ],
)
def test_what_one_file_can_have_is_taken(here, word, files):
    assert run_cfglint("--select", "SYN", "--set", word, *files, cwd=here).code == 0


def test_a_copy_of_a_framework_may_have_more_keys(here):
    folder = here / "src" / "axolotl" / "utils" / "schemas"
    folder.mkdir(parents=True)
    (folder / "config.py").write_text(
        "from pydantic import BaseModel\n\n\nclass AxolotlInputConfig(BaseModel):\n    of_our_own: int | None = None\n"
    )
    (here / "src" / "axolotl" / "__init__.py").write_text("")
    assert run_cfglint("--select", "SYN", "--set", "of_our_own=4", "axolotl.yaml", cwd=here).code == 0


def test_the_api_names_the_option(here):
    with pytest.raises(api.OptionError, match="micro_batch_size") as raised:
        api.lint(here / "axolotl.yaml", api.Options(overrides={"micro_batch_sze": 3}))
    assert (raised.value.option, raised.value.value) == ("overrides", "micro_batch_sze=3")


# --- releases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "release", "near"),
    [
        ("axolotl", "9.9.9", "0.21.0"),
        ("transformers", "4.58.0", "4.57.1"),
        ("transformers", "v4.60", "4.57.1"),
        ("accelerate", "0.40.0", "0.34.2"),
    ],
)
def test_releases_that_do_not_exist(package, release, near):
    assert (
        describe_missing_release(package, release)
        == f"{package} has no release {release}; the newest before it is {near}"
    )


@pytest.mark.parametrize(
    ("package", "release"),
    [
        ("axolotl", "0.4.0"),  # older than the oldest known release
        ("axolotl", "0.9.7"),  # an unknown patch release
        ("axolotl", "0.25.0"),  # a future release
        ("axolotl", "1.0"),
        ("transformers", "4.57.3"),
        ("torch", "2.99"),  # torch releases are not listed
        ("llamafactory", "0.9.6.dev0"),
    ],
)
def test_releases_that_may_exist(package, release):
    assert describe_missing_release(package, release) is None


def test_flags_settings_and_comments_are_refused_and_pins_are_not(here):
    message = "transformers has no release 4.58.0; the newest before it is 4.57.1"
    assert run_cfglint("--release", "transformers=4.58.0", "axolotl.yaml", cwd=here).err == f"cfglint: {message}\n"
    (here / "cfglint.toml").write_text('[releases]\ntransformers = "4.58.0"\n')
    outcome = run_cfglint("axolotl.yaml", cwd=here)
    assert outcome.code == 2
    assert outcome.err.startswith(f"cfglint: cfglint.toml:2:1: releases.transformers: {message}\n")
    (here / "cfglint.toml").unlink()
    (here / "axolotl.yaml").write_text("# cfglint: transformers=4.58.0\n" + AXOLOTL)
    outcome = run_cfglint("axolotl.yaml", cwd=here)
    assert outcome.code == 2
    assert message in outcome.out + outcome.err
    (here / "axolotl.yaml").write_text(AXOLOTL)
    (here / "requirements.txt").write_text("transformers==4.58.0\n")
    assert run_cfglint("--select", "SYN,KEY", "axolotl.yaml", cwd=here).code == 0
