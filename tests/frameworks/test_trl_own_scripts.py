"""Unknown keys of recipes that a repository's own script reads with TrlParser: rejected or dropped, by release."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cfglint_train.findings.finding import Finding
from tests.schemas.test_trl_parsers import run_parser
from tests.support.linting import build_options, lint

SCRIPT = """\
from dataclasses import dataclass
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer, ModelConfig, ScriptArguments, TrlParser

@dataclass
class Own(ScriptArguments):
    our_key: int = 1

if __name__ == "__main__":
    parser = TrlParser((Own, DPOConfig, ModelConfig))
    script_args, training_args, model_args = parser.parse_args_and_config()
    data = load_dataset(script_args.dataset_name)
    trainer = DPOTrainer(model_args.model_name_or_path, args=training_args, train_dataset=data["train"])
    trainer.train()
"""
PARSED = "parse_args_and_config()"
RECIPE = {"model_name_or_path": "Qwen/Qwen2.5-1.5B", "dataset_name": "a/b", "output_dir": "out", "beta": 0.1}
UNKNOWN = {"betaa": 3, "logging_step": 1, "zzzz": 1}
"""A misspelled key, the prefix of a key, which an option may be, and an unrelated key."""


def list_key_findings(
    folder: Path, release: str = "", script: str = SCRIPT, start: str = "dpo.py --config dpo.yaml", **more: object
) -> list[Finding]:
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text(f"trl=={release}\n" if release else "trl\n", encoding="utf-8")
    (folder / "dpo.py").write_text(script, encoding="utf-8")
    (folder / "dpo.yaml").write_text(yaml.safe_dump(RECIPE | more, sort_keys=False), encoding="utf-8")
    (folder / "run.sh").write_text(f"accelerate launch --num_processes 4 {start}\n", encoding="utf-8")
    findings = lint(folder, build_options(select=["KEY001", "KEY002"])).findings
    # The script is that of TRL 0.12 and newer, which export ScriptArguments.
    return [finding for finding in findings if "`trl` has no `ScriptArguments`" not in finding.message]


def get_levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.place.document.get_text(finding.place.span): finding.severity for finding in findings}


@pytest.mark.parametrize("release", ["0.9.6", "0.12.2", "0.19.0", "0.28.0", "1.16.0"])
def test_every_unknown_key_is_refused(tmp_path: Path, release: str) -> None:
    findings = list_key_findings(tmp_path, release, **UNKNOWN)
    assert get_levels(findings) == dict.fromkeys(UNKNOWN, "error")
    assert all("it is refused" in finding.message for finding in findings)


@pytest.mark.parametrize("release", ["0.9.4", "0.13.0", "0.18.2"])
def test_a_release_that_drops_them_is_warned_of(tmp_path: Path, release: str) -> None:
    findings = list_key_findings(tmp_path, release, **UNKNOWN)
    assert get_levels(findings) == dict.fromkeys(UNKNOWN, "warning")
    assert all("it is silently ignored" in finding.message for finding in findings)


def test_an_open_window_names_the_releases(tmp_path: Path) -> None:
    findings = list_key_findings(tmp_path, **UNKNOWN)
    assert get_levels(findings) == dict.fromkeys(UNKNOWN, "warning")
    assert all(
        "it is refused since 0.19.0, silently ignored from 0.13.0 to 0.18.2" in finding.message for finding in findings
    )


@pytest.mark.parametrize("parsed", [
    "parse_args_and_config(fail_with_unknown_args=True)",
    "parse_args_and_config(return_remaining_strings=False)",
])  # fmt: skip
def test_a_default_that_is_stated_changes_nothing(tmp_path: Path, parsed: str) -> None:
    findings = list_key_findings(tmp_path, "0.28.0", SCRIPT.replace(PARSED, parsed), **UNKNOWN)
    assert get_levels(findings) == dict.fromkeys(UNKNOWN, "error")


def test_a_script_that_passes_over_them_is_warned_of(tmp_path: Path) -> None:
    script = SCRIPT.replace(PARSED, "parse_args_and_config(fail_with_unknown_args=False)")
    findings = list_key_findings(tmp_path, "0.28.0", script, **UNKNOWN)
    assert get_levels(findings) == dict.fromkeys(UNKNOWN, "warning")


@pytest.mark.parametrize(("old", "new"), [
    (PARSED, "parse_args_and_config(return_remaining_strings=True)[:3]"),
    (PARSED, "parse_args_and_config(fail_with_unknown_args=STRICT)"),
    ("parser = ", "parser = make_parser() if script else "),
    ("Own(ScriptArguments)", "Own(TheirArguments)"),
    ("parser = TrlParser(", "parser = OurParser("),
])  # fmt: skip
def test_a_script_that_may_take_them_is_as_before(tmp_path: Path, old: str, new: str) -> None:
    findings = list_key_findings(tmp_path, "0.28.0", SCRIPT.replace(old, new), **UNKNOWN)
    assert "error" not in get_levels(findings).values()
    assert "zzzz" not in get_levels(findings)


@pytest.mark.parametrize("start", ["dpo.py dpo.yaml", "dpo.py --recipe dpo.yaml", "other.py --config dpo.yaml"])
def test_another_way_of_reading_it_is_as_before(tmp_path: Path, start: str) -> None:
    found_levels = get_levels(list_key_findings(tmp_path, "0.28.0", start=start, **UNKNOWN))
    assert {level for name, level in found_levels.items() if name != "--recipe"} <= {"warning"}
    assert "zzzz" not in found_levels


def test_what_the_script_declares_is_its_own_and_what_another_one_reads_is_not(tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text("import yaml\nprint(yaml.safe_load(open('dpo.yaml'))['seen'])\n")
    assert get_levels(list_key_findings(tmp_path, "0.28.0", our_key=2, seen=1, env={"A": "1"})) == {"seen": "error"}


@pytest.mark.parametrize(("release", "level"), [("0.24.0", ["error"]), ("0.18.2", ["warning"]), ("0.13.0", [])])
def test_a_key_of_another_release_is_refused_alike(tmp_path: Path, release: str, level: list[str]) -> None:
    assert [*get_levels(list_key_findings(tmp_path, release, max_target_length=64)).values()] == level


def test_a_key_of_a_class_that_the_script_does_not_parse_is_unknown(tmp_path: Path) -> None:
    findings = list_key_findings(tmp_path, "0.25.1", num_generations=8, dataset_config="main")
    assert [finding.message for finding in findings] == [
        "the parser of `dpo.py` has no `num_generations`: it is refused; it belongs to `GRPOConfig`"
    ]


def test_a_class_of_another_module_adds_its_fields(tmp_path: Path) -> None:
    settings = "from dataclasses import dataclass\nimport trl\n\n@dataclass\nclass DPOConfig(trl.DPOConfig):\n"
    settings += "    seen: int = 1\n"
    (tmp_path / "src" / "ours").mkdir(parents=True)
    (tmp_path / "src" / "ours" / "__init__.py").write_text("from .settings import DPOConfig\n", encoding="utf-8")
    (tmp_path / "src" / "ours" / "settings.py").write_text(settings, encoding="utf-8")
    script = SCRIPT.replace("from trl import DPOConfig, ", "from ours import DPOConfig\nfrom trl import ")
    assert get_levels(list_key_findings(tmp_path, "0.28.0", script, seen=2, zzzz=1)) == {"zzzz": "error"}


TRAINER = """\
from trl import {base}

class Ours({base}):
    def compute_loss(self, model, inputs, **more):
        return {loss}
"""


@pytest.mark.parametrize(("base", "loss", "is_known"), [
    ("DPOTrainer", "super().compute_loss(model, inputs, **more)", True),
    ("DPOTrainer", "model(**inputs).loss", False),
])  # fmt: skip
def test_a_trainer_that_replaces_the_loss_is_not_judged_as_trls(
    tmp_path: Path, base: str, loss: str, is_known: bool
) -> None:
    (tmp_path / "ours.py").write_text(TRAINER.format(base=base, loss=loss), encoding="utf-8")
    script = SCRIPT.replace("from datasets", "from ours import Ours\nfrom datasets").replace("DPOTrainer(", "Ours(")
    more = {"sync_ref_model": True, "precompute_ref_log_probs": True}
    list_key_findings(tmp_path, "0.25.1", script, **more)
    codes = [finding.code for finding in lint(tmp_path, build_options(select=["KEY006", "MEM001", "CHK001"])).findings]
    assert codes == (["KEY006"] if is_known else ["CHK001"])


IDLE = {"use_peft": True, "load_in_4bit": True, "attn_implementation": "flash_attention_2"}


def list_idle_settings(folder: Path, script: str, **more: object) -> dict[str, str]:
    list_key_findings(folder, "0.25.1", script, **more)
    return get_levels(lint(folder, build_options(select=["KEY005"])).findings)


def test_settings_that_the_script_passes_to_nothing_have_no_effect(tmp_path: Path) -> None:
    assert list_idle_settings(tmp_path, SCRIPT, **IDLE) == dict.fromkeys(IDLE, "warning")


@pytest.mark.parametrize(("argument", "idle"), [
    ("peft_config=get_peft_config(model_args)", ["load_in_4bit", "attn_implementation"]),
    ("quantization_config=get_quantization_config(model_args)", ["use_peft", "attn_implementation"]),
    ("peft_config=build(model_args)", []),
    ("attn=model_args.attn_implementation", ["use_peft", "load_in_4bit"]),
    ("more=vars(model_args)", []),
])  # fmt: skip
def test_settings_that_something_may_read_have_an_effect(tmp_path: Path, argument: str, idle: list[str]) -> None:
    script = SCRIPT.replace("args=training_args", f"args=training_args, {argument}")
    assert [*list_idle_settings(tmp_path, script, **IDLE)] == idle


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("release", ["0.12.2", "0.18.2", "0.19.0", "0.28.0", "1.16.0"])
def test_the_parser_itself_refuses_the_same(tmp_path: Path, release: str) -> None:
    for number, more in enumerate(({}, UNKNOWN)):
        (answer,) = run_parser(release, [{"trainer": "dpo", "ranks": 1, "config": RECIPE | more, "plain": True}])
        folder = tmp_path / str(number)
        folder.mkdir()
        rejected = [
            name for name, level in get_levels(list_key_findings(folder, release, **more)).items() if level == "error"
        ]
        assert answer["why"] is None
        assert sorted(rejected) == answer["unused"]


def test_a_trainer_may_be_imported_under_another_name(tmp_path: Path) -> None:
    script = (
        "from trl import DPOConfig, DPOTrainer as Preferences\n"
        'args = DPOConfig(output_dir="out", learning_rat=1e-5)\n'
        'Preferences("Qwen/Qwen2.5-0.5B", args=args, train_dataset=None).train()\n'
    )
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    findings = lint(tmp_path, build_options(select=["KEY001"])).findings
    assert [(finding.start.line, finding.code) for finding in findings] == [(2, "KEY001")]


@pytest.mark.parametrize(
    ("requirement", "severity"),
    [
        ("trl", "warning"),
        ("trl @ git+https://github.com/huggingface/trl.git@main", "warning"),
        ("trl @ git+https://github.com/huggingface/trl.git@d625c5533a6b1c84d3565c8080857f6bb81c538a", "info"),
        ("trl @ git+https://github.com/huggingface/trl.git@some-branch", "info"),
    ],
)
def test_an_installed_commit_is_no_release(tmp_path: Path, requirement: str, severity: str) -> None:
    """The newest release is not what an installation gets, and 0.17 to 0.19 do not mix packed samples alike."""
    (tmp_path / ".git").mkdir()
    setup = f'from setuptools import setup\nsetup(name="a", install_requires=["{requirement}"])\n'
    (tmp_path / "setup.py").write_text(setup, encoding="utf-8")
    recipe = RECIPE | {"packing": True, "max_seq_length": 512, "attn_implementation": "sdpa", "num_train_epochs": 1}
    recipe.pop("beta")
    (tmp_path / "sft.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    (tmp_path / "run.sh").write_text("trl sft --config sft.yaml\n", encoding="utf-8")
    findings = lint(tmp_path, build_options(select=["REL002", "KEY006"])).findings
    assert [(finding.code, finding.severity) for finding in findings] == [("REL002", severity), ("KEY006", severity)]
