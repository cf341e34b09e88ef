"""Write random settings with the answer of EasyR1's own configuration: null, or the reason why it refuses the file.

    python tests/oracles/easyr1_settings.py 0.3.2=FOLDER ...     # writes tests/oracles/easyr1_settings.json.xz

A FOLDER is a checkout of hiyouga/EasyR1 (v0.3.0, v0.3.1, v0.3.2, b44b311 for 0.3.3.dev0). The answer is that of `main`
in `verl/trainer/main.py`: OmegaConf merges the file into the dataclasses and builds them.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import lzma
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

COUNT = 150
VALUES = (None, "abc", [1], ["a", "b"], {"a": 1}, 7, 2.5, True, "3", "true", 0)


def load_class(folder: Path) -> Any:
    """Return PPOConfig without the packages that only its training code needs."""
    for name, members in {"numpy": ("ndarray", "float32", "float64"), "codetiming": ("Timer",)}.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(dict.fromkeys(members, object))
    parts = ("actor", "critic", "reward", "rollout")
    packages = ("verl", "verl/trainer", "verl/utils", "verl/workers", *(f"verl/workers/{part}" for part in parts))
    for package in packages:
        module = ModuleType(package.replace("/", "."))
        module.__path__ = [str(folder / package)]
        sys.modules[module.__name__] = module
    for part in parts:
        module = importlib.import_module(f"verl.workers.{part}.config")
        classes = {name: value for name, value in vars(module).items() if name.endswith("Config")}
        vars(sys.modules[f"verl.workers.{part}"]).update(classes)
    return importlib.import_module("verl.trainer.config").PPOConfig


def walk(tree: dict[str, Any], route: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in tree.items():
        yield (*route, name)
        if isinstance(value, dict):
            yield from walk(value, (*route, name))


def judge(config: Any, tree: dict[str, Any]) -> str | None:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(config()), tree)).deep_post_init()
    except (OmegaConfBaseException, TypeError) as refusal:
        return f"{type(refusal).__name__}: {str(refusal).splitlines()[0]}"
    return None


def misspell(name: str, dice: random.Random) -> str:
    index = dice.randrange(len(name))
    return dice.choice(
        (f"{name[:index]}{name[index]}{name[index:]}", f"{name[:index]}{name[index + 1 :]}", f"{name}_x")
    )


def draw(release: str, folder: Path) -> Iterator[list[Any]]:
    config, dice = load_class(folder), random.Random(f"EasyR1 {release}")
    defaults = OmegaConf.to_container(OmegaConf.structured(config()))
    routes = [route for route in walk(defaults) if len(route) > 1]
    for _ in range(COUNT):
        route = dice.choice(routes)
        value: Any = OmegaConf.select(OmegaConf.create(defaults), ".".join(route))
        value = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        kind = dice.randrange(3)
        if kind == 0:
            route = (*route[:-1], misspell(route[-1], dice))
        elif kind == 1:
            value = dice.choice(VALUES)
        worker: dict[str, Any] = {"actor": {}, "rollout": {}}
        tree: dict[str, Any] = {"data": {"rollout_batch_size": 8}, "worker": worker, "trainer": {}}
        section = tree
        for step in route[:-1]:
            section = section.setdefault(step, {})
        section[route[-1]] = value
        yield [release, ".".join(route), tree, judge(config, tree)]


def main(words: list[str]) -> None:
    if words[0] == "--draw":
        print(json.dumps(list(draw(words[1], Path(words[2])))))
        return
    rows = []
    for word in words:  # each release in a process of its own, because their modules have the same names
        command = [sys.executable, __file__, "--draw", *word.split("=", 1)]
        rows += json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    path = Path(__file__).with_suffix(".json.xz")
    path.write_bytes(lzma.compress(json.dumps(rows).encode(), preset=6))
    print(f"{len(rows)} files, {sum(row[-1] is not None for row in rows)} refused")


if __name__ == "__main__":
    main(sys.argv[1:])
