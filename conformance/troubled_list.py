"""Part 1 of troubles.py: weir mirrors a list of 300 URLs in one pass; a tenth of them is bad."""

import json
import os
import re

from harness import Pool

SETTINGS = 'jobs = 16\njobs_per_host = 8\n[transport]\nidle_timeout = "2s"\nconnect_timeout = "5s"\n'


def mirrored(checks, pool, names, ways):
    """The first pass, and what is written down of it. Gives the failing ones by their names."""
    total = len(names)
    well = total - sum(len(urls) for urls, *_ in ways.values())
    bad = {name: way for name, way in names.items() if way}
    first = pool("mirror").log(45)
    checks.check("`weir mirror` ends with 3, for some failed", first.code == 3, first.code)
    found = re.search(r"(\d+) updated, (\d+) unchanged, (\d+) failed", first.out)
    checks.check(
        "its last line counts all of them",
        found and int(found[1]) + int(found[2]) == well and int(found[3]) == len(bad),
        first.out[-300:],
    )
    told = set(re.findall(r"^failed +(\S+): ", first.err, re.MULTILINE))
    checks.same("`weir mirror` reports each failure while it runs", told, set(bad))
    listed = {r["name"]: r for r in pool("--json", "ls").json()}
    checks.same("`ls` has every name", set(listed), set(names))
    is_here = {
        name
        for name, r in listed.items()
        if r["state"] == "ok" and r["seq"] is not None and r["last_success"] and os.path.exists(r["archive"])
    }
    checks.same(f"{well} are recorded as mirrored, with their archives", is_here, set(names) - set(bad))
    failed = {
        name: r
        for name, r in listed.items()
        if r["state"] == "failed" and r["failures"] == 1 and not r["archive_exists"]
    }
    checks.same(f"{len(bad)} are recorded as failed, without archives", set(failed), set(bad))
    return failed


def classified(checks, pool, failed, names, ways):
    errors = {r["name"]: r for r in pool("--json", "errors", "-n", "1000").json()}
    checks.same("`--json errors` lists just what failed", set(errors), set(failed))
    text = pool("errors", "--all", "-n", "1000").log()
    lines, _, advice = (part.splitlines() for part in text.out.partition("\nWhat to do:\n"))
    checks.check("`errors` has a line for each", len(lines) == len(failed), f"{len(lines)} lines")
    for way, (urls, classes, words) in ways.items():
        of_way = [errors[name] for name, of in names.items() if of == way and name in errors]
        odd = [
            (r["name"], r["error_class"], r["error"])
            for r in of_way
            if r["error_class"] not in classes
            or not any(word in (r["error"] or "").lower() for word in words)
        ]
        checks.check(
            f"{way}: class {' or '.join(sorted(classes))}, and a message that says so",
            len(of_way) == len(urls) and not odd,
            odd,
        )
    found = {r["error_class"] for r in errors.values()}
    for name in found:
        listed = pool("--json", "errors", name, "-n", "1000").json()
        checks.same(
            f"`errors {name}` lists those of that class",
            {r["name"] for r in listed},
            {n for n, r in errors.items() if r["error_class"] == name},
        )
    with open(
        os.path.join(
            os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "book", "src", "operating.md"
        )
    ) as f:
        guide = f.read().split("| Class | Meaning | What to do |")[1].split("\n\n")[0]
    remedies = {
        name.strip(" `"): row.split("|")[3].strip()
        for row in guide.splitlines()
        if row.count("|") == 4
        for name in row.split("|")[1].split(",")
    }
    checks.check(
        "the book has a remedy for each class",
        all(remedies.get(name) for name in found),
        found - set(remedies),
    )
    advised = {line.split()[0] for line in advice if len(line.split()) > 1}
    checks.same("`errors` says what to do about each class", advised, found)
    unknown = pool("errors", "nonsense")
    checks.check(
        "`errors nonsense` is refused, and names the classes",
        unknown.code and "network" in unknown.err and "forbidden" in unknown.err,
        unknown.all,
    )
    return errors


def counted(checks, pool, total, well, errors):
    text, status = pool("status").log().out, pool("--json", "status").json()
    by_class = {}
    for r in errors.values():
        by_class[r["error_class"]] = by_class.get(r["error_class"], 0) + 1
    counts = status["counts"]
    checks.same(
        "`--json status` counts repositories, mirrored and failing ones",
        (counts["repositories"], counts["mirrored"], counts["failing"], counts["due"]),
        (total, well, len(errors), 0),
    )
    checks.same("and the classes", status["errors"], by_class)
    checks.check(
        "`status` says so on its screen",
        f"{total}, {well} mirrored" in text
        and f"{len(errors)}: " in text
        and "0 due" in text
        and all(f"{n} {name}" in text for name, n in by_class.items()),
        text,
    )
    checks.check(
        "a tenth of bad ones pauses nothing",
        status["pauses"] == [] and re.search(r"^pauses +none", text, re.MULTILINE),
        status["pauses"],
    )


def not_due(checks, pool, world, errors, total):
    before, asked = {r["name"]: r["last_attempt"] for r in pool("--json", "ls").json()}, world.asked()
    second = pool("mirror").log()
    checks.check(
        "a second `weir mirror` ends with 0 and visits nothing",
        second.code == 0 and re.search(r"0 updated, 0 unchanged, 0 failed", second.out),
        second.all,
    )
    after = {r["name"]: r["last_attempt"] for r in pool("--json", "ls").json()}
    checks.same(
        "no visit is recorded, and no bad server hears of it", (after, world.asked()), (before, asked)
    )
    due = pool("--json", "due", "-n", "1000").json()
    checks.check(
        "`due` lists all, none before its time",
        len(due) == total and all(r["in_s"] > 0 for r in due),
        [r for r in due if r["in_s"] <= 0][:5],
    )
    waits = {r["name"]: r["in_s"] for r in due}
    first = {"gone": (86000, 96000), "forbidden": (86000, 96000)}
    odd = [
        (name, r["error_class"], waits.get(name))
        for name, r in errors.items()
        if not first.get(r["error_class"], (200, 331))[0]
        <= waits.get(name, -1)
        <= first.get(r["error_class"], (200, 331))[1]
    ]
    checks.check(
        "what may pass is tried again in five minutes, what is gone or forbidden in a day", not odd, odd
    )
    text = pool("due").log(8)
    checks.check(
        "`due` says when",
        len(text.out.splitlines()) == 20 and all(line.startswith("in ") for line in text.out.splitlines()),
        text.out,
    )


def listed(checks, pool, names, ways, errors, well):
    """ls, show, visits and fsck, of good ones and bad ones."""
    table = pool("ls").log(6)
    states = [line.split()[0] for line in table.out.splitlines()[1:]]
    checks.same(
        "`ls` tells the state of each", (states.count("ok"), states.count("failed")), (well, len(errors))
    )
    only = pool("ls", "--state", "failed").log()
    checks.check(
        "`ls --state failed` lists the bad ones",
        {line.split()[-1] for line in only.out.splitlines()[1:]} == set(errors),
        only.out,
    )
    first_of = {way: next(name for name, of in names.items() if of == way) for way in ways}
    dumb = []
    for way, name in first_of.items():
        show, visits = pool("show", name), pool("visits", name)
        if way in ("404", "lies about refs"):
            show.log(), visits.log()
        r, past = errors[name], pool("--json", "visits", name).json()
        if not (
            r["error"] in show.out
            and r["error_class"] in show.out
            and f"{r['error_class']}: {r['error']}" in visits.out
            and len(past) == 1
            and past[0]["result"] == "failed"
            and past[0]["error_class"] == r["error_class"]
        ):
            dumb.append(way)
    checks.check("`show` and `visits` say of each way what went wrong", not dumb, dumb)
    good, empty = (next(name for name in names if name.startswith(start)) for start in ("good0", "empty"))
    show, visits = pool("show", good).log(), pool("visits", good).log()
    checks.check(
        "of a good one `show` names branch, archive and pack, `visits` its snapshot",
        all(word in show.out for word in ("refs/heads/main", ".tar", "pack ")) and "swh:1:snp:" in visits.out,
        show.out + visits.out,
    )
    show = pool("show", empty).log()
    checks.check(
        "an empty repository is mirrored as such",
        re.search(r"^refs +0, ", show.out, re.MULTILINE) and "unborn" in show.out,
        show.out,
    )
    fsck, quiet = pool("fsck").log(4), pool("--json", "fsck")
    checks.check("`fsck` finds every archive whole", fsck.code == 0 and quiet.code == 0, fsck.all[-500:])
    checks.check(
        "and says how many it read",
        str(well) in fsck.all or len(fsck.out.splitlines()) in (well, well + 1),
        fsck.all[-500:],
    )
    store = os.path.join(pool.path, "store")
    files = sorted(
        os.path.relpath(os.path.join(at, f), store) for at, _, found in os.walk(store) for f in found
    )
    archives = [f for f in files if f.endswith(".tar")]
    checks.same(
        "in the store lies nothing but archives and its id",
        (len(archives), [f for f in files if f not in archives]),
        (well, [".store-id"]),
    )
    return first_of


def mended(checks, pool, world, names, errors):
    """Mends bad upstreams over HTTP: weir visits those that are asked for by name, and no others."""
    world.web.are_mended = True
    ways = (
        "404",
        "401 or 403",
        "500",
        "HTML with 200",
        "redirect loop",
        "corrupt pack",
        "pack cut off",
        "lies about refs",
    )
    again = [name for name in errors if names[name] in ways]
    for name in again:
        pool("-q", "mirror", name)
    world.web.are_mended = False
    left = {r["name"] for r in pool("--json", "errors", "-n", "1000").json()}
    checks.same(
        "what is mended is mirrored when it is asked for, and `errors` lists it no more",
        left,
        set(errors) - set(again),
    )
    visits = pool("visits", again[0]).log()
    past = [v["result"] for v in pool("--json", "visits", again[0]).json()]
    checks.check("its `visits` tell of both", "failed" in past and "changed" in past, visits.out)


def run(checks, world, folder, catalog):
    """All of it over one database; gives classes and messages by name, for the other to be compared with."""
    pool = Pool(folder, catalog)
    pool.configure(SETTINGS)
    ways = world.bad()
    names, lines, n = {}, [], 0
    for name, url in world.good().items():
        names[name] = None
        lines.append(f"{url} {name}")
    for way, (urls, *_) in ways.items():
        for url in urls:
            n += 1
            name = f"bad{n % 7}.example/owner{n}/name{n}"
            names[name] = way
            # The bad ones stand among the good ones.
            lines.insert(n * 9, f"{url} {name}")
    path = os.path.join(folder, "list.txt")
    with open(path, "w") as f:
        f.write("# As the world has them.\n" + "\n".join(lines) + "\n")
    refused = pool("add", "--from", path).log(4)
    checks.check(
        "a path that is no repository is named with its line when it is added, and nothing is registered",
        refused.code
        and re.search(r"list\.txt:\d+: .*is no repository", refused.err)
        and "nothing was registered" in refused.err,
        refused.all,
    )
    added = pool("add", "--force", "--from", path).log(4)
    checks.check(
        f"`weir add --force --from` takes {len(names)}",
        added.code == 0 and f"{len(names)} added" in added.out,
        added.all,
    )
    failed = mirrored(checks, pool, names, ways)
    errors = classified(checks, pool, failed, names, ways)
    well = len(names) - len(errors)
    counted(checks, pool, len(names), well, errors)
    not_due(checks, pool, world, errors, len(names))
    listed(checks, pool, names, ways, errors, well)
    mended(checks, pool, world, names, errors)
    return {
        name: (r["error_class"], re.sub(r"\d+ s\b", "N s", json.dumps(r["error"])))
        for name, r in errors.items()
    }
