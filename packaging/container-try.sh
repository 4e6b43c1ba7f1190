#!/usr/bin/env bash
# Builds the image of packaging/Containerfile without a registry: a bare Debian (debootstrap, minbase) stands for its base.
# Starts it, and clones from it.
#   packaging/container-try.sh    needs root; works below target/container
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "error: only root can make a bare Debian in a folder; run:  sudo make container-try" >&2; exit 1; }
unset "${!GIT_@}"
work="$PWD/target/container"
mkdir -p "$work/context"
. setup/bare-debian.sh
bare_debian bookworm "$work"
# One folder, no daemon, no further privileges.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$work/images" --runroot "$work/run" "$@"; }
base="$(buildah from scratch)"
(cd "$work/bookworm" && tar c .) >"$work/base.tar"
buildah add -q "$base" "$work/base.tar" / >/dev/null
buildah commit -q --rm "$base" docker.io/library/debian:bookworm-slim >/dev/null
rm -rf "$work"/context/* "$work/base.tar"
cp target/weir_"$(target/release/weir -V | cut -d ' ' -f 2)"_*.deb "$work/context/"
buildah build --pull=never --layers=false -q -t weir -f packaging/Containerfile "$work/context" >/dev/null
container="$(buildah from --pull=never weir)"
server=
end() {
  [ -z "$server" ] || { kill -- "-$server" 2>/dev/null && wait "$server" || true; }
  buildah rm "$container" >/dev/null
}
trap end EXIT
command="$(buildah inspect --format '{{index .OCIv1.Config.Cmd 2}}' "$container")"
# Ports of this machine, because nothing stands between.
command="${command/0.0.0.0:9418/127.0.0.1:29518} --no-mirror"
command="${command/0.0.0.0:8080/127.0.0.1:29580}"
# In a session of its own, so that all of it can be ended.
setsid buildah --root "$work/images" --runroot "$work/run" run "$container" -- sh -c "$command" >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do ! curl -sf http://127.0.0.1:29580/readyz >/dev/null || break; sleep 0.1; done
git init -q --bare -b main "$work/context/up.git"
tree="$(git -C "$work/context/up.git" mktree </dev/null)"
commit="$(git -C "$work/context/up.git" -c user.name=a -c user.email=a@b commit-tree -m one "$tree")"
git -C "$work/context/up.git" update-ref refs/heads/main "$commit"
git -C "$work/context/up.git" bundle create -q "$work/context/up.bundle" HEAD main
buildah copy -q "$container" "$work/context/up.bundle" /srv/up.bundle >/dev/null
buildah run "$container" -- sh -c 'id -un; weir -q add --name up /srv/up.bundle && weir -q mirror up'
rm -rf "$work/clone"
git clone -q git://127.0.0.1:29518/up "$work/clone"
git -C "$work/clone" log --format='cloned from the container: %s'
