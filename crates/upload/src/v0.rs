//! Protocol v0 and v1: wants, then haves in turns, then a pack (gitprotocol-pack).

use weir_git::pktline::{Pkt, push};
use weir_git::{Oid, OidSet};
use weir_repo::Cut;

use crate::band::Framing;
use crate::fetch::{Asked, check_object_format, shown};
use crate::machine::{Answer, Context, RequestError, Step, refuse};
use crate::policy::WantPolicy;
use crate::v2::answer_pack;
use crate::work::{CutRequest, CutWork, PackRequest, Work, wants_meet};

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum MultiAck {
    #[default]
    None,
    Plain,
    Detailed,
}

/// A request being read.
#[derive(Default)]
pub(crate) struct V0 {
    asked: Asked,
    wants_ended: bool,
    /// Where history ends, once that was asked for and worked out.
    pub(crate) cut: Option<Cut>,
    multi_ack: MultiAck,
    no_done: bool,
    framing: Option<Framing>,
    common: Vec<Oid>,
    common_set: OidSet,
    /// Since the last flush: something in common, something not.
    got_common: bool,
    got_other: bool,
    sent_ready: bool,
    /// For how many common commits it was found out whether they are enough, and whether they are.
    meets: Option<(usize, bool)>,
    meetings: usize,
    lines: usize,
}

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
                Some(oid) => Ok(send(have(state, context, oid))),
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
    let Some((Some(oid), capabilities)) = parsed.map(|(hex, rest)| (Oid::from_hex(context.repo.hash(), hex), rest)) else {
        return refuse(format!("git upload-pack: protocol error, expected to get object ID, not '{}'", shown(line)));
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
    asked.wants.push(oid);
    Ok(())
}

/// What was not advertised may be wanted only if that is allowed; whether refs reach it is found out with the pack.
fn check_wants(state: &V0, context: &Context) -> Result<(), RequestError> {
    let tips: OidSet = context.repo.refs().tips().collect();
    let features = &context.options.features;
    let is_tip = |w: &Oid| tips.contains(w) || (features.hidden_tips && context.repo.hidden_tips().contains(w));
    let is_refused = |w: &Oid| match features.early_wants() {
        WantPolicy::Advertised => !is_tip(w),
        WantPolicy::Reachable | WantPolicy::Any => !is_tip(w) && !context.repo.contains(w),
    };
    match state.asked.wants.iter().find(|w| is_refused(w)) {
        Some(oid) => refuse(format!("upload-pack: not our ref {oid}")),
        None => Ok(()),
    }
}

/// Whether enough is in common. Found out once for each new common commit, not for each line a client sends.
fn give_up(state: &mut V0, context: &Context) -> bool {
    if state.common.is_empty() {
        return false;
    }
    match state.meets {
        Some((common, answer)) if common == state.common.len() => answer,
        _ if state.meetings >= MEETINGS_MAX => false,
        _ => {
            state.meetings += 1;
            let answer = wants_meet(&context.repo, &state.asked.wants, &state.common).unwrap_or(false);
            state.meets = Some((state.common.len(), answer));
            answer
        }
    }
}

/// Times the walk for common ancestors is made for one client; after that it has to say `done` by itself.
const MEETINGS_MAX: usize = 64;

fn have(state: &mut V0, context: &Context, oid: Oid) -> Vec<u8> {
    let mut out = Vec::new();
    let mut line = |text: String| push(&mut out, text.as_bytes());
    if !context.repo.contains(&oid) {
        state.got_other = true;
        if state.multi_ack != MultiAck::None && give_up(state, context) {
            match state.multi_ack {
                MultiAck::Detailed => {
                    state.sent_ready = true;
                    line(format!("ACK {oid} ready\n"));
                }
                _ => line(format!("ACK {oid} continue\n")),
            }
        }
        return out;
    }
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
    out
}

fn flush_haves(state: &mut V0, context: &Context) -> Vec<Answer> {
    let mut out = Vec::new();
    if state.multi_ack == MultiAck::Detailed
        && state.got_common
        && !state.got_other
        && give_up(state, context)
        && let Some(last) = state.common.last()
    {
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
    let mut request = PackRequest::new(context, std::mem::take(&mut state.asked), std::mem::take(&mut state.common), framing, None);
    request.policy = context.options.features.early_wants();
    if let Some(cut) = state.cut.take() {
        request.cut = CutRequest::Known(cut);
    }
    let mut answers = answer_pack(context, request, out);
    answers.push(Answer::End);
    answers
}
