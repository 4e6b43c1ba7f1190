#!/usr/bin/env python3
"""Runs git's own test suite with weir in the place of git-upload-pack, git-daemon and git-http-backend.

conformance/run.py [--archives] [SCRIPT...]. With --archives, each directory that git-upload-pack is to serve
is made an archive first.

git's source package comes from the distribution, in the version that is installed, and is built once below
target/. exceptions.tsv (and archive-exceptions.tsv) lists the cases that weir is not meant to pass, each
with its reason. Any other case that fails fails the run, and so does an exception that passes. Without
arguments, all of scripts.txt is run, both ways, and docs/conformance.md is written. The suite refuses to
start a web server as root: if root runs this program, the scripts are run as nobody.
"""

import collections
import concurrent.futures
import glob
import os
import re
import shutil
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
WORK = os.path.join(ROOT, "target", "conformance")
WEIR = os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir"))
SCRIPT_SECONDS_MAX = 600
# Scripts that call the upload-pack that is built into git, which no folder of programs can replace.
BUILTIN = ["t5555-http-smart-common"]
NOBODY = 65534


def run(*command, **more):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **more)


def source():
    """The folder of git's source, built, with weir in place."""
    version = subprocess.check_output(["dpkg-query", "-W", "-f", "${Version}", "git"], text=True)
    tree = os.path.join(WORK, version.split(":")[-1])
    if not os.path.exists(os.path.join(tree, "built")):
        shutil.rmtree(tree, ignore_errors=True)
        apt = os.path.join(WORK, "apt")
        for folder in ("lists/partial", "sources"):
            os.makedirs(os.path.join(apt, folder), exist_ok=True)
        # Where packages come from, their sources come from, too: both forms of sources.list(5).
        for path in ["/etc/apt/sources.list", *glob.glob("/etc/apt/sources.list.d/*")]:
            if path.endswith((".list", ".sources")) and os.path.exists(path):
                text = open(path).read()
                text = re.sub(r"(?m)^Types:.*", "Types: deb-src", re.sub(r"(?m)^deb(?= )", "deb-src", text))
                with open(os.path.join(apt, "sources", os.path.basename(path)), "w") as f:
                    f.write(text)
        options = [
            "-qq",
            "-o",
            "Dir::Etc::sourcelist=/dev/null",
            "-o",
            f"Dir::Etc::sourceparts={apt}/sources",
            "-o",
            f"Dir::State::lists={apt}/lists",
            "-o",
            "APT::Sandbox::User=root",
        ]
        run("apt-get", *options, "update")
        run("apt-get", *options, "--download-only", "source", f"git={version}", cwd=apt)
        archive = next(n for n in os.listdir(apt) if n.endswith(".orig.tar.xz"))
        os.makedirs(tree)
        run("tar", "xf", os.path.join(apt, archive), "-C", tree, "--strip-components=1")
        without = [f"NO_{what}=1" for what in ("GETTEXT", "TCLTK", "OPENSSL", "EXPAT", "PYTHON")]
        with open(os.path.join(WORK, "build.log"), "w") as log:
            subprocess.run(
                ["make", f"-j{os.cpu_count()}", *without], cwd=tree, check=True, stdout=log, stderr=log
            )
        open(os.path.join(tree, "built"), "w").close()

    def shim(place, text):
        path = os.path.join(tree, place)
        os.unlink(path)
        with open(path, "w") as f:
            f.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, 0o755)

    upload_pack = os.path.join(tree, "git-upload-pack")
    for place in ("git-upload-pack", "bin-wrappers/git-upload-pack"):
        shim(
            place,
            f"""export WEIR="{WEIR}"
[ -z "$THROUGH_ARCHIVE_COUNT" ] || exec "{HERE}/through-archive.sh" "$@"
exec "$WEIR" upload-pack "$@\"""",
        )
    shim("git-http-backend", f'exec "{WEIR}" http-backend')
    # What tests protocol v2 without a transport: the same requests, to weir.
    tool = os.path.join(tree, "t/helper/test-tool")
    if not os.path.exists(f"{tool}.git"):
        os.rename(tool, f"{tool}.git")
        open(tool, "w").close()
    shim(
        "t/helper/test-tool",
        f"""if [ "$1" = serve-v2 ]; then
    shift
    [ "$1" = --advertise-capabilities ] && {{ shift; set -- --http-backend-info-refs "$@"; }}
    [ "$1" = --stateless-rpc ] || [ "$1" = --http-backend-info-refs ] || set -- --stateless-rpc "$@"
    GIT_PROTOCOL=version=2 exec "{upload_pack}" "$@" .
fi
exec "{tool}.git" "$@"
""",
    )
    return tree


def adapted(tree, script):
    """Returns the name of the script to run.

    For a script that calls the upload-pack built into git, that is a copy that calls git-upload-pack."""
    if script not in BUILTIN:
        return script
    with open(os.path.join(tree, "t", f"{script}.sh")) as f:
        text = f.read()
    copy = f"{script}-adapted"
    with open(os.path.join(tree, "t", f"{copy}.sh"), "w") as f:
        f.write(
            re.sub(
                r"git upload-pack|git -c \S+ upload-pack",
                lambda m: m[0].replace("git upload", "git-upload"),
                text,
            )
        )
    os.chmod(os.path.join(tree, "t", f"{copy}.sh"), 0o755)
    return copy


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path, errors="replace") as f:
        return f.read().splitlines()


def listed(name):
    with open(os.path.join(HERE, name)) as f:
        return [line.rstrip("\n").split("\t") for line in f if line.strip() and not line.startswith("#")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def server_log(environment, script):
    """The end of what the web server of a script logged, if the script left its folder."""
    logs = glob.glob(f"{environment['TEST_OUTPUT_DIRECTORY']}/trash directory.{script}*/httpd/error.log")
    return lines(max(logs, key=os.path.getmtime))[-10:] if logs else []


def run_script(tree, environment, script, exceptions):
    """The script's row, the exceptions that failed with their reasons, and what is wrong.

    Its servers get ports of their own: the servers of the run before may still be ending."""
    wrong = []
    environment = {**environment, "LIB_HTTPD_PORT": free_port(), "LIB_GIT_DAEMON_PORT": free_port()}
    try:
        command = [
            f"./{adapted(tree, script)}.sh",
            "--no-chain-lint",
            f"--root={environment['TEST_OUTPUT_DIRECTORY']}",
        ]
        if os.getuid() == 0:
            command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
        ended = subprocess.run(
            command,
            cwd=os.path.join(tree, "t"),
            env=environment,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SCRIPT_SECONDS_MAX,
        )
        said = ended.stdout
    except subprocess.TimeoutExpired as e:
        said = (e.stdout or b"").decode(errors="replace")
        wrong.append(f"{script}: not done after {SCRIPT_SECONDS_MAX} s")
    counts = collections.Counter(skipped=len(re.findall(r"(?m)^ok \d+ # skip", said)))
    failed = []
    for state, title, directive in re.findall(r"(?m)^(ok|not ok) \d+ - (.*?)(?: # (\S+).*)?$", said):
        if directive == "TODO":
            continue  # broken in git itself
        if state == "ok":
            counts["passed"] += 1
            if title in exceptions:
                wrong.append(f"{script}: passes, though it is an exception: {title}")
        else:
            failed.append(title)
    unexpected = [t for t in failed if t not in exceptions]
    wrong.extend(f"{script}: failed: {t}" for t in unexpected)
    if not counts["passed"]:
        log = server_log(environment, script)
        wrong.append(f"{script}: nothing was run: {said.strip().splitlines()[-1:]} {log}")
    row = (
        f"| {script} | {counts['passed']} | {len(unexpected)} | "
        f"{len(failed) - len(unexpected)} | {counts['skipped']} |"
    )
    return row, [(t, exceptions[t]) for t in failed if t in exceptions], wrong


def all_exceptions(*files):
    exceptions = collections.defaultdict(dict)
    for file in files:
        for script, title, reason in listed(file):
            exceptions[script][title] = reason
    return exceptions


def run_all(tree, environment, scripts, exceptions):
    """Rows, with exceptions that failed, of scripts; and what is wrong."""
    rows, wrong = [], []
    # As many at a time as there are cores.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(run_script, tree, environment, one, exceptions[one]) for one in scripts]
        for script, run in zip(scripts, runs):
            row, excepted, complaints = run.result()
            if complaints:
                # git's own tests are not free of races: what fails twice has failed.
                print(*complaints, f"{script}: once more", sep="\n", flush=True)
                row, excepted, complaints = run_script(tree, environment, script, exceptions[script])
            rows.append((row, excepted))
            wrong.extend(complaints)
            print(row, flush=True)
    return rows, wrong


def main():
    arguments = sys.argv[1:]
    is_whole = not arguments
    ways = (
        ["archives"]
        if "--archives" in arguments
        else ["directories", "archives"]
        if is_whole
        else ["directories"]
    )
    chosen = [a for a in arguments if a != "--archives"]
    tree = source()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    output = os.path.join(WORK, "output")
    shutil.rmtree(output, ignore_errors=True)
    os.makedirs(output)
    if os.getuid() == 0:
        os.chown(output, NOBODY, NOBODY)
    environment.update(
        LIB_GIT_DAEMON_COMMAND=f"{WEIR} daemon",
        HOME=output,
        TEST_OUTPUT_DIRECTORY=output,
        GIT_TEST_HTTPD="true",
    )
    tables, wrong = {}, []
    for way in ways:
        scripts = [s[0] for s in listed("scripts.txt") if way == "directories" or s[1:] != ["directories"]]
        files = ["exceptions.tsv"]
        if way == "archives":
            files.append("archive-exceptions.tsv")
            environment["THROUGH_ARCHIVE_COUNT"] = os.path.join(output, "archives")
        tables[way], complaints = run_all(tree, environment, chosen or scripts, all_exceptions(*files))
        wrong.extend(complaints)
    served = 0
    if "archives" in ways:
        served = len(lines(environment["THROUGH_ARCHIVE_COUNT"]))
        failed = [re.sub(r"\S*/", "", line) for line in lines(environment["THROUGH_ARCHIVE_COUNT"] + ".not")]
        print(
            f"{served} conversations were served from archives, "
            f"{len(failed)} from directories of which none could be made:"
        )
        print(*(f"  {n} {why}" for why, n in collections.Counter(failed).most_common(10)), sep="\n")
        # Repositories that are broken on purpose: few.
        if len(failed) * 20 > served:
            wrong.append(f"{len(failed)} conversations were not served from archives, and only {served} were")
    if is_whole:
        write_page(tables)
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


def write_page(tables):
    """Writes git's version and the tables into the page, whose words stay as they are."""
    path = os.path.join(ROOT, "docs", "conformance.md")
    version = subprocess.check_output(["git", "--version"], text=True).split()[2]
    words = open(path).read().partition("\n## On ")[0]
    words, count = re.subn(r"\(here of git [^,]+,", f"(here of git {version},", words)
    if count != 1:
        sys.exit(f"{path}: the words above its tables do not say once \"(here of git VERSION,\"")
    with open(path, "w") as out:
        out.write(words)
        for way, rows in tables.items():
            out.write(
                f"\n## On {way}\n| script | passed | failed | exceptions | skipped |\n|---|---|---|---|---|\n"
            )
            out.writelines(f"{row}\n" for row, _ in rows)
            out.write("\nExceptions:\n")
            for row, exceptions in rows:
                script = row.split("|")[1].strip()
                out.writelines(f'- {script}, "{title}": {reason}\n' for title, reason in exceptions)


main()
