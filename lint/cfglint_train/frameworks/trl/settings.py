"""Lookup of TRL's settings, and of the trainer that they configure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from cfglint_schemas.status import PRESENT, Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Document, Route
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.hf_trainer.loader import HF_ARGPARSER
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.names import TRAINERS as SCRIPT_TRAINERS
from cfglint_train.frameworks.trl.clues import ANY_TRAINER, TRAINERS

if TYPE_CHECKING:
    from cfglint_train.frameworks.trainer_script.trainer_calls import TrainerCall
    from cfglint_train.frameworks.trl.recipe_parser import RecipeReader

COMMANDS: Final[Mapping[str, str]] = {
    "sft": "0.8.1", "dpo": "0.8.1", "kto": "0.11.0", "grpo": "0.14.0", "rloo": "0.22.0", "reward": "0.24.0",
}  # fmt: skip
"""Commands of `trl` that train -> their first release (trl 0.8.1 to 1.16.0 commands/cli.py, cli.py, cli/). ORPO and CPO
have only scripts, no commands.
"""
COMMAND_PATTERN: Final = compile_on_use(r"trl \w+")
"""A `trl` command with its name, such as `trl sft`."""
_OWN_SCRIPT: Final = compile_on_use(r"(?:.*/)?trl/(?:commands/)?scripts/\w+\.py|trl\.scripts\.\w+")


def list_trl_commands(config: Config) -> list[str]:
    """Return the commands and scripts of TRL that start a recipe."""
    return [
        command for command in config.evidence.commands if COMMAND_PATTERN.match(command) or _OWN_SCRIPT.match(command)
    ]


def has_launcher_passthrough(config: Config, release: str) -> bool:
    """Return whether the command that starts a recipe passes unknown options to the launcher (`num_processes`).

    `trl sft` does so from 0.18 on, other commands from 0.29 on (trl 0.18.2 to 1.16.0 `cli.py`,
    `cli/commands/training.py`).
    """
    commands = list_trl_commands(config)
    since = "0.18" if find_trainer(config) == "sft" else "0.29"
    return (
        bool(commands) and all(map(COMMAND_PATTERN.match, commands)) and parse_release(release) >= parse_release(since)
    )


_CONFIG_STAGES: Final = {
    f"{trainer.removesuffix('Trainer')}Config": stage for trainer, stage in SCRIPT_TRAINERS.items() if stage
}
"""Argument class -> the trainer that it belongs to."""
_TRAINER_IN_COMMAND: Final = compile_on_use(rf"(?:^|[/_.\s-])({'|'.join(TRAINERS)})(?:$|[/_.\s-])")


_TRAINER_IN_NAME: Final = compile_on_use(rf"(?:^|[_.\s-])({'|'.join(TRAINERS)})(?=$|[_.\s-])")


def find_trainer(config: Config) -> str | None:
    """Return the trainer of a configuration, or None if its launches and keys do not indicate a single one."""
    return config.compute_once(_find_trainer)


def _find_trainer(config: Config) -> str | None:
    if config.document.syntax == "python":
        is_own = find_own_trainer(config) is not None
        return None if is_own else find_trainer_by_keys(config.document, config.root)
    if config.evidence.programs:
        from cfglint_train.frameworks.trl.recipe_parser import find_program_trainer, find_reader

        if find_own_trainer(config) is not None:
            return None
        call, reader = find_program_trainer(config), find_reader(config)
        stages = {SCRIPT_TRAINERS.get(call.base, "")} if call is not None else set()
        if reader is not None and not stages:
            stages = {_CONFIG_STAGES[name] for _, name in reader.options.definitions if name in _CONFIG_STAGES}
        if stages:
            return (stages.pop() or None) if len(stages) == 1 else None
    trainers = {match[1] for match in map(_TRAINER_IN_COMMAND.search, config.evidence.commands) if match is not None}
    if trainers:
        return trainers.pop() if len(trainers) == 1 else None
    return find_trainer_by_keys(config.document, config.root)


def find_own_trainer(config: Config) -> TrainerCall | None:
    """Return the repository's own trainer if a script, or the program that reads a recipe, creates one, or None."""
    if config.document.syntax == "python":
        from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

        node = config.get_node()
        return node.changed_trainer if isinstance(node, ScriptSettings) else None
    if not config.evidence.programs:
        return None
    from cfglint_train.frameworks.trl.recipe_parser import find_program_trainer  # few recipes are read by programs

    call = find_program_trainer(config)
    return None if call is None or (call.base in SCRIPT_TRAINERS and not call.is_changed) else call


# Keys that indicate the trainer of a file. KTO has some of DPO's keys in addition to its own.
_INDICATIVE_KEYS: Final = (
    ("sft", ("packing", "packing_strategy", "assistant_only_loss", "completion_only_loss", "dataset_text_field",
             "max_seq_length", "eval_packing")),
    ("kto", ("desirable_weight", "undesirable_weight")),
    ("reward", ("center_rewards_coefficient",)),
    ("rloo", ("rloo_k", "normalize_advantages")),
    ("grpo", ("scale_rewards", "mask_truncated_completions", "num_iterations", "epsilon_high", "delta",
              "importance_sampling_level")),
    ("dpo", ("rpo_alpha", "reference_free", "precompute_ref_log_probs", "f_divergence_type", "ld_alpha",
             "use_weighting", "ref_model_init_kwargs")),
)  # fmt: skip


def find_trainer_by_keys(document: Document, root: Route) -> str | None:
    """Return the trainer that a file's keys indicate, or else the trainer named in its file name or folder.

    Return None if they indicate no trainer or several. For a script, return the trainer that the run creates.
    """
    node = document.find_node(root)
    if document.syntax == "python":
        from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

        return node.trainer or None if isinstance(node, ScriptSettings) else None
    if not isinstance(node, MappingNode):
        return None
    trainers = [trainer for trainer, keys in _INDICATIVE_KEYS if not node.index.keys().isdisjoint(keys)]
    trainers = [trainer for trainer in trainers if trainer != "dpo" or "kto" not in trainers]
    if not trainers and document.syntax == "yaml":
        folder, name = os.path.split(os.path.abspath(document.path))
        words = {
            match
            for part in (os.path.basename(folder), os.path.splitext(name)[0])
            for match in _TRAINER_IN_NAME.findall(part)
        }
        trainers = list(words)
    return trainers[0] if len(trainers) == 1 else None


def find_settings_reader(config: Config) -> RecipeReader | None:
    """Return the repository's programs that read a settings file, or None if they or their parsers are unknown."""
    if config.document.syntax == "python" or not config.evidence.programs:
        return None
    from cfglint_train.frameworks.trl.recipe_parser import find_reader  # few recipes are read by other programs

    return find_reader(config)


def build_context(config: Config) -> Context:
    """Return the facts besides TRL's release that determine the keys: the trainer and transformers' release."""
    return config.compute_once(_build_context)


def _build_context(config: Config) -> Context:
    transformers = config.releases.get("transformers") if config.releases.is_stated("transformers") else None
    settings, reader = config.get(), find_settings_reader(config)
    return Context(
        entry=find_trainer(config) or ANY_TRAINER,
        definitions=None if reader is None else reader.list_definitions(),
        settings=settings if isinstance(settings, dict) else None,
        releases={} if transformers is None else {"transformers": transformers},
    )


def find_default(config: Config, name: str) -> Any:
    """Return the default of a setting at the release.

    Return None if the release lacks the setting, or if the possible trainers have different defaults.
    """
    if config.document.syntax == "python":
        from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

        node = config.get_node()
        if isinstance(node, ScriptSettings) and name in node.defaults:
            return node.defaults.get(name)
        if isinstance(node, ScriptSettings) and node.is_hf_trainer:
            trainer_fact = load("transformers").find_fact((name,), config.release, Context(entry=node.entry))
            return (
                trainer_fact.get_schema().get("default")
                if trainer_fact is not None and trainer_fact.resolve_status().kind == PRESENT
                else None
            )
    elif (reader := find_settings_reader(config)) is not None and name in reader.options.own_names:
        return None  # the repository's class declares it, perhaps with another default
    vocabulary = config.evidence.vocabulary or load("trl")
    transformers = config.releases.get("transformers")
    context = build_context(config)
    if transformers is not None:
        context = context._replace(releases={"transformers": transformers})
    fact = vocabulary.find_fact((name,), config.release, context)
    if fact is None or fact.resolve_status().kind != PRESENT:
        return None
    defaults: list[Any] = []
    for candidate in (fact, *(fact.alternatives if context.entry == ANY_TRAINER else ())):
        if candidate.resolve_status().kind == PRESENT:
            try:
                defaults.append(candidate.get_default())
            except KeyError:
                return None
    return defaults[0] if all(candidate == defaults[0] for candidate in defaults) else None


def has_setting(config: Config, name: str) -> bool:
    """Return whether the run's trainer has a setting at the release."""
    fact = (config.evidence.vocabulary or load("trl")).find_fact((name,), config.release, build_context(config))
    return fact is not None and fact.resolve_status().kind == PRESENT


def read_setting(config: Config, name: str, kind: str) -> Any:
    """Return a setting as the parser converts it, or its default; None if the parser would reject the value."""
    value = config.get(name)
    if value is None:
        return None if config.has(name) else find_default(config, name)
    return getattr(HF_ARGPARSER, kind).read_or_none(value)


def is_on(config: Config, name: str) -> bool:
    """Return whether a switch is on, either in the file or by default."""
    return read_setting(config, name, "boolean") is True


_MIN_KEYS_PER_UNKNOWN: Final = 3
"""Minimum number of keys in a recipe per key that no TRL trainer has.

Scripts of other projects add a few keys of their own.
"""


def has_mostly_known_keys(keys: Iterable[str]) -> bool:
    """Return whether at most a third of the keys are unknown to every trainer of TRL in every release."""
    vocabulary, names = load("trl"), list(keys)
    facts = vocabulary.find_facts((), names, vocabulary.newest, Context(entry=ANY_TRAINER))
    return sum(fact is None for fact in facts) * _MIN_KEYS_PER_UNKNOWN <= len(names)
