"""Releases of transformers that have a class for a model, compared with the releases themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tools import model_types

from cfglint_train.models.lookup import get_first_release

SOURCE = """\
CONFIG_MAPPING_NAMES = OrderedDict([("other", "OtherConfig")])
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("one", "OneForCausalLM"), ("two", "TwoForCausalLM")])
MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES = OrderedDict([("see", ("See", "SeeToo"))])
"""


def test_the_first_release_of_each_type() -> None:
    assert set(model_types.list_model_types(SOURCE)) >= {"one", "two", "see"}
    assert "other" not in set(model_types.list_model_types(SOURCE))
    assert model_types.find_first_releases({"5.10.0": ["one", "two"], "5.9.0": ["one"]}) == {
        "one": "5.9.0",
        "two": "5.10.0",
    }


@pytest.mark.parametrize(
    ("model_type", "release"),
    [("llama", "4.37.0"), ("deepseek_v2", "4.54.0"), ("qwen3", "4.51.0"), ("gemma3", "4.50.0"), ("chatglm", None)],
)
def test_the_table(model_type: str, release: str | None) -> None:
    """Match release notes: gemma3 in 4.50.0, qwen3 in 4.51.0; models/deepseek_v2 is in 4.54.0, not in 4.53.3."""
    assert get_first_release(model_type) == release


@pytest.mark.oracle
def test_the_installed_release_has_what_the_table_says() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    source = Path(os.path.dirname(transformers.__file__), "models/auto/modeling_auto.py").read_text(encoding="utf-8")
    unknown = [name for name in model_types.list_model_types(source) if get_first_release(name) is None]
    assert unknown == []
