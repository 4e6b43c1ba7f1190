//! Answers to a client: sent at once, or made by work that takes time.

use std::sync::Arc;

use weir_archive::Region;
use weir_git::{Oid, OidSet};
use weir_repo::{ArrivingPack, StoredClone};

use crate::advertise::LISTED_AT_ONCE_MAX;
use crate::band::Framing;
use crate::options::Context;
use crate::pack_request::{CutRequest, PackRequest};
use crate::work::{RefsRequest, Work};

/// The next action for the caller that drives a session.
pub enum Step {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Send these bytes of a file with this framing.
    SendRegion(Region, Framing),
    /// Send this pack while it arrives, with this framing, and a flush packet; then call
    /// [`crate::UploadPack::finish`].
    SendArriving(Arc<ArrivingPack>, Framing),
    /// Run this where blocking is allowed and send its output, then call [`crate::UploadPack::finish`].
    Work(Work),
    /// Read from the client and call [`crate::UploadPack::feed`].
    Read,
    /// The session is over.
    Done,
}

/// An answer of v0, v1 or v2 to a request.
pub(crate) enum Answer {
    Step(Step),
    /// A pack that is sent as stored bodies.
    Whole {
        before: Vec<u8>,
        clone: StoredClone,
        framing: Framing,
        after: Vec<u8>,
    },
    End,
}

/// Lists refs: at once if they are few, otherwise as work.
pub(crate) fn list_refs(request: RefsRequest) -> Step {
    if request.repo.refs().list().len() > LISTED_AT_ONCE_MAX {
        return Step::Work(Work::Refs(request));
    }
    let mut list = Vec::new();
    let mut give = |piece: Vec<u8>| {
        list.extend_from_slice(&piece);
        Ok(())
    };
    request.write(&mut give).expect("memory takes all of it");
    Step::Send(list)
}

/// Returns the answer with the pack, after `before`: as stored bodies, or computed.
pub(crate) fn answer_pack(context: &Context, request: PackRequest, mut before: Vec<u8>) -> Vec<Answer> {
    let is_plain = request.common.is_empty()
        && request.ofs_delta
        && request.filter.is_none()
        && matches!(request.cut, CutRequest::None);
    if is_plain {
        let mut with_sections = before.clone();
        if let Some(sections) = &request.sections {
            with_sections.extend_from_slice(&sections.write(None));
        }
        let after = if request.flush_after { b"0000".to_vec() } else { Vec::new() };
        if let Some(answer) = whole(context, &request.wants, with_sections, request.framing, after) {
            return vec![answer];
        }
    }
    let work = Answer::Step(Step::Work(Work::Pack(Box::new(request))));
    if before.is_empty() {
        vec![work]
    } else {
        vec![Answer::Step(Step::Send(std::mem::take(&mut before))), work]
    }
}

/// Returns the whole clone that answers `wants`, if the stored bodies are exactly that.
fn whole(
    context: &Context,
    wants: &[Oid],
    before: Vec<u8>,
    framing: Framing,
    after: Vec<u8>,
) -> Option<Answer> {
    let set: OidSet = wants.iter().copied().collect();
    let clone = context.repo.whole_clone(&set)?;
    Some(Answer::Whole { before, clone, framing, after })
}
