"""Read the settings of each run from a Python script that trains with TRL or the transformers `Trainer`.

Each trainer call is a run. Its tree has the keys of a recipe (`trl sft --config`), so that the lenses for recipes also
read scripts. The arguments of the config object (`SFTConfig(...)`) are its keys. The arguments of `from_pretrained`,
`LoraConfig` and `BitsAndBytesConfig` are `parts` of the record, under their names in TRL's `ModelConfig`. Names between
underscores (`_LOADED_`) are facts about the script that no recipe states.

Sources: trl 0.9.6 to 1.16.0 `trainer/*_trainer.py`, `trainer/model_config.py`; transformers 4.57 `modeling_utils.py`,
`utils/quantization_config.py`; peft 0.17 `tuners/lora/config.py`, `utils/other.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from cfglint_train.documents.document import Entry, Node, Scalar, Span, Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.evaluator import BudgetError, Evaluator
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.documents.python.tree import OtherCallSetting, Record, Step, Value
from cfglint_train.documents.python.values import Class, mark_conditional, prune_tree
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.calls import HANDLERS, METHODS, resolve_constant
from cfglint_train.frameworks.trainer_script.classes import (
    find_base_config,
    find_base_trainer,
    has_own_loss,
    is_patched,
)
from cfglint_train.frameworks.trainer_script.facts import (
    build_entry,
    build_fact,
    enter_uncalled,
    find_field_default,
    get_class,
    get_text,
)
from cfglint_train.frameworks.trainer_script.line import (
    CommandLine,
    CommandLineSetting,
    LaunchedWalk,
    apply_command_line,
    get_line_mark,
    list_hf_trainer_settings,
    list_settings,
)
from cfglint_train.frameworks.trainer_script.names import (
    ADAPTER,
    HF_CONFIGS,
    HF_DEFAULTS,
    HF_TRAINERS,
    KEYWORD_PREFIX,
    LORA_ARGUMENTS,
    LORA_DEFAULTS,
    MODEL_ARGUMENTS,
    OLD_KEYWORDS,
    PARSED_REASON,
    PARSERS,
    POSITIONAL_PARAMETERS,
    QUANTIZATION_ARGUMENTS,
    QUANTIZATION_DEFAULTS,
    TRAINER,
    TRAINERS,
)
from cfglint_train.frameworks.trainer_script.padding import list_padding_facts
from cfglint_train.frameworks.trainer_script.samples import SampleWalk, enter_uncalled_tokenizers, put_sample_facts
from cfglint_train.frameworks.trainer_script.trainer_calls import TrainerCall, resolve_trainer


class ScriptSettings(Record):
    """Settings of one run; `refusal` is empty, or the reason why they cannot be determined."""

    __slots__ = (
        "changed_trainer",
        "computes_loss",
        "config_class",
        "defaults",
        "entry",
        "gap",
        "gap_span",
        "is_hf_trainer",
        "is_unread_command_line",
        "launch",
        "model_class",
        "refusal",
        "trainer",
    )

    def __init__(self, span: Span, trainer: str) -> None:
        """Start a run without settings."""
        super().__init__(span, [])
        self.trainer = trainer
        self.refusal = ""
        self.gap = ""
        """Reason why only a part of the run can be checked, or empty."""
        self.gap_span = span
        self.config_class = ""
        """TRL or transformers class of its config object, or of that class's base; empty if there is none."""
        self.is_unread_command_line = False
        """True if all its settings come from its command line in a way that cfglint cannot read."""
        self.is_hf_trainer = False
        """True if the trainer is transformers' `Trainer` or `Seq2SeqTrainer`, not one of TRL's."""
        self.launch: tuple[tuple[str, ...], int] = (), 0
        """Words of the launch that names its settings file, and its number among the runs of that launch."""
        self.entry = "trainer"
        """Entry of the transformers vocabulary for its config class: `trainer` or `seq2seq`."""
        self.changed_trainer: TrainerCall | None = None
        """The script's own trainer class if it replaces checks or steps of TRL's trainer."""
        self.computes_loss = False
        """True if the script's own trainer class overrides the loss computation."""
        self.model_class = ""
        """Class of the model; empty if it cannot be determined."""
        self.defaults: dict[str, Any] = {}
        """Defaults of the classes that the script uses, if they differ from TRL's own."""


def read_runs(
    document: PythonDocument,
    option_values: Mapping[str, Value] | None = None,
    command_line: CommandLine | None = None,
    is_hf_trainer: bool = False,
    words: tuple[str, ...] = (),
) -> list[ScriptSettings]:
    """Return the runs of a script, in the order in which it creates their trainers.

    `option_values` replace the defaults of the script's own options. `command_line` holds the settings that its
    dataclass parser reads.
    `is_hf_trainer`: return the runs of transformers' `Trainer`, not those of TRL's trainers.
    `words`: the launch's words after the script's path.
    """
    try:
        settings = _walk_script(document, option_values or {}, command_line, is_hf_trainer, True, words)
        # With the script's own defaults, the walk may end in an error that no launch hits: retry without them.
        return (
            settings
            if settings or command_line is not None
            else _walk_script(document, option_values or {}, command_line, is_hf_trainer, False, words)
        )
    except (BudgetError, RecursionError):
        return []


def _walk_script(
    document: PythonDocument,
    option_values: Mapping[str, Value],
    command_line: CommandLine | None,
    is_hf_trainer: bool,
    uses_defaults: bool,
    words: tuple[str, ...],
) -> list[ScriptSettings]:
    """Return the runs that a walk over a script finds. `uses_defaults`: unset options have their defaults."""
    evaluator = (SampleWalk if is_hf_trainer else LaunchedWalk)(
        document, HANDLERS, METHODS, POSITIONAL_PARAMETERS, resolve_constant
    )
    evaluator.option_values, evaluator.uses_defaults = option_values, uses_defaults
    evaluator.launch_words = words
    evaluator.command_line = command_line or evaluator.command_line
    evaluator.run()
    trainers = _find_trainers(evaluator, is_hf_trainer)
    if not trainers:
        trainer_names = HF_TRAINERS if is_hf_trainer else TRAINERS
        enter_uncalled(evaluator, lambda name: find_base_trainer(evaluator, name) or name in trainer_names)
        trainers = _find_trainers(evaluator, is_hf_trainer)
    document.awaits_file = document.awaits_file or evaluator.awaits_file
    if isinstance(evaluator, SampleWalk):
        enter_uncalled_tokenizers(evaluator)
    return (
        [] if evaluator.is_exhausted else [_read_settings(evaluator, record, trainer) for record, trainer in trainers]
    )


def _find_trainers(evaluator: Evaluator, is_hf_trainer: bool) -> list[tuple[Record, str]]:
    """Return each call of a trainer, or of a subclass that the script defines, with the trainer's name."""
    trainers: dict[int, tuple[Record, str]] = {}
    for record in evaluator.records:
        trainer = find_base_trainer(evaluator, get_class(record))
        if trainer and (trainer in HF_TRAINERS) is is_hf_trainer:
            trainers[id(record.call)] = record, trainer
    return list(trainers.values())


# --- one run ---------------------------------------------------------------------------------------------------------


def _read_settings(evaluator: LaunchedWalk, trainer_call: Record, trainer: str) -> ScriptSettings:
    """Return the settings of one trainer's run."""
    arguments = _get_arguments(trainer_call)
    source = arguments if isinstance(arguments, Record) else None
    run = ScriptSettings(trainer_call.span if source is None else source.span, TRAINERS.get(trainer, ""))
    run.is_hf_trainer = trainer in HF_TRAINERS
    if trainer_call.call is not None and not run.is_hf_trainer:
        own_trainer = resolve_trainer(evaluator.document, trainer_call.call)
        run.changed_trainer = own_trainer if own_trainer is not None and own_trainer.is_changed else None
    run.how = trainer_call.how
    if source is not None:
        run.call, run.sealed, run.is_repeated = source.call, source.sealed, source.is_repeated
        run.level, run.how = source.level, (*trainer_call.how, *source.how)
        own_fields = _find_own_fields(evaluator, source)
        if source.open == PARSED_REASON:
            own_fields = {name: OtherCallSetting(None, name, evaluator.find_entry(source, name)) for name in own_fields}
        for entry in source.entries:
            inside = source.span.start <= entry.key.span.start < source.span.end
            if source.open == PARSED_REASON:
                if entry.name is not None and entry.name != "_CLASS_":
                    run.parts[entry.name] = OtherCallSetting(None, entry.name, entry)
            elif not run.trainer and not run.is_hf_trainer and entry.name is not None:
                if entry.name in list_hf_trainer_settings():
                    run.parts[entry.name] = OtherCallSetting(source, entry.name, entry)
            elif entry.name in source.assigned_keys and not inside:  # an attribute may have any name
                run.parts[entry.name] = OtherCallSetting(source, entry.name, entry)
            elif entry.name is not None and entry.name != "_CLASS_" and entry.name not in own_fields:
                run.entries.append(entry)
        run.parts.update(own_fields)
    run.refusal = _explain_refusal(evaluator, trainer_call, source, arguments)
    run.gap, run.gap_span = _explain_gap(evaluator, trainer_call, source)
    run.is_unread_command_line = run.refusal == _PARSER_REFUSAL
    config_class = run.config_class = "" if source is None else find_base_config(evaluator, get_class(source))
    if config_class == "Seq2SeqTrainingArguments":
        run.entry = "seq2seq"
    if config_class in HF_CONFIGS and not run.is_hf_trainer:
        run.defaults.update(HF_DEFAULTS)  # SFTTrainer copies all values of these classes
    _add_parts(run, trainer_call, _read_model(run, trainer_call))
    if TRAINER in run.parts:
        run.parts.update(list_padding_facts(evaluator.document, trainer_call.get("data_collator")))
    held_out = trainer_call.get("eval_dataset")
    if TRAINER in run.parts and held_out is not None and _is_never_evaluated(evaluator, run, trainer_call, held_out):
        shown = Value(held_out.value.span, True, tuple(getattr(held_out.value, "how", ())))
        run.parts["_HELD_OUT_"] = OtherCallSetting(None, "eval_dataset", Entry(held_out.key, shown))
    if is_patched(evaluator, "LoraConfig"):
        run.parts.pop(ADAPTER, None)
    if trainer_call.get("_RESUMES_") is not None:
        run.parts["_RESUMES_"] = OtherCallSetting(None, "", trainer_call.get("_RESUMES_"))
    if isinstance(evaluator, SampleWalk):
        put_sample_facts(evaluator, run)
        run.computes_loss = has_own_loss(evaluator, get_class(trainer_call))
    if source is not None and source.open == PARSED_REASON:
        apply_command_line(run, source, evaluator.command_line, bool(run.trainer))
    elif source is not None and source.open:
        run.open = source.open
        _mark_hidden(run, source, list_settings(bool(run.trainer)) - run.index.keys())
    _forget_excluded(evaluator, run, trainer_call.conditions)
    resolved = prune_tree(run)
    if resolved is None:
        run.refusal = "its settings are nested too deeply"
        run.entries, run.parts = [], {}
    return run


_EVALUATING: Final = compile_on_use(rb"\b(evaluate|predict|should_evaluate|evaluation_loop|get_eval_dataloader)\b")
"""Evidence that a program evaluates a model itself, or makes the Trainer do so."""


def _is_never_evaluated(evaluator: Evaluator, run: ScriptSettings, trainer_call: Record, held_out: Entry) -> bool:
    """Return whether a script trains with held-out samples, and evaluates at most as constant arguments say.

    A variable that is None by default holds the samples if an option names them.
    """
    document, value = evaluator.document, held_out.value
    if not document.find_calls("train") or _EVALUATING.search(document.source) is not None:
        return False
    if run.call is None or trainer_call.call is None or get_callee_name(run.call).startswith("parse"):
        return False  # a parser's settings come from its launch
    names = (None, "eval_strategy", "evaluation_strategy")
    is_fixed = all(isinstance(keyword.value, ast.Constant) for keyword in run.call.keywords if keyword.arg in names)
    is_choice = any(
        isinstance(keyword.value, ast.IfExp) for keyword in trainer_call.call.keywords if keyword.arg == "eval_dataset"
    )
    is_none = isinstance(value, Value) and value.value is None and not value.how
    return is_fixed and not is_none and not is_choice


def _forget_excluded(evaluator: Evaluator, run: ScriptSettings, conditions: tuple[Step, ...]) -> None:
    """Mark values as unknown if they depend on a condition that cannot hold where the trainer is created."""

    def forget(entry: Entry) -> Entry:
        steps = [step for step in getattr(entry.value, "how", ()) if step.kind == "depends"]
        excluded = next(
            (step for step in steps if any(_is_excluded(evaluator, step, held) for held in conditions)), None
        )
        return entry if excluded is None else Entry(entry.key, Value(entry.value.span, Unknown(excluded.text)))

    if not conditions:
        return
    for entry in list(run.entries):
        run.put(forget(entry))
    for name, part in run.parts.items():
        if part.entry is not None:
            run.parts[name] = OtherCallSetting(part.record, part.name, forget(part.entry))


def _is_excluded(evaluator: Evaluator, step: Step, held: Step) -> bool:
    """Return whether a condition (`mode == "a"`) cannot hold together with another (`mode in ("b", "c")`)."""
    (name, values), (held_name, held_values) = (_parse_condition(evaluator, item) for item in (step, held))
    return bool(name) and name == held_name and values.isdisjoint(held_values)


def _parse_condition(evaluator: Evaluator, step: Step) -> tuple[str, frozenset[Any]]:
    """Return the expression that a condition compares with constants, and the constants; empty for other conditions."""
    try:
        test = ast.parse(evaluator.document.get_text(step.span), mode="eval").body
        compared = test if isinstance(test, ast.Compare) and len(test.ops) == 1 else None
        if compared is None or not isinstance(compared.ops[0], (ast.Eq, ast.In)):
            return "", frozenset()
        constant = ast.literal_eval(compared.comparators[0])
        values = constant if isinstance(compared.ops[0], ast.In) else (constant,)
        return ast.unparse(compared.left), frozenset(values)
    except (SyntaxError, ValueError, TypeError):
        return "", frozenset()


_PARSER_REFUSAL: Final = "its settings come from its command line (TrlParser or HfArgumentParser)"


def _explain_refusal(evaluator: Evaluator, trainer_call: Record, source: Record | None, arguments: Node | None) -> str:
    """Return the reason why the settings of a run cannot be determined, or an empty string."""
    place = f"line {evaluator.document.locate(trainer_call.span.start).line}"
    if (trainer_call.open and arguments is None) or trainer_call.implicit:
        return f"the arguments of its trainer ({place}) cannot be determined without running it"
    if source is None:
        is_stated = arguments is not None and not (isinstance(arguments, Value) and arguments.value is None)
        if is_stated and evaluator.document.find_calls(*PARSERS):
            return _PARSER_REFUSAL
        return f"the `args` of its trainer ({place}) cannot be determined without running it" if is_stated else ""
    if source.open == PARSED_REASON:
        # Without a named class, it is the argument class of TRL's trainer, because that accepts no other class.
        trainer = "" if get_class(source) else TRAINERS.get(find_base_trainer(evaluator, get_class(trainer_call)), "")
        return "" if trainer or find_base_config(evaluator, get_class(source)) else _PARSER_REFUSAL
    has_positional = "." not in get_class(source) and source.call is not None and source.call.args
    has_settings = any(entry.name is not None and not entry.name.startswith("_") for entry in source.entries)
    is_hidden = source.implicit or bool(source.open and not has_settings)
    if is_hidden or has_positional or not find_base_config(evaluator, get_class(source)):
        return f"the `args` of its trainer ({place}) cannot be determined without running it"
    return ""


def _explain_gap(evaluator: Evaluator, trainer_call: Record, source: Record | None) -> tuple[str, Span]:
    """Return the reason why only a part of a run can be checked, or an empty string, and the place of the call."""
    if id(trainer_call) in evaluator.imagined_calls and trainer_call.call is not None:
        return f"no call that can be followed makes its `{get_callee_name(trainer_call.call)}`", trainer_call.span
    if source is not None and source.open and source.open != PARSED_REASON:
        place = f"line {evaluator.document.locate(trainer_call.span.start).line}"
        return f"the `args` of its trainer ({place}) cannot be determined without running it", source.span
    return "", trainer_call.span


def _get_arguments(trainer_call: Record) -> Node | None:
    """Return a trainer's `args`; up to TRL 0.21, RLOO and PPO called the parameter `config`."""
    for name in ("args", "config"):
        entry = trainer_call.get(name)
        if entry is not None:
            return entry.value
    return None


def _find_own_fields(evaluator: Evaluator, source: Record) -> dict[str, OtherCallSetting]:
    """Return the fields that the script's own config class declares or sets.

    They are not TRL keys, but they may override the defaults of TRL keys.
    """
    owner = evaluator.module.names.get(get_class(source))
    if not isinstance(owner, Class):
        return {}
    shape = evaluator.get_shape(owner.node)
    fields = {}
    for name in dict.fromkeys((*shape.fields, *shape.self_attributes)):
        entry = source.get(name)
        if entry is None:
            value = find_field_default(evaluator, owner, name)
            value = value if isinstance(value, Value) else Value(source.span, Unknown(f"`{name}` of a class"))
            entry = build_entry(name, value, source.span)
        fields[name] = OtherCallSetting(source, name, entry)
    return fields


# --- its model -------------------------------------------------------------------------------------------------------


_MODEL_SUFFIXES: Final = ("ForCausalLM", "LMHeadModel")
"""Suffixes of the classes that a script may also call to create a language model with new weights."""


def _read_model(run: ScriptSettings, trainer_call: Record) -> Record | None:
    """Return the record that holds the model's loading arguments, and add the facts about the model to the parts.

    The record is the `from_pretrained` call, or `model_init_kwargs` if the trainer receives a model's name. Return None
    if neither exists.
    """
    entry = trainer_call.get("model") or trainer_call.get("policy")
    if entry is None:
        return None
    node = entry.value
    if isinstance(node, Record):
        is_loaded = get_text(node, "_FACTORY_") == "from_pretrained"
        is_certain = node.call is not None or not any(step.kind == "depends" for step in node.how)
        if get_class(node).endswith(_MODEL_SUFFIXES) or (is_loaded and is_certain):
            run.model_class = get_class(node)
        if is_loaded:
            run.parts["_LOADED_"] = OtherCallSetting(node, "", Entry(entry.key, Value(entry.key.span, "script")))
            return node
    elif isinstance(node, Value) and isinstance(node.value, (str, CommandLineSetting)):
        run.parts["model_name_or_path"] = OtherCallSetting(trainer_call, "model", entry)
        run.parts["_LOADED_"] = OtherCallSetting(None, "", Entry(entry.key, Value(entry.key.span, "trainer")))
        options = run.get("model_init_kwargs")
        return options.value if options is not None and isinstance(options.value, Record) else None
    return None


def _add_parts(run: ScriptSettings, trainer_call: Record, model: Record | None) -> None:
    """Add the settings of the script's other calls to the parts, under their names in `ModelConfig`."""
    module = get_class(trainer_call).rpartition(".")[0].split(".")
    package = "transformers" if run.is_hf_trainer else "trl"
    if package in module and "experimental" not in module:
        # Only for the package's own trainer classes, because a subclass in the script may accept more arguments.
        run.parts[TRAINER] = build_fact(TRAINER, trainer_call)
        parameters = POSITIONAL_PARAMETERS.get(get_class(trainer_call).rpartition(".")[2], ())
        if _is_complete_call(trainer_call, parameters) and trainer_call.get("eval_dataset") is None:
            run.parts["_WITHOUT_EVAL_"] = build_fact("eval_dataset", Value(trainer_call.span, True))
        if _is_complete_call(trainer_call, parameters) and not any(
            trainer_call.get(name) is not None for name in _OPTIMIZER_ARGUMENTS
        ):
            run.parts["_BUILDS_OPTIMIZER_"] = build_fact("optim", Value(trainer_call.span, True))
        for name in () if run.is_hf_trainer else OLD_KEYWORDS:
            entry = trainer_call.get(name)
            if entry is not None:
                run.parts[name] = OtherCallSetting(None, KEYWORD_PREFIX + name, entry)
    if model is not None:
        _add_arguments(run, model, MODEL_ARGUMENTS)
        if model.open:
            _mark_hidden(run, model, ("dtype", "attn_implementation", "load_in_4bit", "load_in_8bit", "_DEVICE_MAP_"))
        _add_quantization(run, trainer_call, model)
        for name in ("_KBIT_", "_CHECKPOINTING_", "_CAST_"):
            if model.get(name) is not None:
                run.parts[name] = OtherCallSetting(None, "", model.get(name))
    elif "model_name_or_path" not in run.parts:
        entry = trainer_call.get("model") or trainer_call.get("policy")
        key = entry.key if entry is not None else Scalar(trainer_call.span, "model", value="model")
        unknown = Value(key.span, Unknown("the model passed to the trainer"))
        run.parts["model_name_or_path"] = OtherCallSetting(None, "model", Entry(key, unknown))
    _add_adapter(run, trainer_call, model)
    for name in (*MODEL_ARGUMENTS.values(), *QUANTIZATION_ARGUMENTS.values(), *LORA_ARGUMENTS.values(), "use_peft"):
        run.parts.setdefault(name, OtherCallSetting(None, name))
    reference = trainer_call.get("ref_model")
    if trainer_call.open:
        _mark_hidden(run, trainer_call, () if trainer_call.get("peft_config") is not None else ("use_peft",))
        _mark_hidden(run, trainer_call, () if reference is not None else ("_REFERENCE_",))
    if reference is not None:
        run.parts["_REFERENCE_"] = OtherCallSetting(
            trainer_call, "ref_model", Entry(reference.key, _find_reference(reference.value))
        )


_OPTIMIZER_ARGUMENTS: Final = ("optimizers", "optimizer", "optimizer_cls_and_kwargs", "create_optimizer")
"""Arguments and attributes by which a script gives a trainer an optimizer."""


def _is_complete_call(trainer_call: Record, parameters: tuple[str, ...]) -> bool:
    """Return whether a trainer's call shows all of its arguments by name."""
    call = trainer_call.call
    return not trainer_call.open and call is not None and len(call.args) <= len(parameters)


def _find_reference(node: Node) -> Value:
    """Return the kind of reference model that a trainer receives: none, full or unknown."""
    how = getattr(node, "how", ())
    if not isinstance(node, Value):
        return Value(node.span, "full", how)
    if node.value is None or isinstance(node.value, Unknown):
        return Value(node.span, "none" if node.value is None else node.value, how)
    return Value(node.span, "full", how)


def _add_arguments(run: ScriptSettings, source: Record, names: Mapping[str, str]) -> None:
    """Add the arguments of a call to the parts. `names`: argument -> name in the tree."""
    for argument, name in names.items():
        entry = source.get(argument)
        if entry is not None:
            run.parts[name] = OtherCallSetting(source, argument, _mark_conditional(entry, source))
        else:
            run.parts.setdefault(name, OtherCallSetting(source, argument))


def _mark_conditional(entry: Entry, source: Record) -> Entry:
    """Return a call's entry with its value reduced to a scalar, marked as conditional if the call is conditional."""
    value: Any = entry.value
    if isinstance(value, Record) and [item.name for item in value.entries] == [""]:
        value = Value(value.span, "one device", value.how)  # device_map={"": rank}
    elif isinstance(value, Record):
        value = Value(value.span, Unknown(value.open or "an object"), value.how)
    for step in source.how:
        if step.kind == "depends":
            value = mark_conditional(value, step)
    return Entry(entry.key, value)


def _mark_hidden(run: ScriptSettings, source: Record, names: Iterable[str]) -> None:
    """Mark settings as unknown if the script may set them in a way that cfglint cannot read."""
    place = Span(source.span.start, source.span.start)
    for name in names:
        part = run.parts.get(name)
        if part is None or part.entry is None:
            run.parts[name] = OtherCallSetting(None, name, build_entry(name, Value(place, Unknown(source.open))))


def _add_quantization(run: ScriptSettings, trainer_call: Record, model: Record) -> None:
    entry = model.get("quantization_config") or trainer_call.get("quantization_config")
    if entry is None or (isinstance(entry.value, Value) and entry.value.value is None):
        return
    config = entry.value
    mark = get_line_mark(config)
    if mark:
        run.parts["load_in_4bit"] = OtherCallSetting(None, mark, entry)
        return
    if not isinstance(config, Record) or get_class(config).rpartition(".")[2] != "BitsAndBytesConfig":
        _mark_hidden(run, Record(entry.key.span, [], open_="its quantization"), ("load_in_4bit", "load_in_8bit"))
        return
    _add_arguments(run, config, QUANTIZATION_ARGUMENTS)
    run.defaults.update(QUANTIZATION_DEFAULTS)


_PEFT_MODULE: Final = "peft"


def _add_adapter(run: ScriptSettings, trainer_call: Record, model: Record | None) -> None:
    """Add the `LoraConfig` of the trainer call, or of an earlier `get_peft_model` call, to the parts."""
    entry = trainer_call.get("peft_config") or (None if model is None else model.get("_ADAPTER_"))
    if entry is None or (isinstance(entry.value, Value) and entry.value.value is None):
        return
    config = entry.value
    place = entry.key.span
    mark = get_line_mark(config)
    if mark:
        run.parts["use_peft"] = OtherCallSetting(None, mark, entry)
        return
    name = get_class(config) if isinstance(config, Record) else ""
    module, _, last = name.rpartition(".")
    if name.startswith("peft.") and name.endswith(".LoraConfig"):
        run.parts[ADAPTER] = build_fact(ADAPTER, config, place)
    is_peft = last == "LoraConfig" and (
        not module or _PEFT_MODULE in module.split(".")
    )  # the module of a vendored copy contains its folder: `src.peft`
    if isinstance(config, Record) and is_peft and not config.open:
        how = tuple(step for step in config.how if step.kind == "depends")
        run.parts["use_peft"] = OtherCallSetting(None, "", Entry(entry.key, Value(place, True, how)))
        _add_arguments(run, config, LORA_ARGUMENTS)
        run.defaults.update(LORA_DEFAULTS)
    else:
        run.parts["use_peft"] = OtherCallSetting(None, "", Entry(entry.key, Value(place, Unknown("its adapter"))))
