"""Webhooks of a real Gitea: a push is served by weir as soon as Gitea has told of it."""

import json
import os
import subprocess
import time

# How long a push may take to be served: Gitea sends from a queue of its own.
PATIENCE_S = 60
SECRET = "a-secret-of-nobody"


def tip(url):
    listed = subprocess.run(["git", "ls-remote", url, "refs/heads/main"], capture_output=True, text=True)
    return listed.stdout.split("\t")[0]


def pushes(gitea, program, weir, pool, repositories, ports):
    """Has Gitea tell weir of pushes. Returns the seconds until weir serves each: from the push, and from the
    delivery of Gitea."""
    with open(os.path.join(pool, "weir.toml"), "a") as settings:
        settings.write(f'\n[[events.webhook]]\nforge = "gitea"\nsecrets = ["{SECRET}"]\n')
    git, http = ports
    doors = ["--git", f"127.0.0.1:{git}", "--http", f"127.0.0.1:{http}"]
    server = subprocess.Popen([program, "-q", "serve", *doors])
    try:
        for repository in repositories:
            url = f"http://127.0.0.1:{http}/webhooks/gitea"
            config = {"url": url, "content_type": "json", "secret": SECRET}
            hook = {"type": "gitea", "active": True, "events": ["push", "create", "delete"], "config": config}
            gitea.api("POST", f"repos/{repository['full_name']}/hooks", hook)
        # The first visits are over: what follows is due because of events alone.
        time.sleep(3)
        took = []
        for repository in repositories:
            pushed = gitea.push(repository, force=False)
            name, began = repository["full_name"], time.time()
            url = f"git://127.0.0.1:{git}/g/{name}"
            while tip(url) != pushed:
                if time.time() - began > PATIENCE_S:
                    raise SystemExit(f"{url} is not at {pushed}: {weir('events', 'ls')}")
                time.sleep(0.02)
            ended = time.time()
            told = [event for event in json.loads(weir("--json", "events", "ls")) if name in event["subject"]]
            took.append((ended - began, ended - told[0]["at_ms"] / 1000))
        verdicts = {event["verdict"] for event in json.loads(weir("--json", "events", "ls"))}
        if verdicts != {"due"}:
            raise SystemExit(f"the verdicts are {verdicts}: {weir('events', 'ls')}")
        return sorted(took)
    finally:
        server.terminate()
        server.wait()
