//! Remedies: what a user can do about an error, in commands of this program.

use std::fmt::Display;

use weir_catalog::VisitFailure;
use weir_ground::FailureClass;
use weir_pool::CheckRemedy;

use crate::error::Error;

/// An error about which a user may be able to do something.
pub(crate) trait Remediable: Display {
    /// Returns what can be done, if the error does not say so itself.
    fn remedy(&self) -> Option<String>;

    /// Returns the error, followed by what can be done.
    fn with_remedy(&self) -> String {
        match self.remedy() {
            Some(remedy) => format!("{self}; {remedy}"),
            None => self.to_string(),
        }
    }
}

impl Remediable for Error {
    fn remedy(&self) -> Option<String> {
        match self {
            Error::NoPool(_) => Some("make one with 'weir init', or name another with --pool".to_owned()),
            Error::Catalog(e) => e.remedy(),
            Error::Pool(e) => e.remedy(),
            Error::Tables(e) => e.remedy(),
            Error::Work(e) => e.remedy(),
            Error::Workspace(e) => e.remedy(),
            _ => None,
        }
    }
}

impl Remediable for weir_archive::Error {
    fn remedy(&self) -> Option<String> {
        use weir_archive::Error as ArchiveError;
        match self {
            ArchiveError::Damaged { .. } => Some("run 'weir fsck' on it".to_owned()),
            ArchiveError::Tail(_) => Some("run 'weir fsck --repair' on it".to_owned()),
            _ => None,
        }
    }
}

impl Remediable for weir_repo::Error {
    fn remedy(&self) -> Option<String> {
        match self {
            weir_repo::Error::Archive(e) => e.remedy(),
            weir_repo::Error::Base { source, .. } => source.remedy(),
            _ => None,
        }
    }
}

impl Remediable for weir_catalog::Error {
    fn remedy(&self) -> Option<String> {
        let is_needed = matches!(self, weir_catalog::Error::BuiltOn { .. });
        is_needed.then(|| "run 'weir dissociate' on them first".to_owned())
    }
}

impl Remediable for weir_pool::Error {
    fn remedy(&self) -> Option<String> {
        use weir_pool::Error as PoolError;
        Some(match self {
            PoolError::Catalog(e) => return e.remedy(),
            PoolError::Repo { source, .. } | PoolError::NotRewritten(source) => return source.remedy(),
            PoolError::NoName(_) => "choose a name with --name".to_owned(),
            PoolError::NoPool(_) => "make one with 'weir init'".to_owned(),
            PoolError::NoCatalog(path) => format!(
                "restore it from a backup, or run 'weir init {}', then 'weir adopt' to register its archives \
                again",
                path.display()
            ),
            PoolError::NoConfig(path) => {
                format!("restore it, or run 'weir init {}' for the defaults", path.display())
            }
            PoolError::NoMatch(_) => "run 'weir ls' to list all".to_owned(),
            PoolError::NotOne { name, .. } => format!("run 'weir ls {name}' to list them"),
            PoolError::NotMirrored(name) => format!("run 'weir mirror {name}'"),
            PoolError::ArchiveMissing { name, .. } => clone_again(name),
            PoolError::NoState { name, .. } => format!("run 'weir log {name}' to list its states"),
            PoolError::Doubtful(_) => "use --force to register it anyway".to_owned(),
            PoolError::OtherUpstream { .. } => {
                "choose another name with --name, or delete that file".to_owned()
            }
            PoolError::HasBase { name, .. } => format!("run 'weir dissociate {name}' first"),
            PoolError::NeedsBase { name, .. } => {
                format!("run 'weir dissociate {name}' first, or delete it with --delete")
            }
            PoolError::TooManyGone { .. } => {
                "check them with 'weir purge --dry-run', and if that is right, raise --purge-protect"
                    .to_owned()
            }
            _ => return None,
        })
    }
}

impl Remediable for weir_pool::AdoptError {
    fn remedy(&self) -> Option<String> {
        match self {
            weir_pool::AdoptError::Unread(e) => e.remedy(),
            weir_pool::AdoptError::NoUpstream(name) => {
                Some(format!("register it as it is with 'weir add --name {name} URL'"))
            }
            _ => None,
        }
    }
}

impl Remediable for weir_tables::Error {
    fn remedy(&self) -> Option<String> {
        match self {
            weir_tables::Error::OtherSettings { format, flags, .. } => {
                let to = format.as_ref().map_or_else(String::new, |format| format!("--to {format} "));
                Some(format!("give the same again, '{to}{flags}', or choose another place"))
            }
            _ => None,
        }
    }
}

impl Remediable for weir_work::Error {
    fn remedy(&self) -> Option<String> {
        use weir_work::Error as WorkError;
        match self {
            WorkError::Repo { source, .. } => source.remedy(),
            WorkError::Pool(e) => e.remedy(),
            WorkError::Workspace(e) => e.remedy(),
            WorkError::NoUrl(_) => Some("'weir workspace add' takes names of the pool, and paths".to_owned()),
            WorkError::Elsewhere(_) => {
                Some("'weir workspace attach' shows what a weir serves, 'weir add' mirrors it".to_owned())
            }
            WorkError::NoNamespace(_) => {
                Some("'weir workspace doctor' says what there is instead".to_owned())
            }
            _ => None,
        }
    }
}

impl Remediable for weir_workspace::Error {
    fn remedy(&self) -> Option<String> {
        use weir_workspace::Error as WorkspaceError;
        Some(match self {
            WorkspaceError::Repo(e) => return e.remedy(),
            WorkspaceError::NoWorkspace(_) => "'weir workspace ls' lists them".to_owned(),
            WorkspaceError::NotMounted => "'weir workspace mount' mounts it".to_owned(),
            WorkspaceError::Mount { remedy, .. } if remedy.is_empty() => {
                "'weir workspace doctor' says what this machine lacks".to_owned()
            }
            WorkspaceError::Unfinished { folder, other, note } => format!(
                "'weir workspace switch {} {other}' ends it, or 'git reset --hard' takes it back, with all \
                other changes, after which '{}' is to be removed",
                folder.display(),
                note.display()
            ),
            _ => return None,
        })
    }
}

fn clone_again(name: &str) -> String {
    format!("run 'weir mirror {name}' to clone it again")
}

/// Returns what to do about a finding of a check.
pub(crate) fn of_finding(remedy: &CheckRemedy) -> String {
    match remedy {
        CheckRemedy::NewCatalog => {
            "restore it from a backup, or make a new pool for the store with 'weir adopt'".to_owned()
        }
        CheckRemedy::CheckContent => "'weir fsck' checks their content".to_owned(),
        CheckRemedy::CloneAgain(name) => clone_again(name),
        CheckRemedy::MoveAway(name) => format!("move it away and {}", clone_again(name)),
        CheckRemedy::Repair(name) => format!("run 'weir fsck --repair {name}'"),
        CheckRemedy::Register => "run 'weir adopt' to register it".to_owned(),
        CheckRemedy::RenameAndRegister => "rename the file, then run 'weir adopt' to register it".to_owned(),
        CheckRemedy::SeeRejected(name) => format!("see 'weir events rejected --of {name}'"),
        CheckRemedy::DropRejected(name) => {
            format!("drop them with 'weir events rejected --of {name} --drop'")
        }
        CheckRemedy::ListMore => "use --max-count to list more".to_owned(),
        CheckRemedy::Class(class) => of_class(*class).to_owned(),
    }
}

/// Returns the setting or option that is the remedy for a failed visit of the repository called `name`, if
/// one is.
pub(crate) fn of_failure(name: &str, failure: &VisitFailure) -> Option<String> {
    match failure.exceeded.as_deref() {
        Some(rate @ "bytes_per_second_min") => {
            Some(format!("to allow that, lower transport.{rate} in weir.toml"))
        }
        Some(time) => Some(format!("to wait longer, raise transport.{time} in weir.toml")),
        None => match failure.class {
            FailureClass::Emptied => Some("to drop them, run 'weir mirror --accept-empty'".to_owned()),
            FailureClass::Damaged => Some(format!("run 'weir fsck --repair {name}'")),
            _ => None,
        },
    }
}

/// Returns what to do about failed visits of a class.
pub(crate) fn of_class(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Network | FailureClass::Server => "nothing; weir tries again",
        FailureClass::Slow => {
            "if the upstream needs longer, raise 'first_byte_timeout', 'pack_start_timeout' or \
            'idle_timeout' of [transport] in weir.toml, or lower 'bytes_per_second_min'; otherwise nothing: \
            weir tries again"
        }
        FailureClass::Certificate => {
            "add its CA to 'transport.ca_file' in weir.toml, correct the host in the URL, or tell the \
            upstream's administrator"
        }
        FailureClass::Gone => "run 'weir rm NAME' if it is gone for good; the archive is kept",
        FailureClass::Forbidden => {
            "configure credentials: netrc, tokens of a [[forge]], or a credential helper"
        }
        FailureClass::Protocol | FailureClass::BadPack => {
            "check the URL; if it is right, tell the upstream's administrator"
        }
        FailureClass::Local => "fix the problem on this machine that the message names",
        FailureClass::Incomplete => {
            "tell the upstream's administrator; if only other refs are broken, run 'weir set NAME --refs \
            heads-and-tags'"
        }
        FailureClass::Limit => "raise the limit that the message names in weir.toml",
        FailureClass::DiskFull => "free disk space",
        FailureClass::Emptied => {
            "if that is right, run 'weir mirror --accept-empty NAME'; if not, fix the patterns of its 'refs'"
        }
        FailureClass::Damaged | FailureClass::Base => "run 'weir fsck --repair NAME'",
        FailureClass::Store => "mount the store",
        FailureClass::Fenced => "nothing; weir visits it again",
        FailureClass::Defect => "a bug in weir: please report it",
    }
}
