"""CKP005 temporary-path: a Ray job saves into a temporary copy of its working directory, which Ray deletes.

## What it does
Reports relative paths for checkpoints and weights, including default paths, if `ray job submit` sets a `working_dir`.

## Why is this bad?
Ray copies `working_dir` into its session folder on the node that runs the job, and starts the job there. A relative
path points into that copy and fills the disk that holds `/tmp`. Once no job uses the copy and Ray's cache (10 GB
by default) is full, Ray deletes the copy with all checkpoints.

## Example
    ray job submit --runtime-env-json='{"working_dir": "/openrlhf"}' \
       -- python3 -m openrlhf.cli.train_ppo_ray --save_path ./ckpt ...

## Use instead
    --save_path /checkpoints/run1 --ckpt_path /checkpoints/run1/steps

## When it does not apply
Silent for jobs without `working_dir`, and for paths outside the copy (`../ckpt` is next to it). Silent for paths that
come from a variable, and for placeholders (`Your path ...`, `path_to_model/ckpt`, `SAVE_PATH/ckpt`).

## References
ray 2.46.0 `_private/runtime_env/working_dir.py`; OpenRLHF/OpenRLHF#454, #638, #1006.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import normpath

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Related, Report
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule("CKP005", "temporary-path", "warning", needs={"launch.working_copy": (True,)})

_PATHS: Final[tuple[Field, ...]] = ("checkpoint.final_path", "checkpoint.path")


def check(run: Run) -> Iterator[Report]:
    """Yield a report if a checkpoint path is inside Ray's copy of the working directory."""
    paths = [field for field in _PATHS if _is_inside_working_copy(run.plan.get(field)) and _is_used(run, field)]
    if not paths:
        return
    descriptions = " and ".join(_describe_path(run, field) for field in paths)
    copy = run.get_origin("launch.working_copy")
    related = () if copy is None or copy.place is None else (Related(copy.place, "`working_dir` is set here"),)
    yield Report(
        f"{descriptions}, inside Ray's temporary copy of `working_dir`: checkpoints are lost when Ray deletes it",
        run.find_place(*paths, "launch.working_copy"),
        related=related,
        help="use an absolute path on storage that all nodes share",
    )


_PLACEHOLDER: Final = compile_on_use(r".*\s|(?i:path[_/-]to|your)[_/-]|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?:/|$)")
"""Pattern for the start of a placeholder path."""


def _is_inside_working_copy(path: object) -> bool:
    """Return whether a path is known and stays below the working directory."""
    if not isinstance(path, str) or not path or _PLACEHOLDER.match(path) or normpath(path).startswith(".."):
        return False
    return not path.startswith(("/", "~", "$")) and "://" not in path


def _is_used(run: Run, field: Field) -> bool:
    return field != "checkpoint.path" or run.plan.checkpoint.strategy != "no"


def _describe_path(run: Run, field: Field) -> str:
    """Return a phrase with the key and its stated or default path."""
    key, path = run.spell_key(field), run.plan.get(field)
    return f"`{key}` is {path}" if run.is_stated(field) else f"`{key}` defaults to {path}"
