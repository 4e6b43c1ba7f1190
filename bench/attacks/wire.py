"""Messages of attackers: pkt-lines, HTTP requests, and enough of HTTP/2 (RFC 9113) to ask and not to read."""

import gzip
import socket
import struct
import time

IP_BIND_ADDRESS_NO_PORT = 24
UPLOAD_PACK = "application/x-git-upload-pack-request"


def pkt(line):
    line = line.encode() if isinstance(line, str) else line
    return b"%04x" % (len(line) + 4) + line


def command(name, *arguments):
    """A command of protocol v2."""
    return (
        pkt(f"command={name}")
        + pkt("object-format=sha1")
        + b"0001"
        + b"".join(pkt(a) for a in arguments)
        + b"0000"
    )


def connect(source, port, window=None):
    """A connection from the address `source`; with `window`, one that holds few bytes that nobody reads."""
    s = socket.socket()
    if window:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    s.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    s.bind((source, 0))
    # The system's timeouts, not Python's: with those a look at what is there would wait, too.
    for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        s.setsockopt(socket.SOL_SOCKET, way, struct.pack("ll", 5, 0))
    s.connect(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def greeting(name, version):
    return pkt(f"git-upload-pack /{name}\0host=x\0" + (f"\0version={version}\0" if version else ""))


def talk(source, port, name, version, window=None):
    """A conversation over git://, past the advertisement."""
    s = connect(source, port, window)
    s.sendall(greeting(name, version))
    seen = b""
    while not seen.endswith(b"0000"):
        more = s.recv(1 << 16)
        if not more or b"ERR " in more:
            s.close()
            raise ConnectionError(more)
        seen += more
    return s


def is_open(s):
    """Whether the server has not hung up; without waiting, and without reading."""
    try:
        return bool(s.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


def read_some(s, n):
    """Up to n bytes of what is there; None once the server has hung up."""
    try:
        return s.recv(n, socket.MSG_DONTWAIT) or None
    except BlockingIOError:
        return b""
    except OSError:
        return None


def drain(s, until):
    """Reads an answer of v2 to its flush, as a client does; gives how much it was."""
    total, end = 0, b""
    s.settimeout(2)
    while end != b"0000" and time.monotonic() < until:
        try:
            more = s.recv(1 << 20)
        except TimeoutError:
            continue
        if not more:
            break
        total, end = total + len(more), (end + more)[-4:]
    return total


def post(path, body, kind=UPLOAD_PACK, headers=(), packed=False, length=None):
    body = gzip.compress(body, 6) if packed else body
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Git-Protocol: version=2",
        f"Content-Type: {kind}",
        f"Content-Length: {length or len(body)}",
        *headers,
    ]
    if packed:
        lines.append("Content-Encoding: gzip")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def number(n, bits, head=0):
    """A number as packs and deltas have it, `bits` of it in the first byte beside `head` (gitformat-pack)."""
    out, n = [head | n & (1 << bits) - 1], n >> bits
    while n:
        out[-1] |= 0x80
        out.append(n & 0x7F)
        n >>= 7
    return bytes(out)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def text(value):
    """A string of HPACK (RFC 7541, 5.2), as it is."""
    raw, n = value.encode(), len(value)
    if n < 127:
        return bytes((n,)) + raw
    head, n = b"\x7f", n - 127
    while n >= 128:
        head, n = head + bytes((n % 128 + 128,)), n // 128
    return head + bytes((n,)) + raw


class H2:
    """A connection of HTTP/2 on which requests are made, and nothing of an answer's body may be sent."""

    def __init__(self, source, port):
        self.socket, self.input, self.window, self.has_settings, self.streams = (
            connect(source, port),
            b"",
            65535,
            False,
            0,
        )
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)))

    def listen(self):
        """Heeds what the server has said; false once it has hung up."""
        while more := read_some(self.socket, 1 << 16):
            self.input += more
        while len(self.input) >= 9:
            length, kind, flags = int.from_bytes(self.input[:3], "big"), self.input[3], self.input[4]
            if len(self.input) < 9 + length:
                break
            stream, payload = int.from_bytes(self.input[5:9], "big"), self.input[9 : 9 + length]
            self.input = self.input[9 + length :]
            self.has_settings |= kind == 4
            if kind == 8 and stream == 0:
                self.window += int.from_bytes(payload, "big")
            elif kind == 6 and not flags & 1:
                self.socket.sendall(frame(6, 1, 0, payload))
            elif kind == 7:
                return False
        return more is not None

    def ask(self, path, body, kind=UPLOAD_PACK, headers=(), is_whole=True):
        """Makes a request, as soon as the server lets its body come."""
        stream, self.streams = 2 * self.streams + 1, self.streams + 1
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "x"),
            (":path", path),
            ("git-protocol", "version=2"),
            ("content-type", kind),
        ]
        self.socket.sendall(
            frame(
                1,
                4,
                stream,
                b"".join(b"\x00" + text(name) + text(value) for name, value in [*fields, *headers]),
            )
        )
        for at in range(0, len(body), 16384):
            piece, until = body[at : at + 16384], time.monotonic() + 5
            while not self.has_settings or self.window < len(piece):
                if not self.listen() or time.monotonic() > until:
                    raise ConnectionError("the body may not come")
                time.sleep(0.002)
            self.window -= len(piece)
            self.socket.sendall(frame(0, 1 if is_whole and at + 16384 >= len(body) else 0, stream, piece))
