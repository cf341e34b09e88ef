"""The keys of TRL's recipes: its own classes', and the training arguments of the transformers beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import PRESENT, Context
from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.hf_trainer.fsdp import list_fsdp_routes
from cfglint_train.frameworks.key_usage import KeyUse, ReleaseHint
from cfglint_train.frameworks.keys import CallArgument, Keys, LauncherOption, OutdatedConfig, UnparsedOption
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.clues import ANY_TRAINER
from cfglint_train.frameworks.trl.settings import (
    COMMAND_PATTERN,
    COMMANDS,
    build_context,
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

# Training arguments that are declared as text and turned into a member of an enumeration, which refuses other words
# (transformers 4.41 to 5.23 training_args.py, __post_init__).
_ENUMERATED_SETTINGS: Final = frozenset(
    ("eval_strategy", "hub_strategy", "logging_strategy", "lr_scheduler_type", "save_strategy")
)
_SCRIPT_CLASSES: Final = ("ScriptArguments", "LaunchArguments")
"""How the names of the classes end that belong to TRL's scripts and to the command `trl`, and to none of its trainers.
"""
# What the trainers themselves refuse, one word of it; several are not looked at.
_LOSS: Final = "loss_type"
_ATTENTION: Final = "attn_implementation"
_SCALAR_TYPES: Final = frozenset(("boolean", "integer", "number"))


class ArgumentKeys(Keys):
    """Classes of training arguments, as TRL and scripts of the HF Trainer have them."""

    is_library = True
    # Which optimizers there are depends on transformers' release, which is seldom stated.
    # `from_pretrained` gets the attention, and takes a kernel of the Hub, too (transformers 5.23 modeling_utils.py).
    forwarded_settings = {
        "optim": ("transformers.training_args.OptimizerNames", ()),
        _ATTENTION: ("transformers.modeling_utils.AttentionInterface", ("*/*",)),
    }
    forward_target = "transformers"

    def infer_release(
        self, document: Document, root: Route, release: str, package: str | None = None
    ) -> ReleaseHint | None:
        """As in the base class, and what a script hands to its trainer that only older ones took."""
        hint = super().infer_release(document, root, release, package)
        if document.syntax != "python" or package is not None:
            return hint
        from cfglint_train.frameworks.trainer_script.arguments import add_keywords

        return add_keywords(hint, document, root, release)

    def find_used_keys(self, document: Document, root: Route, package: str | None = None) -> list[KeyUse]:
        """As in the base class, and what a script hands to its trainer that only older ones took."""
        uses = super().find_used_keys(document, root, package)
        if document.syntax != "python" or package is not None:
            return uses
        from cfglint_train.frameworks.trainer_script.arguments import find_keyword_uses

        return [*uses, *find_keyword_uses(document, root)]

    def is_fixed_place(self, route: Route) -> bool:
        """Arguments of TRL's scripts and of its command do not: scripts and launchers of the user's own have theirs by
        the same names (`reward_funcs`, `num_processes`).
        """
        fact = self.vocabulary.find_fact(route[:1], self.vocabulary.newest, _ANY_CONTEXT)
        return fact is None or not fact.definition.endswith(_SCRIPT_CLASSES)

    def find_call_arguments(self, config: Config) -> tuple[CallArgument, ...]:
        """What a script hands to its trainer that only older ones took, and to PEFT that not every release takes."""
        if config.document.syntax != "python":
            return ()
        from cfglint_train.frameworks.trainer_script import adapter, arguments

        return (*arguments.find_trainer_arguments(config), *adapter.find_adapter_arguments(config))

    def find_unparsed_options(self, config: Config) -> Iterator[UnparsedOption]:
        """What no dataclass has that a script makes its parser of; a script of several runs has one launch."""
        if config.document.syntax != "python" or config.root != (0,):
            return iter(())
        from cfglint_train.frameworks.trainer_script import parser

        return parser.find_unparsed_options(config)

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """The parser of a script whose dataclasses are known, where it is no option's value."""
        if config.document.syntax != "python":
            return False
        from cfglint_train.frameworks.hf_trainer.options import get_parser
        from cfglint_train.frameworks.trainer_script.parser import find_options

        return find_options(config) is not None and get_parser("trl", ANY_TRAINER).is_blank_fatal(invocation, index)

    def explain_refused_argument(self, config: Config, route: Route) -> str:
        """Where a script makes its arguments of a class that does not have the one that is new."""
        if config.document.syntax != "python":
            return ""
        from cfglint_train.frameworks.trainer_script.arguments import explain_refused_argument

        return explain_refused_argument(config, str(route[0]))

    def list_routes(self, name: str) -> tuple[Route, ...]:
        """Keys of `fsdp_config` stand there with or without their prefix."""
        return list_fsdp_routes(name)

    def extract_enforced(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        """Enumerations that the Trainer makes members of, and scalars that text is converted to."""
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
        """Only text is converted, and may be refused; what it is checked against is the loader's."""
        return None if isinstance(value, str) or ("enum" in schema and not isinstance(value, list)) else True


class TrlKeys(ArgumentKeys):
    """TRL 0.9.2 to 1.16.0."""

    def find_entry(self, document: Document, root: Route) -> str | None:
        """The trainer that the keys show."""
        return find_trainer_by_keys(document, root) or ANY_TRAINER

    def build_context(self, config: Config) -> Context:
        """The trainer that is started, or that the keys show."""
        return build_context(config)

    def find_entry_assumption(self, config: Config, route: Route) -> Ground | None:
        """The command of `trl`, where it is the default of a variable."""
        from cfglint_train.frameworks.trl.commands import explain_assumed_command

        note = config.compute_once(explain_assumed_command)
        if not note:
            return None
        fact = self.get_vocabulary(config).find_fact(route, config.release, _ANY_CONTEXT)
        grade: Certainty = "followed" if fact is None else "assumed"
        return Ground("command:trl", build_context(config).entry or ANY_TRAINER, grade, note)

    def report_outdated(self, config: Config) -> OutdatedConfig | None:
        """A command that the stated release of TRL does not have yet."""
        if config.evidence.vocabulary is not None or not config.releases.is_stated("trl"):
            return None
        commands = [name.removeprefix("trl ") for name in list_trl_commands(config) if COMMAND_PATTERN.match(name)]
        since = max((COMMANDS[name] for name in commands if name in COMMANDS), key=parse_release, default="")
        if not since or parse_release(since) <= parse_release(config.release):
            return None
        command = next(name for name in commands if COMMANDS.get(name) == since)
        message = f"TRL {config.release} has no command `trl {command}`: it comes with {since}"
        return OutdatedConfig(message, config.find_top(), "error")

    def determine_effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """What the parser and the command make of a key that they do not know."""
        if effect != "error" or len(route) != 1 or config.document.syntax == "python":
            return effect  # a class of arguments refuses a keyword that it does not know
        if config.document.syntax == "shell":
            return self.determine_launch_effect(effect, config, release)
        fact = self.get_vocabulary(config).find_fact(route, release, _ANY_CONTEXT)
        if (
            fact is not None
            and fact.resolve_status().kind == PRESENT
            and parse_release(release) < parse_release("0.29")
        ):
            return "dropped"  # it is another trainer's, and `trl` has one parser for all of them up to then
        return "error" if _is_key_refused(config, str(route[0]), release) else "dropped"

    def find_launcher_option(self, config: Config, route: Route) -> LauncherOption | None:
        """An option beside a recipe, where TRL's own commands and scripts alone start it."""
        commands = config.evidence.commands
        if config.document.syntax == "python" or not commands or len(list_trl_commands(config)) < len(commands):
            return None
        return LauncherOption(build_context(config).entry, route, class_steps=0)

    def determine_launch_effect(self, effect: str, config: Config, release: str) -> str:
        """It is refused, save where the parser of a script hands it back."""
        return "dropped" if effect == "error" and _is_option_returned(config, release) else effect

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """As an option that no class has, where it is no option's value."""
        if config.document.syntax == "python":
            return super().is_blank_fatal(config, invocation, index)
        if config.document.syntax == "yaml" and len(list_trl_commands(config)) < len(config.evidence.commands):
            return False
        from cfglint_train.frameworks.hf_trainer.options import get_parser

        releases = config.releases.find_candidates("trl").releases
        refused = all(self.determine_launch_effect("error", config, release) == "error" for release in releases)
        return refused and get_parser("trl", ANY_TRAINER).is_blank_fatal(invocation, index)

    def can_have_foreign_keys(self, config: Config, release: str) -> bool:
        """Where nothing of TRL's starts the recipe, a script may, which has settings of its own."""
        return self.can_be_read_by_user(config)

    def can_be_read_by_user(self, config: Config) -> bool:
        """Where no command or script of TRL's is seen to start the recipe."""
        return config.document.syntax != "python" and not list_trl_commands(config)

    def can_be_user_setting(self, fact: KeyFact, config: Config, release: str) -> bool:
        """Arguments of TRL's scripts and its command: a script of the repository declares its own, `reward_funcs`
        before TRL had it.
        """
        return fact.definition.endswith(_SCRIPT_CLASSES) and self.can_have_foreign_keys(config, release)

    def can_accept_more(self, name: str, config: Config) -> bool:
        """Loss types and attention: a script of the repository may have a trainer of its own, or register its own."""
        return name in (_LOSS, _ATTENTION) and self.can_be_read_by_user(config)


def _is_key_refused(config: Config, name: str, release: str) -> bool:
    """Whether an unknown key of a recipe stops the run, by the ways in which scripts start it.

    The parser refused it up to 0.12, silently dropped it from 0.13 on, and refuses it again from 0.19 on unless it
    is asked to hand it back or to skip it. The scripts of `dpo`, `grpo` and `kto` ask from 0.22 on, that of `sft`
    from 0.18 on. What is handed back goes to the launcher's parser, which refuses it, where the command starts one
    (trl 0.9.2 to 1.16.0: `commands/cli_utils.py`, `cli.py`, `cli/commands/training.py`, `scripts/`).
    """
    commands = list_trl_commands(config)
    key = parse_release(release)
    if not commands:
        from cfglint_train.frameworks.trl.recipe_parser import is_unknown_everywhere  # few recipes have such a key

        # Another script may have the key as a setting of its own. Up to 0.9.4 its parser skipped what it lacks.
        is_strict = parse_release("0.9.6") <= key < parse_release("0.13") or key >= parse_release("0.19")
        return is_strict and is_unknown_everywhere(config, name)
    if key < parse_release("0.13"):
        return True
    if key < parse_release("0.18"):
        return False
    sft = find_trainer(config) == "sft"
    if not sft and parse_release("0.19") <= key < parse_release("0.22"):
        return True
    return has_launcher_passthrough(config, release)


def _is_option_returned(config: Config, release: str) -> bool:
    """Whether an unknown option of a command line is handed back to a script that drops it.

    The scripts have the parser hand options back as they have it hand keys back, and from 1.0 on no longer. What a
    command hands to the launcher first is refused there, as keys are (sources: `_refuses`; trl 1.0.0 `scripts/`).
    """
    commands, key, sft = list_trl_commands(config), parse_release(release), find_trainer(config) == "sft"
    since, limit = ("0.18", "0.18") if sft else ("0.22", "0.29")
    if not commands or not all(map(COMMAND_PATTERN.match, commands)):
        limit = "1.0"
    return bool(commands) and parse_release(since) <= key < parse_release(limit)
