"""Bodies that real forges once sent to webhooks, posted to weir with signatures: every example of the npm
package @octokit/webhooks-examples (MIT), and those in the tests of the PyPI package swh.web (AGPL).

Both are fetched below target/recorded, if they are not there; they never become part of this project. Prints
a line for each package; fails if weir refuses a body, or keeps another number of them than there are events
of repositories."""

import glob
import hashlib
import hmac
import http.client
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEIR = os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir"))
FETCHED = os.path.join(ROOT, "target", "recorded-webhooks")
SECRET = "It's a Secret to Everybody"
OCTOKIT, SWH = "@octokit/webhooks-examples@7.6.1", "swh.web==0.17.13"
# Events of repositories, and the actions on a pull request that move its refs.
KEPT = {"push", "create", "delete", "repository", "repository_import", "public", "gollum"}
MOVING = {"opened", "reopened", "synchronize", "closed"}


def fetch():
    os.makedirs(FETCHED, exist_ok=True)
    if not glob.glob(FETCHED + "/octokit-webhooks-examples-*.tgz"):
        npm = ["npm", "pack", "--silent", OCTOKIT]
        subprocess.run(npm, cwd=FETCHED, check=True, stdout=subprocess.DEVNULL)
    if not glob.glob(FETCHED + "/swh_web-*.whl"):
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", FETCHED, SWH]
        subprocess.run(pip, check=True)


def octokit():
    """Yields the event and the body of each example, of github.com and of Enterprise Servers."""
    with tarfile.open(glob.glob(FETCHED + "/octokit-webhooks-examples-*.tgz")[0]) as package:
        for member in package.getmembers():
            if member.name.endswith("/index.json"):
                for event in json.load(package.extractfile(member)):
                    for body in event["examples"]:
                        yield event["name"], body


def swh(name):
    with zipfile.ZipFile(glob.glob(FETCHED + "/swh_web-*.whl")[0]) as wheel:
        return wheel.read(f"swh/web/save_origin_webhooks/tests/data/{name}.json")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def signed(body, digest="sha256"):
    return hmac.new(SECRET.encode(), body, digest).hexdigest()


class Receiver:
    """A weir with a webhook of each forge."""

    def __init__(self, folder):
        self.pool, self.port = os.path.join(folder, "pool"), free_port()
        subprocess.run([WEIR, "-q", "init", self.pool], check=True)
        with open(os.path.join(self.pool, "weir.toml"), "a") as settings:
            for forge in ("github", "gitlab", "gitea", "bitbucket", "sourceforge"):
                settings.write(f'\n[[events.webhook]]\nforge = "{forge}"\nsecrets = ["{SECRET}"]\n')
        doors = ["--http", f"127.0.0.1:{self.port}", "--git", f"127.0.0.1:{free_port()}", "--no-mirror"]
        self.process = subprocess.Popen([WEIR, "-q", "--pool", self.pool, "serve", *doors])
        for _ in range(200):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise SystemExit("weir does not listen")

    def post(self, forge, body, headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Content-Type": "application/json", **headers}
        connection.request("POST", f"/webhooks/{forge}", body, headers)
        answer = connection.getresponse()
        said = answer.read().decode().strip()
        connection.close()
        return answer.status, said

    def kept(self):
        listed = [WEIR, "--json", "--pool", self.pool, "events", "ls", "-n", "100000"]
        return json.loads(subprocess.run(listed, check=True, capture_output=True).stdout)


def of_github(receiver):
    """Posts all examples. Returns how many there are, and how many weir is to keep."""
    count, wanted, wrong = 0, 0, []
    for event, example in octokit():
        count += 1
        body = json.dumps(example).encode()
        headers = {
            "X-GitHub-Event": event, "X-GitHub-Delivery": f"delivery-{count}",
            "X-Hub-Signature-256": "sha256=" + signed(body),
        }
        action = example.get("action")
        is_wanted = (
            event in KEPT
            or event == "pull_request" and action in MOVING
            or event == "organization" and action == "renamed"
        )
        wanted += is_wanted
        status, said = receiver.post("github", body, headers)
        if status != (202 if is_wanted else 200):
            wrong.append(f"{event} {example.get('action', '')}: {status} {said}")
    return count, wanted, wrong


def of_others(receiver):
    """Posts the bodies in the tests of swh.web. Returns the forges, and what was refused."""
    gitlab, gitea, bitbucket = (swh(name + "_webhook_payload") for name in ("gitlab", "gitea", "bitbucket"))
    posts = [
        ("gitlab", gitlab, {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": SECRET}),
        ("gitea", gitea, {"X-Gitea-Event": "push", "X-Gitea-Signature": signed(gitea)}),
        (
            "bitbucket", bitbucket,
            {"X-Event-Key": "repo:push", "X-Hub-Signature": "sha256=" + signed(bitbucket)},
        ),
    ]
    for kind in ("git", "hg", "svn"):
        body = swh(f"sourceforge_webhook_payload_{kind}")
        posts.append(("sourceforge", body, {"X-Allura-Signature": "sha1=" + signed(body, hashlib.sha1)}))
    answers = [(forge, *receiver.post(forge, body, headers)) for forge, body, headers in posts]
    return posts, [f"{forge}: {status} {said}" for forge, status, said in answers if status != 202]


def main():
    fetch()
    with tempfile.TemporaryDirectory() as folder:
        receiver = Receiver(folder)
        try:
            count, wanted, wrong = of_github(receiver)
            print(f"octokit/webhooks-examples: {count} bodies posted, {wanted} are about repositories")
            posts, refused = of_others(receiver)
            print(f"swh.web: {len(posts)} bodies posted, {len(posts) - len(refused)} taken")
            time.sleep(1)
            kept = receiver.kept()
            if any(event["verdict"] == "bad" for event in kept) or len(kept) != wanted + len(posts):
                wrong.append(f"{len(kept)} of {wanted + len(posts)} events are kept")
            wrong += refused
        finally:
            receiver.process.terminate()
            receiver.process.wait()
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
