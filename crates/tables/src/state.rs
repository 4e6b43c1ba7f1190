//! What was mined of a repository, as datasets keep it.

use serde::{Deserialize, Serialize};
use weir_git::Oid;
use weir_mine::{MinedRefs, MinedState};

/// A [`MinedState`]. A ref is its id and its name, in which each byte is a character. What the first version
/// of weir did not keep may be absent.
#[derive(Serialize, Deserialize)]
pub(crate) struct OriginState {
    #[serde(flatten)]
    refs: OriginRefs,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    joins: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unread: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum OriginRefs {
    Archive {
        seq: u64,
    },
    Directory {
        visits: u64,
        refs: Vec<(String, String)>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        past: Vec<String>,
    },
}

fn texts(ids: &[Oid]) -> Vec<String> {
    ids.iter().map(Oid::to_hex).collect()
}

fn ids(texts: Vec<String>) -> std::result::Result<Vec<Oid>, &'static str> {
    let mut ids = texts
        .iter()
        .map(|text| Oid::from_hex_any(text.as_bytes()))
        .collect::<Option<Vec<_>>>()
        .ok_or("it names a bad id")?;
    ids.sort_unstable();
    Ok(ids)
}

impl OriginState {
    /// Returns what is kept of `state`.
    pub(crate) fn of(state: &MinedState) -> Option<OriginState> {
        let refs = match &state.refs {
            MinedRefs::Nothing => return None,
            MinedRefs::Archive { seq } => OriginRefs::Archive { seq: *seq },
            MinedRefs::Directory { visits, refs, past } => {
                let text = |name: &[u8]| name.iter().map(|&byte| char::from(byte)).collect();
                let refs = refs.iter().map(|(name, oid)| (oid.to_hex(), text(name))).collect();
                OriginRefs::Directory { visits: *visits, refs, past: texts(past) }
            }
        };
        let joins = state.joins.as_deref().map(texts);
        let head = state.head.map(|oid| oid.to_hex());
        Some(OriginState { refs, joins, head, unread: state.unread.clone() })
    }

    /// Returns the state that is kept.
    ///
    /// # Errors
    /// If a ref or an id is malformed.
    pub(crate) fn into_state(self) -> std::result::Result<MinedState, &'static str> {
        let refs = match self.refs {
            OriginRefs::Archive { seq } => MinedRefs::Archive { seq },
            OriginRefs::Directory { visits, refs, past } => {
                let read = |(id, name): (String, String)| {
                    let name = name.chars().map(|c| u8::try_from(c).ok()).collect::<Option<Vec<u8>>>()?;
                    Some((name, Oid::from_hex_any(id.as_bytes())?))
                };
                let refs = refs.into_iter().map(read).collect::<Option<Vec<_>>>();
                let mut refs = refs.ok_or("it names a bad ref")?;
                refs.sort_unstable();
                MinedRefs::Directory { visits, refs, past: ids(past)? }
            }
        };
        let head =
            self.head.map(|id| Oid::from_hex_any(id.as_bytes()).ok_or("it names a bad id")).transpose()?;
        Ok(MinedState { refs, joins: self.joins.map(ids).transpose()?, head, unread: self.unread })
    }
}
