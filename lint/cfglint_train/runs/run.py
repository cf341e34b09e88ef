"""Runs as rules see them: plan, documents, architecture, hardware, releases and estimate of one training job.

`build_run` reads the main config and adds its companions, then the facts from the launch and the user. It then assumes
cluster facts that are not stated, and lets the framework infer the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from math import prod

from cfglint_train.documents.document import Change, Document, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal, TypeVar
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework, Job
from cfglint_train.frameworks.lens import Config, Lens, format_route
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.hardware.gpus import parse_capacity
from cfglint_train.memory.budget import Estimate
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.certainty import RELEASE
from cfglint_train.plan.fields import Plan, get_field
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue, Origin, Place
from cfglint_train.plan.reading import ResolvedPlan, merge_plans
from cfglint_train.plan.releases import Releases
from cfglint_train.runs.checkpoint_world_size import find_checkpoint_ranks
from cfglint_train.settings.cluster_facts import VISIBLE_GPU_OPTIONS

if TYPE_CHECKING:
    from cfglint_train.frameworks.launchers import IgnoredFile
    from cfglint_train.launches.shared_output_dir import PreviousLaunch
    from cfglint_train.memory.comparable import OwnRuns
    from cfglint_train.releases.other_releases import AlternativeDefaults
    from cfglint_train.repository.dataset_file import DatasetFile
    from cfglint_train.settings.house_rules import HouseRule

ASSUMED_GPUS: Final = 8
CONVERTER: Final = b"zero_to_fp32"
"""Name of DeepSpeed's script that merges the shards of a checkpoint into full weights."""
_PARALLEL_DEGREES: Final[tuple[Field, ...]] = (
    "parallel.shard_size",
    "parallel.replicas",
    "parallel.tensor",
    "parallel.pipeline",
    "parallel.context",
)
"""Degrees of parallelism whose product is the number of GPUs that a job needs."""


GPU: Final = "gpu"
"""Name of the fact for the GPU, which is not a plan field."""

_MAX_CHANGED: Final = 16
"""Maximum number of changed runs that a run keeps."""

Outcome = TypeVar("Outcome")


class Unresolved(Frozen):
    """A file named by a config or its launch that is missing or has an unsupported syntax."""

    framework: str
    path: str
    """Path as written."""
    place: Place | None
    """Place where the file is named."""
    similar: tuple[str, ...] = ()
    """Files of the repository whose paths end in the same way, if there are several."""
    problem: Literal["missing", "unreadable", "YAML"] = "missing"
    """The file does not exist, cannot be read or parsed, or is YAML although its reader accepts only JSON."""


class CorrectedKey(Frozen):
    """A misspelled key and its correction."""

    written: Route
    corrected: Route
    document: Document
    rename: tuple[Change, ...]
    """Changes that move the value to the correct key."""

    @property
    def description(self) -> str:
        """Note for reports which says that the misspelled key counts as its correction."""
        return f"counts `{format_route(self.written)}` as `{format_route(self.corrected)}`"


class RunInputs(Frozen):
    """Inputs from which a run is built."""

    main: Config
    companions: Mapping[str, Config]
    facts: Mapping[Field, FieldValue]
    """Cluster facts from the user or the launch, by plan field (`launch.nodes`, ...)."""
    hardware: Hardware
    releases: Releases
    allowed_folders: tuple[str, ...] = ()
    """Folders from which the model may be read."""
    model_config: Mapping[str, Any] | None = None
    """Contents of the model's `config.json`, if the user passes it; it replaces a lookup by name."""
    online: bool = False
    """True if an unknown model may be looked up on the Hub."""
    unresolved: tuple[Unresolved, ...] = ()
    """Files that affect the run but are missing or have an unsupported syntax."""
    variants: tuple[Mapping[str, Config], ...] = ()
    """Companions of launches that name other files than those in `companions`."""
    conflicts: Mapping[Field, tuple[Any, ...]] = {}
    """Values of the facts on which launches disagree; the value of such a fact is None."""
    sharding: FieldValue | None = None
    """Origin of launcher options that shard the model in a way that cfglint cannot read; the value is None."""
    is_sharding_known: bool | None = None
    """True if every launch shows all its sharding options, so that sharding which it does not name is off.

    None if no script starts the run.
    """
    is_resumable: bool | None = None
    """True if the settings say that runs must be able to resume, False if they say the opposite, None if unstated."""
    house_rules: tuple[HouseRule, ...] = ()
    """House rules that apply to the run."""
    corrected_keys: tuple[CorrectedKey, ...] = ()
    """Misspelled keys that count as their corrections."""
    scripts: tuple[Document, ...] = ()
    """Scripts that start the run, except a script that is its config."""
    ignored_files: tuple[IgnoredFile, ...] = ()
    """Files that a launcher of the run receives but ignores."""
    previous_launches: tuple[PreviousLaunch, ...] = ()
    """Earlier launches that write to the output folder of the run."""
    dataset_file: DatasetFile | None = None
    """File that describes the data sets of the run, or None if the run reads none or the repository lacks it."""
    is_checked_elsewhere: bool = False
    """True if all launches pass config files that are checked as runs of their own, or if the run is reported as read
    only in part.
    """
    hidden_options: str = ""
    """Source of options that each launch may add but cfglint cannot see; empty if there is none."""
    find_refusals: Callable[[Run, Mapping[str, bytes]], frozenset[str]] | None = None
    """Function behind `Run.find_refusals`, or None; passed in because it calls rules, which import this module."""
    own_runs: Mapping[str, OwnRuns] = {}
    """The user's measured runs of the framework, by class of jobs; they move intervals."""


class Run:
    """One training job."""

    def __init__(
        self,
        inputs: RunInputs,
        stated_plan: ResolvedPlan,
        resolved_plan: ResolvedPlan,
        architecture: Architecture | None,
    ) -> None:
        """Create a run from its resolved plan; use `build_run` instead."""
        self.inputs = inputs
        self.stated_plan = stated_plan
        """Plan as stated by configs, launch and user, before inference. It must not be modified."""
        self.resolved_plan = resolved_plan
        self.architecture = architecture
        self.plan: Plan = resolved_plan.build_plan()
        self._estimate: Estimate | None = None
        self._results: dict[Callable[[Run], Any], Any] = {}
        self._scenarios: dict[Any, Run] = {}
        self._changed: dict[frozenset[tuple[Field, Any]], Run] = {}
        self._refusals: dict[frozenset[tuple[str, bytes]], frozenset[str]] = {}
        self.is_scenario = False
        """True for a copy with another possible value of a fact.

        Only the severity of its findings counts; their fixes are not used.
        """
        self.corrected: Run | None = None
        """Cached run with misspelled keys corrected, for rules that judge an estimate; None until a rule needs it."""
        self.model_problem: str | None = None
        """Reason why the config of the model could not be read, or None."""
        self.verdicts: dict[Any, Any] = {}
        """Cached results of `verdicts.judge`, which several rules share."""

    @property
    def main(self) -> Config:
        """Main config, which gives the run its name."""
        return self.inputs.main

    @property
    def framework(self) -> Framework:
        """Framework of the main config."""
        return frameworks.load(self.main.framework)

    @property
    def hardware(self) -> Hardware:
        """GPU, host and disk, each with its origin."""
        return self.inputs.hardware

    @property
    def releases(self) -> Releases:
        """Releases against which the run is checked."""
        return self.inputs.releases

    @property
    def configs(self) -> tuple[Config, ...]:
        """Main config and its companions."""
        return (self.main, *self.companions)

    @property
    def companions(self) -> tuple[Config, ...]:
        """Companion files and sections that affect the run, without placeholders for missing files."""
        return tuple(config for config in self.inputs.companions.values() if not config.document.is_placeholder)

    @property
    def cluster(self) -> tuple[int | None, int | None]:
        """Stated nodes and GPUs per node of the cluster, each None if unstated. The job may use fewer."""
        nodes, gpus = (self.inputs.facts.get(fact) for fact in ("launch.nodes", "launch.gpus_per_node"))
        return None if nodes is None else nodes.value, None if gpus is None else gpus.value

    def find_companion(self, framework: str) -> Config | None:
        """Return the companion of a framework, or None if there is none or it is a placeholder for a missing file."""
        return next((config for config in self.companions if config.framework == framework), None)

    @property
    def is_estimated(self) -> bool:
        """True if the estimate has been computed."""
        return self._estimate is not None

    @property
    def is_training_run(self) -> bool:
        """True if the main config is a job of its own. A companion file alone states too little for a verdict."""
        return self.main.role == "main" and not self.framework.is_companion

    @property
    def resumes(self) -> bool:
        """True if the files make the run load a checkpoint, rather than a framework look for one by default."""
        checkpoint = self.plan.checkpoint
        latest = checkpoint.resume_latest and self.is_stated("checkpoint.resume_latest")
        return bool(latest) or checkpoint.load_path is not None

    @property
    def estimate(self) -> Estimate:
        """Peak memory of every phase; that of resuming on the GPU only if the run `resumes`."""
        if self._estimate is None:
            from cfglint_train.memory.estimate import estimate

            self._estimate = estimate(self.plan, self.architecture, self.hardware, self.resolved_plan.unreadable_fields)
            if not self.resumes:
                self._estimate = self._estimate.drop_gpu("resume")
            if self.inputs.own_runs:
                from cfglint_train.memory.own_runs import apply_own_runs

                self._estimate = apply_own_runs(self._estimate, self.inputs.own_runs)
        return self._estimate

    def replace_fields(self, changes: Mapping[Field, Any]) -> Run:
        """Return the same job with other values of some plan fields; dependent fields are inferred again.

        The last changed runs are kept, because rules and searches ask for the same changes. A long search asks for
        thousands.
        """
        key = frozenset(changes.items())
        changed = self._changed.get(key)
        if changed is None:
            if len(self._changed) >= _MAX_CHANGED:
                self._changed.clear()
            changed = self._changed[key] = self._build_changed(changes)
        return changed

    def forget_variants(self) -> None:
        """Free the changed runs, scenarios and refused texts, which are rarely needed after the rules have run."""
        self._changed.clear()
        self._scenarios.clear()
        self._refusals.clear()
        if self.corrected is not None and self.corrected is not self:
            self.corrected.forget_variants()

    def _build_changed(self, changes: Mapping[Field, Any]) -> Run:
        stated_plan = ResolvedPlan(self.stated_plan.values)
        for field, value in self._add_copies(changes).items():
            current = stated_plan.values.get(field)
            stated_plan.put(field, value, current.origin if current is not None else Origin("user", note="a fix"))
        return _infer_run(self.inputs, stated_plan, self.architecture)

    def _add_copies(self, changes: Mapping[Field, Any]) -> Mapping[Field, Any]:
        """Return changes with those of the fields whose settings copy a changed setting."""
        stated, copies = self.stated_plan.values, self.compute_once(_list_copies)
        result, pending = dict(changes), list(changes) if copies else []
        while pending:
            field = pending.pop()
            if field not in stated:
                continue
            value, origin = stated[field]
            for copy in copies.get((origin.framework, origin.key), ()):
                if copy not in result and stated[copy].value == value:
                    result[copy] = result[field]
                    pending.append(copy)
        return result

    def assume_fields(self, notes: Mapping[Field, str]) -> Run:
        """Return the same job with some stated fields marked as assumed, each with a note."""
        stated_plan = ResolvedPlan(self.stated_plan.values)
        for field, note in notes.items():
            value, origin = stated_plan.values[field]
            is_user_value = origin.kind == "user"
            stated_plan.put(
                field, value, Origin("assumed", note=note) if is_user_value else origin._replace(assumption=note)
            )
        return _infer_run(self.inputs, stated_plan, self.architecture)

    def find_refusals(self, texts: Mapping[str, bytes]) -> frozenset[str]:
        """Return the reasons against writing `texts` to their files, or an empty set.

        A reason is that the job would stop, that the texts change nothing, or that a rule would change them back.
        """
        if self.inputs.find_refusals is None:
            return frozenset()
        key = frozenset(texts.items())
        if key not in self._refusals:
            self._refusals[key] = self.inputs.find_refusals(self, texts)
        return self._refusals[key]

    def replace_gpu(self, gpu: str) -> Run:
        """Return the same job on another GPU, given by its name or memory size."""
        return self._replace_facts({GPU: gpu})

    def get_origin(self, field: Field) -> Origin | None:
        """Return the origin of a field's value, or None."""
        return self.resolved_plan.get_origin(field)

    def is_stated(self, field: Field) -> bool:
        """Return whether the config or its launch sets a field, rather than a default."""
        return self.resolved_plan.is_stated(field)

    def find_place(self, *fields: Field) -> Place:
        """Return the position to which a finding about `fields` points.

        It is the position of the first field with a known position, else the top of the main config. For a value from a
        placeholder of a missing file, it is the key that names the file. Options of another framework's launcher do not
        count.
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
        """Return whether a value comes from an option of another framework's launcher."""
        assert origin.place is not None
        return origin.place.document.syntax == "shell" and origin.framework not in ("", self.main.framework)

    def _find_reference(self, document: Document) -> Place:
        """Return the position at which the main config names the file of a document, else the top of the config."""
        references = self.framework.references(self.main)
        places = (self.main.find_place(*reference.route) for reference in references if reference.path == document.path)
        return next(places, None) or self.main.find_top()

    def spell_key(self, field: Field) -> str:
        """Return the key that sets or could set a field, for messages, or the field's name if there is no key."""
        origin, owner = self.resolved_plan.get_origin(field), self.find_owner(field)
        stated_key = origin.key if origin is not None and origin.kind == "explicit" else ""
        if owner is None:
            return stated_key or field
        config, lens = owner
        if stated_key in map(format_route, lens.keys[field]):
            return stated_key
        return " + ".join(map(format_route, lens.find_keys(config, field))) or stated_key or field

    def find_owner(self, field: Field) -> tuple[Config, Lens] | None:
        """Return the config that sets or could set a field, and the lens that writes it there, or None."""
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
        """Candidate releases whose defaults differ from those of the effective release."""
        return self.compute_once(_find_alternative_defaults)

    def compute_once(self, compute: Callable[[Run], Outcome]) -> Outcome:
        """Return the cached result of `compute` for this run; the cache is valid because a run never changes."""
        if compute not in self._results:
            self._results[compute] = compute(self)
        result: Outcome = self._results[compute]
        return result

    def build_scenario(self, facts: Mapping[str, Any]) -> Run:
        """Return the same job with other values of some facts (plan fields, `gpu`, releases); infer the rest again."""
        key = tuple(sorted(facts.items()))
        if key not in self._scenarios:
            self._scenarios[key] = self._replace_facts(facts)
            self._scenarios[key].is_scenario = True
        return self._scenarios[key]

    def _replace_facts(self, facts: Mapping[str, Any]) -> Run:
        inputs, stated_plan = self.inputs, ResolvedPlan(self.stated_plan.values)
        origin = Origin("user", note="another possible value")
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
        """Replace the current defaults in `stated_plan` by those of another release."""
        alternative = next(item for item in self.alternative_defaults if (item.fact, item.release) == (fact, release))
        for field, value in alternative.defaults.items():
            if value is None:
                stated_plan.values.pop(field, None)
            else:
                stated_plan.put(field, value.value, value.origin)


def _find_alternative_defaults(run: Run) -> tuple[AlternativeDefaults, ...]:
    from cfglint_train.releases.other_releases import find_alternative_defaults  # few runs have several candidates

    return find_alternative_defaults(run.configs, run.stated_plan)


def find_lens(config: Config, field: Field) -> Lens | None:
    """Return the last lens of a config's framework that reads a field, which takes precedence, or None."""
    lenses = frameworks.load(config.framework).lenses
    return next((lens for lens in reversed(lenses) if field in lens.fields), None)


_SHARDING: Final = (get_field("parallel.strategy"), get_field("parallel.zero_stage"))
_IMPLIED: Final[Mapping[tuple[str, Any], Mapping[Field, Any]]] = {
    ("parallel.strategy", "zero"): {"parallel.zero_stage": 3},
    ("parallel.strategy", "fsdp2"): {"parallel.wrapping": "block"},
}
"""Fields that a scenario value of a fact implies: the ZeRO stage that shards everything, the wrapping of each layer."""


def build_run(inputs: RunInputs) -> Run:
    """Build a run from its inputs."""
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
        if (field == _GPUS and _has_fewer_processes(inputs, plan, value)) or _is_set_by_job(inputs, plan, field):
            continue
        plan.put(field, value.value, value.origin)
        conflicts.pop(field, None)
    for missing in inputs.unresolved:
        # The missing file may set sharding, so the default without any file does not apply.
        note = f"{missing.path} is {missing.problem}"
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


def _list_copies(run: Run) -> dict[tuple[str, str], list[Field]]:
    """Return the fields whose settings copy another setting, by its framework and key."""
    copies: dict[tuple[str, str], list[Field]] = {}
    for field, (_, origin) in run.stated_plan.values.items():
        if origin.follows:
            copies.setdefault((origin.framework, origin.follows), []).append(field)
    return copies


_GPUS: Final[Field] = "launch.gpus_per_node"


def _is_set_by_job(inputs: RunInputs, plan: ResolvedPlan, field: Field) -> bool:
    """Return whether the options of a job set the size of the group that trains, whatever the size of the cluster."""
    uses_all_gpus = frameworks.load(inputs.main.framework).launch_interface.uses_all_launched_gpus
    is_size = field in ("launch.nodes", _GPUS)
    return is_size and plan.get(field) is not None and not uses_all_gpus(inputs.main)


def _has_fewer_processes(inputs: RunInputs, plan: ResolvedPlan, offered: FieldValue) -> bool:
    """Return whether the launcher's file or option requests fewer processes than there are visible GPUs.

    An example is a launch that leaves the last GPU to a vLLM engine. Source: accelerate 1.15.0 commands/launch.py
    (_validate_launch_command): the option determines the number, else the file, else the number of visible GPUs.
    """
    requested = plan.values.get(_GPUS)
    if requested is None or requested.value is None or requested.origin.framework not in inputs.companions:
        return False
    is_fewer = offered.value is not None and bool(requested.value < offered.value)
    return is_fewer and offered.origin.key in VISIBLE_GPU_OPTIONS and plan.is_stated(_GPUS)


def _adopt_companions(
    inputs: RunInputs, companions: Mapping[str, Config], own_plan: ResolvedPlan, architecture: Architecture | None
) -> ResolvedPlan:
    """Return the plan of the main config with the fields that its companions add."""
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
    """Return the minimum number of GPUs that the stated degrees of parallelism need."""
    return prod(degree for field in _PARALLEL_DEGREES if isinstance(degree := plan.get(field), int) and degree > 0)


def _assume_cluster(plan: ResolvedPlan) -> None:
    """Assume eight GPUs per node, and the fewest nodes that the stated parallelism needs, unless they are stated.

    Replicas of unstated size get one node each, which is OLMo-core's default. A stated value that cannot be read stays
    unknown.
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
    """Return the model's architecture or None, and the reason if its config could not be read."""
    from cfglint_train.models.find import find_plan_model
    from cfglint_train.models.local import UnreadableModelError

    folder = os.path.dirname(inputs.main.document.path)
    try:
        return find_plan_model(plan.get, folder, inputs.allowed_folders, inputs.model_config, inputs.online), None
    except UnreadableModelError as error:
        return None, str(error)
