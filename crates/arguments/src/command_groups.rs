//! `weir --help`: commands in groups, as git shows its own.

use std::fmt::Write;

use clap::builder::{StyledStr, Styles};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use crate::command_line::{Cli, GROUPS};

/// Returns the command line's description, whose help shows commands in groups.
pub fn command() -> Command {
    let command = Cli::command();
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut template = StyledStr::new();
    let _ = write!(template, "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n");
    for (title, names) in GROUPS {
        let _ = write!(template, "\n{header}{title}:{header:#}\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(StyledStr::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {literal}{name:<14}{literal:#}{about}");
        }
    }
    let _ = write!(template, "\nSee '{literal}weir help COMMAND{literal:#}' for more about a command.\n");
    let _ = write!(template, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    command.help_template(template)
}

/// Returns an error in the command line with advice that fits. `weir clone` has most options
/// of `git clone`: a user of git may expect the others, too.
pub fn explained(mut e: clap::Error) -> clap::Error {
    let usage = e.get(ContextKind::Usage).map(ContextValue::to_string).unwrap_or_default();
    if e.kind() == ErrorKind::UnknownArgument && usage.contains("weir clone ") {
        let advice = "weir clone has the options that 'weir help clone' lists; for others of git's, use 'git \
            clone' with the URL of a weir server";
        e.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(advice)]));
    }
    e
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group_and_takes_one_line() {
        let command = Cli::command();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut there: Vec<&str> =
            command.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
        listed.sort_unstable();
        there.sort_unstable();
        assert_eq!(listed, there);
        for one in command.get_subcommands() {
            let about = one.get_about().unwrap().to_string();
            assert!(about.len() <= 64, "{}: {about}", one.get_name());
        }
    }
}
