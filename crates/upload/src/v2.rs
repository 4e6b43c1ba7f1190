//! Protocol v2: commands (gitprotocol-v2).

use std::sync::Arc;

use weir_git::Oid;
use weir_git::pktline::{Pkt, push_flush};
use weir_repo::ArrivingPack;

use crate::advertise::{LsRefs, PREFIXES_MAX};
use crate::answer::{Answer, Step, answer_pack, list_refs};
use crate::band::Framing;
use crate::error::{RequestError, refuse};
use crate::fetch_arguments::{FetchArguments, Sections, check_object_format, shown};
use crate::options::{Context, NOT_OUR_REF};
use crate::pack_request::PackRequest;
use crate::work::{BundlesRequest, Negotiation, ObjectInfo, RefsList, RefsRequest, Work};

/// The line for clients that get a pack while it arrives.
const ARRIVING_NOTICE: &str = "weir: this comes from the upstream, while it is mirrored\n";
/// The maximum number of objects in one `object-info`.
const OBJECT_INFO_MAX: usize = 10_000;

/// A command that is being read.
#[derive(Default)]
pub(crate) struct V2 {
    command: Option<V2Command>,
    in_arguments: bool,
    lines: usize,
}

enum V2Command {
    LsRefs(LsRefs),
    Fetch(Box<FetchArguments>),
    ObjectInfo { size: bool, oids: Vec<Oid> },
    BundleUri,
}

pub(crate) fn take(state: &mut V2, context: &Context, pkt: Pkt<'_>) -> Result<Vec<Answer>, RequestError> {
    match pkt {
        Pkt::Flush => {
            let has_read = std::mem::take(&mut state.lines) > 0;
            state.in_arguments = false;
            let mut answers = match state.command.take() {
                None if has_read => return refuse("no command requested"),
                // Clients end a session with a flush in place of a command.
                None => return Ok(vec![Answer::End]),
                Some(V2Command::LsRefs(asked)) => {
                    let request = RefsRequest { repo: context.repo.clone(), list: RefsList::Asked(asked) };
                    vec![Answer::Step(list_refs(request))]
                }
                Some(V2Command::Fetch(asked)) => match context.repo.arriving_pack() {
                    Some(pack) => answer_arriving(context, pack, *asked)?,
                    None => answer_fetch(context, *asked),
                },
                Some(V2Command::BundleUri) => {
                    let folder = context.options.features.bundles.clone().unwrap_or_default();
                    vec![Answer::Step(Step::Work(Work::Bundles(BundlesRequest {
                        repo: context.repo.clone(),
                        folder,
                    })))]
                }
                Some(V2Command::ObjectInfo { .. }) if context.repo.arriving_pack().is_some() => {
                    return still_arriving();
                }
                Some(V2Command::ObjectInfo { size, oids }) => {
                    let (wants, steps_max) =
                        (context.options.features.wants, context.options.limits.steps_max);
                    let info = ObjectInfo { repo: context.repo.clone(), wants, size, oids, steps_max };
                    vec![Answer::Step(Step::Work(Work::ObjectInfo(info)))]
                }
            };
            if context.options.features.stateless {
                answers.push(Answer::End);
            }
            Ok(answers)
        }
        Pkt::Delim if state.command.is_some() && !state.in_arguments => {
            state.in_arguments = true;
            Ok(Vec::new())
        }
        Pkt::Delim if state.command.is_none() => refuse("no command requested"),
        Pkt::Delim | Pkt::ResponseEnd => refuse("a special packet where none belongs"),
        Pkt::Line(_) => {
            state.lines += 1;
            if state.lines > context.options.limits.lines_max {
                return refuse(format!(
                    "the request has more than {} lines",
                    context.options.limits.lines_max
                ));
            }
            let line = pkt.text();
            if state.in_arguments { argument(state, context, line) } else { capability(state, context, line) }
                .map(|()| Vec::new())
        }
    }
}

fn capability(state: &mut V2, context: &Context, line: &[u8]) -> Result<(), RequestError> {
    if let Some(name) = line.strip_prefix(b"command=") {
        if state.command.is_some() {
            return refuse(format!("command '{}' requested after another", shown(name)));
        }
        state.command = Some(match name {
            b"ls-refs" => V2Command::LsRefs(LsRefs::default()),
            b"fetch" => V2Command::Fetch(Box::default()),
            b"bundle-uri" if context.options.features.bundles.is_some() => V2Command::BundleUri,
            b"object-info" if context.options.features.object_info => {
                V2Command::ObjectInfo { size: false, oids: Vec::new() }
            }
            _ => return refuse(format!("invalid command '{}'", shown(name))),
        });
        return Ok(());
    }
    if let Some(name) = line.strip_prefix(b"object-format=") {
        return check_object_format(context.repo.hash(), name);
    }
    let known = [&b"agent="[..], b"server-option=", b"session-id="].iter().any(|k| line.starts_with(k));
    if known { Ok(()) } else { refuse(format!("unknown capability '{}'", shown(line))) }
}

fn argument(state: &mut V2, context: &Context, line: &[u8]) -> Result<(), RequestError> {
    let oid = |hex: &[u8]| {
        Oid::from_hex(context.repo.hash(), hex)
            .map_or_else(|| refuse(format!("bad object id '{}'", shown(hex))), Ok)
    };
    match state.command.as_mut() {
        None => refuse("arguments without a command"),
        Some(V2Command::LsRefs(request)) => {
            match line {
                b"peel" => request.peel = true,
                b"symrefs" => request.symrefs = true,
                b"unborn" => request.unborn = context.options.features.unborn,
                _ => match line.strip_prefix(b"ref-prefix ") {
                    // At git's bound all prefixes are ignored, so further ones need not be kept.
                    Some(_) if request.prefixes.len() >= PREFIXES_MAX => {}
                    Some(prefix) => request.prefixes.push(prefix.to_vec()),
                    None => return refuse(format!("unexpected line: '{}'", shown(line))),
                },
            }
            Ok(())
        }
        Some(V2Command::BundleUri) => refuse(format!("bundle-uri: unexpected argument: '{}'", shown(line))),
        Some(V2Command::ObjectInfo { size, oids }) => {
            match line {
                b"size" => *size = true,
                _ => match line.strip_prefix(b"oid ") {
                    Some(hex) => {
                        oids.push(oid(hex)?);
                        if oids.len() > OBJECT_INFO_MAX {
                            return refuse(format!(
                                "object-info: more than {OBJECT_INFO_MAX} objects in one request"
                            ));
                        }
                    }
                    None => return refuse(format!("object-info: unexpected line: '{}'", shown(line))),
                },
            }
            Ok(())
        }
        Some(V2Command::Fetch(asked)) => {
            match line {
                b"done" => asked.done = true,
                b"wait-for-done" => asked.wait_for_done = true,
                b"thin-pack" => asked.thin = true,
                b"no-progress" => asked.no_progress = true,
                b"include-tag" => asked.include_tag = true,
                b"ofs-delta" => asked.ofs_delta = true,
                b"deepen-relative" => asked.deepen.relative = true,
                b"sideband-all" if context.options.features.sideband_all => asked.sideband_all = true,
                _ => {
                    if let Some(hex) = line.strip_prefix(b"want ") {
                        let oid = oid(hex)?;
                        if !context.has(&oid) {
                            return refuse(context.refusal_of(&oid));
                        }
                        asked.want(oid);
                    } else if let Some(hex) = line.strip_prefix(b"have ") {
                        asked.have(&context.repo, oid(hex)?);
                    } else if let Some(name) =
                        line.strip_prefix(b"want-ref ").filter(|_| context.options.features.ref_in_want)
                    {
                        want_ref(asked, context, name)?;
                    } else if !asked.take(context, line)? {
                        return refuse(format!("unexpected line: '{}'", shown(line)));
                    }
                }
            }
            Ok(())
        }
    }
}

fn want_ref(asked: &mut FetchArguments, context: &Context, name: &[u8]) -> Result<(), RequestError> {
    let refs = context.repo.refs();
    let found = if name == b"HEAD" { refs.head_oid() } else { refs.get(name).map(|r| r.oid) };
    let Some(oid) = found else { return refuse(format!("unknown ref {}", shown(name))) };
    if !asked.want_ref_names.insert(name.to_vec()) {
        return refuse(format!("duplicate want-ref {}", shown(name)));
    }
    asked.want(oid);
    asked.want_refs.push((oid, name.to_vec()));
    Ok(())
}

/// Refuses what can be answered when the repository is here.
fn still_arriving<T>() -> Result<T, RequestError> {
    refuse(format!("{NOT_OUR_REF}: it is arriving"))
}

/// Returns the answer with a pack that is arriving. Other answers than the whole of it can be made only when
/// it is here.
fn answer_arriving(
    context: &Context,
    pack: &Arc<ArrivingPack>,
    asked: FetchArguments,
) -> Result<Vec<Answer>, RequestError> {
    let is_whole = !asked.has_haves
        && asked.ofs_delta
        && asked.filter.is_none()
        && asked.shallow.is_empty()
        && !asked.deepen.is_asked();
    if !is_whole || !pack.answers(&asked.wants) {
        return still_arriving();
    }
    let mut before = Sections::of(context, &asked).write(None);
    if !asked.no_progress {
        Framing::Large.push_message(&mut before, 2, ARRIVING_NOTICE);
    }
    Ok(vec![Answer::Step(Step::Send(before)), Answer::Step(Step::SendArriving(pack.clone(), Framing::Large))])
}

fn answer_fetch(context: &Context, asked: FetchArguments) -> Vec<Answer> {
    if asked.wants.is_empty() && !asked.wait_for_done {
        // As in git: without wants there is no answer.
        return vec![];
    }
    let sections = Sections::of(context, &asked);
    let common: Vec<Oid> = asked.haves.clone();
    let (done, wait_for_done, has_haves) = (asked.done, asked.wait_for_done, asked.has_haves);
    let request = PackRequest::new(context, asked, common, Framing::Large, Some(sections));
    if !has_haves || done {
        return answer_pack(context, request, Vec::new());
    }
    if request.common.is_empty() || (wait_for_done && !request.has_doubtful) {
        let mut out = request.acknowledgments();
        push_flush(&mut out);
        let sections = request.sections.unwrap_or_default();
        return vec![Answer::Step(Step::Send(sections.banded(out)))];
    }
    vec![Answer::Step(Step::Work(Work::Negotiate(Box::new(Negotiation { request, wait_for_done }))))]
}
