"""What all the places come to that start one configuration, and how sure that is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from cfglint_train.documents.document import Route, Unknown
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import counted
from cfglint_train.frameworks.lens import Override
from cfglint_train.launches.launches import Launch, LauncherGiven
from cfglint_train.plan.origin import Origin, Value


class MergedLaunch(Frozen):
    """What all the places that start a configuration come to."""

    documents: tuple[ShellDocument, ...]
    facts: Mapping[str, Value]
    """nodes, gpus-per-node, gpu, host-memory. None where two places differ or one of them cannot be determined; what
    only some of them say is assumed.
    """
    others: Mapping[str, tuple[str | int, ...]]
    """The values of the facts in which places differ, in order."""
    overrides: Mapping[Route, Override]
    """What all places give, the value unknown where they differ."""
    given: tuple[tuple[Route, Override], ...]
    """What each place gives."""
    places: tuple[tuple[ShellDocument, int], ...]
    """The invocations that the file is given to, by their numbers."""
    launchers: tuple[LauncherGiven | None, ...]
    """What the launchers of the places are given, each once, in order; None where one is given nothing."""
    sharding: Value | None
    """None as a value where options of a launcher shard the model, in a way that is not read."""
    known: bool
    """No place leaves open how it shards the model."""
    environment: Mapping[str, str]
    """The variables that every place sets to the same."""
    meets: Value | None = None
    """Whether several nodes are given an address at which they meet; None as a value where places differ."""


def together(places: Iterable[Launch]) -> MergedLaunch | None:
    """What places come to that start one configuration, in whatever order; None where there are none.

    Two scripts may start the same file on different clusters: what they differ in stays unknown. A setting that only
    some of them lay over the file is as the file has it, which is how the others run it.
    """
    starts = sorted(places, key=lambda one: one.document.path)
    if not starts:
        return None
    facts: dict[str, Value] = {}
    others: dict[str, tuple[str | int, ...]] = {}
    for name in dict.fromkeys(name for start in starts for name in start.facts):
        given = [start.facts[name] for start in starts if name in start.facts]
        facts[name] = _one_of(name, given, len(starts))
        values = dict.fromkeys(one.value for one in given)
        if len(values) > 1 and None not in values:
            others[name] = tuple(sorted(values, key=lambda value: (isinstance(value, str), value)))
    first, *further = starts
    overrides = {
        route: override._replace(given=None if further else override.given)
        if all(one.overrides[route].value == override.value for one in further)
        else _differing([one.overrides[route] for one in starts])
        for route, override in first.overrides.items()
        if all(route in one.overrides for one in further)
    }
    launchers = {None if start.launcher is None else start.launcher.order: start.launcher for start in starts}
    ordered = [launchers[key] for key in sorted(launchers, key=lambda key: (key is None, key or ()))]
    laid = tuple(pair for start in starts for pair in start.overrides.items())
    documents = dict.fromkeys(start.document for start in starts)
    invoked = tuple(dict.fromkeys((start.document, start.number) for start in starts))
    known = all(start.known for start in starts)
    sharding = next((start.sharding for start in starts if start.sharding is not None), None)
    environment = dict(set.intersection(*(set(start.environment.items()) for start in starts)))
    meets = _meets(starts)
    return MergedLaunch(
        tuple(documents), facts, others, overrides, laid, invoked, tuple(ordered), sharding, known, environment, meets
    )


def _meets(starts: list[Launch]) -> Value | None:
    """What all places say of an address; a value of None where they do not say the same."""
    stated = next((start.meets for start in starts if start.meets is not None), None)
    same = len({None if start.meets is None else start.meets.value for start in starts}) == 1
    return stated if stated is None or same else stated._replace(value=None)


def _one_of(name: str, given: list[Value], places: int) -> Value:
    """A fact that some places state: theirs if they agree and all of them can be determined."""
    first = next((one for one in given if one.value is None), given[0])
    if first.value is None:
        return first
    other = next((one for one in given if one.value != first.value), None)
    if other is not None:
        names = dict.fromkeys((_where(first), _where(other)))
        if len(names) == 1:  # scripts of one name in two folders
            names = dict.fromkeys((_where(first, folder=True), _where(other, folder=True)))
        return Value(None, first.origin._replace(note=f"{' and '.join(names)} differ", assumed=""))
    certain = next((one for one in given if not one.origin.assumed), first)
    if len(given) < places and not certain.origin.assumed:
        thing = _thing(name, certain.value)
        note = f"{thing}, as {_where(certain)} states, the only one of {places} launches; set `{name}` to be sure"
        return certain._replace(origin=certain.origin._replace(assumed=note))
    return certain


def supposed(start: Launch, why: str) -> Launch:
    """A start whose script may be meant for another file: all that it says of the cluster is assumed."""
    return start._replace(facts={name: _supposed(name, value, why) for name, value in start.facts.items()})


def _supposed(name: str, value: Value, why: str) -> Value:
    if value.value is None:
        return value
    thing = _thing(name, value.value)
    note = f"{thing}, as {_where(value)} states{why and f', {why}'}; set `{name}` to be sure"
    return value._replace(origin=value.origin._replace(assumed=note))


_SHARDING: Final = ("deepspeed", "fsdp", "fsdp_config")
"""Settings that say how the model is sharded."""
_EXAMPLE: Final = "which is an example of how to start it"


def shown(start: Launch) -> Launch | None:
    """A start as an example shows it: the cluster, what its launcher is given and the settings that shard the model as
    assumptions, where its nodes meet, and that the model may be sharded; None where it shows none of these. What else
    it changes in the file is for the example alone.
    """
    facts = supposed(start, _EXAMPLE).facts
    overrides = {route: _exemplary(one) for route, one in start.overrides.items() if route[0] in _SHARDING}
    shards = start.launcher is not None or start.sharding is not None
    if not facts and not shards and not overrides:
        return None
    name = os.path.basename(start.document.path)
    note = f"an example in `{name}` starts it with a launcher that may shard the model"
    sharding = Value(None, Origin("assumed", note=note)) if shards else None
    launcher = None
    if start.launcher is not None:
        launcher = start.launcher._replace(assumed=_launched_as(start.launcher, name))
    return Launch(start.document, start.number, facts, overrides, launcher, sharding, meets=start.meets)


def _launched_as(launcher: LauncherGiven, name: str) -> str:
    """What is assumed where an example shows what a launcher is given."""
    given = f"`{launcher.path}`" if launcher.path is not None else "its options"
    return (
        f"{launcher.framework} is given {given}, as an example in `{name}` shows; "
        "start it by its path in a script of the repository to be sure"
    )


def shown_whole(start: Launch, why: str = _EXAMPLE) -> Launch:
    """A start as an example in the script itself shows it, or as a job has it: with its options, all as assumptions."""
    facts = supposed(start, why).facts
    return start._replace(facts=facts, overrides={route: _exemplary(one) for route, one in start.overrides.items()})


def _exemplary(override: Override) -> Override:
    origin = override.origin
    line = "" if origin.place is None else f":{origin.place.document.position(origin.place.span.start).line}"
    note = f"`{origin.key}` as {origin.note}{line} gives it; another launch may give something else"
    return Override(override.value, origin._replace(assumed=origin.assumed or note))


def _thing(name: str, value: Any) -> str:
    """A fact about the cluster in words."""
    if name in ("nodes", "gpus-per-node"):
        return counted(value, "node") if name == "nodes" else f"{counted(value, 'GPU')} per node"
    return f"the card {value}" if name == "gpu" else f"{value} of host memory"


def _where(value: Value, folder: bool = False) -> str:
    """The script and the line of a fact, if asked for with the script's folder."""
    place = value.origin.place
    if place is None:
        return value.origin.note
    above = os.path.basename(os.path.dirname(place.document.path)) if folder else ""
    return f"{os.path.join(above, value.origin.note)}:{place.document.position(place.span.start).line}"


def _differing(overrides: list[Override]) -> Override:
    """A setting that places give in different ways."""
    origin = overrides[0].origin
    names = tuple(dict.fromkeys(one.origin.note for one in overrides))
    note = f"{' and '.join(names)} differ" if len(names) > 1 else f"launches in {names[0]} differ"
    return Override(Unknown("which of the scripts starts it"), origin._replace(note=note))
