"""Repositories with many files, for the benchmarks of workspaces."""

import random
import subprocess


def repository(path, count):
    """Makes a repository of `count` files of some kilobytes, one folder for each fifteen."""
    rng = random.Random(count)
    folders = [""]
    while len(folders) < count // 15:
        above = rng.choice(folders)
        if above.count("/") < 8:
            folders.append(f"{above}d{len(folders)}/")
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", path], check=True)
    command = ["git", "-C", path, "fast-import", "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as importer:
        out = importer.stdin
        out.write(b"commit refs/heads/main\ncommitter C <c@example.org> 1700000000 +0000\ndata 1\nx\n")
        for n in range(count):
            content = b"%d\n" % n * rng.randint(1, 300 if count < 100_000 else 3)
            name = folders[n % len(folders)] + f"file{n}.c"
            out.write(b"M 644 inline %s\ndata %d\n%s\n" % (name.encode(), len(content), content))
        # One file of a hundred differs.
        out.write(b"commit refs/heads/next\ncommitter C <c@example.org> 1700000001 +0000\ndata 1\nn\n")
        out.write(b"from refs/heads/main\n")
        for n in range(0, count, 100):
            name = folders[n % len(folders)] + f"file{n}.c"
            out.write(b"M 644 inline %s\ndata 5\nnext\n\n" % name.encode())
    if importer.returncode:
        raise SystemExit("git fast-import failed")
