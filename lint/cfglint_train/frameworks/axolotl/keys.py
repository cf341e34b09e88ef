"""Keys of axolotl's file: its own, and those of the plugins that the file loads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from cfglint_schemas.status import Context, is_loaded
from cfglint_train.documents.document import Append, Change, Delete, Document, Route, Set
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.frameworks.axolotl.settings import CCE_PLUGIN, LIGER_PLUGIN, is_sharegpt
from cfglint_train.frameworks.evidence import ForkTrace
from cfglint_train.frameworks.hf_trainer.fsdp import list_fsdp_routes
from cfglint_train.frameworks.keys import KeyRewrite, Keys, LauncherOption
from cfglint_train.frameworks.lens import Config

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_TRAIN_COMMAND: Final = re.compile(r"axolotl (?:train|preprocess)\b|axolotl\.cli\.")
_LOSS_KEYS: Final = ("liger_fused_linear_cross_entropy", "liger_cross_entropy", "chunked_cross_entropy")

# accelerate 1.15.0 utils/dataclasses.py (FullyShardedDataParallelPlugin): the FSDP2 settings for each option of `fsdp`.
# Hybrid sharding needs the sizes of its groups, and `no_shard` has no counterpart.
_FSDP2_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "full_shard": {"reshard_after_forward": True},
    "shard_grad_op": {"reshard_after_forward": False},
    "auto_wrap": {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
    "offload": {"offload_params": True},
}


def _convert_to_fsdp2(config: Config) -> KeyRewrite | None:
    """Return the rewrite of FSDP1's list of options as FSDP2 settings, or None if an option has no counterpart."""
    value = config.document.get_value((*config.root, "fsdp"))
    options = value.split() if isinstance(value, str) else value
    if not isinstance(options, list) or any(str(option) not in _FSDP2_SETTINGS for option in options):
        return None
    section = config.get("fsdp_config", default={})
    section = {} if section is None else section
    if not isinstance(section, dict):
        return None
    stated = {str(key).removeprefix("fsdp_") for key in section}
    fsdp2_settings = {key: setting for option in options for key, setting in _FSDP2_SETTINGS[option].items()}
    if "sharding_strategy" in stated:
        fsdp2_settings.pop("reshard_after_forward", None)  # a separate finding converts it
    changes: list[Change] = [Delete((*config.root, "fsdp"))]
    for key, setting in fsdp2_settings.items():
        if key not in stated:
            changes.append(Set((*config.root, "fsdp_config", key), setting))
    return KeyRewrite(
        "unsafe",
        "move the options of fsdp to fsdp_config as FSDP2 settings; weights and optimizer states become 16-bit",
        tuple(changes),
    )


class AxolotlKeys(Keys):
    """Key handling of axolotl 0.4.0 to 0.21.0: pydantic drops unknown keys.

    Source: `utils/schemas/`, `integrations/config.py`.
    """

    # core/builders/base.py of 0.18.0 to 0.21.0: any text is passed to the HF Trainer, which rejects unknown values.
    forwarded_settings = {
        "lr_scheduler": ("transformers.SchedulerType", ("one_cycle", "rex")),
        "optimizer": ("transformers.training_args.OptimizerNames", ()),
        "save_strategy": ("transformers.trainer_utils.SaveStrategy", ()),
    }
    rewrites = {("fsdp",): _convert_to_fsdp2}

    def build_context(self, config: Config) -> Context:
        """Return the context of the file: its plugins, and the training method that determines how data sets look."""
        plugins = config.get("plugins")
        settings = {"rl": config.get("rl")}
        if plugins is None:
            return Context(plugins=(), settings=settings)
        is_list = isinstance(plugins, list) and all(isinstance(name, str) for name in plugins)
        return Context(plugins=tuple(plugins) if is_list else None, settings=settings)

    def find_launcher_option(self, config: Config, route: Route) -> LauncherOption | None:
        """Return the option beside the file, if only axolotl's own commands start it."""
        commands = config.evidence.commands
        if not commands or any(_TRAIN_COMMAND.match(command) is None for command in commands):
            return None
        return LauncherOption(None, route, class_steps=0)

    def determine_launch_effect(self, effect: str, config: Config, release: str) -> str:
        """Return the effect of an unknown option at launch.

        `axolotl train` or its launcher rejects it (0.6.0 to 0.21.0 `cli/main.py`), while its module merges it into the
        file (`fire`).
        """
        return "error" if all(command.startswith("axolotl ") for command in config.evidence.commands) else effect

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether a blank word is rejected: `axolotl train` accepts no second file.

        Up to 0.10 click rejects it, later the launcher, which takes it for a script (0.6.0 to 0.18.0 `cli/main.py`).
        Without a launcher it is ignored.
        """
        return invocation.program == "axolotl" and all(
            word.is_known and "python" not in word.text for word in invocation.words
        )

    def list_routes(self, name: str) -> tuple[Route, ...]:
        """Return the routes of a key; keys of `fsdp_config` may have a prefix."""
        return list_fsdp_routes(name)

    def determine_effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """Return the effect of a key: axolotl's validators only reject true values (utils/schemas/validation.py)."""
        if effect == "error" and len(route) == 1:
            return "error" if value else "dropped"
        return effect

    def find_traces(self, config: Config) -> Iterator[tuple[str, ForkTrace]]:
        """Yield the plugins below axolotl's own package whose folder and name no release has."""
        axolotl_plugins = [name for name in self.build_context(config).plugins or () if name.startswith("axolotl.")]
        plugin_names = {part for name in self.vocabulary.list_plugins() for part in name.split(".")}
        unknown_plugins = (
            name for name in axolotl_plugins if not {name.split(".")[-1], *name.split(".")[2:3]} & plugin_names
        )
        yield from (
            ("plugin", ForkTrace(name, "", config.format_location("plugins"), "config", None))
            for name in unknown_plugins
        )

    def is_outdated(self, document: Document, root: Route) -> bool:
        """Return whether a data set has the type sharegpt, which 0.5.0 rejects.

        Source: utils/config/models/input/v0_4_1/__init__.py.
        """
        datasets = document.get_value((*root, "datasets"))
        return isinstance(datasets, list) and any(is_sharegpt(item) for item in datasets)

    def can_have_foreign_keys(self, config: Config, release: str) -> bool:
        """Return whether the file loads a plugin that the vocabulary does not have."""
        plugins = self.build_context(config).plugins
        if plugins is None:
            return True
        names = self.get_vocabulary(config).list_plugins(release) if plugins else ()
        return any(not (name.startswith("axolotl.") or is_loaded((name,), names)) for name in plugins)

    def load_plugin(self, config: Config, route: Route, plugins: tuple[str, ...]) -> KeyRewrite | None:
        """Return the rewrite that adds the plugin to the list; it is safe if the run computes the same."""
        if len({name.rpartition(".")[2] for name in plugins}) != 1:
            return None
        loaded = (plugins[0],)
        is_cce = is_loaded(loaded, (CCE_PLUGIN,))
        is_equivalent = is_cce or is_loaded(loaded, (LIGER_PLUGIN,))
        applicability: Literal["safe", "unsafe", "display"] = "safe" if is_equivalent else "unsafe"
        message = f"add the plugin {loaded[0]}"
        other_losses = [name for name in _LOSS_KEYS if config.get(name) not in (None, False, 0, "", [], {})]
        has_cce = is_loaded(self.build_context(config).plugins or (), (CCE_PLUGIN,))
        if (is_cce and other_losses) or (route[-1] in _LOSS_KEYS and has_cce):
            message += "; not applied: Cut Cross-Entropy and another loss would replace each other"
            applicability = "display"
        return KeyRewrite(applicability, message, (Append((*config.root, "plugins"), loaded[0], (str(route[0]),)),))
