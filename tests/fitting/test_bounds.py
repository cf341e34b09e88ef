"""`cfglint fit` means the upper bound where it says that something fits."""

from __future__ import annotations

import pytest

from cfglint_train import api
from cfglint_train.records import RunFit
from tests.fitting.test_command import TEXT

BATCH = "micro_batch_size: 4\ngradient_accumulation_steps: 2\n"
FSDP = TEXT.replace("micro_batch_size: 16  # sequences\ngradient_accumulation_steps: 2\n", BATCH)


def build_options(gpu: str) -> api.Options:
    return api.Options(isolated=True, gpu=gpu, nodes=1, gpus_per_node=8)


def fit(gpu: str, text: str = FSDP, **how) -> RunFit:
    [run] = api.fit("run.yaml", build_options(gpu), {"run.yaml": text}, **how).runs
    return run


def estimate(gpu: str, text: str):
    [run] = api.estimate("run.yaml", build_options(gpu), {"run.yaml": text}).runs
    return run


def find_verdicts(gpu: str, text: str) -> set[str | None]:
    return {phase.gpu.verdict for phase in estimate(gpu, text).phases if phase.gpu is not None}


def make_tight() -> str:
    """Return a GPU on which the run is expected to fit, but its upper bound is not."""
    run = fit("H200")
    return f"{((run.expected or 0) + (run.high or 0)) // 2**31}GiB"


@pytest.mark.parametrize("goal", ["throughput", "smallest-edit"])
def test_a_goal_takes_a_slower_change_that_fits_before_a_tight_run(goal) -> None:
    gpu = make_tight()
    assert fit(gpu).verdict == "tight"
    assert fit(gpu).solution is None  # the lint offers no smaller batch where only the upper bound is above
    solution = fit(gpu, goal=goal).solution
    assert solution is not None
    assert solution.settings == ("micro_batch_size: 4 -> 2", "gradient_accumulation_steps: 2 -> 4")
    assert (solution.verdict, solution.slowdown) == ("fits", 1.07)


def test_a_goal_takes_a_change_that_fits_before_a_faster_tight_one() -> None:
    """Half the batch is tight on this GPU, a quarter fits."""
    text = FSDP.replace("micro_batch_size: 4", "micro_batch_size: 8")
    solution = fit(make_tight(), text, goal="throughput").solution
    assert solution is not None
    assert solution.settings[0] == "micro_batch_size: 8 -> 2"
    assert solution.verdict == "fits"


def test_what_the_advice_about_hardware_names_is_what_to_book() -> None:
    keep = ("micro_batch_size", "sequence_len", "gradient_accumulation_steps")
    held = fit("24GB", keep=keep).holding
    assert held is not None
    assert held.settings == ()
    assert held.need == estimate("24GB", FSDP).book
    assert find_verdicts(f"{-(-held.need // 2**30)}GiB", FSDP) == {"fits"}


@pytest.mark.parametrize(
    ("size", "key"), [("micro_batch", "micro_batch_size: 4"), ("sequence_length", "sequence_len: 8192")]
)
def test_the_largest_size_fits_and_the_next_one_is_tight(size, key) -> None:
    run, name = fit("A100-80GB", most=size), key.partition(":")[0]
    assert run.largest is not None
    assert run.largest_expected is not None
    assert run.largest < run.largest_expected
    verdicts = [
        find_verdicts("A100-80GB", FSDP.replace(key, f"{name}: {value}"))
        for value in (run.largest, run.largest + 1, run.largest_expected, run.largest_expected + 1)
    ]
    assert verdicts[0] == {"fits"}
    assert "tight" in verdicts[1] & verdicts[2]
    assert "probably does not fit" in verdicts[3]


def test_the_high_end_is_that_of_the_worst_phase() -> None:
    run = fit("A100-80GB")
    highs = [phase.gpu.high for phase in estimate("A100-80GB", FSDP).phases if phase.gpu is not None]
    assert run.high == max(highs)


def test_the_lowest_peak_that_does_not_fit_is_not_called_a_change_that_fits() -> None:
    result = api.fit("run.yaml", build_options("24GB"), {"run.yaml": FSDP}, goal="memory", change=True)
    [run] = result.runs
    assert run.solution is not None
    assert run.solution.verdict == "does not fit"
    assert run.holding is not None
    assert result.sources == {}
    assert result.hopeless == ("run.yaml",)


def test_a_faster_change_says_why_it_was_not_chosen() -> None:
    """Without checkpointing, one sequence at a time is tight, and fewer tokens give something up."""
    text = FSDP.replace("gradient_checkpointing: true", "gradient_checkpointing: false")
    one = fit("H200", text.replace("micro_batch_size: 4", "micro_batch_size: 1"))
    run = fit(f"{((one.expected or 0) + (one.high or 0)) // 2**31}GiB", text)
    assert run.solution is not None
    assert run.solution.settings == ("gradient_checkpointing: false -> true",)
    rows = {rung.settings[0].partition(":")[0]: (rung.verdict, rung.loss) for rung in run.rungs}
    assert rows["gradient_checkpointing"] == ("fits", "")
    assert rows["micro_batch_size"] == ("tight", "only tight")
    assert rows["sequence_len"] == ("fits", "gives more up")


GROUPS = """\
python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 2 --ref.num_nodes 1 \\
  --ref.num_gpus_per_node 2 --critic.num_nodes 1 --critic.num_gpus_per_node 2 --reward.num_nodes 1 \\
  --reward.num_gpus_per_node 2 --vllm.num_engines 2 --ds.zero_stage 3 --actor.model_name_or_path Qwen/Qwen2.5-14B \\
  --reward.model_name_or_path Qwen/Qwen2.5-14B --data.prompt_dataset x --actor.gradient_checkpointing_enable \\
  --data.max_len 2048 --train.micro_batch_size 1 --train.batch_size 128
"""


def test_each_group_of_a_job_gets_the_gpus_that_it_needs() -> None:
    """The critic needs 117 GiB on 2 GPUs and the actor 126; the frozen models fit on theirs."""
    options = api.Options(isolated=True, gpu="A100-80GB", nodes=2, gpus_per_node=8)
    [ladder] = api.fit("run.sh", options, {"run.sh": GROUPS}).ladders
    assert ladder.hardware_need is not None
    assert ladder.hardware_need.description.startswith(
        "use 18 GPUs (`--actor.num_gpus_per_node: 8`, 4 GPUs per node for the critic model), or a GPU with at least "
    )
    text = GROUPS.replace("actor.num_gpus_per_node 2", "actor.num_gpus_per_node 8")
    text = text.replace("critic.num_gpus_per_node 2", "critic.num_gpus_per_node 4")
    [run] = api.fit("run.sh", options, {"run.sh": text}).runs
    assert run.verdict == "fits"
