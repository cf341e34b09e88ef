"""The keys of LLaMA-Factory's file: its own, and the training arguments of the transformers beside it."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_schemas.status import Context
from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.hf_trainer.fsdp import fsdp_routes
from cfglint_train.frameworks.keys import Keys, LauncherOption, Outdated
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import of_program

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

# Training arguments that are declared as text and turned into a member of an enumeration, which refuses other words
# (transformers 4.41 to 5.23 training_args.py, __post_init__).
_WORDS: Final = frozenset(
    ("eval_strategy", "hub_strategy", "logging_strategy", "lr_scheduler_type", "optim", "save_strategy")
)
_NUMBERS: Final = frozenset(("boolean", "integer", "number"))


class LlamaFactoryV1Keys(Keys):
    """What both of its vocabularies have in common: HfArgumentParser converts nothing, and checks no types."""

    def part(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        """Enumerations, and numbers; text that stands for one stops the run, or means something else."""
        schema_or_words = super().part(schema, name)
        if "x-unchecked" in schema:
            return schema_or_words
        if name in _WORDS:
            words = [part for part in schema.get("anyOf", ()) if "enum" in part]
            return words[0] if words else None
        kinds = schema.get("type", ())
        plain = {kinds} if isinstance(kinds, str) else set(kinds) - {"null"}
        return schema if "enum" in schema or name in STOPPING or (plain and plain <= _NUMBERS) else None

    def takes(self, schema: Mapping[str, Any], value: Any) -> bool | None:
        """Only text and null are ever wrong where a number is declared."""
        if "enum" in schema:
            return None
        wanted = schema.get("type", ())
        if value is None:
            return wanted not in ("integer", "number")
        if not isinstance(value, str) and _NUMBERS.intersection((wanted,) if isinstance(wanted, str) else wanted):
            return True
        return None


# Keys whose wrong values stop it while it reads them (0.9.5 with transformers 5.8 and 5.23, found by giving each key
# values of every type), and `template`, which stops it before the data are read (data/template.py,
# get_template_and_fix_tokenizer). Others stop it later or do something else.
STOPPING: Final = _WORDS | frozenset((
    "adapter_name_or_path", "add_special_tokens", "add_tokens", "dataloader_num_workers", "debug", "finetuning_type",
    "flash_attn", "image_max_pixels", "image_min_pixels", "metric_for_best_model", "output_dir", "save_steps", "stage",
    "template", "torch_empty_cache_steps", "video_max_pixels", "video_min_pixels", "warmup_steps",
))  # fmt: skip


class LlamaFactoryKeys(LlamaFactoryV1Keys):
    """LLaMA-Factory 0.7.1 to 0.9.5."""

    stopping = STOPPING

    def context(self, config: Config) -> Context:
        """A Megatron backend brings its own arguments; only the environment determines which one."""
        from cfglint_train.frameworks.llamafactory.settings import is_megatron

        transformers = config.releases.get("transformers") if config.releases.stated("transformers") else None
        settings = config.get()
        return Context(
            entry="mca" if is_megatron(config) else self.entry(config.document, config.root),
            settings=settings if isinstance(settings, dict) else None,
            releases={} if transformers is None else {"transformers": transformers},
        )

    def launched(self, config: Config, route: Route) -> LauncherOption | None:
        """A word behind the file, which is read as a setting of it (0.9.3 to 0.9.5 `hparams/parser.py`, read_args);
        what is below a mapping is merged with it. Older releases refuse any (`outdated`).
        """
        if not _reads_file(config) or _refuses_words(config):
            return None
        return LauncherOption(self.context(config).entry, route, there=0)

    def refuses_blank(self, config: Config, given: Invocation, index: int) -> bool:
        """Behind a file it is a setting that no class has; the parser of options refuses what no option takes."""
        if config.document.syntax != "shell":
            return of_program(given.program) is not None
        from cfglint_train.frameworks.hf_trainer.options import parser

        return parser("llamafactory").refuses_blank(given, index)

    def launched_as(self, name: str, value: Any) -> str:
        """Behind a file no setting has dashes."""
        if not name.startswith("-"):
            return ""
        from cfglint_train.frameworks.llamafactory.options import written

        return written(name, value if isinstance(value, str) else None)

    def outdated(self, config: Config) -> Outdated | None:
        """Words behind the file, of a release that reads a file only where it is the only word: it takes the file's
        name for one that no option has (0.7.1 to 0.9.2 `hparams/parser.py`, _parse_args and read_args).
        """
        places = [one.origin.place for _, one in config.launched if one.origin.place is not None]
        if (
            not places
            or config.evidence.vocabulary is not None
            or not _reads_file(config)
            or not _refuses_words(config)
        ):
            return None
        release = config.releases.window("llamafactory").releases[-1]
        return Outdated(
            f"LLaMA-Factory {release} refuses settings behind the file: it reads them since {_MERGES_SINCE}",
            min(places, key=lambda place: place.span.start),
            "error",
            "write them into the file",
        )

    def routes(self, name: str) -> tuple[Route, ...]:
        """Keys of `fsdp_config` are there with or without their prefix."""
        return fsdp_routes(name)


_MERGES_SINCE: Final = "0.9.3"
"""The release that lays words behind a file over it."""


def _reads_file(config: Config) -> bool:
    """Whether programs of LLaMA-Factory alone are given the file."""
    started = config.evidence.commands
    return bool(started) and all(of_program(one.partition(" ")[0]) is not None for one in started)


def _refuses_words(config: Config) -> bool:
    """Whether all candidate releases refuse words behind the file."""
    window = config.releases.window("llamafactory")
    return all(release_key(release) < release_key(_MERGES_SINCE) for release in window.releases)
