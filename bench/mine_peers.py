#!/usr/bin/env python3
"""Mines commits as others do: mine_peers.py pydriller|libgit2 REPOSITORY

Standard input has the ids of commits. Of each, the peer reads the changed files and their numbers of lines:
PyDriller as it does by itself, libgit2 as DevMine's repotool did, by a diff with the first parent and its
statistics.
"""

import sys


def pydriller(folder, ids):
    from pydriller import Git

    git = Git(folder)
    for oid in ids:
        commit = git.get_commit(oid)
        yield sum(file.added_lines + file.deleted_lines for file in commit.modified_files)


def libgit2(folder, ids):
    import pygit2

    repo = pygit2.Repository(folder)
    for oid in ids:
        commit = repo[oid]
        tree = commit.tree
        diff = commit.parents[0].tree.diff_to_tree(tree) if commit.parents else tree.diff_to_tree(swap=True)
        yield diff.stats.insertions + diff.stats.deletions


if __name__ == "__main__":
    peer = {"pydriller": pydriller, "libgit2": libgit2}[sys.argv[1]]
    print(sum(peer(sys.argv[2], sys.stdin.read().split())))
