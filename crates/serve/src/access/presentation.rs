//! Shows repositories as a git configuration says; an ordinary git directory has its own configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_repo::{ConfigScope, GitConfig, Repo, Result, folders_of, open_directory};
use weir_upload::Features;

use crate::access::locate::Found;
use crate::access::opened::{HttpFeatures, Opened};

/// How git directories are shown.
#[derive(Clone, Debug, Default)]
pub struct Presentation {
    /// The namespace whose refs are shown (gitnamespaces); empty for all refs.
    pub namespace: String,
    /// The git configuration files of the system and the user; a repository's own configuration overrides
    /// them.
    pub files_before: Vec<PathBuf>,
    /// The folder that `~/` stands for in them.
    pub home: PathBuf,
    /// The configuration in the environment, which overrides all files.
    pub environment: GitConfig,
    /// Whether archives and their parts are served as files over HTTP, with all objects, reachable or not.
    pub files: bool,
}

impl Presentation {
    /// Opens the repository that a [`crate::Locator`] has found.
    ///
    /// # Errors
    /// If it cannot be read, or has no such state.
    pub fn open_found(&self, found: &Found) -> Result<(Arc<Repo>, Features)> {
        match found {
            Found::Archive(path) => Ok((Arc::new(Repo::open_archive(path)?), Features::default())),
            Found::OlderState(path, state) => {
                let older = Repo::open_archive(path)?.at_state(*state)?;
                let none = || weir_repo::Error::NotFound(format!("no state {state}"));
                Ok((Arc::new(older.ok_or_else(none)?), Features::default()))
            }
            Found::Directory(path) => {
                let Opened { repo, features, .. } = self.open(path)?;
                Ok((repo, features.unwrap_or_default()))
            }
        }
    }

    /// Opens the git directory at `path`, or the `.git` below it, and shows what its configuration allows.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn open(&self, path: &Path) -> Result<Opened> {
        let repo = open_directory(path)?;
        self.present(repo, &self.config_of(path)?)
    }

    /// Opens the archive at `path` and shows what the git configuration in the file `config` allows.
    ///
    /// # Errors
    /// If one of the two cannot be read.
    pub fn open_archive(&self, path: &Path, config: &Path) -> Result<Opened> {
        let mut all = self.config_before(None)?;
        all.read(config, self.scope(None))?;
        all.append(&self.environment);
        self.present(Repo::open_archive(path)?, &all)
    }

    /// Returns the configuration that git finds for the directory at `path`: the system's, the user's, the
    /// repository's, the worktree's, and the environment's (git-config, "Files").
    ///
    /// # Errors
    /// If a file cannot be read, or is malformed.
    pub fn config_of(&self, path: &Path) -> Result<GitConfig> {
        let (git_dir, common) = folders_of(path)?;
        let mut all = self.config_before(Some(&git_dir))?;
        all.read(&common.join("config"), self.scope(Some(&git_dir)))?;
        if all.truth("extensions.worktreeconfig")? == Some(true) {
            all.read(&git_dir.join("config.worktree"), self.scope(Some(&git_dir)))?;
        }
        all.append(&self.environment);
        Ok(all)
    }

    fn scope<'s>(&'s self, git_dir: Option<&'s Path>) -> ConfigScope<'s> {
        ConfigScope { git_dir, home: &self.home }
    }

    fn config_before(&self, git_dir: Option<&Path>) -> Result<GitConfig> {
        let mut config = GitConfig::default();
        for file in &self.files_before {
            config.read(file, self.scope(git_dir))?;
        }
        Ok(config)
    }

    fn present(&self, mut repo: Repo, config: &GitConfig) -> Result<Opened> {
        let hidden: Vec<&str> = config.all(&["transfer.hiderefs", "uploadpack.hiderefs"]).collect();
        repo.present(&self.namespace, &hidden);
        let mut features = Features::from_git_config(config)?;
        if config.truth("transfer.advertisesid")? == Some(true) {
            features.session_id = Some(session_id());
        }
        let truth = |key: &str| -> Result<bool> { Ok(config.truth(key)?.unwrap_or(true)) };
        let http = HttpFeatures { files: truth("http.getanyfile")?, upload_pack: truth("http.uploadpack")? };
        Ok(Opened { repo: Arc::new(repo), features: Some(features), http })
    }
}

/// Returns where git looks for a repository called `path`: with `.git` below or behind it, unless `strict`.
pub fn candidates(path: &Path, strict: bool) -> impl Iterator<Item = PathBuf> {
    let suffixes: &[&str] = if strict { &[""] } else { &["/.git", "", ".git/.git", ".git"] };
    let path = path.as_os_str().to_owned();
    suffixes.iter().map(move |suffix| {
        let mut candidate = path.clone();
        candidate.push(suffix);
        PathBuf::from(candidate)
    })
}

/// Returns an id that no other conversation on this machine has.
fn session_id() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("weir-{}.{:06}-P{:08x}", now.as_secs(), now.subsec_micros(), std::process::id())
}
