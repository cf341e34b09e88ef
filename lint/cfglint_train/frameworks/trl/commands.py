"""Commands that give TRL's settings as options, and options behind the path of a recipe."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import Found
from cfglint_train.frameworks.hf_trainer.options import options, parser
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.clues import ANY, FOREIGN, OWN, TRAINERS
from cfglint_train.frameworks.trl.settings import COMMANDS, mostly_known

_NAMED: Final = "|".join((*TRAINERS, "reward_modeling"))
_SCRIPT: Final = re.compile(rf"(?:.*/)?scripts/(?!dpo_online\.)(?:{_NAMED})(?:_\w+)?\.py|trl\.scripts\.(?:{_NAMED})")
"""TRL's scripts by the name of their trainer (`sft_vlm.py`); `dpo_online.py` is the OnlineDPOTrainer's, which has other
settings.
"""
_NO_TRAINING: Final = ("chat", "env", "skills", "vllm-serve")
_UNRULED: Final = ("distillation",)
"""Commands whose trainers no rule covers."""


def commands(document: Document) -> list[Found]:
    """The commands that give the settings as options: `trl sft --model_name_or_path ...`, `scripts/dpo.py --...`.

    With `--config` the recipe is the configuration, and the options override it. A command that `trl` does not have, or
    whose trainer is not covered, is named with the reason.
    """
    assert isinstance(document, ShellDocument)
    found = []
    for one in document.invocations:
        keys = {(entry.name or "").removeprefix("--").replace("-", "_") for entry in one.entries}
        why = _unread(one)
        names = {"model_name_or_path", "config"} if not why or one.words[0].known else {"model_name_or_path"}
        if why and keys & names:
            found.append(Found((one.number,), 60, why, "unread", one.span))
        if not _starts(one):
            continue
        if "model_name_or_path" not in keys or "config" in keys or not keys & OWN or keys & FOREIGN:
            continue
        if one.program != "trl" and not mostly_known(keys):
            continue
        role, at = None, None
        why = f"it starts {one.program} with TRL's settings as options"
        if one.open:
            role, why, at = "unread", f"some options of TRL depend on {one.open}", one.span
        found.append(Found((one.number,), 60, why, role, at))
    return found


def assumed_command(config: Config) -> str:
    """Why it is assumed which command of `trl` starts a configuration; empty where it is stated."""
    own = ((config.document, int(config.root[0])),) if isinstance(config.document, ShellDocument) else ()
    for script, number in own or config.starts:
        one = script.invocations[number] if isinstance(script, ShellDocument) else None
        if one is not None and one.program == "trl" and one.words and one.words[0].assumed:
            return one.words[0].assumed
    return ""


def _starts(one: Invocation) -> bool:
    """Whether an invocation starts a trainer of TRL."""
    if one.program == "trl":
        return _command(one) in COMMANDS
    return _SCRIPT.fullmatch(one.program) is not None


def _command(one: Invocation) -> str:
    """What `trl` is asked to do; empty where a variable decides."""
    return one.words[0].text if one.program == "trl" and one.words and one.words[0].known else ""


def _unread(one: Invocation) -> str:
    """Why a command of `trl` is not read; empty where it is, and where it trains nothing."""
    if one.program == "trl" and one.words and not one.words[0].known:
        return f"which command of `trl` `{one.words[0].text}` is cannot be determined"
    command = _command(one)
    if command in ("", *COMMANDS, *_NO_TRAINING) or not command[0].isalpha():
        return ""
    if command in _UNRULED:
        return f"no rule covers `trl {command}`"
    script = f"; start TRL's `examples/scripts/{command}.py`" if command in TRAINERS else ""
    return f"no release of `trl` has the command `{command}`{script}"


def read_as_keys(document: Document) -> None:
    """Read the options of the commands as keys."""
    assert isinstance(document, ShellDocument)
    for one in commands(document):
        if one.role == "unread":
            continue
        document.read_as(int(one.root[0]), options("trl", ANY))


def trailing(words: Iterable[str], own: Collection[str] = ()) -> Mapping[Route, Any]:
    """The settings that options behind a recipe's path make: `--learning_rate 1e-5 --packing --report_to a b`.

    `own`: settings of the script that is started, which are not short for others.
    """
    read = parser("trl", ANY)
    given: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            given[name] = [value] if equals else []
        elif name:
            given[name].append(word)
    found: dict[Route, Any] = {}
    for option, values in given.items():
        switch = read.negated(option) if not values else None
        if switch is not None:
            found[(switch,)] = False
            continue
        key = name if (name := option.replace("-", "_")) in own else read.key(option)
        typed = [read.typed(key, value) for value in values]
        bare = True if "bool" in read.kinds(key) or read.fact(key) is None else ""
        found[(key,)] = typed if len(typed) > 1 else typed[0] if typed else bare
    return found
