"""Model names: from the name that users write to the catalogue's key.

A key is the last component of the name in lower case, without the tokens that change neither shape nor size:

1. Path: the last component, so that a mirror (`unsloth/Llama-3.2-1B`), a local folder (`/mnt/models/Llama-3.2-1B/`)
   and a folder of the Hugging Face cache (`.../models--meta-llama--Llama-3.2-1B/snapshots/<commit>`) get the same key.
2. Case and separators: lower case, `_` and blanks become `-`.
3. Training stage, anywhere except at the start: `instruct`, `chat`, `base`, `it`, `pt`, `sft`, `dpo`, `hf`,
   `thinking`, ...; and edits that keep every tensor's shape: `abliterated` (weights), `sharded` (files).
4. Number format, from the end: `-bf16`, `-fp16`, and the names of quantised copies (`-bnb-4bit`, `-GPTQ`, `-AWQ`,
   `-NVFP4`, ...) are removed and kept next to the key.

Sizes, versions and dates stay: `Magistral-Small-2506` has no vision tower, `Magistral-Small-2509` has one. Names that
mean the same model despite a different key are aliases, which are data (`build/sources/`).
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

STAGES: Final = frozenset(
    {
        "instruct",
        "chat",
        "base",
        "hf",
        "it",
        "pt",
        "sft",
        "dpo",
        "rlvr",
        "thinking",
        "think",
        "reasoning",
        "abliterated",
        "sharded",
    }
)

QUANTIZATIONS: Final[Mapping[str, str]] = {
    "nf4": "nf4",
    "fp4": "fp4",
    "bnb": "nf4",
    "gptq": "gptq",
    "awq": "awq",
    "aqlm": "aqlm",
    "hqq": "hqq",
    "eetq": "eetq",
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
}
"""Token of a quantised copy -> the plan's term for it."""

WIDTHS: Final = frozenset(
    {"4bit", "8bit", "2bit", "3bit", "int4", "int8", "w4a16", "w8a8", "1x16", "dynamic", "unsloth"}
)
"""Tokens that only accompany a quantization."""

DTYPES: Final[Mapping[str, str]] = {"bf16": "bf16", "fp16": "fp16", "f16": "fp16", "fp32": "fp32"}
DEQUANTIZED: Final = "dequantized"

CACHE_FOLDER: Final = "models--"


class ParsedName(Frozen):
    """A model name, split into its key and the meaning of its suffixes."""

    key: str
    quantization: str | None = None
    dtype: str | None = None
    plain: bool = False
    """True if the name says that the weights are not quantised (`-bf16`, `-dequantized`)."""
    full_key: str = ""
    """Key with the training stages (`qwen2.5-7b-instruct`)."""


def parse_name(name: str) -> ParsedName:
    """Return the key of a name, and the number format that its suffixes state."""
    words = [word for word in get_component(name).lower().replace("_", "-").replace(" ", "-").split("-") if word]
    tokens = [word for index, word in enumerate(words) if index == 0 or word not in STAGES]
    quantization = dtype = None
    is_plain = False
    while len(tokens) > 1:
        last = tokens[-1]
        if last in DTYPES:
            dtype = dtype or DTYPES[last]
        elif last in QUANTIZATIONS:
            quantization = quantization or QUANTIZATIONS[last]
        elif last == DEQUANTIZED:
            is_plain = True
        elif last not in WIDTHS:
            break
        elif last in ("8bit", "int8") and quantization is None and "bnb" in tokens:
            quantization = "int8"
        tokens.pop()
    is_plain = is_plain or (dtype is not None and quantization is None)
    kept, stages = iter(tokens), {word for word in words[1:] if word in STAGES}
    full_tokens = [word for word in words if word in stages or next(kept, None) is not None]
    return ParsedName("-".join(tokens), quantization, dtype, is_plain, "-".join(full_tokens))


def is_folder(name: str) -> bool:
    """Return whether a name is the path of a folder; `organisation/model` names a repository of the Hub.

    A name that begins with a variable (`$MODELS/Llama-3.2-1B`) counts as a path. A folder of the Hugging Face cache
    does not, because its path contains the repository's name.
    """
    path = name.replace("\\", "/")
    deep = path.strip("/").count("/") > 1
    return (deep or path.startswith(("/", "./", "../", "~", "$"))) and CACHE_FOLDER not in path


def get_component(name: str) -> str:
    """Return the part of a hub id or a path that names the model."""
    parts = [part for part in name.replace("\\", "/").split("/") if part and part != "."]
    for part in reversed(parts):
        if part.startswith(CACHE_FOLDER):
            return part[len(CACHE_FOLDER) :].rsplit("--", 1)[-1]
    return parts[-1] if parts else ""
