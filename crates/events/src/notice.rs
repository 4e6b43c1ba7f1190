//! Parses a line that says which repository has changed.

use std::borrow::Cow;

use serde::Deserialize;

use crate::error::EventError;

/// A repository that somebody says has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice<'l> {
    /// Its name here, or its URL: what a reader looks for, in this order.
    pub names: Vec<Cow<'l, str>>,
    /// The URL of a group before it was renamed: each repository below it has changed.
    pub old_group: Option<Cow<'l, str>>,
    /// Whether the repository itself was changed, not its refs: renamed, moved, hidden or deleted.
    pub changes_repository: bool,
    /// Whether it was deleted.
    pub is_deletion: bool,
}

/// The keys of a JSON object that name a repository, as senders write them.
#[derive(Deserialize)]
struct JsonNotice<'l> {
    #[serde(borrow)]
    name: Option<Cow<'l, str>>,
    #[serde(borrow)]
    url: Option<Cow<'l, str>>,
    #[serde(borrow)]
    clone_url: Option<Cow<'l, str>>,
    #[serde(borrow)]
    ssh_url: Option<Cow<'l, str>>,
    #[serde(borrow)]
    old_url: Option<Cow<'l, str>>,
    #[serde(borrow)]
    old_group_url: Option<Cow<'l, str>>,
    #[serde(borrow)]
    repository: Option<JsonRepository<'l>>,
    #[serde(default)]
    repository_changed: bool,
    #[serde(default)]
    repository_deleted: bool,
    /// Where Standard Webhooks recommends to put them.
    #[serde(borrow)]
    data: Option<Box<JsonNotice<'l>>>,
}

/// The keys of a delivery of a webhook that say whether it came before.
#[derive(Deserialize)]
struct JsonDelivery<'l> {
    #[serde(borrow)]
    webhook: Cow<'l, str>,
    #[serde(borrow)]
    delivery: Cow<'l, str>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonRepository<'l> {
    Name(#[serde(borrow)] Cow<'l, str>),
    Object {
        #[serde(borrow)]
        clone_url: Option<Cow<'l, str>>,
        #[serde(borrow)]
        url: Option<Cow<'l, str>>,
        #[serde(borrow)]
        full_name: Option<Cow<'l, str>>,
        #[serde(borrow)]
        name: Option<Cow<'l, str>>,
    },
}

impl<'l> Notice<'l> {
    /// Reads a line: a name or URL alone, `push URL [REF OLD NEW]`, or a JSON object that names a repository
    /// by `name`, `url`, `clone_url` or `repository`.
    ///
    /// # Errors
    /// If it names none. The error says why.
    pub fn parse(line: &'l [u8]) -> Result<Notice<'l>, EventError> {
        let text = std::str::from_utf8(line).map_err(|_| EventError::NotUtf8)?.trim();
        if text.starts_with('{') {
            return Notice::of_json(text);
        }
        let name = match text.split_once(char::is_whitespace) {
            Some(("push", rest)) => rest.split_whitespace().next().unwrap_or_default(),
            _ => text,
        };
        match name {
            "" | "push" => Err(EventError::NoRepository),
            name => Ok(Notice {
                names: vec![Cow::Borrowed(name)],
                old_group: None,
                changes_repository: false,
                is_deletion: false,
            }),
        }
    }

    /// Returns the first repository, or else the group, that it names.
    pub fn subject(&self) -> &str {
        self.names.first().or(self.old_group.as_ref()).map_or("", AsRef::as_ref)
    }

    fn of_json(text: &'l str) -> Result<Notice<'l>, EventError> {
        let json: JsonNotice<'l> = serde_json::from_str(text).map_err(EventError::Json)?;
        let mut names: Vec<Cow<'l, str>> = Vec::new();
        let (mut old_group, mut changes_repository, mut is_deletion) = (None, false, false);
        let mut next = Some(json);
        while let Some(json) = next {
            let JsonNotice { name, url, clone_url, ssh_url, old_url, .. } = json;
            names.extend([clone_url, ssh_url, url, name, old_url].into_iter().flatten());
            changes_repository |= json.repository_changed || json.repository_deleted;
            is_deletion |= json.repository_deleted;
            old_group = old_group.or(json.old_group_url);
            next = json.data.map(|data| *data);
            match json.repository {
                Some(JsonRepository::Name(name)) => names.push(name),
                Some(JsonRepository::Object { clone_url, url, full_name, name }) => {
                    names.extend([clone_url, url, full_name, name].into_iter().flatten());
                }
                None => {}
            }
        }
        names.retain(|name| !name.trim().is_empty());
        let old_group = old_group.filter(|group| !group.trim().is_empty());
        if names.is_empty() && old_group.is_none() {
            return Err(EventError::NoKey);
        }
        Ok(Notice { names, old_group, changes_repository, is_deletion })
    }

    /// Returns the webhook and the id of the delivery that a line was made of.
    pub fn delivery(line: &'l [u8]) -> Option<(Cow<'l, str>, Cow<'l, str>)> {
        let JsonDelivery { webhook, delivery } = serde_json::from_slice(line).ok()?;
        Some((webhook, delivery))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_name_a_repository() {
        let names = |line: &str| Notice::parse(line.as_bytes()).map(|notice| notice.names.join(" "));
        for (line, expected) in [
            ("github.com/a/b", "github.com/a/b"),
            ("a name with blanks", "a name with blanks"),
            (" https://h/a.git ", "https://h/a.git"),
            ("push https://h/a refs/heads/m 0 1", "https://h/a"),
            ("push\tx", "x"),
            (r#"{"url":"https:\/\/h\/a"}"#, "https://h/a"),
            (r#"{"repository":"a/b","ref":"x"}"#, "a/b"),
            (r#"{"name":"n","repository":{"clone_url":"u","full_name":"f","id":3}}"#, "n u f"),
            (r#"{"old_group_url":"https://h/g"}"#, ""),
        ] {
            assert_eq!(names(line).unwrap(), expected, "{line}");
        }
        for (line, why) in [
            ("", "names no repository"),
            ("push", "names no repository"),
            ("push  ", "names no repository"),
            ("{", "is not the expected JSON"),
            ("{}", "none of the keys"),
            (r#"{"name":""}"#, "none of the keys"),
            (r#"{"old_group_url":" "}"#, "none of the keys"),
            (r#"{"name":3}"#, "is not the expected JSON"),
        ] {
            assert!(names(line).unwrap_err().to_string().contains(why), "{line}");
        }
        assert!(Notice::parse(b"\xff").is_err());
    }
}
