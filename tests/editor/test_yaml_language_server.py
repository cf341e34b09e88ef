"""yaml-language-server with the printed schemas: what users without cfglint's own server see."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from lsprotocol import types

from tests.support.command import run_cfglint
from tests.support.corpus import REPOSITORY, list_corpus_files, needs_corpus
from tests.support.editor import Editor

pytestmark = pytest.mark.slow

PACKAGES = ("yaml-language-server@1.25.0", "@taplo/cli@0.7.0")
CAPABILITIES = types.ClientCapabilities(
    workspace=types.WorkspaceClientCapabilities(configuration=True),
    text_document=types.TextDocumentClientCapabilities(
        hover=types.HoverClientCapabilities(content_format=[types.MarkupKind.Markdown]),
        completion=types.CompletionClientCapabilities(
            completion_item=types.ClientCompletionItemOptions(documentation_format=[types.MarkupKind.Markdown])
        ),
    ),
)
CURSOR = "|"
FRAMEWORKS = {
    "axolotl": "yaml", "llamafactory": "yaml", "olmo": "yaml", "verl": "yaml", "accelerate": "yaml", "trl": "yaml",
    "deepspeed": "json",
}  # fmt: skip
"""Frameworks whose files are YAML or JSON, with the extension."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the servers from npm, and return the folder of their programs."""
    if shutil.which("npm") is None:
        pytest.skip("no npm")
    folder = tmp_path_factory.mktemp("node")
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"npm cannot fetch: {fetched.stderr[-200:]}")
    return folder / "node_modules" / ".bin"


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Print the schemas into a folder, with links to rule pages."""
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "cfglint.toml").write_text('rule-url = "https://rules.test/{code}"\n')
    for framework in FRAMEWORKS:
        (folder / f"{framework}.json").write_text(run_cfglint("schema", framework, cwd=folder).out)
    return folder


def run(programs: Path, schemas: Path, folder: Path, steps: Callable[[Editor], Coroutine[Any, Any, None]]) -> None:
    """Run steps in an editor with yaml-language-server; a file `x.FRAMEWORK.yaml` has the schema of the framework."""
    patterns = {
        (schemas / f"{framework}.json").as_uri(): f"*.{framework}.{extension}"
        for framework, extension in FRAMEWORKS.items()
    }
    options = {
        "schemas": patterns,
        "yamlVersion": "1.1",
        "validate": True,
        "hover": True,
        "completion": True,
        "schemaStore": {"enable": False},
    }
    command = (str(programs / "yaml-language-server"), "--stdio")

    async def drive() -> None:
        editor = Editor(folder, command=command, capabilities=CAPABILITIES, settings={"yaml": options})
        editor.client.feature("telemetry/event")(lambda _: None)
        async with editor:
            document = editor.open(folder / "first.axolotl.yaml", "base_model: a\n")
            while await editor.hover(document, "base_model") is None:
                await asyncio.sleep(0.1)  # the server has not asked for its settings yet
            await steps(editor)

    asyncio.run(drive())


async def complete(editor: Editor, path: Path, marked: str) -> dict[str, str]:
    """Return the completions at the cursor of a text, each with its documentation."""
    before, _, after = marked.partition(CURSOR)
    document = editor.open(path, before + after)
    position = types.Position(before.count("\n"), len(before.rsplit("\n", 1)[-1]))
    answer = await editor.client.text_document_completion_async(types.CompletionParams(document, position))
    items = answer.items if isinstance(answer, types.CompletionList) else answer or []
    return {item.label.strip('"'): str(getattr(item.documentation, "value", item.documentation)) for item in items}


VALUES = (
    ("axolotl", "base_model: a\noptimizer: |\n", "adamw_torch_fused"),
    ("axolotl", "base_model: a\nlr_scheduler: |\n", "rex"),
    ("axolotl", "base_model: a\nadapter: |\n", "qlora"),
    ("llamafactory", "stage: sft\nfinetuning_type: |\n", "lora"),
    ("llamafactory", "stage: sft\noptim: |\n", "adamw_torch_fused"),
    ("llamafactory", "stage: sft\nlr_scheduler_type: |\n", "cosine_with_min_lr"),
    ("olmo", "run_name: a\nprecision: |\n", "amp_bf16"),
    ("olmo", "fsdp:\n  sharding_strategy: |\n", "HYBRID_SHARD"),
    ("verl", "algorithm:\n  adv_estimator: |\n", "grpo"),
    ("verl", "actor_rollout_ref:\n  rollout:\n    name: |\n", "sglang"),
    ("accelerate", "distributed_type: FSDP\nmixed_precision: |\n", "bf16"),
    ("trl", "model_name_or_path: a\ndtype: |\n", "bfloat16"),
    ("deepspeed", '{"optimizer": {"type": |}}\n', "AdamW"),
)
KEYS = (
    ("axolotl", "base_model: a\nmicro_|\n", "micro_batch_size"),
    ("llamafactory", "stage: sft\ncutoff|\n", "cutoff_len"),
    ("olmo", "run_name: a\ndevice_train|\n", "device_train_microbatch_size"),
    ("verl", "actor_rollout_ref:\n  actor:\n    ppo_micro|\n", "ppo_micro_batch_size_per_gpu"),
    ("trl", "model_name_or_path: a\nper_device_train|\n", "per_device_train_batch_size"),
    ("deepspeed", '{"train_micro|"}\n', "train_micro_batch_size_per_gpu"),
)


def test_values_and_keys_are_completed_and_explained(programs: Path, schemas: Path, tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        for number, (framework, text, label) in enumerate((*VALUES, *KEYS)):
            path = tmp_path / f"{number}.{framework}.{FRAMEWORKS[framework]}"
            explained = await complete(editor, path, text)
            assert label in explained, (framework, text)
            if (framework, text, label) in KEYS:
                assert "](https://rules.test/MEM001)" in explained[label], (framework, explained[label])

    run(programs, schemas, tmp_path, steps)


@pytest.mark.parametrize("framework", [name for name, extension in FRAMEWORKS.items() if extension == "yaml"])
def test_every_key_of_the_root_is_offered(framework: str, programs: Path, schemas: Path, tmp_path: Path) -> None:
    schema = json.loads((schemas / f"{framework}.json").read_text())
    properties = schema["$defs"][schema["$ref"].rpartition("/")[2]]["properties"]

    async def steps(editor: Editor) -> None:
        offered = await complete(editor, tmp_path / f"a.{framework}.yaml", CURSOR)
        assert {name for name, part in properties.items() if not part.get("deprecated")} <= offered.keys()

    run(programs, schemas, tmp_path, steps)


HOVERS = (
    ("axolotl", "micro_batch_size: 4\n", "batch.micro"),
    ("axolotl", "flash_attention: true\n", "until axolotl 0.16.1"),
    ("llamafactory", "stage: sft\ncutoff_len: 2048\n", "sequence.length"),
    ("olmo", "device_train_microbatch_size: 2\n", "batch.micro"),
    ("verl", "actor_rollout_ref:\n  actor:\n    ppo_micro_batch_size_per_gpu: 4\n", "batch.micro"),
    ("accelerate", "distributed_type: FSDP\nmixed_precision: bf16\n", "precision.compute"),
    ("trl", "per_device_train_batch_size: 4\n", "batch.micro"),
    ("deepspeed", '{"train_micro_batch_size_per_gpu": 4}\n', "batch.micro"),
)


def test_hover_explains_the_last_key(programs: Path, schemas: Path, tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        for number, (framework, text, meaning) in enumerate(HOVERS):
            document = editor.open(tmp_path / f"{number}.{framework}.{FRAMEWORKS[framework]}", text)
            key = text.rsplit(": ", 1)[0].split()[-1].strip('{"')
            hover = str(await editor.hover(document, key))
            assert meaning in hover.replace("\\", ""), (framework, hover)
            assert "since " in hover

    run(programs, schemas, tmp_path, steps)


def test_bare_words_are_those_of_the_frameworks(programs: Path, schemas: Path, tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "a.llamafactory.yaml", "stage: sft\nbf16: yes\nsave_strategy: no\n")
        assert [item.range.start.line for item in await editor.wait(document)] == [2]

    run(programs, schemas, tmp_path, steps)


SAMPLES = {
    "axolotl": ("axolotl/examples", "base_model"),
    "llamafactory": ("llamafactory/examples", "do_train"),
    "olmo": ("olmo/configs", "optimizer"),
    "accelerate": ("", "distributed_type"),
    "deepspeed": ("", "zero_optimization"),
}
"""Folder of a framework's own files in the corpus, and a key of its configs."""
SAMPLE_SIZE = 12


def list_valid_files(framework: str, schemas: Path) -> list[Path]:
    """Return files of upstream that the schema accepts, spread over the corpus."""
    under, mark = SAMPLES[framework]
    validator = jsonschema.Draft202012Validator(json.loads((schemas / f"{framework}.json").read_text()))
    valid = []
    suffixes = (".json",) if FRAMEWORKS[framework] == "json" else (".yaml", ".yml")
    for path in list_corpus_files(*suffixes, under=under):
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            continue
        if isinstance(content, dict) and mark in content and validator.is_valid(content):
            valid.append(path)
    return valid[:: max(1, len(valid) // SAMPLE_SIZE)]


@needs_corpus
def test_valid_files_of_upstream_have_no_problems(programs: Path, schemas: Path, tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        for framework in SAMPLES:
            files = list_valid_files(framework, schemas)
            assert len(files) >= 5, framework
            for number, source in enumerate(files):
                path = tmp_path / f"{number}.{framework}.{FRAMEWORKS[framework]}"
                document = editor.open(path, source.read_text(encoding="utf-8"))
                assert [item.message for item in await editor.wait(document)] == [], source
            text = '{"zero_optimisation": {}}' if FRAMEWORKS[framework] == "json" else "a_misspelled_key: 1\n"
            wrong = editor.open(tmp_path / f"wrong.{framework}.{FRAMEWORKS[framework]}", text)
            assert "is not allowed" in (await editor.wait(wrong))[0].message

    run(programs, schemas, tmp_path, steps)


def test_taplo_checks_the_settings_of_cfglint(programs: Path, tmp_path: Path) -> None:
    (tmp_path / ".schemas").mkdir()
    (tmp_path / ".schemas" / "cfglint.json").write_text(run_cfglint("schema", "cfglint", cwd=tmp_path).out)
    shown = re.findall(r"```toml\n(.*?)```", (REPOSITORY / "docs" / "editors.md").read_text(), re.DOTALL)
    stated, rule = (next(text for text in shown if mark in text) for mark in ("#:schema", "[[rule]]"))
    path = tmp_path / "cfglint.toml"

    def find_problems(text: str) -> str:
        path.write_text(text)
        command = [str(programs / "taplo"), "lint", "cfglint.toml"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr

    assert "error" not in find_problems(stated)
    assert '"eror" is not one of' in find_problems(f'{stated}fail-on = "eror"\n')
    assert "error" not in find_problems('fail-on = "eror"\n')
    (tmp_path / ".taplo.toml").write_text(rule)
    assert '"eror" is not one of' in find_problems('fail-on = "eror"\n')
    assert "not allowed" in find_problems('fail_on = "error"\n')
