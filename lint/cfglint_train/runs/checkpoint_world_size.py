"""World size of a checkpoint: count the shards in the repository without opening them."""

from __future__ import annotations

import os
import re

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.reading import ResolvedPlan

MAX_FILES: Final = 20_000
"""Maximum number of files in a folder; larger folders are no checkpoint that can be counted."""

# DeepSpeed's optimizer shards (checkpoint/constants.py), and OLMo's of the local and torch_legacy checkpointers.
_SHARD: Final = r"(?:(?:bf16|fp16)_)?zero_pp_rank_(\d+)_mp_rank_00_optim_states\.pt|rank(\d+)\.pt"
_NUMBERED: Final = r"checkpoint-(\d+)"


def find_checkpoint_ranks(plan: ResolvedPlan, config_folder: str, allowed_folders: tuple[str, ...]) -> int | None:
    """Return the number of ranks that wrote the checkpoint that a run resumes from, or None.

    None if the checkpoint is not in the repository or not sharded.     A relative path is tried against `config_folder`
    and the working directory; only folders below `allowed_folders` are listed.
    """
    load_path, save_path = plan.get("checkpoint.load_path"), plan.get("checkpoint.path")
    path = load_path or (save_path if plan.get("checkpoint.resume_latest") else None)
    if not isinstance(path, str) or "://" in path:
        return None
    for base in dict.fromkeys((config_folder, ".")):
        folder = os.path.join(base, regular_files.expand_home(path))
        ranks = _count_ranks(folder if load_path else _find_newest_checkpoint(folder, allowed_folders), allowed_folders)
        if ranks is not None:
            return ranks
    return None


def _find_newest_checkpoint(folder: str, allowed_folders: tuple[str, ...]) -> str:
    """Return the checkpoint folder below `folder` with the highest step, else the folder itself.

    Sources: HF Trainer (trainer_utils.py, get_last_checkpoint); PPO of OpenRLHF resumes from the actor's folder
    (trainer/ray/ppo_actor.py).
    """
    names = _list_files(folder, allowed_folders)
    numbered = [(int(match[1]), name) for name in names if (match := re.fullmatch(_NUMBERED, name))]
    if numbered:
        return os.path.join(folder, max(numbered)[1])
    return os.path.join(folder, "_actor") if "_actor" in names else folder


def _count_ranks(folder: str, allowed_folders: tuple[str, ...]) -> int | None:
    """Return the number of ranks from the shards in a folder or its children, or None.

    None if the children disagree or shards are missing.
    """
    names = _list_files(folder, allowed_folders)
    children = (os.path.join(folder, name) for name in names if name.startswith("global_step") or name == "optim")
    counts = {
        count
        for file_names in (names, *(_list_files(child, allowed_folders) for child in children))
        if (count := _count_shards(file_names))
    }
    return counts.pop() if len(counts) == 1 else None


def _count_shards(names: list[str]) -> int:
    """Return the number of ranks of the shards among some files, or 0 if one is missing."""
    ranks = {int(match[1] or match[2]) for name in names if (match := re.fullmatch(_SHARD, name))}
    return len(ranks) if ranks == set(range(len(ranks))) else 0


def _list_files(folder: str, allowed_folders: tuple[str, ...]) -> list[str]:
    """Return the sorted files of a folder, or nothing if it is missing or its real path is not readable."""
    try:
        readable = os.path.isdir(folder) and any(
            regular_files.is_below(folder, allowed_folder) for allowed_folder in allowed_folders
        )
        names = os.listdir(folder) if readable else []
    except (OSError, ValueError):
        return []
    return sorted(names) if len(names) <= MAX_FILES else []
