"""Migrations of each framework: changes, items to review, items left for a human, and the laws of editing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cfglint_schemas.status import Context
from cfglint_train.documents.document import Edit, Span, apply_edits
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.frameworks.openrlhf import flags
from cfglint_train.front.migrate import rewrite
from cfglint_train.front.migrate.goal import parse_goal
from cfglint_train.front.migrate.rewrite import MigratedFile, Outcome, migrate
from cfglint_train.repository.files import parse
from cfglint_train.settings.settings import Settings
from tests.support import laws
from tests.support.configs import AXOLOTL
from tests.support.corpus import CORPUS, REPOSITORY, needs_corpus
from tests.support.linting import change_directory, isolate_folder

OPENRLHF = sorted((REPOSITORY / "fixtures" / "openrlhf").glob("*.sh"))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def migrate_file(folder: Path, name: str, *to: str, start: tuple[str, ...] = ()) -> Outcome:
    with change_directory(folder):
        return migrate([name], parse_goal(to, start), lambda _: Settings(os.getcwd()))


def migrate_text(
    folder: Path, text: str, *to: str, name: str = "config.yaml", start: tuple[str, ...] = ()
) -> MigratedFile:
    (folder / name).write_bytes(text.encode())
    outcome = migrate_file(folder, name, *to, start=start)
    assert outcome.troubles == ()
    (file,) = outcome.files
    return file


def list_items(file: MigratedFile, kind: str) -> list[tuple[int | None, str]]:
    """Return the lines in the original file and the messages of the items of `kind`."""
    return [
        (None if item.before is None else file.original.locate(item.before).line, item.message)
        for item in file.items
        if item.kind == kind
    ]


def get_text(file: MigratedFile) -> str:
    return file.source.decode()


# --- OpenRLHF --------------------------------------------------------------------------------------------------------

SCRIPT = """\
#!/bin/bash
# cfglint: openrlhf=0.9.5
set -x
MODEL=${1:-gpt2}

python3 -m openrlhf.cli.train_ppo_ray \\
   --pretrain $MODEL \\
   --reward_pretrain "OpenRLHF/Llama-3-8b-rm-mixture" \\
   --max_norm 1.0 \\
   --prompt_max_len 1024 \\
   --generate_max_len 512 \\
   --bf16 \\
   --vllm_num_engines 8 \\
   --colocate_all \\
   --advantage_estimator=reinforce_baseline \\
   --n_samples_per_prompt 8 \\
   --perf \\
   --my_own_flag 3 | tee run.log   # --zero_stage 3 was too slow
"""


def test_a_script_of_openrlhf(here: Path) -> None:
    script = SCRIPT.replace("   --bf16 \\\n", "")
    file = migrate_text(here, script, "openrlhf=0.11.2", name="run.sh")
    assert get_text(file) == dedent("""\
        #!/bin/bash
        # cfglint: openrlhf=0.11.2
        set -x
        MODEL=${1:-gpt2}

        python3 -m openrlhf.cli.train_ppo_ray \\
           --actor.model_name_or_path $MODEL \\
           --reward.model_name_or_path "OpenRLHF/Llama-3-8b-rm-mixture" \\
           --actor.max_norm 1.0 \\
           --critic.max_norm 1.0 \\
           --data.max_len 1536 \\
           --rollout.max_new_tokens 512 \\
           --vllm.num_engines 8 \\
           --train.colocate_all \\
           --algo.advantage.estimator=reinforce_baseline \\
           --rollout.n_samples_per_prompt 8 \\
           --perf \\
           --my_own_flag 3 | tee run.log   # --zero_stage 3 was too slow
        """)
    assert (2, "the pragma states openrlhf=0.11.2") in list_items(file, "changed")
    # --perf has no successor, and no release has --my_own_flag.
    assert [line for line, _ in list_items(file, "human")] == [16, 17]
    review = [message for _, message in list_items(file, "review")]
    assert any(message.startswith("--train.micro_batch_size: 4 before, 1 now") for message in review)
    assert "--rollout.micro_batch_size: 8 before, 1 now (rollout.micro)" in review


def test_a_flag_whose_meaning_is_the_default_now_goes(here: Path) -> None:
    line = "deepspeed --module openrlhf.cli.train_sft --pretrain gpt2 --flash_attn --bf16 --zero_stage 2\n"
    file = migrate_text(here, line, "openrlhf=0.11.2", name="run.sh")
    assert get_text(file) == (
        "deepspeed --module openrlhf.cli.train_sft --model.model_name_or_path gpt2 --ds.zero_stage 2\n"
    )
    assert list_items(file, "human") == []


def test_what_is_gone_without_a_successor_is_left_unless_it_says_its_default(here: Path) -> None:
    line = "python3 -m openrlhf.cli.train_ppo_ray --pretrain gpt2 --ptx_coef {} --vllm_num_engines 1\n"
    file = migrate_text(here, line.format("0.1"), "openrlhf=0.11.2", name="run.sh")
    assert "--ptx_coef 0.1" in get_text(file)
    assert any("`--ptx_coef` was removed" in message for _, message in list_items(file, "human"))
    file = migrate_text(here, line.format("0.05"), "openrlhf=0.11.2", name="run.sh")
    assert "--ptx_coef" not in get_text(file)


def test_words_that_no_flag_takes_are_left_for_a_human(here: Path) -> None:
    line = "python3 -m openrlhf.cli.train_sft --pretrain gpt2 --zero_stage 2 stray --packing_samples yes\n"
    file = migrate_text(here, line, "openrlhf=0.11.2", name="run.sh")
    assert "--model.model_name_or_path gpt2" in get_text(file)
    assert {message.split()[0] for _, message in list_items(file, "human")} >= {"stray", "yes"}


def test_servers_are_rewritten_with_the_trainers(here: Path) -> None:
    script = (
        "python -m openrlhf.cli.serve_rm --reward_pretrain rm --max_len 9 &\n"
        "python3 -m openrlhf.cli.train_sft --pretrain gpt2\n"
    )
    file = migrate_text(here, script, "openrlhf=0.11.2", name="run.sh")
    assert get_text(file) == (
        "python -m openrlhf.cli.serve_rm --reward.model_name_or_path rm --data.max_len 9 &\n"
        "python3 -m openrlhf.cli.train_sft --model.model_name_or_path gpt2\n"
    )


def test_every_invocation_of_a_script_is_rewritten(here: Path) -> None:
    script = "".join(
        f"python3 -m openrlhf.cli.{entry} --pretrain m --max_len 9\n" for entry in ("train_sft", "train_rm")
    )
    file = migrate_text(here, script, "openrlhf=0.11.2", name="run.sh")
    assert get_text(file).count("--model.model_name_or_path m --data.max_len 9") == 2


@pytest.mark.parametrize("path", OPENRLHF, ids=lambda path: path.name)
def test_shell_scripts_keep_what_is_no_flag(path: Path) -> None:
    outcome = migrate_file(isolate_folder(path.parent), path.name, "openrlhf=0.11.2")
    for file in outcome.files:
        after = parse(file.path, file.source, "shell")
        assert isinstance(after, ShellDocument)
        laws.check_preserved(file.original, after)
        assert len(after.invocations) == len(file.original.invocations)  # type: ignore[attr-defined]
        assert file.source.count(b"\\\n") <= path.read_bytes().count(b"\\\n") + 4
        before = subprocess.run(["bash", "-n"], input=file.original.source, capture_output=True, check=False)
        assert subprocess.run(["bash", "-n"], input=file.source, capture_output=True, check=False).returncode == (
            before.returncode
        )
        with_values = [word.text for i in file.original.invocations for word in i.words if "$" in word.text]  # type: ignore[attr-defined]
        assert [word.text for i in after.invocations for word in i.words if "$" in word.text] == with_values


def list_flat_releases() -> list[str]:
    return [r for r in flags.load_vocabulary().releases if "0.6.2" <= r < "0.9.9" or r.startswith("0.10.1")]


@st.composite
def draw_script(draw: st.DrawFn) -> tuple[str, str, str]:
    """Draw an invocation that its release accepts."""
    release = draw(st.sampled_from(list_flat_releases()))
    entry = draw(st.sampled_from(["train_sft", "train_rm", "train_dpo", "train_ppo_ray"]))
    facts = [
        fact for fact in flags.load_vocabulary().list_facts(entry, release) if fact.resolve_status().kind == "present"
    ]
    words = []
    for fact in draw(st.lists(st.sampled_from(facts), min_size=1, max_size=12, unique_by=lambda fact: fact.name)):
        schema = fact.get_schema(release)
        kind = (schema.get("items") or schema).get("type")
        enum = (schema.get("items") or schema).get("enum")
        if schema.get("x-flag"):
            words.append(fact.name)
            continue
        plain = {"integer": st.sampled_from(["1", "8", "$N"]), "number": st.sampled_from(["0.5", "1e-5", "$X"])}
        value = (
            st.sampled_from([str(member) for member in enum])
            if enum
            else plain.get(kind or "", st.sampled_from(["a", "b/c", '"$D"']))
        )
        count = 2 if isinstance(schema.get("minItems"), int) and schema["minItems"] > 1 else 1
        words.append(" ".join([fact.name, *(draw(value) for _ in range(count))]))
    joined = draw(st.sampled_from([" ", " \\\n    ", " \\\r\n  "]))
    tail = draw(st.sampled_from(["", " 2>&1 | tee log", "  # the old one", " &"]))
    return entry, release, f"python3 -m openrlhf.cli.{entry}{joined}{joined.join(words)}{tail}\n"


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(made=draw_script())
def test_generated_scripts_are_accepted_by_the_goal_or_left_for_a_human(here: Path, made: tuple[str, str, str]) -> None:
    entry, release, script = made
    with change_directory(here):
        (here / "run.sh").write_bytes(script.encode())
        outcome = migrate_file(here, "run.sh", "openrlhf=0.11.2", start=(f"openrlhf={release}",))
        assume(outcome.files)
        (file,) = outcome.files
        after = parse("run.sh", file.source, "shell")
        assert isinstance(after, ShellDocument)
        (invocation,) = [candidate for candidate in after.invocations if flags.find_entry(candidate.program) == entry]
        left_for_human = {item.after for item in file.items if item.kind == "human"}
        for flag, item in zip(invocation.flags, invocation.entries):
            fact = flags.load_vocabulary().find_fact((item.name or "",), "0.11.2", Context(entry=entry))
            assert fact is not None
            if fact.resolve_status().kind != "present":
                assert invocation.words[flag.word].span.start in left_for_human, (item.name, get_text(file))
        (here / "run.sh").write_bytes(file.source)
        again = migrate_file(here, "run.sh", "openrlhf=0.11.2")
        assert [candidate.source for candidate in again.files] == [file.source]


# --- axolotl ---------------------------------------------------------------------------------------------------------

FSDP1 = AXOLOTL + dedent("""\
    fsdp:
      - full_shard
      - auto_wrap
    fsdp_config:
      fsdp_offload_params: true # host memory is cheap
      fsdp_sharding_strategy: SHARD_GRAD_OP
      fsdp_sync_module_states: true
      fsdp_transformer_layer_cls_to_wrap: Qwen2DecoderLayer
    flash_attention: true
    """)


def test_axolotl_from_fsdp1_to_fsdp2(here: Path) -> None:
    file = migrate_text(here, FSDP1, "axolotl=0.21.0")
    assert get_text(file) == AXOLOTL + dedent("""\
        fsdp_config:
          fsdp_offload_params: true # host memory is cheap
          reshard_after_forward: false
          fsdp_transformer_layer_cls_to_wrap: Qwen2DecoderLayer
          auto_wrap_policy: TRANSFORMER_BASED_WRAP
        attn_implementation: flash_attention_2
        """)
    assert list_items(file, "human") == []
    review = [message for _, message in list_items(file, "review")]
    assert any("become 16-bit" in message for message in review)
    assert any("fsdp1 before, fsdp2 now" in message for message in review)
    assert file.start.startswith("0.19.0 (the newest that accepts all of its keys")


def test_an_optimizer_that_fsdp2_refuses_becomes_one_that_it_takes(here: Path) -> None:
    file = migrate_text(here, FSDP1 + "optimizer: adamw_bnb_8bit\n", "axolotl=0.21.0")
    assert "optimizer: adamw_torch_8bit\n" in get_text(file)
    assert any(
        "adamw_torch_8bit" in message for _, message in (*list_items(file, "changed"), *list_items(file, "review"))
    )


def test_what_was_wrong_before_is_told_and_not_touched(here: Path) -> None:
    file = migrate_text(here, AXOLOTL + "warmup_steps: 0.1\nflash_attention: true\n", "axolotl=0.21.0")
    assert "warmup_steps: 0.1\nattn_implementation: flash_attention_2\n" in get_text(file)
    assert [line for line, _ in list_items(file, "human")] == [10]


def test_a_comment_beside_a_key_that_goes_is_kept(here: Path) -> None:
    file = migrate_text(here, AXOLOTL + "relora_steps: 150 # as in the paper\n", "axolotl=0.21.0")
    assert "jagged_restart_steps: 150 # as in the paper\n" in get_text(file)
    laws.check_preserved(file.original, parse(file.path, file.source, "yaml"))


# --- LLaMA-Factory, DeepSpeed ----------------------------------------------------------------------------------------

LLAMAFACTORY = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: lora
dataset: identity
template: qwen
val_size: 0.1
output_dir: out
"""


def test_llama_factory_beside_transformers_5(here: Path) -> None:
    old = dedent("""\
        evaluation_strategy: steps # often
        save_safetensors: true
        no_cuda: false
        group_by_length: true
        torchdynamo: inductor
        include_inputs_for_metrics: true
        dispatch_batches: false
        fsdp_transformer_layer_cls_to_wrap: Qwen2DecoderLayer
        fp16_opt_level: O2
        """)
    file = migrate_text(here, LLAMAFACTORY + old, "transformers=5.6.0", start=("transformers=4.49.0",))
    assert get_text(file) == LLAMAFACTORY + dedent("""\
        eval_strategy: steps # often
        use_cpu: false
        train_sampling_strategy: group_by_length
        torch_compile_backend: inductor
        include_for_metrics: [inputs]
        fp16_opt_level: O2
        accelerator_config:
          dispatch_batches: false
        fsdp_config:
          transformer_layer_cls_to_wrap: Qwen2DecoderLayer
        """)
    assert [line for line, _ in list_items(file, "human")] == [17]


def test_llama_factory_itself(here: Path) -> None:
    old = "new_special_tokens: <a>,<b>\ntrain_mm_proj_only: true\nimage_resolution: 262144\n"
    file = migrate_text(here, LLAMAFACTORY + old, "llamafactory=0.9.5", start=("llamafactory=0.9.1",))
    assert get_text(file) == LLAMAFACTORY + dedent("""\
        add_special_tokens: <a>,<b>
        freeze_vision_tower: true
        freeze_language_model: true
        freeze_multi_modal_projector: false
        image_max_pixels: 262144
        """)
    assert any(
        m == "vllm_gpu_util is not set; its default changes from 0.9 to 0.7" for _, m in list_items(file, "review")
    )


def test_deprecated_names_of_deepspeed(here: Path) -> None:
    old = """\
    {
      "train_micro_batch_size_per_gpu": 1,
      "zero_optimization": {
        "stage": 3,
        "cpu_offload": true,
        "stage3_gather_fp16_weights_on_model_save": true
      }
    }
    """
    file = migrate_text(here, dedent(old), "deepspeed=0.19.8", name="ds.json", start=("deepspeed=0.19.2",))
    assert get_text(file) == dedent("""\
    {
      "train_micro_batch_size_per_gpu": 1,
      "zero_optimization": {
        "stage": 3,
        "stage3_gather_16bit_weights_on_model_save": true,
        "offload_optimizer": {
          "device": "cpu"
        }
      }
    }
    """)
    assert any(m.startswith("gradient_clipping: 0.0 before, 1.0 now") for _, m in list_items(file, "review"))


def test_only_files_of_the_goals_frameworks_are_looked_at(here: Path) -> None:
    (here / "config.yaml").write_text(FSDP1)
    assert migrate_file(here, "config.yaml", "openrlhf=0.11.2").files == ()


# --- other files and settings ----------------------------------------------------------------------------------------


def test_pins_and_settings_that_state_another_release_are_named(here: Path) -> None:
    (here / "config.yaml").write_text(FSDP1)
    (here / "requirements.txt").write_text("axolotl==0.18.0\n")
    outcome = migrate_file(here, "config.yaml", "axolotl=0.21.0")
    assert outcome.hints == ("requirements.txt:1 states axolotl 0.18.0, but the files are now for 0.21.0",)
    assert outcome.files[0].start == "0.18.0 (requirements.txt:1)"
    (here / "requirements.txt").write_text("axolotl>=0.16,<0.20\n")
    assert migrate_file(here, "config.yaml", "axolotl=0.21.0").hints == (
        "requirements.txt:1 (>=0.16,<0.20) does not allow axolotl 0.21.0",
    )
    (here / "requirements.txt").write_text("axolotl==0.21.0\n")
    assert migrate_file(here, "config.yaml", "axolotl=0.21.0").hints == ()


def test_settings_about_rules_do_not_keep_a_key(here: Path) -> None:
    (here / "config.yaml").write_text(FSDP1)

    def load_quiet_settings(path: str) -> Settings:
        return Settings(os.getcwd(), ignore=("KEY",), unfixable=("ALL",))

    with change_directory(here):
        (file,) = migrate(["config.yaml"], parse_goal(["axolotl=0.21.0"]), load_quiet_settings).files
    assert file.has_changes


def test_comments_that_silence_a_finding_do_not_keep_a_key(here: Path) -> None:
    file = migrate_text(here, AXOLOTL + "flash_attention: true # cfglint: ignore[KEY]\n", "axolotl=0.21.0")
    assert get_text(file) == AXOLOTL + "attn_implementation: flash_attention_2 # cfglint: ignore[KEY]\n"


def test_a_broken_file_is_a_trouble(here: Path) -> None:
    (here / "config.yaml").write_text(AXOLOTL + "fsdp: [\n")
    outcome = migrate_file(here, "config.yaml", "axolotl=0.21.0")
    assert outcome.files == ()
    assert [trouble.path for trouble in outcome.troubles] == ["config.yaml"]


def test_a_fix_that_cannot_be_written_is_left_with_the_reason(here: Path) -> None:
    script = 'F="--pretrain"\npython3 -m openrlhf.cli.train_sft ${F}_x gpt2 --max_len 9 --"pre"train m\n'
    file = migrate_text(here, script, "openrlhf=0.11.2", name="run.sh")
    assert "--data.max_len 9" in get_text(file)
    laws.check_preserved(file.original, parse(file.path, file.source, "shell"))


@needs_corpus
def test_migrating_twice_is_migrating_once(tmp_path: Path) -> None:
    paths = sorted((CORPUS / "axolotl" / "examples").rglob("*.y*ml"))[::5]
    changed = 0
    for number, path in enumerate(paths):
        (tmp_path / f"{number}.yaml").write_bytes(path.read_bytes())
    with change_directory(tmp_path):
        names = [f"{number}.yaml" for number in range(len(paths))]
        once = migrate(names, parse_goal(["axolotl=0.21.0"]), lambda _: Settings(os.getcwd()))
        for file in once.files:
            changed += file.has_changes
            laws.check_preserved(file.original, parse(file.path, file.source, "yaml"))
            Path(file.path).write_bytes(file.source)
        twice = migrate(names, parse_goal(["axolotl=0.21.0"]), lambda _: Settings(os.getcwd()))
    assert changed > 5
    assert not any(file.has_changes for file in twice.files)


# --- positions -------------------------------------------------------------------------------------------------------


@given(
    source=st.binary(min_size=0, max_size=60),
    cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6), st.text(alphabet="xyz", max_size=4)), max_size=5),
)
def test_places_are_carried_through_edits_and_back(source: bytes, cuts: list[tuple[int, int, str]]) -> None:
    edits: list[Edit] = []
    end = -1
    for start, length, new in sorted(cuts):
        if start > end and start + length <= len(source):
            edits.append(Edit(Span(start, start + length), new))
            end = start + length
    after = apply_edits(source, edits)
    for offset in range(len(source)):
        if not any(edit.span.start <= offset < edit.span.end for edit in edits):
            moved = rewrite._map_forward(offset, edits)
            inserted = any(edit.span == (offset, offset) for edit in edits)
            assert inserted or after[moved : moved + 1] == source[offset : offset + 1]
            assert inserted or rewrite._map_backward(moved, edits) == offset
