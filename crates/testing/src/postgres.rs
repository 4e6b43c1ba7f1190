//! A PostgreSQL server for one test, on a socket in a temporary folder.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, getuid};

use crate::child::{command_ended_by, output_of, short_command};
use crate::{folder, processes, skip, wait_until};

/// A running server. Its superuser `weir` needs no password. It ends when this value is dropped, or when the
/// thread that started it ends.
pub struct PostgresServer {
    process: Child,
    binaries: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
}

/// Returns the folder of the newest PostgreSQL's programs: where Debian puts them, or in the `PATH`.
fn binaries() -> Option<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = installed
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, path)| path.join("initdb").exists())
        .collect();
    versions.sort();
    let in_path = || {
        let path = crate::child::search_path();
        std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
    };
    versions.pop().map(|(_, path)| path).or_else(in_path)
}

/// Makes `command` run as PostgreSQL's user if the test runs as root: PostgreSQL does not run as root.
fn as_its_user(command: &mut Command) -> &mut Command {
    match its_user() {
        Some(user) => command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).current_dir("/"),
        None => command.current_dir("/"),
    }
}

fn its_user() -> Option<User> {
    getuid().is_root().then(|| User::from_name("postgres").ok().flatten().expect("a user 'postgres'"))
}

impl PostgresServer {
    /// Starts a server, with settings as `postgres -c` takes them. Returns `None`, and tells of the skip,
    /// where PostgreSQL is not installed.
    pub fn start(settings: &[&str]) -> Option<PostgresServer> {
        let (binaries, folder) = PostgresServer::make()?;
        let process = PostgresServer::run(&binaries, folder.path(), settings);
        Some(PostgresServer { process, binaries, folder, port: 5432 }.when_up())
    }

    /// Starts a server that also listens on loopback. There it accepts only TLS, with a self-signed
    /// certificate for `localhost`.
    pub fn start_with_tls() -> Option<PostgresServer> {
        let (binaries, folder) = PostgresServer::make()?;
        let (key, certificate) = (folder.path().join("server.key"), folder.path().join("server.crt"));
        let words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext \
            subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE";
        let mut openssl = short_command(crate::program("openssl")?);
        openssl.args(words.split_ascii_whitespace()).arg("-keyout").arg(&key).arg("-out").arg(&certificate);
        output_of(as_its_user(&mut openssl));
        std::fs::write(
            folder.path().join("data/pg_hba.conf"),
            "local all all trust\nhostssl all all 127.0.0.1/32 trust\n",
        )
        .unwrap();
        let port = crate::free_port();
        let (key, certificate) =
            (format!("ssl_key_file={}", key.display()), format!("ssl_cert_file={}", certificate.display()));
        let port_setting = format!("port={port}");
        let settings =
            ["fsync=off", "listen_addresses=127.0.0.1", "ssl=on", &key, &certificate, &port_setting];
        let process = PostgresServer::run(&binaries, folder.path(), &settings);
        Some(PostgresServer { process, binaries, folder, port }.when_up())
    }

    /// Creates a new data folder. Returns the folder of the programs, and the folder that holds the data.
    fn make() -> Option<(PathBuf, tempfile::TempDir)> {
        let Some(binaries) = binaries() else {
            skip("postgresql", "PostgreSQL's server is not installed ('make packages' installs it)");
            return None;
        };
        let folder = folder();
        if let Some(user) = its_user() {
            let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
            std::os::unix::fs::chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        let mut init = short_command(binaries.join("initdb"));
        init.args(["--username=weir", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]);
        output_of(as_its_user(init.arg("-D").arg(folder.path().join("data"))));
        Some((binaries, folder))
    }

    /// Returns the port of the server, which is also part of the name of its socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn run(binaries: &Path, folder: &Path, settings: &[&str]) -> Child {
        // "Immediate shutdown", in which it also ends its children: the data is not needed any more.
        let mut run = command_ended_by(Signal::SIGQUIT, binaries.join("postgres"));
        run.arg("-D").arg(folder.join("data")).arg("-k").arg(folder).args(["-c", "listen_addresses="]);
        for setting in settings {
            run.args(["-c", setting]);
        }
        as_its_user(run.stdout(Stdio::null()).stderr(Stdio::null())).spawn().unwrap()
    }

    fn when_up(self) -> PostgresServer {
        wait_until(|| "PostgreSQL does not come up".to_owned(), || self.try_sql("SELECT 1"));
        self
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
        let mut psql = short_command(self.binaries.join("psql"));
        psql.arg("-h").arg(self.folder()).args(["-p", &self.port.to_string()]);
        psql.args(["-U", "weir", "-d", "postgres", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql]);
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
        self.end(Signal::SIGKILL);
    }

    /// Suspends the processes of the server, or resumes them.
    pub fn stall(&self, is_stalled: bool) {
        let signal = if is_stalled { Signal::SIGSTOP } else { Signal::SIGCONT };
        self.send(self.process.id(), signal);
        for process in processes::children(self.process.id()) {
            self.send(process, signal);
        }
    }

    /// Sends `signal` to a process of the server. One that has ended meanwhile is left alone.
    fn send(&self, process: u32, signal: Signal) {
        let sent = kill(Pid::from_raw(process.try_into().expect("a process id")), signal);
        assert!(matches!(sent, Ok(()) | Err(Errno::ESRCH)), "process {process} of PostgreSQL: {sent:?}");
    }

    /// Starts the server again.
    pub fn go_on(&mut self) {
        // The children of the old server hold its memory until they notice that it is gone.
        self.process = PostgresServer::run(&self.binaries, self.folder.path(), &[]);
        wait_until(
            || "PostgreSQL does not come back".to_owned(),
            || {
                if self.process.try_wait().unwrap().is_some() {
                    self.process = PostgresServer::run(&self.binaries, self.folder.path(), &[]);
                }
                self.try_sql("SELECT 1")
            },
        );
    }

    fn end(&mut self, signal: Signal) {
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.send(self.process.id(), signal);
            self.process.wait().expect("the server is a child");
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.end(Signal::SIGQUIT);
    }
}
