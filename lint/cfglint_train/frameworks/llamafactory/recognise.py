"""Recognition of LLaMA-Factory configurations and of the files that they name."""

from __future__ import annotations

from cfglint_train.documents.document import Document, Node, Route
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import RecognisedConfig, Reference
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.llamafactory.clues import FOREIGN_KEYS, METHOD_KEYS, OWN_KEYS, TRAINING_KEYS

_PURPOSES: Final = (("export_dir", "export"), ("do_predict", "prediction"), ("task", "evaluation"))


def recognise(document: Document) -> list[RecognisedConfig]:
    """Recognize a mapping with `model_name_or_path` and two keys that only LLaMA-Factory has.

    A single key is enough with `export_dir` or `infer_backend`. Without a model, which the launch may name instead,
    both keys of the training method are required.
    """
    if document.syntax == "shell":
        from cfglint_train.frameworks.llamafactory.commands import recognise_commands  # most of its files are YAML

        return recognise_commands(document)
    if document.syntax == "python":
        from cfglint_train.documents.python.document import PythonDocument
        from cfglint_train.frameworks.llamafactory.programs import read_programs  # most of its files are YAML

        assert isinstance(document, PythonDocument)
        records = enumerate(read_programs(document))
        return [match for number, record in records for match in _recognise_mapping(document, record, (number,))]
    return _recognise_mapping(document, document.root, ())


def _recognise_mapping(document: Document, root: Node | None, route: Route) -> list[RecognisedConfig]:
    """Return the configuration in a mapping, or an empty list."""
    keys = root.index.keys() if isinstance(root, MappingNode) else set[str]()
    if "model_name_or_path" not in keys and not keys >= METHOD_KEYS:
        return []
    own_keys = len(keys & OWN_KEYS)
    if keys & FOREIGN_KEYS or own_keys < (1 if "export_dir" in keys or "infer_backend" in keys else 2):
        return []
    is_predicting = any(_is_on(document, route, key) for key in ("do_predict", "do_eval")) or "infer_backend" in keys
    is_training = _is_on(document, route, "do_train") or not is_predicting
    score = 45 + 2 * own_keys
    if keys & TRAINING_KEYS and is_training and "export_dir" not in keys:
        return [RecognisedConfig(route, score, f"{own_keys} LLaMA-Factory keys")]
    purpose = next((name for key, name in _PURPOSES if key in keys), "inference")
    return [RecognisedConfig(route, score, f"a LLaMA-Factory file for {purpose} that trains nothing", role="other")]


def _is_on(document: Document, route: Route, key: str) -> bool:
    """Return whether a switch is on; 1 and 0 also count as true and false."""
    value = document.get_value((*route, key))
    return isinstance(value, int) and bool(value)


def prepare(document: Document) -> None:
    """Set up a YAML file to use OmegaConf's types, or a script to read the options of its commands as keys."""
    from cfglint_train.documents.yaml.dialects import get_omegaconf_dialect
    from cfglint_train.documents.yaml.document import YamlDocument

    if isinstance(document, YamlDocument):
        document.set_dialect(get_omegaconf_dialect())
    elif document.syntax == "shell":
        from cfglint_train.frameworks.llamafactory.commands import read_as_keys

        read_as_keys(document)


def list_references(config: Config) -> tuple[Reference, ...]:
    """Return the DeepSpeed configuration (a path or a section), and accelerate's file if a comment names it."""
    companions: list[Reference] = []
    stated = config.get("deepspeed")
    if isinstance(stated, (str, dict)):
        companions.append(Reference("deepspeed", ("deepspeed",), stated if isinstance(stated, str) else None))
    launch_file = None if config.document.syntax == "shell" else _find_launch_file(config.document)
    if launch_file is not None:
        companions.append(Reference("accelerate", (), launch_file))
    return tuple(companions)


def _find_launch_file(document: Document) -> str | None:
    """Return the file after `accelerate launch --config_file` in the comments, or None.

    Comments in the examples contain the command that runs them.
    """
    if b"accelerate launch" not in document.source:
        return None
    words = " ".join(comment.text.lstrip("# ") for comment in document.list_comments()).split()
    for index in range(len(words) - 1):
        if words[index] == "accelerate" and words[index + 1] == "launch":
            for position, word in enumerate(words[index + 2 :], index + 2):
                name, _, value = word.partition("=")
                if name == "--config_file":
                    following = words[position + 1] if position + 1 < len(words) else ""
                    return value or following or None
                if not (word.startswith("-") or word == "\\"):
                    break
    return None
