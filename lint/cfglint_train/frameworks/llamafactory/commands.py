"""Commands that pass LLaMA-Factory's settings as options."""

from __future__ import annotations

import re

from cfglint_train.documents.document import Document
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import RecognisedConfig
from cfglint_train.frameworks.llamafactory.clues import FOREIGN_KEYS, METHOD_KEYS, OWN_KEYS, TRAINING_KEYS
from cfglint_train.frameworks.llamafactory.options import OPTIONS


def recognise_commands(document: Document) -> list[RecognisedConfig]:
    """Recognize commands with settings as options: `llamafactory-cli train --stage sft`, `train.py --stage sft`.

    If the first argument is not a file, the command line itself is the configuration (0.9.5 `hparams/parser.py`,
    read_args).
    """
    assert isinstance(document, ShellDocument)
    recognised = []
    for invocation in document.invocations:
        words = [word.text for word in invocation.words[:2]]
        command_words = _count_command_words(invocation, words)
        if command_words is None or any(
            _SETTINGS_FILE.fullmatch(word) for word in words[command_words : command_words + 1]
        ):
            continue
        keys = {(entry.name or "").removeprefix("--").replace("-", "_") for entry in invocation.entries}
        is_training = (
            (_MODEL_KEY in keys or keys >= METHOD_KEYS) and len(keys & OWN_KEYS) > 1 and not keys & FOREIGN_KEYS
        )
        if not (keys & (OWN_KEYS | {_MODEL_KEY}) if command_words else is_training):
            continue  # one known option is enough after `llamafactory-cli train`: the text may lack the others
        role, span = None, None
        reason = f"it starts {invocation.program} with LLaMA-Factory's settings as options"
        if "export_dir" in keys or (not keys & TRAINING_KEYS and (command_words == 0 or keys & _NON_TRAINING_KEYS)):
            role, reason = "other", "its LLaMA-Factory commands train nothing"
        elif invocation.open:
            role, reason, span = "unread", f"some options of LLaMA-Factory depend on {invocation.open}", invocation.span
        recognised.append(RecognisedConfig((invocation.number,), 60, reason, role, span))
    return recognised


_MODEL_KEY: Final = "model_name_or_path"
_NON_TRAINING_KEYS: Final = frozenset(("do_predict", "do_eval", "infer_backend"))
_SETTINGS_FILE: Final = compile_on_use(r"(?!-).*\.(?:ya?ml|json)", re.DOTALL)
"""Pattern of a settings file as a positional word; an option may also end with a file (`--deepspeed=ds.json`)."""
_TRAIN_SCRIPT: Final = compile_on_use(r"(?:.*/)?(?:train|train_bash)\.py")


def _count_command_words(invocation: Invocation, words: list[str]) -> int | None:
    """Return the number of words that name the subcommand, or None if the invocation is not LLaMA-Factory's."""
    if invocation.program == "llamafactory-cli":
        return 1 if words[:1] == ["train"] else None
    return 0 if _TRAIN_SCRIPT.fullmatch(invocation.program) else None


def read_as_keys(document: Document) -> None:
    """Set up a script to read the options of its LLaMA-Factory commands as keys."""
    assert isinstance(document, ShellDocument)
    for command in recognise_commands(document):
        document.read_as(int(command.root[0]), OPTIONS)
