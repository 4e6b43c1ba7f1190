"""clone|shallow|fetch URL FOLDER, by libgit2. Prints the id of the remote's main branch."""

import sys

import pygit2

what, url, target = sys.argv[1:]
if what == "fetch":
    repo = pygit2.Repository(target)
    repo.remotes["origin"].fetch(["+refs/heads/*:refs/remotes/origin/*"])
    print(repo.references["refs/remotes/origin/main"].target)
else:
    repo = pygit2.clone_repository(url, target, bare=True, depth=1 if what == "shallow" else 0)
    print(repo.head.target)
