//! Asks a forge about single repositories.

use weir_catalog::Unseen;
use weir_forge::{Error, Forge};
use weir_listed::Listed;

use crate::no_name::NoName;

/// The number of repositories in a row about which the forge does not answer, after which it counts as down.
const FAILED_IN_ROW_MAX: usize = 5;

/// The answers of a forge about repositories.
#[derive(Default)]
pub(crate) struct ForgeAnswers {
    /// The numbers of those that it does not have.
    pub(crate) gone: Vec<i64>,
    /// Those that it has, with the names that they get here.
    pub(crate) there: Vec<(String, Listed)>,
}

/// Asks `forge`, which has the name `name` in the catalog, about each of `repositories`; `name_of` returns
/// the names that they get here. Only a repository that the forge reports as missing is gone.
/// `failed_in_row` counts those in a row without an answer.
///
/// # Errors
/// If the forge fails for all of them.
pub(crate) fn ask(
    name: &str,
    name_of: &dyn Fn(&Listed) -> Result<Option<String>, NoName>,
    forge: &mut dyn Forge,
    repositories: &[Unseen],
    failed_in_row: &mut usize,
) -> Result<ForgeAnswers, Error> {
    let mut answers = ForgeAnswers::default();
    for one in repositories {
        forge.expect_public(one.is_public);
        let found = match Listed::of_wiki(&one.forge_id) {
            Some(id) => forge.one(id).map(|listed| listed.and_then(|listed| listed.wiki_repository())),
            None => forge.one(&one.forge_id),
        };
        match found {
            Ok(None) => answers.gone.push(one.id),
            // A repository that exists is kept, even if it would not be wanted today.
            Ok(Some(listed)) => answers
                .there
                .push(((name_of)(&listed).ok().flatten().unwrap_or_else(|| one.name.clone()), listed)),
            // The error holds for every repository, not only for this one.
            Err(e) if e.is_of_all() => return Err(e),
            // The repository may be blocked, for example: whether it exists is unknown. Go on with the
            // others.
            Err(e) => {
                tracing::warn!(forge = name, repository = %one.name,
                    "cannot tell whether it still exists: {e}");
                *failed_in_row += 1;
                if *failed_in_row >= FAILED_IN_ROW_MAX && matches!(e, Error::Unavailable { .. }) {
                    return Err(e);
                }
                continue;
            }
        }
        *failed_in_row = 0;
    }
    Ok(answers)
}
