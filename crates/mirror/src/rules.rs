//! Determines the settings of one repository: its own, those of rules about names, or those for forges.

use std::collections::HashMap;

use weir_catalog::{Repository, Settings};
use weir_ground::name_matches;

use crate::options::VisitOptions;
use crate::refs_wanted::RefsWanted;

/// Settings for repositories whose names match.
#[derive(Clone, Debug)]
pub struct SettingsRule {
    /// The patterns of their names.
    pub repositories: Vec<String>,
    /// Their settings, where a repository has none of its own.
    pub settings: Settings,
}

/// The patterns of refs to mirror of repositories that forges list.
#[derive(Clone, Debug, Default)]
pub struct ForgeRefs {
    /// The patterns for some forges, by the names of these.
    pub named: HashMap<String, Vec<String>>,
    /// The patterns for all other forges; if empty, the general ones hold.
    pub others: Vec<String>,
}

impl ForgeRefs {
    /// Returns the patterns for `repository`, if a forge lists it.
    fn of(&self, repository: &Repository) -> Option<&Vec<String>> {
        let (forge, _) = repository.forge.as_deref()?.split_once(' ')?;
        Some(self.named.get(forge).unwrap_or(&self.others)).filter(|refs| !refs.is_empty())
    }
}

/// Returns the settings of `repository`: its own, else those of the first of `rules` that has the setting.
/// For refs, the last choice is `forge_refs`, if a forge lists it.
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

/// Returns `options` with the settings `own`, if that changes them.
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
