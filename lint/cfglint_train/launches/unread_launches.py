"""Commands that train a language model with a program that no framework reads: their runs are not checked.

A command shows that it trains (an option such as `--learning_rate`, or the program's name); it, or the program that it
starts, that this is a language model (an option that names or adapts one, the files of DeepSpeed and accelerate; a
class of such models).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from cfglint_train.documents.document import Span
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import folder_of
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.launchers import may_shard
from cfglint_train.frameworks.registry import of_program
from cfglint_train.launches.entries import file_of, name_of, program, trains
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.sources import Sources

_MODEL: Final = re.compile(
    r"(?:\w+_)?(?:base_model|model_(?:id|name|name_or_id|name_or_path|path))|(?:language|llama|llm|lm)_model"
    r"|lora_(?:alpha|r|rank)"
)
"""Options that name a model, or that adapt one."""
_TRAINING: Final = frozenset((
    "deepspeed", "deepspeed_config", "epochs", "gradient_accumulation_steps", "learning_rate", "lr",
    "lr_scheduler_type", "max_steps", "micro_batch_size", "num_epochs", "num_train_epochs",
    "per_device_train_batch_size", "train_batch_size", "warmup_ratio", "warmup_steps", "weight_decay",
))  # fmt: skip
_ANY_BATCH: Final = frozenset(("micro_batch_size",))
"""Options of programs that generate or judge, too."""
_SHARDING: Final = frozenset((
    "deepspeed", "deepspeed_config", "deepspeed_config_file", "ds_config", "fsdp", "fsdp_config",
    "fsdp_transformer_layer_cls_to_wrap", "micro_train_batch_size", "zero_stage",
))  # fmt: skip
"""Options that name DeepSpeed's file, or that programs built around it have (DeepSpeed-Chat, OpenRLHF), and those with
which the Trainer shards a model.
"""
_CAUSAL: Final = re.compile(rb"\w+ForCausalLM\b")
_CONFIGURATION: Final = re.compile(r"\.(?:ya?ml|json)$")
_SETTINGS: Final = re.compile(r"conf|cfg|arg|param|setting|recipe")
"""In the name of an option that takes settings: a file of JSON may as well be data."""


def unread_launches(
    document: ShellDocument, sources: Sources, index: RepositoryIndex, reads: Callable[[str], bool]
) -> Iterator[tuple[Span, str]]:
    """Where a script trains with such a program, and why it is not read; each program once.

    `reads`: whether a file is a configuration, or is named as one that is not read.
    """
    launching = {one.parent for one in document.invocations}
    met = set()
    for one in document.invocations:
        if one.number in launching or one.program in met or not _trains(document, one):
            continue
        name, known = name_of(one), one.head[-1].known
        file = file_of(document, one, sources, index)
        if _is_of_a_framework(name, file, sources):
            continue
        if not (_is_of_a_model(document, one) or _loads_a_model(one, file, sources)):
            continue
        given = [path for path in _given(document, one, sources) if path is not None]
        likely = () if known or file is not None else index.named(os.path.basename(name))
        if any(reads(path) for path in (*given, *_training(file, sources, index), *likely)):
            continue
        met.add(one.program)
        place = one.head[-1].span
        if file is None and not likely and one.program.endswith(".py"):
            yield place, f"`{name}`, which it starts, was not found"
        elif given:
            of = os.path.relpath(given[0]) if os.path.isabs(given[0]) else given[0]
            yield place, f"`{name}` takes its settings from `{of}`, which no framework reads"
        elif (made := _made(file, sources, index)) is not None:
            yield place, f"`{name}` trains with `{made[0]}` of `{made[1]}`, which is not read"
        else:
            yield place, f"nothing that cfglint reads is in `{name}`"


def _is_of_a_framework(name: str, file: str | None, sources: Sources) -> bool:
    """Whether a framework's program is started: a file of its name may be the repository's own (`scripts/train.py`),
    and that does not name the framework's package.
    """
    framework = of_program(name)
    if framework is None or framework.tree is None or file is None:
        return framework is not None
    text = sources.read(file)
    return any(re.search(rb"\b" + package.encode() + rb"\b", text) is not None for package in framework.tree.packages)


def _trains(document: ShellDocument, one: Invocation) -> bool:
    """Whether an invocation shows that it trains. DeepSpeed's file or a batch size alone does not: programs generate
    with them, too.
    """
    started = program(document, one)
    if not one.head or not name_of(one) or not started.python:
        return False
    return bool(_options(one) & _TRAINING - _SHARDING - _ANY_BATCH) or trains(started)


def _is_of_a_model(document: ShellDocument, one: Invocation) -> bool:
    """Whether an invocation that trains shows that it trains a language model."""
    own = _options(one)
    of_model = any(_MODEL.fullmatch(option) for option in own)
    return bool(own & _SHARDING or (of_model and own & _TRAINING) or any(map(may_shard, document.enclosing(one))))


def _loads_a_model(one: Invocation, file: str | None, sources: Sources) -> bool:
    """Whether a program with options of a training run has a class of causal language models."""
    return file is not None and bool(_options(one) & _TRAINING) and _CAUSAL.search(sources.read(file)) is not None


_SETTING: Final = re.compile(r"\+{0,2}(?:[\w/@-]+\.)*([a-z]\w*)=(?!=)")
"""`optim.lr=1e-5`: a setting of Hydra or OmegaConf, by its own name."""


def _options(one: Invocation) -> frozenset[str]:
    settings = [match[1] for word in one.words if (match := _SETTING.match(word.text)) is not None]
    return frozenset([*((entry.name or "").lstrip("-").replace("-", "_") for entry in one.entries), *settings])


_IMPORT: Final = re.compile(rb"(?m)^[ \t]*(?:from|import)[ \t]+([\w.]+)")
_SMALL: Final = 4 * 2**10
"""Bytes of a program that may do no more than call another one."""


def _training(file: str | None, sources: Sources, index: RepositoryIndex) -> Iterator[str]:
    """The Python files that may train where a program is started: itself, and what a small one imports."""
    if file is None:
        return
    yield file
    text = sources.read(file)
    for module in _IMPORT.findall(text) if len(text) <= _SMALL else ():
        path = index.by_tail(module.decode().replace(".", "/") + ".py", file)
        if path is not None:
            yield sources.named(path, file)


_NAMES: Final = re.compile(rb"(?m)^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*|[^\n#]*)")
_TRAINER: Final = re.compile(rb"\b[A-Z]\w*Trainer\b")


def _made(file: str | None, sources: Sources, index: RepositoryIndex) -> tuple[str, str] | None:
    """The trainer that a program makes of a class of another module of the repository, and the module's file."""
    if file is None:
        return None
    text = sources.read(file)
    for module, names in _NAMES.findall(text):
        made = next((one for one in _TRAINER.findall(names) if one + b"(" in text), None)
        path = index.by_tail(module.decode().strip(".").replace(".", "/") + ".py", file)
        if made is not None and path is not None:
            return made.decode(), sources.named(path, file)
    return None


def _given(document: ShellDocument, one: Invocation, sources: Sources) -> Iterator[str | None]:
    """The files that an invocation is given as settings, but for those of DeepSpeed and for data (`--train_file`)."""
    flags = list(zip(one.flags, one.entries, strict=True))
    other = {value for flag, entry in flags if _is_deepspeed(entry.name) for value in flag.values}
    data = {value for flag, entry in flags if not _SETTINGS.search(entry.name or "") for value in flag.values}
    for index, word in enumerate(one.words):
        if index in other or (index in data and word.text.endswith(".json")):
            continue
        if word.known and _CONFIGURATION.search(word.text):
            yield sources.find(os.path.join(folder_of(document, one), word.text.rpartition("=")[2]), document.path)


def _is_deepspeed(option: str | None) -> bool:
    return (option or "").lstrip("-").replace("-", "_") in _SHARDING
