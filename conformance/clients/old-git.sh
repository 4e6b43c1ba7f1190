# Clones, shallow clones and fetches by a git of long ago: old-git.sh FOLDER clone|shallow|fetch URL DIRECTORY.
set -e
PATH=$1:$PATH GIT_EXEC_PATH=$1
export PATH GIT_EXEC_PATH
case $2 in
clone) git-clone -n "$3" "$4" ;;
shallow) git-clone -n --depth 1 "$3" "$4" ;;
fetch)
    cd "$4"
    # git 1.0.0 keeps its remote here.
    if [ -f .git/remotes/origin ]; then sed -i "s|^URL:.*|URL: $3|" .git/remotes/origin; fi
    git-fetch
    ;;
esac >&2
# Branches went below refs/remotes later on.
cat "$4/.git/refs/remotes/origin/main" 2>/dev/null || cat "$4/.git/refs/heads/origin"
