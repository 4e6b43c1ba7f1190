//! Requests to a forge's API, with several tokens, rate limits, and retries after temporary errors.

use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use ureq::config::{ConfigBuilder, RedirectAuthHeaders};
use ureq::http::header::{ACCEPT, AUTHORIZATION, ETAG, HeaderName, IF_NONE_MATCH, LINK, RETRY_AFTER};
use ureq::http::{HeaderMap, Response, StatusCode};
use ureq::typestate::AgentScope;
use ureq::{Agent, Body};
use weir_ground::{Clock, Timestamp, hex, printable_or};

use crate::app::GitHubApp;
use crate::{Error, RequestBudget, Result};

/// Bytes of one answer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// The headers in which forges send what is left of a limit, and when the limit is reset.
const REMAINING: [HeaderName; 2] =
    [HeaderName::from_static("x-ratelimit-remaining"), HeaderName::from_static("ratelimit-remaining")];
const RESET: [HeaderName; 2] =
    [HeaderName::from_static("x-ratelimit-reset"), HeaderName::from_static("ratelimit-reset")];
const LIMIT: [HeaderName; 2] =
    [HeaderName::from_static("x-ratelimit-limit"), HeaderName::from_static("ratelimit-limit")];
const RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");
const UNRUNNABLE: &[u8] = b")]}'\n";
/// The wait that GitHub asks for if a limit comes without a time.
const LIMIT_WAIT_MIN: Duration = Duration::from_secs(60);
/// If a limit is reset later than that, a clock is wrong.
const LIMIT_WAIT_MAX: Duration = Duration::from_secs(2 * 3600);
/// Seconds for which a token of an App's installation is valid, and how long before their end it is renewed.
pub(crate) const INSTALLATION_TOKEN_S: u64 = 3600;
pub(crate) const RENEWED_BEFORE_S: u64 = 120;
/// Pages of a list of installations.
const INSTALLATION_PAGES_MAX: u64 = 100;
/// ETags longer than this are not kept.
const ETAG_BYTES_MAX: usize = 200;
/// Characters of an error's body that are shown.
const DETAIL_CHARS_MAX: usize = 200;

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
    /// What the forge last said of its limit: the limit, what is left, and when it is reset.
    said: Option<(Option<u64>, u64, u64)>,
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
            said: None,
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
}

/// An answer of the API.
pub(crate) struct ApiAnswer {
    pub(crate) value: Value,
    /// The target of `rel="next"`.
    pub(crate) next: Option<String>,
    /// The ETag of the answer.
    pub(crate) etag: Option<String>,
}

/// Why a request has no answer, and so what to do about it.
enum Unanswered {
    /// The limit of this credential is used up until this time.
    Limited(u64),
    /// The error is temporary.
    Again(String),
    Never(Error),
    /// The forge rejects this credential.
    Refused(Error),
}

pub(crate) fn now() -> u64 {
    Clock::default().now().as_u64()
}

impl Api {
    /// Returns an API that is used as `options` say.
    pub fn new(options: ApiOptions) -> Api {
        let config = Agent::config_builder()
            .user_agent(options.agent.as_str())
            .http_status_as_error(false)
            .timeout_global(Some(options.timeout))
            .max_redirects(5)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost);
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
        let budget = |c: &Credential| {
            let (limit, left, reset) = c.said?;
            Some(RequestBudget {
                credential: c.name.clone(),
                limit: limit.map(integer),
                remaining: integer(left),
                reset_at: Timestamp(integer(reset)),
            })
        };
        self.credentials.iter().filter_map(budget).collect()
    }

    /// Restores what was left of limits before: a credential whose limit is used up is not tried.
    pub(crate) fn remember(&mut self, budgets: &[RequestBudget]) {
        let latest = now().saturating_add(LIMIT_WAIT_MAX.as_secs());
        for credential in &mut self.credentials {
            if let Some(spent) = budgets.iter().find(|b| b.credential == credential.name && b.remaining == 0)
            {
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

    /// Asks with one credential after the other until one finds something: one may see what another must not.
    pub(crate) fn by_any<T>(
        &mut self,
        url: &str,
        mut ask: impl FnMut(&mut Api, &str) -> Result<T>,
    ) -> Result<T> {
        let mut asked: Vec<String> = Vec::new();
        loop {
            match ask(self, url) {
                Err(Error::NotFound(_)) => asked.push(self.credentials[self.current].name.clone()),
                answer => return answer,
            }
            // A credential whose limit is used up might see it, too; the one whose limit is reset first comes
            // first.
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
            let now = now();
            if spent_until > now {
                self.wait_for_limit(spent_until - now)?;
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
        let (mut tries, mut limits) = (0, 0);
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
                    credential.said = Some((credential.said.and_then(|said| said.0), 0, until));
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
        // What should be JSON and is not was cut off on the way, or is an error page.
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

    fn send(&self, url: &str, question: Option<&Value>) -> std::result::Result<Response<Body>, ureq::Error> {
        let authorization = self.credentials[self.current].authorization.as_ref();
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
        let word = app.word(now()).map_err(|detail| Error::Unexpected { url: url.clone(), detail })?;
        Ok((app, word, url))
    }

    /// Returns the installations of the App that are used, with their accounts.
    pub(crate) fn installations(&mut self) -> Result<Vec<(u64, String)>> {
        let mut found = Vec::new();
        for page in 1..=INSTALLATION_PAGES_MAX {
            let (_, word, url) = self.app()?;
            let list =
                self.ask_as_app(&format!("{url}/app/installations?per_page=100&page={page}"), &word, false)?;
            let all = list.as_array().map_or(&[][..], Vec::as_slice);
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
        let token = answer["token"].as_str().map(str::to_owned);
        token.ok_or_else(|| Error::Unexpected { url, detail: "no token".to_owned() })
    }

    /// Sends a request as the App itself, and repeats it after temporary errors.
    fn ask_as_app(&mut self, url: &str, word: &str, is_post: bool) -> Result<Value> {
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
                            Ok(()) => return parse(url, &parts.headers, &body).map(|answer| answer.value),
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
        // Searches have a limit of their own, per minute: it says nothing of the others.
        let is_of_all = headers.get(RESOURCE).is_none_or(|resource| resource.as_bytes() != b"search");
        if let (Some(left), Some(reset), true) = (remaining, reset_time(headers), is_of_all) {
            self.credentials[self.current].said = Some((number(headers, &LIMIT), left, reset));
        }
        if remaining == Some(0) {
            let latest = now().saturating_add(LIMIT_WAIT_MAX.as_secs());
            self.credentials[self.current].spent_until = reset_time(headers).unwrap_or(0).min(latest);
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get("content-type").and_then(|v| v.to_str().ok()).is_some_and(|t| t.contains("json"))
}

fn number(headers: &HeaderMap, names: &[HeaderName]) -> Option<u64> {
    names.iter().find_map(|name| headers.get(name)?.to_str().ok()?.trim().parse().ok())
}

/// Returns when a limit is reset, in seconds since 1970. Forges send that time, or the seconds until then.
fn reset_time(headers: &HeaderMap) -> Option<u64> {
    let reset = number(headers, &RESET)?;
    Some(if reset < 1_000_000_000 { now().saturating_add(reset) } else { reset.saturating_add(1) })
}

/// Checks whether an answer is a success; if not, returns what to do about it.
fn judge(
    url: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> std::result::Result<(), Unanswered> {
    let detail = || {
        let text = String::from_utf8_lossy(&body[..body.len().min(4 * DETAIL_CHARS_MAX)]);
        let message = serde_json::from_slice::<Value>(body)
            .ok()
            .and_then(|v| Some(v.get("message")?.as_str()?.to_owned()));
        let text = message.unwrap_or_else(|| text.into_owned());
        printable_or(&text, ' ').chars().take(DETAIL_CHARS_MAX).collect::<String>()
    };
    Err(match status.as_u16() {
        // GraphQL reports a limit with the status of a success.
        200..=299
            if body.len() < 64 << 10
                && body.windows(14).any(|w| w == b"\"RATE_LIMITED\"")
                && number(headers, &REMAINING) == Some(0) =>
        {
            Unanswered::Limited(
                reset_time(headers).unwrap_or_else(|| now().saturating_add(LIMIT_WAIT_MIN.as_secs())),
            )
        }
        200..=299 => return Ok(()),
        403 | 429 => {
            // GitHub: "retry-after", else "x-ratelimit-reset" once nothing remains, else a minute at least.
            let after = number(headers, &[RETRY_AFTER]).map(|s| now().saturating_add(s));
            let spent = (number(headers, &REMAINING) == Some(0)).then(|| reset_time(headers)).flatten();
            let is_limit = status == StatusCode::TOO_MANY_REQUESTS
                || detail().to_ascii_lowercase().contains("rate limit");
            match after.or(spent) {
                Some(until) => Unanswered::Limited(until),
                None if is_limit => Unanswered::Limited(now().saturating_add(LIMIT_WAIT_MIN.as_secs())),
                None => Unanswered::Never(Error::Forbidden {
                    url: url.to_owned(),
                    status: status.as_u16(),
                    detail: detail(),
                }),
            }
        }
        401 | 407 => Unanswered::Refused(Error::Forbidden {
            url: url.to_owned(),
            status: status.as_u16(),
            detail: detail(),
        }),
        404 | 410 | 451 => Unanswered::Never(Error::NotFound(url.to_owned())),
        422 => Unanswered::Never(Error::Refused { url: url.to_owned(), detail: detail() }),
        408 | 500..=599 => Unanswered::Again(format!("{status}: {}", detail())),
        _ => Unanswered::Never(Error::Unexpected {
            url: url.to_owned(),
            detail: format!("{status}: {}", detail()),
        }),
    })
}

fn parse(url: &str, headers: &HeaderMap, body: &[u8]) -> Result<ApiAnswer> {
    let value = serde_json::from_slice(body)
        .map_err(|e| Error::Unexpected { url: url.to_owned(), detail: e.to_string() })?;
    let said = |name| headers.get(name).and_then(|value| value.to_str().ok());
    Ok(ApiAnswer {
        value,
        next: said(LINK).and_then(next_link),
        etag: said(ETAG).filter(|tag| tag.len() <= ETAG_BYTES_MAX).map(str::to_owned),
    })
}

/// Returns the target of `rel="next"` (RFC 8288).
fn next_link(text: &str) -> Option<String> {
    text.split(',').find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        parameters
            .split(';')
            .any(|p| matches!(p.trim(), "rel=\"next\"" | "rel=next"))
            .then(|| target.to_owned())
    })
}

/// Returns the parameter `name` of `url`.
pub(crate) fn parameter<'u>(url: &'u str, name: &str) -> Option<&'u str> {
    url.split_once('?')?.1.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='))
}

/// Escapes a word for the path of a URL.
pub(crate) fn escape(word: &str) -> String {
    word.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links() {
        let header = "<https://h/r?since=364>; rel=\"next\", <https://h/r{?since}>; rel=\"first\"";
        assert_eq!(next_link(header).as_deref(), Some("https://h/r?since=364"));
        assert_eq!(next_link("<https://h/r?page=1>; rel=\"prev\""), None);
        assert_eq!(parameter("https://h/r?a=1&since=364", "since"), Some("364"));
        assert_eq!(escape("a/b c"), "a%2Fb%20c");
    }
}
