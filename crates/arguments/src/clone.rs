//! Flags of `weir clone`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

#[derive(Args)]
pub struct CloneArgs {
    /// Repository to clone: any URL that git accepts, an archive, or the name of a repository of the pool
    #[arg(value_hint = ValueHint::AnyPath)]
    pub repository: String,
    /// Directory to clone into [default: the last part of the URL]
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
    /// Create a bare repository
    #[arg(long)]
    pub bare: bool,
    /// Do not check anything out
    #[arg(long, short)]
    pub no_checkout: bool,
    /// Call the remote NAME [default: origin]
    #[arg(long, short, value_name = "NAME")]
    pub origin: Option<String>,
    /// Check out BRANCH instead of the remote's HEAD
    #[arg(long, short, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Verify the hash of every object, as 'git clone' does, not only of what refs name and what is checked
    /// out; always done over http:// from another machine
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub git: GitCloneArgs,
}

// Options that mean what they mean to git. With any of them, weir hands over to `git clone`.
#[derive(Args)]
#[command(next_help_heading = "Options that weir hands to git clone")]
pub struct GitCloneArgs {
    /// Clone only the last N commits of each branch
    #[arg(long, value_name = "N")]
    depth: Option<String>,
    /// Clone only commits after TIME
    #[arg(long, value_name = "TIME")]
    shallow_since: Option<String>,
    /// Leave out the commits that REF reaches
    #[arg(long, value_name = "REF")]
    shallow_exclude: Vec<String>,
    /// Make a partial clone, for example with blob:none
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Clone only the history of one branch
    #[arg(long)]
    single_branch: bool,
    /// Clone the histories of all branches, with --depth too
    #[arg(long, conflicts_with = "single_branch")]
    no_single_branch: bool,
    /// Clone no tags
    #[arg(long)]
    no_tags: bool,
    /// Create a bare repository with all refs of the remote
    #[arg(long)]
    mirror: bool,
    /// Clone submodules, too, or those that match PATHSPEC
    #[arg(long, visible_alias = "recursive", value_name = "PATHSPEC", num_args = 0..=1, require_equals = true,
        default_missing_value = ".")]
    recurse_submodules: Vec<String>,
    /// Clone submodules with a depth of 1
    #[arg(long)]
    shallow_submodules: bool,
    /// Borrow objects from the repository at PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    reference: Vec<PathBuf>,
    /// The same, if there is a repository
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    reference_if_able: Vec<PathBuf>,
    /// Copy what was borrowed
    #[arg(long)]
    dissociate: bool,
    /// Check out only the files at the top
    #[arg(long)]
    sparse: bool,
    /// Set a key of the new repository's configuration
    #[arg(long, short, value_name = "KEY=VALUE")]
    config: Vec<String>,
    /// Number of submodules to clone in parallel
    #[arg(long, short, value_name = "N")]
    jobs: Option<String>,
    /// Program to run on the other side of an ssh connection
    #[arg(long, short, value_name = "PROGRAM")]
    upload_pack: Option<String>,
    /// Directory with templates of files of the new repository
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    template: Option<PathBuf>,
    /// Put the repository there, and only a link to it into the working tree
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    separate_git_dir: Option<PathBuf>,
}

impl GitCloneArgs {
    /// Returns whether the program on the other side was chosen.
    pub fn names_upload_pack(&self) -> bool {
        self.upload_pack.is_some()
    }

    /// Returns whether the new repository is a mirror, which is bare.
    pub fn is_mirror(&self) -> bool {
        self.mirror
    }

    /// Returns the options as words for git.
    pub fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let mut value = |name: &str, value: OsString| {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value);
            words.push(word);
        };
        for (name, given) in [
            ("--depth", &self.depth),
            ("--shallow-since", &self.shallow_since),
            ("--filter", &self.filter),
            ("--jobs", &self.jobs),
            ("--upload-pack", &self.upload_pack),
        ] {
            given.iter().for_each(|given| value(name, given.into()));
        }
        for (name, given) in [
            ("--shallow-exclude", &self.shallow_exclude),
            ("--recurse-submodules", &self.recurse_submodules),
            ("--config", &self.config),
        ] {
            given.iter().for_each(|given| value(name, given.into()));
        }
        let (template, separate) = (self.template.iter(), self.separate_git_dir.iter());
        self.reference.iter().for_each(|path| value("--reference", path.into()));
        self.reference_if_able.iter().for_each(|path| value("--reference-if-able", path.into()));
        template.for_each(|path| value("--template", path.into()));
        separate.for_each(|path| value("--separate-git-dir", path.into()));
        for (name, is_given) in [
            ("--single-branch", self.single_branch),
            ("--no-single-branch", self.no_single_branch),
            ("--no-tags", self.no_tags),
            ("--mirror", self.mirror),
            ("--shallow-submodules", self.shallow_submodules),
            ("--dissociate", self.dissociate),
            ("--sparse", self.sparse),
        ] {
            words.extend(is_given.then(|| name.into()));
        }
        words
    }
}
