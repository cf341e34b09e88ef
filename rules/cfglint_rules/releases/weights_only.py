"""Checkpoints that torch 2.6 and newer do not load: the libraries that load them, by release."""

from __future__ import annotations

from collections.abc import Callable

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.mutations.mutations import get_mutations
from cfglint_train.runs.run import Run

STRICT_TORCH: Final = "2.6"
"""First torch release whose `torch.load` accepts only tensors and plain containers by default (`weights_only`)."""

VARIABLE: Final = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
"""Environment variable that restores the earlier behaviour."""


class Loader(Frozen):
    """A library that saves other objects than tensors and loads them with torch's default."""

    package: str
    title: str
    fixed: str
    """First release that loads its checkpoints under torch 2.6."""
    content: str
    """Part of the checkpoint that torch rejects."""
    applies: Callable[[Run], bool]


# DeepSpeed 0.15.4 runtime/checkpoint_engine/torch_checkpoint_engine.py: load (its optimizer states include a loss
# scaler and ZeroStageEnum); 0.16.0 passes weights_only=False. transformers 4.46.3 trainer.py: _load_rng_state (numpy's
# random state); 4.47.0 calls it under safe_globals. ai2-olmo is in REL001: its fix is not in a release.
LOADERS: Final = (
    Loader(
        "deepspeed",
        "DeepSpeed",
        "0.16.0",
        "optimizer states",
        lambda run: run.plan.parallel.strategy == "zero" and bool(run.plan.parallel.zero_stage),
    ),
    Loader("transformers", "transformers", "4.47.0", "random state", lambda run: run.framework.traits.runs_trainer),
)


_WORDS: Final = ("weights_only", "add_safe_globals", "safe_globals", VARIABLE)
"""Words of programs that choose what `torch.load` accepts."""


def is_check_lifted(run: Run) -> bool:
    """Return whether the launch restores the earlier behaviour of `torch.load`, or a program of the user may do so."""
    if dict(run.plan.launch.environment or ()).get(VARIABLE, "").lower() in ("1", "y", "yes", "true"):
        return True
    from cfglint_train.documents.python.syntax import has_word  # few runs have an old loader

    main = run.main
    documents = (main.document, *(program for program, _ in main.evidence.programs))
    return get_mutations(main).has_word(_WORDS) or any(
        has_word(document.source.decode("utf-8", "replace"), _WORDS)
        for document in documents
        if document is not None and document.syntax == "python"
    )


def find_old_release(run: Run, loader: Loader) -> tuple[str, bool] | None:
    """Return a release of the loader that cannot read its checkpoints, and whether it is stated; otherwise None.

    An unstated release counts only if every candidate is too old.
    """
    releases, fixed = run.releases, parse_release(loader.fixed)
    version = releases.get(loader.package)
    if version is None or parse_release(version) >= fixed:
        return None
    if releases.is_certainly_at_least(loader.package, loader.fixed) is False:
        return version, True
    candidates = releases.find_candidates(loader.package).releases
    return (version, False) if all(parse_release(candidate) < fixed for candidate in candidates) else None
