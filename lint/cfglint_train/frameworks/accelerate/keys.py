"""Keys of accelerate's file. A SageMaker file has other keys; values are passed on as text."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.value_parser import extract_enumeration

_PREFIXED_SECTIONS: Final = {"fsdp_config": "fsdp_", "fp8_config": "fp8_"}
"""Sections whose keys become options with a prefix, which the launcher adds to keys that lack it."""
_TOP_LEVEL_OPTIONS: Final = frozenset(
    "debug downcast_bf16 enable_cpu_affinity gpu_ids log_dir machine_rank main_process_ip main_process_port "
    "main_training_function max_restarts mixed_precision monitor_interval no_python num_cpu_threads_per_process "
    "num_machines num_processes rdzv_backend rdzv_conf role same_network".split()
)
"""Options of `accelerate launch` that do not belong to a section."""


class AccelerateKeys(Keys):
    """Key handling of accelerate 1.3.0 to 1.15.0: `BaseConfig` rejects unknown keys at the top level.

    Source: `commands/config/config_args.py`. `commands/launch.py` (_validate_launch_command) turns the keys of
    sections into options (0.26.0 to 1.15.0).
    """

    def list_routes(self, name: str) -> tuple[Route, ...]:
        """Return the routes of a setting: the prefix of its section may be missing."""
        route: Route = tuple(name.split("."))
        prefix = _PREFIXED_SECTIONS.get(str(route[0]))
        if len(route) == 2 and prefix is not None and str(route[1]).startswith(prefix):
            return route, (route[0], str(route[1]).removeprefix(prefix))
        return (route,)

    def find_entry(self, document: Document, root: Route) -> str | None:
        """Return the entry point that parses the file: `sagemaker`, or the default."""
        is_sagemaker = document.get_value((*root, "compute_environment")) == "AMAZON_SAGEMAKER"
        return "sagemaker" if is_sagemaker else self.manifest.default_entry

    def extract_enforced(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        """Return the part of a schema that accelerate enforces: only enumerations, because every value becomes text.

        `distributed_type` also accepts false, which is what YAML reads for a bare `NO`: accelerate converts only
        strings to a DistributedType.
        """
        allowed_words = extract_enumeration(schema)
        if allowed_words is None or name != "distributed_type":
            return allowed_words
        return {"enum": [*allowed_words["enum"], False]}

    def is_fatal(self, route: Route) -> bool:
        """Return whether an unknown key stops accelerate: only at the top level; sections are passed on unread."""
        return len(route) == 1

    def determine_effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """Return the effect of an unknown key: in most sections, a key that names an option of the launcher works."""
        if len(route) == 2 and route[0] not in _PREFIXED_SECTIONS and route[1] in _TOP_LEVEL_OPTIONS:
            return "fine"
        return effect
