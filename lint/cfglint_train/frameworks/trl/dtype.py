"""Number format in which TRL loads a model.

`dtype` (`torch_dtype` before 0.23) is `float32` by default from 0.27 on (`trainer/model_config.py`). If it is None,
transformers 4 loads fp32, and transformers 5 keeps the format of the checkpoint (modeling_utils.py, from_pretrained).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.lens import Changes, Config, Triple, find_origin, is_before, parse_routes, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.trl.settings import read_setting
from cfglint_train.plan.origin import Origin

_FORMATS: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_SPELLINGS: Final = {value: name for name, value in _FORMATS.items()}


def find_dtype_key(config: Config) -> str:
    """Return the key that sets the format, or the key for it at the target release if none is set.

    For scripts, it is always `dtype`, even if `from_pretrained` receives `torch_dtype`.
    """
    if config.document.syntax == "python":
        return "dtype"
    stated_key = next((key for key in ("dtype", "torch_dtype") if config.get(key) is not None), None)
    return stated_key or _get_key_of_release(config)


def _get_key_of_release(config: Config) -> str:
    return "torch_dtype" if is_before(config, "0.23") else "dtype"


def _read_dtype(config: Config) -> Iterator[Triple]:
    """Yield the format if a key names it."""
    name = find_dtype_key(config)
    value = config.get(name)
    if isinstance(value, str) and value in _FORMATS:
        yield "model.dtype", _FORMATS[value], config.get_origin(name)


def _write_dtype(config: Config, changes: Changes) -> list[Change]:
    wanted = changes["model.dtype"]
    if wanted not in _SPELLINGS:
        raise CannotEdit("TRL loads bfloat16, float16 or float32")
    if config.document.syntax == "yaml" and config.get("model_init_kwargs") is not None:
        raise CannotEdit("model_init_kwargs may set its own dtype")
    name = find_dtype_key(config)
    if config.get("_LOADED_") == "script" and is_before(config, "0.12"):
        raise CannotEdit("from_pretrained accepts a dtype name since transformers 4.46")
    if _needs_init_kwargs(config):
        return [
            Set((*config.root, "model_init_kwargs"), {_get_key_of_release(config): _SPELLINGS[wanted]}, ("output_dir",))
        ]
    refuse_override(config, (name,))
    return [Set((*config.root, name), _SPELLINGS[wanted], ("model_name_or_path",))]


def _needs_init_kwargs(config: Config) -> bool:
    """Return whether a script's trainer loads the model and the script passes no `model_init_kwargs`."""
    return config.get("_LOADED_") == "trainer" and config.get("model_init_kwargs") is None


def _list_keys(config: Config) -> tuple[Route, ...]:
    if _needs_init_kwargs(config):
        return (("model_init_kwargs", _get_key_of_release(config)),)
    return (config.document.get_spelled_route((*config.root, find_dtype_key(config)))[len(config.root) :],)


DTYPE: Final = Custom(
    {"model.dtype": parse_routes("dtype", "torch_dtype")}, _read_dtype, _write_dtype, list_terms=_list_keys
)


def find_dtype(job: Job) -> tuple[str | None, Origin]:
    """Return the number format in which the weights are loaded, or None if it is unknown, and its origin."""
    config = job.main
    name = find_dtype_key(config)
    plan_dtype, origin = job.plan.get("model.dtype"), find_origin(config, name)
    if plan_dtype is not None:
        return plan_dtype, origin
    value: Any = config.get(name)
    if value is None:
        # A script that loads the model itself leaves the format to transformers.
        is_loaded_by_script = config.get("_LOADED_") == "script"
        value = read_setting(config, name, "string") if not config.has(name) and not is_loaded_by_script else None
    if isinstance(value, str) and value in _FORMATS:
        return _FORMATS[value], origin
    published = job.architecture.dtype if job.architecture is not None else None
    if value == "auto":
        return published, origin
    transformers = job.releases.get("transformers")
    if value is not None or transformers is None:
        return None, origin
    is_newer = parse_release(transformers) >= parse_release("5.0")
    return (published if is_newer else "fp32"), origin
