//! Advertises capabilities and lists refs.

use std::io;

use weir_git::pktline::{push, push_flush};
use weir_git::{Oid, refname};
use weir_repo::{Head, Ref, Repo};

use crate::options::UploadOptions;
use crate::policy::WantPolicy;

/// Returns the capability advertisement of v2.
pub(crate) fn capabilities_v2(repo: &Repo, options: &UploadOptions) -> Vec<u8> {
    let features = &options.features;
    let mut out = Vec::with_capacity(256);
    push(&mut out, b"version 2\n");
    push(&mut out, format!("agent={}\n", options.agent).as_bytes());
    push(&mut out, if features.unborn { b"ls-refs=unborn\n" } else { b"ls-refs\n" });
    let mut fetch = "fetch=shallow wait-for-done".to_owned();
    for (offered, word) in [
        (features.filters.enabled, " filter"),
        (features.ref_in_want, " ref-in-want"),
        (features.sideband_all, " sideband-all"),
    ] {
        if offered {
            fetch.push_str(word);
        }
    }
    push(&mut out, format!("{fetch}\n").as_bytes());
    push(&mut out, b"server-option\n");
    push(&mut out, format!("object-format={}\n", repo.hash().name()).as_bytes());
    if let Some(id) = &features.session_id {
        push(&mut out, format!("session-id={id}\n").as_bytes());
    }
    if features.object_info {
        push(&mut out, b"object-info\n");
    }
    if features.bundles.is_some() {
        push(&mut out, b"bundle-uri\n");
    }
    push_flush(&mut out);
    out
}

/// More refs than this are listed where blocking is allowed, and once for all clients with the same request.
pub(crate) const LISTED_AT_ONCE_MAX: usize = 2000;
/// The bytes of a list that are gathered before they are sent.
const PIECE_BYTES: usize = 64 << 10;

/// Receives pieces of a list.
pub(crate) type Give<'a> = dyn FnMut(Vec<u8>) -> io::Result<()> + 'a;

/// Passes `out` to `give`, if it is at least [`PIECE_BYTES`].
fn give_piece(out: &mut Vec<u8>, give: &mut Give<'_>) -> io::Result<()> {
    if out.len() < PIECE_BYTES { Ok(()) } else { give(std::mem::take(out)) }
}

/// Lists all refs as in v0, or with `announce` as in v1. The pkt-line bounds the length of a ref line; names
/// that do not fit are never stored ([`refname::NAME_BYTES_MAX`]).
///
/// # Errors
/// If `give` fails.
pub(crate) fn refs_v0(
    repo: &Repo,
    options: &UploadOptions,
    announce: bool,
    give: &mut Give<'_>,
) -> io::Result<()> {
    let refs = repo.refs();
    let mut out = Vec::with_capacity((refs.list().len() * 80 + 512).min(PIECE_BYTES + 4096));
    if announce {
        push(&mut out, b"version 1\n");
    }
    let features = &options.features;
    let mut capabilities = String::from(
        " multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not \
        deepen-relative no-progress include-tag \
         multi_ack_detailed",
    );
    capabilities.push_str(match (features.early_wants(), features.hidden_tips) {
        (WantPolicy::Advertised, false) => "",
        (WantPolicy::Advertised, true) => " allow-tip-sha1-in-want",
        (WantPolicy::Reachable | WantPolicy::Any, _) => {
            " allow-tip-sha1-in-want allow-reachable-sha1-in-want"
        }
    });
    if features.stateless {
        capabilities.push_str(" no-done");
    }
    if let (Head::Symbolic(name), Some(_)) = (&refs.head, refs.head_oid()) {
        // A name that is not UTF-8 cannot be sent here without changing it. The client then guesses, as with
        // old servers.
        if let Ok(name) = std::str::from_utf8(name) {
            capabilities.push_str(&format!(" symref=HEAD:{name}"));
        }
    }
    if features.filters.enabled {
        capabilities.push_str(" filter");
    }
    if let Some(id) = &features.session_id {
        capabilities.push_str(&format!(" session-id={id}"));
    }
    capabilities.push_str(&format!(" object-format={} agent={}", repo.hash().name(), options.agent));
    let mut first = Some(capabilities);
    let mut line = Vec::new();
    let mut add = |oid: &Oid, name: &[u8], suffix: &[u8]| {
        line.clear();
        oid.push_hex(&mut line);
        line.push(b' ');
        line.extend_from_slice(name);
        line.extend_from_slice(suffix);
        if let Some(capabilities) = first.take() {
            line.push(0);
            line.extend_from_slice(capabilities.as_bytes());
        }
        line.push(b'\n');
        push(&mut out, &line);
        give_piece(&mut out, give)
    };
    if let Some(oid) = refs.head_oid() {
        add(&oid, b"HEAD", b"")?;
    }
    for r in refs.list() {
        add(&r.oid, &r.name, b"")?;
        if let Some(peeled) = &r.peeled {
            add(peeled, &r.name, b"^{}")?;
        }
    }
    if refs.list().is_empty() && refs.head_oid().is_none() {
        add(&Oid::null(repo.hash()), b"capabilities^{}", b"")?;
    }
    for oid in repo.history().shallow() {
        push(&mut out, format!("shallow {oid}\n").as_bytes());
        give_piece(&mut out, give)?;
    }
    push_flush(&mut out);
    give(out)
}

/// The arguments of `ls-refs`.
#[derive(Debug, Default)]
pub(crate) struct LsRefs {
    pub(crate) peel: bool,
    pub(crate) symrefs: bool,
    pub(crate) unborn: bool,
    pub(crate) prefixes: Vec<Vec<u8>>,
}

/// With this many prefixes or more, git ignores them all, and so does weir.
pub(crate) const PREFIXES_MAX: usize = 65_536;

/// Answers `ls-refs`.
///
/// # Errors
/// If `give` fails.
pub(crate) fn ls_refs(repo: &Repo, request: &LsRefs, give: &mut Give<'_>) -> io::Result<()> {
    let refs = repo.refs();
    let all = request.prefixes.is_empty() || request.prefixes.len() >= PREFIXES_MAX;
    let mut out = Vec::with_capacity(4096);
    let mut line = Vec::new();
    let wanted = |name: &[u8]| all || request.prefixes.iter().any(|p| name.starts_with(p));
    if wanted(b"HEAD") {
        match refs.head_oid() {
            Some(oid) => oid.push_hex(&mut line),
            None if request.unborn && request.symrefs && matches!(refs.head, Head::Symbolic(_)) => {
                line.extend_from_slice(b"unborn")
            }
            None => {}
        }
        if !line.is_empty() {
            line.extend_from_slice(b" HEAD");
            if let (true, Head::Symbolic(target)) = (request.symrefs, &refs.head) {
                line.extend_from_slice(b" symref-target:");
                line.extend_from_slice(target);
            }
            line.push(b'\n');
            push(&mut out, &line);
        }
    }
    let mut add = |r: &Ref| {
        line.clear();
        r.oid.push_hex(&mut line);
        line.push(b' ');
        line.extend_from_slice(&r.name);
        if request.symrefs
            && let Some((_, target)) = refs.symbolic.iter().find(|s| s.0 == r.name)
        {
            line.extend_from_slice(b" symref-target:");
            line.extend_from_slice(target);
        }
        if let (true, Some(peeled)) = (request.peel, &r.peeled) {
            line.extend_from_slice(b" peeled:");
            peeled.push_hex(&mut line);
        }
        line.push(b'\n');
        push(&mut out, &line);
        give_piece(&mut out, give)
    };
    if all {
        refs.list().iter().try_for_each(&mut add)?;
    } else {
        // Each prefix selects a run of the sorted list; a prefix that starts with another adds nothing.
        let mut prefixes: Vec<&[u8]> = request.prefixes.iter().map(Vec::as_slice).collect();
        prefixes.sort_unstable();
        let mut kept: Vec<&[u8]> = Vec::new();
        for prefix in prefixes {
            if kept.last().is_none_or(|k| !prefix.starts_with(k)) {
                kept.push(prefix);
            }
        }
        for prefix in kept {
            let start = refs.list().partition_point(|r| r.name.as_slice() < prefix);
            for r in refs.list()[start..].iter().take_while(|r| r.name.starts_with(prefix)) {
                add(r)?;
            }
        }
    }
    push_flush(&mut out);
    debug_assert!(refs.list().iter().all(|r| r.name.len() <= refname::NAME_BYTES_MAX));
    give(out)
}
