//! Repositories served as a git configuration says: ordinary git directories as their own does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_repo::{GitConfig, Repo, Result, open_directory};
use weir_upload::Features;

use crate::cache::{HttpFeatures, Opened};

/// How git directories are shown.
#[derive(Clone, Debug, Default)]
pub struct Presentation {
    /// Only refs of this namespace (gitnamespaces); empty for all.
    pub namespace: String,
    /// The user's own git configuration, which a repository's stands above.
    pub user: GitConfig,
    /// Whether archives, and what they consist of, may be had as files over HTTP: all they hold, reachable or not.
    pub files: bool,
}

impl Presentation {
    /// Opens the git directory at `path`, or the `.git` below it, and shows of it what its configuration allows.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn open(&self, path: &Path) -> Result<Opened> {
        let repo = open_directory(path)?;
        let config = std::fs::read(repo.git_dir().join("config")).unwrap_or_default();
        Ok(self.present(repo, &config))
    }

    /// Opens the archive at `path` and shows of it what `config`, the text of a git configuration, allows.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open_archive(&self, path: &Path, config: &[u8]) -> Result<Opened> {
        Ok(self.present(Repo::open_archive(path)?, config))
    }

    fn present(&self, mut repo: Repo, own: &[u8]) -> Opened {
        let mut config = self.user.clone();
        config.extend(own);
        let hidden: Vec<&str> = config.all(&["transfer.hiderefs", "uploadpack.hiderefs"]).collect();
        repo.present(&self.namespace, &hidden);
        let mut features = Features::from_git_config(&config);
        if config.truth("transfer.advertisesid") == Some(true) {
            features.session_id = Some(session_id());
        }
        let truth = |key: &str| config.truth(key).unwrap_or(true);
        let http = HttpFeatures { files: truth("http.getanyfile"), upload_pack: truth("http.uploadpack") };
        Opened { repo: Arc::new(repo), features: Some(features), http }
    }
}

/// Where git looks for a repository called `path`: with `.git` below or behind it, unless `strict`.
pub fn candidates(path: &Path, strict: bool) -> impl Iterator<Item = PathBuf> {
    let suffixes: &[&str] = if strict { &[""] } else { &["/.git", "", ".git/.git", ".git"] };
    let path = path.as_os_str().to_owned();
    suffixes.iter().map(move |suffix| {
        let mut candidate = path.clone();
        candidate.push(suffix);
        PathBuf::from(candidate)
    })
}

/// Something no other conversation of this machine is called.
fn session_id() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("weir-{}.{:06}-P{:08x}", now.as_secs(), now.subsec_micros(), std::process::id())
}
