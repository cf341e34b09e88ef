"""OLMo's checkpointers: metadata that grows with the square of the number of ranks."""

from __future__ import annotations

import pytest

from cfglint_train.foundation.typed import Any
from cfglint_train.memory.components import GATHERED_OPTIMIZER, HOST_METADATA, STAGED_WEIGHTS
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.explanation import explain
from cfglint_train.memory.save import estimate_save
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.plan.fields import Plan
from tests.memory.jobs import BASE, LLAMA_8B

SEVEN = LLAMA_8B._replace(model_type="olmo2", parameters=7_298_011_136, tensors=259)


def make_olmo_plan(nodes: int, checkpointer: str = "olmo_core", sharding: str = "full_shard") -> Plan:
    return Plan().replace(
        {
            **BASE,
            "precision.params": "fp32",
            "parallel.strategy": "fsdp1",
            "parallel.sharding": sharding,
            "launch.nodes": nodes,
            "launch.gpus_per_node": 8,
            "checkpoint.strategy": "steps",
            "checkpoint.checkpointer": checkpointer,
            "checkpoint.keep": 1,
        }
    )


@pytest.mark.parametrize(
    ("nodes", "sharding", "gigabytes"),
    [
        (8, "full_shard", 12),
        (16, "full_shard", 49),
        (32, "full_shard", 197),
        (64, "full_shard", 819),
        (64, "hybrid_shard", 14),
    ],
)
def test_metadata_of_a_node(nodes: int, sharding: str, gigabytes: float) -> None:
    """Match the checkpointer's own objects for 7B, 259 tensors and 8 GPUs per node, counted on a CPU."""
    setup, _ = read_setup(make_olmo_plan(nodes, sharding=sharding), SEVEN)
    assert setup is not None
    saved = estimate_save(setup, make_olmo_plan(nodes, sharding=sharding))
    assert saved is not None
    assert saved.host[HOST_METADATA] / 1e9 == pytest.approx(gigabytes, rel=0.06)


def test_sixty_four_nodes_kill_a_host_of_480_gb() -> None:
    """Reproduce allenai/OLMo 788: 32 nodes were fine, 64 died at the first checkpoint."""
    fine, dead = (estimate(make_olmo_plan(nodes), SEVEN).find_phase("save") for nodes in (32, 64))
    assert fine is not None
    assert dead is not None
    assert fine.host is not None
    assert dead.host is not None
    assert fine.host.high < 480e9 < dead.host.low


def test_alternatives() -> None:
    """Need neither metadata nor GPU memory with `local`, and metadata linear in the ranks with `torch_legacy`."""
    for checkpointer, limit in (("local", 1e9), ("torch_legacy", 20e9)):
        phase = estimate(make_olmo_plan(64, checkpointer), SEVEN).find_phase("save")
        assert phase is not None
        assert phase.host is not None
        assert phase.host.high < limit


def test_unsharded_checkpoints_stay_on_rank_0() -> None:
    """Hold 12 B per parameter at once, not 8: the weights are still referenced while the states are gathered."""
    unsharded = make_olmo_plan(8, "torch_legacy").replace({"checkpoint.interval_unsharded": 1000})
    phase = estimate(unsharded, SEVEN).find_phase("save")
    assert phase is not None
    assert phase.host is not None
    assert phase.host.expected == pytest.approx(12 * SEVEN.parameters, rel=0.01)


def test_ddp_writes_whole_checkpoints_only() -> None:
    """Save GPU tensors of rank 0 with torch.save: one at a time is on the host, for any sharded kind."""
    for checkpointer in ("torch_legacy", "olmo_core", "local"):
        fields = make_olmo_plan(1, checkpointer).replace({"parallel.strategy": "ddp"})
        setup, _ = read_setup(fields, SEVEN)
        assert setup is not None
        saved = estimate_save(setup, fields)
        assert saved is not None
        assert saved.host == {STAGED_WEIGHTS: 4 * SEVEN.largest_tensor}
        assert sum(saved.disk.values()) == 12 * SEVEN.parameters
    never = fields.replace({"checkpoint.interval_unsharded": 0, "checkpoint.at_start": False})
    assert estimate_save(setup, never) is None


_WHOLE: dict[Any, Any] = {"checkpoint.interval": 0, "checkpoint.interval_unsharded": 1000}


@pytest.mark.parametrize(
    ("changes", "sharded"),
    [
        ({"checkpoint.at_start": False}, False),
        ({"checkpoint.at_start": True}, True),
        ({}, True),  # unknown
        ({"checkpoint.at_start": False, "checkpoint.interval": 1000}, True),
        ({"checkpoint.at_start": False, "checkpoint.interval_ephemeral": 100}, True),
    ],
)
def test_shards_are_counted_where_some_are_written(changes: dict[Any, Any], sharded: bool) -> None:
    """Hold the metadata of 64 nodes at the first sharded checkpoint, which may be the one before the first step."""
    fields = make_olmo_plan(64).replace({**_WHOLE, **changes})
    setup, _ = read_setup(fields, SEVEN)
    assert setup is not None
    saved = estimate_save(setup, fields)
    assert saved is not None
    assert (HOST_METADATA in saved.host) is sharded
    assert (GATHERED_OPTIMIZER in saved.host) is not sharded


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        ({}, 2),
        ({"checkpoint.keep": "all"}, 1),
        ({"checkpoint.keep_unsharded": 4}, 2),  # none are written
        ({"checkpoint.interval_ephemeral": 100}, 3),  # beside the last one of its kind, or of the kept ones
        ({"checkpoint.interval_ephemeral": 100, "checkpoint.keep": 0}, 2),
        ({"checkpoint.interval_ephemeral": 100, "checkpoint.keep": "all"}, 1),
        ({"checkpoint.interval_ephemeral": 100, "parallel.strategy": "ddp", "checkpoint.keep_unsharded": 3}, 4),
        ({"checkpoint.interval_unsharded": 1000, "checkpoint.keep_unsharded": 4}, 6),
        ({"checkpoint.interval_unsharded": 1000, "checkpoint.keep_unsharded": "all"}, 3),
        ({"checkpoint.interval_unsharded": 1000, "checkpoint.keep_unsharded": 4, "checkpoint.keep": "all"}, 6),
        ({"checkpoint.interval_unsharded": 1000, "checkpoint.keep_unsharded": 4, "checkpoint.keep": 0}, 5),
        ({"checkpoint.interval_unsharded": 1000, "checkpoint.keep_unsharded": "all", "checkpoint.keep": "all"}, 2),
        # In a run of known length all of a kind count: 5 whole ones, one with shards and the one being written.
        (
            {
                "batch.steps": 10_000,
                "checkpoint.strategy": "steps",
                "checkpoint.interval": 1000,
                "checkpoint.interval_unsharded": 2000,
                "checkpoint.keep_unsharded": "all",
            },
            7,
        ),
        ({**_WHOLE, "checkpoint.at_start": False, "checkpoint.keep_unsharded": 3}, 4),
        ({**_WHOLE, "checkpoint.at_start": False, "checkpoint.keep": "all", "checkpoint.keep_unsharded": 0}, 1),
        ({"parallel.strategy": "ddp", "checkpoint.keep": 5, "checkpoint.keep_unsharded": 3}, 4),
        ({"parallel.strategy": "ddp", "checkpoint.keep": 5, "checkpoint.keep_unsharded": "all"}, 1),
        ({"parallel.strategy": "ddp", "checkpoint.keep": 5, "checkpoint.keep_unsharded": 0}, 6),
        ({"parallel.strategy": "ddp", "checkpoint.keep": "all", "checkpoint.keep_unsharded": 0}, 1),
    ],
)
def test_disk_holds_both_kinds_of_checkpoints(changes: dict[Any, Any], copies: int) -> None:
    """Keep the retained checkpoints of each kind and the one being written; without a limit, one of that kind."""
    fields = make_olmo_plan(1, "torch_legacy").replace(changes)
    phase = estimate(fields, SEVEN).find_phase("save")
    assert phase is not None
    assert phase.disk is not None
    assert phase.disk.expected == copies * 12 * SEVEN.parameters
    assert f"{copies} checkpoint" in explain(phase.disk)[0].formula


@pytest.mark.parametrize(
    ("changes", "bytes_"),
    [
        ({"parallel.strategy": "ddp", "checkpoint.load_path": "/runs/step1000-unsharded"}, 12),
        ({"parallel.strategy": "ddp", "checkpoint.load_path": "/runs/step1", "checkpoint.load_optimizer": False}, 4),
        ({"parallel.strategy": "ddp"}, None),
        ({"checkpoint.load_path": "/runs/step1000"}, None),
    ],
)
def test_every_rank_reads_the_whole_checkpoint_under_ddp(changes: dict[Any, Any], bytes_: int | None) -> None:
    phase = estimate(make_olmo_plan(1, "torch_legacy").replace(changes), SEVEN).find_phase("resume")
    host_bytes = None if phase is None or phase.host is None else phase.host.expected
    assert host_bytes == (None if bytes_ is None else pytest.approx(8 * bytes_ * SEVEN.parameters))
