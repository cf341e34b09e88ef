"""Settings of a config under the names that clauses use, together with values from its run.

A name with `@` is a field of the run's plan (`@parallel.zero_stage`), or one of the following:

- `@ranks`: the number of GPUs
- `@eval_batch`: the number of sequences in an evaluation step over all GPUs
- `@capability`: the compute capability of the stated GPU; `@cuda`: whether the stated GPU has a compute capability
- `@published`: the quantization in which the model's weights are published, `none` if they are not quantized
- `@heads`, `@positions`: the number of attention heads and of positions of the model
- `@host`: the framework of the run's main config; `@trainer`: whether that framework runs the transformers Trainer
- `@client_optimizer`, `@client_scheduler`: whether a program of the repository passes its own object to DeepSpeed
- `@command`: the command that receives the file (`llamafactory-cli export`), MISSING if none or several do
- `@trained`: whether a program that receives the file may train; true if none is known to receive it
- `@used`: whether a config, a command or a program names the file; true for a file that is no companion
- `@alone`: whether every command that starts the run starts one process on one visible GPU, without a launcher
- `@names`: the frameworks of the companions that the main config names
- `@release`: the effective release for this config
- `@syntax`: the syntax of its file
- `@overridden`: the settings that its launch overrides
- `@main.NAME`: the setting `NAME` of the run's main config

A name with `=` is the value that applies (`=trainer.nnodes`): as given, with interpolations resolved, or by default.
"""

from __future__ import annotations

import re
from collections.abc import Set

from cfglint_rules.vocabulary.effect_by_release import find_candidate_releases
from cfglint_rules.vocabulary.survey import get_context, get_target_release
from cfglint_schemas.status import PRESENT
from cfglint_train.documents.document import MISSING, Route, Unknown
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.models.names import parse_name
from cfglint_train.mutations.mutations import get_mutations
from cfglint_train.plan.fields import get_field
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run

MAIN_PREFIX: Final = "@main."
EFFECTIVE: Final = "="
"""Prefix of a name whose value is the one that applies, given or by default."""
_CLIENT_SECTIONS: Final = {"@client_optimizer": "optimizer", "@client_scheduler": "scheduler"}
"""Name -> section of the DeepSpeed config that configures the same object."""
_PLAIN_PROGRAMS: Final = ("llamafactory-cli", "lmf", "python", "python3")
"""First words of commands that start a single process on a single GPU."""
_DERIVED_NAMES: Final = frozenset(
    (
        "@ranks",
        "@eval_batch",
        "@capability",
        "@cuda",
        "@published",
        "@alone",
        "@heads",
        "@positions",
        "@host",
        "@trainer",
        *_CLIENT_SECTIONS,
        "@command",
        "@trained",
        "@used",
        "@release",
        "@syntax",
        "@overridden",
        "@names",
    )
)
"""Names that are neither keys nor plan fields."""


class Settings:
    """Settings by dotted name from the root, or by flag of the newest release (OpenRLHF); `@` marks other values."""

    __slots__ = ("_given_names", "_keys", "_values", "config", "run")

    def __init__(self, config: Config, run: Run | None = None) -> None:
        """Read the names of the given settings; values are read when first needed."""
        self.config = config
        self.run = run
        self._values: dict[str, Any] = {}
        self._keys = frameworks.load(config.framework).key_lookup
        self._given_names = self._keys.list_given_names(config)

    def get_value(self, name: str) -> Any:
        """Return the plain value of a setting, MISSING if it is not given, or Unknown if it cannot be determined."""
        if name not in self._values:
            self._values[name] = self._read_value(name)
        return self._values[name]

    def list_names(self) -> Set[str] | None:
        """Return the names given at the top level, including sections, or None if flags may be hidden from cfglint."""
        return self._given_names

    def _read_value(self, name: str) -> Any:
        if name == "@release":
            return get_target_release(self.config).release
        if name == "@syntax":
            return self.config.document.syntax
        if name == "@overridden":
            return [format_route(route) for route in self.config.overrides]
        if name == "@command":
            commands = set(self.config.evidence.commands)
            return commands.pop() if len(commands) == 1 else MISSING
        if name == "@trained":
            return _can_train(self.config.evidence.commands)
        if name == "@used":
            return self._is_used()
        if name.startswith(MAIN_PREFIX):
            main = None if self.run is None else Settings(self.run.main, self.run)
            return Unknown("the run") if main is None else main.get_value(name.removeprefix(MAIN_PREFIX))
        if name in _CLIENT_SECTIONS:
            is_main = self.run is None or self.run.main is self.config
            return is_main and get_mutations(self.config).has_client_object(_CLIENT_SECTIONS[name])
        if name.startswith("@"):
            return Unknown("the run") if self.run is None else _read_run_value(self.run, name)
        if name.startswith(EFFECTIVE):
            return self._keys.resolve_setting(self.config, name.removeprefix(EFFECTIVE))
        if (
            self._given_names is not None
            and not name.startswith("-")
            and name.partition(".")[0] not in self._given_names
        ):
            return self._read_missing_value(name)
        route = self.find_route(name)
        if route is None:
            is_hidden = self._given_names is None and name.startswith("-")
            return Unknown("flags out of sight") if is_hidden else self._read_missing_value(name)
        value = self.config.get_value(*route)
        if isinstance(value, str) and ("${" in value or value.startswith("{{")):
            return Unknown(value)  # a placeholder that is filled in later
        return _parse_number(value) if isinstance(value, str) and name.startswith("-") else value

    def _read_missing_value(self, name: str) -> Any:
        """Return MISSING, or Unknown if bash cuts the option off the command (SYN007 reports that)."""
        is_shell = self.config.document.syntax == "shell"
        is_cut_off = is_shell and name.lstrip("-") in self.config.compute_once(_list_cut_off)
        return Unknown("cut off by bash") if is_cut_off else MISSING

    def _is_used(self) -> bool:
        """Return whether a config, a command or a program names the file; True for a file that is no companion."""
        is_orphan = self.config.role == "companion" and self.run is not None and self.run.main is self.config
        return not is_orphan or bool(self.config.evidence.commands) or get_mutations(self.config).is_named()

    def find_route(self, name: str) -> Route | None:
        """Return the route at which a setting is given in any of its spellings, or None if it is not given."""
        return self._keys.find_route(self.config, name.removeprefix(EFFECTIVE))

    def find_home(self, name: str) -> Route:
        """Return the route at which a setting is given, or else the route at which it would be written."""
        return self.find_route(name) or self._keys.choose_route(self.config, name.removeprefix(EFFECTIVE))

    def is_missing(self, name: str) -> bool:
        """Return whether a setting is not given or a plan field has no place; False for the other `@` names."""
        if name.startswith(EFFECTIVE):
            return self.find_route(name) is None
        if not name.startswith("@") or name.startswith(MAIN_PREFIX):
            return self.get_value(name) is MISSING
        return name not in _DERIVED_NAMES and self.find_place(name) is None

    def has_varying_default(self, name: str) -> bool:
        """Return whether a default applies that is not the same at every candidate release."""
        if not name.startswith(EFFECTIVE) or self.find_route(name) is not None:
            return False
        releases = find_candidate_releases(self.config).releases
        return (
            len({repr(self._keys.find_default(self.config, name.removeprefix(EFFECTIVE), item)) for item in releases})
            > 1
        )

    def is_unknown_to_copy(self, name: str) -> bool:
        """Return whether the config uses a copy of the framework that lacks the setting."""
        vocabulary = self.config.evidence.vocabulary
        if vocabulary is None or name.startswith("@"):
            return False
        fact = vocabulary.find_fact(
            self.find_home(name), get_target_release(self.config).release, get_context(self.config)
        )
        return fact is None or fact.resolve_status().kind != PRESENT

    def format_name(self, name: str) -> str:
        """Return the name of a setting as the config spells it."""
        return format_route(self.find_home(name))

    def find_place(self, name: str) -> Place | None:
        """Return the place of a setting, or None if it has none.

        The place is the override in a launch, else the key in the file; for a plan field, its origin.
        """
        if name in _DERIVED_NAMES:
            return None
        if name.startswith(MAIN_PREFIX):
            return None if self.run is None else Settings(self.run.main).find_place(name.removeprefix(MAIN_PREFIX))
        if name.startswith("@"):
            origin = None if self.run is None else self.run.get_origin(get_field(name[1:]))
            return None if origin is None else origin.place
        route = self.find_route(name)
        override_route = None if route is None else self.config.find_override(route)
        if override_route is not None and (place := self.config.overrides[override_route].origin.place) is not None:
            return place
        entry = None if route is None else self.config.get_entry(*route)
        if entry is None:
            return None
        document, span = self.config.document.locate_entry(entry)
        return Place(document, entry.key.span if document is self.config.document else span)


def _list_cut_off(config: Config) -> frozenset[str]:
    """Return the options that bash runs as commands of their own, without dashes."""
    from cfglint_train.documents.shell.cuts import find_detached_options
    from cfglint_train.documents.shell.script import ShellScript

    script, number = config.document, config.root[0] if config.root else None
    if not isinstance(script, ShellScript) or not isinstance(number, int):
        return frozenset()
    return frozenset(
        word.text.lstrip("-").partition("=")[0]
        for command in find_detached_options(script, script.invocations[number])
        for word in (*command.head, *command.words)
        if word.text.startswith("--")
    )


def _can_train(commands: tuple[str, ...]) -> bool:
    """Return whether any of the commands may train; True if there are none."""
    if not commands:
        return True
    from cfglint_train.frameworks.registry import list_frameworks
    from cfglint_train.launches.entries import Program, can_train  # slow import: it parses bash

    train_command = re.compile(
        "|".join(
            rf"(?:{framework.training_pattern})(?!\S)"
            for framework in list_frameworks().values()
            if framework.training_pattern
        )
    )
    return any(
        train_command.match(command) or can_train(Program(command.split()[0], ".py" in command)) for command in commands
    )


def _parse_number(word: str) -> Any:
    """Return a word of a command line as a number, or unchanged if it is not numeric."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word


# --- values from the run ---------------------------------------------------------------------------------------------


def _count_ranks(run: Run) -> Any:
    fields: tuple[Field, ...] = ("launch.nodes", "launch.gpus_per_node")
    origins = [run.get_origin(field) for field in fields]
    if any(origin is None or origin.kind == "assumed" for origin in origins):
        return Unknown("the number of GPUs")
    counts = [run.plan.get(field) for field in fields]
    return counts[0] * counts[1] if all(isinstance(count, int) for count in counts) else Unknown("the number of GPUs")


def _compute_eval_batch(run: Run) -> Any:
    ranks, per_rank = _count_ranks(run), run.plan.batch.eval_micro
    return Unknown("the evaluation's batch") if isinstance(ranks, Unknown) or per_rank is None else ranks * per_rank


def _get_capability(run: Run) -> Any:
    capability = None if run.hardware.gpu_origin.kind == "assumed" else run.hardware.compute_capability
    return Unknown("the GPU") if capability is None else capability


def _has_cuda(run: Run) -> Any:
    is_known = run.hardware.gpu is not None and run.hardware.gpu_origin.kind != "assumed"
    return run.hardware.compute_capability is not None if is_known else Unknown("the GPU")


def _find_published_quantization(run: Run) -> Any:
    if run.architecture is not None:
        return run.architecture.quantization or "none"
    model_id = run.plan.model.id
    quantization = None if model_id is None else parse_name(model_id).quantization
    return quantization or Unknown("the model's weights")


def _is_alone(run: Run) -> Any:
    """Return whether every command starts a single process on one visible GPU.

    It is unknown without a command, and if a script mentions torchrun, which a variable may switch on.
    """
    from cfglint_train.documents.shell.document import ShellDocument  # slow import: it parses bash

    visible = run.get_origin("launch.visible_gpus")
    if not run.main.launches or visible is None or visible.assumption or run.plan.launch.visible_gpus != 1:
        return Unknown("the command")
    is_plain = all(
        isinstance(script, ShellDocument)
        and script.invocations[number].parent is None
        and script.invocations[number].head[0].text in _PLAIN_PROGRAMS
        and b"torchrun" not in script.source.lower()
        for script, number in run.main.launches
    )
    return is_plain or Unknown("the command")


def _read_run_value(run: Run, name: str) -> Any:
    if name == "@ranks":
        return _count_ranks(run)
    if name == "@eval_batch":
        return _compute_eval_batch(run)
    if name == "@capability":
        return _get_capability(run)
    if name == "@cuda":
        return _has_cuda(run)
    if name == "@published":
        return _find_published_quantization(run)
    if name == "@alone":
        return _is_alone(run)
    if name in ("@heads", "@positions"):
        model = run.architecture
        value = None if model is None else model.heads if name == "@heads" else model.context
        return value or Unknown("the model")
    if name == "@host":
        return run.main.framework
    if name == "@names":
        return [reference.framework for reference in run.framework.references(run.main)]
    if name == "@trainer":
        return run.framework.traits.runs_trainer
    value = run.plan.get(get_field(name[1:]))
    return Unknown(name[1:]) if value is None else value
