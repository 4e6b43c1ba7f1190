//! Protocol v0 and v1: wants, then haves in turns, then a pack (gitprotocol-pack).

use weir_git::pktline::{Pkt, push};
use weir_git::{HashKind, Oid, OidSet};

use crate::band::Framing;
use crate::machine::{Answer, Context, RequestError, Step, refuse};
use crate::v2::answer_pack;
use crate::work::{PackRequest, wants_meet};

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
    wants: Vec<Oid>,
    wants_ended: bool,
    multi_ack: MultiAck,
    framing: Option<Framing>,
    thin: bool,
    ofs_delta: bool,
    no_progress: bool,
    include_tag: bool,
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

pub(crate) fn take(state: &mut V0, context: Context, pkt: Pkt<'_>) -> Result<Vec<Answer>, RequestError> {
    state.lines += 1;
    if state.lines > context.limits.lines_max {
        return refuse(format!("the request has more than {} lines", context.limits.lines_max));
    }
    match pkt {
        Pkt::Flush if !state.wants_ended => {
            if state.wants.is_empty() {
                return Ok(vec![Answer::End]);
            }
            check_tips(state, &context)?;
            state.wants_ended = true;
            Ok(Vec::new())
        }
        Pkt::Flush => Ok(send(flush_haves(state, &context))),
        Pkt::Delim | Pkt::ResponseEnd => refuse("a special packet where none belongs"),
        Pkt::Line(_) => {
            let line = pkt.text();
            if !state.wants_ended {
                return want(state, &context, line).map(|()| Vec::new());
            }
            if line == b"done" {
                return Ok(finish(state, &context));
            }
            match line.strip_prefix(b"have ").and_then(|hex| Oid::from_hex(context.repo.hash(), hex)) {
                Some(oid) => Ok(send(have(state, &context, oid))),
                None => refuse("expected 'have <id>' or 'done'"),
            }
        }
    }
}

fn send(bytes: Vec<u8>) -> Vec<Answer> {
    if bytes.is_empty() { Vec::new() } else { vec![Answer::Step(Step::Send(bytes))] }
}

fn want(state: &mut V0, context: &Context, line: &[u8]) -> Result<(), RequestError> {
    if line.starts_with(b"shallow ") || line.starts_with(b"deepen") {
        return refuse("shallow clones and fetches are not served; leave out --depth and the like");
    }
    if line.starts_with(b"filter ") {
        return refuse("partial clones are not served; leave out --filter");
    }
    let hex_len = context.repo.hash().hex_len();
    let parsed = line.strip_prefix(b"want ").and_then(|rest| rest.split_at_checked(hex_len));
    let Some((Some(oid), capabilities)) = parsed.map(|(hex, rest)| (Oid::from_hex(context.repo.hash(), hex), rest)) else {
        return refuse("expected 'want <id>'");
    };
    if state.wants.is_empty() {
        for word in capabilities.split(|&c| c == b' ') {
            match word {
                b"multi_ack" if state.multi_ack == MultiAck::None => state.multi_ack = MultiAck::Plain,
                b"multi_ack_detailed" => state.multi_ack = MultiAck::Detailed,
                b"side-band" if state.framing.is_none() => state.framing = Some(Framing::Small),
                b"side-band-64k" => state.framing = Some(Framing::Large),
                b"thin-pack" => state.thin = true,
                b"ofs-delta" => state.ofs_delta = true,
                b"no-progress" => state.no_progress = true,
                b"include-tag" => state.include_tag = true,
                _ => {
                    if let Some(name) = word.strip_prefix(b"object-format=")
                        && HashKind::from_name(name) != Some(context.repo.hash())
                    {
                        return refuse(format!("mismatched object format: the repository has {}", context.repo.hash().name()));
                    }
                }
            }
        }
    }
    state.wants.push(oid);
    Ok(())
}

/// In v0 only what was advertised may be wanted.
fn check_tips(state: &V0, context: &Context) -> Result<(), RequestError> {
    let tips: OidSet = context.repo.refs().tips().collect();
    match state.wants.iter().find(|w| !tips.contains(w)) {
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
            let answer = wants_meet(&context.repo, &state.wants, &state.common).unwrap_or(false);
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

fn flush_haves(state: &mut V0, context: &Context) -> Vec<u8> {
    let mut out = Vec::new();
    if state.multi_ack == MultiAck::Detailed
        && state.got_common
        && !state.got_other
        && !state.sent_ready
        && give_up(state, context)
        && let Some(last) = state.common.last()
    {
        state.sent_ready = true;
        push(&mut out, format!("ACK {last} ready\n").as_bytes());
    }
    if state.common.is_empty() || state.multi_ack != MultiAck::None {
        push(&mut out, b"NAK\n");
    }
    (state.got_common, state.got_other) = (false, false);
    out
}

fn finish(state: &mut V0, context: &Context) -> Vec<Answer> {
    let mut out = Vec::new();
    match state.common.last() {
        Some(last) if state.multi_ack != MultiAck::None => push(&mut out, format!("ACK {last}\n").as_bytes()),
        Some(_) => {}
        None => push(&mut out, b"NAK\n"),
    }
    let framing = state.framing.unwrap_or(Framing::Raw);
    let request = PackRequest {
        repo: context.repo.clone(),
        wants: std::mem::take(&mut state.wants),
        common: std::mem::take(&mut state.common),
        thin: state.thin,
        ofs_delta: state.ofs_delta,
        include_tag: state.include_tag,
        progress: !state.no_progress,
        framing,
        flush_after: framing != Framing::Raw,
        steps_max: context.limits.steps_max,
    };
    let mut answers = answer_pack(context, request, out);
    answers.push(Answer::End);
    answers
}
