"""`cfglint init`: settings, pre-commit hook and workflow for a repository, based on its contents.

`survey_repository` inspects the repository, `questions` asks for missing facts, `settings_table`, `hook` and `workflow`
build the files, and `changes` shows and writes them.
"""
