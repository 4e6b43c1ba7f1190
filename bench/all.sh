#!/usr/bin/env bash
# All benchmarks, side by side with their peers in one run. Prints the tables of docs/benchmarks.md.
#   WEIR_BENCH_REPO=DIR   a bare repository with bitmaps to use (git/git's heads and tags, for the figures in the docs);
#                         without it a generated one
#   WEIR_BENCH_COUNT=N    upstreams of a pass (ten thousand)
#   WEIR_BENCH_ROWS=N     repositories in the catalog (a million)
#   WEIR_BENCH_FORKS="BASE FORK ..."  a network of forks; without it a generated one
#   WEIR_BENCH_COMMITS=N  commits of the repository that memory is measured with (six hundred thousand)
#   WEIR_BENCH_MINE="DIR ..."  bare repositories to mine; without it a generated one
#   WEIR_BENCH_SMOKE=1    small inputs: that everything runs, not how fast
set -euo pipefail
cd "$(dirname "$0")/.."
python3 bench/run.py "$@"
python3 bench/unchanged.py
python3 bench/catalog.py
python3 bench/forks.py
python3 bench/memory.py
python3 bench/visits.py
python3 bench/mine.py ${WEIR_BENCH_MINE:-}
python3 bench/mine_hostile.py
python3 bench/events.py
python3 bench/updates.py
python3 bench/webhooks.py
python3 bench/api.py
python3 bench/query.py
python3 bench/on_demand.py
python3 bench/hello.py
python3 bench/workspace.py
python3 bench/headers.py
