"""Settings files that a TRL or Trainer script reads: their values are those of the run, at their place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.findings.finding import Finding
from tests.support.linting import build_options, lint

FILE = """\
model:
  name: Qwen/Qwen2.5-0.5B
training:
  learning_rate: 2e-5
  bf16: true
  fp16: true
  max_length: 1024
"""
IMPORTS = """\
import argparse
import json
import os
from pathlib import Path

import hydra
import yaml
from datasets import load_dataset
from omegaconf import OmegaConf
from trl import SFTConfig, SFTTrainer

"""
TRAINER = """
trainer = SFTTrainer(model=cfg["model"]["name"], args=args, train_dataset=load_dataset("a/b"))
trainer.train()
"""
UNPACKED = 'args = SFTConfig(output_dir="out", **cfg["training"])'
PRECISION = "`bf16` and `fp16` are mutually exclusive"
TEXT = "`learning_rate` is the text `2e-5`"


def list_findings(folder: Path, script: str, file: str = FILE, select: str = "KEY", **files: str) -> list[Finding]:
    (folder / ".git").mkdir()
    (folder / "configs").mkdir()
    (folder / "configs/base.yaml").write_text(file, encoding="utf-8")
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py").replace("_yaml", ".yaml").replace("_sh", ".sh")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "train.py").write_text(IMPORTS + script, encoding="utf-8")
    return list(lint(folder, build_options(select=[select])).findings)


def list_places(findings: list[Finding]) -> list[tuple[str, int, str, str]]:
    return [
        (
            finding.place.document.path,
            finding.place.document.locate(finding.place.span.start).line,
            finding.severity,
            finding.message.partition(":")[0].partition(", and")[0],
        )
        for finding in findings
    ]


LOADS = {
    "with": 'with open("configs/base.yaml") as file:\n    cfg = yaml.safe_load(file)\n',
    "open": 'cfg = yaml.load(open("configs/base.yaml", "r"), Loader=yaml.SafeLoader)\n',
    "read_text": 'cfg = yaml.safe_load(Path("configs/base.yaml").read_text(encoding="utf-8"))\n',
    "own folder": 'cfg = yaml.safe_load((Path(__file__).resolve().parent / "configs" / "base.yaml").read_text())\n',
    "parents": 'ROOT = Path(__file__).parents[0]\ncfg = yaml.safe_load((ROOT / "configs/base.yaml").open())\n',
    "join": 'cfg = yaml.safe_load(open(os.path.join(os.path.dirname(__file__), "configs", "base.yaml")))\n',
    "function": "def load(path):\n    with open(path) as file:\n        return yaml.safe_load(file)\n"
    'cfg = load("configs/base.yaml")\n',
    "default": 'parser = argparse.ArgumentParser()\nparser.add_argument("--config", default="configs/base.yaml")\n'
    "options = parser.parse_args()\ncfg = yaml.safe_load(open(options.config))\n",
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_the_values_of_a_file_are_judged_at_their_keys(tmp_path: Path, load: str) -> None:
    findings = list_findings(tmp_path, load + UNPACKED + TRAINER)
    assert list_places(findings) == [
        ("configs/base.yaml", 4, "error", TEXT),
        ("configs/base.yaml", 5, "error", PRECISION),
    ]


def test_omegaconf_reads_the_number_and_the_attributes(tmp_path: Path) -> None:
    load = 'cfg = OmegaConf.load("configs/base.yaml")\n'
    arguments = 'args = SFTConfig(output_dir="out", learning_rate=cfg.training.learning_rate, bf16=cfg.training.bf16, '
    findings = list_findings(tmp_path, load + arguments + "fp16=cfg.training.fp16)" + TRAINER)
    assert list_places(findings) == [("configs/base.yaml", 5, "error", PRECISION)]


@pytest.mark.parametrize(
    "arguments",
    [
        'learning_rate=float(cfg["training"]["learning_rate"])',
        'learning_rate=cfg["training"].get("lr", 2e-5)',
        'bf16=cfg["training"]["bf16"], fp16="fp16" not in cfg["training"]',
    ],
)
def test_a_converted_value_is_no_text(tmp_path: Path, arguments: str) -> None:
    load = LOADS["open"] + f'args = SFTConfig(output_dir="out", {arguments})'
    assert list_findings(tmp_path, load + TRAINER) == []


def test_an_optimizer_of_the_script_may_convert_the_text(tmp_path: Path) -> None:
    trainer = TRAINER.replace("args=args", "args=args, optimizers=(make_optimizer(args), None)")
    findings = list_findings(tmp_path, LOADS["open"] + UNPACKED + trainer)
    assert list_places(findings) == [("configs/base.yaml", 5, "error", PRECISION)]


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (
            "yaml.SafeLoader.add_implicit_resolver('tag:yaml.org,2002:float', FLOAT, list('0123456789'))\n"
            + LOADS["open"],
            [("configs/base.yaml", 5, "error", PRECISION)],
        ),
        ('cfg = yaml.load(open("configs/base.yaml"), Loader=make_loader())\n', []),
    ],
)
def test_a_loader_of_the_script_may_read_numbers(
    tmp_path: Path, load: str, expected: list[tuple[str, int, str, str]]
) -> None:
    assert list_places(list_findings(tmp_path, load + UNPACKED + TRAINER)) == expected


def test_a_key_that_the_class_lacks_is_refused_at_the_key(tmp_path: Path) -> None:
    file = FILE.replace("max_length: 1024", "gradient_accumulation_step: 4").replace("2e-5", "2.0e-5")
    findings = list_findings(tmp_path, LOADS["open"] + UNPACKED + TRAINER, file, select="KEY001")
    assert list_places(findings) == [
        ("configs/base.yaml", 7, "error", "TRL has no `gradient_accumulation_step`"),
    ]


def test_a_key_that_the_script_writes_is_refused_in_the_script(tmp_path: Path) -> None:
    call = 'args = SFTConfig(output_dir="out", max_lenth=cfg["training"]["max_length"])'
    findings = list_findings(tmp_path, LOADS["open"] + call + TRAINER, select="KEY001")
    assert [(finding.place.document.path, finding.severity) for finding in findings] == [("train.py", "error")]


@pytest.mark.parametrize(
    "change",
    [
        'cfg["training"]["fp16"] = False\n',
        'cfg["training"].update(fp16=False)\n',
        'cfg["training"].pop("fp16")\n',
        "adapt(cfg)\n",
    ],
)
def test_values_that_the_script_changes_are_not_those_of_the_file(tmp_path: Path, change: str) -> None:
    helper = "def adapt(config):\n    config['training']['fp16'] = False\n"
    findings = list_findings(tmp_path, helper + LOADS["open"] + change + UNPACKED + TRAINER)
    assert list_places(findings) == [("configs/base.yaml", 4, "error", TEXT)]


def test_a_path_that_two_files_have_is_unknown(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for folder in ("scripts/configs", "configs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "base.yaml").write_text(FILE, encoding="utf-8")
    (tmp_path / "scripts/train.py").write_text(IMPORTS + LOADS["open"] + UNPACKED + TRAINER, encoding="utf-8")
    assert not lint(tmp_path, build_options(select=["KEY"])).findings


@pytest.mark.parametrize("name", ["../outside/base.yaml", "{outside}/base.yaml"])
def test_files_outside_the_repository_are_not_read(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "base.yaml").write_text(FILE, encoding="utf-8")
    load = f'cfg = yaml.safe_load(open("{name.format(outside=outside.as_posix())}"))\n'
    repository = tmp_path / "repository"
    repository.mkdir()
    assert not list_findings(repository, load + UNPACKED + TRAINER)


@pytest.mark.parametrize(
    "file",
    [FILE + "data: [" + "1, " * 20_000 + "1]\n", FILE + "a: &a [*a]\n", FILE.replace("training:", "training: ["), ""],
    ids=["large", "endless", "not YAML", "empty"],
)
def test_a_file_that_cannot_be_read_says_nothing(tmp_path: Path, file: str) -> None:
    assert not list_findings(tmp_path, LOADS["open"] + UNPACKED + TRAINER, file)


LOADER = """\
from pathlib import Path
import yaml

DEFAULTS = {"bf16": True, "fp16": True}
RATE = "2e-5"

def load_config(path):
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(path)
    with path.open("r", encoding="utf-8") as file:
        config = yaml.safe_load(file)
    return config or {}
"""


def test_a_loader_in_another_module_is_followed(tmp_path: Path) -> None:
    load = 'from src.config import load_config\ncfg = load_config("configs/base.yaml")\n'
    findings = list_findings(tmp_path, load + UNPACKED + TRAINER, src__config_py=LOADER)
    assert list_places(findings) == [
        ("configs/base.yaml", 4, "error", TEXT),
        ("configs/base.yaml", 5, "error", PRECISION),
    ]


@pytest.mark.parametrize(
    ("imports", "arguments"),
    [
        ("from src.config import DEFAULTS, RATE", "learning_rate=RATE, **DEFAULTS"),
        ("from src import config", "learning_rate=config.RATE, **config.DEFAULTS"),
    ],
)
def test_constants_of_another_module_are_judged_there(tmp_path: Path, imports: str, arguments: str) -> None:
    script = f'{imports}\nargs = SFTConfig(output_dir="out", {arguments})' + TRAINER.replace(
        'cfg["model"]["name"]', '"Qwen/Qwen2.5-0.5B"'
    )
    findings = list_findings(tmp_path, script, src__config_py=LOADER)
    assert list_places(findings) == [("src/config.py", 4, "error", PRECISION), ("src/config.py", 5, "error", TEXT)]


HYDRA = """\
@hydra.main(version_base=None, config_path="configs", config_name="train")
def main(cfg):
    args = SFTConfig(output_dir="out", bf16=cfg.training.bf16, fp16=cfg.training.fp16)
    trainer = SFTTrainer(model=cfg.model.name, args=args, train_dataset=load_dataset("a/b"))
    trainer.train()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("primary", "line"),
    [
        ("defaults: [base]\ntraining:\n  fp16: false\n", None),
        ("defaults: [base, _self_]\nseed: 1\n", 5),
        ("defaults:\n  - _self_\n  - base\ntraining:\n  fp16: false\n", 5),
        ("defaults:\n  - precision@training: both\n", None),
    ],
    ids=["primary wins", "inherited", "defaults win", "not understood"],
)
def test_hydra_composes_the_defaults(tmp_path: Path, primary: str, line: int | None) -> None:
    findings = list_findings(tmp_path, HYDRA, configs__train_yaml=primary)
    expected = [] if line is None else [("configs/base.yaml", line, "error", PRECISION)]
    assert list_places(findings) == expected


def test_hydra_puts_a_group_under_its_name(tmp_path: Path) -> None:
    both = "bf16: true\nfp16: true\n"
    primary = "defaults:\n  - training: both\n  - override hydra/job_logging: none\nmodel:\n  name: Qwen/Qwen2.5-0.5B\n"
    files = {"configs__train_yaml": primary, "configs__training__both_yaml": both}
    findings = list_findings(tmp_path, HYDRA, **files)
    assert list_places(findings) == [("configs/training/both.yaml", 1, "error", PRECISION)]


@pytest.mark.parametrize(
    ("words", "is_found"),
    [
        ("", True),
        ("training.fp16=false", False),
        ("+training.seed=1", True),
        ("training.fp16=$FP16", False),
        ("~training.fp16", False),
    ],
)
def test_a_launch_overrides_the_values_of_hydra(tmp_path: Path, words: str, is_found: bool) -> None:
    launch = f"python train.py {words}\n"
    primary = "defaults: [base, _self_]\nseed: 1\n"
    findings = list_findings(tmp_path, HYDRA, configs__train_yaml=primary, run_sh=launch)
    assert bool(findings) is is_found


def test_a_launch_selects_a_group_of_hydra(tmp_path: Path) -> None:
    primary = "defaults:\n  - training: one\nmodel:\n  name: Qwen/Qwen2.5-0.5B\n"
    files = {
        "configs__train_yaml": primary,
        "configs__training__one_yaml": "bf16: true\nfp16: true\n",
        "configs__training__two_yaml": "bf16: true\nfp16: false\n",
        "run_sh": "python train.py training=two\n",
    }
    assert not list_findings(tmp_path, HYDRA, **files)


@pytest.mark.parametrize(("words", "is_found"), [("", True), ("training.fp16=false", False)])
def test_the_command_line_of_omegaconf_wins(tmp_path: Path, words: str, is_found: bool) -> None:
    load = 'cfg = OmegaConf.merge(OmegaConf.load("configs/base.yaml"), OmegaConf.from_cli())\n'
    findings = list_findings(tmp_path, load + UNPACKED + TRAINER, run_sh=f"python train.py {words}\n")
    assert bool(findings) is is_found


OPTION = """\
parser = argparse.ArgumentParser()
parser.add_argument({argument})
options = parser.parse_args()
cfg = yaml.safe_load(open(options.config))
"""


@pytest.mark.parametrize(
    ("argument", "launch"),
    [
        ('"--config", required=True', "python train.py --config configs/base.yaml"),
        ('"--config", type=Path', "accelerate launch train.py --config=configs/base.yaml"),
        ('"-c", "--config", type=str, default=None', "torchrun --nproc_per_node 2 train.py -c configs/base.yaml"),
        ('"config"', "python train.py configs/base.yaml"),
        ('"--config", required=True', "FILE=configs/base.yaml\npython train.py --config $FILE"),
    ],
)
def test_a_launch_names_the_file(tmp_path: Path, argument: str, launch: str) -> None:
    script = OPTION.format(argument=argument) + UNPACKED + TRAINER
    findings = list_findings(tmp_path, script, run_sh=f"{launch}\n")
    assert list_places(findings) == [
        ("configs/base.yaml", 4, "error", TEXT),
        ("configs/base.yaml", 5, "error", PRECISION),
    ]


def test_each_file_that_launches_name_is_a_run(tmp_path: Path) -> None:
    script = OPTION.format(argument='"--config", required=True') + UNPACKED + TRAINER
    files = {
        "configs__other_yaml": FILE.replace("2e-5", "1.0e-5"),
        "run_sh": "python train.py --config configs/base.yaml\npython train.py --config configs/other.yaml\n",
    }
    findings = list_findings(tmp_path, script, FILE.replace("fp16: true", "fp16: false"), **files)
    assert list_places(findings) == [
        ("configs/base.yaml", 4, "error", TEXT),
        ("configs/other.yaml", 5, "error", PRECISION),
    ]


@pytest.mark.parametrize("launch", ["python train.py --config $1", "python other.py --config configs/base.yaml", ""])
def test_without_a_launch_the_file_is_unknown(tmp_path: Path, launch: str) -> None:
    script = OPTION.format(argument='"--config", required=True') + UNPACKED + TRAINER
    assert not list_findings(tmp_path, script, run_sh=f"{launch}\n")


DECLARED = """\
def build_parser():
    parser = argparse.ArgumentParser(description="Train")
    group = parser.add_argument_group("data")
    group.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--lr", "--learning-rate", type=float, default=1e-5)
    parser.add_argument("--packing", action=argparse.BooleanOptionalAction)
    return parser

options = build_parser().parse_args()
args = SFTConfig(output_dir="out", learning_rate=options.lr, max_length=options.max_length, bf16=True)
trainer = SFTTrainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset=load_dataset("a/b"))
trainer.train()
"""


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("--lr 1e-4 --learning-rate 2e-4 --max-len 5 --no-packing --help", []),
        ("--lora_r 16", ["--lora_r"]),
        ("--max_length 5 --lrr=1", ["--max_length", "--lrr"]),
    ],
)
def test_argparse_refuses_options_that_the_script_does_not_declare(
    tmp_path: Path, words: str, refused: list[str]
) -> None:
    findings = list_findings(tmp_path, DECLARED, run_sh=f"python train.py {words}\n", select="KEY001")
    assert [finding.message for finding in findings if finding.severity == "error"] == [
        f"the parser of `train.py` has no `{option}`: it is refused"
        + (
            "; did you mean `--max-length`?"
            if option == "--max_length"
            else "; did you mean `--lr`?"
            if option == "--lrr"
            else ""
        )
        for option in refused
    ]


@pytest.mark.parametrize(
    "change",
    [
        (".parse_args()", ".parse_known_args()[0]"),
        ("    return parser", "    add_options(parser)\n    return parser"),
        ("build_parser().parse_args()", "add_options(build_parser()).parse_args()"),
        (".parse_args()", '.parse_args(["--lr", "1"])'),
        ('"--packing"', "*NAMES"),
        ('description="Train"', "parents=[base]"),
        ("options = ", "import sys\nsys.argv = clean(sys.argv)\noptions = "),
        ("    return parser", "    add = parser.add_argument\n    add('--lora_r')\n    return parser"),
        ("    return parser", "    for part in [parser]:\n        add_options(part)\n    return parser"),
    ],
)
def test_options_may_be_declared_elsewhere(tmp_path: Path, change: tuple[str, str]) -> None:
    script = DECLARED.replace(*change)
    assert script != DECLARED
    assert not list_findings(tmp_path, script, run_sh="python train.py --lora_r 16\n", select="KEY001")


@pytest.mark.parametrize(
    ("assignment", "argument"),
    [("parser: argparse.ArgumentParser = argparse", "parser"), ("self.parser = parser = argparse", "self.parser")],
)
def test_a_parser_with_another_name_may_get_options_elsewhere(tmp_path: Path, assignment: str, argument: str) -> None:
    script = DECLARED.replace("parser = argparse", assignment)
    script = script.replace("    return parser", f"    add_options({argument})\n    return parser")
    assert not list_findings(tmp_path, script, run_sh="python train.py --lora_r 16\n", select="KEY001")
