"""Logs: every wording of every release, the shapes in which launchers print it, and hostile text."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest

from cfglint_train.postmortem.diagnosis import explain
from cfglint_train.postmortem.messages import Message, read_log
from cfglint_train.postmortem.tracebacks import locate_allocation
from tests.postmortem.logs import build_log, load_reports

GIB, MIB = 2**30, 2**20

OLD = (
    "CUDA out of memory. Tried to allocate 2.26 GiB (GPU 3; 24.00 GiB total capacity; 20.50 GiB already allocated; "
    "1.03 GiB free; 21.50 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory"
)
CACHED = OLD.replace("reserved in total by PyTorch", "cached")
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.26 GiB. GPU 3 has a total capacity of 24.00 GiB "
    "of which 1.03 GiB is free. Including non-PyTorch memory, this process has 22.97 GiB memory in use. Of the "
    "allocated memory 20.50 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated. If"
)
TYPO = NEW.replace("capacity", "capacty").replace("torch.OutOf", "torch.cuda.OutOf")
POOLS = NEW.replace("by PyTorch, and", "by PyTorch, with 10.00 MiB allocated in private pools (e.g., CUDA Graphs), and")
CONTAINER = NEW.replace("Including non-PyTorch memory, this process has", "Process 71 has")


def read_message(text: str) -> Message:
    """Return the message of a log with one failure."""
    (failure,) = read_log([text])
    return failure.message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(OLD, id="1.x and 2.0"),
        pytest.param(CACHED, id="before 1.4"),
        pytest.param(NEW, id="2.5"),
        pytest.param(TYPO, id="2.1"),
        pytest.param(POOLS, id="private pools"),
        pytest.param(CONTAINER, id="container"),
        pytest.param(OLD.replace("CUDA", "HIP"), id="HIP"),
        pytest.param(OLD.replace("CUDA", "NPU").replace("GPU", "NPU"), id="NPU"),
        pytest.param(NEW.replace("GiB of which", "GiB\n of which").replace("PyTorch, ", "PyTor\nch, "), id="wrapped"),
        pytest.param(f"\x1b[31m[rank3]:\x1b[0m {NEW}\r\n", id="ANSI and CRLF"),
        pytest.param(f"  0%|   | 0/9 [00:00<?, ?it/s]\r[rank3]: {NEW}", id="carriage return"),
        pytest.param(f"(WorkerDict pid=7, ip=10.0.0.1) {NEW}", id="ray"),
        pytest.param(f"\x00{NEW}\x00", id="NUL"),
    ],
)
def test_every_wording_states_the_same_sizes(text):
    message = read_message(text)
    assert message.kind == "gpu"
    assert message.device in (3, None)
    assert (message.tried, message.total, message.free) == (2.26 * GIB, 24 * GIB, 1.03 * GIB)
    if "wrapped" not in text and "PyTor\n" not in text:
        assert message.allocated == 20.5 * GIB
    assert message.idle == pytest.approx(GIB)
    assert message.resolution == 0.005 * GIB


def test_sizes_that_are_not_stated_are_not_invented():
    message = read_message("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 58.15 GiB.")
    assert message.tried == 58.15 * GIB
    assert (message.total, message.allocated, message.idle, message.others) == (None, None, None, None)


@pytest.mark.parametrize(
    ("processes", "others"),
    [
        ("Including non-PyTorch memory, this process has 22.97 GiB memory in use.", 0),
        (
            "Including non-PyTorch memory, this process has 5 GiB memory in use. Process 9 has 2.00 GiB memory in use.",
            2,
        ),
        ("Process 9 has 21.90 GiB memory in use.", 0),
        ("Process 9 has 3.00 GiB memory in use. Process 10 has 22.10 GiB memory in use.", 3),
        ("Process 9 has 22.00 GiB memory in use. Process 10 has 22.10 GiB memory in use.", None),
        ("Process 9 has 3.00 GiB memory in use.", None),
        ("this process has 17179869184.00 GiB memory in use. Process 9 has 17179869184.00 GiB memory in use.", None),
    ],
)
def test_memory_of_other_processes_is_separated_from_that_of_this_one(processes, others):
    text = NEW.replace("Including non-PyTorch memory, this process has 22.97 GiB memory in use.", processes)
    assert read_message(text).others == (None if others is None else pytest.approx(others * GIB))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("driver", "torch.AcceleratorError: CUDA error: out of memory"),
        ("driver", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        ("driver", "ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 2 'out of memory'"),
        ("driver", "Last error: Cuda failure 'out of memory'"),
        ("engine", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
        ("engine", "GiB KV cache is needed, which is larger than the available KV cache memory (1.2 GiB)"),
        ("engine", "Free memory on device (20.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9"),
        ("host", "[12345.6] Out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:104857600kB"),
        ("host", "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM"),
        ("host", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.batch cgroup."),
        ("host", "    Reason:       OOMKilled"),
        ("host", "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed."),
        ("host", "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes"),
        ("host", "Task was killed due to the node running low on memory."),
        ("killed", "torch.distributed.elastic: failed (exitcode: -9) local_rank: 0 (pid: 438) of binary: python"),
        ("killed", "[launch.py:322:sigkill_handler] ['python'] exits with return code = -9"),
        ("host", "Workers (tasks / actors) killed due to memory pressure (OOM), 0 crashed"),
        ("host", "_ArrayMemoryError: Unable to allocate 30.5 GiB for an array with shape (4096, 1000000)"),
        ("host", "srun: error: node12: task 3: Out Of Memory"),
        ("killed", "subprocess.CalledProcessError: Command died with <Signals.SIGKILL: 9>."),
        ("killed", "./run.sh: line 14: 12345 Killed                  python train.py"),
        ("killed", "srun: error: node12: tasks 0-3: Killed"),
        ("killed", "srun: error: node12: task 3: Exited with exit code 137"),
        ("shared memory", "DataLoader worker (pid 5) is killed by signal: Bus error. It is possible that"),
        ("disk", "OSError: [Errno 28] No space left on device"),
        ("disk", "[enforce fail at inline_container.cc:672] PytorchStreamWriter failed writing file data/3"),
        ("disk", "OSError: [Errno 122] Disk quota exceeded"),
    ],
)  # fmt: skip
def test_other_resources_are_distinguished(kind, text):
    assert read_message(text).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "loss 1.2, room for improvement, bloom-560m, zoom",
        "see docs on out of memory errors",
        "failed (exitcode: 1) local_rank: 0",
        "max_split_size_mb to avoid fragmentation",
        "INFO: GPU KV cache size: 12,345 tokens",
        "(1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop",
    ],
)
def test_other_lines_are_no_messages(text):
    assert read_log([text]) == ()


def test_ranks_that_fail_alike_are_one_failure():
    text = "".join(
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f'[rank{rank}]:   File "/a/torch/nn/functional.py", line 3, in cross_entropy\n'
        f"[rank{rank}]: {NEW.replace('GPU 3', f'GPU {rank}').replace('2.26', f'2.{rank}0')}\n"
        for rank in range(8)
    )
    (failure,) = read_log([text])
    assert failure.ranks == tuple(range(8))
    assert failure.repeats == 8
    assert failure.message.tried == 2.7 * GIB


def test_frames_of_interleaved_ranks_are_kept_apart():
    first, second = "[rank0]: ", "[rank1]: "
    text = (
        f"{first}Traceback (most recent call last):\n{second}Traceback (most recent call last):\n"
        f'{first}  File "/a/site-packages/torch/optim/adamw.py", line 3, in _multi_tensor_adamw\n'
        f'{second}  File "/a/site-packages/torch/nn/functional.py", line 3, in cross_entropy\n'
        f"{first}    denom = 1\n{second}    return loss\n{first}{NEW}\n{second}{NEW}\n"
    )
    failures = read_log([text])
    assert [locate_allocation(failure.message.frames).part for failure in failures] == ["update", "logits"]


def test_a_traceback_may_interrupt_another_one():
    text = f'  File "/a/x.py", line 3, in f\n    y = 1 Traceback (most recent call last):\n{NEW}'
    assert [frame.function for frame in read_message(text).frames] == [""]


def test_a_size_beyond_all_machines_is_no_size():
    assert read_log([f"CUDA out of memory. Tried to allocate {'9' * 400} GiB."]) == ()


def test_broken_logs_are_read():
    """Read logs in which ranks share lines and characters are lost, and explain their failures."""
    random = Random(1)
    logs = [build_log(report) for report in load_reports()]
    for _ in range(300):
        text = random.choice(logs) + random.choice(logs)
        text = "".join(letter for letter in text if random.random() < (0.8 if letter == "\n" else 0.998))
        assert all(explain(failure.message, None) for failure in read_log([text]))


def test_the_launcher_that_kills_the_other_processes_is_no_cause():
    text = f"{NEW}\nfailed (exitcode: -9) local_rank: 1 (pid: 438)\n"
    assert [failure.message.kind for failure in read_log([text])] == ["gpu"]
    text = "Detected 1 oom_kill event in StepId=1.0\nfailed (exitcode: -9) local_rank: 1 (pid: 438)\n"
    assert [failure.message.kind for failure in read_log([text])] == ["host"]


@pytest.mark.parametrize(
    "cause",
    [
        "failed (exitcode: -6) local_rank: 0 (pid: 437) of binary: python",
        "slurmstepd: error: *** JOB 123 ON node1 CANCELLED AT 2025-03-12T12:00:01 DUE TO TIME LIMIT ***",
    ],
)
def test_a_process_that_is_killed_for_another_reason_lacked_no_memory(cause):
    killed = "failed (exitcode: -9) local_rank: 1 (pid: 438)"
    assert read_log([f"{cause}\n{killed}\n"]) == ()
    peers = "failed (exitcode: 1) local_rank: 0 (pid: 437)"  # the peers of a killed process lose their connection
    assert [failure.message.kind for failure in read_log([f"{killed}\n{peers}\n"])] == ["killed"]


def test_code_that_quotes_a_message_is_none():
    text = (
        'Traceback (most recent call last):\n  File "/a/site-packages/vllm/worker.py", line 3, in check\n'
        '    raise ValueError("No available memory for the cache blocks. "\n'
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n"
    )
    message = read_message(text)
    assert message.text.startswith("ValueError: ")
    assert message.frames[-1].code.startswith("raise ")


def test_failures_in_one_function_of_different_files_are_kept_apart():
    frame = 'Traceback (most recent call last):\n  File "/a/site-packages/{}.py", line 3, in forward\n'
    failures = read_log([f"{frame.format('mlp')}{NEW}\n{frame.format('loss')}{NEW.replace('2.26', '9.00')}\n"])
    assert [failure.message.tried for failure in failures] == [2.26 * GIB, 9 * GIB]


def test_the_kernel_states_what_was_held():
    start = "[1.0] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
    limit = "[1.0] memory: usage 2097152kB, limit 2097152kB, failcnt 1203\n"
    end = "[1.0] Out of memory: Killed process 7 (python3) total-vm:9kB, anon-rss:1048576kB, shmem-rss:1048576kB\n"
    message = read_message(start + limit + end)
    assert (message.allocated, message.total) == (2 * GIB, 2 * GIB)
    message = read_message(start + end)
    assert (message.allocated, message.total) == (2 * GIB, None)
    node = (
        "where the task (pid=9, memory used=1.25GB) was running was 27.75GB / 28.50GB (0.97), which exceeds the memory "
    )
    message = read_message(f"{node}usage threshold of 0.95.\n")
    assert (message.allocated, message.total) == (27.75 * GIB, 28.5 * GIB)


def test_the_step_is_that_of_the_training_bar():
    bars = "Loading checkpoint shards: 100%|##| 4/4 [00:01<00:00]\n  3%|#  | 9/352 [40:55<25:10, 264.19s/it]\r"
    assert read_message(f"{bars}{NEW}").step == (9, 352)
    loading = read_message(f"Loading checkpoint shards:  50%|##| 2/4 [00:01<00:00]\r{NEW}")
    assert (loading.step, loading.is_loading) == (None, True)
    assert read_message(f"Map:  50%|##| 2/4 [00:01<00:00, 3 examples/s]\n{NEW}").step is None


def test_a_message_at_the_end_of_a_cut_log_counts():
    assert read_message(NEW[:120]).tried == 2.26 * GIB


def generate_pieces(count: int, text: str) -> Iterator[str]:
    """Yield pieces of 1 MiB that repeat a text."""
    piece = (text * (MIB // len(text) + 1))[:MIB]
    for _ in range(count):
        yield piece
    yield f"\n{NEW}\n"


@pytest.mark.parametrize(
    "text", ["x", "\x00", "[rank3]: step 5, loss 1.2\n", "9: " * 99, "%|" * 99, "a/" * 99 + ".yaml sh"]
)
def test_long_logs_need_little_memory(text):
    tracemalloc.start()
    try:
        (failure,) = read_log(generate_pieces(4, text))
        assert failure.message.tried == 2.26 * GIB
        assert tracemalloc.get_traced_memory()[1] < 12 * MIB
    finally:
        tracemalloc.stop()


def test_an_environment_called_vllm_is_no_engine():
    text = (
        f'Traceback (most recent call last):\n  File "/envs/vllm/lib/site-packages/torch/nn/x.py", line 3, in f\n{NEW}'
    )
    assert locate_allocation(read_message(text).frames).part is None
