//! The command that ssh is started with.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::url::Url;

/// The command that starts ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshCommand {
    words: ShellWords,
    /// Whether it understands OpenSSH's options.
    is_openssh: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ShellWords {
    /// A program and its first arguments.
    Plain(Vec<OsString>),
    /// A command line for the shell.
    Shell(String),
}

impl Default for SshCommand {
    fn default() -> SshCommand {
        SshCommand::program("ssh".into())
    }
}

impl SshCommand {
    /// Creates a command from a program's path or name (`GIT_SSH` in git(1)).
    pub fn program(program: OsString) -> SshCommand {
        let is_openssh = is_named_ssh(&program.to_string_lossy());
        SshCommand { words: ShellWords::Plain(vec![program]), is_openssh }
    }

    /// Creates a command from a command line, which the shell interprets if it has special characters
    /// (`GIT_SSH_COMMAND` in git(1)).
    pub fn line(line: &str) -> SshCommand {
        let is_assignment = |word: &str| {
            word.split_once('=')
                .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        };
        let program = line.split_ascii_whitespace().find(|word| !is_assignment(word));
        let is_openssh = program.is_some_and(|program| is_named_ssh(program.trim_matches(['\'', '"'])));
        // As in git's run-command.c, except that blanks alone need no shell.
        let words = match line.contains(|c| "|&;<>()$`\\\"'*?[#~=%\n".contains(c)) {
            true => ShellWords::Shell(line.to_owned()),
            false => ShellWords::Plain(line.split_ascii_whitespace().map(OsString::from).collect()),
        };
        SshCommand { words, is_openssh }
    }

    /// Returns the command up to the host of `url`, to which the remote command is to be added, and its name
    /// for error messages.
    pub(crate) fn to(&self, url: &Url, connect_timeout: Duration) -> Result<(Command, String)> {
        let (mut command, name) = match &self.words {
            ShellWords::Plain(words) => {
                let (program, arguments) = words.split_first().ok_or_else(|| {
                    Error::Local("the ssh command is empty; set transport.ssh_command".to_owned())
                })?;
                let mut command = Command::new(program);
                command.args(arguments);
                (command, program.to_string_lossy().into_owned())
            }
            ShellWords::Shell(line) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(format!("{line} \"$@\"")).arg(line);
                (command, line.clone())
            }
        };
        if self.is_openssh {
            command.args(["-o", "SendEnv=GIT_PROTOCOL", "-o", "BatchMode=yes"]);
            command.arg("-o").arg(format!("ConnectTimeout={}", connect_timeout.as_secs().max(1)));
        }
        if let Some(port) = url.port {
            command.arg("-p").arg(port.to_string());
        }
        command.arg(url.user.as_ref().map_or(url.host.clone(), |u| format!("{u}@{}", url.host)));
        Ok((command, name))
    }
}

fn is_named_ssh(program: &str) -> bool {
    Path::new(program).file_name().is_some_and(|n| n == "ssh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_the_shell_where_they_say_so() {
        let plain = SshCommand::line("ssh -i  key -4");
        assert_eq!(
            plain,
            SshCommand {
                words: ShellWords::Plain(["ssh", "-i", "key", "-4"].map(OsString::from).to_vec()),
                is_openssh: true
            }
        );
        for (line, is_openssh) in [
            ("ssh -i ~/key", true),
            ("FOO=1 /usr/bin/ssh", true),
            ("'/usr/bin/ssh' -v 2>/dev/null", true),
            ("sh -c 'exec ssh \"$@\"' --", false),
            ("~/bin/wrapper", false),
        ] {
            assert_eq!(
                SshCommand::line(line),
                SshCommand { words: ShellWords::Shell(line.to_owned()), is_openssh },
                "{line}"
            );
        }
    }
}
