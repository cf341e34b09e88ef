"""The GPUs per node that the launches of a repository state, where several scripts do and all state the same number.

One script may be that of another project.
"""

from __future__ import annotations

import os
import re

from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import counted
from cfglint_train.plan.origin import Origin, Value
from cfglint_train.repository.index import RepositoryIndex

_FEWEST: Final = 2
"""Scripts that state it."""
_ENDINGS: Final = (".sh", ".bash", ".slurm", ".sbatch", ".job")
_SIGNS: Final = (b"nproc", b"num_processes", b"num-processes", b"num_gpus", b"NPROC_PER_NODE")
_COUNT: Final = re.compile(
    r"(?:--(?:nproc[_-]per[_-]node|num_gpus|num[_-]processes)[ \t=]+|\bNPROC_PER_NODE=)([^\s;|&]+)"
)
_NODES: Final = re.compile(
    r"--(?:num[_-]machines|nnodes|num[_-]nodes|nodes)[ \t=]+(?![\"']?1\b)\S|SBATCH[ \t]+-N[ \t=]*(?!1\b)\S"
    r"|--config_file\b"
)
"""What shows that `--num_processes` may be that of several nodes; accelerate's file may state them, too."""
_OTHER: Final = re.compile(r"(?i)eval|infer|predict|generat|serve|test|convert|merge|export|preproc")
"""In names of scripts that do not train."""
_COMMENT: Final = re.compile(r"(?m)^[ \t]*#(?![ \t]*SBATCH).*$")


def usual_ranks(index: RepositoryIndex) -> Value | None:
    """The number, as an assumption; None where too few state one, one states it in another way, or they differ."""
    found: dict[str, set[int | None]] = {}
    for path, text in index.texts(dict.fromkeys(_ENDINGS, _SIGNS)):
        if _OTHER.search(os.path.basename(path)):
            continue
        plain = _COMMENT.sub("", text)
        counts = {_count(match[1]) for match in _COUNT.finditer(plain)}
        if counts:
            found[path] = {None} if _NODES.search(plain) and "num_processes" in plain else counts
    numbers = {number for counts in found.values() for number in counts}
    number = numbers.pop() if len(numbers) == 1 else None
    if number is None or len(found) < _FEWEST:
        return None
    thing = f"{counted(number, 'GPU')} per node"
    note = f"{thing}, as {len(found)} launch scripts of the repository state; set `gpus-per-node` to be sure"
    return Value(number, Origin("assumed", note=note))


def _count(word: str) -> int | None:
    bare = word.strip("\"'")
    return int(bare) if bare.isdigit() and 0 < int(bare) <= 64 else None
