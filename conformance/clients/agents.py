"""A repository read by programs that speak the Model Context Protocol, in both eras of it."""

import json
import os
from urllib.parse import urlsplit

from common import Pool, cell, commits, git, new_upstream, run
from libraries import python_client

# The mode of the client, and the revision that it must agree on.
CLIENTS = {"mcp, as it likes": ("auto", "2026-07-28"), "mcp, with a handshake": ("legacy", "2025-11-25")}


def check(upstream, url, mode, revision):
    parts = urlsplit(url)
    said = run(*python_client("mcp"), f"{parts.scheme}://{parts.netloc}/mcp", mode, "it")
    told = json.loads(said.splitlines()[-1])
    assert told["revision"] == revision, f"speaks {told['revision']}"
    assert told["commit"] == git(upstream, "rev-parse", "main"), told
    assert told["content"].strip() == git(upstream, "show", "main:file0"), told
    assert "read_file" in told["tools"] and "no such file" in told["wrong"], told


def table(out, work, wanted):
    upstream = new_upstream(os.path.join(work, "up.git"))
    commits(upstream, 3)
    pool = Pool(os.path.join(work, "pool"), upstream)
    out.begin("agent", "reads")
    for name in wanted:

        def fresh():
            with pool.serve() as urls:
                check(upstream, urls["http"], *CLIENTS[name])

        out.row([name], [cell(fresh)])
