"""What follows from OpenRLHF's flags: its DeepSpeed engine, the batch, the models of a job with several.

Sources: OpenRLHF 0.11.2 `utils/deepspeed/deepspeed.py`, `cli/train_ppo_ray.py`, `trainer/`, and the tags named below.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.deepspeed.infer import engine
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.openrlhf import names as flag
from cfglint_train.frameworks.openrlhf.flags import ENTRIES, name_at, usage
from cfglint_train.frameworks.openrlhf.lens import (
    INTEGER,
    STRING,
    before,
    has_reward_model,
    is_on,
    is_ppo,
    origin_of,
    setting,
)
from cfglint_train.frameworks.openrlhf.lenses import ACTOR_GROUP
from cfglint_train.plan.fields import Role
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def infer(job: Job) -> None:
    """The DeepSpeed engine that the flags make, the batch, the models of a job with several."""
    config, reading = job.main, job.reading
    if not ENTRIES[usage(config).entry]:
        return
    _infer_group(job)
    _infer_sequences(job)
    engine(job)
    reading.infer("precision.loaded", "none", "weights are sharded as they are read, or wait on the host")
    _infer_optimizer(job)
    _infer_batch(job)
    _infer_saving(job)
    stage = reading.get("method.stage")
    if stage in ("dpo", "ipo", "kto"):
        reading.infer("method.reference_model", "full", "cli/train_dpo.py loads a second model")
    elif stage is not None:
        reading.infer("method.reference_model", "none", "its trainer has none beside the models listed as roles")
    if stage in ("dpo", "ipo", "rm"):
        reading.infer("batch.pairs", True, "chosen and rejected answers are one batch")
    if is_ppo(config):
        _infer_rollout(job)
        _infer_roles(job)
        _infer_groups(job)


def _effective(job: Job, field: Field, value: Any, note: str) -> None:
    """What holds whatever the flags say; the place stays that of the flag."""
    known = job.reading.origin(field)
    place = None if known is None else known.place
    job.reading.put(field, value, Origin("inferred", place, note, "" if known is None else known.key))


def _infer_group(job: Job) -> None:
    """Ray places the trained group by its own flags, however many GPUs the cluster has."""
    config = job.main
    if usage(config).entry != "train_ppo_ray":
        return
    for field, names in ACTOR_GROUP:
        count = setting(config, names, INTEGER)
        if count is not None and job.reading.get(field) != count:
            origin = origin_of(config, names)
            note = "the actor's group; other roles have GPUs of their own"
            job.reading.put(field, count, Origin("inferred", origin.place, note, origin.key))


def _infer_sequences(job: Job) -> None:
    # The trainers switch these on with no more than a printed warning.
    config, reading = job.main, job.reading
    ring = reading.get("parallel.context")
    if reading.get("sequence.packing") is False:
        if is_on(config, flag.DYNAMIC):
            _effective(job, "sequence.packing", True, "dynamic batches are packed")
        elif ring is not None and ring > 1:
            _effective(job, "sequence.packing", True, "ring attention packs")
    kernel = reading.get("activations.attention")
    if reading.get("sequence.packing") and str(kernel)[:5] != "flash" and not before(config, "0.4.4"):
        _effective(job, "activations.attention", "flash", "packed samples need flash attention")
    reading.infer("sequence.padding", "longest", "a batch is as long as its longest sequence")
    if reading.get("method.stage") in ("sft", "pretrain") or is_ppo(config):
        reading.infer(
            "activations.keeps_outputs", True, "the trainer holds the model's output during the backward pass"
        )


def _infer_optimizer(job: Job) -> None:
    reading = job.reading
    offloaded = reading.get("parallel.offload_optimizer") == "cpu"
    note = "DeepSpeedCPUAdam where its states are offloaded, else FusedAdam"
    if reading.get("optimizer.name") == "adamw":
        reading.infer("optimizer.implementation", "cpu" if offloaded else "deepspeed", note)
    elif reading.get("optimizer.name") is not None:
        reading.infer("optimizer.implementation", "deepspeed", "built by DeepSpeed")
    if reading.get("precision.master") == "fp32":
        reading.infer("optimizer.state_bits", 32, "the state has the format of the fp32 weights")
    reading.infer("optimizer.paged", False, "DeepSpeed's optimizers are not paged")
    if reading.get("precision.accumulation") is None and reading.get("precision.compute") is not None:
        reading.infer(
            "precision.accumulation", reading.get("precision.compute"), "gradients stay in the model's format"
        )


def _infer_batch(job: Job) -> None:
    """deepspeed.py setup_distributed: accumulation = batch x ring x tensor / micro batch / ranks."""
    reading = job.reading
    micro, whole, ranks = reading.get("batch.micro"), reading.get("batch.global_"), reading.data_parallel
    reading.infer("batch.eval_micro", micro, "evaluation takes the micro batch of training")
    if is_on(job.main, flag.DYNAMIC):
        return
    if micro and whole and ranks:
        # Where it does not come out even, DeepSpeed refuses; one is the least there is.
        reading.infer(
            "batch.accumulation", max(1, whole // (micro * ranks)), "batch / micro batch / data-parallel ranks"
        )


def _infer_saving(job: Job) -> None:
    reading = job.reading
    if reading.get("parallel.zero_stage") is not None:
        gathers = reading.get("parallel.zero_stage") == 3
        reading.infer("checkpoint.gather", gathers, "ZeRO-3 weights are gathered on rank 0 for the export")
    if reading.get("checkpoint.deepspeed_checkpoint") is not None:
        only = not reading.get("checkpoint.deepspeed_checkpoint")
        reading.infer("checkpoint.model_only", only, "optimizer states are in the DeepSpeed checkpoint")


def _infer_rollout(job: Job) -> None:
    config, reading = job.main, job.reading
    together, apart = reading.get("rollout.colocate_all"), reading.get("rollout.asynchronous")
    if reading.get("rollout.engine") == "vllm" and together is not None and apart is not None:
        mode = "colocate" if together and not apart else "pool"
        reading.infer("rollout.mode", mode, "colocate_all without asynchronous training shares the GPUs")
    if reading.get("rollout.sleep") and (together is False or apart):
        _effective(job, "rollout.sleep", False, "engines sleep only where they share the GPUs (colocate_all)")
    if reading.get("method.reference_offload") and reading.get("parallel.zero_stage") in (0, 1, 2):
        _effective(job, "method.reference_offload", False, "DeepSpeed offloads parameters under ZeRO-3 only")
    if reading.get("rollout.train_sleep") and reading.get("parallel.offload_optimizer") == "cpu":
        _effective(job, "rollout.train_sleep", False, "there is nothing left to move with adam_offload")
    # trainer/ppo_trainer.py: 0.7.1 to 0.9.1 put the engines to sleep behind the broadcast, 0.9.2 to 0.11.2 leave the
    # weights that they woke for it where they are until the next rollout; checkpoints are written between the two.
    if reading.get("rollout.sleep"):
        awake = not before(config, "0.9.2")
        reading.infer("rollout.awake_at_save", awake, "the weights stay awake behind the broadcast")
    old = not before(config, "0.5.8") and before(config, "0.6.1")
    if old and together and (reading.get("rollout.utilization") or 0) >= 0.9:
        _effective(job, "rollout.utilization", 0.4, "releases 0.5.8 and 0.6.0 lower it where models share the GPUs")


def _infer_roles(job: Job) -> None:
    roles = tuple(_roles(job))
    if roles:
        job.reading.infer("model.roles", roles, "the models that cli/train_ppo_ray.py builds, and where")


def _infer_groups(job: Job) -> None:
    """cli/train_ppo_ray.py: a placement group for each pool; reward models and engines without one have GPUs apart."""
    reading = job.reading
    roles: tuple[Role, ...] = reading.get("model.roles") or ()
    if usage(job.main).entry != "train_ppo_ray" or not roles or reading.get("rollout.mode") is None:
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
    if reading.get("rollout.mode") == "pool":
        engines, tensor = reading.get("rollout.engines"), reading.get("rollout.tensor")
        if engines is None or tensor is None:
            return
        groups["engines"] = engines * tensor
    place = origin_of(job.main, flag.gpus("actor")).place
    origin = Origin("inferred", place, "the placement groups of cli/train_ppo_ray.py")
    reading.put("launch.groups", tuple(groups.items()), origin)


def _roles(job: Job) -> Iterator[Role]:
    """cli/train_ppo_ray.py: which models there are, and which share GPUs."""
    config, reading = job.main, job.reading
    told = usage(config)
    estimator, kl = reading.get("rollout.advantage"), reading.get("rollout.kl_coefficient")
    if told.open:
        return  # who shares whose GPUs may stand among the flags that cannot be determined
    single = told.entry == "train_ppo"
    together = bool(reading.get("rollout.colocate_all"))
    sharded = reading.get("parallel.zero_stage") == 3
    model = reading.get("model.id")
    has_critic = estimator == "gae"
    pairs = has_critic and bool(is_on(config, flag.COLOCATE_REWARD))

    def role(name: str, flags: str, of: str | None, trained: bool, pool: str, offload: bool | None = None) -> Role:
        if single:
            return Role(name, of, trained, None, None, "actor", offload)
        nodes, gpus = (setting(config, names, INTEGER) for names in (flag.nodes(flags), flag.gpus(flags)))
        return Role(name, of, trained, nodes, gpus, pool, offload)

    yield role("actor", "actor", model, True, "actor")
    if kl is None or kl > 0 or before(config, "0.6.0"):
        shares = together or bool(is_on(config, flag.COLOCATE_REFERENCE))
        yield role("reference", "ref", model, False, "actor" if shares else "reference")
    rewards = setting(config, flag.REWARD_MODEL, STRING)
    listed: list[str | None] = [*rewards.split(",")] if isinstance(rewards, str) else []
    if has_critic:
        stated_model = setting(config, flag.CRITIC_MODEL, STRING)
        of = stated_model or (listed[0] if listed and has_reward_model(config) else model)
        critic = role("critic", "critic", of, True, "critic" if pairs or not together else "actor")
        yield critic if stated_model else critic._replace(unstated=name_at(config, flag.CRITIC_MODEL) or "")
    if has_reward_model(config):
        offload = sharded and bool(is_on(config, flag.REWARD_OFFLOAD))
        for of in listed or [None]:
            yield role("reward", "reward", of, False, "critic" if pairs else "actor" if together else "reward", offload)
    if is_on(config, flag.EMA):
        # ppo_actor.py asks for offloading, which DeepSpeed grants under ZeRO-3 only.
        yield role("ema", "actor", model, False, "actor", sharded)
