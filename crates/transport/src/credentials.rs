//! Finds user names and passwords for HTTP: in the URL, in netrc, and by git's credential helpers.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use weir_git::LOCAL_ENVIRONMENT;

use crate::url::Url;

/// A user name and a password or token.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({}, ***)", self.user)
    }
}

impl Credentials {
    /// Returns the credentials in the URL, if it has a password.
    pub fn from_url(url: &Url) -> Option<Credentials> {
        Some(Credentials { user: url.user.clone().unwrap_or_default(), password: url.password.clone()? })
    }
}

/// A further source of credentials.
pub trait CredentialSource: Send + Sync {
    /// Returns the credentials to try for `url`, in order. It is called when the server has asked for a
    /// password.
    fn find(&self, url: &Url) -> Vec<Credentials>;
}

/// A netrc file.
#[derive(Clone, Debug)]
pub struct Netrc(pub PathBuf);

impl Netrc {
    /// Returns the entry for `host`, and for `user` if given, or the default entry.
    pub fn find(&self, host: &str, user: Option<&str>) -> Option<Credentials> {
        Netrc::find_in(&std::fs::read_to_string(&self.0).ok()?, host, user)
    }

    fn find_in(text: &str, host: &str, user: Option<&str>) -> Option<Credentials> {
        let words = netrc_words(text);
        let mut words = words.iter().map(String::as_str);
        let (mut is_meant, mut login, mut password) = (false, None, None);
        let taken = |is_meant: bool, login: &Option<&str>, password: &Option<&str>| {
            // An entry without a login matches any user.
            let is_theirs = user.is_none() || login.is_none() || *login == user;
            let password = password.filter(|_| is_meant && is_theirs)?;
            Some(Credentials {
                user: login.or(user).unwrap_or_default().to_owned(),
                password: password.to_owned(),
            })
        };
        while let Some(word) = words.next() {
            match word {
                "machine" | "default" => {
                    if let Some(found) = taken(is_meant, &login, &password) {
                        return Some(found);
                    }
                    is_meant =
                        word == "default" || words.next().is_some_and(|h| h.eq_ignore_ascii_case(host));
                    (login, password) = (None, None);
                }
                "login" => login = words.next(),
                "password" => password = words.next(),
                "account" => drop(words.next()),
                _ => {}
            }
        }
        taken(is_meant, &login, &password)
    }
}

/// Splits a netrc file into words as curl does. A text in double quotes is one word, with escapes; a word
/// that starts with # begins a comment, and `macdef` a text up to an empty line.
fn netrc_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut is_macro = false;
    for line in text.lines() {
        is_macro &= !line.trim().is_empty();
        if is_macro {
            continue;
        }
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let (word, after) = match rest.strip_prefix('"') {
                Some(quoted) => netrc_quoted(quoted),
                None => {
                    let (word, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
                    (word.to_owned(), after)
                }
            };
            if word == "macdef" {
                is_macro = true;
                break;
            }
            words.push(word);
            rest = after.trim_start();
        }
    }
    words
}

/// Returns a word up to its closing quote, and the rest.
fn netrc_quoted(text: &str) -> (String, &str) {
    let mut word = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (word, &text[at + 1..]),
            '\\' => word.extend(chars.next().map(|(_, escaped)| match escaped {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            })),
            other => word.push(other),
        }
    }
    (word, "")
}

/// Asks git's configured credential helpers (gitcredentials(7)) through `git credential`; never prompts.
#[derive(Clone, Debug)]
pub struct GitCredentialHelper {
    /// The git program.
    pub git: PathBuf,
}

impl GitCredentialHelper {
    fn run(&self, action: &str, input: &str) -> Option<String> {
        let mut command = Command::new(&self.git);
        for name in LOCAL_ENVIRONMENT {
            command.env_remove(name);
        }
        let mut child = command
            .args(["credential", action])
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "")
            .env("SSH_ASKPASS", "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        child.stdin.take()?.write_all(input.as_bytes()).ok()?;
        let output = child.wait_with_output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns `url` as git describes it to helpers; `None` if a part of it contains a line break or NUL.
    fn describe(url: &Url) -> Option<String> {
        let base = url.http_base();
        let protocol = base.split("://").next().unwrap_or("https").to_owned();
        let user = url.user.as_ref().map(|u| format!("username={u}\n")).unwrap_or_default();
        let (host, path) = (url.host_port(), url.path.trim_start_matches('/'));
        let is_line = |text: &str| !text.contains(['\n', '\r', '\0']);
        let is_sound = is_line(&host) && is_line(path) && url.user.as_deref().is_none_or(is_line);
        // The host comes last: of two lines with one key, the later counts.
        is_sound.then(|| format!("path={path}\n{user}protocol={protocol}\nhost={host}\n"))
    }

    /// Returns the helpers' credentials for `url`.
    pub fn fill(&self, url: &Url) -> Option<Credentials> {
        let answer = self.run("fill", &(Self::describe(url)? + "\n"))?;
        let field = |key: &str| {
            answer.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
        };
        Some(Credentials { user: field("username").unwrap_or_default(), password: field("password")? })
    }

    /// Tells the helpers whether their credentials were accepted.
    pub fn report(&self, url: &Url, credentials: &Credentials, accepted: bool) {
        let Some(described) = Self::describe(url) else { return };
        let Credentials { user, password } = credentials;
        if [user, password].iter().any(|text| text.contains(['\n', '\r', '\0'])) {
            return;
        }
        let input = format!("username={user}\npassword={password}\n{described}\n");
        let _ = self.run(if accepted { "approve" } else { "reject" }, &input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netrc_entries() {
        let text = "machine a.example login u1 password p1\nmachine b.example\n  login u2\n  password \
            p2\ndefault login u3 password p3";
        let find =
            |text: &str, host: &str, user| Netrc::find_in(text, host, user).map(|c| (c.user, c.password));
        let is = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(find(text, "a.example", None), is("u1", "p1"));
        assert_eq!(find(text, "B.example", None), is("u2", "p2"));
        assert_eq!(find(text, "c.example", None), is("u3", "p3"));
        assert_eq!(find("machine a.example login u", "a.example", None), None);
        let two = "machine h login alice password one # password two\nmachine h password \"p \\\"w\" login \
            carol\nmachine h password three";
        assert_eq!(find(two, "h", None), is("alice", "one"));
        assert_eq!(find(two, "h", Some("carol")), is("carol", "p \"w"));
        assert_eq!(find(two, "h", Some("dora")), is("dora", "three"));
        let macros = "machine m login u\nmacdef init\n  machine h login x password y\n\npassword p";
        assert_eq!(find(macros, "m", None), is("u", "p"));
        assert_eq!(find(macros, "h", None), None);
    }
}
