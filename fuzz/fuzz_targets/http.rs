//! Requests over HTTP, as a CGI program gets them: lines of variables, an empty line, the body.
#![no_main]

use std::collections::HashMap;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use weir_serve::{Client, Daemon, DaemonLimits, Found, Locator, Presentation, Refusal, serve_cgi};
use weir_upload::{DaemonRequest, UploadOptions};

/// One repository, called `/r`.
struct One(std::path::PathBuf);

impl Locator for One {
    fn find(&self, request: &DaemonRequest, _: &Client) -> Result<Found, Refusal> {
        match &*request.path {
            "/r" => Ok(Found::Directory(self.0.clone())),
            path => Err(Refusal::NotFound(path.to_owned())),
        }
    }
}

fn daemon() -> Arc<Daemon> {
    static DAEMON: OnceLock<Arc<Daemon>> = OnceLock::new();
    DAEMON
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap().keep();
            assert!(
                Command::new("git").args(["init", "-q", "--bare"]).arg(&folder).status().unwrap().success()
            );
            let presentation = Presentation { files: true, ..Presentation::default() };
            let (options, limits) = (UploadOptions::default(), DaemonLimits::default());
            Arc::new(Daemon::new(Arc::new(One(folder)), options, limits, presentation).unwrap())
        })
        .clone()
}

fuzz_target!(|data: &[u8]| {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let runtime =
        RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    let end = data.windows(2).position(|w| w == b"\n\n").unwrap_or(data.len());
    let head = String::from_utf8_lossy(&data[..end]);
    let mut variables: HashMap<String, String> =
        HashMap::from([("REQUEST_METHOD".to_owned(), "GET".to_owned())]);
    variables.extend(
        head.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())),
    );
    let mut body = data.get(end + 2..).unwrap_or_default();
    let _ = runtime.block_on(serve_cgi(daemon(), &variables, &mut body, &mut std::io::sink()));
});
