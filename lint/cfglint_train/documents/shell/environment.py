"""Variables of a process as the first assignments of the script that it runs, for the check before a launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import Span
from cfglint_train.documents.shell.outline import Assignment
from cfglint_train.documents.shell.words import Fragment
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

INHERITED: Final = -1
"""Offset at which a variable is exported that the script inherits: before its first byte."""

# Variables that change what a launch does: those of torch, NCCL, the launchers and CUDA.
_READ_BY_PROGRAMS: Final = compile_on_use(
    r"(?:ACCELERATE|CUDA|DEEPSPEED|DS|FSDP|NCCL|PARALLELISM_CONFIG|PET|PYTORCH|TORCH|USE)_\w+"
    r"|FORCE_TORCHRUN|MASTER_(?:ADDR|PORT)|NNODES|NODE_RANK|NPROC_PER_NODE|(?:LOCAL_)?(?:RANK|WORLD_SIZE)"
)


def build_assignments(environment: Mapping[str, str]) -> Iterator[tuple[str, Assignment]]:
    """Yield an assignment for each variable, without a place in the script."""
    for name, text in environment.items():
        assignment = Assignment("string", 0, 0, ())
        assignment.value = ((Fragment(text.encode("utf-8", "surrogateescape"), (Span(0, 0),), exact=False),),)
        yield name, assignment


def is_relevant(name: str, script: bytes) -> bool:
    """Return whether an inherited variable counts as one of a launch: launchers read it, or the script names it."""
    return _READ_BY_PROGRAMS.fullmatch(name) is not None or name.encode() in script
