"""Stock git, of this system and the newest in Debian, by every protocol version over git://, HTTP and ssh."""

import contextlib
import getpass
import os
import shlex
import shutil
import time

from common import BUILT, Pool, Skipped, WEIR, install, need, new_upstream, port, process, run, stock
from conversations import COLUMNS, Git, cells, history

CHROOT = os.path.join(BUILT, "sid")
SSHD = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
AcceptEnv GIT_PROTOCOL
"""
SSH = """
Host {host}
HostName 127.0.0.1
Port {port}
User {user}
IdentityFile {folder}/{host}
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
HostKeyAlias weir-clients
"""


def system(work):
    return Git(run("git", "version").removeprefix("git version "), os.path.join(work, "home"))


def newest(work):
    """Returns git from Debian sid, in a chroot that is rebuilt each month."""
    need("debootstrap", "chroot")
    done = os.path.join(CHROOT, "done")
    if not os.path.exists(done) or time.time() - os.path.getmtime(done) > 30 * 86400:
        if os.getuid() != 0:
            raise Skipped("only root can install Debian sid in a folder")
        shutil.rmtree(CHROOT, ignore_errors=True)
        targets = run(
            "apt-get", "indextargets", "--format", "$(ORIGIN) $(SITE)", "Created-By: Packages"
        ).splitlines()
        sites = [line.split()[1] for line in targets if line.startswith("Debian ")]
        if not sites:
            raise Skipped("this system has no packages of Debian's")
        install("debootstrap", "--variant=minbase", "--include=git,openssh-client", "sid", CHROOT, sites[0])
        with open(done, "w"):
            pass
    home = os.path.join(CHROOT, "tmp", os.path.basename(work))
    client = Git("", home, CHROOT)
    client.name = client(home, "version").strip().removeprefix("git version ")
    return client


CLIENTS = {"git": system, "git of Debian sid": newest}


@contextlib.contextmanager
def sshd(folder, pool):
    """Starts an sshd with two keys.

    One key may run nothing but "weir shell". The other may run anything: it is for git's own upload-pack."""
    need("/usr/sbin/sshd", "ssh-keygen")
    os.makedirs(folder)
    for key in ("host", "weir", "stock"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{key}")
    public = {key: open(f"{folder}/{key}.pub").read() for key in ("host", "weir", "stock")}
    with open(f"{folder}/authorized_keys", "w") as f:
        f.write(
            f'restrict,command="{shlex.quote(WEIR)} --pool {shlex.quote(pool.folder)} shell" '
            f'{public["weir"]}restrict {public["stock"]}'
        )
    with open(f"{folder}/known_hosts", "w") as f:
        f.write(f"weir-clients {public['host']}")
    number = port()
    with open(f"{folder}/sshd_config", "w") as f:
        f.write(SSHD.format(port=number, folder=folder))
    if os.getuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    with process(["/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/sshd_config"], [number], f"{folder}/log"):
        yield number


def use_ssh(client, folder, number):
    """Gives a git the keys, in a place that it can read."""
    place = os.path.join(client.home, "ssh")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    with open(f"{place}/config", "w") as f:
        for host in ("weir", "stock"):
            f.write(SSH.format(host=host, port=number, user=getpass.getuser(), folder=client.inside(place)))
    client.more["GIT_SSH_COMMAND"] = f"ssh -F {client.inside(place)}/config"


def table(out, work, wanted):
    upstream = new_upstream(os.path.join(work, "stock.git"))
    history(upstream)
    pool = Pool(os.path.join(work, "stock-pool"), upstream)
    out.begin("git", "over", "protocol", *COLUMNS)
    keys = os.path.join(work, "ssh")
    with stock(work, upstream) as stock_urls, contextlib.ExitStack() as stack:
        try:
            ssh_port = stack.enter_context(sshd(keys, pool))
        except Skipped as e:
            ssh_port, why = None, str(e)

        @contextlib.contextmanager
        def shell():
            shutil.rmtree(pool.scratch)
            os.makedirs(pool.scratch)
            yield "ssh://weir/it"

        for name in wanted:
            try:
                client = CLIENTS[name](work)
            except Skipped as e:
                out.row([name, "git, http, ssh", "0, 1, 2"], [f"skipped: {e}", *["-"] * (len(COLUMNS) - 1)])
                continue
            try:
                for scheme in ("git", "http", "ssh"):
                    if scheme == "ssh" and not ssh_port:
                        out.row(
                            [client.name, scheme, "0, 1, 2"], [f"skipped: {why}", *["-"] * (len(COLUMNS) - 1)]
                        )
                        continue
                    if scheme == "ssh":
                        use_ssh(client, keys, ssh_port)

                    @contextlib.contextmanager
                    def serve():
                        with pool.serve() as urls:
                            yield urls[scheme]

                    for version in "012":
                        client.more.update(
                            GIT_CONFIG_COUNT="1",
                            GIT_CONFIG_KEY_0="protocol.version",
                            GIT_CONFIG_VALUE_0=version,
                        )
                        place = os.path.join(client.home, f"{scheme}-{version}")
                        fresh, stock_url = (
                            (shell, f"ssh://stock{upstream}")
                            if scheme == "ssh"
                            else (serve, stock_urls[scheme])
                        )
                        out.row(
                            [client.name, scheme, f"v{version}"],
                            list(cells(client, place, pool, fresh, stock_url)),
                        )
                        shutil.rmtree(place, ignore_errors=True)
            finally:
                shutil.rmtree(client.home, ignore_errors=True)
