//! Tests that take minutes and gigabytes: `make slow`.

use std::io::Write;
use std::process::Stdio;

use crate::common::Env;

/// Offsets beyond 4 GiB need the 64-bit table of the index, sizes beyond 2 GiB all the rest.
#[test]
#[ignore = "needs 20 GiB of disk and some minutes"]
fn a_pack_of_more_than_five_gibibytes() {
    const BLOB_BYTES: usize = 720 << 20;
    const BLOBS: usize = 8;
    let env = Env::new();
    let upstream = env.init_bare("huge.git");
    // Stored, not deflated: zeroes stay as long as they are.
    for (key, value) in [
        ("core.compression", "0"),
        ("pack.compression", "0"),
        ("core.bigFileThreshold", "1m"),
        ("gc.auto", "0"),
    ] {
        env.git(&upstream, &["config", key, value]);
    }
    let mut import =
        env.git_command(&upstream, &["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = std::io::BufWriter::with_capacity(1 << 20, import.stdin.take().unwrap());
    let zeroes = vec![0u8; 1 << 20];
    for i in 0..BLOBS {
        write!(
            input,
            "commit refs/heads/main\ncommitter C <c@x> {i} +0000\ndata 1\nx\nM 644 inline \
            f{i}\ndata {BLOB_BYTES}\n"
        )
        .unwrap();
        input.write_all(&[i as u8 + 1; 1 << 20]).unwrap();
        for _ in 1..BLOB_BYTES >> 20 {
            input.write_all(&zeroes).unwrap();
        }
        input.write_all(b"\n\n").unwrap();
    }
    drop(input);
    assert!(import.wait().unwrap().success());
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "huge", &daemon.url("huge.git")]);
    env.weir(&["mirror"]);
    let show = env.weir_json(&["show", "huge"]);
    assert!(show["archive_bytes"].as_u64().unwrap() > 5 << 30, "{show}");
    let archive = show["archive"].as_str().unwrap();
    let listed = weir_testing::command("tar").args(["tf", archive]).output().unwrap();
    assert!(listed.status.success() && listed.stderr.is_empty());
    let server = env.serve();
    env.git(
        env.dir.path(),
        &["-c", "core.compression=0", "clone", "-q", "--mirror", &server.url("huge"), "copy.git"],
    );
    assert_eq!(env.picture(&env.path("copy.git")), env.picture(&upstream));
}

/// An object that is too large to be read into memory is mirrored, checked, compacted and served.
#[test]
#[ignore = "needs some minutes"]
fn an_object_of_more_than_four_gibibytes() {
    const BLOB_BYTES: usize = (4 << 30) + (64 << 20);
    let env = Env::new();
    let upstream = env.init_bare("large.git");
    for (key, value) in [("core.compression", "1"), ("core.bigFileThreshold", "1m"), ("gc.auto", "0")] {
        env.git(&upstream, &["config", key, value]);
    }
    let mut import =
        env.git_command(&upstream, &["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = std::io::BufWriter::with_capacity(1 << 20, import.stdin.take().unwrap());
    write!(
        input,
        "commit refs/heads/main\ncommitter C <c@x> 1600000000 +0000\ndata 1\nx\nM 644 inline \
        big\ndata {BLOB_BYTES}\n"
    )
    .unwrap();
    let zeroes = vec![0u8; 1 << 20];
    for _ in 0..BLOB_BYTES >> 20 {
        input.write_all(&zeroes).unwrap();
    }
    input.write_all(b"\n\n").unwrap();
    drop(input);
    assert!(import.wait().unwrap().success());
    env.configure("limits", "object_bytes_max = \"16 GiB\"");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "large", &daemon.url("large.git")]);
    env.weir(&["mirror"]);
    for _ in 0..2 {
        env.weir(&["fsck"]);
        env.weir(&["fsck", "--repair"]);
        env.weir(&["compact"]);
    }
    assert_eq!(env.stored(), ["large.tar"], "nothing was damaged");
    let server = env.serve();
    env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.url("large"), "copy.git"]);
    assert_eq!(env.picture(&env.path("copy.git")), env.picture(&upstream));
}
