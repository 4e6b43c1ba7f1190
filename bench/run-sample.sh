#!/usr/bin/env bash
# Mirrors a sample that needs no network and serves it: this checkout, and a generated repository of some thousand commits.
set -euo pipefail
cd "$(dirname "$0")/.."
release="$(realpath "${CARGO_TARGET_DIR:-target}")/release"
weir="$release/weir"
dir="${WEIR_SAMPLE:-${XDG_CACHE_HOME:-$HOME/.cache}/weir-sample}"
port="${WEIR_SAMPLE_PORT:-9418}"
mkdir -p "$dir"
export WEIR_POOL="$dir/pool"

if [ ! -d "$dir/generated.git" ]; then
  git init -q --bare -b main "$dir/generated.git"
  python3 bench/generate-repository.py 3000 | git -C "$dir/generated.git" fast-import --quiet
fi
"$weir" init
# A sample of another checkout is of no use here.
"$weir" add --name sample/weir "$PWD" 2>/dev/null || { "$weir" rm --delete sample/weir && "$weir" add --name sample/weir "$PWD"; }
"$weir" add --name sample/generated "$dir/generated.git"
"$weir" mirror --all
"$weir" ls
cat <<EOT

Serving git://127.0.0.1:$port/ until you press Ctrl-C. In another terminal, try:

  git clone git://127.0.0.1:$port/sample/generated
  git ls-remote git://127.0.0.1:$port/sample/weir
  export WEIR_POOL=$WEIR_POOL PATH=\$PATH:$release
  weir log sample/generated
  weir ls-tree sample/weir HEAD:crates
  tar tvf "\$(weir show --json sample/weir | python3 -c 'import json,sys; print(json.load(sys.stdin)["archive"])')"
  weir add https://example.org/some/project.git && weir mirror

EOT
exec "$weir" serve --git "127.0.0.1:$port"
