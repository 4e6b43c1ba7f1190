//! `serve`: git:// and HTTP for every repository of the pool.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use weir_api::{ApiHandler, McpHandler};
use weir_arguments::{Global, ServeArgs};
use weir_browse::RemoteArchives;
use weir_catalog::PoolEvent;
use weir_events::WebhookDoors;
use weir_ground::{FileError, Stop};
use weir_pool::{
    CatalogLocator, Collectors, Counters, EventStreams, HealthFront, IntakeSender, Metrics, OnDemand, Pool,
    TraceExporter, WebhookFront, keep_doors, keep_mirroring, keep_sweeping, keep_webhooks,
};
use weir_process::{
    has_terminal, on_reload_signal, restart_on, stop_by_signal, stop_on_signal, systemd, tell_ready,
};
use weir_serve::{
    AccessLog, Address, Daemon, DaemonLimits, Door, ListenAddress, Listener, MetricsText, Presentation, Tls,
    TrustedProxies, raise_descriptor_limit, serve_text,
};
use weir_settings::ServeConfig;
use weir_terminal::{output, visit_lines::log_event};
use weir_upload::{UploadLimits, UploadOptions};

use crate::error::{Error, Result};
use crate::remedies;
use crate::service_state::ServiceState;
use crate::workspace_records::OwnWorkspaces;

fn limits(c: &ServeConfig, scratch: PathBuf) -> DaemonLimits {
    DaemonLimits {
        init_timeout: c.init_timeout.0,
        idle_timeout: c.idle_timeout.0,
        bytes_per_second_min: c.bytes_per_second_min.0,
        connections_max: c.connections_max,
        connections_per_address_max: c.connections_per_address_max,
        computed_max: c.computed_max,
        computed_per_address_max: c.computed_per_address_max,
        computed_per_repository_max: c.computed_per_repository_max,
        queue_max: c.queue_max,
        queue_timeout: c.queue_timeout.0,
        kept_bytes_max: c.kept_bytes_max.0,
        scratch,
        drain_timeout: c.drain_timeout.0,
    }
}

/// Returns the addresses to listen on: those of the flags, or else of the configuration.
fn addresses(given: &[ListenAddress], configured: &[String]) -> Result<Vec<ListenAddress>> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    configured.iter().map(|a| a.parse::<ListenAddress>().map_err(|e| Error::Config(e.to_string()))).collect()
}

/// The sockets for clients.
type Doors = Vec<(Door, Listener)>;

/// The name of a handed-over socket for monitors.
const METRICS: &str = "metrics";
const METRICS_TYPE: &str = "text/plain; version=0.0.4";

/// Returns the sockets for clients and those for monitors: the handed-over ones, or else those that flags or
/// the configuration name.
fn listen(c: &ServeConfig, args: &ServeArgs) -> Result<(Doors, Vec<Listener>)> {
    let tls = || {
        let file = |given: &Option<PathBuf>, configured: &Option<PathBuf>, flag: &str| {
            let missing = || Error::Message(format!("https:// needs --{flag} FILE"));
            given.clone().or_else(|| configured.clone()).ok_or_else(missing)
        };
        let certificate = file(&args.tls_certificate, &c.tls_certificate, "tls-certificate")?;
        Tls::load(&certificate, &file(&args.tls_key, &c.tls_key, "tls-key")?)
            .map(Door::Https)
            .map_err(Error::of)
    };
    let monitored = || bind(METRICS, &addresses(&args.metrics, &c.metrics)?);
    // SAFETY: the program calls this once, and nothing else in it owns one of these descriptors.
    let handed_over = unsafe { Listener::handed_over(|name| std::env::var(name).ok())? };
    if !handed_over.is_empty() {
        let door = |name: &str| match name {
            "http" => Ok(Door::Http),
            "https" => tls(),
            name => {
                // Without a name of its own it has that of its unit (systemd.socket(5)).
                if !matches!(name, "git" | "" | "unknown") && !name.ends_with(".socket") {
                    tracing::warn!("the socket '{name}' of LISTEN_FDNAMES serves git://");
                }
                Ok(Door::Git)
            }
        };
        let (for_monitors, doors): (Vec<_>, Vec<_>) =
            handed_over.into_iter().partition(|(name, _)| name == METRICS);
        let doors =
            doors.into_iter().map(|(name, listener)| Ok((door(&name)?, listener))).collect::<Result<_>>()?;
        let for_monitors: Vec<_> = for_monitors.into_iter().map(|(_, listener)| listener).collect();
        return Ok((doors, if for_monitors.is_empty() { monitored()? } else { for_monitors }));
    }
    let mut doors = Doors::new();
    let mut open = |door: Door, addresses: &[ListenAddress]| -> Result<()> {
        let listeners = bind(scheme(&door), addresses)?;
        doors.extend(listeners.into_iter().map(|listener| (door.clone(), listener)));
        Ok(())
    };
    open(Door::Git, &addresses(&args.git, &c.git)?)?;
    open(Door::Http, &addresses(&args.http, &c.http)?)?;
    let https = addresses(&args.https, &c.https)?;
    if !https.is_empty() {
        open(tls()?, &https)?;
    }
    Ok((doors, monitored()?))
}

/// Binds sockets to the addresses that `--flag` names.
fn bind(flag: &str, addresses: &[ListenAddress]) -> Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = address.bind().map_err(|e| {
            Error::Message(format!("cannot listen on {address}: {e}; choose another with --{flag} ADDRESS"))
        })?;
        listeners.extend(bound);
    }
    Ok(listeners)
}

/// The webhooks of a server: their doors, and where to send the way into their spool.
type Webhooks = (Arc<WebhookDoors>, IntakeSender);

/// Returns the server, and its webhooks, if there are any.
fn daemon(
    pool: &Pool,
    counters: &Counters,
    asked_to_stop: watch::Receiver<bool>,
    stop: &Stop,
) -> Result<(Arc<Daemon>, Option<Webhooks>)> {
    let c = &pool.config.serve;
    let options = UploadOptions {
        limits: UploadLimits { steps_max: c.steps_max, ..Default::default() },
        archiver: Some(Arc::new(RemoteArchives)),
        ..Default::default()
    };
    let scratch = pool.store.scratch.clone().folder.unwrap_or_else(std::env::temp_dir);
    let presentation = Presentation { files: c.files, ..Presentation::default() };
    let proxies = TrustedProxies::new(&c.trusted_proxies, c.proxy_protocol).map_err(Error::of)?;
    let locator = Arc::new(CatalogLocator::new(pool)?.fetching(OnDemand::start(pool, stop)?));
    let mut daemon = Daemon::new(locator, options, limits(c, scratch), presentation)?
        .behind(proxies)
        .counting(counters.serving.clone());
    if let Some(path) = &c.access_log {
        let log = AccessLog::open(path, c.access_log_format).map_err(FileError::on("open", path))?;
        daemon = daemon.with_access_log(log);
    }
    if let Some(traces) = &counters.traces {
        daemon = daemon.with_tracer(traces.clone());
    }
    daemon = daemon.with_handler(Arc::new(HealthFront::new(pool, asked_to_stop)?));
    if c.api {
        let api = ApiHandler::new(
            pool,
            Box::new(|archive| Ok(OwnWorkspaces::list()?.lost_with(archive).is_some())),
        )?;
        if c.mcp {
            daemon = daemon.with_handler(Arc::new(McpHandler::of(&api)));
        }
        daemon = daemon.with_handler(Arc::new(api));
    }
    let Some((front, intake)) = WebhookFront::of(pool, counters)? else {
        return Ok((Arc::new(daemon), None));
    };
    let doors = front.doors();
    Ok((Arc::new(daemon.with_handler(Arc::new(front))), Some((doors, intake))))
}

pub(crate) fn serve(pool: Pool, global: &Global, args: ServeArgs) -> Result<()> {
    // Asked before anybody can connect: a terminal that goes away later is a lost one.
    let terminal = has_terminal();
    pool.warn_of_readable_secrets();
    let c = &pool.config.serve;
    let stop = Stop::default();
    // Before anybody can connect, and think that it runs.
    let asked_to_stop = stop_on_signal(&stop)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (listeners, monitored) = runtime.block_on(async { listen(c, &args) })?;
    raise_descriptor_limit();
    let mut counters = Counters::default();
    counters.traces = TraceExporter::start(&pool.config.traces)?.map(Arc::new);
    let counters = Arc::new(counters);
    let (daemon, webhooks) = daemon(&pool, &counters, asked_to_stop.clone(), &stop)?;
    let urls = announce(&listeners, global.json)?;
    announce_metrics(&monitored, global.json)?;
    let doors = listeners.iter().map(|(door, listener)| (listener.as_raw_fd(), scheme(door)));
    let sockets = doors.chain(monitored.iter().map(|listener| (listener.as_raw_fd(), METRICS))).collect();
    restart_on_signal(sockets, terminal)?;
    tell_ready();
    let log = |event: &PoolEvent| log_event(event, remedies::of_failure);
    let mut beside = if args.no_mirror { Vec::new() } else { keep_mirroring(&pool, &counters, &stop, log)? };
    let mirrors = !beside.is_empty();
    beside.extend(keep_doors(&pool, &counters, &stop)?);
    let collectors = Collectors::start(&pool)?;
    let streams = EventStreams::start(&pool, &stop)?;
    if let Some((doors, intake)) = webhooks {
        beside.extend(keep_sweeping(&pool, doors, &stop)?);
        beside.push(keep_webhooks(&pool, intake, &counters, &stop)?);
    }
    let metrics = Arc::new(Metrics::new(&pool, counters.clone())?);
    let state = ServiceState {
        daemon: &daemon,
        counters: &counters,
        mirror: beside.first().filter(|_| mirrors),
        urls: &urls,
        asked_to_stop: asked_to_stop.clone(),
    };
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for (door, listener) in listeners {
            let mut asked = asked_to_stop.clone();
            let stopped = async move {
                if asked.wait_for(|&asked| asked).await.is_err() {
                    // The signal handler is gone: nothing will ask for a stop.
                    std::future::pending::<()>().await;
                }
            };
            tasks.push(tokio::spawn(daemon.clone().run(listener, door, stopped)));
        }
        for listener in monitored {
            let (metrics, mut asked) = (metrics.clone(), asked_to_stop.clone());
            let stopped = async move {
                let _ = asked.wait_for(|&asked| asked).await;
            };
            let text: MetricsText = Arc::new(move || metrics.text());
            tokio::spawn(serve_text(listener, "/metrics", METRICS_TYPE, text, stopped));
        }
        let served = async {
            for task in tasks {
                let _ = task.await;
            }
        };
        tokio::select! {
            () = served => {}
            () = state.tell() => {}
        }
    });
    for thread in beside {
        let _ = thread.join();
    }
    drop((collectors, streams));
    Ok(())
}

/// On SIGHUP and SIGUSR2, starts the program again on the same sockets, then tells this process to stop.
fn restart_on_signal(sockets: Vec<(i32, &'static str)>, had_terminal: bool) -> Result<()> {
    let reload = move || {
        systemd::notify(&format!("RELOADING=1\nMONOTONIC_USEC={}", systemd::monotonic_us()));
        match restart_on(&sockets) {
            Ok(pid) => {
                tracing::info!(
                    "process {pid} has taken over; this one exits when its connections have ended"
                );
                systemd::hand_over();
                stop_by_signal();
                false
            }
            Err(e) => {
                tracing::error!("{e}");
                systemd::notify("READY=1");
                true
            }
        }
    };
    Ok(on_reload_signal(had_terminal, reload)?)
}

/// Says on which URLs clients are served, and returns them.
fn announce(listeners: &Doors, is_json: bool) -> Result<Vec<String>> {
    let mut urls = Vec::new();
    for (door, listener) in listeners {
        let url = url_of(listener, scheme(door), "")?;
        match is_json {
            true => output::json_line(&serde_json::json!({ "listening": url, "pid": std::process::id() }))?,
            false => tracing::info!("serving {url}"),
        }
        urls.push(url);
    }
    Ok(urls)
}

/// Says on which URLs metrics are.
fn announce_metrics(listeners: &[Listener], is_json: bool) -> Result<()> {
    for listener in listeners {
        let url = url_of(listener, "http", METRICS)?;
        match is_json {
            true => output::json_line(&serde_json::json!({ "metrics": url, "pid": std::process::id() }))?,
            false => tracing::info!("metrics at {url}"),
        }
    }
    Ok(())
}

/// Returns the URL of `path` at a listener; a Unix socket is named by its own path.
fn url_of(listener: &Listener, scheme: &str, path: &str) -> Result<String> {
    Ok(match listener.address()? {
        Address::Tcp(address) => format!("{scheme}://{address}/{path}"),
        unix => unix.to_string(),
    })
}

fn scheme(door: &Door) -> &'static str {
    match door {
        Door::Git => "git",
        Door::Http => "http",
        Door::Https(_) => "https",
    }
}
