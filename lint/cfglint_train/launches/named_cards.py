"""GPUs named in a file's path (`runs/8xMI300/sft.yaml`, `scripts/train_h100.sh`) or in its comments.

Users name files after machines. A name is not a statement, but it is a better assumption than any default GPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.documents.document import Document
from cfglint_train.foundation.typed import Final
from cfglint_train.hardware.gpus import find_gpu, list_names
from cfglint_train.plan.origin import FieldValue, Origin

_GPU_NAME: Final = (
    r"(?i)(?<![a-z0-9])(?:(\d{1,2})x)?((?:rtx[-_]?)?[a-z]{0,3}\d{2,4}[a-z]{0,2}(?:[-_]\d{2,3}gb)?)(?![a-z0-9])"
)
_CLUE: Final = r"\d\d"
"""Cheap test that every GPU name passes; compiling the full pattern takes 1 ms, and most paths name no GPU."""
_UNAMBIGUOUS: Final = r"(?i)(?=.{4})[a-z].*"
"""Name that means a GPU even without a count before it; `4090` or `l40` alone may be anything."""
_FAMILY: Final = r"(?:\d{1,2}[ \t]?[x×*][ \t]?)?((?:rtx|gtx)[ -]?\d{4}|[a-z]{1,2}\d{1,3}s?)"
_WORD: Final = rf"(?i)(?<![\w.-]){_FAMILY}(?![\w.])"
"""GPU in a comment: `2×T4`, `RTX 2080`."""
_PART: Final = rf"(?i)(?<![a-z0-9]){_FAMILY}(?![a-z0-9])"
"""GPU in a file name: `sft_v100.yaml`."""
_NO_GPU: Final = (
    r"(?i)\b(?:(?:disabled?|runs?|train(?:s|ing)?|only|not supported) (?:for|on)|forced?|use) (?:the )?CPU\b"
    r"(?![- ](?:offload|memory|RAM))|\bCPU[- ](?:only|training)\b|\bMPS\b|\bApple Silicon\b"
)
"""Comment about a run without a CUDA GPU: `# Disable for CPU`."""


def read_path_gpus(path: str) -> Mapping[str, FieldValue]:
    """Return `gpu` and `gpus-per-node` from a path relative to the repository root, both assumed.

    The last component of the path that names exactly one GPU decides.
    """
    for part in reversed(path.replace("\\", "/").split("/")):
        if re.search(_CLUE, part) is None:
            continue
        gpus = {
            (gpu, match[1])
            for match in re.finditer(_GPU_NAME, part)
            if (gpu := _resolve_gpu_name(match[2], match[1])) is not None
        }
        if len(gpus) == 1:
            ((gpu, count),) = gpus
            facts = {"gpu": _build_assumption(gpu, f"{gpu} GPUs", "gpu", part)}
            if count is not None and int(count):
                facts["gpus-per-node"] = _build_assumption(
                    int(count), f"GPUs per node: {int(count)}", "gpus-per-node", part
                )
            return facts
    return {}


def find_oldest_capability(documents: Iterable[Document]) -> tuple[int, int] | None:
    """Return the lowest CUDA compute capability of the GPUs in file names and comments, or None.

    It is (0, 0) if a comment says that the run uses no CUDA GPU.
    """
    documents = list(documents)
    if any(re.search(_NO_GPU, comment.text) for document in documents for comment in document.list_comments()):
        return 0, 0
    matches = [match[1] for document in documents for match in _find_matches(document)]
    words = {word.replace(" ", "").replace("-", "").lower() for word in matches}
    gpus = [gpu for name in list_names() if (gpu := find_gpu(name)) is not None and _get_family(gpu.name) in words]
    return min((gpu.capability for gpu in gpus if gpu.capability is not None), default=None)


def _find_matches(document: Document) -> Iterator[re.Match[str]]:
    yield from re.finditer(_PART, os.path.basename(document.path))
    for comment in document.list_comments():
        yield from re.finditer(_WORD, comment.text)


def _get_family(name: str) -> str:
    """Return a GPU's short name, in lower case and without memory size and `Ti` (`v100`, `rtx2080`)."""
    return name.partition("-")[0].replace(" ", "").lower().removesuffix("ti")


def _resolve_gpu_name(text: str, count: str | None) -> str | None:
    """Return the name of the GPU that `text` means, or None; a shortened name (`mi300`) must have one completion."""
    if count is None and re.fullmatch(_UNAMBIGUOUS, text) is None:
        return None
    gpu = find_gpu(text)
    if gpu is not None:
        return gpu.name
    candidates = [
        name for name in list_names() if name.lower().startswith(text.lower()) and name[len(text) :].isalpha()
    ]
    return candidates[0] if len(candidates) == 1 else None


def _build_assumption(value: str | int, description: str, fact: str, part: str) -> FieldValue:
    note = f"{description}, as in the name `{part}`; set `{fact}` to be sure"
    return FieldValue(value, Origin("user", note="the name of the file", assumption=note))
