"""Run training scripts with the real OLMo-core and print the configurations that they build, one JSON per line.

Needs ai2-olmo-core (with its `beaker` extra for scripts in the internal style) and a CPU build of torch. Nothing
trains: the library's `main` is replaced by a function that only calls the script's builder, and the result is printed
as OLMo-core saves it in `config.json`. A script that the library rejects yields {"error": ...}.

    python tests/oracles/olmo_core_config.py fixtures/olmo_core/internal_style.py
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any


def build_config(path: str) -> dict[str, Any]:
    import olmo_core.internal.common as common
    import olmo_core.script_utils as script_utils

    try:
        import olmo_core.internal.experiment as experiment
    except ModuleNotFoundError:
        experiment = None
    captured: dict[str, Any] = {}

    def main(*positional: Any, config_builder: Any = None, **_: Any) -> None:
        captured["builder"] = config_builder or positional[0]

    def build_components(_: Any, *, tokenizer: Any, global_batch_size: int, max_sequence_length: int, **__: Any) -> Any:
        return experiment.CommonComponents(
            run_name="run",
            root_dir="/root",
            work_dir="/work",
            save_folder="/save",
            launch=None,
            tokenizer=tokenizer,
            max_sequence_length=max_sequence_length,
            global_batch_size=global_batch_size,
        )

    script_utils.main = main
    common.get_beaker_username = lambda *_, **__: "user"
    if experiment is not None:
        experiment.main = main
    with open(path, encoding="utf-8") as file:
        source = file.read()
    # OLMo-core looks up classes of the script in its module.
    module = sys.modules["__main__"] = ModuleType("__main__")
    names = module.__dict__
    names["__file__"] = path
    arguments, sys.argv = sys.argv, [path, "run", "--dry-run"]
    with contextlib.redirect_stdout(sys.stderr):
        exec(compile(source, path, "exec"), names)
    builder = captured.get("builder")
    if isinstance(builder, functools.partial):
        context = SimpleNamespace(run_name="run", overrides=[])
        return builder(context, common_config_builder=build_components).as_config_dict()  # type: ignore[no-any-return]
    options = argparse.Namespace(
        name="run", sequence_length=None, data_root="/data", save_folder="/save", work_dir="/work"
    )
    if builder is not None:
        return builder(options, []).as_config_dict()  # type: ignore[no-any-return]
    if "parse" in names:
        config = names["build_config"](*names["parse"]()).as_config_dict()
        sys.argv = arguments
        return config  # type: ignore[no-any-return]
    raise SystemExit(f"{path}: it hands no builder to OLMo-core's main")


def try_build_config(path: str) -> dict[str, Any]:
    try:
        return build_config(path)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    for script in sys.argv[1:]:
        print(json.dumps(try_build_config(script), default=str))
