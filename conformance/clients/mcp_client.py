"""Reads a repository with the Python SDK of the Model Context Protocol: mcp_client.py URL MODE REPOSITORY.

Prints the revision of the protocol, and what a commit and a file of the repository are, as JSON."""

import asyncio
import json
import sys

from mcp import Client


async def read(url, mode, repository):
    async with Client(url, mode=mode) as client:
        tools = await client.list_tools()
        names = [tool.name for tool in tools.tools]

        async def call(tool, **arguments):
            result = await client.call_tool(tool, {"repository": repository, **arguments})
            return result.content[0].text

        commit = json.loads(await call("get_commit", revision="main"))
        content = await call("read_file", path="file0")
        wrong = await call("read_file", path="no such file")
        print(json.dumps({
            "revision": client.protocol_version, "tools": names, "commit": commit["oid"], "content": content,
            "wrong": wrong,
        }))


asyncio.run(read(*sys.argv[1:]))
