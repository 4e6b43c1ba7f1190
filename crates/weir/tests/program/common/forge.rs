//! A fake forge on loopback. It serves the APIs of GitHub (with the paths of an Enterprise Server), GitLab,
//! Gitea, Bitbucket, Gerrit and sourcehut for one list of repositories. It can apply rate limits, fail pages
//! and cut answers off. It also runs a CGI program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

#[path = "forge_deliveries.rs"]
mod deliveries;
#[path = "forge_items.rs"]
mod items;
#[path = "forge_metadata.rs"]
mod metadata;
pub use deliveries::Deliveries;
pub use metadata::Around;

#[derive(Clone)]
pub struct Listed {
    pub id: u64,
    pub owner: &'static str,
    pub name: String,
    pub pushed_at: String,
    pub fork: bool,
}

/// The content of the forge, its behaviour, and the requests that it received.
#[derive(Default)]
pub struct State {
    pub repositories: Vec<Listed>,
    /// The start of all clone URLs, before the path.
    pub clone_base: String,
    /// The positions (ids or pages) at which a list answers with status 500.
    pub broken: Vec<u64>,
    /// The requests left until the rate limit is used up. A second later there is no limit any more.
    pub limit: Option<u64>,
    pub spent_until: u64,
    /// The number of searches, from now on, that fail.
    pub broken_searches: u32,
    /// A repository, and the only installation that may see it.
    pub seen_by: Option<(u64, u64)>,
    /// If not 0, GitHub gives up the next search with at most 1000 results.
    pub incomplete: u32,
    /// If not 0, the next answer breaks off in the middle.
    pub cut: u32,
    /// The time that each answer takes.
    pub slow: Duration,
    /// The answer to a request for /manifest.js.
    pub manifest: Option<Value>,
    /// A CGI program at /cgi, and its environment.
    pub cgi: Option<(std::path::PathBuf, Vec<(&'static str, String)>)>,
    /// The path and query of each request.
    pub log: Vec<String>,
    /// The value of `Authorization` in each API request, or an empty string.
    pub shown: Vec<String>,
    /// Whether lists of an owner's repositories have an ETag.
    pub etags: bool,
    /// Whether repositories whose id is divisible by five have wikis.
    pub wikis: bool,
    /// The ids of people; then the ids of organisations, each with the ids of its members.
    pub people: Vec<u64>,
    pub organisations: Vec<(u64, Vec<u64>)>,
    /// Owners that are organisations. Their repositories with odd ids are private.
    pub private_owners: Vec<String>,
    /// The rate limit that each answer reports: requests in all, requests left, and the time of the reset.
    /// 600 more are left for GraphQL, if any are.
    pub said: Option<(u64, u64, u64)>,
    /// The installations of an App. If there are any, the forge accepts only their tokens.
    pub installations: Vec<u64>,
    /// The metadata of the repositories.
    pub around: Around,
    /// The webhooks and their deliveries.
    pub deliveries: Deliveries,
    /// The number of requests that arrived while the limit was used up.
    pub impatient: u32,
    /// Paths with a fixed answer, which replaces the ordinary one: path, status, body.
    pub answers: Vec<(&'static str, &'static str, Value)>,
}

#[derive(Clone)]
pub struct Forge {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Forge {
    pub fn new(state: State) -> Forge {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let forge = Forge { port: listener.local_addr().unwrap().port(), state: Arc::new(Mutex::new(state)) };
        let serving = forge.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let forge = serving.clone();
                std::thread::spawn(move || forge.answer(stream));
            }
        });
        forge
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let (lines, body) = read_request(&mut BufReader::new(stream.try_clone().ok()?))?;
        let target = lines.first()?.split(' ').nth(1)?.to_owned();
        std::thread::sleep(self.state().slow);
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        if let Some(info) = path.strip_prefix("/cgi") {
            self.state().log.push(target.clone());
            return stream.write_all(&self.run_cgi(&target, info, query)?).ok();
        }
        let shown = lines
            .iter()
            .find_map(|l| l.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("authorization")));
        self.state().shown.push(shown.map_or(String::new(), |(_, value)| value.to_owned()));
        let (mut status, mut headers, mut value) = self.state().route(&target, &body);
        if self.state().etags && status == "200 OK" && path.ends_with("/repos") {
            let tag = tag_of(&value);
            headers += &format!("ETag: {tag}\r\n");
            if lines
                .iter()
                .any(|l| l.to_ascii_lowercase().starts_with("if-none-match: ") && l.ends_with(&tag))
            {
                (status, value) = ("304 Not Modified", Value::Null);
            }
        }
        if let Some((limit, left, reset)) = self.state().said {
            let is_graphql = path.ends_with("/graphql");
            let of_graphql = if left == 0 { 0 } else { left + 600 };
            let (resource, left) = if is_graphql { ("graphql", of_graphql) } else { ("core", left) };
            headers += &format!(
                "X-RateLimit-Limit: {limit}\r\nX-RateLimit-Remaining: {left}\r\nX-RateLimit-Reset: \
                {reset}\r\nX-RateLimit-Resource: {resource}\r\n"
            );
        }
        let text = if status.starts_with("304") { String::new() } else { value.to_string() };
        let sent =
            if std::mem::replace(&mut self.state().cut, 0) > 0 { &text[..text.len() / 2] } else { &text };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: \
            close\r\n{headers}Content-Length: {}\r\n\r\n",
            text.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(sent.as_bytes()).ok()
    }

    /// Returns the answer of the CGI program, after the first lines of an HTTP answer.
    fn run_cgi(&self, target: &str, info: &str, query: &str) -> Option<Vec<u8>> {
        let (program, environment) = self.state().cgi.clone()?;
        let mut cgi = weir_testing::command(program);
        cgi.env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("GATEWAY_INTERFACE", "CGI/1.1")
            .env("SERVER_PROTOCOL", "HTTP/1.1");
        cgi.env("REQUEST_METHOD", "GET")
            .env("QUERY_STRING", query)
            .env("SCRIPT_NAME", "/cgi")
            .env("PATH_INFO", info);
        cgi.env("SERVER_NAME", "localhost")
            .env("SERVER_PORT", self.port.to_string())
            .env("REQUEST_URI", target)
            .envs(environment);
        let said = cgi.output().ok()?.stdout;
        let head = said
            .windows(2)
            .position(|w| w == b"\n\n")
            .or_else(|| said.windows(4).position(|w| w == b"\r\n\r\n"))
            .unwrap_or(0);
        let status = String::from_utf8_lossy(&said[..head])
            .lines()
            .find_map(|l| l.strip_prefix("Status: ").map(str::to_owned));
        let status = status.unwrap_or_else(|| "200 OK".to_owned());
        Some([format!("HTTP/1.1 {status}\r\nConnection: close\r\n").as_bytes(), said.as_slice()].concat())
    }
}

/// Reads a request. Returns the lines of its head, and its body.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(Vec<String>, Vec<u8>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let length = lines
        .iter()
        .find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((lines, body))
}

/// Returns an ETag for `value`, which differs when `value` changes.
fn tag_of(value: &Value) -> String {
    let sum =
        value.to_string().bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("\"{sum:x}\"")
}

/// An answer: its status, additional headers, and its body.
type Reply = (&'static str, String, Value);

/// Returns an answer with `value`, or status 404 if there is none.
fn found(value: Option<Value>) -> Reply {
    match value {
        Some(value) => ("200 OK", String::new(), value),
        None => ("404 Not Found", String::new(), json!({ "message": "Not Found" })),
    }
}

/// Returns the answer of a forge that fails (status 500).
fn failed() -> Reply {
    ("500 Internal Server Error", String::new(), json!({ "message": "oops" }))
}

/// A request.
struct Asked<'a> {
    path: &'a str,
    query: &'a str,
    body: &'a [u8],
    /// The value of `Authorization`, or an empty string.
    shown: &'a str,
}

impl Asked<'_> {
    /// Returns the value of the query parameter `name`, a number.
    fn parameter(&self, name: &str) -> Option<u64> {
        self.query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    }

    /// Returns the number that follows `prefix` in the path.
    fn id(&self, prefix: &str) -> Option<u64> {
        self.path.strip_prefix(prefix)?.parse().ok()
    }

    /// Returns the requested page of `list`, with `size` items a page.
    fn page(&self, list: Vec<Value>, size: u64) -> Vec<Value> {
        let skipped = ((self.parameter("page").unwrap_or(1) - 1) * size) as usize;
        list.into_iter().skip(skipped).take(size as usize).collect()
    }
}

/// Returns a person's account, as GitHub and Gitea list it.
fn person(id: u64) -> Value {
    json!({ "id": id, "login": format!("p{id}"), "type": "User" })
}

/// Returns an organisation's account, as GitHub and Gitea list it.
fn organisation(id: u64) -> Value {
    let name = format!("o{id}");
    json!({ "id": id, "login": name, "username": name, "type": "Organization" })
}

/// Returns the number in the name of an account that starts with `first`.
fn number_in(name: &str, first: char) -> Option<u64> {
    name.strip_prefix(first)?.parse().ok()
}

/// Returns the time of creation: at most one a day below id 3000, many in one second above.
fn created_at(r: &Listed) -> String {
    match r.id {
        id @ ..3000 => format!("20{:02}-{:02}-{:02}T00:00:00Z", 10 + id / 300, 1 + id / 28 % 12, 1 + id % 28),
        id => format!("2021-06-01T12:00:{:02}Z", id / 600 % 60),
    }
}

impl State {
    fn route(&mut self, target: &str, body: &[u8]) -> Reply {
        self.log.push(target.to_owned());
        if let Some(reply) = self.over_limit() {
            return reply;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let shown = self.shown.last().cloned().unwrap_or_default();
        let asked = Asked { path, query, body, shown: &shown };
        if let Some(reply) = self.access(&asked) {
            return reply;
        }
        match path {
            "/api/v3/search/repositories" => return self.github_search(&asked),
            "/api/graphql" => return self.github_nodes(&asked),
            "/query" => return self.sourcehut_query(&asked),
            _ => {}
        }
        if let Some((_, status, answer)) = self.answers.iter().find(|(at, ..)| *at == path) {
            return (*status, String::new(), answer.clone());
        }
        if let Some(answer) = self.deliveries.route(path, query) {
            return answer;
        }
        if let Some(answer) = self.around.route(path, query, !shown.is_empty()) {
            return answer;
        }
        if let Some(reply) = self.one_repository(&asked).or_else(|| self.account_route(&asked)) {
            return reply;
        }
        match path {
            "/api/v3/repositories" | "/api/v4/projects" => self.list_of_everything(&asked),
            "/api/v1/repos/search" => self.gitea_list(&asked),
            "/projects/" => self.gerrit_list(&asked),
            "/manifest.js" => found(self.manifest.clone()),
            "/api/v1/settings/api" => found(Some(json!({ "max_response_items": 50 }))),
            _ => self.bitbucket_route(&asked),
        }
    }

    /// Counts a request. Returns the answer to it if the limit is used up.
    fn over_limit(&mut self) -> Option<Reply> {
        if self.spent_until > now() {
            self.impatient += 1;
        }
        let left = self.limit.as_mut()?;
        if *left == 0 && self.spent_until == 0 {
            self.spent_until = now() + 1;
        }
        if self.spent_until > 0 && now() < self.spent_until {
            let headers = format!("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: {}\r\n", self.spent_until);
            return Some(("403 Forbidden", headers, json!({ "message": "API rate limit exceeded" })));
        }
        match left {
            0 => self.limit = None,
            left => *left -= 1,
        }
        None
    }

    /// Returns the answer to a request without valid credentials, or to an App's request for its
    /// installations and their tokens.
    fn access(&self, asked: &Asked<'_>) -> Option<Reply> {
        let Asked { path, shown, .. } = asked;
        if path.ends_with("/info/refs") && !shown.starts_with("Basic ") {
            let headers = "WWW-Authenticate: Basic realm=\"x\"\r\n".to_owned();
            return Some(("401 Unauthorized", headers, Value::Null));
        }
        if let Some(rest) = path.strip_prefix("/api/v3/app/installations") {
            if !shown.starts_with("Bearer ey") {
                let said = json!({ "message": "no word of the App" });
                return Some(("401 Unauthorized", String::new(), said));
            }
            let of = rest.strip_prefix('/').and_then(|r| r.strip_suffix("/access_tokens"));
            if of.is_some_and(|id| !self.installations.iter().any(|known| known.to_string() == id)) {
                return Some(found(None));
            }
            let token = of.map(|id| json!({ "token": format!("ghs_{id}") }));
            let installation =
                |id: &u64| json!({ "id": id, "account": { "login": if *id == 7 { "Odd" } else { "even" } } });
            return Some(found(Some(
                token.unwrap_or_else(|| self.installations.iter().map(installation).collect()),
            )));
        }
        let is_known = self.installations.is_empty()
            || self.installations.iter().any(|id| *shown == format!("Bearer ghs_{id}"));
        (!is_known).then(|| ("401 Unauthorized", String::new(), json!({ "message": "Bad credentials" })))
    }

    /// Returns a page of results of GitHub's search.
    fn github_search(&mut self, asked: &Asked<'_>) -> Reply {
        let question = asked.query.split('&').find_map(|p| p.strip_prefix("q=")).unwrap();
        let question = percent_encoding::percent_decode_str(question).decode_utf8_lossy();
        let (owner, range) = question.split_once(" created:").unwrap();
        let owner = owner.strip_prefix("user:").unwrap();
        if self.broken_searches > 0 {
            self.broken_searches -= 1;
            return failed();
        }
        let refused = |text: &str| ("422 Unprocessable Entity", String::new(), json!({ "message": text }));
        if owner == "refused" {
            return refused(
                "The listed users and repositories cannot be searched either because they do not exist",
            );
        }
        let (from, to) = range.split_once("..").unwrap();
        let hits: Vec<&Listed> = self
            .repositories
            .iter()
            .filter(|r| r.owner == owner && (from..=to).contains(&created_at(r).as_str()))
            .collect();
        let page = asked.parameter("page").unwrap() as usize;
        if page > 10 {
            return refused("Only the first 1000 search results are available");
        }
        let incomplete = hits.len() <= 1000 && std::mem::replace(&mut self.incomplete, 0) > 0;
        let items: Vec<Value> =
            hits.iter().skip((page - 1) * 100).take(100).map(|r| self.github(r)).collect();
        found(Some(json!({ "total_count": hits.len(), "incomplete_results": incomplete, "items": items })))
    }

    /// Returns GitHub's GraphQL answer about repositories.
    fn github_nodes(&self, asked: &Asked<'_>) -> Reply {
        let question: Value = serde_json::from_slice(asked.body).unwrap();
        let ids = question["variables"]["ids"].as_array().unwrap();
        assert!(ids.len() <= 100);
        let node = |id: &Value| {
            let id = id.as_str()?.strip_prefix("node")?.parse::<u64>().ok()?;
            self.by_id(id).map(|r| self.node(r))
        };
        found(Some(json!({ "data": { "nodes": ids.iter().map(node).collect::<Vec<_>>() } })))
    }

    /// Returns sourcehut's GraphQL answer: one repository, or a page of a list.
    fn sourcehut_query(&self, asked: &Asked<'_>) -> Reply {
        let question: Value = serde_json::from_slice(asked.body).unwrap();
        if let Some(owner) = question["variables"]["owner"].as_str() {
            let name = question["variables"]["name"].as_str().unwrap();
            let one = self
                .repositories
                .iter()
                .find(|r| r.owner == owner && r.name == name)
                .map(|r| self.sourcehut(r));
            return found(Some(json!({ "data": { "user": { "repository": one } } })));
        }
        let cursor = question["variables"]["cursor"].as_str().map_or(0, |c| c.parse::<usize>().unwrap());
        let owner = question["variables"]["name"].as_str();
        let of_owner: Vec<&Listed> =
            self.repositories.iter().filter(|r| owner.is_none_or(|o| o == r.owner)).collect();
        let results: Vec<Value> = of_owner.iter().skip(cursor).take(25).map(|r| self.sourcehut(r)).collect();
        let next = (cursor + 25 < of_owner.len()).then(|| (cursor + 25).to_string());
        let list = json!({ "repositories": { "cursor": next, "results": results } });
        found(Some(json!({ "data": if owner.is_some() { json!({ "user": list }) } else { list } })))
    }

    fn by_id(&self, id: u64) -> Option<&Listed> {
        self.repositories.iter().find(|r| r.id == id)
    }

    /// Returns the answer to a request for one repository, if `asked` is one.
    fn one_repository(&self, asked: &Asked<'_>) -> Option<Reply> {
        let Asked { path, shown, .. } = asked;
        if let Some(id) = path
            .strip_prefix("/2.0/repositories/%7B%7D/%7B")
            .and_then(|id| id.strip_suffix("%7D")?.parse::<u64>().ok())
        {
            return Some(found(self.by_id(id).map(|r| self.bitbucket(r))));
        }
        if let Some(id) = path.strip_prefix("/projects/").filter(|id| !id.is_empty()) {
            let one = self.repositories.iter().find(|r| format!("{}%2F{}", r.owner, r.name) == id);
            return Some(found(one.map(|r| self.gerrit(r, false))));
        }
        if let Some(id) = asked.id("/api/v3/repositories/") {
            let is_hidden =
                self.seen_by.is_some_and(|(hidden, by)| hidden == id && *shown != format!("Bearer ghs_{by}"));
            return Some(found(self.by_id(id).filter(|_| !is_hidden).map(|r| self.github(r))));
        }
        if let Some(id) = asked.id("/api/v4/projects/") {
            return Some(found(self.by_id(id).map(|r| self.gitlab(r))));
        }
        asked.id("/api/v1/repositories/").map(|id| found(self.by_id(id).map(|r| self.gitea(r))))
    }

    /// Returns at most `max` repositories with ids above `id`.
    fn after(&self, id: u64, max: usize) -> Vec<&Listed> {
        self.repositories.iter().filter(|r| r.id > id).take(max).collect()
    }

    /// Returns a page of GitHub's or GitLab's list of all repositories.
    fn list_of_everything(&self, asked: &Asked<'_>) -> Reply {
        let path = asked.path;
        let is_github = path.starts_with("/api/v3");
        let name = if is_github { "since" } else { "id_after" };
        let since = asked.parameter(name).unwrap_or(0);
        if self.broken.contains(&since) {
            return failed();
        }
        let page = self.after(since, 100);
        let next = page.last().filter(|_| page.len() == 100).map(|r| r.id);
        let link = next.map_or(String::new(), |id| {
            format!("Link: <http://x{path}?per_page=100&{name}={id}>; rel=\"next\"\r\n")
        });
        let items: Vec<Value> =
            page.iter().map(|r| if is_github { self.item(r) } else { self.gitlab(r) }).collect();
        ("200 OK", link, items.into())
    }

    /// Returns a page of Gitea's list of all repositories.
    fn gitea_list(&self, asked: &Asked<'_>) -> Reply {
        let (page, limit) = (asked.parameter("page").unwrap(), asked.parameter("limit").unwrap());
        if self.broken.contains(&page) {
            return failed();
        }
        let items = self
            .repositories
            .iter()
            .skip(((page - 1) * limit) as usize)
            .take(limit as usize)
            .map(|r| self.gitea(r));
        found(Some(json!({ "ok": true, "data": items.collect::<Vec<_>>() })))
    }

    /// Returns a page of Gerrit's list of all repositories.
    fn gerrit_list(&self, asked: &Asked<'_>) -> Reply {
        let (start, n) = (asked.parameter("S").unwrap() as usize, asked.parameter("n").unwrap() as usize);
        // A server limits the size of a page, too.
        let page: Vec<&Listed> = self.repositories.iter().skip(start).take(n.min(100)).collect();
        let more = start + page.len() < self.repositories.len();
        let last = page.len();
        let entry = |(i, r): (usize, &&Listed)| {
            (format!("{}/{}", r.owner, r.name), self.gerrit(r, more && i + 1 == last))
        };
        found(Some(page.iter().enumerate().map(entry).collect::<serde_json::Map<_, _>>().into()))
    }

    /// Returns the answer of Bitbucket, or status 404.
    fn bitbucket_route(&self, asked: &Asked<'_>) -> Reply {
        let path = asked.path;
        match path {
            "/2.0/repositories" => {
                let since = asked.parameter("after").unwrap_or(0);
                let page = self.after(since, 100);
                let next = page
                    .last()
                    .filter(|_| page.len() == 100)
                    .map(|r| format!("http://x/2.0/repositories?pagelen=100&after={}", r.id));
                let values: Vec<Value> = page.iter().map(|r| self.bitbucket(r)).collect();
                found(Some(json!({ "values": values, "next": next })))
            }
            "/2.0/user/workspaces" => {
                let access =
                    |slug: &str| json!({ "type": "workspace_access", "workspace": { "slug": slug } });
                found(Some(json!({ "values": [access("odd"), access("even")] })))
            }
            "/2.0/repositories/even" | "/2.0/repositories/odd" => {
                let of: Vec<&Listed> =
                    self.repositories.iter().filter(|r| path.ends_with(&format!("/{}", r.owner))).collect();
                let page = asked.parameter("page").unwrap_or(1) as usize;
                let values: Vec<Value> =
                    of.iter().skip((page - 1) * 100).take(100).map(|r| self.bitbucket(r)).collect();
                let next = (of.len() > page * 100).then_some("http://x/next");
                found(Some(json!({ "values": values, "next": next })))
            }
            _ => found(None),
        }
    }

    /// Returns the answer to a request for accounts at GitHub or Gitea, if `asked` is one.
    fn account_route(&self, asked: &Asked<'_>) -> Option<Reply> {
        let (api, size, rest) = match asked.path.strip_prefix("/api/v3/") {
            Some(rest) => ("v3", 100, rest),
            None => ("v1", 50, asked.path.strip_prefix("/api/v1/")?),
        };
        let is_organisation = |id: &u64| self.organisations.iter().any(|o| o.0 == *id);
        if let Some(name) = rest.strip_prefix("orgs/").and_then(|r| r.strip_suffix("/members")) {
            let id = number_in(name, 'o')?;
            let members = self.organisations.iter().find(|o| o.0 == id).map(|o| &o.1);
            return Some(found(
                members.map(|members| asked.page(members.iter().copied().map(person).collect(), size).into()),
            ));
        }
        let repositories_of = |kind| rest.strip_prefix(kind).and_then(|r| r.strip_suffix("/repos"));
        if let (Some(owner), "v3") = (repositories_of("users/").or_else(|| repositories_of("orgs/")), api) {
            return Some(self.github_repositories_of(asked, owner, rest.starts_with("orgs/")));
        }
        if let Some(name) = rest.strip_prefix("users/").filter(|r| !r.contains('/') && *r != "search") {
            let one = number_in(name, 'p').filter(|id| self.people.contains(id)).map(person);
            // GitHub returns organisations here, too.
            let other = number_in(name, 'o').filter(|id| api == "v3" && is_organisation(id));
            return Some(found(one.or(other.map(organisation))));
        }
        if let Some(name) = rest.strip_prefix("orgs/").filter(|r| !r.contains('/')) {
            return Some(found(number_in(name, 'o').filter(is_organisation).map(organisation)));
        }
        let people = || self.people.iter().copied().map(person).collect::<Vec<_>>();
        match (api, rest) {
            ("v3", "users") => Some(self.github_accounts(asked)),
            ("v1", "users/search") => {
                Some(found(Some(json!({ "ok": true, "data": asked.page(people(), 50) }))))
            }
            ("v1", "orgs") => {
                let all = self.organisations.iter().map(|o| organisation(o.0)).collect();
                Some(found(Some(asked.page(all, 50).into())))
            }
            _ => None,
        }
    }

    /// Returns a page of an owner's repositories at GitHub. `is_asked_so`: the request names an organisation.
    fn github_repositories_of(&self, asked: &Asked<'_>, owner: &str, is_asked_so: bool) -> Reply {
        let is_organisation = self.private_owners.iter().any(|o| o == owner);
        if is_asked_so && !is_organisation {
            return found(None);
        }
        // Private repositories are listed only in a request for an organisation.
        let of: Vec<Value> = self
            .repositories
            .iter()
            .filter(|r| r.owner == owner && (is_asked_so || !is_organisation || r.id.is_multiple_of(2)))
            .map(|r| self.github(r))
            .collect();
        let number = asked.parameter("page").unwrap_or(1);
        let more = of.len() as u64 > number * 100;
        let link = if more {
            format!("Link: <http://x/?page={}>; rel=\"next\"\r\n", number + 1)
        } else {
            String::new()
        };
        ("200 OK", link, asked.page(of, 100).into())
    }

    /// Returns a page of GitHub's list of accounts.
    fn github_accounts(&self, asked: &Asked<'_>) -> Reply {
        let since = asked.parameter("since").unwrap_or(0);
        if self.broken.contains(&since) {
            return failed();
        }
        let organisations = self.organisations.iter().map(|o| organisation(o.0));
        let mut all: Vec<Value> = self.people.iter().copied().map(person).chain(organisations).collect();
        all.sort_by_key(|a| a["id"].as_u64());
        all.retain(|a| a["id"].as_u64() > Some(since));
        all.truncate(100);
        let last = all.last().filter(|_| all.len() == 100).and_then(|a| a["id"].as_u64());
        let link = last.map_or(String::new(), |id| {
            format!("Link: <http://x/users?per_page=100&since={id}>; rel=\"next\"\r\n")
        });
        ("200 OK", link, all.into())
    }
}
