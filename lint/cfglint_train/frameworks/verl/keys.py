"""Keys of verl: Hydra refuses a bare word that the composed tree lacks, and adds any word with `+`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from operator import eq

from cfglint_schemas.status import PRESENT, Context
from cfglint_train.documents.document import MISSING, Delete, Document, Rename, Route, Unknown
from cfglint_train.documents.shell.composed import NAME_OPTIONS
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Argument, Invocation, locate_prefix
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.evidence import LaunchedKey
from cfglint_train.frameworks.flag_parser import RefusedWord
from cfglint_train.frameworks.interpolation import resolve_default_text
from cfglint_train.frameworks.key_usage import KeyUse, ReleaseHint
from cfglint_train.frameworks.keys import Keys, LauncherOption, OutdatedConfig, UnparsedOption
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.lens_types import UNRESOLVED
from cfglint_train.frameworks.loaders import HYDRA
from cfglint_train.frameworks.verl.commands import (
    is_read_by_hydra,
    list_command_words,
    list_commands,
    list_late_overrides,
    list_refused_files,
)
from cfglint_train.frameworks.verl.names import USER_CODE
from cfglint_train.frameworks.verl.options import find_unknown_options
from cfglint_train.frameworks.verl.overrides import parse_head, parse_value
from cfglint_train.frameworks.verl.recognise import extends_only_package
from cfglint_train.frameworks.verl.settings import (
    Defaults,
    can_select_files,
    find_entry,
    find_program,
    find_vocabulary_default,
    get_invocation,
    get_release,
    get_vocabulary,
    has_entry,
    has_known_tree,
    has_own_trainer,
    is_complete,
    is_in_tree,
    is_sft,
    is_stated,
    resolve_value,
)
from cfglint_train.frameworks.verl.words import (
    ENGINE_GROUP,
    HydraWord,
    is_of_other_tree,
    is_setting,
    list_leftovers,
    list_words,
)
from cfglint_train.plan.origin import Place

_MODULES_VARIABLE: Final = "VERL_USE_EXTERNAL_MODULES"


class VerlKeys(Keys):
    """Key handling of verl 0.3.0.post1 to 0.9.1 (hydra-core 1.3.2)."""

    is_closed = True

    def find_entry(self, document: Document, root: Route) -> str | None:
        """Return the tree that a configuration composes."""
        from cfglint_train.plan.releases import Releases

        return find_entry(Config("verl", document, Releases({}), root))

    def build_context(self, config: Config) -> Context:
        """Return a context with the tree that the configuration composes."""
        return Context(entry=find_entry(config))

    def resolve_setting(self, config: Config, name: str) -> Any:
        """Return the value that applies: given, or by default in the composed tree, with interpolations resolved."""
        route: Route = tuple(name.split("."))
        if config.get(*route) is None and not (is_complete(config) and has_known_tree(config)):
            return Unknown("the command that composes the file")
        return resolve_value(config, name)

    def find_default(self, config: Config, name: str, release: str) -> Any:
        """Return the default in the composed tree of a release, with interpolations as text, or MISSING."""
        return find_vocabulary_default(config, name, release)

    def is_declared(self, config: Config, route: Route) -> bool:
        """Return whether a setting may be of a tree that cfglint does not compose, or of code that it does not read."""
        invocation, word, copy = get_invocation(config), find_word(config, route), config.evidence.vocabulary
        if route == (ENGINE_GROUP,) and can_select_files(config):
            return False
        if not has_known_tree(config) or not has_entry(config) or route[0] in HYDRA.reserved_keys:
            return True
        if invocation is not None and is_of_other_tree(invocation, route):
            return True
        if word is None or not word.head.sign or copy is None:
            return False
        if copy.code.can_read(str(route[-1])) or has_own_trainer(config):
            return copy.code.can_read(str(route[-1]))
        # Workers of a recipe may build a section otherwise.
        context = self.build_context(config)
        is_built = copy.find_effect(route[:-1], get_release(config), context) == "error"
        return is_built or copy.code.has_word_beside(str(route[-1]), find_entry(config))

    def has_trainer(self, config: Config, is_inherited: bool) -> bool:
        """Return whether verl's own trainer checks the settings, not one of a recipe or a fork."""
        return has_own_trainer(config)

    def is_accepted(self, schema: Mapping[str, Any], value: Any) -> bool | None:
        """Return True for a number, or a text that is one, where one is expected: only words stop verl for sure."""
        types = schema.get("type", ())
        if "enum" in schema or not {"integer", "number"} & {*([types] if isinstance(types, str) else types)}:
            return None
        try:
            float(value)
        except (TypeError, ValueError):
            return None
        return True

    def has_user_code(self, config: Config) -> bool:
        """Return whether the trainer or its workers import a user's module."""
        invocation, document = get_invocation(config), config.document
        variables = (
            document.collect_environment(invocation)
            if invocation is not None and isinstance(document, ShellDocument)
            else {}
        )
        return _MODULES_VARIABLE in variables or is_stated(config, *USER_CODE)

    def report_outdated(self, config: Config) -> OutdatedConfig | None:
        """Report a command whose program the release lacks."""
        if has_entry(config) or not has_own_trainer(config):
            return None
        last = get_release(config)
        is_stated = config.releases.is_stated("verl")
        return OutdatedConfig(
            f"verl {config.release} has no {find_program(config)}: the last release that has it is {last}",
            config.find_top(),
            "error" if is_stated else "info",
            "start `verl.trainer.sft_trainer`, whose settings differ" + ("" if is_stated else f", or set verl={last}"),
        )

    def determine_effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """Return that Hydra refuses a word without `+`; the vocabulary knows what becomes of the others."""
        word = find_word(config, route)
        return "error" if word is not None and word.head.sign == "" else effect

    def infer_release(
        self,
        document: Document,
        root: Route,
        release: str,
        package: str | None = None,
        launched: Iterable[LaunchedKey] = (),
    ) -> ReleaseHint | None:
        """Return no hint: most runs use a copy between two releases, and the newest release decides about each key."""
        return None

    def find_used_keys(
        self, document: Document, root: Route, package: str | None = None, launched: Iterable[LaunchedKey] = ()
    ) -> list[KeyUse]:
        """Return the keys that only later releases have, and that the newest accepts."""
        uses = super().find_used_keys(document, root, package, launched)
        return [use for use in uses if use.is_accepted_by(self.vocabulary.newest)]

    def is_value_corrected(self, config: Config, flag: str, value: str) -> bool:
        """Return whether Hydra reads a word with quotes in it, because quotes are part of its grammar."""
        head = parse_head(value)
        try:
            return head is not None and (
                not head.value_offset or parse_value(value[head.value_offset :]) is not MISSING
            )
        except ValueError:
            return False

    def find_leftovers(self, config: Config) -> tuple[Word, ...]:
        """Return the words of a program of Hydra that are neither options of Hydra nor overrides."""
        invocation = get_invocation(config)
        return (
            () if invocation is None or not is_read_by_hydra(config, invocation) else tuple(list_leftovers(invocation))
        )

    def find_launcher_option(self, config: Config, route: Route) -> LauncherOption | None:
        """Return the place of a word that overrides a setting of a file, or None if the file or the word adds it."""
        if self.is_declared(config, route) or not config.compute_once(_extends_only_package):
            return None
        sections = (route[:depth] for depth in range(1, len(route) + 1))
        release, document = get_release(config), config.document
        is_in_file = any(
            document.get_value((*config.root, *section)) is not MISSING and not is_in_tree(config, section, release)
            for section in sections
        )
        if is_in_file or any(all(map(eq, added, route)) for added in config.compute_once(_list_added_routes)):
            return None
        return LauncherOption(find_entry(config), route, class_steps=0)

    def determine_launch_effect(self, effect: str, config: Config, release: str) -> str:
        """Return that Hydra refuses a word of a setting that the composed tree lacks."""
        return "error"

    def find_unparsed_options(self, config: Config) -> Iterator[UnparsedOption]:
        """Yield the options of the commands of a configuration that Hydra's parser lacks."""
        for script, invocation in list_commands(config):
            for option in find_unknown_options(invocation):
                span = locate_prefix(option.word, len(option.name))
                is_renamable = bool(option.suggestion) and script.get_text(span) == option.name
                program, place = invocation.program, Place(script, span)
                yield UnparsedOption(option.name, program, place, option.suggestion, is_renamable)

    def list_option_values(self, config: Config, option: str) -> list[str]:
        """List the files in `trainer/config` that verl's own program of reinforcement learning composes by name."""
        vocabulary = get_vocabulary(config)
        if option not in NAME_OPTIONS or not has_own_trainer(config) or is_sft(config):
            return []
        names = (name for name in vocabulary.entries if name.startswith("ppo_"))
        return [name for name in names if vocabulary.has_entry(name, config.release)]

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether a blank word is an override for Hydra, which refuses it."""
        return any(word is invocation.words[index] for word in self.find_leftovers(config))

    def list_refused_words(self, config: Config) -> Iterator[RefusedWord]:
        """Yield the words that Hydra refuses: `+` on a key that exists, `~` on one that does not, and broken values."""
        yield from list_late_overrides(config)
        yield from list_refused_files(config)
        invocation = get_invocation(config)
        if invocation is None or not has_known_tree(config):
            return
        changed: set[Route] = set()
        values: dict[Route, bool] = {}
        words = [word for word in list_command_words(config) if is_setting(word.head) and word.head.key != ENGINE_GROUP]
        for number, word in enumerate(words):
            place, name, route = Place(config.document, word.entry.key.span), word.head.key, word.route
            if word.fault:
                yield RefusedWord(place, f"Hydra cannot read the value of `{name}`", "quote it", lambda _: True)
            elif word.head.sign == "" and _is_gone(words[:number], route):
                yield RefusedWord(
                    place,
                    f"`{name}` is not in the tree any more: an earlier word deletes it",
                    f"write `+{name}`",
                    lambda _: True,
                    Rename((invocation.number, word.name), f"+{name}"),
                )
            elif word.head.sign == "" and not any(route[:depth] in changed for depth in range(len(route) + 1)):
                yield RefusedWord(
                    place,
                    f"`{name}` is not in the composed tree, and has no `+`",
                    f"write `+{name}`",
                    partial(_needs_plus, config, route),
                    Rename((invocation.number, word.name), f"+{name}"),
                )
            elif word.head.sign in ("+", "~"):
                is_added = word.head.sign == "+"
                if is_added and not _is_scalar(word):
                    continue  # a list or a mapping is merged
                yield RefusedWord(
                    place,
                    f"`+{name}` adds a setting that already exists"
                    if is_added
                    else f"`~{name}` deletes a setting that does not exist",
                    f"write it without `+`, or as `++{name}`" if is_added else "remove the word",
                    partial(_has_value, config, route, is_added, values.get(route)),
                    Rename((invocation.number, word.name), name)
                    if is_added
                    else Delete((invocation.number, word.name)),
                )
            if word.head.sign:
                changed.add(route)
            values[route] = word.head.sign != "~" and not _is_null(word)


def _extends_only_package(config: Config) -> bool:
    return extends_only_package(config.document)


def _list_added_routes(config: Config) -> list[Route]:
    """Return the settings that words with a sign add or delete in the commands of a configuration."""
    words = (word for _, invocation in list_commands(config) for word in list_words(invocation))
    return [word.route for word in words if word.head.sign]


def _is_gone(earlier: list[HydraWord], route: Route) -> bool:
    """Return whether words delete a key or a mapping around it, and none adds it again."""
    for word in reversed(earlier):
        if word.head.sign and all(map(eq, word.route, route)):
            return word.head.sign == "~" and len(word.route) <= len(route)
    return False


def _has_value(config: Config, route: Route, presence: bool, before: bool | None, release: str) -> bool:
    """Return whether a key has, or lacks, a value before a word; null counts as none.

    `before` is the answer if an earlier word set or deleted the key; otherwise the release's tree decides. Return False
    if the default depends on anything outside the files.
    Source: hydra-core 1.3.2 `_internal/config_loader_impl.py` (_apply_overrides_to_config).
    """
    if before is not None:
        return before is presence
    if not is_in_tree(config, route, release):
        return not presence
    fact = get_vocabulary(config).find_fact(route, release, Context(entry=find_entry(config)))
    schema = {} if fact is None else fact.get_schema(release)
    default = schema.get("default")
    if "x-interpolation" in schema:
        text = schema["x-interpolation"]
        default = resolve_default_text(config, route, text, config.compute_once(Defaults))
        if default is UNRESOLVED or isinstance(default, Unknown):
            return False
    return ("$ref" in schema or default is not None) is presence


def _is_scalar(word: HydraWord) -> bool:
    value = word.entry.value
    return isinstance(value, Argument) and not isinstance(value.value, (dict, list, Unknown))


def _is_null(word: HydraWord) -> bool:
    value = word.entry.value
    return isinstance(value, Argument) and value.value is None


def _needs_plus(config: Config, route: Route, release: str) -> bool:
    """Return whether a release accepts a key that its tree lacks: of a dataclass, or in a free mapping."""
    fact = get_vocabulary(config).find_fact(route, release, Context(entry=find_entry(config)))
    if fact is None or fact.resolve_status(release).kind != PRESENT:
        return False
    return fact.is_open or bool(fact.get_schema(release).get("x-absent"))


def find_word(config: Config, route: Route) -> HydraWord | None:
    """Return the last word of a command that sets a setting, a mapping around it, or a setting below it, or None."""
    words = reversed(list_command_words(config))
    return next((word for word in words if all(map(eq, word.route, route))), None)
