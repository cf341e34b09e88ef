"""Hardware in job descriptions: Slurm directives, SkyPilot tasks, Kubernetes manifests, Modal functions.

To lint a run, cfglint reads node counts, GPUs per node and memory from the script that launches a configuration
(`launches/launches.py`). This module finds hints that cannot be linked to one configuration: GPU names, and job files
of schedulers that do not name a configuration.

Sources: the manual of sbatch (`--gres`, `--gpus*`, `--constraint`); SkyPilot's task YAML (`resources.accelerators`,
`num_nodes`); the labels of NVIDIA's gpu-feature-discovery and of GKE; Modal's `gpu=` argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from cfglint_train.hardware import gpus


class Hint(NamedTuple):
    """A hardware fact that a line of a job description states."""

    fact: str
    """One of gpu, gpus-per-node, nodes and host-memory."""
    value: str
    path: str
    line: int
    alternative: str | None = None
    """Another value that the text may mean."""


class _JobKind(NamedTuple):
    """A kind of job description."""

    syntax: str
    marker: re.Pattern[str]
    """Pattern that occurs in every file of the kind."""
    lines: tuple[re.Pattern[str], ...]
    """Statements at the start of a line; groups are named after facts, with underscores instead of dashes."""


def _define_kind(syntax: str, marker: str, *lines: str) -> _JobKind:
    return _JobKind(syntax, re.compile(marker, re.MULTILINE), tuple(re.compile(line) for line in lines))


_MAX_LINE: Final = 2000
"""Maximum length of a line in characters. Longer lines are not written by hand, and the patterns are slow on them."""

_SLURM: Final = r"(?:#SBATCH|[^#]*\b(?:srun|salloc))\b.*?[ \t]"
_GPU: Final = r"(?P<gpu>[A-Za-z][\w.-]*)"
_COUNT: Final = r"(?P<gpus_per_node>\d+)"

_KINDS: Final = (
    _define_kind(
        "shell",
        r"^#SBATCH\b|\bsrun\b|\bsalloc\b",
        rf"{_SLURM}--gres[= ]gpu:(?:{_GPU}:)?{_COUNT}",
        rf"{_SLURM}--gpus-per-node[= ](?:{_GPU}:)?{_COUNT}",
        rf"{_SLURM}(?:--gpus|-G)[= ]{_GPU}",
        rf"{_SLURM}(?:--constraint|-C)[= ][\"']?{_GPU}",
        rf"{_SLURM}(?:--nodes|-N)[= ]?(?P<nodes>\d+)(?![-\d])",
        rf"{_SLURM}--mem[= ](?P<host_memory>\d+[KMGTkmgt]?)B?\b",
    ),
    _define_kind(
        "yaml",
        r"^[ \t]+accelerators:",
        rf"[ \t]+accelerators:[ \t]*\{{?[ \t]*[\"']?{_GPU}(?:[\"']?[ \t]*:[ \t]*{_COUNT})?[\"' \t}}]*(?:#.*)?$",
        r"num_nodes:[ \t]*(?P<nodes>\d+)[ \t]*(?:#.*)?$",
    ),
    _define_kind(
        "yaml",
        r"^kind:",
        rf"[ \t]*[\"']?(?:nvidia\.com/gpu\.product|cloud\.google\.com/gke-accelerator)[\"']?:[ \t]*[\"']?{_GPU}",
        rf"[ \t]*[\"']?(?:nvidia|amd)\.com/gpu[\"']?:[ \t]*[\"']?{_COUNT}",
    ),
    _define_kind(
        "python",
        r"^(?:import|from) modal\b",
        rf".*?\bgpu[ \t]*=[ \t]*[\"']{_GPU}(?::{_COUNT})?!?[\"']",
    ),
)


def find_hints(path: str, text: str, syntax: str) -> Iterator[Hint]:
    """Yield the hardware hints of a file, line by line. Unknown GPUs are left out."""
    patterns = [line for kind in _KINDS if kind.syntax == syntax and kind.marker.search(text) for line in kind.lines]
    if not patterns:
        return
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > _MAX_LINE:
            continue
        line_hints = [
            hint for pattern in patterns if (match := pattern.match(line)) for hint in _parse_match(path, number, match)
        ]
        yield from dict.fromkeys(line_hints)


def _parse_match(path: str, line: int, match: re.Match[str]) -> Iterator[Hint]:
    for group, text in match.groupdict().items():
        fact = group.replace("_", "-")
        if fact == "gpu":
            gpu = gpus.find_gpu(text) if text else None
            if gpu is not None:
                yield Hint(fact, gpu.name, path, line, gpus.find_smaller(text, gpu))
        elif text and int(text.rstrip("KMGTkmgt")):  # `--mem=0` requests all memory of the node
            yield Hint(fact, text if fact != "host-memory" else _normalize_memory(text), path, line)


def _normalize_memory(text: str) -> str:
    """Return a Slurm size with a unit: `MiB` by default, because Slurm's units are powers of 1024."""
    return f"{text}MiB" if text.isdigit() else f"{text.upper()}iB"
