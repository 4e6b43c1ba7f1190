"""The API read by a page in Chromium: from an origin that serve.cors names, from another, over TLS and
HTTP/2. And a file of a repository that is a page, opened in the browser: it must not run."""

import contextlib
import functools
import http.server
import json
import os
import re
import subprocess
import threading

from common import Pool, Skipped, cell, commits, git, need, new_upstream, port, run

CLIENTS = {"chromium": "http", "chromium, TLS and HTTP/2": "https"}
SECONDS = 60

# Puts what it was told into its own text, which Chromium prints.
PAGE = """<!DOCTYPE html><body><pre id="told">nothing</pre><script>
const api = "%s/api/v1/repositories/it";
async function told(name, ask) {
  try { return [name, await ask()]; } catch (e) { return [name, "refused: " + e.name]; }
}
(async () => {
  const asks = {
    commit: async () => (await (await fetch(api + "/commits/main")).json()).oid,
    asked_first: async () => (await fetch(api, { headers: { Authorization: "Bearer any" } })).status,
    part: async () => {
      const answer = await fetch(api + "/file?path=file0", { headers: { Range: "bytes=0-3" } });
      return [answer.status, answer.headers.get("Content-Range"), await answer.text()];
    },
    unchanged: async () => {
      const tag = (await fetch(api + "/file?path=file0")).headers.get("ETag");
      const again = { headers: { "If-None-Match": tag }, cache: "no-store" };
      return (await fetch(api + "/file?path=file0", again)).status;
    },
  };
  const all = [];
  for (const name in asks) all.push(await told(name, asks[name]));
  document.getElementById("told").textContent = JSON.stringify(Object.fromEntries(all));
})();
</script></body>"""
EVIL = "<!DOCTYPE html><body><script>document.body.textContent = 'it ' + 'ran';</script></body>"


@contextlib.contextmanager
def pages(folder):
    """A server of the pages in a folder: gives its origin."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def opened(work, url):
    """Opens a page in Chromium, and gives its elements after its scripts have run."""
    options = ["--headless", "--disable-gpu", "--ignore-certificate-errors", "--virtual-time-budget=20000",
               f"--user-data-dir={work}/profile", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    said = subprocess.run(["chromium", *options, "--dump-dom", url], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, timeout=SECONDS)
    assert said.returncode == 0, f"chromium ended with {said.returncode}"
    return said.stdout


def told_to(work, origin, name, base):
    with open(os.path.join(work, name), "w") as file:
        file.write(PAGE % base)
    dom = opened(work, f"{origin}/{name}")
    found = re.search(r'<pre id="told">(.*?)</pre>', dom, re.DOTALL)
    assert found and found[1].startswith("{"), f"the page says {found and found[1]!r}"
    return json.loads(found[1].replace("&quot;", '"'))


def check(work, pool, upstream, scheme):
    need("chromium")
    certificate, key, log = (f"{pool.folder}/{name}" for name in ("certificate.pem", "key.pem", "log"))
    if os.path.exists(log):
        os.remove(log)
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate)  # fmt: skip
    with pages(work) as named, pages(work) as other:
        lines = (f'cors = ["{named}"]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n'
                 f'access_log = "{log}"')
        with pool.configured("serve", lines), pool.serve(https=port()) as urls:
            base = urls[scheme].removesuffix("/it")
            told = told_to(work, named, "named.html", base)
            head = git(upstream, "rev-parse", "main")
            start = git(upstream, "show", "main:file0")[:4]
            size = git(upstream, "cat-file", "-s", "main:file0")
            assert told["commit"] == head, told
            assert told["asked_first"] == 200, told
            assert told["part"] == [206, f"bytes 0-3/{size}", start], told
            assert told["unchanged"] == 304, told
            version = "HTTP/2.0" if scheme == "https" else "HTTP/1.1"
            with open(log) as file:
                assert all(f' {version}" ' in line for line in file), "it was asked in another version"
            refused = told_to(work, other, "other.html", base)
            assert refused["commit"] == "refused: TypeError", refused
            assert "it ran" in opened(work, f"{named}/evil.html"), "the page does not run anywhere"
            dom = opened(work, f"{base}/api/v1/repositories/it/file?path=evil.html")
            assert "it ran" not in dom, "a page of the repository ran in the origin of the API"


def table(out, work, wanted):
    try:
        need("chromium")
    except Skipped as e:
        out.begin("browser", "reads the API")
        return [out.row([name], [f"skipped: {e}"]) for name in wanted]
    upstream = new_upstream(os.path.join(work, "up.git"))
    commits(upstream, 3)
    blob = run("git", "-C", upstream, "hash-object", "-w", "--stdin", input=EVIL)
    listed = git(upstream, "ls-tree", "main")
    tree = run("git", "-C", upstream, "mktree", input=f"{listed}\n100644 blob {blob}\tevil.html\n")
    commit = git(upstream, "commit-tree", "-p", "main", "-m", "a page", tree)
    git(upstream, "update-ref", "refs/heads/main", commit)
    pool = Pool(os.path.join(work, "pool"), upstream)
    with open(os.path.join(work, "evil.html"), "w") as file:
        file.write(EVIL)
    out.begin("browser", "reads the API")
    for name in wanted:
        out.row([name], [cell(lambda: check(work, pool, upstream, CLIENTS[name]))])
