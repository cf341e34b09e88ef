"""Run TRL's own parser over recipes: one JSON object per line in, a verdict per line out.

    python tests/oracles/trl_parser.py SOURCE < recipes.jsonl
    in:  {"trainer": "sft", "ranks": 1, "config": {"packing": "yes"}, "plain": false}
    out: {"accepted": true, "unused": [], "values": {"packing": true, ...}, "why": null}

`plain`: call it as a script does that ignores unused arguments. SOURCE is a folder that holds the package `trl` of a
release. Its dataclasses and `TrlParser` run unchanged; packages that only import trainers are replaced by empty ones,
and the Trainer's own checks of devices are left out.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import io
import json
import os
import sys
import tempfile
import types
import typing
import warnings
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical")
warnings.simplefilter("ignore")

CLASSES = {
    "sft": "SFTConfig", "dpo": "DPOConfig", "grpo": "GRPOConfig", "kto": "KTOConfig", "rloo": "RLOOConfig",
    "reward": "RewardConfig",
}  # fmt: skip
RANKS = [1]


def stand_in(folder: Path) -> None:
    """Replace every package of TRL by an empty one that runs none of its `__init__`."""
    for path in sorted((folder / "trl").rglob("__init__.py")):
        name = ".".join(path.parent.relative_to(folder).parts)
        module = types.ModuleType(name)
        module.__path__ = [str(path.parent)]
        sys.modules[name] = module


def trainer_class(trainer: str) -> Any:
    """Import the class of a trainer's arguments."""
    name = CLASSES[trainer]
    try:
        inner = importlib.import_module(f"trl.experimental.{trainer}.{trainer}_config")
        setattr(sys.modules[f"trl.experimental.{trainer}"], name, getattr(inner, name))
    except ModuleNotFoundError:
        pass
    return getattr(importlib.import_module(f"trl.trainer.{trainer}_config"), name)


def list_script_classes(folder: Path, trainer: str) -> list[Any]:
    """Return the other classes that the script parses, by the names in its text; its own classes run from there."""
    homes = [importlib.import_module("trl.trainer.model_config")]
    for name in ("trl.scripts.utils", "trl.utils", "trl.commands.cli_utils"):
        with contextlib.suppress(ImportError):
            homes.append(importlib.import_module(name))
    paths = [folder / "trl" / part / f"{trainer}.py" for part in ("scripts", "commands/scripts")]
    tree = ast.parse(next(path for path in paths if path.exists()).read_text(encoding="utf-8"))
    listed = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Tuple)
        and CLASSES[trainer] in [getattr(item, "id", "") for item in node.elts]
        and "ModelConfig" in [getattr(item, "id", "") for item in node.elts]
    )
    classes = []
    for name in (getattr(item, "id", "") for item in listed.elts):
        definition = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
        home = next((home for home in homes if hasattr(home, name)), None)
        if definition is not None:
            globals_ = {key: value for home in homes for key, value in vars(home).items()}
            script = sys.modules[f"{trainer}_script"] = types.ModuleType(f"{trainer}_script")
            words = {"dataclass": dataclasses.dataclass, "field": dataclasses.field}
            vars(script).update({**vars(typing), **globals_, **words, "__name__": script.__name__})
            exec(compile(ast.Module([definition], []), name, "exec"), vars(script))
            classes.append(getattr(script, name))
        elif home is not None:
            classes.append(getattr(home, name))
    return classes


def import_parser_class() -> Any:
    try:
        return importlib.import_module("trl.scripts.utils").TrlParser
    except ImportError:
        return importlib.import_module("trl.commands.cli_utils").TrlParser


def parse_recipe(classes: list[Any], path: str, recipe: dict[str, Any]) -> dict[str, Any]:
    Path(path).write_text(json.dumps(recipe["config"]), encoding="utf-8")  # JSON is YAML, except for 1e-5
    RANKS[0] = recipe["ranks"]
    parser = import_parser_class()(classes)
    sys.argv = ["script.py", "--config", path]
    errors = io.StringIO()
    unused: list[str] = []
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            if recipe.get("plain") or hasattr(parser, "yaml_parser"):
                filled = parser.parse_args_and_config()
            else:
                *filled, remaining = parser.parse_args_and_config(return_remaining_strings=True)
                unused = [word.removeprefix("--") for word in remaining[::2]]
    except SystemExit:
        return {"accepted": False, "unused": [], "values": {}, "why": errors.getvalue().strip().splitlines()[-1]}
    except Exception as refusal:
        message = str(refusal)
        if message.startswith("Unknown arguments from config file: "):
            words = ast.literal_eval(message.partition(": ")[2].partition("]")[0] + "]")
            unused = sorted(word.removeprefix("--") for word in words[::2])
            return {"accepted": False, "unused": unused, "values": {}, "why": None}
        if "not used by the TrlParser" in message:
            unused = sorted(ast.literal_eval(message.partition(": ")[2]))
            return {"accepted": False, "unused": unused, "values": {}, "why": None}
        return {"accepted": False, "unused": [], "values": {}, "why": f"{type(refusal).__name__}: {message}"}
    values = {name: value for arguments in filled for name, value in vars(arguments).items()}
    return {"accepted": not unused, "unused": sorted(unused), "values": values, "why": None}


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    stand_in(folder)
    from transformers import TrainingArguments

    TrainingArguments.__post_init__ = lambda self: None
    TrainingArguments.world_size = property(lambda self: RANKS[0])
    TrainingArguments.device = property(lambda self: types.SimpleNamespace(type="cpu"))
    classes: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder_name:
        for line in sys.stdin:
            recipe = json.loads(line)
            trainer = recipe["trainer"]
            if trainer not in classes:
                others = list_script_classes(folder, trainer)
                classes[trainer] = [others[0], trainer_class(trainer), *others[1:]]
            print(
                json.dumps(parse_recipe(classes[trainer], f"{folder_name}/config.yaml", recipe), default=str),
                flush=True,
            )


if __name__ == "__main__":
    main()
