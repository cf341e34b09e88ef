"""One training job as rules see it: plan, documents, architecture, hardware, releases, estimate.

`assemble` makes it: lenses of the main configuration, then its companions, then what the launch and the user say, then
what is assumed for lack of a statement, then what the framework infers from all that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from math import prod

from cfglint_train.documents.document import Change, Document, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, TypeVar
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework, Job
from cfglint_train.frameworks.lens import Config, Lens, format_route
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.hardware.gpus import parse_capacity
from cfglint_train.memory.budget import Estimate
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan, get_field
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue, Origin, Place
from cfglint_train.plan.reading import ResolvedPlan, merge_plans
from cfglint_train.plan.releases import Releases
from cfglint_train.releases.other_releases import RELEASE, AlternativeDefaults, find_alternative_defaults
from cfglint_train.runs.checkpoint_world_size import find_checkpoint_ranks
from cfglint_train.settings.cluster_facts import VISIBLE_GPU_OPTIONS

if TYPE_CHECKING:
    from cfglint_train.frameworks.launchers import IgnoredFile
    from cfglint_train.launches.shared_output_dir import PreviousLaunch
    from cfglint_train.settings.house_rules import HouseRule

ASSUMED_GPUS: Final = 8
CONVERTER: Final = b"zero_to_fp32"
"""DeepSpeed's program that makes whole weights of the shards of a checkpoint."""
_PARALLEL_DEGREES: Final[tuple[Field, ...]] = (
    "parallel.shard_size",
    "parallel.replicas",
    "parallel.tensor",
    "parallel.pipeline",
    "parallel.context",
)
"""Degrees of which each multiplies the GPUs of a job."""


GPU: Final = "gpu"
"""The card, among the facts of a run that are no plan fields."""

Outcome = TypeVar("Outcome")


class Unresolved(Frozen):
    """A file that a configuration or its launch names, and that is not there, or not in a syntax that is read."""

    framework: str
    path: str
    """As written."""
    place: Place | None
    """Where it is named."""
    similar: tuple[str, ...] = ()
    """Files of the repository whose paths end alike, where several do."""
    is_yaml_refused: bool = False
    """It is there as YAML, and its reader takes only JSON."""


class CorrectedKey(Frozen):
    """A misspelt key, and the one that it is taken for."""

    written: Route
    corrected: Route
    document: Document
    rename: tuple[Change, ...]
    """What puts its value under the right name."""

    @property
    def description(self) -> str:
        """How a report says it."""
        return f"counts `{format_route(self.written)}` as `{format_route(self.corrected)}`"


class RunInputs(Frozen):
    """What a run is assembled from."""

    main: Config
    companions: Mapping[str, Config]
    facts: Mapping[Field, FieldValue]
    """What the user or the launch says of the cluster: plan field -> value (`launch.nodes`, ...)."""
    hardware: Hardware
    releases: Releases
    allowed_folders: tuple[str, ...] = ()
    """The folders that a model's has to be in to be looked at."""
    model_config: Mapping[str, Any] | None = None
    """The object of a `config.json` that the user names for the model, whatever it is called."""
    online: bool = False
    """The Hub may be asked for a model that is unknown here."""
    unresolved: tuple[Unresolved, ...] = ()
    """Files that shape the run and are not there."""
    variants: tuple[Mapping[str, Config], ...] = ()
    """The companions of further launches, where these name other files than `companions` has."""
    conflicts: Mapping[Field, tuple[Any, ...]] = {}
    """The values of facts in which launches differ; such a fact is None."""
    sharding: FieldValue | None = None
    """None as a value where options of a launcher shard the model, in a way that is not read."""
    is_sharding_known: bool | None = None
    """Scripts start the run, and none leaves open how it shards the model: what they do not name, they do not use. None
    where no script starts it.
    """
    is_resumable: bool | None = None
    """Whether the settings ask that its checkpoints allow resuming; None if unstated."""
    house_rules: tuple[HouseRule, ...] = ()
    """The rules of the house that hold for it."""
    corrected_keys: tuple[CorrectedKey, ...] = ()
    """The misspelt keys that count as what they are meant to be."""
    scripts: tuple[Document, ...] = ()
    """The scripts that start it, but for one that is its configuration."""
    ignored_files: tuple[IgnoredFile, ...] = ()
    """Places where a launcher is given the configuration's file and does not read it."""
    previous_launches: tuple[PreviousLaunch, ...] = ()
    """Launches that write into its folder before it does."""
    is_checked_elsewhere: bool = False
    """All its launches give it files of settings that are configurations of runs themselves."""
    hidden_options: str = ""
    """What may give all its launches further options, out of sight."""
    find_refusals: Callable[[Run, Mapping[str, bytes]], frozenset[str]] | None = None
    """What would stop a run with other texts of some files, and does not stop it now: the rules about it are above."""


class Run:
    """One training job."""

    def __init__(
        self,
        inputs: RunInputs,
        stated_plan: ResolvedPlan,
        resolved_plan: ResolvedPlan,
        architecture: Architecture | None,
    ) -> None:
        self.inputs = inputs
        self.stated_plan = stated_plan
        """What lenses, companions and the user say, before inference: the part that a fix must leave alone."""
        self.resolved_plan = resolved_plan
        self.architecture = architecture
        self.plan: Plan = resolved_plan.build_plan()
        self._estimate: Estimate | None = None
        self._made: dict[Callable[[Run], Any], Any] = {}
        self._scenarios: dict[Any, Run] = {}
        self.is_scenario = False
        """It is the run at another admissible value of some fact: how grave a finding is there counts, no fix of it."""
        self.corrected: Run | None = None
        """The run that the rules which estimate have judged: with misspelt keys under their right names."""
        self.model_problem: str | None = None
        """Why the model's own configuration could not be read."""
        self.verdicts: dict[Any, Any] = {}
        """What `verdicts.judge` found out, by its question: several rules ask the same."""

    @property
    def main(self) -> Config:
        """The configuration that the run is named after."""
        return self.inputs.main

    @property
    def framework(self) -> Framework:
        """The main configuration's framework."""
        return frameworks.load(self.main.framework)

    @property
    def hardware(self) -> Hardware:
        """GPU, host and disk, each with its origin."""
        return self.inputs.hardware

    @property
    def releases(self) -> Releases:
        """The releases that the run is checked against."""
        return self.inputs.releases

    @property
    def configs(self) -> tuple[Config, ...]:
        """The main configuration and its companions."""
        return (self.main, *self.companions)

    @property
    def companions(self) -> tuple[Config, ...]:
        """The files and sections that shape the main configuration's run, without those that only replace one."""
        return tuple(config for config in self.inputs.companions.values() if not config.document.is_placeholder)

    @property
    def cluster(self) -> tuple[int | None, int | None]:
        """The stated nodes of the cluster and GPUs of each, None where unstated. The job may take fewer."""
        nodes, gpus = (self.inputs.facts.get(fact) for fact in ("launch.nodes", "launch.gpus_per_node"))
        return None if nodes is None else nodes.value, None if gpus is None else gpus.value

    def find_companion(self, framework: str) -> Config | None:
        """The companion of a framework; None, too, where it only replaces a file."""
        return next((config for config in self.companions if config.framework == framework), None)

    @property
    def is_estimated(self) -> bool:
        """Whether something has asked for the estimate."""
        return self._estimate is not None

    @property
    def estimate(self) -> Estimate:
        """The peaks of every phase."""
        if self._estimate is None:
            from cfglint_train.memory.estimate import estimate

            self._estimate = estimate(self.plan, self.architecture, self.hardware, self.resolved_plan.unreadable_fields)
        return self._estimate

    def replace_fields(self, changes: Mapping[Field, Any]) -> Run:
        """The same job with other values of some plan fields; what follows from them is inferred anew."""
        stated_plan = ResolvedPlan(self.stated_plan.values)
        for field, value in changes.items():
            current = stated_plan.values.get(field)
            stated_plan.put(field, value, current.origin if current is not None else Origin("inferred", note="a fix"))
        return _infer_run(self.inputs, stated_plan, self.architecture)

    def assume_fields(self, notes: Mapping[Field, str]) -> Run:
        """Return the same job with fields that count as assumed, each with how to state it."""
        stated_plan = ResolvedPlan(self.stated_plan.values)
        for field, note in notes.items():
            value, origin = stated_plan.values[field]
            is_user_value = origin.kind == "user"
            stated_plan.put(
                field, value, Origin("assumed", note=note) if is_user_value else origin._replace(assumption=note)
            )
        return _infer_run(self.inputs, stated_plan, self.architecture)

    def find_refusals(self, texts: Mapping[str, bytes]) -> frozenset[str]:
        """Return why other texts of files are refused: they would stop the job, be undone, or change nothing."""
        return frozenset() if self.inputs.find_refusals is None else self.inputs.find_refusals(self, texts)

    def replace_gpu(self, gpu: str) -> Run:
        """The same job on another GPU, by its name or the size of its memory."""
        return self._replace_facts({GPU: gpu})

    def get_origin(self, field: Field) -> Origin | None:
        """Where a field's value comes from."""
        return self.resolved_plan.get_origin(field)

    def is_stated(self, field: Field) -> bool:
        """Whether the configuration or its launch (not a default) says it."""
        return self.resolved_plan.is_stated(field)

    def find_place(self, *fields: Field) -> Place:
        """Where a finding about a field points: where it is stated, else where the first stated one of the others is,
        else the head of the main configuration. What a stand-in states, the setting that names that file states. The
        options of another framework's launcher are no part of the configuration.
        """
        for field in fields:
            origin = self.resolved_plan.get_origin(field)
            if origin is not None and origin.place is not None and not self._is_launcher_option(origin):
                return (
                    self._find_reference(origin.place.document)
                    if origin.place.document.is_placeholder
                    else origin.place
                )
        return self.main.find_top()

    def _is_launcher_option(self, origin: Origin) -> bool:
        """Whether something is stated by an option of a launcher that starts the main configuration."""
        assert origin.place is not None
        return origin.place.document.syntax == "shell" and origin.framework not in ("", self.main.framework)

    def _find_reference(self, document: Document) -> Place:
        """Where the main configuration names a file."""
        references = self.framework.references(self.main)
        places = (self.main.find_place(*reference.route) for reference in references if reference.path == document.path)
        return next(places, None) or self.main.find_top()

    def spell_key(self, field: Field) -> str:
        """The key that states a field, or would state it, for messages."""
        origin, owner = self.resolved_plan.get_origin(field), self.find_owner(field)
        stated_key = origin.key if origin is not None and origin.kind == "explicit" else ""
        if owner is None:
            return stated_key or field
        config, lens = owner
        if stated_key in map(format_route, lens.keys[field]):
            return stated_key
        return " + ".join(map(format_route, lens.find_keys(config, field))) or stated_key or field

    def find_owner(self, field: Field) -> tuple[Config, Lens] | None:
        """The configuration that a field's value comes from, with the lens that writes it there."""
        origin = self.resolved_plan.get_origin(field)
        configs = self.configs
        if origin is not None and origin.framework:
            configs = tuple(config for config in configs if config.framework == origin.framework) or configs
        for config in configs:
            lens = find_lens(config, field)
            if lens is not None:
                return config, lens
        return None

    @property
    def alternative_defaults(self) -> tuple[AlternativeDefaults, ...]:
        """The candidate releases where none is stated and their defaults differ."""
        return self.compute_once(_find_alternative_defaults)

    def compute_once(self, compute: Callable[[Run], Outcome]) -> Outcome:
        """What some work makes of this run, which never changes: done when it is first asked for."""
        if compute not in self._made:
            self._made[compute] = compute(self)
        result: Outcome = self._made[compute]
        return result

    def build_scenario(self, facts: Mapping[str, Any]) -> Run:
        """The same job where some facts (plan fields, `gpu`) have other values; what follows is inferred anew."""
        key = tuple(sorted(facts.items()))
        if key not in self._scenarios:
            self._scenarios[key] = self._replace_facts(facts)
            self._scenarios[key].is_scenario = True
        return self._scenarios[key]

    def _replace_facts(self, facts: Mapping[str, Any]) -> Run:
        inputs, stated_plan = self.inputs, ResolvedPlan(self.stated_plan.values)
        origin = Origin("user", note="another admissible value")
        for fact, value in facts.items():
            if fact == GPU:
                name, size = parse_capacity(value)
                inputs = inputs._replace(hardware=inputs.hardware._replace(gpu=name, gpu_bytes=size, gpu_origin=origin))
            elif fact.startswith(RELEASE):
                self._apply_defaults(stated_plan, fact, value)
            else:
                stated_plan.put(get_field(fact), value, origin)
                for field, implied in _IMPLIED.get((fact, value), {}).items():
                    stated_plan.put(field, implied, origin)
        return _infer_run(inputs, stated_plan, self.architecture)

    def _apply_defaults(self, stated_plan: ResolvedPlan, fact: str, release: str) -> None:
        """Put the defaults of another release in the place of those that count."""
        alternative = next(item for item in self.alternative_defaults if (item.fact, item.release) == (fact, release))
        for field, value in alternative.defaults.items():
            if value is None:
                stated_plan.values.pop(field, None)
            else:
                stated_plan.put(field, value.value, value.origin)


def _find_alternative_defaults(run: Run) -> tuple[AlternativeDefaults, ...]:
    return find_alternative_defaults(run.configs, run.stated_plan)


def find_lens(config: Config, field: Field) -> Lens | None:
    """The lens of a configuration's framework that reads a field; the last one, as the last one wins."""
    lenses = frameworks.load(config.framework).lenses
    return next((lens for lens in reversed(lenses) if field in lens.fields), None)


_SHARDING: Final = (get_field("parallel.strategy"), get_field("parallel.zero_stage"))
_IMPLIED: Final[Mapping[tuple[str, Any], Mapping[Field, Any]]] = {
    ("parallel.strategy", "zero"): {"parallel.zero_stage": 3}
}
"""What another value of a fact comes with: of DeepSpeed, the stage that shards everything."""


def build_run(inputs: RunInputs) -> Run:
    """Make the run of its parts."""
    own_plan = frameworks.read_config(inputs.main)
    architecture, problem = _find_model(inputs, own_plan)
    plans = [
        _adopt_companions(inputs, companions, own_plan, architecture)
        for companions in (inputs.companions, *inputs.variants)
    ]
    plan, conflicts = merge_plans(plans)
    if inputs.sharding is not None and plan.get_origin("parallel.strategy") is None:
        plan.put("parallel.strategy", *inputs.sharding)
    for field, value in inputs.facts.items():
        if field == _GPUS and _has_fewer_processes(inputs, plan, value):
            continue
        plan.put(field, value.value, value.origin)
        conflicts.pop(field, None)
    for missing in inputs.unresolved:
        # What it says of sharding is not known; it is not what holds where no file says anything.
        note = f"{missing.path} is not {'JSON' if missing.is_yaml_refused else 'there'}"
        origin = Origin("explicit", missing.place, note, framework=missing.framework)
        for field in _SHARDING:
            if plan.get_origin(field) is None:
                plan.put(field, None, origin)
    is_converted = any(CONVERTER in script.source for script in inputs.scripts)
    plan.put("checkpoint.converted", is_converted, Origin("inferred", note="the scripts that start it"))
    run = _infer_run(inputs._replace(conflicts={**conflicts, **inputs.conflicts}), plan, architecture)
    ranks = find_checkpoint_ranks(run.resolved_plan, os.path.dirname(inputs.main.document.path), inputs.allowed_folders)
    if ranks is not None:
        plan.put("checkpoint.load_ranks", ranks, Origin("inferred", note="the shards of the checkpoint"))
        run = _infer_run(run.inputs, plan, architecture)
    run.model_problem = problem
    return run


_GPUS: Final[Field] = "launch.gpus_per_node"


def _has_fewer_processes(inputs: RunInputs, plan: ResolvedPlan, offered: FieldValue) -> bool:
    """Whether the launcher's file or option asks for fewer processes than its script has GPUs for, as where an engine
    of vLLM gets the last one.

    Source: accelerate 1.15.0 commands/launch.py (_validate_launch_command): the number is that of the option, else of
    the file, and only without both that of the GPUs in sight.
    """
    requested = plan.values.get(_GPUS)
    if requested is None or requested.value is None or requested.origin.framework not in inputs.companions:
        return False
    is_fewer = offered.value is not None and bool(requested.value < offered.value)
    return is_fewer and offered.origin.key in VISIBLE_GPU_OPTIONS and plan.is_stated(_GPUS)


def _adopt_companions(
    inputs: RunInputs, companions: Mapping[str, Config], own_plan: ResolvedPlan, architecture: Architecture | None
) -> ResolvedPlan:
    """The reading of the main configuration with what its companions add."""
    job = Job(inputs.main, companions, inputs.releases)
    job.plan = ResolvedPlan(own_plan.values)
    job.architecture = architecture
    for name, companion in companions.items():
        companion_framework = frameworks.load(name)
        frameworks.adopt_companion(
            job, frameworks.read_config(companion), companion_framework, frameworks.load(inputs.main.framework)
        )
    return job.plan


def _infer_run(inputs: RunInputs, stated_plan: ResolvedPlan, architecture: Architecture | None) -> Run:
    job = Job(inputs.main, inputs.companions, inputs.releases, inputs.is_sharding_known)
    job.plan = ResolvedPlan(stated_plan.values)
    job.architecture = architecture
    _assume_cluster(job.plan)
    frameworks.load(inputs.main.framework).infer(job)
    return Run(inputs, stated_plan, job.plan, architecture)


def compute_min_gpus(plan: ResolvedPlan) -> int:
    """The GPUs that the stated degrees of parallelism need together."""
    return prod(degree for field in _PARALLEL_DEGREES if isinstance(degree := plan.get(field), int) and degree > 0)


def _assume_cluster(plan: ResolvedPlan) -> None:
    """Where nothing is stated, put eight GPUs per node, and as few nodes as hold the stated degrees of parallelism.

    Of replicas whose size is not stated, each has a node, as by default in OLMo-core. What is stated and cannot be read
    stays unknown.
    """
    unreadable = plan.unreadable_fields
    if "launch.nodes" not in unreadable and plan.get("launch.nodes") is None:
        nodes = -(-compute_min_gpus(plan) // (plan.get("launch.gpus_per_node") or ASSUMED_GPUS))
        if plan.get("parallel.shard_size") is None and "parallel.shard_size" not in unreadable:
            nodes = max(nodes, plan.get("parallel.replicas") or 1)
        note = f"{nodes} node{'s' * (nodes > 1)}; set `nodes` to be sure"
        plan.put("launch.nodes", nodes, Origin("assumed", note=note))
    if "launch.gpus_per_node" not in unreadable and plan.get("launch.gpus_per_node") is None:
        note = f"{ASSUMED_GPUS} GPUs per node; set `gpus-per-node` to be sure"
        plan.put("launch.gpus_per_node", ASSUMED_GPUS, Origin("assumed", note=note))


def _find_model(inputs: RunInputs, plan: ResolvedPlan) -> tuple[Architecture | None, str | None]:
    """The model's shape; without one, what kept its configuration from being read."""
    from cfglint_train.models.find import find_plan_model
    from cfglint_train.models.local import UnreadableModelError

    folder = os.path.dirname(inputs.main.document.path)
    try:
        return find_plan_model(plan.get, folder, inputs.allowed_folders, inputs.model_config, inputs.online), None
    except UnreadableModelError as error:
        return None, str(error)
