//! Manual pages and completions.

use std::path::Path;

use clap::CommandFactory;
use weir_ground::FileError;

use crate::command_line::Cli;

/// Returns the script by which `shell` completes commands of weir.
pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
    script
}

/// Sections that all manual pages share.
const MANUAL_SECTIONS: &str = include_str!("manual_sections.roff");

/// Writes a manual page for each command into `folder`, which is made.
///
/// # Errors
/// If a file cannot be written.
pub fn write_manual(folder: &Path) -> Result<(), FileError> {
    let fail = FileError::on("write to", folder);
    std::fs::create_dir_all(folder).map_err(fail)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    // clap adds the deferred arguments of all subcommands.
    command.build();
    clap_mangen::generate_to(command.clone(), folder).map_err(fail)?;
    let mut names = Vec::new();
    page_names(&command, "", &mut names);
    for name in names {
        let path = folder.join(format!("{name}.1"));
        let fail = FileError::on("write", &path);
        let page = std::fs::read_to_string(&path).map_err(fail)?;
        let after_help = if name == "weir" { ".SH EXAMPLES\n" } else { ".SH NOTES\n" };
        let page = page.replacen(".SH EXTRA\n", after_help, 1);
        let (options, version) = page.rsplit_once(".SH VERSION\n").unwrap_or((&page, ""));
        std::fs::write(&path, format!("{options}{MANUAL_SECTIONS}.SH VERSION\n{version}")).map_err(fail)?;
    }
    Ok(())
}

/// Adds the names of the manual pages of `command` and its subcommands, which clap_mangen uses as file names.
fn page_names(command: &clap::Command, above: &str, names: &mut Vec<String>) {
    let name = if above.is_empty() {
        command.get_name().to_owned()
    } else {
        format!("{above}-{}", command.get_name())
    };
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    below.for_each(|command| page_names(command, &name, names));
    names.push(name);
}
