#!/usr/bin/env bash
# Runs the command that it is given, a run of tests. Then tells which tests were skipped, and why.
set -uo pipefail
list=$(mktemp 2>/dev/null || mktemp -p /tmp) || exit 1
trap 'rm -f "$list"' EXIT
WEIR_TEST_SKIPPED=$list "$@"
status=$?
if [ -s "$list" ]; then
  printf '\n%s tests, or parts of them, were skipped:\n' "$(wc -l <"$list")"
  sed 's/^skipped /  /' "$list" | sort
fi
exit $status
