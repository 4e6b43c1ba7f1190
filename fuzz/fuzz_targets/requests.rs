//! The upload-pack machine, fed in pieces; the first byte chooses the protocol version.
#![no_main]
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use weir_repo::{Repo, open_directory};
use weir_upload::{Step, UploadOptions, UploadPack, Version};

/// Makes forty commits on one branch, with a tag every ten. Their ids are the same each time, so that the
/// corpus can name them.
fn repo() -> Arc<Repo> {
    static REPO: OnceLock<Arc<Repo>> = OnceLock::new();
    REPO.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap().keep();
        let git = |args: &[&str], input: &[u8]| {
            let mut git = Command::new("git")
                .current_dir(&folder)
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            git.stdin.take().unwrap().write_all(input).unwrap();
            assert!(git.wait().unwrap().success());
        };
        let mut history = String::new();
        for n in 1..=40 {
            history += &format!(
                "commit refs/heads/main\nmark :{n}\ncommitter C <c@x> {} +0000\ndata 1\nx\n",
                n * 1000
            );
            history += &format!("M 644 inline d{}/f{}\ndata 3\n{n:03}\n\n", n % 3, n % 7);
            if n % 10 == 0 {
                history += &format!("tag v{n}\nfrom :{n}\ntagger T <t@x> 1 +0000\ndata 1\nt\n");
            }
        }
        git(&["init", "-q", "--bare", "-b", "main"], b"");
        git(&["fast-import", "--quiet"], history.as_bytes());
        git(&["repack", "-adq"], b"");
        Arc::new(open_directory(&folder).unwrap())
    })
    .clone()
}

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let mut machine = UploadPack::new(repo(), Version::from_number(first % 3), UploadOptions::default());
    let mut pieces = rest.chunks(1 + usize::from(first / 3));
    loop {
        match machine.step() {
            Step::Send(_) | Step::SendRegion(..) | Step::SendArriving(..) => {}
            Step::Work(work) => {
                let outcome = work.run(&mut |_| Ok(()), &AtomicBool::new(false));
                machine.finish(outcome);
            }
            Step::Read => match pieces.next() {
                Some(piece) => drop(machine.feed(piece)),
                None => break,
            },
            Step::Done => break,
        }
    }
});
