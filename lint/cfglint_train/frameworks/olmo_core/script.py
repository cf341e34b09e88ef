"""Evaluator of OLMo-core training scripts, which builds the tree of settings that the run would have.

The tree has the shape of the configuration that OLMo-core saves beside a checkpoint (`config.json`): `model`,
`train_module`, `trainer`, `data_loader`, `dataset`, `launch`. The same lenses read both, and a route is spelled like
the override of the launch (`--train_module.rank_microbatch_size=8192`).

Sources: ai2-olmo-core 3.0.0 `internal/experiment.py`, `internal/cookbook.py`, `internal/common.py`, `script_utils.py`,
`train/config.py`, `data/tokenizer.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cfglint_train.documents.document import Entry, Node, Span, Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.walk import Walk
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.documents.python.values import (
    IMPLIED,
    Arguments,
    AtLeastTwo,
    External,
    Function,
    ParsedOptions,
    Partial,
    prune_tree,
)
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script import facts
from cfglint_train.frameworks.trainer_script.facts import build_entry, find_uncalled

TRAIN_MODULES: Final = (
    "TransformerTrainModuleConfig",
    "TransformerPipelineTrainModuleConfig",
    "OLMoDDPTrainModuleConfig",
)

# Parameters of the library's classes that scripts may pass by position.
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(TRAIN_MODULES, ("rank_microbatch_size", "max_sequence_length", "optim")),
    "TrainerConfig": ("save_folder",),
    "CheckpointerCallback": ("save_interval", "ephemeral_save_interval", "pre_train_checkpoint", "save_async"),
    "TransformerDataParallelConfig": ("name", "param_dtype", "reduce_dtype", "num_replicas", "shard_degree"),
    "TransformerActivationCheckpointingConfig": ("mode", "block_interval", "modules", "activation_memory_budget"),
    "NumpyDataLoaderConfig": ("global_batch_size", "seed"),
    "TransformerTensorParallelConfig": ("degree",),
    "TransformerExpertParallelConfig": ("degree",),
    "TransformerPipelineParallelConfig": ("degree",),
}

# data/tokenizer.py: vocabulary sizes of the predefined tokenizers.
VOCABULARIES: Final[Mapping[str, int]] = {
    "dolma2": 100278,
    "dolma2_sigdig": 100278,
    "gpt_neox_olmo_dolma_v1_5": 50280,
    "gpt2": 50257,
}
_PADDING: Final = 128

# script_utils.get_cli_parser: the options of the official scripts.
_SCRIPT_OPTIONS: Final[Mapping[str, Any]] = {
    "name": None,
    "sequence_length": None,
    "data_root": "https://olmo-data.org",
    "save_folder": Unknown("--save-folder"),
    "work_dir": Unknown("--work-dir"),
    "dry_run": False,
    "train_single": False,
}


def get_class_name(node: Node | None) -> str:
    """Return the class that a section was built from, without its module, or "" if it is unknown."""
    return facts.get_class(node).rpartition(".")[2] if isinstance(node, Record) else ""


def evaluate_experiment(document: PythonDocument) -> Record | None:
    """Return the settings that a script builds for its run, or None if they cannot be determined."""
    evaluator = Walk(document, _HANDLERS, _METHODS, FIELDS)
    evaluator.run()
    settings = _find_experiment(evaluator)
    if settings is None:
        for partial in list(evaluator.module.names.values()):
            if isinstance(partial, Partial) and partial.target == External(_EXPERIMENT + "build_config"):
                call = document.find_calls("partial", "build_config")[0]
                evaluator.try_call(partial, Arguments(), call)
        settings = _find_experiment(evaluator)
    if settings is None:
        for function in find_uncalled(evaluator, {*TRAIN_MODULES, "TrainerConfig"}.__contains__):
            evaluator.enter_function(function)
        settings = _find_experiment(evaluator) or _gather_sections(evaluator)
    if settings is None or evaluator.is_exhausted:
        return None
    train_module = settings.get("train_module")
    if train_module is not None:
        settings.span = train_module.value.span
    return prune_tree(settings)


def _find_experiment(evaluator: Evaluator) -> Record | None:
    """Return the last experiment that the script assembled."""
    for record in reversed(evaluator.records):
        keys = record.index.keys()
        if "trainer" in keys and ("train_module" in keys or "model" in keys):
            return record
    return None


def _gather_sections(evaluator: Evaluator) -> Record | None:
    """Join the sections that a script builds separately; return None without a train module or trainer."""
    section_by_class = {
        **dict.fromkeys(TRAIN_MODULES, "train_module"),
        "TrainerConfig": "trainer",
        "TransformerConfig": "model",
        "NumpyDataLoaderConfig": "data_loader",
    }
    sections: dict[str, Record] = {}
    for record in evaluator.records:
        section = section_by_class.get(get_class_name(record))
        if section is not None:
            sections[section] = record
    if "train_module" not in sections and "trainer" not in sections:
        return None
    first = next(iter(sections.values()))
    root = Record(first.span, [])
    for section, record in sections.items():
        place = Span(record.span.start, record.span.start)
        root.put(build_entry(section, record, place))
    return root


def _handle_main(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Evaluate `internal.experiment.main(config_builder=...)`; up to 2.2, it accepted the section builders directly."""
    if any(name.endswith("_config_builder") for name in arguments.keywords):
        return _handle_build_config(evaluator, node, arguments)
    builder = arguments.get("config_builder") or (arguments.positional[0] if arguments.positional else None)
    if not isinstance(builder, (Partial, Function, External)):
        return None
    with _assume_no_group(evaluator):
        return evaluator.apply_call(builder, Arguments((evaluator.build_unknown(node.func, "the command line"),)), node)


def _handle_script_main(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Evaluate `script_utils.main(build_config)` with its own options and those that the script adds."""
    builder = arguments.get("config_builder") or (arguments.positional[0] if arguments.positional else None)
    if not isinstance(builder, (Partial, Function)):
        return None
    place = evaluator.document.find_span(node)
    options = ParsedOptions({name: Value(place, value) for name, value in _SCRIPT_OPTIONS.items()}, place)
    options.defaults.update(evaluator.build_options(node).defaults)
    rest = evaluator.build_unknown(node.func, "the command line")
    with _assume_no_group(evaluator):
        return evaluator.apply_call(builder, Arguments((options, rest)), node)


_GROUP_EXISTS: Final = "a process group exists"
_NO_GROUP: Final = "no process group exists yet"


@contextmanager
def _assume_no_group(evaluator: Evaluator) -> Iterator[None]:
    """Assume no process group: the library's `main` functions create a group after they build the configuration."""
    evaluator.library_facts.add(_NO_GROUP)
    yield
    evaluator.library_facts.discard(_NO_GROUP)


def _handle_prepare(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Record that `prepare_training_environment()` ran: from here on the world size is that of the launch."""
    if not evaluator.open_conditions:
        evaluator.library_facts.add(_GROUP_EXISTS)


def _handle_world_size(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Evaluate `get_world_size()`: 1 before there is a process group, the ranks of the launch afterwards.

    The number of ranks is unknown here and assumed to be at least two, because scripts that distinguish one rank from
    several are written for several.
    """
    place = evaluator.document.find_span(node)
    if _GROUP_EXISTS in evaluator.library_facts:
        return Value(place, AtLeastTwo("the ranks of the launch"))
    return _make_library_value(place, 1, "get_world_size") if _NO_GROUP in evaluator.library_facts else None


# Arguments that every builder receives, with their accepted spellings.
_COMMON_ARGUMENTS: Final = {
    "tokenizer": ("tokenizer",),
    "global_batch_size": ("global_batch_size",),
    "max_sequence_length": ("max_sequence_length", "sequence_length"),
}


def _handle_build_config(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Evaluate `internal.experiment.build_config`: call the builders and join their results."""
    place = evaluator.document.find_span(node.func)
    common = Record(place, [], open_=IMPLIED)
    for name, spellings in _COMMON_ARGUMENTS.items():
        argument = next((arguments.keywords[word] for word in spellings if word in arguments.keywords), None)
        if argument is not None and isinstance(argument.value, Node):
            common.put(build_entry(name, argument.value, argument.key))
    if common.get("tokenizer") is None:
        _put(common, "tokenizer", _make_tokenizer(place, "dolma2"), place)
    if common.get("max_sequence_length") is None:
        _put(common, "max_sequence_length", _make_library_value(place, 4096, "build_config"), place)
    length = common.index["max_sequence_length"]
    dataset = Record(place, [_rename_entry(length, name) for name in ("sequence_length", "effective_sequence_length")])
    dataset.open = IMPLIED
    _put(common, "dataset", dataset, place)
    root = Record(evaluator.document.find_span(node), [])
    for section in ("model", "optim", "trainer", "train_module"):
        builder = arguments.keywords.get(f"{section}_config_builder")
        if builder is not None and isinstance(builder.value, (Function, Partial)):
            built = evaluator.apply_call(builder.value, Arguments((common,)), node)
            if isinstance(built, Node):
                root.put(build_entry(section, built, builder.key))
        elif builder is not None:
            root.put(build_entry(section, evaluator.build_opaque(node), builder.key))
    _put_data_sections(evaluator, node, arguments, common, root)
    nodes = arguments.keywords.get("num_nodes")
    if nodes is not None and isinstance(nodes.value, Value):
        launch = Record(nodes.key, [], open_=IMPLIED)
        launch.put(build_entry("num_nodes", nodes.value, nodes.key))
        _put(root, "launch", launch, nodes.key)
    finalize = arguments.get("finalize_config")
    if isinstance(finalize, Function):
        evaluator.apply_call(finalize, Arguments((root,)), node)
    evaluator.records.append(root)
    return root


def _put_data_sections(
    evaluator: Evaluator, node: ast.Call, arguments: Arguments, common: Record, root: Record
) -> None:
    """Add the data sections that the script's own builder returns, or those of the library's default builder."""
    builder = arguments.keywords.get("data_config_builder")
    if builder is None:
        for section, pairs in (
            ("data_loader", (("global_batch_size", "global_batch_size"),)),
            ("dataset", (("sequence_length", "max_sequence_length"),)),
        ):
            default = Record(root.span, [])
            default.sealed = "the library creates it"
            for name, source in pairs:
                entry = common.get(source)
                if entry is not None:
                    default.put(Entry(entry.key, entry.value) if name == source else _rename_entry(entry, name))
            if section == "data_loader":
                _put(
                    default,
                    "num_workers",
                    _make_library_value(root.span, 4, "build_default_data_components"),
                    root.span,
                )
            _put(root, section, default, root.span)
        return
    built = None
    if isinstance(builder.value, (Function, Partial)):
        built = evaluator.apply_call(builder.value, Arguments((common,), is_complete=False), node)
    if isinstance(built, Record):
        for section in ("dataset", "data_loader"):
            entry = built.get(section)
            if entry is not None:
                root.put(entry)


def _rename_entry(entry: Entry, name: str) -> Entry:
    return build_entry(name, entry.value, entry.key.span)


def _put(record: Record, name: str, value: Node, place: Span) -> None:
    record.put(build_entry(name, value, place))


def _make_library_value(place: Span, value: Any, text: str) -> Value:
    """Return a value that a library function sets rather than the script."""
    return Value(place, value, (Step("library", text, place),))


def _make_tokenizer(place: Span, factory: str) -> Record:
    record = Record(place, [])
    _put(record, "_CLASS_", Value(place, "olmo_core.data.TokenizerConfig"), place)
    _put(record, "_FACTORY_", Value(place, factory), place)
    return record


def _handle_launch_config(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    record = evaluator.build_record(node, "olmo_core.launch.beaker.BeakerLaunchConfig", arguments)
    record.open = IMPLIED
    return record


def _handle_cookbook_train_module(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Evaluate `internal.cookbook.configure_train_module`: fixed settings plus its few arguments."""
    place = evaluator.document.find_span(node.func)
    record = evaluator.build_record(node, "olmo_core.train.train_module.TransformerTrainModuleConfig", arguments)
    record.sealed = "configure_train_module only accepts its own arguments"
    arguments_by_name = {entry.name: entry for entry in record.entries}
    for key, value in (("compile_model", True), ("max_grad_norm", 1.0)):
        _put(record, key, _make_library_value(place, value, "configure_train_module"), place)
    _put(record, "optim", _make_library_record(place, "olmo_core.optim.SkipStepAdamWConfig", {"foreach": True}), place)
    data_parallel = _make_library_record(
        place,
        "olmo_core.train.train_module.TransformerDataParallelConfig",
        {"name": "hsdp", "param_dtype": "bfloat16", "reduce_dtype": "float32"},
    )
    degree = arguments_by_name.get("dp_shard_degree")
    if degree is not None:
        data_parallel.put(_rename_entry(degree, "shard_degree"))
    _put(record, "dp_config", data_parallel, place)
    budget = arguments_by_name.get("activation_memory_budget")
    if budget is not None and isinstance(budget.value, Value):
        if isinstance(budget.value.value, (int, float)) and budget.value.value >= 1:
            _put(record, "ac_config", Value(budget.value.span, None), budget.key.span)
        else:
            checkpointing = _make_library_record(
                place, "olmo_core.train.train_module.TransformerActivationCheckpointingConfig", {"mode": "budget"}
            )
            checkpointing.put(budget)
            _put(record, "ac_config", checkpointing, budget.key.span)
    context_degree = arguments_by_name.get("cp_degree")
    if context_degree is not None:
        context_parallel = _make_library_record(
            place, "olmo_core.train.train_module.TransformerContextParallelConfig", {}
        )
        context_parallel.put(_rename_entry(context_degree, "degree"))
        _put(record, "cp_config", context_parallel, context_degree.key.span)
    float8 = _make_library_record(place, "olmo_core.float8.Float8Config", {"enabled": False})
    if "float8_enabled" in arguments_by_name:
        float8.put(_rename_entry(arguments_by_name["float8_enabled"], "enabled"))
    _put(record, "float8_config", float8, place)
    return record


def _make_library_record(place: Span, name: str, values: Mapping[str, Any]) -> Record:
    """Return a record that the library creates with fixed values."""
    record = Record(place, [])
    record.sealed = "the library creates it"
    _put(record, "_CLASS_", Value(place, name), place)
    for key, value in values.items():
        _put(record, key, _make_library_value(place, value, name.rsplit(".", 1)[-1]), place)
    return record


def _handle_cookbook_trainer(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Evaluate `internal.cookbook.configure_trainer`."""
    place = evaluator.document.find_span(node.func)
    record = evaluator.build_record(node, "olmo_core.train.TrainerConfig", arguments)
    record.sealed = "configure_trainer only accepts its own arguments"
    folder = record.get("checkpoint_dir")
    if folder is not None:
        record.put(_rename_entry(folder, "save_folder"))
    _put(record, "save_overwrite", _make_library_value(place, True, "configure_trainer"), place)
    return record


def _handle_cookbook_callbacks(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Evaluate `internal.cookbook.configure_default_callbacks`."""
    place = evaluator.document.find_span(node.func)
    record = Record(evaluator.document.find_span(node), [])
    record.sealed = "configure_default_callbacks creates it"
    values: dict[str, Any] = {"save_interval": 1000, "ephemeral_save_interval": None, "save_async": True}
    checkpointer = _make_library_record(place, "olmo_core.train.callbacks.CheckpointerCallback", values)
    for argument, key in (
        ("checkpoint_save_interval", "save_interval"),
        ("ephemeral_checkpoint_save_interval", "ephemeral_save_interval"),
    ):
        interval = arguments.keywords.get(argument)
        if interval is not None and isinstance(interval.value, Node):
            checkpointer.put(build_entry(key, interval.value, interval.key))
    _put(record, "checkpointer", checkpointer, place)
    _put(
        record,
        "wandb",
        _make_library_record(place, "olmo_core.train.callbacks.WandBCallback", {"enabled": True}),
        place,
    )
    _put(
        record,
        "garbage_collector",
        _make_library_record(place, "olmo_core.train.callbacks.GarbageCollectorCallback", {}),
        place,
    )
    return record


def _handle_getattr(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Evaluate `getattr(TransformerConfig, options.factory)`."""
    if len(arguments.positional) < 2:
        return None
    owner, name = arguments.positional[:2]
    if isinstance(owner, External) and isinstance(name, Value) and isinstance(name.value, str):
        return External(f"{owner.name}.{name.value}", (*owner.how, *name.how))
    return None


def _handle_with_callback(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    if not isinstance(owner, Record):
        return None
    callbacks = _ensure_callbacks(owner)
    parameters = dict(zip(("name", "callback"), arguments.positional))
    parameters.update({key: argument.value for key, argument in arguments.keywords.items()})
    name, callback = parameters.get("name"), parameters.get("callback")
    if isinstance(name, Value) and isinstance(name.value, str) and callback is not None:
        evaluator.set_key(callbacks, name.value, callback, name.span, node)
    else:
        callbacks.open = "the names of some callbacks are computed"
    return owner


def _handle_with_callbacks(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    if not isinstance(owner, Record) or not arguments.positional:
        return None
    added = arguments.positional[0]
    callbacks = _ensure_callbacks(owner)
    if isinstance(added, Record):
        for entry in added.entries:
            evaluator.set_key(callbacks, entry.name or "", entry.value, entry.key.span, node)
    if not isinstance(added, Record) or added.open:
        callbacks.open = "some callbacks are created elsewhere"
    return owner


def _handle_recommended_evals(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """Evaluate `TrainerConfig.with_recommended_evals`: two evaluators, every 10,000 steps by default."""
    if not isinstance(owner, Record):
        return None
    place = evaluator.document.find_span(node.func)
    callbacks = _ensure_callbacks(owner)
    interval = arguments.keywords.get("eval_interval")
    for name, kind in (
        ("downstream_evaluator", "DownstreamEvaluatorCallbackConfig"),
        ("lm_evaluator", "LMEvaluatorCallbackConfig"),
    ):
        evaluator_callback = _make_library_record(place, f"olmo_core.train.callbacks.{kind}", {"eval_interval": 10_000})
        if interval is not None and isinstance(interval.value, Node):
            evaluator_callback.put(build_entry("eval_interval", interval.value, interval.key))
        evaluator.set_key(callbacks, name, evaluator_callback, place, node)
    return owner


def _ensure_callbacks(trainer: Record) -> Record:
    entry = trainer.get("callbacks")
    if entry is not None and isinstance(entry.value, Record):
        return entry.value
    callbacks = Record(trainer.span, [])
    callbacks.sealed = "callbacks are added one by one"
    callbacks.level = trainer.level
    _put(trainer, "callbacks", callbacks, Span(trainer.span.start, trainer.span.start))
    return callbacks


def _handle_padded_vocab_size(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """Evaluate `TokenizerConfig.padded_vocab_size()`."""
    if get_class_name(owner) != "TokenizerConfig":
        return None
    vocab_size = owner.get("vocab_size")
    vocabulary = vocab_size.value.value if vocab_size is not None and isinstance(vocab_size.value, Value) else None
    factory = owner.get("_FACTORY_")
    if factory is not None and isinstance(factory.value, Value):
        vocabulary = VOCABULARIES.get(factory.value.value)
    multiple: Any = _PADDING
    pad_multiple: Any = arguments.get("pad_multiple") or (arguments.positional[0] if arguments.positional else None)
    if pad_multiple is not None:
        multiple = pad_multiple.value if isinstance(pad_multiple, Value) else None
    if type(vocabulary) is not int or type(multiple) is not int or multiple < 1:
        return evaluator.build_unknown(node)
    return Value(evaluator.document.find_span(node), multiple * ((vocabulary + multiple - 1) // multiple))


_EXPERIMENT: Final = "olmo_core.internal.experiment."
_COOKBOOK: Final = "olmo_core.internal.cookbook."

_HANDLERS: Final = {
    "olmo_core.train.prepare_training_environment": _handle_prepare,
    "olmo_core.distributed.utils.init_distributed": _handle_prepare,
    "torch.distributed.init_process_group": _handle_prepare,
    "olmo_core.distributed.utils.get_world_size": _handle_world_size,
    "torch.distributed.get_world_size": _handle_world_size,
    f"{_EXPERIMENT}main": _handle_main,
    f"{_EXPERIMENT}build_config": _handle_build_config,
    "olmo_core.script_utils.main": _handle_script_main,
    f"{_COOKBOOK}configure_train_module": _handle_cookbook_train_module,
    f"{_COOKBOOK}configure_trainer": _handle_cookbook_trainer,
    f"{_COOKBOOK}configure_default_callbacks": _handle_cookbook_callbacks,
    "olmo_core.internal.common.build_launch_config": _handle_launch_config,
    "getattr": _handle_getattr,
}
_METHODS: Final = {
    "with_callback": _handle_with_callback,
    "add_callback": _handle_with_callback,
    "with_callbacks": _handle_with_callbacks,
    "add_callbacks": _handle_with_callbacks,
    "with_recommended_evals": _handle_recommended_evals,
    "padded_vocab_size": _handle_padded_vocab_size,
}
