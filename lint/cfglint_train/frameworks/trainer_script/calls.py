"""Handlers of calls that change a script's objects: adapters, casts, checkpointing, resumption, attributes."""

from __future__ import annotations

import ast

from cfglint_train.documents.document import MISSING, Node, Unknown
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.instances import build_mapping
from cfglint_train.documents.python.static.mappings import forget_keys
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.documents.python.values import Arguments, External, ParsedOptions, format_option
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.classes import find_base_trainer
from cfglint_train.frameworks.trainer_script.facts import build_entry, get_class
from cfglint_train.frameworks.trainer_script.line import HANDLERS as FROM_LINE
from cfglint_train.frameworks.trainer_script.line import parse_arguments
from cfglint_train.frameworks.trainer_script.names import DTYPES, ENUMERATIONS
from cfglint_train.frameworks.trainer_script.samples import handle_map


def resolve_constant(name: str) -> Any:
    """Return the value of a constant: a torch dtype, or a member of a transformers enumeration.

    Return Unknown for an attribute of any other class, such as `Config.batch_size`, because its value is not known.
    """
    owner, _, member = name.rpartition(".")
    if owner == "torch":
        return DTYPES.get(member, MISSING)
    return member.lower() if owner.rpartition(".")[2] in ENUMERATIONS else Unknown(name)


def _attach_adapter(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Handle `get_peft_model(model, config)`."""
    values = dict(zip(("model", "peft_config"), arguments.positional))
    values.update({name: argument.value for name, argument in arguments.keywords.items()})
    model, config = values.get("model"), values.get("peft_config")
    if not isinstance(model, Record) or not isinstance(config, Node):
        return None
    evaluator.set_key(model, "_ADAPTER_", config, evaluator.document.find_span(node.func), node)
    return model


def _prepare_for_kbit_training(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Handle `prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)`."""
    model = arguments.get("model") or (arguments.positional[0] if arguments.positional else None)
    if not isinstance(model, Record):
        return None
    place = evaluator.document.find_span(node)
    evaluator.set_key(model, "_KBIT_", Value(place, True), place, node)
    switch = arguments.get("use_gradient_checkpointing")
    if switch is None and len(arguments.positional) > 1:
        switch = arguments.positional[1]
    checkpoints = Value(place, True) if switch is None else switch
    if isinstance(checkpoints, Value):
        evaluator.set_key(model, "_CHECKPOINTING_", checkpoints, place, node)
    return model


def _enable_checkpointing(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """Handle `model.gradient_checkpointing_enable()`."""
    if isinstance(owner, Record):
        place = evaluator.document.find_span(node)
        evaluator.set_key(owner, "_CHECKPOINTING_", Value(place, True), place, node)
    return None


def _move_model(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """Handle `model.to("cuda")` and `model.half()`: return the same model, possibly cast to another dtype."""
    if not isinstance(owner, Record) or owner.get("_FACTORY_") is None or not isinstance(node.func, ast.Attribute):
        return None
    place = evaluator.document.find_span(node)
    values: list[Any] = [*arguments.positional, *(argument.value for argument in arguments.keywords.values())]
    formats = [value for value in values if isinstance(value, External) and value.name.startswith("torch.")]
    if formats or node.func.attr in ("half", "bfloat16", "float"):
        evaluator.set_key(owner, "_CAST_", Value(place, True), place, node)
    return owner


def _start_training(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """Handle `trainer.train(resume_from_checkpoint=True)`, and `model.train()`, which returns the same model."""
    if not isinstance(owner, Record) or not find_base_trainer(evaluator, get_class(owner)):
        return _move_model(evaluator, node, owner, arguments)
    place = evaluator.document.find_span(node.func)
    checkpoint = arguments.get("resume_from_checkpoint") or (arguments.positional[0] if arguments.positional else None)
    resumes = Value(place, False) if checkpoint is None else checkpoint
    present = owner.get("_RESUMES_")
    if present is not None and not (isinstance(present.value, Value) and isinstance(resumes, Value)
                                    and present.value.value == resumes.value):  # fmt: skip
        resumes = Value(place, Unknown("it is trained more than once"))
    evaluator.set_key(owner, "_RESUMES_", resumes, place, node)
    return None


def _make_field(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Handle `field(default=512)` in a dataclass of arguments."""
    return evaluator.build_record(node, "dataclasses.field", arguments)


def _set_attribute(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Handle `setattr(arguments, "max_length", 512)`."""
    if len(arguments.positional) != 3:
        return None
    owner, name, value = arguments.positional
    if isinstance(owner, External):
        evaluator.record_patch(
            owner, name.value if isinstance(name, Value) and isinstance(name.value, str) else "__init__"
        )
        return None
    if not isinstance(owner, Record):
        return None
    if isinstance(name, Value) and isinstance(name.value, str):
        evaluator.set_key(owner, name.value, value, evaluator.document.find_span(node.args[1]), node.args[2])
    else:
        owner.open = "some of its attributes have computed names"
    return None


def _get_attributes(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Handle `vars(arguments)`: return the attributes as a dictionary."""
    owner = arguments.positional[0] if arguments.positional else None
    if isinstance(owner, ParsedOptions):
        mapping = Record(evaluator.document.find_span(node), [])
        for name, default in owner.defaults.items():
            step = Step("option", owner.spellings.get(name) or format_option(name), default.span)
            evaluator.put(mapping, build_entry(name, Value(default.span, default.value, (step, *default.how))))
        return mapping
    if isinstance(owner, Record) and owner.owner is not None:
        return build_mapping(evaluator, owner, has_only_fields=False)
    return owner if isinstance(owner, Record) else None


def _get_fields(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Handle `dataclasses.asdict(config)`: return the fields as a dictionary."""
    owner = arguments.positional[0] if arguments.positional else None
    if not isinstance(owner, Record) or owner.owner is None:
        return None
    return build_mapping(evaluator, owner, has_only_fields=True)


def _apply_setter(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """Handle `arguments.set_training(batch_size=1)`: forget all keys, because it sets several under other names."""
    if not isinstance(owner, Record):
        return None
    forget_keys(evaluator, owner, node)
    return owner


HANDLERS: Final = {
    **FROM_LINE,
    "vars": _get_attributes,
    "dataclasses.asdict": _get_fields,
    "setattr": _set_attribute,
    "dataclasses.field": _make_field,
    "peft.get_peft_model": _attach_adapter,
    "peft.prepare_model_for_kbit_training": _prepare_for_kbit_training,
    "peft.prepare_model_for_int8_training": _prepare_for_kbit_training,
}
METHODS: Final = {
    "gradient_checkpointing_enable": _enable_checkpointing,
    "train": _start_training,
    "map": handle_map,
    # Methods of TrainingArguments (transformers 4.57.1, training_args.py).
    **dict.fromkeys(
        (
            "set_dataloader",
            "set_evaluate",
            "set_logging",
            "set_lr_scheduler",
            "set_optimizer",
            "set_push_to_hub",
            "set_save",
            "set_testing",
            "set_training",
        ),
        _apply_setter,
    ),
    **dict.fromkeys(("to", "cuda", "half", "bfloat16", "float"), _move_model),
    **dict.fromkeys(
        ("parse_args_and_config", "parse_args_into_dataclasses", "parse_json_file", "parse_yaml_file"), parse_arguments
    ),
}
