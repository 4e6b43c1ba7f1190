#!/usr/bin/env bash
# Builds the fuzzers on the stable toolchain and runs each for so many seconds: run.sh SECONDS [NAME...].
#
# cargo-fuzz asks for a nightly compiler for its sanitizers only; coverage, which guides the search, stable has. What is found
# stands in fuzz/artifacts; new corpus entries stay in a temporary folder unless FUZZ_KEEP=1 adds them to fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")"
seconds=$1
shift
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
host=$(rustc -vV | sed -n 's/^host: //p')
# Naming the target keeps the flags away from build scripts.
RUSTFLAGS="$coverage --cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions=on" cargo build --quiet --release --target "$host"
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
mkdir -p artifacts
[ $# -gt 0 ] || set -- archive config http import index ingest lfs line mapping pktline reftable requests spool trees webhook webindex worktree_index
fuzz_one() {
    target=$1
    mkdir -p "$found/$target" "corpus/$target"
    kept=$([ "${FUZZ_KEEP:-}" = 1 ] && echo "corpus/$target" || echo "$found/$target")
    "target/$host/release/$target" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target-" "$kept" "corpus/$target" >"$found/$target.log" 2>&1 || {
        tail -50 "$found/$target.log"
        # xargs starts no more.
        exit 255
    }
    echo "fuzzed $target for $seconds s: $(grep -E "number_of_executed_units" "$found/$target.log")"
}
export -f fuzz_one
export seconds host found
# As many at a time as there are cores.
printf '%s\n' "$@" | xargs -P "$(nproc)" -I {} bash -euo pipefail -c 'fuzz_one {}'
