"""Files that a launch needs and that are missing among their siblings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.linting import lint

PROGRAM = """\
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser

script, training, model = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config()
SFTTrainer(model=model.model_name_or_path, args=training).train()
"""
LAUNCH = "accelerate launch train_sft.py --config configs/sft_b.yaml\n"
ABSENT = {
    "config": (LAUNCH, "configs/sft_b.yaml", "configs/sft_a.yaml"),
    "background": (f"nohup {LAUNCH.strip()} > log 2>&1 &\n", "configs/sft_b.yaml", "configs/sft_a.yaml"),
    "comment": (f"# {LAUNCH}{LAUNCH}", "configs/sft_b.yaml", "configs/sft_a.yaml"),
    "framework": ("llamafactory-cli train configs/sft_b.yaml\n", "configs/sft_b.yaml", "configs/sft_a.yaml"),
    "program": ("accelerate launch train_stf.py --learning_rate 1e-5\n", "train_stf.py", "train_sft.py"),
    "different": ("accelerate launch train_sft.py --config configs/x.yaml\n", "configs/x.yaml", None),
    "launcher": (
        "accelerate launch --config_file configs/sft_b.yaml train_sft.py --config configs/sft_a.yaml\n",
        "configs/sft_b.yaml",
        "configs/sft_a.yaml",
    ),
}
SILENT = {
    "present": LAUNCH.replace("sft_b", "sft_a"),
    "elsewhere": LAUNCH.replace("sft_b", "deep"),
    "no_folder": LAUNCH.replace("configs/", "other/"),
    "absolute": LAUNCH.replace("configs/", "/data/configs/"),
    "changed_folder": f"cd $ROOT\n{LAUNCH}",
    "created": f"cp configs/sft_a.yaml configs/sft_b.yaml\n{LAUNCH}",
    "written": f"cat > configs/sft_b.yaml <<EOF\nseed: 1\nEOF\n{LAUNCH}",
    "fetched": f"git clone https://host/configs\n{LAUNCH}",
    "container": f"docker run image {LAUNCH}",
    "ignored": LAUNCH.replace("sft_b", "local"),
    "generated": LAUNCH.replace("sft_b", "made"),
    "placeholder": LAUNCH.replace("sft_b", "your_sft"),
    "other_checkout": "accelerate launch dpo.py --config configs/sft_b.yaml\n",
    "framework_program": "torchrun src/train.py --config configs/sft_a.yaml\n",
    "left_out": f'DUMMY=${{DUMMY:-no}}\nif [ "$DUMMY" = yes ]; then {LAUNCH.strip()}; fi\n',
    "variable": LAUNCH.replace("configs/", "$CONFIGS/"),
}


def write_repository(folder: Path, script: str) -> None:
    for name in (".git/info", "configs/more", "scripts", "src"):
        (folder / name).mkdir(parents=True)
    (folder / ".gitignore").write_text("local*\n")
    (folder / "train_sft.py").write_text(PROGRAM)
    (folder / "src" / "data.py").write_text("NAME = 'made.yaml'\n")
    for name in ("sft_a", "more/deep"):
        (folder / "configs" / f"{name}.yaml").write_text("model_name_or_path: gpt2\n")
    (folder / "scripts" / "run.sh").write_text(script)


def list_warnings(folder: Path) -> list[tuple[str, str | None]]:
    return [
        (finding.message, finding.help)
        for finding in lint(folder).findings
        if finding.code == "CHK004" and finding.severity != "info"
    ]


@pytest.mark.parametrize("name", ABSENT)
def test_a_file_missing_among_its_siblings_is_a_warning(tmp_path: Path, name: str) -> None:
    script, file, nearest = ABSENT[name]
    write_repository(tmp_path, script)
    help = "commit the file, or check it where it is: `cfglint FILE`"
    message = f"`{file}` was not found, so the launch fails"
    assert list_warnings(tmp_path) == [(message, f"did you mean `{nearest}`?" if nearest else help)]
    assert not [finding for finding in lint(tmp_path).findings if "nothing that cfglint reads" in finding.message]


@pytest.mark.parametrize("name", SILENT)
def test_a_file_that_may_be_elsewhere_is_no_warning(tmp_path: Path, name: str) -> None:
    write_repository(tmp_path, SILENT[name])
    assert list_warnings(tmp_path) == []


def test_a_missing_settings_file_is_the_reason(tmp_path: Path) -> None:
    write_repository(tmp_path, "deepspeed own.py --model_name_or_path m --lr 1e-5 --config /data/sft_b.yaml\n")
    (tmp_path / "own.py").write_text("import mine\nmine.train()\n")
    [finding] = [finding for finding in lint(tmp_path).findings if finding.code == "CHK005"]
    reason = "`own.py` takes its settings from `/data/sft_b.yaml`, which was not found"
    assert finding.message == f"run not checked: {reason}"


@pytest.mark.parametrize(("launch", "change", "is_absent"), [
    ("python3 -m mine.trainer.train_stf --lr 1e-5", "", True),
    ("torchrun -m mine.trainer.train_stf --lr 1e-5", "", True),
    ("python3 -m mine.trainer.train_sft --lr 1e-5", "", False),
    ("cd $ROOT && python3 -m mine.trainer.train_stf --lr 1e-5", "", False),
    ("PYTHONPATH=/src python3 -m mine.trainer.train_stf --lr 1e-5", "", False),
    ("python3 -m other.trainer.train_stf --lr 1e-5", "", False),
    ("python3 -m mine.trainer.train_stf --lr 1e-5", "rm mine/__init__.py", False),
    ("python3 -m mine.trainer.train_stf --lr 1e-5", "echo '__path__ = []' > mine/__init__.py", False),
    ("python3 -m mine.trainer.train_stf --lr 1e-5", "touch mine/trainer/train_stf.so", False),
    ("python3 -m mine.trainer.train_stf --lr 1e-5", "mkdir mine/trainer/train_stf", False),
])  # fmt: skip
def test_a_module_missing_from_a_package_is_a_warning(
    tmp_path: Path, launch: str, change: str, is_absent: bool
) -> None:
    write_repository(tmp_path, f"{launch}\n")
    (tmp_path / "mine" / "trainer").mkdir(parents=True)
    for name in ("__init__", "trainer/__init__", "trainer/train_sft"):
        (tmp_path / "mine" / f"{name}.py").write_text("")
    subprocess.run(change, shell=True, cwd=tmp_path, check=True)
    message = "`mine.trainer.train_stf` was not found, so the launch fails"
    assert list_warnings(tmp_path) == ([(message, "did you mean `mine.trainer.train_sft`?")] if is_absent else [])
