"""The target machine of a run: GPU, host memory and disk, each with its origin."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.hardware.gpus import Gpu, find_gpu, find_smaller, parse_capacity, parse_marketed_size
from cfglint_train.hardware.sizes import SizeError, parse_stated_size
from cfglint_train.plan.origin import FieldValue, Origin

ASSUMED_GPU: Final = "A100-80GB"
"""GPU that is assumed if none is stated. It reports the least memory of all 80 GB cards."""

ASSUMPTION: Final = Origin("assumed", note="an 80 GB GPU; set `gpu` to be sure")
UNKNOWN: Final = Origin("assumed", note="unknown")


class UnknownHardware(Exception):
    """A stated GPU or size that is invalid. The message lists valid values; `origin` says where it is stated."""

    def __init__(self, message: str, origin: Origin) -> None:
        """Store the message and the origin."""
        super().__init__(message)
        self.origin = origin


class Price(Frozen):
    """A stated price; `currency` is written as in the settings, and empty if only a number is stated."""

    amount: float
    currency: str = ""


class Hardware(Frozen):
    """The hardware of one node. Sizes are in bytes; None means unknown."""

    gpu: str | None = ASSUMED_GPU
    """Name of the card, or None if only its memory is stated."""
    gpu_bytes: int | None = None
    """Memory of one GPU as the driver reports it."""
    host_bytes: int | None = None
    """Memory of one host."""
    disk_bytes: int | None = None
    """Space for checkpoints."""
    gpu_origin: Origin = ASSUMPTION
    gpu_others: tuple[str, ...] = ()
    """Other cards that the stated name may mean, if the choice of `gpu` is an assumption; otherwise empty."""
    host_origin: Origin = UNKNOWN
    disk_origin: Origin = UNKNOWN
    tokens_per_second: float | None = None
    """Throughput of the whole job, as the user measured it; None if not stated."""
    price_per_gpu_hour: Price | None = None

    def get_capacity(self, place: str) -> int | None:
        """Return the bytes at a place of a budget (gpu, host or disk). Raise KeyError for another place."""
        return {"gpu": self.gpu_bytes, "host": self.host_bytes, "disk": self.disk_bytes}[place]

    def is_stated(self, place: str) -> bool:
        """Return whether the capacity of a place of a budget is stated; that of the GPU may only be assumed."""
        return self.get_capacity(place) is not None and (place != "gpu" or self.gpu_origin.kind != "assumed")

    @property
    def compute_capability(self) -> float | None:
        """CUDA compute capability as a number (9.0), or None for an unknown card or another vendor's."""
        gpu = find_gpu(self.gpu) if self.gpu else None
        return float(f"{gpu.capability[0]}.{gpu.capability[1]}") if gpu and gpu.capability else None


def build_hardware(facts: Mapping[str, FieldValue]) -> Hardware:
    """Return the hardware that stated facts describe, with an assumed 80 GB GPU if none is stated.

    `gpu` is a card's name or a size; `gpu-memory` is a size that overrides the card's; `host-memory` and `disk` are
    sizes. Raise UnknownHardware if a fact is invalid.
    """
    hardware = Hardware(gpu_bytes=_require_gpu(ASSUMED_GPU).bytes)
    name, memory = facts.get("gpu"), facts.get("gpu-memory")
    if memory is not None:
        card = _find_card(str(name.value), str(memory.value)) if name is not None else None
        size = _parse_fact("gpu-memory", memory, card)
        hardware = hardware._replace(gpu=card.name if card else None, gpu_bytes=size, gpu_origin=memory.origin)
    elif name is not None:
        try:
            card_name, size = parse_capacity(str(name.value))
        except SizeError as error:
            raise UnknownHardware(f"gpu: {error}", name.origin) from None
        smaller_card = (
            find_smaller(str(name.value), _require_gpu(card_name)) if card_name and name.origin.assumption else None
        )
        hardware = hardware._replace(
            gpu=card_name,
            gpu_bytes=size,
            gpu_origin=_mark_assumed(name.origin),
            gpu_others=(smaller_card,) if smaller_card else (),
        )
    if "host-memory" in facts:
        stated = facts["host-memory"]
        hardware = hardware._replace(host_bytes=_parse_fact("host-memory", stated), host_origin=stated.origin)
    if "disk" in facts:
        stated = facts["disk"]
        hardware = hardware._replace(disk_bytes=_parse_fact("disk", stated), disk_origin=stated.origin)
    if "tokens-per-second" in facts:
        rate = _parse_price("tokens-per-second", facts["tokens-per-second"], _RATE, "52000")
        hardware = hardware._replace(tokens_per_second=rate.amount)
    if "price-per-gpu-hour" in facts:
        price = _parse_price("price-per-gpu-hour", facts["price-per-gpu-hour"], _PRICE, "2.40 or 2.40 EUR")
        hardware = hardware._replace(price_per_gpu_hour=price)
    return hardware


_RATE: Final = r"(?P<amount>[0-9]{1,12}(?:\.[0-9]{1,9})?)(?P<currency>)"
_PRICE: Final = r"(?P<amount>[0-9]{1,9}(?:\.[0-9]{1,9})?) ?(?P<currency>[A-Za-z]{0,8}|[$€£¥])"


def _parse_price(name: str, stated: FieldValue, pattern: str, example: str) -> Price:
    """Parse a positive number, with a currency if `pattern` allows one. Raise UnknownHardware."""
    match = re.fullmatch(pattern, str(stated.value).strip())
    if match is None or not float(match["amount"]):
        raise UnknownHardware(
            f"{name} must be a positive number such as {example}, not {stated.value!r}", stated.origin
        )
    return Price(float(match["amount"]), match["currency"])


def _mark_assumed(origin: Origin) -> Origin:
    """Return the origin, graded as assumed if the fact rests on an assumption (only some launches state it)."""
    return Origin("assumed", origin.place, origin.assumption) if origin.assumption else origin


def _find_card(name: str, memory: str) -> Gpu | None:
    """Return the card with a name; if it is sold in two sizes, the stated memory selects one (`H100` and `96GB`)."""
    return find_gpu(f"{name}-{memory}") or find_gpu(name)


def _require_gpu(name: str) -> Gpu:
    gpu = find_gpu(name)
    assert gpu is not None, name
    return gpu


def _parse_fact(name: str, stated: FieldValue, card: Gpu | None = None) -> int:
    """Return the bytes of a stated size. Raise UnknownHardware if it is invalid.

    A GPU's marketed size is converted to the size that its driver reports.
    """
    text = str(stated.value)
    try:
        return parse_marketed_size(text, card) if name == "gpu-memory" else parse_stated_size(text)
    except SizeError as error:
        raise UnknownHardware(f"{name}: {error}", stated.origin) from None
