#!/usr/bin/env bash
# Builds what is given away, into target/weir-dist: a tar with the program, its manual pages, completions, units, alerts and
# dashboard; its debug symbols; an SBOM; checksums. The same commit and the same Rust give the same bytes, in any folder.
#   packaging/dist.sh [FOLDER]    where the files go, if not to target/weir-dist
set -euo pipefail
cd "$(dirname "$0")/.."
here="$PWD"
out="${1:-$here/target/weir-dist}"
target="${CARGO_TARGET_DIR:-$here/target}"
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
cargo_home="${CARGO_HOME:-$HOME/.cargo}"
sysroot="$(rustc --print sysroot)"
# No folder of this machine is in the program.
renamed="--remap-path-prefix=$here=/weir --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$sysroot=/rust"
export RUSTFLAGS="${RUSTFLAGS:-} $renamed --remap-path-prefix=$target=/target"
export CFLAGS="${CFLAGS:-} -ffile-prefix-map=$here=/weir -ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$target=/target"
export CXXFLAGS="${CXXFLAGS:-} ${CFLAGS}"
cargo build --locked --profile dist -p weir
built="$target/dist/weir"
version="$("$built" -V | cut -d ' ' -f 2)"
name="weir-$version-$(rustc -vV | sed -n 's/^host: //p')"
rm -rf "$out/files"
mkdir -p "$out/files/$name"
stage="$out/files/$name"
WEIR_BUILT="$built" PREFIX=/ DESTDIR="$stage" bash setup/install.sh >/dev/null
# The unit names the place where 'make install' puts the program.
sed 's|@PREFIX@|/usr/local|' packaging/systemd/weir.service >"$stage/lib/systemd/system/weir.service"
cp README.md CHANGELOG.md LICENSE-* docs/weir.toml "$stage/"
# A debugger finds the symbols by the link, beside the program or below /usr/lib/debug.
objcopy --only-keep-debug "$built" "$out/$name.debug"
(cd "$out" && objcopy --add-gnu-debuglink="$name.debug" "$stage/bin/weir")
find "$out/files" -print0 | xargs -0 touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=go+rX,go-w --format=gnu -C "$out/files" -cf - "$name" |
  gzip -9n >"$out/$name.tar.gz"
gzip -9nf "$out/$name.debug"
rm -r "$out/files"
packaging/sbom.sh >"$out/$name.cdx.json"
(cd "$out" && sha256sum "$name".* >SHA256SUMS)
ls -l "$out" | awk 'NR > 1 { print $5, $9 }'
