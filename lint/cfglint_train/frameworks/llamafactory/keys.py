"""Keys of LLaMA-Factory's file: its own, and the training arguments of transformers."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_schemas.status import Context
from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.hf_trainer.fsdp import list_fsdp_routes
from cfglint_train.frameworks.keys import Keys, LauncherOption, OutdatedConfig
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import find_framework_of_program

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

# Training arguments that are declared as strings and converted to an enum, which rejects other words (transformers
# 4.41 to 5.23 training_args.py, __post_init__).
_ENUMERATED_KEYS: Final = frozenset(
    ("eval_strategy", "hub_strategy", "logging_strategy", "lr_scheduler_type", "optim", "save_strategy")
)
_NUMBER_TYPES: Final = frozenset(("boolean", "integer", "number"))


class LlamaFactoryV1Keys(Keys):
    """Key handling of v1, which v0 shares: HfArgumentParser neither converts values nor checks types."""

    def extract_enforced(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        """Return the part of a schema that LLaMA-Factory enforces: enumerations and numbers.

        A string in place of a number stops the run or has another meaning.
        """
        schema_or_words = super().extract_enforced(schema, name)
        if "x-unchecked" in schema:
            return schema_or_words
        if name in _ENUMERATED_KEYS:
            words = [part for part in schema.get("anyOf", ()) if "enum" in part]
            return words[0] if words else None
        kinds = schema.get("type", ())
        types = {kinds} if isinstance(kinds, str) else set(kinds) - {"null"}
        return schema if "enum" in schema or name in STOPPING_KEYS or (types and types <= _NUMBER_TYPES) else None

    def is_accepted(self, schema: Mapping[str, Any], value: Any) -> bool | None:
        """Return whether a value is accepted, or None if the loader's types decide.

        For a declared number, only a string or null can be wrong.
        """
        if "enum" in schema:
            return None
        types = schema.get("type", ())
        if value is None:
            return types not in ("integer", "number")
        if not isinstance(value, str) and _NUMBER_TYPES.intersection((types,) if isinstance(types, str) else types):
            return True
        return None


# Keys whose wrong values stop LLaMA-Factory while it reads them (0.9.5 with transformers 5.8 and 5.23, determined by
# giving each key values of every type), and `template`, which stops it before the data is read (data/template.py,
# get_template_and_fix_tokenizer). Wrong values of other keys stop it later or have another effect.
STOPPING_KEYS: Final = _ENUMERATED_KEYS | frozenset((
    "adapter_name_or_path", "add_special_tokens", "add_tokens", "dataloader_num_workers", "debug", "finetuning_type",
    "flash_attn", "image_max_pixels", "image_min_pixels", "metric_for_best_model", "output_dir", "save_steps", "stage",
    "template", "torch_empty_cache_steps", "video_max_pixels", "video_min_pixels", "warmup_steps",
))  # fmt: skip


class LlamaFactoryKeys(LlamaFactoryV1Keys):
    """Key handling of LLaMA-Factory 0.7.1 to 0.9.5."""

    fatal_settings = STOPPING_KEYS

    def build_context(self, config: Config) -> Context:
        """Return the context of the file; a Megatron backend, which the environment selects, has its own arguments."""
        from cfglint_train.frameworks.llamafactory.settings import is_megatron

        transformers = config.releases.get("transformers") if config.releases.is_stated("transformers") else None
        settings = config.get()
        return Context(
            entry="mca" if is_megatron(config) else self.find_entry(config.document, config.root),
            settings=settings if isinstance(settings, dict) else None,
            releases={} if transformers is None else {"transformers": transformers},
        )

    def find_launcher_option(self, config: Config, route: Route) -> LauncherOption | None:
        """Return the option for a word after the file, which LLaMA-Factory reads as a setting of the file.

        A value below a mapping is merged into the mapping (0.9.3 to 0.9.5 `hparams/parser.py`, read_args). Older
        releases reject these words (`report_outdated`).
        """
        if not _is_read_as_file(config) or _is_refusing_words(config):
            return None
        return LauncherOption(self.build_context(config).entry, route, class_steps=0)

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether LLaMA-Factory rejects a blank word.

        After a file, every blank word is a setting that no argument class has. Among options, the parser rejects a
        blank word that is not the value of an option.
        """
        if config.document.syntax != "shell":
            return find_framework_of_program(invocation.program) is not None
        from cfglint_train.frameworks.hf_trainer.options import get_parser

        return get_parser("llamafactory").is_blank_fatal(invocation, index)

    def suggest_launch_form(self, name: str, value: Any) -> str:
        """Return the form of an option after a file, without its dashes, or "" if there is none."""
        if not name.startswith("-"):
            return ""
        from cfglint_train.frameworks.llamafactory.options import format_setting

        return format_setting(name, value if isinstance(value, str) else None)

    def report_outdated(self, config: Config) -> OutdatedConfig | None:
        """Return an error for words after the file if all candidate releases reject them.

        These releases read a file only if it is the only word; otherwise they mistake the file's name for an unknown
        option (0.7.1 to 0.9.2 `hparams/parser.py`, _parse_args and read_args).
        """
        places = [override.origin.place for _, override in config.launch_overrides if override.origin.place is not None]
        if (
            not places
            or config.evidence.vocabulary is not None
            or not _is_read_as_file(config)
            or not _is_refusing_words(config)
        ):
            return None
        release = config.releases.find_candidates("llamafactory").releases[-1]
        return OutdatedConfig(
            f"LLaMA-Factory {release} refuses settings behind the file; it reads them since {_MERGES_WORDS_SINCE}",
            min(places, key=lambda place: place.span.start),
            "error",
            "move them into the file",
        )

    def list_routes(self, name: str) -> tuple[Route, ...]:
        """Return the routes of a key; keys of `fsdp_config` may have a prefix."""
        return list_fsdp_routes(name)


_MERGES_WORDS_SINCE: Final = "0.9.3"
"""First release that merges words after a file into its settings."""


def _is_read_as_file(config: Config) -> bool:
    """Return whether every command that starts the file is a program of LLaMA-Factory."""
    commands = config.evidence.commands
    return bool(commands) and all(
        find_framework_of_program(command.partition(" ")[0]) is not None for command in commands
    )


def _is_refusing_words(config: Config) -> bool:
    """Return whether all candidate releases reject words after the file."""
    window = config.releases.find_candidates("llamafactory")
    return all(parse_release(release) < parse_release(_MERGES_WORDS_SINCE) for release in window.releases)
