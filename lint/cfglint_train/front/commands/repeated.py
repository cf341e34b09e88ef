"""Flags of a command line as words, for the commands that a report shows."""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.foundation.typed import Any, Final

QUESTION_FLAGS: Final = (
    "method", "length", "micro", "accumulation", "rank", "optimizer", "precision", "no_checkpointing", "zero", "fsdp",
    "framework", "write",
)  # fmt: skip
"""Flags that require `--model`, as argparse spells them."""
_FACT_FLAGS: Final = (
    "nodes", "gpus_per_node", "gpu", "gpu_memory", "host_memory", "disk", "tokens_per_second", "price_per_gpu_hour",
    "release", "set", "model_config", "model_folder", "online", "config", "isolated",
)  # fmt: skip
"""Flags that decide what is checked, as argparse spells them; every command with a report has them."""


def spell_facts(options: Any) -> tuple[str, ...]:
    """Return the flags of a command line that decide what is checked, for commands that a report shows."""
    return spell_flags(options, _FACT_FLAGS)


def spell_flags(options: Any, names: Iterable[str]) -> tuple[str, ...]:
    """Return the flags of a command line with some names, as argparse spells them, and their values."""
    words: list[str] = []
    for name in names:
        value, flag = getattr(options, name, None), f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            for item in value if isinstance(value, list) else (value,):
                words += (flag, str(item))
    return tuple(words)


def spell_subject(options: Any) -> tuple[str, ...] | None:
    """Return the words by which a command line names a run that no file holds, or None if files hold the runs."""
    if getattr(options, "plan", None) is not None:
        return "--plan", options.plan
    if getattr(options, "model", None) is not None and not options.write:
        return "--model", options.model, *spell_flags(options, QUESTION_FLAGS)
    name = getattr(options, "stdin_filename", None)
    if name is not None or getattr(options, "paths", None) == ["-"]:
        return "-", *spell_flags(options, ("stdin_filename",))
    return None
