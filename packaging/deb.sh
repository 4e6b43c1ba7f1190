#!/usr/bin/env bash
# Makes a Debian package of weir, which was built: target/weir_VERSION_ARCHITECTURE.deb.
#   packaging/deb.sh [VERSION]    a version other than that of the program, to try an upgrade with
# Its files have the time of the commit, so that the same program gives the same package.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"
weir="$target/release/weir"
[ -x "$weir" ] || { echo "error: there is no '$weir' to package; run:  make build" >&2; exit 1; }
version="${1:-$("$weir" -V | cut -d ' ' -f 2)}"
architecture="$(dpkg --print-architecture)"
root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
umask 022
chmod 755 "$root"
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
DESTDIR="$root" PREFIX=/usr bash setup/install.sh >/dev/null
share="$root/usr/share"
mv "$share/zsh/site-functions" "$share/zsh/vendor-completions"
gzip -9n "$share"/man/man1/*
doc="$share/doc/weir"
mkdir -p "$doc" "$root/DEBIAN"
sed -e '/@MIT@/{' -e 's/.*//' -e 'r /dev/stdin' -e 'd' -e '}' packaging/debian/copyright \
  < <(sed -e '1,/^Permission/{/^Permission/!d}' -e 's/^$/./' -e 's/^/ /' LICENSE-MIT) >"$doc/copyright"
printf 'weir (%s) unstable; urgency=medium\n\n  * NEWS.gz says what changed.\n\n -- the developers of weir <weir@example.invalid>  %s\n' \
  "$version" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
gzip -9nc CHANGELOG.md >"$doc/NEWS.gz"
gzip -9nc docs/weir.toml >"$doc/weir.toml.gz"
install -D -m 644 packaging/debian/lintian-overrides "$share/lintian/overrides/weir"
for script in postinst prerm postrm; do install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"; done
# The program's own links say on which libraries it depends.
mkdir -p "$root/debian"
touch "$root/debian/control"
depends="$(cd "$root" && dpkg-shlibdeps -O usr/bin/weir 2>/dev/null | sed -n 's/^shlibs:Depends=//p')"
rm -r "$root/debian"
size="$(du -sk --exclude=DEBIAN "$root" | cut -f 1)"
cat >"$root/DEBIAN/control" <<CONTROL
Package: weir
Version: $version
Architecture: $architecture
Maintainer: the developers of weir <weir@example.invalid>
Installed-Size: $size
Depends: $depends, adduser
Recommends: git, ca-certificates
Suggests: openssh-client, git-lfs, fuse3
Section: vcs
Priority: optional
Description: mirror of git repositories that keeps one tar file each
 weir keeps faithful, fresh copies of any number of git repositories, one
 ordinary tar file each, and serves clones and fetches of them to stock git,
 straight from the tar. It discovers repositories on forges, answers questions
 about commits and files over HTTP, and mines history as SQL and Parquet.
CONTROL
(cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
find "$root" -print0 | xargs -0 touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
package="$target/weir_${version}_$architecture.deb"
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
echo "made $package ($(du -h "$package" | cut -f 1))"
