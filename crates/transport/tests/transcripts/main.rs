//! Transcripts of conversations with upstreams (gitprotocol-pack, gitprotocol-v2): the upstream's lines (`S:
//! `), the client's lines (`C: `), and the client's results (`= `).
//!
//! Each file in `v0`, `v1` and `v2` is one conversation and one test. A file starts with a comment (`#`) and
//! the request: `prefix`, `want`, `have` (a line per round), `progress`, `again`. `WEIR_WRITE_TRANSCRIPTS=1`
//! rewrites all but the upstream's lines.

mod conversation;

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use weir_git::Oid;
use weir_transport::{
    Advertised, Error, FetchRequest, Negotiator, Result, Session, Symbolic, TransportOptions, Url,
};

use conversation::{Upstream, of_ids, to_ids};

/// The request at the start of a file.
#[derive(Default)]
struct Asked {
    prefixes: Vec<String>,
    wants: Vec<Oid>,
    haves: VecDeque<Vec<Oid>>,
    progress: bool,
    again: bool,
}

impl Asked {
    fn of(text: &str) -> Asked {
        let mut asked = Asked::default();
        for line in text.lines().take_while(|line| !is_said(line)) {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            let ids =
                || to_ids(value).split(' ').map(|hex| Oid::from_hex_any(hex.as_bytes()).unwrap()).collect();
            match key {
                "" | "#" => {}
                "prefix" => asked.prefixes.push(value.to_owned()),
                "want" => asked.wants = ids(),
                "have" => asked.haves.push_back(ids()),
                "progress" => asked.progress = true,
                "again" => asked.again = true,
                _ => panic!("unknown setting '{line}'"),
            }
        }
        asked
    }
}

fn is_said(line: &str) -> bool {
    ["S: ", "C: ", "= "].iter().any(|start| line.starts_with(start))
}

struct Haves(VecDeque<Vec<Oid>>);

impl Negotiator for Haves {
    fn next_haves(&mut self, _: usize) -> Vec<Oid> {
        self.0.pop_front().unwrap_or_default()
    }
}

fn note_refs(upstream: &Upstream, advertised: &Advertised) {
    let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let head = match &advertised.head {
        Symbolic::Branch(name) => shown(name),
        Symbolic::Detached(oid) => of_ids(&oid.to_string()),
        Symbolic::Unknown => "unknown".to_owned(),
    };
    upstream.note(&format!("= HEAD {head}"));
    for r in &advertised.refs {
        let peeled = r.peeled.map(|oid| format!(" peeled {oid}")).unwrap_or_default();
        upstream.note(&of_ids(&format!("= ref {} {}{peeled}", r.oid, shown(&r.name))));
    }
    for name in &advertised.refused {
        upstream.note(&format!("= refused {}", shown(name)));
    }
}

fn fetch(upstream: &Upstream, session: &mut Session, asked: &Asked) -> Result<()> {
    let mut haves = Haves(asked.haves.clone());
    let mut note = |text: &str| upstream.note(&format!("= progress {}", text.trim_end()));
    let progress = asked.progress.then_some(&mut note as &mut dyn FnMut(&str));
    let mut pack = session.fetch(FetchRequest { wants: &asked.wants, negotiator: &mut haves, progress })?;
    let shallow = std::mem::take(&mut pack.shallow);
    let mut bytes = Vec::new();
    let end = pack.read_to_end(&mut bytes);
    drop(pack);
    for oid in shallow {
        upstream.note(&of_ids(&format!("= shallow {oid}")));
    }
    if !bytes.is_empty() {
        upstream.note(&format!("= pack {}", String::from_utf8_lossy(&bytes)));
    }
    end?;
    Ok(())
}

fn converse(upstream: &Upstream, version_max: u8, asked: &Asked) -> Result<()> {
    let local = Some(Arc::new(upstream.clone()) as Arc<_>);
    let options =
        TransportOptions { agent: "weir".to_owned(), local, version_max, ..TransportOptions::default() };
    let mut session = Session::open(&Url::parse("/repository").unwrap(), &options)?;
    upstream.note(&format!("= version {}", session.version()));
    let prefixes: Vec<&str> = asked.prefixes.iter().map(String::as_str).collect();
    note_refs(upstream, &session.ls_refs(&prefixes)?);
    if !asked.wants.is_empty() {
        fetch(upstream, &mut session, asked)?;
        if asked.again {
            fetch(upstream, &mut session, asked)?;
        }
    }
    Ok(())
}

/// Plays the conversation and returns its transcript.
fn played(text: &str, version_max: u8) -> String {
    let upstream = Upstream::new(text);
    if let Err(e) = converse(&upstream, version_max, &Asked::of(text)) {
        upstream.note(&of_ids(&format!("= error ({}) {e}", e.class().name())));
        assert!(!matches!(e, Error::Io(_)), "an error of the protocol says so: {e}");
    }
    let head = text.lines().take_while(|line| !is_said(line));
    head.map(|line| format!("{line}\n")).collect::<String>() + &upstream.written()
}

/// Checks that the conversation at `path` plays as written.
fn goes_as_written(path: &Path, version_max: u8) -> std::result::Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let found = played(&text, version_max);
    if std::env::var_os("WEIR_WRITE_TRANSCRIPTS").is_some() {
        fs::write(path, found)?;
    } else if found != text {
        return Err(format!("the conversation differs:\n{found}").into());
    }
    Ok(())
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut trials = Vec::new();
    for (version, version_max) in [("v0", 0), ("v1", 1), ("v2", 2)] {
        for entry in fs::read_dir(folder.join(version)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&folder).unwrap().with_extension("").display().to_string();
            trials.push(Trial::test(name, move || goes_as_written(&path, version_max)));
        }
    }
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_if_failed();
}
