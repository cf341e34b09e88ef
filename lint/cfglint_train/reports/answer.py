"""The one-line answer to whether a run fits, shown before the details."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from cfglint_train.findings.verdicts import Judgement
from cfglint_train.fitting import places
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.judging.result import Result
from cfglint_train.memory.budget import VERDICTS
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.plan.fields import get_field
from cfglint_train.plan.names import Field
from cfglint_train.reports.escape import escape_data, escape_text
from cfglint_train.runs.run import Run

if TYPE_CHECKING:
    from cfglint_train.fitting.hardware_needed import HardwareNeed
    from cfglint_train.fitting.smallest import Solution
    from cfglint_train.judging.result import Trouble
    from cfglint_train.records import NotChecked
    from cfglint_train.whatif.plan_file import StatedPlan

RESOURCE_NAMES: Final = {"gpu": "GPU memory", "host": "host memory", "disk": "disk"}
"""Names of what a run may lack, behind a size."""
_LENGTH_STEP: Final = 100
"""Sequence lengths are rounded up to a multiple of this many tokens."""


def answer_lint(result: Result) -> str | None:
    """Return the answer for a lint of one run, or None if there are several runs or none was estimated."""
    if len(result.runs) != 1 or result.runs[0].corrected is None:
        return None
    run = places.choose_worse(result.runs[0])
    if not isinstance(run, Run) or not run.is_estimated:
        return None
    if not run.estimate.phases and not run.is_training_run:
        return None
    solution, corrected = None, places.find_corrected(run) or run
    # MEM001 has already searched for the solution.
    if any(atom.code == "MEM001" for finding in result.findings for atom in finding.atoms):
        from cfglint_train.fitting.smallest import find_smallest

        solution = find_smallest(corrected)
    return format_answer(run, solution, _find_safe_fix(result, corrected) if solution is None else ())


def _find_safe_fix(result: Result, run: Run) -> tuple[str, ...]:
    """Return the settings of the first safe fix that makes the run fit, or () if it already fits or no fix does."""
    worst = places.find_worst(run)
    if worst is None or not places.is_lacking_room(worst):
        return ()
    for finding in result.findings:
        fix = finding.intent
        if (
            fix is not None
            and fix.applicability == "safe"
            and fix.changes
            and places.has_room(run.replace_fields(fix.changes))
        ):
            from cfglint_train.fitting import words

            return words.format_settings(run, fix.changes)
    return ()


def compare_written(run: Run | StatedPlan) -> Iterator[str]:
    """Yield the answers for the run as written and as corrected, or nothing if they do not differ."""
    corrected = places.find_corrected(run)
    if corrected is not None:
        yield f"  as written  {format_answer(run)}"
        keys = "; ".join(key.description for key in corrected.inputs.corrected_keys)
        yield f"  as meant    {format_answer(corrected)} ({escape_text(keys)})"


def answer_several(runs: Sequence[Run | StatedPlan]) -> Iterator[str]:
    """Yield the answer for the worst of several runs and an empty line, or nothing if there is none."""
    shown_runs = [places.choose_worse(run) for run in runs] if len(runs) > 1 else []
    judged_runs = [(worst, run) for run in shown_runs if (worst := places.find_worst(run)) is not None]
    if judged_runs:
        _, run = max(
            judged_runs, key=lambda pair: (VERDICTS.index(pair[0].verdict), pair[0].budget.expected / pair[0].capacity)
        )
        path = run.main.document.path if isinstance(run, Run) else run.path
        yield escape_text(f"worst of {len(runs)} runs: {path}: {format_answer(run)}")
        yield ""


def answer_estimate(run: Run | StatedPlan) -> str:
    """Return the answer with the largest sizes that fit, or with the smallest change that makes the run fit."""
    worst, solution = places.find_worst(run), None
    if worst is not None and places.is_lacking_room(worst) and isinstance(run, Run):
        from cfglint_train.fitting.smallest import find_smallest_for

        solution = find_smallest_for(places.find_corrected(run) or run, None)
    return format_answer(run, solution, sizes=True)


def format_answer(
    run: Run | StatedPlan,
    solution: Solution | None = None,
    fix_settings: tuple[str, ...] = (),
    *,
    hardware_need: HardwareNeed | None = None,
    sizes: bool = False,
) -> str:
    """Return the answer, such as `fits: 16.1 of 23.5 GiB`.

    If the run does not fit, the answer proposes `solution` or `fix_settings`, or else names the hardware on which it
    fits (`hardware_need`). All three are about the run with its misspelled keys corrected: the answer proposes the
    correction as well, or alone if it is enough.

    `sizes`: if the run fits, the answer also states the largest micro batch and sequence length.
    """
    worst = places.find_worst(run)
    if worst is None:
        gap = find_gap(run)
        return f"not estimated: {escape_text(gap.message if gap is not None else 'no memory of a GPU is known')}"
    phase = "" if worst.verdict == "fits" else f" in {worst.phase.title}"
    from cfglint_train.hardware.catalogue import ASSUMPTION

    origin = run.hardware.gpu_origin
    card = "80 GB GPU" if origin == ASSUMPTION else run.hardware.gpu or "GPU"
    assumption = f" ({card} assumed; set --gpu)" if worst.resource == "gpu" and origin.kind == "assumed" else ""
    expected = format_gib(worst.budget.expected).removesuffix(" GiB")
    name = "" if worst.resource == "gpu" else f" of {RESOURCE_NAMES[worst.resource]}"
    parts = [f"{worst.verdict}: {expected} of {format_gib(worst.capacity)}{name}{assumption}{phase}"]
    if places.is_lacking_room(worst):
        settings = solution.settings if solution is not None and solution.is_enough else fix_settings
        corrected = places.find_corrected(run)
        if corrected is not None and (settings or places.has_room(corrected)):
            settings = ("correct the misspelled keys", *(() if places.has_room(corrected) else settings))
        if settings:
            parts.append(f"smallest change: {', '.join(settings)}")
        elif hardware_need is not None:
            parts.append(f"no change to these files makes it fit; {hardware_need.description}")
    elif sizes:
        parts += _describe_sizes(run, worst)
    return escape_text("; ".join(parts))


def find_gap(run: Run | StatedPlan) -> NotChecked | None:
    """Return the reason why no training step was estimated, with its place and the remedy; None if one was."""
    if run.estimate.has_step:
        return None
    from cfglint_train.records import NotChecked  # a lint needs no records

    if not isinstance(run, Run):
        missing = list(describe_missing(run))
        *others, last = missing or ["a training step"]
        names = f"{', '.join(others)} and {last}" if others else last
        message = f"{names} {'are' if others else 'is'} not known"
        return NotChecked(escape_data(run.path), 1, escape_data(message), "add what is missing to the plan")
    from cfglint_train.runs.not_estimated import explain_not_estimated

    problem = explain_not_estimated(run)
    if problem is None:  # a companion file, which configures a library that a run uses
        message = "the file does not describe a training run by itself"
        remedy = "name the configuration or the launch script that uses it"
        return NotChecked(escape_data(run.main.document.path), 1, message, remedy)
    document = problem.place.document
    line = document.locate(problem.place.span.start).line
    return NotChecked(escape_data(document.path), line, escape_data(problem.reason), escape_data(problem.remedy))


def list_gaps(
    runs: Sequence[Run | StatedPlan], unread_runs: Sequence[Trouble], named_paths: Iterable[str]
) -> list[tuple[str, str]]:
    """Return the path of each run that was not estimated, and the reason.

    Unread runs count if their file is among `named_paths`. So does a companion file, unless nothing else is known.
    """
    named = {os.path.abspath(path) for path in named_paths}
    gaps = [
        (item.path, item.message.removeprefix("run not checked: "))
        for item in unread_runs
        if os.path.abspath(item.path) in named
    ]
    is_other_known = bool(gaps) or any(run.estimate.has_step for run in runs)
    for run in runs:
        path = run.main.document.path if isinstance(run, Run) else run.path
        is_companion = isinstance(run, Run) and not run.is_training_run
        gap = find_gap(run)
        if gap is not None and not (is_companion and is_other_known and os.path.abspath(path) not in named):
            gaps.append((path, f"{gap.message}; {gap.help}"))
    return gaps


def describe_missing(run: Run | StatedPlan) -> Iterator[str]:
    """Yield a description of each missing fact that keeps a phase from being estimated."""
    from cfglint_train.runs.not_estimated import describe_field

    for field in run.estimate.missing:
        if field != MODEL:
            key, words = run.spell_key(field), describe_field(get_field(field))
            yield f"{words} ({key})" if words and (key != field or not isinstance(run, Run)) else words or key
        elif run.architecture is not None:
            kind = escape_text(run.architecture.model_type)
            yield f"the activations of {escape_text(run.architecture.id)} (no complete formula for {kind} models)"
        else:
            yield f"the shape of {escape_text(str(run.plan.model.id))}" if run.plan.model.id else "the model"


def _describe_sizes(run: Any, current: Judgement) -> list[str]:
    """Describe the largest micro batch that fits and the sequence length from which the verdict is worse."""
    from cfglint_train.fitting.alternatives import MAX_VALUE, find_largest

    sizes = []
    if run.plan.batch.micro and 0 < (largest_micro := find_largest(run, "batch.micro")) < MAX_VALUE:
        sizes.append(f"largest micro batch {largest_micro:,}")
    field: Field = "sequence.length"
    if run.plan.sequence.length:
        allowed = VERDICTS.index(current.verdict)

        def is_no_worse(other: Run) -> bool:
            worst = places.find_worst(other)
            return worst is not None and VERDICTS.index(worst.verdict) <= allowed

        largest_length = find_largest(run, field, is_no_worse)
        if run.plan.sequence.length <= largest_length < MAX_VALUE:
            next_length = (
                largest_length + 1
                if largest_length < _LENGTH_STEP
                else -(-(largest_length + 1) // _LENGTH_STEP) * _LENGTH_STEP
            )
            worse = places.find_worst(run.replace_fields({field: next_length}))
            sizes += [f"{worse.verdict} from {next_length:,} tokens"] if worse is not None else []
    return sizes
