//! Protocol v2: commands (gitprotocol-v2).

use weir_git::pktline::{Pkt, push, push_delim, push_flush};
use weir_git::{HashKind, Oid};

use crate::advertise::{LsRefs, PREFIXES_MAX, ls_refs};
use crate::band::Framing;
use crate::machine::{Answer, Context, RequestError, Step, refuse};
use crate::work::{Negotiation, PackRequest, Work};

/// A command being read.
#[derive(Default)]
pub(crate) struct V2 {
    command: Option<Command>,
    in_arguments: bool,
    lines: usize,
}

enum Command {
    LsRefs(LsRefs),
    Fetch(Fetch),
}

#[derive(Default)]
struct Fetch {
    wants: Vec<Oid>,
    haves: Vec<Oid>,
    done: bool,
    thin: bool,
    no_progress: bool,
    include_tag: bool,
    ofs_delta: bool,
}

pub(crate) fn take(state: &mut V2, context: Context, pkt: Pkt<'_>) -> Result<Vec<Answer>, RequestError> {
    match pkt {
        Pkt::Flush => {
            state.in_arguments = false;
            state.lines = 0;
            match state.command.take() {
                // A flush where a command should start is how clients say goodbye.
                None => Ok(vec![Answer::End]),
                Some(Command::LsRefs(request)) => Ok(vec![Answer::Step(Step::Send(ls_refs(&context.repo, &request)))]),
                Some(Command::Fetch(fetch)) => answer_fetch(&context, fetch),
            }
        }
        Pkt::Delim if state.command.is_some() && !state.in_arguments => {
            state.in_arguments = true;
            Ok(Vec::new())
        }
        Pkt::Delim | Pkt::ResponseEnd => refuse("a special packet where none belongs"),
        Pkt::Line(_) => {
            state.lines += 1;
            if state.lines > context.limits.lines_max {
                return refuse(format!("the request has more than {} lines", context.limits.lines_max));
            }
            let line = pkt.text();
            if state.in_arguments { argument(state, &context, line) } else { capability(state, &context, line) }.map(|()| Vec::new())
        }
    }
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(100)]).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn capability(state: &mut V2, context: &Context, line: &[u8]) -> Result<(), RequestError> {
    if let Some(name) = line.strip_prefix(b"command=") {
        if state.command.is_some() {
            return refuse("two commands in one request");
        }
        state.command = Some(match name {
            b"ls-refs" => Command::LsRefs(LsRefs::default()),
            b"fetch" => Command::Fetch(Fetch::default()),
            _ => return refuse(format!("invalid command '{}'", shown(name))),
        });
        return Ok(());
    }
    if let Some(name) = line.strip_prefix(b"object-format=") {
        if HashKind::from_name(name) != Some(context.repo.hash()) {
            return refuse(format!("mismatched object format: client '{}', server '{}'", shown(name), context.repo.hash().name()));
        }
        return Ok(());
    }
    let known = [&b"agent="[..], b"server-option=", b"session-id="].iter().any(|k| line.starts_with(k));
    if known { Ok(()) } else { refuse(format!("unknown capability '{}'", shown(line))) }
}

fn argument(state: &mut V2, context: &Context, line: &[u8]) -> Result<(), RequestError> {
    let oid = |hex: &[u8]| Oid::from_hex(context.repo.hash(), hex).map_or_else(|| refuse(format!("bad object id '{}'", shown(hex))), Ok);
    match state.command.as_mut() {
        None => refuse("arguments without a command"),
        Some(Command::LsRefs(request)) => {
            match line {
                b"peel" => request.peel = true,
                b"symrefs" => request.symrefs = true,
                b"unborn" => request.unborn = true,
                _ => match line.strip_prefix(b"ref-prefix ") {
                    // Beyond git's bound all are ignored: they need not be kept.
                    Some(_) if request.prefixes.len() > PREFIXES_MAX => {}
                    Some(prefix) => request.prefixes.push(prefix.to_vec()),
                    None => return refuse(format!("unexpected line '{}'", shown(line))),
                },
            }
            Ok(())
        }
        Some(Command::Fetch(fetch)) => {
            match line {
                b"done" => fetch.done = true,
                b"thin-pack" => fetch.thin = true,
                b"no-progress" => fetch.no_progress = true,
                b"include-tag" => fetch.include_tag = true,
                b"ofs-delta" => fetch.ofs_delta = true,
                _ => {
                    if let Some(hex) = line.strip_prefix(b"want ") {
                        fetch.wants.push(oid(hex)?);
                    } else if let Some(hex) = line.strip_prefix(b"have ") {
                        fetch.haves.push(oid(hex)?);
                    } else if line.starts_with(b"shallow ") || line.starts_with(b"deepen") {
                        return refuse("shallow clones and fetches are not served; leave out --depth and the like");
                    } else if line.starts_with(b"filter ") {
                        return refuse("partial clones are not served; leave out --filter");
                    } else {
                        return refuse(format!("unexpected line '{}'", shown(line)));
                    }
                }
            }
            Ok(())
        }
    }
}

fn answer_fetch(context: &Context, fetch: Fetch) -> Result<Vec<Answer>, RequestError> {
    let mut out = Vec::new();
    if fetch.wants.is_empty() {
        push_flush(&mut out);
        return Ok(vec![Answer::Step(Step::Send(out))]);
    }
    let common: Vec<Oid> = fetch.haves.iter().copied().filter(|h| context.repo.contains(h)).collect();
    let request = PackRequest {
        repo: context.repo.clone(),
        wants: fetch.wants,
        common,
        thin: fetch.thin,
        ofs_delta: fetch.ofs_delta,
        include_tag: fetch.include_tag,
        progress: !fetch.no_progress,
        framing: Framing::Large,
        flush_after: true,
        steps_max: context.limits.steps_max,
    };
    if !fetch.done {
        push(&mut out, b"acknowledgments\n");
        if request.common.is_empty() {
            push(&mut out, b"NAK\n");
            push_flush(&mut out);
            return Ok(vec![Answer::Step(Step::Send(out))]);
        }
        for oid in &request.common {
            push(&mut out, format!("ACK {oid}\n").as_bytes());
        }
        return Ok(vec![Answer::Step(Step::Work(Work::Negotiate(Negotiation { request, acknowledged: out })))]);
    }
    push_shallow_info(&mut out, context);
    push(&mut out, b"packfile\n");
    Ok(answer_pack(context, request, out))
}

/// Tells of the commits where this repository's history is cut off, if its upstream's was.
pub(crate) fn push_shallow_info(out: &mut Vec<u8>, context: &Context) {
    if context.repo.shallow().is_empty() {
        return;
    }
    push(out, b"shallow-info\n");
    for oid in context.repo.shallow() {
        push(out, format!("shallow {oid}\n").as_bytes());
    }
    push_delim(out);
}

/// The pack, after what goes before it: as its bodies lie, or computed.
pub(crate) fn answer_pack(context: &Context, request: PackRequest, before: Vec<u8>) -> Vec<Answer> {
    let after = if request.flush_after { b"0000".to_vec() } else { Vec::new() };
    if request.common.is_empty() && request.ofs_delta {
        match context.whole(&request.wants, before, request.framing, after) {
            Ok(answer) => return vec![answer],
            Err(before) => return vec![Answer::Step(Step::Send(before)), Answer::Step(Step::Work(Work::Pack(request)))],
        }
    }
    vec![Answer::Step(Step::Send(before)), Answer::Step(Step::Work(Work::Pack(request)))]
}
