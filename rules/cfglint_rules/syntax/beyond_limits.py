"""SYN008 beyond-limits: the file is larger, or takes longer, than what is read of one file.

## What it does
Reports the first place at which a file goes beyond one of the limits that keep a lint short, whatever a repository
holds:

| limit | of one file |
|---|---|
| size | 8 MiB; 512 KiB of YAML with tabs, tags, anchors and the like, on which loaders differ |
| lines | 100,000; 20,000 of a shell or Python script |
| keys and values | 50,000, with each alias counted as what it stands for; 10,000 keys |
| levels inside each other | 100 |
| words of one command | 1,000 |
| configurations and launches | 100 |
| findings of one configuration or run | 200 |
| comments that silence findings | 200 |
| processor time | 10 seconds |

Where `max-cpu-seconds` limits the CPU time of the whole run, the files that were not checked by then are one finding at
the first of them.

Where not all files of a repository count for its configurations (500,000 that git tracks, 50,000 without git's list, or
512 MiB to search), information at one of them names the bound.

An alias inside its own anchor is beyond every limit. Only files that contain a framework's own keys are reported.

## Why is this bad?
What is beyond was not checked. The largest configuration that is known has 312 kB and 2,800 values, so that a larger
one is most likely data under the name of a configuration.

## Example
    a: &a [x, x, x, x, x, x, x, x, x]
    b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]
    # ... and six more of these

## When it does not apply
The limit on time needs a timer that Windows does not have; there, the other limits bound it.
"""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.foundation.typed import Final

RULE: Final = Rule("SYN008", "beyond-limits", "error", scope="file", reported_by_engine="limit")
