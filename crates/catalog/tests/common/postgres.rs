//! A PostgreSQL server for one test, on a socket in a temporary folder. The test ends it by its process id.
#![allow(dead_code)] // Each test file uses its own part, as of the program's tests.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server. Its superuser `weir` needs no password.
pub struct Server {
    process: Child,
    binaries: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
}

/// Returns the folder of the newest PostgreSQL's programs.
fn binaries() -> PathBuf {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL is installed (make packages)")
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, path)| path.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop().expect("PostgreSQL's server is installed (make packages)").1
}

/// Makes `command` run as PostgreSQL's user if the test runs as root: PostgreSQL does not run as root.
fn as_its_user(command: &mut Command) -> &mut Command {
    match its_user() {
        Some((uid, gid)) => command.uid(uid).gid(gid),
        None => command,
    }
}

fn its_user() -> Option<(u32, u32)> {
    let id = |what| {
        let told = Command::new("id").args([what, "postgres"]).output().ok()?;
        String::from_utf8(told.stdout).ok()?.trim().parse().ok()
    };
    let own = Command::new("id").arg("-u").output().ok()?;
    if own.stdout == b"0\n" { Some((id("-u")?, id("-g")?)) } else { None }
}

impl Server {
    /// Starts a server, with settings as `postgres -c` takes them.
    pub fn start(settings: &[&str]) -> Server {
        let (binaries, folder) = Server::make();
        let process = Server::run(&binaries, folder.path(), settings);
        let server = Server { process, binaries, folder, port: 5432 };
        server.wait();
        server
    }

    /// Starts a server that also listens on loopback. There it accepts only TLS, with a self-signed
    /// certificate for `localhost`.
    pub fn start_with_tls() -> Server {
        let (binaries, folder) = Server::make();
        let (key, certificate) = (folder.path().join("server.key"), folder.path().join("server.crt"));
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ]);
        openssl.args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
        let made =
            as_its_user(openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).current_dir("/"))
                .output()
                .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::write(
            folder.path().join("data/pg_hba.conf"),
            "local all all trust\nhostssl all all 127.0.0.1/32 trust\n",
        )
        .unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (key, certificate) =
            (format!("ssl_key_file={}", key.display()), format!("ssl_cert_file={}", certificate.display()));
        let port_setting = format!("port={port}");
        let settings =
            ["fsync=off", "listen_addresses=127.0.0.1", "ssl=on", &key, &certificate, &port_setting];
        let process = Server::run(&binaries, folder.path(), &settings);
        let server = Server { process, binaries, folder, port };
        server.wait();
        server
    }

    /// Creates a new data folder. Returns the folder of the programs, and the folder that holds the data.
    fn make() -> (PathBuf, tempfile::TempDir) {
        let binaries = binaries();
        let folder = tempfile::tempdir().unwrap();
        if let Some((uid, gid)) = its_user() {
            std::os::unix::fs::chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        let mut init = Command::new(binaries.join("initdb"));
        init.args([
            "--username=weir",
            "--auth=trust",
            "--no-sync",
            "--no-instructions",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "-D",
        ]);
        let made = as_its_user(init.arg(folder.path().join("data")).current_dir("/")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        (binaries, folder)
    }

    /// Returns the port of the server, which is also part of the name of its socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn run(binaries: &Path, folder: &Path, settings: &[&str]) -> Child {
        let mut run = Command::new(binaries.join("postgres"));
        run.arg("-D").arg(folder.join("data")).arg("-k").arg(folder).args(["-c", "listen_addresses="]);
        for setting in settings {
            run.args(["-c", setting]);
        }
        as_its_user(run.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null())).spawn().unwrap()
    }

    fn wait(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.try_sql("SELECT 1") {
            assert!(Instant::now() < until, "PostgreSQL does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the folder of the socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates a schema. Returns its URL.
    pub fn schema(&self, name: &str) -> String {
        assert!(self.try_sql(&format!("CREATE SCHEMA {name}")));
        format!(
            "postgres://weir@{}/postgres?options=-csearch_path%3D{name}",
            self.folder().to_str().unwrap().replace('/', "%2F")
        )
    }

    fn try_sql(&self, sql: &str) -> bool {
        let mut psql = Command::new(self.binaries.join("psql"));
        psql.arg("-h").arg(self.folder()).args([
            "-p",
            &self.port.to_string(),
            "-U",
            "weir",
            "-d",
            "postgres",
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            sql,
        ]);
        psql.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }

    /// Runs a statement with `psql`.
    pub fn sql(&self, sql: &str) {
        assert!(self.try_sql(sql), "{sql}");
    }

    /// Ends the server as a power cut would, and starts it again.
    pub fn crash(&mut self) {
        self.stop();
        self.go_on();
    }

    /// Ends the server as a power cut would.
    pub fn stop(&mut self) {
        self.end("-KILL");
    }

    /// Suspends the processes of the server, or resumes them.
    pub fn stall(&self, is_stalled: bool) {
        let signal = if is_stalled { "-STOP" } else { "-CONT" };
        let children =
            Command::new("pgrep").args(["-P", &self.process.id().to_string()]).output().unwrap().stdout;
        let all =
            format!("{} {}", self.process.id(), String::from_utf8(children).unwrap().replace('\n', " "));
        Command::new("kill").arg(signal).args(all.split_whitespace()).status().unwrap();
    }

    /// Starts the server again.
    pub fn go_on(&mut self) {
        // The children of the old server hold its memory until they notice that it is gone.
        let until = Instant::now() + Duration::from_secs(60);
        self.process = Server::run(&self.binaries, self.folder.path(), &[]);
        while !self.try_sql("SELECT 1") {
            assert!(Instant::now() < until, "PostgreSQL does not come back");
            if self.process.try_wait().unwrap().is_some() {
                self.process = Server::run(&self.binaries, self.folder.path(), &[]);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn end(&mut self, signal: &str) {
        let _ = Command::new("kill").arg(signal).arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // "Immediate shutdown": the data is not needed any more.
        self.end("-QUIT");
    }
}
