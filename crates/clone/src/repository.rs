//! The new repository: where its parts go, its configuration and refs as git writes them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use weir_git::HashKind;
use weir_ground::FileError;
use weir_repo::Repo;
use weir_transport::{Scheme, Url};

use crate::description::Description;
use crate::error::{Error, Result};

/// The file with the description of a clone that is not complete yet.
const UNFINISHED: &str = "weir-clone.json";

/// Where the parts of the new repository go.
pub(crate) struct Target {
    /// The working tree, or the bare repository.
    pub(crate) top: PathBuf,
    pub(crate) git_dir: PathBuf,
}

impl Target {
    /// Returns the paths of a repository at `top`.
    ///
    /// # Errors
    /// If something is there that is not an unfinished clone.
    pub(crate) fn new(top: &Path, is_bare: bool) -> Result<Target> {
        let git_dir = if is_bare { top.to_owned() } else { top.join(".git") };
        let target = Target { top: top.to_owned(), git_dir };
        let is_empty = || !fs::read_dir(top).is_ok_and(|mut entries| entries.next().is_some());
        if target.unfinished().exists() || is_empty() { Ok(target) } else { Err(Error::NotEmpty(target.top)) }
    }

    /// Returns the path of the file that describes an unfinished clone.
    pub(crate) fn unfinished(&self) -> PathBuf {
        self.git_dir.join(UNFINISHED)
    }

    /// Makes the folders. Returns the folder for packs.
    pub(crate) fn prepare(&self) -> Result<PathBuf> {
        for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
            let path = self.git_dir.join(folder);
            fs::create_dir_all(&path).map_err(FileError::on("make", &path))?;
        }
        Ok(self.git_dir.join("objects/pack"))
    }

    /// Opens the repository, the objects of which have this format, before it has refs and a configuration.
    pub(crate) fn open(&self, object_format: &str) -> Result<Repo> {
        let format = format!(
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = {object_format}\n"
        );
        for (name, text) in [("HEAD", "ref: refs/heads/main\n"), ("config", &format)] {
            let path = self.git_dir.join(name);
            fs::write(&path, text).map_err(FileError::on("write", &path))?;
        }
        weir_repo::open_directory(&self.git_dir).map_err(Error::repo("the clone"))
    }

    /// Removes a repository that failed a check, so that no later attempt resumes from it. Nothing else was
    /// there.
    pub(crate) fn discard(&self) {
        let _ = fs::remove_dir_all(&self.git_dir);
    }
}

/// The HEAD of the new repository.
pub(crate) enum ChosenHead {
    /// A branch, with its commit unless it is unborn.
    Branch {
        /// Its name, without `refs/heads/`.
        name: String,
        /// The id of its commit.
        oid: Option<String>,
    },
    /// A commit, or a tag of one.
    Detached(String),
    /// The upstream has no HEAD.
    None,
}

impl ChosenHead {
    /// Returns the HEAD of a clone that checks out `branch`, or else the upstream's HEAD.
    ///
    /// # Errors
    /// If the upstream has no branch or tag of that name.
    pub(crate) fn of(description: &Description, branch: Option<&str>, origin: &str) -> Result<ChosenHead> {
        if let Some(name) = branch {
            return if let Some(oid) = description.oid_of(&format!("refs/heads/{name}")) {
                Ok(ChosenHead::Branch { name: name.to_owned(), oid: Some(oid.clone()) })
            } else if let Some(oid) = description.oid_of(&format!("refs/tags/{name}")) {
                Ok(ChosenHead::Detached(oid.clone()))
            } else {
                Err(Error::NoBranch { branch: name.to_owned(), origin: origin.to_owned() })
            };
        }
        Ok(match (branch_of(description), &description.head_oid) {
            (Some(name), oid) => ChosenHead::Branch { name: name.to_owned(), oid: oid.clone() },
            (None, Some(oid)) => ChosenHead::Detached(oid.clone()),
            (None, None) => ChosenHead::None,
        })
    }

    /// Returns the id that would be checked out.
    pub(crate) fn oid(&self) -> Option<&str> {
        match self {
            ChosenHead::Branch { oid, .. } => oid.as_deref(),
            ChosenHead::Detached(oid) => Some(oid),
            ChosenHead::None => None,
        }
    }

    /// Returns the id that HEAD itself names.
    pub(crate) fn detached(&self) -> Option<&str> {
        match self {
            ChosenHead::Detached(oid) => Some(oid),
            _ => None,
        }
    }
}

/// Returns the branch that the upstream's HEAD names.
fn branch_of(description: &Description) -> Option<&str> {
    description.head.as_ref()?.strip_prefix("refs/heads/")
}

/// The remote in the configuration.
pub(crate) struct Remote<'a> {
    pub(crate) name: &'a str,
    pub(crate) url: &'a Url,
    pub(crate) upload_pack: Option<&'a str>,
}

/// Writes configuration and refs as git does.
pub(crate) fn write_repository(
    target: &Target,
    is_bare: bool,
    remote: &Remote<'_>,
    description: &Description,
    head: &ChosenHead,
) -> Result<()> {
    let write = |name: &str, text: String| -> Result<()> {
        let path = target.git_dir.join(name);
        let fail = FileError::on("write", &path);
        fs::create_dir_all(path.parent().unwrap_or(&target.git_dir)).map_err(fail)?;
        Ok(fs::write(&path, text).map_err(fail)?)
    };
    // Without a header that promises peeled tags: git peels them when it packs refs the next time.
    write("packed-refs", packed_refs(description, (!is_bare).then_some(remote.name)))?;
    match head {
        ChosenHead::Branch { name, oid } => {
            write("HEAD", format!("ref: refs/heads/{name}\n"))?;
            if let (Some(oid), false) = (oid, is_bare) {
                write(&format!("refs/heads/{name}"), format!("{oid}\n"))?;
            }
        }
        ChosenHead::Detached(oid) => write("HEAD", format!("{oid}\n"))?,
        ChosenHead::None => write("HEAD", "ref: refs/heads/main\n".to_owned())?,
    }
    if let (Some(name), false) = (branch_of(description), is_bare)
        && description.oid_of(&format!("refs/heads/{name}")).is_some()
    {
        let origin = remote.name;
        write(&format!("refs/remotes/{origin}/HEAD"), format!("ref: refs/remotes/{origin}/{name}\n"))?;
    }
    write("config", config(is_bare, remote, &description.object_format, head))
}

/// Writes `packed-refs` to the git directory of `target` with the ids that tags peel to, as the server says.
pub(crate) fn write_peeled_refs(target: &Target, description: &Description) -> Result<()> {
    let Some(peeled) = &description.peeled else { return Ok(()) };
    let peeled: HashMap<&String, &String> = peeled.iter().map(|(name, oid)| (name, oid)).collect();
    let mut refs: Vec<&(String, String)> = description.refs.iter().collect();
    refs.sort();
    let mut text = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
    for (name, oid) in refs {
        text.push_str(&format!("{oid} {name}\n"));
        if let Some(peeled) = peeled.get(name) {
            text.push_str(&format!("^{peeled}\n"));
        }
    }
    let path = target.git_dir.join("packed-refs");
    Ok(fs::write(&path, text).map_err(FileError::on("write", &path))?)
}

/// Returns `packed-refs`: branches below `refs/remotes/ORIGIN`, if there is one, and tags.
fn packed_refs(description: &Description, origin: Option<&str>) -> String {
    let mut names: Vec<(String, &String)> = Vec::new();
    for (name, oid) in &description.refs {
        match (name.strip_prefix("refs/heads/"), origin) {
            (Some(short), Some(origin)) => names.push((format!("refs/remotes/{origin}/{short}"), oid)),
            _ => names.push((name.clone(), oid)),
        }
    }
    names.sort();
    names.iter().map(|(name, oid)| format!("{oid} {name}\n")).collect()
}

fn config(is_bare: bool, remote: &Remote<'_>, object_format: &str, head: &ChosenHead) -> String {
    let origin = remote.name;
    let is_sha1 = object_format == HashKind::Sha1.name();
    let mut config = format!(
        "[core]\n\trepositoryformatversion = {}\n\tfilemode = true\n\tbare = {is_bare}\n",
        i32::from(!is_sha1),
    );
    if !is_bare {
        config.push_str("\tlogallrefupdates = true\n");
    }
    if !is_sha1 {
        config.push_str(&format!("[extensions]\n\tobjectformat = {object_format}\n"));
    }
    config.push_str(&format!("[remote {}]\n\turl = {}\n", quoted(origin), quoted(&remote_url(remote.url))));
    if let Some(upload_pack) = remote.upload_pack {
        config.push_str(&format!("\tuploadpack = {}\n", quoted(upload_pack)));
    }
    if is_bare {
        return config;
    }
    config.push_str(&format!("\tfetch = {}\n", quoted(&format!("+refs/heads/*:refs/remotes/{origin}/*"))));
    if let ChosenHead::Branch { name, .. } = head {
        config.push_str(&format!(
            "[branch {}]\n\tremote = {origin}\n\tmerge = {}\n",
            quoted(name),
            quoted(&format!("refs/heads/{name}"))
        ));
    }
    config
}

/// Returns a string quoted for git's configuration.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the URL of the remote. It is absolute, so that it means the same from another folder.
fn remote_url(url: &Url) -> String {
    if url.scheme != Scheme::Local {
        return url.as_str().to_owned();
    }
    let path = url.local_path();
    fs::canonicalize(&path).unwrap_or(path).display().to_string()
}
