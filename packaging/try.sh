#!/usr/bin/env bash
# Tries the Debian package in a bare Debian (debootstrap, minbase), without systemd: installs it, mirrors and serves as its
# user, upgrades it while clients clone, removes and purges it. lintian looks at it first.
#   packaging/try.sh [RELEASE]    bookworm; needs root. Works below target/packaging.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "error: only root can make a bare Debian in a folder; run:  sudo make deb-try" >&2; exit 1; }
release="${1:-bookworm}"
unset "${!GIT_@}"
work="$PWD/target/packaging"
root="$work/$release"
mkdir -p "$work"
bash packaging/deb.sh
version="$(target/release/weir -V | cut -d ' ' -f 2)"
bash packaging/deb.sh "$version+2"
lintian --fail-on error,warning target/weir_"$version"_*.deb 2>&1 | grep -v "root privileges" || [ "${PIPESTATUS[0]}" = 0 ]
echo "lintian has nothing to say"
. setup/bare-debian.sh
bare_debian "$release" "$work"
cp target/weir_"$version"_*.deb "$root/old.deb"
cp target/weir_"$version+2"_*.deb "$root/new.deb"
cat >"$root/try" <<'INSIDE'
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
apt-get install -qq --no-install-recommends git ca-certificates >/dev/null 2>&1
apt-get install -qq --no-install-recommends /old.deb >/dev/null 2>&1
dpkg -s weir | grep -E '^(Status|Version)'
as() { runuser -u weir -- env HOME=/var/lib/weir WEIR_POOL=/var/lib/weir "$@"; }
git init -q --bare -b main /srv/up.git
tree=$(git -C /srv/up.git mktree </dev/null)
commit=$(git -C /srv/up.git -c user.name=a -c user.email=a@b commit-tree -m one "$tree")
git -C /srv/up.git update-ref refs/heads/main "$commit"
git config --system --add safe.directory '*'
as weir -q add --name up /srv/up.git
as weir -q mirror
as weir serve >/var/log/weir/out 2>&1 &
until git ls-remote -q git://127.0.0.1/up >/dev/null 2>&1; do sleep 0.1; done
weirs() {
  local p
  for p in /proc/[0-9]*; do
    if [ "$(cat "$p/comm" 2>/dev/null)" = weir ]; then echo "${p#/proc/}"; fi
  done | sort -n
}
main=$(weirs | head -n 1)
# Clients clone without a pause while the package is upgraded, and the server reloaded as its unit does.
(n=0; failed=0
 while [ ! -e /stop ]; do
   n=$((n + 1)); git clone -q --bare git://127.0.0.1/up /tmp/clone 2>>/tmp/why || failed=$((failed + 1)); rm -rf /tmp/clone
 done
 echo "$n clones, $failed failed" >/tmp/counted) &
clones=$!
sleep 2
apt-get install -qq --no-install-recommends /new.deb >/dev/null 2>&1
kill -HUP "$main"
sleep 4
touch /stop
wait $clones
dpkg -s weir | grep ^Version
cat /tmp/counted
[ ! -s /tmp/why ] || { cat /tmp/why; exit 1; }
kill $(weirs)
while [ -n "$(weirs)" ]; do sleep 0.1; done
apt-get purge -qq weir 2>&1 | grep "^weir:" || true
ls -d /var/lib/weir/store/up.tar /var/lib/weir/weir.toml
! ls -d /usr/bin/weir /var/log/weir /usr/lib/systemd/system/weir.service 2>/dev/null
INSIDE
unshare --mount --pid --fork --kill-child bash -eu -s "$root" <<'NAMESPACE'
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb bash /try </dev/null
NAMESPACE
echo "installed, served, upgraded under load, and purged in a bare $release"
