"""Settings that a script's `TrlParser((ScriptArguments, SFTConfig))` reads from the command line.

If the launch is known, a setting that it does not pass has the default of its class. Otherwise the setting may have any
value. `CommandLineSetting` represents that value, so that cfglint still recognizes the setting `dtype` wherever the
script passes `dtype=model_args.dtype` on.

Sources: trl 0.9.6 to 1.16.0 `trainer/utils.py` (get_peft_config, get_quantization_config, get_kbit_device_map),
`scripts/utils.py` (TrlParser); transformers 4.57 `hf_argparser.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache

from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import MISSING, Entry, Sequence, Span, Unknown
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.instances import is_set_after_init
from cfglint_train.documents.python.static.mappings import merge_mapping
from cfglint_train.documents.python.static.walk import Walk
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.documents.python.tree import OtherCallSetting, Record, Step, Value
from cfglint_train.documents.python.values import Arguments, Class, External, ParsedOptions, format_option
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.class_sources import find_imported_class
from cfglint_train.frameworks.trainer_script.classes import find_base_trainer, find_imported_default
from cfglint_train.frameworks.trainer_script.facts import (
    build_entry,
    build_fact,
    count_targets,
    find_field_default,
    find_full_name,
    get_class,
)
from cfglint_train.frameworks.trainer_script.names import (
    DTYPES,
    LORA_ARGUMENTS,
    MODEL_ARGUMENTS,
    PARSED_REASON,
    PARSERS,
    QUANTIZATION_ARGUMENTS,
)
from cfglint_train.frameworks.trl.clues import ANY_TRAINER, OWN_KEYS

_MODEL_SETTINGS: Final = frozenset(
    (
        *MODEL_ARGUMENTS.values(),
        *MODEL_ARGUMENTS,
        *QUANTIZATION_ARGUMENTS.values(),
        *LORA_ARGUMENTS.values(),
        "use_peft",
    )
)
"""Settings that take effect only if the script passes them on."""
_SWITCHES: Final = ("use_peft", "load_in_4bit", "load_in_8bit")
"""Switches that scripts branch on; they are off by default."""
_MADE_FROM_LINE: Final = "from the command line"
"""Class name of the objects that TRL builds from the settings of `ModelConfig`."""


class CommandLine(Frozen):
    """The settings that a launch passes to a script's parser; if `is_complete`, it passes no other settings."""

    values: Mapping[str, Any]
    is_complete: bool


class CommandLineSetting(Unknown):
    """A setting with an unknown value, because the command line may pass it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        """Store the name of the setting."""
        super().__init__("the command line sets it")
        self.name = name


class LaunchedWalk(Walk):
    """A walk over a script with the option values that a launch passes."""

    option_values: Mapping[str, Value] = {}
    command_line = CommandLine({}, False)
    uses_defaults = True
    """True if unset settings of the script's own classes have their defaults."""

    def __init__(self, *arguments: Any) -> None:
        """Start a walk without parsers."""
        super().__init__(*arguments)
        self.classes: dict[int, list[Any]] = {}
        """The dataclasses that each parser fills, by the `id` of the parser's record."""

    def find_changes(self, function: External, argument: int | str, value: Record) -> frozenset[str] | None:
        """Return the changes as in the base class, but none if they are unknown and a trainer has received `value`."""
        changed = super().find_changes(function, argument, value)
        return frozenset() if changed is None and self._is_trainer_argument(value) else changed

    def _is_trainer_argument(self, value: Record) -> bool:
        trainers = (trainer for trainer in self.records if find_base_trainer(self, get_class(trainer)))
        return any(entry.value is value for trainer in trainers for entry in trainer.entries)

    def build_options(self, node: ast.expr) -> ParsedOptions:
        """Return the options as in the base class, with the values that the launch passes."""
        options = super().build_options(node)
        options.defaults.update(self.option_values if self.is_program else {})
        return options

    def add_implied_record(self, owner: Record, name: str, span: Span, key: Span) -> Any:
        """Add and return the record as in the base class, or the command line's value if a parser built `owner`."""
        if owner.open != PARSED_REASON:
            return super().add_implied_record(owner, name, span, key)
        value = self._read_setting(owner, name, span)
        self.put(owner, build_entry(name, value, key))
        return value

    def find_entry(self, owner: Record, name: str) -> Entry:
        """Return a setting of a parsed object: the script's assignment, or else the command line's value."""
        return owner.get(name) or build_entry(name, self._read_setting(owner, name, owner.span), owner.span)

    def _read_setting(self, owner: Record, name: str, span: Span) -> Value:
        script_class = self.module.names.get(get_class(owner))
        if isinstance(script_class, Class) and is_set_after_init(self, script_class, name):
            return Value(span, Unknown(f"`__post_init__` of `{script_class.node.name}` sets it"))
        if name in self.command_line.values:
            return Value(owner.span, self.command_line.values[name])
        if isinstance(script_class, Class) and self.uses_defaults:
            default = find_field_default(self, script_class, name)
            if isinstance(default, Value):
                return Value(span, default.value, (Step("option", format_option(name), default.span), *default.how))
        elif "." in get_class(owner) and self.uses_defaults:
            default = find_imported_default(find_imported_class(self.document, get_class(owner)), name)
            if default is not MISSING:
                return Value(span, default, (Step("option", format_option(name), span),))
        if self.command_line.is_complete and name in _SWITCHES:
            return Value(span, False)
        return Value(span, CommandLineSetting(name))


def make_parser(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Record:
    """Handle `TrlParser((ScriptArguments, SFTConfig))`; store the classes in the walk, not in the tree."""
    name = get_callee_name(node)
    record = evaluator.build_record(node, name, arguments, ("dataclass_types",))
    classes = arguments.positional[0] if arguments.positional else arguments.get("dataclass_types")
    if isinstance(evaluator, LaunchedWalk):
        evaluator.classes[id(record)] = classes.items if isinstance(classes, Sequence) else [classes]
    return record


def parse_arguments(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """Handle `TrlParser((ScriptArguments, SFTConfig)).parse_args_and_config()`: return a record per class.

    The records read their settings from the command line. Return None if `owner` is not a parser.
    """
    if not isinstance(owner, Record) or get_class(owner).rpartition(".")[2] not in PARSERS:
        return None
    place = evaluator.document.find_span(node)
    items: list[Any] = []
    classes = evaluator.classes.get(id(owner), [None]) if isinstance(evaluator, LaunchedWalk) else []
    count = count_targets(evaluator.document, node)
    count -= arguments.get("return_remaining_strings") is not None
    if count > len(classes) and all(_find_class_name(evaluator, item) for item in classes):
        classes = [None] * count  # the list of classes is not the one that the program uses
    for item in classes:
        record = Record(place, [], open_=PARSED_REASON)
        record.level = len(evaluator.open_conditions)
        name = _find_class_name(evaluator, item)
        if name:
            record.entries.append(build_entry("_CLASS_", Value(place, name)))
        items.append(record)
    if arguments.get("return_remaining_strings") is not None:
        items.append(evaluator.build_unknown(node))
    return Sequence(place, items, True)


def _find_class_name(evaluator: Evaluator, stated: Any) -> str:
    """Return the name of the class that an item of a parser's list refers to, or an empty string if unknown."""
    if isinstance(stated, Class):
        return stated.node.name
    if isinstance(stated, External):
        return stated.name
    # The evaluator keeps only the text of a name in a list.
    text = stated.value.reason if isinstance(stated, Value) and isinstance(stated.value, Unknown) else ""
    value = evaluator.module.names.get(text)
    if isinstance(value, Class):
        return text
    return value.name if isinstance(value, External) else find_full_name(evaluator.document, ast.Name(text))


# --- objects that TRL builds from the settings of `ModelConfig` -------------------------------------------------------


def make_adapter(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Handle `get_peft_config(model_args)`: a `LoraConfig` if the command line passes `use_peft`."""
    return _make_from_settings(evaluator, node, arguments, ("use_peft",))


def make_quantization(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Handle `get_quantization_config(model_args)`."""
    return _make_from_settings(evaluator, node, arguments, ("load_in_4bit", "load_in_8bit"))


def _make_from_settings(
    evaluator: Evaluator, node: ast.Call, arguments: Arguments, switches: tuple[str, ...]
) -> Record | Value | None:
    owner = arguments.positional[0] if arguments.positional else None
    if not isinstance(owner, Record) or owner.open != PARSED_REASON or not isinstance(evaluator, LaunchedWalk):
        return None
    place = evaluator.document.find_span(node)
    if any(evaluator.command_line.values.get(switch) not in (None, False) for switch in switches):
        return evaluator.build_record(node, _MADE_FROM_LINE, Arguments())
    return Value(place, None if evaluator.command_line.is_complete else CommandLineSetting(switches[0]))


def get_line_mark(config: Any) -> str:
    """Return the mark of a config that TRL builds from the command line, or an empty string for any other config."""
    if isinstance(config, Record):
        return _MADE_FROM_LINE if get_class(config) == _MADE_FROM_LINE else ""
    return _MADE_FROM_LINE if isinstance(config, Value) and isinstance(config.value, CommandLineSetting) else ""


def make_device_map(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    """Handle `get_kbit_device_map()`: each process has its own device."""
    return Value(evaluator.document.find_span(node), "one device")


def get_torch_member(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Handle `getattr(torch, model_args.dtype)`."""
    if len(arguments.positional) != 2:
        return None
    owner, name = arguments.positional
    if not isinstance(owner, External) or owner.name != "torch" or not isinstance(name, Value):
        return None
    if isinstance(name.value, CommandLineSetting):
        return name
    dtype = DTYPES.get(name.value) if isinstance(name.value, str) else None
    return None if dtype is None else Value(evaluator.document.find_span(node), dtype, name.how)


def make_mapping(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Record | None:
    """Handle `dict(revision=model_args.model_revision)` and `dict(settings, bf16=True)`."""
    record = Record(evaluator.document.find_span(node), [], open_="" if arguments.is_complete else "** adds keys")
    record.sealed = "it is a dictionary"
    record.level = len(evaluator.open_conditions)
    for mapping in arguments.positional:
        merge_mapping(evaluator, record, mapping, node)
    expressions = {keyword.arg: keyword.value for keyword in node.keywords}
    for name, argument in arguments.keywords.items():
        value = evaluator.build_node(argument.value, expressions.get(name, node))
        evaluator.put(record, build_entry(name, value, argument.key))
    return record


HANDLERS: Final = {
    "getattr": get_torch_member,
    "dict": make_mapping,
    **dict.fromkeys(("trl.TrlParser", "trl.scripts.utils.TrlParser", "trl.commands.cli_utils.TrlParser"), make_parser),
    **dict.fromkeys(("transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser"), make_parser),
    **{
        f"trl.{module}{name}": handler
        for module in ("", "trainer.utils.")
        for name, handler in {
            "get_peft_config": make_adapter,
            "get_quantization_config": make_quantization,
            "get_kbit_device_map": make_device_map,
        }.items()
    },
}


# --- the settings of a run -------------------------------------------------------------------------------------------


RECIPE: Final = "_RECIPE_"
"""Name of the run fact for the file that a launch passes to the script's parser."""


_SPELLINGS: Final = {
    name: tuple(spelling for spelling, other in MODEL_ARGUMENTS.items() if other == name)
    for name in MODEL_ARGUMENTS.values()
}
"""Options that set a model's setting, by its name."""


def apply_command_line(run: Record, source: Record, line: CommandLine, is_trl_trainer: bool) -> None:
    """Add the command line's settings to the parts of a run; settings that an unknown launch may pass are unknown.

    If the script passes a setting on under its own name (`dtype=model_args.dtype`), the part becomes that setting.
    `is_trl_trainer`: add the settings of TRL's trainers, not only those of the HF Trainer.
    """
    passed_names = set()
    for name, part in list(run.parts.items()):
        value = part.entry.value if part.entry is not None else None
        if not isinstance(value, Value) or not isinstance(value.value, CommandLineSetting):
            continue
        if MODEL_ARGUMENTS.get(value.value.name, value.value.name) == name:
            run.parts[name] = OtherCallSetting(part.record, part.name)
            passed_names.add(name)
    if "dtype" in passed_names:  # the parser's class has its own default
        run.parts["_LOADED_"] = build_fact("dtype", Value(source.span, "line"))
    for switch, settings in (
        ("use_peft", (*LORA_ARGUMENTS.values(), "use_peft")),
        ("load_in_4bit", QUANTIZATION_ARGUMENTS.values()),
    ):
        if switch in passed_names or run.parts[switch].name == _MADE_FROM_LINE:
            passed_names.update(settings)
    recipe = line.values.get("config")
    if isinstance(recipe, str):
        run.parts[RECIPE] = build_fact("config", Value(source.span, recipe))
    for name in list_settings(is_trl_trainer) | passed_names:
        present = run.parts.get(name)
        if present is not None and present.entry is not None and name not in passed_names:
            continue
        spelling = next((word for word in (name, *_SPELLINGS.get(name, ())) if word in line.values), None)
        if spelling is None and line.is_complete:
            continue
        setting = CommandLineSetting(name) if spelling is None else line.values[spelling]
        run.parts[name] = OtherCallSetting(None, name, build_entry(name, Value(source.span, setting)))


_REDECLARED: Final = frozenset((
    "bf16", "gradient_checkpointing", "learning_rate", "logging_steps", "lr_scheduler_kwargs", "use_liger_kernel",
    "torch_empty_cache_steps",
))  # fmt: skip
"""Trainer arguments that TRL's classes redeclare with another default or help text."""


@cache
def list_hf_trainer_settings() -> frozenset[str]:
    """Return the names of the HF Trainer's own arguments, including those that TRL redeclares."""
    vocabulary, context = load("trl"), Context(entry=ANY_TRAINER)
    facts = (
        (name, vocabulary.find_fact((name,), vocabulary.newest, context))
        for name in vocabulary.list_names((), vocabulary.newest, context)
    )
    return frozenset(name for name, fact in facts if fact is not None and fact.package == "transformers") | _REDECLARED


def list_settings(is_trl_trainer: bool) -> frozenset[str]:
    """Return the settings of the argument class of a trainer: TRL's trainers, or those of the HF Trainer."""
    return (_list_trl_settings() if is_trl_trainer else list_hf_trainer_settings()) - _MODEL_SETTINGS


@cache
def _list_trl_settings() -> frozenset[str]:
    """Return the settings that a command line may pass to any trainer.

    The list covers the oldest, the middle and the newest release, and `use_liger`, which only SFT of 0.12 to 0.18 had.
    """
    vocabulary, context = load("trl"), Context(entry=ANY_TRAINER)
    releases = vocabulary.releases
    names = (
        vocabulary.list_names((), release, context)
        for release in (releases[0], releases[len(releases) // 2], vocabulary.newest)
    )
    return OWN_KEYS.union(("use_liger",), *names)
