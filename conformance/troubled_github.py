"""A GitHub on loopback whose repositories change, with troubles that can be switched on.

It speaks REST and GraphQL as an Enterprise Server does.
"""

import copy
import hashlib
import http.server
import json
import random
import threading
import time
import urllib.parse

COUNT, OWNERS, SPACING, FIRST = 2000, 10, 3, 10
CLONES = "https://h/"
STARS_MIN = 10
# A page that holds an id of POISON is answered badly, and a question for the details of an id of UNTOLD.
# Pages span three hundred ids, and weir jumps behind bad ones.
POISON = {
    FIRST + SPACING * 60: "HTML",
    FIRST + SPACING * 400: "HTML",
    FIRST + SPACING * 900: "400",
    FIRST + SPACING * 1300: "406",
}
UNTOLD = {FIRST + SPACING * 750: "502", FIRST + SPACING * 1700: "error"}
NEAR = 320
# What one token has used up is whole again after so long.
SPENT_SECONDS = 3
# What goes wrong with these owners; with the others everything may happen.
BAD_OWNERS = {"o3": "403", "o4": "HTML", "o5": "400", "o6": "406"}


def is_near_poison(number):
    return any(abs(number - bad) <= NEAR for bad in POISON)


class World:
    """What repositories there are, by id. Two with the same seed change in the same way."""

    def __init__(self):
        self.random, self.vanished = random.Random(11), []
        self.all = {}
        for n in range(COUNT):
            self.add(f"o{n % OWNERS}", f"r{n}")
        # Names that look like those which weir gives to what must leave its own.
        for n, name in (
            (610, "clash"),
            (611, f"clash~{self.at(610)}"),
            (1500, "far"),
            (1501, f"far~{self.at(1500)}"),
        ):
            self.all[self.at(n)].update(owner="o0", name=name, stars=STARS_MIN)
        for n in (605, 620):
            self.all[self.at(n)]["stars"] = STARS_MIN

    @staticmethod
    def at(n):
        return FIRST + SPACING * n

    def add(self, owner, name):
        number = max(self.all, default=FIRST - SPACING) + SPACING
        self.all[number] = {
            "id": number,
            "owner": owner,
            "name": name,
            "pushed": "2024-01-01T00:00:00Z",
            "stars": number // SPACING % 100,
        }
        return number

    def change(self, step, hidden):
        """Renames, transfers, swaps, pushes to, deletes and makes some repositories.

        Repositories that troubles have `hidden` are not transferred, swapped or deleted."""
        special = {self.at(n) for n in (605, 610, 611, 620, 1500, 1501)}
        if step == 1:
            # Whoever takes a name stands before who had it, on its page and on another.
            (
                self.all[self.at(605)].update(owner="o0", name="clash"),
                self.all[self.at(610)].update(name="moved"),
            )
            self.all[self.at(620)].update(owner="o0", name="far"), self.vanish(self.at(1500))
            foreign = self.add("o1", "foreign")
            self.add("o1", f"foreign~{foreign}")
            self.all[foreign]["stars"] = self.all[foreign + SPACING]["stars"] = STARS_MIN
        plain = sorted(i for i in self.all if i < self.at(COUNT) and i not in special)
        safe = [i for i in plain if i not in hidden]
        taken = set()

        def some(of, count):
            found = self.random.sample([i for i in of if i not in taken], count)
            taken.update(found)
            return found

        for i in some(plain, 40):
            self.all[i]["name"] = f"renamed{step}-{i}"
        for i in some(safe, 25):
            self.all[i]["owner"] = f"o{self.random.randrange(OWNERS)}"
        pairs = some(safe, 30)
        for a, b in zip(pairs[::2], pairs[1::2]):
            a, b = self.all[a], self.all[b]
            a["owner"], a["name"], b["owner"], b["name"] = b["owner"], b["name"], a["owner"], a["name"]
        for i in some(plain, 40):
            self.all[i]["pushed"] = f"2024-0{step + 1}-01T00:00:00Z"
        freed = []
        for i in some(safe, 40):
            freed.append((self.all[i]["owner"], self.all[i]["name"]))
            self.vanish(i)
        for owner, name in freed[:10]:
            self.add(owner, name)
        for n in range(20):
            self.add(f"o{n % OWNERS}", f"new{step}-{n}")

    def vanish(self, number):
        self.vanished.append(self.all.pop(number))

    def live(self, owners=None):
        """The URLs of what is to be mirrored now."""
        return {
            url_of(r): f"{r['owner']}/{r['name']}"
            for r in self.all.values()
            if (r["owner"] in owners if owners else r["stars"] >= STARS_MIN)
        }


class GitHub(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 100

    def __init__(self, world=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.world = world or World()
        self.troubles, self.asked, self.questions, self.delay, self.lock = set(), [], 0, 0, threading.Lock()
        self.spent_until = None
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def count(self, part):
        return sum(part in path for _, path in self.asked)

    def answer(self, token, path, parameters, body):
        """Status, headers and body."""
        ok = lambda value, **more: (200, more, value)
        missing = (404, {}, {"message": "Not Found"})
        bad = {
            "403": (
                403,
                {},
                {
                    "message": "Resource protected by organization SAML enforcement. "
                    "You must grant your token access."
                },
            ),
            "HTML": (
                200,
                {"Content-Type": "text/html"},
                "<!DOCTYPE html><title>We will be back soon</title>",
            ),
            "400": (400, {}, {"message": "Problems parsing the question"}),
            "406": (406, {}, {"message": "Must accept something else"}),
            "502": (502, {"Content-Type": "text/html"}, "<html><h1>502 Bad Gateway</h1></html>"),
        }
        on = self.troubles
        if "down" in on:
            return bad["502"]
        if "tokens" in on or ("token" in on and token == "flaky"):
            return 401, {}, {"message": "Bad credentials"}
        limited = (403, {"Retry-After": "1"}, {"message": "You have exceeded a secondary rate limit"})
        if (
            "limit" in on
            and "page=" in urllib.parse.urlencode(parameters, True)
            and len(self.asked) % 30 == 29
        ):
            return limited
        number = lambda name, default: int(parameters.get(name, [default])[0])
        if path == "/api/graphql":
            return self.details(json.loads(body)["variables"]["ids"], bad["502"])
        path = path.removeprefix("/api/v3")
        if path == "/repositories":
            since = number("since", 0)
            page = sorted(i for i in self.world.all if i > since)[:100]
            kind = next((kind for i, kind in POISON.items() if i in page), None)
            if "pages" in on and kind:
                return bad[kind]
            if "slow" in on and since < FIRST + SPACING * 700 in page:
                time.sleep(1.2)
            if "hang" in on and since == 0:
                time.sleep(100)
            more = (
                {"Link": f'<{self.url}{path}?per_page=100&since={page[-1]}>; rel="next"'}
                if len(page) == 100
                else {}
            )
            return ok([self.item(i) for i in page], **more)
        parts = path.strip("/").split("/")
        if parts[0] == "repositories":
            if "unseen" in on:
                return bad["502"]
            if "spent" in on and token == "flaky":
                self.spent_until = self.spent_until or time.time() + SPENT_SECONDS
                if time.time() < self.spent_until:
                    return limited
            found = self.world.all.get(int(parts[1]))
            return ok(self.whole(found["id"])) if found else missing
        if parts[0] == "users" and parts[-1] == "repos":
            of = sorted(i for i, r in self.world.all.items() if r["owner"] == parts[1])
            at = number("page", 1)
            kind = BAD_OWNERS.get(parts[1])
            if "owners" in on and kind and at == (2 if kind == "HTML" else 1):
                return bad[kind]
            more = {"Link": f'<{self.url}{path}?page={at + 1}>; rel="next"'} if len(of) > at * 100 else {}
            return ok([self.whole(i) for i in of[at * 100 - 100 : at * 100]], **more) if of else missing
        return missing

    def details(self, ids, gateway):
        self.questions += 1
        numbers = [int(i.removeprefix("node")) for i in ids]
        if "graphql" in self.troubles:
            # Some batches are too much for it however often they are asked for; others fail now and then.
            kind = next((UNTOLD[i] for i in numbers if i in UNTOLD), None)
            if kind == "502" or self.questions % 4 == 0:
                return gateway
            if kind:
                return (
                    200,
                    {},
                    {
                        "data": None,
                        "errors": [{"message": "Something went wrong while executing your query."}],
                    },
                )
        nodes = []
        for i in numbers:
            r = self.world.all.get(i)
            nodes.append(
                r
                and {
                    "databaseId": i,
                    "nameWithOwner": f"{r['owner']}/{r['name']}",
                    "url": f"{CLONES}{r['owner']}/{r['name']}",
                    "isFork": False,
                    "stargazerCount": r["stars"],
                    "pushedAt": r["pushed"],
                    "primaryLanguage": {"name": "C"},
                    "isEmpty": False,
                    "languages": {"edges": []},
                    "owner": {
                        "__typename": "User",
                        "login": r["owner"],
                        "databaseId": int(r["owner"][1:]) + 1,
                    },
                }
            )
        return 200, {}, {"data": {"nodes": nodes}}

    def item(self, number):
        r = self.world.all[number]
        return {
            "id": number,
            "node_id": f"node{number}",
            "full_name": f"{r['owner']}/{r['name']}",
            "private": False,
            "fork": False,
            "html_url": f"{CLONES}{r['owner']}/{r['name']}",
            "owner": {"id": int(r["owner"][1:]) + 1, "login": r["owner"], "type": "User"},
        }

    def whole(self, number):
        r = self.world.all[number]
        return {
            **self.item(number),
            "clone_url": url_of(r),
            "pushed_at": r["pushed"],
            "stargazers_count": r["stars"],
        }


class Handler(http.server.BaseHTTPRequestHandler):
    # Head and body go together.
    protocol_version, wbufsize = "HTTP/1.1", 1 << 16

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        token = self.headers.get("Authorization", "").split(" ")[-1]
        with self.server.lock:
            self.server.asked.append((token, self.path))
        time.sleep(self.server.delay)
        status, headers, value = self.server.answer(token, path, urllib.parse.parse_qs(query), body)
        text = (value if isinstance(value, str) else json.dumps(value)).encode()
        if status == 200 and path.endswith("/repos") and "Content-Type" not in headers:
            headers["ETag"] = f'"{hashlib.sha1(text).hexdigest()}"'
            if self.headers.get("If-None-Match") == headers["ETag"]:
                status, text = 304, b""
        try:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            self.close_connection = True

    do_POST = do_GET


def url_of(r):
    return f"{CLONES}{r['owner']}/{r['name']}.git"


def twins():
    """The same GitHub twice: one to be troubled, one to be left in peace."""
    world = World()
    return GitHub(world), GitHub(copy.deepcopy(world))
