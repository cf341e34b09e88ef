"""Which files are LLaMA-Factory's, and which other file each of them names."""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Found, Reference
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.llamafactory.clues import FOREIGN, METHOD, OWN, TRAINS

_PURPOSES: Final = (("export_dir", "export"), ("do_predict", "prediction"), ("task", "evaluation"))


def recognise(document: Document) -> list[Found]:
    """A mapping with `model_name_or_path` and two keys that only LLaMA-Factory has beside it. The launch may give the
    model; then both words for how it is trained are there.
    """
    if document.syntax == "shell":
        from cfglint_train.frameworks.llamafactory.commands import commands  # most of its files are YAML

        return commands(document)
    root = document.root
    keys = root.index.keys() if isinstance(root, MappingNode) else set[str]()
    if "model_name_or_path" not in keys and not keys >= METHOD:
        return []
    own = len(keys & OWN)
    if keys & FOREIGN or own < (1 if "export_dir" in keys or "infer_backend" in keys else 2):
        return []
    predicts = any(_on(document, key) for key in ("do_predict", "do_eval")) or "infer_backend" in keys
    trains = _on(document, "do_train") or not predicts
    if keys & TRAINS and trains and "export_dir" not in keys:
        return [Found((), 45 + 2 * own, f"{own} keys of LLaMA-Factory")]
    purpose = next((name for key, name in _PURPOSES if key in keys), "inference")
    return [Found((), 45 + 2 * own, f"a LLaMA-Factory file for {purpose}: it trains nothing", role="other")]


def _on(document: Document, key: str) -> bool:
    """Whether a switch is on; 1 and 0 are true and false as well."""
    value = document.value((key,))
    return isinstance(value, int) and bool(value)


def prepare(document: Document) -> None:
    """OmegaConf's loader types the values."""
    from cfglint_train.documents.yaml.dialects import omegaconf
    from cfglint_train.documents.yaml.document import YamlDocument

    if isinstance(document, YamlDocument):
        document.read_as(omegaconf())
    elif document.syntax == "shell":
        from cfglint_train.frameworks.llamafactory.commands import read_as_keys

        read_as_keys(document)


def references(config: Config) -> tuple[Reference, ...]:
    """The DeepSpeed configuration (a path, or a mapping in place), and the launch's file where a comment names it."""
    found: list[Reference] = []
    stated = config.get("deepspeed")
    if isinstance(stated, (str, dict)):
        found.append(Reference("deepspeed", ("deepspeed",), stated if isinstance(stated, str) else None))
    launched = None if config.document.syntax == "shell" else _launch_file(config.document)
    if launched is not None:
        found.append(Reference("accelerate", (), launched))
    return tuple(found)


def _launch_file(document: Document) -> str | None:
    """The file behind `accelerate launch --config_file` in the comments, where the examples write how they are run."""
    if b"accelerate launch" not in document.source:
        return None
    words = " ".join(comment.text.lstrip("# ") for comment in document.comments()).split()
    for at in range(len(words) - 1):
        if words[at] == "accelerate" and words[at + 1] == "launch":
            for here, word in enumerate(words[at + 2 :], at + 2):
                name, _, value = word.partition("=")
                if name == "--config_file":
                    following = words[here + 1] if here + 1 < len(words) else ""
                    return value or following or None
                if not (word.startswith("-") or word == "\\"):
                    break
    return None
