"""Commands that give LLaMA-Factory's settings as options."""

from __future__ import annotations

import re

from cfglint_train.documents.document import Document
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Found
from cfglint_train.frameworks.llamafactory.clues import FOREIGN, METHOD, OWN, TRAINS
from cfglint_train.frameworks.llamafactory.options import OPTIONS


def commands(document: Document) -> list[Found]:
    """The commands that give the settings as options: `llamafactory-cli train --stage sft`, `train.py --stage sft`.

    Without a file as its first argument the command line is the configuration (0.9.5 `hparams/parser.py`, read_args).
    """
    assert isinstance(document, ShellDocument)
    found = []
    for one in document.invocations:
        words = [word.text for word in one.words[:2]]
        own = _is_command(one, words)
        if own is None or any(_FILE.fullmatch(word) for word in words[own : own + 1]):
            continue
        keys = {(entry.name or "").removeprefix("--").replace("-", "_") for entry in one.entries}
        trained = (_MODEL in keys or keys >= METHOD) and len(keys & OWN) > 1 and not keys & FOREIGN
        if not (keys & (OWN | {_MODEL}) if own else trained):
            continue  # the words of its own command need no more: the rest may be cut off
        role, at = None, None
        why = f"it starts {one.program} with LLaMA-Factory's settings as options"
        if "export_dir" in keys or (not keys & TRAINS and (own == 0 or keys & _OTHERWISE)):
            role, why = "other", "its commands of LLaMA-Factory train nothing"
        elif one.open:
            role, why, at = "unread", f"some options of LLaMA-Factory depend on {one.open}", one.span
        found.append(Found((one.number,), 60, why, role, at))
    return found


_MODEL: Final = "model_name_or_path"
_OTHERWISE: Final = frozenset(("do_predict", "do_eval", "infer_backend"))
_FILE: Final = re.compile(r"(?!-).*\.(?:ya?ml|json)", re.DOTALL)
"""A file of settings; an option may name another one (`--deepspeed=ds.json`)."""
_SCRIPT: Final = re.compile(r"(?:.*/)?(?:train|train_bash)\.py")


def _is_command(one: Invocation, words: list[str]) -> int | None:
    """How many words name the command of an invocation; None where it is none of LLaMA-Factory's."""
    if one.program == "llamafactory-cli":
        return 1 if words[:1] == ["train"] else None
    return 0 if _SCRIPT.fullmatch(one.program) else None


def read_as_keys(document: Document) -> None:
    """Read the options of the commands as keys."""
    assert isinstance(document, ShellDocument)
    for one in commands(document):
        document.read_as(int(one.root[0]), OPTIONS)
