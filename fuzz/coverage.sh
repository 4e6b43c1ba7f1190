#!/usr/bin/env bash
# Compiles a crate of this workspace with the coverage that guides libFuzzer. cargo calls it with the compiler and its arguments.
set -euo pipefail
case " $* " in
*" --crate-name build_script_build "*) exec "$@" ;;
*" --crate-name "*) ;;
*) exec "$@" ;;
esac
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on \
    --cfg fuzzing
