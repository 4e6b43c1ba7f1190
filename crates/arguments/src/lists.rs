//! The states and keys of lists, as words of the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use weir_pool::{RepositoryState, SortKey};

const SORT_KEYS: [(&str, SortKey, &str); 6] = [
    ("name", SortKey::Name, "Name, in byte order"),
    ("size", SortKey::Size, "Size of the archive, largest first"),
    ("refs", SortKey::Refs, "Number of refs, most first"),
    ("changed", SortKey::Changed, "Time of the last change, latest first"),
    ("updated", SortKey::Updated, "Time of the last successful visit, latest first"),
    ("added", SortKey::Added, "Time of registration, latest first"),
];

/// Returns the parser of states.
pub fn states() -> impl TypedValueParser<Value = RepositoryState> {
    let word = |state: RepositoryState| PossibleValue::new(state.name()).help(state.meaning());
    let state = |name: String| RepositoryState::ALL.into_iter().find(|state| state.name() == name);
    PossibleValuesParser::new(RepositoryState::ALL.map(word))
        .map(move |name| state(name).expect("other words are refused"))
}

/// Returns the parser of keys to sort by.
pub fn sort_keys() -> impl TypedValueParser<Value = SortKey> {
    let word = |(name, _, help): (&'static str, SortKey, &'static str)| PossibleValue::new(name).help(help);
    let key = |name: String| SORT_KEYS.into_iter().find(|(known, ..)| *known == name).map(|(_, key, _)| key);
    PossibleValuesParser::new(SORT_KEYS.map(word))
        .map(move |name| key(name).expect("other words are refused"))
}
