//! Transcripts of conversations over HTTP (gitprotocol-http): the client's requests, and the server's
//! answers.
//!
//! Each file in the folders is one connection and two tests: as written, and with each request cut into
//! pieces. A file starts with a comment (`#`) and settings of the server. `C: ` and `S: ` begin lines of a
//! head, `C> ` and `S> ` lines of a body (`exchange.rs` explains them). `WEIR_WRITE_TRANSCRIPTS=1` rewrites
//! the server's lines.

mod exchange;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use weir_testing::{ObjectNames, create_history};

use exchange::{Connection, requests_of};
use server::TestServer;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");

/// Returns the transcripts, sorted by path.
fn files() -> Vec<PathBuf> {
    let folders =
        fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let mut files: Vec<PathBuf> =
        folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Plays the conversation of a file, and sends each request in pieces of `piece` bytes. Returns the
/// transcript.
fn played(text: &str, repository: &Path, names: &ObjectNames, piece: usize) -> String {
    let settings: Vec<&str> = text.lines().take_while(|line| !line.starts_with("C: ")).collect();
    let server = TestServer::start(repository, &settings);
    let mut connection = Connection::open(server.port());
    let mut out: String = settings.iter().map(|line| format!("{line}\n")).collect();
    for request in requests_of(text) {
        request.lines.iter().for_each(|line| out.push_str(&format!("{line}\n")));
        connection.send(&request.to_pieces(names, piece));
        out.push_str(&connection.answer(&request, names));
    }
    out
}

/// Checks that the conversation at `path` plays as written.
fn goes_as_written(path: &Path, repository: &Path, names: &ObjectNames) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let found = played(&text, repository, names, usize::MAX);
    if std::env::var_os("WEIR_WRITE_TRANSCRIPTS").is_some() {
        fs::write(path, found)?;
    } else if found != text {
        return Err(format!("the conversation differs:\n{found}").into());
    }
    Ok(())
}

/// Checks that the answers do not depend on how the requests are cut into pieces.
fn can_be_cut(path: &Path, repository: &Path, names: &ObjectNames) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let whole = played(&text, repository, names, usize::MAX);
    match [1, 17].into_iter().find(|piece| played(&text, repository, names, *piece) != whole) {
        Some(piece) => Err(format!("the answer differs in pieces of {piece} bytes").into()),
        None => Ok(()),
    }
}

fn main() {
    let folder = weir_testing::folder();
    let names = Arc::new(create_history(folder.path()));
    let repository: Arc<Path> = folder.path().into();
    let mut trials = Vec::new();
    for path in files() {
        let path: Arc<Path> = path.into();
        let name = path.strip_prefix(FOLDER).unwrap().with_extension("").display().to_string();
        let test = |kind: &str, check: fn(&Path, &Path, &ObjectNames) -> Result<(), Failed>| {
            let (path, repository, names) = (path.clone(), repository.clone(), names.clone());
            Trial::test(format!("{name}{kind}"), move || check(&path, &repository, &names))
        };
        trials.push(test("", goes_as_written));
        trials.push(test(" in pieces", can_be_cut));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_if_failed();
}
