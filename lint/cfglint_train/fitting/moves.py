"""Moves: changes to a run that lower a peak, with their cost.

They come from `moves.json`, the micro batch, the token budget and the sequence lengths. A dimension is a setting with
its possible values: divisors of the effective batch, a length halved repeatedly, or the values in the table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from math import gcd, log2

from cfglint_train.documents.document import CannotEdit, apply_edits
from cfglint_train.findings.draft import draft_without_comment_check, list_document_changes
from cfglint_train.findings.finding import Fix
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.memory.budget import Resource
from cfglint_train.memory.rollout import compute_engine_weights
from cfglint_train.plan.fields import get_field, validate_fields
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

FILLS_IN: Final = 0
"""Tier of a move that sets an unstated setting; loss, data and resuming stay the same."""
REPLACES: Final = 1
"""Tier of a move that replaces a stated value; loss, data and resuming stay the same."""
GIVES_UP: Final = 2
"""Tier of a move that gives something else up: see `Move.gives_up`."""
ENDS_RESUMING: Final = 3
"""Tier of a move after which training cannot resume: checkpoints hold only the trained weights."""
OPTIMISATION: Final = 4
"""Tier of a move that changes the optimization."""

TIERS: Final = (FILLS_IN, REPLACES, GIVES_UP, ENDS_RESUMING, OPTIMISATION)
SAFE: Final = REPLACES
"""Highest tier of a safe fix."""

_KINDS: Final = {
    "keeps": FILLS_IN,
    "gives-up": GIVES_UP,
    "ends-resuming": ENDS_RESUMING,
    "optimisation": OPTIMISATION,
}
MICRO_BATCH: Final = "micro batch"
_TOKEN_BUDGET: Final[Field] = "batch.tokens_per_gpu"

Basis = Literal["measured", "derived", "rough"]
"""Quality of the evidence for a slowdown."""


class Move(Frozen):
    """A change: new values of plan fields, with its cost."""

    name: str
    changes: Mapping[Field, Any]
    tier: int
    slowdown: float
    """Factor on the duration of a step."""
    gives_up: str
    basis: Basis
    source: str
    edits: int
    """Number of settings that the move writes."""
    steps: int = 1
    """Number of optimization changes that the move counts as; for a length, the number of halvings."""
    needs: Mapping[Field, Collection[Any]] = {}
    """Values that other fields must have, even after the other moves of a combination are applied."""


class Dimension(Frozen):
    """A setting with its moves; the last move needs the least memory."""

    field: Field
    moves: tuple[Move, ...]
    ordered: bool = True
    """True if no move needs more memory than the move before it, whatever else changes."""
    required: bool = False
    """True if a combination must include one of the moves."""


@cache
def load_table() -> Mapping[str, Any]:
    """Return the content of `moves.json`."""
    with open(os.path.join(os.path.dirname(__file__), "moves.json"), encoding="utf-8") as file:
        content: Mapping[str, Any] = json.load(file)
    return content


def list_fields() -> frozenset[Field]:
    """Return the fields that moves change."""
    listed = {
        get_field(field)
        for row in load_table()["moves"]
        for places in row["to"]
        for changes in places
        for field in changes
    }
    lengths = {get_field(row["field"]) for row in load_table()["lengths"]}
    return frozenset({*listed, *lengths, "batch.micro", "batch.accumulation", "batch.global_", _TOKEN_BUDGET})


LackingPhases = Collection[tuple[str, Resource]]
"""Pairs of a phase and a place that lacks room for it."""


def list_dimensions(run: Run, lacking: LackingPhases, keep: Collection[str] = ()) -> list[Dimension]:
    """Return the settings of a run that moves can change, each with the moves that its files can state.

    `lacking`: the phases that lack room, with the place. `keep`: keys and fields that must not change.
    """
    moves_by_field: dict[Field, list[Move]] = {}
    for field, move in (
        *_generate_moves(run, lacking),
        *_generate_token_budgets(run),
        *_generate_lengths(run, lacking),
    ):
        moves_by_field.setdefault(field, []).append(move)
    phases = {phase.name for phase in run.estimate.phases}
    rows = load_table()["moves"]
    unordered = {row["field"] for row in rows if not row.get("ordered", True) or row.get("raises") in phases}
    all_dimensions = [Dimension(field, tuple(moves), field not in unordered) for field, moves in moves_by_field.items()]
    # The first step of accumulation needs additional memory: gradients are kept between micro batches.
    accumulates = (run.plan.batch.accumulation or 1) > 1 and not run.plan.parallel.defers_reduction
    all_dimensions.append(Dimension("batch.micro", tuple(_generate_micro_batches(run)), ordered=accumulates))
    kept = [
        dimension._replace(moves=tuple(move for move in dimension.moves if not _is_kept(run, move, keep)))
        for dimension in all_dimensions
    ]
    return [dimension for dimension in kept if dimension.moves]


def _is_kept(run: Run, move: Move, keep: Collection[str]) -> bool:
    return any(field in keep or run.spell_key(field) in keep for field in move.changes)


def explain_refusal(run: Run, changes: Mapping[Field, Any]) -> str | None:
    """Return the reason why the run's files cannot state `changes`, or None if they can."""
    try:
        list_document_changes(run, changes)
    except CannotEdit as error:
        return str(error)
    return None


def list_refusals(run: Run, changes: Mapping[Field, Any]) -> frozenset[str]:
    """Return the reasons why the run would fail with `changes` in its files, excluding those that already apply.

    Raise `CannotEdit` if the files cannot state the changes.
    """
    edited_documents = draft_without_comment_check(run, Fix("safe", "", changes))
    return run.find_refusals(
        {document.path: apply_edits(document.source, edits) for document, _, edits in edited_documents}
    )


def _count_settings(run: Run, changes: Mapping[Field, Any]) -> int:
    """Return the number of settings that `changes` would write, or 0 if the files cannot state them."""
    try:
        return sum(len(document_changes) for _, document_changes in list_document_changes(run, changes))
    except CannotEdit:
        return 0


def _find_tier(run: Run, kind: str, field: Field) -> int:
    tier = _KINDS[kind]
    return REPLACES if tier == FILLS_IN and run.is_stated(field) else tier


def _generate_moves(
    run: Run, lacking: LackingPhases, wanted_field: Field | None = None
) -> Iterator[tuple[Field, Move]]:
    """Yield the moves in the table that apply to a run and can be written, with their field.

    `wanted_field`: the only field whose moves are drafted; None for all.
    """
    for row in load_table()["moves"]:
        field = get_field(row["field"])
        # The order matters: a finding rests on the fields that are read here, whatever field is wanted.
        if not _is_applicable(run, row, field, lacking) or wanted_field not in (None, field):
            continue
        limit_field = (
            get_field(row["unstated_at_most"]) if "unstated_at_most" in row and not run.is_stated(field) else None
        )
        slowdowns = row["slowdown"] if isinstance(row["slowdown"], list) else [row["slowdown"]] * len(row["to"])
        for ways, slowdown in zip(row["to"], slowdowns):
            for way in ways:
                changes = validate_fields(way)
                if row["from"] == "above" and not run.plan.get(field) > changes[field]:
                    continue
                if not _can_engine_start(run, changes.get("rollout.utilization")):
                    continue
                if limit_field is not None and changes[field] > (run.plan.get(limit_field) or 1):
                    continue
                edits = _count_settings(run, changes)
                if edits:
                    tier = _find_tier(run, row["kind"], field)
                    yield (
                        field,
                        _build_move(row["name"], changes, tier, slowdown, row, edits, steps=row.get("steps", 1)),
                    )
                    break


def _can_engine_start(run: Run, share: float | None) -> bool:
    """Return whether an inference engine's weights fit into another share of the GPUs; True if unknown."""
    weights, capacity = compute_engine_weights(run.plan, run.architecture), run.hardware.gpu_bytes
    return share is None or weights is None or capacity is None or weights <= share * capacity


def _is_in_other_phase(row: Mapping[str, Any], lacking: LackingPhases) -> bool:
    """Return whether a row's move only affects a phase that does not lack room."""
    return "phase" in row and all(phase != row["phase"] for phase, _ in lacking)


def _is_applicable(run: Run, row: Mapping[str, Any], field: Field, lacking: LackingPhases) -> bool:
    value = run.plan.get(field)
    if _is_in_other_phase(row, lacking):
        return False
    if "relieves" in row and all(place not in row["relieves"] for _, place in lacking):
        return False
    model = run.architecture
    if "mixture" in row and row["mixture"] != (model is not None and model.experts is not None):
        return False
    if row.get("plain") and model is not None and model.quantization is not None:
        return False
    if row.get("host") and run.hardware.get_capacity("host") is None:
        return False  # it is unknown whether the host has room
    if row["from"] == "above":
        is_in_range = isinstance(value, (int, float)) and not isinstance(value, bool)
    else:
        is_in_range = value is not None and value in row["from"]
    return (
        is_in_range
        and all(run.plan.get(get_field(other)) in values for other, values in row.get("needs", {}).items())
        and not any(item in (run.plan.get(get_field(other)) or ()) for other, item in row.get("unless", {}).items())
    )


def _generate_micro_batches(run: Run) -> Iterator[Move]:
    """Yield moves to other micro batches with the same effective batch.

    A larger micro batch helps only if FSDP defers gradient reduction and so keeps unsharded gradients between micro
    batches. Without accumulation, there are no gradients to keep.
    """
    plan, row = run.plan, load_table()["micro_batch"]
    micro, accumulation = plan.batch.micro, plan.batch.accumulation
    if not micro or not accumulation or plan.batch.tokens_per_gpu:
        return
    for other in list_even_micro_batches(run):
        if other == micro or (other > micro and not (plan.parallel.defers_reduction and other == micro * accumulation)):
            continue
        changes = build_micro_batch_changes(run, micro * accumulation, other)
        slowdown = row["slowdown_per_halving"] ** max(0.0, log2(micro / other))
        edits = _count_settings(run, changes)
        if edits:
            gives_up = row["gives_up"] if other < micro else "nothing"
            tier = _find_tier(run, "keeps", "batch.micro")
            yield _build_move(MICRO_BATCH, changes, tier, slowdown, row, edits)._replace(gives_up=gives_up)
            continue
        # No file states the accumulation. A smaller effective batch still comes before samples that are cut.
        changes = {"batch.micro": other}
        edits = _count_settings(run, changes) if other < micro else 0
        if edits:
            move = _build_move(MICRO_BATCH, changes, OPTIMISATION, slowdown, row, edits, steps=0)
            yield move._replace(gives_up=row["gives_up_alone"])


def build_micro_batch_changes(run: Run, effective_batch: int, micro: int) -> dict[Field, Any]:
    """Return the changes that set the micro batch to `micro` and keep the effective batch.

    `effective_batch`: micro batch x accumulation.
    """
    changes: dict[Field, Any] = {"batch.micro": micro}
    if not _is_inferred(run, "batch.accumulation"):
        changes["batch.accumulation"] = effective_batch // micro
    elif _is_inferred(run, "batch.global_"):  # the global batch would also change, so state it
        changes["batch.global_"] = run.plan.batch.global_
    return changes


def _is_inferred(run: Run, field: Field) -> bool:
    origin = run.get_origin(field)
    return origin is not None and origin.kind == "inferred"


def list_even_micro_batches(run: Run) -> list[int]:
    """Return the micro batches that divide the batch evenly on the ranks of every model role, largest first."""
    plan = run.plan
    whole = (plan.batch.global_ or 0) * (plan.parallel.context or 1) * (plan.parallel.tensor or 1)
    even = (plan.batch.micro or 1) * (plan.batch.accumulation or 1)
    for role in plan.model.roles or ():
        ranks = (role.nodes or 0) * (role.gpus_per_node or 0)
        if ranks and whole % ranks == 0:
            even = gcd(even, whole // ranks)
    return _list_divisors(even)


def _list_divisors(number: int) -> list[int]:
    """Return the divisors of a number, largest first."""
    small = [part for part in range(1, min(number, 1 << 12) + 1) if part * part <= number and number % part == 0]
    return sorted({*small, *(number // part for part in small)}, reverse=True)


_MULTIPLE: Final = 64
"""Number of elements to which kernels pad; a length that is a multiple of it stays one."""


def _generate_halves(value: int, least: int) -> Iterator[tuple[int, int]]:
    """Yield a half, a quarter and so on of `value`, while at least `least`, with the number of halvings.

    They are multiples of the power of two, up to `_MULTIPLE`, that divides `value`.
    """
    multiple, times = gcd(value, _MULTIPLE), 1
    while (value := value // 2 // multiple * multiple) >= max(least, 1):
        yield value, times
        times += 1


def _generate_token_budgets(run: Run) -> Iterator[tuple[Field, Move]]:
    """Yield the moves to smaller token budgets, down to the length of one sequence."""
    row, field = load_table()["micro_batch"], _TOKEN_BUDGET
    for budget, times in _generate_halves(run.plan.batch.tokens_per_gpu or 1, max(1, run.plan.sequence.length or 1)):
        edits = _count_settings(run, {field: budget})
        if edits:
            slowdown, tier = row["slowdown_per_halving"] ** times, _find_tier(run, "keeps", field)
            yield field, _build_move("token budget", {field: budget}, tier, slowdown, row, edits)


def _generate_lengths(run: Run, lacking: LackingPhases) -> Iterator[tuple[Field, Move]]:
    """Yield the moves to shorter sequences, with their field."""
    for row in load_table()["lengths"]:
        field = get_field(row["field"])
        if _is_in_other_phase(row, lacking):
            continue
        for length, times in _generate_halves(run.plan.get(field) or 1, row["least"]):
            edits = _count_settings(run, {field: length})
            if edits:
                tier, changes = _find_tier(run, row["kind"], field), validate_fields({field: length})
                yield field, _build_move(row["name"], changes, tier, row["slowdown"], row, edits, times)


def _build_move(
    name: str,
    changes: Mapping[Field, Any],
    tier: int,
    slowdown: float,
    row: Mapping[str, Any],
    edits: int,
    steps: int = 1,
) -> Move:
    needs = validate_fields(row.get("needs", {}))
    return Move(name, changes, tier, slowdown, row["gives_up"], row["basis"], row["source"], edits, steps, needs)


def find_move(run: Run, field: Field) -> Move | None:
    """Return the first move of `field` in the table that applies and can be written, or None."""
    return next((move for _, move in _generate_moves(run, (), field) if is_accepted(run, move.changes)), None)


def is_accepted(run: Run, changes: Mapping[Field, Any]) -> bool:
    """Return whether the run's files can state `changes` without making the run fail."""
    try:
        return not list_refusals(run, changes)
    except CannotEdit:
        return False
