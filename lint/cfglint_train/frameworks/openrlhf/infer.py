"""Values inferred from OpenRLHF's flags: the DeepSpeed engine, the batch, and the models of a PPO job.

Sources: OpenRLHF 0.11.2 `utils/deepspeed/deepspeed.py`, `cli/train_ppo_ray.py`, `trainer/`, and the tags named below.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.deepspeed.infer import infer_engine
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.openrlhf import names as flag
from cfglint_train.frameworks.openrlhf.flags import ENTRIES, find_name, read_usage
from cfglint_train.frameworks.openrlhf.lens import (
    INTEGER,
    STRING,
    find_origin,
    has_reward_model,
    is_before,
    is_on,
    is_ppo,
    read_setting,
)
from cfglint_train.plan.fields import Role
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def infer(job: Job) -> None:
    """Infer the DeepSpeed engine, the batch, and the models of a PPO job.

    Infer nothing for an entry point that does not train.
    """
    config, plan = job.main, job.plan
    if not ENTRIES[read_usage(config).entry]:
        return
    _infer_sequences(job)
    _infer_compute(job)
    infer_engine(job)
    plan.infer("precision.loaded", "none", "weights are sharded as they are read, or stay on the host")
    _infer_optimizer(job)
    _infer_batch(job)
    _infer_saving(job)
    stage = plan.get("method.stage")
    if stage in ("dpo", "ipo", "kto"):
        plan.infer("method.reference_model", "full", "cli/train_dpo.py loads a second model")
    elif stage is not None:
        plan.infer("method.reference_model", "none", "its trainer has none besides the models listed as roles")
    if stage in ("dpo", "ipo", "rm"):
        plan.infer("batch.pairs", True, "chosen and rejected answers form one batch")
    if is_ppo(config):
        _infer_rollout(job)
        _infer_roles(job)
        _infer_groups(job)


def _infer_compute(job: Job) -> None:
    """Infer fp32 without `--bf16` under ZeRO-3, which creates the weights in the format of DeepSpeed's settings.

    Sources: OpenRLHF 0.5.4 and 0.8.9 models/actor.py, utils/deepspeed/deepspeed_utils.py (get_train_ds_config);
    DeepSpeed 0.16.4 runtime/zero/partition_parameters.py (_set_dtype).
    """
    config, plan = job.main, job.plan
    is_off = find_name(config, flag.DTYPE) is None and not is_on(config, flag.BF16)
    if is_off and plan.get("parallel.zero_stage") == 3 and not read_usage(config).has_hidden_flags:
        note = "without --bf16, ZeRO-3 creates fp32 weights"
        plan.put("precision.compute", "fp32", Origin("inferred", note=note, framework=config.framework))


def _put_effective(job: Job, field: Field, value: Any, note: str) -> None:
    """Set a value that applies regardless of the flags; its origin keeps the flag's place."""
    origin = job.plan.get_origin(field)
    place = None if origin is None else origin.place
    job.plan.put(field, value, Origin("inferred", place, note, "" if origin is None else origin.key))


def _infer_sequences(job: Job) -> None:
    # The trainers turn these on by themselves and only print a warning.
    config, plan = job.main, job.plan
    ring = plan.get("parallel.context")
    if plan.get("sequence.packing") is False:
        if is_on(config, flag.DYNAMIC_BATCH):
            _put_effective(job, "sequence.packing", True, "dynamic batches are packed")
        elif ring is not None and ring > 1:
            _put_effective(job, "sequence.packing", True, "ring attention packs")
    kernel = plan.get("activations.attention")
    if plan.get("sequence.packing") and str(kernel)[:5] != "flash" and not is_before(config, "0.4.4"):
        _put_effective(job, "activations.attention", "flash", "packed samples need flash attention")
    plan.infer("sequence.padding", "longest", "a batch is as long as its longest sequence")
    if plan.get("method.stage") in ("sft", "pretrain") or is_ppo(config):
        plan.infer("activations.keeps_outputs", True, "the trainer keeps the model's output during the backward pass")


def _infer_optimizer(job: Job) -> None:
    plan = job.plan
    offloaded = plan.get("parallel.offload_optimizer") == "cpu"
    note = "DeepSpeedCPUAdam if its states are offloaded, FusedAdam otherwise"
    if plan.get("optimizer.name") == "adamw":
        plan.infer("optimizer.implementation", "cpu" if offloaded else "deepspeed", note)
    elif plan.get("optimizer.name") is not None:
        plan.infer("optimizer.implementation", "deepspeed", "built by DeepSpeed")
    if plan.get("precision.master") == "fp32":
        plan.infer("optimizer.state_bits", 32, "optimizer states have the dtype of the fp32 weights")
    plan.infer("optimizer.paged", False, "DeepSpeed's optimizers are not paged")
    if plan.get("precision.accumulation") is None and plan.get("precision.compute") is not None:
        plan.infer("precision.accumulation", plan.get("precision.compute"), "gradients stay in the model's dtype")


def _infer_batch(job: Job) -> None:
    """Infer accumulation = batch x ring x tensor / micro batch / ranks (deepspeed.py setup_distributed)."""
    plan = job.plan
    micro, global_batch, ranks = plan.get("batch.micro"), plan.get("batch.global_"), plan.data_parallel
    plan.infer("batch.eval_micro", micro, "evaluation uses the training micro batch")
    if is_on(job.main, flag.DYNAMIC_BATCH):
        return
    if micro and global_batch and ranks:
        # DeepSpeed rejects a batch that does not divide evenly; the minimum is one accumulation step.
        plan.infer(
            "batch.accumulation", max(1, global_batch // (micro * ranks)), "batch / micro batch / data-parallel ranks"
        )


def _infer_saving(job: Job) -> None:
    plan = job.plan
    if plan.get("parallel.zero_stage") is not None:
        gathers = plan.get("parallel.zero_stage") == 3
        plan.infer("checkpoint.gather", gathers, "ZeRO-3 weights are gathered on rank 0 for the export")
    if plan.get("checkpoint.deepspeed_checkpoint") is not None:
        is_model_only = not plan.get("checkpoint.deepspeed_checkpoint")
        plan.infer("checkpoint.model_only", is_model_only, "the DeepSpeed checkpoint contains optimizer states")


def _infer_rollout(job: Job) -> None:
    config, plan = job.main, job.plan
    is_colocated, is_asynchronous = plan.get("rollout.colocate_all"), plan.get("rollout.asynchronous")
    if plan.get("rollout.engine") == "vllm" and is_colocated is not None and is_asynchronous is not None:
        mode = "colocate" if is_colocated and not is_asynchronous else "pool"
        plan.infer("rollout.mode", mode, "colocate_all shares the GPUs unless training is asynchronous")
    if plan.get("rollout.sleep") and (is_colocated is False or is_asynchronous):
        _put_effective(job, "rollout.sleep", False, "engines only sleep if they share the GPUs (colocate_all)")
    if plan.get("method.reference_offload") and plan.get("parallel.zero_stage") in (0, 1, 2):
        _put_effective(job, "method.reference_offload", False, "DeepSpeed only offloads parameters under ZeRO-3")
    if plan.get("rollout.train_sleep") and plan.get("parallel.offload_optimizer") == "cpu":
        _put_effective(job, "rollout.train_sleep", False, "adam_offload leaves nothing to move")
    # trainer/ppo_trainer.py: 0.7.1 to 0.9.1 put the engines to sleep after the broadcast. 0.9.2 to 0.11.2 wake the
    # weights for the broadcast and keep them until the next rollout. Checkpoints are written between the broadcast and
    # the next rollout.
    if plan.get("rollout.sleep"):
        awake = not is_before(config, "0.9.2")
        plan.infer("rollout.awake_at_save", awake, "the weights stay on the GPU after the broadcast")
    has_low_utilization = not is_before(config, "0.5.8") and is_before(config, "0.6.1")
    if has_low_utilization and is_colocated and (plan.get("rollout.utilization") or 0) >= 0.9:
        _put_effective(job, "rollout.utilization", 0.4, "releases 0.5.8 and 0.6.0 lower it if models share the GPUs")


def _infer_roles(job: Job) -> None:
    roles = tuple(_list_roles(job))
    if roles:
        job.plan.infer("model.roles", roles, "the models that cli/train_ppo_ray.py builds, and their GPUs")


def _infer_groups(job: Job) -> None:
    """Infer a placement group for each pool (cli/train_ppo_ray.py).

    Each reward model adds its own GPUs to the reward group. Engines that do not share the actor's GPUs form a group.
    """
    plan = job.plan
    roles: tuple[Role, ...] = plan.get("model.roles") or ()
    if read_usage(job.main).entry != "train_ppo_ray" or not roles or plan.get("rollout.mode") is None:
        return
    groups: dict[str, int] = {}
    for role in roles:
        if role.nodes is None or role.gpus_per_node is None:
            return
        size = role.nodes * role.gpus_per_node
        if role.pool == "reward":
            groups["reward"] = groups.get("reward", 0) + size
        else:
            groups.setdefault(role.pool or role.name, size)
    if plan.get("rollout.mode") == "pool":
        engines, tensor = plan.get("rollout.engines"), plan.get("rollout.tensor")
        if engines is None or tensor is None:
            return
        groups["engines"] = engines * tensor
    place = find_origin(job.main, flag.list_gpu_flags("actor")).place
    origin = Origin("inferred", place, "the placement groups of cli/train_ppo_ray.py")
    plan.put("launch.groups", tuple(groups.items()), origin)


def _list_roles(job: Job) -> Iterator[Role]:
    """Yield the models that cli/train_ppo_ray.py builds, with their GPUs and the pools that share them."""
    config, plan = job.main, job.plan
    flag_usage = read_usage(config)
    estimator, kl = plan.get("rollout.advantage"), plan.get("rollout.kl_coefficient")
    if flag_usage.has_hidden_flags:
        return  # the undetermined flags may decide which models share GPUs
    is_single_process = flag_usage.entry == "train_ppo"
    is_colocated = bool(plan.get("rollout.colocate_all"))
    sharded = plan.get("parallel.zero_stage") == 3
    model = plan.get("model.id")
    has_critic = estimator == "gae"
    shares_critic = has_critic and bool(is_on(config, flag.COLOCATE_REWARD))

    def build_role(
        name: str, flags: str, source: str | None, trained: bool, pool: str, offload: bool | None = None
    ) -> Role:
        if is_single_process:
            return Role(name, source, trained, None, None, "actor", offload)
        nodes, gpus = (
            read_setting(config, names, INTEGER) for names in (flag.list_node_flags(flags), flag.list_gpu_flags(flags))
        )
        if flags == "actor" and nodes is not None and gpus is not None:  # the plan of a scenario may differ
            nodes, gpus = plan.get("launch.nodes"), plan.get("launch.gpus_per_node")
        return Role(name, source, trained, nodes, gpus, pool, offload)

    yield build_role("actor", "actor", model, True, "actor")
    if kl is None or kl > 0 or is_before(config, "0.6.0"):
        shares = is_colocated or bool(is_on(config, flag.COLOCATE_REFERENCE))
        yield build_role("reference", "ref", model, False, "actor" if shares else "reference")
    rewards = read_setting(config, flag.REWARD_MODEL, STRING)
    reward_models: list[str | None] = [*rewards.split(",")] if isinstance(rewards, str) else []
    if has_critic:
        stated_model = read_setting(config, flag.CRITIC_MODEL, STRING)
        source = stated_model or (reward_models[0] if reward_models and has_reward_model(config) else model)
        critic = build_role(
            "critic", "critic", source, True, "critic" if shares_critic or not is_colocated else "actor"
        )
        yield critic if stated_model else critic._replace(unstated=find_name(config, flag.CRITIC_MODEL) or "")
    if has_reward_model(config):
        offload = sharded and bool(is_on(config, flag.REWARD_OFFLOAD))
        for source in reward_models or [None]:
            yield build_role(
                "reward",
                "reward",
                source,
                False,
                "critic" if shares_critic else "actor" if is_colocated else "reward",
                offload,
            )
    if is_on(config, flag.EMA):
        # ppo_actor.py requests offloading, which DeepSpeed grants under ZeRO-3 only.
        yield build_role("ema", "actor", model, False, "actor", sharded)
