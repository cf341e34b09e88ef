"""Variables that Slurm sets in a job from the `#SBATCH` lines of its script.

Source: the manual of sbatch 24.05 (OUTPUT ENVIRONMENT VARIABLES). Options of the `sbatch` command override these lines,
so the values are assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import Span
from cfglint_train.documents.shell.words import Fragment
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_HEADER: Final = compile_on_use(rb"(?:[ \t]*(?:#[^\n]*)?\r?\n)*")
_OPTION: Final = compile_on_use(
    rb"(?m)^#SBATCH[ \t]+(?:[^#\n]*[ \t])?"
    rb"(?P<option>(?P<name>--(?:nodes|ntasks-per-node|gpus-per-node|gres)|-N)(?:[ \t]*=[ \t]*|[ \t]+|(?<=-N))"
    rb"(?:[A-Za-z][\w.-]*:)*(?P<count>\d+))(?=[ \t]*(?:$|[ \t]#|[ \t]-))"
)
_SETS: Final[Mapping[str, tuple[str, ...]]] = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--gres": ("SLURM_GPUS_ON_NODE",),
}


def read_variables(text: bytes) -> Iterator[tuple[str, Fragment]]:
    """Yield the variables that Slurm sets from the directives of a job script.

    If a directive is repeated, its variable is yielded again, and the last value counts.
    """
    if b"#SBATCH" not in text or b"SLURM_" not in text:
        return
    header = _HEADER.match(text)
    for match in _OPTION.finditer(text, 0, 0 if header is None else header.end()):
        option = match["option"].decode()
        if match["name"] == b"--gres" and b"gpu" not in match["option"]:
            continue
        for name in _SETS[match["name"].decode()]:
            assumptions = (f"{name} as in `#SBATCH {option}`, which an option of `sbatch` can override",)
            yield name, Fragment(match["count"], (Span(*match.span("count")),), exact=False, assumptions=assumptions)
