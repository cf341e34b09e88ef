"""The keys of TRL's recipes: its own classes', and the training arguments of the transformers beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_schemas.fact import Fact
from cfglint_schemas.status import PRESENT, Context
from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.hf_trainer.fsdp import fsdp_routes
from cfglint_train.frameworks.key_usage import KeyUse, ReleaseHint
from cfglint_train.frameworks.keys import CallArgument, Keys, LauncherOption, Outdated, Unparsed
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.clues import ANY
from cfglint_train.frameworks.trl.settings import (
    COMMAND,
    COMMANDS,
    by_keys,
    context_of,
    starts_launcher,
    trainer_of,
    ways,
)
from cfglint_train.frameworks.value_parser import words_of
from cfglint_train.plan.certainty import Certainty, Ground

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_EVERY: Final = Context(entry=ANY)

# Training arguments that are declared as text and turned into a member of an enumeration, which refuses other words
# (transformers 4.41 to 5.23 training_args.py, __post_init__).
_WORDS: Final = frozenset(("eval_strategy", "hub_strategy", "logging_strategy", "lr_scheduler_type", "save_strategy"))
_SCRIPTS: Final = ("ScriptArguments", "LaunchArguments")
"""How the names of the classes end that belong to TRL's scripts and to the command `trl`, and to none of its trainers.
"""
# What the trainers themselves refuse, one word of it; several are not looked at.
_LOSS: Final = "loss_type"
_ATTENTION: Final = "attn_implementation"
_SCALARS: Final = frozenset(("boolean", "integer", "number"))


class ArgumentKeys(Keys):
    """Classes of training arguments, as TRL and scripts of the HF Trainer have them."""

    library = True
    # Which optimizers there are depends on transformers' release, which is seldom stated.
    # `from_pretrained` gets the attention, and takes a kernel of the Hub, too (transformers 5.23 modeling_utils.py).
    handed_on = {
        "optim": ("transformers.training_args.OptimizerNames", ()),
        _ATTENTION: ("transformers.modeling_utils.AttentionInterface", ("*/*",)),
    }
    handed_to = "transformers"

    def told(self, document: Document, root: Route, release: str, package: str | None = None) -> ReleaseHint | None:
        """As in the base class, and what a script hands to its trainer that only older ones took."""
        found = super().told(document, root, release, package)
        if document.syntax != "python" or package is not None:
            return found
        from cfglint_train.frameworks.trainer_script.arguments import with_keywords

        return with_keywords(found, document, root, release)

    def in_use(self, document: Document, root: Route, package: str | None = None) -> list[KeyUse]:
        """As in the base class, and what a script hands to its trainer that only older ones took."""
        found = super().in_use(document, root, package)
        if document.syntax != "python" or package is not None:
            return found
        from cfglint_train.frameworks.trainer_script.arguments import keyword_uses

        return [*found, *keyword_uses(document, root)]

    def settles(self, route: Route) -> bool:
        """Arguments of TRL's scripts and of its command do not: scripts and launchers of the user's own have theirs by
        the same names (`reward_funcs`, `num_processes`).
        """
        fact = self.vocabulary.fact(route[:1], self.vocabulary.newest, _EVERY)
        return fact is None or not fact.definition.endswith(_SCRIPTS)

    def handed(self, config: Config) -> tuple[CallArgument, ...]:
        """What a script hands to its trainer that only older ones took, and to PEFT that not every release takes."""
        if config.document.syntax != "python":
            return ()
        from cfglint_train.frameworks.trainer_script import adapter, arguments

        return (*arguments.handed(config), *adapter.handed(config))

    def unparsed(self, config: Config) -> Iterator[Unparsed]:
        """What no dataclass has that a script makes its parser of; a script of several runs has one launch."""
        if config.document.syntax != "python" or config.root != (0,):
            return iter(())
        from cfglint_train.frameworks.trainer_script import parser

        return parser.unparsed(config)

    def refuses_blank(self, config: Config, given: Invocation, index: int) -> bool:
        """The parser of a script whose dataclasses are known, where it is no option's value."""
        if config.document.syntax != "python":
            return False
        from cfglint_train.frameworks.hf_trainer.options import parser
        from cfglint_train.frameworks.trainer_script.parser import parsed_by

        return parsed_by(config) is not None and parser("trl", ANY).refuses_blank(given, index)

    def untaken(self, config: Config, route: Route) -> str:
        """Where a script makes its arguments of a class that does not have the one that is new."""
        if config.document.syntax != "python":
            return ""
        from cfglint_train.frameworks.trainer_script.arguments import untaken

        return untaken(config, str(route[0]))

    def routes(self, name: str) -> tuple[Route, ...]:
        """Keys of `fsdp_config` stand there with or without their prefix."""
        return fsdp_routes(name)

    def part(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        """Enumerations that the Trainer makes members of, and scalars that text is converted to."""
        if "x-unchecked" in schema:
            return super().part(schema, name)
        if name == _LOSS:
            return words_of(schema)
        if name in _WORDS:
            words = [part for part in schema.get("anyOf", ()) if "enum" in part]
            return words[0] if words else None
        kinds = schema.get("type", ())
        plain = {kinds} if isinstance(kinds, str) else set(kinds) - {"null"}
        return schema if plain and plain <= _SCALARS else None

    def takes(self, schema: Mapping[str, Any], value: Any) -> bool | None:
        """Only text is converted, and may be refused; what it is checked against is the loader's."""
        return None if isinstance(value, str) or ("enum" in schema and not isinstance(value, list)) else True


class TrlKeys(ArgumentKeys):
    """TRL 0.9.2 to 1.16.0."""

    def entry(self, document: Document, root: Route) -> str | None:
        """The trainer that the keys show."""
        return by_keys(document, root) or ANY

    def context(self, config: Config) -> Context:
        """The trainer that is started, or that the keys show."""
        return context_of(config)

    def chosen(self, config: Config, route: Route) -> Ground | None:
        """The command of `trl`, where it is the default of a variable."""
        from cfglint_train.frameworks.trl.commands import assumed_command

        note = config.once(assumed_command)
        if not note:
            return None
        other = self.vocabulary_of(config).fact(route, config.release, _EVERY)
        grade: Certainty = "followed" if other is None else "assumed"
        return Ground("command:trl", context_of(config).entry or ANY, grade, note)

    def outdated(self, config: Config) -> Outdated | None:
        """A command that the stated release of TRL does not have yet."""
        if config.evidence.vocabulary is not None or not config.releases.stated("trl"):
            return None
        started = [one.removeprefix("trl ") for one in ways(config) if COMMAND.match(one)]
        since = max((COMMANDS[one] for one in started if one in COMMANDS), key=release_key, default="")
        if not since or release_key(since) <= release_key(config.release):
            return None
        command = next(one for one in started if COMMANDS.get(one) == since)
        why = f"TRL {config.release} has no command `trl {command}`: it comes with {since}"
        return Outdated(why, config.top(), "error")

    def effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """What the parser and the command make of a key that they do not know."""
        if effect != "error" or len(route) != 1 or config.document.syntax == "python":
            return effect  # a class of arguments refuses a keyword that it does not know
        if config.document.syntax == "shell":
            return self.launched_effect(effect, config, release)
        known = self.vocabulary_of(config).fact(route, release, _EVERY)
        if known is not None and known.status().kind == PRESENT and release_key(release) < release_key("0.29"):
            return "dropped"  # it is another trainer's, and `trl` has one parser for all of them up to then
        return "error" if _refuses(config, str(route[0]), release) else "dropped"

    def launched(self, config: Config, route: Route) -> LauncherOption | None:
        """An option beside a recipe, where TRL's own commands and scripts alone start it."""
        started = config.evidence.commands
        if config.document.syntax == "python" or not started or len(ways(config)) < len(started):
            return None
        return LauncherOption(context_of(config).entry, route, there=0)

    def launched_effect(self, effect: str, config: Config, release: str) -> str:
        """It is refused, save where the parser of a script hands it back."""
        return "dropped" if effect == "error" and _hands_options_back(config, release) else effect

    def refuses_blank(self, config: Config, given: Invocation, index: int) -> bool:
        """As an option that no class has, where it is no option's value."""
        if config.document.syntax == "python":
            return super().refuses_blank(config, given, index)
        if config.document.syntax == "yaml" and len(ways(config)) < len(config.evidence.commands):
            return False
        from cfglint_train.frameworks.hf_trainer.options import parser

        releases = config.releases.window("trl").releases
        refused = all(self.launched_effect("error", config, release) == "error" for release in releases)
        return refused and parser("trl", ANY).refuses_blank(given, index)

    def may_be_foreign(self, config: Config, release: str) -> bool:
        """Where nothing of TRL's starts the recipe, a script may, which has settings of its own."""
        return self.may_be_read(config)

    def may_be_read(self, config: Config) -> bool:
        """Where no command or script of TRL's is seen to start the recipe."""
        return config.document.syntax != "python" and not ways(config)

    def may_be_another(self, fact: Fact, config: Config, release: str) -> bool:
        """Arguments of TRL's scripts and its command: a script of the repository declares its own, `reward_funcs`
        before TRL had it.
        """
        return fact.definition.endswith(_SCRIPTS) and self.may_be_foreign(config, release)

    def may_take_more(self, name: str, config: Config) -> bool:
        """Loss types and attention: a script of the repository may have a trainer of its own, or register its own."""
        return name in (_LOSS, _ATTENTION) and self.may_be_read(config)


def _refuses(config: Config, name: str, release: str) -> bool:
    """Whether an unknown key of a recipe stops the run, by the ways in which scripts start it.

    The parser refused it up to 0.12, silently dropped it from 0.13 on, and refuses it again from 0.19 on unless it
    is asked to hand it back or to skip it. The scripts of `dpo`, `grpo` and `kto` ask from 0.22 on, that of `sft`
    from 0.18 on. What is handed back goes to the launcher's parser, which refuses it, where the command starts one
    (trl 0.9.2 to 1.16.0: `commands/cli_utils.py`, `cli.py`, `cli/commands/training.py`, `scripts/`).
    """
    started = ways(config)
    key = release_key(release)
    if not started:
        from cfglint_train.frameworks.trl.recipe_parser import lacks  # few recipes have such a key

        # Another script may have the key as a setting of its own. Up to 0.9.4 its parser skipped what it lacks.
        is_strict = release_key("0.9.6") <= key < release_key("0.13") or key >= release_key("0.19")
        return is_strict and lacks(config, name)
    if key < release_key("0.13"):
        return True
    if key < release_key("0.18"):
        return False
    sft = trainer_of(config) == "sft"
    if not sft and release_key("0.19") <= key < release_key("0.22"):
        return True
    return starts_launcher(config, release)


def _hands_options_back(config: Config, release: str) -> bool:
    """Whether an unknown option of a command line is handed back to a script that drops it.

    The scripts have the parser hand options back as they have it hand keys back, and from 1.0 on no longer. What a
    command hands to the launcher first is refused there, as keys are (sources: `_refuses`; trl 1.0.0 `scripts/`).
    """
    started, key, sft = ways(config), release_key(release), trainer_of(config) == "sft"
    since, until = ("0.18", "0.18") if sft else ("0.22", "0.29")
    if not started or not all(map(COMMAND.match, started)):
        until = "1.0"
    return bool(started) and release_key(since) <= key < release_key(until)
