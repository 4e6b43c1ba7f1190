//! `serve`: git:// for every repository of the pool.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_catalog::Catalog;
use weir_mirror::Stop;
use weir_serve::{Daemon, DaemonLimits, Door, Found, Locator, Presentation};
use weir_transport::{Scheme, Url};
use weir_upload::{DaemonRequest, Limits, Options, Service};

use super::mirror::{MirrorGuard, stop_on_signal, watch};
use crate::cli::Global;
use crate::error::{Error, Result};
use crate::output;
use crate::pool::Pool;

/// Finds repositories by their name in the catalog: a client's path is looked up, never joined to a folder.
struct CatalogLocator {
    catalog: Mutex<Catalog>,
    store: PathBuf,
}

impl CatalogLocator {
    fn get(&self, path: &str) -> Option<weir_catalog::Repository> {
        let name = path.trim_matches('/');
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let get = |name: &str| {
            catalog.get(name).unwrap_or_else(|e| {
                tracing::error!("{e}");
                None
            })
        };
        get(name).or_else(|| get(name.strip_suffix(".git")?))
    }
}

impl Locator for CatalogLocator {
    fn find(&self, request: &DaemonRequest, _peer: SocketAddr) -> std::result::Result<Found, String> {
        let repository = self.get(&request.path);
        let what = match request.service {
            Service::UploadPack => {
                let path = repository.map(|r| self.store.join(r.path)).filter(|p| p.exists());
                return path.map(Found::Archive).ok_or_else(|| format!("weir: no such repository: {}", request.path));
            }
            Service::ReceivePack => "this is a read-only mirror",
            Service::UploadArchive => "git archive is not served",
        };
        // A local path of this machine means nothing to a client, and is nobody's business.
        let url = repository.and_then(|r| Url::parse(&r.url).ok()).filter(|url| url.scheme != Scheme::Local);
        Err(url.map_or_else(|| format!("weir: {what}"), |url| format!("weir: {what}; push to {url} instead")))
    }
}

pub(crate) fn serve(pool: Pool, global: &Global, git: Vec<SocketAddr>, http: Vec<SocketAddr>, no_mirror: bool) -> Result<()> {
    let c = &pool.config.serve;
    let limits = DaemonLimits {
        init_timeout: c.init_timeout.0,
        idle_timeout: c.idle_timeout.0,
        bytes_per_second_min: c.bytes_per_second_min.0,
        connections_max: c.connections_max,
        connections_per_address_max: c.connections_per_address_max,
        computed_max: c.computed_max,
        drain_timeout: c.drain_timeout.0,
    };
    let options = Options { limits: Limits { steps_max: c.steps_max, ..Default::default() }, ..Default::default() };
    let given = |given: Vec<SocketAddr>, configured: &Vec<SocketAddr>| if given.is_empty() { configured.clone() } else { given };
    let doors = [(Door::Git, given(git, &c.git)), (Door::Http, given(http, &c.http))];
    let locator = Arc::new(CatalogLocator { catalog: Mutex::new(pool.another_catalog()?), store: pool.store() });
    let daemon = Arc::new(Daemon::new(locator, options, limits, Presentation::default())?);
    let stop = Stop::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listeners = runtime.block_on(async {
        let listen = |(door, a): (Door, SocketAddr)| match Daemon::listen(a) {
            Ok(listener) => Ok((door, listener)),
            Err(e) => Err(Error::Message(format!("cannot listen on {a}: {e}; choose another with --{} ADDR:PORT", scheme(door)))),
        };
        doors.into_iter().flat_map(|(door, list)| list.into_iter().map(move |a| (door, a))).map(listen).collect::<Result<Vec<_>>>()
    })?;
    let asked_to_stop = stop_on_signal(&stop)?;
    for (door, listener) in &listeners {
        let url = format!("{}://{}/", scheme(*door), listener.local_addr()?);
        if global.json {
            output::json_line(&serde_json::json!({ "listening": url, "pid": std::process::id() }))?;
        } else {
            tracing::info!("serving {url}");
        }
    }
    let mirroring = if no_mirror { None } else { Some(start_mirror(&pool, &stop)?) };
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for (door, listener) in listeners {
            let mut asked = asked_to_stop.clone();
            let stopped = async move {
                if asked.wait_for(|&asked| asked).await.is_err() {
                    // Nobody listens for signals: nobody will ask.
                    std::future::pending::<()>().await;
                }
            };
            tasks.push(tokio::spawn(daemon.clone().run(listener, door, stopped)));
        }
        for task in tasks {
            let _ = task.await;
        }
    });
    if let Some(thread) = mirroring {
        let _ = thread.join();
    }
    Ok(())
}

fn scheme(door: Door) -> &'static str {
    match door {
        Door::Git => "git",
        Door::Http => "http",
    }
}

fn start_mirror(pool: &Pool, stop: &Stop) -> Result<std::thread::JoinHandle<()>> {
    let guard = MirrorGuard::take(pool)?;
    let (mirror, mut catalog, stop) = (pool.mirror(None), pool.another_catalog()?, stop.clone());
    Ok(std::thread::spawn(move || {
        while let Err(e) = watch(&mirror, &mut catalog, &guard.owner, &stop) {
            tracing::error!("the mirror loop: {e}; trying again in a minute");
            for _ in 0..600 {
                if stop.is_stopped() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }))
}
