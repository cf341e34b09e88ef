"""The GPUs that the path of a file names: `runs/8xMI300/sft.yaml`, `scripts/train_h100.sh`, and its comments.

People name a file after the machine that it is for. That is no statement, but a better assumption than any card.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.documents.document import Document
from cfglint_train.foundation.typed import Final
from cfglint_train.hardware.gpus import find, names
from cfglint_train.plan.origin import Origin, Value

_NAMED: Final = (
    r"(?i)(?<![a-z0-9])(?:(\d{1,2})x)?((?:rtx[-_]?)?[a-z]{0,3}\d{2,4}[a-z]{0,2}(?:[-_]\d{2,3}gb)?)(?![a-z0-9])"
)
_CLUE: Final = r"\d\d"
"""In every name that matches; asked first, since most paths have none and compiling the pattern takes a millisecond."""
_TELLING: Final = r"(?i)(?=.{4})[a-z].*"
"""What means a card without a number of them before it: `4090` and `t4` may be anything."""
_FAMILY: Final = r"(?:\d{1,2}[ \t]?[x×*][ \t]?)?((?:rtx|gtx)[ -]?\d{4}|[a-z]{1,2}\d{1,3}s?)"
_WORD: Final = rf"(?i)(?<![\w.-]){_FAMILY}(?![\w.])"
"""A card in a comment: `2×T4`, `RTX 2080`."""
_PART: Final = rf"(?i)(?<![a-z0-9]){_FAMILY}(?![a-z0-9])"
"""A card in the name of a file: `sft_v100.yaml`."""


def named(path: str) -> Mapping[str, Value]:
    """`gpu` and `gpus-per-node` as a path (below the root of its repository) names them; the file's own name wins."""
    for part in reversed(path.replace("\\", "/").split("/")):
        if re.search(_CLUE, part) is None:
            continue
        found = {
            (card, match[1]) for match in re.finditer(_NAMED, part) if (card := _card(match[2], match[1])) is not None
        }
        if len(found) == 1:
            ((card, count),) = found
            facts = {"gpu": _assumed(card, f"{card} GPUs", "gpu", part)}
            if count is not None and int(count):
                facts["gpus-per-node"] = _assumed(int(count), f"GPUs per node: {int(count)}", "gpus-per-node", part)
            return facts
    return {}


def oldest(documents: Iterable[Document]) -> tuple[int, int] | None:
    """The lowest CUDA compute capability of the cards that names of files and their comments have; None for none."""
    found = [match[1] for document in documents for match in _matches(document)]
    words = {word.replace(" ", "").replace("-", "").lower() for word in found}
    cards = [card for name in names() if (card := find(name)) is not None and _family(card.name) in words]
    return min((card.capability for card in cards if card.capability is not None), default=None)


def _matches(document: Document) -> Iterator[re.Match[str]]:
    yield from re.finditer(_PART, os.path.basename(document.path))
    for comment in document.comments():
        yield from re.finditer(_WORD, comment.text)


def _family(name: str) -> str:
    """What people call a card, whatever its memory (`v100`, `rtx2080`)."""
    return name.partition("-")[0].replace(" ", "").lower().removesuffix("ti")


def _card(text: str, count: str | None) -> str | None:
    """The card of a name; of one that is cut short (`mi300`) the only one that begins so."""
    if count is None and re.fullmatch(_TELLING, text) is None:
        return None
    gpu = find(text)
    if gpu is not None:
        return gpu.name
    begun = [name for name in names() if name.lower().startswith(text.lower()) and name[len(text) :].isalpha()]
    return begun[0] if len(begun) == 1 else None


def _assumed(value: str | int, what: str, fact: str, part: str) -> Value:
    note = f"{what}, as in the name `{part}`; set `{fact}` to be sure"
    return Value(value, Origin("user", note="the name of the file", assumed=note))
