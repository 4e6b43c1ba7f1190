//! Upstreams that are plain files behind a web server, as `git update-server-info` leaves them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::Env;

/// A web server for the folder of a test.
struct Web {
    child: Child,
    port: u16,
}

impl Web {
    fn new(env: &Env) -> Web {
        let mut child = weir_testing::command("python3")
            .args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"])
            .current_dir(env.dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // "Serving HTTP on 127.0.0.1 port 41234 (http://127.0.0.1:41234/) ..."
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.split(' ').nth(5).and_then(|port| port.parse().ok());
        Web { child, port: port.unwrap_or_else(|| panic!("no port in {line:?}")) }
    }

    fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn add_commit(env: &Env, upstream: &Path, name: &str) {
    env.commit_file(upstream, "refs/heads/main", name, name.as_bytes());
}

#[test]
fn loose_objects_packs_and_alternates_are_mirrored() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.git(&up, &["update-server-info"]);
    // A fork that borrows the objects of the other repository, and has packs and loose objects besides.
    env.git(env.dir.path(), &["clone", "-q", "--mirror", "--shared", "up.git", "fork.git"]);
    let fork = env.path("fork.git");
    add_commit(&env, &fork, "of the fork");
    env.git(&fork, &["repack", "-q", "-d", "-l"]);
    add_commit(&env, &fork, "and loose");
    fs::write(fork.join("objects/info/http-alternates"), "../../up.git/objects\n").unwrap();
    env.git(&fork, &["update-server-info"]);
    let web = Web::new(&env);
    env.weir(&["add", "--name", "a", &web.url("up.git")]);
    env.weir(&["add", "--name", "fork", &web.url("fork.git")]);
    env.weir(&["mirror"]);
    let server = env.serve();
    env.assert_same(&server, "a", &up, "loose");
    env.assert_same(&server, "fork", &fork, "with alternates");
    let said = env.weir(&["mirror", "--all"]);
    assert!(said.contains("2 unchanged"), "{said}");
    // New objects are fetched, whether they are loose, packed, or repacked with all the rest.
    for n in 0..3 {
        add_commit(&env, &up, &format!("more {n}"));
        env.git(&up, &["update-ref", "-d", "refs/tags/v1"]);
        if n > 0 {
            env.git(&up, &["repack", "-q", "-d", if n == 1 { "-l" } else { "-a" }]);
        }
        env.git(&up, &["update-server-info"]);
        env.weir(&["mirror", "--all"]);
        env.assert_same(&server, "a", &up, &format!("round {n}"));
    }
    env.weir(&["fsck"]);
    let left: Vec<_> = env.stored().into_iter().filter(|name| name.contains(".weir-work-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn sha256_and_empty_ones() {
    let env = Env::new();
    env.git(env.dir.path(), &["init", "-q", "--bare", "--object-format=sha256", "-b", "main", "up.git"]);
    let up = env.path("up.git");
    let tree = env.git_with(&up, &["mktree"], b"");
    let commit = env.git(&up, &["commit-tree", "-m", "x", &tree]);
    env.git(&up, &["update-ref", "refs/heads/main", &commit]);
    add_commit(&env, &up, "second");
    env.git(&up, &["update-server-info"]);
    env.init_bare("none.git");
    env.git(&env.path("none.git"), &["update-server-info"]);
    let web = Web::new(&env);
    env.weir(&["add", "--name", "a", &web.url("up.git")]);
    env.weir(&["add", "--name", "none", &web.url("none.git")]);
    env.weir(&["mirror"]);
    env.assert_same(&env.serve(), "a", &up, "sha256");
}

#[test]
fn lies_and_gaps_are_told_of() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    add_commit(&env, &up, "last");
    env.git(&up, &["update-server-info"]);
    let tip = env.git(&up, &["rev-parse", "main"]);
    let tree = env.git(&up, &["rev-parse", "main^{tree}"]);
    let place = |id: &str| up.join("objects").join(&id[..2]).join(&id[2..]);
    let whole = fs::read(place(&tip)).unwrap();
    let web = Web::new(&env);
    env.weir(&["add", "--name", "a", &web.url("up.git")]);
    let fails = |class: &str, words: &str| {
        let said = env.weir_fails(&["mirror", "--all"]);
        assert!(said.contains(words) && said.contains(&format!("({class})")), "{class}, {words}: {said}");
    };
    // The tip's file holds another object; then an object that claims to have four gigabytes; then it is
    // missing.
    let write = |data: &[u8]| {
        fs::remove_file(place(&tip)).ok();
        fs::write(place(&tip), data).unwrap();
    };
    write(&fs::read(place(&tree)).unwrap());
    fails("bad-pack", "of the upstream has another id");
    let mut large = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut large, b"blob 4000000000\0x").unwrap();
    write(&large.finish().unwrap());
    fails("limit", "raise 'limits.held_bytes_max'");
    fs::remove_file(place(&tip)).unwrap();
    fails("incomplete", "git update-server-info");
    // A pack that is listed but missing, and an index that is not an index.
    let packs = fs::read_to_string(up.join("objects/info/packs")).unwrap();
    let more = "P pack-0123456789012345678901234567890123456789.pack\nP ../../x.pack\nnonsense\n";
    fs::write(up.join("objects/info/packs"), format!("{packs}{more}")).unwrap();
    fails("incomplete", &tip);
    fs::write(up.join("objects/pack/pack-0123456789012345678901234567890123456789.idx"), "no index").unwrap();
    fails("bad-pack", "index");
    fs::write(up.join("objects/info/packs"), packs).unwrap();
    write(&whole);
    env.weir(&["mirror", "--all"]);
    env.assert_same(&env.serve(), "a", &up, "in the end");
    // Alternates on another host are not followed: perhaps only the pool's owner may read those objects.
    env.git(env.dir.path(), &["init", "-q", "--bare", "-b", "main", "leak.git"]);
    let leak = env.path("leak.git");
    fs::create_dir_all(leak.join("info")).unwrap();
    fs::write(leak.join("info/refs"), format!("{tip}\trefs/heads/main\r\n")).unwrap();
    fs::create_dir_all(leak.join("objects/info")).unwrap();
    fs::write(
        leak.join("objects/info/http-alternates"),
        format!("http://localhost:{}/up.git/objects\n", web.port),
    )
    .unwrap();
    env.weir(&["add", "--name", "leak", &web.url("leak.git")]);
    let said = env.weir_fails(&["mirror", "leak"]);
    assert!(said.contains(&tip) && said.contains("(incomplete)"), "{said}");
    // A page that is not a repository.
    fs::create_dir(env.path("page.git")).unwrap();
    fs::create_dir(env.path("page.git/info")).unwrap();
    fs::write(env.path("page.git/info/refs"), "<html>It works!</html>\n").unwrap();
    env.weir(&["add", "--name", "page", &web.url("page.git")]);
    let said = env.weir_fails(&["mirror", "page"]);
    assert!(said.contains("no git repository") && said.contains("(protocol)"), "{said}");
}
