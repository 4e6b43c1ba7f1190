//! An upstream that a real web server serves: nginx with git's http-backend.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use weir_testing::{Signal, Terminated, command_ended_by, free_port, program, wait_for_port, wait_until};

use crate::common::Env;

#[test]
fn smart_http_behind_a_real_web_server() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    let port = free_port();
    let Some(_nginx) = nginx(&env, port) else { return };
    wait_for_port(port);
    for version in [2, 0] {
        std::fs::write(
            env.pool().join("weir.toml"),
            format!("[transport]\nprotocol_version_max = {version}\n"),
        )
        .unwrap();
        let name = format!("v{version}");
        env.weir(&["add", "--name", &name, &format!("http://127.0.0.1:{port}/git/u.git")]);
        env.weir(&["mirror", &name]);
        env.add_commit(&upstream, version);
        env.weir(&["mirror", &name]);
        env.assert_same(&env.serve(), &name, &upstream, &name);
    }
    // A redirect; then a repository that is refused without a password, and mirrored with one from netrc.
    std::fs::write(env.pool().join("weir.toml"), "[transport]\ncredential_helper = false\n").unwrap();
    env.weir(&["add", "--name", "moved", &format!("http://127.0.0.1:{port}/moved/u.git")]);
    env.weir(&["mirror", "moved"]);
    env.weir(&["add", "--name", "private", &format!("http://127.0.0.1:{port}/private/u.git")]);
    let said = env.weir_fails(&["mirror", "private"]);
    assert!(said.contains("(forbidden)"), "{said}");
    std::fs::write(env.path(".netrc"), "machine 127.0.0.1 login user password secret\n").unwrap();
    env.weir(&["mirror", "private"]);
    env.weir(&["add", "--name", "none", &format!("http://127.0.0.1:{port}/git/none.git")]);
    let said = env.weir_fails(&["mirror", "none"]);
    assert!(said.contains("(gone)"), "{said}");
}

#[test]
fn smart_http_that_is_slow_to_make_a_pack_is_waited_for() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    let hook = env.path("hook");
    std::fs::write(&hook, "#!/bin/sh\nsleep 1.5\nexec \"$@\"\n").unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let port = free_port();
    let Some(_nginx) = nginx(&env, port) else { return };
    wait_for_port(port);
    std::fs::write(env.pool().join("weir.toml"), "[transport]\nidle_timeout = '1s'\n").unwrap();
    env.weir(&["add", "--name", "slow", &format!("http://127.0.0.1:{port}/slow/u.git")]);
    env.weir(&["mirror", "slow"]);
    env.assert_same(&env.serve(), "slow", &upstream, "http");
}

/// Starts nginx with git's http-backend by fcgiwrap. Both end with the test, and their workers with them.
pub(super) fn nginx(env: &Env, port: u16) -> Option<[Terminated; 2]> {
    let (nginx, fcgiwrap) = (program("nginx")?, program("fcgiwrap")?);
    let dir = env.dir.path().display();
    let exec_path = env.git(env.dir.path(), &["--exec-path"]);
    let fastcgi = format!(
        "fastcgi_pass unix:{dir}/fcgi.sock; fastcgi_param SCRIPT_FILENAME {exec_path}/git-http-backend; \
        fastcgi_param GIT_HTTP_EXPORT_ALL 1;
         fastcgi_param GIT_PROJECT_ROOT {dir}; fastcgi_param PATH_INFO $path; fastcgi_param QUERY_STRING
         $query_string;
         fastcgi_param REQUEST_METHOD $request_method; fastcgi_param CONTENT_TYPE $content_type;
         fastcgi_param CONTENT_LENGTH $content_length;
         fastcgi_param HTTP_GIT_PROTOCOL $http_git_protocol; fastcgi_param HTTP_CONTENT_ENCODING
         $http_content_encoding; fastcgi_param REMOTE_USER $remote_user;
         fastcgi_param GIT_CONFIG_KEY_0 safe.directory; fastcgi_param GIT_CONFIG_VALUE_0 *;
         fastcgi_param GIT_CONFIG_KEY_1 uploadpack.packObjectsHook; fastcgi_param GIT_CONFIG_VALUE_1
         {dir}/hook;"
    );
    // git reads that many settings from the environment.
    let slow = format!("{fastcgi} fastcgi_param GIT_CONFIG_COUNT 2;");
    let fastcgi = format!("{fastcgi} fastcgi_param GIT_CONFIG_COUNT 1;");
    let config = format!(
        "daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx.err; events {{}}
         http {{ access_log off; client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2;
         fastcgi_temp_path {dir}/t3;
         uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
         client_max_body_size 0;
         server {{ listen 127.0.0.1:{port};
           location ~ ^/git(?<path>/.*)$ {{ {fastcgi} }}
           location ~ ^/slow(?<path>/.*)$ {{ {slow} }}
           location ~ ^/private(?<path>/.*)$ {{ auth_basic x; auth_basic_user_file {dir}/users; {fastcgi} }}
           location ~ ^/moved(/.*)$ {{ return 302 /git$1$is_args$args; }}
         }} }}"
    );
    std::fs::write(env.path("nginx.conf"), config).unwrap();
    std::fs::write(env.path("users"), "user:{PLAIN}secret\n").unwrap();
    let spawn = |program: &Path, args: &[String]| {
        let mut command = command_ended_by(Signal::SIGTERM, program);
        command.args(args).current_dir(env.dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        Terminated::start(command.stderr(Stdio::null()))
    };
    let socket = format!("unix:{dir}/fcgi.sock");
    let fcgi = spawn(&fcgiwrap, &["-s".to_owned(), socket, "-c".to_owned(), "4".to_owned()]);
    wait_until(|| "fcgiwrap makes no socket".to_owned(), || env.path("fcgi.sock").exists());
    // The workers of nginx run as another user when it is started by root: they need to reach the socket.
    std::fs::set_permissions(env.path("fcgi.sock"), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(env.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    Some([spawn(&nginx, &["-c".to_owned(), format!("{dir}/nginx.conf")]), fcgi])
}
