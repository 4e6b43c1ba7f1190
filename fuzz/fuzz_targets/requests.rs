//! The upload-pack machine, fed in pieces; the first byte chooses the protocol version.
#![no_main]
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use weir_repo::{ArchiveRepo, Refs, Repo};
use weir_upload::{Options, Step, UploadPack, Version};

fn repo() -> Arc<Repo> {
    static REPO: OnceLock<Arc<Repo>> = OnceLock::new();
    REPO.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = ArchiveRepo::create(&folder.path().join("a.tar"), weir_git::HashKind::Sha1, 1).unwrap();
        archive.commit(None, &Refs::default(), &[], 0, 0).unwrap();
        archive.repo().unwrap().unwrap()
    })
    .clone()
}

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let mut machine = UploadPack::new(repo(), Version::from_number(first % 3), Options::default());
    let mut pieces = rest.chunks(1 + usize::from(first / 3));
    loop {
        match machine.step() {
            Step::Send(_) | Step::SendRegion(..) => {}
            Step::Work(work) => {
                let outcome = work.run(&mut |_| Ok(()));
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
