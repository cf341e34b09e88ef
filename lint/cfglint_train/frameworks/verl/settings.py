"""Settings of a verl run: stated values, and the defaults of the tree that its program composes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import PRESENT, Context
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import MISSING, CannotEdit, Change, Route, Set, Unknown
from cfglint_train.documents.shell.composed import (
    find_config_name,
    find_config_path,
    has_config_folder,
    names_config,
    names_file,
)
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Argument, Invocation
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec
from cfglint_train.frameworks.interpolation import resolve_default_setting, resolve_default_text, resolve_setting
from cfglint_train.frameworks.lens import (
    Config,
    Triple,
    build_default_origin,
    format_route,
    parse_routes,
    refuse_override,
)
from cfglint_train.frameworks.lens_types import ABSENT, NOT_STATED, UNRESOLVED, Access, Key, LookupResult, StatedValue
from cfglint_train.frameworks.verl.recognise import is_ppo_program, is_sft_program, list_bases
from cfglint_train.frameworks.verl.words import (
    ENGINE_GROUP,
    find_group,
    find_left_out,
    is_below,
    list_deleted,
    list_words,
)
from cfglint_train.plan.origin import Origin

PPO_ENTRY: Final = "ppo_trainer"
_TREES: Final = "config"
"""Folder of verl's trees, as Hydra resolves it from verl's programs in `verl/trainer`."""


def get_invocation(config: Config) -> Invocation | None:
    """Return the command of a configuration that is one, or None for a YAML file."""
    if not isinstance(config.document, ShellDocument):
        return None
    return config.document.invocations[int(config.root[0])]


def find_entry(config: Config) -> str:
    """Return the entry point of the vocabulary whose tree the run composes."""
    return _find_composed_program(config) or config.compute_once(_find_entry)


def _find_entry(config: Config) -> str:
    invocation = get_invocation(config)
    entries = load(config.framework).entries
    if _has_one_tree(config):
        return next(iter(entries))
    if invocation is None:
        bases = [base.rpartition("/")[2].removesuffix(".yaml") for base in list_bases(config.document)]
        named = next((base for base in bases if base in entries), "")
        return named or PPO_ENTRY
    if is_sft_program(invocation):
        is_old = "fsdp_sft_trainer" in invocation.program
        return "sft_trainer" if is_old else "sft_trainer_engine"
    name = find_config_name(invocation)
    entry = "" if name is None else name.text.removesuffix(".yaml")
    engine = find_group(invocation, ENGINE_GROUP)
    if engine is not None:
        value = engine.entry.value
        entry = f"ppo_{getattr(value, 'value', '')}_trainer"
    return entry if entry in entries else PPO_ENTRY


def find_other_engine(invocation: Invocation) -> str:
    """Return the engine that a command selects instead of FSDP, or an empty string; a file of the actor names one."""
    for group in (ENGINE_GROUP, "engine", "actor"):
        word = find_group(invocation, group)
        value = "" if word is None else getattr(word.entry.value, "value", "")
        engine = "the chosen engine" if isinstance(value, Unknown) else str(value).removesuffix("_actor")
        if engine not in ("", "dp", "fsdp"):
            return engine
    return ""


def is_sft(config: Config) -> bool:
    """Return whether the run trains on given answers."""
    return find_entry(config).startswith("sft")


def is_ppo(config: Config) -> bool:
    """Return whether the run does reinforcement learning."""
    return not is_sft(config)


def has_known_tree(config: Config) -> bool:
    """Return whether verl's own tree is composed, so that its defaults apply and its keys are all keys.

    Programs of recipes and forks compose trees of their own, and a YAML file may extend nothing. EasyR1 has one tree.
    """
    return bool(_find_composed_program(config)) or config.compute_once(_has_known_tree)


def _has_known_tree(config: Config) -> bool:
    invocation = get_invocation(config)
    if _has_one_tree(config):
        return True
    if invocation is not None:
        return _composes_own_tree(invocation)
    path = os.path.abspath(config.document.path).replace(os.sep, "/")
    programs = [script.invocations[number] for script, number in config.launches if isinstance(script, ShellDocument)]
    # The file does not have the settings of an engine that a word chooses.
    is_own = all(
        _selects_package_files(item) and not find_other_engine(item) and names_file(item, path) for item in programs
    )
    return bool(programs) and is_own and bool(list_bases(config.document))


def _has_one_tree(config: Config) -> bool:
    """Return whether every run of the framework has the same tree, as those of EasyR1."""
    return len(load(config.framework).entries) == 1


def has_own_trainer(config: Config) -> bool:
    """Return whether verl's own program trains with a tree of verl's package, not a program of a recipe or a fork."""
    invocation = get_invocation(config)
    return has_known_tree(config) if invocation is None else _composes_own_tree(invocation)


def _find_composed_program(config: Config) -> str:
    """Return the program of a command, if the vocabulary has the tree that it composes, or an empty string.

    Its path begins at the root of the repository or at the script's folder. The evidence of a copy may come after the
    first question.
    """
    return config.compute_once(_search_composed_program, config.evidence.vocabulary)


def _search_composed_program(config: Config, _: Vocabulary | None) -> str:
    invocation = get_invocation(config)
    if invocation is None:
        return ""
    entries = [entry for entry in get_vocabulary(config).entries if "." in entry]
    program = invocation.program.removesuffix(".py").replace("/", ".")
    if program not in entries and not is_ppo_program(invocation):
        folder = os.path.dirname(os.path.abspath(config.document.path)).replace(os.sep, ".")
        program = next((entry for entry in entries if _names_program(entry, folder, program)), "")
    is_changed = names_config(invocation) or bool(find_other_engine(invocation))
    return "" if program not in entries or is_changed or _has_chosen_files(invocation) else program


def _names_program(entry: str, folder: str, program: str) -> bool:
    place = entry.removesuffix(f".{program}")
    return place != entry and folder.endswith(f".{place}")


def _composes_own_tree(invocation: Invocation) -> bool:
    """Return whether a command composes a tree of verl's package: no other folder, and no file of a group by choice."""
    folder = find_config_path(invocation)
    path = "" if folder is None else os.path.normpath(folder.text if folder.is_known else folder.known_suffix)
    is_own = folder is None or (folder.is_known and path == _TREES) or path.endswith(f"/verl/trainer/{_TREES}")
    return is_own and _selects_package_files(invocation)


def _selects_package_files(invocation: Invocation) -> bool:
    """Return whether a command runs verl's own program and selects no file that may lie outside its package."""
    engine, is_sft = find_other_engine(invocation), is_sft_program(invocation)
    if (not is_sft and not is_ppo_program(invocation)) or _has_chosen_files(invocation):
        return False
    return not engine or (not is_sft and f"ppo_{engine}_trainer" in load("verl").entries)


def can_select_files(config: Config) -> bool:
    """Return whether the words of a command select files of verl's package, or of a copy of it.

    They may be of other folders if the command names one, and the programs of recipes compose trees of their own.
    """
    invocation = get_invocation(config)
    return (
        invocation is not None
        and (is_ppo_program(invocation) or is_sft_program(invocation))
        and not any(word.head.key == "hydra.searchpath" for word in list_words(invocation))
        and not has_config_folder(invocation)
    )


def _has_chosen_files(invocation: Invocation) -> bool:
    words = list_words(invocation)
    return any(word.head.is_group or word.head.key == "hydra.searchpath" for word in words)


def has_defaults(config: Config) -> bool:
    """Return whether the defaults of verl's tree apply; the programs of recipes and forks extend that tree."""
    return get_invocation(config) is not None or has_known_tree(config)


def is_complete(config: Config) -> bool:
    """Return whether everything that the run sets is visible: a command, or a file that verl's own command composes."""
    return get_invocation(config) is not None or has_known_tree(config)


def get_vocabulary(config: Config) -> Vocabulary:
    """Return the vocabulary that applies: that of a copy in the repository, or upstream's."""
    return config.evidence.vocabulary or load(config.framework)


def has_entry(config: Config) -> bool:
    """Return whether the release has the program, or a copy in the repository replaces it."""
    vocabulary = load(config.framework)
    return config.evidence.vocabulary is not None or vocabulary.has_entry(find_entry(config), config.release)


def get_release(config: Config) -> str:
    """Return the release that the tree is composed of: the last that has the program, if the stated one has not."""
    return config.compute_once(_find_release, config.evidence.vocabulary)


def _find_release(config: Config, _: Vocabulary | None) -> str:
    if has_entry(config):
        return config.release
    return str(load("verl").entries[find_entry(config)][-1].get("last", config.release))


def find_program(config: Config) -> str:
    """Return the program of a command, or an empty string for a file."""
    invocation = get_invocation(config)
    return "" if invocation is None else invocation.program


def find_fact(config: Config, route: Route) -> KeyFact | None:
    """Return the fact about a key of the composed tree, or None if no release has it."""
    return get_vocabulary(config).find_fact(route, get_release(config), Context(entry=find_entry(config)))


def find_vocabulary_default(config: Config, name: str, release: str) -> Any:
    """Return the default of a dotted setting in the tree of a release, with interpolations as text, or MISSING."""
    fact = get_vocabulary(config).find_fact(tuple(name.split(".")), release, Context(entry=find_entry(config)))
    if fact is None or fact.resolve_status().kind != PRESENT:
        return MISSING
    schema = fact.get_schema()
    return schema.get("x-interpolation", schema.get("default", MISSING))


def has_key(config: Config, route: Route) -> bool:
    """Return whether the release's tree has a key."""
    return is_in_tree(config, route, get_release(config))


def is_in_tree(config: Config, route: Route, release: str) -> bool:
    """Return whether the tree that a release composes has a key, read or not."""
    fact = get_vocabulary(config).find_fact(route, release, Context(entry=find_entry(config)))
    if fact is None or fact.is_open or fact.get_schema(release).get("x-absent"):
        return False
    status = fact.resolve_status(release)
    return status.kind == PRESENT or status.effect in ("nothing", "mapped")


def resolve_value(config: Config, name: str) -> Any:
    """Return the value that a dotted setting has, given or by default, MISSING if it has none, or Unknown."""
    result = look_up(config, tuple(name.split(".")))
    if isinstance(result, StatedValue):
        return result.value
    is_absent = result is NOT_STATED and has_known_tree(config)
    return MISSING if is_absent else Unknown("a setting that cannot be determined")


class Defaults(Mapping[Route, Any]):
    """The defaults of the composed tree, as Hydra reads them: interpolations are text."""

    def __init__(self, config: Config) -> None:
        """Keep the configuration, whose release and trainer decide."""
        self.config = config

    def __getitem__(self, route: Route) -> Any:
        """Return the default of a key; raise KeyError if the tree has none."""
        default = self.config.compute_once(_find_tree_default, route)
        if default is MISSING:
            raise KeyError(route)
        return default

    def __contains__(self, route: object) -> bool:
        """Return whether the tree has a default for a key."""
        return self.config.compute_once(_find_tree_default, route) is not MISSING

    def __iter__(self) -> Iterator[Route]:
        """Iterate over nothing: the defaults are looked up."""
        return iter(())

    def __len__(self) -> int:
        """Return 0: the defaults are looked up."""
        return 0


def _find_tree_default(config: Config, route: Route) -> Any:
    """Return the default of a key, with interpolations as text, or MISSING if the tree has none."""
    fact = None if _is_deleted(config, route) else find_fact(config, route)
    if fact is None or fact.is_open or fact.resolve_status().kind != PRESENT:
        return MISSING
    schema = fact.get_schema()
    return schema["x-interpolation"] if "x-interpolation" in schema else schema.get("default", MISSING)


def look_up(config: Config, route: Route) -> LookupResult:
    """Return the value of a setting, stated or by default, with interpolations resolved.

    UNRESOLVED if it depends on anything outside the files, NOT_STATED if there is neither a value nor a default.
    """
    return config.compute_once(_look_up, route)


def _look_up(config: Config, route: Route) -> LookupResult:
    defaults = config.compute_once(Defaults)
    if _is_left_out(config, route):
        return _find_default(config, route, defaults)
    result = resolve_setting(config, route, defaults)
    if isinstance(result, StatedValue) and isinstance(result.value, Unknown) and not result.value.path:
        return UNRESOLVED
    if result is not NOT_STATED or not has_defaults(config):
        return result
    if not config.document.is_complete(config.root) or _is_deleted(config, route):
        return UNRESOLVED
    return resolve_default_setting(config, route, defaults)


def _find_default(config: Config, route: Route, defaults: Defaults) -> LookupResult:
    """Return the default of a key whatever its words state."""
    if not has_defaults(config) or route not in defaults or _is_deleted(config, route):
        return NOT_STATED if has_defaults(config) else UNRESOLVED
    value = defaults[route]
    if isinstance(value, str) and "${" in value:
        value = resolve_default_text(config, route, value, defaults)
    if value is UNRESOLVED or isinstance(value, Unknown):
        return UNRESOLVED
    return StatedValue(value, build_default_origin(config, route))


def _find_left_out(config: Config) -> Mapping[Route, str]:
    invocation = get_invocation(config)
    return {} if invocation is None else find_left_out(invocation)


def _is_left_out(config: Config, route: Route) -> bool:
    """Return whether only words that defaults of variables leave out set a key."""
    if route not in config.compute_once(_find_left_out):
        return False
    node = config.document.find_node((*config.root, *route))
    return isinstance(node, Argument) and node.word is not None and bool(node.word.left_out)


def _add_left_out(config: Config, route: Route, origin: Origin) -> Origin:
    """Return the origin of a value that holds only if defaults leave another word for its key out."""
    note = config.compute_once(_find_left_out).get(route, "")
    notes = dict.fromkeys(filter(None, (origin.assumption, note)))
    return origin._replace(assumption="; ".join(notes)) if note else origin


def _is_deleted(config: Config, route: Route) -> bool:
    """Return whether a word of the command deletes a key; what a program does without it is unknown."""
    return is_below(route, config.compute_once(_find_deleted))


def _find_deleted(config: Config) -> tuple[Route, ...]:
    invocation = get_invocation(config)
    return () if invocation is None else list_deleted(invocation)


def is_stated(config: Config, *names: str) -> bool:
    """Return whether any of the dotted keys is set."""
    return any(config.has(*route) for route in parse_routes(*names))


def read(config: Config, codec: Codec, *names: str) -> Any:
    """Return the value of the first of the dotted keys that has one, converted, or None if it is unknown."""
    return config.compute_once(_read, codec, names)


def _read(config: Config, codec: Codec, names: tuple[str, ...]) -> Any:
    route = find_route(config, parse_routes(*names))
    result = NOT_STATED if route is None else look_up(config, route)
    return codec.read_or_none(result.value) if isinstance(result, StatedValue) else None


def find_route(config: Config, names: tuple[Route, ...]) -> Route | None:
    """Return the key in use: one that is stated, or else the first that the release has."""
    return config.compute_once(_find_route, names)


def _find_route(config: Config, names: tuple[Route, ...]) -> Route | None:
    stated = next((route for route in names if config.has(*route)), None)
    if stated is not None:
        return stated
    available = next((route for route in names if has_key(config, route)), None)
    return names[0] if available is None and not has_defaults(config) else available


def find_setting(config: Config, names: tuple[Route, ...]) -> tuple[Route | None, LookupResult]:
    """Return the key in use and its stated value, or NOT_STATED."""
    route = find_route(config, names)
    if route is None:
        return None, NOT_STATED
    result = look_up(config, route)
    if isinstance(result, StatedValue):
        result = result._replace(origin=_add_left_out(config, route, result.origin))
    is_default = isinstance(result, StatedValue) and (not config.has(*route) or _is_left_out(config, route))
    return route, NOT_STATED if is_default else result


def find_origin(config: Config, *names: str) -> Origin:
    """Return the origin of the first of the dotted keys that is stated, or of the default of one that exists."""
    routes = parse_routes(*names)
    stated = next((route for route in routes if config.has(*route)), None)
    if stated is not None and not _is_left_out(config, stated):
        return _add_left_out(config, stated, config.get_origin(*stated))
    if stated is not None:
        return _add_left_out(config, stated, build_default_origin(config, stated))
    return build_default_origin(config, next((route for route in routes if has_key(config, route)), routes[0]))


def _yield_default(config: Config, key: Key, route: Route | None) -> Iterator[Triple]:
    result = NOT_STATED if route is None else look_up(config, route)
    if isinstance(result, StatedValue):
        if result.value is None and key.null_value is not ABSENT:
            yield key.field, key.null_value, _add_left_out(config, route or (), result.origin)
        elif result.value is not None:
            yield key.field, key.codec.read_or_none(result.value), _add_left_out(config, route or (), result.origin)
    elif result is NOT_STATED and key.default is not ABSENT and has_defaults(config):
        yield key.field, key.default, build_default_origin(config, route or key.names[0])


def _put(config: Config, key: Key, route: Route | None, value: Any) -> list[Change]:
    if route is None:
        raise CannotEdit(f"{config.default_note} has no {format_route(key.names[0])}")
    refuse_override(config, route)
    return [Set((*config.root, *route), key.codec.write(value))]


ACCESS: Final = Access(find_setting, _yield_default, _put)
"""Access to the settings of a run, in a command or a file."""


def put(config: Config, value: Any, *names: str) -> list[Change]:
    """Return the change that sets the key in use."""
    route = find_route(config, parse_routes(*names))
    if route is None:
        raise CannotEdit(f"{config.default_note} has no {names[0]}")
    refuse_override(config, route)
    return [Set((*config.root, *route), value)]
