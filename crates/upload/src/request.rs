//! Parses the first line of a git:// connection (gitprotocol-pack, "Git Transport").

/// The service that a client requests from a git daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// `git-upload-pack`.
    UploadPack,
    /// `git-receive-pack`.
    ReceivePack,
    /// `git-upload-archive`.
    UploadArchive,
}

impl Service {
    /// Returns its name, without `git-`.
    pub fn name(self) -> &'static str {
        match self {
            Service::UploadPack => "upload-pack",
            Service::ReceivePack => "receive-pack",
            Service::UploadArchive => "upload-archive",
        }
    }
}

/// A parsed first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonRequest {
    /// The requested service.
    pub service: Service,
    /// The path, as sent.
    pub path: String,
    /// The `host=` parameter, lower-case.
    pub host: Option<String>,
    /// The requested version: 0, 1 or 2.
    pub version: u8,
    /// The extra parameters, joined by colons as in `GIT_PROTOCOL`.
    pub protocol: String,
}

/// The longest path that is accepted.
const PATH_BYTES_MAX: usize = 4096;

/// Parses `git-upload-pack /path\0host=name\0\0version=2\0`; returns `None` if the line is malformed.
pub fn parse_daemon_request(line: &[u8]) -> Option<DaemonRequest> {
    let end = line.iter().position(|&c| c == 0).unwrap_or(line.len());
    let (command, rest) = line.split_at(end);
    let command = std::str::from_utf8(command).ok()?;
    let command = command.strip_suffix('\n').unwrap_or(command);
    let command = command.strip_prefix("git-").or_else(|| command.strip_prefix("git "))?;
    let (service, path) = command.split_once(' ')?;
    let service = match service {
        "upload-pack" => Service::UploadPack,
        "receive-pack" => Service::ReceivePack,
        "upload-archive" => Service::UploadArchive,
        _ => return None,
    };
    if path.is_empty() || path.len() > PATH_BYTES_MAX || path.chars().any(char::is_control) {
        return None;
    }
    let mut request =
        DaemonRequest { service, path: path.to_owned(), host: None, version: 0, protocol: String::new() };
    // One parameter (host); then, after an empty one, the extra parameters.
    for parameter in rest.split(|&c| c == 0).filter(|p| !p.is_empty()) {
        let Ok(text) = std::str::from_utf8(parameter) else { continue };
        if let Some(host) =
            text.strip_prefix("host=").filter(|_| request.host.is_none() && request.protocol.is_empty())
        {
            request.host = Some(host.to_ascii_lowercase());
            continue;
        }
        if !request.protocol.is_empty() {
            request.protocol.push(':');
        }
        request.protocol.push_str(text);
        if let Some(version) = text.strip_prefix("version=") {
            request.version = version.parse::<u8>().unwrap_or(0).min(2);
        }
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        let r = parse_daemon_request(b"git-upload-pack /a/b.git\0host=H:9418\0\0version=2\0").unwrap();
        assert_eq!((r.path.as_str(), r.host.as_deref(), r.version), ("/a/b.git", Some("h:9418"), 2));
        assert_eq!(parse_daemon_request(b"git upload-pack /a\n").unwrap().version, 0);
        assert_eq!(parse_daemon_request(b"git-receive-pack /a\0").unwrap().service, Service::ReceivePack);
        for bad in [
            &b""[..],
            b"git-upload-pack",
            b"git-upload-pack ",
            b"GET / HTTP/1.1",
            b"git-x /a",
            b"git-upload-pack /\n\n",
            b"\xff",
        ] {
            assert_eq!(parse_daemon_request(bad), None, "{bad:?}");
        }
    }
}
