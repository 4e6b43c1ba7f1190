//! `workspace`: writable working trees that are mounted, not checked out.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use weir_arguments::{Global, WorkspaceCommand};
use weir_pool::open_local;
use weir_repo::{CommitTrees, Repo};
use weir_terminal::{output, warn_line};
use weir_work::{
    AttachedSource, NamedCommit, NamedSource, SwitchOutcome, Switcher, answer_monitor, attach, attached_to,
    check_namespace, has_namespace, hold, mounted_in_namespace, serve_remote, waits_for, whole,
};
use weir_workspace::{
    Added, Forked, GIT_THAT_ASKS, GitVersion, Monitor, MountWay, NewFork, NewWorkspace, Workspace,
    Workspaces, changed_since, diagnosis, git, is_mounted, may_mount,
};

use crate::client::client_transport;
use crate::error::{Error, Result, SOME_FAILED};
use crate::own_processes::{LAUNCHER, close_inherited, run_in_namespace, say_mounted};
use crate::pool::open_pool;
use crate::remedies::Remediable;
use crate::workspace_records::state_folder;
use crate::workspace_status::status;

pub(crate) fn workspace(global: &Global, command: &WorkspaceCommand) -> Result<ExitCode> {
    let root = state_folder()?;
    let workspaces = Workspaces::new(root.clone());
    let in_namespace = || run_in_namespace(&root, &std::env::args_os().skip(1).collect::<Vec<_>>());
    if mounts(command) && !may_mount() {
        return in_namespace();
    }
    match command {
        WorkspaceCommand::Add { source, folder, fuse_overlayfs } => {
            let version = GitVersion::ask();
            let source = NamedSource::parse(source, || Ok(open_pool(global)?))?;
            let repo = source.open()?;
            let named = source.commit(&repo, None)?;
            let (source, repo, named) = (&source, &repo, &named);
            let read = OpenSource { source, repo, named, version, url: None, listed: None };
            add(global, &workspaces, read, folder, *fuse_overlayfs)?;
        }
        WorkspaceCommand::Attach { source, folder, fuse_overlayfs, no_background_fetch } => {
            let transport = |url: &str| Ok(client_transport(global, url)?);
            let mut attached = attach(&LAUNCHER, &transport, &workspaces, source, *no_background_fetch)?;
            let path = attached.source.path.clone();
            let added = add_attached(global, &workspaces, &mut attached, folder, *fuse_overlayfs);
            let added = added.map_err(|e| attached.explain().map_or(e, Error::from));
            added.inspect_err(|_| workspaces.release(&path))?;
        }
        WorkspaceCommand::Remote { place } => {
            close_inherited();
            serve_remote(place, &|url| Ok(client_transport(global, url)?), say_mounted)?;
        }
        WorkspaceCommand::Status { folders, all, watch, interval } => {
            let list = match &folders[..] {
                _ if *all => workspaces.list()?,
                [] => vec![workspaces.find(&std::env::current_dir()?)?],
                _ => named(&workspaces, folders)?,
            };
            let is_here = |workspace: &Workspace| is_mounted(&workspace.folder);
            if !may_mount() && has_namespace(&root) && !list.iter().all(is_here) {
                return in_namespace();
            }
            let interval = Duration::try_from_secs_f64(*interval).map_err(Error::of)?;
            return status(global, &workspaces, &list, watch.then_some(interval));
        }
        WorkspaceCommand::Fork { from, folder } => fork(global, &workspaces, from, folder)?,
        WorkspaceCommand::Switch { folder, revision, mount } => {
            let workspace = workspaces.find(&whole(folder)?)?;
            if !is_mounted(&workspace.folder) && !may_mount() && !workspace.uses_fuse_overlayfs {
                return in_namespace();
            }
            switch(global, &workspaces, &workspace, revision, *mount)?;
        }
        WorkspaceCommand::Ls => list(global, &root, &workspaces)?,
        WorkspaceCommand::Rm { folders, force } => {
            return remove_each(global, &root, &workspaces, folders, *force);
        }
        WorkspaceCommand::Shell { folder, command } => return shell(&root, &workspaces, folder, command),
        WorkspaceCommand::Doctor => return doctor(global, &root),
        WorkspaceCommand::Hold { root: Some(root) } => {
            close_inherited();
            hold(root, || drop(say_mounted()))?;
        }
        WorkspaceCommand::Hold { root: None } => check_namespace()?,
        WorkspaceCommand::Monitor { root } => {
            close_inherited();
            answer_monitor(root, say_mounted)?;
        }
        WorkspaceCommand::Fsmonitor { place, protocol, token } => print_changed(place, *protocol, token)?,
        WorkspaceCommand::Mount { folders } => return mount_again(global, &root, &workspaces, folders),
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows another commit in a workspace.
fn switch(
    global: &Global,
    workspaces: &Workspaces,
    workspace: &Workspace,
    revision: &str,
    prefers_mount: bool,
) -> Result<()> {
    let warn = |e: &weir_workspace::Error| {
        warn_line!("warning: {e}; nothing that is new there is known here");
    };
    let switcher = Switcher { launcher: &LAUNCHER, workspaces, prefers_mount, warn: &warn };
    let SwitchOutcome { target, files } = switcher.switch(workspace, revision)?;
    if global.json {
        let said = json!({ "commit": target.commit.to_string(), "branch": target.branch, "files": files });
        return Ok(output::json(&said)?);
    }
    if !global.quiet {
        let at = target.branch.unwrap_or_else(|| target.commit.to_string()[..12].to_owned());
        writeln!(output::stdout(), "{} is at {at}, {files} files differ", workspace.folder.display())?;
    }
    Ok(())
}

/// Prints what has changed since `token` in the working tree that this process is in, as git asks a hook.
fn print_changed(place: &Path, protocol: u32, token: &str) -> Result<()> {
    if protocol != 2 {
        return Err(Error::Message(format!("version {protocol} of fsmonitor is not known")));
    }
    let answer = changed_since(place, &std::env::current_dir()?, token)?;
    Ok(std::io::stdout().write_all(&answer)?)
}

/// Returns whether a command lets the kernel mount a new workspace.
fn mounts(command: &WorkspaceCommand) -> bool {
    match command {
        WorkspaceCommand::Add { fuse_overlayfs, .. } | WorkspaceCommand::Attach { fuse_overlayfs, .. } => {
            !fuse_overlayfs
        }
        WorkspaceCommand::Fork { .. } => true,
        _ => false,
    }
}

/// Mounts the workspaces of these folders, or all.
fn mount_again(
    global: &Global,
    root: &Path,
    workspaces: &Workspaces,
    folders: &[PathBuf],
) -> Result<ExitCode> {
    let (here, there) = by_place(match folders {
        [] => workspaces.list()?,
        _ => named(workspaces, folders)?,
    });
    let mounted = mount(global, workspaces, &here)?;
    let mounted_there = run_there(global, root, "mount", None, &there)?;
    Ok(if mounted == ExitCode::SUCCESS { mounted_there } else { mounted })
}

/// Returns the workspaces of these folders.
fn named(workspaces: &Workspaces, folders: &[PathBuf]) -> Result<Vec<Workspace>> {
    folders.iter().map(|folder| named_one(workspaces, folder)).collect()
}

fn named_one(workspaces: &Workspaces, folder: &Path) -> Result<Workspace> {
    Ok(workspaces.find(&whole(folder)?)?)
}

/// Calls `work` for each of `list`, and returns what it returned. Prints errors, and goes on.
fn each<T, R>(list: &[T], work: impl Fn(&T) -> Result<R>) -> Vec<R> {
    let print = |e: &Error| warn_line!("error: {}", e.with_remedy());
    list.iter().filter_map(|one| work(one).inspect_err(print).ok()).collect()
}

/// Parts the workspaces that this process can mount from those that are in the namespace of the user.
fn by_place(list: Vec<Workspace>) -> (Vec<Workspace>, Vec<Workspace>) {
    let is_privileged = may_mount();
    list.into_iter().partition(|workspace| is_privileged || workspace.uses_fuse_overlayfs)
}

/// Runs `weir workspace VERB` in the namespace of the user for the workspaces of `list`.
fn run_there(
    global: &Global,
    root: &Path,
    verb: &str,
    flag: Option<&str>,
    list: &[Workspace],
) -> Result<ExitCode> {
    if list.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let flags = [global.quiet.then_some("--quiet"), global.json.then_some("--json")];
    let words = flags.into_iter().flatten().chain(["workspace", verb]).chain(flag);
    let folders = list.iter().map(|workspace| workspace.folder.clone().into_os_string());
    let args: Vec<OsString> = words.map(OsString::from).chain(folders).collect();
    run_in_namespace(root, &args)
}

/// An open repository and the commit that a new workspace shows.
struct OpenSource<'a> {
    source: &'a NamedSource,
    repo: &'a Repo,
    named: &'a NamedCommit,
    version: GitVersion,
    /// The URL of the upstream, if the repository does not say.
    url: Option<&'a str>,
    /// The trees of the commit, if the objects are on another machine.
    listed: Option<&'a CommitTrees>,
}

/// Makes a workspace of an attached clone.
fn add_attached(
    global: &Global,
    workspaces: &Workspaces,
    attached: &mut AttachedSource,
    folder: &Path,
    uses_fuse_overlayfs: bool,
) -> Result<()> {
    let version = GitVersion::ask();
    let repo = attached.source.open()?;
    let (named, listed) = attached.commit(&repo)?;
    let url = attached.url()?;
    let source = &attached.source;
    let (repo, named) = (&repo, &named);
    let read = OpenSource { source, repo, named, version, url: Some(&url), listed: Some(&listed) };
    add(global, workspaces, read, folder, uses_fuse_overlayfs)
}

fn add(
    global: &Global,
    workspaces: &Workspaces,
    read: OpenSource<'_>,
    folder: &Path,
    uses_fuse_overlayfs: bool,
) -> Result<()> {
    let OpenSource { source, repo, named, version, url, listed } = read;
    let folder = whole(folder)?;
    let new = NewWorkspace {
        folder: &folder,
        repository: &source.name,
        source: &source.path,
        repo,
        url,
        commit: named.commit,
        listed,
        branch: named.branch.as_deref(),
        now: now(),
        uses_fuse_overlayfs,
        monitor: &monitor()?,
        asks: if uses_fuse_overlayfs { Monitor::None } else { version.monitor() },
        ignores: &ignored_names,
    };
    let Added { workspace: made, converts } = workspaces.add(&new, &LAUNCHER)?;
    if let Some(attributes) = converts {
        warn_line!(
            "warning: '{attributes}' asks git to convert files (eol, ident, encodings or filters); the \
            workspace has them as they are stored"
        );
    }
    if global.json {
        return Ok(output::json(&json(&made, true))?);
    }
    if !global.quiet {
        let on = made.branch.as_deref().unwrap_or(&made.commit[..12]);
        writeln!(output::stdout(), "{} of {} is at {}", on, made.repository, made.folder.display())?;
    }
    Ok(())
}

/// Returns the time, in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Returns the command by which git asks what has changed.
fn monitor() -> Result<String> {
    let program = std::env::current_exe()?.display().to_string().replace('\'', "'\\''");
    Ok(format!("'{program}' workspace fsmonitor"))
}

fn fork(global: &Global, workspaces: &Workspaces, from: &Path, folder: &Path) -> Result<()> {
    let from = workspaces.find(&whole(from)?)?;
    let name = from.folder.display().to_string();
    let new = NewFork { folder: &whole(folder)?, now: now(), monitor: &monitor()? };
    let Forked { workspace, was_in_use } = workspaces.fork(from, &new, &LAUNCHER)?;
    if was_in_use {
        warn_line!("warning: programs that are in '{name}' see it as it was, read-only; 'cd \"$PWD\"' helps");
    }
    if global.json {
        return Ok(output::json(&json(&workspace, true))?);
    }
    if !global.quiet {
        writeln!(output::stdout(), "{} is forked to {}", name, workspace.folder.display())?;
    }
    Ok(())
}

/// Returns the content of the user's file of ignored names (gitignore(5)). If git finds another, it only
/// reads the folders of the workspace once.
fn ignored_names() -> Option<Vec<u8>> {
    let said = git(Path::new("/"), &["config", "--path", "core.excludesFile"]).ok();
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let config = || folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    let path = said.map(|said| PathBuf::from(said.trim_end())).or_else(|| Some(config()?.join("git/ignore")));
    std::fs::read(path?).ok()
}

fn json(workspace: &Workspace, is_mounted: bool) -> serde_json::Value {
    json!({
        "folder": workspace.folder,
        "repository": workspace.repository,
        "source": workspace.source,
        "commit": workspace.commit,
        "branch": workspace.branch,
        "made_at": workspace.made_at,
        "uses_fuse_overlayfs": workspace.uses_fuse_overlayfs,
        "mounted": is_mounted,
        "waits_for": waiting(workspace),
    })
}

/// Returns what a workspace waits for that another machine has.
fn waiting(workspace: &Workspace) -> Option<String> {
    attached_to(&workspace.source).and_then(waits_for)
}

fn list(global: &Global, root: &Path, workspaces: &Workspaces) -> Result<()> {
    let there = mounted_in_namespace(root);
    let is_mounted = |it: &Workspace| is_mounted(&it.folder) || there.contains(&it.folder);
    let list = workspaces.list()?;
    // Where it is not mounted here, it is known with what it began.
    let now = |it: &Workspace| {
        let began = (it.commit.clone(), it.branch.clone());
        workspaces.head(it).map_or(began, |(commit, branch)| (commit.to_string(), branch))
    };
    let state = |workspace: &Workspace| match (
        is_mounted(workspace),
        weir_workspace::is_mounted(&workspace.folder),
    ) {
        (true, true) if !workspaces.is_alive(workspace) => "broken",
        (true, _) if waiting(workspace).is_some() => "waits",
        (true, _) => "mounted",
        _ => "away",
    };
    if global.json {
        return Ok(output::json_array(list.iter().map(|it| {
            let (state, mut it) = (state(it), it.clone());
            (it.commit, it.branch) = now(&it);
            let mut shown = json(&it, !matches!(state, "away" | "broken"));
            shown["state"] = state.into();
            shown
        }))?);
    }
    let head = ["STATE", "COMMIT", "BRANCH", "REPOSITORY", "FOLDER"].map(str::to_owned).to_vec();
    let row = |workspace: &Workspace| {
        let (commit, branch) = now(workspace);
        vec![
            state(workspace).to_owned(),
            commit[..12].to_owned(),
            branch.unwrap_or_else(|| "-".to_owned()),
            workspace.repository.clone(),
            workspace.folder.display().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(list.iter().map(row)).collect();
    output::table(&rows, &[])?;
    for workspace in &list {
        if let Some(what) = waiting(workspace) {
            warn_line!("'{}' waits for {what}", workspace.folder.display());
        }
    }
    Ok(())
}

/// Removes the workspaces of these folders, and goes on after one that is not removed.
fn remove_each(
    global: &Global,
    root: &Path,
    workspaces: &Workspaces,
    folders: &[PathBuf],
    force: bool,
) -> Result<ExitCode> {
    let mut found = each(folders, |folder| named_one(workspaces, folder));
    let not_found = folders.len() - found.len();
    // The user may name a workspace twice, by different paths.
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    found.dedup_by(|a, b| a.folder == b.folder);
    let (here, there) = by_place(found);
    let removed = each(&here, |workspace| remove(global, workspaces, workspace, force));
    let code = run_there(global, root, "rm", force.then_some("--force"), &there)?;
    let is_any_removed = !removed.is_empty() || !there.is_empty() && code != ExitCode::FAILURE;
    Ok(match not_found + here.len() - removed.len() {
        0 => code,
        _ if is_any_removed => ExitCode::from(SOME_FAILED),
        _ => ExitCode::FAILURE,
    })
}

fn remove(global: &Global, workspaces: &Workspaces, workspace: &Workspace, force: bool) -> Result<()> {
    if is_mounted(&workspace.folder) {
        // A daemon of git's own would keep the folder in use.
        workspaces.mend_monitor(workspace, &LAUNCHER);
    }
    if !force && let Some(why) = workspaces.unsaved(workspace, open_local(&workspace.source).ok().as_ref())? {
        let folder = workspace.folder.display();
        return Err(Error::Message(format!("'{folder}' is not removed: {why}; --force removes it")));
    }
    workspaces.remove(workspace)?;
    if !global.quiet && !global.json {
        writeln!(output::stdout(), "removed {}", workspace.folder.display())?;
    }
    Ok(())
}

fn mount(global: &Global, workspaces: &Workspaces, list: &[Workspace]) -> Result<ExitCode> {
    let mut has_failed = false;
    for workspace in list {
        match workspaces.mount(workspace, &LAUNCHER) {
            Ok(()) if global.quiet => {}
            Ok(()) => writeln!(output::stdout(), "mounted {}", workspace.folder.display())?,
            Err(e) => {
                has_failed = true;
                warn_line!("error: {}: {}", workspace.folder.display(), e.with_remedy());
            }
        }
    }
    Ok(if has_failed { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// Runs a command, or a shell, in a workspace. Returns if it cannot be started.
fn shell(root: &Path, workspaces: &Workspaces, folder: &Path, command: &[OsString]) -> Result<ExitCode> {
    let folder = whole(folder)?;
    let workspace = workspaces.find(&folder)?;
    if !is_mounted(&workspace.folder) {
        let args = ["-q".into(), "workspace".into(), "mount".into(), workspace.folder.clone().into()];
        if may_mount() || workspace.uses_fuse_overlayfs {
            workspaces.mount(&workspace, &LAUNCHER)?;
        } else {
            let status = run_in_namespace(root, &args)?;
            if status != ExitCode::SUCCESS {
                return Ok(status);
            }
            // This process may be in the namespace already.
            if !is_mounted(&workspace.folder) {
                LAUNCHER.enter_namespace(root)?;
            }
        }
    }
    if !is_mounted(&workspace.folder) {
        return Err(Error::Message(format!("'{}' is not mounted here", workspace.folder.display())));
    }
    std::env::set_current_dir(&folder).map_err(weir_ground::FileError::on("enter", &folder))?;
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    let shell = [shell.unwrap_or_else(|| "/bin/sh".into())];
    let (program, args) = match command {
        [] => (&shell[0], &[][..]),
        [program, args @ ..] => (program, args),
    };
    let e =
        Command::new(program).args(args).env("PWD", &folder).env("WEIR_WORKSPACE", &workspace.folder).exec();
    warn_line!("error: cannot start '{}': {e}", program.display());
    // As shells say it.
    Ok(ExitCode::from(if e.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }))
}

/// Says what this machine has for workspaces.
fn doctor(global: &Global, root: &Path) -> Result<ExitCode> {
    let found = diagnosis(root, &std::env::var_os("PATH").unwrap_or_default(), LAUNCHER.try_namespace());
    let code = if found.way.is_some() { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) };
    if global.json {
        output::json(&found)?;
        return Ok(code);
    }
    let row = |need: &weir_workspace::Need| {
        let state = if need.is_there { "yes" } else { "no" };
        vec![need.name.to_owned(), state.to_owned(), need.remark.clone()]
    };
    let head = ["WHAT", "THERE", "REMARK"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(found.needs.iter().map(row)).collect();
    output::table(&rows, &[])?;
    let said = match found.way {
        Some(MountWay::Kernel) => "The kernel mounts workspaces, and all processes see them.",
        Some(MountWay::Namespace) => {
            "The kernel mounts workspaces in a namespace of yours: 'weir workspace shell DIR' shows them."
        }
        Some(MountWay::FuseOverlayfs) => {
            "'weir workspace add --fuse-overlayfs' mounts workspaces, with its faults."
        }
        None => "This machine can mount no workspaces: see what is not there.",
    };
    writeln!(output::stdout(), "{said}")?;
    if GitVersion::ask().monitor() == Monitor::None {
        let (major, minor) = GIT_THAT_ASKS;
        writeln!(
            output::stdout(),
            "git {major}.{minor} or newer would ask weir what has changed; yours looks."
        )?;
    }
    Ok(code)
}
