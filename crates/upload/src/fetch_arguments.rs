//! The arguments of a fetch that all protocol versions share, and the sections before its pack.

use std::collections::HashSet;

use weir_git::pktline::{self, Pkt, push, push_delim};
use weir_git::{HashKind, Oid, OidSet};
use weir_ground::printable;
use weir_repo::{Cut, Deepen, Filter, FilterError, Refs, Repo};

use crate::band::Framing;
use crate::error::{RequestError, refuse};
use crate::options::Context;

/// The maximum number of shallow commits and `deepen-not` refs in one request.
const SHALLOW_LINES_MAX: usize = 100_000;

/// A fetch request that is being read.
#[derive(Default)]
pub(crate) struct FetchArguments {
    pub(crate) wants: Vec<Oid>,
    wants_known: OidSet,
    /// The refs wanted by name, with their objects.
    pub(crate) want_refs: Vec<(Oid, Vec<u8>)>,
    /// The names of these refs.
    pub(crate) want_ref_names: HashSet<Vec<u8>>,
    /// The client's objects that are here.
    pub(crate) haves: Vec<Oid>,
    haves_known: OidSet,
    /// Whether the client sent any have.
    pub(crate) has_haves: bool,
    /// The commits that the client has without their parents.
    pub(crate) shallow: Vec<Oid>,
    shallow_known: OidSet,
    pub(crate) deepen: Deepen,
    pub(crate) filter: Option<Filter>,
    pub(crate) done: bool,
    pub(crate) wait_for_done: bool,
    pub(crate) thin: bool,
    pub(crate) no_progress: bool,
    pub(crate) include_tag: bool,
    pub(crate) ofs_delta: bool,
    pub(crate) sideband_all: bool,
}

pub(crate) fn shown(line: &[u8]) -> String {
    printable(&String::from_utf8_lossy(&line[..line.len().min(100)]))
}

impl FetchArguments {
    /// Adds a wanted id, unless it was added before.
    pub(crate) fn want(&mut self, oid: Oid) {
        if self.wants_known.insert(oid) {
            self.wants.push(oid);
        }
    }

    /// Adds an id that the client has, if the object is here.
    pub(crate) fn have(&mut self, repo: &Repo, oid: Oid) {
        self.has_haves = true;
        if repo.contains(&oid) && self.haves_known.insert(oid) {
            self.haves.push(oid);
        }
    }

    /// Parses a line about depth or filters; returns false if it is about something else.
    pub(crate) fn take(&mut self, context: &Context, line: &[u8]) -> Result<bool, RequestError> {
        if let Some(hex) = line.strip_prefix(b"shallow ") {
            let Some(oid) = Oid::from_hex(context.repo.hash(), hex) else {
                return refuse(format!("invalid shallow line: {}", shown(line)));
            };
            // Commits that are not here are ignored.
            if context.repo.contains(&oid) && self.shallow_known.insert(oid) {
                self.shallow.push(oid);
            }
        } else if let Some(text) = line.strip_prefix(b"deepen ") {
            match number(text) {
                Some(depth @ 1..=0x7fff_ffff) => self.deepen.depth = Some(depth as u32),
                _ => return refuse(format!("Invalid deepen: {}", shown(line))),
            }
        } else if let Some(text) = line.strip_prefix(b"deepen-since ") {
            match number(text) {
                Some(since @ 1..) => self.deepen.since = Some(since),
                _ => return refuse(format!("Invalid deepen-since: {}", shown(line))),
            }
        } else if let Some(name) = line.strip_prefix(b"deepen-not ") {
            match one_ref(context.repo.refs(), name) {
                Some(oid) => self.deepen.not.push(oid),
                None => return refuse(format!("git upload-pack: ambiguous deepen-not: {}", shown(name))),
            }
        } else if let Some(spec) = line.strip_prefix(b"filter ") {
            if !context.options.features.filters.enabled {
                return refuse(format!("unexpected line '{}'", shown(line)));
            }
            let spec = String::from_utf8_lossy(spec);
            let filter = Filter::parse(&spec).or_else(|e: FilterError| refuse(e.to_string()))?;
            if let Some(why) = context.options.features.filters.refusal(&filter) {
                return refuse(why);
            }
            self.filter = Some(filter);
        } else {
            return Ok(false);
        }
        if self.shallow.len() + self.deepen.not.len() > SHALLOW_LINES_MAX {
            return refuse("too many shallow commits in one request");
        }
        if self.deepen.depth.is_some() && (self.deepen.since.is_some() || !self.deepen.not.is_empty()) {
            return refuse(
                "git upload-pack: deepen and deepen-since (or deepen-not) cannot be used together",
            );
        }
        Ok(true)
    }

    /// Returns whether the answer says where history ends.
    pub(crate) fn has_shallow_info(&self, repo: &Repo) -> bool {
        self.deepen.is_asked() || !self.shallow.is_empty() || !repo.history().shallow().is_empty()
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns the object of the one ref that `name`, full or short, means (gitrevisions); `None` if it is
/// ambiguous.
fn one_ref(refs: &Refs, name: &[u8]) -> Option<Oid> {
    const PLACES: [(&[u8], &[u8]); 6] = [
        (b"", b""),
        (b"refs/", b""),
        (b"refs/tags/", b""),
        (b"refs/heads/", b""),
        (b"refs/remotes/", b""),
        (b"refs/remotes/", b"/HEAD"),
    ];
    let mut found =
        PLACES.iter().filter_map(|(before, after)| match [before, name, after].concat().as_slice() {
            b"HEAD" => refs.head_oid(),
            full => refs.get(full).map(|r| r.oid),
        });
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Writes the lines that say where history ends.
pub(crate) fn push_cut(out: &mut Vec<u8>, cut: &Cut) {
    debug_assert!(cut.shallow.is_sorted(), "the answer depends on more than the question");
    for oid in &cut.shallow {
        push(out, format!("shallow {oid}").as_bytes());
    }
    for oid in &cut.unshallow {
        push(out, format!("unshallow {oid}").as_bytes());
    }
}

/// The sections before the pack in v2.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sections {
    pub(crate) shallow_info: bool,
    pub(crate) wanted_refs: Vec<(Oid, Vec<u8>)>,
    pub(crate) sideband_all: bool,
    /// A line that the client shows its user.
    pub(crate) notice: Option<String>,
}

impl Sections {
    /// Returns the sections of the answer to what was asked.
    pub(crate) fn of(context: &Context, asked: &FetchArguments) -> Sections {
        Sections {
            shallow_info: asked.has_shallow_info(&context.repo),
            wanted_refs: asked.want_refs.clone(),
            sideband_all: asked.sideband_all,
            notice: context.options.notice.clone(),
        }
    }

    pub(crate) fn write(&self, cut: Option<&Cut>) -> Vec<u8> {
        let mut out = Vec::new();
        if self.shallow_info {
            push(&mut out, b"shallow-info\n");
            if let Some(cut) = cut {
                push_cut(&mut out, cut);
            }
            push_delim(&mut out);
        }
        if !self.wanted_refs.is_empty() {
            push(&mut out, b"wanted-refs\n");
            for (oid, name) in &self.wanted_refs {
                push(&mut out, &[format!("{oid} ").as_bytes(), name, b"\n"].concat());
            }
            push_delim(&mut out);
        }
        push(&mut out, b"packfile\n");
        let mut out = self.banded(out);
        if let Some(notice) = &self.notice {
            Framing::Large.push_message(&mut out, 2, &format!("{notice}\n"));
        }
        out
    }

    /// Returns `lines`, in band 1 if the whole answer is in the side-band.
    pub(crate) fn banded(&self, lines: Vec<u8>) -> Vec<u8> {
        if !self.sideband_all {
            return lines;
        }
        let mut out = Vec::with_capacity(lines.len() + lines.len() / 8);
        let mut rest = lines.as_slice();
        while let Ok(Some((pkt, len))) = pktline::decode(rest) {
            match pkt {
                Pkt::Line(line) => push(&mut out, &[b"\x01", line].concat()),
                _ => out.extend_from_slice(&rest[..len]),
            }
            rest = &rest[len..];
        }
        out
    }
}

/// Checks that the hash a client names is the repository's.
pub(crate) fn check_object_format(hash: HashKind, name: &[u8]) -> Result<(), RequestError> {
    match HashKind::from_name(name) {
        Some(named) if named == hash => Ok(()),
        Some(_) => {
            refuse(format!("mismatched object format: server {}; client {}", hash.name(), shown(name)))
        }
        None => refuse(format!("unknown object format '{}' specified by client", shown(name))),
    }
}
