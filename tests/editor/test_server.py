"""The language server as editors use it: a real process, driven by a real client over its pipes."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from cfglint_train import api
from cfglint_train.documents.document import Document
from cfglint_train.editor.session import Session
from cfglint_train.version import VERSION
from tests.support.command import run_cfglint
from tests.support.corpus import REPOSITORY, list_corpus_files, needs_corpus
from tests.support.editor import HELIX, Editor

CASES = REPOSITORY / "fixtures" / "cases"
SFT = """\
base_model: Qwen/Qwen2.5-0.5B
datasets: [{path: data/train.jsonl, type: alpaca}]
sequence_len: 2048
micro_batch_size: 4
optimizer: adamw_torch
"""
FIX_ALL = "source.fixAll.cfglint"


def run(steps: Callable[[Editor], Coroutine[Any, Any, None]], *folders: Path, **options: Any) -> None:
    """Run steps in an editor with workspace folders."""

    async def drive() -> None:
        async with Editor(*folders, **options) as editor:
            await steps(editor)

    asyncio.run(drive())


def copy_case(folder: Path, name: str, *others: str) -> Path:
    """Copy a case of the fixtures and return its first file in the copy."""
    shutil.copytree(CASES / name, folder / name)
    return folder / name / next(iter(others))


FILES = (
    ("fixtures/cases/5-axolotl-3b/llama-3b.yaml", "micro_batch_size", "`batch.micro` = `4`", "does not fit"),
    ("fixtures/cases/2-llamafactory-236b/zero3.yaml", "cutoff_len", "`sequence.length`", "does not fit"),
    ("fixtures/cases/3-openrlhf-16b/train_ppo.sh", "--micro_train_batch_size", "`batch.micro` = `4`", "does not"),
    ("fixtures/cases/1-olmo-64-nodes/olmo-7b.yaml", "max_sequence_length", "`sequence.length` = `4096`", "host"),
    ("fixtures/cases/4-olmo-syncs/olmo_core_7b.py", "rank_microbatch_size", "`batch.", "GiB"),
    ("fixtures/trl/sft.yaml", "per_device_train_batch_size", "`batch.micro`", "GiB"),
)
"""A file per framework, with a key, its hover text and its lenses."""


def test_every_framework_has_every_feature(tmp_path: Path) -> None:
    """Diagnostics are those of a lint; hover, lenses and outline are about the file."""
    shutil.copytree(CASES, tmp_path / "cases")
    shutil.copytree(REPOSITORY / "fixtures" / "trl", tmp_path / "cases" / "trl")

    async def steps(editor: Editor) -> None:
        for file, key, hover, lens in FILES:
            path = tmp_path / "cases" / Path(file).parent.name / Path(file).name
            document = editor.open(path)
            diagnostics = await editor.wait(document)
            findings = [one for one in api.lint([path]).findings if one.path == path.as_posix()]
            assert [one.code for one in diagnostics] == [one.code for one in findings]
            text = str(await editor.hover(document, key))
            assert hover in text
            assert str(path.parent) not in text
            lenses = await editor.client.text_document_code_lens_async(types.CodeLensParams(document))
            assert lens in " ".join(one.command.title for one in lenses or [] if one.command)
            symbols = await editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
            assert key in str(symbols)

    run(steps, tmp_path)


def test_the_largest_size_is_that_of_fit(tmp_path: Path) -> None:
    """Lens, hover and `cfglint fit --max-batch` state the same number, also where the host has no room."""
    shutil.copytree(CASES, tmp_path / "cases")

    async def steps(editor: Editor) -> None:
        stated = set()
        for file, key, _, _ in (FILES[0], FILES[3]):
            path = tmp_path / "cases" / Path(file).parent.name / Path(file).name
            document = editor.open(path)
            await editor.wait(document)
            for size, name in (("micro_batch", "batch.micro"), ("sequence_length", "sequence.length")):
                (run, *_) = api.fit([path], most=size).runs
                expected = f"largest that fits: {run.largest:,}" if run.largest else "no value is sure to fit"
                hover = str(await editor.hover(document, key))
                assert expected in hover or f"`{name}`" not in hover, file
                assert run.largest or f"`{name}`" not in hover or "of host memory" in hover.split("no value is sure")[1]
                stated.add(expected if f"`{name}`" in hover else "")
        assert len(stated) == 3

    run(steps, tmp_path)


@pytest.mark.slow
@needs_corpus
def test_diagnostics_equal_the_report_of_the_command() -> None:
    """Every upstream file has the code, severity, message and place that the JSON report states."""
    paths = list_corpus_files(".yaml", ".yml", ".json", ".sh", ".py")
    expected: dict[str, set[Any]] = {}
    for path in paths:
        for finding in api.lint([path], api.Options(force_exclude=True, no_cache=True)).findings:
            place = (finding.line, finding.column, finding.end_line, finding.end_column)
            expected.setdefault(finding.path, set()).add((finding.code, finding.severity, finding.message, place))

    async def steps(editor: Editor) -> None:
        found: dict[str, set[Any]] = {}
        for path in paths:
            if path.stat().st_size:
                await editor.wait(document := editor.open(path))
                editor.client.text_document_did_close(types.DidCloseTextDocumentParams(document))
        for params in editor.history:
            for one in params.diagnostics:
                found.setdefault(params.uri.removeprefix("file://"), set()).add(read_diagnostic(one))
        assert found == expected

    run(steps)


def read_diagnostic(one: types.Diagnostic) -> tuple[Any, ...]:
    """Return code, severity, headline and place of a diagnostic as the JSON report states them (ASCII lines)."""
    severity = {1: "error", 2: "warning", 3: "info"}[one.severity or 0]
    start, end = one.range.start, one.range.end
    place = (start.line + 1, start.character + 1, end.line + 1, end.character + 1)
    return one.code, severity, one.message.split("\n")[0], place


def test_the_last_of_many_edits_wins(tmp_path: Path) -> None:
    """After 200 changes in two seconds, the diagnostics are those of the last text, and none is stale."""
    path = tmp_path / "sft.yaml"
    path.write_text(SFT)

    async def steps(editor: Editor) -> None:
        document = editor.open(path)
        await editor.wait(document)
        for number in range(199):
            editor.change(document, f"{SFT}unknown_{number}: 1\n")
            await asyncio.sleep(0.01)
        editor.change(document, SFT + "sequence_length: 1024\n")
        (finding,) = [one for one in await editor.wait(document) if one.code == "KEY001"]
        assert "sequence_length" in finding.message
        await asyncio.sleep(0.5)
        assert editor.history[-1].version == 201
        versions = [params.version for params in editor.history if params.uri == document.uri]
        assert versions == sorted(versions, key=lambda version: version or 0)

    run(steps, tmp_path)


def test_a_companion_that_is_open_counts_before_it_is_saved(tmp_path: Path) -> None:
    """A change of an open DeepSpeed file changes the findings of the config that names it; so does one on disk."""
    path = copy_case(tmp_path, "2-llamafactory-236b", "zero3-offload.yaml")
    companion = path.parent / "ds_z3_offload_config.json"

    async def steps(editor: Editor) -> None:
        document, other = editor.open(path), editor.open(companion)
        await editor.wait(document)
        lenses = await editor.client.text_document_code_lens_async(types.CodeLensParams(document))
        editor.change(other, companion.read_text().replace('"stage": 3', '"stage": 2'))
        await editor.wait(other)
        changed = await editor.client.text_document_code_lens_async(types.CodeLensParams(document))
        assert (lenses or [])[0].command != (changed or [])[0].command
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(other))
        again = await editor.client.text_document_code_lens_async(types.CodeLensParams(document))
        assert again == lenses
        target = await editor.client.text_document_definition_async(
            types.DefinitionParams(document, editor.locate(document, "ds_z3_offload"))
        )
        assert isinstance(target, types.Location)
        assert target.uri == companion.as_uri()

    run(steps, tmp_path)


def test_a_companion_has_the_problems_and_fixes_of_the_run_that_names_it(tmp_path: Path) -> None:
    """A problem that two checks find appears once; a fix of the run changes the config from within its companion."""
    path = copy_case(tmp_path, "2-llamafactory-236b", "zero3.yaml")
    companion = path.parent / "ds_z3_config.json"

    async def steps(editor: Editor) -> None:
        document, other = editor.open(path), editor.open(companion)
        assert [one.code for one in await editor.wait(other)] == ["MEM001"]
        ((title, action),) = (await editor.list_actions(other)).items()
        assert "optim: adamw_bnb_8bit" in title
        editor.change(document, editor.edit(action.edit)[document.uri])
        await editor.wait(document)
        await editor.hover(document, "deepspeed")  # the answer comes after all diagnostics
        assert not editor.published[other.uri].diagnostics
        editor.change(other, companion.read_text().replace('"stage": 3', '"stage": 2'))
        (problem,) = [one for one in await editor.wait(other) if one.code == "KEY005"]
        assert document.uri in [place.location.uri for place in problem.related_information or []]

    run(steps, tmp_path)


def test_every_open_file_counts_before_it_is_saved(tmp_path: Path) -> None:
    """A file that a script reads counts although it is no config, and although it is not on the disk yet."""
    (tmp_path / ".git").mkdir()
    script, variables = tmp_path / "run.sh", tmp_path / "env.sh"
    script.write_text(
        "source env.sh\ndeepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-0.5B --dataset x "
        "--micro_train_batch_size $MICRO --max_len 2048 --bf16\n"
    )

    async def steps(editor: Editor) -> None:
        document = editor.open(script)
        await editor.wait(document)
        assert "`batch.micro` = `3`" not in str(await editor.hover(document, "--micro_train_batch_size"))
        other = editor.open(variables, "MICRO=3\n")
        assert "`batch.micro` = `3`" in str(await editor.hover(document, "--micro_train_batch_size"))
        editor.change(other, "MICRO=5\n")
        assert "`batch.micro` = `5`" in str(await editor.hover(document, "--micro_train_batch_size"))
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(other))
        assert "`batch.micro` = `5`" not in str(await editor.hover(document, "--micro_train_batch_size"))

    run(steps, tmp_path)


def test_a_script_on_disk_follows_an_open_file_that_it_sources(tmp_path: Path) -> None:
    """Scripts are kept between checks, but not if they source a text that is open and changes."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.sh").write_text("source env.sh\naxolotl train sft.yaml --micro-batch-size $MICRO\n")

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", SFT)
        variables = editor.open(tmp_path / "env.sh", "MICRO=3\n")
        for number, micro in enumerate((3, 5, 6)):
            editor.change(document, f"{SFT}# {number}\n")
            await editor.wait(document)
            editor.change(variables, f"MICRO={micro}\n")
            assert f"= `{micro}`" in str(await editor.hover(document, "micro_batch_size"))

    run(steps, tmp_path)


def test_requirements_settings_and_new_launches_count_before_they_are_saved(tmp_path: Path) -> None:
    """A file that shapes the runs of an open config counts as it is shown, although no config names it."""
    (tmp_path / ".git").mkdir()
    names = ("sft.yaml", "requirements.txt", "pyproject.toml", "go.sh")
    path, pins, project, script = (tmp_path / name for name in names)
    path.write_text(SFT + "unknown_key: 1\n")
    pins.write_text("axolotl==0.8.0\n")
    project.write_text("[tool.other]\n")
    script.write_text("echo\n")

    async def steps(editor: Editor) -> None:
        document = editor.open(path)
        assert "axolotl 0.8.0" in str(await editor.wait(document))
        requirements = editor.open(pins)
        editor.change(requirements, "axolotl==0.9.0\n")
        assert "(axolotl 0.9.0)" in str(await editor.hover(document, "micro_batch_size"))
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(requirements))
        assert "(axolotl 0.8.0)" in str(await editor.hover(document, "micro_batch_size"))
        settings, launch = editor.open(project), editor.open(script)
        editor.change(settings, '[tool.cfglint]\nignore = ["KEY001"]\n')
        editor.change(launch, "axolotl train sft.yaml --micro-batch-size 7\n")
        editor.published.clear()
        assert "KEY001" not in {one.code for one in await editor.wait(document)}
        assert "= `7`" in str(await editor.hover(document, "micro_batch_size"))
        assert not [title for title in await editor.list_actions(document) if "KEY001" in title]

    run(steps, tmp_path)


def test_actions_are_the_fixes_of_the_command(tmp_path: Path) -> None:
    """The action for a whole file writes what `--fix` writes; each quick fix ends its finding."""
    path = copy_case(tmp_path, "5-axolotl-3b", "llama-3b.yaml")
    # The settings of the cases live one folder above, so the facts of this run are assumed here.

    async def steps(editor: Editor) -> None:
        document = editor.open(path)
        await editor.wait(document)
        actions = await editor.list_actions(document)
        everything = editor.edit(actions.pop("Fix all safe problems (cfglint)").edit)
        assert everything == {
            Path(name).as_uri(): text.decode() for name, text in api.fix([path], unsafe=False).sources.items()
        }
        for title, action in actions.items():
            text = editor.edit(action.edit)[document.uri]
            after = api.lint([path], sources={path.as_posix(): text})
            left = {(one.code, one.message) for one in after.findings}
            for one in action.diagnostics or []:
                assert (one.code, one.message.split("\n")[0]) not in left, title
        assert [title for title in actions if "unsafe" in title]
        assert [title for title in actions if title.startswith("Ignore KEY001")]
        only = await editor.list_actions(document, FIX_ALL)
        assert list(only) == ["Fix all safe problems (cfglint)"]
        await editor.client.workspace_execute_command_async(types.ExecuteCommandParams("cfglint.fit", [document.uri]))
        fitted = api.fit([path], change=True).sources
        assert editor.edit(editor.applied[-1]) == {Path(name).as_uri(): text.decode() for name, text in fitted.items()}

    run(steps, tmp_path)


def test_all_fixes_of_a_companion_are_those_of_every_run_that_names_it(tmp_path: Path) -> None:
    """A DeepSpeed file is fixed for both configs that name it; their own problems stay."""
    (tmp_path / ".git").mkdir()
    config = (
        "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: alpaca\n"
        "template: qwen\ncutoff_len: 1024\nbf16: true\ndeepspeed: ds.json\nper_device_train_batch_size: {}\n"
        "gradient_accumulation_step: 4\noutput_dir: out{}\n"
    )
    companion = (
        '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto", "train_batch_size": "auto",\n'
        ' "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}\n'
    )

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "ds.json", companion)
        await editor.wait(document)
        assert not await editor.list_actions(document)
        for batch in (2, 3):
            await editor.wait(editor.open(tmp_path / f"{batch}.yaml", config.format(batch, batch)))
        action = (await editor.list_actions(document, FIX_ALL))["Fix all safe problems (cfglint)"]
        (changed,) = editor.edit(action.edit).items()
        assert changed == (document.uri, companion.replace("4", '"auto"'))

    run(steps, tmp_path)


def test_reports_last_as_long_as_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each config has one report, which is replaced; nothing is left after the end."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))

    async def steps(editor: Editor) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            document = editor.open(tmp_path / name / "sft.yaml", SFT)
            await editor.wait(document)
            for _ in range(2):
                report = types.ExecuteCommandParams("cfglint.report", [document.uri])
                await editor.client.workspace_execute_command_async(report)
        assert [editor.shown.count(shown) for shown in editor.shown] == [2] * 4
        for shown in editor.shown:
            assert "<title>" in Path(shown.removeprefix("file://")).read_text(encoding="utf-8")

    run(steps, tmp_path)
    assert not list(temporary.iterdir())


def test_completion_knows_the_release(tmp_path: Path) -> None:
    """Keys and listed values are offered where they belong, although the text does not parse while it is typed."""

    async def steps(editor: Editor) -> None:
        for number, (line, label, inserted) in enumerate(
            (
                ("gradient_acc", "gradient_accumulation_steps", "gradient_accumulation_steps: "),
                ("optimizer: ada", "adopt_adamw", "adopt_adamw"),
                ("bf16: ", "true", "true"),
                ("datasets:\n  - path: x\n    ty", "type", "type: "),
                ("datasets: [{path: x, ty}]", "type", "type: "),
                ('optimizer: "ada', "adopt_adamw", "adopt_adamw"),
            )
        ):
            key = line.split(":")[0]
            text = "".join(one for one in SFT.splitlines(keepends=True) if not one.startswith(key)) + line
            document = editor.open(tmp_path / f"sft{number}.yaml", text)
            position = types.Position(text.count("\n"), len(text.rsplit("\n", 1)[-1].rstrip("]}")))
            offered = await editor.complete(document, position)
            assert offered[label] == inserted
            assert "base_model" not in offered

    run(steps, tmp_path)


BROKEN = (
    "unfinis\n",
    "hub_model_id: [a, b\n",
    'wandb_name: "x\n',
    "strict: false\n   sequence_len: 7\n",
    "\tx: 1\n",
    "日本: [\n",
    'wandb_name: "\ud800"\n',
)
"""Lines with which a YAML text does not parse; the last one is no UTF-8."""


def test_hover_and_outline_beside_broken_lines(tmp_path: Path) -> None:
    """Settings above and below a line that does not parse keep hover and outline, and follow the text."""

    async def steps(editor: Editor) -> None:
        for number, line in enumerate(BROKEN):
            for text in (f"{line}{SFT}", f"{SFT}{line}", f"{SFT}{line.rstrip()}"):
                document = editor.open(tmp_path / f"sft{number}-{len(editor.texts)}.yaml", text)
                code = "SYN001" if "\ud800" in line else "SYN002"
                assert [one.code for one in await editor.wait(document)] == [code]
                for size in ("4", "3"):
                    editor.change(document, text.replace("size: 4", f"size: {size}"))
                    assert f"`batch.micro` = `{size}`" in str(await editor.hover(document, "micro_batch_size")), text
                symbols = await editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
                outline = [one for one in symbols or [] if isinstance(one, types.DocumentSymbol)]
                (symbol,) = [one for one in outline if one.name == "optimizer"]
                assert symbol.range.start == editor.locate(document, "optimizer", 0)

    run(steps, tmp_path)


def test_the_budget_stays_at_its_lines_while_the_text_does_not_parse(tmp_path: Path) -> None:
    """Lenses keep their texts, move with their lines and go with them; none is about a text that is gone."""

    async def list_lenses(editor: Editor, document: types.TextDocumentIdentifier) -> dict[str, str]:
        answer = await editor.client.text_document_code_lens_async(types.CodeLensParams(document))
        lines = editor.texts[document.uri].split("\n")
        return {lens.command.title: lines[lens.range.start.line] for lens in answer or [] if lens.command}

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", SFT)
        whole = await list_lenses(editor, document)
        assert len(whole) >= 3
        first, rest = SFT.split("\n", 1)
        assert first in whole.values()
        for text in (f"{first}\nunfinis\n{rest}", f"{first}\n\tx: [\n\n{rest}", f"{SFT}hub: [a\n", f"unfinis\n{SFT}"):
            editor.change(document, text)
            assert await list_lenses(editor, document) == whole, text
        report = types.ExecuteCommandParams("cfglint.fit", [document.uri])
        await editor.client.workspace_execute_command_async(report)
        assert editor.messages == ["cfglint: this file is not checked; see its problems"]
        editor.change(document, SFT.replace("micro_batch_size: 4", "micro_batch_size: ["))
        left = await list_lenses(editor, document)
        assert set(left) < set(whole)
        assert "sequence_len: 2048" in left.values()
        editor.change(document, "a: 1\n")
        assert not await list_lenses(editor, document)

    run(steps, tmp_path)


def test_a_key_has_one_description_in_hover_completion_and_schema(tmp_path: Path) -> None:
    (tmp_path / "cfglint.toml").write_text('rule-url = "https://rules.test/{code}"\n[releases]\naxolotl = "0.16.0"\n')
    printed = run_cfglint("schema", "axolotl", "--release", "0.16.0", cwd=tmp_path).out
    properties = json.loads(printed)["$defs"]["AxolotlInputConfig"]["properties"]
    text = SFT.replace("micro_batch_size", "#") + "micro_batch_size: 1\nflash_attention: true\n"

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", text)
        empty = editor.open(tmp_path / "empty.yaml", SFT + "\n")
        explained = await editor.explain_completions(empty, types.Position(SFT.count("\n"), 0))
        for key in ("micro_batch_size", "flash_attention", "sequence_len"):
            description = properties[key]["markdownDescription"]
            assert "(https://rules.test/MEM001)" in description
            assert description in str(await editor.hover(document, key))
            assert explained.get(key, description) == description
        assert "until axolotl 0.16.1" in explained["flash_attention"]
        assert "Sequences per GPU and forward pass" in properties["micro_batch_size"]["description"]

    run(steps, tmp_path)


LAUNCH = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B trainer.nnodes=1 "


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.yaml", SFT.rpartition("optimizer")[0] + "optimizer: ", {"adamw_torch_fused", "muon"}),
        ("a.yaml", SFT + "lr_scheduler: ", {"cosine", "rex"}),
        ("a.yaml", SFT + "adapter: ", {"lora", "qlora"}),
        ("a.yaml", SFT + "attn_implementation: ", {"flash_attention_2", "sdpa"}),
        ("run.sh", LAUNCH + "algorithm.adv_estimator=", {"gae", "grpo"}),
        ("run.sh", LAUNCH + "model_engine=", {"dp", "megatron"}),
        ("run.sh", LAUNCH + "--config-name ppo_", {"ppo_trainer", "ppo_megatron_trainer"}),
        ("run.sh", f"# cfglint: verl=0.5.0\n{LAUNCH}-cn=", {"ppo_trainer", "ppo_megatron_trainer"}),
        ("run.sh", LAUNCH + "actor_rollout_ref.rollout.name=", {"vllm", "sglang"}),
        ("run.sh", LAUNCH + "actor_rollout_ref.actor.strategy=", {"fsdp2", "megatron"}),
    ],
)
def test_completion_offers_open_lists_of_values(name: str, text: str, expected: set[str], tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / name, text)
        position = types.Position(text.count("\n"), len(text.rsplit("\n", 1)[-1]))
        assert expected <= set(await editor.complete(document, position))

    run(steps, tmp_path)


def test_completion_below_broken_lines(tmp_path: Path) -> None:
    """Lines above and below the cursor that do not parse do not end the completion of keys and values."""
    config = copy_case(tmp_path, "2-llamafactory-236b", "zero3.yaml")
    companion = config.parent / "ds_z3_config.json"

    async def steps(editor: Editor) -> None:
        for number, line in enumerate(BROKEN):
            for text, where, label in (
                (f"{line}{SFT}gradient_acc", "gradient_acc", "gradient_accumulation_steps"),
                (f"{SFT}{line}datasets:\n  - path: x\n    ty\nval_set_size: 0\n", "    ty", "type"),
                (f"gradient_acc\n{SFT}{line}", "gradient_acc", "gradient_accumulation_steps"),
                (f"{line}{SFT}".replace("adamw_torch", "adop"), "optimizer: adop", "adopt_adamw"),
            ):
                document = editor.open(tmp_path / f"sft{number}-{len(editor.texts)}.yaml", text)
                position = editor.locate(document, where, len(where))
                assert label in await editor.complete(document, position), text
        await editor.wait(editor.open(config))
        text = companion.read_text().replace('"overlap_comm"', '"redu')
        for line in ('"stage3_max_live', '"stage3_max_live"', '"stage3_max_live":', '"stage3_max_live": ,'):
            document = editor.open(companion, text.replace('"redu', f'{line}\n"redu'))
            assert "reduce_scatter" in await editor.complete(document, editor.locate(document, '"redu', 5)), line

    run(steps, tmp_path)


def test_completion_in_json_and_scripts(tmp_path: Path) -> None:
    """A DeepSpeed file completes beside the config that names it, a launch script its flags."""
    config = copy_case(tmp_path, "2-llamafactory-236b", "zero3.yaml")
    companion = config.parent / "ds_z3_config.json"
    script = copy_case(tmp_path, "3-openrlhf-16b", "train_ppo.sh")

    async def steps(editor: Editor) -> None:
        await editor.wait(editor.open(config))
        text = companion.read_text().replace('"overlap_comm"', '"redu')
        document = editor.open(companion, text)
        assert "reduce_scatter" in await editor.complete(document, editor.locate(document, '"redu', 5))
        text = script.read_text().replace("--micro_train_batch_size", "--micro_tr")
        document = editor.open(script, text)
        assert "--micro_train_batch_size" in await editor.complete(document, editor.locate(document, "--micro_tr ", 10))

    run(steps, tmp_path)


def test_positions_count_utf16_units(tmp_path: Path) -> None:
    """Emoji and CJK before a finding or the cursor move neither; files outside every folder are checked."""
    text = SFT + 'wandb_name: "训练🚀🚀"\nwandb_entity: "a\u2028b"\n' + "hub_x: {🚀🚀: 1, y: 2} # 🚀\n"

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", text)
        (finding,) = [one for one in await editor.wait(document) if one.code == "KEY001"]
        line = text.split("\n")[finding.range.start.line]
        units = line.encode("utf-16-le")[2 * finding.range.start.character : 2 * finding.range.end.character]
        assert units.decode("utf-16-le").startswith("hub_x")
        fix = (await editor.list_actions(document))["Ignore KEY001 (unknown-key) here"]
        changed = editor.edit(fix.edit)[document.uri].split("\n")
        assert [line for line in changed if "cfglint" not in line] == text.split("\n") != changed
        assert await editor.hover(document, "micro_batch") is not None

    run(steps)


def test_settings_apply_per_folder_and_follow_changes(tmp_path: Path) -> None:
    """Two roots have their own settings; a change of a settings file counts at once, invalid settings are named."""
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        (folder / "sft.yaml").write_text(SFT + "unknown_key: 1\n")
    (second / "cfglint.toml").write_text('ignore = ["KEY001"]\n')

    async def steps(editor: Editor) -> None:
        noisy, quiet = editor.open(first / "sft.yaml"), editor.open(second / "sft.yaml")
        assert "KEY001" in {one.code for one in await editor.wait(noisy)}
        assert "KEY001" not in {one.code for one in await editor.wait(quiet)}
        for content, expected in (('\nignore = ["XXX001"]\n', "not checked: "), ("", "unknown_key")):
            (second / "cfglint.toml").write_text(content)
            editor.published.pop(quiet.uri)
            editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([]))
            assert [one for one in await editor.wait(quiet) if expected in one.message]
            if expected.startswith("not checked"):
                fit = types.ExecuteCommandParams("cfglint.fit", [quiet.uri])
                await editor.client.workspace_execute_command_async(fit)
                assert editor.messages == ["cfglint: this file is not checked; see its problems"]
                (problem,) = editor.published[(second / "cfglint.toml").as_uri()].diagnostics
                assert problem.range.start == types.Position(1, 0)
                assert problem.message.startswith("not checked: ignore: unknown rule XXX001")
        assert not editor.published[(second / "cfglint.toml").as_uri()].diagnostics
        (first / "sft.yaml").rename(first / "renamed.yaml")
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(noisy))
        await editor.wait(editor.open(first / "renamed.yaml"))
        assert editor.published[noisy.uri].diagnostics == ()

    run(steps, first, second)


def test_a_companion_that_is_deleted_and_renamed(tmp_path: Path) -> None:
    """The config that names a file follows the file's name on disk, and loses its diagnostics with its own file."""
    path = copy_case(tmp_path, "2-llamafactory-236b", "zero3.yaml")
    companion = path.parent / "ds_z3_config.json"
    other = companion.rename(companion.with_name("other.json"))

    async def steps(editor: Editor) -> None:
        document = editor.open(path)
        (missing,) = [one for one in await editor.wait(document) if "ds_z3_config.json" in one.message]
        other.rename(companion)
        await follow_disk(editor, document)
        assert missing.code not in {one.code for one in await editor.wait(document)}
        renamed = editor.open(companion)
        await editor.wait(renamed)
        companion.rename(other)
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(renamed))
        await follow_disk(editor, document)
        assert missing in await editor.wait(document)
        assert editor.published[renamed.uri].diagnostics == ()
        path.unlink()
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(document))
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([]))
        await editor.wait(editor.open(other))
        assert editor.published[document.uri].diagnostics == ()

    async def follow_disk(editor: Editor, document: types.TextDocumentIdentifier) -> None:
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([]))
        editor.change(document, editor.texts[document.uri])

    run(steps, tmp_path)


def test_settings_that_lead_outside_are_refused(tmp_path: Path) -> None:
    """A workspace that is not trusted cannot have the server read files outside of it."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / ".git").mkdir(parents=True)
    outside.mkdir()
    (outside / "ds.json").write_text('{"train_batch_size": 8, "zero_optimisation": {"stage": 3}}')
    (outside / "rows.jsonl").write_text("{}\n")
    shutil.copy(outside / "ds.json", inside / "copied.json")
    (inside / "linked.json").symlink_to(outside / "ds.json")
    settings, path = inside / "cfglint.toml", inside / "sft.yaml"

    async def steps(editor: Editor) -> None:
        document = editor.open(path, f"{SFT}deepspeed: copied.json\n")
        await editor.wait(document)
        await editor.hover(document, "deepspeed")  # the answer comes after all diagnostics
        assert "zero_optimisation" in str(editor.published.pop((inside / "copied.json").as_uri()))
        for target in ("../outside/ds.json", str(outside / "ds.json"), "linked.json"):
            document = editor.open(path, f"{SFT}deepspeed: {target}\n")
            await editor.wait(document)
            await editor.hover(document, "deepspeed")
            assert "zero_optimisation" not in str(editor.published), target
        settings.write_text('measurements = "../outside/rows.jsonl"\n')
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([]))
        editor.change(document, SFT)
        assert ["points outside the repository" in one.message for one in await editor.wait(document)] == [True]

    run(steps, inside)


def test_a_crash_is_a_diagnostic(tmp_path: Path) -> None:
    """The server lives on if a check crashes."""
    program = """if True:
        from cfglint_train.editor import session
        from cfglint_train.front import cli
        lint = session.api.lint_request
        def break_down(request):
            if b"break" in request.sources[request.files[0]]:
                raise RuntimeError("a defect")
            return lint(request)
        session.api.lint_request = break_down
        cli.main(["server"])
    """
    path = tmp_path / "sft.yaml"

    async def steps(editor: Editor) -> None:
        document = editor.open(path, SFT + "# break\n")
        assert ["a defect" in one.message for one in await editor.wait(document)] == [True]
        editor.change(document, SFT)
        assert "a defect" not in str(await editor.wait(document))

    run(steps, tmp_path, command=(sys.executable, "-c", program))


@pytest.mark.parametrize(("encoding", "codec", "unit"), [("utf-8", "utf-8", 1), ("utf-16", "utf-16-le", 2)])
def test_hints_behind_their_settings_where_there_are_no_lenses(
    tmp_path: Path, encoding: str, codec: str, unit: int
) -> None:
    """A client like Helix, which shows no code lenses, has the budget as hints, at positions in the units it counts."""
    text = f"{{wandb_name: '训练🚀', {', '.join(SFT.splitlines())}}}\n"
    general = types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind(encoding)])
    hints = types.TextDocumentClientCapabilities(inlay_hint=types.InlayHintClientCapabilities())

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", text)
        assert editor.capabilities.position_encoding == encoding
        await editor.wait(document)
        whole = types.Range(types.Position(0, 0), types.Position(99, 0))
        answer = await editor.client.text_document_inlay_hint_async(types.InlayHintParams(document, whole))
        labels = {hint.position.character: str(hint.label) for hint in answer or []}
        for setting in ("sequence_len: 2048", "micro_batch_size: 4"):
            before = text[: text.index(setting) + len(setting)]
            assert "largest that fits: " in labels[len(before.encode(codec)) // unit]

    run(steps, tmp_path, capabilities=types.ClientCapabilities(general=general, text_document=hints))


def test_the_settings_for_helix_and_zed_start_the_server(tmp_path: Path) -> None:
    """The settings that the documentation shows are valid, and their commands start a server that checks a file."""
    page = (REPOSITORY / "docs" / "editors.md").read_text(encoding="utf-8")
    snippets = {language: re.findall(f"```{language}\n(.*?)```", page, re.DOTALL) for language in ("toml", "json")}
    (helix,) = [settings for settings in map(tomllib.loads, snippets["toml"]) if "language-server" in settings]
    assert {language["name"] for language in helix["language"]} == {"yaml", "json"}
    assert all(language["language-servers"][0] == "cfglint" for language in helix["language"])
    (zed,) = [settings["lsp"] for settings in map(json.loads, snippets["json"]) if "lsp" in settings]
    binary = zed["yaml-language-server"]["binary"]
    server = helix["language-server"]["cfglint"]
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]

    async def steps(editor: Editor) -> None:
        assert editor.capabilities.position_encoding == types.PositionEncodingKind.Utf8
        document = editor.open(tmp_path / "sft.yaml", SFT + "unknown_key: 1\n")
        assert "KEY001" in [one.code for one in await editor.wait(document)]

    for program, arguments in ((server["command"], server["args"]), (binary["path"], binary["arguments"])):
        module, _, function = scripts[program].partition(":")
        words = [program, *arguments]
        start = f"import sys; from {module} import {function}; sys.argv[:] = {words}; sys.exit({function}())"
        run(steps, tmp_path, command=(sys.executable, "-c", start), capabilities=HELIX)


def test_a_crash_of_a_rule_hides_no_other_finding(tmp_path: Path) -> None:
    """A rule that crashes on every run is named once per file; the other rules report, and fixes are offered."""
    program = """if True:
        from cfglint_rules import registry
        from cfglint_train.front import cli
        get_checker = registry.get_checker
        def crash(subject):
            raise RuntimeError("a defect")
        registry.get_checker = lambda rule: crash if rule.code == "PRF003" else get_checker(rule)
        cli.main(["server"])
    """
    path = tmp_path / "sft.yaml"

    async def steps(editor: Editor) -> None:
        text = SFT.replace("sequence_len", "sequence_length")
        document = editor.open(path, text)
        for number in range(2):
            editor.change(document, f"{text}# {number}\n")
            diagnostics = await editor.wait(document)
            crashes = [one.message for one in diagnostics if "a defect" in one.message]
            assert crashes == [crash for crash in crashes if crash.startswith("not checked: PRF003 failed: ")]
            assert len(crashes) == 1
            assert "KEY001" in {one.code for one in diagnostics}
            assert [title for title in await editor.list_actions(document) if title.startswith("Fix: ")]

    run(steps, tmp_path, command=(sys.executable, "-c", program))


def test_a_long_file_is_checked(tmp_path: Path) -> None:
    """A file of 10,000 lines has diagnostics on its last line."""
    text = SFT + "".join(f"# line {number}\n" for number in range(10_000)) + "unknown_key: 1\n"

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", text)
        (finding,) = [one for one in await editor.wait(document) if one.code == "KEY001"]
        assert finding.range.start.line == text.count("\n") - 1

    run(steps, tmp_path)


VERL = """\
python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B \\
  actor_rollout_ref.model.lora_rank=32 trainer.nnodes=2 trainer.n_gpus_per_node=8 \\
  algorithm.adv_estimator=grpo trainer.save_
"""


def test_earlier_texts_are_forgotten(tmp_path: Path) -> None:
    """A session holds as many trees of a file after many edits as after a few."""
    for name, text in (("train.sh", VERL), ("sft.yaml", SFT)):
        path, session, counts = (tmp_path / name).as_posix(), Session(), []
        session.has_watcher = True
        for number in range(24):
            session.put(path, f"{text}# {number}\n")
            session.check(path)
            if number in (7, 23):
                gc.collect()
                counts.append(sum(isinstance(one, Document) and one.path == path for one in gc.get_objects()))
        assert counts[0] == counts[1] > 0


def test_keys_with_dots_and_keys_of_classes(tmp_path: Path) -> None:
    """Each of Hydra's options is explained and completed in its section; a key of a class is a key of the release."""
    program = copy_case(tmp_path, "4-olmo-syncs", "olmo_core_7b.py")
    script = tmp_path / "train.sh"

    async def steps(editor: Editor) -> None:
        document = editor.open(script, VERL)
        await editor.wait(document)
        for key, title in (
            ("lora_rank", "actor_rollout_ref.model.lora_rank"),
            ("nnodes", "trainer.nnodes"),
            ("trainer.n_gpus", "trainer.n_gpus_per_node"),
            ("grpo", "algorithm.adv_estimator"),
        ):
            assert f"**`{title}`**" in str(await editor.hover(document, key))
        offered = await editor.complete(document, editor.locate(document, "trainer.save_", len("trainer.save_")))
        assert offered["save_freq"] == "save_freq"
        assert "nnodes" not in offered
        editor.change(document, VERL.replace("trainer.save_", "actor_rol"))
        offered = await editor.complete(document, editor.locate(document, "grpo actor_rol", len("grpo actor_rol")))
        assert "actor_rollout_ref" in offered
        for word in (
            '"+actor_rollout_ref.actor.cli" x',
            '"actor_rollout_ref.actor.cli',
            "'actor_rollout_ref.actor.cli=2'",
        ):
            editor.change(document, VERL.replace("trainer.save_", word))
            offered = await editor.complete(document, editor.locate(document, ".actor.cli", len(".actor.cli")))
            assert offered["clip_ratio"] == "clip_ratio", word
        document = editor.open(program)
        await editor.wait(document)
        hover = str(await editor.hover(document, "rank_microbatch_size"))
        assert "not a key" not in hover
        assert "integer" in hover
        assert "largest that fits" not in hover, "the key counts tokens, and the plan sequences"
        text = program.read_text()
        for line, typed, label in (
            ("compile_model=True,", "compile_m", "compile_model"),
            ("cancel_check_interval=1,", "canc,", "cancel_check_interval"),
            ("lr=3e-4", "weig", "weight_decay"),
            ("save_interval=1000, max_checkpoints=None", "ephem", "ephemeral_save_interval"),
        ):
            editor.change(document, text.replace(line, typed))
            offered = await editor.complete(document, editor.locate(document, typed, 4))
            assert offered[label] == f"{label}="

    run(steps, tmp_path)


def test_hover_in_code_is_about_the_value_under_the_cursor(tmp_path: Path) -> None:
    """A value has one hover wherever the script writes it: as an argument, an attribute, a constant or an option."""
    folder = REPOSITORY / "fixtures" / "olmo_core"

    async def steps(editor: Editor) -> None:
        for file, places in (
            (
                "example_style.py",
                (
                    ("256 * 1024", "data_loader.global_batch_size"),
                    ("16 * 1024", "train_module.rank_microbatch_size"),
                    ("max_sequence_length=opts", "train_module.max_sequence_length"),
                    ("2048", "dataset.sequence_length"),
                    ("ephemeral_save_interval", "trainer.callbacks.saver.ephemeral_save_interval"),
                ),
            ),
            (
                "derivative_style.py",
                (
                    ("8192 * 2", "train_module.rank_microbatch_size"),
                    ("max_sequence_length=8192", "dataset.sequence_length"),
                    ("8192,", "dataset.sequence_length"),
                    ("10000", "trainer.callbacks.checkpointer.save_interval"),
                    ("context,", None),
                ),
            ),
            ("internal_style.py", (("4 * 1024", "train_module.max_sequence_length"), ("TransformerConfig:", None))),
        ):
            document = editor.open(tmp_path / file, (folder / file).read_text())
            await editor.wait(document)
            for words, title in places:
                hover = await editor.hover(document, words)
                assert hover is None if title is None else str(hover).startswith(f"**`{title}`**"), (file, words)

    run(steps, tmp_path)


def test_an_abbreviated_flag_is_explained_as_the_flag(tmp_path: Path) -> None:
    """Argparse accepts the beginning of a flag if no other flag begins like it."""
    text = "deepspeed --module openrlhf.cli.train_sft --pretrain x --zero 3 --micro_train_batch 4 --max 2048 --lora 8\n"

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "run.sh", text)
        await editor.wait(document)
        for words, meaning in (("--zero", "--zero_stage"), ("--micro", "--micro_train_batch_size")):
            hover = str(await editor.hover(document, words))
            assert f" means `{meaning}`" in hover
            assert "integer; default" in hover
            assert "not a key" not in hover
        assert "not a key of this release" in str(await editor.hover(document, "--lora"))

    run(steps, tmp_path)


def test_a_deepspeed_file_without_a_config_is_explained(tmp_path: Path) -> None:
    """No config must name a DeepSpeed file to have its keys explained."""

    async def steps(editor: Editor) -> None:
        document = editor.open(
            tmp_path / "ds.json", '{"fp16": {"enabled": true},\n "zero_optimization": {"stage": 2}}\n'
        )
        await editor.wait(document)
        assert "`0`, `1`, `2`, `3`; default `0`" in str(await editor.hover(document, "stage"))

    run(steps, tmp_path)


def test_a_variable_of_a_script_is_no_setting(tmp_path: Path) -> None:
    """Outside the options of a command there is nothing to explain."""
    path = shutil.copy(REPOSITORY / "fixtures" / "openrlhf" / "strings.sh", tmp_path)

    async def steps(editor: Editor) -> None:
        document = editor.open(Path(path))
        await editor.wait(document)
        assert await editor.hover(document, "MODEL") is None

    run(steps, tmp_path)


def test_a_fact_has_the_line_ends_of_the_file(tmp_path: Path) -> None:
    """A comment that states a fact does not mix line ends."""
    text = (REPOSITORY / "fixtures" / "openrlhf" / "crlf.sh").read_bytes().decode()

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "crlf.sh", text)
        await editor.wait(document)
        actions = await editor.list_actions(document)
        (action, *_) = [action for title, action in actions.items() if title.startswith("State that gpu")]
        changed = editor.edit(action.edit)[document.uri]
        assert changed.count("\n") == changed.count("\r\n") == text.count("\n") + 1

    run(steps, tmp_path)


def test_a_byte_order_mark_in_the_text_stays_and_moves_nothing(tmp_path: Path) -> None:
    """VS Code, Neovim and Emacs keep the mark out of the text; a client that sends it gets it back."""
    text = "\ufeffmicro_batch_sizes: 4\n" + SFT.replace("micro_batch_size: 4\n", "")

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", text)
        (finding,) = [one for one in await editor.wait(document) if one.code == "KEY001"]
        assert (finding.range.start.character, finding.range.end.character) == (1, 18)
        actions = await editor.list_actions(document)
        for title, action in actions.items():
            changed = editor.edit(action.edit)[document.uri]
            assert changed.startswith("\ufeff"), title
            assert changed.count("\ufeff") == 1, title
            assert "\nmicro_batch_size" in f"\n{changed[1:]}", title
        assert any(title.startswith("Fix: ") for title in actions)
        assert any(title.startswith("Fix all") for title in actions)

    run(steps, tmp_path)


def test_hover_says_each_kind_and_each_peak_once(tmp_path: Path) -> None:
    """Kinds of value have no doubles, and a list is not confused with its items; a key of two fields has one peak."""
    text = SFT + "lora_target_modules: [q_proj]\nadapter: lora\nlora_r: 8\nbf16: true\n"

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", text)
        await editor.wait(document)
        assert "\n\ntext or list of text; default" in str(await editor.hover(document, "lora_target_modules"))
        lines = str(await editor.hover(document, "bf16")).split("\n\n")
        assert len(lines) == len(set(lines))
        assert [line for line in lines if line.startswith("peak ")]

    run(steps, tmp_path)


def test_a_budget_that_assumes_the_gpu_offers_to_state_it(tmp_path: Path) -> None:
    """The line below a budget states the GPU although no finding rests on it; other lines do not offer that."""

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", SFT)
        diagnostics = await editor.wait(document)
        assert not [one for one in diagnostics if "GPU" in one.message]
        for words, is_offered in (("base_model", True), ("micro_batch_size", True), ("optimizer", False)):
            place = editor.locate(document, words)
            answer = await editor.client.text_document_code_action_async(
                types.CodeActionParams(document, types.Range(place, place), types.CodeActionContext([]))
            )
            titles = {one.title for one in answer or [] if isinstance(one, types.CodeAction)}
            assert ("State that gpu is A100-80GB" in titles) == is_offered, words
        actions = await editor.list_actions(document)
        editor.change(document, editor.edit(actions["State that gpu is A100-80GB"].edit)[document.uri])
        await editor.wait(document)
        (lens, *_) = await editor.client.text_document_code_lens_async(types.CodeLensParams(document)) or []
        assert lens.command
        assert "assumed" not in lens.command.title
        assert not [title for title in await editor.list_actions(document) if "gpu is" in title]

    run(steps, tmp_path)


def test_a_file_that_does_not_parse_has_one_diagnostic(tmp_path: Path) -> None:
    """The reason why a file is not checked does not repeat its syntax error."""

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", SFT + "\tfoo: 1\n")
        assert [one.code for one in await editor.wait(document)] == ["SYN002"]

    run(steps, tmp_path)


def test_a_whole_file_with_many_findings_has_its_actions_at_once(tmp_path: Path) -> None:
    """Comments that ignore single findings are offered without a check of the file for each, however many they are."""
    text = SFT + "".join(f"unknown_{number}: 1\n" for number in range(50))

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "sft.yaml", text)
        diagnostics = await editor.wait(document)
        whole = types.Range(types.Position(0, 0), types.Position(100, 0))
        actions = await editor.client.text_document_code_action_async(
            types.CodeActionParams(document, whole, types.CodeActionContext([]))
        )
        offered = [one for one in actions or [] if isinstance(one, types.CodeAction) and one.title.startswith("Ignore")]
        assert 50 < len(offered) <= len(diagnostics)
        assert not [action for action in offered if action.edit]
        (action,) = [one for one in offered if "`unknown_30`" in str(one.diagnostics)]
        resolved = await editor.client.code_action_resolve_async(action)
        after = editor.edit(resolved.edit)[document.uri]
        assert "# cfglint: ignore[KEY001]\nunknown_30: 1\n" in after
        assert after.count("cfglint") == 1

    run(steps, tmp_path)


def test_the_outline_of_a_script_names_its_commands(tmp_path: Path) -> None:
    """The commands of a script have names in the outline, with their options below."""

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "train.sh", VERL)
        await editor.wait(document)
        symbols = await editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
        outline = {one.name: one.children or [] for one in symbols or [] if isinstance(one, types.DocumentSymbol)}
        assert "trainer" in [one.name for one in outline["verl.trainer.main_ppo"]]

    run(steps, tmp_path)


def test_a_notebook_has_an_outline_and_hover(tmp_path: Path) -> None:
    """Places in the code of a notebook are places in its file, behind quotes and escapes."""
    code = (
        "from trl import SFTConfig, SFTTrainer\n"
        'args = SFTConfig("训练", run_name="a\\tb", max_length=2048)\n'
        'SFTTrainer("Qwen/Qwen2.5-0.5B", args, train_dataset=None).train()\n'
    )

    async def steps(editor: Editor) -> None:
        for is_ascii in (True, False):
            cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": code.splitlines(keepends=True)}]
            notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
            text = json.dumps(notebook, indent=1, ensure_ascii=is_ascii)
            document = editor.open(tmp_path / f"{is_ascii}.ipynb", text)
            await editor.wait(document)
            assert "**`max_length`**" in str(await editor.hover(document, "max_length"))
            answer = await editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
            (script,) = [one for one in answer or [] if isinstance(one, types.DocumentSymbol)]
            (symbol,) = [one for one in script.children or [] if one.name == "max_length"]
            assert symbol.range.start == editor.locate(document, "max_length", 0)
            assert symbol.range.end == editor.locate(document, "max_length", len("max_length=2048"))

    run(steps, tmp_path)


def test_a_script_leads_to_the_config_that_it_starts(tmp_path: Path) -> None:
    """The definition of a command's argument is the file that it names; an option names none."""
    config = copy_case(tmp_path, "5-axolotl-3b", "llama-3b.yaml")

    async def steps(editor: Editor) -> None:
        document = editor.open(tmp_path / "train.sh", "axolotl train 5-axolotl-3b/llama-3b.yaml --debug\n")
        await editor.wait(document)
        for words, expected in (("llama-3b", config.as_uri()), ("--debug", None), ("train ", None)):
            place = editor.locate(document, words)
            target = await editor.client.text_document_definition_async(types.DefinitionParams(document, place))
            assert (target.uri if isinstance(target, types.Location) else None) == expected

    run(steps, tmp_path)


def test_problems_link_to_the_rule_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages are those of the installed package, or of the nearest settings."""
    site = tmp_path / "site"
    (site / f"cfglint_train-{VERSION}.dist-info").mkdir(parents=True)
    metadata = "Metadata-Version: 2.4\nProject-URL: Documentation, https://docs.acme.example/\n\n"
    (site / f"cfglint_train-{VERSION}.dist-info" / "METADATA").write_text(metadata)
    for package in ("lint/cfglint_train", "rules/cfglint_rules", "schemas/cfglint_schemas"):
        (site / Path(package).name).symlink_to(REPOSITORY / package)
    monkeypatch.setenv("PYTHONPATH", str(site))

    async def steps(editor: Editor) -> None:
        for folder, settings, expected in (
            ("default", "", "https://docs.acme.example/rules/KEY001/"),
            ("own", 'rule-url = "https://own.example/{name}"', "https://own.example/unknown-key"),
            ("none", 'rule-url = ""', None),
        ):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "cfglint.toml").write_text(settings)
            (tmp_path / folder / "sft.yaml").write_text(SFT + "micro_batch_sizes: 2\n")
            diagnostics = await editor.wait(editor.open(tmp_path / folder / "sft.yaml"))
            [unknown] = [one for one in diagnostics if one.code == "KEY001"]
            assert (unknown.code_description and unknown.code_description.href) == expected

    run(steps, tmp_path)
