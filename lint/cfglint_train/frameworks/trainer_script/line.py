"""Settings that a script takes from its command line as a whole: `TrlParser((ScriptArguments, SFTConfig))`.

What no launch gives has the default of its class where the launch is known; else it may have any value. `FromLine`
stands for such a setting, so that `dtype=model_args.dtype` remains the setting `dtype`, wherever the script hands it on
to.

Sources: trl 0.9.6 to 1.16.0 `trainer/utils.py` (get_peft_config, get_quantization_config, get_kbit_device_map),
`scripts/utils.py` (TrlParser); transformers 4.57 `hf_argparser.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache

from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Entry, Sequence, Span, Unknown
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.walk import Walk
from cfglint_train.documents.python.syntax import callee
from cfglint_train.documents.python.tree import Part, Record, Step, Value
from cfglint_train.documents.python.values import Arguments, Class, External, Options, option
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.classes import trainer_of
from cfglint_train.frameworks.trainer_script.facts import class_of, default_of, fact, in_full, named
from cfglint_train.frameworks.trainer_script.names import (
    DTYPES,
    LORA,
    MODEL,
    PARSED,
    PARSERS,
    QUANTIZATION,
)
from cfglint_train.frameworks.trl.clues import ANY, OWN

_OF_MODEL: Final = frozenset((*MODEL.values(), *MODEL, *QUANTIZATION.values(), *LORA.values(), "use_peft"))
"""Settings that count only where the script hands them on."""
_SWITCHES: Final = ("use_peft", "load_in_4bit", "load_in_8bit")
"""Settings that scripts branch on, off by default."""
_MADE: Final = "from the command line"
"""The class of what TRL makes of the settings of `ModelConfig`."""


class Line(Frozen):
    """What a launch gives the parser of a script. `whole`: it gives nothing else."""

    values: Mapping[str, Any]
    whole: bool


class FromLine(Unknown):
    """A setting that the command line may give, and that the text does not show."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__("the command line gives it")
        self.name = name


class Launched(Walk):
    """A walk over a script whose own options have the values that a launch gives them."""

    given: Mapping[str, Value] = {}
    line = Line({}, False)
    defaults = True
    """What no launch gives of the script's own settings has its default."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.classes: dict[int, list[Any]] = {}
        """The classes that a parser fills, by the identity of its record."""

    def changes(self, function: External, place: int | str, given: Record) -> frozenset[str] | None:
        """As in the base class. A trainer that is made has taken its arguments."""
        found = super().changes(function, place, given)
        return frozenset() if found is None and self._is_taken(given) else found

    def _is_taken(self, given: Record) -> bool:
        trainers = (made for made in self.made if trainer_of(self, class_of(made)))
        return any(entry.value is given for made in trainers for entry in made.entries)

    def options(self, node: ast.expr) -> Options:
        """As in the base class, where nothing is given."""
        found = super().options(node)
        found.defaults.update(self.given)
        return found

    def implied(self, owner: Record, name: str, span: Span, key: Span) -> Any:
        """As in the base class, or what the command line gives."""
        if owner.open != PARSED:
            return super().implied(owner, name, span, key)
        value = self._of_line(owner, name, span)
        self.put(owner, named(name, value, key))
        return value

    def given_to(self, owner: Record, name: str) -> Entry:
        """A setting of what a parser yields: as the script sets it, else as the command line gives it."""
        return owner.get(name) or named(name, self._of_line(owner, name, owner.span), owner.span)

    def _of_line(self, owner: Record, name: str, span: Span) -> Value:
        if name in self.line.values:
            return Value(owner.span, self.line.values[name])
        own = self.module.names.get(class_of(owner))
        if isinstance(own, Class) and self.defaults:
            default = default_of(self, own, name)
            if isinstance(default, Value):
                return Value(span, default.value, (Step("option", option(name), default.span), *default.how))
        if self.line.whole and name in _SWITCHES:
            return Value(span, False)
        return Value(span, FromLine(name))


def parser(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Record:
    """`TrlParser((ScriptArguments, SFTConfig))`; the classes are no values of the tree."""
    name = callee(node)
    record = evaluator.record(node, name, arguments, ("dataclass_types",))
    classes = arguments.positional[0] if arguments.positional else arguments.get("dataclass_types")
    if isinstance(evaluator, Launched):
        evaluator.classes[id(record)] = classes.items if isinstance(classes, Sequence) else [classes]
    return record


def parsed(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """`TrlParser((ScriptArguments, SFTConfig)).parse_args_and_config()`: what the command line gives."""
    if not isinstance(owner, Record) or class_of(owner).rpartition(".")[2] not in PARSERS:
        return None
    place = evaluator.document.span(node)
    items: list[Any] = []
    for one in evaluator.classes.get(id(owner), (None,)) if isinstance(evaluator, Launched) else ():
        record = Record(place, [], open_=PARSED)
        record.level = len(evaluator.undecided)
        name = _named(evaluator, one)
        if name:
            record.entries.append(named("_CLASS_", Value(place, name)))
        items.append(record)
    if arguments.get("return_remaining_strings") is not None:
        items.append(evaluator.unknown(node))
    return Sequence(place, items, True)


def _named(evaluator: Evaluator, stated: Any) -> str:
    """The class of arguments that an item of a parser's list is; empty where it is not known."""
    if isinstance(stated, Class):
        return stated.node.name
    if isinstance(stated, External):
        return stated.name
    # An item of a list has become the text of its name.
    written = stated.value.why if isinstance(stated, Value) and isinstance(stated.value, Unknown) else ""
    known = evaluator.module.names.get(written)
    if isinstance(known, Class):
        return written
    return known.name if isinstance(known, External) else in_full(evaluator.document, ast.Name(written))


# --- what TRL makes of the settings of `ModelConfig` ------------------------------------------------------------------


def adapter(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`get_peft_config(model_args)`: None, or a `LoraConfig` of all that the command line gives."""
    return _made(evaluator, node, arguments, ("use_peft",))


def quantization(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`get_quantization_config(model_args)`."""
    return _made(evaluator, node, arguments, ("load_in_4bit", "load_in_8bit"))


def _made(
    evaluator: Evaluator, node: ast.Call, arguments: Arguments, switches: tuple[str, ...]
) -> Record | Value | None:
    owner = arguments.positional[0] if arguments.positional else None
    if not isinstance(owner, Record) or owner.open != PARSED or not isinstance(evaluator, Launched):
        return None
    place = evaluator.document.span(node)
    if any(evaluator.line.values.get(one) not in (None, False) for one in switches):
        return evaluator.record(node, _MADE, Arguments())
    return Value(place, None if evaluator.line.whole else FromLine(switches[0]))


def made_of_line(config: Any) -> str:
    """How a part is marked that one of these functions makes of what the command line gives; empty for others."""
    if isinstance(config, Record):
        return _MADE if class_of(config) == _MADE else ""
    return _MADE if isinstance(config, Value) and isinstance(config.value, FromLine) else ""


def device_map(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    """`get_kbit_device_map()`: each process has its own device."""
    return Value(evaluator.document.span(node), "one device")


def member(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`getattr(torch, model_args.dtype)`."""
    if len(arguments.positional) != 2:
        return None
    owner, name = arguments.positional
    if not isinstance(owner, External) or owner.name != "torch" or not isinstance(name, Value):
        return None
    if isinstance(name.value, FromLine):
        return name
    known = DTYPES.get(name.value) if isinstance(name.value, str) else None
    return None if known is None else Value(evaluator.document.span(node), known, name.how)


def mapping(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Record | None:
    """`dict(revision=model_args.model_revision)`."""
    if arguments.positional:
        return None
    record = Record(evaluator.document.span(node), [], open_="" if arguments.complete else "** brings further keys")
    record.sealed = "it is a dictionary"
    record.level = len(evaluator.undecided)
    expressions = {keyword.arg: keyword.value for keyword in node.keywords}
    for name, argument in arguments.keywords.items():
        value = evaluator.node(argument.value, expressions.get(name, node))
        evaluator.put(record, named(name, value, argument.key))
    return record


HANDLERS: Final = {
    "getattr": member,
    "dict": mapping,
    **dict.fromkeys(("trl.TrlParser", "trl.scripts.utils.TrlParser", "trl.commands.cli_utils.TrlParser"), parser),
    **dict.fromkeys(("transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser"), parser),
    **{
        f"trl.{module}{name}": handler
        for module in ("", "trainer.utils.")
        for name, handler in {
            "get_peft_config": adapter,
            "get_quantization_config": quantization,
            "get_kbit_device_map": device_map,
        }.items()
    },
}


# --- the settings of a run -------------------------------------------------------------------------------------------


RECIPE: Final = "_RECIPE_"
"""The file that a launch gives the script's parser, as a fact of a run."""


def lay_in(found: Record, source: Record, line: Line, whole: bool) -> None:
    """Put what the command line gives among the parts of a run, and mark what it may give out of sight.

    A part that passes on the setting of the same name is that setting. `whole`: the trainer's own settings are known,
    and not only the Trainer's.
    """
    handed = set()
    for name, part in list(found.parts.items()):
        value = part.entry.value if part.entry is not None else None
        if not isinstance(value, Value) or not isinstance(value.value, FromLine):
            continue
        if MODEL.get(value.value.name, value.value.name) == name:
            found.parts[name] = Part(part.record, part.name)
            handed.add(name)
    if "dtype" in handed:  # the class of the parser has a default of its own
        found.parts["_LOADED_"] = fact("dtype", Value(source.span, "line"))
    for switch, settings in (("use_peft", (*LORA.values(), "use_peft")), ("load_in_4bit", QUANTIZATION.values())):
        if switch in handed or found.parts[switch].name == _MADE:
            handed.update(settings)
    recipe = line.values.get("config")
    if isinstance(recipe, str):
        found.parts[RECIPE] = fact("config", Value(source.span, recipe))
    for name in (_names() if whole else of_hf_trainer()) - _OF_MODEL | handed:
        own = found.parts.get(name)
        if own is not None and own.entry is not None and name not in handed:
            continue
        spelled = next((one for one in (name, *_spellings(name)) if one in line.values), None)
        if spelled is None and line.whole:
            continue
        given = FromLine(name) if spelled is None else line.values[spelled]
        found.parts[name] = Part(None, name, named(name, Value(source.span, given)))


def _spellings(name: str) -> Iterable[str]:
    return (own for own, other in MODEL.items() if other == name)


_REDECLARED: Final = frozenset((
    "bf16", "gradient_checkpointing", "learning_rate", "logging_steps", "lr_scheduler_kwargs", "use_liger_kernel",
    "torch_empty_cache_steps",
))  # fmt: skip
"""Arguments of the Trainer that TRL's classes declare anew, for another default or help text."""


@cache
def of_hf_trainer() -> frozenset[str]:
    """The settings that the HF Trainer's own arguments have."""
    known, about = load("trl"), Context(entry=ANY)
    facts = ((name, known.fact((name,), known.newest, about)) for name in known.names((), known.newest, about))
    return frozenset(name for name, fact in facts if fact is not None and fact.package == "transformers") | _REDECLARED


@cache
def _names() -> frozenset[str]:
    """The settings that a command line may give, of all trainers; `use_liger` was SFT's from 0.12 to 0.18 alone."""
    known, about = load("trl"), Context(entry=ANY)
    releases = known.releases
    found = (known.names((), one, about) for one in (releases[0], releases[len(releases) // 2], known.newest))
    return OWN.union(("use_liger",), *found)
