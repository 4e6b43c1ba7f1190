//! What holds for one repository: what is said of it alone, by a rule about names, or of what forges list.

use std::collections::HashMap;

use weir_catalog::{Repository, Settings};
use weir_ground::name_matches;

use crate::options::VisitOptions;
use crate::refs_wanted::RefsWanted;

/// What holds for repositories whose names match.
#[derive(Clone, Debug)]
pub struct SettingsRule {
    /// Patterns of their names.
    pub repositories: Vec<String>,
    /// What holds for them, where nothing is said of one alone.
    pub settings: Settings,
}

/// Patterns of the refs that are mirrored of what forges list.
#[derive(Clone, Debug, Default)]
pub struct ForgeRefs {
    /// Of some forges, by their names.
    pub named: HashMap<String, Vec<String>>,
    /// Of all others; empty where those of all repositories hold.
    pub others: Vec<String>,
}

impl ForgeRefs {
    /// Those of `repository`, if a forge lists it.
    fn of(&self, repository: &Repository) -> Option<&Vec<String>> {
        let (forge, _) = repository.forge.as_deref()?.split_once(' ')?;
        Some(self.named.get(forge).unwrap_or(&self.others)).filter(|refs| !refs.is_empty())
    }
}

/// What holds for `repository`: what is said of it alone, else by the first of `rules` that says something,
/// else, of what a forge lists, those that `forge_refs` say.
pub(crate) fn settings_of(
    repository: &Repository,
    rules: &[SettingsRule],
    forge_refs: &ForgeRefs,
) -> Settings {
    let is_about = |rule: &&SettingsRule| {
        rule.repositories.iter().any(|pattern| name_matches(pattern, &repository.name))
    };
    let mut settings =
        rules.iter().filter(is_about).fold(repository.settings.clone(), |own, rule| own.or(&rule.settings));
    if settings.refs.is_none() {
        settings.refs = forge_refs.of(repository).cloned();
    }
    settings
}

/// `options` with what `own` says, if that is something else.
pub(crate) fn own_options(own: &Settings, options: &VisitOptions) -> Option<VisitOptions> {
    let refs = own.refs.as_ref().and_then(|patterns| {
        let parsed = RefsWanted::parse(patterns);
        parsed.inspect_err(|why| tracing::warn!("ignoring the repository's own 'refs' setting: {why}")).ok()
    });
    let refs = refs.filter(|refs| *refs != options.refs);
    let lfs = own.lfs.unwrap_or(options.lfs);
    (refs.is_some() || lfs != options.lfs).then(|| VisitOptions {
        refs: refs.unwrap_or_else(|| options.refs.clone()),
        lfs,
        ..options.clone()
    })
}
