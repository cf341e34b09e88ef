"""Host memory of training in addition to the shards of one model."""

from __future__ import annotations

import pytest

from tests.support.corpus import REPOSITORY
from tests.support.linting import list_runs

RUN = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: lora
dataset: identity
template: qwen
cutoff_len: 4096
output_dir: out
per_device_train_batch_size: 2
bf16: true
"""
FACTS = {"nodes": "1", "gpus_per_node": "8", "gpu": "H100"}


def find_host_sizes(folder, name="", phase="optimizer step", **facts):
    """Return the bytes of one host by component."""
    (run,) = [item for item in list_runs(folder, **facts) if item.main.document.path.endswith(name)]
    return {component.name: size for component, size in run.estimate.find_phase(phase).host.sizes}


def test_offloaded_states_of_the_critic_count_as_much_as_the_actors():
    both = find_host_sizes(REPOSITORY / "fixtures" / "rules" / "HST001" / "fires", "roles.sh")
    actor = find_host_sizes(REPOSITORY / "fixtures" / "rules" / "HST001" / "silent", "no-critic.sh")
    for part in ("offloaded optimizer state", "offloaded master weights", "offloaded gradients"):
        assert both[part] == pytest.approx(2 * actor[part])


@pytest.mark.parametrize(("stated", "batches"), [("", 2), ("dataloader_prefetch_factor: 6\n", 6)])
def test_each_worker_of_each_rank_keeps_batches_ready(stated, batches, tmp_path):
    (tmp_path / "run.yaml").write_text(f"{RUN}dataloader_num_workers: 4\n{stated}")
    assert find_host_sizes(tmp_path, **FACTS)["prefetched batches"] == 8 * 4 * batches * 2 * 4096 * 24


def test_without_workers_no_batch_waits(tmp_path):
    (tmp_path / "run.yaml").write_text(RUN)
    assert "prefetched batches" not in find_host_sizes(tmp_path, **FACTS)


@pytest.mark.parametrize(("stated", "copies"), [("false", 8), ("true", 0)])
def test_without_a_device_map_every_rank_holds_the_model(stated, copies, tmp_path):
    (tmp_path / "run.yaml").write_text(f"{RUN}low_cpu_mem_usage: {stated}\n")
    sizes = find_host_sizes(tmp_path, phase="load", **FACTS)
    assert sizes.get("loaded weights", 0) == pytest.approx(copies * 2 * 7_615_616_512)
