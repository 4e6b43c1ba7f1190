//! Long-lived processes: this program starts itself as one, which does what its arguments say. It has no
//! harness, whose lines would stand before those of such a process.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use weir_ground::Stop;
use weir_process::{
    RestartError, StartError, Starting, close_inherited, detach, has_terminal, on_reload_signal, restart_on,
    start_in_place, stop_by_signal, stop_on_signal, systemd, tell_ready,
};
use weir_testing::{Signal, folder, send};

const READY: &str = "it is ready";
const TESTS: [(&str, fn()); 8] = [
    ("process_in_the_background_says_that_it_is_ready", starting),
    ("process_is_told_and_given_up", telling),
    ("process_holds_nothing_that_it_inherited", inherited),
    ("process_stops_on_signals", signals),
    ("process_acts_on_reload_signals", reloads),
    ("process_tells_its_service_manager", service_manager),
    ("process_hands_its_sockets_to_a_new_one", restarts),
    ("process_starts_what_was_installed_in_its_place", in_place),
];

/// The longest that a process of a role lives, in seconds.
const LIFE_MAX_S: u32 = 60;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [first, role @ ..] = &args[..]
        && first == "as"
    {
        // SAFETY: a number is set.
        unsafe { libc::alarm(LIFE_MAX_S) };
        return act(&role.iter().map(String::as_str).collect::<Vec<_>>());
    }
    // A shell that runs the tests in the background ignores it, for them and what they start.
    // SAFETY: there is no handler.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let is_listed = args.iter().any(|arg| arg == "--list" || arg == "--ignored");
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|part| name.contains(*part));
    for (name, test) in TESTS.iter().filter(|(name, _)| is_wanted(name) && !is_listed) {
        test();
        println!("test {name} ... ok");
    }
}

/// Does what a process is started for.
fn act(role: &[&str]) {
    match *role {
        ["ready"] => println!("{READY}"),
        ["where"] => {
            eprintln!("{}", env::current_dir().unwrap().display());
            println!("{READY}");
        }
        ["fails"] => {
            println!("not yet");
            eprintln!("error: no room");
            std::process::exit(3);
        }
        ["told", end] => {
            let lines: Vec<String> = io::stdin().lines().map(Result::unwrap).collect();
            fs::write(end, lines.join(",")).unwrap();
            println!("{READY}");
        }
        ["closes"] => {
            // SAFETY: nothing is open yet but the standard streams.
            unsafe { close_inherited() };
            say_and_wait();
        }
        ["detaches"] => {
            detach();
            // SAFETY: it takes no pointers.
            let (session, process) = unsafe { (libc::getsid(0), libc::getpid()) };
            println!("{} {}", session == process, has_terminal());
        }
        ["terminal"] => println!("terminal: {}", has_terminal()),
        ["signals", how] => wait_for_signals(how),
        ["reloads", had_terminal] => act_on_reloads(had_terminal == "true"),
        ["notifies", state] => {
            println!("{} {:?}", systemd::is_there(), systemd::watchdog_interval());
            systemd::notify(state);
            systemd::hand_over();
            systemd::notify("not told");
        }
        ["tells"] => {
            tell_ready();
            println!("{READY}");
        }
        ["serves", how] => serve(how),
        ["again"] => {
            if env::var_os("WEIR_TEST_AGAIN").is_none() {
                println!("first {}", std::process::id());
                // SAFETY: there is no other thread.
                unsafe { env::set_var("WEIR_TEST_AGAIN", "1") };
                println!("{}", start_in_place());
            }
            println!("again {}", std::process::id());
        }
        ["gone"] => {
            fs::remove_file(env::current_exe().unwrap()).unwrap();
            assert!(matches!(start_in_place(), RestartError::NotStarted(_)));
            assert!(matches!(restart_on(&[]), Err(RestartError::NotStarted(_))));
            println!("{READY}");
        }
        _ => panic!("no such role: {role:?}"),
    }
}

fn say_and_wait() {
    println!("{READY}");
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn wait_for_signals(how: &str) {
    let stop = Stop::default();
    let asked = stop_on_signal(&stop).unwrap();
    println!("{READY} {}", *asked.borrow());
    if how == "itself" {
        stop_by_signal();
    }
    while stop.sleep(Duration::from_secs(100)) {}
    weir_testing::wait_until(|| "it is not told".to_owned(), || *asked.borrow());
    println!("stopped");
    if how == "twice" {
        thread::sleep(Duration::from_secs(100));
    }
}

fn act_on_reloads(had_terminal: bool) {
    detach();
    let stop = Stop::default();
    stop_on_signal(&stop).unwrap();
    let mut count = 0;
    let act = move || {
        count += 1;
        println!("acted {count}");
        count < 3
    };
    on_reload_signal(had_terminal, act).unwrap();
    println!("{READY}");
    while stop.sleep(Duration::from_secs(100)) {}
    println!("stopped");
}

fn serve(how: &str) {
    let names = ["LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "WATCHDOG_PID"];
    let variables = names.map(|name| env::var(name).unwrap_or_default()).join(" ");
    let port = |fd: RawFd| {
        // SAFETY: the process that started this one left it open.
        let listener = unsafe { TcpListener::from_raw_fd(fd) };
        let port = listener.local_addr().unwrap().port();
        std::mem::forget(listener);
        port
    };
    if !variables.starts_with(' ') {
        println!("new {} {variables} {} {}", env::args().next().unwrap(), port(3), port(4));
        // SAFETY: it takes no pointers.
        let next = unsafe { libc::fcntl(6, libc::F_GETFD) };
        println!("{}", if next < 0 { "nothing else" } else { "more is open" });
        if how == "well" {
            tell_ready();
        }
        return;
    }
    let [first, second] = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = [&first, &second].map(|listener| listener.local_addr().unwrap().port());
    // The places that the new process has them at, the other way round.
    let fds = [first, second].map(|listener| {
        let fd = listener.as_raw_fd();
        std::mem::forget(listener);
        // SAFETY: it takes no pointers.
        unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 20) }
    });
    // SAFETY: nothing of this process uses these any more.
    unsafe { (libc::dup2(fds[0], 4), libc::dup2(fds[1], 3)) };
    println!("old {} {}", ports[0], ports[1]);
    match restart_on(&[(4, "a"), (3, "b")]) {
        Ok(process) => println!("it serves: {}", process > 0 && process != std::process::id()),
        Err(e) => println!("{e:?}"),
    }
}

/// Returns a command of this program as a process with this role.
fn program(role: &[&str]) -> Command {
    let mut program = weir_testing::command(env::current_exe().unwrap());
    program.arg("as").args(role);
    program
}

fn args(role: &[&str]) -> Vec<std::ffi::OsString> {
    ["as"].iter().chain(role).map(std::ffi::OsString::from).collect()
}

/// Returns all that a process prints, and its status.
fn said(program: &mut Command) -> (String, Option<i32>) {
    let output = program.stderr(Stdio::inherit()).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

/// A process, and what it prints.
struct Talking(Child, BufReader<std::process::ChildStdout>);

impl Talking {
    fn start(program: &mut Command) -> Talking {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Talking(child, stdout)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn end(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

fn starting() {
    let dir = folder();
    let log = dir.path().join("log");
    let start = |role: &[&str]| {
        let mut starting = Starting::new(&args(role), Stdio::null(), READY, &log).unwrap();
        starting.wait()
    };
    start(&["ready"]).unwrap();
    start(&["where"]).unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap(), "/\n");
    assert!(matches!(start(&["fails"]), Err(StartError::Ended(why)) if why == "no room"));
    assert!(Starting::new(&args(&["ready"]), Stdio::null(), READY, &dir.path().join("no/log")).is_err());
}

fn telling() {
    let dir = folder();
    let (log, end) = (dir.path().join("log"), dir.path().join("end"));
    let start = |stdin| Starting::new(&args(&["told", end.to_str().unwrap()]), stdin, READY, &log).unwrap();
    let mut told = start(Stdio::piped());
    told.tell("a line");
    told.tell("not told");
    told.wait().unwrap();
    assert_eq!(fs::read_to_string(&end).unwrap(), "a line");
    fs::remove_file(&end).unwrap();
    let mut given_up = start(Stdio::piped());
    given_up.give_up();
    assert_eq!(fs::read_to_string(&end).unwrap(), "", "it has ended");
    given_up.give_up();
    // One that was told goes on.
    let mut other = Starting::new(&args(&["signals", "once"]), Stdio::null(), READY, &log).unwrap();
    other.give_up();
    assert!(matches!(other.wait(), Err(StartError::Ended(_)) | Ok(())));
}

fn inherited() {
    let (mut reader, writer) = io::pipe().unwrap();
    let mut child = program(&["closes"]);
    let fd = writer.as_raw_fd();
    // SAFETY: fcntl is async-signal-safe.
    unsafe {
        child.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut child = Talking::start(&mut child);
    assert_eq!(child.line(), READY);
    drop(writer);
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(reader.read(&mut [0]).unwrap()));
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(0), "nobody else has it open");
    drop(child.0.stdin.take());
    assert_eq!(child.end(), Some(0));
    assert_eq!(said(&mut program(&["detaches"])), ("true false\n".to_owned(), Some(0)));
    if weir_testing::program("script").is_some() {
        let line = format!("{} as terminal", env::current_exe().unwrap().display());
        let (text, _) = said(weir_testing::command("script").args(["-qec", &line, "/dev/null"]));
        assert!(text.contains("terminal: true"), "{text}");
    }
}

fn signals() {
    for (how, signals, status) in [
        ("once", &[Signal::SIGTERM][..], 0),
        ("once", &[Signal::SIGINT], 0),
        ("itself", &[], 0),
        ("twice", &[Signal::SIGTERM, Signal::SIGINT], 130),
    ] {
        let dir = folder();
        let manager = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        let mut child = program(&["signals", how]);
        let mut child = Talking::start(child.env("NOTIFY_SOCKET", dir.path().join("notify")));
        assert_eq!(child.line(), format!("{READY} false"));
        if let Some(first) = signals.first() {
            send(child.0.id(), *first);
        }
        assert_eq!(child.line(), "stopped");
        assert_eq!(received(&manager), "STOPPING=1");
        if let Some(second) = signals.get(1) {
            send(child.0.id(), *second);
        }
        assert_eq!(child.end(), Some(status), "{how}");
    }
}

fn reloads() {
    let mut child = Talking::start(&mut program(&["reloads", "false"]));
    assert_eq!(child.line(), READY);
    for (n, signal) in [Signal::SIGHUP, Signal::SIGUSR2, Signal::SIGHUP].into_iter().enumerate() {
        send(child.0.id(), signal);
        assert_eq!(child.line(), format!("acted {}", n + 1));
    }
    // It does not act any more.
    send(child.0.id(), Signal::SIGHUP);
    send(child.0.id(), Signal::SIGTERM);
    assert_eq!(child.line(), "stopped");
    assert_eq!(child.end(), Some(0));
    // Its terminal is gone.
    let mut child = Talking::start(&mut program(&["reloads", "true"]));
    assert_eq!(child.line(), READY);
    send(child.0.id(), Signal::SIGHUP);
    assert_eq!(child.line(), "stopped");
    assert_eq!(child.end(), Some(0));
    // It was started to outlive that.
    let mut shell = weir_testing::command("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" as reloads true"]).arg(env::current_exe().unwrap());
    let mut child = Talking::start(&mut shell);
    assert_eq!(child.line(), READY);
    send(child.0.id(), Signal::SIGHUP);
    thread::sleep(Duration::from_millis(300));
    send(child.0.id(), Signal::SIGUSR2);
    assert_eq!(child.line(), "acted 1");
    send(child.0.id(), Signal::SIGTERM);
    assert_eq!(child.line(), "stopped");
}

fn received(manager: &UnixDatagram) -> String {
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = [0; 1000];
    let len = manager.recv(&mut bytes).unwrap();
    String::from_utf8(bytes[..len].to_vec()).unwrap()
}

fn service_manager() {
    let dir = folder();
    let path = dir.path().join("notify");
    let name = format!("weir-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let managers = [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&address).unwrap()];
    for (manager, at) in managers.iter().zip([path.to_str().unwrap(), &format!("@{name}")]) {
        let mut child = program(&["notifies", "A=1\nB=2"]);
        assert_eq!(said(child.env("NOTIFY_SOCKET", at)), ("true None\n".to_owned(), Some(0)));
        assert_eq!(received(manager), "A=1\nB=2");
        manager.set_nonblocking(true).unwrap();
        assert!(manager.recv(&mut [0; 10]).is_err(), "another process has taken over");
    }
    for at in ["", "/nowhere/notify"] {
        let mut child = program(&["notifies", "A=1"]);
        let expected = format!("{} None\n", !at.is_empty());
        assert_eq!(said(child.env("NOTIFY_SOCKET", at)), (expected, Some(0)));
    }
    for (variables, interval) in [
        ("WATCHDOG_USEC=3000000", "Some(1.5s)"),
        ("WATCHDOG_USEC=3000000 WATCHDOG_PID=$$", "Some(1.5s)"),
        ("WATCHDOG_USEC=3000000 WATCHDOG_PID=1", "None"),
        ("WATCHDOG_USEC=x", "None"),
        ("WATCHDOG_PID=$$", "None"),
    ] {
        let mut shell = weir_testing::command("sh");
        shell.args(["-c", &format!("{variables} exec \"$0\" as notifies A=1")]);
        let (text, _) = said(shell.arg(env::current_exe().unwrap()));
        assert_eq!(text, format!("false {interval}\n"), "{variables}");
    }
    let now = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` has room for the answer.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_micros() as u64
    };
    let (before, told, after) = (now(), systemd::monotonic_us(), now());
    assert!((before..=after).contains(&told), "{before} {told} {after}");
}

fn restarts() {
    let dir = folder();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    for (how, end) in [("well", "it serves: true"), ("badly", "NotServing")] {
        let mut old = program(&["serves", how]);
        old.env("LISTEN_PID", "7").env("WATCHDOG_PID", "8").env("NOTIFY_SOCKET", &path);
        // The words of both processes.
        let (text, status) = said(&mut old);
        let lines: Vec<&str> = text.lines().collect();
        let ports = lines[0].strip_prefix("old ").unwrap();
        let name = env::current_exe().unwrap();
        assert_eq!(lines[1], format!("new {} 2 a:b   {ports}", name.display()));
        assert_eq!(lines[2..], ["nothing else", end]);
        assert_eq!(status, Some(0));
    }
    let told = received(&manager);
    let process = told.strip_prefix("MAINPID=").unwrap().strip_suffix("\nREADY=1").unwrap();
    assert!(process.parse::<u32>().unwrap() > 1);
    // Nobody waits for one that was started otherwise.
    for descriptor in ["", "x", "2"] {
        let mut new = program(&["tells"]);
        new.env("WEIR_READY_FD", descriptor);
        let (text, status) = said(new.stdin(Stdio::null()).stderr(Stdio::null()));
        assert_eq!((text.trim_end(), status), (READY, Some(0)), "{descriptor}");
    }
}

/// Writes a program that says that it is new.
fn install(at: &Path) {
    let mut file = File::create(at).unwrap();
    writeln!(file, "#!/bin/sh\necho installed $*").unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
}

fn in_place() {
    let (text, _) = said(&mut program(&["again"]));
    let process = text.lines().next().unwrap().strip_prefix("first ").unwrap();
    assert_eq!(text, format!("first {process}\nagain {process}\n"));
    let dir = folder();
    let (own, new) = (dir.path().join("own"), dir.path().join("new"));
    weir_testing::copy_program(env::current_exe().unwrap(), &own);
    install(&new);
    let run = |name: &str| {
        let mut child = weir_testing::short_command(&own);
        child.arg0(name).args(["as", "again"]).current_dir(dir.path()).env("PATH", dir.path().join("bin"));
        said(&mut child).0.lines().nth(1).unwrap_or_default().to_owned()
    };
    // Called by a path.
    assert_eq!(run("./new"), "installed as again");
    assert_eq!(run(new.to_str().unwrap()), "installed as again");
    assert!(run("./none").starts_with("again "), "its own file");
    // Called by a name, which is not looked for here.
    assert!(run("new").starts_with("again "));
    fs::create_dir_all(dir.path().join("bin/own")).unwrap();
    assert!(run("own").starts_with("again "), "a folder is no program");
    fs::rename(&new, dir.path().join("bin/new")).unwrap();
    assert_eq!(run("new"), "installed as again");
    // A new version lies where the file was that runs, or nothing.
    let mut gone = weir_testing::short_command(&own);
    let (text, status) = said(gone.arg0("/none").args(["as", "gone"]));
    assert_eq!((text.trim(), status), (READY, Some(0)));
}
