"""The answer first: one line that says whether a run fits, made of the estimate that the details show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train.findings.verdicts import Judgement
from cfglint_train.fitting import places
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.judging.result import Result
from cfglint_train.memory.budget import VERDICTS
from cfglint_train.plan.names import Field
from cfglint_train.reports.escape import printable
from cfglint_train.runs.run import Run

if TYPE_CHECKING:
    from cfglint_train.fitting.hardware_needed import HardwareNeed
    from cfglint_train.fitting.smallest import Solution
    from cfglint_train.whatif.plan_file import Planned

_OF: Final = {"gpu": "", "host": " of host memory", "disk": " of disk"}
NO_JOB: Final = "the file describes no training run by itself"
"""What keeps a companion from being estimated: the file of a library that a run uses."""
_STEP: Final = 100
"""Tokens to which a length above that is rounded, upwards."""


def of_lint(result: Result) -> str | None:
    """Return the answer of a lint of one run; None if there are others, or if no rule estimated it."""
    run = result.runs[0].meant if len(result.runs) == 1 else None
    if run is None or not run.is_estimated:
        return None
    from cfglint_train.runs.not_estimated import trains

    if not run.estimate.phases and not trains(run):
        return None
    solution = None
    if any(finding.code == "MEM001" for finding in result.findings):  # which has looked for it
        from cfglint_train.fitting.smallest import smallest

        solution = smallest(run)
    return answer(run, solution, _settled(result, run) if solution is None else ())


def _settled(result: Result, run: Run) -> tuple[str, ...]:
    """Return the settings of the first safe fix with which the run fits."""
    worst = _worst(run)
    if worst is None or not places.lacks(worst):
        return ()
    for finding in result.findings:
        fix = finding.intent
        if fix is not None and fix.applicability == "safe" and fix.changes and places.fits(run.changed(fix.changes)):
            from cfglint_train.fitting import words

            return words.settings(run, fix.changes)
    return ()


def of_several(runs: Sequence[Run | Planned]) -> Iterator[str]:
    """Yield the answer for the worst of several runs, and an empty line."""
    judged = [(worst, run) for run in runs if (worst := _worst(run)) is not None] if len(runs) > 1 else []
    if judged:
        _, run = max(judged, key=lambda one: (VERDICTS.index(one[0].verdict), one[0].budget.expected / one[0].capacity))
        path = run.main.document.path if isinstance(run, Run) else run.path
        yield printable(f"worst of {len(runs)} runs: {path}: {answer(run)}")
        yield ""


def of_estimate(run: Run | Planned) -> str:
    """Return the answer with the largest sizes that fit, or the smallest change with which the run does."""
    worst, solution = _worst(run), None
    if worst is not None and places.lacks(worst) and isinstance(run, Run):
        from cfglint_train.fitting.smallest import smallest_of

        solution = smallest_of(run, None)
    return answer(run, solution, sizes=True)


def answer(
    run: Run | Planned,
    solution: Solution | None = None,
    settled: tuple[str, ...] = (),
    *,
    holding: HardwareNeed | None = None,
    sizes: bool = False,
) -> str:
    """Return the answer: `fits: 16.1 of 23.5 GiB`.

    `solution` or `settled` is the change that is offered if it does not fit, and `holding` what would hold it if no
    change makes it fit; `sizes`: also say which micro batch and which length fit.
    """
    why, worst = _not_estimated(run), _worst(run)
    if why or worst is None:
        return f"not estimated: {printable(why or NO_JOB)}"
    phase = "" if worst.verdict == "fits" else f" in {worst.phase.title}"
    from cfglint_train.hardware.catalogue import ASSUMPTION

    origin = run.hardware.gpu_origin
    card = "80 GB GPU" if origin == ASSUMPTION else run.hardware.gpu or "GPU"
    assumed = f" ({card} assumed; set --gpu)" if worst.place == "gpu" and origin.kind == "assumed" else ""
    needed = gib(worst.budget.expected).removesuffix(" GiB")
    parts = [f"{worst.verdict}: {needed} of {gib(worst.capacity)}{_OF[worst.place]}{assumed}{phase}"]
    if places.lacks(worst):
        settings = solution.settings if solution is not None else settled
        if settings:
            parts.append(f"smallest change: {', '.join(settings)}")
        elif holding is not None:
            parts.append(f"no change of these files makes it fit; {holding.words}")
    elif sizes:
        parts += _sizes(run, worst)
    return printable("; ".join(parts))


def _not_estimated(run: Run | Planned) -> str:
    """Return why no training step was estimated; empty if one was. The details have the remedy."""
    if not isinstance(run, Run):
        return ""
    from cfglint_train.runs.not_estimated import unchecked

    found = unchecked(run)
    return "" if found is None else found.why


def _worst(run: Any) -> Judgement | None:
    """Return the verdict that counts: the worst of GPU, host and disk."""
    gpu = places.judged(run, "gpu")
    if gpu is None:
        return None
    return max((gpu, *places.elsewhere(run)), key=lambda one: VERDICTS.index(one.verdict))


def _sizes(run: Any, now: Judgement) -> list[str]:
    """Return the largest micro batch that fits, and the length from which the verdict is a worse one."""
    from cfglint_train.fitting.alternatives import HIGHEST, largest

    found = []
    if run.plan.batch.micro and 0 < (most := largest(run, "batch.micro")) < HIGHEST:
        found.append(f"largest micro batch {most:,}")
    field: Field = "sequence.length"
    if run.plan.sequence.length:
        allowed = VERDICTS.index(now.verdict)

        def is_no_worse(other: Run) -> bool:
            worst = _worst(other)
            return worst is not None and VERDICTS.index(worst.verdict) <= allowed

        last = largest(run, field, is_no_worse)
        if run.plan.sequence.length <= last < HIGHEST:
            first = last + 1 if last < _STEP else -(-(last + 1) // _STEP) * _STEP
            worse = _worst(run.changed({field: first}))
            found += [f"{worse.verdict} from {first:,} tokens"] if worse is not None else []
    return found
