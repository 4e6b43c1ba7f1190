//! A block that the disk cannot read, and a file that is cut short while it is served: each costs a request,
//! but not the server, and is repaired.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Env, Http, Rng, pkt};

/// Makes a repository of two commits with files of `len` bytes that do not compress.
fn repository(env: &Env, name: &str, len: usize) -> PathBuf {
    let path = env.init_bare(name);
    for n in 0..2 {
        add(env, &path, n, len);
    }
    path
}

fn add(env: &Env, path: &Path, n: u64, len: usize) {
    env.commit_file(path, "refs/heads/main", &format!("f{n}"), &Rng(n * 77 + 5).bytes(len));
}

/// Connects as a client that lists the refs of `name`, and so holds the repository open; returns the tip,
/// too.
fn listed(port: u16, name: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(pkt(&format!("git-upload-pack /{name}\0host=x\0\0version=2\0")).as_bytes()).unwrap();
    let read = |stream: &mut TcpStream| {
        let mut all = Vec::new();
        while !all.ends_with(b"0000") {
            let mut part = [0; 4096];
            let n = stream.read(&mut part).unwrap();
            assert!(n > 0, "{}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&part[..n]);
        }
        String::from_utf8_lossy(&all).into_owned()
    };
    read(&mut stream);
    stream
        .write_all(
            format!("{}0001{}0000", pkt("command=ls-refs\n"), pkt("ref-prefix refs/heads/\n")).as_bytes(),
        )
        .unwrap();
    let refs = read(&mut stream);
    let line = refs.split('\n').find(|line| line.contains("refs/heads/main")).unwrap();
    (stream, line[4..44].to_owned())
}

#[test]
fn an_archive_that_is_cut_short_under_a_client_costs_that_client() {
    let env = Env::new();
    let (a, b) = (repository(&env, "a.git", 900_000), repository(&env, "b.git", 1000));
    env.weir(&["add", "--name", "a", a.to_str().unwrap()]);
    env.weir(&["add", "--name", "b", b.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let mut server = Http::serve(&env, &[]);
    let archive = env.pool().join("store/a.tar");
    for deepen in ["deepen 1\n", ""] {
        let (mut client, tip) = listed(server.1, "a");
        let len = std::fs::metadata(&archive).unwrap().len();
        File::options().write(true).open(&archive).unwrap().set_len(len / 3).unwrap();
        let more = if deepen.is_empty() { String::new() } else { pkt(deepen) };
        let ask = format!(
            "{}0001{}{more}{}0000",
            pkt("command=fetch\n"),
            pkt(&format!("want {tip}\n")),
            pkt("done\n")
        );
        client.write_all(ask.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        assert!(server.0.child.try_wait().unwrap().is_none(), "the server is there");
        env.git(
            env.dir.path(),
            &["clone", "-q", "--bare", &server.git_url("b"), &format!("b{}.copy", deepen.len())],
        );
        // The next visit finds the damage by itself, and what is served is whole again.
        let said = env.weir(&["mirror", "--all"]);
        assert!(said.contains("damaged"), "{said}");
        let copy = format!("a{}.copy", deepen.len());
        env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.git_url("a"), &copy]);
        assert_eq!(env.picture(&env.path(&copy)), env.picture(&a));
    }
    env.weir(&["fsck"]);
}

/// A disk that cannot read anything from some block on.
struct BadDisk {
    mount: PathBuf,
    device: String,
}

impl Drop for BadDisk {
    fn drop(&mut self) {
        let _ = weir_testing::command("umount").arg("-l").arg(&self.mount).status();
        let _ = weir_testing::command("losetup").arg("-d").arg(&self.device).status();
    }
}

fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = weir_testing::command(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the extents of the file: where each begins in the file and on the disk, in blocks.
fn blocks(path: &Path) -> Vec<(u64, u64)> {
    let listed = run("filefrag", &["-v", path.to_str().unwrap()]).unwrap_or_default();
    let number = |word: &str| word.trim_end_matches(['.', ':']).parse::<u64>().ok();
    let extents = listed.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let n = words.first()?.strip_suffix(':')?.parse::<u64>().ok();
        n?;
        Some((number(words.get(1)?)?, number(words.get(3)?)?))
    });
    extents.collect()
}

/// Mounts a disk of `bytes` at `mount`; `None` where this machine has no such devices.
fn disk(env: &Env, mount: &Path, bytes: u64) -> Option<BadDisk> {
    let image = env.path("image");
    File::create(&image).unwrap().set_len(bytes).unwrap();
    run("mkfs.ext2", &["-q", "-b", "4096", "-m", "0", "-N", "128", image.to_str()?])?;
    let device = run("losetup", &["-f", "--show", image.to_str()?])?;
    std::fs::create_dir_all(mount).unwrap();
    if run("mount", &[&device, mount.to_str()?]).is_none() {
        run("losetup", &["-d", &device]);
        return None;
    }
    Some(BadDisk { mount: mount.to_owned(), device })
}

/// Fills the disk at `mount` with files of 1 MiB; their numbers go on from `count`.
fn fill(mount: &Path, count: &mut u64) {
    loop {
        let path = mount.join(format!("fill{count}"));
        *count += 1;
        if std::fs::write(&path, vec![7; 1 << 20]).and_then(|()| File::open(&path)?.sync_all()).is_err() {
            return;
        }
    }
}

/// Writes the file at `path` again so that a part of it, between `from` and `to`, lies behind everything else
/// on the disk. Returns the block on the disk where that part begins; `None` if the file system has put it
/// elsewhere.
///
/// The file system chooses where a file lies, by the process that writes it, too. So the disk is full, with
/// room only where the next part belongs: first at its front, then behind.
fn lay_out(path: &Path, mount: &Path, from: u64, to: u64) -> Option<u64> {
    let data = std::fs::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    let mut count = 0;
    fill(mount, &mut count);
    let name = |n: u64| mount.join(format!("fill{n}"));
    let lies: Vec<(u64, u64, u64)> = (0..count)
        .filter_map(|n| {
            let begins = || blocks(&name(n)).into_iter().map(|(_, physical)| physical);
            Some((begins().min()?, begins().max()?, n))
        })
        .collect();
    let (behind, _, last) = *lies.iter().max().unwrap();
    let before = lies.iter().filter(|(_, end, _)| *end < behind);
    for (.., n) in before.take(data.len().div_ceil(1 << 20) + 1) {
        std::fs::remove_file(name(*n)).unwrap();
    }
    run("sync", &[]).unwrap();
    let file = File::create(path).unwrap();
    let write = |from: u64, to: u64| {
        file.write_all_at(&data[from as usize..to as usize], from).unwrap();
        file.sync_all().unwrap();
    };
    write(0, from);
    write(to, data.len() as u64);
    fill(mount, &mut count);
    std::fs::remove_file(name(last)).unwrap();
    run("sync", &[]).unwrap();
    write(from, to);
    let found = blocks(path).into_iter().max_by_key(|(_, physical)| *physical);
    for n in 0..count {
        let _ = std::fs::remove_file(name(n));
    }
    run("sync", &[]).unwrap();
    let (logical, physical) = found.unwrap();
    (from / 4096..to / 4096).contains(&logical).then_some(physical)
}

#[test]
fn a_block_that_cannot_be_read() {
    let env = Env::new();
    let mount = env.pool().join("store/bad");
    let Some(disk) = disk(&env, &mount, 64 << 20) else {
        weir_testing::skip("loop", "this machine lets no loop device be mounted");
        return;
    };
    let (a, b) = (repository(&env, "a.git", 900_000), repository(&env, "b.git", 1000));
    env.weir(&["add", "--name", "bad/a", a.to_str().unwrap()]);
    env.weir(&["add", "--name", "b", b.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let archive = mount.join("a.tar");
    // A block somewhere in the pack, with nothing else of the disk behind it.
    let block = (0..8).find_map(|_| lay_out(&archive, &mount, 400 << 10, 800 << 10));
    let block = block.expect("a file whose middle lies behind all else");
    // Unmounting makes sure that the file is read from the disk, not from memory.
    run("umount", &[mount.to_str().unwrap()]).unwrap();
    File::options().write(true).open(env.path("image")).unwrap().set_len(block * 4096).unwrap();
    run("losetup", &["-c", &disk.device]);
    if run("mount", &[&disk.device, mount.to_str().unwrap()]).is_none() {
        // The file system checks the size of the device. So it is mounted whole, and the image is cut
        // afterwards.
        File::options().write(true).open(env.path("image")).unwrap().set_len(64 << 20).unwrap();
        run("losetup", &["-c", &disk.device]);
        run("mount", &[&disk.device, mount.to_str().unwrap()]).unwrap();
        File::options().write(true).open(env.path("image")).unwrap().set_len(block * 4096).unwrap();
    }
    let is_bad = std::fs::read(&archive).is_err_and(|e| e.raw_os_error() == Some(5));
    assert!(is_bad, "the disk reads everything");
    let mut server = Http::serve(&env, &[]);
    for (n, args) in
        [&["--bare"][..], &["--bare", "--depth=1"], &["--bare", "--filter=blob:none"]].into_iter().enumerate()
    {
        for url in [server.git_url("bad/a"), server.url("bad/a")] {
            let target = format!("copy{n}");
            let mut command = vec!["clone", "-q"];
            command.extend(args);
            command.extend([url.as_str(), target.as_str()]);
            let _ = env.git_command(env.dir.path(), &command).output().unwrap();
            let _ = std::fs::remove_dir_all(env.path(&target));
            assert!(server.0.child.try_wait().unwrap().is_none(), "{args:?} of {url}: the server is gone");
        }
    }
    env.git(env.dir.path(), &["clone", "-q", "--bare", &server.git_url("b"), "b.copy"]);
    let said = env.weir_fails(&["compact", "bad/a"]);
    assert!(said.contains("not compacted"), "{said}");
    let said = env.weir_fails(&["fsck"]);
    assert!(said.contains("cannot be read"), "{said}");
    // The good part of the disk has room.
    add(&env, &a, 9, 1000);
    let said = env.weir(&["mirror", "--all"]);
    assert!(said.contains("damaged"), "{said}");
    env.weir(&["fsck"]);
    env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.git_url("bad/a"), "a.copy"]);
    assert_eq!(env.picture(&env.path("a.copy")), env.picture(&a));
}
