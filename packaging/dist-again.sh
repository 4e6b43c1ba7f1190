#!/usr/bin/env bash
# Builds target/weir-dist again from a clone of the same commit in another folder, and compares both, byte for byte.
set -euo pipefail
cd "$(dirname "$0")/.."
git diff --quiet HEAD || { echo "error: what is not committed is not in a clone; commit it first" >&2; exit 1; }
again="$(mktemp -d)"
trap 'rm -rf "$again"' EXIT
git clone -q . "$again/other-folder"
CARGO_TARGET_DIR="$again/target" bash "$again/other-folder/packaging/dist.sh" "$again/weir-dist" >/dev/null
(cd "$again/weir-dist" && sha256sum --check --quiet "$OLDPWD/target/weir-dist/SHA256SUMS")
echo "the files are the same, byte for byte"
