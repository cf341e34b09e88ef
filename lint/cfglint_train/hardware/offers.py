"""Hardware to compare: `H100x8,A100-80GBx8x2`, or a file of the user with GPUs, counts and prices."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import suggest_name
from cfglint_train.hardware.gpus import find_gpu, parse_capacity
from cfglint_train.hardware.sizes import SizeError

MAX_OFFERS: Final = 100
_MAX_COUNT: Final = 100_000
_EXTENSIONS: Final = (".csv", ".json", ".toml")
_NUMBERS: Final = ("price_per_hour", "tokens_per_second")
_COLUMNS: Final = ("gpu", "count", "nodes", *_NUMBERS)


class Offer(Frozen):
    """Hardware on which a run may start."""

    gpu: str
    """Name of a known GPU, or the size of its memory."""
    gpus_per_node: int | None = None
    """None for the number that the files state."""
    nodes: int | None = None
    """Number of nodes; None for 1 if `gpus_per_node` is stated, or else for the number that the files state."""
    price_per_hour: float | None = None
    """Price of all its GPUs per hour, in the currency of the user."""
    tokens_per_second: float | None = None
    """Throughput of the unchanged run on it, as the user measured it."""

    @property
    def name(self) -> str:
        """Name such as `H100x8` or `H100x8x2`."""
        return "x".join(str(part) for part in (self.gpu, self.gpus_per_node, self.nodes) if part is not None)


def read_offers(text: str) -> tuple[Offer, ...]:
    """Read the value of `--across`: a list of hardware, or the path of a file. Raise UsageError."""
    is_file = text.lower().endswith(_EXTENSIONS)
    offers = tuple(_read_file(text) if is_file else (_parse_offer(word.strip()) for word in text.split(",")))
    if not offers:
        raise UsageError(f"--across {text}: names no hardware")
    if len(offers) > MAX_OFFERS:
        raise UsageError(f"--across {text}: names {len(offers)} kinds of hardware; at most {MAX_OFFERS} are compared")
    return offers


def _parse_offer(word: str) -> Offer:
    """Parse `GPU`, `GPUxCOUNT` or `GPUxCOUNTxNODES`; a GPU's name may contain an x."""
    parts = word.rsplit("x", 2)
    splits: list[tuple[str, tuple[str, ...]]] = [(word, ())]
    splits += [("x".join(parts[:-length]), tuple(parts[-length:])) for length in (1, 2) if len(parts) > length]
    numbered = [(name, counts) for name, counts in splits if all(map(str.isdigit, counts))]
    name, counts = next(((name, counts) for name, counts in numbered if find_gpu(name)), numbered[-1])
    gpu = _check_gpu(name, f"--across {word}")
    numbers = [_check_count(count, f"--across {word}") for count in counts]
    return Offer(gpu, *numbers)


def _check_gpu(name: Any, where: str) -> str:
    try:
        return parse_capacity(str(name))[0] or str(name)
    except SizeError as error:
        raise UsageError(f"{where}: {error}") from None


def _check_count(value: Any, where: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", str(value)) or not 0 < int(value) <= _MAX_COUNT:
        raise UsageError(f"{where}: a count must be a whole number from 1 to {_MAX_COUNT:,}, not {value!r}")
    return int(value)


def _read_file(path: str) -> Iterator[Offer]:
    """Yield the rows of a file: CSV with a head, a JSON list of objects, or `[[hardware]]` tables in TOML."""
    try:
        text = regular_files.read(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--across {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--across {path}: not UTF-8") from None
    for number, row in enumerate(_parse_rows(path, text), 1):
        yield _read_row(row, f"--across {path}: row {number}")


def _parse_rows(path: str, text: str) -> Iterable[Any]:
    extension = os.path.splitext(path)[1].lower()
    if extension == ".csv":
        import csv

        return list(csv.DictReader(text.splitlines(), skipinitialspace=True))
    try:
        if extension == ".toml":
            import tomllib

            rows = tomllib.loads(text).get("hardware")
        else:
            rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--across {path}: {error}") from None
    if not isinstance(rows, list):
        wanted = "[[hardware]] tables" if extension == ".toml" else "a list of objects"
        raise UsageError(f"--across {path}: needs {wanted}")
    return rows


def _read_row(row: Any, where: str) -> Offer:
    if not isinstance(row, Mapping):
        raise UsageError(f"{where}: must be an object with gpu, count and price_per_hour")
    stated = {str(name).strip(): value for name, value in row.items() if value not in (None, "")}
    for name in stated:
        if name not in _COLUMNS:
            hint = suggest_name(name, _COLUMNS, f"known: {', '.join(_COLUMNS)}")
            raise UsageError(f"{where}: unknown column {name}; {hint}")
    if "gpu" not in stated:
        raise UsageError(f"{where}: names no gpu")
    counts = [_check_count(stated[name], where) if name in stated else None for name in ("count", "nodes")]
    prices = [_check_number(name, stated[name], where) if name in stated else None for name in _NUMBERS]
    return Offer(_check_gpu(stated["gpu"], where), *counts, *prices)


def _check_number(name: str, value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if isinstance(value, bool) or not 0 < number < inf:
        raise UsageError(f"{where}: {name} must be a positive number, not {value!r}")
    return number
