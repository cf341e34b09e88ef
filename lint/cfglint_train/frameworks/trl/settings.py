"""How TRL's settings are looked up, and which trainer they are for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from cfglint_schemas.status import PRESENT, Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Document, Route
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.hf_trainer.loader import HF_ARGPARSER
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.clues import ANY, TRAINERS

COMMANDS: Final[Mapping[str, str]] = {
    "sft": "0.8.1", "dpo": "0.8.1", "kto": "0.11.0", "grpo": "0.14.0", "rloo": "0.22.0", "reward": "0.24.0",
}  # fmt: skip
"""What `trl` trains by a command of its own -> its first release with that (trl 0.8.1 to 1.16.0 commands/cli.py,
cli.py, cli/). ORPO and CPO have scripts alone.
"""
COMMAND: Final = re.compile(r"trl \w+")
"""TRL's own command."""
_OWN_SCRIPT: Final = re.compile(r"(?:.*/)?trl/(?:commands/)?scripts/\w+\.py|trl\.scripts\.\w+")


def ways(config: Config) -> list[str]:
    """The commands and scripts of TRL that start a recipe."""
    return [one for one in config.evidence.commands if COMMAND.match(one) or _OWN_SCRIPT.match(one)]


def starts_launcher(config: Config, release: str) -> bool:
    """Whether what starts a recipe gives the launcher what its parser hands back (`num_processes`): `trl sft` from 0.18
    on, other commands from 0.29 on (trl 0.18.2 to 1.16.0 `cli.py`, `cli/commands/training.py`).
    """
    started = ways(config)
    since = "0.18" if trainer_of(config) == "sft" else "0.29"
    return bool(started) and all(map(COMMAND.match, started)) and release_key(release) >= release_key(since)


_SCRIPT: Final = re.compile(rf"(?:^|[/_.\s-])({'|'.join(TRAINERS)})(?:$|[/_.\s-])")


_NAMED: Final = re.compile(rf"(?:^|[_.\s-])({'|'.join(TRAINERS)})(?=$|[_.\s-])")


def trainer_of(config: Config) -> str | None:
    """The trainer that a configuration is for; None where neither its launch nor its keys show it."""
    return config.once(_trainer)


def _trainer(config: Config) -> str | None:
    if config.document.syntax == "python":
        return by_keys(config.document, config.root)
    started = {match[1] for match in map(_SCRIPT.search, config.evidence.commands) if match is not None}
    if started:
        return started.pop() if len(started) == 1 else None
    return by_keys(config.document, config.root)


# Keys that say which trainer a file is for. KTO has some of DPO's, beside its own.
_TELLING: Final = (
    ("sft", ("packing", "packing_strategy", "assistant_only_loss", "completion_only_loss", "dataset_text_field",
             "max_seq_length", "eval_packing")),
    ("kto", ("desirable_weight", "undesirable_weight")),
    ("reward", ("center_rewards_coefficient",)),
    ("rloo", ("rloo_k", "normalize_advantages")),
    ("grpo", ("scale_rewards", "mask_truncated_completions", "num_iterations", "epsilon_high", "delta",
              "importance_sampling_level")),
    ("dpo", ("rpo_alpha", "reference_free", "precompute_ref_log_probs", "f_divergence_type", "ld_alpha",
             "use_weighting", "ref_model_init_kwargs")),
)  # fmt: skip


def by_keys(document: Document, root: Route) -> str | None:
    """The trainer whose keys a file has, else the one that it or its folder is named for; None if unknown."""
    node = document.node(root)
    if document.syntax == "python":
        from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

        return node.trainer or None if isinstance(node, ScriptSettings) else None
    if not isinstance(node, MappingNode):
        return None
    found = [trainer for trainer, telling in _TELLING if not node.index.keys().isdisjoint(telling)]
    found = [trainer for trainer in found if trainer != "dpo" or "kto" not in found]
    if not found and document.syntax == "yaml":
        folder, name = os.path.split(os.path.abspath(document.path))
        words = {
            match for part in (os.path.basename(folder), os.path.splitext(name)[0]) for match in _NAMED.findall(part)
        }
        found = list(words)
    return found[0] if len(found) == 1 else None


def context_of(config: Config) -> Context:
    """What decides beside TRL's release which keys there are: the trainer and transformers' release."""
    return config.once(_context)


def _context(config: Config) -> Context:
    transformers = config.releases.get("transformers") if config.releases.stated("transformers") else None
    settings = config.get()
    return Context(
        entry=trainer_of(config) or ANY,
        settings=settings if isinstance(settings, dict) else None,
        releases={} if transformers is None else {"transformers": transformers},
    )


def default_of(config: Config, name: str) -> Any:
    """The default of a setting at the release; None where the possible trainers have several."""
    if config.document.syntax == "python":
        from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

        node = config.node()
        if isinstance(node, ScriptSettings) and name in node.defaults:
            return node.defaults.get(name)
        if isinstance(node, ScriptSettings) and node.plain:
            plain = load("transformers").fact((name,), config.release, Context(entry=node.entry))
            return plain.schema().get("default") if plain is not None and plain.status().kind == PRESENT else None
    known = config.evidence.vocabulary or load("trl")
    transformers = config.releases.get("transformers")
    context = context_of(config)
    if transformers is not None:
        context = context._replace(releases={"transformers": transformers})
    fact = known.fact((name,), config.release, context)
    if fact is None or fact.status().kind != PRESENT:
        return None
    found: list[Any] = []
    for one in (fact, *(fact.others if context.entry == ANY else ())):
        if one.status().kind == PRESENT:
            try:
                found.append(one.default())
            except KeyError:
                return None
    return found[0] if all(one == found[0] for one in found) else None


def is_setting(config: Config, name: str) -> bool:
    """Whether the run's trainer has a setting at the release."""
    fact = (config.evidence.vocabulary or load("trl")).fact((name,), config.release, context_of(config))
    return fact is not None and fact.status().kind == PRESENT


def stated(config: Config, name: str, kind: str) -> Any:
    """A setting as the parser types it, or its default; None for what it would refuse."""
    value = config.get(name)
    if value is None:
        return None if config.has(name) else default_of(config, name)
    return getattr(HF_ARGPARSER, kind).readable(value)


def on(config: Config, name: str) -> bool:
    """Whether a switch is on, by the file or by its default."""
    return stated(config, name, "boolean") is True


_MOST_UNKNOWN: Final = 3
"""A recipe has at most one key in so many that no trainer of TRL takes; scripts of others add some of their own."""


def mostly_known(keys: Iterable[str]) -> bool:
    """Whether hardly any of some keys is unknown to all trainers of TRL in all releases."""
    known, listed = load("trl"), list(keys)
    facts = known.facts((), listed, known.newest, Context(entry=ANY))
    return sum(fact is None for fact in facts) * _MOST_UNKNOWN <= len(listed)
