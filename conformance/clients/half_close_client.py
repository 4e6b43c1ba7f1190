"""clone|shallow|fetch URL FOLDER, by a client that closes its half of the connection after each request.

This says that nothing more will come, as TCP allows and dulwich does. Prints the id of the remote's main
branch.
"""

import os
import socket
import subprocess
import sys
from urllib.parse import urlsplit


def line(text):
    return b"%04x" % (len(text) + 4) + text


def lines(data):
    """The packet lines of an answer; flush and delimiter packets are None."""
    while data:
        length = int(data[:4], 16)
        yield data[4:length] if length > 4 else None
        data = data[max(length, 4) :]


def ask(url, request):
    url = urlsplit(url)
    host = url.netloc.encode()
    if url.scheme == "git":
        before = line(b"git-upload-pack %s\0host=%s\0\0version=2\0" % (url.path.encode(), host))
    else:
        # HTTP/1.0 is not chunked, and ends with the connection.
        head = (b"POST %s/git-upload-pack HTTP/1.0" % url.path.encode(), b"Host: " + host,
                b"Git-Protocol: version=2", b"Content-Type: application/x-git-upload-pack-request",
                b"Content-Length: %d" % len(request), b"", b"")  # fmt: skip
        before = b"\r\n".join(head)
    with socket.create_connection((url.hostname, url.port), 60) as s:
        s.sendall(before + request)
        s.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: s.recv(65536), b""))
    if url.scheme == "git":
        # What the server can do comes first, and ends with a flush packet.
        answer = answer[sum(len(part) + 4 for part in iter(lambda i=lines(answer): next(i), None)) + 4 :]
    else:
        head, _, answer = answer.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            sys.exit(f"HTTP: {head.split(chr(13).encode())[0]}")
    if not answer:
        sys.exit("nothing was answered")
    return list(lines(answer))


def main():
    what, url, target = sys.argv[1:]
    refs = ask(url, line(b"command=ls-refs\n") + b"0001" + line(b"ref-prefix refs/heads/main\n") + b"0000")
    main = next(ref.split()[0] for ref in refs if ref and ref.split()[1] == b"refs/heads/main")
    options = [b"ofs-delta\n", b"want %s\n" % main]
    if what == "shallow":
        options.append(b"deepen 1\n")
    if what == "fetch":
        known = subprocess.run(
            ["git", "-C", target, "rev-list", "--max-count=32", "--all"], check=True, stdout=subprocess.PIPE
        ).stdout
        options.extend(b"have %s\n" % commit for commit in known.split())
    else:
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", target], check=True)
    answer = ask(
        url, line(b"command=fetch\n") + b"0001" + b"".join(map(line, options + [b"done\n"])) + b"0000"
    )
    cut = [part.split()[1] for part in answer if part and part.startswith(b"shallow ")]
    if cut:
        with open(os.path.join(target, "shallow"), "wb") as f:
            f.writelines(commit + b"\n" for commit in cut)
    begin = answer.index(b"packfile\n") if b"packfile\n" in answer else sys.exit("no pack was sent")
    pack = b"".join(part[1:] for part in answer[begin + 1 :] if part and part[:1] == b"\1")
    subprocess.run(
        ["git", "-C", target, "index-pack", "--stdin", "--fix-thin"],
        input=pack,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run(["git", "-C", target, "update-ref", "refs/heads/main", main], check=True)
    print(main.decode())


main()
