//! One conversation over standard input and output: for inetd, for ssh, in place of git-upload-pack.

mod conversation;
mod inetd;
mod shell;
mod shell_command;

pub use conversation::{GiveUp, SilentClient, serve_stdio};
pub use inetd::serve_inetd;
pub use shell::{ShellAnswer, ShellLimits, ShellRequest, serve_shell};
