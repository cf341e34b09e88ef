"""How a Python script that trains with TRL or the Trainer of transformers becomes the settings of its runs.

Each call of a trainer is a run. Its tree has the keys of a recipe (`trl sft --config`): those of the call that makes
the trainer's arguments (`SFTConfig(...)`) are keys of it; what `from_pretrained`, `LoraConfig` and
`BitsAndBytesConfig` are given is looked up under the name that TRL's `ModelConfig` has for it (`parts` of the record),
so that the lenses of recipes read scripts, too. Names with underscores around them (`_MODEL_`) are facts of the script
that no recipe states.

Sources: trl 0.9.6 to 1.16.0 `trainer/*_trainer.py`, `trainer/model_config.py`; transformers 4.57 `modeling_utils.py`,
`utils/quantization_config.py`; peft 0.17 `tuners/lora/config.py`, `utils/other.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfglint_train.documents.document import Entry, Node, Scalar, Span, Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.evaluator import Evaluator, SpentError
from cfglint_train.documents.python.tree import Part, Record, Value
from cfglint_train.documents.python.values import Class, hedged, settled
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.calls import HANDLERS, METHODS, constant
from cfglint_train.frameworks.trainer_script.classes import config_of, is_patched, trainer_of
from cfglint_train.frameworks.trainer_script.facts import class_of, default_of, fact, named, text_of, uncalled
from cfglint_train.frameworks.trainer_script.line import (
    FromLine,
    Launched,
    Line,
    lay_in,
    made_of_line,
    of_hf_trainer,
)
from cfglint_train.frameworks.trainer_script.names import (
    ADAPTER,
    FIELDS,
    HF_CONFIGS,
    HF_DEFAULTS,
    HF_TRAINERS,
    KEYWORD,
    LORA,
    LORA_DEFAULTS,
    MODEL,
    OLD_KEYWORDS,
    PARSED,
    PARSERS,
    QUANTIZATION,
    QUANTIZATION_DEFAULTS,
    TRAINER,
    TRAINERS,
)
from cfglint_train.frameworks.trainer_script.samples import Sampled, follow, put_samples


class ScriptSettings(Record):
    """The settings of one run; `refused` says why they cannot be determined."""

    __slots__ = ("arguments", "computes", "defaults", "entry", "launched", "model", "plain", "refused", "trainer")

    def __init__(self, span: Span, trainer: str) -> None:
        super().__init__(span, [])
        self.trainer = trainer
        self.refused = ""
        self.arguments = ""
        """The class of TRL or transformers that its arguments are made of; empty where there is none."""
        self.launched = False
        """All its settings come from its command line, in a way that is not read."""
        self.plain = False
        """It is a run of the Trainer of transformers itself."""
        self.entry = "trainer"
        """The class of transformers that its arguments are made of, as the vocabulary calls it."""
        self.computes = False
        """The script's own class of its trainer computes the loss."""
        self.model = ""
        """The class that loads its model by `from_pretrained`; empty where something else makes it."""
        self.defaults: dict[str, Any] = {}
        """What the classes that the script uses take where nothing is stated, if TRL's own take something else."""


def runs(
    document: PythonDocument,
    given: Mapping[str, Value] | None = None,
    line: Line | None = None,
    plain: bool = False,
) -> list[ScriptSettings]:
    """The runs of a script, in the order in which their trainers are made. `given`: values of the script's own options
    that count instead of their defaults; `line`: what a launch gives its parser of dataclasses. `plain`: those of the
    Trainer of transformers, else those of TRL's.
    """
    try:
        found = _walked(document, given or {}, line, plain, True)
        # The defaults of its own settings may end it with an error that no launch meets.
        return found if found or line is not None else _walked(document, given or {}, line, plain, False)
    except (SpentError, RecursionError):
        return []


def _walked(
    document: PythonDocument, given: Mapping[str, Value], line: Line | None, plain: bool, defaults: bool
) -> list[ScriptSettings]:
    """The runs that a walk over a script meets. `defaults`: what no launch gives has its default on the way."""
    evaluator = (Sampled if plain else Launched)(document, HANDLERS, METHODS, FIELDS, constant)
    evaluator.given, evaluator.defaults = given, defaults
    evaluator.line = line or evaluator.line
    evaluator.run()
    made = _trainers(evaluator, plain)
    if not made:
        trainers = HF_TRAINERS if plain else TRAINERS
        for function in uncalled(evaluator, lambda name: trainer_of(evaluator, name) or name in trainers):
            evaluator.enter(function)
        made = _trainers(evaluator, plain)
    if isinstance(evaluator, Sampled):
        follow(evaluator)
    return [] if evaluator.spent else [_settings(evaluator, record, trainer) for record, trainer in made]


def _trainers(evaluator: Evaluator, plain: bool) -> list[tuple[Record, str]]:
    """The calls that make trainers, each once, with the trainer's name; those of classes of the script, too."""
    found: dict[int, tuple[Record, str]] = {}
    for record in evaluator.made:
        trainer = trainer_of(evaluator, class_of(record))
        if trainer and (trainer in HF_TRAINERS) is plain:
            found[id(record.call)] = record, trainer
    return list(found.values())


def _computes_loss(evaluator: Evaluator, name: str, depth: int = 5) -> bool:
    """Whether a class of the script, or one that it is made from, replaces how the Trainer computes its loss."""
    owner = evaluator.module.names.get(name)
    if not isinstance(owner, Class) or not depth:
        return False
    bases = (evaluator.value(base, owner.scope) for base in owner.node.bases)
    return not evaluator.shape(owner.node).members.keys().isdisjoint(("compute_loss", "training_step")) or any(
        _computes_loss(evaluator, base.node.name, depth - 1) for base in bases if isinstance(base, Class)
    )


# --- one run ---------------------------------------------------------------------------------------------------------


def _settings(evaluator: Launched, made: Record, trainer: str) -> ScriptSettings:
    """The settings of the run of one trainer."""
    arguments = _arguments(made)
    source = arguments if isinstance(arguments, Record) else None
    found = ScriptSettings(made.span if source is None else source.span, TRAINERS.get(trainer, ""))
    found.plain = trainer in HF_TRAINERS
    found.how = made.how
    if source is not None:
        found.call, found.sealed, found.repeated = source.call, source.sealed, source.repeated
        found.level, found.how = source.level, (*made.how, *source.how)
        own = _own_fields(evaluator, source)
        if source.open == PARSED:
            own = {name: Part(None, name, evaluator.given_to(source, name)) for name in own}
        for entry in source.entries:
            inside = source.span.start <= entry.key.span.start < source.span.end
            if source.open == PARSED:
                if entry.name is not None and entry.name != "_CLASS_":
                    found.parts[entry.name] = Part(None, entry.name, entry)
            elif not found.trainer and not found.plain and entry.name is not None:
                if entry.name in of_hf_trainer():
                    found.parts[entry.name] = Part(source, entry.name, entry)
            elif entry.name in source.assigned and not inside:  # an attribute may have any name
                found.parts[entry.name] = Part(source, entry.name, entry)
            elif entry.name is not None and entry.name != "_CLASS_" and entry.name not in own:
                found.entries.append(entry)
        found.parts.update(own)
    found.refused = _refusal(evaluator, made, source, arguments)
    found.launched = found.refused == _BY_PARSER
    made_of = found.arguments = "" if source is None else config_of(evaluator, class_of(source))
    if made_of == "Seq2SeqTrainingArguments":
        found.entry = "seq2seq"
    if made_of in HF_CONFIGS and not found.plain:
        found.defaults.update(HF_DEFAULTS)  # SFTTrainer takes over all that they state
    _put_parts(found, made, _model(found, made))
    if is_patched(evaluator, "LoraConfig"):
        found.parts.pop(ADAPTER, None)
    if made.get("_RESUMES_") is not None:
        found.parts["_RESUMES_"] = Part(None, "", made.get("_RESUMES_"))
    if isinstance(evaluator, Sampled):
        put_samples(evaluator, found)
        found.computes = _computes_loss(evaluator, class_of(made))
    if source is not None and source.open == PARSED:
        lay_in(found, source, evaluator.line, bool(found.trainer))
    whole = settled(found)
    if whole is None:
        found.refused = "its settings are too deep to be followed"
        found.entries, found.parts = [], {}
    return found


_BY_PARSER: Final = "its settings come from its command line (TrlParser or HfArgumentParser)"


def _refusal(evaluator: Evaluator, made: Record, source: Record | None, arguments: Node | None) -> str:
    """Why the settings of a run cannot be determined; empty where they can."""
    place = f"line {evaluator.document.position(made.span.start).line}"
    if made.open or made.implicit:
        return f"the arguments of its trainer ({place}) cannot be determined without running it"
    if source is None:
        stated = arguments is not None and not (isinstance(arguments, Value) and arguments.value is None)
        if stated and evaluator.document.calls(*PARSERS):
            return _BY_PARSER
        return f"what its trainer ({place}) gets as `args` cannot be determined without running it" if stated else ""
    if source.open == PARSED:
        return "" if config_of(evaluator, class_of(source)) else _BY_PARSER
    by_position = "." not in class_of(source) and source.call is not None and source.call.args
    if source.open or source.implicit or by_position or not config_of(evaluator, class_of(source)):
        return f"what its trainer ({place}) gets as `args` cannot be determined without running it"
    return ""


def _arguments(made: Record) -> Node | None:
    """What a trainer gets as its arguments; RLOO's and PPO's were called `config` up to 0.21."""
    for name in ("args", "config"):
        entry = made.get(name)
        if entry is not None:
            return entry.value
    return None


def _own_fields(evaluator: Evaluator, source: Record) -> dict[str, Part]:
    """The fields that the script's own class of arguments declares or sets: no keys of TRL's, but they may replace
    defaults of such.
    """
    owner = evaluator.module.names.get(class_of(source))
    if not isinstance(owner, Class):
        return {}
    shape = evaluator.shape(owner.node)
    found = {}
    for name in dict.fromkeys((*shape.fields, *shape.own)):
        entry = source.get(name)
        if entry is None:
            value = default_of(evaluator, owner, name)
            value = value if isinstance(value, Value) else Value(source.span, Unknown(f"`{name}` of a class"))
            entry = named(name, value, source.span)
        found[name] = Part(source, name, entry)
    return found


# --- its model -------------------------------------------------------------------------------------------------------


def _model(found: ScriptSettings, made: Record) -> Record | None:
    """The call that loads the model; None where the trainer is given its name, or something else made it."""
    entry = made.get("model") or made.get("policy")
    if entry is None:
        return None
    node = entry.value
    if isinstance(node, Record):
        if node.get("_FACTORY_") is not None and text_of(node, "_FACTORY_") == "from_pretrained":
            found.parts["_LOADED_"] = Part(node, "", Entry(entry.key, Value(entry.key.span, "script")))
            found.model = class_of(node)
            return node
    elif isinstance(node, Value) and isinstance(node.value, (str, FromLine)):
        found.parts["model_name_or_path"] = Part(made, "model", entry)
        found.parts["_LOADED_"] = Part(None, "", Entry(entry.key, Value(entry.key.span, "trainer")))
        options = found.get("model_init_kwargs")
        return options.value if options is not None and isinstance(options.value, Record) else None
    return None


def _put_parts(found: ScriptSettings, made: Record, model: Record | None) -> None:
    """What other calls of the script state, by the names of `ModelConfig`."""
    module = class_of(made).rpartition(".")[0].split(".")
    package = "transformers" if found.plain else "trl"
    if (found.trainer or found.plain) and package in module and "experimental" not in module:
        # A class of the script may take more.
        found.parts[TRAINER] = fact(TRAINER, made)
        known = FIELDS.get(class_of(made).rpartition(".")[2], ())
        if not made.open and made.get("eval_dataset") is None and made.call and len(made.call.args) <= len(known):
            found.parts["_WITHOUT_EVAL_"] = fact("eval_dataset", Value(made.span, True))
        for name in OLD_KEYWORDS[package]:
            entry = made.get(name)
            if entry is not None:
                found.parts[name] = Part(None, KEYWORD + name, entry)
    if model is not None:
        _put(found, model, MODEL)
        if model.open:
            _hide(found, model, ("dtype", "attn_implementation", "load_in_4bit", "load_in_8bit", "_DEVICE_MAP_"))
        _put_quantization(found, made, model)
        for name in ("_KBIT_", "_CHECKPOINTING_", "_CAST_"):
            if model.get(name) is not None:
                found.parts[name] = Part(None, "", model.get(name))
    elif "model_name_or_path" not in found.parts:
        entry = made.get("model") or made.get("policy")
        key = entry.key if entry is not None else Scalar(made.span, "model", value="model")
        unknown = Value(key.span, Unknown("what the trainer gets as its model"))
        found.parts["model_name_or_path"] = Part(None, "model", Entry(key, unknown))
    _put_adapter(found, made, model)
    for name in (*MODEL.values(), *QUANTIZATION.values(), *LORA.values(), "use_peft"):
        found.parts.setdefault(name, Part(None, name))
    reference = made.get("ref_model")
    if reference is not None:
        found.parts["_REFERENCE_"] = Part(made, "ref_model", Entry(reference.key, _reference(reference.value)))


def _reference(node: Node) -> Value:
    """Whether a trainer is given a second model: none, full, or unknown."""
    how = getattr(node, "how", ())
    if not isinstance(node, Value):
        return Value(node.span, "full", how)
    if node.value is None or isinstance(node.value, Unknown):
        return Value(node.span, "none" if node.value is None else node.value, how)
    return Value(node.span, "full", how)


def _put(found: ScriptSettings, source: Record, names: Mapping[str, str]) -> None:
    """Take over what a call states. `names`: its names -> those of the tree; the first of several wins."""
    for own, name in names.items():
        entry = source.get(own)
        if entry is not None:
            found.parts[name] = Part(source, own, _hedged(entry, source))
        else:
            found.parts.setdefault(name, Part(source, own))


def _hedged(entry: Entry, source: Record) -> Entry:
    """An entry of a call that is made under a condition."""
    value: Any = entry.value
    if isinstance(value, Record) and [one.name for one in value.entries] == [""]:
        value = Value(value.span, "one device", value.how)  # device_map={"": rank}
    elif isinstance(value, Record):
        value = Value(value.span, Unknown(value.open or "an object"), value.how)
    for step in source.how:
        if step.kind == "depends":
            value = hedged(value, step)
    return Entry(entry.key, value)


def _hide(found: ScriptSettings, source: Record, names: Iterable[str]) -> None:
    """Mark what may be stated out of sight."""
    for name in names:
        part = found.parts.get(name)
        if part is None or part.entry is None:
            place = Span(source.span.start, source.span.start)
            found.parts[name] = Part(None, name, named(name, Value(place, Unknown(source.open))))


def _put_quantization(found: ScriptSettings, made: Record, model: Record) -> None:
    entry = model.get("quantization_config") or made.get("quantization_config")
    if entry is None or (isinstance(entry.value, Value) and entry.value.value is None):
        return
    config = entry.value
    maker = made_of_line(config)
    if maker:
        found.parts["load_in_4bit"] = Part(None, maker, entry)
        return
    if not isinstance(config, Record) or class_of(config).rpartition(".")[2] != "BitsAndBytesConfig":
        _hide(found, Record(entry.key.span, [], open_="its quantization"), ("load_in_4bit", "load_in_8bit"))
        return
    _put(found, config, QUANTIZATION)
    found.defaults.update(QUANTIZATION_DEFAULTS)


_PEFT: Final = "peft"


def _put_adapter(found: ScriptSettings, made: Record, model: Record | None) -> None:
    """`LoraConfig` as the trainer gets it, or as `get_peft_model` has put it on the model before."""
    entry = made.get("peft_config") or (None if model is None else model.get("_ADAPTER_"))
    if entry is None or (isinstance(entry.value, Value) and entry.value.value is None):
        return
    config = entry.value
    place = entry.key.span
    maker = made_of_line(config)
    if maker:
        found.parts["use_peft"] = Part(None, maker, entry)
        return
    name = class_of(config) if isinstance(config, Record) else ""
    module, _, last = name.rpartition(".")
    if name.startswith("peft.") and name.endswith(".LoraConfig"):
        found.parts[ADAPTER] = fact(ADAPTER, config, place)
    is_peft = last == "LoraConfig" and (not module or _PEFT in module.split("."))  # a copy of it has its folder's name
    if isinstance(config, Record) and is_peft and not config.open:
        how = tuple(step for step in config.how if step.kind == "depends")
        found.parts["use_peft"] = Part(None, "", Entry(entry.key, Value(place, True, how)))
        _put(found, config, LORA)
        found.defaults.update(LORA_DEFAULTS)
    else:
        found.parts["use_peft"] = Part(None, "", Entry(entry.key, Value(place, Unknown("its adapter"))))
