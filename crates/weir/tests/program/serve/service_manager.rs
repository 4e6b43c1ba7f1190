//! What a service manager hears (sd_notify(3)), on a socket as systemd makes it.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Env, Server};
use weir_testing::processes::Strays;
use weir_testing::{Signal, free_port, send, wait_until};

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn new(env: &Env) -> Manager {
        let socket = UnixDatagram::bind(env.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Manager(socket)
    }

    /// Returns the lines of the first message that has a line for which `is_it` is true, and of all before.
    fn hear(&self, is_it: impl Fn(&str) -> bool) -> Vec<String> {
        let mut heard: Vec<String> = Vec::new();
        while !heard.iter().any(|line| is_it(line)) {
            let mut text = [0; 4096];
            let n = self.0.recv(&mut text).unwrap_or_else(|e| panic!("{e}; heard {heard:?}"));
            heard.extend(String::from_utf8_lossy(&text[..n]).lines().map(str::to_owned));
        }
        heard
    }
}

fn serve(env: &Env, port: u16) -> Command {
    let address = format!("127.0.0.1:{port}");
    let mut command = env.weir_command(&["-q", "serve", "--git", &address]);
    command.env("NOTIFY_SOCKET", env.path("notify"));
    command
}

#[test]
fn service_manager_hears_of_life_state_and_stop() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "up", upstream.to_str().unwrap()]);
    let (manager, port) = (Manager::new(&env), free_port());
    let mut command = serve(&env, port);
    command.env("WATCHDOG_USEC", "200000");
    let mut server = Server { child: command.spawn().unwrap(), port };
    let ready = manager.hear(|line| line == "READY=1");
    assert!(ready.contains(&format!("MAINPID={}", server.pid())), "{ready:?}");
    manager.hear(|line| line == "WATCHDOG=1");
    // The state is told when it changes.
    manager.hear(|line| {
        line.starts_with(&format!("STATUS=serving git://127.0.0.1:{port}/; "))
            && line.ends_with("; 1 visits, 0 failed")
    });
    manager.hear(|line| line == "WATCHDOG=1");
    // A process that is stopped gives no sign of life.
    send(server.pid(), Signal::SIGSTOP);
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    wait_until(state, || state().contains(") T "));
    manager.0.set_nonblocking(true).unwrap();
    while manager.0.recv(&mut [0; 4096]).is_ok() {}
    manager.0.set_nonblocking(false).unwrap();
    manager.0.set_read_timeout(Some(Duration::from_millis(600))).unwrap();
    assert!(manager.0.recv(&mut [0; 4096]).is_err());
    manager.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    send(server.pid(), Signal::SIGCONT);
    send(server.pid(), Signal::SIGTERM);
    manager.hear(|line| line == "STOPPING=1");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn service_manager_watches_the_process_that_it_names() {
    let env = Env::new();
    let (manager, port) = (Manager::new(&env), free_port());
    let mut command = serve(&env, port);
    command.env("WATCHDOG_USEC", "200000").env("WATCHDOG_PID", "1");
    let mut server = Server { child: command.spawn().unwrap(), port };
    let heard = manager.hear(|line| line.starts_with("STATUS="));
    assert!(!heard.iter().any(|line| line == "WATCHDOG=1"), "{heard:?}");
    let _successor = Strays(format!("127.0.0.1:{port}"));
    // The process that takes over is the one to watch, and the old one stops without a word.
    send(server.pid(), Signal::SIGHUP);
    let heard = manager.hear(|line| line == "WATCHDOG=1");
    let is_taken_over =
        |line: &String| line.starts_with("MAINPID=") && !line.ends_with(&format!("={}", server.pid()));
    assert!(heard.iter().any(|line| line == "RELOADING=1") && heard.iter().any(is_taken_over), "{heard:?}");
    let pid = heard.iter().find_map(|line| line.strip_prefix("MAINPID=")).unwrap().to_owned();
    assert!(server.child.wait().unwrap().success());
    send(pid.parse().unwrap(), Signal::SIGTERM);
    let heard = manager.hear(|line| line == "STOPPING=1");
    assert_eq!(heard.iter().filter(|line| *line == "STOPPING=1").count(), 1, "{heard:?}");
}

#[test]
fn server_ends_with_its_terminal() {
    let (env, port) = (Env::new(), free_port());
    let address = format!("127.0.0.1:{port}");
    let line = format!("{} serve --no-mirror --git {address}", env!("CARGO_BIN_EXE_weir"));
    // The tests may run under nohup.
    let mut script = weir_testing::command("env");
    script.args(["--default-signal=HUP", "script", "-qec", &line, "/dev/null"]).env("WEIR_POOL", env.pool());
    let mut terminal = script.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let server = Strays(address);
    weir_testing::wait_for_port(port);
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    wait_until(|| "the server goes on without its terminal".to_owned(), || server.ids().is_empty());
}

#[test]
fn service_manager_that_reads_nothing_holds_up_no_client() {
    let (env, port) = (Env::new(), free_port());
    let manager = Manager::new(&env);
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"x", env.path("notify")).is_ok() {}
    let mut server = Server { child: serve(&env, port).spawn().unwrap(), port };
    weir_testing::wait_for_port(port);
    // An answer, though an error.
    let asked = env.git_command(env.dir.path(), &["ls-remote", &server.url("nothing")]).output().unwrap();
    assert!(String::from_utf8_lossy(&asked.stderr).contains("no such repository"), "{asked:?}");
    send(server.pid(), Signal::SIGTERM);
    assert!(server.child.wait().unwrap().success());
    drop(manager);
}
