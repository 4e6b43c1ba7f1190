//! Who may have what: tokens, addresses, rules by name.
//!
//! What a client may not have is for it as if it were not there.

use std::net::IpAddr;

use ipnet::IpNet;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use weir_ground::name_matches;

use crate::locate::{Client, Refusal};

/// A name that somebody shows to be who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What rules call it.
    pub name: String,
    /// SHA-256 of the token: the configuration holds no secrets.
    pub sha256: [u8; 32],
}

/// Who may have some repositories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRule {
    /// Patterns of their names (see [`name_matches`]).
    pub repositories: Vec<String>,
    /// Everybody may.
    pub public: bool,
    /// Those may who show one of these tokens, by name.
    pub tokens: Vec<String>,
    /// Those may who come from one of these networks.
    pub addresses: Vec<IpNet>,
}

/// What is asked for, as far as rules are about it.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessedName<'a> {
    /// Its name.
    pub name: &'a str,
    /// Names that it had before.
    pub former_names: &'a [String],
    /// Its forge does not show it to everybody: nor does this server, unless a rule says so.
    pub is_private: bool,
}

/// Rules in order: the first that names a repository decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// What no rule names is for everybody.
    pub public: bool,
    /// The rules.
    pub rules: Vec<AccessRule>,
    /// The tokens they speak of.
    pub tokens: Vec<Token>,
}

impl Default for Access {
    fn default() -> Self {
        Access { public: true, rules: Vec::new(), tokens: Vec::new() }
    }
}

impl Access {
    /// Whether `client` may have `asked`. What is hidden is refused as if it were not there.
    ///
    /// The first rule about its name decides; about a wiki, that of its repository. A rule about a name that
    /// it had before, or that is in its name before a `~`, must allow it, too: what hid it goes with it,
    /// whatever its forge calls it by now.
    ///
    /// # Errors
    /// If not: [`Refusal::Unauthorized`] if another token might help, else [`Refusal::NotFound`].
    pub fn check(&self, asked: &AccessedName<'_>, client: &Client) -> Result<(), Refusal> {
        let token = self.token_of(client);
        let allows = |rule: &AccessRule| {
            let address = client.address.map(|a| canonical(a.ip()));
            rule.public
                || token.is_some_and(|token| rule.tokens.iter().any(|name| name == token))
                || address.is_some_and(|address| rule.addresses.iter().any(|net| net.contains(&address)))
        };
        let own = self.rule_about(asked.name).or_else(|| self.rule_about(without_wiki(asked.name)?));
        let before = asked.former_names.iter().map(String::as_str).chain(before_set_aside(asked.name));
        let all = before.flat_map(|name| [Some(name), without_wiki(name), before_set_aside(name)]).flatten();
        let may = own.map_or(self.public && !asked.is_private, allows)
            && all.filter_map(|name| self.rule_about(name)).all(allows);
        match may {
            true => Ok(()),
            // The same words as for what is not there.
            false if self.tokens.is_empty() || token.is_some() => Err(self.not_there(asked.name, client)),
            false => Err(Refusal::Unauthorized(UNAUTHORIZED.to_owned())),
        }
    }

    fn rule_about(&self, name: &str) -> Option<&AccessRule> {
        self.rules.iter().find(|rule| rule.repositories.iter().any(|pattern| name_matches(pattern, name)))
    }

    /// What is said of a name that there is nothing of: the same as of one that is hidden from `client`.
    pub fn not_there(&self, name: &str, client: &Client) -> Refusal {
        let is_unknown = self.token_of(client).is_none();
        let hides_any = !self.public || self.rules.iter().any(|rule| !rule.public);
        if is_unknown && hides_any && !self.tokens.is_empty() {
            Refusal::Unauthorized(UNAUTHORIZED.to_owned())
        } else {
            Refusal::NotFound(format!("no such repository: {name}"))
        }
    }

    /// The name of the token that `client` shows. All are compared, each in the same time.
    fn token_of(&self, client: &Client) -> Option<&str> {
        if let Some(name) = &client.known_as {
            return self.tokens.iter().map(|token| token.name.as_str()).find(|known| known == name);
        }
        let shown: [u8; 32] = Sha256::digest(client.token.as_ref()?).into();
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.sha256.ct_eq(&shown)) {
                found = Some(token.name.as_str());
            }
        }
        found
    }
}

/// The repository whose wiki `name` is, if it is called so.
fn without_wiki(name: &str) -> Option<&str> {
    name.strip_suffix(".wiki")
}

/// What a repository was called whose name another has now (`NAME~ID`), if it is called so.
fn before_set_aside(name: &str) -> Option<&str> {
    let (before, _) = name.rsplit_once('~')?;
    // A name may begin with it, as on sourcehut.
    (!before.is_empty() && !before.ends_with('/')).then_some(before)
}

const UNAUTHORIZED: &str = "authentication required: use a token as the password";

/// An IPv4 address that came over an IPv6 socket is the IPv4 address.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(name: &str) -> AccessedName<'_> {
        AccessedName { name, ..AccessedName::default() }
    }

    #[test]
    fn rules_go_with_what_they_hide() {
        let rule = |name: &str, public| AccessRule {
            repositories: vec![name.to_owned()],
            public,
            ..AccessRule::default()
        };
        let may = |access: &Access, asked: AccessedName<'_>| access.check(&asked, &Client::default()).is_ok();
        let closed = Access { public: true, rules: vec![rule("f/corp/secret", false)], tokens: Vec::new() };
        for name in [
            "f/corp/secret",
            "f/corp/secret~1",
            "f/corp/secret.wiki",
            "f/corp/secret.wiki~2:wiki",
            "f/corp/secret~1~2",
        ] {
            assert!(!may(&closed, called(name)), "{name}");
        }
        assert!(may(&closed, called("f/corp/other")) && may(&closed, called("~user/x")));
        let former = ["f/corp/secret.wiki".to_owned()];
        assert!(!may(&closed, AccessedName { name: "f/moved", former_names: &former, is_private: false }));
        // One that is open by a rule does not open what had its name before, nor what was elsewhere and
        // hidden.
        let opened = Access {
            public: false,
            rules: vec![rule("f/corp/secret", false), rule("f/open", true)],
            tokens: Vec::new(),
        };
        let elsewhere = ["f/elsewhere".to_owned()];
        assert!(may(&opened, AccessedName { name: "f/open/x", former_names: &elsewhere, is_private: true }));
        assert!(may(&opened, called("f/open/x.wiki")));
        assert!(!may(&opened, AccessedName { name: "f/open/x", former_names: &former, is_private: false }));
        // What its forge hides is hidden, but for a rule.
        assert!(!may(&Access::default(), AccessedName { is_private: true, ..called("f/x") }));
    }

    #[test]
    fn what_is_hidden_looks_like_what_is_not_there() {
        let access = Access {
            public: true,
            rules: vec![AccessRule {
                repositories: vec!["secret".to_owned()],
                tokens: vec!["ci".to_owned()],
                addresses: vec!["10.0.0.0/8".parse().unwrap()],
                ..AccessRule::default()
            }],
            tokens: vec![
                Token { name: "ci".to_owned(), sha256: Sha256::digest("open").into() },
                Token { name: "other".to_owned(), sha256: Sha256::digest("else").into() },
            ],
        };
        let with = |token: Option<&str>| Client {
            address: Some(([192, 0, 2, 1], 1).into()),
            token: token.map(str::to_owned),
            ..Client::default()
        };
        assert_eq!(access.check(&called("public/x"), &with(None)), Ok(()));
        assert_eq!(access.check(&called("secret/x"), &with(Some("open"))), Ok(()));
        let near = Client::at(Some(("::ffff:10.1.2.3".parse::<IpAddr>().unwrap(), 1).into()));
        assert_eq!(access.check(&called("secret/x"), &near), Ok(()));
        for token in [None, Some("wrong"), Some("else"), Some("")] {
            let client = with(token);
            assert_eq!(
                access.check(&called("secret/x"), &client),
                Err(access.not_there("secret/x", &client)),
                "{token:?}"
            );
        }
        assert!(matches!(access.check(&called("secret"), &with(None)), Err(Refusal::Unauthorized(_))));
        assert!(matches!(access.check(&called("secret"), &with(Some("else"))), Err(Refusal::NotFound(_))));
        let open = Access::default();
        assert!(matches!(open.not_there("x", &with(None)), Refusal::NotFound(_)));
    }
}
