//! `workspace`: writable working trees that are mounted, not checked out.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use weir_ground::FileError;
use weir_workspace::{Added, NewWorkspace, Workspace, Workspaces, changed_since, is_mounted};

use crate::cli::{Global, WorkspaceCommand};
use crate::environment::git_command;
use crate::error::{Error, Result, SOME_FAILED};
use crate::named_source::{MOUNTED, NamedSource};
use crate::output;

pub(crate) fn workspace(global: &Global, command: &WorkspaceCommand) -> Result<ExitCode> {
    let workspaces = Workspaces::new(state_folder()?);
    match command {
        WorkspaceCommand::Add { source, folder } => add(global, &workspaces, source, folder)?,
        WorkspaceCommand::Ls => list(global, &workspaces)?,
        WorkspaceCommand::Rm { folders, force } => {
            folders.iter().try_for_each(|folder| remove(global, &workspaces, folder, *force))?;
        }
        WorkspaceCommand::Fsmonitor { place, protocol: 2, token } => {
            let asked = std::env::current_dir()?;
            let answer = changed_since(place, &asked, token).map_err(of_workspace)?;
            std::io::stdout().write_all(&answer)?;
        }
        WorkspaceCommand::Fsmonitor { protocol, .. } => {
            return Err(Error::Message(format!("version {protocol} of fsmonitor is not known")));
        }
        WorkspaceCommand::Mount { folders } => return mount(global, &workspaces, folders),
    }
    Ok(ExitCode::SUCCESS)
}

fn of_workspace(e: weir_workspace::Error) -> Error {
    Error::Message(e.to_string())
}

/// Returns the folder in which workspaces are recorded (XDG Base Directory Specification).
fn state_folder() -> Result<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    let state = state.ok_or_else(|| Error::Message("neither HOME nor XDG_STATE_HOME is set".to_owned()))?;
    Ok(std::path::absolute(state)?.join("weir/workspaces"))
}

/// Returns a path without links in it, even if its last part is not there.
fn whole(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let (Some(above), Some(name)) = (absolute.parent(), absolute.file_name()) else { return Ok(absolute) };
    let above = above.canonicalize().map_err(FileError::on("find", above))?;
    Ok(if absolute.exists() { absolute.canonicalize()? } else { above.join(name) })
}

fn add(global: &Global, workspaces: &Workspaces, source: &str, folder: &Path) -> Result<()> {
    let source = NamedSource::parse(global, source)?;
    let repo = source.open()?;
    let named = source.commit(&repo)?;
    let folder = whole(folder)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let program = std::env::current_exe()?.display().to_string().replace('\'', "'\\''");
    let monitor = format!("'{program}' workspace fsmonitor");
    let new = NewWorkspace {
        folder: &folder,
        repository: &source.name,
        source: &source.path,
        repo: &repo,
        commit: named.commit,
        branch: named.branch.as_deref(),
        now,
        monitor: &monitor,
        asks_monitor: git_version().is_some_and(|version| version >= GIT_THAT_ASKS),
    };
    let start = |view: &Path| start_view(&source.path, &named.commit.to_string(), view);
    let Added { workspace: made, converts } = workspaces.add(&new, &start).map_err(of_workspace)?;
    if let Some(attributes) = converts {
        warn_line!(
            "warning: '{attributes}' asks git to convert files (eol, ident, encodings or filters); the \
            workspace has them as they are stored"
        );
    }
    if global.json {
        return output::json(&json(&made));
    }
    if !global.quiet {
        let on = made.branch.as_deref().unwrap_or(&made.commit[..12]);
        writeln!(output::stdout(), "{} of {} is at {}", on, made.repository, made.folder.display())?;
    }
    Ok(())
}

/// The first git that takes no file for deleted that its fsmonitor vouches for (release notes of 2.43).
const GIT_THAT_ASKS: (u32, u32) = (2, 43);

/// Returns the version of git, without what follows the second number.
fn git_version() -> Option<(u32, u32)> {
    let said = git(Path::new("/"), &["version"]).ok()?;
    let mut numbers = said.strip_prefix("git version ")?.split('.').map(|number| number.trim().parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn json(workspace: &Workspace) -> serde_json::Value {
    json!({
        "folder": workspace.folder,
        "repository": workspace.repository,
        "source": workspace.source,
        "commit": workspace.commit,
        "branch": workspace.branch,
        "made_at": workspace.made_at,
        "mounted": is_mounted(&workspace.folder),
    })
}

/// Starts the process that serves the view of a commit, and waits until it is mounted.
fn start_view(source: &Path, commit: &str, view: &Path) -> weir_workspace::Result<()> {
    let failed =
        |why: String| weir_workspace::Error::Source(format!("cannot show '{}': {why}", source.display()));
    let log = view.with_extension("log");
    let start = || -> std::io::Result<std::process::Child> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut commit_of = source.as_os_str().to_owned();
        commit_of.push(format!("@{commit}"));
        command.args(["mount", "--lower"]).arg(commit_of).arg(view).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        command.spawn()
    };
    let mut child = start().map_err(|e| failed(e.to_string()))?;
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is a pipe");
    let _ = BufReader::new(stdout).read_line(&mut line);
    if line.trim_end() == MOUNTED {
        return Ok(());
    }
    let _ = child.wait();
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    Err(failed(said.trim().trim_start_matches("error: ").to_owned()))
}

fn list(global: &Global, workspaces: &Workspaces) -> Result<()> {
    let list = workspaces.list().map_err(of_workspace)?;
    if global.json {
        return output::json_array(list.iter().map(json));
    }
    let head = ["STATE", "COMMIT", "BRANCH", "REPOSITORY", "FOLDER"].map(str::to_owned).to_vec();
    let row = |workspace: &Workspace| {
        vec![
            if is_mounted(&workspace.folder) { "mounted" } else { "away" }.to_owned(),
            workspace.commit[..12].to_owned(),
            workspace.branch.clone().unwrap_or_else(|| "-".to_owned()),
            workspace.repository.clone(),
            workspace.folder.display().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(list.iter().map(row)).collect();
    output::table(&rows, &[])
}

/// Returns what git prints in a workspace.
fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let output = git_command().arg("-C").arg(folder).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|e| Error::Message(format!("cannot start git: {e}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Message(format!("git {} in '{}': {said}", args[0], folder.display())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns what would be lost with a workspace, if anything.
fn unsaved(workspace: &Workspace) -> Result<Option<String>> {
    let folder = &workspace.folder;
    if !is_mounted(folder) {
        return Ok(Some("it is not mounted, so that nobody can say what it has".to_owned()));
    }
    if let Some(line) = git(folder, &["status", "--porcelain"])?.lines().next() {
        return Ok(Some(format!("it has changes ({})", line.trim())));
    }
    let args = ["rev-list", "--max-count=1", "HEAD", "--branches", "--not", "--remotes", "--tags"];
    let not = [&args[..], &[workspace.commit.as_str()]].concat();
    let stash = git(folder, &["stash", "list"])?;
    Ok(if !git(folder, &not)?.trim().is_empty() {
        Some("it has commits that are nowhere else".to_owned())
    } else if !stash.is_empty() {
        Some("it has stashed changes".to_owned())
    } else {
        None
    })
}

fn remove(global: &Global, workspaces: &Workspaces, folder: &Path, force: bool) -> Result<()> {
    let workspace = workspaces.find(&whole(folder)?).map_err(of_workspace)?;
    if !force && let Some(why) = unsaved(&workspace)? {
        let folder = workspace.folder.display();
        return Err(Error::Message(format!("'{folder}' is not removed: {why}; --force removes it")));
    }
    workspaces.remove(&workspace).map_err(of_workspace)?;
    if !global.quiet && !global.json {
        writeln!(output::stdout(), "removed {}", workspace.folder.display())?;
    }
    Ok(())
}

fn mount(global: &Global, workspaces: &Workspaces, folders: &[PathBuf]) -> Result<ExitCode> {
    let find = |folder: &PathBuf| workspaces.find(&whole(folder)?).map_err(of_workspace);
    let list = match folders {
        [] => workspaces.list().map_err(of_workspace)?,
        _ => folders.iter().map(find).collect::<Result<_>>()?,
    };
    let mut has_failed = false;
    for workspace in list {
        let start = |view: &Path| start_view(&workspace.source, &workspace.commit, view);
        match workspaces.mount(&workspace, &start) {
            Ok(()) if global.quiet => {}
            Ok(()) => writeln!(output::stdout(), "mounted {}", workspace.folder.display())?,
            Err(e) => {
                has_failed = true;
                warn_line!("error: {}: {e}", workspace.folder.display());
            }
        }
    }
    Ok(if has_failed { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}
