//! The ways in besides `weir serve`: `weir daemon` and `weir upload-pack`, on directories and on archives.

use crate::common::{Env, Http, Server, wait_for_answer};
use std::io::{Read, Write};
use std::process::Stdio;
use weir_testing::processes::Strays;
use weir_testing::{Signal, free_port, send, wait_for_port};

#[test]
fn a_daemon_of_directories_and_archives() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let archive = env.weir_json(&["show", "odd"])["archive"].as_str().unwrap().to_owned();
    std::fs::copy(archive, env.path("packed.tar")).unwrap();
    let server = env.weir_daemon(&["--export-all"]);
    for name in ["odd.git", "odd", "packed", "packed.tar"] {
        env.assert_same(&server, name, &upstream, name);
    }
    let refused = |server: &Server, path: &str| {
        let output = env.git_command(env.dir.path(), &["ls-remote", &server.url(path)]).output().unwrap();
        assert!(!output.status.success(), "{path}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for path in ["nothing", "../odd.git", "odd.git/../odd.git", "/odd.git", "odd.git/objects"] {
        assert!(refused(&server, path).contains("access denied or repository not exported"), "{path}");
    }
    drop(server);
    let server = env.weir_daemon(&["--informative-errors"]);
    assert!(refused(&server, "nothing").contains("no such repository"));
    assert!(refused(&server, "odd.git").contains("repository not exported"));
    std::fs::write(upstream.join("git-daemon-export-ok"), "").unwrap();
    env.assert_same(&server, "odd.git", &upstream, "exported");
    let push = env.git_command(&upstream, &["push", &server.url("odd.git"), "main:x"]).output().unwrap();
    assert!(String::from_utf8_lossy(&push.stderr).contains("service not enabled"), "{push:?}");
    drop(server);
    let server = env.weir_daemon(&["--export-all", env.path("elsewhere").to_str().unwrap()]);
    assert!(refused(&server, "odd.git").contains("access denied"), "not in the list of directories");
}

#[test]
fn upload_pack_in_gits_place() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    let program = env!("CARGO_BIN_EXE_weir");
    for version in ["0", "1", "2"] {
        let (config, target) = (format!("protocol.version={version}"), env.path(&format!("copy{version}")));
        let (url, with) =
            (format!("file://{}", upstream.display()), format!("--upload-pack={program} upload-pack"));
        env.git(
            env.dir.path(),
            &["-c", &config, "clone", "-q", "--mirror", &with, &url, target.to_str().unwrap()],
        );
        assert_eq!(env.picture(&target), env.picture(&upstream), "v{version}");
    }
    env.weir_fails(&["upload-pack", "nothing"]);
    // The client sends nothing: the program does not wait for ever.
    let mut silent = env.weir_command(&["upload-pack", "--timeout=1", upstream.to_str().unwrap()]);
    let mut child = silent.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let input = child.stdin.take();
    assert!(!child.wait().unwrap().success());
    drop(input);
}

#[test]
fn a_directory_shows_what_its_configuration_shows() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    let server = env.weir_daemon(&["--export-all"]);
    let listed = || env.git(env.dir.path(), &["ls-remote", &server.url("odd.git")]);
    assert!(listed().contains("refs/pull/1/head"));
    env.git(&upstream, &["config", "transfer.hideRefs", "refs/pull"]);
    env.git(&upstream, &["config", "--add", "uploadpack.hideRefs", "refs/heads"]);
    env.git(&upstream, &["config", "--add", "uploadpack.hideRefs", "!refs/heads/main"]);
    let left = listed();
    assert!(
        left.contains("refs/heads/main") && !left.contains("refs/heads/side") && !left.contains("refs/pull"),
        "{left}"
    );
    let hidden = env.git(&upstream, &["rev-parse", "orphan"]);
    let fetch = |oid: &str| {
        let client = env.init_bare("client.git");
        let output =
            env.git_command(&client, &["fetch", "-q", &server.url("odd.git"), oid]).output().unwrap();
        output.status.success()
    };
    assert!(!fetch(&hidden), "hidden, and nothing shown reaches it");
    env.git(&upstream, &["config", "uploadpack.allowTipSHA1InWant", "true"]);
    assert!(fetch(&hidden));
}

#[test]
fn sockets_of_this_machine_and_ones_handed_over() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let socket = env.path("git.sock");
    let option = format!("unix:{}", socket.display());
    let _server = Http::serve(&env, &["--git", &option]);
    // A first line and a flush packet, as from a client that wants nothing.
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    stream.write_all(b"002bgit-upload-pack /odd\0host=x\0\0version=1\0").unwrap();
    stream.write_all(b"0000").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("000eversion 1\n") && said.contains("refs/heads/main"), "{said}");
    // A socket that is passed on, with the number and the variables that systemd uses.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut command = env.weir_command(&["serve", "--no-mirror", "--quiet"]);
    command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "http");
    // SAFETY: this copies an open descriptor, to a number that starting a process does not use.
    let fd = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&listener), libc::F_DUPFD_CLOEXEC, 500) };
    // SAFETY: dup2 is async-signal-safe, and allocates nothing.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, move || match libc::dup2(fd, 3) {
            3 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let server = Server { child: command.spawn().unwrap(), port };
    env.git(env.dir.path(), &["ls-remote", &format!("http://127.0.0.1:{port}/odd")]);
    drop(server);
}

#[test]
fn tls() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let (certificate, key) = env.certificate();
    let port = free_port();
    let (address, certificate_text, key_text) =
        (format!("127.0.0.1:{port}"), certificate.to_str().unwrap(), key.to_str().unwrap());
    let git = format!("127.0.0.1:{}", free_port());
    let said = env.weir_fails(&["serve", "--no-mirror", "--git", &git, "--https", &address]);
    assert!(said.contains("https:// needs --tls-certificate FILE"), "{said}");
    let said = env.weir_fails(&[
        "serve",
        "--no-mirror",
        "--git",
        &git,
        "--https",
        &address,
        "--tls-certificate",
        key_text,
        "--tls-key",
        key_text,
    ]);
    assert!(said.contains("there is no certificate in it"), "{said}");
    let server = Http::serve(
        &env,
        &["--https", &address, "--tls-certificate", certificate_text, "--tls-key", key_text],
    );
    let url = format!("https://127.0.0.1:{port}/odd");
    let target = env.path("copy");
    for version in ["HTTP/1.1", "HTTP/2"] {
        let _ = std::fs::remove_dir_all(&target);
        let http = format!("http.version={version}");
        let clone = ["-c", &http, "clone", "-q", "--mirror", &url, target.to_str().unwrap()];
        let output =
            env.git_command(env.dir.path(), &clone).env("GIT_SSL_CAINFO", &certificate).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(env.picture(&target), env.picture(&upstream), "{version}");
    }
    let old = weir_testing::command("curl")
        .args(["-sk", "--http1.0", &format!("https://127.0.0.1:{port}/healthz")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&old.stdout), "alive\n", "{old:?}");
    // A client that does not trust the certificate ends the handshake; a client that sends nonsense gets no
    // HTTP.
    assert!(!env.git_command(env.dir.path(), &["ls-remote", &url]).output().unwrap().status.success());
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP"), "{said:?}");
    drop(server);
}

#[test]
fn a_restart_refuses_nobody() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let mut server = Http::serve(&env, &[]);
    // A conversation that has begun goes on with the old process.
    let mut waiting = std::net::TcpStream::connect(("127.0.0.1", server.1)).unwrap();
    waiting.write_all(b"002bgit-upload-pack /odd\0host=x\0\0version=1\0").unwrap();
    let asking = std::thread::spawn({
        let url = server.git_url("odd");
        let command =
            move || weir_testing::command("git").args(["ls-remote", &url]).output().unwrap().status.success();
        move || (0..100).filter(|_| !command()).count()
    });
    wait_for_answer(&waiting);
    let _successor = Strays(format!("127.0.0.1:{}", server.1));
    send(server.0.pid(), Signal::SIGUSR2);
    assert_eq!(asking.join().unwrap(), 0, "somebody was refused");
    waiting.write_all(b"0000").unwrap();
    let mut said = String::new();
    waiting.read_to_string(&mut said).unwrap();
    assert!(said.contains("refs/heads/main"), "{said}");
    let ended = server.0.child.wait().unwrap();
    assert!(ended.success(), "{ended:?}");
    env.git(env.dir.path(), &["ls-remote", &server.url("odd")]);
}

#[test]
fn a_restart_answers_what_a_client_is_about_to_ask() {
    let env = Env::new();
    let log = env.path("log");
    let mut server = Http::serve_logging(&env, &[], &log);
    let port = server.0.port;
    let connect = || std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    // One has said nothing yet; one has an answer, and sends its next request in two pieces.
    let (mut silent, mut kept) = (connect(), connect());
    kept.write_all(request).unwrap();
    let mut said = [0; 512];
    let n = kept.read(&mut said).unwrap();
    assert!(said[..n].starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&said[..n]));
    kept.write_all(&request[..20]).unwrap();
    let _successor = Strays(format!("127.0.0.1:{port}"));
    send(server.0.pid(), Signal::SIGUSR2);
    while !std::fs::read_to_string(&log).unwrap().contains("stopping after the work in progress") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // The old process has been told to stop, and its threads hear of it.
    std::thread::sleep(std::time::Duration::from_millis(200));
    silent.write_all(request).unwrap();
    kept.write_all(&request[20..]).unwrap();
    for stream in [&mut silent, &mut kept] {
        let n = stream.read(&mut said).unwrap();
        assert!(said[..n].starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&said[..n]));
    }
    assert!(server.0.child.wait().unwrap().success());
}

/// Silent clients must not take the descriptors that an answer needs.
#[test]
fn few_descriptors_leave_room_for_a_refusal() {
    let env = Env::new();
    let port = free_port();
    let mut command =
        env.weir_command(&["serve", "--no-mirror", "--quiet", "--http", &format!("127.0.0.1:{port}")]);
    command.args(["--git", &format!("127.0.0.1:{}", free_port())]);
    // SAFETY: setrlimit is async-signal-safe, and allocates nothing.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            let few = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
            match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let _server = Server { child: command.spawn().unwrap(), port };
    wait_for_port(port);
    let connect = || std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _silent: Vec<_> = (0..24).map(|_| connect()).collect();
    let mut asks = connect();
    asks.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let mut said = String::new();
    asks.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 503 "), "{said}");
    assert!(said.ends_with("\r\n\r\ntoo many connections; try again in a minute\n"), "{said}");
}

#[test]
fn sockets_that_do_not_listen_are_refused() {
    let env = Env::new();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut command = env.weir_command(&["serve", "--no-mirror", "--quiet"]);
    command.env("LISTEN_FDS", "1");
    // SAFETY: this copies an open descriptor, to a number that starting a process does not use.
    let fd = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::F_DUPFD_CLOEXEC, 500) };
    // SAFETY: dup2 is async-signal-safe, and allocates nothing.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, move || match libc::dup2(fd, 3) {
            3 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("LISTEN_FDS: descriptor 3: it is no socket that listens"), "{said}");
}

#[test]
fn a_restart_starts_the_version_that_was_installed_meanwhile() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let (old, new, link) = (env.path("weir-1"), env.path("weir-2"), env.path("weir"));
    // An upgrade switches a link, or replaces the file.
    for program in [&link, &old] {
        weir_testing::copy_program(env!("CARGO_BIN_EXE_weir"), &old);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&old, &link).unwrap();
        let (port, notify) = (weir_testing::free_port(), env.path("notify"));
        let _ = std::fs::remove_file(&notify);
        let manager = std::os::unix::net::UnixDatagram::bind(&notify).unwrap();
        manager.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let mut command = weir_testing::command(program);
        command.args(["-q", "serve", "--no-mirror", "--git", &format!("127.0.0.1:{port}")]);
        command.env("NOTIFY_SOCKET", &notify).env("WEIR_POOL", env.pool()).stderr(Stdio::inherit());
        let mut server = Server { child: command.spawn().unwrap(), port };
        let serving = || loop {
            let mut text = [0; 4096];
            let n = manager.recv(&mut text).unwrap();
            let text = String::from_utf8_lossy(&text[..n]).into_owned();
            let pid = text.lines().find_map(|line| line.strip_prefix("MAINPID="));
            if let (Some(pid), true) = (pid, text.contains("READY=1")) {
                return pid.to_owned();
            }
        };
        assert_eq!(serving(), server.pid().to_string());
        weir_testing::copy_program(env!("CARGO_BIN_EXE_weir"), &new);
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&new, &link).unwrap();
        if program == &old {
            std::fs::rename(&new, &old).unwrap();
        } else {
            std::fs::remove_file(&old).unwrap();
        }
        let _successor = Strays(format!("127.0.0.1:{port}"));
        send(server.pid(), Signal::SIGHUP);
        let pid = serving();
        assert!(server.child.wait().unwrap().success());
        let runs = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        assert_eq!(&runs, if program == &old { &old } else { &new });
        env.git(env.dir.path(), &["ls-remote", &server.url("odd")]);
    }
}

#[test]
fn a_service_manager_is_told_who_serves() {
    let env = Env::new();
    let manager = std::os::unix::net::UnixDatagram::bind(env.path("notify")).unwrap();
    manager.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let told = || loop {
        let mut text = [0; 4096];
        let n = manager.recv(&mut text).unwrap();
        let text = String::from_utf8_lossy(&text[..n]).into_owned();
        if !text.starts_with("STATUS=") {
            return text;
        }
    };
    let address = format!("127.0.0.1:{}", weir_testing::free_port());
    let mut command = env.weir_command(&["-q", "serve", "--no-mirror", "--git", &address]);
    let mut server = command.env("NOTIFY_SOCKET", env.path("notify")).spawn().unwrap();
    assert_eq!(told(), format!("MAINPID={}\nREADY=1", server.id()));
    // A reload starts another process on the same sockets.
    let _successor = Strays(address.clone());
    send(server.id(), Signal::SIGHUP);
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    let ready = told();
    let pid = ready.strip_prefix("MAINPID=").and_then(|rest| rest.strip_suffix("\nREADY=1")).unwrap();
    assert_ne!(pid, server.id().to_string());
    let status = server.wait().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn files_for_dumb_clients_and_in_part() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    for path in ["/odd/info/refs", "/odd/HEAD", "/odd/objects/info/packs", "/odd.tar"] {
        assert!(
            server.get(path, "").0.starts_with("HTTP/1.1 403 "),
            "{path}: all that ever was is for nobody by default"
        );
    }
    drop(server);
    env.configure("serve", "files = true");
    let server = Http::serve(&env, &[]);
    let target = env.path("dumb");
    let clone = ["clone", "-q", "--mirror", &server.url("odd"), target.to_str().unwrap()];
    let output = env.git_command(env.dir.path(), &clone).env("GIT_SMART_HTTP", "0").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(env.picture(&target), env.picture(&upstream));
    let archive = std::fs::read(env.weir_json(&["show", "odd"])["archive"].as_str().unwrap()).unwrap();
    let (head, body) = server.get("/odd.tar", "");
    assert!(
        head.contains("accept-ranges: bytes") && archive.starts_with(&body) && !body.is_empty(),
        "{head}"
    );
    let etag = head.lines().find_map(|l| l.strip_prefix("etag: ")).unwrap();
    let (head, part) = server.get("/odd.tar", &format!("Range: bytes=512-1023\r\nIf-Range: {etag}\r\n"));
    assert!(
        head.starts_with("HTTP/1.1 206 ")
            && head.contains("content-range: bytes 512-1023/")
            && part == body[512..1024],
        "{head}"
    );
    let (head, whole) = server.get("/odd.tar", "Range: bytes=512-1023\r\nIf-Range: \"other\"\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && whole == body, "{head}");
    assert!(server.get("/odd.tar", &format!("If-None-Match: {etag}\r\n")).0.starts_with("HTTP/1.1 304 "));
    assert!(server.get("/odd.tar", "Range: bytes=99999999-\r\n").0.starts_with("HTTP/1.1 416 "));
    // A clone that starts from a bundle.
    let bundled = env.path("bundled");
    env.git(
        env.dir.path(),
        &[
            "-c",
            "transfer.bundleURI=true",
            "clone",
            "-q",
            "--bare",
            &server.url("odd"),
            bundled.to_str().unwrap(),
        ],
    );
    env.git(&bundled, &["fsck", "--strict"]);
}

#[test]
fn cgi_inetd_and_ssh() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let cgi = |variables: &[(&str, &str)]| {
        let mut command = env.weir_command(&["http-backend"]);
        command
            .env("GIT_PROJECT_ROOT", env.dir.path())
            .env("REQUEST_METHOD", "GET")
            .envs(variables.iter().copied())
            .stdin(Stdio::null());
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    };
    let all = ("GIT_HTTP_EXPORT_ALL", "1");
    let said = cgi(&[all, ("PATH_INFO", "/odd.git/info/refs"), ("QUERY_STRING", "service=git-upload-pack")]);
    assert!(
        said.contains("content-type: application/x-git-upload-pack-advertisement\r\n")
            && said.contains("refs/heads/main"),
        "{said}"
    );
    assert!(cgi(&[("PATH_INFO", "/odd.git/HEAD")]).starts_with("Status: 404 Not Found\r\n"), "not exported");
    assert!(cgi(&[all, ("PATH_INFO", "/odd.git/HEAD")]).ends_with("\r\n\r\nref: refs/heads/main\n"));
    assert!(cgi(&[all, ("PATH_INFO", "/../etc/HEAD")]).starts_with("Status: 404 "));
    assert!(
        cgi(&[
            all,
            ("PATH_INFO", "/odd.git/git-upload-pack"),
            ("REQUEST_METHOD", "POST"),
            ("CONTENT_LENGTH", "x")
        ])
        .starts_with("Status: 400 ")
    );
    // inetd: the connection is standard input and output.
    let base = format!("--base-path={}", env.dir.path().display());
    let mut child = env
        .weir_command(&["daemon", "--inetd", "--export-all", &base, "--log-destination=none"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"0024git-upload-pack /odd.git\0host=x\x000000").unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&said).contains("refs/heads/main"), "{said:?}");
    // ssh: git takes the script for ssh to a host.
    let ssh = env.path("ssh");
    let program = env!("CARGO_BIN_EXE_weir");
    std::fs::write(
        &ssh,
        format!(
            "#!/bin/sh\nshift\nSSH_ORIGINAL_COMMAND=\"$*\" exec {program} --pool {} shell\n",
            env.pool().display()
        ),
    )
    .unwrap();
    std::fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let target = env.path("copy");
    let run = |args: &[&str]| {
        env.git_command(env.dir.path(), args)
            .env("GIT_SSH", &ssh)
            .env("GIT_SSH_VARIANT", "simple")
            .output()
            .unwrap()
    };
    let output = run(&["clone", "-q", "--mirror", "host:odd.git", target.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(env.picture(&target), env.picture(&upstream));
    let output = run(&["ls-remote", "host:nothing"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such repository: nothing"), "{output:?}");
}

#[test]
fn the_daemons_other_options() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    let hook = env.path("hook");
    std::fs::write(
        &hook,
        "#!/bin/sh\n[ \"$2\" = /odd.git ] && exit 0\necho \"not $2 from $REMOTE_ADDR\"\nexit 1\n",
    )
    .unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let option = format!("--access-hook={}", hook.display());
    let refused = |server: &Server, path: &str| {
        let output = env.git_command(env.dir.path(), &["ls-remote", &server.url(path)]).output().unwrap();
        assert!(!output.status.success(), "{path}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let server = env.weir_daemon(&["--export-all", "--informative-errors", &option, "--push-hint=git@%H:%D"]);
    env.git(env.dir.path(), &["ls-remote", &server.url("odd.git")]);
    assert!(refused(&server, "odd").contains("not /odd from 127.0.0.1"));
    let push = env.git_command(&upstream, &["push", &server.url("odd.git"), "main:x"]).output().unwrap();
    assert!(String::from_utf8_lossy(&push.stderr).contains("push to git@127.0.0.1:/odd.git"), "{push:?}");
    drop(server);
    // A repository may turn the service off, unless that is forbidden.
    env.git(&upstream, &["config", "daemon.uploadpack", "false"]);
    let server = env.weir_daemon(&["--export-all", "--informative-errors"]);
    assert!(refused(&server, "odd.git").contains("service not enabled"));
    drop(server);
    let server = env.weir_daemon(&["--export-all", "--forbid-override=upload-pack"]);
    env.git(env.dir.path(), &["ls-remote", &server.url("odd.git")]);
    drop(server);
    let rules = env.path("map.toml");
    std::fs::write(&rules, "[[map]]\nhost = '127.0.0.1'\npath = '/(.*)'\nto = '{1|lower}.git'\n").unwrap();
    let server =
        env.weir_daemon(&["--export-all", "--forbid-override=upload-pack", "--map", rules.to_str().unwrap()]);
    env.git(env.dir.path(), &["ls-remote", &server.url("ODD")]);
    drop(server);
    let said = env.weir_fails(&["daemon", "--user=nobody-of-that-name", "--port=0"]);
    assert!(said.contains("user not found - nobody-of-that-name"), "{said}");
    assert!(env.weir_fails(&["daemon", "--inetd", "--port=1"]).contains("incompatible with --inetd"));
    // In the background, with the process id in a file.
    let (port, pid) = (free_port(), env.path("pid"));
    let (port_option, pid_option, base) = (
        format!("--port={port}"),
        format!("--pid-file={}", pid.display()),
        format!("--base-path={}", env.dir.path().display()),
    );
    env.weir(&[
        "daemon",
        "--detach",
        "--listen=127.0.0.1",
        &port_option,
        &pid_option,
        &base,
        "--export-all",
        "--forbid-override=upload-pack",
    ]);
    wait_for_port(port);
    env.git(env.dir.path(), &["ls-remote", &format!("git://127.0.0.1:{port}/odd.git")]);
    let pid = std::fs::read_to_string(pid).unwrap();
    send(pid.trim().parse().unwrap(), Signal::SIGTERM);
}
