"""pygit2|dulwich FOLDER: prints which files of a working tree differ, a line each, ascending."""

import sys

library, folder = sys.argv[1:]
if library == "pygit2":
    import pygit2

    for path, flags in sorted(pygit2.Repository(folder).status().items()):
        print(flags, path)
else:
    from dulwich import porcelain

    status = porcelain.status(folder)
    staged = ((kind, path.decode()) for kind, paths in status.staged.items() for path in paths)
    unstaged = (("unstaged", path.decode()) for path in status.unstaged)
    untracked = (("untracked", path) for path in status.untracked)
    for kind, path in sorted([*staged, *unstaged, *untracked]):
        print(kind, path)
