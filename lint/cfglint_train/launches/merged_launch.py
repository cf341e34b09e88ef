"""What all the places come to that start one configuration, and how sure that is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from cfglint_train.documents.document import Route, Unknown
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks.lens import Override
from cfglint_train.launches.launches import Launch, LauncherInput
from cfglint_train.plan.origin import FieldValue, Origin


class MergedLaunch(Frozen):
    """What all the places that start a configuration come to."""

    documents: tuple[ShellDocument, ...]
    facts: Mapping[str, FieldValue]
    """nodes, gpus-per-node, gpu, host-memory. None where two places differ or one of them cannot be determined; what
    only some of them say is assumed.
    """
    conflicts: Mapping[str, tuple[str | int, ...]]
    """The values of the facts in which places differ, in order."""
    overrides: Mapping[Route, Override]
    """What all places give, the value unknown where they differ."""
    launch_overrides: tuple[tuple[Route, Override], ...]
    """What each place gives."""
    invocations: tuple[tuple[ShellDocument, int], ...]
    """The invocations that the file is given to, by their numbers."""
    launchers: tuple[LauncherInput | None, ...]
    """What the launchers of the places are given, each once, in order; None where one is given nothing."""
    sharding: FieldValue | None
    """None as a value where options of a launcher shard the model, in a way that is not read."""
    is_sharding_known: bool
    """No place leaves open how it shards the model."""
    environment: Mapping[str, str]
    """The variables that every place sets to the same."""
    rendezvous: FieldValue | None = None
    """Whether several nodes are given an address at which they meet; None as a value where places differ."""


def merge_launches(launches: Iterable[Launch]) -> MergedLaunch | None:
    """What places come to that start one configuration, in whatever order; None where there are none.

    Two scripts may start the same file on different clusters: what they differ in stays unknown. A setting that only
    some of them lay over the file is as the file has it, which is how the others run it.
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
    """What all places say of an address; a value of None where they do not say the same."""
    stated = next((launch.rendezvous for launch in launches if launch.rendezvous is not None), None)
    same = len({None if launch.rendezvous is None else launch.rendezvous.value for launch in launches}) == 1
    return stated if stated is None or same else stated._replace(value=None)


def _merge_fact(name: str, values: list[FieldValue], launch_count: int) -> FieldValue:
    """A fact that some places state: theirs if they agree and all of them can be determined."""
    first = next((value for value in values if value.value is None), values[0])
    if first.value is None:
        return first
    other = next((value for value in values if value.value != first.value), None)
    if other is not None:
        names = dict.fromkeys((_format_source(first), _format_source(other)))
        if len(names) == 1:  # scripts of one name in two folders
            names = dict.fromkeys((_format_source(first, folder=True), _format_source(other, folder=True)))
        return FieldValue(None, first.origin._replace(note=f"{' and '.join(names)} differ", assumption=""))
    certain = next((value for value in values if not value.origin.assumption), first)
    if len(values) < launch_count and not certain.origin.assumption:
        thing = _describe_fact(name, certain.value)
        note = f"{thing}, as {_format_source(certain)} states, the only one of {launch_count} launches; set `{name}` to be sure"
        return certain._replace(origin=certain.origin._replace(assumption=note))
    return certain


def mark_assumed(launch: Launch, reason: str) -> Launch:
    """A start whose script may be meant for another file: all that it says of the cluster is assumed."""
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
"""Settings that say how the model is sharded."""
_EXAMPLE: Final = "which is an example of how to start it"


def convert_example(launch: Launch) -> Launch | None:
    """A start as an example shows it: the cluster, what its launcher is given and the settings that shard the model as
    assumptions, where its nodes meet, and that the model may be sharded; None where it shows none of these. What else
    it changes in the file is for the example alone.
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
    """What is assumed where an example shows what a launcher is given."""
    input_text = f"`{launcher.path}`" if launcher.path is not None else "its options"
    return (
        f"{launcher.framework} is given {input_text}, as an example in `{name}` shows; "
        "start it by its path in a script of the repository to be sure"
    )


def convert_full_example(launch: Launch, reason: str = _EXAMPLE) -> Launch:
    """A start as an example in the script itself shows it, or as a job has it: with its options, all as assumptions."""
    facts = mark_assumed(launch, reason).facts
    return launch._replace(
        facts=facts, overrides={route: _mark_override_assumed(override) for route, override in launch.overrides.items()}
    )


def _mark_override_assumed(override: Override) -> Override:
    origin = override.origin
    line = "" if origin.place is None else f":{origin.place.document.locate(origin.place.span.start).line}"
    note = f"`{origin.key}` as {origin.note}{line} gives it; another launch may give something else"
    return Override(override.value, origin._replace(assumption=origin.assumption or note))


def _describe_fact(name: str, value: Any) -> str:
    """A fact about the cluster in words."""
    if name in ("nodes", "gpus-per-node"):
        return format_count(value, "node") if name == "nodes" else f"{format_count(value, 'GPU')} per node"
    return f"the card {value}" if name == "gpu" else f"{value} of host memory"


def _format_source(value: FieldValue, folder: bool = False) -> str:
    """The script and the line of a fact, if asked for with the script's folder."""
    place = value.origin.place
    if place is None:
        return value.origin.note
    parent = os.path.basename(os.path.dirname(place.document.path)) if folder else ""
    return f"{os.path.join(parent, value.origin.note)}:{place.document.locate(place.span.start).line}"


def _build_conflict(overrides: list[Override]) -> Override:
    """A setting that places give in different ways."""
    origin = overrides[0].origin
    names = tuple(dict.fromkeys(override.origin.note for override in overrides))
    note = f"{' and '.join(names)} differ" if len(names) > 1 else f"launches in {names[0]} differ"
    return Override(Unknown("which of the scripts starts it"), origin._replace(note=note))
