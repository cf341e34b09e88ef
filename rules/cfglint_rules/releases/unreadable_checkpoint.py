"""REL005 unreadable-checkpoint: the installed torch refuses to load the checkpoints that the run writes.

## What it does
Reports torch 2.6 or newer beside a release that loads checkpoints with torch's default:

| library | before | rejected part |
|---|---|---|
| DeepSpeed (ZeRO stages 1 to 3) | 0.16.0 | optimizer states |
| transformers (HF Trainer) | 4.47.0 | numpy's random state |

The finding is an error if the run resumes from a checkpoint, and a warning if it only writes checkpoints. REL001
reports the same fault of OLMo.

## Why is this bad?
Since torch 2.6, `torch.load` accepts only tensors and plain containers (`weights_only`). Training and saving work. The
first restart stops with an UnpicklingError, and the training so far is lost.

## Example
    # cfglint: transformers=4.44.2 torch=2.6.0
    resume_from_checkpoint: out/checkpoint-600

## Use instead
Upgrade the library, or use torch 2.5. If you trust the checkpoints, set `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1` in the
environment of the job.

## When it does not apply
Silent unless a flag, a pragma, a setting or a pin states torch. If the library's release is not stated, the rule
reports only if all candidate releases are too old. Silent if the launch script sets
`TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD`, or if the code of the training program, or of a file that it imports, names
`weights_only`, `add_safe_globals`, `safe_globals` or that variable. Silent if checkpoints have no optimizer state,
because such a run cannot resume anyway.

## References
DeepSpeed 0.15.4 and 0.16.0 `runtime/checkpoint_engine/torch_checkpoint_engine.py`; transformers 4.46.3 and 4.47.0
`trainer.py` (_load_rng_state); torch 2.6 `serialization.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.checkpoints.resuming import find_resume_field
from cfglint_rules.releases.weights_only import LOADERS, STRICT_TORCH, VARIABLE, find_old_release, is_check_lifted
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.certainty import Ground
from cfglint_train.runs.run import Run

RULE: Final = Rule("REL005", "unreadable-checkpoint", "error", needs={"checkpoint.strategy": ()}, rests_on_release=True)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if torch cannot load the checkpoints that the run reads or writes."""
    checkpoint = run.plan.checkpoint
    field = "checkpoint.load_path" if checkpoint.load_path else find_resume_field(run)
    if field is None and (checkpoint.strategy in (None, "no") or checkpoint.model_only):
        return
    if run.releases.is_certainly_at_least("torch", STRICT_TORCH) is not True:
        return
    loaders = [(loader, old) for loader in LOADERS if loader.applies(run) if (old := find_old_release(run, loader))]
    if not loaders or is_check_lifted(run):
        return
    loader, (version, is_stated) = loaders[0]
    torch = run.releases.get("torch") or f"{STRICT_TORCH} and newer"
    upgrades = " and ".join(f"{item.title} {item.fixed}" for item, _ in loaders)
    effect = "the run cannot be resumed" if field is None else "resuming stops"
    yield Report(
        f"torch {torch} refuses the {loader.content} that {loader.title} {version} loads (`weights_only`): {effect}",
        run.find_place(*((field,) if field else ("checkpoint.interval", "checkpoint.strategy", "checkpoint.path"))),
        "warning" if field is None else "error",
        help=f"use {upgrades} or newer, or torch below {STRICT_TORCH}; set {VARIABLE}=1 for the job if you trust its "
        "checkpoints",
        grounds=() if is_stated else (_assume_release(loader.package, version),),
    )


def _assume_release(package: str, version: str) -> Ground:
    """Return the assumption that a package has one of the candidate releases."""
    note = f"{package} {version}: no candidate release is newer (set `{package}=RELEASE` to be sure)"
    return Ground(f"release:{package}", version, "assumed", note)
