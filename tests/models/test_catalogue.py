"""The catalogue: its index, its limits, its coverage, and every count compared with transformers' own classes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tools.models.index import AmbiguousError, build_index, format_index

from cfglint_train.memory.formats import DTYPE_BYTES
from cfglint_train.memory.layers.families import FAMILIES as LAYERS
from cfglint_train.models import lookup
from cfglint_train.models.architecture import Architecture
from cfglint_train.models.families import FAMILIES
from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY, SHARED, list_corpus_files, needs_corpus

FOLDER = Path(lookup.FOLDER)
BUILD = REPOSITORY / "tools" / "models"
SOURCES: dict[str, dict[str, dict[str, Any]]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((BUILD / "sources").glob("*.json"))
}
ENTRIES = {model: entry for models in SOURCES.values() for model, entry in models.items()}
INDEX = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
RECORDS: dict[str, Architecture] = {model: lookup.match_name(model).architecture for model in ENTRIES}
UNRESOLVED: dict[str, str] = json.loads((BUILD / "unresolved.json").read_text(encoding="utf-8"))

# Plan values for the quantisation of published weights.
QUANTIZATIONS = {None, "nf4", "fp4", "int8", "gptq", "awq", "fp8", "mxfp4", "nvfp4", "bitnet"}


# --- the index -------------------------------------------------------------------------------------------------------


def test_there_is_one_file_for_each_source_file():
    assert {path.stem for path in FOLDER.glob("*.json")} == {*SOURCES, "index", "shapes"}
    for family, models in SOURCES.items():
        assert list(json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))) == list(models)
    assert list(lookup.list_ids()) == list(ENTRIES)


def test_the_index_is_what_the_sources_give():
    assert format_index(build_index(SOURCES)) == (FOLDER / "index.json").read_text(encoding="utf-8")


def test_no_name_means_two_models():
    owners: dict[str, str] = {}
    for model, entry in ENTRIES.items():
        for name in (model, *entry.get("aliases", ())):
            assert owners.setdefault(name.lower(), model) == model, name
    assert len({model.lower() for model in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("other", ["A/Model-7b", "b/model-7B-Instruct"])
def test_an_ambiguous_name_stops_the_generator(other):
    with pytest.raises(AmbiguousError, match="model-7b"):
        build_index({"x": {"a/model-7b": {}, "c/other": {"aliases": [other]}}})


@for_each("model", ENTRIES)
def test_ids_and_aliases_resolve_as_listed(model):
    for name in (model, *ENTRIES[model].get("aliases", ())):
        for spelling in (name, name.lower(), f"/{name}/"):
            match = lookup.match_name(spelling)
            assert match is not None, spelling
            assert match.architecture.id == model, spelling
        exact = lookup.match_name(name)
        assert exact is not None
        assert exact.kind == "id"


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("Qwen/Qwen2.5-7B", 131072),
        ("Qwen/Qwen2.5-7B-Instruct", 32768),
        ("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", 32768),
        ("Qwen/Qwen2.5-Math-7B", 4096),
        ("/models/Qwen2.5-Math-7B-Instruct", 4096),
        ("Qwen/Qwen2.5-7B-Instruct-1M", 1010000),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", None),  # no source states its positions
    ],
)
def test_models_of_one_shape_have_their_own_positions(name, context):
    match = lookup.match_name(name)
    assert match is not None
    assert match.architecture.context == context


def test_a_mirror_is_found_by_its_last_component():
    match = lookup.match_name("/mnt/models/Qwen2.5-7B-Instruct")
    assert match is not None
    assert (match.architecture.id, match.kind) == ("Qwen/Qwen2.5-7B", "name")


def test_models_without_a_key_are_found_by_their_full_id_only():
    hidden = [model for model, entry in ENTRIES.items() if entry.get("key") is False]
    assert hidden
    for model in hidden:
        mirror = lookup.find_entry(f"somebody/{model.rsplit('/', 1)[-1]}")
        assert mirror is None or mirror.id != model


@pytest.mark.parametrize(
    ("tuned", "base", "rows"),
    [
        ("teknium/OpenHermes-2.5-Mistral-7B", "mistralai/Mistral-7B-v0.1", 2),
        ("NousResearch/Nous-Hermes-Llama2-13b", "meta-llama/Llama-2-13b-hf", 32),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "meta-llama/Llama-3.1-8B", 0),
        ("WizardLM/WizardCoder-Python-34B-V1.0", "codellama/CodeLlama-34b-hf", 1),
    ],
)
def test_a_fine_tuned_model_differs_in_its_vocabulary_only(tuned, base, rows):
    grown, plain = lookup.find_entry(tuned), lookup.find_entry(base)
    assert grown.vocab == plain.vocab + rows
    assert grown.parameters == plain.parameters + 2 * rows * plain.hidden
    assert grown.layer_parameters == plain.layer_parameters


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("google/paligemma-3b-pt-224", 256), ("google/paligemma2-10b-mix-448", 1024), ("llava-hf/llava-1.5-7b-hf", 576)],
)
def test_every_image_of_some_models_has_as_many_tokens(name, tokens):
    assert lookup.find_entry(name).tower.tokens == tokens


def test_an_encoder_with_a_decoder_is_one_part():
    """Count both stacks, and the shared table once; Flan-T5 has its own head, T5 does not."""
    flan, plain = lookup.find_entry("google/flan-t5-xl"), lookup.find_entry("t5-small")
    assert (flan.tied, plain.tied) == (False, True)
    assert (flan.layers, plain.layers) == (48, 12)
    assert sum(linear.count for linear in flan.list_linear_modules("q")) == 24 + 2 * 24
    assert flan.list_linear_modules("shared", "embed_tokens", parts=("embedding",))[0].count == 1
    assert flan.tower is None
    assert flan.model_type not in LAYERS


def test_a_model_that_tiles_its_images_has_no_fixed_tokens():
    assert lookup.find_entry("llava-hf/llava-v1.6-mistral-7b-hf").tower.tokens is None


def test_a_variant_has_a_formula_of_its_own():
    model = lookup.find_entry("stabilityai/stablelm-2-12b")
    assert model.parameters == 12_143_185_920
    assert model.model_type == "stablelm"
    assert model.formula == "stablelm_qk_norm"
    assert LAYERS[model.formula] != LAYERS[model.model_type]


@for_each("name", UNRESOLVED)
def test_the_unresolved_are_unknown_and_say_why(name):
    assert lookup.find_entry(name) is None
    assert len(UNRESOLVED[name]) > 20


def test_a_lookup_reads_the_index_and_one_file(monkeypatch):
    opened = []

    def spy(path, *args, **kwargs):
        opened.append(os.path.basename(path))
        return open(path, *args, **kwargs)

    monkeypatch.setattr(lookup, "_texts", {})
    monkeypatch.setattr(lookup, "_cache", {})
    monkeypatch.setattr(lookup, "open", spy, raising=False)
    assert lookup.find_entry("Qwen/Qwen3-8B") is not None
    assert lookup.find_entry("Qwen/Qwen3-14B") is not None
    assert lookup.find_entry("no/such-model") is None
    assert opened == ["index.json", "qwen3.json"]


def test_files_stay_small():
    sizes = {path.name: path.stat().st_size for path in FOLDER.glob("*.json")}
    assert sizes.pop("index.json") < 40_000
    assert max(sizes.values()) < 60_000


# --- the records -----------------------------------------------------------------------------------------------------


@for_each("model", ENTRIES)
def test_a_record_is_consistent(model):
    record, entry = RECORDS[model], ENTRIES[model]
    assert record.source
    assert entry["source"]
    assert record.dtype in DTYPE_BYTES
    assert record.quantization in QUANTIZATIONS
    assert record.layer_parameters * record.layers <= record.parameters * 3
    assert record.layer_parameters < record.parameters
    assert record.largest_tensor <= record.parameters
    assert record.tensors > record.layers
    assert record.remote_code == (
        entry["config"]["model_type"] in FAMILIES and FAMILIES[entry["config"]["model_type"]].remote
    )
    listed = sum(linear.elements for linear in record.linears if not (record.tied and linear.part == "head"))
    towers = record.tower.parameters + record.tower.projector_parameters if record.tower else 0
    assert listed <= record.parameters
    # norms, biases, convolutions, state-space parameters and patch embeddings are the only parameters outside linear
    # layers
    assert listed + towers >= 0.97 * record.parameters
    if not record.list_linear_modules("project_in"):  # OPT-350M's embedding is narrower than its layers
        assert record.embedding_parameters >= record.vocab * record.hidden
    assert record.expert_parameters == sum(linear.elements for linear in record.linears if linear.experts) or (
        record.experts is not None and (not record.experts.fused or record.model_type == "gpt_oss")
    )
    assert (record.experts is not None) == (record.expert_parameters > 0)
    assert (record.active_parameters is not None) == (record.experts is not None)
    assert record.active_parameters is None or 0 < record.active_parameters < record.parameters


@for_each("model", [model for model, entry in ENTRIES.items() if "published_parameters" in entry])
def test_published_counts_are_met(model):
    assert RECORDS[model].parameters == ENTRIES[model]["published_parameters"]["count"]


@for_each(
    ("name", "parameters"),
    [
        # as their publishers state them
        ("openai-community/gpt2", 124_439_808),
        ("meta-llama/Llama-2-7b-hf", 6_738_415_616),
        ("meta-llama/Llama-3.1-8B", 8_030_261_248),
        ("mistralai/Mistral-7B-v0.1", 7_241_732_096),
        ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704),
        ("Qwen/Qwen2.5-7B", 7_615_616_512),
        ("Qwen/Qwen3-30B-A3B", 30_532_122_624),
        ("google/gemma-2-9b", 9_241_705_984),
        ("allenai/OLMo-2-1124-7B", 7_298_617_344),
        ("EleutherAI/pythia-12b", 11_846_072_320),
        ("HuggingFaceTB/SmolVLM-500M-Instruct", 507_482_304),
        ("deepseek-ai/deepseek-moe-16b-chat", 16_375_728_128),
        ("openbmb/MiniCPM-2B-sft-bf16", 2_724_880_896),
    ],
)
def test_well_known_counts(name, parameters):
    assert lookup.find_entry(name).parameters == parameters


@pytest.mark.parametrize(
    ("name", "active"),
    [("mistralai/Mixtral-8x7B-v0.1", 12.9e9), ("Qwen/Qwen3-30B-A3B", 3.3e9), ("deepseek-ai/DeepSeek-V3", 37e9)],
)
def test_active_parameters_are_those_that_are_published(name, active):
    assert lookup.find_entry(name).active_parameters == pytest.approx(active, rel=0.02)


def test_lora_shapes():
    """Count 41,943,040 parameters for rank 16 on every linear layer of Llama-3-8B, as PEFT prints them."""
    llama = lookup.find_entry("meta-llama/Meta-Llama-3-8B")
    adapter = sum(linear.count * 16 * (linear.inputs + linear.outputs) for linear in llama.list_linear_modules())
    assert adapter == 41_943_040
    names = ("q_proj", "v_proj")
    assert sum(linear.count for linear in llama.list_linear_modules(*names)) == 64
    assert llama.list_linear_modules("lm_head") == ()
    assert len(llama.list_linear_modules("lm_head", parts=("head",))) == 1


def test_a_mixture_has_no_expert_modules():
    mixtral = lookup.find_entry("mistralai/Mixtral-8x7B-v0.1")
    assert {linear.name for linear in mixtral.list_linear_modules()} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert {linear.name for linear in mixtral.linears if linear.experts} == {"gate_up_proj", "down_proj"}


def test_a_repositorys_own_code_makes_linear_layers_of_its_experts():
    model = lookup.find_entry("deepseek-ai/deepseek-moe-16b-base")
    assert not model.experts.fused
    assert {(linear.inputs, linear.outputs) for linear in model.list_linear_modules("gate_proj")} == {
        (2048, 1408), (2048, 2816), (2048, 10944)
    }  # fmt: skip
    down = {(linear.inputs, linear.outputs): linear.count for linear in model.list_linear_modules("down_proj")}
    assert down[(1408, 2048)] == 27 * 64
    assert sum(linear.elements for linear in model.linears) < model.parameters


@for_each("path", [*FOLDER.glob("*.json"), *BUILD.rglob("*.json")], ids=lambda path: path.name)
def test_data_name_no_place_of_a_machine(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|work|tmp|mnt|Users)/|[A-Z]:\\\\", text.replace("/path/to/", ""))
    assert text.isascii()


# --- what is covered -------------------------------------------------------------------------------------------------

# OpenRLHF's own scripts, and published ones.
OPENRLHF = """
OpenRLHF/Llama-3-8b-sft-mixture OpenRLHF/Llama-3-8b-rm-700k OpenRLHF/Llama-3-8b-rm-mixture
Qwen/Qwen3-4B-Thinking-2507 Qwen/Qwen3.5-2B deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B meta-llama/Meta-Llama-3-8B
mistralai/Mixtral-8x7B-v0.1 OpenLLMAI/Llama-3-8b-sft-mixture meta-llama/Llama-2-7b-hf
OpenLLMAI/Llama-2-7b-sft-model-ocra-500k meta-llama/Llama-2-13b-hf meta-llama/Meta-Llama-3-70B-Instruct
meta-llama/Llama-2-70b-chat-hf codellama/CodeLlama-34b-Instruct-hf meta-llama/Llama-2-7b-chat-hf Qwen/Qwen3-1.7B
Qwen/Qwen3-1.7B-Base Qwen/Qwen3.5-0.8B mistralai/Mistral-7B-v0.1 ai21labs/Jamba-v0.1 Qwen/Qwen2.5-0.5B gpt2
meta-llama/Meta-Llama-3.1-8B-Instruct Qwen/Qwen3-4B-Instruct-2507 Qwen/Qwen2.5-0.5B-Instruct Qwen/Qwen2.5-1.5B
Qwen/Qwen2.5-7B-Instruct Qwen/Qwen2.5-Math-1.5B Qwen/Qwen2.5-Math-7B Qwen/Qwen2.5-Coder-7B
Qwen/Qwen2.5-Coder-7B-Instruct Qwen/Qwen2.5-VL-3B-Instruct deepseek-ai/DeepSeek-R1-Distill-Qwen-7B
deepseek-ai/DeepSeek-R1-Distill-Qwen-14B
""".split()

MODEL_KEYS = {"axolotl": r"base_model", "llamafactory": r"model_name_or_path|ref_model|reward_model"}


def find_corpus_names() -> set[str]:
    names = set()
    for framework, keys in MODEL_KEYS.items():
        pattern = re.compile(rf"^\s*(?:{keys})\s*:\s*[\"']?([^\s\"'#]+)", re.MULTILINE)
        for path in list_corpus_files(".yaml", ".yml", ".json", under=framework):
            names.update(pattern.findall(path.read_text(encoding="utf-8", errors="replace")))
    return names - {"true", "false", "null"}


def is_path(name: str) -> bool:
    return name.count("/") != 1 or name.startswith(("/", "models/", "saves/"))


@needs_corpus
def test_the_corpus_is_covered():
    names = find_corpus_names()
    assert len(names) > 140
    assert {name for name in names if lookup.find_entry(name) is None} == UNRESOLVED.keys()
    ids = {name for name in names if not is_path(name)}
    found_ids = {name for name in ids if lookup.find_entry(name) is not None}
    assert len(found_ids) / len(ids) >= 0.95, sorted(ids - found_ids)


AXOLOTL = SHARED / "data" / "axolotl_base_models.json"


@pytest.mark.skipif(not AXOLOTL.is_file(), reason=f"no shared data: no list of axolotl's base models at {AXOLOTL}")
def test_axolotl_base_models_are_covered():
    names = [name for name, _ in json.loads(AXOLOTL.read_text(encoding="utf-8"))]
    found_names = [name for name in names if lookup.find_entry(name) is not None]
    assert len(found_names) / len(names) >= 0.95


@for_each("name", OPENRLHF)
def test_openrlhf_models_are_covered(name):
    assert lookup.find_entry(name) is not None


# A wrong architecture is worse than none: a model whose name states a size has about that size.
SIZE = re.compile(r"(?<![\d._exvt])(\d+(?:[._]\d+)?)b\b", re.IGNORECASE)
# Names that state the size of an expert, or the active or text parameters.
OTHER_SIZE = re.compile(r"\dx\d|\de\b|-[AE]\d|OLMoE|Voxtral", re.IGNORECASE)


def list_sized_names() -> list[tuple[str, float]]:
    names = [*ENTRIES, *(alias for entry in ENTRIES.values() for alias in entry.get("aliases", ()))]
    sized_names = []
    for name in names:
        sizes = SIZE.findall(name.rsplit("/", 1)[-1])
        if sizes and not OTHER_SIZE.search(name):
            sized_names.append((name, float(sizes[0].replace("_", ".")) * 1e9))
    return sized_names


@for_each(("name", "size"), list_sized_names())
def test_a_name_with_a_size_has_about_that_size(name, size):
    # some names leave out the embeddings (OLMo-2-1B has 1.48 billion)
    assert 0.62 * size < lookup.find_entry(name).parameters < 1.35 * size + 0.7e9


# --- the counts, on transformers' own classes ------------------------------------------------------------------------


def find_smallest(models: dict[str, dict[str, Any]]) -> str:
    return min(models, key=lambda model: RECORDS[model].layers * RECORDS[model].tensors)


def rebuild(model: str) -> dict[str, Any]:
    pytest.importorskip("torch", reason="counts are made on the model classes (pip install torch transformers)")
    pytest.importorskip("transformers", minversion="5.0", reason="counts are made on transformers 5")
    from tools.models.record import build_record

    return json.loads(json.dumps(build_record(model, ENTRIES[model])))


def read_stored(model: str) -> dict[str, Any]:
    family = next(family for family, models in SOURCES.items() if model in models)
    return json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))[model]


@pytest.mark.oracle
@pytest.mark.parametrize("model", [find_smallest(models) for models in SOURCES.values()])
def test_rebuilding_counts_the_same(model):
    assert rebuild(model) == read_stored(model)


@pytest.mark.oracle
@pytest.mark.parametrize("model", ENTRIES)
def test_rebuilding_counts_the_same_for_all(model):
    assert rebuild(model) == read_stored(model)


@pytest.mark.oracle
def test_the_shapes_are_what_the_sources_give():
    pytest.importorskip("torch", reason="shapes are read from transformers' configurations")
    pytest.importorskip("transformers", minversion="5.0")
    from tools.models.__main__ import format_shapes

    assert format_shapes(SOURCES) == (FOLDER / "shapes.json").read_text(encoding="utf-8")


def test_the_counts_are_complete():
    """Find counts in every record, also after changes of the generator that no other test of a field would notice."""
    for model, record in RECORDS.items():
        assert all((record.parameters, record.tensors, record.largest_tensor, record.layer_parameters)), model
        assert record.linears, model
        assert record.counted in ("built", "formula"), model
