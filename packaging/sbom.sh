#!/usr/bin/env bash
# Prints a bill of the materials of weir, the program: what 'cargo cyclonedx' says of it (CycloneDX 1.5, JSON).
set -euo pipefail
cd "$(dirname "$0")/.."
tools="$PWD/target/tools"
unset RUSTFLAGS CFLAGS CXXFLAGS
if ! [ -x "$tools/bin/cargo-cyclonedx" ]; then
  cargo install --locked --quiet cargo-cyclonedx --version 0.5.7 --root "$tools" >&2
fi
made=crates/weir/weir-sbom.json
trap 'find crates bench fuzz -maxdepth 2 -name weir-sbom.json -delete' EXIT
PATH="$tools/bin:$PATH" cargo cyclonedx --quiet --format json --spec-version 1.5 --override-filename weir-sbom >&2
# The serial number is drawn by lot, and the time is that of the call: both would differ each time.
python3 - "$made" "${SOURCE_DATE_EPOCH:-0}" <<'PYTHON'
import json, os, sys, time
path, seconds = sys.argv[1], int(sys.argv[2])
with open(path) as file:
    bill = json.load(file)
bill.pop("serialNumber", None)
bill["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
text = json.dumps(bill, indent=1)
# Components of this project are named by where they lie.
print(text.replace(os.getcwd(), "/weir"))
PYTHON
