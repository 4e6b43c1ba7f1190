#!/usr/bin/env bash
# Tries `make run` and `make test` as the README says, in bare Debians (debootstrap, minbase): as root, then as an ordinary user
# without sudo. Packages and crates are fetched first; then there is no network. Tells what was left running or lying about.
#   setup/fresh.sh RELEASE...   bookworm, trixie; needs root. Works below target/fresh; each user has one build there for all.
#   FRESH_TESTS=ARGUMENTS       what make test runs, for a shorter try: `cargo test ARGUMENTS`
# The commit that is checked out is tried, without changes that are not committed.
set -euo pipefail
cd "$(dirname "$0")/.."
work="$PWD/target/fresh"
[ "$(id -u)" = 0 ] || { echo "error: only root can make a bare Debian in a folder; run:  sudo make fresh" >&2; exit 1; }
unset "${!GIT_@}"
mkdir -p "$work/target" "$work/crates"
. setup/bare-debian.sh
rust="$(rustc --print sysroot)"
CARGO_HOME="$work/crates" cargo fetch --locked --quiet

# Runs a script as a user in the bare system, in processes of its own. With "offline", loopback is the only network.
inside() { # online|offline USER SCRIPT
  local network=()
  [ "$1" = online ] || network=(--net)
  unshare --mount --pid --fork --kill-child "${network[@]}" bash -eu -s "$root" "$work" "$rust" "$@" <<'NAMESPACE'
root=$1 work=$2 rust=$3 how=$4 user=$5 script=$6
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$work/target" "$root/cache"
mount --bind "$rust" "$root/opt/rust"
[ "$how" = online ] || ip link set lo up
home=/root path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin as=()
if [ "$user" != root ]; then
  home=/home/$user path=/usr/local/bin:/usr/bin:/bin as=(--userspec "$user:$user")
fi
exec chroot "${as[@]}" "$root" env -i HOME="$home" PATH="/opt/rust/bin:$path" USER="$user" TERM=dumb CARGO_NET_OFFLINE=true \
  CARGO_TARGET_DIR="/cache/$user" FRESH_TESTS="${FRESH_TESTS:-}" bash -euo pipefail -c "cd /src/weir; $script" </dev/null
NAMESPACE
}

# What runs, what /tmp holds, and what was written outside checkout, build, cargo's folder, cache and temporary folders.
left='
  here=$BASHPID
  for process in /proc/[0-9]*; do
    id=${process#/proc/}
    [ "$id" = 1 ] || [ "$id" = "$here" ] || [ "$id" = $$ ] || ! line=$(tr "\0" " " <"$process/cmdline" 2>/dev/null) || [ -z "$line" ] ||
      echo "LEFT RUNNING: $line"
  done
  ls -A /tmp /var/tmp | sed -n "/^[^/]/s/^/LEFT IN TMP: /p"
  # Where a user may not look, find fails.
  { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /src -o -path /cache -o -path /tmp -o -path /var/tmp \
    -o -path "$HOME/.cargo" -o -path "$HOME/.cache" -o -path /stamp \) -prune -o -newer /stamp ! -type d -print 2>/dev/null || :; } |
    sed "s/^/WRITTEN: /"
'

run='
  set -m
  make run >/tmp/run.log 2>&1 & pid=$!
  until grep -q "^Serving" /tmp/run.log; do kill -0 $pid 2>/dev/null || { cat /tmp/run.log; exit 1; }; sleep 0.2; done
  until git ls-remote -q git://127.0.0.1/sample/generated >/dev/null 2>&1; do kill -0 $pid; sleep 0.2; done
  git clone -q git://127.0.0.1/sample/generated /tmp/clone
  git ls-remote git://127.0.0.1/sample/weir HEAD
  kill -INT -- -$pid
  wait $pid || true
  sed -n "/^Serving/,\$p" /tmp/run.log
  make -s install DESTDIR=/tmp/installed
  /tmp/installed/usr/local/bin/weir --version
  rm -rf /tmp/clone /tmp/run.log /tmp/installed
'
test='
  if [ -n "$FRESH_TESTS" ]; then bash setup/need.sh rust run test; bash setup/count-skips.sh cargo test $FRESH_TESTS; else make test; fi >/tmp/test.log 2>&1 ||
    { tail -n 60 /tmp/test.log; exit 1; }
  grep -E "^test result|skipped" /tmp/test.log | sort | uniq -c | sort -rn | head -n 30
  rm -f /tmp/test.log
'
# What a developer has around: a repository of a hook, proxies, a long folder for temporary files.
around='
  git init -q /tmp/other; git -C /tmp/other -c user.name=a -c user.email=a@b commit -q --allow-empty -m one
  before=$(cd /tmp/other && find . -type f | sort | xargs sha1sum)
  export GIT_DIR=/tmp/other/.git GIT_WORK_TREE=/tmp/other GIT_INDEX_FILE=/tmp/other/.git/index
  export http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 ALL_PROXY=http://127.0.0.1:9
  export TMPDIR=/tmp/$(printf %090d 0); mkdir $TMPDIR
'
after='
  unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
  [ "$before" = "$(cd /tmp/other && find . -type f | sort | xargs sha1sum)" ] || { echo "THE OTHER REPOSITORY WAS CHANGED"; exit 1; }
  rmdir $TMPDIR; rm -rf /tmp/other; unset TMPDIR
'
packages_kib() { chroot "$root" dpkg-query -W -f '${Installed-Size}\n' | awk '{ sum += $1 } END { print sum }'; }

for release in "$@"; do
  root="$work/$release"
  echo "== $release: a bare system"
  bare_debian "$release" "$work"
  mkdir -p "$root/src" "$root/cache" "$root/opt/rust" "$root/root/.cargo"
  mkdir "$root/root/.cargo/registry"
  cp -r "$work/crates/registry/index" "$work/crates/registry/cache" "$root/root/.cargo/registry/"
  git clone -q --no-local . "$root/src/weir"

  echo "== $release: what the README asks for (git, make, a C compiler)"
  inside online root 'apt-get update -q >/dev/null; DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends git make gcc libc6-dev >/dev/null 2>&1'
  before=$(packages_kib)
  echo "== $release: who cannot install is told, in a line, what is missing"
  inside offline root 'useradd -m -s /bin/bash tester; chown -R tester: /src/weir'
  for said in 'bash setup/need.sh rust run' 'make -s test' 'CARGO=none bash setup/need.sh rust'; do
    inside offline tester "! $said"
  done
  inside offline root 'chown -R root: /src/weir'
  inside online root 'bash setup/need.sh rust run'
  echo "packages of make run beside compiler, git and make: $((($(packages_kib) - before) / 1024)) MiB"
  echo "== $release: make run, as root"
  inside offline root "sync; touch /stamp; $run $left"
  inside online root 'bash setup/need.sh rust run test'
  echo "== $release: make test, as root, in the environment of a hook, behind proxies, with a TMPDIR of 95 characters"
  inside offline root "$around sync; touch /stamp; $test $after $left"

  inside offline root 'cp -r "$HOME/.cargo" ~tester/; mkdir -p /cache/tester
    chown -R tester: ~tester /src/weir /cache/tester; touch /stamp'
  echo "== $release: make run, as an ordinary user"
  inside offline tester "$run $left"
  echo "== $release: make test, as an ordinary user"
  inside offline tester "$test $left"
  chown -R root: "$work/target"
  rm -rf "$root"
done
echo "Both commands end well in: $*"
