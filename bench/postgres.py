"""A PostgreSQL server for benchmarks."""

import glob
import os
import pwd
import shutil
import subprocess
import time


def as_its_user():
    """PostgreSQL does not run as root: then it runs as the user it came with."""
    if os.getuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class Postgres:
    """A server on a socket in a folder of its own.

    It has PostgreSQL's defaults, except for the memory that a catalog of this size needs."""

    def __init__(self, folder):
        versions = glob.glob("/usr/lib/postgresql/*/bin/postgres")
        self.binaries = os.path.dirname(max(versions, key=lambda p: int(p.split("/")[4])))
        self.folder = folder
        os.makedirs(folder)
        if os.getuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        data = os.path.join(folder, "data")
        options = ["--username=weir", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "-D", data]
        subprocess.run(
            [self.binaries + "/initdb", *options],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **as_its_user(),
        )
        settings = ["-c", "listen_addresses=", "-c", "shared_buffers=2GB", "-c", "max_wal_size=4GB"]
        self.process = subprocess.Popen(
            [self.binaries + "/postgres", "-D", data, "-k", folder, *settings],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **as_its_user(),
        )
        while not os.path.exists(os.path.join(folder, ".s.PGSQL.5432")):
            time.sleep(0.1)
        time.sleep(1)

    def ask(self, schema, sql):
        """Returns what psql prints."""
        psql = [self.binaries + "/psql", "-h", self.folder, "-U", "weir", "-d", "postgres", "-qtAXc"]
        path = {**os.environ, "PGOPTIONS": f"-csearch_path={schema}"}
        return subprocess.run([*psql, sql], check=True, capture_output=True, text=True, env=path).stdout

    def schema(self, name):
        self.ask("public", f"CREATE SCHEMA {name}")
        return f"postgres://weir@{self.folder.replace('/', '%2F')}/postgres?options=-csearch_path%3D{name}"

    def end(self):
        self.process.terminate()
        self.process.wait()
