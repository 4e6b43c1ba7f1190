#!/usr/bin/env bash
# Mirrors a sample that needs no network and serves it: this checkout, and a generated repository of some thousand commits.
#   setup/sample.sh check   only tries what can be tried before weir is built: the port, and the folder
#   WEIR_SAMPLE_PORT=N      the port (9418)
#   WEIR_SAMPLE=FOLDER      where the sample is kept (weir-sample in the user's cache)
set -euo pipefail
cd "$(dirname "$0")/.."
# Not the repository of a hook that calls this.
unset "${!GIT_@}" "${!WEIR_POOL@}" "${!WEIR_CONFIG@}"
# The sample is local: no proxy is of use.
export no_proxy='*' NO_PROXY='*'
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
port="${WEIR_SAMPLE_PORT:-9418}"

fail() {
  echo "error: $1" >&2
  exit 1
}

# The folder of the sample: the one that was asked for, else in the user's cache, else where the build goes.
case "${XDG_CACHE_HOME:-}" in /*) cache="$XDG_CACHE_HOME" ;; *) cache="${HOME:+$HOME/.cache}" ;; esac
for dir in "${WEIR_SAMPLE:-}" "${cache:+$cache/weir-sample}" "$target/sample"; do
  [ -n "$dir" ] && mkdir -p "$dir" 2>/dev/null && [ -w "$dir" ] && break
  [ -z "${WEIR_SAMPLE:-}" ] || fail "cannot write to '$WEIR_SAMPLE'; set WEIR_SAMPLE to another folder"
  dir=
done
[ -n "$dir" ] || fail "cannot write to '$target/sample'; set WEIR_SAMPLE to a folder"
case "$dir$PWD" in *[[:cntrl:]]*) fail "the paths of the sample and of this checkout must not hold control characters" ;; esac
case "$port" in '' | *[!0-9]* | 0) fail "'$port' is no port; use another:  make run WEIR_SAMPLE_PORT=9419" ;; esac
dir="$(realpath "$dir")"

python3 - "$port" <<'PYTHON' || exit 1
import socket, sys
try:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", int(sys.argv[1])))
except (OSError, ValueError, OverflowError) as error:
    sys.exit(f"error: cannot listen on port {sys.argv[1]}: {error}; use another:  make run WEIR_SAMPLE_PORT=9419")
PYTHON
[ "${1:-}" != check ] || exit 0

weir="$target/release/weir"
export WEIR_POOL="$dir/pool"
if [ ! -d "$dir/generated.git" ]; then
  # Made beside and renamed when whole: this may be interrupted.
  find "$dir" -maxdepth 1 -name 'new.*' -mmin +60 -exec rm -rf {} +
  new="$(mktemp -d "$dir/new.XXXXXX")"
  trap 'rm -rf "$new"' EXIT
  git init -q --bare -b main "$new"
  python3 bench/generate-repository.py 3000 | git --git-dir="$new" fast-import --quiet
  # Another run may have been faster.
  mv -T "$new" "$dir/generated.git" 2>/dev/null || [ -d "$dir/generated.git" ]
  rm -rf "$new"
  trap - EXIT
fi

"$weir" init
"$weir" add --name sample/generated "$dir/generated.git"
names=(sample/generated)
# Of another user's checkout, too.
here() { git -c safe.directory='*' "$@"; }
if [ "$(here rev-parse --show-toplevel 2>/dev/null)" != "$(pwd -P)" ]; then
  echo "This folder is no checkout of git: only the generated repository is mirrored."
elif here config --get-regexp '^(remote\..*\.promisor|extensions\.partialclone)$' >/dev/null; then
  echo "This checkout is a partial clone, which lacks objects: only the generated repository is mirrored."
else
  # A sample of another checkout, which may be gone, is of no use here.
  "$weir" add --name sample/weir "$PWD" 2>/dev/null ||
    { "$weir" rm --delete sample/weir && "$weir" add --name sample/weir "$PWD"; }
  names+=(sample/weir)
fi
# What else was added to this pool is none of the sample's business: weir serve visits it.
for name in "${names[@]}"; do
  "$weir" mirror "$name" || echo "'$name' could not be mirrored; what an earlier run has mirrored is served"
done
"$weir" ls
cat <<EOT

Serving git://127.0.0.1:$port/ until you press Ctrl-C. In another terminal, try:

  git clone git://127.0.0.1:$port/sample/generated
  git ls-remote git://127.0.0.1:$port/sample/generated
  export WEIR_POOL=$(printf %q "$WEIR_POOL") PATH="\$PATH":$(printf %q "$target/release")
  weir log sample/generated
  weir ls-tree ${names[-1]} HEAD:
  tar tvf $(printf %q "$WEIR_POOL/store/sample/generated.tar")
  weir add https://github.com/octocat/Hello-World.git && weir mirror

EOT
exec "$weir" serve --git "127.0.0.1:$port"
