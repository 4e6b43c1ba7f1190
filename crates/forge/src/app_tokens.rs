//! Tokens of a GitHub App for clones: each of the installation at whom a repository belongs to
//! (docs.github.com/apps: "Authenticating as a GitHub App installation", "HTTP-based Git access").

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::Result;
use crate::api::{Api, INSTALLATION_TOKEN_S, RENEWED_BEFORE_S, now};

/// Time until an owner who was not known is looked for again, in seconds.
const LOOK_AGAIN_S: u64 = 600;

/// Tokens by owner, kept while they hold.
pub struct AppTokens {
    inner: Mutex<Inner>,
}

struct Inner {
    api: Api,
    /// Installations by the names of owners, in small letters.
    owners: HashMap<String, u64>,
    looked_at: u64,
    /// Tokens, and until when they hold.
    tokens: HashMap<u64, (String, u64)>,
    /// Installations that gave none, and until when they are not asked.
    refused: HashMap<u64, u64>,
}

impl AppTokens {
    /// Those of the App that `api` was made with.
    pub fn new(api: Api) -> AppTokens {
        AppTokens {
            inner: Mutex::new(Inner {
                api,
                owners: HashMap::new(),
                looked_at: 0,
                tokens: HashMap::new(),
                refused: HashMap::new(),
            }),
        }
    }

    /// A token for what `owner` owns; `None` if the App is not installed there.
    ///
    /// # Errors
    /// If the forge gives none.
    pub fn token_for(&self, owner: &str) -> Result<Option<String>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (owner, now) = (owner.to_lowercase(), now());
        if !inner.owners.contains_key(&owner) && inner.looked_at + LOOK_AGAIN_S <= now {
            // Whatever comes of it: everybody waits for this.
            inner.looked_at = now;
            let found = inner.api.installations()?;
            inner.owners = found.into_iter().map(|(id, login)| (login.to_lowercase(), id)).collect();
        }
        let Some(&installation) = inner.owners.get(&owner) else { return Ok(None) };
        match inner.tokens.get(&installation) {
            Some((token, until)) if *until > now + RENEWED_BEFORE_S => Ok(Some(token.clone())),
            _ if inner.refused.get(&installation).is_some_and(|until| *until > now) => Ok(None),
            _ => {
                inner.refused.insert(installation, now + LOOK_AGAIN_S);
                let token = inner.api.installation_token(installation)?;
                inner.refused.remove(&installation);
                inner.tokens.insert(installation, (token.clone(), now + INSTALLATION_TOKEN_S));
                Ok(Some(token))
            }
        }
    }
}
