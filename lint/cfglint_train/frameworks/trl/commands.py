"""Commands that pass TRL's settings as options, and options after the path of a recipe."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import RecognisedConfig
from cfglint_train.frameworks.hf_trainer.options import build_options, get_parser
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.clues import ANY_TRAINER, FOREIGN_KEYS, OWN_KEYS, TRAINERS
from cfglint_train.frameworks.trl.settings import COMMANDS, has_mostly_known_keys

_TRAINER_NAMES: Final = "|".join((*TRAINERS, "reward_modeling"))
_SCRIPT: Final = compile_on_use(
    rf"(?:.*/)?scripts/(?!dpo_online\.)(?:{_TRAINER_NAMES})(?:_\w+)?\.py|trl\.scripts\.(?:{_TRAINER_NAMES})"
)
"""TRL's scripts that are named after a trainer (`sft_vlm.py`).

`dpo_online.py` is left out, because the OnlineDPOTrainer has other settings.
"""
_NON_TRAINING_COMMANDS: Final = ("chat", "env", "skills", "vllm-serve")
_UNSUPPORTED_COMMANDS: Final = ("distillation",)
"""Commands whose trainers no rule covers."""


def recognise_commands(document: Document) -> list[RecognisedConfig]:
    """Return the commands that pass the settings as options (`trl sft --model_name_or_path ...`).

    With `--config`, the recipe is the configuration and the options override it. A command that `trl` lacks, or whose
    trainer no rule covers, has the role `unread` and a reason that says why.
    """
    assert isinstance(document, ShellDocument)
    configs = []
    for invocation in document.invocations:
        keys = {(entry.name or "").removeprefix("--").replace("-", "_") for entry in invocation.entries}
        reason = _explain_unread(invocation)
        names = (
            {"model_name_or_path", "config"} if not reason or invocation.words[0].is_known else {"model_name_or_path"}
        )
        if reason and keys & names:
            configs.append(RecognisedConfig((invocation.number,), 60, reason, "unread", invocation.span))
        if not _is_trainer_command(invocation):
            continue
        if "model_name_or_path" not in keys or "config" in keys or not keys & OWN_KEYS or keys & FOREIGN_KEYS:
            continue
        if invocation.program != "trl" and not has_mostly_known_keys(keys):
            continue
        role, span = None, None
        reason = f"it starts {invocation.program} with TRL's settings as options"
        if invocation.open:
            role, reason, span = "unread", f"some options of TRL depend on {invocation.open}", invocation.span
        configs.append(RecognisedConfig((invocation.number,), 60, reason, role, span))
    return configs


def explain_assumed_command(config: Config) -> str:
    """Return the assumption about the `trl` command that starts a configuration, or an empty string if none is made."""
    invocations = ((config.document, int(config.root[0])),) if isinstance(config.document, ShellDocument) else ()
    for script, number in invocations or config.launches:
        invocation = script.invocations[number] if isinstance(script, ShellDocument) else None
        if (
            invocation is not None
            and invocation.program == "trl"
            and invocation.words
            and invocation.words[0].assumption
        ):
            return invocation.words[0].assumption
    return ""


def _is_trainer_command(invocation: Invocation) -> bool:
    """Return whether an invocation starts a trainer of TRL."""
    if invocation.program == "trl":
        return _get_command(invocation) in COMMANDS
    return _SCRIPT.fullmatch(invocation.program) is not None


def _get_command(invocation: Invocation) -> str:
    """Return the command of `trl`, or an empty string if it is unknown or another program runs."""
    return (
        invocation.words[0].text
        if invocation.program == "trl" and invocation.words and invocation.words[0].is_known
        else ""
    )


def _explain_unread(invocation: Invocation) -> str:
    """Return why a command of `trl` cannot be read, or an empty string if cfglint reads it or it does not train."""
    if invocation.program == "trl" and invocation.words and not invocation.words[0].is_known:
        return f"which command of `trl` `{invocation.words[0].text}` is cannot be determined"
    command = _get_command(invocation)
    if command in ("", *COMMANDS, *_NON_TRAINING_COMMANDS) or not command[0].isalpha():
        return ""
    if command in _UNSUPPORTED_COMMANDS:
        return f"no rule covers `trl {command}`"
    script = f"; start TRL's `examples/scripts/{command}.py`" if command in TRAINERS else ""
    return f"no release of `trl` has the command `{command}`{script}"


def read_as_keys(document: Document) -> None:
    """Make the document read the options of TRL's commands as keys."""
    assert isinstance(document, ShellDocument)
    for config in recognise_commands(document):
        if config.role == "unread":
            continue
        document.read_as(int(config.root[0]), build_options("trl", ANY_TRAINER))


def parse_trailing(words: Iterable[str], script_settings: Collection[str] = ()) -> Mapping[Route, Any]:
    """Return the settings of the options after a recipe's path: `--learning_rate 1e-5 --packing --report_to a b`.

    `script_settings`: settings of the script itself, which are not expanded as abbreviations of TRL's options.
    """
    option_parser = get_parser("trl", ANY_TRAINER)
    words_by_option: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            words_by_option[name] = [value] if equals else []
        elif name:
            words_by_option[name].append(word)
    settings: dict[Route, Any] = {}
    for option, values in words_by_option.items():
        switch = option_parser.find_negated(option) if not values else None
        if switch is not None:
            settings[(switch,)] = False
            continue
        key = name if (name := option.replace("-", "_")) in script_settings else option_parser.resolve_key(option)
        typed = [option_parser.convert_text(key, value) for value in values]
        default = True if "bool" in option_parser.list_kinds(key) or option_parser.find_fact(key) is None else ""
        settings[(key,)] = typed if len(typed) > 1 else typed[0] if typed else default
    return settings
