//! Six tar readers agree on a live archive and on a sealed one, and git accepts the repository that they
//! extract.

use std::path::Path;
use std::process::Command;

use weir_testing::{command, program};

use crate::common::Env;

const PYTHON: &str = "import sys, tarfile\nwith tarfile.open(sys.argv[1]) as t:\n  for m in t: \
    print(m.name.rstrip('/'), m.size)\n";
const GO: &str = r#"package main
import ("archive/tar"; "fmt"; "io"; "os"; "strings")
func main() {
  f, err := os.Open(os.Args[1]); if err != nil { panic(err) }
  r := tar.NewReader(f)
  for { h, err := r.Next(); if err == io.EOF { break }; if err != nil { panic(err) }
    fmt.Println(strings.TrimRight(h.Name, "/"), h.Size) }
}
"#;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{command:?} warns: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the names in the listing of a reader, without sizes.
fn names(text: &str) -> Vec<String> {
    text.lines().map(|l| l.split(' ').next().unwrap().trim_end_matches('/').to_owned()).collect()
}

fn check(env: &Env, archive: &Path, what: &str) {
    let python = run(command("python3").args(["-c", PYTHON]).arg(archive));
    let mut rust = String::new();
    for entry in tar::Archive::new(std::fs::File::open(archive).unwrap()).entries().unwrap() {
        let entry = entry.unwrap();
        rust.push_str(&format!(
            "{} {}\n",
            entry.path().unwrap().display().to_string().trim_end_matches('/'),
            entry.size()
        ));
    }
    assert_eq!(rust, python, "{what}: Rust");
    if let Some(go) = program("go") {
        let source = env.path("list.go");
        std::fs::write(&source, GO).unwrap();
        let go = run(command(go)
            .arg("run")
            .arg(&source)
            .arg(archive)
            .env("GOFLAGS", "-mod=mod")
            .env("HOME", env.dir.path()));
        assert_eq!(go, python, "{what}: Go");
    }
    for (reader, words) in [("tar", &[][..]), ("bsdtar", &[]), ("busybox", &["tar"])] {
        let Some(path) = program(reader) else { continue };
        let listed = run(command(&path).args(words).arg("tf").arg(archive));
        assert_eq!(names(&listed), names(&python), "{what}: {reader}");
        let target = env.path(&format!("{what}-{reader}"));
        std::fs::create_dir(&target).unwrap();
        run(command(&path).args(words).arg("xf").arg(archive).current_dir(&target));
        env.git(&target, &["fsck", "--full", "--strict", "--no-dangling"]);
    }
}

#[test]
fn six_readers_agree() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    for i in 0..5 {
        let stream = format!(
            "commit refs/heads/main\ncommitter C <c@x> {} +0000\ndata 1\nx\nfrom refs/heads/main^0\nM 644 \
            inline n{i}\ndata 1\nn\n",
            1_700_000_000 + i
        );
        env.git_with(&upstream, &["fast-import", "--quiet"], stream.as_bytes());
        env.weir(&["mirror", "--all"]);
    }
    let show = env.weir_json(&["show", "u"]);
    let archive = Path::new(show["archive"].as_str().unwrap());
    assert_eq!(archive.extension().unwrap(), "tar");
    for pack in show["packs"].as_array().unwrap() {
        assert_eq!(pack["offset"].as_u64().unwrap() % 4096, 0, "packs are aligned");
    }
    check(&env, archive, "live");
    env.weir(&["export", "u", "sealed.tar"]);
    check(&env, &env.path("sealed.tar"), "sealed");
    // The refs of the extraction are the last ones: the last member of a name wins.
    let refs = |at: &Path| env.git(at, &["for-each-ref"]);
    assert_eq!(refs(&env.path("live-tar")), refs(&upstream));
    // The other export formats.
    env.weir(&["export", "u", "u.bundle"]);
    // An older bundle stays until the new one is whole; none is made of damaged data.
    let before = std::fs::read(env.path("u.bundle")).unwrap();
    let archive = env.pool().join("store/u.tar");
    let whole = std::fs::read(&archive).unwrap();
    let mut flipped = whole.clone();
    let pack = whole.windows(4).position(|w| w == b"PACK").unwrap();
    flipped[pack + 20] ^= 1;
    std::fs::write(&archive, flipped).unwrap();
    for target in ["u.bundle", "new.tar", "new.git"] {
        assert!(env.weir_fails(&["export", "u", target]).contains("is damaged"), "{target}");
        assert_eq!(env.path(target).exists(), target == "u.bundle");
    }
    let from = archive.to_str().unwrap();
    assert!(env.weir_fails(&["clone", from, "new"]).contains("is damaged"));
    assert!(!env.path("new/.git").exists());
    std::fs::write(&archive, whole).unwrap();
    assert_eq!(std::fs::read(env.path("u.bundle")).unwrap(), before);
    let said = env.weir_fails(&["export", "u", "nosuch/u.bundle"]);
    assert!(said.contains("cannot write 'nosuch/u.bundle'"), "{said}");
    env.git(env.dir.path(), &["clone", "-q", "--mirror", "u.bundle", "from-bundle.git"]);
    assert_eq!(env.picture(&env.path("from-bundle.git")).0, refs_in_picture(&env, &upstream));
    env.weir(&["export", "u", "bare.git"]);
    env.git(&env.path("bare.git"), &["fsck", "--full", "--strict", "--no-dangling"]);
    assert_eq!(env.picture(&env.path("bare.git")), env.picture(&upstream));
    // The store has one file for each repository.
    assert_eq!(env.stored(), ["u.tar"]);
}

fn refs_in_picture(env: &Env, upstream: &Path) -> String {
    env.picture(upstream).0
}
