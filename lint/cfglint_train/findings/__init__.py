"""Building blocks of rules: findings, verdicts, drafts of fixes."""
