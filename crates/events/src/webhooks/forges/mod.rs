//! What the forges send: a file each, for one form of deliveries.

pub(crate) mod azure_devops;
pub(crate) mod bitbucket;
pub(crate) mod generic;
pub(crate) mod gerrit;
pub(crate) mod github;
pub(crate) mod gitlab;
pub(crate) mod sourceforge;
pub(crate) mod sourcehut;
