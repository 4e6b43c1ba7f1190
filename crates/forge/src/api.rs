//! Requests to a forge's API, with several tokens, rate limits, and retries after temporary errors.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use ureq::config::ConfigBuilder;
use ureq::http::header::{ACCEPT, AUTHORIZATION, IF_NONE_MATCH};
use ureq::http::{HeaderMap, Response, StatusCode};
use ureq::typestate::AgentScope;
use ureq::{Agent, Body};
use weir_ground::{Timestamp, hex};

use crate::api_answer::{
    ApiAnswer, LIMIT, REMAINING, RESOURCE, Unanswered, is_json, is_same_origin, judge, now, number, parse,
    redirected, reset_time,
};
use crate::app::GitHubApp;
use crate::{Error, RequestBudget, Result};

/// Bytes of one answer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
const UNRUNNABLE: &[u8] = b")]}'\n";
/// If a limit is reset later than that, a clock is wrong.
const LIMIT_WAIT_MAX: Duration = Duration::from_secs(2 * 3600);
/// Seconds for which a token of an App's installation is valid, and how long before their end it is renewed.
pub(crate) const INSTALLATION_TOKEN_S: u64 = 3600;
pub(crate) const RENEWED_BEFORE_S: u64 = 120;
/// Redirects of one request.
const REDIRECTS_MAX: usize = 5;
/// Limits that are kept of a credential, and bytes of the name of one.
const SAID_MAX: usize = 8;
const RESOURCE_BYTES_MAX: usize = 40;
/// Pages of a list of installations.
const INSTALLATION_PAGES_MAX: u64 = 100;

/// Makes an HTTP client from its configuration.
pub type Connect = Box<dyn Fn(ConfigBuilder<AgentScope>) -> Agent + Send>;

/// How to send requests to a forge.
pub struct ApiOptions {
    /// Tokens; when the limit of one is used up, the next one is used. Empty for none.
    pub tokens: Vec<String>,
    /// A GitHub App whose tokens are used, too, and the URL of its API.
    pub app: Option<(GitHubApp, String)>,
    /// The word before a token in `Authorization`: `Bearer`, `token`.
    pub scheme: &'static str,
    /// Our name in `User-Agent`.
    pub agent: String,
    /// Tries of one request, for temporary errors.
    pub tries: u32,
    /// Time before the second try; it doubles.
    pub retry: Duration,
    /// Time for one answer.
    pub timeout: Duration,
    /// Makes the HTTP client: through which proxies it connects, and which certificates it trusts.
    pub connect: Connect,
    /// Waits for the given time, and returns whether to go on.
    pub wait: Box<dyn FnMut(Duration) -> bool + Send>,
}

impl Default for ApiOptions {
    fn default() -> Self {
        ApiOptions {
            tokens: Vec::new(),
            app: None,
            scheme: "Bearer",
            agent: "weir".to_owned(),
            tries: 4,
            retry: Duration::from_secs(2),
            timeout: Duration::from_secs(60),
            connect: Box::new(|config| config.build().new_agent()),
            wait: Box::new(|time| {
                std::thread::sleep(time);
                true
            }),
        }
    }
}

/// The cost of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests, including repeated ones.
    pub requests: u64,
    /// How often a rate limit was waited for.
    pub waits: u64,
    /// Seconds spent waiting for limits.
    pub waited_s: u64,
}

/// A token, or none, and what is left of its limit.
struct Credential {
    authorization: Option<String>,
    /// Seconds since 1970 until which its limit is used up.
    spent_until: u64,
    /// Set when the forge has rejected it.
    is_refused: bool,
    /// The installation of the App that it belongs to, if it belongs to an App. `Some(None)` stands for all
    /// installations until they are listed.
    installation: Option<Option<u64>>,
    /// Seconds since 1970 until which it is valid, if it belongs to an App.
    holds_until: u64,
    /// The name under which its budget is recorded.
    name: String,
    /// The rate limits as the forge last reported them, by the kind of request that they limit: empty for
    /// most requests, or `graphql`.
    said: BTreeMap<String, SaidLimit>,
    /// The kind of request that the limit which the forge reported last is for.
    resource: String,
}

/// A rate limit as a forge reports it.
#[derive(Clone, Copy, Default)]
struct SaidLimit {
    /// The requests in all.
    limit: Option<u64>,
    /// The remaining requests.
    left: u64,
    /// The time of reset, in seconds since 1970.
    reset: u64,
}

impl Credential {
    fn new(authorization: Option<String>, installation: Option<Option<u64>>) -> Credential {
        let name = match (&authorization, installation) {
            (_, Some(id)) => format!("installation {}", id.unwrap_or(0)),
            (None, None) => "none".to_owned(),
            // Neither the token itself, nor anything from which it could be guessed.
            (Some(text), None) => hex(&Sha256::digest(text)[..4]),
        };
        Credential {
            authorization,
            spent_until: 0,
            is_refused: false,
            installation,
            holds_until: 0,
            name,
            said: BTreeMap::new(),
            resource: String::new(),
        }
    }
}

/// A forge's API.
pub struct Api {
    agent: Agent,
    credentials: Vec<Credential>,
    current: usize,
    options: ApiOptions,
    usage: Usage,
    /// The ETag that is sent with the next request.
    if_none_match: Option<String>,
    /// Whether what is asked for was seen by everybody.
    is_public: bool,
}

impl Api {
    /// Returns an API that is used as `options` say.
    pub fn new(options: ApiOptions) -> Api {
        let config = Agent::config_builder()
            .user_agent(options.agent.as_str())
            .http_status_as_error(false)
            .timeout_global(Some(options.timeout))
            // ureq would send a token to another port, or without TLS.
            .max_redirects(0)
            .max_redirects_will_error(false);
        let authorization = |token: &String| Some(format!("{} {token}", options.scheme));
        let mut credentials: Vec<Credential> =
            options.tokens.iter().map(|token| Credential::new(authorization(token), None)).collect();
        if let Some((app, _)) = &options.app {
            let all = app.installations.is_empty().then_some(None);
            credentials.extend(
                app.installations
                    .iter()
                    .map(|id| Some(*id))
                    .chain(all)
                    .map(|id| Credential::new(None, Some(id))),
            );
        }
        if credentials.is_empty() {
            credentials.push(Credential::new(None, None));
        }
        Api {
            agent: (options.connect)(config),
            credentials,
            current: 0,
            options,
            usage: Usage::default(),
            if_none_match: None,
            is_public: false,
        }
    }

    /// Returns whether there is a token.
    pub(crate) fn is_known(&self) -> bool {
        let first = &self.credentials[0];
        first.authorization.is_some() || first.installation.is_some()
    }

    /// Returns what is left of limits, by credential.
    pub(crate) fn budgets(&self) -> Vec<RequestBudget> {
        let integer = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let budget = |name: &str, resource: &str, said: &SaidLimit| RequestBudget {
            credential: format!("{name} {resource}").trim_end().to_owned(),
            limit: said.limit.map(integer),
            remaining: integer(said.left),
            reset_at: Timestamp(integer(said.reset)),
        };
        let of =
            |c: &Credential| c.said.iter().map(|(of, said)| budget(&c.name, of, said)).collect::<Vec<_>>();
        self.credentials.iter().flat_map(of).collect()
    }

    /// Restores what was left of limits before: a credential whose limit is used up is not tried.
    pub(crate) fn remember(&mut self, budgets: &[RequestBudget]) {
        let latest = now().saturating_add(LIMIT_WAIT_MAX.as_secs());
        for credential in &mut self.credentials {
            let is_its = |b: &RequestBudget| {
                b.credential
                    .strip_prefix(&credential.name)
                    .is_some_and(|of| of.is_empty() || of.starts_with(' '))
            };
            if let Some(spent) = budgets.iter().find(|b| is_its(b) && b.remaining == 0) {
                credential.spent_until = spent.reset_at.as_u64().min(latest);
            }
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the JSON at `url`.
    pub(crate) fn get(&mut self, url: &str) -> Result<ApiAnswer> {
        self.ask(url, None).and_then(|(headers, body)| parse(url, &headers, &body))
    }

    /// Returns the JSON at `url`; `None` if it is unchanged since it had the ETag `etag`, which does not
    /// count against a limit.
    pub(crate) fn get_unless(&mut self, url: &str, etag: Option<&str>) -> Result<Option<ApiAnswer>> {
        self.if_none_match = etag.map(str::to_owned);
        let answer = self.ask(url, None);
        self.if_none_match = None;
        let (headers, body) = answer?;
        if etag.is_some() && body.is_empty() { Ok(None) } else { parse(url, &headers, &body).map(Some) }
    }

    /// Returns what `read` makes of the JSON at `url`; `None` if no credential finds anything there. If
    /// `read` returns `None`, the answer is an error.
    pub(crate) fn one<T>(&mut self, url: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>> {
        match self.by_any(url, Api::get) {
            Ok(answer) => match read(&answer.value) {
                None => Err(Error::Unexpected {
                    url: url.to_owned(),
                    detail: "not what a repository looks like".to_owned(),
                }),
                found => Ok(found),
            },
            Err(Error::NotFound(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sets whether what is asked for next was public: then one credential sees as much as another.
    pub(crate) fn expect_public(&mut self, is_public: bool) {
        self.is_public = is_public;
    }

    /// Asks with one credential after the other until one finds something: one may see what another must not.
    /// Waits for none whose limit is used up.
    pub(crate) fn by_any<T>(
        &mut self,
        url: &str,
        mut ask: impl FnMut(&mut Api, &str) -> Result<T>,
    ) -> Result<T> {
        let mut asked: Vec<String> = Vec::new();
        loop {
            match ask(self, url) {
                Err(Error::NotFound(_)) if !self.is_public => {
                    asked.push(self.credentials[self.current].name.clone());
                }
                answer => return answer,
            }
            let others = self
                .credentials
                .iter()
                .enumerate()
                .filter(|(_, c)| !c.is_refused && !asked.contains(&c.name));
            let Some((other, spent_until)) =
                others.map(|(n, c)| (n, c.spent_until)).min_by_key(|(_, until)| *until)
            else {
                return Err(Error::NotFound(url.to_owned()));
            };
            if spent_until > now() {
                let detail = "a token whose limit is used up may see it".to_owned();
                return Err(Error::Unexpected { url: url.to_owned(), detail });
            }
            self.current = other;
        }
    }

    /// Returns the answer to the JSON `question`.
    pub(crate) fn post(&mut self, url: &str, question: &Value) -> Result<ApiAnswer> {
        self.ask(url, Some(question)).and_then(|(headers, body)| parse(url, &headers, &body))
    }

    /// Returns the bytes at `url`.
    pub(crate) fn bytes(&mut self, url: &str) -> Result<Vec<u8>> {
        self.ask(url, None).map(|(_, body)| body)
    }

    /// Sends a request until there is a final answer. Waits for limits, whatever the request.
    fn ask(&mut self, url: &str, question: Option<&Value>) -> Result<(HeaderMap, Vec<u8>)> {
        let mut pause = self.options.retry;
        let (mut tries, mut limits, mut refused) = (0, 0, None);
        loop {
            if !(self.options.wait)(Duration::ZERO) {
                return Err(Error::Stopped);
            }
            self.choose_credential(url)?;
            self.usage.requests += 1;
            match self.ask_once(url, question) {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::Never(e)) => return Err(e),
                Err(Unanswered::Limited(until)) => {
                    // Clocks differ, and some forges say 0: each refusal in a row waits longer, and none
                    // forever.
                    limits = (limits * 2).clamp(1, LIMIT_WAIT_MAX.as_secs());
                    let now = now();
                    let until =
                        until.clamp(now.saturating_add(limits), now.saturating_add(LIMIT_WAIT_MAX.as_secs()));
                    let credential = &mut self.credentials[self.current];
                    credential.spent_until = until;
                    let said = credential.said.entry(credential.resource.clone()).or_default();
                    (said.left, said.reset) = (0, until);
                }
                // Forges refuse good tokens for a moment: a token is tried once more.
                Err(Unanswered::Refused(e)) if refused != Some(self.current) => {
                    tracing::debug!(url, "{e}");
                    refused = Some(self.current);
                    if !(self.options.wait)(pause) {
                        return Err(Error::Stopped);
                    }
                }
                Err(Unanswered::Refused(e)) => self.refuse_credential(e)?,
                Err(Unanswered::Again(detail)) => {
                    tries += 1;
                    tracing::debug!(url, tries, "{detail}");
                    if tries >= self.options.tries {
                        return Err(Error::Unavailable { url: url.to_owned(), detail });
                    }
                    if !(self.options.wait)(pause) {
                        return Err(Error::Stopped);
                    }
                    pause *= 2;
                }
            }
        }
    }

    /// Sends a request once; returns the answer, or why there is none.
    fn ask_once(
        &mut self,
        url: &str,
        question: Option<&Value>,
    ) -> std::result::Result<(HeaderMap, Vec<u8>), Unanswered> {
        let mut response = self.send(url, question).map_err(|e| Unanswered::Again(e.to_string()))?;
        if response.status() == StatusCode::NOT_MODIFIED && self.if_none_match.is_some() {
            self.note_limit(response.headers());
            return Ok((response.headers().clone(), Vec::new()));
        }
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let (parts, _) = response.into_parts();
        let mut body = body.map_err(|e| Unanswered::Again(format!("the answer broke off: {e}")))?;
        judge(url, parts.status, &parts.headers, &body)?;
        self.note_limit(&parts.headers);
        // Gerrit's prefix of JSON, which keeps browsers from running it.
        if body.starts_with(UNRUNNABLE) {
            body.drain(..UNRUNNABLE.len());
        }
        // An answer that is not the JSON it should be was cut off on the way, or is an error page.
        if (question.is_some() || is_json(&parts.headers))
            && serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_err()
        {
            return Err(Unanswered::Again("the answer is no whole JSON".to_owned()));
        }
        Ok((parts.headers, body))
    }

    /// Stops using the token that was sent and refused with `e`. Returns `e` if no token was sent, or if no
    /// other one is left.
    fn refuse_credential(&mut self, e: Error) -> Result<()> {
        let (number, count) = (self.current + 1, self.credentials.len());
        let credential = &mut self.credentials[self.current];
        if credential.authorization.is_none() {
            return Err(e);
        }
        credential.is_refused = true;
        tracing::warn!("token {number} of {count} was rejected: {e}");
        if self.credentials.iter().all(|c| c.is_refused) { Err(e) } else { Ok(()) }
    }

    /// Sends a request. A question without a body follows redirects, and tells its token to no other origin.
    fn send(&self, url: &str, question: Option<&Value>) -> std::result::Result<Response<Body>, ureq::Error> {
        let mut at = url.to_owned();
        for _ in 0..REDIRECTS_MAX {
            let response = self.send_to(&at, question, is_same_origin(url, &at))?;
            match redirected(&at, &response).filter(|_| question.is_none()) {
                Some(next) => at = next,
                None => return Ok(response),
            }
        }
        Err(ureq::Error::TooManyRedirects)
    }

    fn send_to(
        &self,
        url: &str,
        question: Option<&Value>,
        is_own: bool,
    ) -> std::result::Result<Response<Body>, ureq::Error> {
        let authorization = self.credentials[self.current].authorization.as_ref().filter(|_| is_own);
        match question {
            None => {
                let request = self.agent.get(url).header(ACCEPT, "application/json");
                let request =
                    self.if_none_match.iter().fold(request, |r, etag| r.header(IF_NONE_MATCH, etag));
                authorization.into_iter().fold(request, |r, a| r.header(AUTHORIZATION, a)).call()
            }
            Some(question) => {
                let request =
                    self.agent.post(url).header(ACCEPT, "application/json").content_type("application/json");
                authorization
                    .into_iter()
                    .fold(request, |r, a| r.header(AUTHORIZATION, a))
                    .send(question.to_string())
            }
        }
    }

    /// Chooses a credential whose limit is not used up; waits if there is none.
    fn choose_credential(&mut self, url: &str) -> Result<()> {
        loop {
            let n = self.credentials.len();
            if self.credentials.iter().all(|c| c.is_refused) {
                let detail = "it rejects all tokens".to_owned();
                return Err(Error::Forbidden { url: url.to_owned(), status: 401, detail });
            }
            let turn = (0..n).map(|i| (self.current + i) % n).filter(|&i| !self.credentials[i].is_refused);
            let now = now();
            if let Some(free) = turn.clone().find(|&i| self.credentials[i].spent_until <= now) {
                self.current = free;
                let chosen = &self.credentials[free];
                if chosen.installation.is_some() && chosen.holds_until <= now + RENEWED_BEFORE_S {
                    match self.renew(free) {
                        Ok(()) => {}
                        Err(e @ (Error::Stopped | Error::Unavailable { .. })) => return Err(e),
                        // The error says nothing about what was asked for.
                        Err(e) => {
                            self.credentials[free].is_refused = true;
                            tracing::warn!("no token of {}: {e}", self.credentials[free].name);
                        }
                    }
                    continue;
                }
                return Ok(());
            }
            let until = turn.map(|i| self.credentials[i].spent_until).min().unwrap_or(now);
            self.wait_for_limit(until.saturating_sub(now))?;
        }
    }

    fn wait_for_limit(&mut self, seconds: u64) -> Result<()> {
        let time = Duration::from_secs(seconds).min(LIMIT_WAIT_MAX);
        tracing::info!("the rate limit is used up: waiting {} s", time.as_secs());
        self.usage.waits += 1;
        self.usage.waited_s += time.as_secs();
        if (self.options.wait)(time) { Ok(()) } else { Err(Error::Stopped) }
    }

    /// Requests a new token of an installation of the App; or the list of installations, if it is not known
    /// yet.
    fn renew(&mut self, number: usize) -> Result<()> {
        let Some(Some(installation)) = self.credentials[number].installation else {
            let found = self.installations()?;
            if found.is_empty() {
                let detail = "the GitHub App has no installations".to_owned();
                return Err(Error::Forbidden { url: self.options.agent.clone(), status: 404, detail });
            }
            self.credentials.splice(
                number..=number,
                found.into_iter().map(|(id, _)| Credential::new(None, Some(Some(id)))),
            );
            return Ok(());
        };
        let token = self.installation_token(installation)?;
        let credential = &mut self.credentials[number];
        credential.authorization = Some(format!("{} {token}", self.options.scheme));
        // The answer says until when, an hour from now; a wrong clock matters less this way.
        credential.holds_until = now() + INSTALLATION_TOKEN_S;
        Ok(())
    }

    /// Returns the App, a JWT for now, and the URL of its API.
    fn app(&self) -> Result<(&GitHubApp, String, &str)> {
        let Some((app, url)) = &self.options.app else {
            return Err(Error::Unexpected {
                url: self.options.agent.clone(),
                detail: "there is no App".to_owned(),
            });
        };
        let word =
            app.word(now()).map_err(|e| Error::Unexpected { url: url.clone(), detail: e.to_string() })?;
        Ok((app, word, url))
    }

    /// Returns the installations of the App that are used, with their accounts.
    pub(crate) fn installations(&mut self) -> Result<Vec<(u64, String)>> {
        let mut found = Vec::new();
        for page in 1..=INSTALLATION_PAGES_MAX {
            let (_, word, url) = self.app()?;
            let list =
                self.ask_as_app(&format!("{url}/app/installations?per_page=100&page={page}"), &word, false)?;
            let all = list.value.as_array().map_or(&[][..], Vec::as_slice);
            let login = |one: &Value| one["account"]["login"].as_str().unwrap_or_default().to_owned();
            found.extend(all.iter().filter_map(|one| Some((one["id"].as_u64()?, login(one)))));
            if all.len() < 100 {
                break;
            }
        }
        let (app, ..) = self.app()?;
        found.retain(|(id, _)| app.installations.is_empty() || app.installations.contains(id));
        Ok(found)
    }

    /// Requests a token of an installation of the App. It is valid for [`INSTALLATION_TOKEN_S`].
    pub(crate) fn installation_token(&mut self, installation: u64) -> Result<String> {
        let (_, word, url) = self.app()?;
        let url = format!("{url}/app/installations/{installation}/access_tokens");
        let answer = self.ask_as_app(&url, &word, true)?;
        let token = answer.value["token"].as_str().map(str::to_owned);
        token.ok_or_else(|| Error::Unexpected { url, detail: "no token".to_owned() })
    }

    /// Returns the JSON at `url` as the App itself sees it.
    pub(crate) fn get_as_app(&mut self, url: &str) -> Result<ApiAnswer> {
        let (_, word, _) = self.app()?;
        self.ask_as_app(url, &word, false)
    }

    /// Sends a request as the App itself, and repeats it after temporary errors.
    fn ask_as_app(&mut self, url: &str, word: &str, is_post: bool) -> Result<ApiAnswer> {
        let mut pause = self.options.retry;
        for tries in 1.. {
            self.usage.requests += 1;
            let authorization = format!("Bearer {word}");
            let sent = match is_post {
                true => self
                    .agent
                    .post(url)
                    .header(ACCEPT, "application/json")
                    .header(AUTHORIZATION, authorization)
                    .send_empty(),
                false => self
                    .agent
                    .get(url)
                    .header(ACCEPT, "application/json")
                    .header(AUTHORIZATION, authorization)
                    .call(),
            };
            let detail = match sent {
                Err(e) => e.to_string(),
                Ok(mut response) => {
                    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
                    let (parts, _) = response.into_parts();
                    match body {
                        Err(e) => format!("the answer broke off: {e}"),
                        Ok(body) => match judge(url, parts.status, &parts.headers, &body) {
                            Ok(()) => return parse(url, &parts.headers, &body),
                            Err(Unanswered::Never(e) | Unanswered::Refused(e)) => return Err(e),
                            Err(Unanswered::Again(detail)) => detail,
                            Err(Unanswered::Limited(_)) => {
                                "the rate limit of the App itself is used up".to_owned()
                            }
                        },
                    }
                }
            };
            if tries >= self.options.tries {
                return Err(Error::Unavailable { url: url.to_owned(), detail });
            }
            if !(self.options.wait)(pause) {
                break;
            }
            pause *= 2;
        }
        Err(Error::Stopped)
    }

    /// Notes what an answer says of the limit; the request may have been the last one.
    fn note_limit(&mut self, headers: &HeaderMap) {
        let remaining = number(headers, &REMAINING);
        let resource = headers.get(RESOURCE).and_then(|name| name.to_str().ok()).unwrap_or_default();
        let resource = if resource == "core" { "" } else { resource };
        // Searches have a limit of their own, per minute: it says nothing of the others.
        if let (Some(left), Some(reset), true) = (remaining, reset_time(headers), resource != "search")
            && let credential = &mut self.credentials[self.current]
            && let is_known = credential.said.contains_key(resource)
            && (is_known || credential.said.len() < SAID_MAX && resource.len() <= RESOURCE_BYTES_MAX)
        {
            let limit = number(headers, &LIMIT);
            credential.said.insert(resource.to_owned(), SaidLimit { limit, left, reset });
            resource.clone_into(&mut credential.resource);
        }
        if remaining == Some(0) {
            let latest = now().saturating_add(LIMIT_WAIT_MAX.as_secs());
            self.credentials[self.current].spent_until = reset_time(headers).unwrap_or(0).min(latest);
        }
    }
}
