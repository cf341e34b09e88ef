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
    or_else: str | None = None
    """Another value that the words may mean as well."""


class _Kind(NamedTuple):
    """One kind of job description."""

    syntax: str
    clue: re.Pattern[str]
    """Is in every file of the kind."""
    lines: tuple[re.Pattern[str], ...]
    """Statements, at the start of a line; the groups are facts, with underscores for dashes."""


def _kind(syntax: str, clue: str, *lines: str) -> _Kind:
    return _Kind(syntax, re.compile(clue, re.MULTILINE), tuple(re.compile(line) for line in lines))


_LONGEST: Final = 2000
"""Characters; lines written by hand are shorter, and the expressions below take their time over one."""

_SLURM: Final = r"(?:#SBATCH|[^#]*\b(?:srun|salloc))\b.*?[ \t]"
_GPU: Final = r"(?P<gpu>[A-Za-z][\w.-]*)"
_COUNT: Final = r"(?P<gpus_per_node>\d+)"

_KINDS: Final = (
    _kind(
        "shell",
        r"^#SBATCH\b|\bsrun\b|\bsalloc\b",
        rf"{_SLURM}--gres[= ]gpu:(?:{_GPU}:)?{_COUNT}",
        rf"{_SLURM}--gpus-per-node[= ](?:{_GPU}:)?{_COUNT}",
        rf"{_SLURM}(?:--gpus|-G)[= ]{_GPU}",
        rf"{_SLURM}(?:--constraint|-C)[= ][\"']?{_GPU}",
        rf"{_SLURM}(?:--nodes|-N)[= ]?(?P<nodes>\d+)(?![-\d])",
        rf"{_SLURM}--mem[= ](?P<host_memory>\d+[KMGTkmgt]?)B?\b",
    ),
    _kind(
        "yaml",
        r"^[ \t]+accelerators:",
        rf"[ \t]+accelerators:[ \t]*\{{?[ \t]*[\"']?{_GPU}(?:[\"']?[ \t]*:[ \t]*{_COUNT})?[\"' \t}}]*(?:#.*)?$",
        r"num_nodes:[ \t]*(?P<nodes>\d+)[ \t]*(?:#.*)?$",
    ),
    _kind(
        "yaml",
        r"^kind:",
        rf"[ \t]*[\"']?(?:nvidia\.com/gpu\.product|cloud\.google\.com/gke-accelerator)[\"']?:[ \t]*[\"']?{_GPU}",
        rf"[ \t]*[\"']?(?:nvidia|amd)\.com/gpu[\"']?:[ \t]*[\"']?{_COUNT}",
    ),
    _kind(
        "python",
        r"^(?:import|from) modal\b",
        rf".*?\bgpu[ \t]*=[ \t]*[\"']{_GPU}(?::{_COUNT})?!?[\"']",
    ),
)


def hints(path: str, text: str, syntax: str) -> Iterator[Hint]:
    """What a file says of the hardware, line by line. GPUs that the table does not know are left out."""
    patterns = [line for kind in _KINDS if kind.syntax == syntax and kind.clue.search(text) for line in kind.lines]
    if not patterns:
        return
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > _LONGEST:
            continue
        told = [hint for pattern in patterns if (found := pattern.match(line)) for hint in _told(path, number, found)]
        yield from dict.fromkeys(told)


def _told(path: str, line: int, found: re.Match[str]) -> Iterator[Hint]:
    for group, text in found.groupdict().items():
        fact = group.replace("_", "-")
        if fact == "gpu":
            gpu = gpus.find(text) if text else None
            if gpu is not None:
                yield Hint(fact, gpu.name, path, line, gpus.smaller(text, gpu))
        elif text and int(text.rstrip("KMGTkmgt")):  # `--mem=0` asks for all there is
            yield Hint(fact, text if fact != "host-memory" else _memory(text), path, line)


def _memory(text: str) -> str:
    """Megabytes where no unit stands; Slurm's units are powers of 1024."""
    return f"{text}MiB" if text.isdigit() else f"{text.upper()}iB"
