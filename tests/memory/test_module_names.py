"""Full names of modules compared with those of transformers' own models, built without weights."""

from __future__ import annotations

from typing import Any

import pytest

from cfglint_train.memory.module_names import MLP, compute_match_share, find_part
from tests.memory.jobs import LLAMA_8B

SMALL = {
    "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 200_000,
    "num_key_value_heads": 2,
}  # fmt: skip
FAMILIES = (
    "llama",
    "qwen3",
    "gemma3_text",
    "phi3",
    "glm4",
    "olmo2",
    "deepseek_v3",
    "qwen3_next",
    "llama4_text",
    "jamba",
)


@pytest.mark.oracle
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_have_the_names_that_transformers_gives_them(family: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **SMALL))
    shape = LLAMA_8B._replace(model_type=family)
    parts: dict[str, set[str]] = {}
    for name, module in model.named_modules():
        parts_of_name = name.split(".")
        if isinstance(module, torch.nn.Linear) and parts_of_name[:2] == ["model", "layers"]:
            parts.setdefault(parts_of_name[-1], set()).add(parts_of_name[3])
    mapped = {leaf: find_part(shape, leaf) for leaf in parts if find_part(shape, leaf)}
    assert mapped
    assert {leaf: {part} for leaf, part in mapped.items()} == {leaf: parts[leaf] for leaf in mapped}


@pytest.mark.parametrize(
    ("leaf", "part", "targets", "expected"),
    [
        ("q_proj", "decoder", ("attn",), 1),
        ("q_proj", "decoder", ("mlp", "self_attn"), 1),
        ("q_proj", "decoder", ("mlp",), 0),
        ("gate_proj", "decoder", ("mlp",), 1),
        ("gate_proj", "decoder", (r".*.mlp.*",), 1),
        ("gate_proj", "decoder", (r"(.*attn.*)",), 0),
        ("gate_proj", "decoder", ("(mlp)",), 0),
        ("up_proj", "decoder", ("layers.31.",), 1 / 32),
        ("lm_head", "head", ("mlp", "attn"), 0),
        ("lm_head", "head", ("lm_head",), 1),
        ("fc1", "decoder", ("mlp",), 0),
        ("fc1", "decoder", ("fc",), 1),
    ],
)
def test_targets_are_parts_of_full_names_or_match_them(leaf: str, part: Any, targets: Any, expected: float) -> None:
    assert compute_match_share(LLAMA_8B, leaf, part, 1 if part == "head" else 32, targets) == expected


def test_the_last_layers_are_meant() -> None:
    assert compute_match_share(LLAMA_8B, "up_proj", "decoder", 2, ("layers.31.",)) == 0.5
    assert not compute_match_share(LLAMA_8B, "up_proj", "decoder", 2, ("layers.29.",))


def test_families_name_their_parts_differently() -> None:
    llama4 = LLAMA_8B._replace(model_type="llama4_text")
    assert {leaf: compute_match_share(llama4, leaf, "decoder", 32, ("mlp",)) for leaf in MLP} == dict.fromkeys(MLP, 0.0)
    assert compute_match_share(llama4, "up_proj", "decoder", 32, ("feed_forward",)) == 1
