#!/usr/bin/env bash
# Installs a program that checks the project into target/checkers/bin, unless it is in the PATH. pip fetches a built one, and
# compares its hash with setup/rust-tools.txt; if pip cannot, cargo builds the program.
#   setup/rust-tool.sh NAME VERSION [OPTION OF CARGO INSTALL...]
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 version=$2
shift 2
command -v "$name" >/dev/null && exit
[ ! -x "target/checkers/bin/$name" ] || exit 0
bash setup/need.sh python || true
python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --upgrade \
  --target target/checkers -r setup/rust-tools.txt 2>/dev/null || true
[ ! -x "target/checkers/bin/$name" ] || exit 0
echo "pip could not fetch $name with the hash in setup/rust-tools.txt: cargo builds it, which takes minutes"
CARGO_PROFILE_DEV_DEBUG=0 ${CARGO:-cargo} install --debug --locked --quiet "$name" --version "$version" "$@" --root target/checkers
