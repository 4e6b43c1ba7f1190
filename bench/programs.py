"""The programs that are measured, and how much.

WEIR=PROGRAM: the weir to measure. Without, it is target/release/weir; with WEIR_BENCH_PROFILE=debug, which
only shows that a benchmark runs, target/debug/weir. WEIR_BENCH_SMOKE=1: small inputs."""

import os

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "target"))
BUILT = os.path.join(TARGET, os.environ.get("WEIR_BENCH_PROFILE", "release"))
WEIR = os.path.abspath(os.environ.get("WEIR", os.path.join(BUILT, "weir")))
# Clients and peers of weir's own.
BENCH = os.path.join(BUILT, "weir-bench")
SMOKE = bool(os.environ.get("WEIR_BENCH_SMOKE"))
