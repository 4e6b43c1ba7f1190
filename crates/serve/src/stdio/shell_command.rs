//! The commands that git's programs give an ssh server (git-shell(1)).

use weir_upload::Service;

/// The service that a client of ssh asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellAsk {
    /// A service of git.
    Git(Service),
    /// `git-lfs-transfer PATH OPERATION`.
    Lfs(String),
    /// `git-lfs-authenticate PATH OPERATION`: asks where objects are available over HTTP.
    LfsOverHttp(String),
}

/// Parses `git-upload-pack 'PATH'`, with or without the hyphen and the quotes, or `git-lfs-transfer PATH
/// OPERATION`. Returns what is asked for, and the path; `None` if it is something else.
pub fn parse_shell_command(command: &str) -> Option<(ShellAsk, String)> {
    let rest = command.strip_prefix("git-").or_else(|| command.strip_prefix("git "))?;
    let mut words = words(rest)?.into_iter();
    let (program, path) = (words.next()?, words.next()?);
    let ask = match program.as_str() {
        "upload-pack" => ShellAsk::Git(Service::UploadPack),
        "receive-pack" => ShellAsk::Git(Service::ReceivePack),
        "upload-archive" => ShellAsk::Git(Service::UploadArchive),
        "lfs-transfer" => ShellAsk::Lfs(words.next()?),
        "lfs-authenticate" => ShellAsk::LfsOverHttp(words.next()?),
        _ => return None,
    };
    // A path need not start with a slash (ssh://host/~/x, for one): it is looked up as a name.
    (words.next().is_none() && !path.is_empty() && !path.chars().any(char::is_control)).then_some((ask, path))
}

/// Splits a shell command that only names things into words. Knows single quotes, and backslashes, with which
/// a quote is written.
fn words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = command.trim();
    while !rest.is_empty() {
        let mut word = String::new();
        while !rest.is_empty() && !rest.starts_with(' ') {
            if let Some(quoted) = rest.strip_prefix('\'') {
                let (inside, after) = quoted.split_once('\'')?;
                word.push_str(inside);
                rest = after;
            } else if let Some(escaped) = rest.strip_prefix('\\') {
                let c = escaped.chars().next()?;
                word.push(c);
                rest = &escaped[c.len_utf8()..];
            } else {
                let end = rest.find(['\'', '\\', ' ']).unwrap_or(rest.len());
                let plain = &rest[..end];
                if plain.contains(['"', '$', '`', ';', '&', '|', '<', '>', '(', ')', '*', '?', '\n']) {
                    return None;
                }
                word.push_str(plain);
                rest = &rest[end..];
            }
        }
        words.push(word);
        rest = rest.trim_start_matches(' ');
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        let is = |command: &str, path: &str| {
            assert_eq!(
                parse_shell_command(command),
                Some((ShellAsk::Git(Service::UploadPack), path.to_owned())),
                "{command}"
            );
        };
        is("git-upload-pack '/a/b.git'", "/a/b.git");
        is("git upload-pack a/b", "a/b");
        is(r"git-upload-pack 'it'\''s'", "it's");
        is("git-upload-pack 'a b'", "a b");
        assert_eq!(
            parse_shell_command("git-receive-pack 'x'").unwrap().0,
            ShellAsk::Git(Service::ReceivePack)
        );
        for path in ["/a/b.git", "'/a/b.git'"] {
            let lfs = parse_shell_command(&format!("git-lfs-transfer {path} download"));
            assert_eq!(lfs, Some((ShellAsk::Lfs("download".to_owned()), "/a/b.git".to_owned())));
        }
        for bad in [
            "",
            "ls",
            "git-upload-pack",
            "git-upload-pack ''",
            "git-upload-pack 'a",
            "git-upload-pack a; rm -rf /",
            "git-x 'a'",
            "git-upload-pack a b",
            "git-lfs-transfer a",
            "git-lfs-transfer a download b",
            "git-lfs-authenticate a",
        ] {
            assert_eq!(parse_shell_command(bad), None, "{bad}");
        }
    }
}
