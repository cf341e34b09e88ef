"""Write lint/cfglint_train/frameworks/chat_templates.json from LLaMA-Factory's source, which is parsed but not run.

    python -m tools.chat_templates FOLDER RELEASE      # FOLDER holds extras/constants.py and data/template.py

The file has the templates that mark turns with special tokens of a model family, and the chat models of each template.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "lint/cfglint_train/frameworks/chat_templates.json"

# Text before a user's turn -> format. All other templates mark turns with plain words, which any model can learn.
FORMATS = {
    "<|im_start|>user\n": "chatml",
    "<|start_header_id|>user<|end_header_id|>": "llama3",
    "<|header_start|>user<|header_end|>": "llama4",
    "<start_of_turn>user\n": "gemma",
    "<|turn>user\n": "gemma4",
    "<｜User｜>": "deepseek3",
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>": "cohere",
    "<|start|>user<|message|>": "gpt_oss",
    "<|im_start|>user<|im_sep|>": "phi4",
}
# Parts of the names of chat models, as LLaMA-Factory checks them (extras/constants.py, register_model_group), without
# "-Distill": distilled models also know the tokens of their base model.
CHAT = ("-Chat", "-Instruct", "-Thinking")


def find_calls(source: str, name: str) -> Iterator[dict[str, ast.expr]]:
    """Yield the keyword arguments of each call of the function `name` in a module's source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield {word.arg or "": word.value for word in node.keywords}


def collect_formats(source: str) -> dict[str, list[str]]:
    """Return the names of the templates of each format, from the source of data/template.py."""
    names_by_format: dict[str, list[str]] = {}
    for arguments in find_calls(source, "register_template"):
        turn = arguments.get("format_user")
        slots = [word.value for word in turn.keywords if word.arg == "slots"] if isinstance(turn, ast.Call) else []
        texts = [node.value for slot in slots for node in ast.walk(slot) if isinstance(node, ast.Constant)]
        format_ = next((FORMATS[mark] for mark in FORMATS if any(str(text).startswith(mark) for text in texts)), None)
        if format_ is not None:
            names_by_format.setdefault(format_, []).append(ast.literal_eval(arguments["name"]))
    return names_by_format


def collect_models(source: str, templates: set[str]) -> dict[str, list[str]]:
    """Return the Hub names of the chat models of each template, from the source of extras/constants.py."""
    names_by_template: dict[str, list[str]] = {}
    for arguments in find_calls(source, "register_model_group"):
        template = ast.literal_eval(arguments["template"]) if "template" in arguments else None
        is_multimodal, group = "multimodal" in arguments, arguments["models"]
        if template not in templates or not isinstance(group, ast.Dict):
            continue
        for name, sources in zip(group.keys, group.values):
            if not isinstance(name, ast.Constant) or not isinstance(sources, ast.Dict):
                continue
            if is_multimodal or any(mark in str(name.value) for mark in CHAT):
                for key, value in zip(sources.keys, sources.values):
                    if isinstance(key, ast.Attribute) and key.attr == "DEFAULT":
                        names_by_template.setdefault(template, []).append(ast.literal_eval(value))
    return names_by_template


def main(folder: str, release: str) -> None:
    """Write the table from the files below `folder`; `release` is the LLaMA-Factory release that they are from."""
    templates = collect_formats(Path(folder, "data/template.py").read_text(encoding="utf-8"))
    special_templates = {name for names in templates.values() for name in names}
    table = {
        "about": "Chat templates that mark turns with special tokens, by format, and the chat models of each template. "
        "Made by `python -m tools.chat_templates`; do not edit.",
        "source": f"LLaMA-Factory {release} data/template.py, extras/constants.py",
        "formats": templates,
        "models": collect_models(Path(folder, "extras/constants.py").read_text(encoding="utf-8"), special_templates),
    }
    TARGET.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
