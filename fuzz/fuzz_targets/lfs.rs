//! Requests of a `git-lfs-transfer` client to a repository without objects.
#![no_main]
use std::process::Command;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use weir_repo::{Repo, open_directory};

fn repo() -> &'static Repo {
    static REPO: OnceLock<Repo> = OnceLock::new();
    REPO.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap().keep();
        assert!(Command::new("git").args(["init", "-q", "--bare"]).arg(&folder).status().unwrap().success());
        open_directory(&folder).unwrap()
    })
}

fuzz_target!(|data: &[u8]| {
    let mut answer = Vec::new();
    let _ = weir_serve::serve_lfs_ssh(repo(), &mut &data[..], &mut answer);
    assert!(answer.starts_with(b"000eversion=1\n0000"));
});
