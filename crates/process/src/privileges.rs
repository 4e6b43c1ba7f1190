//! Giving up the rights of root.

use std::ffi::{CString, NulError};

use nix::unistd::{Gid, Group, Uid, User, initgroups, setgid, setuid};

/// A failure to become another user.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// There is no user of this name.
    #[error("user not found - {0}")]
    NoUser(String),
    /// There is no group of this name.
    #[error("group not found - {0}")]
    NoGroup(String),
    /// The name of the user has a zero byte.
    #[error(transparent)]
    Name(#[from] NulError),
    /// Users or groups cannot be looked up.
    #[error("cannot look up the {0}: {1}")]
    LookUp(&'static str, nix::Error),
    /// The kernel refuses.
    #[error("cannot drop privileges: {0}")]
    Refused(nix::Error),
}

/// Makes the process one of `user` and of `group`, or of the user's own group, for good.
///
/// # Errors
/// If one of them does not exist, or the process may not.
pub fn drop_privileges(user: &str, group: Option<&str>) -> Result<(), PrivilegeError> {
    let found = User::from_name(user).map_err(|e| PrivilegeError::LookUp("user", e))?;
    let user = found.ok_or_else(|| PrivilegeError::NoUser(user.to_owned()))?;
    let gid = match group {
        None => user.gid,
        Some(name) => {
            let found = Group::from_name(name).map_err(|e| PrivilegeError::LookUp("group", e))?;
            found.ok_or_else(|| PrivilegeError::NoGroup(name.to_owned()))?.gid
        }
    };
    let name = CString::new(user.name)?;
    let dropped = initgroups(&name, gid).and_then(|()| setgid(gid)).and_then(|()| setuid(user.uid));
    dropped.map_err(PrivilegeError::Refused)?;
    assert!(Uid::effective() == user.uid && Gid::effective() == gid, "the kernel made another user of it");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_of_unknown_names_are_errors() {
        let unknown = "no-such-name-of-weir";
        assert!(
            matches!(drop_privileges(unknown, None), Err(PrivilegeError::NoUser(name)) if name == unknown)
        );
        let error = drop_privileges("root", Some(unknown));
        assert!(matches!(error, Err(PrivilegeError::NoGroup(name)) if name == unknown));
    }
}
