//! Shared parts of the tests of the program: a pool in a temporary folder, stock git with a fixed
//! environment, and servers on free ports of loopback that end with the test.
pub mod forge;
pub mod lfs;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use weir_testing::{command, free_port, short_command, wait_for_port, wait_until};

/// A folder for one test, with a pool in it.
pub struct Env {
    pub dir: tempfile::TempDir,
}

/// A server process that ends when dropped.
pub struct Server {
    pub child: Child,
    pub port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn url(&self, path: &str) -> String {
        format!("git://127.0.0.1:{}/{path}", self.port)
    }

    /// Returns whether the server has clients, and has read all that they sent (the queues in
    /// proc_net_tcp(5)).
    pub fn has_read_all(&self) -> bool {
        let port = format!(":{:04X}", self.port);
        let tcp = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let connections: Vec<Vec<&str>> = tcp
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|fields| fields[1].ends_with(&port) && fields[3] == "01")
            .collect();
        !connections.is_empty() && connections.iter().all(|fields| fields[4].ends_with(":00000000"))
    }
}

/// Waits until the first byte of an answer has arrived, without reading it.
pub fn wait_for_answer(stream: &TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(stream.peek(&mut [0]).unwrap() > 0, "no answer, but the end");
}

/// SHA-256 of the token "open sesame".
pub const OPEN_SESAME: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";

/// A server of the pool over HTTP, and the port at which it serves git://.
pub struct Http(pub Server, pub u16);

impl Http {
    /// Starts `weir serve` with `more` options.
    pub fn serve(env: &Env, more: &[&str]) -> Http {
        Http::serve_to(env, more, Stdio::inherit())
    }

    /// Starts `weir serve` with `more` options, and writes its log to the file `log`.
    pub fn serve_logging(env: &Env, more: &[&str], log: &Path) -> Http {
        Http::serve_to(env, more, std::fs::File::create(log).unwrap().into())
    }

    fn serve_to(env: &Env, more: &[&str], log: Stdio) -> Http {
        Http::serve_at(env, free_port(), more, log)
    }

    /// Starts it again after it has ended.
    pub fn again(self, env: &Env) -> Http {
        let port = self.0.port;
        drop(self);
        Http::serve_on(env, port)
    }

    /// Starts `weir serve` with HTTP at the port `http`.
    pub fn serve_on(env: &Env, http: u16) -> Http {
        Http::serve_at(env, http, &[], Stdio::inherit())
    }

    fn serve_at(env: &Env, http: u16, more: &[&str], log: Stdio) -> Http {
        Http::start(env, http, &[&["--no-mirror"], more].concat(), log)
    }

    /// Starts `weir serve` that mirrors, too, and writes its log to the file `log`.
    pub fn serve_mirroring(env: &Env, log: &Path) -> Http {
        Http::start(env, free_port(), &[], std::fs::File::create(log).unwrap().into())
    }

    fn start(env: &Env, http: u16, more: &[&str], log: Stdio) -> Http {
        let git = free_port();
        let (git_option, http_option) = (format!("127.0.0.1:{git}"), format!("127.0.0.1:{http}"));
        let mut all = vec!["serve", "--git", &git_option, "--http", &http_option];
        all.extend(more);
        let child = env.weir_command(&all).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        wait_for_port(http);
        Http(Server { child, port: http }, git)
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.0.port)
    }

    pub fn git_url(&self, name: &str) -> String {
        format!("git://127.0.0.1:{}/{name}", self.1)
    }

    /// Sends `request` and returns the whole answer.
    pub fn ask(&self, request: &[u8]) -> String {
        String::from_utf8_lossy(&self.ask_bytes(request)).into_owned()
    }

    pub fn ask_bytes(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.0.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    /// Returns the head and the body of the answer to a GET with additional headers.
    pub fn get(&self, path: &str, headers: &str) -> (String, Vec<u8>) {
        let answer = self.ask_bytes(
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").as_bytes(),
        );
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").map_or(answer.len(), |n| n + 4);
        (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end..].to_vec())
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

impl Env {
    /// Commits `file`, and nothing else, on top of `main` if that exists. Sets `refname` to the commit, and
    /// returns its id.
    pub fn commit_file(&self, upstream: &Path, refname: &str, file: &str, content: &[u8]) -> String {
        let blob = self.git_with(upstream, &["hash-object", "-w", "--stdin"], content);
        let tree = self.git_with(upstream, &["mktree"], format!("100644 blob {blob}\t{file}\n").as_bytes());
        let mut main = self.git_command(upstream, &["rev-parse", "-q", "--verify", "main"]);
        let has_main = main.output().unwrap().status.success();
        let parent: &[&str] = if has_main { &["-p", "main"] } else { &[] };
        let commit = self.git(upstream, &[&["commit-tree", "-m", file, &tree], parent].concat());
        self.git(upstream, &["update-ref", refname, &commit]);
        commit
    }

    /// Adds a commit with one new file to `main` of `upstream`. Its name and time depend on `n`.
    pub fn add_commit(&self, upstream: &Path, n: u64) {
        let stream = format!(
            "commit refs/heads/main\ncommitter C <c@x> {} +0000\ndata 1\nx\nfrom refs/heads/main^0\nM 644 \
            inline k{n}\ndata 1\nn\n",
            1_700_000_000 + n
        );
        self.git_with(upstream, &["fast-import", "--quiet"], stream.as_bytes());
    }

    pub fn new() -> Env {
        let env = Env { dir: weir_testing::folder() };
        env.weir(&["init"]);
        env
    }

    /// Waits until a process that mirrors the pool holds its lock (proc_locks(5)).
    pub fn wait_for_mirror(&self) {
        let lock = self.pool().join("mirror.lock");
        wait_until(
            || "nobody mirrors".to_owned(),
            || {
                let Ok(lock) = std::fs::metadata(&lock) else { return false };
                let locks = std::fs::read_to_string("/proc/locks").unwrap();
                let file = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&lock));
                locks.lines().any(|line| line.contains(" READ ") && line.contains(&file))
            },
        );
    }

    /// Moves all times in the SQLite catalog back, as if `seconds` had passed.
    pub fn let_pass(&self, seconds: u64) {
        const SCRIPT: &str = "
import sqlite3, sys
catalog = sqlite3.connect(sys.argv[1], timeout=10)
tables = [row[0] for row in catalog.execute(\"SELECT name FROM sqlite_schema WHERE type = 'table'\")]
for table in tables:
    for _, column, kind, *_ in catalog.execute(f'PRAGMA table_info({table})').fetchall():
        is_time = column.endswith(('at', 'until', 'since', 'due')) or column.startswith('last_')
        if kind == 'INTEGER' and is_time:
            catalog.execute(f'UPDATE {table} SET {column} = {column} - ? WHERE {column} BETWEEN 1 AND ?',
                            (int(sys.argv[2]), 1 << 40))
catalog.commit()
";
        let mut python = short_command("python3");
        python.args(["-c", SCRIPT]).arg(self.pool().join("catalog.db")).arg(seconds.to_string());
        let output = python.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Creates a pool whose catalog is in PostgreSQL at `url`.
    pub fn over(url: &str) -> Env {
        let env = Env { dir: weir_testing::folder() };
        env.weir(&["init", "--catalog", url]);
        env
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn pool(&self) -> PathBuf {
        self.path("pool")
    }

    /// Returns the names of the files in the store, except the file that identifies the store.
    pub fn stored(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.pool().join("store"))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != ".store-id").collect();
        names.sort();
        names
    }

    pub fn weir_command(&self, args: &[&str]) -> Command {
        self.in_pool(command(env!("CARGO_BIN_EXE_weir")), args)
    }

    /// Returns a command of weir that receives SIGTERM, and can clean up, when the test ends.
    pub fn weir_terminated(&self, args: &[&str]) -> Command {
        let weir = env!("CARGO_BIN_EXE_weir");
        self.in_pool(weir_testing::command_ended_by(weir_testing::Signal::SIGTERM, weir), args)
    }

    /// Runs weir until it ends.
    fn run(&self, args: &[&str]) -> Output {
        self.in_pool(short_command(env!("CARGO_BIN_EXE_weir")), args).output().unwrap()
    }

    fn in_pool(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).env("WEIR_POOL", self.pool()).current_dir(self.dir.path());
        self.at_home(&mut command);
        command
    }

    /// Makes the folder of the test the home of `command`, and the place of its temporary files.
    fn at_home(&self, command: &mut Command) {
        command.env("HOME", self.dir.path()).env("TMPDIR", self.dir.path());
    }

    /// Adds `upstream` to the pool as `name`, and mirrors it.
    pub fn mirror_new(&self, name: &str, upstream: &Path) {
        self.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
        self.weir(&["mirror"]);
    }

    /// Runs weir, which must succeed.
    pub fn weir(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "weir {args:?}: {}", text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs weir, which must fail. Returns its output.
    pub fn weir_fails(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(!output.status.success(), "weir {args:?} should fail: {}", text(&output));
        text(&output)
    }

    pub fn weir_json(&self, args: &[&str]) -> serde_json::Value {
        let mut all = vec!["--json"];
        all.extend(args);
        serde_json::from_str(&self.weir(&all)).unwrap()
    }

    pub fn git_command(&self, at: &Path, args: &[&str]) -> Command {
        let mut c = weir_testing::git(at, args);
        self.at_home(&mut c);
        c
    }

    /// Runs git in the folder `at`, which must succeed. Returns its output without the last newline.
    pub fn git(&self, at: &Path, args: &[&str]) -> String {
        let output = self.git_command(at, args).output().unwrap();
        assert!(output.status.success(), "git {args:?} in {}: {}", at.display(), text(&output));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Runs git as [`Env::git`] does, with `input` on standard input.
    pub fn git_with(&self, at: &Path, args: &[&str], input: &[u8]) -> String {
        let mut child = self
            .git_command(at, args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", text(&output));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Adds `lines` to a section that the pool's configuration has, if only as a comment.
    pub fn configure(&self, section: &str, lines: &str) {
        let path = self.pool().join("weir.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let head = format!("[{section}]\n");
        assert!(text.contains(&head));
        let text = text.replacen(&format!("\n#{head}"), &format!("\n{head}"), 1);
        std::fs::write(path, text.replacen(&head, &format!("{head}{lines}\n"), 1)).unwrap();
    }

    /// Creates a self-signed server certificate for 127.0.0.1. Returns the paths of the certificate and its
    /// key.
    pub fn certificate(&self) -> (PathBuf, PathBuf) {
        self.certificate_with("c", &["basicConstraints=critical,CA:FALSE", "subjectAltName=IP:127.0.0.1"])
    }

    /// Creates a self-signed certificate with `extensions` beside openssl's own. `name` names the files.
    pub fn certificate_with(&self, name: &str, extensions: &[&str]) -> (PathBuf, PathBuf) {
        let (certificate, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}-key.pem")));
        let words =
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost";
        let mut make = short_command("openssl");
        make.args(words.split_ascii_whitespace()).arg("-keyout").arg(&key).arg("-out").arg(&certificate);
        make.args(extensions.iter().flat_map(|extension| ["-addext", extension]));
        let made = make.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        (certificate, key)
    }

    pub fn init_bare(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        self.git(self.dir.path(), &["init", "-q", "--bare", "-b", "main", name]);
        path
    }

    /// Creates a repository with everything odd that git allows.
    pub fn odd_repository(&self, name: &str) -> PathBuf {
        let path = self.init_bare(name);
        self.git_with(&path, &["fast-import", "--quiet"], &odd_history());
        // A tree with a group-writable file's mode, as git wrote them in its first weeks.
        let blob = self.git_with(&path, &["hash-object", "-w", "--stdin"], b"old mode\n");
        let mut tree = b"100664 old\0".to_vec();
        tree.extend((0..20).map(|i| u8::from_str_radix(&blob[2 * i..2 * i + 2], 16).unwrap()));
        let tree =
            self.git_with(&path, &["hash-object", "-w", "--literally", "-t", "tree", "--stdin"], &tree);
        let commit = self.git(&path, &["commit-tree", "-m", "odd mode", "-p", "main", &tree]);
        self.git(&path, &["update-ref", "refs/heads/odd-mode", &commit]);
        self.git(&path, &["update-ref", "refs/pull/1/head", "side~1"]);
        self.git(&path, &["update-ref", "refs/notes/x", "main~1"]);
        self.git(&path, &["tag", "-a", "-m", "tag of a tag", "nested", "v1"]);
        self.git(&path, &["tag", "-a", "-m", "of a tree", "on-tree", "main^{tree}"]);
        self.git(&path, &["tag", "light", "main~2"]);
        self.git(&path, &["update-ref", "refs/tags/on-blob", &blob]);
        path
    }

    /// Serves bare repositories below this folder with stock git daemon.
    pub fn git_daemon(&self, extra: &[&str]) -> Server {
        self.git_daemon_at(free_port(), extra)
    }

    /// Serves bare repositories below this folder with stock git daemon at `port`.
    pub fn git_daemon_at(&self, port: u16, extra: &[&str]) -> Server {
        // Not `git daemon`: that is a process above the daemon, and killing it leaves the daemon behind.
        let program = Path::new(&self.git(self.dir.path(), &["--exec-path"])).join("git-daemon");
        let child = command(program)
            .args(["--export-all", "--reuseaddr", "--listen=127.0.0.1", "--informative-errors"])
            .arg(format!("--port={port}"))
            .arg(format!("--base-path={}", self.dir.path().display()))
            .args(extra)
            .env("HOME", self.dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_port(port);
        Server { child, port }
    }

    /// Serves the pool.
    pub fn serve(&self) -> Server {
        let port = free_port();
        let child = self
            .weir_command(&["serve", "--no-mirror", "--quiet", "--git", &format!("127.0.0.1:{port}")])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_port(port);
        Server { child, port }
    }

    /// Starts `weir daemon` on this environment's folder.
    pub fn weir_daemon(&self, args: &[&str]) -> Server {
        let port = free_port();
        let options = [format!("--port={port}"), format!("--base-path={}", self.dir.path().display())];
        let mut command = self.weir_command(&["daemon", "--listen=127.0.0.1"]);
        let child = command.args(options).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        wait_for_port(port);
        Server { child: child.unwrap(), port }
    }

    /// Returns the refs, and all objects that they reach, sorted.
    pub fn picture(&self, repo: &Path) -> (String, Vec<String>) {
        let refs = self.git(repo, &["for-each-ref", "--format=%(refname) %(objectname) %(*objectname)"]);
        let mut objects: Vec<String> = self
            .git(repo, &["rev-list", "--objects", "--all", "--no-object-names"])
            .lines()
            .map(str::to_owned)
            .collect();
        objects.sort();
        objects.dedup();
        (refs, objects)
    }

    /// Asserts that a clone of `name` from the server has exactly the refs and objects of `upstream`.
    pub fn assert_same(&self, server: &Server, name: &str, upstream: &Path, why: &str) {
        let copy = tempfile::tempdir_in(self.dir.path()).unwrap();
        let target = copy.path().join("copy.git");
        self.git(self.dir.path(), &["clone", "-q", "--mirror", &server.url(name), target.to_str().unwrap()]);
        self.git(&target, &["fsck", "--full", "--strict", "--no-dangling"]);
        assert_eq!(self.picture(&target), self.picture(upstream), "{why}");
        let head = |at: &Path| std::fs::read_to_string(at.join("HEAD")).unwrap();
        assert_eq!(head(&target), head(upstream), "{why}: HEAD");
    }
}

/// A fast-import stream: merges, an octopus, a submodule, links, executable files, names and messages that
/// are not UTF-8.
fn odd_history() -> Vec<u8> {
    let mut out = Vec::new();
    let mut mark = 0;
    let mut commit =
        |out: &mut Vec<u8>, branch: &str, message: &[u8], parents: &[u32], changes: &[u8]| -> u32 {
            mark += 1;
            write!(
                out,
                "commit refs/heads/{branch}\nmark :{mark}\nauthor A <a@x> {} +0100\ncommitter C <c@x> {} \
            -0730\ndata {}\n",
                1_600_000_000 + mark * 60,
                1_600_000_000 + mark * 60,
                message.len()
            )
            .unwrap();
            out.extend_from_slice(message);
            out.push(b'\n');
            for (i, p) in parents.iter().enumerate() {
                writeln!(out, "{} :{p}", if i == 0 { "from" } else { "merge" }).unwrap();
            }
            out.extend_from_slice(changes);
            out.push(b'\n');
            mark
        };
    let file = |path: &[u8], mode: &str, data: &[u8]| -> Vec<u8> {
        let mut f = format!("M {mode} inline ").into_bytes();
        f.extend_from_slice(path);
        f.extend_from_slice(format!("\ndata {}\n", data.len()).as_bytes());
        f.extend_from_slice(data);
        f.push(b'\n');
        f
    };
    let long: Vec<u8> = (0..40_000u32).flat_map(|i| format!("line {i}\n").into_bytes()).collect();
    let mut last = commit(
        &mut out,
        "main",
        b"root",
        &[],
        &[file(b"a.txt", "100644", b"a\n"), file(b"big", "100644", &long)].concat(),
    );
    for i in 0..20 {
        let mut changed = long.clone();
        changed.extend_from_slice(format!("more {i}\n").as_bytes());
        let path = format!("dir/sub{}/file{i}", i % 3);
        let changes =
            [file(b"big", "100644", &changed), file(path.as_bytes(), "100755", format!("{i}").as_bytes())]
                .concat();
        last = commit(&mut out, "main", format!("commit {i}").as_bytes(), &[last], &changes);
    }
    let odd = [
        file(b"caf\xe9", "100644", b"latin-1 name"),
        file(b"link", "120000", b"a.txt"),
        b"M 160000 1234567890123456789012345678901234567890 module\n".to_vec(),
        file(b"empty", "100644", b""),
    ]
    .concat();
    last = commit(&mut out, "main", b"caf\xe9 message, not UTF-8", &[last], &odd);
    let mut sides = Vec::new();
    for i in 0..4 {
        let name = format!("side{i}");
        sides.push(commit(&mut out, &name, b"", &[last], &file(name.as_bytes(), "100644", name.as_bytes())));
    }
    let octopus = commit(&mut out, "main", b"octopus", &[last, sides[0], sides[1], sides[2], sides[3]], b"");
    let side = commit(&mut out, "side", b"s1", &[octopus], &file(b"s", "100644", b"1"));
    let side = commit(&mut out, "side", b"s2", &[side], &file(b"s", "100644", b"2"));
    let main = commit(&mut out, "main", b"m", &[octopus], &file(b"m", "100644", b"m"));
    let merged = commit(&mut out, "main", b"merge side", &[main, side], &file(b"s", "100644", b"2"));
    // A second root commit.
    commit(&mut out, "orphan", b"another root", &[], &file(b"x", "100644", b"x"));
    write!(out, "tag v1\nfrom :{merged}\ntagger T <t@x> 1650000000 +0000\ndata 3\none\n").unwrap();
    write!(out, "reset refs/heads/caf\u{e9}\nfrom :{main}\n\n").unwrap();
    out
}

/// A small deterministic generator (xorshift64*), so that a failing run can be repeated from its seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }
}

/// Returns `text` as a pkt-line.
pub fn pkt(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}
