//! Colours: on a terminal or if they are wanted, and only weir's own.

use crate::common::Env;

#[test]
fn colors_are_there_if_they_are_wanted() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "up", upstream.to_str().unwrap()]);
    env.weir(&["add", "--force", "--name", "gone", "/no/such/path"]);
    env.weir_fails(&["mirror"]);
    let commands: [&[&str]; 4] = [&["ls"], &["status"], &["errors"], &["check", "--offline"]];
    for command in commands {
        let plain = env.weir_command(command).output().unwrap().stdout;
        let mut coloured = env.weir_command(&[&["--color", "always"], command].concat());
        let coloured = coloured.env("NO_COLOR", "1").env("TERM", "dumb").output().unwrap().stdout;
        assert!(!plain.contains(&0x1b) && coloured.contains(&0x1b), "{command:?}");
        let json = env.weir_command(&[&["--json", "--color", "always"], command].concat()).output().unwrap();
        assert!(!json.stdout.contains(&0x1b) && !json.stderr.contains(&0x1b), "{command:?}");
    }
    let list = env.weir(&["--color", "always", "ls"]);
    assert!(list.contains("\u{1b}[32mok\u{1b}[0m") && list.contains("\u{1b}[31mfailed\u{1b}[0m"), "{list:?}");
    // A terminal has them, unless it or its user says otherwise.
    let on_terminal = |name: &str, value: &str| {
        let mut script = weir_testing::command("script");
        script.args(["-qec", &format!("{} ls", env!("CARGO_BIN_EXE_weir")), "/dev/null"]);
        script.env("WEIR_POOL", env.pool()).env_remove("NO_COLOR").env("TERM", "xterm").env(name, value);
        let output = script.stdin(std::process::Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().contains("\u{1b}[32mok")
    };
    assert!(on_terminal("NO_COLOR", "") && !on_terminal("NO_COLOR", "1") && !on_terminal("TERM", "dumb"));
    let error = env.weir_command(&["--color", "always", "show", "\u{1b}[7mx"]).output().unwrap();
    let error = String::from_utf8(error.stderr).unwrap();
    assert!(error.starts_with("\u{1b}[1;31merror:\u{1b}[0m ") && error.contains("'?[7mx'"), "{error:?}");
}
