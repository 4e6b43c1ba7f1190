//! Upstreams with files kept by Git LFS.

use std::io::Write;
use std::path::PathBuf;

use super::Env;

pub fn sha256(data: &[u8]) -> String {
    use std::process::Stdio;
    let mut child =
        weir_testing::command("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(data).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()[..64].to_owned()
}

/// A repository with a commit of files kept by LFS, and the folder where git-lfs would keep them.
pub struct Upstream(pub PathBuf);

impl Upstream {
    pub fn new(env: &Env, name: &str) -> Upstream {
        Upstream(env.init_bare(name))
    }

    pub fn place(&self, data: &[u8]) -> PathBuf {
        let oid = sha256(data);
        self.0.join("lfs/objects").join(&oid[..2]).join(&oid[2..4]).join(oid)
    }

    pub fn put(&self, data: &[u8]) {
        let place = self.place(data);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, data).unwrap();
    }

    /// Commits pointers to `files`.
    pub fn commit(&self, env: &Env, files: &[&[u8]]) {
        let mut tree = String::new();
        let attributes = env.git_with(
            &self.0,
            &["hash-object", "-w", "--stdin"],
            b"*.bin filter=lfs diff=lfs merge=lfs -text\n",
        );
        tree.push_str(&format!("100644 blob {attributes}\t.gitattributes\n"));
        for (n, data) in files.iter().enumerate() {
            let pointer = format!(
                "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n",
                sha256(data),
                data.len()
            );
            let blob = env.git_with(&self.0, &["hash-object", "-w", "--stdin"], pointer.as_bytes());
            tree.push_str(&format!("100644 blob {blob}\tf{n}.bin\n"));
        }
        let tree = env.git_with(&self.0, &["mktree"], tree.as_bytes());
        let commit = env.git(&self.0, &["commit-tree", "-m", "files", &tree]);
        env.git(&self.0, &["update-ref", "refs/heads/main", &commit]);
        env.git(&self.0, &["symbolic-ref", "HEAD", "refs/heads/main"]);
    }
}

pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(len)
    .collect()
}

pub fn lfs_objects(env: &Env, name: &str) -> (u64, u64) {
    let lfs = &env.weir_json(&["show", name])["lfs"];
    (lfs["objects"].as_u64().unwrap(), lfs["bytes"].as_u64().unwrap())
}
