//! Tokens of a GitHub App for clones. The token for a repository is that of the App's installation at its
//! owner (docs.github.com/apps: "Authenticating as a GitHub App installation", "HTTP-based Git access").

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::Result;
use crate::api::{Api, INSTALLATION_TOKEN_S, RENEWED_BEFORE_S};
use crate::api_answer::now;

/// Time until an unknown owner is looked up again, in seconds.
const LOOK_AGAIN_S: u64 = 600;

/// Tokens by owner, kept while they are valid.
pub struct AppTokens {
    inner: Mutex<Inner>,
}

struct Inner {
    api: Api,
    /// Installations by the names of owners, in lower case.
    owners: HashMap<String, u64>,
    looked_at: u64,
    /// Tokens by installation, and until when they are valid.
    tokens: HashMap<u64, (String, u64)>,
    /// Installations that gave no token, and until when they are not asked again.
    refused: HashMap<u64, u64>,
}

impl AppTokens {
    /// Returns the tokens of the App in the options of `api`.
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

    /// Returns a token for the repositories of `owner`; `None` if the App is not installed there.
    ///
    /// # Errors
    /// If the forge gives no token.
    pub fn token_for(&self, owner: &str) -> Result<Option<String>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (owner, now) = (owner.to_lowercase(), now());
        if !inner.owners.contains_key(&owner) && inner.looked_at + LOOK_AGAIN_S <= now {
            // Set even if the request fails, and so not repeated at once: all other threads wait meanwhile.
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
