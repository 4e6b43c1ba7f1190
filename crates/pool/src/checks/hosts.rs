//! Checks the hosts of upstreams and forges: each gets one request.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use weir_catalog::InventoryEntry;
use weir_crawl::CrawlSource;
use weir_ground::thread::spawn_scoped;
use weir_ground::{FailureClass, Timestamp};
use weir_transport::{Scheme, Session, TransportOptions, Url};

use crate::checks::report::{CheckLevel, CheckRemedy, CheckReport, FindingText};
use crate::error::Result;
use crate::running::{Pool, transport_options};
use crate::words;
use weir_catalog::clock::now;
use weir_settings::ForgeConfig;

/// The longest wait for a host, whatever timeouts visits have.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A repository that stands for all of its host.
struct Example {
    name: String,
    url: Url,
    last_success: Option<Timestamp>,
    /// The number of repositories at that host.
    count: usize,
}

/// Opens a session with one repository of each host: the one that was last visited with success.
pub(crate) fn hosts(pool: &Pool, report: &mut CheckReport<'_>) -> Result<()> {
    let mut hosts: BTreeMap<String, Example> = BTreeMap::new();
    pool.catalog.archives().for_each_entry(|entry| {
        let Some((host, example)) = example(entry) else { return };
        match hosts.get_mut(&host) {
            None => drop(hosts.insert(host, example)),
            Some(known) if known.last_success < example.last_success => {
                *known = Example { count: known.count + 1, ..example }
            }
            Some(known) => known.count += 1,
        }
    })?;
    let options = transport_options(&pool.config);
    let options = TransportOptions {
        connect_timeout: options.connect_timeout.min(TIMEOUT),
        idle_timeout: options.idle_timeout.min(TIMEOUT),
        first_byte_timeout: options.first_byte_timeout.min(TIMEOUT),
        ..options
    };
    let jobs = usize::from(pool.config.mirror.jobs).min(hosts.len());
    let queue = Mutex::new(hosts.into_iter());
    std::thread::scope(|scope| {
        let (sender, answers) = channel();
        for started in 0..jobs {
            let (sender, queue, options) = (sender.clone(), &queue, &options);
            let asking = spawn_scoped("check host", scope, move || {
                loop {
                    let next = queue.lock().unwrap_or_else(|e| e.into_inner()).next();
                    let Some((host, example)) = next else { return };
                    let answer = Session::open(&example.url, options).map(drop);
                    if sender.send((host, example, answer)).is_err() {
                        return;
                    }
                }
            });
            match asking {
                Err(e) if started == 0 => return Err(e.into()),
                Err(_) => break,
                Ok(_) => {}
            }
        }
        drop(sender);
        let mut kinds = [CheckLevel::Ok, CheckLevel::Warning, CheckLevel::Error]
            .map(|level| (level, report.many("of hosts")));
        for (host, example, answer) in answers {
            let (level, message) = verdict(&host, &example, answer);
            let (_, many) = kinds.iter_mut().find(|(of, _)| *of == level).expect("each is there");
            many.add(|| message);
        }
        for (level, many) in kinds {
            report.add_all(level, "host", many)?;
        }
        Ok(())
    })
}

/// Returns the host of `entry`, with `entry` as its example; nothing if it is on this machine or not visited.
fn example(entry: InventoryEntry) -> Option<(String, Example)> {
    let url = Url::parse(&entry.url).ok().filter(|url| url.scheme != Scheme::Local && entry.is_enabled)?;
    let last_success = entry.last_success.filter(|_| entry.failures == 0);
    Some((
        format!("{}://{}", url.scheme.name(), url.host_port()),
        Example { name: entry.name, url, last_success, count: 1 },
    ))
}

fn verdict(host: &str, example: &Example, answer: weir_transport::Result<()>) -> (CheckLevel, FindingText) {
    let Example { name, count, .. } = example;
    let of = if *count == 1 { "1 repository".to_owned() } else { format!("{count} repositories") };
    let Err(e) = answer else { return (CheckLevel::Ok, format!("{host} ({of}) answers").into()) };
    let class = e.class();
    let remedy = CheckRemedy::Class(class);
    match class {
        // This holds for one repository. The state of the others is unknown.
        FailureClass::Gone => (
            CheckLevel::Warning,
            FindingText::with(format!("{host} ({of}) answers, but not for '{name}': {e} ({class})"), remedy),
        ),
        // The remedy of a visit, which is to wait, does not help here.
        FailureClass::Network | FailureClass::Slow | FailureClass::Server => {
            (CheckLevel::Error, format!("{host} ({of}), asked for '{name}': {e} ({class})").into())
        }
        _ => (
            CheckLevel::Error,
            FindingText::with(format!("{host} ({of}), asked for '{name}': {e} ({class})"), remedy),
        ),
    }
}

/// Asks each forge for the first page of its listing.
pub(crate) fn forges(pool: &Pool, report: &mut CheckReport<'_>) -> Result<()> {
    for forge in &pool.config.forge {
        let (level, message) = match ask(forge) {
            Ok(budgets) => (CheckLevel::Ok, format!("{} ({}) answers{budgets}", forge.name(), forge.url)),
            Err(e) => (CheckLevel::Error, format!("{} ({}): {e}", forge.name(), forge.url)),
        };
        report.add(level, "forge", message)?;
    }
    Ok(())
}

/// Why a forge is not in order.
#[derive(Debug, thiserror::Error)]
enum ForgeFault {
    #[error(transparent)]
    Settings(#[from] weir_settings::Error),
    #[error(transparent)]
    Forge(weir_forge::Error),
    #[error("its rate limit is used up")]
    UsedUp,
}

/// Asks a forge for the first page of its listing. Returns the words for the requests that it grants.
fn ask(config: &ForgeConfig) -> std::result::Result<String, ForgeFault> {
    let mut forge = config.open_once()?;
    let start = forge.start();
    forge.page(start).map_err(|e| match e {
        weir_forge::Error::Stopped => ForgeFault::UsedUp,
        e => ForgeFault::Forge(e),
    })?;
    let left = |b: &weir_catalog::RequestBudget| {
        let of = b.limit.map_or(String::new(), |limit| format!(" of {limit}"));
        format!(
            ", {}: {}{of} requests left, reset in {}",
            b.credential,
            b.remaining,
            words::span(b.reset_at - now())
        )
    };
    Ok(forge.budgets().iter().map(left).collect())
}
