"""REL001 olmo-checkpointer-release: OLMo's checkpointer does not work with the installed torch or ai2-olmo-core.

## What it does
Reports these combinations if the releases are stated:

- `local` with torch 2.3 or newer
- `torch_new` with torch 2.3 or newer, which saves but cannot load
- `olmo_core` with ai2-olmo-core 1.0 or newer
- any checkpointer with torch 2.6 or newer, which cannot read the checkpoints back

The last combination is an error if the run reads a checkpoint: from `load_path`, or the checkpoint that it saves and
loads before the first step. It is a warning if the run may read a checkpoint (`try_load_latest_save`), otherwise an
info.

## Why is this bad?
`local` raises NotImplementedError at the first save. `torch_new` fails when it reads a checkpoint back. By default,
that happens right after the save before training. With a newer ai2-olmo-core, `olmo_core` stops with "Checkpoint for
step 0 already exists" although the folder is empty. With `save_overwrite: true`, its ranks race for the folder.

Every checkpoint contains a pickle of the trainer's state, including numpy's random state. ai2-olmo reads it with
`torch.load` and does not set `weights_only`. Since torch 2.6, `weights_only` is on by default and rejects the pickle
(UnpicklingError).

## Example
    # cfglint: torch=2.5.1
    sharded_checkpointer: local

## Use instead
    sharded_checkpointer: torch_legacy

## Fix safety
`local` and `torch_new` cannot work, so replacing them with `torch_legacy` is safe. If FSDP wraps only the root module,
the fix wraps by block instead. Otherwise the whole model would be gathered on the GPU. The fix is unsafe with
`try_load_latest_save`, because a restart would read the old folder with the new class.

There is no fix for `olmo_core`: use `torch_legacy`, or pin ai2-olmo-core 0.1.0. Torch 2.6 and newer have no fix either:
set `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1` in the job's environment if you trust its checkpoints.

## When it does not apply
Silent if no release is stated. The finding about torch 2.6 is not reported if the launch script sets
`TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD`, or if the training program names the variable or `add_safe_globals`. It is not
reported either if the repository's copy of OLMo loads with `weights_only=False`, as OLMo does after 0.6.0.

## References
ai2-olmo 0.6.0 `checkpoint.py` (LocalShardedCheckpointer, RemoteFileSystemReader, load_state_dict), `train.py`
(trainer_state_dict), OLMo v0.6.0 `scripts/train.py`; torch 2.6 `serialization.py`; allenai/OLMo#812, #827, #830.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.releases.weights_only import STRICT_TORCH, VARIABLE, is_check_lifted
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report, Severity
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "REL001",
    "olmo-checkpointer-release",
    "error",
    particular=True,
    fix="safe",
    writes=("checkpoint.checkpointer", "parallel.wrapping"),
    rests_on_release=True,
)

_FIELD: Final = "checkpoint.checkpointer"
_BROKEN_CHECKPOINTERS: Final = {
    "local": "raises NotImplementedError at its first save",
    "torch_new": "saves but cannot load: its reader lacks methods that torch has called since 2.3",
}


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the stated releases rule out the checkpointer, and one if they rule out resuming."""
    checkpointer = run.plan.checkpoint.checkpointer
    torch, core = run.releases.get("torch"), run.releases.get("olmo_core")
    if (
        checkpointer in _BROKEN_CHECKPOINTERS
        and run.releases.is_stated("torch")
        and run.releases.is_at_least("torch", "2.3")
    ):
        yield Report(
            f"the `{checkpointer}` checkpointer {_BROKEN_CHECKPOINTERS[checkpointer]} (torch {torch})",
            run.find_place(_FIELD),
            fix=_build_fix(run),
        )
    elif (
        checkpointer == "olmo_core"
        and run.releases.is_stated("olmo_core")
        and run.releases.is_at_least("olmo_core", "1.0")
    ):
        is_overwriting = run.plan.checkpoint.overwrite is True
        consequence = (
            "its ranks race for the checkpoint's folder"
            if is_overwriting
            else "every save fails: the folder already exists"
        )
        yield Report(
            f"with ai2-olmo-core {core}, {consequence}",
            run.find_place(_FIELD),
            "warning" if is_overwriting else "error",
            help="use `torch_legacy`, or ai2-olmo-core==0.1.0, which ai2-olmo 0.6.0 pins; both work with every release",
        )
    if run.releases.is_stated("torch") and run.releases.is_at_least("torch", STRICT_TORCH):
        yield from _report_unreadable(run)


def _report_unreadable(run: Run) -> Iterator[Report]:
    """Yield a report if torch cannot read the checkpoints back, unless the job or a copy of OLMo allows it."""
    checkpoint = run.plan.checkpoint
    if is_check_lifted(run):
        return
    copy = run.main.evidence.vocabulary
    if copy is not None and copy.code.find_passed_values("load_state_dict", "load", "weights_only") == frozenset(
        (False,)
    ):
        return
    severity: Severity
    fields: tuple[Field, ...]
    if checkpoint.load_path:
        severity, fields, consequence = "error", ("checkpoint.load_path",), "so `load_path` stops the run"
    elif checkpoint.at_start and checkpoint.resume_latest is not True:
        severity, fields, consequence = "error", ("checkpoint.at_start",), "and the run reads one before the first step"
    elif checkpoint.resume_latest:
        severity, fields, consequence = "warning", ("checkpoint.resume_latest",), "so a restart begins from step 0"
    elif checkpoint.strategy not in (None, "no"):
        severity, fields, consequence = "info", (), "so the run cannot be resumed later"
    else:
        return
    yield Report(
        f"torch {run.releases.get('torch')} refuses to load the trainer state of any checkpoint (`weights_only`), "
        f"{consequence}",
        run.find_place(*fields, _FIELD, "checkpoint.path"),
        severity,
        help=f"set {VARIABLE}=1 for the job if you trust its checkpoints, or use torch below 2.6",
    )


def _build_fix(run: Run) -> Fix:
    changes: dict[Field, Any] = {_FIELD: "torch_legacy"}
    if run.plan.parallel.wrapping == "root":
        changes["parallel.wrapping"] = "block_and_size"
    is_resuming = run.plan.checkpoint.resume_latest is True
    return Fix("unsafe" if is_resuming else "safe", format_changes(run, changes), changes)
