"""git itself over OpenSSH, plainly and by gitolite, and the newest git's daemon with reftable."""

import getpass
import os
import platform
import shutil

from common import BUILT, Refused, Unavailable, Upstream, need, port, run, words


class Sshd:
    """An sshd that lets the user of this process in, with one key.

    A protocol version gets through only if sshd accepts the environment variable GIT_PROTOCOL."""

    def __init__(self, place, keys=None, home=None):
        self.place = place
        self.key = os.path.join(place.folder, "key")
        keygen = need("ssh-keygen", "openssh-client")
        for key in (self.key, os.path.join(place.folder, "host")):
            if not os.path.exists(key):
                run(keygen, "-q", "-t", "ed25519", "-N", "", "-f", key)
        self.keys = keys or f"{self.key}.pub"
        self.home = home
        with open(os.path.join(place.folder, "host.pub")) as f:
            self.host_key = " ".join(f.read().split()[:2])
        self.known = []

    def start(self, version):
        """The start of URLs."""
        number, user = port(), getpass.getuser()
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        lines = [
            "ListenAddress 127.0.0.1",
            f"Port {number}",
            f"HostKey {self.place.folder}/host",
            f"PidFile {self.place.folder}/sshd-{number}.pid",
        ]
        lines += [
            f"AuthorizedKeysFile {self.keys}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin yes",
        ]
        lines += ["AcceptEnv GIT_PROTOCOL"] if version == 2 else []
        lines += [f"SetEnv HOME={self.home}"] if self.home else []
        config = self.place.write(f"sshd-{number}", "\n".join(lines) + "\n")
        self.place.start(need("sshd", "openssh-server"), "-D", "-e", "-f", config, ready=number)
        self.known.append(f"[127.0.0.1]:{number} {self.host_key}\n")
        self.place.write("known", "".join(self.known))
        return f"ssh://{user}@127.0.0.1:{number}"

    def environment(self):
        options = (
            f"-i {self.key} -o IdentitiesOnly=yes -o BatchMode=yes "
            f"-o UserKnownHostsFile={self.place.folder}/known"
        )
        return {"GIT_SSH_COMMAND": f"ssh -F none {options}"}


def openssh(place):
    sshd = Sshd(place)
    place.create()
    rows = []
    for version in (2, 0):
        url = sshd.start(version) + place.repositories
        rows.append(
            Upstream(
                f"OpenSSH, v{version}",
                f"{url}/it.git",
                f"{url}/missing.git",
                protocol=version,
                env=sshd.environment(),
            )
        )
    return rows


def gitolite(place):
    program = need("gitolite", "gitolite3")
    home = os.path.join(place.folder, "home")
    os.makedirs(home)
    environment = {**os.environ, "HOME": home}
    sshd = Sshd(place, os.path.join(home, ".ssh", "authorized_keys"), home)
    shutil.copy(f"{sshd.key}.pub", os.path.join(place.folder, "tester.pub"))
    run(program, "setup", "-pk", os.path.join(place.folder, "tester.pub"), env=environment)
    with open(os.path.join(home, ".gitolite", "conf", "gitolite.conf"), "a") as f:
        f.write("\nrepo it\n    R = tester\nrepo secret\n    R = another\n")
    run(program, "compile", env=environment)
    run(program, "trigger", "POST_COMPILE", env=environment)
    place.repository = os.path.join(home, "repositories", "it.git")
    for state in place.states:
        shutil.copy(state, os.path.dirname(place.repository))
    place.fill(0)
    rows = []
    for version in (2, 0):
        url = sshd.start(version)
        # It says the same of what there is not and of what one may not have.
        row = Upstream(
            f"gitolite, v{version}",
            f"{url}/it",
            f"{url}/missing",
            "forbidden",
            protocol=version,
            env=sshd.environment(),
        )
        row.refused = [Refused("denied", f"{url}/secret", "forbidden")]
        rows.append(row)
    return rows


def newest_git(place):
    """git daemon of Debian's unstable distribution, in a folder of its own, with a reftable repository."""
    root = os.path.join(BUILT, "sid")
    if os.geteuid() != 0 or platform.system() != "Linux":
        raise Unavailable("only root can make and enter a folder with Debian's unstable distribution")
    if not os.path.exists(os.path.join(root, "usr", "bin", "git")):
        shutil.rmtree(root, ignore_errors=True)
        try:
            run(need("debootstrap"), "--variant=minbase", "--include=git", "sid", root, timeout=1800)
        except Exception as e:
            shutil.rmtree(root, ignore_errors=True)
            raise Unavailable(f"Debian's unstable distribution cannot be installed: {words(e)}") from e
    inside = os.path.join("/srv", os.path.basename(os.path.dirname(place.folder)))
    # The repository lies in there for the time of the test; the place's own folder has the logs.
    outside = root + inside
    os.makedirs(outside)
    place.cleanup.append(outside)
    enter = [need("chroot", "coreutils"), root, "env", f"HOME={inside}", "git"]
    place.git = lambda *args, **more: run(*enter, "-C", f"{inside}/it.git", *args, **more)
    place.repository = f"{outside}/it.git"
    for state in place.states:
        shutil.copy(state, outside)
    run(*enter, "init", "-q", "--bare", "-b", "main", "--ref-format=reftable", f"{inside}/it.git")
    place.fill(0)
    number = port()
    place.start(
        *enter,
        "daemon",
        "--export-all",
        "--reuseaddr",
        f"--base-path={inside}",
        "--listen=127.0.0.1",
        f"--port={number}",
        ready=number,
    )
    version = run(*enter, "version").split()[-1]
    url = f"git://127.0.0.1:{number}"
    return [Upstream(f"git daemon {version}, reftable", f"{url}/it.git", f"{url}/missing.git", protocol=2)]
