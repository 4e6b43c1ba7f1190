"""Part 2 of troubles.py: a GitHub of 2,000 repositories with many troubles, crawled beside a calm twin."""

import os
import re
import signal
import threading
import time

from harness import Pool, end, wait_for
from troubled_github import BAD_OWNERS, CLONES, GitHub, POISON, STARS_MIN, is_near_poison, twins, url_of

ALL_OWNERS = [f"o{n}" for n in range(10)]
TRIES = 2
# In turn, before a forge is taken to be down.
IN_TURN = 5
USUAL = {"owners", "pages", "graphql", "slow"}
# Ids that a page spans, and those that may be passed over behind a bad one.
GAP_MAX = 300 + 400


def forges(url, owners, more=""):
    """Two forges at one address: everything with a filter, and what some owners have."""
    common = (
        f'type = "github"\nurl = "{url}"\n'
        'tokens = ["flaky", "steady"]\n'
        f'clone_from = ["{CLONES}"]\ntries = {TRIES}\nretry = "0s"\n{more}'
    )
    names = ", ".join(f'"{owner}"' for owner in owners)
    return (
        f'[[forge]]\nname = "all"\n{common}stars_min = {STARS_MIN}\n'
        f'[[forge]]\nname = "own"\n{common}owners = [{names}]\n'
    )


class Twin:
    """A pool, and the GitHub that it crawls."""

    def __init__(self, github, folder, catalog):
        self.github, self.pool = github, Pool(folder, catalog)
        # Somebody's own, in the way of what the forge will call so.
        self.pool("add", "--name", "all/o1/foreign", "https://elsewhere.example/foreign.git")

    def configure(self, owners=ALL_OWNERS, more=""):
        self.pool.configure(forges(self.github.url, owners, more))

    def crawl(self, *troubles, log=None):
        self.github.troubles = set(troubles)
        self.github.asked.clear()
        said = self.pool("--json", "crawl")
        if log is not None:
            said.log(log)
        return said

    def names(self, forge=None):
        return {
            r["name"]: r["url"]
            for r in self.pool("--json", "ls").json()
            if forge is None or r["name"].startswith(f"{forge}/")
        }

    def unfinished(self):
        """Forges whose listing has not come to its end."""
        return {
            f["listing"]["forge"]
            for f in self.pool("--json", "status").json()["forges"]
            if f["listing"]["finished_at"] is None
        }

    def hidden(self, owners=ALL_OWNERS):
        """What is there and not known here, because of the troubles."""
        known = self.names()
        return {
            r["id"]
            for r in self.github.world.all.values()
            if (r["stars"] >= STARS_MIN and known.get(f"all/{r['owner']}/{r['name']}") != url_of(r))
            or r["owner"] not in owners
            or known.get(f"own/{r['owner']}/{r['name']}") != url_of(r)
        }

    def forges(self):
        return {
            f["listing"]["forge"]: (f["known"], f["gone"])
            for f in self.pool("--json", "status").json()["forges"]
        }


def of(said, forge):
    return next((line for line in said.lines() if line.get("forge") == forge), {})


def first(checks, troubled, calm):
    """A crawl with nearly all troubles at once."""
    said = troubled.crawl(*USUAL, "limit", "token", log=40)
    calm.crawl()
    everything, own = of(said, "all"), of(said, "own")
    checks.check(
        "a crawl with all troubles at once lists both forges to their ends",
        said.code == 0 and everything.get("finished") and own.get("finished"),
        said.all[-900:],
    )
    warned = {
        "B1: an owner that answers 403": r"/users/o3/repos.*SAML",
        "B2: a page of HTML with status 200": r"page skipped.*JSON|page skipped.*line 1 column",
        "B2: a page that answers 400": r"page skipped.*400",
        "B2: a page that answers 406": r"page skipped.*406",
        "GraphQL that answers 502": r"no details of.*502",
        "GraphQL that answers an error": r"no details of.*Something went wrong",
        "B8: a token that is not taken": r"token 1 of 2 was rejected.*Bad credentials",
    }
    for trouble, pattern in warned.items():
        checks.check(
            f"{trouble} is named in a warning of the crawl", re.search(pattern, said.err), said.err[-1500:]
        )
    checks.same(
        "the page of each bad owner, and of each bad page of everything, is counted as skipped",
        (own.get("skipped_pages"), everything.get("skipped_pages", 0) >= len(POISON)),
        (len(BAD_OWNERS), True),
    )
    checks.check(
        "what the filter asks and GitHub does not say is left out, and counted",
        everything.get("unknown", 0) > 0,
        everything,
    )
    status = troubled.pool("status").log().out
    for name in ("all", "own"):
        checks.check(
            f"`status` counts the pages of {name} that cannot be had",
            re.search(rf"^forge +{name}: .*failed pages", status, re.MULTILINE),
            status,
        )
    whole = troubled.github.world.all.values()
    known = set(troubled.names("own").values())
    sound = {url_of(r) for r in whole if r["owner"] not in BAD_OWNERS}
    checks.check(
        "B1, B2: owners behind the bad ones are listed",
        sound <= known,
        f"{len(sound - known)} of {len(sound)} are missing",
    )
    known = set(troubled.names("all").values())
    sound = [r for r in whole if not is_near_poison(r["id"]) and r["stars"] >= STARS_MIN]
    missing = sum(url_of(r) not in known for r in sound)
    checks.check(
        "B2: what stands behind bad pages is listed, but for what GraphQL does not tell of",
        missing <= everything.get("unknown", 0),
        f"{missing} missing, {everything}",
    )
    unwanted = {url_of(r) for r in whole if r["stars"] < STARS_MIN}
    checks.same("the filter lets nothing through that it should not", len(known & unwanted), 0)


def unseen_is_down(checks, troubled, calm):
    """B3, B4: names that clash, and a forge that fails once the listing is through."""
    hidden = troubled.hidden()
    for twin in (troubled, calm):
        twin.github.world.change(1, hidden)
    before = troubled.forges()
    said = troubled.crawl(*USUAL, "unseen", log=30)
    calm.crawl()
    asked = troubled.github.count("/api/v3/repositories/")
    places = sorted(
        int(re.search(r"since=(\d+)", path)[1])
        for _, path in troubled.github.asked
        if "/api/v3/repositories?" in path
    )
    gaps = [(a, b) for a, b in zip(places, places[1:]) if b - a > GAP_MAX]
    checks.check(
        "B2: behind a bad page the listing goes on with the next one, "
        "though skipped pages were tried again before",
        not gaps,
        f"nothing between these ids was asked for: {gaps}",
    )
    checks.check(
        "B4: down once all pages were had: the crawl ends with an error that says so",
        said.code == 3 and re.search(r"\b502\b.*resumes there", said.err),
        said.err[-900:],
    )
    checks.check("B4: it gives up after five in turn", 0 < asked <= 2 * IN_TURN * TRIES, f"{asked} requests")
    checks.same(
        "B4: nothing is taken to be gone for that",
        {f: gone for f, (_, gone) in troubled.forges().items()},
        {f: gone for f, (_, gone) in before.items()},
    )
    checks.check(
        "B3, B4: the other forge is listed all the same",
        troubled.github.count("/users/o0/repos") and not re.search(r"UNIQUE|duplicate key", said.all),
        said.err[-900:],
    )
    said = troubled.crawl(*USUAL, log=30)
    checks.check(
        "B4: the next crawl goes on from there, and finds what is gone",
        said.code == 0 and of(said, "all").get("gone", 0) > 0 and of(said, "own").get("gone", 0) > 0,
        said.out,
    )
    checks.check(
        "B4: and asks for no page again but those that were skipped",
        troubled.github.count("/api/v3/repositories?") <= 2 * IN_TURN * TRIES,
        f"{troubled.github.count('/api/v3/repositories?')} requests",
    )
    names = troubled.names("all")
    far, foreign = "all/o0/far", "all/o1/foreign"
    checks.check(
        "B3: of names that clash with set-aside ones nobody loses theirs",
        names.get(far) == f"{CLONES}o0/far.git"
        and sum(name.startswith(f"{far}~") for name in names) == 2
        and names.get(foreign) == "https://elsewhere.example/foreign.git"
        and sum(name.startswith(f"{foreign}~") for name in names) == 2
        and names.get("all/o0/moved")
        and names.get("all/o0/clash"),
        sorted(n for n in names if "~" in n),
    )


def all_is_down(checks, troubled, calm, owners):
    """B5, B6, B8: everything fails, then GitHub rejects every token, then the usual troubles return.

    All this happens after an owner was left out of the configuration."""
    hidden = troubled.hidden(owners)
    for twin in (troubled, calm):
        twin.github.world.change(2, hidden)
        twin.configure(owners)
    before, names = troubled.forges(), troubled.names()
    said = troubled.crawl("down", log=20)
    checks.check(
        "B5: a forge that is down is said to be",
        said.code == 3 and len(re.findall(r"in a row failed.*502.*resumes there", said.err)) == 2,
        said.err[-900:],
    )
    asked = len(troubled.github.asked)
    checks.check(
        "B5: and is asked no more than five skipped pages and five new ones",
        0 < asked <= 2 * 2 * IN_TURN * TRIES,
        f"{asked} requests",
    )
    said = troubled.crawl("tokens", log=20)
    checks.check(
        "B8: tokens that are all refused are said to be",
        said.code == 3 and said.err.count("was rejected") >= 2 and "Bad credentials" in said.err,
        said.err[-900:],
    )
    checks.same("B5, B8: nothing changes for that", (troubled.forges(), troubled.names()), (before, names))
    said = troubled.crawl(*USUAL, log=40)
    calm.crawl()
    unseen = troubled.github.count("/api/v3/repositories/")
    gone = of(said, "own").get("gone", 0)
    checks.check(
        "B6: what is gone behind an owner that is left out is found",
        said.code == 0 and gone > 0,
        f"{gone} gone, {unseen} asked for by themselves",
    )
    hopeless = [p for _, p in troubled.github.asked if "/users/o9/" in p]
    checks.same("B6: the owner himself is not asked for", hopeless, [])


def late(checks, troubled, calm, owners):
    """What goes wrong while those are asked for that the listing did not name."""
    hidden = troubled.hidden(owners)
    lost = [i for i in sorted(troubled.github.world.all) if i not in hidden][5:245:20]
    for twin in (troubled, calm):
        for i in lost:
            twin.github.world.vanish(i)
    said = troubled.crawl("spent", log=20)
    calm.crawl()
    checks.check(
        "a token that is used up for three seconds is waited for, and what is gone is found",
        said.code == 0 and of(said, "all").get("gone", 0) > 0 and of(said, "own").get("gone", 0) == len(lost),
        said.all[-900:],
    )
    while troubled.unfinished() and troubled.crawl().code == 0:
        pass
    for twin in (troubled, calm):
        for i in sorted(i for i in twin.github.world.all if i not in hidden)[10:250:20]:
            twin.github.world.vanish(i)
    troubled.crawl("unseen")
    left = troubled.unfinished()
    said = troubled.crawl("tokens", log=12)
    warned = said.err.count("cannot tell whether it still exists")
    checks.check(
        "B8: tokens that are refused meanwhile end the crawl with an error, "
        "not with a warning about each repository",
        said.code == 3 and warned <= 2 * IN_TURN,
        f"{warned} warnings, ended with {said.code}: {said.all[-600:]}",
    )
    checks.same("B8: and the listing is not taken to have come to its end", troubled.unfinished(), left)


def in_the_end(checks, troubled, calm, owners):
    """Without troubles both GitHubs are the same again, and so must the lists be."""
    said = troubled.crawl(log=20)
    checks.check(
        "a crawl without troubles warns of nothing",
        said.code == 0 and "WARN" not in said.err and "ERROR" not in said.err,
        said.err[-900:],
    )
    # The first may have gone on where the last one ended.
    troubled.crawl()
    before = troubled.names()
    again = troubled.crawl(log=4)
    calm.crawl(), calm.crawl()
    checks.check(
        "the one after it finds nothing new",
        all(
            of(again, f).get(k) == 0
            for f in ("all", "own")
            for k in ("added", "renamed", "gone", "skipped_pages")
        ),
        again.out,
    )
    ours, theirs = troubled.names(), calm.names()
    moved = sorted(set(before.items()) ^ set(ours.items()))
    checks.check(
        "B3: and leaves every name as it was, set aside or not",
        not moved,
        f"{moved}, of which the crawl said: {again.out.splitlines()[:1]}",
    )
    # What numbers set-aside names end with is judged above.
    ours, theirs = (
        {re.sub(r"(~\d+)~\d+$", r"\1~N", name): url for name, url in names.items()}
        for names in (ours, theirs)
    )
    odd = sorted(set(ours.items()) ^ set(theirs.items()))
    checks.check(
        f"in the end the list is that of the untroubled GitHub: {len(theirs)} names and URLs",
        not odd,
        f"{len(odd)} differ: {odd[:8]}",
    )
    checks.same("and as many are known to be gone", troubled.forges(), calm.forges())
    live = {f"all/{name}": url for url, name in troubled.github.world.live().items()}
    wrong = {name for name, url in live.items() if ours.get(name) != url and "foreign" not in name}
    checks.check(
        f"each of the {len(live)} that the filter wants has the name it has there",
        not wrong,
        sorted(wrong)[:8],
    )
    live = {f"own/{name}": url for url, name in troubled.github.world.live(owners).items()}
    wrong = {name for name, url in live.items() if ours.get(name) != url}
    checks.check(f"each of the {len(live)} of the owners, too", not wrong, sorted(wrong)[:8])
    status = troubled.pool("status").log().out
    checks.check("`status` has no page left that cannot be had", "failed pages" not in status, status)


def beside(checks, twin, folder, postgres):
    """B10: two machines crawl one forge; PostgreSQL ends the connections of the first while it does."""
    github = twin.github
    github.troubles, github.delay = set(), 0.08
    github.asked.clear()
    log = os.path.join(folder, "beside.log")
    one = twin.pool.start("--json", "crawl", "all", log=log)
    wait_for("the first pages", 20, lambda: github.count("/api/v3/repositories?") > 3)
    if postgres:
        postgres.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
        time.sleep(0.5)
    two = twin.pool("--json", "crawl", "all").log()
    one.wait(120)
    github.delay = 0
    with open(log) as f:
        first_said = f.read()
    print(f"  beside it (ended with {one.returncode}): {first_said[-700:]}", flush=True)
    pages = [path for _, path in github.asked if "/api/v3/repositories?" in path]
    twice = len(pages) - len(set(pages))
    # The page that was under way may be had again.
    checks.check(
        "B10: a second crawl of the same forge, "
        f"{'after the connections of the first were ended' if postgres else 'beside the first'}"
        ", asks for no page twice",
        twice <= 1,
        f"{twice} of {len(set(pages))} pages were asked for twice; "
        f"the second ended with {two.code}: {two.all[-500:]}",
    )
    checks.check(
        "B10: one of the two lists all; the other, if it may not, says why",
        0 in (one.returncode, two.code) and (two.code == 0 or "is listing it" in two.err),
        two.all,
    )


def watched(checks, twin, folder, postgres):
    """B9: a crawl that watches outlives a restart of PostgreSQL."""
    twin.configure(ALL_OWNERS[:9], 'interval = "1s"\n')
    log = os.path.join(folder, "watched.log")
    process = twin.pool.start("crawl", "--watch", log=log)
    told = lambda: open(log).read()
    try:
        wait_for("a first crawl", 30, lambda: "all: " in told())
        postgres.stop()
        time.sleep(3)
        postgres.start()
        time.sleep(1)
        print(f"$ weir crawl --watch, while PostgreSQL restarts\n  {told()[-900:]}", flush=True)
        checks.check(
            "B9: `weir crawl --watch` outlives a restart of PostgreSQL, and tells of it",
            process.poll() is None and "ERROR" in told(),
            told()[-900:],
        )
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
            checks.same("B9: and ends well when it is told to", process.returncode, 0)
    finally:
        end(process)


class Hung(threading.Thread):
    """B7: a page that never comes, asked for beside everything else, as that takes a minute."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.github, self.pool = GitHub(), Pool(folder)
        self.github.troubles = {"hang"}
        self.pool.configure(forges(self.github.url, ALL_OWNERS, "").replace(f"tries = {TRIES}", "tries = 1"))
        self.start()

    def run(self):
        self.said = self.pool("--json", "crawl")

    def judge(self, checks):
        self.join()
        self.said.log(8)
        said = self.said
        checks.check(
            "B7: a page that never comes is given up after a minute, named and skipped; the rest is listed",
            said.code == 0
            and said.seconds < 100
            and re.search(r"page skipped.*timeout", said.err)
            and of(said, "all").get("skipped_pages") == 1
            and of(said, "all").get("listed", 0) > 1800,
            said.all[-900:],
        )
        checks.check("B7: the other forge is listed, too", of(said, "own").get("listed", 0) > 1900, said.out)
        self.github.shutdown()


def run(checks, folder, catalogs, postgres):
    """All of it over one database."""
    pair = twins()
    troubled, calm = (
        Twin(github, os.path.join(folder, name), catalog)
        for github, name, catalog in zip(pair, ("troubled", "calm"), catalogs)
    )
    owners = ALL_OWNERS[:9]
    for twin in (troubled, calm):
        twin.configure()
    first(checks, troubled, calm)
    unseen_is_down(checks, troubled, calm)
    all_is_down(checks, troubled, calm, owners)
    late(checks, troubled, calm, owners)
    in_the_end(checks, troubled, calm, owners)
    beside(checks, troubled, folder, postgres)
    if postgres:
        watched(checks, troubled, folder, postgres)
    for github in pair:
        github.shutdown()
