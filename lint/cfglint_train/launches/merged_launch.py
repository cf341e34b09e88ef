"""Merged launches: combine all launches of a config and mark assumed values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from cfglint_train.documents.document import MISSING, Route, Unknown
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks.lens import Config, Override
from cfglint_train.launches.launches import Launch, LauncherInput
from cfglint_train.plan.origin import FieldValue, Origin


class MergedLaunch(Frozen):
    """The launches of a config combined into one."""

    documents: tuple[ShellDocument, ...]
    facts: Mapping[str, FieldValue]
    """Cluster facts: nodes, gpus-per-node, gpu, host-memory.

    A value is None if launches differ or one is undetermined; it is assumed if only some launches state it.
    """
    conflicts: Mapping[str, tuple[str | int, ...]]
    """Facts in which launches differ, with their sorted values; excludes facts that any launch leaves undetermined."""
    overrides: Mapping[Route, Override]
    """Overrides that every launch sets; the value is unknown if they differ."""
    launch_overrides: tuple[tuple[Route, Override], ...]
    """All overrides of all launches, unmerged."""
    invocations: tuple[tuple[ShellDocument, int], ...]
    """Script and number of each invocation that starts the config."""
    launchers: tuple[LauncherInput | None, ...]
    """Distinct launcher inputs, sorted; None, which comes last, stands for launches without an input."""
    sharding: FieldValue | None
    """Launcher options of any launch that shard the model in a way that cfglint does not read; the value is None."""
    is_sharding_known: bool
    """True if every launch shows each option that could shard the model."""
    environment: Mapping[str, str]
    """Environment variables that every launch sets to the same value."""
    rendezvous: FieldValue | None = None
    """True if several nodes get a rendezvous address; the value is None if launches differ."""


def merge_launches(launches: Iterable[Launch]) -> MergedLaunch | None:
    """Return all launches of a config combined, or None if there are none.

    Two scripts may start the same file on different clusters: facts in which they differ become None. A setting that
    only some launches override keeps the file's value, which the other launches use.
    """
    sorted_launches = sorted(launches, key=lambda item: item.document.path)
    if not sorted_launches:
        return None
    facts: dict[str, FieldValue] = {}
    conflicts: dict[str, tuple[str | int, ...]] = {}
    for name in dict.fromkeys(name for launch in sorted_launches for name in launch.facts):
        stated_values = [launch.facts[name] for launch in sorted_launches if name in launch.facts]
        facts[name] = _merge_fact(name, stated_values, len(sorted_launches))
        values = dict.fromkeys(item.value for item in stated_values)
        if len(values) > 1 and None not in values:
            conflicts[name] = tuple(sorted(values, key=lambda value: (isinstance(value, str), value)))
    first, *rest = sorted_launches
    overrides = {
        route: override._replace(argument=None if rest else override.argument)
        if all(item.overrides[route].value == override.value for item in rest)
        else _build_conflict([item.overrides[route] for item in sorted_launches])
        for route, override in first.overrides.items()
        if all(route in item.overrides for item in rest)
    }
    inputs_by_key = {
        None if launch.launcher is None else launch.launcher.sort_key: launch.launcher for launch in sorted_launches
    }
    inputs = [inputs_by_key[key] for key in sorted(inputs_by_key, key=lambda key: (key is None, key or ()))]
    launch_overrides = tuple(pair for launch in sorted_launches for pair in launch.overrides.items())
    documents = dict.fromkeys(launch.document for launch in sorted_launches)
    invocations = tuple(dict.fromkeys((launch.document, launch.number) for launch in sorted_launches))
    is_sharding_known = all(launch.is_sharding_known for launch in sorted_launches)
    sharding = next((launch.sharding for launch in sorted_launches if launch.sharding is not None), None)
    environment = dict(set.intersection(*(set(launch.environment.items()) for launch in sorted_launches)))
    rendezvous = _merge_rendezvous(sorted_launches)
    return MergedLaunch(
        tuple(documents),
        facts,
        conflicts,
        overrides,
        launch_overrides,
        invocations,
        tuple(inputs),
        sharding,
        is_sharding_known,
        environment,
        rendezvous,
    )


def _merge_rendezvous(launches: list[Launch]) -> FieldValue | None:
    """Return the rendezvous that launches state, with the value None if they differ; None if no launch states it."""
    stated = next((launch.rendezvous for launch in launches if launch.rendezvous is not None), None)
    same = len({None if launch.rendezvous is None else launch.rendezvous.value for launch in launches}) == 1
    return stated if stated is None or same else stated._replace(value=None)


def _merge_fact(name: str, values: list[FieldValue], launch_count: int) -> FieldValue:
    """Return the merged value of a fact that launches state: None if they differ or one is undetermined.

    The value is assumed if fewer than `launch_count` launches state it.
    """
    first = next((value for value in values if value.value is None), values[0])
    if first.value is None:
        return first
    other = next((value for value in values if value.value != first.value), None)
    if other is not None:
        names = dict.fromkeys((_format_source(first), _format_source(other)))
        if len(names) == 1:  # Scripts of the same name in two folders.
            names = dict.fromkeys((_format_source(first, folder=True), _format_source(other, folder=True)))
        return FieldValue(None, first.origin._replace(note=f"{' and '.join(names)} differ", assumption=""))
    certain = next((value for value in values if not value.origin.assumption), first)
    if len(values) < launch_count and not certain.origin.assumption:
        thing = _describe_fact(name, certain.value)
        source = f"{_format_source(certain)} states, the only one of {launch_count} launches"
        note = f"{thing}, as {source}; set `{name}` to be sure"
        return certain._replace(origin=certain.origin._replace(assumption=note))
    return certain


def mark_assumed(launch: Launch, reason: str) -> Launch:
    """Return a launch with all cluster facts assumed, because its script may start another file."""
    return launch._replace(
        facts={name: _mark_value_assumed(name, value, reason) for name, value in launch.facts.items()}
    )


def _mark_value_assumed(name: str, value: FieldValue, reason: str) -> FieldValue:
    if value.value is None:
        return value
    thing = _describe_fact(name, value.value)
    note = f"{thing}, as {_format_source(value)} states{reason and f', {reason}'}; set `{name}` to be sure"
    return value._replace(origin=value.origin._replace(assumption=note))


_SHARDING: Final = ("deepspeed", "fsdp", "fsdp_config")
"""Settings that control how the model is sharded."""
_EXAMPLE: Final = "which is an example of how to start it"


def convert_example(launch: Launch) -> Launch | None:
    """Return an example as a launch with assumed values, or None if it shows no facts and no sharding.

    The launch keeps the cluster facts, the launcher's input, the overrides that shard the model, the rendezvous, and
    the assumption that the launcher may shard the model. Other overrides apply only to the example.
    """
    facts = mark_assumed(launch, _EXAMPLE).facts
    overrides = {
        route: _mark_override_assumed(override) for route, override in launch.overrides.items() if route[0] in _SHARDING
    }
    can_shard = launch.launcher is not None or launch.sharding is not None
    if not facts and not can_shard and not overrides:
        return None
    name = os.path.basename(launch.document.path)
    note = f"an example in `{name}` starts it with a launcher that may shard the model"
    sharding = FieldValue(None, Origin("assumed", note=note)) if can_shard else None
    launcher = None
    if launch.launcher is not None:
        launcher = launch.launcher._replace(assumption=_describe_assumption(launch.launcher, name))
    return Launch(launch.document, launch.number, facts, overrides, launcher, sharding, rendezvous=launch.rendezvous)


def _describe_assumption(launcher: LauncherInput, name: str) -> str:
    """Return the assumption to report for a launcher's input that only an example shows."""
    input_text = f"`{launcher.path}`" if launcher.path is not None else "its options"
    return (
        f"{launcher.framework} is given {input_text}, as an example in `{name}` shows; "
        "start it by its path in a script of the repository to be sure"
    )


def convert_full_example(launch: Launch, reason: str = _EXAMPLE) -> Launch:
    """Return a launch with all facts and overrides assumed, for an example of a Python script or a YAML job."""
    facts = mark_assumed(launch, reason).facts
    return launch._replace(
        facts=facts, overrides={route: _mark_override_assumed(override) for route, override in launch.overrides.items()}
    )


def convert_generic(launch: Launch, main: Config) -> Launch:
    """Return the launch of a script that takes any file as its argument, as the launch of `main`, all assumed.

    What the script leaves open is no evidence about this file: facts are dropped, and settings keep the file's values.
    Settings that shard the model stay unknown, because their files may be for other models.
    """
    marked = mark_assumed(launch, "which takes its file as an argument")
    overrides = {
        route: _keep_file_value(override, main.get_value(*route)) if _is_open(route, override) else override
        for route, override in launch.overrides.items()
    }
    facts = {name: value for name, value in marked.facts.items() if value.value is not None}
    return marked._replace(facts=facts, overrides=overrides)


def _is_open(route: Route, override: Override) -> bool:
    return isinstance(override.value, Unknown) and not override.value.path and route[0] not in _SHARDING


def _keep_file_value(override: Override, value: Any) -> Override:
    """Return an override with the file's own value, or the override itself if the file has no plain value."""
    if value is MISSING or value is None or isinstance(value, (Unknown, dict, list)):
        return override
    origin = override.origin
    line = "" if origin.place is None else f":{origin.place.document.locate(origin.place.span.start).line}"
    note = f"`{origin.key}` is {value}, as the file states; {origin.note}{line} may replace it"
    return Override(value, origin._replace(assumption=note))


def _mark_override_assumed(override: Override) -> Override:
    origin = override.origin
    line = "" if origin.place is None else f":{origin.place.document.locate(origin.place.span.start).line}"
    note = f"the value of `{origin.key}` from {origin.note}{line}; another launch may set a different one"
    return Override(override.value, origin._replace(assumption=origin.assumption or note))


def _describe_fact(name: str, value: Any) -> str:
    """Return a cluster fact as text."""
    if name in ("nodes", "gpus-per-node"):
        return format_count(value, "node") if name == "nodes" else f"{format_count(value, 'GPU')} per node"
    if name == "visible-gpus":
        return f"{format_count(value, 'visible GPU')} per node"
    return f"the GPU {value}" if name == "gpu" else f"{value} of host memory"


def _format_source(value: FieldValue, folder: bool = False) -> str:
    """Return the script and line that state a fact, with the script's folder if `folder` is true."""
    place = value.origin.place
    if place is None:
        return value.origin.note
    parent = os.path.basename(os.path.dirname(place.document.path)) if folder else ""
    return f"{os.path.join(parent, value.origin.note)}:{place.document.locate(place.span.start).line}"


def _build_conflict(overrides: list[Override]) -> Override:
    """Return an override with an unknown value for a setting in which launches differ."""
    origin = overrides[0].origin
    names = tuple(dict.fromkeys(override.origin.note for override in overrides))
    note = f"{' and '.join(names)} differ" if len(names) > 1 else f"launches in {names[0]} differ"
    return Override(Unknown("which of the scripts starts it"), origin._replace(note=note))
