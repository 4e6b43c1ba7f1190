//! A forge on loopback: the APIs of GitHub (as an Enterprise Server has it), GitLab, Gitea, Bitbucket, Gerrit
//! and sourcehut over one list of repositories, with rate limits that count, pages that fail and answers that
//! break off; and whatever speaks CGI.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

#[path = "forge_metadata.rs"]
mod metadata;
pub use metadata::Around;

#[derive(Clone)]
pub struct Listed {
    pub id: u64,
    pub owner: &'static str,
    pub name: String,
    pub pushed_at: String,
    pub fork: bool,
}

/// What the forge has, how it behaves, and what it was asked.
#[derive(Default)]
pub struct State {
    pub repositories: Vec<Listed>,
    /// Before paths: where the clones come from.
    pub clone_base: String,
    /// Lists that start there answer 500.
    pub broken: Vec<u64>,
    /// Requests until the limit is used up; it is whole again a second later.
    pub limit: Option<u64>,
    pub spent_until: u64,
    /// Searches that fail, from now on.
    pub broken_searches: u32,
    /// A repository that only one installation may see.
    pub seen_by: Option<(u64, u64)>,
    /// Searches that GitHub gives up, from now on.
    pub incomplete: u32,
    /// Answers that break off in the middle, from now on.
    pub cut: u32,
    /// Time one answer takes.
    pub slow: Duration,
    /// At /manifest.js.
    pub manifest: Option<Value>,
    /// A CGI program at /cgi, and its environment.
    pub cgi: Option<(std::path::PathBuf, Vec<(&'static str, String)>)>,
    /// Asked: path and query.
    pub log: Vec<String>,
    /// What each was asked with: the value of `Authorization`, or nothing.
    pub shown: Vec<String>,
    /// Whether lists of an owner's repositories have tags.
    pub etags: bool,
    /// Whether repositories whose id can be divided by five have wikis.
    pub wikis: bool,
    /// People by their numbers, and organisations with who belongs to them.
    pub people: Vec<u64>,
    pub organisations: Vec<(u64, Vec<u64>)>,
    /// Owners that are organisations, whose repositories with odd ids are private.
    pub private_owners: Vec<String>,
    /// What is said of the limit with each answer: in all, what is left, when it is whole again.
    pub said: Option<(u64, u64, u64)>,
    /// Installations of an App, whose tokens alone are taken then.
    pub installations: Vec<u64>,
    /// Issues and the like.
    pub around: Around,
    /// Requests while the limit was used up.
    pub impatient: u32,
    /// Paths that are answered so, whatever stands there.
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

    #[expect(clippy::too_many_lines, reason = "a route a block")]
    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
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
        let target = lines.first()?.split(' ').nth(1)?.to_owned();
        std::thread::sleep(self.state().slow);
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        if let Some(info) = path.strip_prefix("/cgi") {
            self.state().log.push(target.clone());
            let (program, environment) = self.state().cgi.clone()?;
            let mut cgi = std::process::Command::new(program);
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
                .env("REQUEST_URI", &target)
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
            stream.write_all(format!("HTTP/1.1 {status}\r\nConnection: close\r\n").as_bytes()).ok()?;
            return stream.write_all(&said).ok();
        }
        let shown = lines
            .iter()
            .find_map(|l| l.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("authorization")));
        self.state().shown.push(shown.map_or(String::new(), |(_, value)| value.to_owned()));
        let (mut status, mut headers, mut value) = self.state().route(&target, &body);
        if self.state().etags && status == "200 OK" && path.ends_with("/repos") {
            let tag = format!(
                "\"{:x}\"",
                value
                    .to_string()
                    .bytes()
                    .fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
            );
            headers += &format!("ETag: {tag}\r\n");
            if lines
                .iter()
                .any(|l| l.to_ascii_lowercase().starts_with("if-none-match: ") && l.ends_with(&tag))
            {
                (status, value) = ("304 Not Modified", Value::Null);
            }
        }
        if let Some((limit, left, reset)) = self.state().said {
            headers += &format!(
                "X-RateLimit-Limit: {limit}\r\nX-RateLimit-Remaining: {left}\r\nX-RateLimit-Reset: \
                {reset}\r\n"
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
}

/// When it was made: some by one in a day, from 3000 on many in a second.
fn created_at(r: &Listed) -> String {
    match r.id {
        id @ ..3000 => format!("20{:02}-{:02}-{:02}T00:00:00Z", 10 + id / 300, 1 + id / 28 % 12, 1 + id % 28),
        id => format!("2021-06-01T12:00:{:02}Z", id / 600 % 60),
    }
}

impl State {
    #[expect(clippy::too_many_lines, reason = "a route a block")]
    fn route(&mut self, target: &str, body: &[u8]) -> (&'static str, String, Value) {
        self.log.push(target.to_owned());
        if self.spent_until > now() {
            self.impatient += 1;
        }
        if let Some(left) = &mut self.limit {
            if *left == 0 && self.spent_until == 0 {
                self.spent_until = now() + 1;
            }
            if self.spent_until > 0 && now() < self.spent_until {
                let headers =
                    format!("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: {}\r\n", self.spent_until);
                return ("403 Forbidden", headers, json!({ "message": "API rate limit exceeded" }));
            }
            match left {
                0 => self.limit = None,
                left => *left -= 1,
            }
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let parameter = |name: &str| {
            query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
        };
        let found = |value: Option<Value>| match value {
            Some(value) => ("200 OK", String::new(), value),
            None => ("404 Not Found", String::new(), json!({ "message": "Not Found" })),
        };
        let id_of = |prefix: &str| path.strip_prefix(prefix)?.parse::<u64>().ok();
        let by_id = |id: u64| self.repositories.iter().find(|r| r.id == id);
        let failed = ("500 Internal Server Error", String::new(), json!({ "message": "oops" }));
        let shown = self.shown.last().cloned().unwrap_or_default();
        if path.ends_with("/info/refs") && !shown.starts_with("Basic ") {
            return ("401 Unauthorized", "WWW-Authenticate: Basic realm=\"x\"\r\n".to_owned(), Value::Null);
        }
        if let Some(rest) = path.strip_prefix("/api/v3/app/installations") {
            if !shown.starts_with("Bearer ey") {
                return ("401 Unauthorized", String::new(), json!({ "message": "no word of the App" }));
            }
            let asked = rest.strip_prefix('/').and_then(|r| r.strip_suffix("/access_tokens"));
            if asked.is_some_and(|id| !self.installations.iter().any(|known| known.to_string() == id)) {
                return ("404 Not Found", String::new(), json!({ "message": "Not Found" }));
            }
            let token = asked.map(|id| json!({ "token": format!("ghs_{id}") }));
            let installation =
                |id: &u64| json!({ "id": id, "account": { "login": if *id == 7 { "Odd" } else { "even" } } });
            return found(Some(
                token.unwrap_or_else(|| self.installations.iter().map(installation).collect()),
            ));
        }
        if !self.installations.is_empty()
            && !self.installations.iter().any(|id| shown == format!("Bearer ghs_{id}"))
        {
            return ("401 Unauthorized", String::new(), json!({ "message": "Bad credentials" }));
        }
        if path == "/api/v3/search/repositories" {
            let question = percent_encoding::percent_decode_str(
                query.split('&').find_map(|p| p.strip_prefix("q=")).unwrap(),
            )
            .decode_utf8_lossy();
            let (owner, range) = question.split_once(" created:").unwrap();
            let owner = owner.strip_prefix("user:").unwrap();
            if self.broken_searches > 0 {
                self.broken_searches -= 1;
                return failed;
            }
            if owner == "refused" {
                let text =
                    "The listed users and repositories cannot be searched either because they do not exist";
                return ("422 Unprocessable Entity", String::new(), json!({ "message": text }));
            }
            let (from, to) = range.split_once("..").unwrap();
            let hits: Vec<&Listed> = self
                .repositories
                .iter()
                .filter(|r| r.owner == owner && (from..=to).contains(&created_at(r).as_str()))
                .collect();
            let page = parameter("page").unwrap() as usize;
            if page > 10 {
                return (
                    "422 Unprocessable Entity",
                    String::new(),
                    json!({ "message": "Only the first 1000 search results are available" }),
                );
            }
            let incomplete = hits.len() <= 1000 && std::mem::replace(&mut self.incomplete, 0) > 0;
            let items: Vec<Value> =
                hits.iter().skip((page - 1) * 100).take(100).map(|r| self.github(r)).collect();
            return found(Some(
                json!({ "total_count": hits.len(), "incomplete_results": incomplete, "items": items }),
            ));
        }
        if path == "/api/graphql" {
            let question: Value = serde_json::from_slice(body).unwrap();
            let ids = question["variables"]["ids"].as_array().unwrap().clone();
            assert!(ids.len() <= 100);
            let node = |id: &Value| {
                id.as_str()?.strip_prefix("node")?.parse().ok().and_then(by_id).map(|r| self.node(r))
            };
            return found(Some(json!({ "data": { "nodes": ids.iter().map(node).collect::<Vec<_>>() } })));
        }
        if path == "/query" {
            let question: Value = serde_json::from_slice(body).unwrap();
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
            let results: Vec<Value> =
                of_owner.iter().skip(cursor).take(25).map(|r| self.sourcehut(r)).collect();
            let next = (cursor + 25 < of_owner.len()).then(|| (cursor + 25).to_string());
            let list = json!({ "repositories": { "cursor": next, "results": results } });
            return found(Some(
                json!({ "data": if owner.is_some() { json!({ "user": list }) } else { list } }),
            ));
        }
        if let Some(id) = path
            .strip_prefix("/2.0/repositories/%7B%7D/%7B")
            .and_then(|id| id.strip_suffix("%7D")?.parse().ok())
        {
            return found(by_id(id).map(|r| self.bitbucket(r)));
        }
        if let Some(id) = path.strip_prefix("/projects/").filter(|id| !id.is_empty()) {
            return found(
                self.repositories
                    .iter()
                    .find(|r| format!("{}%2F{}", r.owner, r.name) == id)
                    .map(|r| self.gerrit(r, false)),
            );
        }
        if let Some((_, status, answer)) = self.answers.iter().find(|(at, ..)| *at == path) {
            return (*status, String::new(), answer.clone());
        }
        if let Some(answer) = self.around.route(path, query, !shown.is_empty()) {
            return answer;
        }
        if let Some(id) = id_of("/api/v3/repositories/") {
            if self.seen_by.is_some_and(|(hidden, by)| hidden == id && shown != format!("Bearer ghs_{by}")) {
                return found(None);
            }
            return found(by_id(id).map(|r| self.github(r)));
        }
        if let Some(id) = id_of("/api/v4/projects/") {
            return found(by_id(id).map(|r| self.gitlab(r)));
        }
        if let Some(id) = id_of("/api/v1/repositories/") {
            return found(by_id(id).map(|r| self.gitea(r)));
        }
        if let Some(answer) = self.account_route(path, &parameter) {
            return answer;
        }
        let after = |after: u64, max: usize| -> Vec<&Listed> {
            self.repositories.iter().filter(|r| r.id > after).take(max).collect()
        };
        match path {
            "/api/v3/repositories" | "/api/v4/projects" => {
                let is_github = path.starts_with("/api/v3");
                let since = parameter(if is_github { "since" } else { "id_after" }).unwrap_or(0);
                if self.broken.contains(&since) {
                    return failed;
                }
                let page = after(since, 100);
                let next = page.last().filter(|_| page.len() == 100).map(|r| r.id);
                let name = if is_github { "since" } else { "id_after" };
                let link = next.map_or(String::new(), |id| {
                    format!("Link: <http://x{path}?per_page=100&{name}={id}>; rel=\"next\"\r\n")
                });
                let items: Vec<Value> =
                    page.iter().map(|r| if is_github { self.item(r) } else { self.gitlab(r) }).collect();
                ("200 OK", link, items.into())
            }
            "/api/v1/repos/search" => {
                let (page, limit) = (parameter("page").unwrap(), parameter("limit").unwrap());
                if self.broken.contains(&page) {
                    return failed;
                }
                let items = self
                    .repositories
                    .iter()
                    .skip(((page - 1) * limit) as usize)
                    .take(limit as usize)
                    .map(|r| self.gitea(r));
                found(Some(json!({ "ok": true, "data": items.collect::<Vec<_>>() })))
            }
            "/2.0/repositories" => {
                let since = parameter("after").unwrap_or(0);
                let page = after(since, 100);
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
                let page = parameter("page").unwrap_or(1) as usize;
                let values: Vec<Value> =
                    of.iter().skip((page - 1) * 100).take(100).map(|r| self.bitbucket(r)).collect();
                let next = (of.len() > page * 100).then_some("http://x/next");
                found(Some(json!({ "values": values, "next": next })))
            }
            "/projects/" => {
                let (start, n) = (parameter("S").unwrap() as usize, parameter("n").unwrap() as usize);
                // Servers have limits of their own.
                let page: Vec<&Listed> = self.repositories.iter().skip(start).take(n.min(100)).collect();
                let more = start + page.len() < self.repositories.len();
                let last = page.len();
                let entry = |(i, r): (usize, &&Listed)| {
                    (format!("{}/{}", r.owner, r.name), self.gerrit(r, more && i + 1 == last))
                };
                found(Some(page.iter().enumerate().map(entry).collect::<serde_json::Map<_, _>>().into()))
            }
            "/manifest.js" => found(self.manifest.clone()),
            "/api/v1/settings/api" => found(Some(json!({ "max_response_items": 50 }))),
            _ => found(None),
        }
    }

    /// GitHub's and Gitea's accounts.
    #[expect(clippy::too_many_lines, reason = "a route a block")]
    fn account_route(
        &self,
        path: &str,
        parameter: &dyn Fn(&str) -> Option<u64>,
    ) -> Option<(&'static str, String, Value)> {
        let ok = |value: Value| Some(("200 OK", String::new(), value));
        let missing = || Some(("404 Not Found", String::new(), json!({ "message": "Not Found" })));
        let person = |id: &u64| json!({ "id": id, "login": format!("p{id}"), "type": "User" });
        let organisation = |id: u64| {
            json!({ "id": id, "login": format!("o{id}"),
            "username": format!("o{id}"), "type": "Organization" })
        };
        let page = |list: Vec<Value>, size: u64| {
            let skipped = ((parameter("page").unwrap_or(1) - 1) * size) as usize;
            list.into_iter().skip(skipped).take(size as usize).collect::<Vec<_>>()
        };
        let (api, size, rest) = match path.strip_prefix("/api/v3/") {
            Some(rest) => ("v3", 100, rest),
            None => ("v1", 50, path.strip_prefix("/api/v1/")?),
        };
        let of_name = |name: &str, first: char| name.strip_prefix(first)?.parse::<u64>().ok();
        if let Some(name) = rest.strip_prefix("orgs/").and_then(|r| r.strip_suffix("/members")) {
            let id = of_name(name, 'o')?;
            let Some((_, members)) = self.organisations.iter().find(|o| o.0 == id) else { return missing() };
            return ok(page(members.iter().map(person).collect(), size).into());
        }
        let repositories_of = |kind| rest.strip_prefix(kind).and_then(|r| r.strip_suffix("/repos"));
        if let (Some(owner), "v3") = (repositories_of("users/").or_else(|| repositories_of("orgs/")), api) {
            let is_organisation = self.private_owners.iter().any(|o| o == owner);
            let is_asked_so = rest.starts_with("orgs/");
            if is_asked_so && !is_organisation {
                return missing();
            }
            // What is private is only shown where it is asked for as an organisation's.
            let of: Vec<Value> = self
                .repositories
                .iter()
                .filter(|r| r.owner == owner && (is_asked_so || !is_organisation || r.id.is_multiple_of(2)))
                .map(|r| self.github(r))
                .collect();
            let number = parameter("page").unwrap_or(1);
            let more = of.len() as u64 > number * 100;
            let link = if more {
                format!("Link: <http://x/?page={}>; rel=\"next\"\r\n", number + 1)
            } else {
                String::new()
            };
            return Some(("200 OK", link, page(of, 100).into()));
        }
        if let Some(name) = rest.strip_prefix("users/").filter(|r| !r.contains('/') && *r != "search") {
            let found = of_name(name, 'p').filter(|id| self.people.contains(id)).map(|id| person(&id));
            let organisation = || {
                of_name(name, 'o')
                    .filter(|id| self.organisations.iter().any(|o| o.0 == *id))
                    .map(organisation)
            };
            return found.or_else(|| organisation().filter(|_| api == "v3")).map_or_else(missing, ok);
        }
        if let Some(name) = rest.strip_prefix("orgs/").filter(|r| !r.contains('/')) {
            return of_name(name, 'o')
                .filter(|id| self.organisations.iter().any(|o| o.0 == *id))
                .map(organisation)
                .map_or_else(missing, ok);
        }
        match (api, rest) {
            ("v3", "users") => {
                let since = parameter("since").unwrap_or(0);
                if self.broken.contains(&since) {
                    return Some(("500 Internal Server Error", String::new(), json!({ "message": "oops" })));
                }
                let mut all: Vec<Value> = self
                    .people
                    .iter()
                    .map(person)
                    .chain(self.organisations.iter().map(|o| organisation(o.0)))
                    .collect();
                all.sort_by_key(|a| a["id"].as_u64());
                all.retain(|a| a["id"].as_u64() > Some(since));
                all.truncate(100);
                let last = all.last().filter(|_| all.len() == 100).and_then(|a| a["id"].as_u64());
                let link = last.map_or(String::new(), |id| {
                    format!("Link: <http://x/users?per_page=100&since={id}>; rel=\"next\"\r\n")
                });
                Some(("200 OK", link, all.into()))
            }
            ("v1", "users/search") => {
                ok(json!({ "ok": true, "data": page(self.people.iter().map(person).collect(), 50) }))
            }
            ("v1", "orgs") => {
                ok(page(self.organisations.iter().map(|o| organisation(o.0)).collect(), 50).into())
            }
            _ => None,
        }
    }

    fn has_wiki(&self, r: &Listed) -> bool {
        self.wikis && r.id.is_multiple_of(5)
    }

    /// An item of GitHub's list of everything: it says little.
    fn item(&self, r: &Listed) -> Value {
        json!({ "id": r.id, "node_id": format!("node{}", r.id), "full_name": format!("{}/{}", r.owner,
            r.name), "private": false,
                "html_url": format!("{}{}/{}", self.clone_base, r.owner, r.name), "fork": r.fork,
                "owner": { "id": 1, "login": r.owner, "type": "User" } })
    }

    fn github(&self, r: &Listed) -> Value {
        let mut item = self.item(r);
        item["clone_url"] = json!(format!("{}{}/{}.git", self.clone_base, r.owner, r.name));
        item["pushed_at"] = json!(r.pushed_at);
        item["has_wiki"] = self.has_wiki(r).into();
        item
    }

    fn node(&self, r: &Listed) -> Value {
        let topics =
            if r.id.is_multiple_of(3) { json!([{ "topic": { "name": "tools" } }]) } else { json!([]) };
        json!({ "databaseId": r.id, "nameWithOwner": format!("{}/{}", r.owner, r.name),
            "url": format!("{}{}/{}", self.clone_base, r.owner, r.name),
                "isFork": r.fork, "parent": if r.fork { json!({ "databaseId": 1 }) } else { Value::Null },
                "stargazerCount": r.id, "pushedAt": r.pushed_at, "primaryLanguage": { "name": "C" },
                "isEmpty": false, "hasWikiEnabled": self.has_wiki(r),
                "repositoryTopics": { "nodes": topics },
                "languages": { "edges": [{ "size": 7, "node": { "name": "C" } }] },
                "owner": { "__typename": "User", "login": r.owner, "databaseId": 1 } })
    }

    fn gitlab(&self, r: &Listed) -> Value {
        json!({ "id": r.id, "visibility": "public",
            "forked_from_project": if r.fork { json!({ "id": 1 }) } else { Value::Null },
            "wiki_enabled": self.has_wiki(r), "path_with_namespace": format!("{}/{}", r.owner, r.name),
            "last_activity_at": r.pushed_at,
                "http_url_to_repo": format!("{}{}/{}.git", self.clone_base, r.owner, r.name),
                "namespace": { "id": 1, "full_path": r.owner, "kind": "group" } })
    }

    fn bitbucket(&self, r: &Listed) -> Value {
        json!({ "uuid": format!("{{{}}}", r.id), "full_name": format!("{}/{}", r.owner, r.name), "scm": "git",
            "is_private": false,
                "parent": if r.fork { json!({ "uuid": "{1}" }) } else { Value::Null },
                "updated_on": r.pushed_at, "size": 4096,
                "links": { "clone": [{ "name": "https", "href": format!("{}{}/{}.git", self.clone_base,
                r.owner, r.name) }] },
                "owner": { "uuid": "{1}", "type": "team", "username": r.owner } })
    }

    fn gerrit(&self, r: &Listed, more: bool) -> Value {
        let mut project = json!({ "id": format!("{}%2F{}", r.owner, r.name), "name": format!("{}/{}", r.owner,
            r.name), "state": "ACTIVE" });
        if more {
            project["_more_projects"] = true.into();
        }
        project
    }

    fn sourcehut(&self, r: &Listed) -> Value {
        json!({ "id": r.id, "name": r.name, "visibility": "PUBLIC", "updated": r.pushed_at,
            "HEAD": { "name": "refs/heads/main" },
                "owner": { "canonicalName": format!("~{}", r.owner) } })
    }

    fn gitea(&self, r: &Listed) -> Value {
        json!({ "id": r.id, "full_name": format!("{}/{}", r.owner, r.name), "fork": r.fork,
            "updated_at": r.pushed_at, "empty": false, "has_wiki": self.has_wiki(r),
                "clone_url": format!("{}{}/{}.git", self.clone_base, r.owner, r.name), "owner": { "id": 1,
                "login": r.owner } })
    }
}
