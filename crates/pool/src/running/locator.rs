//! Finds repositories of a pool by name: a client's path is looked up in the catalog, never joined to a
//! folder.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use weir_catalog::clock::now;
use weir_catalog::{Catalog, Exposure, Repository};
use weir_ground::check_name;
use weir_mirror::Arrivals;
use weir_repo::{NamedState, Repo};
use weir_serve::{
    Access, AccessedName, AwaitedFor, AwaitedVisit, Client, Found, Hook, Locator, MapError, MapRule, Refusal,
    map,
};
use weir_settings::OnDemandConfig;
use weir_transport::{Scheme, Url};
use weir_upload::{DaemonRequest, Service};

use crate::error::{Error, Result};
use crate::running::on_demand::OnDemand;
use crate::running::pool::Pool;

/// How long an answer of a catalog on another machine stays valid. Its failure holds for `SILENCE_AGE_MAX`.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(1);
const SILENCE_AGE_MAX: Duration = Duration::from_secs(5);
const _: () = assert!(
    ANSWER_AGE_MAX.as_millis() <= SILENCE_AGE_MAX.as_millis(),
    "a database that is away is asked less often"
);
/// A catalog that takes longer to answer counts as silent: other requests do not wait for it.
const PATIENCE: Duration = Duration::from_secs(3);
/// The number of answers that are remembered: tens of megabytes.
const ANSWERS_MAX: usize = 100_000;

/// A client that wants what is missing causes a visit if the last one is at least that long ago: anybody may
/// name an object that nobody has.
const MISSING_AGE_MIN: Duration = Duration::from_secs(2);

/// The answer to a client that has waited as long as it may.
const STILL_COMING: &str = "weir: it is being fetched from its upstream; try again in a minute";

/// The number of no repository.
const NOBODY: i64 = -1;

/// Looks up repositories in the catalog. Answers of a catalog on another machine are remembered, so that
/// their repositories are served on while it is unavailable.
struct NameLookups {
    catalog: Mutex<Catalog>,
    is_remote: bool,
    memory: Mutex<LookupMemory>,
}

/// A repository, with what access rules need to know.
#[derive(Clone)]
pub struct KnownRepository {
    /// The repository.
    pub repository: Repository,
    exposure: Exposure,
}

fn ask(catalog: &Catalog, name: &str) -> weir_catalog::Result<Option<KnownRepository>> {
    // A name that is hidden must not take longer than one that is not there.
    let repository = catalog.get(name)?;
    let exposure = catalog.exposure(repository.as_ref().map_or(NOBODY, |repository| repository.id))?;
    Ok(repository.map(|repository| KnownRepository { repository, exposure }))
}

#[derive(Default)]
struct LookupMemory {
    answers: HashMap<String, (Instant, KnownRepository)>,
    /// Names that nothing has. Clients choose them, so they are apart from the answers.
    absent: HashMap<String, Instant>,
    silent_since: Option<Instant>,
    /// Since when a thread waits for an answer.
    asked_since: Option<Instant>,
}

impl LookupMemory {
    /// Returns the remembered answer, if it can be given without asking the catalog.
    fn answer(&self, name: &str) -> Option<Option<KnownRepository>> {
        let is_silent = self.silent_since.is_some_and(|since| since.elapsed() < SILENCE_AGE_MAX)
            || self.asked_since.is_some_and(|since| since.elapsed() > PATIENCE);
        match self.answers.get(name) {
            Some((at, known)) if is_silent || at.elapsed() < ANSWER_AGE_MAX => Some(Some(known.clone())),
            None if is_silent => Some(None),
            None if self.absent.get(name).is_some_and(|at| at.elapsed() < ANSWER_AGE_MAX) => Some(None),
            _ => None,
        }
    }

    /// Remembers an answer.
    fn remember(&mut self, name: &str, found: Option<&KnownRepository>) {
        if let Some(known) = found {
            if self.answers.len() >= ANSWERS_MAX {
                self.answers.clear();
            }
            self.absent.remove(name);
            self.answers.insert(name.to_owned(), (Instant::now(), known.clone()));
            return;
        }
        if self.absent.len() >= ANSWERS_MAX {
            self.absent.clear();
        }
        self.answers.remove(name);
        self.absent.insert(name.to_owned(), Instant::now());
    }
}

impl NameLookups {
    fn new(pool: &Pool) -> Result<NameLookups> {
        let is_remote = pool.catalog.is_remote();
        Ok(NameLookups { catalog: Mutex::new(pool.another_catalog()?), is_remote, memory: Mutex::default() })
    }

    fn memory(&self) -> MutexGuard<'_, LookupMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &str) -> Option<KnownRepository> {
        if !self.is_remote {
            let found = ask(&self.catalog.lock().unwrap_or_else(PoisonError::into_inner), name);
            return found.unwrap_or_else(|e| {
                tracing::error!("{e}");
                None
            });
        }
        // While one thread asks, the others wait for its answer, but not for long.
        let catalog = loop {
            if let Some(answer) = self.memory().answer(name) {
                return answer;
            }
            match self.catalog.try_lock() {
                Ok(catalog) => break catalog,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        self.memory().asked_since = Some(Instant::now());
        let asked = ask(&catalog, name);
        drop(catalog);
        let mut memory = self.memory();
        memory.asked_since = None;
        match asked {
            Ok(found) => {
                memory.silent_since = None;
                memory.remember(name, found.as_ref());
                found
            }
            Err(e) => {
                tracing::error!("{e}");
                memory.silent_since = Some(Instant::now());
                memory.answers.get(name).map(|(_, known)| known.clone())
            }
        }
    }
}

impl KnownRepository {
    /// Returns `repository`, which `exposure` says who may read.
    pub fn new(repository: Repository, exposure: Exposure) -> KnownRepository {
        KnownRepository { repository, exposure }
    }
}

/// Returns what access rules need to know about a repository.
pub fn asked<'a>(repository: &'a Repository, exposure: &'a Exposure) -> AccessedName<'a> {
    AccessedName {
        name: &repository.name,
        former_names: &exposure.former_names,
        is_private: exposure.is_private,
    }
}

/// Finds repositories by their name in the catalog, within mapping and access rules.
pub struct CatalogLocator {
    lookups: NameLookups,
    store: PathBuf,
    rules: Vec<MapRule>,
    access: Access,
    hook: Option<Hook>,
    /// Whether clients that push are told where to push instead.
    push_hint: bool,
    /// Whether any client may read older states.
    older_states: bool,
    on_demand: Option<OnDemand>,
    arrivals: Arrivals,
}

/// A name whose repository is fetched on demand.
struct OnDemandName<'a> {
    on_demand: &'a OnDemand,
    name: String,
    rule: &'a OnDemandConfig,
    /// The URL of the upstream.
    url: String,
}

/// The refusal of an older state.
const OLDER_STATES_OFF: &str = "older states are not served here; serve.older_states in weir.toml allows it";

impl CatalogLocator {
    /// Returns a locator as the pool's configuration says.
    ///
    /// # Errors
    /// If a rule is wrong, or the catalog cannot be opened again.
    pub fn new(pool: &Pool) -> Result<CatalogLocator> {
        let (serve, access) = (&pool.config.serve, &pool.config.access);
        let wrong =
            |why: weir_settings::SettingError| Error::Settings(weir_settings::Error::Wrong(why.to_string()));
        Ok(CatalogLocator {
            lookups: NameLookups::new(pool)?,
            store: pool.store.path.clone(),
            rules: serve.map.iter().map(|m| m.rule().map_err(wrong)).collect::<Result<_>>()?,
            access: access.rules().map_err(wrong)?,
            hook: access.hook.clone().map(|program| Hook { program, timeout: access.hook_timeout.0 }),
            push_hint: serve.push_hint,
            older_states: serve.older_states,
            on_demand: None,
            arrivals: pool.arrivals.clone(),
        })
    }

    /// Returns the locator, which has repositories fetched when clients ask for them.
    #[must_use]
    pub fn fetching(self, on_demand: Option<OnDemand>) -> CatalogLocator {
        if on_demand.is_some() {
            self.arrivals.watch();
        }
        CatalogLocator { on_demand, ..self }
    }

    /// Returns the name that a URL means, with or without `.git` at its end.
    ///
    /// # Errors
    /// If no rule matches, or the result is not a name. The error says why.
    pub fn name_of(&self, host: Option<&str>, path: &str) -> std::result::Result<String, MapError> {
        if self.rules.is_empty() {
            return Ok(path.trim_matches('/').to_owned());
        }
        map(&self.rules, host, path)
            .unwrap_or(Err(MapError::NoRule))
            .map(|name| name.trim_matches('/').to_owned())
    }

    /// Returns the repository called `name`, or else `name` without `.git`, with the name that access rules
    /// apply to.
    pub fn look_up(&self, name: &str) -> (String, Option<KnownRepository>) {
        let bare = name.strip_suffix(".git").unwrap_or(name);
        match self.lookups.get(name) {
            Some(found) => (name.to_owned(), Some(found)),
            None => (bare.to_owned(), if bare == name { None } else { self.lookups.get(bare) }),
        }
    }

    /// Checks that `client` may read older states of the repositories that it may read.
    ///
    /// # Errors
    /// If it may not.
    pub fn check_older_states(&self, client: &Client) -> std::result::Result<(), Refusal> {
        if self.older_states || self.may_manage(client) {
            return Ok(());
        }
        let words = format!("weir: {OLDER_STATES_OFF}");
        Err(if self.access.could_manage(client) { Refusal::Unauthorized(words) } else { Refusal::Off(words) })
    }

    /// Returns the repository called `name`, with or without `.git`, for a client that names the host
    /// `host`. It asks the access hook, too.
    ///
    /// # Errors
    /// If the client may not read it. A hidden repository is refused as if it did not exist.
    pub fn readable(
        &self,
        name: &str,
        host: Option<&str>,
        client: &Client,
    ) -> std::result::Result<KnownRepository, Refusal> {
        let asked = DaemonRequest {
            service: Service::UploadPack,
            path: name.to_owned(),
            host: host.map(str::to_owned),
            version: 0,
            protocol: String::new(),
        };
        self.admit(name, &asked, client)
    }

    /// Returns whether a client that names the host `host` may read `known`.
    pub fn may_read(&self, known: &KnownRepository, host: Option<&str>, client: &Client) -> bool {
        let name = &known.repository.name;
        self.check(name, Some(known), client).is_ok()
            && (self.hook.is_none() || self.readable(name, host, client).is_ok())
    }

    /// Returns whether `client` may manage the pool.
    pub fn may_manage(&self, client: &Client) -> bool {
        self.access.may_manage(client)
    }

    /// Returns whether `client` presents a token that nobody has.
    pub fn is_mistaken(&self, client: &Client) -> bool {
        self.access.is_mistaken(client)
    }

    /// Returns whether any client may manage the pool.
    pub fn has_managers(&self) -> bool {
        self.access.has_managers()
    }

    /// Returns the name that `request` asks for, if a rule has repositories of such names fetched on demand.
    fn on_demand_name(&self, request: &DaemonRequest) -> Option<OnDemandName<'_>> {
        let on_demand = self.on_demand.as_ref().filter(|_| request.service != Service::ReceivePack)?;
        let name = self.name_of(request.host.as_deref(), &request.path).ok()?;
        let name = name.strip_suffix(".git").unwrap_or(&name).to_owned();
        check_name(&name).ok()?;
        let (rule, url) = on_demand.rule(&name)?;
        Some(OnDemandName { on_demand, name, rule, url })
    }

    /// Returns whether `client` may have fetched what `rule` is about.
    fn may_have_fetched(&self, rule: &OnDemandConfig, client: &Client) -> bool {
        let is_named = |token: &str| rule.tokens.iter().any(|name| name == token);
        rule.tokens.is_empty()
            || self.access.token_of(client).is_some_and(is_named)
            || self.may_manage(client)
    }

    /// Returns the repository called `name` for the `request` of a client.
    fn admit(
        &self,
        name: &str,
        request: &DaemonRequest,
        client: &Client,
    ) -> std::result::Result<KnownRepository, Refusal> {
        let (_, known) = self.admit_name(name, request, client)?;
        known.ok_or_else(|| self.access.not_there(&request.path, client))
    }

    /// Returns the name that `name` leads to, and the repository of that name, if there is one, for the
    /// `request` of a client.
    fn admit_name(
        &self,
        name: &str,
        request: &DaemonRequest,
        client: &Client,
    ) -> std::result::Result<(String, Option<KnownRepository>), Refusal> {
        let not_there = || self.access.not_there(&request.path, client);
        let (name, known) = self.look_up(name);
        // A hidden repository is refused as if it did not exist, with the path that was requested.
        self.check(&name, known.as_ref(), client).map_err(|refusal| match refusal {
            Refusal::NotFound(_) => not_there(),
            refusal => refusal,
        })?;
        if let Some(hook) = &self.hook {
            hook.ask(request, &name, client).map_err(|denial| match denial.said.as_str() {
                "" => not_there(),
                _ => Refusal::NotFound(denial.said),
            })?;
        }
        Ok((name, known))
    }

    /// Checks whether `client` may have the repository `name`. `known` is what the catalog knows about it.
    ///
    /// # Errors
    /// If it may not.
    pub fn check(
        &self,
        name: &str,
        known: Option<&KnownRepository>,
        client: &Client,
    ) -> std::result::Result<(), Refusal> {
        let asked = known.map_or(AccessedName { name, ..AccessedName::default() }, |known| {
            asked(&known.repository, &known.exposure)
        });
        self.access.check(&asked, client)
    }
}

impl Locator for CatalogLocator {
    fn find(&self, request: &DaemonRequest, client: &Client) -> std::result::Result<Found, Refusal> {
        let not_there = || self.access.not_there(&request.path, client);
        let name = self.name_of(request.host.as_deref(), &request.path).map_err(|_| not_there())?;
        let (name, state) = NamedState::split(&name)
            .map_or((name.as_str(), None), |(repository, state)| (repository, Some(state)));
        let repository = self.admit(name, request, client)?.repository;
        if request.service != Service::ReceivePack {
            let path = self.store.join(repository.path);
            if !path.exists() {
                return Err(not_there());
            }
            let Some(state) = state else { return Ok(Found::Archive(path)) };
            return self.check_older_states(client).map(|()| Found::OlderState(path, state));
        }
        let words = "weir: this is a read-only mirror";
        // A local path of this machine means nothing to a client, and must not be disclosed.
        let url =
            Url::parse(&repository.url).ok().filter(|url| self.push_hint && url.scheme != Scheme::Local);
        Err(Refusal::Off(
            url.map_or_else(|| words.to_owned(), |url| format!("{words}; push to {url} instead")),
        ))
    }

    fn awaited(
        &self,
        request: &DaemonRequest,
        client: &Client,
        why: AwaitedFor,
    ) -> std::result::Result<Option<AwaitedVisit>, Refusal> {
        let Some(OnDemandName { on_demand, name, rule, url }) = self.on_demand_name(request) else {
            return Ok(None);
        };
        let (_, known) = self.admit_name(&name, request, client)?;
        let is_here = known.as_ref().is_some_and(|known| known.repository.seq.is_some());
        if !self.may_have_fetched(rule, client) {
            // git sends a token only if it is asked for one.
            let may_help = !is_here && self.access.token_of(client).is_none();
            return if may_help { Err(Access::needs_token()) } else { Ok(None) };
        }
        let last_visit = known.and_then(|known| known.repository.last_success);
        let age = last_visit.map(|at| now().since(at));
        let max_age = match why {
            AwaitedFor::Begin | AwaitedFor::Arriving => rule.max_age.map(|max| max.0),
            AwaitedFor::First => None,
            AwaitedFor::Missing => Some(MISSING_AGE_MIN),
        };
        let is_old = max_age.is_some_and(|max| age.is_none_or(|age| age >= max));
        if is_here && !is_old {
            return Ok(None);
        }
        let takes_arriving = why == AwaitedFor::Arriving;
        let (answered, timeout) = (on_demand.ask(&name, url, takes_arriving), rule.timeout.0);
        Ok(Some(Box::pin(async move {
            match tokio::time::timeout(timeout, answered).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Refusal::Failed("weir: the catalog cannot be read now".to_owned())),
                Err(_) if is_here => Ok(Some("it takes longer than clients wait".to_owned())),
                Err(_) => Err(Refusal::Busy(STILL_COMING.to_owned())),
            }
        })))
    }

    fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    fn arriving(
        &self,
        request: &DaemonRequest,
        client: &Client,
    ) -> std::result::Result<Option<Arc<Repo>>, Refusal> {
        // Whoever gets what is arriving may have to wait for all of it.
        let asked = self.on_demand_name(request).filter(|asked| self.may_have_fetched(asked.rule, client));
        let Some(OnDemandName { name, .. }) = asked else { return Ok(None) };
        let (_, Some(known)) = self.look_up(&name) else { return Ok(None) };
        let Some(repo) = self.arrivals.get(&self.store.join(known.repository.path)) else { return Ok(None) };
        self.admit_name(&name, request, client).map(|_| Some(repo))
    }

    fn user(&self, client: &Client) -> Option<String> {
        self.access.token_of(client).map(str::to_owned)
    }

    fn may_block(&self) -> bool {
        self.hook.is_some() || self.lookups.is_remote
    }

    fn is_open(&self) -> bool {
        self.hook.is_none() && self.access.public && self.access.rules.is_empty()
    }
}
