"""Settings of a script that a function or class changes after their creation, in another module or by any argument."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.linting import lint

SCRIPT = """\
from trl import SFTConfig, SFTTrainer
{before}
args = SFTConfig(output_dir="out", eval_strategy="no", save_strategy="steps", load_best_model_at_end={on})
{after}
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args).train()
"""
SECTION = """\
from trl import SFTConfig, SFTTrainer
from helper import fix
config = {{"zero_optimization": {{"stage": 2}}, "fp16": {{"enabled": {on}}}, "bf16": {{"enabled": True}}}}
{after}
args = SFTConfig(output_dir="out", max_length=512, bf16=True, deepspeed=config)
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args).train()
"""
# A definition in a script, and the call of it.
CHANGES = {
    "by a function": ("def fix(given):\n    given.load_best_model_at_end = {to}", "fix(args)"),
    "among further arguments": (
        "def fix(one, **given):\n    given['args'].load_best_model_at_end = {to}",
        "fix(1, args=args)",
    ),
    "one of several": ("def fix(*given):\n    given[0].load_best_model_at_end = {to}", "fix(args, 2)"),
}
MAY_CHANGE = {
    "by a class": (
        "class Fixer:\n    def __init__(self, given):\n        self.given = given\n"
        "    def fix(self):\n        self.given.load_best_model_at_end = False",
        "Fixer(args).fix()",
    ),
    "by a class that is given it by name": (
        "class Fixer:\n    def __init__(self, given):\n        given.load_best_model_at_end = False",
        "Fixer(given=args)",
    ),
}
# Changes that the function of another module makes to its argument, a dictionary with sections.
PARTS = {
    "a part": "given['fp16']['enabled'] = False",
    "a part by another name": "section = given['fp16']\n    section['enabled'] = False",
    "a part by a method": "given['fp16'].update(enabled=False)",
    "a part that it hands on": "further(given['fp16'])",
    "any part": "for name in ('fp16',):\n        given[name]['enabled'] = False",
}
KEEPS = {
    "another part": "given['zero_optimization']['stage'] = 1",
    "what it reads": "print(given['fp16']['enabled'])",
    "its own": "own = dict(fp16={})\n    own['fp16']['enabled'] = False",
}


def list_key006(folder: Path, script: str, helper: str = "") -> list[str]:
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text("trl==0.19.1\ntransformers==4.53.0\ndeepspeed==0.17.5\n", encoding="utf-8")
    (folder / "train.py").write_text(dedent(script), encoding="utf-8")
    (folder / "helper.py").write_text(helper, encoding="utf-8")
    return [f"{finding.code} {finding.severity}" for finding in lint(folder).findings if finding.code == "KEY006"]


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize(("on", "to", "expected"), [(True, False, []), (False, True, ["KEY006 error"])])
def test_what_a_helper_stores_is_the_setting(
    tmp_path: Path, name: str, on: bool, to: bool, expected: list[str]
) -> None:
    before, after = CHANGES[name]
    assert list_key006(tmp_path, SCRIPT.format(before=before.replace("{to}", str(to)), after=after, on=on)) == expected


@pytest.mark.parametrize("name", MAY_CHANGE)
def test_what_an_object_may_store_is_unknown(tmp_path: Path, name: str) -> None:
    before, after = MAY_CHANGE[name]
    assert not list_key006(tmp_path, SCRIPT.format(before=before, after=after, on=True))


def test_what_an_object_stores_of_itself_changes_nothing(tmp_path: Path) -> None:
    before = "class Other:\n    def __init__(self, given):\n        self.load_best_model_at_end = given.bf16"
    assert list_key006(tmp_path, SCRIPT.format(before=before, after="Other(args)", on=True)) == ["KEY006 error"]


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_another_module_changes_is_unknown(tmp_path: Path, name: str) -> None:
    helper = f"def fix(given):\n    {PARTS[name]}\ndef further(section):\n    section['enabled'] = False\n"
    assert not list_key006(tmp_path, SECTION.format(after="fix(config)", on=True), helper)


@pytest.mark.parametrize("name", KEEPS)
def test_what_another_module_leaves_alone_is_judged(tmp_path: Path, name: str) -> None:
    helper = f"def fix(given):\n    {KEEPS[name]}\n"
    assert list_key006(tmp_path, SECTION.format(after="fix(config)", on=True), helper) == ["KEY006 error"]
