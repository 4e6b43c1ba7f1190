//! `weir show` speaks to people, and with `--json` to programs.

use crate::common::Env;

#[test]
fn show_has_words_for_people() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "g/up", upstream.to_str().unwrap()]);
    let shown = || -> Vec<(String, String)> {
        let lines = env.weir(&["show", "g/up"]);
        let cells = lines.lines().map(|line| line.split_at(16));
        cells.map(|(label, text)| (label.trim_end().to_owned(), text.to_owned())).collect()
    };
    let text = |lines: &[(String, String)], label: &str| -> String {
        let found = lines.iter().find(|(l, _)| l == label);
        found.unwrap_or_else(|| panic!("no {label}: {lines:?}")).1.clone()
    };
    let new = shown();
    assert_eq!((text(&new, "state"), text(&new, "last visit")), ("new".to_owned(), "none yet".to_owned()));
    assert!(text(&new, "archive").ends_with("g/up.tar, none yet"), "{new:?}");
    env.weir(&["mirror"]);
    env.weir(&["set", "--interval", "1h", "--lfs", "false", "--refs", "heads-and-tags", "g/up"]);
    let mirrored = shown();
    let labels: Vec<&str> = mirrored.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(labels[..5], ["name", "upstream", "state", "last visit", "next visit"], "{labels:?}");
    assert_eq!(text(&mirrored, "settings"), "interval 1 h 0 min; refs heads-and-tags; LFS no");
    assert_eq!(text(&mirrored, "HEAD"), "refs/heads/main");
    assert!(text(&mirrored, "last visit").contains(" UTC, ") && text(&mirrored, "archive").ends_with("KiB"));
    assert!(text(&mirrored, "objects").ends_with(", named by sha1"), "{mirrored:?}");
    assert!(!mirrored.iter().any(|(_, text)| text.contains(['{', '}', '"']) || text.contains("null")));
    // The next visit fails: what is wrong is said.
    std::fs::rename(&upstream, env.path("away")).unwrap();
    env.weir_fails(&["mirror", "g/up"]);
    let failed = shown();
    assert_eq!(text(&failed, "state"), "stale");
    assert!(
        text(&failed, "failure").starts_with("gone: ") && text(&failed, "failure").ends_with("(1 in a row)")
    );
    env.weir(&["pause", "g/up"]);
    assert_eq!(text(&shown(), "next visit"), "none: paused until 'weir resume'");
}
