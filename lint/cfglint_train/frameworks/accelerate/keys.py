"""The keys of accelerate's file: a SageMaker file has other ones, and values are only handed on."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.value_parser import words_of

_PREFIXED: Final = ("fsdp_config", "fp8_config")
"""Sections whose keys become options with a prefix."""
_OPTIONS: Final = frozenset(
    "debug downcast_bf16 enable_cpu_affinity gpu_ids log_dir machine_rank main_process_ip main_process_port "
    "main_training_function max_restarts mixed_precision monitor_interval no_python num_cpu_threads_per_process "
    "num_machines num_processes rdzv_backend rdzv_conf role same_network".split()
)
"""Options of `accelerate launch` that belong to no section."""


class AccelerateKeys(Keys):
    """accelerate 1.3.0 to 1.15.0 (`commands/config/config_args.py`): `BaseConfig` refuses unknown keys at the top.

    What is below, `commands/launch.py` (_validate_launch_command) sets as options (0.26.0 to 1.15.0).
    """

    def entry(self, document: Document, root: Route) -> str | None:
        """A file for SageMaker has its own keys."""
        hosted = document.value((*root, "compute_environment")) == "AMAZON_SAGEMAKER"
        return "sagemaker" if hosted else self.listed.entry

    def part(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        """Every value becomes text; only enumerations are looked at.

        A bare `NO` is false to YAML: only a string is made a DistributedType, and false compares with none of them.
        """
        words = words_of(schema)
        if words is None or name != "distributed_type":
            return words
        return {"enum": [*words["enum"], False]}

    def stops(self, route: Route) -> bool:
        """What is below the top goes into the environment unread."""
        return len(route) == 1

    def effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """The launcher makes options of all that is in a section: those that it has count there, too."""
        if len(route) == 2 and route[0] not in _PREFIXED and route[1] in _OPTIONS:
            return "fine"
        return effect
