#!/usr/bin/env bash
# Runs the tests that ask the frameworks themselves, in an environment that is thrown away afterwards.
#
#     tests/oracles/environment.sh [PYTEST ARGUMENTS]     (default: every slow test of vocabulary and migrations)
#
# The frameworks are installed without their dependencies (tests/oracles/requirements.txt); what they import to validate
# a configuration is in the extra `oracle`. Sources of other releases are fetched from PyPI and kept in
# $CFGLINT_RELEASES, else in the temporary folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
python3 -m venv "$environment"
"$environment/bin/python" -m pip install --quiet '.[oracle]'
"$environment/bin/python" -m pip install --quiet --no-deps -r tests/oracles/requirements.txt
if [ $# -eq 0 ]; then
  set -- -m slow -n 2 tests/schemas tests/migrate tests/front/test_schema_command.py
fi
"$environment/bin/python" -m pytest -q "$@"
