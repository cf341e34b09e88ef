"""What would hold a run that no safe change makes fit: more GPUs, or a larger one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cfglint_train.findings.verdicts import ROLLOUT, STEP, judge
from cfglint_train.fitting import places, words
from cfglint_train.fitting.moves import SAFE, Dimension, dimensions
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.hardware import gpus
from cfglint_train.memory.budget import Resource
from cfglint_train.memory.rollout import pool
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

MOST_NODES: Final = 1024


class HardwareNeed(Frozen):
    """What some phases need after every safe change, and what has that."""

    need: int
    """Bytes of one GPU that are expected."""
    nodes: int | None
    """Nodes on which it is expected to fit; None where more do not help."""
    gpus: int | None
    """The same in GPUs."""
    gpu: str | None
    """The smallest GPU of the table on which it is expected to fit; None where none is large enough."""
    settings: tuple[str, ...]
    """The safe changes, one for each setting; none where the run needs least as it is."""
    share: str = ""
    """The setting by which an engine takes a share of any GPU, where that leaves too little of each."""
    beside: Mapping[Resource, int] = {}
    """The host and the disk where they lack room on the nodes that there are, with the bytes that are expected."""
    only_beside: bool = False
    """The GPUs that there are have room."""

    @property
    def words(self) -> str:
        """`16 GPUs (2 nodes), or a GPU with 92.0 GiB (H200) would hold it with micro_batch_size: 1`."""
        ways = []
        if self.nodes is not None:
            ways.append(f"{self.gpus} GPUs ({self.nodes} nodes)")
        others = [f"{gib(size)} of {_OTHERS[place]}" for place, size in self.beside.items()]
        if self.only_beside:
            ways.append(" and ".join(others))
        elif not self.share:
            card = f"a GPU with {gib(self.need)} ({self.gpu or 'none is that large'})"
            ways.append(" and ".join([card, *others]))
        elif not ways:
            return f"neither more nor larger GPUs help, as the engine takes a share of each (`{self.share}`)"
        lead = "" if self.nodes is not None else "more GPUs do not help; "
        beside = f" with {', '.join(map(_after, self.settings))}" if self.settings else ""
        return f"{lead}{', or '.join(ways)} would hold it{beside}"


_OTHERS: Final[dict[Resource, str]] = {"host": "host memory per node", "disk": "disk"}


def _after(setting: str) -> str:
    """`micro_batch_size: 1` of `micro_batch_size: 4 -> 1`: it is a condition here, and no advice."""
    key, colon, value = setting.partition(": ")
    return f"{key}{colon}{value.rpartition(' -> ')[2]}"


def holding(run: Run) -> HardwareNeed | None:
    """What would hold the training step and the rollout; None where it is not estimated, and at a corner."""
    return None if run.is_corner else run.once(_holding_step)


def holding_all(run: Run, keep: Collection[str]) -> HardwareNeed | None:
    """What would hold every phase, with some keys and fields left as they are."""
    return _holding(run, None, keep)


def least(run: Run) -> dict[Field, Any]:
    """The safe changes with which the training step needs least."""
    found = _least(run, STEP)
    return {} if found is None else found[0]


def _holding_step(run: Run) -> HardwareNeed | None:
    return _holding(run, (*STEP, ROLLOUT))


def _holding(run: Run, phases: Collection[str] | None, keep: Collection[str] = ()) -> HardwareNeed | None:
    gpu = judge(run, "gpu", phases)
    has_room = phases is None and gpu is not None and not places.lacks(gpu)
    least = ({}, gpu.budget.expected) if gpu is not None and has_room else _least(run, phases, keep)
    if least is None:
        return None
    changes, need = least
    changed = run.changed(changes)
    nodes = _nodes(changed, phases)
    local = run.plan.launch.gpus_per_node or 1
    settings = words.settings(run, changes) if changes else ()
    if changes and not settings:
        return None  # no file can state them
    card, share = _gpu(need), ""
    if pool(changed.plan, run.hardware.capacity("gpu")):
        need, card = _sharing(run, changes, phases, need)
        share = "" if card else run.spell("rollout.utilization")
    lacking = {one.place: one.budget.expected for one in places.lacking(changed)} if phases is None else {}
    return HardwareNeed(need, nodes, None if nodes is None else nodes * local, card, settings, share, lacking, has_room)


def _least(run: Run, phases: Collection[str] | None, keep: Collection[str] = ()) -> tuple[dict[Field, Any], int] | None:
    """The safe changes with which the phases need least, and how much that is."""
    asked = [one.name for one in run.estimate.phases if phases is None or one.name in phases]
    every = dimensions(run, () if phases == STEP else [(name, "gpu") for name in asked], keep)
    safe = [one._replace(moves=tuple(move for move in one.moves if move.tier <= SAFE)) for one in every]
    switched: dict[Field, Any] = {}
    for one in safe:
        if one.ordered and one.moves:
            switched.update(one.moves[-1].changes)
    found = [(changes, need) for changes in _ends(safe, switched) if (need := _need(run, changes, phases)) is not None]
    return min(found, key=lambda pair: pair[1], default=None)


def _ends(safe: list[Dimension], switched: dict[Field, Any]) -> list[dict[Field, Any]]:
    batches = [move for one in safe if not one.ordered for move in one.moves]
    return [{}, switched, *({**switched, **move.changes} for move in batches)]


def _need(run: Run, changes: Mapping[Field, Any], phases: Collection[str] | None) -> int | None:
    judged = judge(run.changed(changes) if changes else run, "gpu", phases)
    return None if judged is None else judged.budget.expected


def _nodes(run: Run, phases: Collection[str] | None) -> int | None:
    """The smallest number of nodes on which the phases are expected to fit; where all are asked for, everywhere."""
    capacity, too_few = run.hardware.capacity("gpu"), run.plan.launch.nodes
    if not too_few or capacity is None:
        return None

    def fits(nodes: int) -> bool:
        more = run.changed({"launch.nodes": nodes})
        if phases is None:
            return places.fits(more)
        need = _need(more, {}, phases)
        return need is not None and need <= capacity

    if not fits(MOST_NODES):  # what is on every GPU anyway is too large, as where more nodes do not help
        return None
    enough = too_few * 2
    while not fits(enough):
        too_few, enough = enough, enough * 2
        if enough > MOST_NODES:
            return None
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        too_few, enough = (too_few, middle) if fits(middle) else (middle, enough)
    return enough


def _sharing(
    run: Run, changes: Mapping[Field, Any], phases: Collection[str] | None, need: int
) -> tuple[int, str | None]:
    """What is needed beside an engine that takes a share of the GPU, and the smallest of the table that has it."""
    for card in _cards(need):
        wanted = _need(run.on(card.name), changes, phases)
        if wanted is not None and wanted <= card.bytes:
            return wanted, card.name
    return need, None


def _gpu(need: int) -> str | None:
    """The smallest GPU of the table with so much memory."""
    return next((card.name for card in _cards(need)), None)


def _cards(least: int) -> list[gpus.Gpu]:
    """The GPUs of the table with so much memory, the smallest first."""
    cards = [card for name in gpus.names() if (card := gpus.find(name)) is not None and card.bytes >= least]
    return sorted(cards, key=lambda card: card.bytes)
