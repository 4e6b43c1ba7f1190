//! Access control: tokens, addresses, and rules by name.
//!
//! A repository that a client may not read looks to it as if it did not exist.

use std::net::IpAddr;

use ipnet::IpNet;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use weir_ground::name_matches;

use crate::access::locate::{Client, Refusal};

/// A token with which clients authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The name by which rules refer to it.
    pub name: String,
    /// SHA-256 of the token: the configuration holds no secrets.
    pub sha256: [u8; 32],
    /// Whether its client may manage the pool.
    pub manages: bool,
}

/// Which clients may read some repositories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRule {
    /// Patterns of the repositories' names (see [`name_matches`]).
    pub repositories: Vec<String>,
    /// Every client may read them.
    pub public: bool,
    /// Clients that present one of these tokens, given by name, may read them.
    pub tokens: Vec<String>,
    /// Clients from one of these networks may read them.
    pub addresses: Vec<IpNet>,
}

/// The repository that a client asks for, as rules see it.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessedName<'a> {
    /// Its name.
    pub name: &'a str,
    /// Names that it had before.
    pub former_names: &'a [String],
    /// Whether its forge hides it from the public: then this server hides it, too, unless a rule opens it.
    pub is_private: bool,
}

/// Rules in order: the first that names a repository decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether repositories that no rule names are public.
    pub public: bool,
    /// The rules.
    pub rules: Vec<AccessRule>,
    /// The tokens that the rules refer to.
    pub tokens: Vec<Token>,
}

impl Default for Access {
    fn default() -> Self {
        Access { public: true, rules: Vec::new(), tokens: Vec::new() }
    }
}

impl Access {
    /// Checks whether `client` may read `asked`. A hidden repository is refused as if it did not exist.
    ///
    /// The first rule about its name decides; for a wiki without a rule, the rule about its repository. If
    /// there are rules about a former name, or about the part of a name before a `~`, they must allow it,
    /// too: a rule that hid a repository goes on hiding it, whatever its forge calls it by now.
    ///
    /// # Errors
    /// If it may not: [`Refusal::Unauthorized`] if another token might help, else [`Refusal::NotFound`].
    pub fn check(&self, asked: &AccessedName<'_>, client: &Client) -> Result<(), Refusal> {
        // A manager can remove repositories, and so can read them, too.
        if self.may_manage(client) {
            return Ok(());
        }
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
            // The words are the same as for a repository that does not exist.
            false if self.tokens.is_empty() || token.is_some() => Err(self.not_there(asked.name, client)),
            false => Err(Access::needs_token()),
        }
    }

    fn rule_about(&self, name: &str) -> Option<&AccessRule> {
        self.rules.iter().find(|rule| rule.repositories.iter().any(|pattern| name_matches(pattern, name)))
    }

    /// Returns the refusal for a name without a repository: the same as for one that is hidden from `client`.
    pub fn not_there(&self, name: &str, client: &Client) -> Refusal {
        let is_unknown = self.token_of(client).is_none();
        let hides_any = !self.public || self.rules.iter().any(|rule| !rule.public);
        if is_unknown && hides_any && !self.tokens.is_empty() {
            Access::needs_token()
        } else {
            Refusal::NotFound(format!("no such repository: {name}"))
        }
    }

    /// Returns the refusal of a client for which a token might help.
    pub fn needs_token() -> Refusal {
        Refusal::Unauthorized(UNAUTHORIZED.to_owned())
    }

    /// Returns whether `client`, which presents no token, could present one that manages the pool. Clients of
    /// git send a password only to a server that asks for one.
    pub fn could_manage(&self, client: &Client) -> bool {
        client.token.is_none() && self.tokens.iter().any(|token| token.manages)
    }

    /// Returns whether `client` may manage the pool.
    pub fn may_manage(&self, client: &Client) -> bool {
        self.shown(client).is_some_and(|token| token.manages)
    }

    /// Returns whether `client` presents a token that nobody has. Without tokens, what a client presents is
    /// for a proxy in front.
    pub fn is_mistaken(&self, client: &Client) -> bool {
        !self.tokens.is_empty() && client.token.is_some() && self.shown(client).is_none()
    }

    /// Returns whether any client may manage the pool.
    pub fn has_managers(&self) -> bool {
        self.tokens.iter().any(|token| token.manages)
    }

    /// Returns the name of the token that `client` presents.
    pub fn token_of(&self, client: &Client) -> Option<&str> {
        self.shown(client).map(|token| token.name.as_str())
    }

    /// Returns the token that `client` presents. Compares all tokens, each in constant time.
    fn shown(&self, client: &Client) -> Option<&Token> {
        if let Some(name) = &client.known_as {
            return self.tokens.iter().find(|token| token.name == *name);
        }
        let shown: [u8; 32] = Sha256::digest(client.token.as_ref()?).into();
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.sha256.ct_eq(&shown)) {
                found = Some(token);
            }
        }
        found
    }
}

/// Returns the name of the repository whose wiki is `name`, if that is the name of a wiki.
fn without_wiki(name: &str) -> Option<&str> {
    name.strip_suffix(".wiki")
}

/// Returns `NAME` of `NAME~ID`: a repository is called so after another has taken its name.
fn before_set_aside(name: &str) -> Option<&str> {
    let (before, _) = name.rsplit_once('~')?;
    // A part of a name may begin with `~`, as on sourcehut.
    (!before.is_empty() && !before.ends_with('/')).then_some(before)
}

const UNAUTHORIZED: &str = "authentication required: use a token as the password";

/// Returns the IPv4 address for one that came over an IPv6 socket.
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
        // A rule that opens a repository does not open it if another rule hid it under a former name.
        let opened = Access {
            public: false,
            rules: vec![rule("f/corp/secret", false), rule("f/open", true)],
            tokens: Vec::new(),
        };
        let elsewhere = ["f/elsewhere".to_owned()];
        assert!(may(&opened, AccessedName { name: "f/open/x", former_names: &elsewhere, is_private: true }));
        assert!(may(&opened, called("f/open/x.wiki")));
        assert!(!may(&opened, AccessedName { name: "f/open/x", former_names: &former, is_private: false }));
        // A repository that its forge hides is hidden, unless a rule opens it.
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
                Token { name: "ci".to_owned(), sha256: Sha256::digest("open").into(), manages: false },
                Token { name: "other".to_owned(), sha256: Sha256::digest("else").into(), manages: true },
                Token { name: "reader".to_owned(), sha256: Sha256::digest("reads").into(), manages: false },
            ],
        };
        let with = |token: Option<&str>| Client {
            address: Some(([192, 0, 2, 1], 1).into()),
            token: token.map(str::to_owned),
            ..Client::default()
        };
        assert_eq!(access.check(&called("public/x"), &with(None)), Ok(()));
        assert_eq!(access.check(&called("secret/x"), &with(Some("open"))), Ok(()));
        let manages = |token| access.may_manage(&with(token));
        assert_eq!(
            [Some("else"), Some("open"), Some("wrong"), None].map(manages),
            [true, false, false, false]
        );
        let near = Client::at(Some(("::ffff:10.1.2.3".parse::<IpAddr>().unwrap(), 1).into()));
        assert_eq!(access.check(&called("secret/x"), &near), Ok(()));
        assert_eq!(access.check(&called("secret/x"), &with(Some("else"))), Ok(()), "it manages");
        for token in [None, Some("wrong"), Some("reads"), Some("")] {
            let client = with(token);
            assert_eq!(
                access.check(&called("secret/x"), &client),
                Err(access.not_there("secret/x", &client)),
                "{token:?}"
            );
        }
        assert!(matches!(access.check(&called("secret"), &with(None)), Err(Refusal::Unauthorized(_))));
        assert!(matches!(access.check(&called("secret"), &with(Some("reads"))), Err(Refusal::NotFound(_))));
        let open = Access::default();
        assert!(matches!(open.not_there("x", &with(None)), Refusal::NotFound(_)));
    }
}
