//! What was mined of a repository, as datasets keep it.

use serde::{Deserialize, Serialize};
use weir_git::Oid;
use weir_mine::MinedState;

/// A [`MinedState`]. A ref is its id and its name, in which each byte is a character.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum OriginState {
    Archive { seq: u64 },
    Directory { visits: u64, refs: Vec<(String, String)> },
}

impl OriginState {
    /// Returns what is kept of `state`.
    pub(crate) fn of(state: &MinedState) -> Option<OriginState> {
        match state {
            MinedState::Nothing => None,
            MinedState::Archive { seq } => Some(OriginState::Archive { seq: *seq }),
            MinedState::Directory { visits, refs } => {
                let text = |name: &[u8]| name.iter().map(|&byte| char::from(byte)).collect();
                let refs = refs.iter().map(|(name, oid)| (oid.to_hex(), text(name))).collect();
                Some(OriginState::Directory { visits: *visits, refs })
            }
        }
    }

    /// Returns the state that is kept.
    ///
    /// # Errors
    /// If a ref is malformed.
    pub(crate) fn into_state(self) -> std::result::Result<MinedState, &'static str> {
        let (visits, refs) = match self {
            OriginState::Archive { seq } => return Ok(MinedState::Archive { seq }),
            OriginState::Directory { visits, refs } => (visits, refs),
        };
        let read = |(id, name): (String, String)| {
            let name = name.chars().map(|c| u8::try_from(c).ok()).collect::<Option<Vec<u8>>>()?;
            Some((name, Oid::from_hex_any(id.as_bytes())?))
        };
        let mut refs = refs.into_iter().map(read).collect::<Option<Vec<_>>>().ok_or("it names a bad ref")?;
        refs.sort_unstable();
        Ok(MinedState::Directory { visits, refs })
    }
}
