//! Protocol v0 and v1: wants, then haves in turns, then a pack (gitprotocol-pack).

use weir_git::pktline::{Pkt, push};
use weir_git::{Oid, OidSet};
use weir_repo::Cut;

use crate::answer::{Answer, Step, answer_pack};
use crate::band::Framing;
use crate::error::{RequestError, refuse};
use crate::fetch_arguments::{FetchArguments, check_object_format, shown};
use crate::options::Context;
use crate::pack_request::{CutRequest, PackRequest};
use crate::policy::WantPolicy;
use crate::work::{CutWork, Meeting, ShownRequest, Work};

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum MultiAck {
    #[default]
    None,
    Plain,
    Detailed,
}

/// A request that is being read.
#[derive(Default)]
pub(crate) struct V0 {
    asked: FetchArguments,
    wants_ended: bool,
    /// The end of history, once it was requested and computed.
    pub(crate) cut: Option<Cut>,
    multi_ack: MultiAck,
    no_done: bool,
    framing: Option<Framing>,
    common: Vec<Oid>,
    common_set: OidSet,
    /// Whether a have since the last flush was here, and whether one was not.
    got_common: bool,
    got_other: bool,
    sent_ready: bool,
    /// The number of common commits for which it was checked whether they are enough, and the answer.
    meets: Option<(usize, bool)>,
    /// The number of commits examined for such checks.
    looked_at: usize,
    /// The line to answer once the check is done.
    pending: Option<Pending>,
    lines: usize,
}

/// A line that cannot be answered at once.
enum Pending {
    /// A have that is not here.
    Have(Oid),
    /// The end of a block of haves.
    Flush,
    /// A have that is here, and that refs may not reach.
    Doubtful(Oid),
}

/// Whether enough is in common.
enum Enough {
    Known(bool),
    ToFindOut(Box<Meeting>),
}

/// The number of commits examined for one client to check whether enough is in common; after that, the client
/// has to send `done` by itself.
const LOOKED_AT_MAX: usize = 20_000;

pub(crate) fn take(state: &mut V0, context: &Context, pkt: Pkt<'_>) -> Result<Vec<Answer>, RequestError> {
    state.lines += 1;
    if state.lines > context.options.limits.lines_max {
        return refuse(format!("the request has more than {} lines", context.options.limits.lines_max));
    }
    match pkt {
        Pkt::Flush if !state.wants_ended => {
            if state.asked.wants.is_empty() {
                return Ok(vec![Answer::End]);
            }
            check_wants(state, context)?;
            state.wants_ended = true;
            if !state.asked.deepen.is_asked() {
                return Ok(Vec::new());
            }
            let work = CutWork {
                repo: context.repo.clone(),
                wants: state.asked.wants.clone(),
                shallow: state.asked.shallow.clone(),
                deepen: std::mem::take(&mut state.asked.deepen),
                steps_max: context.options.limits.steps_max,
            };
            Ok(vec![Answer::Step(Step::Work(Work::Cut(Box::new(work))))])
        }
        Pkt::Flush => Ok(flush_haves(state, context)),
        Pkt::Delim | Pkt::ResponseEnd => refuse("a special packet where none belongs"),
        Pkt::Line(_) => {
            let line = pkt.text();
            if !state.wants_ended {
                return want(state, context, line).map(|()| Vec::new());
            }
            if line == b"done" {
                return Ok(finish(state, context));
            }
            match line.strip_prefix(b"have ").and_then(|hex| Oid::from_hex(context.repo.hash(), hex)) {
                Some(oid) => Ok(have(state, context, oid)),
                None => refuse(format!("git upload-pack: expected SHA1 list, got '{}'", shown(line))),
            }
        }
    }
}

fn send(bytes: Vec<u8>) -> Vec<Answer> {
    if bytes.is_empty() { Vec::new() } else { vec![Answer::Step(Step::Send(bytes))] }
}

fn want(state: &mut V0, context: &Context, line: &[u8]) -> Result<(), RequestError> {
    if state.asked.take(context, line)? {
        return Ok(());
    }
    let hex_len = context.repo.hash().hex_len();
    let parsed = line.strip_prefix(b"want ").and_then(|rest| rest.split_at_checked(hex_len));
    let Some((Some(oid), capabilities)) =
        parsed.map(|(hex, rest)| (Oid::from_hex(context.repo.hash(), hex), rest))
    else {
        return refuse(format!(
            "git upload-pack: protocol error, expected to get object ID, not '{}'",
            shown(line)
        ));
    };
    let asked = &mut state.asked;
    if asked.wants.is_empty() {
        for word in capabilities.split(|&c| c == b' ') {
            match word {
                b"multi_ack" if state.multi_ack == MultiAck::None => state.multi_ack = MultiAck::Plain,
                b"multi_ack_detailed" => state.multi_ack = MultiAck::Detailed,
                b"no-done" => state.no_done = true,
                b"side-band" if state.framing.is_none() => state.framing = Some(Framing::Small),
                b"side-band-64k" => state.framing = Some(Framing::Large),
                b"thin-pack" => asked.thin = true,
                b"ofs-delta" => asked.ofs_delta = true,
                b"no-progress" => asked.no_progress = true,
                b"include-tag" => asked.include_tag = true,
                b"deepen-relative" => asked.deepen.relative = true,
                _ => {
                    if let Some(name) = word.strip_prefix(b"object-format=") {
                        check_object_format(context.repo.hash(), name)?;
                    }
                }
            }
        }
    }
    asked.want(oid);
    Ok(())
}

/// Checks that wants are advertised, or that other objects are allowed and here. Whether refs reach them is
/// checked when the pack is made.
fn check_wants(state: &V0, context: &Context) -> Result<(), RequestError> {
    let tips: OidSet = context.repo.refs().tips().collect();
    let features = &context.options.features;
    let is_tip =
        |w: &Oid| tips.contains(w) || (features.hidden_tips && context.repo.hidden_tips().contains(w));
    let is_refused = |w: &Oid| match features.early_wants() {
        WantPolicy::Advertised => !is_tip(w) || !context.repo.contains(w),
        WantPolicy::Reachable | WantPolicy::Any => !context.repo.contains(w),
    };
    match state.asked.wants.iter().find(|w| is_refused(w)) {
        Some(oid) => refuse(context.refusal_of(oid)),
        None => Ok(()),
    }
}

/// Returns whether enough is in common, or the work that finds it out. That runs once for each new common
/// commit, not for each line from the client.
fn is_enough(state: &V0, context: &Context) -> Enough {
    if state.common.is_empty() {
        return Enough::Known(false);
    }
    match state.meets {
        Some((common, answer)) if common == state.common.len() => Enough::Known(answer),
        _ if state.looked_at >= LOOKED_AT_MAX => Enough::Known(false),
        _ => Enough::ToFindOut(Box::new(Meeting {
            repo: context.repo.clone(),
            wants: state.asked.wants.clone(),
            common: state.common.clone(),
            steps_max: context.options.limits.steps_max,
        })),
    }
}

/// Continues after it was found out whether enough is in common.
pub(crate) fn met(state: &mut V0, context: &Context, answer: bool, looked_at: usize) -> Vec<Answer> {
    debug_assert!(state.pending.is_some(), "no line waits for this");
    state.meets = Some((state.common.len(), answer));
    state.looked_at += looked_at;
    match state.pending.take() {
        Some(Pending::Have(oid)) => send(have_other(state, &oid, answer)),
        Some(Pending::Flush) => flush(state, context, answer),
        Some(Pending::Doubtful(_)) | None => Vec::new(),
    }
}

/// Continues after it was found out whether refs reach a have.
pub(crate) fn looked_up(state: &mut V0, context: &Context, is_shown: bool) -> Vec<Answer> {
    match state.pending.take() {
        Some(Pending::Doubtful(oid)) if is_shown => have_common(state, oid),
        Some(Pending::Doubtful(oid)) => have_absent(state, context, oid),
        _ => Vec::new(),
    }
}

fn have(state: &mut V0, context: &Context, oid: Oid) -> Vec<Answer> {
    if state.common_set.contains(&oid) {
        return have_common(state, oid);
    }
    if !context.repo.contains(&oid) {
        return have_absent(state, context, oid);
    }
    if !context.repo.may_be_removed(&oid) {
        return have_common(state, oid);
    }
    debug_assert!(state.pending.is_none(), "a line waits for its answer");
    state.pending = Some(Pending::Doubtful(oid));
    let (repo, steps_max) = (context.repo.clone(), context.options.limits.steps_max);
    vec![Answer::Step(Step::Work(Work::Shown(Box::new(ShownRequest { repo, have: oid, steps_max }))))]
}

/// Answers a have that is not here.
fn have_absent(state: &mut V0, context: &Context, oid: Oid) -> Vec<Answer> {
    state.got_other = true;
    if state.multi_ack == MultiAck::None {
        return Vec::new();
    }
    match is_enough(state, context) {
        Enough::Known(answer) => send(have_other(state, &oid, answer)),
        Enough::ToFindOut(meeting) => {
            debug_assert!(state.pending.is_none(), "a line waits for its answer");
            state.pending = Some(Pending::Have(oid));
            vec![Answer::Step(Step::Work(Work::Meet(meeting)))]
        }
    }
}

fn have_common(state: &mut V0, oid: Oid) -> Vec<Answer> {
    let mut out = Vec::new();
    let mut line = |text: String| push(&mut out, text.as_bytes());
    state.got_common = true;
    let first = state.common.is_empty();
    if state.common_set.insert(oid) {
        state.common.push(oid);
    }
    match state.multi_ack {
        MultiAck::Detailed => line(format!("ACK {oid} common\n")),
        MultiAck::Plain => line(format!("ACK {oid} continue\n")),
        MultiAck::None if first => line(format!("ACK {oid}\n")),
        MultiAck::None => {}
    }
    send(out)
}

/// Answers a have that is not here: if enough is in common, that no more are needed.
fn have_other(state: &mut V0, oid: &Oid, is_enough: bool) -> Vec<u8> {
    let mut out = Vec::new();
    if is_enough {
        let how = if state.multi_ack == MultiAck::Detailed { "ready" } else { "continue" };
        state.sent_ready |= state.multi_ack == MultiAck::Detailed;
        push(&mut out, format!("ACK {oid} {how}\n").as_bytes());
    }
    out
}

fn flush_haves(state: &mut V0, context: &Context) -> Vec<Answer> {
    if state.multi_ack != MultiAck::Detailed || !state.got_common || state.got_other {
        return flush(state, context, false);
    }
    match is_enough(state, context) {
        Enough::Known(answer) => flush(state, context, answer),
        Enough::ToFindOut(meeting) => {
            debug_assert!(state.pending.is_none(), "a line waits for its answer");
            state.pending = Some(Pending::Flush);
            vec![Answer::Step(Step::Work(Work::Meet(meeting)))]
        }
    }
}

fn flush(state: &mut V0, context: &Context, is_enough: bool) -> Vec<Answer> {
    let mut out = Vec::new();
    if is_enough && let Some(last) = state.common.last() {
        state.sent_ready = true;
        push(&mut out, format!("ACK {last} ready\n").as_bytes());
    }
    if state.common.is_empty() || state.multi_ack != MultiAck::None {
        push(&mut out, b"NAK\n");
    }
    if state.no_done && state.sent_ready {
        let mut answers = send(out);
        answers.extend(finish(state, context));
        return answers;
    }
    (state.got_common, state.got_other) = (false, false);
    let mut answers = send(out);
    if context.options.features.stateless {
        answers.push(Answer::End);
    }
    answers
}

fn finish(state: &mut V0, context: &Context) -> Vec<Answer> {
    let mut out = Vec::new();
    match state.common.last() {
        Some(last) if state.multi_ack != MultiAck::None => push(&mut out, format!("ACK {last}\n").as_bytes()),
        Some(_) => {}
        None => push(&mut out, b"NAK\n"),
    }
    let framing = state.framing.unwrap_or(Framing::Raw);
    let mut request = PackRequest::new(
        context,
        std::mem::take(&mut state.asked),
        std::mem::take(&mut state.common),
        framing,
        None,
    );
    request.policy = context.options.features.early_wants();
    if let Some(cut) = state.cut.take() {
        request.cut = CutRequest::Known(cut);
    }
    let mut answers = answer_pack(context, request, out);
    answers.push(Answer::End);
    answers
}
