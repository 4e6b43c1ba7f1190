//! Where `weir serve` listens.

use std::net::TcpStream;
use std::process::Stdio;

use crate::common::{Env, Server};
use weir_testing::{free_port, wait_for_port};

#[test]
fn listen_addresses_are_taken_as_people_write_them() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "up", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let [git, http, all, metrics] = [(); 4].map(|()| free_port());
    env.configure("serve", &format!("http = ['{http}', ':{all}']\nmetrics = ['localhost:{metrics}']"));
    let address = format!("localhost:{git}");
    let mut command = env.weir_command(&["-q", "serve", "--no-mirror", "--git", &address]);
    let _server = Server { child: command.stdout(Stdio::null()).spawn().unwrap(), port: git };
    for port in [git, http, all, metrics] {
        wait_for_port(port);
    }
    let refs = |url: String| env.git(env.dir.path(), &["ls-remote", &url]);
    assert_eq!(refs(format!("git://localhost:{git}/up")), refs(format!("http://localhost:{http}/up")));
    // A port alone is for this machine only, a port after a colon is for all of its addresses.
    assert!(
        TcpStream::connect(("127.0.0.2", all)).is_ok() && TcpStream::connect(("127.0.0.2", http)).is_err()
    );
    let taken = env.weir_fails(&["serve", "--no-mirror", "--git", &address]);
    let words =
        [&format!("cannot listen on {address}: "), "already in use", "choose another with --git ADDRESS"];
    assert!(words.iter().all(|words| taken.contains(*words)), "{taken}");
    let wrong = env.weir_fails(&["serve", "--http", "localhost"]);
    assert!(wrong.contains("write ADDRESS:PORT ([ADDRESS]:PORT for IPv6), NAME:PORT"), "{wrong}");
}
