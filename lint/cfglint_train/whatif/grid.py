"""Estimate a grid of variations: `cfglint estimate --what-if micro_batch=1,2,4 sequence=4096,8192`.

Each cell holds the peak of a training step, or of the evaluation if that needs more. An axis is a plan field
(`batch.micro`), one of the short names below, or `gpu`; its values are separated by commas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Protocol
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.hardware.gpus import find_gpu, parse_capacity
from cfglint_train.hardware.sizes import SizeError
from cfglint_train.memory.budget import STEP_PHASES, VERDICTS, Budget, Estimate, Phase, compute_verdict
from cfglint_train.plan.fields import FIELDS, Plan
from cfglint_train.plan.names import Field

NAMES: Final[Mapping[str, str]] = {
    "micro_batch": "batch.micro",
    "accumulation": "batch.accumulation",
    "sequence": "sequence.length",
    "checkpointing": "activations.checkpointing",
    "attention": "activations.attention",
    "fused_loss": "activations.fused_loss",
    "lora_rank": "method.lora_rank",
    "quantization": "method.quantization",
    "optimizer_bits": "optimizer.state_bits",
    "strategy": "parallel.strategy",
    "zero_stage": "parallel.zero_stage",
    "offload_optimizer": "parallel.offload_optimizer",
    "offload_params": "parallel.offload_params",
    "nodes": "launch.nodes",
    "gpus_per_node": "launch.gpus_per_node",
}

GPU: Final = "gpu"
"""Axis of GPUs or memory sizes: a field of the hardware, not of the plan."""

MAX_CELLS: Final = 400
"""Maximum number of cells in a grid."""


class Changeable(Protocol):
    """A run, or a plan from a JSON file."""

    @property
    def plan(self) -> Plan:
        """Plan of the run."""

    @property
    def hardware(self) -> Hardware:
        """Hardware that the run uses."""

    @property
    def estimate(self) -> Estimate:
        """Peak memory of every phase."""

    def replace_fields(self, changes: Mapping[Field, Any]) -> Any:
        """Return a copy with other values of some plan fields."""

    def replace_gpu(self, gpu: str) -> Any:
        """Return a copy with another GPU."""


class Axis(Frozen):
    """One field with the values to try."""

    name: str
    """Name as given by the user."""
    field: Field | None
    """Plan field; None for the GPU."""
    values: tuple[Any, ...]


class Cell(Frozen):
    """One combination of values. Sizes are bytes."""

    changes: dict[str, Any]
    """Axis name -> value."""
    budget: Budget | None
    """Budget of the worst phase of the step, or of the evaluation if that is worse; None if it cannot be estimated."""
    phase: str
    verdict: str | None
    """fits, tight, probably does not fit, does not fit; None without an estimate or a capacity."""
    phases: tuple[tuple[str, Budget, str | None], ...] = ()
    """All compared phases, from the best to the worst: name, budget and verdict."""


def parse_axes(arguments: Sequence[str]) -> list[Axis]:
    """Parse the axes of the command line. Raise UsageError for an invalid one."""
    from cfglint_train.plan.typed_values import parse_value
    from cfglint_train.whatif import words as allowed_words

    axes: list[Axis] = []
    for word in arguments:
        name, sign, text = word.partition("=")
        field = NAMES.get(name.replace("-", "_"), name)
        if not sign or not text:
            raise UsageError(f"--what-if {word}: expected AXIS=VALUE,VALUE, for example micro_batch=1,2,4")
        if any((axis.field or GPU) == field for axis in axes):
            raise UsageError(f"--what-if {word}: {field} is given twice")
        if field == GPU:
            axes.append(Axis(name, None, tuple(_parse_gpu(word, item) for item in text.split(","))))
            continue
        if field not in FIELDS:
            from difflib import get_close_matches

            near = get_close_matches(name.replace("-", "_"), [*NAMES, GPU, *FIELDS], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"--what-if {word}: an axis must be a plan field, {GPU} or one of {', '.join(NAMES)}{hint}"
            )
        try:
            values = tuple(parse_value(field, item) for item in text.split(","))
            allowed_words.check_axis(field, values)
        except UsageError as error:
            raise UsageError(f"--what-if {word}: {error}") from None
        axes.append(Axis(name, field, values))
    cells = 1
    for axis in axes:
        cells *= len(axis.values)
    if cells > MAX_CELLS:
        raise UsageError(f"--what-if: {cells} combinations exceed the maximum of {MAX_CELLS}")
    return axes


def _parse_gpu(word: str, text: str) -> str:
    """Return the GPU's name in the table, or a memory size as written. Raise UsageError for anything else."""
    try:
        return parse_capacity(text)[0] or text
    except SizeError as error:
        raise UsageError(f"--what-if {word}: {error}") from None


_USUAL_GPUS: Final = ("RTX 4090", "L40S", "A100-80GB", "H200", "B200")
"""GPUs of the usual grid beside the stated one: a common card of each size."""
_MIN_LENGTH: Final = 512
"""Shortest usual length in tokens, unless the run's own is shorter; below it, memory hardly changes."""


def choose_axes(run: Changeable) -> list[Axis]:
    """Return the usual axes around the run's own values: GPU, micro batch, sequence length.

    The run's own GPU comes first. A run that lacks room has smaller micro batches. Return nothing if the micro batch or
    the length is unknown.
    """
    micro, length = run.plan.batch.micro, run.plan.sequence.length
    if not micro or not length or not run.estimate.has_step:
        return []
    card, capacity = run.hardware.gpu, run.hardware.get_capacity(GPU)
    peak = run.estimate.find_peak(GPU)
    is_lacking = capacity is not None and peak is not None and peak.gpu is not None and peak.gpu.expected > capacity
    micros = sorted({micro, *(size for power in range(-3, 4) if (size := int(micro * 2.0**power)) >= 1)})
    start = max(0, micros.index(micro) - (3 if is_lacking else 1))
    shortest = min(_MIN_LENGTH, length)
    lengths = {length, *(size for power in range(-2, 2) if (size := int(length * 2.0**power)) >= shortest)}
    others = [name for name in _USUAL_GPUS if (gpu := find_gpu(name)) is not None and gpu.bytes != capacity]
    return [
        Axis(GPU, None, (card, *others)),
        Axis("micro_batch", "batch.micro", tuple(micros[start : start + 4])),
        Axis("sequence", "sequence.length", tuple(sorted(lengths))),
    ]


def get_value(run: Changeable, axis: Axis) -> Any:
    """Return the run's current value on an axis."""
    return run.hardware.gpu if axis.field is None else run.plan.get(axis.field)


def _apply_values(run: Changeable, axes: Sequence[Axis], values: Sequence[Any]) -> Any:
    """Return a copy of the run with the values of one cell."""
    changes = {axis.field: value for axis, value in zip(axes, values) if axis.field is not None}
    for axis, value in zip(axes, values):
        if axis.field is None and value != run.hardware.gpu:
            run = run.replace_gpu(value)
    return run.replace_fields(changes)


def generate_cells(run: Changeable, axes: Sequence[Axis]) -> Iterator[Cell]:
    """Yield every combination; the last axis varies fastest."""
    evaluates = any(axis.field in _EVALUATION_FIELDS for axis in axes)
    for values in _generate_combinations([axis.values for axis in axes]):
        changed = _apply_values(run, axes, values)
        names = {axis.name: value for axis, value in zip(axes, values)}
        capacity = changed.hardware.get_capacity("gpu")
        outcomes = [
            (phase.name, phase.gpu, compute_verdict(phase.gpu, capacity) if capacity is not None else None)
            for phase in _select_phases(changed, evaluates)
            if phase.gpu is not None
        ]
        if not any(name in STEP_PHASES for name, _, _ in outcomes):
            yield Cell(names, None, "", None)
            continue
        outcomes.sort(
            key=lambda outcome_row: (
                VERDICTS.index(outcome_row[2]) if outcome_row[2] is not None else 0,
                outcome_row[1].expected,
            )
        )
        name, budget, outcome = outcomes[-1]
        yield Cell(names, budget, name, outcome, tuple(outcomes))


def _select_phases(run: Changeable, evaluates: bool) -> list[Phase]:
    """Return the phases of a step, and the evaluation if the files or the axes enable it."""
    evaluates = evaluates or run.plan.eval.enabled is True
    return [
        phase for phase in run.estimate.phases if phase.name in STEP_PHASES or (evaluates and phase.name == EVALUATION)
    ]


EVALUATION: Final = "eval"
_EVALUATION_FIELDS: Final[frozenset[Field]] = frozenset((
    "activations.fused_evaluation", "batch.eval_micro", "eval.enabled", "eval.strategy", "sequence.eval_length",
))  # fmt: skip
"""Fields that affect only the memory of an evaluation. An axis over one of them adds the evaluation to the grid."""


def _generate_combinations(values: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    if not values:
        yield ()
        return
    for first in values[0]:
        for rest in _generate_combinations(values[1:]):
            yield (first, *rest)


def render_table(run: Changeable, axes: Sequence[Axis], width: int | None = None) -> Iterator[str]:
    """Yield the lines of the grid.

    Rows are combinations of all axes but the last; columns are values of the last. If a line is wider than `width`,
    each cell gets its own line.
    """
    cells = list(generate_cells(run, axes))
    lines = list(_render_columns(cells, axes))
    if width is not None and max(map(len, lines)) > width:
        labels = [", ".join(f"{name} {_format_value(value)}" for name, value in cell.changes.items()) for cell in cells]
        margin = max(map(len, labels))
        lines = [f"  {label:<{margin}}  {_format_cell(cell)}" for label, cell in zip(labels, cells)]
    yield from lines
    for name in find_idle_axes(cells, axes):
        yield f"  {name} has no effect on this estimate"


def _render_columns(cells: Sequence[Cell], axes: Sequence[Axis]) -> Iterator[str]:
    last = axes[-1]
    heads = [f"{last.name} {_format_value(value)}" for value in last.values]
    width = max(24, *(len(head) + 2 for head in heads), *(len(_format_cell(cell)) for cell in cells))
    row_labels = [", ".join(f"{axis.name} {_format_value(cells[start].changes[axis.name])}" for axis in axes[:-1])
            for start in range(0, len(cells), len(last.values))]  # fmt: skip
    margin = max((len(text) for text in row_labels), default=0)
    yield (f"  {'':<{margin}}" + "".join(f"  {head:<{width}}" for head in heads)).rstrip()
    for number, text in enumerate(row_labels):
        row = cells[number * len(last.values) : (number + 1) * len(last.values)]
        yield (f"  {text:<{margin}}" + "".join(f"  {_format_cell(cell):<{width}}" for cell in row)).rstrip()


def find_idle_axes(cells: Sequence[Cell], axes: Sequence[Axis]) -> list[str]:
    """Return the names of the axes that change no estimate, or an empty list if no cell has an estimate."""
    idle = []
    for axis in axes:
        results_by_rest: dict[str, set[Any]] = {}
        for cell in cells:
            rest = repr({name: value for name, value in cell.changes.items() if name != axis.name})
            figures = tuple(sorted((budget.expected, budget.low, budget.high) for _, budget, _ in cell.phases))
            results_by_rest.setdefault(rest, set()).add((figures, cell.verdict))
        if len(axis.values) > 1 and all(len(results) == 1 for results in results_by_rest.values()):
            idle.append(axis.name)
    return idle if any(cell.budget is not None for cell in cells) else []


def _format_cell(cell: Cell) -> str:
    """Format the step, followed by the evaluation if that is worse."""
    if cell.budget is None:
        return "unknown"
    if cell.phase != EVALUATION:
        return _format_amount(cell.budget, cell.verdict)
    *_, (_, budget, outcome) = (row for row in cell.phases if row[0] in STEP_PHASES)
    return f"{_format_amount(budget, outcome)}; evaluation {_format_amount(cell.budget, cell.verdict).lstrip()}"


def _format_amount(budget: Budget, outcome: str | None) -> str:
    return f"{budget.expected / 2**30:7.1f} GiB {outcome or ''}".rstrip()


def _format_value(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def build_document(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return the grid as plain values; sizes are bytes."""
    return [
        {
            "changes": cell.changes,
            "phase": cell.phase or None,
            "expected": None if cell.budget is None else cell.budget.expected,
            "low": None if cell.budget is None else cell.budget.low,
            "high": None if cell.budget is None else cell.budget.high,
            "verdict": cell.verdict,
        }
        for cell in cells
    ]
