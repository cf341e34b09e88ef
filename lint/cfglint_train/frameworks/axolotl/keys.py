"""Keys of axolotl's file, including those of the plugins that it loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_schemas.status import Context, is_loaded
from cfglint_train.documents.document import Append, Change, Delete, Document, Route, Set
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.frameworks.axolotl.settings import CCE_PLUGIN, LIGER_PLUGIN, is_sharegpt
from cfglint_train.frameworks.evidence import ForkTrace
from cfglint_train.frameworks.hf_trainer.fsdp import list_fsdp_routes
from cfglint_train.frameworks.keys import KeyRewrite, Keys, LauncherOption
from cfglint_train.frameworks.lens import Config

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_TRAIN_COMMAND: Final = compile_on_use(r"axolotl (?:train|preprocess)\b|axolotl\.cli\.")
_LOSS_KEYS: Final = ("liger_fused_linear_cross_entropy", "liger_cross_entropy", "chunked_cross_entropy")

# FSDP2 settings for each option of `fsdp` (accelerate 1.15.0 utils/dataclasses.py, FullyShardedDataParallelPlugin).
# Hybrid sharding is missing because it needs group sizes, and `no_shard` because it has no counterpart.
_FSDP2_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "full_shard": {"reshard_after_forward": True},
    "shard_grad_op": {"reshard_after_forward": False},
    "auto_wrap": {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
    "offload": {"offload_params": True},
}


def _convert_to_fsdp2(config: Config) -> KeyRewrite | None:
    """Return the rewrite of FSDP1's option list to FSDP2 settings, or None if an option has no counterpart."""
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

    # axolotl passes any value to the HF Trainer, which rejects unknown values (0.18.0 to 0.21.0 core/builders/base.py).
    forwarded_settings = {
        "lr_scheduler": ("transformers.SchedulerType", ("one_cycle", "rex")),
        "optimizer": ("transformers.training_args.OptimizerNames", ()),
        "save_strategy": ("transformers.trainer_utils.SaveStrategy", ()),
    }
    rewrites = {("fsdp",): _convert_to_fsdp2}

    def build_context(self, config: Config) -> Context:
        """Return the context of the file: its plugins, and `rl`, which determines the schema of data sets."""
        plugins = config.get("plugins")
        settings = {"rl": config.get("rl")}
        if plugins is None:
            return Context(plugins=(), settings=settings)
        is_list = isinstance(plugins, list) and all(isinstance(name, str) for name in plugins)
        return Context(plugins=tuple(plugins) if is_list else None, settings=settings)

    def find_launcher_option(self, config: Config, route: Route) -> LauncherOption | None:
        """Return the command-line option for a key, or None unless only axolotl's own commands start the file."""
        commands = config.evidence.commands
        if not commands or any(_TRAIN_COMMAND.match(command) is None for command in commands):
            return None
        return LauncherOption(None, route, class_steps=0)

    def determine_launch_effect(self, effect: str, config: Config, release: str) -> str:
        """Return the effect of an unknown option at launch.

        `axolotl train` or its launcher rejects the option (0.6.0 to 0.21.0 `cli/main.py`). `python -m
        axolotl.cli.train` merges it into the config (`fire`).
        """
        return "error" if all(command.startswith("axolotl ") for command in config.evidence.commands) else effect

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether a blank word in the command stops the launch, because `axolotl train` accepts a single file.

        Up to 0.10, click rejects the word. Later, the launcher treats it as a script (0.6.0 to 0.18.0 `cli/main.py`).
        Without a launcher, the word is ignored.
        """
        return invocation.program == "axolotl" and all(
            word.is_known and "python" not in word.text for word in invocation.words
        )

    def list_routes(self, name: str) -> tuple[Route, ...]:
        """Return the routes of a key; keys in `fsdp_config` may have the prefix `fsdp_`."""
        return list_fsdp_routes(name)

    def determine_effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """Return the effect of a key: axolotl's validators reject only truthy values (utils/schemas/validation.py)."""
        if effect == "error" and len(route) == 1:
            return "error" if value else "dropped"
        return effect

    def find_traces(self, config: Config) -> Iterator[tuple[str, ForkTrace]]:
        """Yield the plugins in the `axolotl` package whose folder and name are not in any release."""
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
        """Return whether any data set has the type sharegpt, which axolotl 0.5.0 rejects.

        Source: utils/config/models/input/v0_4_1/__init__.py.
        """
        datasets = document.get_value((*root, "datasets"))
        return isinstance(datasets, list) and any(is_sharegpt(item) for item in datasets)

    def can_have_foreign_keys(self, config: Config, release: str) -> bool:
        """Return whether the file loads, or may load, a plugin outside axolotl whose keys are unknown."""
        plugins = self.build_context(config).plugins
        if plugins is None:
            return True
        names = self.get_vocabulary(config).list_plugins(release) if plugins else ()
        return any(not (name.startswith("axolotl.") or is_loaded((name,), names)) for name in plugins)

    def load_plugin(self, config: Config, route: Route, plugins: tuple[str, ...]) -> KeyRewrite | None:
        """Return the rewrite that adds the plugin of a key to `plugins`, or None if several plugins have the key.

        The rewrite is safe if the plugin leaves the run's results unchanged (Liger, Cut Cross-Entropy). It is only
        displayed if two losses would replace each other.
        """
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
