"""Templates: changes that scripts make to the settings of a file before the framework reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.linting import lint

CONFIG = """\
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
do_train: true
finetuning_type: lora
template: qwen
output_dir: out
launcher: {nodes: 2}
learning_rate: "fast"
"""

# Ways in which a Python file handles the setting `KEY` of `configs/base.yaml`.
PYTHON = {
    "pop": 'config = yaml.safe_load(open("configs/base.yaml"))\nconfig.pop("KEY")\n',
    "del": 'with open("configs/base.yaml") as file:\n    c = yaml.load(file, Loader=yaml.Loader)\ndel c["KEY"]\n',
    "store": 'c = yaml.safe_load(open("../configs/base.yaml"))\nc["KEY"] = 1\n',
    "update": 'c = yaml.safe_load(open(ROOT / "base.yaml"))\nc.update({"KEY": 1})\n',
    "word": 'c = dict(yaml.safe_load(open(f"{ROOT}/configs/base.yaml")))\nc.update(KEY=1)\n',
    "union": 'c = yaml.safe_load(open("base.yaml"))\nc |= {"KEY": 1}\n',
    "omegaconf": 'c = OmegaConf.load("base.yaml")\nOmegaConf.update(c, "KEY", 1)\n',
    "attribute": 'c = OmegaConf.create(OmegaConf.load("base.yaml"))\nc.KEY = 1\n',
    "helper": 'def read(path):\n    return yaml.safe_load(path)\nc = read("base.yaml")\nc.pop("KEY", None)\n',
    "newer grammar": 'c = yaml.safe_load(open("base.yaml"))\nc.pop("KEY")\nprint(f"{c["a"]}")\n',
    "attribute of an object": 'self.c = yaml.safe_load(open("base.yaml"))\nself.c.pop("KEY")\n',
    "list of keys": 'OWN = ["KEY"]\nc = yaml.safe_load(open("base.yaml"))\nfor k in OWN:\n    c.pop(k)\n',
    "comprehension": 'OWN = ["KEY"]\nc = yaml.safe_load(open("base.yaml"))\n{k: c.pop(k) for k in OWN if k in c}\n',
    "items": 'c = yaml.safe_load(open("base.yaml"))\nfor k, v in {"KEY": 1}.items():\n    c[k] = v\n',
    "reader of YAML": 'from ruamel.yaml import YAML\ny = YAML()\nc = y.load(Path("base.yaml"))\nc.pop("KEY")\n',
    "entry behind a spread": 'c = yaml.safe_load(open("base.yaml"))\ntrain({**c, "KEY": 1})\n',
    "parameter": 'def fill(c):\n    c.pop("KEY")\nfill(yaml.safe_load(open("base.yaml")))\n',
}
READ = {
    "subscript": 'c = yaml.safe_load(open("base.yaml"))\nnodes = c["KEY"]\n',
    "get": 'c = yaml.safe_load(open("base.yaml"))\nnodes = c.get("KEY", 1)\n',
    "box": 'b = Box(yaml.safe_load(open("base.yaml")))\nprint(b.KEY)\n',
    "left out": 'c = yaml.safe_load(open("base.yaml"))\nd = {k: v for k, v in c.items() if k not in ("KEY",)}\n',
    "in": 'c = yaml.safe_load(open("base.yaml"))\nif "KEY" in c: pass\n',
}
SHELL = {
    "yq": "yq -i '.KEY = 1' configs/base.yaml\n",
    "yq with a variable": 'yq ".KEY = \\"$d\\" | .x = 1" $ROOT/configs/base.yaml > /tmp/x.yaml\n',
    "yq over two lines": "yq '.KEY |= 1' \\\n  base.yaml\n",
    "yq del": "yq 'del(.KEY)' base.yaml | tee x\n",
    "yq on a variable": "CFG=configs/base.yaml\nyq -i 'del(.KEY)' \"$CFG\"\n",
    "yq on several lines": "yq '\n  .KEY = 1 |\n  .x = 2\n' configs/base.yaml > x\n",
    "yq with brackets": "yq 'del(.[\"KEY\"], .x)' < base.yaml\n",
    "sed that deletes": "sed -i '/^KEY/d' base.yaml\n",
    "sed that replaces a line": "sed -i '/^KEY/c\\KEY: x' base.yaml\n",
    "sed on a line": "sed '/KEY/s/$/ # x/' base.yaml > x\n",
    "sed in a pipe": "cat base.yaml | sed -e '/^KEY:/d' > x\n",
    "sed": "sed -i 's/^KEY:.*/KEY: x/' configs/base.yaml\n",
    "sed anywhere in a line": "sed -i s/KEY/x/ configs/base.yaml\n",
    "sed up to the end": 'sed -i "s/KEY.*/KEY: $x/" configs/base.yaml\n',
    "sed with another sign": 'sed -e "s|KEY: .*|KEY: $x|" base.yaml > x\n',
}


def lint_with_script(folder: Path, script: tuple[str, str]) -> set[str]:
    """Return the keys that KEY rules report, with their codes."""
    (folder / "configs").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "configs" / "base.yaml").write_text(CONFIG)
    (folder / script[0]).write_text(script[1])
    return list_reported_keys(folder)


def list_reported_keys(folder: Path) -> set[str]:
    lines = CONFIG.splitlines()
    keys = [finding for finding in lint(folder).findings if finding.code.startswith("KEY")]
    return {f"{finding.code} {lines[finding.start.line - 1].partition(':')[0]}" for finding in keys}


def test_what_a_named_file_leaves_empty_is_a_blank(tmp_path: Path) -> None:
    text = "base_model:\nlearning_rate:\nnum_epochs: many\ndatasets: [{path: x, type: alpaca}]\nmicro_batch_size: 1\n"
    (tmp_path / ".git").mkdir()
    (tmp_path / "forms").mkdir()
    (tmp_path / "forms" / "base.yaml").write_text(text)
    lines = text.splitlines()

    def list_invalid_lines() -> set[str]:
        return {lines[finding.start.line - 1] for finding in lint(tmp_path).findings if finding.code == "KEY004"}

    assert list_invalid_lines() == {"base_model:", "learning_rate:", "num_epochs: many"}
    (tmp_path / "consts.py").write_text('FORM = "forms/base.yaml"\n')
    assert list_invalid_lines() == {"num_epochs: many"}
    (tmp_path / "consts.py").write_text('FORM = "other/base.yaml"\n')
    assert list_invalid_lines() == {"base_model:", "learning_rate:", "num_epochs: many"}


ALL = {"KEY001 launcher", "KEY004 learning_rate", "KEY006 do_train"}
CASES = [*(("x.py", text) for text in PYTHON.values()), *(("x.sh", text) for text in SHELL.values())]


@pytest.mark.parametrize("script", CASES, ids=[*PYTHON, *SHELL])
@pytest.mark.parametrize(
    ("key", "handled"),
    [("launcher", "KEY001 launcher"), ("learning_rate", "KEY004 learning_rate"), ("dataset", "KEY006 do_train")],
)
def test_what_a_script_handles_is_not_held_against_the_framework(
    tmp_path: Path, script: tuple[str, str], key: str, handled: str
) -> None:
    name, text = script
    assert lint_with_script(tmp_path / "x", (name, text.replace("KEY", key))) == ALL - {handled}
    assert lint_with_script(tmp_path / "y", (name, text.replace("KEY", f"{key}_"))) == ALL
    assert lint_with_script(tmp_path / "z", (name, text.replace("KEY", key).replace("base.yaml", "case.yaml"))) == ALL


# Mappings that may have any key, laid over the file.
ANY = {
    "update": "c.update(more)\n",
    "update and spread": 'c.update({"KEY": 1, **more})\n',
    "union": "c = c | more\n",
    "union in place": "c |= vars(args)\n",
    "spread": "d = {**c, **more}\ntrain(d)\n",
    "spread in place": "c = {**c, **more}\nprint(c)\ntrain(c)\n",
    "spread of no use here": "d = {**c, **more}\n",
    "entry of a spread": "train({**c, name: 1})\n",
    "part of what is handed on": 'd = {**c, **more}\nprint(d)\ntrain(d["batch"])\n',
    "settings of a sweep": "wandb.init(config={**c, **more})\ntrain(wandb.config)\n",
    "settings of a run": "with wandb.init(config={**c, **more}) as run:\n    train(run.config)\n",
    "written": 'json.dump({**c, **more}, open("c.json", "w"))\n',
    "copy": "d = dict(c)\nd.update(more)\ntrain(d)\n",
    "argument of a function": "def fill(d):\n    d.update(more)\n    print(d)\nfill(c)\ntrain(c)\n",
    "command line": "c = OmegaConf.merge(c, OmegaConf.from_cli())\n",
    "list of texts": "c = OmegaConf.merge(c, OmegaConf.from_dotlist(sys.argv[2:]))\n",
    "method": "c.merge_with(more)\n",
    "loop": "for k, v in more.items():\n    c[k] = v\n",
    "file above": 'c = OmegaConf.merge(c, OmegaConf.load("other.yaml"))\n',
    "file that is given above": "c = OmegaConf.merge(c, OmegaConf.load(sys.argv[1]))\n",
    "filled mapping": "more = {}\nmore[name] = 1\nc.update(more)\n",
}
# Mappings laid below the file, or with only these keys.
OTHER = {
    "update": 'c.update({"x": 1}, y=2)\n',
    "union": 'd = {"learning_rate": 1} | c\n',
    "spread": 'd = {"learning_rate": 1, **c, "x": 1}\n',
    "variable": 'more = {"x": 1}\nd = {**c, **more}\ntrain(d)\n',
    "file below": 'd = OmegaConf.merge(OmegaConf.load("other.yaml"), c)\ntrain(d)\n',
    "schema": "c = OmegaConf.merge(OmegaConf.structured(Defaults), c)\n",
    "list of texts": 'c = OmegaConf.merge(c, OmegaConf.from_dotlist(["x=1", f"y.z={z}"]))\n',
    "other mapping": "for k, v in more.items():\n    other[k] = v\nother.update(more)\n",
}


@pytest.mark.parametrize("text", ANY.values(), ids=ANY)
def test_a_mapping_of_any_keys_may_replace_values_and_takes_no_key_out(tmp_path: Path, text: str) -> None:
    assert lint_with_script(tmp_path, ("x.py", f'c = yaml.safe_load(open("base.yaml"))\n{text}')) == {"KEY001 launcher"}


@pytest.mark.parametrize("text", OTHER.values(), ids=OTHER)
def test_a_mapping_of_other_keys_replaces_nothing(tmp_path: Path, text: str) -> None:
    assert lint_with_script(tmp_path, ("x.py", f'c = yaml.safe_load(open("base.yaml"))\n{text}')) == ALL


@pytest.mark.parametrize(
    "path",
    [
        'p.add_argument("config")\npath = p.parse_args().config\n',
        'p.add_argument("--c", default="other/x.yaml")\npath = p.parse_args().c\n',
        "path = sys.argv[1]\n",
        'path = ROOT / "configs" / f"{name}.yaml"\n',
        '"""Plots configs/base.yaml."""\npath = sys.argv[1]\n',
    ],
)
def test_a_program_that_loads_what_it_is_given_counts_where_a_command_hands_it_the_file(
    tmp_path: Path, path: str
) -> None:
    program = f'import argparse, sys, yaml\n{path}c = yaml.safe_load(open(path))\nc.pop("launcher")\n'
    assert lint_with_script(tmp_path / "x", ("x.py", program)) == ALL
    (tmp_path / "x" / "run.sh").write_text("python x.py configs/base.yaml\n")
    assert list_reported_keys(tmp_path / "x") == ALL - {"KEY001 launcher"}
    (tmp_path / "x" / "x.py").write_text(program.replace(".pop(", ".get("))
    assert list_reported_keys(tmp_path / "x") == ALL - {"KEY001 launcher"}


def test_a_key_that_is_no_text_is_in_no_script(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(PYTHON["pop"])
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 1}, "\\ud800": 1}')
    assert lint(tmp_path).troubles == ()


def test_a_mark_that_sed_replaces_is_no_value(tmp_path: Path) -> None:
    marks = "sed 's/fast/$1/' configs/base.yaml > x\n"
    assert lint_with_script(tmp_path / "x", ("x.sh", marks)) == ALL - {"KEY004 learning_rate"}
    assert lint_with_script(tmp_path / "y", ("x.sh", marks.replace("fast", "slow"))) == ALL
    assert lint_with_script(tmp_path / "z", ("x.sh", "sed s/nodes/$1/ configs/base.yaml > x\n")) == ALL


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_a_key_that_a_script_only_reads_reaches_the_framework(tmp_path: Path, text: str) -> None:
    for key in ("launcher", "learning_rate", "dataset"):
        assert lint_with_script(tmp_path / key, ("x.py", text.replace("KEY", key))) == ALL


@pytest.mark.parametrize(
    "script",
    [
        ("x.py", 'env = {}\nprint("base.yaml")\nenv["launcher"] = 1\n'),
        ("x.py", 'c = yaml.safe_load(open("other/base.yaml"))\nc.pop("launcher")\n'),
        ("x.py", 'import yaml\nds = load_dataset("x")\nds["launcher"] = 1\nPATH = "base.yaml"\n'),
        ("x.py", 'import yaml\nc = torch.load(open("base.yaml"))\nc.pop("launcher")\n'),
        ("x.py", 'import yaml\nc = pickle.load(open(sys.argv[1]))\nc.pop("launcher")\n'),
        ("x.py", 'import json\nc = json.load(open("stats.json"))\nc.pop("launcher")\n'),
        ("x.py", 'c = yaml.safe_load(open("base.yaml")\nc.pop("launcher")\n'),
        ("x.sh", "# yq '.launcher = 1' base.yaml\n"),
        ("x.sh", "yq '.launcher == 1' base.yaml\n"),
        ("x.sh", "yq '.launcher = 1' base.yaml.old\n"),
        ("x.sh", "sed 's/launchers/x/' base.yaml\n"),
    ],
)
def test_other_scripts_say_nothing(tmp_path: Path, script: tuple[str, str]) -> None:
    assert lint_with_script(tmp_path / "x", script) == ALL


def test_a_bare_name_that_two_files_have_says_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    (folder / "more").mkdir(parents=True)
    (folder / "more" / "base.yaml").write_text("x: 1\n")
    assert lint_with_script(folder, ("x.py", PYTHON["pop"].replace("configs/", "").replace("KEY", "launcher"))) == ALL


def test_a_section_is_handled_with_what_stands_in_it(tmp_path: Path) -> None:
    text = 'c = yaml.safe_load(open("base.yaml"))\ninner = c["launcher"]\ninner["nodes"] = 3\n'
    assert lint_with_script(tmp_path / "x", ("x.py", text)) == ALL - {"KEY001 launcher"}
