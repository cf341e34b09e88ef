"""Facts that the user states about the cluster and the releases: names, valid values and precedence.

Facts come from flags, pragmas, settings and launch scripts, and the readers of all four use this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import Final, TypeVar
from cfglint_train.frameworks import registry
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue, Origin

CLUSTER_FACTS: Final[Mapping[str, Field]] = {"nodes": "launch.nodes", "gpus-per-node": "launch.gpus_per_node"}
"""Names of the facts that are plan fields, with those fields."""

VISIBLE_GPU_OPTIONS: Final = frozenset(("CUDA_VISIBLE_DEVICES", "--gpus-per-node", "--gres", "--gpus", "-G"))
"""Options by which a script limits the GPUs that its programs see. The launcher decides how many of them are used."""

RATES: Final = ("tokens-per-second", "price-per-gpu-hour")
"""Facts about the speed and the price of a run on its GPUs, from which its time and cost follow."""

HARDWARE_FACTS: Final = (*CLUSTER_FACTS, "gpu", "gpu-memory", "host-memory", "disk", *RATES)
_COUNTS: Final = ("nodes", "gpus-per-node")

# PEP 440 without epochs. A local label (`2.8.0+cu128`) changes nothing, but users paste it.
_RELEASE: Final = r"v?\d+(?:\.\d+)*(?:[._-]?(?:a|b|rc|post|dev)\d*)*(?:\+[A-Za-z0-9.]+)?"

_Stated = TypeVar("_Stated")


class FactError(UsageError):
    """An invalid fact, with the origin of its value."""

    def __init__(self, message: str, origin: Origin) -> None:
        """Keep the message and the origin of the fact."""
        super().__init__(message)
        self.message = message
        self.origin = origin


def find_canonical_name(name: str) -> str | None:
    """Return the canonical name of a fact (a hardware fact or a package), or None if the name is unknown."""
    return name if name in HARDWARE_FACTS else registry.map_spellings().get(name)


def list_spellings() -> tuple[str, ...]:
    """Return every name by which a fact can be stated."""
    return (*HARDWARE_FACTS, *registry.map_spellings())


def check(name: str, fact: FieldValue) -> None:
    """Raise FactError if the value of a fact (given by its canonical name) is invalid."""
    if name in _COUNTS:
        parse_count(name, fact)
    elif name in HARDWARE_FACTS:
        from cfglint_train.hardware.catalogue import UnknownHardware, build_hardware

        try:
            build_hardware({name: fact})
        except UnknownHardware as error:
            raise FactError(str(error), fact.origin) from None
    elif re.fullmatch(_RELEASE, str(fact.value), re.ASCII) is None:
        raise FactError(f"{name}={fact.value} is not a release; write it like {name}=2.8.0", fact.origin)
    else:
        from cfglint_train.settings.existing_releases import describe_missing_release

        problem = describe_missing_release(name, str(fact.value))
        if problem is not None:
            raise FactError(problem, fact.origin)


def parse_count(name: str, fact: FieldValue) -> int:
    """Parse the number that `nodes` or `gpus-per-node` states; raise FactError if it is invalid."""
    text = str(fact.value)
    # No cluster has a count of more than nine digits, and Python refuses to convert very long numbers.
    if re.fullmatch(r"0*[1-9][0-9]{0,8}", text) is None:
        raise FactError(f"{name} must be a positive integer, not {text!r}", fact.origin)
    return int(text)


def convert_count(name: str, fact: FieldValue) -> FieldValue:
    """Convert the text of a fact to a number; keep None, which means unknown. Raise FactError if it is invalid."""
    return fact if fact.value is None else fact._replace(value=parse_count(name, fact))


def merge_facts(weaker: Mapping[str, _Stated], stronger: Mapping[str, _Stated]) -> dict[str, _Stated]:
    """Merge the facts of two sources; the stronger source wins.

    If the stronger source names a GPU, `gpu-memory` of the weaker source is dropped, because it may belong to another
    GPU. So are the rates, if the weaker source names another GPU.
    """
    result = dict(weaker)
    if "gpu" in stronger:
        result.pop("gpu-memory", None)
        if "gpu" in weaker and _get_text(weaker["gpu"]) != _get_text(stronger["gpu"]):
            for name in RATES:
                result.pop(name, None)
    result.update(stronger)
    return result


def _get_text(stated: object) -> object:
    return stated.value if isinstance(stated, FieldValue) else stated
