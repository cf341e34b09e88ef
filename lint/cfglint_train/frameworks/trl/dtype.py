"""The number format that TRL loads a model in.

`dtype` (`torch_dtype` before 0.23) is `float32` by default from 0.27 on (`trainer/model_config.py`). Without one,
transformers 4 loads fp32 and transformers 5 the format of the checkpoint (modeling_utils.py, from_pretrained).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.lens import Changes, Config, Triple, before, names, origin_of, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.trl.settings import stated
from cfglint_train.plan.origin import Origin

_FORMATS: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_WRITTEN: Final = {value: name for name, value in _FORMATS.items()}


def dtype_key(config: Config) -> str:
    """The key that states the format, or would state it; scripts have one name for what `from_pretrained` takes."""
    if config.document.syntax == "python":
        return "dtype"
    found = next((one for one in ("dtype", "torch_dtype") if config.get(one) is not None), None)
    return found or _spelled(config)


def _spelled(config: Config) -> str:
    return "torch_dtype" if before(config, "0.23") else "dtype"


def _read(config: Config) -> Iterator[Triple]:
    """The format that is stated by name."""
    name = dtype_key(config)
    value = config.get(name)
    if isinstance(value, str) and value in _FORMATS:
        yield "model.dtype", _FORMATS[value], config.origin(name)


def _write(config: Config, changes: Changes) -> list[Change]:
    wanted = changes["model.dtype"]
    if wanted not in _WRITTEN:
        raise CannotEdit("TRL loads bfloat16, float16 or float32")
    if config.document.syntax == "yaml" and config.get("model_init_kwargs") is not None:
        raise CannotEdit("model_init_kwargs may have a format of its own")
    name = dtype_key(config)
    if config.get("_LOADED_") == "script" and before(config, "0.12"):
        raise CannotEdit("from_pretrained takes the name of a format from transformers 4.46 on")
    if _is_handed_on(config):
        return [Set((*config.root, "model_init_kwargs"), {_spelled(config): _WRITTEN[wanted]}, ("output_dir",))]
    refuse_override(config, (name,))
    return [Set((*config.root, name), _WRITTEN[wanted], ("model_name_or_path",))]


def _is_handed_on(config: Config) -> bool:
    """Whether the trainer loads the model of a script, and is given nothing to load it with."""
    return config.get("_LOADED_") == "trainer" and config.get("model_init_kwargs") is None


def _key_in(config: Config) -> tuple[Route, ...]:
    if _is_handed_on(config):
        return (("model_init_kwargs", _spelled(config)),)
    return (config.document.spelling((*config.root, dtype_key(config)))[len(config.root) :],)


DTYPE: Final = Custom({"model.dtype": names("dtype", "torch_dtype")}, _read, _write, terms=_key_in)


def dtype_of(job: Job) -> tuple[str | None, Origin]:
    """The number format that the weights are loaded in, and where that comes from."""
    config = job.main
    name = dtype_key(config)
    known, origin = job.reading.get("model.dtype"), origin_of(config, name)
    if known is not None:
        return known, origin
    value: Any = config.get(name)
    if value is None:
        # A script that loads the model itself leaves the format to transformers.
        own = config.get("_LOADED_") == "script"
        value = stated(config, name, "string") if not config.has(name) and not own else None
    if isinstance(value, str) and value in _FORMATS:
        return _FORMATS[value], origin
    published = job.architecture.dtype if job.architecture is not None else None
    if value == "auto":
        return published, origin
    transformers = job.releases.get("transformers")
    if value is not None or transformers is None:
        return None, origin
    newer = release_key(transformers) >= release_key("5.0")
    return (published if newer else "fp32"), origin
