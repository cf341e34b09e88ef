"""Facts that people state about the cluster and the releases: their names, what they may say, which source wins.

They come from flags, pragma comments, settings and launch scripts; their readers ask here.
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
"""Facts that plan fields hold."""

VISIBLE_GPU_OPTIONS: Final = frozenset(("CUDA_VISIBLE_DEVICES", "--gpus-per-node", "--gres", "--gpus", "-G"))
"""By these a script says how many GPUs its programs may use; how many they do use is for the launcher to say."""

HARDWARE_FACTS: Final = (*CLUSTER_FACTS, "gpu", "gpu-memory", "host-memory", "disk")
_COUNTS: Final = ("nodes", "gpus-per-node")

# PEP 440 without epochs; a local label (`2.8.0+cu128`) does not change the behaviour, but people paste it.
_RELEASE: Final = r"v?\d+(?:\.\d+)*(?:[._-]?(?:a|b|rc|post|dev)\d*)*(?:\+[A-Za-z0-9.]+)?"

_Stated = TypeVar("_Stated")


class FactError(UsageError):
    """An invalid stated fact; carries where it was stated."""

    def __init__(self, message: str, origin: Origin) -> None:
        super().__init__(message)
        self.message = message
        self.origin = origin


def find_canonical_name(name: str) -> str | None:
    """The fact that a name means; None where there is no such fact."""
    return name if name in HARDWARE_FACTS else registry.map_spellings().get(name)


def list_spellings() -> tuple[str, ...]:
    """Every name by which a fact can be stated."""
    return (*HARDWARE_FACTS, *registry.map_spellings())


def check(name: str, fact: FieldValue) -> None:
    """Raise FactError where the value of a fact (by its canonical name) is invalid."""
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
    """The number that `nodes` or `gpus-per-node` states. Raises FactError."""
    text = str(fact.value)
    # Nine digits are more than any cluster has, and less than Python refuses to convert.
    if re.fullmatch(r"0*[1-9][0-9]{0,8}", text) is None:
        raise FactError(f"{name} must be a positive integer, not {text!r}", fact.origin)
    return int(text)


def convert_count(name: str, fact: FieldValue) -> FieldValue:
    """A fact with the number that it states; None stays unknown. Raises FactError."""
    return fact if fact.value is None else fact._replace(value=parse_count(name, fact))


def merge_facts(weaker: Mapping[str, _Stated], stronger: Mapping[str, _Stated]) -> dict[str, _Stated]:
    """Facts of two sources, the stronger one winning.

    A stronger source that names another GPU does not mean it with the memory that a weaker source gives: `gpu-memory`
    goes with it.
    """
    result = dict(weaker)
    if "gpu" in stronger:
        result.pop("gpu-memory", None)
    result.update(stronger)
    return result
