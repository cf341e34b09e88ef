"""The keys of axolotl's file: its own, and those of the plugins that the file loads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from cfglint_schemas.status import Context, is_loaded
from cfglint_train.documents.document import Append, Change, Delete, Document, Route, Set
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.frameworks.axolotl.settings import CCE_PLUGIN, LIGER_PLUGIN, is_sharegpt
from cfglint_train.frameworks.evidence import Trace
from cfglint_train.frameworks.hf_trainer.fsdp import fsdp_routes
from cfglint_train.frameworks.keys import KeyRewrite, Keys, LauncherOption
from cfglint_train.frameworks.lens import Config

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_COMMAND: Final = re.compile(r"axolotl (?:train|preprocess)\b|axolotl\.cli\.")
_LOSSES: Final = ("liger_fused_linear_cross_entropy", "liger_cross_entropy", "chunked_cross_entropy")

# accelerate 1.15.0 utils/dataclasses.py (FullyShardedDataParallelPlugin): what each option of `fsdp` is under FSDP2.
# Hybrid sharding needs the sizes of its groups, and `no_shard` has no counterpart.
_FSDP2: Final[Mapping[str, Mapping[str, Any]]] = {
    "full_shard": {"reshard_after_forward": True},
    "shard_grad_op": {"reshard_after_forward": False},
    "auto_wrap": {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
    "offload": {"offload_params": True},
}


def _as_fsdp2(config: Config) -> KeyRewrite | None:
    """The list of FSDP1's options as settings of FSDP2; None where one has no counterpart."""
    value = config.document.value((*config.root, "fsdp"))
    options = value.split() if isinstance(value, str) else value
    if not isinstance(options, list) or any(str(option) not in _FSDP2 for option in options):
        return None
    section = config.get("fsdp_config", default={})
    section = {} if section is None else section
    if not isinstance(section, dict):
        return None
    stated = {str(key).removeprefix("fsdp_") for key in section}
    wanted = {key: new for option in options for key, new in _FSDP2[option].items()}
    if "sharding_strategy" in stated:
        wanted.pop("reshard_after_forward", None)  # a finding of its own turns it over
    changes: list[Change] = [Delete((*config.root, "fsdp"))]
    for key, new in wanted.items():
        if key not in stated:
            changes.append(Set((*config.root, "fsdp_config", key), new))
    return KeyRewrite(
        "unsafe",
        "the options of fsdp as FSDP2 settings in fsdp_config; weights and optimizer states are 16 bits wide there",
        tuple(changes),
    )


class AxolotlKeys(Keys):
    """axolotl 0.4.0 to 0.21.0 (`utils/schemas/`, `integrations/config.py`): pydantic drops what it does not know."""

    # core/builders/base.py of 0.18.0 to 0.21.0: any text goes to the HF Trainer, which refuses what it does not have.
    handed_on = {
        "lr_scheduler": ("transformers.SchedulerType", ("one_cycle", "rex")),
        "optimizer": ("transformers.training_args.OptimizerNames", ()),
        "save_strategy": ("transformers.trainer_utils.SaveStrategy", ()),
    }
    rewrites = {("fsdp",): _as_fsdp2}

    def context(self, config: Config) -> Context:
        """The plugins that the file loads, and the method that says what a data set is."""
        plugins = config.get("plugins")
        settings = {"rl": config.get("rl")}
        if plugins is None:
            return Context(plugins=(), settings=settings)
        listed = isinstance(plugins, list) and all(isinstance(name, str) for name in plugins)
        return Context(plugins=tuple(plugins) if listed else None, settings=settings)

    def launched(self, config: Config, route: Route) -> LauncherOption | None:
        """An option beside the file, where axolotl's own commands alone start it."""
        started = config.evidence.commands
        if not started or any(_COMMAND.match(one) is None for one in started):
            return None
        return LauncherOption(None, route, there=0)

    def launched_effect(self, effect: str, config: Config, release: str) -> str:
        """`axolotl train` refuses it by itself or by its launcher (0.6.0 to 0.21.0 `cli/main.py`), where its module
        lays it over the file (`fire`).
        """
        return "error" if all(one.startswith("axolotl ") for one in config.evidence.commands) else effect

    def refuses_blank(self, config: Config, given: Invocation, index: int) -> bool:
        """`axolotl train` has no second file: up to 0.10 click refuses it, and later the launcher does, which takes it
        for a script (0.6.0 to 0.18.0 `cli/main.py`). Without a launcher it is left out.
        """
        return given.program == "axolotl" and all(word.known and "python" not in word.text for word in given.words)

    def routes(self, name: str) -> tuple[Route, ...]:
        """Keys of `fsdp_config` are there with or without their prefix."""
        return fsdp_routes(name)

    def effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """Its own validators refuse what counts as true (utils/schemas/validation.py)."""
        if effect == "error" and len(route) == 1:
            return "error" if value else "dropped"
        return effect

    def traces(self, config: Config) -> Iterator[tuple[str, Trace]]:
        """Return the plugins below axolotl's own package, of a folder and a name that no release has there."""
        listed = [name for name in self.context(config).plugins or () if name.startswith("axolotl.")]
        known = {part for name in self.vocabulary.plugins() for part in name.split(".")}
        foreign = (name for name in listed if not {name.split(".")[-1], *name.split(".")[2:3]} & known)
        yield from (("plugin", Trace(name, "", config.where("plugins"), "config", None)) for name in foreign)

    def is_outdated(self, document: Document, root: Route) -> bool:
        """0.5.0 refuses data sets of the type sharegpt (utils/config/models/input/v0_4_1/__init__.py)."""
        datasets = document.value((*root, "datasets"))
        return isinstance(datasets, list) and any(is_sharegpt(item) for item in datasets)

    def may_be_foreign(self, config: Config, release: str) -> bool:
        """Whether the file loads a plugin that the vocabulary does not know."""
        plugins = self.context(config).plugins
        if plugins is None:
            return True
        names = self.vocabulary_of(config).plugins(release) if plugins else ()
        return any(not (name.startswith("axolotl.") or is_loaded((name,), names)) for name in plugins)

    def loading(self, config: Config, route: Route, plugins: tuple[str, ...]) -> KeyRewrite | None:
        """The plugin added to the list: safe where it computes the same."""
        if len({name.rpartition(".")[2] for name in plugins}) != 1:
            return None
        loads = (plugins[0],)
        cuts = is_loaded(loads, (CCE_PLUGIN,))
        same = cuts or is_loaded(loads, (LIGER_PLUGIN,))
        applicability: Literal["safe", "unsafe", "display"] = "safe" if same else "unsafe"
        message = f"add the plugin {loads[0]}"
        rivals = [name for name in _LOSSES if config.get(name) not in (None, False, 0, "", [], {})]
        cut_already = is_loaded(self.context(config).plugins or (), (CCE_PLUGIN,))
        if (cuts and rivals) or (route[-1] in _LOSSES and cut_already):
            message += "; not applied: Cut Cross-Entropy and another loss would replace each other"
            applicability = "display"
        return KeyRewrite(applicability, message, (Append((*config.root, "plugins"), loads[0], (str(route[0]),)),))
