"""What job descriptions say of the hardware: Slurm directives, SkyPilot tasks, Kubernetes manifests, Modal functions.

cfglint itself reads node counts, GPUs per node and memory from the script that starts a configuration
(`launches/launches.py`). Here is what it cannot tie to one configuration: the GPU's name, and the job files of
schedulers that name no configuration in a way that can be followed.

Sources: the manual of sbatch (`--gres`, `--gpus*`, `--constraint`); SkyPilot's task YAML (`resources.accelerators`,
`num_nodes`); the labels of NVIDIA's gpu-feature-discovery and of GKE; Modal's `gpu=` argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from cfglint_train.hardware import gpus


class Hint(NamedTuple):
    """One statement about the hardware."""

    fact: str
    """gpu, gpus-per-node, nodes or host-memory."""
    value: str
    path: str
    line: int
    alternative: str | None = None
    """Another value that the words may mean as well."""


class _JobKind(NamedTuple):
    """One kind of job description."""

    syntax: str
    marker: re.Pattern[str]
    """Is in every file of the kind."""
    lines: tuple[re.Pattern[str], ...]
    """Statements, at the start of a line; the groups are facts, with underscores for dashes."""


def _define_kind(syntax: str, marker: str, *lines: str) -> _JobKind:
    return _JobKind(syntax, re.compile(marker, re.MULTILINE), tuple(re.compile(line) for line in lines))


_MAX_LINE: Final = 2000
"""Characters; lines written by hand are shorter, and the expressions below take their time over one."""

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
    """What a file says of the hardware, line by line. GPUs that the table does not know are left out."""
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
        elif text and int(text.rstrip("KMGTkmgt")):  # `--mem=0` asks for all there is
            yield Hint(fact, text if fact != "host-memory" else _normalize_memory(text), path, line)


def _normalize_memory(text: str) -> str:
    """Megabytes where no unit stands; Slurm's units are powers of 1024."""
    return f"{text}MiB" if text.isdigit() else f"{text.upper()}iB"
