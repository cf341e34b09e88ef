"""Memory figures in the logs of training runs: the peak by counter, or what a run asked for when memory ran out.

Each kind of line has a source: the file and release that prints it, its counter and its unit. Only peaks count. Left
out are: axolotl before 0.12, which logs what is in use after two steps; Max_CA of DeepSpeed, which is rounded to whole
GiB; and sizes in "GB" that a script of the user prints, which may be 2^30 or 10^9 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import GIB, MIB
from cfglint_train.foundation.typed import Final
from cfglint_train.postmortem.messages import list_torch_messages

OUT_OF_MEMORY: Final = "out of memory"


class Figure(Frozen):
    """A figure of a log."""

    counter: str
    """allocated or reserved."""
    size: float
    """Bytes."""
    kind: str
    """Line that states it, in words."""
    framework: str = ""
    """The only framework that prints such lines; empty if several do."""
    is_bound: bool = False
    """True for the bytes that a run held and asked for when memory ran out."""


class _Line(Frozen):
    """A kind of line with one figure per match."""

    pattern: str
    counter: str
    unit: int
    kind: str
    framework: str = ""


_QUOTED: Final = r"""['"]{}['"]\s*:\s*['"]?([0-9.]+)"""
_LINES: Final = (
    # axolotl 0.12.0 and 0.12.2 core/trainers/base.py: log
    _Line(_QUOTED.format(r"memory/max_mem_allocated\(gib\)"), "allocated", GIB, "memory/max_mem_allocated", "axolotl"),
    _Line(
        _QUOTED.format(r"memory/device_mem_reserved\(gib\)"), "reserved", GIB, "memory/device_mem_reserved", "axolotl"
    ),
    # axolotl 0.13.1 core/trainers/base.py: log (utils/bench.py: the peaks since the last line)
    _Line(_QUOTED.format(r"memory/max_allocated \(GiB\)"), "allocated", GIB, "memory/max_allocated", "axolotl"),
    _Line(_QUOTED.format(r"memory/device_reserved \(GiB\)"), "reserved", GIB, "memory/device_reserved", "axolotl"),
    # LLaMA-Factory 0.9.0 to 0.9.5 train/callbacks.py: on_log, with RECORD_VRAM=1
    _Line(_QUOTED.format("vram_allocated"), "allocated", GIB, "vram_allocated", "llamafactory"),
    _Line(_QUOTED.format("vram_reserved"), "reserved", GIB, "vram_reserved", "llamafactory"),
    # ai2-olmo 0.6.0 torch_util.py: peak_gpu_memory, in 10^6 bytes
    _Line(r"System/Peak GPU Memory \(MB\)=([0-9.,]+)", "allocated", 10**6, "System/Peak GPU Memory", "olmo"),
    # ai2-olmo-core 1.4.0 and 2.6.0 train/callbacks/gpu_memory_monitor.py: post_step
    _Line(
        r"(?:system|gpu_memory)/GPU reserved mem \(GiB\)=([0-9.,]+)", "reserved", GIB, "GPU reserved mem", "olmo_core"
    ),
)

_UNITS: Final = {"": 1, "b": 1, "bytes": 1, "kib": 2**10, "mib": MIB, "gib": GIB, "tib": 2**40}
_TORCH: Final = compile_on_use(
    r"max_memory_(allocated|reserved)(?:\([^()]*\))?['\"]?\s*[:=]\s*['\"]?([0-9][0-9,_]*(?:\.[0-9]+)?)\s*([A-Za-z]*)"
)
# torch 2.13.0 cuda/memory.py: memory_summary, column "Peak Usage"
_SUMMARY: Final = compile_on_use(r"\|\s*(Allocated|GPU reserved) memory\s*\|[^|]*\|\s*([0-9]+)\s+([KMGTP]?i?B)\s*\|")
_SUMMARY_COUNTERS: Final = {"Allocated": "allocated", "GPU reserved": "reserved"}
# DeepSpeed 0.19.7 runtime/utils.py: see_memory_usage; the engine calls it around each pass with `memory_breakdown`.
# The peak of a line starts at the line before it, so that of "before forward" belongs to what came before the step.
_ENGINE: Final = compile_on_use(r"Engine (?:after forward|(?:before|after) backward|(?:before|after) step)\s*$")
_ENGINE_PEAK: Final = compile_on_use(r"\bMA [0-9.]+ GB\s+Max_MA ([0-9.]+) GB")
# transformers 4.26.1 to 5.23.0 trainer_utils.py: TrainerMemoryTracker; JSON has bytes, the console whole MiB ("MB").
_TRAINER: Final = compile_on_use(
    r"\b(before_init_mem_gpu|(?:init|train)_mem_gpu_(?:alloc|peaked)_delta)\b['\"]?\s*[:=]\s*(-?[0-9]+)(MB)?"
)
_TRAINER_PARTS: Final = (
    "before_init_mem_gpu", "init_mem_gpu_alloc_delta", "train_mem_gpu_alloc_delta", "train_mem_gpu_peaked_delta",
)  # fmt: skip
"""Figures whose sum is the peak of `train`; they start at what was allocated before the trainer was made."""


def read_figures(path: str) -> list[Figure]:
    """Return the peak of each counter in a log, or the bound of a run that ran out of memory.

    Raise UsageError if the log states none, and OSError if it cannot be read.
    """
    return find_figures(regular_files.split_lines(regular_files.read_pieces(path)), path)


def find_figures(lines: Iterable[str], name: str) -> list[Figure]:
    """Return the figures of a log, as `read_figures` does; `name` is for messages."""
    figures: list[Figure] = []
    trainer: dict[str, int] = {}
    ambiguous = ""
    is_engine = False
    for line in lines:
        figures += _find_plain(line)
        for match in _TORCH.finditer(line):
            number, unit = float(re.sub("[,_]", "", match[2])), match[3].lower()
            if unit in _UNITS and (unit or number >= MIB):
                figures.append(Figure(match[1], number * _UNITS[unit], f"torch's max_memory_{match[1]}"))
            else:
                ambiguous = match[0]
        for metric, number_text, is_rounded in _TRAINER.findall(line):
            if not is_rounded or metric not in trainer:
                trainer[metric] = int(number_text) * (MIB if is_rounded else 1)
        peak = _ENGINE_PEAK.search(line) if is_engine else None
        if peak is not None:
            figures.append(Figure("allocated", float(peak[1]) * GIB, "DeepSpeed's Max_MA"))
        is_engine = _ENGINE.search(line) is not None or (is_engine and peak is None and not line.strip())
    if all(part in trainer for part in _TRAINER_PARTS):
        total = sum(trainer[part] for part in _TRAINER_PARTS)
        figures.append(Figure("allocated", total, "the Trainer's memory metrics"))
    bounds = [figure for figure in figures if figure.is_bound]
    highest = [
        max((figure for figure in bounds or figures if figure.counter == counter), key=lambda figure: figure.size)
        for counter in dict.fromkeys(figure.counter for figure in bounds or figures)
    ]
    highest = [figure for figure in highest if figure.size > 0]
    if not highest:
        raise UsageError(f"{name}: {_explain_absence(trainer, ambiguous)}")
    return sorted(highest)


def _find_plain(line: str) -> Iterator[Figure]:
    """Yield the figures that one line states in full."""
    for kind in _LINES:
        for match in re.finditer(kind.pattern, line):
            number = match[1].replace(",", "").rstrip(".")
            if re.fullmatch(r"[0-9]+(\.[0-9]+)?", number):
                yield Figure(kind.counter, float(number) * kind.unit, kind.kind, kind.framework)
    for match in _SUMMARY.finditer(line):
        size = float(match[2]) * _UNITS.get(match[3].lower(), 0)
        yield Figure(_SUMMARY_COUNTERS[match[1]], size, "torch's memory summary")
    for message in list_torch_messages(line):
        if message.allocated is not None:
            yield Figure("allocated", message.needed, OUT_OF_MEMORY, is_bound=True)


def _explain_absence(trainer: dict[str, int], ambiguous: str) -> str:
    if ambiguous:
        return f"`{ambiguous.strip()}` has no unit that is certain; print bytes, or GiB (2^30 bytes)"
    if "train_mem_gpu_peaked_delta" in trainer:
        missing = next(part for part in _TRAINER_PARTS if part not in trainer)
        return f"`{missing}` is missing, so the Trainer's other memory metrics do not give a peak"
    return "no peak of GPU memory found; docs/memory/own-runs.md lists the lines that cfglint reads"
