"""SEC001 trust-remote-code: the model repository may run its own Python code on the training nodes.

## What it does
Reports `trust_remote_code: true` and the equivalent flags of OpenRLHF, unless a revision of the model is pinned.

## Why is this bad?
Anyone who can push to the model repository can run code on every node with the job's credentials. Unless a revision is
pinned, that code can change between two runs of the same configuration. Most models that once needed remote code now
have a class in transformers.

## Example
    trust_remote_code: true

## Use instead
Remove the key, or pin the revision that you reviewed:

    trust_remote_code: true
    revision_of_model: 3f2c1e...

## When it does not apply
Silent if the framework always trusts every repository and has no setting for it (OpenRLHF before it added the flag).

## Fix safety
A fix is offered only if every transformers release that the run may use has its own class for the model. Those releases
are stated, pinned, or required by the framework's release. The fix is unsafe, because the remote code may differ from
that class in details.

If the framework enables another feature without the key (axolotl's fused LoRA kernels), the fix also disables that
feature.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.models.lookup import get_first_release
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "SEC001",
    "trust-remote-code",
    "info",
    fix="unsafe",
    needs={"model.trust_remote_code": (True,)},
    writes=("model.trust_remote_code", "method.lora_kernels"),
    folds=True,
)

_FIELD: Final = "model.trust_remote_code"
_DEPENDENT_FIELDS: Final[tuple[Field, ...]] = ("method.lora_kernels",)
"""Fields whose defaults depend on whether remote code is trusted."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if remote code is trusted without a pinned revision."""
    if _is_pinned(run) or not run.is_stated(_FIELD):
        return
    model, key = run.architecture, run.spell_key(_FIELD)
    first_release_with_class = None if model is None or model.remote_code else get_first_release(model.outer_type)
    if (
        model is not None
        and first_release_with_class is not None
        and _is_always_supported(run, first_release_with_class)
    ):
        changes: dict[Field, Any] = {_FIELD: False, **_find_dependent_values(run)}
        yield Report(
            f"`{key}` lets the model repository run its own code, but transformers supports {model.model_type} "
            "without it",
            run.find_place(_FIELD),
            fix=Fix("unsafe", format_changes(run, changes), changes),
        )
    else:
        note = (
            f"{model.outer_type} has a class in transformers since {first_release_with_class}"
            if model and first_release_with_class
            else None
        )
        yield Report(
            f"`{key}` lets the model repository run its own code, and its revision is not pinned",
            run.find_place(_FIELD),
            help="pin the revision whose code you reviewed",
            notes=() if note is None else (note,),
        )


def _is_pinned(run: Run) -> bool:
    """Return whether a revision is stated; the branch `main` does not count, because it moves."""
    return run.is_stated("model.revision") and run.plan.model.revision not in (None, "", "main")


def _is_always_supported(run: Run, first: str) -> bool:
    """Return whether every transformers release that the run may use is `first` or newer."""
    if "transformers" not in run.releases.by_package:
        return False
    candidates = run.releases.find_candidates("transformers")
    return (candidates.is_stated or not candidates.is_too_old) and all(
        parse_release(release) >= parse_release(first) for release in candidates.releases
    )


def _find_dependent_values(run: Run) -> dict[Field, Any]:
    """Return the present values of the dependent fields that would change if remote code were not trusted."""
    plan, without_remote_code = run.plan, run.replace_fields({_FIELD: False}).plan
    return {field: plan.get(field) for field in _DEPENDENT_FIELDS if plan.get(field) != without_remote_code.get(field)}
