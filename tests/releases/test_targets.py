"""Target releases: stated, pinned or inferred from keys, and the order in which the sources count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfglint_train.frameworks.framework import load
from cfglint_train.judging import dispatch
from cfglint_train.judging.selection import build_settings_resolver
from cfglint_train.plan.releases import Release, Releases
from cfglint_train.runs.workspace import Workspace
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL
from tests.support.linting import build_options, change_directory

FSDP1 = AXOLOTL + "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_offload_params: false\n"
"""Config with `fsdp`, which axolotl rejects since 0.20.0."""

LLAMAFACTORY = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: lora
dataset: identity
template: qwen
output_dir: out
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def write_file(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def resolve_releases(folder: Path, name: str = "config.yaml", **stated: str) -> Releases:
    with change_directory(folder):
        workspace = dispatch.open_workspace(build_options(**stated))
        (config,) = workspace.read_configs(name)
        return workspace.resolve_run(config).releases


def describe_release(release: Release | None) -> tuple[str, str, str] | None:
    return None if release is None else (release.version, release.origin.kind, release.origin.note)


NEWEST = ("0.21.0", "assumed", "the newest known release (state axolotl=RELEASE)")


def test_nothing_is_said(here: Path) -> None:
    write_file(here, "config.yaml", AXOLOTL)
    by_package = resolve_releases(here).by_package
    assert describe_release(by_package["axolotl"]) == NEWEST
    assert describe_release(by_package["transformers"]) == ("5.20.1", "inferred", "allowed by axolotl 0.21.0")
    assert "torch" not in by_package


def test_the_order_of_sources(here: Path) -> None:
    def get_release(**stated: str) -> tuple[str, str, str] | None:
        return describe_release(resolve_releases(here, **stated).by_package["axolotl"])

    write_file(here, "config.yaml", FSDP1)
    reason = "`fsdp` was removed in 0.20.0; state axolotl=RELEASE"
    assert get_release() == ("0.19.0", "inferred", f"the newest that accepts all of its keys ({reason})")
    write_file(here, "requirements.txt", "axolotl>=0.12,<0.18\n")
    note = "the newest that requirements.txt:1 (>=0.12,<0.18) allows (state axolotl=RELEASE)"
    assert get_release() == ("0.17.0", "inferred", note)
    write_file(here, "requirements.txt", "# ours\naxolotl[deepspeed]==0.12.2\n")
    assert get_release() == ("0.12.2", "user", "requirements.txt:2")
    write_file(here, "cfglint.toml", 'releases = {axolotl = "0.13.0"}')
    with change_directory(here):
        (config,) = Workspace(build_settings_resolver(None), build_options().command_line).read_configs("config.yaml")
        assert describe_release(config.releases.by_package["axolotl"]) == ("0.13.0", "user", "cfglint.toml")
    write_file(here, "config.yaml", "# cfglint: axolotl=0.14.0\n" + FSDP1)
    assert get_release() == ("0.14.0", "user", "pragma")
    assert get_release(axolotl="0.15.0") == ("0.15.0", "user", "command line")


def test_a_range_and_the_keys_together(here: Path) -> None:
    write_file(here, "config.yaml", FSDP1)
    write_file(here, "requirements.txt", "axolotl>=0.12\n")
    release = resolve_releases(here).by_package["axolotl"]
    assert release.version == "0.19.0"
    assert release.origin.note.startswith(
        "the newest allowed by requirements.txt:1 (>=0.12) that accepts all of its keys ("
    )
    write_file(here, "requirements.txt", "axolotl>=0.20\n")
    note = "the newest that requirements.txt:1 (>=0.20) allows (state axolotl=RELEASE)"
    assert describe_release(resolve_releases(here).by_package["axolotl"]) == ("0.21.0", "inferred", note)


def test_a_range_beyond_what_is_known(here: Path) -> None:
    write_file(here, "config.yaml", AXOLOTL)
    write_file(here, "requirements.txt", "axolotl>=7\n")
    release = resolve_releases(here).by_package["axolotl"]
    assert (release.version, release.origin.kind) == ("0.21.0", "assumed")
    assert "although requirements.txt:1 (>=7) asks for another" in release.origin.note


def test_files_that_disagree_are_named(here: Path) -> None:
    write_file(here, "config.yaml", AXOLOTL)
    write_file(here, "requirements.txt", "axolotl==0.12.2\ntorch==2.6.0\n")
    write_file(here, "Dockerfile", "FROM axolotlai/axolotl:0.16.1\n")
    by_package = resolve_releases(here).by_package
    assert by_package["axolotl"].version == "0.16.1", "the newest that does not ask for a later torch"
    assert "because Dockerfile:1 and requirements.txt:1 disagree" in by_package["axolotl"].origin.note
    assert describe_release(by_package["torch"]) == ("2.6.0", "user", "requirements.txt:2")


def test_a_pin_below_another_folder_is_an_assumption(here: Path) -> None:
    write_file(here, "config.yaml", AXOLOTL)
    write_file(here, "docker/Dockerfile", "FROM axolotlai/axolotl:0.16.1\n")
    resolved = resolve_releases(here)
    assert describe_release(resolved.by_package["axolotl"]) == ("0.16.1", "assumed", "pinned by docker/Dockerfile:1")
    assert not resolved.is_stated("axolotl")
    write_file(here, "requirements.txt", "axolotl==0.12.2\n")
    resolved = resolve_releases(here)
    assert describe_release(resolved.by_package["axolotl"]) == ("0.12.2", "user", "requirements.txt:1")


def test_the_nearest_folder_that_speaks_of_a_package_counts(here: Path) -> None:
    write_file(here, "runs/sft/config.yaml", AXOLOTL)
    write_file(here, "requirements.txt", "axolotl==0.16.1\ntorch==2.6.0\n")
    write_file(here, "runs/pyproject.toml", '[project]\nname = "runs"\ndependencies = ["axolotl==0.15.0"]\n')
    write_file(here.parent, "requirements.txt", "transformers==4.0.0\n")
    by_package = resolve_releases(here, "runs/sft/config.yaml").by_package
    assert describe_release(by_package["axolotl"]) == ("0.15.0", "user", "runs/pyproject.toml:3")
    assert describe_release(by_package["torch"]) == ("2.6.0", "user", "requirements.txt:2")
    assert describe_release(by_package["transformers"])[1:] == ("inferred", "allowed by axolotl 0.15.0")


def test_without_a_repository_folders_up_to_the_working_one_count(tmp_path: Path) -> None:
    write_file(tmp_path, "requirements.txt", "axolotl==0.16.1\n")
    write_file(tmp_path, "a/config.yaml", AXOLOTL)
    assert describe_release(resolve_releases(tmp_path / "a").by_package["axolotl"]) == NEWEST
    write_file(tmp_path, "a/requirements.txt", "axolotl==0.15.0\n")
    assert describe_release(resolve_releases(tmp_path, "a/config.yaml").by_package["axolotl"]) == (
        "0.15.0",
        "user",
        "a/requirements.txt:1",
    )
    (tmp_path / "a/requirements.txt").unlink()
    assert describe_release(resolve_releases(tmp_path, "a/config.yaml").by_package["axolotl"]) == (
        "0.16.1",
        "user",
        "requirements.txt:1",
    )


def test_an_extra_is_no_statement(here: Path) -> None:
    write_file(here, "config.yaml", AXOLOTL)
    extras = 'docs = ["axolotl==0.16.1"]\ntest = ["torch>=2.4"]\nold = ["trl==0.18.1"]\n'
    write_file(here, "pyproject.toml", f"[project.optional-dependencies]\n{extras}")
    resolved = resolve_releases(here)
    assert describe_release(resolved.by_package["axolotl"]) == ("0.16.1", "inferred", "an extra in pyproject.toml:2")
    assert not resolved.is_stated("trl")
    assert resolved.is_certainly_at_least("torch", "2.3") is None


def test_an_extra_beside_the_file_is_one_in_a_folder_of_any_name(here: Path) -> None:
    write_file(here, "docker/config.yaml", AXOLOTL)
    write_file(here, "docker/pyproject.toml", '[project.optional-dependencies]\nold = ["axolotl==0.16.1"]\n')
    release = resolve_releases(here, "docker/config.yaml").by_package["axolotl"]
    assert describe_release(release) == ("0.16.1", "inferred", "an extra in docker/pyproject.toml:2")


def test_what_a_framework_installs_stays_within_what_is_allowed(here: Path) -> None:
    write_file(here, "config.yaml", AXOLOTL)
    write_file(
        here, "requirements.txt", "axolotl==0.21.0\ntransformers>=4.55,<5.10\ndeepspeed>=0.17\ntorch>=2.4,<2.8\n"
    )
    resolved = resolve_releases(here)
    assert describe_release(resolved.by_package["transformers"]) == (
        "5.9.0",
        "inferred",
        "the newest that requirements.txt:2 (>=4.55,<5.10) allows",
    )
    assert describe_release(resolved.by_package["deepspeed"]) == ("0.19.8", "inferred", "allowed by axolotl 0.21.0")
    # cfglint has no list of torch's releases, so the range itself is the answer.
    assert resolved.get("torch") is None
    assert (
        resolved.is_at_least("torch", "2.3"),
        resolved.is_at_least("torch", "2.8"),
        resolved.is_at_least("torch", "2.6"),
    ) == (
        True,
        False,
        None,
    )


def test_transformers_is_told_by_the_keys_of_llama_factory(here: Path) -> None:
    write_file(here, "config.yaml", LLAMAFACTORY)
    assert resolve_releases(here).by_package["transformers"].version == "5.6.0"
    write_file(here, "config.yaml", LLAMAFACTORY + "save_safetensors: false\n")
    by_package = resolve_releases(here).by_package
    assert by_package["llamafactory"].origin.kind == "assumed"
    release = by_package["transformers"]
    assert release.version.startswith("4.57")
    assert release.origin.note == (
        "the newest that accepts all of its keys (`save_safetensors` was removed in 5.0.0; state transformers=RELEASE)"
    )
    write_file(here, "requirements.txt", "transformers==5.6.0\n")
    assert describe_release(resolve_releases(here).by_package["transformers"]) == (
        "5.6.0",
        "user",
        "requirements.txt:1",
    )


def test_llama_factory_v1_is_released_with_llama_factory(here: Path) -> None:
    write_file(
        here, "config.yaml", "model: Qwen/Qwen3-0.6B\ntrain_dataset: data.yaml\nmicro_batch_size: 1\noutput_dir: out\n"
    )
    write_file(here, "requirements.txt", "llamafactory==0.9.4\n")
    with change_directory(here):
        (config,) = dispatch.open_workspace(build_options()).read_configs("config.yaml")
    assert (config.framework, config.release) == ("llamafactory_v1", "0.9.4")


SCRIPT = "python -m openrlhf.cli.train_sft --pretrain m --dataset d {flag} --zero_stage 3\n"


def test_openrlhf_scripts_tell_their_release_by_their_flags(here: Path) -> None:
    write_file(here, "run.sh", SCRIPT.format(flag="--flash_attn"))
    by_package = resolve_releases(here, "run.sh").by_package
    assert (by_package["openrlhf"].version, by_package["openrlhf"].origin.kind) == ("0.8.9.post1", "inferred")
    assert by_package["openrlhf"].origin.note.startswith("the newest that accepts all of its keys (")
    assert by_package["deepspeed"].version == load("openrlhf").list_installed("0.8.9.post1")["deepspeed"]
    assert by_package["deepspeed"].origin.note == "allowed by OpenRLHF 0.8.9.post1"
    write_file(here, "requirements.txt", "openrlhf<0.8\n")
    assert resolve_releases(here, "run.sh").by_package["openrlhf"].version == "0.7.5"


def test_olmo_core_tells_its_release_by_the_arguments_of_its_classes(here: Path) -> None:
    saved: dict[str, dict[str, object]] = {
        "model": {"_CLASS_": "olmo_core.nn.transformer.config.TransformerConfig"},
        "trainer": {"_CLASS_": "olmo_core.train.config.TrainerConfig"},
    }
    write_file(here, "config.json", json.dumps(saved))
    assert resolve_releases(here, "config.json").by_package["olmo_core"].origin.kind == "assumed"
    saved["trainer"]["rank_microbatch_size"] = 4096
    write_file(here, "config.json", json.dumps(saved))
    release = resolve_releases(here, "config.json").by_package["olmo_core"]
    assert release.version.startswith("1.")
    assert "`trainer.rank_microbatch_size` was removed in 2.0.0" in release.origin.note


def test_olmo_tells_its_release_by_its_keys(here: Path) -> None:
    text = "model: {d_model: 8, n_layers: 2, max_sequence_length: 4}\noptimizer: {name: adamw}\nscheduler: {}\n"
    text += "tokenizer: {identifier: x}\nsave_folder: out\n"
    write_file(here, "config.yaml", text)
    assert resolve_releases(here).by_package["olmo"].origin.kind == "assumed"
    write_file(here, "config.yaml", text + "data: {custom_dataset: {name: x}}\n")
    release = resolve_releases(here).by_package["olmo"]
    assert (release.version, release.origin.kind) == ("0.6.1.dev0", "inferred")
    assert "`data.custom_dataset` does not exist yet" in release.origin.note


def test_accelerate_tells_its_release_by_its_keys(here: Path) -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
    write_file(here, "config.yaml", text)
    assert resolve_releases(here).by_package["accelerate"].origin.kind == "assumed"
    write_file(here, "config.yaml", text + "ipex_config: {ipex: true}\n")
    release = resolve_releases(here).by_package["accelerate"]
    assert (release.version, release.origin.kind) == ("1.12.0", "inferred")
    assert "`ipex_config` was removed in 1.13.0" in release.origin.note


def test_each_invocation_has_its_own_release(here: Path) -> None:
    write_file(here, "run.sh", SCRIPT.format(flag="--flash_attn") + SCRIPT.format(flag="--param_dtype bf16"))
    with change_directory(here):
        configs = dispatch.open_workspace(build_options()).read_configs("run.sh")
        assert [config.release for config in configs] == ["0.8.9.post1", "0.10.1.post2"]


def test_a_companion_has_the_release_of_its_own_framework(here: Path) -> None:
    write_file(here, "config.yaml", AXOLOTL + "deepspeed: ds.json\n")
    write_file(here, "ds.json", json.dumps({"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}))
    write_file(here, "requirements.txt", "deepspeed==0.16.4\n")

    def get_companion_release() -> tuple[str, str, str] | None:
        with change_directory(here):
            workspace = dispatch.open_workspace(build_options())
            (config,) = workspace.read_configs("config.yaml")
            resolved_run = workspace.resolve_run(config).find_companion("deepspeed")
            assert resolved_run is not None
            return describe_release(resolved_run.releases.by_package["deepspeed"])

    assert get_companion_release() == ("0.16.4", "user", "requirements.txt:1")
    (here / "requirements.txt").unlink()
    assert get_companion_release() == ("0.19.8", "inferred", "allowed by axolotl 0.21.0")
    # The release that axolotl installs is better evidence than the one that the file was written for.
    write_file(here, "ds.json", json.dumps({"zero_optimization": {"stage": 2}, "sparse_attention": {"mode": "fixed"}}))
    assert get_companion_release() == ("0.19.8", "inferred", "allowed by axolotl 0.21.0")
    write_file(here, "config.yaml", "# cfglint: axolotl=0.12.2\n" + AXOLOTL + "deepspeed: ds.json\n")
    assert get_companion_release() == ("0.17.2", "inferred", "allowed by axolotl 0.12.2")


def test_keys_without_a_value_and_free_mappings_tell_nothing(here: Path) -> None:
    write_file(here, "config.yaml", AXOLOTL + "fsdp:\ngradient_checkpointing_kwargs:\n  fsdp: true\n")
    assert describe_release(resolve_releases(here).by_package["axolotl"]) == NEWEST


def test_where_no_release_takes_all_keys_the_one_that_takes_most_counts(here: Path) -> None:
    write_file(here, "run.sh", SCRIPT.format(flag="--flash_attn --ds.param_dtype bf16"))
    resolved = resolve_releases(here, "run.sh")
    assert (resolved.by_package["openrlhf"].version, resolved.by_package["openrlhf"].origin.kind) == (
        "0.8.9.post1",
        "assumed",
    )
    window = resolved.find_candidates("openrlhf")
    assert window.best == ("0.8.9.post1", 4, 5)
    assert len(window.releases) > 50


def test_requirement_files_are_read_once_per_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cfglint_train.releases.pins import search

    folders: list[str] = []
    original = search.read_folder_pins

    def count_reads(folder: str, names: list[str]) -> object:
        folders.append(folder)
        return original(folder, names)

    monkeypatch.setattr(search, "read_folder_pins", count_reads)
    write_file(here, "requirements.txt", "axolotl==0.12.2\n")
    for number in range(3):
        write_file(here, f"runs/{number}.yaml", AXOLOTL)
    with change_directory(here):
        workspace = dispatch.open_workspace(build_options())
        for path in workspace.collect(["."]):
            workspace.read_configs(path)
        workspace.replace_files({"runs/0.yaml": AXOLOTL.encode()}).read_configs("runs/0.yaml")
    assert folders == [str(here)]


def test_findings_name_the_release_that_a_requirement_file_states(here: Path) -> None:
    def get_source(*arguments: str) -> str | None:
        out = run_cfglint(*arguments, "--isolated", "--select", "KEY002", "config.yaml", cwd=here).out
        assert "`relora_steps` was renamed to `jagged_restart_steps`" in out
        sources = [
            line.partition("checked against")[2].strip() for line in out.splitlines() if "checked against" in line
        ]
        return sources[0] if sources else None

    write_file(here, "config.yaml", AXOLOTL + "relora_steps: 3\n")
    assert get_source() is None
    write_file(here, "requirements.txt", "axolotl==0.18.0\n")
    assert get_source() == "axolotl 0.18.0 (requirements.txt:1)"
    assert get_source("--release", "axolotl=0.18.0") is None


def test_verbose_names_the_releases_of_every_run(here: Path) -> None:
    write_file(here, "config.yaml", AXOLOTL)
    write_file(here, "requirements.txt", "axolotl==0.21.0\ntorch>=2.4,<2.8\n")
    err = run_cfglint("-v", "--isolated", "--select", "SEC", "config.yaml", cwd=here).err
    assert "releases: config.yaml:1: axolotl 0.21.0 (requirements.txt:1); accelerate 1.15.0 (allowed by axolotl" in err
    assert "torch ? (requirements.txt:2 (>=2.4,<2.8))" in err
    origins = run_cfglint("--isolated", "--explain-origins", "config.yaml", cwd=here).out
    assert "requirements.txt:1" in origins
    assert ">=2.4,<2.8" in origins
