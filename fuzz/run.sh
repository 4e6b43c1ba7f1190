#!/usr/bin/env bash
# Builds the fuzzers on the stable toolchain and runs each for SECONDS seconds: run.sh SECONDS [NAME...].
#
# cargo-fuzz needs a nightly compiler for its sanitizers only; a stable one has the coverage that guides libFuzzer. cargo
# compiles weir's own crates with it, and takes the dependencies that it has built for the tests. libFuzzer writes inputs that
# fail to fuzz/artifacts; new corpus entries stay in a temporary folder unless FUZZ_KEEP=1 adds them to fuzz/corpus. With
# FUZZ_PROFILE=release the fuzzers take longer to build, and run faster.
set -euo pipefail
cd "$(dirname "$0")"
seconds=$1
shift
profile=${FUZZ_PROFILE:-dev}
RUSTC_WORKSPACE_WRAPPER="$PWD/coverage.sh" cargo build --quiet --profile "$profile" -p weir-fuzz
built=${CARGO_TARGET_DIR:-../target}/${profile/dev/debug}
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
mkdir -p artifacts
[ $# -gt 0 ] || set -- archive config http import index ingest lfs line mapping pktline reftable requests spool trees webhook webindex worktree_index
fuzz_one() {
    target=$1
    mkdir -p "$found/$target" "corpus/$target"
    kept=$([ "${FUZZ_KEEP:-}" = 1 ] && echo "corpus/$target" || echo "$found/$target")
    "$built/$target" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target-" "$kept" "corpus/$target" >"$found/$target.log" 2>&1 || {
        tail -50 "$found/$target.log"
        # xargs starts no more.
        exit 255
    }
    echo "fuzzed $target for $seconds s: $(grep -E "number_of_executed_units" "$found/$target.log")"
}
export -f fuzz_one
export seconds built found
# As many at a time as there are cores.
printf '%s\n' "$@" | xargs -P "$(nproc)" -I {} bash -euo pipefail -c 'fuzz_one {}'
