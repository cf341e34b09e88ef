"""Why the memory of a run was not checked: said once, at the setting that is missing, with the one remedy."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cfglint_train.documents.document import Unknown
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import spelled
from cfglint_train.memory.layers.families import has_formula
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.plan.fields import named
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin, Place
from cfglint_train.runs.run import Run


def _is_replaced(text: str) -> bool:
    """Whether a part of a text is replaced before the run."""
    return any(sign in text for sign in "$`{<")


_LEADING_OUT: Final = ("/", "~", "..")
"""How paths begin that may lead out of the repository, where models are read only on demand."""

ALIKE: Final = 0.9
"""The share of a model's name that has to be the same: releases and sizes of one family differ by a character, too."""
_MEASURE: Final = "measure one step on your own GPU"
_NAMED: Final = 3
"""Files that one message names."""
_FOLLOWS: Final[Mapping[Field, Field]] = {named("precision.params"): named("precision.compute")}
"""A field that no key states -> the one that it is inferred from."""
STRATEGY: Final = named("parallel.strategy")
_TARGETS: Final = (named("method.lora_targets"), named("method.lora_target_pattern"))
THINGS: Final[Mapping[Field, str]] = {
    "model.id": "the model",
    "method.tuning": "what is trained",
    "method.lora_rank": "the rank of the adapters",
    "method.lora_targets": "which matrices have an adapter",
    "method.trainable_layers": "the number of layers that are trained",
    "method.virtual_tokens": "the number of virtual tokens",
    "precision.params": "the format of the weights",
    "precision.compute": "the format of the computation",
    "optimizer.name": "the optimizer",
    "batch.micro": "the micro batch",
    "sequence.length": "the length of the samples",
    "parallel.strategy": "how the model is sharded",
    "parallel.zero_stage": "the ZeRO stage",
    "rollout.utilization": "the share of the GPU that the engine takes",
}
"""What an estimate needs to know, in words, for frameworks that have no setting for it."""


def thing(field: Field) -> str:
    """What a field is called in words; empty where it has none."""
    return _CLUSTER[field][0] if field in _CLUSTER else THINGS.get(field, "")


class Unchecked(Frozen):
    """What keeps a run from being estimated."""

    why: str
    """After the words "memory not checked: "."""
    place: Place
    remedy: str


def unchecked(run: Run) -> Unchecked | None:
    """Why no training step could be estimated: what has no remedy, else the first reason; None where one was."""
    if any(phase.name == "backward" for phase in run.estimate.phases) or not trains(run):
        return None
    without = _without_formula(run)
    if without is not None:
        return without
    missing = run.estimate.missing
    for one in run.parts.unresolved:
        place = one.place or run.main.top()
        if _is_replaced(one.path):
            title = frameworks.load(one.framework).title
            told = f"the {title} file of this run (`{one.path}`) cannot be determined"
            return Unchecked(told, place, "name it by its path in the repository")
        if one.similar:
            names = " and ".join(f"`{path}`" for path in one.similar[:_NAMED])
            more = f" and {len(one.similar) - _NAMED} more" if len(one.similar) > _NAMED else ""
            told = f"`{one.path}`, which this run needs, may be any of {len(one.similar)} files: {names}{more}"
            return Unchecked(told, place, "name it by its path in the repository")
        if one.refused:
            return Unchecked(f"`{one.path}`, which this run needs, is not JSON", place, "write it as JSON")
        told = f"`{one.path}`, which this run needs, was not found"
        return Unchecked(told, place, "commit the file, or name it by its path in the repository")
    if MODEL in missing:
        return _model(run)
    fields = [field for field in missing if field != MODEL]
    return _field(run, _cause(run, named(fields[0]))) if fields else None


def _without_formula(run: Run) -> Unchecked | None:
    """What no fact makes up for, whichever facts are missing as well."""
    for field, (value, origin) in run.reading:
        if origin.beyond and value is None:
            return Unchecked(origin.note, run.place(field), _MEASURE)
    if run.architecture is not None and (MODEL in run.estimate.missing or not has_formula(run.architecture)):
        kind = run.architecture.model_type
        return Unchecked(f"no formula covers all of a {kind} model", run.place("model.id"), _MEASURE)
    return None


def _cause(run: Run, field: Field) -> Field:
    """What keeps a field from being known: without sharding, the number of ranks does not matter."""
    field = _FOLLOWS.get(field, field) if run.owner(field) is None and run.origin(field) is None else field
    if field != STRATEGY or run.origin(field) is not None:
        return field
    return next((ranks for ranks in _CLUSTER if ranks in run.reading.unreadable), field)


def trains(run: Run) -> bool:
    """Whether the configuration is a job by itself; a companion alone states too little, and no verdict is expected."""
    return run.main.role == "main" and not run.framework.is_companion


def _model(run: Run) -> Unchecked:
    model, place = run.plan.model.id, run.place("model.id")
    if run.problem is not None:
        return Unchecked(run.problem, place, "pass `--model-config FILE` with the model's `config.json`")
    if not model and run.plan.model.architecture:
        told = "no known model has these dimensions and kinds of layer"
        where = run.place("model.architecture")
        return Unchecked(told, where, "pass `--model-config FILE` with the `config.json` of the exported model")
    setting = _called(run, "model.id")
    if not model and run.origin("model.id") is None:
        if run.main.document.syntax == "python":
            told = "which model the script makes cannot be determined"
            return Unchecked(told, place, "pass `--model-config FILE` with the model's `config.json`")
        return Unchecked("no file names the model", place, f"state {setting}, or pass `--model-config FILE`")
    origin = run.origin("model.id")
    if not model and origin is not None and origin.kind == "inferred" and origin.note:
        return Unchecked(origin.note, place, f"pass `--set {run.spell('model.id')}=NAME`")
    if not model and origin is not None and origin.kind == "user" and origin.note:
        told = f"the value of {setting} in the launch ({origin.note}) cannot be determined"
        return Unchecked(told, place, "write a plain value there, or pass `--model-config FILE`")
    if not model or _is_replaced(model):
        stated = f" ({model})" if model else _written(run, place)
        remedy = f"state {setting} with a plain value, or pass `--model-config FILE` with the model's `config.json`"
        return Unchecked(f"the value of {setting}{stated} cannot be determined", place, remedy)
    remedy, told = "pass `--model-config FILE` with its `config.json`", f"`{model}` is not in the catalogue of models"
    if _is_on_hub(model, os.path.dirname(run.main.document.path)):
        remedy += ", or `--online`"
        from cfglint_train.models.lookup import near

        meant = near(model, 1, ALIKE)
        told += f"; did you mean {meant[0]}?" if meant else ""
    elif "/" in model or "\\" in model:
        told = f"the model `{model}` is a path, and no `config.json` of the repository is there"
        if model.startswith(_LEADING_OUT):
            remedy += ", or `--model-folder DIR` with a folder above it"
    return Unchecked(told, place, remedy)


def _is_on_hub(model: str, folder: str) -> bool:
    """Whether a model may be one of the Hub, and no path: by its form, and as there is no such folder here."""
    from cfglint_train.models.online import is_hub_id

    first = model.partition("/")[0]
    return is_hub_id(model) and not any(os.path.isdir(os.path.join(base, first)) for base in (folder, os.curdir))


def _field(run: Run, field: Field) -> Unchecked:
    origin, key, setting = run.origin(field), run.spell(field), _called(run, field)
    place = run.place(field)
    _, name = _CLUSTER.get(field, ("", ""))
    remedy = _stating(name) if name else f"state {setting}"
    if origin is not None and origin.kind == "assumed" and run.parts.sharding is not None and field == STRATEGY:
        return Unchecked(origin.note, run.main.top(), "start it by its path in a script of the repository")
    if origin is not None and field in run.parts.others:
        return _differing(run, field, place)
    launched = run.parts.sharding
    if origin is not None and field == STRATEGY and launched is not None and origin == launched.origin:
        if origin.note:
            return Unchecked(f"{origin.note}, and does not start", place, "give it one of them alone")
        told = f"how `{origin.key}` shards the model cannot be determined"
        remedy = "give the launcher plain or quoted words, or a file of the repository (`--config_file`)"
        return Unchecked(told, place, remedy)
    if origin is not None and origin.kind == "explicit" and origin.note:
        return Unchecked(origin.note, place, remedy if name else _MEASURE)
    if origin is not None and origin.kind in ("explicit", "user"):
        if field in _TARGETS and field not in run.reading.unreadable:
            told = f"which matrices of the model {setting} chooses cannot be determined"
            return Unchecked(told, place, f"name modules that the model has in {setting}, as a list")
        tokens = run.plan.batch.micro_tokens if field == "batch.micro" else None
        if tokens:
            told = f"{setting} is {tokens:,} tokens, which is no whole number of sequences"
            return Unchecked(told, place, "state a multiple of the length of the samples")
        stated = _written(run, place)
        if field in _CLUSTER:
            return Unchecked(f"{setting}{stated if _is_replaced(stated) else ''} cannot be determined", place, remedy)
        if origin.kind == "user" and place.document.syntax in ("shell", "python"):
            told = f"the value of {setting} in the launch ({origin.note}) cannot be determined"
            return Unchecked(told, place, f"write a plain value there, or pass `--set {origin.key}=VALUE`")
        if key == "fsdp_config":
            told = f"the file of `{key}`{stated} was not found, or is not JSON"
            return Unchecked(told, place, f"commit the file, or write its settings below `{key}`")
        if stated and not _is_replaced(stated) and not _is_undetermined(run, field, origin):
            told = f"the value of {setting}{stated} is unknown to cfglint"
            return Unchecked(told, place, f"state {setting} with a value that {run.framework.title} has")
        given = stated.strip(" ()")
        if place.document.syntax == "python" and given.isidentifier() and given != key:
            told = f"what the script gives as `{given}` cannot be determined"
            return Unchecked(told, place, "make it in the script itself, of plain values")
        return Unchecked(
            f"the value of {setting}{stated} cannot be determined", place, f"state {setting} with a plain value"
        )
    if origin is not None and origin.kind == "inferred" and origin.note:
        return Unchecked(origin.note, place, _MEASURE)
    if origin is None and field == STRATEGY and (open_file := _open_file(run)) is not None:
        return open_file
    if origin is None and not name and not run.main.document.is_complete(run.main.root):
        return Unchecked(f"{setting} may be among options that cannot be determined", place, "write all options out")
    if setting == THINGS.get(field) and not name:
        return Unchecked(f"{setting} does not follow from the settings of this run", place, _MEASURE)
    word = None if name else run.main.get(*key.split("."))
    if isinstance(word, str):
        origin = run.main.origin(*key.split("."))
        told = f"the value of `{key}` ({word}) is unknown to cfglint"
        return Unchecked(told, origin.place or place, f"state `{key}` with a value that {run.framework.title} has")
    if isinstance(word, (Unknown, list)):
        origin = run.main.origin(*key.split("."))
        told = f"the value of `{key}` cannot be determined"
        return Unchecked(told, origin.place or place, f"state `{key}` with a plain value")
    return Unchecked(f"no file states {setting}", place, remedy)


def _is_undetermined(run: Run, field: Field, origin: Origin) -> bool:
    """Whether a stated value only exists where the run does, as an expression of a script."""
    owner = run.owner(field)
    return owner is not None and isinstance(owner[0].get(*origin.key.split(".")), Unknown)


def _open_file(run: Run) -> Unchecked | None:
    """A file that the launch names by what cannot be determined."""
    main = run.main
    for route, override in main.overrides.items():
        if isinstance(override.value, Unknown) and override.origin.place is not None:
            named = main.altered(overrides={**main.overrides, route: override._replace(value="file")})
            if any(one.route == route for one in run.framework.references(named)):
                key = override.origin.key
                told = f"the file of `{key}` in the launch ({override.origin.note}) cannot be determined"
                return Unchecked(told, override.origin.place, f"write its path there, or pass `--set {key}=FILE`")
    return None


def _differing(run: Run, field: Field, place: Place) -> Unchecked:
    """That scripts contradict each other: of the cluster, every fact in which they do."""
    fields = [one for one in _CLUSTER if one in run.parts.others] if field in _CLUSTER else [field]
    things: dict[str, list[str]] = {}
    for one in fields:
        origin = run.origin(one)
        assert origin is not None
        things.setdefault(origin.note, []).append(_called(run, one))
    told = "; ".join(f"{note} in {' and '.join(found)}" for note, found in things.items())
    names = [_CLUSTER[one][1] for one in fields if one in _CLUSTER]
    return Unchecked(told, place, _stating(*names) if names else f"state {_called(run, field)}")


def _called(run: Run, field: Field) -> str:
    """The setting that states a field, or would; where no setting does, what it is."""
    if field in _CLUSTER:
        return _CLUSTER[field][0]
    key, owner = run.spell(field), run.owner(field)
    has_key = owner is not None and key in map(spelled, owner[1].keys[field])
    return THINGS.get(field, "a setting") if key == field and not has_key else f"`{key}`"


def _stating(*names: str) -> str:
    """How to state facts about the cluster."""
    flags, facts = " ".join(f"--{name} N" for name in names), " ".join(f"{name}=N" for name in names)
    return f"pass `{flags}`, or write the comment `# cfglint: {facts}`"


_CLUSTER: Final[Mapping[Field, tuple[str, str]]] = {
    "launch.nodes": ("the number of nodes", "nodes"),
    "launch.gpus_per_node": ("the number of GPUs per node", "gpus-per-node"),
}
"""What no key of a configuration states: what it is called, and the flag that states it."""


def _written(run: Run, place: Place) -> str:
    """What is at a place, in brackets, where that is short."""
    document, span = place.document, place.span
    if document.syntax == "python":
        from cfglint_train.documents.python.script import PythonScript

        span = document.whole(span) if isinstance(document, PythonScript) else span
    text = document.text(span).strip()
    return f" ({text})" if 0 < len(text) <= 60 and "\n" not in text else ""
