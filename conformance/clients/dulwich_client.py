"""clone|shallow|fetch URL FOLDER, by dulwich. Prints the id of the remote's main branch."""

import sys

from dulwich import porcelain
from dulwich.repo import Repo

what, url, target = sys.argv[1:]
with open("/dev/null", "wb") as nowhere:
    if what == "fetch":
        result = porcelain.fetch(target, url, errstream=nowhere)
        print(result.refs[b"refs/heads/main"].decode())
    else:
        repo = porcelain.clone(
            url, target, bare=True, depth=1 if what == "shallow" else None, errstream=nowhere
        )
        print(Repo(target).refs[b"refs/heads/main"].decode())
