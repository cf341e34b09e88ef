"""Recognition of verl's commands, and of YAML files that its trainers read."""

from __future__ import annotations

import os
import re

from cfglint_train.documents.document import Document, Sequence
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.documents.shell.composed import find_config_name
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation import filesystem
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import RecognisedConfig
from cfglint_train.frameworks.verl.words import HydraWord, HydraWords, find_undetermined, list_settings

PPO: Final = compile_on_use(r"verl\.trainer\.main_ppo|(?:.*/)?verl/trainer/main_ppo\.py")
"""verl's own program of reinforcement learning; recipes and forks have others, which accept more settings."""
SFT: Final = compile_on_use(
    r"verl\.trainer\.(?:fsdp_sft_trainer|sft_trainer(?:_ray)?)|(?:.*/)?verl/trainer/(?:fsdp_sft_trainer|sft_trainer)\.py"
)
_OTHER: Final = compile_on_use(
    r"generat|eval|validat|serve|merge|infer|convert|preprocess|reward|diagnos|^verl\.trainer\.main$", re.IGNORECASE
)
"""Programs of other tasks, and that of EasyR1."""
_CONFIGS: Final = compile_on_use(r"(?:ppo|sft)_(?:\w+_)?trainer(?:_engine)?(?:\.yaml)?")
"""Files of the package that `--config-name` may name."""
_OWN_FILE: Final = compile_on_use(r"(?:.*/)?trainer/config/(?:_generated_)?(?:ppo|sft)_\w*\.ya?ml")
_RECORD: Final = compile_on_use(r"(?:.*/)?\.hydra/\w+\.yaml")
"""Files in which Hydra records what a run composed."""
_ROOT: Final = "actor_rollout_ref"
_WORDS: Final = HydraWords()
_SFT_SECTIONS: Final = frozenset(("data", "model", "optim", "trainer"))


def recognise(document: Document) -> list[RecognisedConfig]:
    """Return the commands that start a trainer, or the YAML file that one reads."""
    if isinstance(document, ShellDocument):
        return [config for invocation in document.invocations for config in _recognise_command(document, invocation)]
    return _recognise_file(document) if document.syntax == "yaml" else []


def _recognise_command(document: ShellDocument, invocation: Invocation) -> list[RecognisedConfig]:
    is_own = is_ppo_program(invocation) or is_sft_program(invocation)
    is_read = is_own or document.is_python(invocation)
    sections = {word.route[0] for word in list_settings(invocation)} if is_read else set()
    if not is_own and (_ROOT not in sections or _OTHER.search(invocation.program)):
        return []
    if names_own_file(invocation) or (is_own and not sections and find_config_name(invocation) is None):
        return []
    role, span = None, None
    reason = f"it starts {invocation.program} with settings of verl"
    if any(_is_validation(word) for word in list_settings(invocation)):
        return [RecognisedConfig((invocation.number,), 80, "`trainer.val_only` trains nothing", "other")]
    hidden = find_undetermined(invocation) or invocation.open
    if hidden:
        role, reason, span = "unread", f"some settings of verl depend on {hidden}", invocation.span
    return [RecognisedConfig((invocation.number,), 80, reason, role, span)]


def _is_validation(word: HydraWord) -> bool:
    return word.route == ("trainer", "val_only") and getattr(word.entry.value, "value", None) is True


def is_ppo_program(invocation: Invocation) -> bool:
    """Return whether an invocation starts verl's own trainer of reinforcement learning."""
    return PPO.fullmatch(invocation.program) is not None


def is_sft_program(invocation: Invocation) -> bool:
    """Return whether an invocation starts verl's supervised trainer."""
    return SFT.fullmatch(invocation.program) is not None


def names_own_file(invocation: Invocation) -> bool:
    """Return whether a command composes a YAML file of the user's, which is then the configuration."""
    name = find_config_name(invocation)
    return name is not None and _CONFIGS.fullmatch(name.text) is None


def _recognise_file(document: Document) -> list[RecognisedConfig]:
    root = document.root
    if not isinstance(root, MappingNode):
        return []
    bases = list_bases(document)
    is_based = any(_CONFIGS.fullmatch(os.path.basename(base)) for base in bases)
    section = root.index.get(_ROOT)
    is_ppo = section is not None and isinstance(section.value, MappingNode)
    if not is_ppo and not (is_based and root.index.keys() & _SFT_SECTIONS):
        return []
    path = document.path.replace(os.sep, "/")
    if _OWN_FILE.fullmatch(path):
        return [RecognisedConfig((), 60, "verl's own defaults", "other")]
    if _RECORD.fullmatch(path):
        return [RecognisedConfig((), 60, "Hydra's record of a run", "other")]
    reason = f"it extends verl's `{bases[0]}`" if is_based else f"`{_ROOT}` is verl's"
    return [RecognisedConfig((), 60, reason)]


def list_bases(document: Document) -> list[str]:
    """Return the files of the defaults list that a YAML file extends, as written."""
    root = document.root
    entry = root.index.get("defaults") if isinstance(root, MappingNode) else None
    if entry is None or not isinstance(entry.value, Sequence):
        return []
    items = document.build_value(entry.value)
    return [item for item in items if isinstance(item, str) and item != "_self_"]


def extends_only_package(document: Document) -> bool:
    """Return whether a YAML file extends files of verl's package and no others, such as one beside it."""
    root = document.root
    entry = root.index.get("defaults") if isinstance(root, MappingNode) else None
    bases, folder = list_bases(document), os.path.dirname(os.path.abspath(document.path))
    is_whole = entry is not None and isinstance(entry.value, Sequence) and len(entry.value.items) - len(bases) <= 1
    return is_whole and all(
        _CONFIGS.fullmatch(base) and not filesystem.is_present(f"{folder}/{base.removesuffix('.yaml')}.yaml")
        for base in bases
    )


def prepare(document: Document) -> None:
    """Read the words of verl's commands as keys, and YAML with OmegaConf's types."""
    if isinstance(document, ShellDocument):
        for config in recognise(document):
            if config.role is None:
                document.read_as(int(config.root[0]), _WORDS)
        return
    from cfglint_train.documents.yaml.dialects import get_omegaconf_dialect
    from cfglint_train.documents.yaml.document import YamlDocument

    if isinstance(document, YamlDocument):
        document.set_dialect(get_omegaconf_dialect())
