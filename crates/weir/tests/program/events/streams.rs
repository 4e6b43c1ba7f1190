//! Streams: a program prints events, as ssh does that runs Gerrit's `stream-events`.

use weir_testing::{free_port, wait_until};

use super::{end, received, start};
use crate::common::Env;

#[test]
fn a_stream_is_followed_and_what_was_missed_is_made_up_for() {
    let env = Env::new();
    let upstreams = ["plugins/a", "b", "elsewhere/c"].map(|name| env.odd_repository(&format!("{name}.git")));
    let daemon = env.git_daemon(&[]);
    for name in ["plugins/a", "b"] {
        env.weir(&["add", "--name", name, &daemon.url(&format!("{name}.git"))]);
    }
    env.weir(&["add", "--name", "elsewhere", upstreams[2].to_str().unwrap()]);
    env.weir(&["mirror"]);
    // It prints what is in a file, then what is added to it, and ends when it is told to.
    let (feed, over, script) = (env.path("feed"), env.path("over"), env.path("gerrit"));
    std::fs::write(&feed, "").unwrap();
    let text = format!(
        "#!/bin/sh\necho started >> {0}.starts\ntail -n +1 -f {0} &\n\
        while [ ! -e {1} ]; do sleep 0.05; done\nkill $!\n",
        feed.display(),
        over.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let site = daemon.url("");
    let table = format!(
        "\n[[events.stream]]\nforge = \"gerrit\"\nname = \"review\"\ncommand = [\"{}\"]\nurl = \"{site}\"\n",
        script.display()
    );
    let settings = env.pool().join("weir.toml");
    std::fs::write(&settings, std::fs::read_to_string(&settings).unwrap() + &table).unwrap();
    let seq = |name: &str| env.weir_json(&["show", name])["seq"].as_u64().unwrap();
    let before = ["plugins/a", "b", "elsewhere"].map(seq);
    // A change that no event tells of: the stream was away.
    env.add_commit(&upstreams[1], 1);
    env.add_commit(&upstreams[2], 1);
    let port = free_port();
    let serving = start(&env, &["serve", "--git", &format!("127.0.0.1:{port}")], port);
    wait_until(|| "what was missed is not here".to_owned(), || seq("b") > before[1]);
    assert_eq!(seq("elsewhere"), before[2], "it is of another site, and not due");
    env.add_commit(&upstreams[0], 1);
    let project = |name: &str| {
        format!(
            "{{\"type\":\"ref-updated\",\"refUpdate\":{{\"oldRev\":\"0\",\"newRev\":\"1\",\
            \"refName\":\"refs/heads/main\",\"project\":\"{name}\"}}}}\n"
        )
    };
    let lines = [
        "no event\n".to_owned(),
        "{\"type\":\"comment-added\",\"change\":{\"project\":\"b\"}}\n".to_owned(),
        project("plugins/a"),
        project("new"),
    ];
    std::fs::write(&feed, lines.concat()).unwrap();
    wait_until(|| "the event has no effect".to_owned(), || seq("plugins/a") > before[0]);
    let expected = [format!("{site}plugins/a.git"), format!("{site}new.git")].map(|url| (url, 1));
    assert_eq!(received(&env), expected.into());
    let peers = env.weir_json(&["events", "ls"]);
    assert_eq!(peers[0]["peer"], "stream review", "{peers}");
    // It ends, and is started again.
    let starts = || std::fs::read_to_string(env.path("feed.starts")).unwrap().lines().count();
    std::fs::write(&over, "").unwrap();
    wait_until(|| format!("{} starts", starts()), || starts() >= 2);
    std::fs::remove_file(&over).unwrap();
    end(serving);
    // Nothing that it has started is left.
    let running = weir_testing::command("pgrep").args(["-f", feed.to_str().unwrap()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&running.stdout), "");
}
