"""Runs that are not estimated: explain the reason once, at the missing setting, with one remedy."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cfglint_train.documents.document import Unknown
from cfglint_train.foundation import filesystem
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import format_route
from cfglint_train.memory.layers.families import has_formula
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.plan.fields import get_field
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin, Place
from cfglint_train.runs.run import Run


def _has_placeholder(text: str) -> bool:
    """Return whether a text contains a placeholder, such as `$NAME` or `{name}`, that is replaced before the run."""
    return any(sign in text for sign in "$`{<")


_OUTSIDE_PREFIXES: Final = ("/", "~", "..")
"""Prefixes of paths that may lead outside the repository, where models are read only with `--model-folder`."""

MIN_SIMILARITY: Final = 0.9
"""Minimum similarity of a suggested model name; it is high because sizes of a family differ by one character."""
_MEASURE: Final = "measure one step on your own GPU"
_MAX_NAMED: Final = 3
"""Maximum number of files that a message names."""
_INFERRED_FROM: Final[Mapping[Field, Field]] = {get_field("precision.params"): get_field("precision.compute")}
"""Fields without a key, with the fields from which they are inferred."""
STRATEGY: Final = get_field("parallel.strategy")
_TARGETS: Final = (get_field("method.lora_targets"), get_field("method.lora_target_pattern"))
FIELD_DESCRIPTIONS: Final[Mapping[Field, str]] = {
    "model.id": "the model",
    "method.tuning": "what is trained",
    "method.lora_rank": "the rank of the adapters",
    "method.lora_targets": "which matrices have an adapter",
    "method.trainable_layers": "the number of trained layers",
    "method.virtual_tokens": "the number of virtual tokens",
    "precision.params": "the data type of the weights",
    "precision.compute": "the data type of the computation",
    "optimizer.name": "the optimizer",
    "batch.micro": "the micro batch",
    "sequence.length": "the length of the samples",
    "parallel.strategy": "how the model is sharded",
    "parallel.zero_stage": "the ZeRO stage",
    "rollout.utilization": "the engine's share of the GPU",
}
"""Descriptions of the inputs of an estimate, for frameworks that have no key for them."""


def describe_field(field: Field) -> str:
    """Return the description of a field, or an empty string if it has none."""
    return _CLUSTER_FIELDS[field][0] if field in _CLUSTER_FIELDS else FIELD_DESCRIPTIONS.get(field, "")


class NotEstimated(Frozen):
    """The reason why a run cannot be estimated."""

    reason: str
    """Text after "memory not checked: "."""
    place: Place
    remedy: str
    is_value_unknown: bool = False
    """True if the reason is the value at `place`, which is written out, but which cfglint does not know."""


def explain_not_estimated(run: Run) -> NotEstimated | None:
    """Return the reason why no training step was estimated, or None if there is an estimate or no job.

    Reasons that no setting can remove come first.
    """
    if run.estimate.has_step or not run.is_training_run:
        return None
    unsupported = _find_unsupported(run)
    if unsupported is not None:
        return unsupported
    missing = run.estimate.missing
    for file in run.inputs.unresolved:
        place = file.place or run.main.find_top()
        if _has_placeholder(file.path):
            title = frameworks.load(file.framework).title
            message = f"the {title} file of this run (`{file.path}`) cannot be determined"
            return NotEstimated(message, place, "name it by its path in the repository")
        if file.similar:
            names = " and ".join(f"`{path}`" for path in file.similar[:_MAX_NAMED])
            suffix = f" and {len(file.similar) - _MAX_NAMED} more" if len(file.similar) > _MAX_NAMED else ""
            message = f"this run needs `{file.path}`, which may be any of {len(file.similar)} files: {names}{suffix}"
            return NotEstimated(message, place, "name it by its path in the repository")
        if file.problem == "YAML":
            message = f"this run needs `{file.path}` in JSON, but the file is YAML"
            return NotEstimated(message, place, "write it as JSON")
        if file.problem == "unreadable":
            message = f"this run needs `{file.path}`, which cannot be read"
            return NotEstimated(message, place, "correct the syntax of the file")
        message = f"this run needs `{file.path}`, which was not found"
        return NotEstimated(message, place, "commit the file, or name it by its path in the repository")
    if MODEL in missing:
        return _explain_model(run)
    fields = [field for field in missing if field != MODEL]
    return _explain_field(run, _find_cause(run, get_field(fields[0]))) if fields else None


def _find_unsupported(run: Run) -> NotEstimated | None:
    """Return a reason that no further fact can remove, or None."""
    for field, (value, origin) in run.resolved_plan:
        if origin.is_unsupported and value is None:
            return NotEstimated(origin.note, run.find_place(field), _MEASURE)
    if run.architecture is not None and (MODEL in run.estimate.missing or not has_formula(run.architecture)):
        kind = run.architecture.model_type
        return NotEstimated(f"no formula covers all parts of a {kind} model", run.find_place("model.id"), _MEASURE)
    return None


def _find_cause(run: Run, field: Field) -> Field:
    """Return the field that must be set to make another field known, which is often the field itself.

    An unknown sharding strategy may result from an unreadable number of nodes or GPUs.
    """
    field = (
        _INFERRED_FROM.get(field, field) if run.find_owner(field) is None and run.get_origin(field) is None else field
    )
    if field != STRATEGY or run.get_origin(field) is not None:
        return field
    return next((ranks for ranks in _CLUSTER_FIELDS if ranks in run.resolved_plan.unreadable_fields), field)


def _explain_model(run: Run) -> NotEstimated:
    model, place = run.plan.model.id, run.find_place("model.id")
    if run.model_problem is not None:
        return NotEstimated(run.model_problem, place, "pass `--model-config FILE` with the model's `config.json`")
    if not model and run.plan.model.architecture:
        message = "no known model has these dimensions and kinds of layer"
        architecture_place = run.find_place("model.architecture")
        return NotEstimated(
            message, architecture_place, "pass `--model-config FILE` with the `config.json` of the exported model"
        )
    setting = _get_setting_name(run, "model.id")
    if not model and run.get_origin("model.id") is None:
        if run.main.document.syntax == "python":
            message = "which model the script makes cannot be determined"
            return NotEstimated(message, place, "pass `--model-config FILE` with the model's `config.json`")
        return NotEstimated("no file names the model", place, f"set {setting}, or pass `--model-config FILE`")
    origin = run.get_origin("model.id")
    if not model and origin is not None and origin.kind == "inferred" and origin.note:
        return NotEstimated(origin.note, place, f"pass `--set {run.spell_key('model.id')}=NAME`")
    if not model and origin is not None and origin.kind == "user" and origin.note:
        message = f"the value of {setting} in the launch ({origin.note}) cannot be determined"
        return NotEstimated(message, place, "write a plain value there, or pass `--model-config FILE`")
    if not model or _has_placeholder(model):
        quoted_value = f" ({model})" if model else _quote_source(run, place)
        remedy = f"set {setting} to a plain value, or pass `--model-config FILE` with the model's `config.json`"
        return NotEstimated(f"the value of {setting}{quoted_value} cannot be determined", place, remedy)
    remedy, message = (
        "pass `--model-config FILE` with its `config.json`",
        f"`{model}` is not in the catalogue of models",
    )
    if _is_hub_model(model, os.path.dirname(run.main.document.path)):
        remedy += ", or `--online`"
        from cfglint_train.models.lookup import suggest_ids

        similar = suggest_ids(model, 1, MIN_SIMILARITY)
        message += f"; did you mean {similar[0]}?" if similar else ""
    elif "/" in model or "\\" in model:
        message = f"the model `{model}` is a path, but the repository has no `config.json` there"
        if model.startswith(_OUTSIDE_PREFIXES):
            remedy += ", or `--model-folder DIR` with a folder above it"
    return NotEstimated(message, place, remedy)


def _is_hub_model(model: str, folder: str) -> bool:
    """Return whether a name has the form of a Hub id, and its first part is not a folder here."""
    from cfglint_train.models.online import is_hub_id

    first = model.partition("/")[0]
    return is_hub_id(model) and not any(filesystem.is_folder(os.path.join(base, first)) for base in (folder, os.curdir))


def _explain_field(run: Run, field: Field) -> NotEstimated:
    origin, key, setting = run.get_origin(field), run.spell_key(field), _get_setting_name(run, field)
    place = run.find_place(field)
    _, name = _CLUSTER_FIELDS.get(field, ("", ""))
    verb = "set" if setting.startswith("`") else "state"
    remedy = _format_remedy(name) if name else f"{verb} {setting}"
    if origin is not None and origin.kind == "assumed" and run.inputs.sharding is not None and field == STRATEGY:
        return NotEstimated(origin.note, run.main.find_top(), "start it by its path in a script of the repository")
    if origin is not None and field in run.inputs.conflicts:
        return _explain_conflict(run, field, place)
    launcher_sharding = run.inputs.sharding
    if (
        origin is not None
        and field == STRATEGY
        and launcher_sharding is not None
        and origin == launcher_sharding.origin
    ):
        if origin.note:
            return NotEstimated(f"{origin.note}, and does not start", place, "use only one of them")
        message = f"how `{origin.key}` shards the model cannot be determined"
        remedy = "pass plain or quoted words to the launcher, or a file of the repository (`--config_file`)"
        return NotEstimated(message, place, remedy)
    if origin is not None and origin.kind == "explicit" and origin.note:
        return NotEstimated(origin.note, place, remedy if name else _MEASURE)
    if origin is not None and origin.kind in ("explicit", "user"):
        if field in _TARGETS and field not in run.resolved_plan.unreadable_fields:
            message = f"which matrices of the model {setting} chooses cannot be determined"
            return NotEstimated(message, place, f"name modules that the model has in {setting}, as a list")
        tokens = run.plan.batch.micro_tokens if field == "batch.micro" else None
        if tokens:
            message = f"{setting} is {tokens:,} tokens, which is not a whole number of sequences"
            return NotEstimated(message, place, "use a multiple of the sample length")
        quoted_value = _quote_source(run, place)
        if field in _CLUSTER_FIELDS:
            return NotEstimated(
                f"{setting}{quoted_value if _has_placeholder(quoted_value) else ''} cannot be determined", place, remedy
            )
        if origin.kind == "user" and place.document.syntax in ("shell", "python"):
            message = f"the value of {setting} in the launch ({origin.note}) cannot be determined"
            return NotEstimated(message, place, f"write a plain value there, or pass `--set {origin.key}=VALUE`")
        if key == "fsdp_config":
            message = f"the file of `{key}`{quoted_value} was not found, or is not JSON"
            return NotEstimated(message, place, f"commit the file, or write its settings below `{key}`")
        if quoted_value and not _has_placeholder(quoted_value) and not _is_computed(run, field, origin):
            message = f"the value of {setting}{quoted_value} is unknown to cfglint"
            return NotEstimated(message, place, f"set {setting} to a value that {run.framework.title} has", True)
        expression = quoted_value.strip(" ()")
        if place.document.syntax == "python" and expression.isidentifier() and expression != key:
            message = f"what the script gives as `{expression}` cannot be determined"
            return NotEstimated(message, place, "build it in the script itself, from plain values")
        return NotEstimated(
            f"the value of {setting}{quoted_value} cannot be determined", place, f"set {setting} to a plain value"
        )
    if origin is not None and origin.kind == "inferred" and origin.note:
        if field != "precision.compute" or not origin.framework or origin.place is not None:
            return NotEstimated(origin.note, place, _MEASURE)
        message = f"`auto` in the DeepSpeed file follows {setting}, which is off"
        return NotEstimated(message, run.main.get_origin(*key.split(".")).place or place, f"enable {setting}")
    if origin is None and field == STRATEGY and (open_file := _find_undetermined_file(run)) is not None:
        return open_file
    if origin is None and not name and not run.main.document.is_complete(run.main.root):
        return NotEstimated(f"{setting} may be among options that cannot be determined", place, "write out all options")
    if setting == FIELD_DESCRIPTIONS.get(field) and not name:
        return NotEstimated(f"{setting} cannot be derived from the settings of this run", place, _MEASURE)
    word = None if name else run.main.get(*key.split("."))
    if isinstance(word, str):
        origin = run.main.get_origin(*key.split("."))
        message = f"the value of `{key}` ({word}) is unknown to cfglint"
        remedy = f"set `{key}` to a value that {run.framework.title} has"
        return NotEstimated(message, origin.place or place, remedy, True)
    if isinstance(word, (Unknown, list)):
        origin = run.main.get_origin(*key.split("."))
        message = f"the value of `{key}` cannot be determined"
        return NotEstimated(message, origin.place or place, f"set `{key}` to a plain value")
    if setting.startswith("`"):
        return NotEstimated(f"{setting} is not set in any file", place, remedy)
    return NotEstimated(f"no file states {setting}", place, remedy)


def _is_computed(run: Run, field: Field, origin: Origin) -> bool:
    """Return whether a stated value is known only during the run, such as an expression in a script."""
    owner = run.find_owner(field)
    return owner is not None and isinstance(owner[0].get(*origin.key.split(".")), Unknown)


def _find_undetermined_file(run: Run) -> NotEstimated | None:
    """Return a reason if the launch names a file whose path cannot be determined, or None."""
    main = run.main
    for route, override in main.overrides.items():
        if isinstance(override.value, Unknown) and override.origin.place is not None:
            config = main.replace(overrides={**main.overrides, route: override._replace(value="file")})
            if any(reference.route == route for reference in run.framework.references(config)):
                key = override.origin.key
                message = f"the file of `{key}` in the launch ({override.origin.note}) cannot be determined"
                return NotEstimated(message, override.origin.place, f"write its path there, or pass `--set {key}=FILE`")
    return None


def _explain_conflict(run: Run, field: Field, place: Place) -> NotEstimated:
    """Return the reason for a field on which scripts disagree; for a cluster fact, it covers all such facts."""
    fields = [item for item in _CLUSTER_FIELDS if item in run.inputs.conflicts] if field in _CLUSTER_FIELDS else [field]
    settings_by_note: dict[str, list[str]] = {}
    for item in fields:
        origin = run.get_origin(item)
        assert origin is not None
        settings_by_note.setdefault(origin.note, []).append(_get_setting_name(run, item))
    message = "; ".join(f"{note} in {' and '.join(settings)}" for note, settings in settings_by_note.items())
    names = [_CLUSTER_FIELDS[item][1] for item in fields if item in _CLUSTER_FIELDS]
    return NotEstimated(message, place, _format_remedy(*names) if names else f"state {_get_setting_name(run, field)}")


def _get_setting_name(run: Run, field: Field) -> str:
    """Return the key that sets or could set a field, in backticks, or a description of the field without a key."""
    if field in _CLUSTER_FIELDS:
        return _CLUSTER_FIELDS[field][0]
    key, owner = run.spell_key(field), run.find_owner(field)
    has_key = owner is not None and key in map(format_route, owner[1].keys[field])
    return FIELD_DESCRIPTIONS.get(field, "a setting") if key == field and not has_key else f"`{key}`"


def _format_remedy(*names: str) -> str:
    """Return the advice to state some cluster facts."""
    flags, facts = " ".join(f"--{name} N" for name in names), " ".join(f"{name}=N" for name in names)
    return f"pass `{flags}`, or write the comment `# cfglint: {facts}`"


_CLUSTER_FIELDS: Final[Mapping[Field, tuple[str, str]]] = {
    "launch.nodes": ("the number of nodes", "nodes"),
    "launch.gpus_per_node": ("the number of GPUs per node", "gpus-per-node"),
}
"""Cluster facts: the description of the field, and the name of its flag and pragma."""


def _quote_source(run: Run, place: Place) -> str:
    """Return the source text at a place in parentheses, or an empty string if it is long or has several lines."""
    document, span = place.document, place.span
    if document.syntax == "python":
        from cfglint_train.documents.python.script import PythonScript

        span = document.widen_to_node(span) if isinstance(document, PythonScript) else span
    text = document.get_text(span).strip()
    return f" ({text})" if 0 < len(text) <= 60 and "\n" not in text else ""
