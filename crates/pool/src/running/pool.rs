//! A pool: configuration, catalog and store in one folder.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use weir_catalog::{Catalog, Repository};
use weir_crawl::CrawlSource;
use weir_ground::FileError;
use weir_mirror::schedule::Policy;
use weir_mirror::throttle::{Throttle, ThrottlePolicy};
use weir_mirror::{
    Arrivals, Compacting, ForgeRefs, Mirror, MirrorOptions, Scratch, Space, StoreMark, VisitOptions,
};
use weir_repo::ingest::{IngestLimits, Quota};
use weir_repo::{NamedState, Repo};
use weir_settings::{Config, Environment, ForgeCredentials, MirrorConfig, MirrorRule, is_for_everybody};
use weir_transport::{GitCredentialHelper, Netrc, TransportOptions};

use crate::archives::{STORE_ID_NAME, Store, claim, get, matching, matching_any, read_or_make};
use crate::error::{Error, InRepo, Result};
use crate::running::local::LocalUpstreams;

/// The name of the configuration file in a pool.
pub const CONFIG_NAME: &str = "weir.toml";
/// The name of the folder of archives in a pool.
pub const STORE_NAME: &str = "store";
/// The name of the catalog in a pool, if it is not a database elsewhere.
pub const CATALOG_NAME: &str = "catalog.db";
/// Where Linux has a RAM disk.
const RAMDISK: &str = "/dev/shm";

/// An open pool.
pub struct Pool {
    /// Its folder.
    pub path: PathBuf,
    /// Its settings.
    pub config: Config,
    /// Its catalog.
    pub catalog: Catalog,
    /// Its archives.
    pub store: Store,
    /// The id of the store.
    store_id: String,
    /// The repositories of which this process is making the first copy.
    pub arrivals: Arrivals,
}

/// A clock that is off by more seconds is reported.
pub const CLOCK_SKEW_TOLD_S: i64 = 30;

/// Returns whether `folder` has the files of a pool that weir finds by itself.
pub fn is_pool_folder(folder: &Path) -> bool {
    folder.join(CONFIG_NAME).is_file() && folder.join(STORE_NAME).is_dir()
}

/// Opens the catalog of the pool at `path`.
fn open_catalog(path: &Path, config: &Config) -> Result<Catalog> {
    claim(open_catalog_again(path, config)?, &path.join(STORE_NAME))
}

/// Opens the catalog of the pool at `path`, which is open already.
///
/// # Errors
/// If the database cannot be opened.
pub fn open_catalog_again(path: &Path, config: &Config) -> weir_catalog::Result<Catalog> {
    let mut catalog = match &config.catalog.url {
        None => Catalog::open(&path.join(CATALOG_NAME))?,
        Some(url) => Catalog::connect(url)?,
    };
    catalog.set_machine(&machine_of(&catalog));
    Ok(catalog)
}

/// Returns the prefix of the names of this machine's processes in `catalog`. Machines of a fleet know only
/// their own processes, and their own events.
pub fn machine_of(catalog: &Catalog) -> String {
    let name = || nix::unistd::gethostname().unwrap_or_default();
    if catalog.is_remote() { format!("{}/", name().display()) } else { String::new() }
}

/// Returns whether the pool at `path` has a catalog of its own. An empty file is one that was lost: it would
/// pass for the catalog of a new pool.
fn has_catalog_at(path: &Path) -> bool {
    std::fs::metadata(path.join(CATALOG_NAME)).is_ok_and(|file| file.is_file() && file.len() > 0)
}

/// The part of a pool that `init` made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum InitOutcome {
    /// All of it.
    Pool,
    /// All but the store, which has archives.
    AroundStore,
    /// The pool's catalog, which was lost.
    Catalog,
    /// Nothing: it was there.
    Nothing,
}

impl Pool {
    /// Makes a pool at `path`. Its catalog is at the URL `catalog`, if one is given. An existing pool is left
    /// as it is, except that a missing catalog is made.
    ///
    /// # Errors
    /// If a file or folder cannot be made, or the catalog cannot be opened.
    pub fn init(path: &Path, catalog: Option<&str>, environment: Environment) -> Result<InitOutcome> {
        let store = path.join(STORE_NAME);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(FileError::on("make", parent))?;
        }
        // The owner of the pool lets in other users who should read archives.
        match DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(FileError::on("make", path)(e).into());
            }
            _ => std::fs::create_dir_all(&store).map_err(FileError::on("make", &store))?,
        }
        let config = path.join(CONFIG_NAME);
        let is_new = !config.exists();
        if is_new {
            if let Some(url) = catalog {
                // Check the catalog first: no configuration is written that could not be used.
                Catalog::connect(url)?.claim_store(&read_or_make(&store)?)?;
            }
            // The file may hold tokens, and the catalog's password.
            let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&config);
            new.and_then(|mut new| new.write_all(weir_settings::template(catalog).as_bytes()))
                .map_err(FileError::on("write", &config))?;
        }
        let config = weir_settings::load(&config, environment)?;
        // Files that begin with a dot are weir's own.
        let is_own = |entry: std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
        let entries = std::fs::read_dir(&store).map_err(FileError::on("read", &store))?;
        let has_archives = entries.flatten().any(|entry| !is_own(entry));
        let has_catalog = config.catalog.url.is_some() || has_catalog_at(path);
        open_catalog(path, &config)?;
        Ok(match (is_new, has_catalog) {
            (true, _) if has_archives => InitOutcome::AroundStore,
            (true, _) => InitOutcome::Pool,
            (false, false) => InitOutcome::Catalog,
            (false, true) => InitOutcome::Nothing,
        })
    }

    /// Warns if other users of this machine may read secrets in the pool's files.
    pub fn warn_of_readable_secrets(&self) {
        for path in self.readable_secrets() {
            tracing::warn!(
                "'{0}' may hold tokens and passwords and is world-readable: run chmod o= '{0}'",
                path.display()
            );
        }
    }

    /// Returns the pool's files with secrets that every user of this machine may read.
    pub fn readable_secrets(&self) -> Vec<PathBuf> {
        let others_come_in = std::fs::metadata(&self.path).is_ok_and(|m| m.permissions().mode() & 0o005 != 0);
        let files = [CONFIG_NAME, CATALOG_NAME].map(|name| self.path.join(name));
        files.into_iter().filter(|path| others_come_in && is_for_everybody(path)).collect()
    }

    /// Opens the pool at `path` with the settings of its `weir.toml` ([`weir_settings::load`]).
    ///
    /// # Errors
    /// If there is none, or its catalog or its store is not as it should be.
    pub fn open(path: &Path, config: Config) -> Result<Pool> {
        let has_config = path.join(CONFIG_NAME).is_file();
        if config.catalog.url.is_none() && !has_catalog_at(path) {
            return Err(match has_config {
                true => Error::NoCatalog(path.to_owned()),
                false => Error::NoPool(path.to_owned()),
            });
        }
        // With the defaults, a pool would be open to everybody that was not.
        if !has_config {
            return Err(Error::NoConfig(path.to_owned()));
        }
        let path = path.to_owned();
        let catalog = open_catalog(&path, &config)?;
        let ahead = catalog.follow_clock()?;
        if ahead.abs() > CLOCK_SKEW_TOLD_S {
            tracing::warn!(
                "this machine's clock is off from the database's by {ahead} s; using the database's"
            );
        }
        let store_path = path.join(STORE_NAME);
        let store_id = read_or_make(&store_path)?;
        let store =
            Store { path: store_path, scratch: scratch(&config), threads: config.mirror.threads.into() };
        Ok(Pool { path, config, catalog, store, store_id, arrivals: Arrivals::default() })
    }

    /// Opens the pool once more, for another thread.
    ///
    /// # Errors
    /// If the catalog cannot be opened.
    pub fn again(&self) -> Result<Pool> {
        let (path, config) = (self.path.clone(), self.config.clone());
        let (store, store_id, arrivals) = (self.store.clone(), self.store_id.clone(), self.arrivals.clone());
        Ok(Pool { path, config, catalog: self.another_catalog()?, store, store_id, arrivals })
    }

    /// Opens the file `name` of the pool for locking, and makes it if there is none.
    ///
    /// # Errors
    /// If that fails.
    pub fn open_lock(&self, name: &str) -> Result<File> {
        let path = self.path.join(name);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        Ok(file.map_err(FileError::on("open", &path))?)
    }

    /// Returns the id of the store.
    pub fn store_id(&self) -> &str {
        &self.store_id
    }

    /// Opens a second connection to the catalog, for another thread.
    ///
    /// # Errors
    /// If that fails.
    pub fn another_catalog(&self) -> Result<Catalog> {
        open_catalog(&self.path, &self.config)
    }

    /// Returns the path of the archive of `repository`, whether it exists or not.
    pub fn archive_path(&self, repository: &Repository) -> PathBuf {
        self.store.archive_path(repository)
    }

    /// Opens the archive of `repository`.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn open_repo(&self, repository: &Repository) -> Result<Repo> {
        self.store.open(repository)
    }

    /// Opens the archive of `repository`, in an older state if one is named.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn open_state(&self, repository: &Repository, state: Option<NamedState>) -> Result<Repo> {
        let (repo, name) = (self.open_repo(repository)?, &repository.name);
        let Some(state) = state else { return Ok(repo) };
        let none = || Error::NoState { name: name.clone(), state: state.to_string() };
        repo.at_state(state).in_repo(name)?.ok_or_else(none)
    }

    /// Returns the repository that `name` means, with or without `.git`, and the state, if it is
    /// `REPO@STATE`.
    ///
    /// # Errors
    /// If there is none, or several match, or the catalog fails.
    pub fn get_state(&self, name: &str) -> Result<(Repository, Option<NamedState>)> {
        match NamedState::split(name) {
            Some((repository, state)) => Ok((self.get(repository)?, Some(state))),
            None => Ok((self.get(name)?, None)),
        }
    }

    /// Returns the repositories whose name matches `pattern`.
    ///
    /// # Errors
    /// If it matches none, or the catalog fails.
    pub fn matching(&self, pattern: &str) -> Result<Vec<Repository>> {
        matching(&self.catalog, Some(pattern))
    }

    /// Returns the repositories that match any of `patterns`, or all if there are none, sorted by name.
    ///
    /// # Errors
    /// If a pattern matches none, or the catalog fails.
    pub fn selected(&self, patterns: &[String]) -> Result<Vec<Repository>> {
        match patterns {
            [] => matching(&self.catalog, None),
            patterns => self.matching_any(patterns),
        }
    }

    /// Returns the repositories that match any of `patterns`.
    ///
    /// # Errors
    /// If one matches none, or the catalog fails.
    pub fn matching_any(&self, patterns: &[String]) -> Result<Vec<Repository>> {
        matching_any(&self.catalog, patterns)
    }

    /// Returns the repository called `name`, with or without `.git`.
    ///
    /// # Errors
    /// If there is none, or several match, or the catalog fails.
    pub fn get(&self, name: &str) -> Result<Repository> {
        get(&self.catalog, name)
    }

    /// Returns the limits on the room for archives.
    pub fn space(&self) -> Space {
        Space::new(
            self.store.path.clone(),
            self.config.store.free_bytes_min.0,
            self.config.store.bytes_max.map(|n| n.0),
        )
    }

    /// Returns the mirror loop, as configured.
    pub fn mirror(&self, jobs: Option<u16>) -> Mirror {
        let c = &self.config;
        let space = Arc::new(self.space());
        let jobs = usize::from(jobs.unwrap_or(c.mirror.jobs));
        Mirror {
            store: self.store.path.clone(),
            clock: weir_catalog::clock::clock(),
            visit: VisitOptions {
                transport: transport_options(c),
                limits: IngestLimits {
                    pack_bytes_max: c.limits.pack_bytes_max.0,
                    objects_max: c.limits.objects_max,
                    object_bytes_max: c.limits.object_bytes_max.0,
                    held_bytes_max: c.limits.held_bytes_max.0,
                    inflated_bytes_max: c.limits.inflated_bytes_max.0,
                },
                scratch: self.store.scratch.clone(),
                threads: c.mirror.threads.into(),
                refs: c.mirror.refs.wanted(),
                lfs: c.mirror.lfs,
                space: space.clone(),
                delta_bytes_max: c.scratch.delta_bytes_max.0 as usize,
                compacting: Compacting {
                    packs_max: c.archive.packs_max as usize,
                    unused_percent_max: c.archive.unused_percent_max,
                },
                accepts_empty: false,
                store: Some(Arc::new(StoreMark {
                    path: self.store.path.join(STORE_ID_NAME),
                    id: self.store_id.clone(),
                })),
                arrivals: self.arrivals.clone(),
                progress: Arc::default(),
            },
            options: MirrorOptions {
                lease_s: c.mirror.lease.0.as_secs().max(1),
                jobs,
                jobs_per_host: c.mirror.jobs_per_host.into(),
                waits_out_pauses: true,
                shares_forks: c.store.share_forks.then(|| c.access.names()),
                events_keep_s: c.events.keep.0.as_secs(),
                debounce_s: c.events.debounce.0.as_secs() as i64,
                rules: c.mirror.rules.iter().map(MirrorRule::rule).collect(),
                // Refs that a forge itself makes and remakes are no change of a repository.
                forge_refs: ForgeRefs {
                    named: c
                        .forge
                        .iter()
                        .filter_map(|forge| Some((forge.name(), forge.refs.as_ref()?.patterns())))
                        .collect(),
                    others: if c.mirror.refs.is_default() {
                        FORGE_REFS.map(str::to_owned).into()
                    } else {
                        Vec::new()
                    },
                },
                schedule: schedule(&c.mirror),
            },
            space,
            throttle: Mutex::new(Throttle::new(ThrottlePolicy {
                window: c.mirror.throttle_window,
                leak_ms: c.mirror.throttle_leak.0.as_millis() as u64,
                pause_ms: c.mirror.throttle_pause.0.as_millis() as u64,
            })),
        }
    }
}

/// The refs of repositories on forges that are mirrored by default. Like Software Heritage's loader, they
/// exclude the refs that a forge itself makes: for the test merge of a pull request, for a pipeline, and for
/// each version of a change.
const FORGE_REFS: [&str; 4] =
    ["^refs/pull/*/merge", "^refs/merge-requests/*/merge", "^refs/pipelines/*", "^refs/changes/*"];

/// Returns the intervals between visits, as configured.
fn schedule(c: &MirrorConfig) -> Policy {
    Policy {
        interval_s: c.interval.fixed_s(),
        interval_daily_s: c.interval_daily.0.as_secs(),
        interval_min_s: c.interval_min.0.as_secs(),
        interval_max_s: c.interval_max.0.as_secs(),
        retry_s: c.retry.0.as_secs(),
        retry_max_s: c.retry_max.0.as_secs(),
        gone_s: c.gone.0.as_secs(),
        forbidden_s: c.forbidden.0.as_secs(),
    }
}

/// Returns where packs lie while they are verified, as configured.
fn scratch(config: &Config) -> Scratch {
    let default = Some(PathBuf::from(RAMDISK)).filter(|p| p.is_dir());
    Scratch {
        folder: config.scratch.folder.clone().or(default),
        pack_bytes_max: config.scratch.pack_bytes_max.0,
        quota: Quota::new(config.scratch.bytes_max.0),
    }
}

/// Returns how to talk to upstreams, as configured.
pub fn transport_options(c: &Config) -> TransportOptions {
    let environment = &c.environment;
    let home_netrc = (environment.variable)("HOME").map(|h| PathBuf::from(h).join(".netrc"));
    TransportOptions {
        connect_timeout: c.transport.connect_timeout.0,
        idle_timeout: c.transport.idle_timeout.0,
        first_byte_timeout: c.transport.first_byte_timeout.0,
        pack_start_timeout: c.transport.pack_start_timeout.0,
        bytes_per_second_min: c.transport.bytes_per_second_min.0,
        ssh_command: environment.ssh_command(c.transport.ssh_command.as_deref()),
        netrc: c.transport.netrc.clone().or(home_netrc).map(Netrc),
        credential_source: Some(Arc::new(ForgeCredentials::of(&c.forge))),
        credential_helper: c.transport.credential_helper.then(|| GitCredentialHelper { git: "git".into() }),
        local: Some(Arc::new(LocalUpstreams)),
        version_max: c.transport.protocol_version_max,
        roots: environment.roots(c.transport.ca_file.as_deref()),
        proxies: environment.proxies(),
        extra_headers: (environment.extra_headers)(),
        refs_bytes_max: c.limits.refs_bytes_max.0,
        ..Default::default()
    }
}

/// Returns the bytes at `path` that are free for this user, and the bytes in total.
///
/// # Errors
/// If the file system does not say.
pub fn space(path: &Path) -> Result<(u64, u64)> {
    let stat = nix::sys::statvfs::statvfs(path).map_err(std::io::Error::from)?;
    let unit = stat.fragment_size();
    Ok((stat.blocks_available() * unit, stat.blocks() * unit))
}
