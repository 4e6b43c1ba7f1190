//! Transcripts of conversations with clients (gitprotocol-pack, gitprotocol-v2): the client's lines (`C: `)
//! and the server's answers (`S: `).
//!
//! Each file in `v0`, `v1` and `v2` is one conversation and two tests: as written, and with the request cut
//! into pieces. A file starts with a comment (`#`) and settings of the server. `WEIR_WRITE_TRANSCRIPTS=1`
//! rewrites the server's lines.

mod conversation;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use weir_repo::{ArrivingPack, Repo, open_directory};
use weir_testing::{ObjectNames, create_history, decode_packets, encode_packet};
use weir_upload::{UploadOptions, Version, WantPolicy};

use conversation::Server;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");

/// Reads the settings at the start of a file.
fn settings(text: &str) -> UploadOptions {
    let mut options = UploadOptions { agent: "weir".to_owned(), ..UploadOptions::default() };
    let (features, limits) = (&mut options.features, &mut options.limits);
    for line in text.lines().take_while(|line| !line.starts_with("C: ") && !line.starts_with("S: ")) {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        let number = || value.parse().expect("a number");
        match key {
            "" | "#" | "arriving" => {}
            "stateless" => features.stateless = true,
            "session-id" => features.session_id = Some(value.to_owned()),
            "bundles" => features.bundles = Some(value.to_owned()),
            "want-advertised" => features.wants = WantPolicy::Advertised,
            "want-any" => features.wants = WantPolicy::Any,
            "no-filters" => features.filters.enabled = false,
            "no-ref-in-want" => features.ref_in_want = false,
            "no-sideband-all" => features.sideband_all = false,
            "no-object-info" => features.object_info = false,
            "tree-depth-max" => features.filters.tree_depth_max = Some(number()),
            "no-filter" => features.filters.sorts.push((value.to_owned(), false)),
            "lines-max" => limits.lines_max = number() as usize,
            "request-bytes-max" => limits.request_bytes_max = number() as usize,
            "steps-max" => limits.steps_max = number(),
            _ => panic!("unknown setting '{line}'"),
        }
    }
    options
}

fn files() -> Vec<(PathBuf, Version)> {
    let of = |(name, version): (&str, Version)| {
        let entries = fs::read_dir(Path::new(FOLDER).join(name)).unwrap();
        entries.map(move |entry| (entry.unwrap().path(), version))
    };
    let mut files: Vec<(PathBuf, Version)> =
        [("v0", Version::V0), ("v1", Version::V1), ("v2", Version::V2)].into_iter().flat_map(of).collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

/// Returns `repo`, or the same as it arrives, as the settings at the start of a file say.
fn shown(text: &str, repo: &Arc<Repo>) -> Arc<Repo> {
    if !text.lines().any(|line| line == "arriving") {
        return repo.clone();
    }
    let refs = repo.refs().clone();
    let pack = ArrivingPack::new(refs.head_and_tag_tips().collect());
    Arc::new(Repo::arriving(repo.path(), repo.hash(), refs, pack))
}

/// Plays the conversation and returns its transcript.
fn played(text: &str, repo: &Arc<Repo>, version: Version, names: &ObjectNames) -> String {
    let mut server = Server::new(shown(text, repo), version, settings(text));
    let mut out = String::new();
    let mut has_ended = false;
    let mut answered = |server: &mut Server, out: &mut String| {
        let (sent, is_over) = server.take();
        for line in decode_packets(&sent, names) {
            out.push_str(&format!("S: {line}\n"));
        }
        if is_over && !std::mem::replace(&mut has_ended, true) {
            out.push_str("S: end\n");
        }
    };
    let head = text.lines().take_while(|line| !line.starts_with("C: ") && !line.starts_with("S: "));
    head.for_each(|line| out.push_str(&format!("{line}\n")));
    answered(&mut server, &mut out);
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("C: ") {
            out.push_str(&format!("{line}\n"));
            server.feed(&encode_packet(said, names));
            answered(&mut server, &mut out);
        }
    }
    out
}

/// Checks that the conversation at `path` plays as written.
fn goes_as_written(
    path: &Path,
    version: Version,
    repo: &Arc<Repo>,
    names: &ObjectNames,
) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let found = played(&text, repo, version, names);
    if std::env::var_os("WEIR_WRITE_TRANSCRIPTS").is_some() {
        fs::write(path, found)?;
    } else if found != text {
        return Err(format!("the conversation differs:\n{found}").into());
    }
    Ok(())
}

/// Checks that the answers do not depend on how the request is cut into pieces.
fn can_be_cut(path: &Path, version: Version, repo: &Arc<Repo>, names: &ObjectNames) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let said = text.lines().filter_map(|line| line.strip_prefix("C: "));
    let request: Vec<u8> = said.flat_map(|line| encode_packet(line, names)).collect();
    let answer = |piece: usize| {
        let mut server = Server::new(shown(&text, repo), version, settings(&text));
        request.chunks(piece).for_each(|piece| server.feed(piece));
        server.take()
    };
    let whole = answer(request.len().max(1));
    match [1, 3, 64].into_iter().find(|piece| answer(*piece) != whole) {
        Some(piece) => Err(format!("the answer differs in pieces of {piece} bytes").into()),
        None => Ok(()),
    }
}

fn main() {
    let folder = weir_testing::folder();
    let names = Arc::new(create_history(folder.path()));
    let repo = Arc::new(open_directory(folder.path()).unwrap());
    let mut trials = Vec::new();
    for (path, version) in files() {
        let path: Arc<Path> = path.into();
        let name = path.strip_prefix(FOLDER).unwrap().with_extension("").display().to_string();
        let test = |kind: &str, check: fn(&Path, Version, &Arc<Repo>, &ObjectNames) -> Result<(), Failed>| {
            let (path, repo, names) = (path.clone(), repo.clone(), names.clone());
            Trial::test(format!("{name}{kind}"), move || check(&path, version, &repo, &names))
        };
        trials.push(test("", goes_as_written));
        trials.push(test(" in pieces", can_be_cut));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_if_failed();
}
