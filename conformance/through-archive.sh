#!/bin/sh
# git-upload-pack, but what it serves is an archive that weir has just mirrored from the directory it is asked for, shown as
# the directory's configuration says: WEIR through-archive.sh [OPTIONS] DIRECTORY. What cannot be mirrored is served as it is.
for directory; do :; done
real=
for candidate in "$directory/.git" "$directory" "$directory.git/.git" "$directory.git"; do
    if [ -f "$candidate" ]; then # a .git file of a submodule or a worktree
        named=$(sed -n 's/^gitdir: //p' "$candidate")
        case $named in /*) candidate=$named ;; *) candidate=$(dirname "$candidate")/$named ;; esac
    fi
    [ -d "$candidate/objects" ] && { real=$candidate; break; }
done
[ -n "$real" ] || exec "$WEIR" upload-pack "$@"
pool=$(mktemp -d "${TMPDIR:-/tmp}/through-archive.XXXXXX")
trap 'rm -rf "$pool"' EXIT
alone() {
    env -i HOME="$pool" PATH="$PATH" "$WEIR" -q --pool "$pool" "$@" </dev/null >>"$pool/log" 2>&1
}
upstream=$(cd "$real" && pwd)
if grep -qi hiderefs "$real/config" 2>/dev/null; then # an upstream shows no refs that it hides, and the archive is to hide them
    upstream=$pool/upstream.git
    mkdir "$upstream"
    for part in "$(cd "$real" && pwd)"/*; do
        case ${part##*/} in HEAD | config) ;; *) ln -s "$part" "$upstream/" ;; esac
    done
    cp "$real/HEAD" "$upstream/HEAD"
    sed /hiderefs/Id "$real/config" >"$upstream/config"
fi
alone init "$pool" && alone add --name it "$upstream" && alone mirror
archive=$(find "$pool" -name '*.tar' | head -n 1)
if [ -z "$archive" ]; then
    tail -n 1 "$pool/log" >>"$THROUGH_ARCHIVE_COUNT.not"
    "$WEIR" upload-pack "$@"
    exit
fi
echo "$0" >>"$THROUGH_ARCHIVE_COUNT"
count=$#
for argument; do
    count=$((count - 1))
    shift
    [ "$count" = 0 ] || set -- "$@" "$argument"
done
[ -f "$real/config" ] && set -- --git-config="$real/config" "$@"
"$WEIR" upload-pack "$@" "$archive"
