"""Settings classes of a framework that a program in the repository changes: upstream's vocabulary proves nothing."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from cfglint_train.findings.finding import Finding
from tests.support.linting import lint

MADE = """\
    import {module}
    from trl import SFTConfig, SFTTrainer
    arguments = SFTConfig(output_dir="out", max_length=512, our_key=4)
    SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=arguments).train()
"""
PARSED = """\
    import {module}
    from trl import SFTConfig, SFTTrainer, ScriptArguments, TrlParser
    script, arguments = TrlParser((ScriptArguments, SFTConfig)).parse_args_and_config()
    SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=arguments).train()
"""
HANDED = """\
    import {module}
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer
    arguments = SFTConfig(output_dir="out", max_length=512)
    SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=arguments, peft_config=LoraConfig(r=8, our_key=4)).train()
"""
CHANGES = {
    "replaced": "import trl\nfrom ours import Ours\ntrl.SFTConfig = Ours\n",
    "replaced by name": "import trl\nfrom ours import Ours\nsetattr(trl, 'SFTConfig', Ours)\n",
    "replaced in its module": "import trl.trainer.sft_config as sft\nfrom ours import Ours\nsft.SFTConfig = Ours\n",
    "another __init__": "from trl import SFTConfig\nimport ours\ndef patch():\n    SFTConfig.__init__ = ours.init\n",
    "a further field": "import ours, trl\ntrl.SFTConfig.__dataclass_fields__[ours.name] = ours.made\n",
    "a computed attribute": "from trl import SFTConfig as C\ndef put(name, value):\n    setattr(C, name, value)\n",
    "its base": "import transformers\nfrom ours import Ours\ntransformers.TrainingArguments = Ours\n",
}
NO_CHANGES = {
    "an attribute, which is no parameter": "from trl import SFTConfig\nSFTConfig.our_key = 3\n",
    "another class": "import trl\nfrom ours import Ours\ntrl.SFTTrainer = Ours\ntrl.SFTTrainer.__init__ = Ours.made\n",
    "another package": "import vllm\nfrom ours import Ours\nvllm.SFTConfig = Ours\n",
    "its own": "class SFTConfig: pass\ndef patch(make):\n    SFTConfig.__init__ = make\n",
    "an object": "from trl import SFTConfig\ndef patch(arguments: SFTConfig):\n    setattr(arguments, 'our_key', 1)\n",
}


def list_key_findings(folder: Path, program: str, **files: str) -> list[Finding]:
    """Return the repository's KEY findings; its program imports `patches.py`."""
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text("trl==0.19.1\ntransformers==4.53.0\npeft==0.17.0\n", encoding="utf-8")
    (folder / "train.py").write_text(dedent(program), encoding="utf-8")
    for name, text in files.items():
        (folder / f"{name}.{'sh' if name == 'run' else 'py'}").write_text(text, encoding="utf-8")
    return [finding for finding in lint(folder).findings if finding.code.startswith("KEY")]


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_class_may_take_more(tmp_path: Path, name: str) -> None:
    (finding,) = list_key_findings(tmp_path, MADE.format(module="patches"), patches=CHANGES[name])
    changed = "TrainingArguments" if name == "its base" else "SFTConfig"
    assert (finding.code, finding.severity) == ("KEY001", "info")
    assert finding.message.endswith(
        f"`our_key`; the changed class may: `patches.py`, which the program imports, changes `{changed}`"
    )


@pytest.mark.parametrize("name", NO_CHANGES)
def test_what_changes_no_class_of_the_framework_lets_errors_stand(tmp_path: Path, name: str) -> None:
    (finding,) = list_key_findings(tmp_path, MADE.format(module="patches"), patches=NO_CHANGES[name])
    assert (finding.code, finding.severity) == ("KEY001", "error")


def test_what_the_change_declares_is_known(tmp_path: Path) -> None:
    declared = "import trl\nclass Ours(trl.SFTConfig):\n    our_key: int = 3\ntrl.SFTConfig = Ours\n"
    assert not list_key_findings(tmp_path, MADE.format(module="patches"), patches=declared)


def test_a_change_is_found_through_other_modules(tmp_path: Path) -> None:
    (finding,) = list_key_findings(
        tmp_path, MADE.format(module="first"), first="import second\n", second=CHANGES["replaced"]
    )
    assert finding.severity == "info"


def test_a_change_that_the_program_does_not_import_is_none_of_it(tmp_path: Path) -> None:
    (finding,) = list_key_findings(tmp_path, MADE.format(module="os"), patches=CHANGES["replaced"])
    assert finding.severity == "error"


@pytest.mark.parametrize(("module", "expected"), [("patches", []), ("os", ["error"])])
def test_options_of_a_changed_class_are_not_judged(tmp_path: Path, module: str, expected: list[str]) -> None:
    run = "accelerate launch train.py --our_key 3 --output_dir out\n"
    findings = list_key_findings(tmp_path, PARSED.format(module=module), patches=CHANGES["replaced"], run=run)
    assert [finding.severity for finding in findings] == expected


@pytest.mark.parametrize(("module", "expected"), [("patches", []), ("os", ["error"])])
def test_keywords_of_a_changed_class_of_peft_are_not_judged(tmp_path: Path, module: str, expected: list[str]) -> None:
    change = "import peft\nfrom ours import Ours\npeft.LoraConfig = Ours\n"
    findings = list_key_findings(tmp_path, HANDED.format(module=module), patches=change)
    assert [finding.severity for finding in findings] == expected
