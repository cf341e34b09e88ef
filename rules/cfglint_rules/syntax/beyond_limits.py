"""SYN008 beyond-limits: the file is too large or takes too long to read.

## What it does
Reports the first place where a file exceeds one of these limits. The limits keep linting fast, whatever a repository
contains:

| limit | per file |
|---|---|
| size | 8 MiB; 512 KiB of YAML with tabs, tags, anchors and other syntax on which loaders differ |
| lines | 100,000; 20,000 in a shell or Python script |
| keys and values | 50,000, with every alias expanded; 10,000 keys |
| nesting levels | 100 |
| words of one command | 1,000 |
| configurations and launches | 100 |
| findings of one configuration or run | 200 |
| suppression comments | 200 |
| CPU time | 10 seconds |

An alias inside its own anchor exceeds every limit. Only files that contain a framework's own keys are reported.

`max-cpu-seconds` limits the CPU time of the whole run. A single finding at the first file that was not checked in time
covers all such files.

There are also limits for the whole repository: 500,000 files that git tracks (50,000 without git), and 512 MiB to
search. If a repository exceeds one of them, cfglint reports an info that names the limit, at one of the affected files.

## Why is this bad?
Nothing beyond the limit was checked. The largest known configuration is 312 kB and has 2,800 values. A larger
file is most likely data with the name of a configuration file.

## Example
    a: &a [x, x, x, x, x, x, x, x, x]
    b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]
    # ... and six more of these

## When it does not apply
The time limit needs a timer that Windows does not have. On Windows, only the other limits apply.
"""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.foundation.typed import Final

RULE: Final = Rule("SYN008", "beyond-limits", "error", scope="file", reported_by_engine="limit")
