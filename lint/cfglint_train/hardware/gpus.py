"""GPUs by the names that users write, with the memory that the driver reports.

A card sold as "80 GB" reports 79.1 to 79.3 GiB. `gpus.json` records the published range of each card.
`Gpu.bytes` is its lower end, so that a run that fits this size fits every such card.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.hardware.sizes import SizeError, parse_stated_size, split_size

DATA: Final = os.path.join(os.path.dirname(__file__), "gpus.json")

# Vendor and brand words, which `normalize_name` removes.
VENDOR_WORDS: Final = ("nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "gpu")


class Gpu(Frozen):
    """One kind of GPU."""

    name: str
    bytes: int
    """Lowest memory that a driver was observed to report."""
    max_bytes: int
    """Highest memory that a driver was observed to report."""
    marketed_gb: int
    """Advertised size in GB (10**9 bytes)."""
    capability: tuple[int, int] | None
    """CUDA compute capability; None for other vendors."""
    source: str


def find_gpu(name: str) -> Gpu | None:
    """Return the GPU with the given name (`A100-80GB`, `h100`, `NVIDIA GeForce RTX 4090`), or None if it is unknown."""
    return _load_names().get(normalize_name(name))


def list_names() -> list[str]:
    """Return the names of all GPUs in the table."""
    return list(_load_table())


def list_spellings() -> list[str]:
    """Return every name of a GPU that the table has, without vendor words and separators."""
    return list(_load_names())


def list_similar(name: str) -> list[str]:
    """Return the names of the GPUs with the marketed memory of a known GPU, itself included."""
    gpu = find_gpu(name)
    if gpu is None:
        return []
    return [other.name for other in _load_table().values() if other.marketed_gb == gpu.marketed_gb]


def find_largest() -> Gpu:
    """Return the GPU with the most memory."""
    return max(_load_table().values(), key=lambda gpu: gpu.bytes)


def parse_capacity(text: str) -> tuple[str | None, int]:
    """Parse a name or a size, and return the GPU's name (None for a size) and its bytes.

    Raise SizeError for any other text.
    """
    gpu = find_gpu(text)
    if gpu is not None:
        return gpu.name, gpu.bytes
    try:
        split_size(text)
    except SizeError:
        raise SizeError(f"unknown GPU {text!r}; {_suggest_name(text)}") from None
    return None, parse_marketed_size(text)


def parse_marketed_size(text: str, gpu: Gpu | None = None) -> int:
    """Return the bytes of a GPU's stated memory. Raise `SizeError` if the text is not a size.

    An advertised size in GB (or G) becomes the memory that `gpu` reports or, without `gpu`, the lowest memory that any
    card of that size reports. Any other size, such as one in GiB, is used as it is.
    """
    size = parse_stated_size(text)
    scale = {"gb": 10**9, "g": 2**30}.get(split_size(text)[1])
    if scale is None:
        return size
    cards = [gpu] if gpu else list(_load_table().values())
    return min((card.bytes for card in cards if card.marketed_gb * scale == size), default=size)


def get_family(gpu: Gpu) -> str:
    """Return the name of a card without its memory: `A100` for `A100-80GB`."""
    return re.split(r"[- ]", gpu.name)[0]


def find_roomiest(cards: Iterable[str | None]) -> str:
    """Return the name of the card with the most memory; skip None entries (sizes without a card)."""
    return max((gpu for name in cards if name and (gpu := find_gpu(name))), key=lambda gpu: gpu.bytes).name


def find_smaller(text: str, gpu: Gpu) -> str | None:
    """Return a smaller card that the same text may also mean, or None: `a100` can have 80 GB or 40 GB."""
    if re.search(r"\d\s*g", text, re.IGNORECASE) or normalize_name(text) != normalize_name(get_family(gpu)):
        return None
    variants = (find_gpu(name) for name in list_names() if name.startswith(f"{get_family(gpu)}-"))
    return next((variant.name for variant in variants if variant is not None and variant.bytes < gpu.bytes), None)


def normalize_name(name: str) -> str:
    """Return a name in lower case, without vendor words and separators."""
    text = name.lower()
    for word in VENDOR_WORDS:
        text = text.replace(word, "")
    return "".join(filter(str.isalnum, text))


def _suggest_name(text: str) -> str:
    import difflib  # only needed for an unknown name

    sizes = (
        [name for name in list_names() if normalize_name(name).startswith(normalize_name(text))]
        if normalize_name(text)
        else []
    )
    if sizes:  # one chip, several sizes
        return f"did you mean {' or '.join(sizes[:4])}?"
    near = difflib.get_close_matches(normalize_name(text), _load_names(), n=1)
    if near:
        return f"did you mean {_load_names()[near[0]].name}?"
    return f"write a name ({', '.join(list_names()[:4])}, ...) or a size (80GB)"


_cache: dict[str, Any] = {}


def _load_table() -> dict[str, Gpu]:
    table: dict[str, Gpu] | None = _cache.get("table")
    if table is None:
        with open(DATA, encoding="utf-8") as stream:
            rows = json.load(stream)
        table = {name: _build_gpu(name, row) for name, row in rows.items()}
        _cache["names"] = {
            normalize_name(alias): table[name] for name, row in rows.items() for alias in (name, *row["aliases"])
        }
        _cache["table"] = table
    return table


def _load_names() -> dict[str, Gpu]:
    _load_table()
    names: dict[str, Gpu] = _cache["names"]
    return names


def _build_gpu(name: str, row: dict[str, Any]) -> Gpu:
    low, high = row["gib"]
    major, _, minor = (row["capability"] or "").partition(".")
    return Gpu(
        name=name,
        bytes=int(low * 2**30),
        max_bytes=int(high * 2**30),
        marketed_gb=row["marketed_gb"],
        capability=(int(major), int(minor)) if major else None,
        source=row["source"],
    )
