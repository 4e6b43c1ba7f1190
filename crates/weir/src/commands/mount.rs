//! `mount`: shows repositories as folders.

use std::io::Write;
use std::path::{Path, PathBuf};

use weir_arguments::{Global, MountArgs};
use weir_ground::{FileError, Stop};
use weir_pool::is_pool_folder;
use weir_process::stop_on_signal;
use weir_terminal::output;
use weir_work::{LowerView, NamedSource, shown_pool, shown_source};
use weir_workspace::{MountOptions, Shown, Workspaces, mount as mount_view};

use crate::error::{Error, Result};
use crate::own_processes::{close_inherited, say_mounted};
use crate::pool::open_pool;
use crate::workspace_records::state_folder;

const THREADS_MAX: usize = 8;

pub(crate) fn mount(global: &Global, args: &MountArgs) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let options = MountOptions { threads, allow_other: args.allow_other };
    let folder = &args.folder;
    if args.lower {
        close_inherited();
        let source = named(global, &args.source)?;
        let view = LowerView { source, times: args.times.as_deref(), folder };
        return Ok(view.serve(&options, say_mounted)?);
    }
    let shown = shown(global, args)?;
    let is_workspace = |at: &PathBuf| {
        let workspaces = state_folder().map(Workspaces::new);
        workspaces.is_ok_and(|all| all.find(at).is_ok_and(|workspace| workspace.folder == *at))
    };
    if folder.canonicalize().is_ok_and(|at| is_workspace(&at)) {
        return Err(Error::Message(format!("'{}' is a workspace; choose another folder", folder.display())));
    }
    let is_new = !folder.exists();
    if is_new {
        std::fs::create_dir(folder).map_err(FileError::on("make", folder))?;
    }
    let mounted = mount_view(shown, folder, &options).inspect_err(|_| {
        if is_new {
            let _ = std::fs::remove_dir(folder);
        }
    });
    let mounted = mounted.map_err(Error::of)?;
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    if !global.quiet {
        let (source, folder) = (&args.source, folder.display());
        writeln!(output::stdout(), "{source} is mounted on {folder}; Ctrl-C or 'umount {folder}' ends it")?;
    }
    mounted.wait(&stop);
    if is_new {
        let _ = std::fs::remove_dir(folder);
    }
    Ok(())
}

/// Returns what the arguments name.
fn shown(global: &Global, args: &MountArgs) -> Result<Shown> {
    if is_pool_folder(Path::new(&args.source)) {
        let pool = open_pool(&Global { pool: Some((&args.source).into()), ..global.clone() })?;
        return Ok(shown_pool(&pool)?);
    }
    Ok(shown_source(named(global, &args.source)?)?)
}

fn named(global: &Global, text: &str) -> Result<NamedSource> {
    Ok(NamedSource::parse(text, || Ok(open_pool(global)?))?)
}
