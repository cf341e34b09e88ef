"""verl: the composed Hydra tree of each trainer, and the fields of the dataclasses that its groups are built as.

The defaults are those of the YAML files. A key of a dataclass that the tree lacks has `x-absent`: on the command line,
Hydra accepts it only with `+`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from posixpath import dirname, join, normpath
from typing import Any, Final

from cfglint_schemas.readers.checks import Words, find_field_words
from cfglint_schemas.readers.hydra import ConfigFolder, Tree
from cfglint_schemas.readers.source import Class, Field, Source, UndecidedError, collect_fields
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey
from cfglint_schemas.readers.types import Fragment, convert_annotation, find_default
from cfglint_schemas.readers.verl_checks import Checks, Conditions, find_building_conditions
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen

_FOLDER: Final = "verl/trainer/config"
_EXPERIMENTS: Final = ("verl/experimental/fully_async_policy/config", "verl/experimental/one_step_off_policy/config")
_TRAINERS: Final = ("ppo_trainer", "ppo_megatron_trainer", "sft_trainer_engine", "sft_trainer")
_ENGINES: Final = "model_engine"
_TARGET: Final = "_target_"
_MAPPING: Final = r"\b((?:\w+_)?(?:config|cfg)(?:\.\w+)*)"
_READ: Final = compile_on_use(
    rf"""{_MAPPING}(?:\.get\(|\[)\s*["'](\w+)["']"""
    rf"""|["'](\w+)["']\s+in\s+(?:self\.)?{_MAPPING}"""
    rf"""|\bgetattr\(\s*(?:self\.)?{_MAPPING}\s*,\s*["'](\w+)["']"""
    r"""|\b((?:config|cfg)(?:\.\w+)*)\.(\w+)\b(?!\s*\()"""
)
"""Reads of a key that the tree may lack: its mapping, from the variable, and the key; for `in`, the reverse."""
_ALIAS: Final = compile_on_use(
    r"\b(\w+_(?:config|cfg))\s*=\s*(?:(?:copy\.)?deepcopy\(\s*)?(?:self\.)?(?:config|cfg)\.((?:\w+\.)*\w+)(?![\w.(\[])"
)
"""Assignments that give a mapping of the whole tree, or a copy of it, to a variable."""
_WHOLE_TREE: Final = compile_on_use(r"\b(?:config|cfg)\.(?:trainer|actor_rollout_ref)\.")
"""Text of modules whose `self.config` is the whole tree."""
_MAIN_PROGRAM: Final = "verl/trainer/main_ppo.py"
_MAIN_TREE: Final = {"config_path": "config", "config_name": _TRAINERS[0]}
_MAIN: Final = compile_on_use(r"@hydra\.main\(([^()]*)\)")
_MAIN_ARGUMENT: Final = compile_on_use(r"""\b(config_path|config_name)\s*=\s*["']([\w./-]+)["']""")
_SEARCH_PATH: Final = compile_on_use(r"(?m)^\s*-\s*[\"']?(file|pkg)://([\w./-]+)[\"']?\s*$")
"""Folders in which Hydra looks for further configurations; `file://` begins at the working folder, the copy's root."""
_OTHER_PROGRAMS: Final = ("main_generation.py", "main_generation_server.py", "main_eval.py")
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_SECTIONS: Final = {
    "verl/utils/dataset/": "data",
    "verl/trainer/ppo/reward.": "custom_reward_function",
    "verl/workers/actor/": "actor_rollout_ref.actor",
    "verl/workers/critic/": "critic",
    "verl/workers/rollout/": _ROLLOUT,
    "verl/workers/reward_manager/": "reward_model",
}
"""Modules whose variable `config` is one mapping of the tree."""
_SAMPLING: Final = (
    "presence_penalty", "frequency_penalty", "repetition_penalty", "min_p", "seed", "stop", "stop_token_ids",
    "bad_words", "ignore_eos", "min_tokens", "detokenize", "skip_special_tokens", "spaces_between_special_tokens",
    "include_stop_str_in_output", "logit_bias", "allowed_token_ids",
)  # fmt: skip
"""Keys of the rollout that go to vLLM because its `SamplingParams` has them (vLLM 00388f6 sampling_params.py)."""
_WORKER: Final = compile_on_use(r"(?m)^class (\w+Worker)\b")
_WORKER_SECTIONS: Final = {"CriticWorker": "critic", "RewardModelWorker": "reward_model"}
"""Classes of `verl/workers/*_workers.py` that receive one mapping as `config` (trainer/ppo/ray_trainer.py)."""
_MAIN_CODE: Final = ("verl/experimental/", "verl/trainer/", "verl/utils/dataset/", "verl/workers/")
"""Code whose variables have the names of mappings (`data_config`); elsewhere, `model_config` is a model's."""
_BUILT: Final = compile_on_use(r"omega_conf_to_dataclass\(\s*(?:\w+\.)*?(?:config)\.([\w.]+)")
"""Calls that build a group of the configuration as a dataclass (verl/utils/config.py)."""
_DEFINITION: Final = compile_on_use(r"(?m)^(?:def (\w+)|class )")
_PASSED_ON: Final = compile_on_use(
    r"\w*(_nsight_options|_kwargs|kw_args)|override_\w+|ray_init|runtime_env|env_vars|teacher_models|turbo_config"
)
"""Mappings whose names users choose or another library reads, so every name is accepted."""
_KINDS: Final = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


class _Entry(Frozen):
    """A trainer's composed tree."""

    name: str
    tree: Tree
    files: dict[tuple[str, ...], Fragment] = {}
    """Files that a word may select for a section: group and names, by the section's route."""
    is_own: bool = True
    """False for the tree of a recipe's or a fork's program."""


def read(package: str, source: Source) -> ReleaseTable:
    """Return the vocabulary of one release; raise UndecidedError if it has no configuration of the PPO trainer."""
    entries = list(_compose_entries(source))
    reader = _TreeReader(source, entries)
    for entry in entries:
        reader.read_entry(entry)
    return ReleaseTable(reader.definitions, {entry.name: (entry.name,) for entry in entries})


def _compose_entries(source: Source) -> Iterator[_Entry]:
    """Yield the trees of the trainers; the PPO trainer with FSDP comes first."""
    configs = ConfigFolder(source.tree, _FOLDER)
    yield from _compose(configs, _TRAINERS[0], _TRAINERS[0], {})
    names = {_TRAINERS[0]}
    for name in _TRAINERS[1:]:
        if configs.has(name):
            names.add(name)
            yield from _compose(configs, name, name, {})
    for engine in configs.list_options(_ENGINES):
        name = f"ppo_{engine}_trainer"
        if engine != "dp" and name not in names:
            yield from _try_to_compose(configs, name, _TRAINERS[0], {_ENGINES: engine})
    for folder in _EXPERIMENTS:
        own_configs = ConfigFolder(source.tree, folder, _FOLDER)
        for name in ConfigFolder(source.tree, folder).list_options(""):
            yield from _try_to_compose(own_configs, name, name, {})
    yield from _compose_programs(source)


def _compose_programs(source: Source) -> Iterator[_Entry]:
    """Yield the trees of the programs with `@hydra.main` that verl does not ship, under the names of their modules."""
    for path, text in source.tree.files.items():
        is_shipped = path.startswith("verl/experimental/") or path.endswith(_OTHER_PROGRAMS)
        for call in _MAIN.findall(text) if path.endswith(".py") and not is_shipped else ():
            stated = dict(_MAIN_ARGUMENT.findall(call))
            if stated.keys() != {"config_path", "config_name"}:
                continue
            if path == _MAIN_PROGRAM and stated == _MAIN_TREE:
                continue
            folder = normpath(join(dirname(path), stated["config_path"]))
            name = stated["config_name"].removesuffix(".yaml")
            places = _SEARCH_PATH.findall(source.tree.files.get(f"{folder}/{name}.yaml", ""))
            others = (place.replace(".", "/") if kind == "pkg" else place.rstrip("/") for kind, place in places)
            module = path.removesuffix(".py").replace("/", ".")
            for entry in _try_to_compose(ConfigFolder(source.tree, folder, *others), module, name, {}):
                if _ROLLOUT.partition(".")[0] in entry.tree:
                    yield entry._replace(is_own=False)


def _try_to_compose(configs: ConfigFolder, entry: str, name: str, choices: dict[str, str]) -> Iterator[_Entry]:
    """Yield a tree, unless a file that it needs is missing."""
    try:
        yield from _compose(configs, entry, name, choices)
    except UndecidedError:
        return


def _compose(configs: ConfigFolder, entry: str, name: str, choices: dict[str, str]) -> Iterator[_Entry]:
    """Yield a tree with the files of its groups."""
    tree = configs.compose(name, choices)
    yield _Entry(entry, tree, {route: {group: configs.list_options(group)} for route, group in configs.groups.items()})


class _TreeReader:
    """A reader that turns trees into definitions, one per mapping.

    Mappings of the first tree are named by their route. A later tree refers to the definitions of an earlier one where
    both are equal; the rest of its definitions have its name before the route.
    """

    def __init__(self, source: Source, entries: list[_Entry]) -> None:
        """Find the groups that the release builds as dataclasses, and the keys that its code reads."""
        self.definitions: dict[str, Definition] = {}
        self._source = source
        self._checks = Checks(source)
        self._own_trees = [entry.tree for entry in entries if entry.is_own]
        self._earlier: list[_Entry] = []
        self._built = frozenset(_find_built(source))
        self._read = [frozenset(_find_read(source, is_sft)) for is_sft in (False, True)]
        self._engines = ConfigFolder(source.tree, _FOLDER).list_options(_ENGINES)

    def read_entry(self, entry: _Entry) -> None:
        """Add the definitions of a tree."""
        keys = {name: self._read_key(entry, (name,), value, None, is_built=False) for name, value in entry.tree.items()}
        self._add_read_keys(entry, (), keys)
        if self._engines and _ENGINES in keys:
            keys[_ENGINES] = TableKey({"enum": self._engines, "default": entry.tree[_ENGINES]})
        self.definitions[entry.name] = Definition(keys, "dropped")
        self._earlier.append(entry)

    def _read_key(
        self, entry: _Entry, route: tuple[str, ...], value: Any, field: Field | None, is_built: bool
    ) -> TableKey:
        if isinstance(value, dict) and value:
            files = {"x-files": entry.files[route]} if route in entry.files else {}
            return TableKey({"$ref": f"#/$defs/{self._name_mapping(entry, route, value, is_built)}", **files})
        if route[-1] == _TARGET:
            return TableKey({"type": "string", "x-computed": True, "x-unchecked": True})
        schema = _describe_value(value, field)
        return TableKey(schema if entry.name.startswith("sft") else self._checks.add(route, schema))

    def _name_mapping(self, entry: _Entry, route: tuple[str, ...], value: Tree, is_built: bool) -> str:
        """Return the name of a mapping's definition, and read it if it is new."""
        for other in self._earlier:
            if _is_same(_get(other.tree, route), value) and (name := self._form_name(other, route)) in self.definitions:
                return name
        name = self._form_name(entry, route)
        is_built = is_built or any(_matches(route, place) for place in self._built)
        class_ = self._find_class(value.get(_TARGET)) if is_built else None
        fields = {} if class_ is None else collect_fields(class_)
        keys = {
            key: self._read_key(entry, (*route, key), inner, fields.get(key), is_built) for key, inner in value.items()
        }
        for key, field in fields.items():
            if key not in keys and not key.startswith("_"):
                keys[key] = TableKey({**_describe_field(field), "x-absent": True})
        conditions = find_building_conditions(route)
        checks = find_field_words(class_) if class_ is not None and conditions is not None else {}
        for key, (words, others) in checks.items():
            if key in keys:
                unset = {f"={'.'.join((*route, other))}": "absent" for other in others}
                keys[key] = TableKey(_add_words(keys[key].schema, words, {**(conditions or {}), **unset}))
        if not fields:
            self._add_read_keys(entry, route, keys)
        is_passed_on = any(map(_PASSED_ON.fullmatch, route))
        unknown = "error" if class_ is not None else "kept" if is_passed_on else "dropped"
        self.definitions[name] = Definition(keys, unknown)
        return name

    def _add_read_keys(self, entry: _Entry, route: tuple[str, ...], keys: dict[str, TableKey]) -> None:
        """Add the keys that the code looks up in a mapping, and that no tree has as a group of another engine."""
        for key in sorted(key for place, key in self._read[entry.name.startswith("sft")] if _matches(route, place)):
            if not any(isinstance(_get(tree, (*route, key)), dict) for tree in self._own_trees):
                keys.setdefault(key, TableKey({"x-absent": True, "x-unchecked": True}))

    def _form_name(self, entry: _Entry, route: tuple[str, ...]) -> str:
        is_first = not self._earlier or entry is self._earlier[0]
        return ".".join(route) if is_first else f"{entry.name}:{'.'.join(route)}"

    def _find_class(self, target: object) -> Class | None:
        """Return the class of a `_target_`, or None if the source does not have it."""
        module, _, name = str(target).rpartition(".")
        try:
            symbol = self._source.resolve_imported(module, name)
        except UndecidedError:
            return None
        return symbol if isinstance(symbol, Class) else None


def _find_built(source: Source) -> Iterator[str]:
    """Yield the places that calls of `omega_conf_to_dataclass` build, as the last parts of routes.

    A call in a function that nothing calls builds nothing. While a release has both kinds of workers, those of FSDP are
    the default ones (trainer.use_legacy_worker_impl).
    """
    files = source.tree.files
    skipped = "/engine_workers.py" if source.tree.has_file("verl/workers/fsdp_workers.py") else "/fsdp_workers.py"
    for path, text in files.items():
        if path.endswith(".py") and not path.endswith(skipped) and "omega_conf_to_dataclass(" in text:
            for match in _BUILT.finditer(text):
                function = _find_function(text, match.start())
                uses = rf"(?<!def )\b{function}(?:\.remote)?\("
                if not function or any(re.search(uses, other) for other in files.values()):
                    yield match[1]


def _find_function(text: str, offset: int) -> str:
    """Return the function of a module around an offset; an empty string for a method or none."""
    definitions = list(_DEFINITION.finditer(text, 0, offset))
    return definitions[-1][1] or "" if definitions else ""


def _find_read(source: Source, is_sft: bool) -> Iterator[tuple[str, str]]:
    """Yield the mappings, as the last parts of routes, and the keys that the code looks up in them.

    The code of supervised trainers is separate. Generation and evaluation have trees of their own.
    """
    for path, text in source.tree.files.items():
        if not path.endswith(".py") or ("sft" in path) is not is_sft or path.endswith(_OTHER_PROGRAMS):
            continue
        section = next((name for prefix, name in _SECTIONS.items() if path.startswith(prefix)), "")
        aliases: dict[str, list[str]] = {}
        for name, place in _ALIAS.findall(text) if path.startswith(_MAIN_CODE) else ():
            aliases.setdefault(name, []).append(place)
        workers = list(_WORKER.finditer(text)) if path.endswith("_workers.py") else []
        if section == _ROLLOUT and "hasattr(SamplingParams()" in text:
            yield from ((section, name) for name in _SAMPLING)
        is_whole = not section and path.startswith("verl/trainer/") and _WHOLE_TREE.search(text) is not None
        for match in _READ.finditer(text):
            mapping, key = next(pair for pair in _list_pairs(match) if pair[1])
            while workers and workers[0].start() < match.start():
                section = _WORKER_SECTIONS.get(workers.pop(0)[1], "")
            if is_whole and mapping == "config" and match[8] is None and text.startswith("self.", match.start() - 5):
                yield "", key
            variable, _, rest = mapping.partition(".")
            for place in _list_places(mapping, section, path.startswith(_MAIN_CODE)):
                yield place, key
            for place in aliases.get(variable, ()):
                yield f"{place}.{rest}".rstrip("."), key
            if section and re.match(r"(config|cfg)\.", mapping):
                yield section, mapping.split(".")[1]


def _list_pairs(match: re.Match[str]) -> tuple[tuple[str, str], ...]:
    """Return the mapping and the key of each alternative of `_READ`, of which one matches."""
    return (match[1], match[2]), (match[4], match[3]), (match[5], match[6]), (match[7], match[8])


def _list_places(mapping: str, section: str, is_main: bool) -> Iterator[str]:
    """Yield the places that a mapping may be: `data` or `data_config` for the variable `data_config` of the main code.

    A variable `config` is the whole tree, or the module's section.
    """
    variable, _, rest = mapping.partition(".")
    owner = re.sub("_?(config|cfg)$", "", variable)
    if owner in ("", "reward_fn"):
        yield from filter(None, (rest or section,))
    elif is_main:
        yield from (".".join(filter(None, (name, rest))) for name in (owner, variable))


def _matches(route: tuple[str, ...], place: str) -> bool:
    parts = tuple(place.split(".")) if place else ()
    return route[-len(parts) :] == parts if parts else not route


def _get(tree: Tree, route: tuple[str, ...]) -> Any:
    value: Any = tree
    for part in route:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _is_same(left: Any, right: Any) -> bool:
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def _describe_value(value: Any, field: Field | None) -> Fragment:
    """Return the schema of a value of the tree; nothing checks its type."""
    if isinstance(value, dict):
        return {"type": "object", "default": {}}
    schema: Fragment = {} if field is None else _convert_type(field)
    if isinstance(value, str) and value == "???":
        return {**schema, "x-required": True, "x-unchecked": True}
    if isinstance(value, str) and "${" in value:
        return {**schema, "x-computed": True, "x-interpolation": value, "x-unchecked": True}
    if not schema and value is not None:
        schema = {"type": _KINDS[type(value)]}
    return {**schema, "default": value, "x-unchecked": True}


def _add_words(schema: Fragment, words: Words, conditions: Conditions) -> Fragment:
    """Return the schema of a field whose dataclass refuses all but some words."""
    rest = {word: value for word, value in schema.items() if word not in ("type", "x-registry", "x-checked-if")}
    return {**rest, "enum": words, **({"x-checked-if": dict(conditions)} if conditions else {})}


def _describe_field(field: Field) -> Fragment:
    schema = _convert_type(field)
    return {**schema, **find_default(field).build_keywords(schema), "x-unchecked": True}


def _convert_type(field: Field) -> Fragment:
    """Return the schema of a field's annotation; a class of verl is any mapping."""
    schema = convert_annotation(field.owner.module, field.annotation, lambda _: None)
    return {} if "x-external" in json.dumps(schema) else schema
