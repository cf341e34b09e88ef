"""Keys of TRL's recipes: those of its own classes, and the training arguments of the installed transformers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import PRESENT, Context
from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.evidence import LaunchedKey
from cfglint_train.frameworks.hf_trainer.fsdp import list_fsdp_routes
from cfglint_train.frameworks.key_usage import KeyUse, ReleaseHint
from cfglint_train.frameworks.keys import CallArgument, Keys, LauncherOption, OutdatedConfig, UnparsedOption
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.clues import ANY_TRAINER
from cfglint_train.frameworks.trl.settings import (
    COMMAND_PATTERN,
    COMMANDS,
    build_context,
    find_own_trainer,
    find_settings_reader,
    find_trainer,
    find_trainer_by_keys,
    has_launcher_passthrough,
    list_trl_commands,
)
from cfglint_train.frameworks.value_parser import extract_enumeration
from cfglint_train.plan.certainty import Certainty, Ground

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_ANY_CONTEXT: Final = Context(entry=ANY_TRAINER)

# Training arguments that are declared as strings and converted to enumeration members; other strings are rejected
# (transformers 4.41 to 5.23 training_args.py, __post_init__).
_ENUMERATED_SETTINGS: Final = frozenset(
    ("eval_strategy", "hub_strategy", "logging_strategy", "lr_scheduler_type", "save_strategy")
)
_LAUNCH_CLASS: Final = "LaunchArguments"
_SCRIPT_CLASSES: Final = ("ScriptArguments", _LAUNCH_CLASS)
"""Suffixes of the names of classes that belong to TRL's scripts and the `trl` command, not to a trainer."""
# The trainers reject an unknown loss type: at the start, or when they compute the first loss, also of a list of losses
# (trl 0.20.0 to 1.16.0 trainer/dpo_trainer.py: dpo_loss, _compute_loss).
_LOSS: Final = "loss_type"
_ATTENTION: Final = "attn_implementation"
_SCALAR_TYPES: Final = frozenset(("boolean", "integer", "number"))


class ArgumentKeys(Keys):
    """Keys of training-argument classes, for TRL and scripts of the HF Trainer."""

    is_library = True
    # The known optimizers depend on transformers' release, which is seldom stated. `from_pretrained` receives
    # `attn_implementation` and also accepts a kernel from the Hub (transformers 5.23 modeling_utils.py).
    forwarded_settings = {
        "optim": ("transformers.training_args.OptimizerNames", ()),
        _ATTENTION: ("transformers.modeling_utils.AttentionInterface", ("*/*",)),
    }
    forward_target = "transformers"

    def infer_release(
        self,
        document: Document,
        root: Route,
        release: str,
        package: str | None = None,
        launched: Iterable[LaunchedKey] = (),
    ) -> ReleaseHint | None:
        """Infer the release as in the base class, and from arguments that only older trainers accepted."""
        hint = super().infer_release(document, root, release, package, launched)
        if document.syntax != "python" or package is not None:
            return hint
        from cfglint_train.frameworks.trainer_script.arguments import add_keywords

        return add_keywords(hint, document, root, release)

    def find_used_keys(
        self, document: Document, root: Route, package: str | None = None, launched: Iterable[LaunchedKey] = ()
    ) -> list[KeyUse]:
        """Return the keys of the base class, and arguments that only older trainers accepted."""
        uses = super().find_used_keys(document, root, package, launched)
        if document.syntax != "python" or package is not None:
            return uses
        from cfglint_train.frameworks.trainer_script.arguments import find_keyword_uses

        return [*uses, *find_keyword_uses(document, root)]

    def is_fixed_place(self, route: Route) -> bool:
        """Return whether a route means the same setting in every file.

        This is false for arguments of TRL's scripts and of the `trl` command: users' own scripts and launchers use the
        same names for settings of their own (`reward_funcs`, `num_processes`).
        """
        fact = self.vocabulary.find_fact(route[:1], self.vocabulary.newest, _ANY_CONTEXT)
        return fact is None or not fact.definition.endswith(_SCRIPT_CLASSES)

    def find_call_arguments(self, config: Config) -> tuple[CallArgument, ...]:
        """Return imports, arguments and launch options that some releases of TRL, transformers or PEFT lack.

        Only the first run of a script has the launch options, because all its runs share the launch.
        """
        if config.document.syntax != "python":
            return ()
        from cfglint_train.frameworks.trainer_script import adapter, arguments, parser

        launched = parser.find_launch_arguments(config) if config.root == (0,) else ()
        return (*arguments.find_call_arguments(config), *adapter.find_adapter_arguments(config), *launched)

    def find_unparsed_options(self, config: Config) -> Iterator[UnparsedOption]:
        """Yield the options of the launch that no dataclass of a script's parser has.

        Only the first run of a script yields them, because all its runs share the launch.
        """
        if config.document.syntax != "python" or config.root != (0,):
            return iter(())
        from cfglint_train.frameworks.trainer_script import parser

        return parser.find_unparsed_options(config)

    def is_launch_evidence(self, config: Config, route: Route) -> bool:
        """Return whether a launch sets a key of TRL's or transformers' classes, not of the script's own."""
        if config.document.syntax != "python":
            return super().is_launch_evidence(config, route)
        from cfglint_train.frameworks.trainer_script.parser import find_options

        options = find_options(config)
        return options is not None and len(route) == 1 and route[0] not in options.own_names

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether the script's parser rejects a blank word; False if its dataclasses are unknown."""
        if config.document.syntax != "python":
            return False
        from cfglint_train.frameworks.hf_trainer.options import get_parser
        from cfglint_train.frameworks.trainer_script.parser import find_options

        return find_options(config) is not None and get_parser("trl", ANY_TRAINER).is_blank_fatal(invocation, index)

    def explain_refused_argument(self, config: Config, route: Route) -> str:
        """Return why the script's argument class does not accept a new argument, or an empty string if it does."""
        if config.document.syntax != "python":
            return ""
        from cfglint_train.frameworks.trainer_script.arguments import explain_refused_argument

        return explain_refused_argument(config, str(route[0]))

    def list_unread_settings(self, config: Config) -> Mapping[str, tuple[str, str]]:
        """Return the fields of `ModelConfig` that every program of the configuration parses and passes to nothing."""
        return config.compute_once(_list_unread_settings)

    def is_declared(self, config: Config, route: Route) -> bool:
        """Return whether a class of the repository declares a setting for the program that reads the recipe."""
        reader = find_settings_reader(config)
        return reader is not None and reader.is_declared(route)

    def describe_parser(self, config: Config) -> str:
        """Return the parser of the repository's program that reads the recipe, or an empty string if it is unknown."""
        reader = find_settings_reader(config)
        return "" if reader is None else reader.describe()

    def is_parsed(self, config: Config, name: str) -> bool:
        """Return whether a class of TRL or transformers that the program parses has a setting at any release."""
        if find_settings_reader(config) is None:
            return True
        return self.get_vocabulary(config).find_fact((name,), config.release, self.build_context(config)) is not None

    def list_routes(self, name: str) -> tuple[Route, ...]:
        """Return the routes of a setting; a key in `fsdp_config` has a second route, with the prefix `fsdp_`."""
        return list_fsdp_routes(name)

    def extract_enforced(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        """Return the part of a schema that the Trainer enforces, or None if it enforces nothing.

        The Trainer converts strings to enumeration members and to scalars, and does not check other values.
        """
        if "x-unchecked" in schema:
            return super().extract_enforced(schema, name)
        if name == _LOSS:
            return extract_enumeration(schema)
        if name in _ENUMERATED_SETTINGS:
            words = [part for part in schema.get("anyOf", ()) if "enum" in part]
            return words[0] if words else None
        kinds = schema.get("type", ())
        scalar_types = {kinds} if isinstance(kinds, str) else set(kinds) - {"null"}
        return schema if scalar_types and scalar_types <= _SCALAR_TYPES else None

    def is_accepted(self, schema: Mapping[str, Any], value: Any) -> bool | None:
        """Return True for a value that is not converted and thus not checked, or None if the schema decides.

        Only strings are converted. A value of an enumeration is checked as well.
        """
        return None if isinstance(value, str) or "enum" in schema else True


class TrlKeys(ArgumentKeys):
    """Keys of TRL 0.9.2 to 1.16.0."""

    def find_entry(self, document: Document, root: Route) -> str | None:
        """Return the trainer that the keys indicate, or `ANY_TRAINER` if they indicate none."""
        return find_trainer_by_keys(document, root) or ANY_TRAINER

    def build_context(self, config: Config) -> Context:
        """Return the context of the trainer that the launch starts or the keys indicate."""
        return build_context(config)

    def find_entry_assumption(self, config: Config, route: Route) -> Ground | None:
        """Return the assumption about the `trl` command if the command is the default of a variable, or None."""
        from cfglint_train.frameworks.trl.commands import explain_assumed_command

        note = config.compute_once(explain_assumed_command)
        if not note:
            return None
        fact = self.get_vocabulary(config).find_fact(route, config.release, _ANY_CONTEXT)
        grade: Certainty = "followed" if fact is None else "assumed"
        return Ground("command:trl", build_context(config).entry or ANY_TRAINER, grade, note)

    def report_outdated(self, config: Config) -> OutdatedConfig | None:
        """Report a command that the stated release of TRL does not have yet."""
        if config.evidence.vocabulary is not None or not config.releases.is_stated("trl"):
            return None
        commands = [name.removeprefix("trl ") for name in list_trl_commands(config) if COMMAND_PATTERN.match(name)]
        since = max((COMMANDS[name] for name in commands if name in COMMANDS), key=parse_release, default="")
        if not since or parse_release(since) <= parse_release(config.release):
            return None
        command = next(name for name in commands if COMMANDS.get(name) == since)
        message = f"TRL {config.release} has no command `trl {command}`: it was added in {since}"
        return OutdatedConfig(message, config.find_top(), "error")

    def determine_effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """Return the effect of an unknown key on the parser and the command: "error" or "dropped"."""
        if effect != "error" or len(route) != 1 or config.document.syntax == "python":
            return effect  # argument classes reject unknown keywords
        if config.document.syntax == "shell":
            return self.determine_launch_effect(effect, config, release)
        reader = find_settings_reader(config)
        if reader is not None:
            return reader.find_effect(release)
        fact = self.get_vocabulary(config).find_fact(route, release, _ANY_CONTEXT)
        if (
            fact is not None
            and fact.resolve_status().kind == PRESENT
            and parse_release(release) < parse_release("0.29")
        ):
            return "dropped"  # the key belongs to another trainer; before 0.29, `trl` has one parser for all trainers
        return "error" if _is_key_refused(config, release) else "dropped"

    def find_launcher_option(self, config: Config, route: Route) -> LauncherOption | None:
        """Return the entry point and route of a setting that the launch passes in addition to a recipe.

        Return None if a program other than TRL's own commands and scripts may start the recipe.
        """
        commands = config.evidence.commands
        if config.document.syntax == "python" or not commands or len(list_trl_commands(config)) < len(commands):
            return None
        return LauncherOption(build_context(config).entry, route, class_steps=0)

    def determine_launch_effect(self, effect: str, config: Config, release: str) -> str:
        """Return "dropped" instead of "error" if the script's parser returns unknown options, or else `effect`."""
        return "dropped" if effect == "error" and _is_option_returned(config, release) else effect

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether every candidate release rejects a word of a command that consists of white space.

        False if a user's own script starts the recipe.
        """
        if config.document.syntax == "python":
            return super().is_blank_fatal(config, invocation, index)
        if config.document.syntax == "yaml" and len(list_trl_commands(config)) < len(config.evidence.commands):
            return False
        from cfglint_train.frameworks.hf_trainer.options import get_parser

        releases = config.releases.find_candidates("trl").releases
        refused = all(self.determine_launch_effect("error", config, release) == "error" for release in releases)
        return refused and get_parser("trl", ANY_TRAINER).is_blank_fatal(invocation, index)

    def can_have_foreign_keys(self, config: Config, release: str) -> bool:
        """Return whether a script with its own settings may read the recipe, because no TRL command starts it."""
        return self.can_be_read_by_user(config)

    def describe_owner(self, fact: KeyFact) -> str:
        """Describe the class of a key that a program does not parse, or the `trl` command."""
        return "only the `trl` command accepts it" if fact.definition == _LAUNCH_CLASS else super().describe_owner(fact)

    def has_trainer(self, config: Config, is_inherited: bool) -> bool:
        """Return whether the program that reads the recipe trains with TRL's trainer, or with one of transformers'."""
        trainer = find_own_trainer(config)
        return trainer is None or (is_inherited and bool(trainer.base))

    def can_be_read_by_user(self, config: Config) -> bool:
        """Return whether a user's script with unknown settings of its own may read the recipe.

        False if only TRL's commands and scripts are known to start it, or if the program's parser is known.
        """
        return _is_read_by_user(config) and find_settings_reader(config) is None

    def can_be_user_setting(self, fact: KeyFact, config: Config, release: str) -> bool:
        """Return whether a script of the repository may declare the key itself.

        This is possible for arguments of TRL's scripts and of the `trl` command if neither starts the recipe. Users'
        scripts declared `reward_funcs`, for example, before TRL did.
        """
        return fact.definition.endswith(_SCRIPT_CLASSES) and self.can_have_foreign_keys(config, release)

    def can_accept_more(self, name: str, config: Config) -> bool:
        """Return whether a user's script may accept more loss types or attention implementations than TRL."""
        return name in (_LOSS, _ATTENTION) and _is_read_by_user(config)


def _is_read_by_user(config: Config) -> bool:
    """Return whether a user's script may read the configuration: no TRL command or script is known to start it."""
    return config.document.syntax != "python" and not list_trl_commands(config)


def _list_unread_settings(config: Config) -> Mapping[str, tuple[str, str]]:
    """Return the settings that no program of a configuration reads, each with the reason and a remedy."""
    document = config.document
    is_script = document.syntax == "python"
    programs = {id(program): program for program, _ in config.evidence.programs} if not is_script else {0: document}
    if not programs or (not is_script and find_settings_reader(config) is None):
        return {}
    from cfglint_train.documents.python.script import PythonScript
    from cfglint_train.frameworks.trainer_script.unread_settings import REMEDIES, find_unread_settings

    names = [
        set(find_unread_settings(program)) if isinstance(program, PythonScript) else set()
        for program in programs.values()
    ]
    files = " and ".join(f"`{os.path.basename(program.path)}`" for program in programs.values() if program is not None)
    verb = "parse it and pass" if len(programs) > 1 else "parses it and passes"
    return {
        name: (f"{files} {verb} it to nothing", REMEDIES[name])
        for name in REMEDIES
        if all(name in unread_names for unread_names in names)
    }


def _is_key_refused(config: Config, release: str) -> bool:
    """Return whether an unknown key of a recipe stops the run, for the commands and scripts that start it.

    The parser rejected such keys up to 0.12 and silently dropped them from 0.13 on. From 0.19 on, it rejects them again
    unless the script configures it to return or skip them: `dpo`, `grpo` and `kto` configure it from 0.22 on, `sft`
    from 0.18 on. If the command starts a launcher, returned keys go to the launcher's parser, which rejects them (trl
    0.9.2 to 1.16.0: `commands/cli_utils.py`, `cli.py`, `cli/commands/training.py`, `scripts/`).
    """
    commands = list_trl_commands(config)
    key = parse_release(release)
    if not commands:
        return False  # a script with unknown classes may have the key as its own setting
    if key < parse_release("0.13"):
        return True
    if key < parse_release("0.18"):
        return False
    sft = find_trainer(config) == "sft"
    if not sft and parse_release("0.19") <= key < parse_release("0.22"):
        return True
    return has_launcher_passthrough(config, release)


def _is_option_returned(config: Config, release: str) -> bool:
    """Return whether the parser returns an unknown option to a script, which drops it.

    Before 1.0, the scripts make the parser return unknown options as it returns unknown keys. If a command passes
    options to the launcher first, the launcher rejects them, as it rejects keys (sources: `_is_key_refused`; trl 1.0.0
    `scripts/`).
    """
    commands, key, sft = list_trl_commands(config), parse_release(release), find_trainer(config) == "sft"
    since, limit = ("0.18", "0.18") if sft else ("0.22", "0.29")
    if not commands or not all(map(COMMAND_PATTERN.match, commands)):
        limit = "1.0"
    return bool(commands) and parse_release(since) <= key < parse_release(limit)
