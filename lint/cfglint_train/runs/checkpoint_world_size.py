"""World size of a checkpoint: count its shards in the repository without opening them."""

from __future__ import annotations

import os
import re

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.reading import ResolvedPlan

MAX_FILES: Final = 20_000
"""Maximum number of files in a folder; the shards of larger folders are not counted."""

# Shards of DeepSpeed's optimizer states (checkpoint/constants.py) and of OLMo's local and torch_legacy checkpointers.
_SHARD: Final = r"(?:(?:bf16|fp16)_)?zero_pp_rank_(\d+)_mp_rank_00_optim_states\.pt|rank(\d+)\.pt"
_NUMBERED: Final = r"checkpoint-(\d+)"


def find_checkpoint_ranks(plan: ResolvedPlan, config_folder: str, allowed_folders: tuple[str, ...]) -> int | None:
    """Return the number of ranks that wrote the checkpoint that a run resumes from, or None if it is unknown.

    It is unknown if the checkpoint is not in the repository or not sharded. A relative path is resolved against
    `config_folder`, then the working directory. Only folders below `allowed_folders` are listed.
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
    """Return the checkpoint folder below `folder` with the highest step, else its `_actor` folder, else `folder`.

    Sources: HF Trainer (trainer_utils.py, get_last_checkpoint); OpenRLHF's PPO, which resumes from the actor's folder
    (trainer/ray/ppo_actor.py).
    """
    names = _list_files(folder, allowed_folders)
    numbered = [(int(match[1]), name) for name in names if (match := re.fullmatch(_NUMBERED, name))]
    if numbered:
        return os.path.join(folder, max(numbered)[1])
    return os.path.join(folder, "_actor") if "_actor" in names else folder


def _count_ranks(folder: str, allowed_folders: tuple[str, ...]) -> int | None:
    """Return the number of ranks according to the shards in a folder and its subfolders, or None.

    The result is None if the folders disagree, have no shards or lack some.
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
    """Return the number of ranks whose shards are among some files, or 0 if a shard is missing."""
    ranks = {int(match[1] or match[2]) for name in names if (match := re.fullmatch(_SHARD, name))}
    return len(ranks) if ranks == set(range(len(ranks))) else 0


def _list_files(folder: str, allowed_folders: tuple[str, ...]) -> list[str]:
    """Return the sorted names in a folder.

    The result is empty if the folder is missing, not below `allowed_folders`, or has more than MAX_FILES entries.
    """
    try:
        readable = filesystem.is_folder(folder) and any(
            regular_files.is_below(folder, allowed_folder) for allowed_folder in allowed_folders
        )
        names = filesystem.list_names(folder) if readable else []
    except (OSError, ValueError):
        return []
    return sorted(names) if len(names) <= MAX_FILES else []
