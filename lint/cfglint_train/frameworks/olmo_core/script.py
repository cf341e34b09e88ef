"""How a training script of OLMo-core becomes the tree of settings that the run would have.

The tree has the shape of the configuration that OLMo-core saves beside a checkpoint (`config.json`): `model`,
`train_module`, `trainer`, `data_loader`, `dataset`, `launch`. So the same lenses read both, and a route is spelled like
the override that the launch takes (`--train_module.rank_microbatch_size=8192`).

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
    External,
    Function,
    Options,
    Partial,
    Several,
    settled,
)
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script import facts
from cfglint_train.frameworks.trainer_script.facts import named, uncalled

TRAIN_MODULES: Final = (
    "TransformerTrainModuleConfig",
    "TransformerPipelineTrainModuleConfig",
    "OLMoDDPTrainModuleConfig",
)

# Positional parameters of the library's classes, where scripts use them.
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

# data/tokenizer.py: the vocabularies of the ready-made tokenizers.
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


def class_of(node: Node | None) -> str:
    """The class that a section was made of, without its module; empty where it is unknown."""
    return facts.class_of(node).rpartition(".")[2] if isinstance(node, Record) else ""


def experiment(document: PythonDocument) -> Record | None:
    """The settings that a script gives its run; None where it builds none that can be read."""
    evaluator = Walk(document, _HANDLERS, _METHODS, FIELDS)
    evaluator.run()
    found = _finished(evaluator)
    if found is None:
        for waiting in list(evaluator.module.names.values()):
            if isinstance(waiting, Partial) and waiting.target == External(_EXPERIMENT + "build_config"):
                call = document.calls("partial", "build_config")[0]
                evaluator.attempt(waiting, Arguments(), call)
        found = _finished(evaluator)
    if found is None:
        for function in uncalled(evaluator, {*TRAIN_MODULES, "TrainerConfig"}.__contains__):
            evaluator.enter(function)
        found = _finished(evaluator) or _gathered(evaluator)
    if found is None or evaluator.spent:
        return None
    train_module = found.get("train_module")
    if train_module is not None:
        found.span = train_module.value.span
    return settled(found)


def _finished(evaluator: Evaluator) -> Record | None:
    """The last experiment that the script put together."""
    for record in reversed(evaluator.made):
        keys = record.index.keys()
        if "trainer" in keys and ("train_module" in keys or "model" in keys):
            return record
    return None


def _gathered(evaluator: Evaluator) -> Record | None:
    """The sections that a script builds without ever joining them."""
    of_class = {
        **dict.fromkeys(TRAIN_MODULES, "train_module"),
        "TrainerConfig": "trainer",
        "TransformerConfig": "model",
        "NumpyDataLoaderConfig": "data_loader",
    }
    sections: dict[str, Record] = {}
    for record in evaluator.made:
        section = of_class.get(class_of(record))
        if section is not None:
            sections[section] = record
    if "train_module" not in sections and "trainer" not in sections:
        return None
    first = next(iter(sections.values()))
    root = Record(first.span, [])
    for section, record in sections.items():
        place = Span(record.span.start, record.span.start)
        root.put(named(section, record, place))
    return root


def _main(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`internal.experiment.main(config_builder=...)`; up to 2.2 it took the builders themselves."""
    if any(name.endswith("_config_builder") for name in arguments.keywords):
        return _build_config(evaluator, node, arguments)
    builder = arguments.get("config_builder") or (arguments.positional[0] if arguments.positional else None)
    if not isinstance(builder, (Partial, Function, External)):
        return None
    with _without_group(evaluator):
        return evaluator.apply(builder, Arguments((evaluator.unknown(node.func, "the command line"),)), node)


def _script_main(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`script_utils.main(build_config)`: its own options, and those that the script adds."""
    builder = arguments.get("config_builder") or (arguments.positional[0] if arguments.positional else None)
    if not isinstance(builder, (Partial, Function)):
        return None
    place = evaluator.document.span(node)
    options = Options({name: Value(place, value) for name, value in _SCRIPT_OPTIONS.items()}, place)
    options.defaults.update(evaluator.options(node).defaults)
    rest = evaluator.unknown(node.func, "the command line")
    with _without_group(evaluator):
        return evaluator.apply(builder, Arguments((options, rest)), node)


_GROUP: Final = "there is a process group"
_NO_GROUP: Final = "there is no process group yet"


@contextmanager
def _without_group(evaluator: Evaluator) -> Iterator[None]:
    """The library's own `main` functions build the configuration before they prepare the environment."""
    evaluator.settled.add(_NO_GROUP)
    yield
    evaluator.settled.discard(_NO_GROUP)


def _prepared(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`prepare_training_environment()`: from here on, every rank knows the others."""
    if not evaluator.undecided:
        evaluator.settled.add(_GROUP)


def _world_size(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`get_world_size()`: 1 as long as there is no process group, the ranks of the launch afterwards.

    How many those are is not known here. Scripts ask in order to distinguish one rank from more, and are written for
    more.
    """
    place = evaluator.document.span(node)
    if _GROUP in evaluator.settled:
        return Value(place, Several("the ranks of the launch"))
    return _library(place, 1, "get_world_size") if _NO_GROUP in evaluator.settled else None


# What the builders get in common -> the arguments that say it.
_COMMON: Final = {
    "tokenizer": ("tokenizer",),
    "global_batch_size": ("global_batch_size",),
    "max_sequence_length": ("max_sequence_length", "sequence_length"),
}


def _build_config(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`internal.experiment.build_config`: the builders get what they have in common, and their results are joined."""
    place = evaluator.document.span(node.func)
    common = Record(place, [], open_=IMPLIED)
    for name, spellings in _COMMON.items():
        argument = next((arguments.keywords[word] for word in spellings if word in arguments.keywords), None)
        if argument is not None and isinstance(argument.value, Node):
            common.put(named(name, argument.value, argument.key))
    if common.get("tokenizer") is None:
        _put(common, "tokenizer", _tokenizer(place, "dolma2"), place)
    if common.get("max_sequence_length") is None:
        _put(common, "max_sequence_length", _library(place, 4096, "build_config"), place)
    length = common.index["max_sequence_length"]
    dataset = Record(place, [_renamed(length, name) for name in ("sequence_length", "effective_sequence_length")])
    dataset.open = IMPLIED
    _put(common, "dataset", dataset, place)
    root = Record(evaluator.document.span(node), [])
    for section in ("model", "optim", "trainer", "train_module"):
        builder = arguments.keywords.get(f"{section}_config_builder")
        if builder is not None and isinstance(builder.value, (Function, Partial)):
            made = evaluator.apply(builder.value, Arguments((common,)), node)
            if isinstance(made, Node):
                root.put(named(section, made, builder.key))
        elif builder is not None:
            root.put(named(section, evaluator.opaque(node), builder.key))
    _data(evaluator, node, arguments, common, root)
    nodes = arguments.keywords.get("num_nodes")
    if nodes is not None and isinstance(nodes.value, Value):
        launch = Record(nodes.key, [], open_=IMPLIED)
        launch.put(named("num_nodes", nodes.value, nodes.key))
        _put(root, "launch", launch, nodes.key)
    finish = arguments.get("finalize_config")
    if isinstance(finish, Function):
        evaluator.apply(finish, Arguments((root,)), node)
    evaluator.made.append(root)
    return root


def _data(evaluator: Evaluator, node: ast.Call, arguments: Arguments, common: Record, root: Record) -> None:
    """The data sections: what the script's own builder returns, or what the library's default one would."""
    builder = arguments.keywords.get("data_config_builder")
    if builder is None:
        for section, pairs in (
            ("data_loader", (("global_batch_size", "global_batch_size"),)),
            ("dataset", (("sequence_length", "max_sequence_length"),)),
        ):
            default = Record(root.span, [])
            default.sealed = "the library makes it"
            for name, source in pairs:
                entry = common.get(source)
                if entry is not None:
                    default.put(Entry(entry.key, entry.value) if name == source else _renamed(entry, name))
            if section == "data_loader":
                _put(default, "num_workers", _library(root.span, 4, "build_default_data_components"), root.span)
            _put(root, section, default, root.span)
        return
    made = None
    if isinstance(builder.value, (Function, Partial)):
        made = evaluator.apply(builder.value, Arguments((common,), complete=False), node)
    if isinstance(made, Record):
        for section in ("dataset", "data_loader"):
            entry = made.get(section)
            if entry is not None:
                root.put(entry)


def _renamed(entry: Entry, name: str) -> Entry:
    return named(name, entry.value, entry.key.span)


def _put(record: Record, name: str, value: Node, place: Span) -> None:
    record.put(named(name, value, place))


def _library(place: Span, value: Any, text: str) -> Value:
    """A value that a function of the library gives, not the script."""
    return Value(place, value, (Step("library", text, place),))


def _tokenizer(place: Span, factory: str) -> Record:
    record = Record(place, [])
    _put(record, "_CLASS_", Value(place, "olmo_core.data.TokenizerConfig"), place)
    _put(record, "_FACTORY_", Value(place, factory), place)
    return record


def _launch(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    record = evaluator.record(node, "olmo_core.launch.beaker.BeakerLaunchConfig", arguments)
    record.open = IMPLIED
    return record


def _cookbook_train_module(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`internal.cookbook.configure_train_module`: fixed settings around the few that it takes."""
    place = evaluator.document.span(node.func)
    record = evaluator.record(node, "olmo_core.train.train_module.TransformerTrainModuleConfig", arguments)
    record.sealed = "configure_train_module takes no more than its own arguments"
    given = {entry.name: entry for entry in record.entries}
    for key, value in (("compile_model", True), ("max_grad_norm", 1.0)):
        _put(record, key, _library(place, value, "configure_train_module"), place)
    _put(record, "optim", _made(place, "olmo_core.optim.SkipStepAdamWConfig", {"foreach": True}), place)
    parallel = _made(
        place,
        "olmo_core.train.train_module.TransformerDataParallelConfig",
        {"name": "hsdp", "param_dtype": "bfloat16", "reduce_dtype": "float32"},
    )
    degree = given.get("dp_shard_degree")
    if degree is not None:
        parallel.put(_renamed(degree, "shard_degree"))
    _put(record, "dp_config", parallel, place)
    budget = given.get("activation_memory_budget")
    if budget is not None and isinstance(budget.value, Value):
        if isinstance(budget.value.value, (int, float)) and budget.value.value >= 1:
            _put(record, "ac_config", Value(budget.value.span, None), budget.key.span)
        else:
            mode = _made(
                place, "olmo_core.train.train_module.TransformerActivationCheckpointingConfig", {"mode": "budget"}
            )
            mode.put(budget)
            _put(record, "ac_config", mode, budget.key.span)
    context = given.get("cp_degree")
    if context is not None:
        parallelism = _made(place, "olmo_core.train.train_module.TransformerContextParallelConfig", {})
        parallelism.put(_renamed(context, "degree"))
        _put(record, "cp_config", parallelism, context.key.span)
    eight_bit = _made(place, "olmo_core.float8.Float8Config", {"enabled": False})
    if "float8_enabled" in given:
        eight_bit.put(_renamed(given["float8_enabled"], "enabled"))
    _put(record, "float8_config", eight_bit, place)
    return record


def _made(place: Span, name: str, values: Mapping[str, Any]) -> Record:
    """A record that the library makes with fixed values."""
    record = Record(place, [])
    record.sealed = "the library makes it"
    _put(record, "_CLASS_", Value(place, name), place)
    for key, value in values.items():
        _put(record, key, _library(place, value, name.rsplit(".", 1)[-1]), place)
    return record


def _cookbook_trainer(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`internal.cookbook.configure_trainer`."""
    place = evaluator.document.span(node.func)
    record = evaluator.record(node, "olmo_core.train.TrainerConfig", arguments)
    record.sealed = "configure_trainer takes no more than its own arguments"
    folder = record.get("checkpoint_dir")
    if folder is not None:
        record.put(_renamed(folder, "save_folder"))
    _put(record, "save_overwrite", _library(place, True, "configure_trainer"), place)
    return record


def _cookbook_callbacks(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`internal.cookbook.configure_default_callbacks`."""
    place = evaluator.document.span(node.func)
    record = Record(evaluator.document.span(node), [])
    record.sealed = "configure_default_callbacks makes it"
    values: dict[str, Any] = {"save_interval": 1000, "ephemeral_save_interval": None, "save_async": True}
    checkpointer = _made(place, "olmo_core.train.callbacks.CheckpointerCallback", values)
    for argument, key in (
        ("checkpoint_save_interval", "save_interval"),
        ("ephemeral_checkpoint_save_interval", "ephemeral_save_interval"),
    ):
        given = arguments.keywords.get(argument)
        if given is not None and isinstance(given.value, Node):
            checkpointer.put(named(key, given.value, given.key))
    _put(record, "checkpointer", checkpointer, place)
    _put(record, "wandb", _made(place, "olmo_core.train.callbacks.WandBCallback", {"enabled": True}), place)
    _put(record, "garbage_collector", _made(place, "olmo_core.train.callbacks.GarbageCollectorCallback", {}), place)
    return record


def _attribute_by_name(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """`getattr(TransformerConfig, options.factory)`."""
    if len(arguments.positional) < 2:
        return None
    owner, name = arguments.positional[:2]
    if isinstance(owner, External) and isinstance(name, Value) and isinstance(name.value, str):
        return External(f"{owner.name}.{name.value}", (*owner.how, *name.how))
    return None


def _with_callback(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    if not isinstance(owner, Record):
        return None
    callbacks = _callbacks(owner)
    given = dict(zip(("name", "callback"), arguments.positional))
    given.update({key: argument.value for key, argument in arguments.keywords.items()})
    name, callback = given.get("name"), given.get("callback")
    if isinstance(name, Value) and isinstance(name.value, str) and callback is not None:
        evaluator.set_key(callbacks, name.value, callback, name.span, node)
    else:
        callbacks.open = "the names of some callbacks are computed"
    return owner


def _with_callbacks(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    if not isinstance(owner, Record) or not arguments.positional:
        return None
    added = arguments.positional[0]
    callbacks = _callbacks(owner)
    if isinstance(added, Record):
        for entry in added.entries:
            evaluator.set_key(callbacks, entry.name or "", entry.value, entry.key.span, node)
    if not isinstance(added, Record) or added.open:
        callbacks.open = "some callbacks are made elsewhere"
    return owner


def _with_recommended_evals(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """`TrainerConfig.with_recommended_evals`: two evaluators, every 10,000 steps by default."""
    if not isinstance(owner, Record):
        return None
    place = evaluator.document.span(node.func)
    callbacks = _callbacks(owner)
    interval = arguments.keywords.get("eval_interval")
    for name, kind in (
        ("downstream_evaluator", "DownstreamEvaluatorCallbackConfig"),
        ("lm_evaluator", "LMEvaluatorCallbackConfig"),
    ):
        made = _made(place, f"olmo_core.train.callbacks.{kind}", {"eval_interval": 10_000})
        if interval is not None and isinstance(interval.value, Node):
            made.put(named("eval_interval", interval.value, interval.key))
        evaluator.set_key(callbacks, name, made, place, node)
    return owner


def _callbacks(trainer: Record) -> Record:
    entry = trainer.get("callbacks")
    if entry is not None and isinstance(entry.value, Record):
        return entry.value
    callbacks = Record(trainer.span, [])
    callbacks.sealed = "callbacks are added one by one"
    callbacks.level = trainer.level
    _put(trainer, "callbacks", callbacks, Span(trainer.span.start, trainer.span.start))
    return callbacks


def _padded_vocabulary(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """`TokenizerConfig.padded_vocab_size()`."""
    if class_of(owner) != "TokenizerConfig":
        return None
    size = owner.get("vocab_size")
    known = size.value.value if size is not None and isinstance(size.value, Value) else None
    factory = owner.get("_FACTORY_")
    if factory is not None and isinstance(factory.value, Value):
        known = VOCABULARIES.get(factory.value.value)
    multiple: Any = _PADDING
    given: Any = arguments.get("pad_multiple") or (arguments.positional[0] if arguments.positional else None)
    if given is not None:
        multiple = given.value if isinstance(given, Value) else None
    if type(known) is not int or type(multiple) is not int or multiple < 1:
        return evaluator.unknown(node)
    return Value(evaluator.document.span(node), multiple * ((known + multiple - 1) // multiple))


_EXPERIMENT: Final = "olmo_core.internal.experiment."
_COOKBOOK: Final = "olmo_core.internal.cookbook."

_HANDLERS: Final = {
    "olmo_core.train.prepare_training_environment": _prepared,
    "olmo_core.distributed.utils.init_distributed": _prepared,
    "torch.distributed.init_process_group": _prepared,
    "olmo_core.distributed.utils.get_world_size": _world_size,
    "torch.distributed.get_world_size": _world_size,
    f"{_EXPERIMENT}main": _main,
    f"{_EXPERIMENT}build_config": _build_config,
    "olmo_core.script_utils.main": _script_main,
    f"{_COOKBOOK}configure_train_module": _cookbook_train_module,
    f"{_COOKBOOK}configure_trainer": _cookbook_trainer,
    f"{_COOKBOOK}configure_default_callbacks": _cookbook_callbacks,
    "olmo_core.internal.common.build_launch_config": _launch,
    "getattr": _attribute_by_name,
}
_METHODS: Final = {
    "with_callback": _with_callback,
    "add_callback": _with_callback,
    "with_callbacks": _with_callbacks,
    "add_callbacks": _with_callbacks,
    "with_recommended_evals": _with_recommended_evals,
    "padded_vocab_size": _padded_vocabulary,
}
