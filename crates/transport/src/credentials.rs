//! Where user names and passwords for HTTP come from: the URL, netrc, git's credential helpers.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::url::Url;

/// A user name and a password (or token).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({}, ***)", self.user)
    }
}

impl Credentials {
    /// Those in the URL, if it has a password.
    pub fn from_url(url: &Url) -> Option<Credentials> {
        Some(Credentials { user: url.user.clone().unwrap_or_default(), password: url.password.clone()? })
    }
}

/// Who else may know what a server wants.
pub trait CredentialSource: Send + Sync {
    /// What to try for `url`, in order. Called when the server has asked for a password.
    fn find(&self, url: &Url) -> Vec<Credentials>;
}

/// A netrc file.
#[derive(Clone, Debug)]
pub struct Netrc(pub PathBuf);

impl Netrc {
    /// The entry for `host`, or the default entry.
    pub fn find(&self, host: &str) -> Option<Credentials> {
        Netrc::find_in(&std::fs::read_to_string(&self.0).ok()?, host)
    }

    fn find_in(text: &str, host: &str) -> Option<Credentials> {
        let mut words = text.split_ascii_whitespace();
        let (mut matches, mut user, mut password) = (false, None, None);
        let mut word = words.next();
        while let Some(w) = word {
            match w {
                "machine" | "default" => {
                    if matches && password.is_some() {
                        break;
                    }
                    matches = w == "default" || words.next().is_some_and(|h| h.eq_ignore_ascii_case(host));
                    (user, password) = (None, None);
                }
                "login" => user = words.next().map(str::to_owned),
                "password" => password = words.next().map(str::to_owned),
                _ => {}
            }
            word = words.next();
        }
        Some(Credentials { user: user.unwrap_or_default(), password: password? }).filter(|_| matches)
    }
}

/// Asks git's configured credential helpers (gitcredentials(7)) through `git credential`; never prompts.
#[derive(Clone, Debug)]
pub struct GitCredentialHelper {
    /// The git program.
    pub git: PathBuf,
}

impl GitCredentialHelper {
    fn run(&self, action: &str, input: &str) -> Option<String> {
        let mut child = Command::new(&self.git)
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

    /// `url` as git describes it to helpers; `None` if a part of it would be taken for a line of its own.
    fn describe(url: &Url) -> Option<String> {
        let base = url.http_base();
        let protocol = base.split("://").next().unwrap_or("https").to_owned();
        let user = url.user.as_ref().map(|u| format!("username={u}\n")).unwrap_or_default();
        let (host, path) = (url.host_port(), url.path.trim_start_matches('/'));
        let is_line = |text: &str| !text.contains(['\n', '\r', '\0']);
        let is_sound = is_line(&host) && is_line(path) && url.user.as_deref().is_none_or(is_line);
        // Who asks for it comes last: of two lines the later counts.
        is_sound.then(|| format!("path={path}\n{user}protocol={protocol}\nhost={host}\n"))
    }

    /// What the helpers have for `url`.
    pub fn fill(&self, url: &Url) -> Option<Credentials> {
        let answer = self.run("fill", &(Self::describe(url)? + "\n"))?;
        let field = |key: &str| answer.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned);
        Some(Credentials { user: field("username").unwrap_or_default(), password: field("password")? })
    }

    /// Tells the helpers whether what they gave was right.
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
        let text = "machine a.example login u1 password p1\nmachine b.example\n  login u2\n  password p2\ndefault login u3 password p3";
        let find = |host: &str| Netrc::find_in(text, host).map(|c| (c.user, c.password));
        assert_eq!(find("a.example"), Some(("u1".into(), "p1".into())));
        assert_eq!(find("B.example"), Some(("u2".into(), "p2".into())));
        assert_eq!(find("c.example"), Some(("u3".into(), "p3".into())));
        assert_eq!(Netrc::find_in("machine a.example login u", "a.example"), None);
    }
}
