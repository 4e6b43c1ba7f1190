#!/usr/bin/env python3
"""Two hosts that share a pool on NFS: nfs.py [ROUNDS].

Boots the distribution's kernel in qemu (QEMU_ACCEL=kvm for speed) over this machine's own files, read only.
In the machine, a kernel NFS server exports a store. Two network namespaces, each with a host name, mount the
store with NFS 4.2; one PostgreSQL has their catalog. In each round, both hosts mirror, compact, share, check
or restore at once while upstreams change. In most rounds one host's weir is killed, or the host loses its
network for longer than the server keeps its locks. Afterwards no state that one of them had logged is gone
or changed, 'weir fsck' is content on both, and both serve what upstream has. Prints a line for each tenth
round; fails at the first difference.
"""

import glob
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEIR = os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir"))
BUILT = os.path.join(ROOT, "target", "nfs")
# In the kernel's own image, or needed before its other modules can be read.
EARLY = ["virtio_pci", "9pnet_virtio", "9p", "overlay"]
SERVER, LEASE = "10.9.0.1", 10
NAMES = ["u0", "u1", "u2", "u3", "fork"]


def run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}{done.stdout}")
    return done.stdout


# --- outside


def kernel():
    """A folder with the distribution's newest kernel and its modules."""
    found = glob.glob(f"{BUILT}/root/boot/vmlinuz-*")
    if not found:
        os.makedirs(BUILT, exist_ok=True)
        depends = run("apt-cache", "depends", "linux-image-amd64")
        package = next(
            word
            for word in depends.split()
            if word.startswith("linux-image-") and word != "linux-image-amd64"
        )
        run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package, cwd=BUILT)
        run("dpkg", "-x", glob.glob(f"{BUILT}/{package}_*.deb")[0], f"{BUILT}/root")
        found = glob.glob(f"{BUILT}/root/boot/vmlinuz-*")
    version = os.path.basename(found[0]).removeprefix("vmlinuz-")
    if not os.path.exists(f"{BUILT}/root/lib/modules/{version}/modules.dep"):
        run("depmod", "-b", f"{BUILT}/root", version)
    return found[0], version


def first_files(work, version, rounds):
    """An initial file system that puts a layer of memory over this machine's files, and goes on there."""
    modules, ordered = f"{BUILT}/root/lib/modules/{version}", []
    needs = {}
    for line in open(f"{modules}/modules.dep"):
        name, _, rest = line.partition(":")
        needs[name] = rest.split()
    for name in EARLY:
        found = [path for path in needs if os.path.basename(path) == f"{name}.ko"]
        for path in [*reversed(needs[found[0]]), found[0]] if found else []:
            if path not in ordered:
                ordered.append(path)
    top = os.path.join(work, "first")
    for folder in ["bin", "modules", "host", "layer", "new", "dev", "proc"]:
        os.makedirs(os.path.join(top, folder))
    shutil.copy(shutil.which("busybox"), f"{top}/bin/busybox")
    for path in ordered:
        shutil.copy(f"{modules}/{path}", f"{top}/modules")
    settings = (
        f"HOME=/root PATH={os.environ['PATH']}:/usr/sbin:/sbin WEIR={shlex.quote(WEIR)} WEIR_SEED={seed()}"
    )
    then = (
        f"env {settings} python3 {os.path.abspath(__file__)} --inside {rounds}; "
        'echo "ended: $?"; busybox poweroff -f'
    )
    lines = [
        "#!/bin/busybox sh",
        "/bin/busybox --install -s /bin",
        "export PATH=/bin",
        "mount -t devtmpfs dev /dev",
        "mount -t proc proc /proc",
        *(f"insmod /modules/{os.path.basename(path)}" for path in ordered),
        "mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /host",
        "mount -t tmpfs -o size=6g layer /layer",
        "mkdir /layer/upper /layer/work",
        "mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /new",
        "for d in dev proc sys tmp run; do mkdir -p /new/$d; done",
        "mount -t devtmpfs dev /new/dev",
        "mount -t proc proc /new/proc",
        "mount -t sysfs sys /new/sys",
        "mount -t tmpfs -o size=4g,mode=1777 tmp /new/tmp",
        "mount -t tmpfs run /new/run",
        "mkdir -p /new/dev/shm /new/dev/pts",
        "mount -t tmpfs -o mode=1777 shm /new/dev/shm",
        "mount -t devpts pts /new/dev/pts",
        f"mkdir -p /new/lib/modules && ln -sfn {modules} /new/lib/modules/{version}",
        # Not a chroot: the kernel looks for modprobe where this process is.
        f"exec switch_root /new /bin/sh -c {shlex.quote(then)}",
    ]
    with open(f"{top}/init", "w") as f:
        f.write("\n".join(lines) + "\n")
    os.chmod(f"{top}/init", 0o755)
    run("sh", "-c", f"find . | cpio -o -H newc --quiet > {shlex.quote(work)}/initrd", cwd=top)
    return os.path.join(work, "initrd")


def seed():
    return int(os.environ.get("WEIR_SEED") or time.time_ns() % 1_000_000)


def outside(rounds):
    image, version = kernel()
    with tempfile.TemporaryDirectory(prefix="weir-nfs-") as work:
        disk = os.path.join(work, "disk")
        run("truncate", "-s", "4G", disk)
        run("mke2fs", "-q", "-t", "ext4", disk)
        # The machine is emulated by default: where KVM is there inside another one, it mostly does not work.
        fast = ["-accel", os.environ.get("QEMU_ACCEL", "tcg,thread=multi"), "-cpu", "max"]
        machine = subprocess.Popen(
            [
                "qemu-system-x86_64",
                *fast,
                "-m",
                "6144",
                "-smp",
                "2",
                "-nographic",
                "-no-reboot",
                "-nic",
                "none",
                "-kernel",
                image,
                "-initrd",
                first_files(work, version, rounds),
                "-append",
                "console=ttyS0 panic=-1 quiet loglevel=3",
                "-drive",
                f"file={disk},format=raw,if=virtio,cache=writeback",
                "-virtfs",
                "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        result = None
        for line in machine.stdout:
            print(line.rstrip(), flush=True)
            if line.startswith("ended: "):
                result = int(line.split()[1])
        machine.wait()
    sys.exit(1 if result is None else result)


# --- inside


class Host:
    """A network, a host name and mounts of its own."""

    def __init__(self, name, number):
        self.name, self.address = name, f"10.9.0.{number}"
        self.holder = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "sleep", "infinity"])
        time.sleep(0.3)
        run(
            "ip",
            "link",
            "add",
            f"to-{name}",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(self.holder.pid),
        )
        run("ip", "link", "set", f"to-{name}", "master", "bridge0", "up")
        self.sh("hostname", name)
        self.sh("ip", "link", "set", "lo", "up")
        self.sh("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.sh("ip", "link", "set", "eth0", "up")
        os.makedirs("/srv/store", exist_ok=True)
        self.sh("mount", "-t", "nfs4", "-o", "vers=4.2,hard,timeo=50", f"{SERVER}:/", "/srv/store")
        self.pool = f"/tmp/{name}"
        os.makedirs(self.pool)
        os.makedirs(f"/tmp/{name}-shm")
        self.sh("mkdir", "-p", "/srv/store/archives")
        os.symlink("/srv/store/archives", f"{self.pool}/store")

    def command(self, *command):
        return ["nsenter", "-t", str(self.holder.pid), "-n", "-u", "-m", *command]

    def sh(self, *command):
        return run(*self.command(*command))

    def weir(self, *args):
        return self.sh(WEIR, "--pool", self.pool, *args)

    def start(self, args, out):
        return subprocess.Popen(
            self.command(WEIR, "--pool", self.pool, *args), stdout=out, stderr=out, start_new_session=True
        )

    def network(self, up):
        run("ip", "link", "set", f"to-{self.name}", "up" if up else "down")


def postgres():
    folder = "/tmp/postgres"
    os.makedirs(folder)
    shutil.chown(folder, "postgres", "postgres")
    binaries = os.path.dirname(
        max(glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=lambda p: int(p.split("/")[4]))
    )
    as_it = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    run(
        *as_it,
        f"{binaries}/initdb",
        "--username=weir",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "-D",
        f"{folder}/data",
        cwd="/",
    )
    with open(f"{folder}/data/pg_hba.conf", "a") as f:
        f.write("host all all 10.9.0.0/24 trust\n")
    # One that is gone with its network is not waited for.
    settings = [
        "-c",
        f"listen_addresses={SERVER}",
        "-c",
        "tcp_keepalives_idle=2",
        "-c",
        "tcp_keepalives_interval=1",
    ]
    log = open("/tmp/postgres.log", "w")
    subprocess.Popen(
        [*as_it, f"{binaries}/postgres", "-D", f"{folder}/data", "-k", folder, *settings],
        cwd="/",
        stdout=log,
        stderr=log,
    )
    for _ in range(100):
        if os.path.exists(f"{folder}/.s.PGSQL.5432"):
            return f"postgres://weir@{SERVER}/postgres"
        time.sleep(0.1)
    raise SystemExit(open("/tmp/postgres.log").read())


def export():
    """The NFS server, with a short memory for clients that are gone."""
    os.makedirs("/srv/export")
    run("modprobe", "virtio_blk")
    while not os.path.exists("/dev/vda"):
        time.sleep(0.1)
    run("mount", "-t", "ext4", "/dev/vda", "/srv/export")
    shutil.rmtree("/srv/export/lost+found")
    for module in ["veth", "bridge", "nfsd", "nfsv4"]:
        run("modprobe", module)
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "bridge0", "type", "bridge")
    run("ip", "address", "add", f"{SERVER}/24", "dev", "bridge0")
    run("ip", "link", "set", "bridge0", "up")
    if not os.path.exists("/proc/fs/nfsd/versions"):
        run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    os.makedirs("/var/lib/nfs/v4recovery", exist_ok=True)
    for what in ["nfsv4leasetime", "nfsv4gracetime"]:
        with open(f"/proc/fs/nfsd/{what}", "w") as f:
            f.write(f"{LEASE}\n")
    run("exportfs", "-o", "rw,sync,no_root_squash,no_subtree_check,fsid=0", "*:/srv/export")
    subprocess.Popen(
        ["rpc.mountd", "-F", "-N", "3", "-u"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    run("rpc.nfsd", "-N", "3", "-U", "8")
    time.sleep(LEASE + 1)  # its grace


def states(host):
    all_states = {}
    for name in NAMES:
        for state in json.loads(host.weir("--json", "log", name)):
            if not state["partial"]:
                all_states[name, state["seq"]] = json.dumps(state["changes"], sort_keys=True)
    return all_states


def upstreams():
    folder = "/tmp/up"
    os.makedirs(folder)
    for name in NAMES[:4]:
        run("git", "init", "-q", "--bare", "-b", "main", f"{folder}/{name}.git")
    run("git", "config", "--global", "user.name", "a")
    run("git", "config", "--global", "user.email", "a@example.com")
    run("git", "config", "--global", "safe.directory", "*")
    for name in NAMES[:4]:
        for _ in range(3):
            change(f"{folder}/{name}.git", "main", 0)
    run("git", "clone", "-q", "--mirror", f"{folder}/u0.git", f"{folder}/fork.git")
    subprocess.Popen(
        [
            "git",
            "daemon",
            "--reuseaddr",
            f"--listen={SERVER}",
            "--export-all",
            f"--base-path={folder}",
            "--informative-errors",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return folder


def change(repository, branch, size):
    """A commit with one new file, of `size` bytes that do not compress, on `branch`."""

    def git(*args, **more):
        return run("git", "-C", repository, *args, **more).strip()

    with open("/tmp/file", "wb") as f:
        f.write(os.urandom(size + 40))
    blob = git("hash-object", "-w", "/tmp/file")
    tip = subprocess.run(
        ["git", "-C", repository, "rev-parse", "-q", "--verify", f"refs/heads/{branch}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    before = git("ls-tree", tip.stdout.strip()) + "\n" if tip.returncode == 0 else ""
    tree = git("mktree", input=f"{before}100644 blob {blob}\tf{time.time_ns()}\n")
    parents = ["-p", tip.stdout.strip()] if tip.returncode == 0 else []
    git("update-ref", f"refs/heads/{branch}", git("commit-tree", tree, "-m", "change", *parents))


def follow(choose, folder):
    for name in NAMES:
        repository = f"{folder}/{name}.git"
        change(
            repository, choose.choice(["main", "main", "other", "third"]), choose.choice([0, 3000, 300_000])
        )
        if choose.random() < 0.2:
            run("git", "-C", repository, "update-ref", "-d", "refs/heads/third")
        if choose.random() < 0.2:
            run("git", "-C", repository, "update-ref", "refs/heads/other", "refs/heads/main^")


def same(host, folder):
    """Both are asked over git://, each by its own host."""
    port = 9500
    served = host.start(["-q", "serve", "--git", f"127.0.0.1:{port}"], subprocess.DEVNULL)
    try:
        for name in NAMES:
            ours = None
            for _ in range(50):
                asked = subprocess.run(
                    host.command("git", "ls-remote", f"git://127.0.0.1:{port}/{name}"),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                if asked.returncode == 0:
                    ours = asked.stdout
                    break
                time.sleep(0.1)
            theirs = run("git", "ls-remote", f"{folder}/{name}.git")
            if ours != theirs:
                raise SystemExit(f"{host.name} serves {name} as\n{ours}and upstream has\n{theirs}")
            clone = f"/tmp/clone-{host.name}"
            shutil.rmtree(clone, ignore_errors=True)
            host.sh(
                "git",
                "-c",
                "fetch.fsckObjects=true",
                "clone",
                "-q",
                "--mirror",
                f"git://127.0.0.1:{port}/{name}",
                clone,
            )
            run("git", "-C", clone, "fsck", "--full", "--strict")
    finally:
        os.killpg(served.pid, signal.SIGTERM)
        served.wait()


def inside(rounds):
    choose = random.Random(int(os.environ["WEIR_SEED"]))
    print(f"WEIR_SEED={os.environ['WEIR_SEED']}, kernel {os.uname().release}", flush=True)
    export()
    url = postgres()
    folder = upstreams()
    hosts = [Host("a", 2), Host("b", 3)]
    for host in hosts:
        host.weir("init", "--catalog", url)
        with open(f"{host.pool}/weir.toml") as f:
            settings = f.read()
        for section, lines in {
            "archive": "packs_max = 4",
            "mirror": 'lease = "8s"\nthrottle_window = 100000',
        }.items():
            settings = settings.replace(f"\n[{section}]\n", f"\n[{section}]\n{lines}\n")
        with open(f"{host.pool}/weir.toml", "w") as f:
            f.write(settings)
    for name in NAMES[:4]:
        hosts[0].weir("add", "--name", name, f"git://{SERVER}/{name}.git")
    hosts[0].weir("mirror")
    hosts[1].weir("add", "--reference", "u0", "--name", "fork", f"git://{SERVER}/fork.git")
    hosts[1].weir("mirror")
    print(f"mount: {hosts[0].sh('grep', ' /srv/store ', '/proc/self/mounts').strip()}", flush=True)
    before, counts = states(hosts[0]), {"killed": 0, "cut off": 0, "whole": 0}
    for number in range(rounds):
        follow(choose, folder)
        working, said = [], open("/tmp/said", "w+")
        for host in hosts:
            name = choose.choice(NAMES)
            old = choose.choice([seq for of, seq in before if of == name])
            args = choose.choice(
                [
                    ["compact"],
                    ["restore", f"{name}@{old}"],
                    ["dissociate", "fork"],
                    ["share", "--reference", "u0", "fork"],
                    ["fsck", "--repair"],
                    *[["mirror", "--all"]] * 6,
                    *[["mirror", name]] * 3,
                ]
            )
            working.append((host, args, host.start(args, said)))
        time.sleep(choose.random() * 0.4)
        host, args, process = choose.choice(working)
        fate = choose.choices(["killed", "cut off", "whole"], [5, 2 if number % 3 == 0 else 0, 3])[0]
        counts[fate] += 1
        if fate == "killed":
            os.killpg(process.pid, signal.SIGKILL)
        elif fate == "cut off":
            host.network(False)
            # Its locks are given to others meanwhile: the other host goes on where it was.
            time.sleep(choose.choice([1, LEASE * 2 + 2]))
            other = next(one for one in hosts if one is not host)
            for _ in range(3):
                follow(choose, folder)
                subprocess.run(
                    other.command("timeout", "60", WEIR, "--pool", other.pool, "mirror", "--all"),
                    stdout=said,
                    stderr=said,
                )
            host.network(True)
        what = f"round {number}, {fate} {host.name}, {[(h.name, *a) for h, a, _ in working]}"
        for host, args, process in working:
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                said.seek(0)
                raise SystemExit(f"{what}: {host.name} still has not ended\n{said.read()}")
        for host in hosts:
            checked = subprocess.run(
                host.command(WEIR, "--pool", host.pool, "fsck"),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if checked.returncode:
                said.seek(0)
                raise SystemExit(f"{what}: {host.name}: {checked.stdout}\n{said.read()}")
            after = states(host)
            for state, changes in before.items():
                if after.get(state) != changes:
                    said.seek(0)
                    raise SystemExit(
                        f"{what}: {host.name}: {state} was\n{changes}\nand is\n"
                        f"{after.get(state)}\n{said.read()}"
                    )
            before = after
        if (number + 1) % 10 == 0:
            print(f"{number + 1} rounds, {counts}, {len(before)} states", flush=True)
    # What was restored, or waits after a failure, follows upstream again.
    for name in NAMES:
        hosts[0].weir("mirror", name)
    for host in hosts:
        same(host, folder)
    strange = [name for name in os.listdir("/srv/export/archives") if ".torn" in name or ".damaged" in name]
    if strange:
        raise SystemExit(f"put aside: {strange}")
    print(f"{rounds} rounds: no state lost, both hosts serve what upstream has")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(int(sys.argv[2]))
    else:
        outside(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
