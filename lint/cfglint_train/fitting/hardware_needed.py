"""Hardware for a run that does not fit with safe changes: more GPUs, or larger GPUs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from cfglint_train.findings.verdicts import ROLLOUT_PHASE, judge
from cfglint_train.fitting import places, words
from cfglint_train.fitting.moves import SAFE, is_accepted, list_dimensions
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.hardware import gpus
from cfglint_train.memory.booking import find_booking
from cfglint_train.memory.budget import STEP_PHASES, Resource
from cfglint_train.memory.rollout import compute_engine_pool
from cfglint_train.plan.fields import get_field
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

MAX_NODES: Final = 1024
_NO_CHANGES: Final[Mapping[Field, Any]] = {}


class HardwareNeed(Frozen):
    """Memory that the phases need with the safe changes that reduce it most, and hardware that provides it."""

    need: int
    """Bytes to book per GPU with `settings`: at least the upper bound (`booking.compute_booking`)."""
    nodes: int | None
    """Number of nodes on which what is booked fits; None if more GPUs do not help."""
    gpus: int | None
    """Number of GPUs on these nodes; None if `nodes` is None."""
    gpu: str | None
    """Smallest GPU in the table on which what is booked fits; None if none is large enough."""
    settings: tuple[str, ...]
    """Changes that `need` assumes, one per setting; empty if no change reduces the need. They are safe unless they give
    the present GPUs room.
    """
    share: str = ""
    """Key that sets the inference engine's share of the GPU, if the remaining share of every known GPU is too small."""
    lacking_places: Mapping[Resource, int] = {}
    """Expected bytes on the host and the disk, if they lack room on the present nodes."""
    size_settings: tuple[str, ...] = ()
    """Settings that give the job the GPUs, as text, if its own options set the sizes of its groups."""
    has_gpu_room: bool = False
    """True if the present GPUs have room with `settings`, so that only the host or the disk is too small."""

    @property
    def description(self) -> str:
        """Text such as `use 16 GPUs (2 nodes), or a GPU with at least 92.0 GiB (H200)`."""
        ways = []
        if self.nodes is not None:
            where = ", ".join(self.size_settings) or f"{self.nodes} nodes"
            ways.append(f"{self.gpus} GPUs ({where})")
        other_needs = [f"{format_gib(size)} of {_OTHERS[place]}" for place, size in self.lacking_places.items()]
        if self.has_gpu_room:
            ways.append(" and ".join(other_needs))
        elif not self.share:
            card = f"a GPU with at least {format_gib(self.need)} ({self.gpu or 'no known GPU is that large'})"
            ways.append(" and ".join([card, *other_needs]))
        elif not ways:
            others = "".join(f"; the run also needs {need}" for need in other_needs)
            return (
                f"neither more nor larger GPUs help, because the engine takes a share of each (`{self.share}`){others}"
            )
        suffix = "" if self.nodes is not None else "; more GPUs do not help"
        condition = f", and set {', '.join(map(_strip_old_value, self.settings))}" if self.settings else ""
        return f"use {', or '.join(ways)}{condition}{suffix}"


_OTHERS: Final[dict[Resource, str]] = {"host": "host memory per node", "disk": "disk"}


def _strip_old_value(setting: str) -> str:
    """Return a setting without its old value: `micro_batch_size: 1` for `micro_batch_size: 4 -> 1`."""
    key, colon, value = setting.partition(": ")
    return f"{key}{colon}{value.rpartition(' -> ')[2]}"


def find_hardware_needed(run: Run) -> HardwareNeed | None:
    """Return the hardware that the training step and the rollout need.

    Return None if the run is not estimated, or if it is a scenario.
    """
    return None if run.is_scenario else run.compute_once(_find_step_hardware)


def find_hardware_for_all_phases(
    run: Run, keep: Collection[str], changes: Mapping[Field, Any] = _NO_CHANGES
) -> HardwareNeed | None:
    """Return the hardware that all phases need, without changing the keys and fields in `keep`.

    `changes`: a change with which the present GPUs have room, so that only the host and the disk lack it.
    """
    return _find_for_phases(run, None, keep, changes)


def find_least_changes(run: Run) -> dict[Field, Any]:
    """Return the safe changes that reduce the GPU memory of the training step most."""
    changes_and_need = _find_least(run, STEP_PHASES)
    return {} if changes_and_need is None else changes_and_need[0]


def _find_step_hardware(run: Run) -> HardwareNeed | None:
    return _find_for_phases(run, (*STEP_PHASES, ROLLOUT_PHASE))


def _find_for_phases(
    run: Run, phases: Collection[str] | None, keep: Collection[str] = (), relief: Mapping[Field, Any] = _NO_CHANGES
) -> HardwareNeed | None:
    gpu = judge(run.replace_fields(relief) if relief else run, "gpu", phases)
    has_room = phases is None and gpu is not None and not places.is_lacking_room(gpu)
    changes_and_need = (relief, _compute_need(run, relief, None)) if has_room else _find_least(run, phases, keep)
    if changes_and_need is None or changes_and_need[1] is None:
        return None
    changes, need = changes_and_need[0], changes_and_need[1]
    changed = run.replace_fields(changes)
    capacity = run.hardware.get_capacity("gpu")
    room = max(capacity, need) if capacity is not None and has_room else capacity
    more_gpus = None if room is None else _find_more_gpus(changed, phases, room)
    nodes = None if more_gpus is None else more_gpus.get("launch.nodes", run.plan.launch.nodes)
    local = (more_gpus or {}).get("launch.gpus_per_node", run.plan.launch.gpus_per_node) or 1
    settings = words.format_settings(run, changes) if changes else ()
    if changes and not settings:
        return None  # the files cannot state these changes
    card, share = _find_smallest_gpu(need), ""
    if compute_engine_pool(changed.plan, run.hardware.get_capacity("gpu")):
        need, card = _find_beside_engine(run, changes, phases, need)
        share = "" if card else run.spell_key("rollout.utilization")
    lacking = (
        {judgement.resource: judgement.budget.expected for judgement in places.list_lacking(changed)}
        if phases is None
        else {}
    )
    gpu_count = None if nodes is None else nodes * local
    if more_gpus is not None and "launch.nodes" not in more_gpus:
        groups = changed.replace_fields(more_gpus).plan.launch.groups or ()
        gpu_count = sum(count for _, count in groups) or gpu_count
    size_settings = tuple(_describe_groups(run, more_gpus or {})) if _has_own_group(run) else ()
    return HardwareNeed(need, nodes, gpu_count, card, settings, share, lacking, size_settings, has_room)


def _find_least(
    run: Run, phases: Collection[str] | None, keep: Collection[str] = ()
) -> tuple[dict[Field, Any], int] | None:
    """Return the safe changes that reduce the GPU memory of the phases most, and the bytes to book for them then."""
    names = [item.name for item in run.estimate.phases if phases is None or item.name in phases]
    all_dimensions = list_dimensions(run, () if phases == STEP_PHASES else [(name, "gpu") for name in names], keep)
    safe = [item._replace(moves=tuple(move for move in item.moves if move.tier <= SAFE)) for item in all_dimensions]
    switched: dict[Field, Any] = {}
    for item in safe:
        if item.ordered and item.moves:
            switched.update(item.moves[-1].changes)
    best, others = _choose_least(run, [{}, switched], phases), [item for item in safe if not item.ordered]
    while best is not None and others:
        ways = [{**best[0], **move.changes} for item in others for move in item.moves]
        lower = _choose_least(run, ways, phases)
        if lower is None or lower[1] >= best[1] or not is_accepted(run, lower[0]):
            break
        best, changes = lower, lower[0]
        others = [item for item in others if not any(move.changes.items() <= changes.items() for move in item.moves)]
    return best


def _choose_least(
    run: Run, ways: Iterable[dict[Field, Any]], phases: Collection[str] | None
) -> tuple[dict[Field, Any], int] | None:
    """Return the changes with which least has to be booked, and these bytes, or None if none can be estimated."""
    needs = [(changes, need) for changes in ways if (need := _compute_need(run, changes, phases)) is not None]
    return min(needs, key=lambda pair: pair[1], default=None)


def _compute_need(run: Run, changes: Mapping[Field, Any], phases: Collection[str] | None) -> int | None:
    """Return the bytes to book per GPU for `phases` (None: all) with changes, or None if none is estimated.

    Beside an inference engine, return the upper bound: its share of the GPU is stated and has no margin.
    """
    changed = run.replace_fields(changes) if changes else run
    if compute_engine_pool(changed.plan, changed.hardware.get_capacity("gpu")):
        judgement = judge(changed, "gpu", phases)
        return None if judgement is None else judgement.high
    booking = find_booking(phase for phase in changed.estimate.phases if phases is None or phase.name in phases)
    return None if booking is None else booking[0]


def _has_own_group(run: Run) -> bool:
    """Return whether the options of the job set the size of the group that trains."""
    return not run.framework.launch_interface.uses_all_launched_gpus(run.main)


def _find_more_gpus(run: Run, phases: Collection[str] | None, room: int) -> dict[Field, Any] | None:
    """Return the smallest increase of the GPUs with which what is booked for the phases (None: all) fits, or None.

    It is the number of GPUs per node of each group that needs more, if the job uses only some of those in each node,
    else the number of nodes. Return None if the present number is unknown, or if more GPUs do not help. `room`: bytes
    that may be booked per GPU.
    """

    def can_fit_with(changes: Mapping[Field, Any]) -> bool:
        more = run.replace_fields(changes)
        need = _compute_need(more, {}, phases)
        return need is not None and need <= room and not (phases is None and places.list_lacking(more))

    grown = _grow_groups(run, phases, room) if _has_own_group(run) else None
    if grown and can_fit_with(grown):
        return grown
    nodes = _find_nodes(run.plan.launch.nodes, lambda nodes: can_fit_with({"launch.nodes": nodes}))
    return None if nodes is None else {"launch.nodes": nodes}


def _grow_groups(run: Run, phases: Collection[str] | None, room: int) -> dict[Field, Any] | None:
    """Return the GPUs per node of each group of models, doubled until its phases need at most `room` bytes.

    Return None if a node does not have as many. Models of one pool share its GPUs.
    """
    available, changes = run.cluster[1], dict[Field, Any]()
    while available:
        grown = run.replace_fields(changes) if changes else run
        roles = grown.plan.model.roles or ()
        names = [phase.name for phase in grown.estimate.phases if phases is None or phase.name in phases]
        lacking = {name for name in names if (_compute_need(grown, {}, (name,)) or 0) > room}
        if not lacking:
            break
        trains = bool(lacking - {role.name for role in roles})
        pools = {role.pool for role in roles if role.name in lacking or (trains and role.name == "actor")}
        local = (grown.plan.launch.gpus_per_node or available) * (1 + trains)
        if roles:
            changes["model.roles"] = tuple(
                role._replace(gpus_per_node=(role.gpus_per_node or available) * 2) if role.pool in pools else role
                for role in roles
            )
        if trains:
            changes["launch.gpus_per_node"] = local
        if max([local, *(role.gpus_per_node or 0 for role in changes.get("model.roles", ()))]) > available:
            return None
    return changes


def _describe_groups(run: Run, changes: Mapping[Field, Any]) -> Iterator[str]:
    """Yield the settings that give each group its GPUs; without a plan field of their own, those of other models."""
    for field in ("launch.gpus_per_node", "launch.nodes"):
        if field in changes:
            yield f"`{run.spell_key(get_field(field))}: {changes[get_field(field)]}`"
    for old, new in zip(run.plan.model.roles or (), changes.get("model.roles", ())):
        if new.gpus_per_node != old.gpus_per_node and new.name != "actor":
            yield f"{new.gpus_per_node} GPUs per node for the {new.name} model"


def _find_nodes(too_few: int | None, can_fit_on: Callable[[int], bool]) -> int | None:
    """Return the lowest number of nodes above `too_few` for which `can_fit_on` holds, or None if there is none."""
    if not too_few:
        return None
    if not can_fit_on(MAX_NODES):  # the unsharded part is too large for a GPU, or more nodes do not help
        return None
    enough = too_few * 2
    while not can_fit_on(enough):
        too_few, enough = enough, enough * 2
        if enough > MAX_NODES:
            return None
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        too_few, enough = (too_few, middle) if can_fit_on(middle) else (middle, enough)
    return enough


def _find_beside_engine(
    run: Run, changes: Mapping[Field, Any], phases: Collection[str] | None, need: int
) -> tuple[int, str | None]:
    """Return the bytes needed on the smallest GPU with room for them and the inference engine, and the GPU's name.

    The engine takes a share of every GPU, so the need grows with the GPU. Return `need` and None if no GPU fits.
    """
    for card in _list_cards(need):
        engine_need = _compute_need(run.replace_gpu(card.name), changes, phases)
        if engine_need is not None and engine_need <= card.bytes:
            return engine_need, card.name
    return need, None


def _find_smallest_gpu(need: int) -> str | None:
    """Return the name of the smallest GPU in the table with at least `need` bytes, or None."""
    return next((card.name for card in _list_cards(need)), None)


def _list_cards(least: int) -> list[gpus.Gpu]:
    """Return the GPUs in the table with at least `least` bytes, smallest first."""
    cards = [card for name in gpus.list_names() if (card := gpus.find_gpu(name)) is not None and card.bytes >= least]
    return sorted(cards, key=lambda card: card.bytes)
