//! Headers of a tar, as git writes them (archive-tar.c; ustar and pax of POSIX.1-2001).

/// Bytes of a header.
pub(crate) const RECORD_BYTES: usize = 512;
/// The longest name, and the longest part before it.
const NAME_BYTES_MAX: usize = 100;
const PREFIX_BYTES_MAX: usize = 155;
const _: () = assert!(NAME_BYTES_MAX + PREFIX_BYTES_MAX < RECORD_BYTES, "both fit in a record");
/// Sizes and times that have no room in a header.
const SIZE_MAX: u64 = 0o77_777_777_777;
const TIME_MAX: u64 = 0o77_777_777_777;

/// A member of a tar.
pub(crate) struct TarMember<'m> {
    /// The path; that of a folder ends with a slash.
    pub(crate) path: &'m [u8],
    /// The permissions.
    pub(crate) mode: u32,
    /// The kind: `0` for a file, `2` for a symbolic link, `5` for a folder.
    pub(crate) kind: u8,
    /// The bytes of a file.
    pub(crate) size: u64,
    /// The target of a symbolic link.
    pub(crate) target: &'m [u8],
    /// Seconds since 1970.
    pub(crate) time: u64,
    /// The id, in hexadecimal digits, that names what has no room in the header.
    pub(crate) id: &'m str,
}

/// Returns the header of all members, which tells the commit.
pub(crate) fn global_header(commit: &str, time: u64) -> Vec<u8> {
    let text = pax_record("comment", commit.as_bytes());
    let name = b"pax_global_header";
    let mut out = header(name, b"", 0o666, b'g', text.len() as u64, time.min(TIME_MAX), b"").to_vec();
    push_padded(&mut out, &text);
    out
}

/// Returns the headers of `member`.
pub(crate) fn headers(member: &TarMember<'_>) -> Vec<u8> {
    let mut pax = Vec::new();
    let mut out = Vec::new();
    let TarMember { path, mode, kind, size, target, time, id } = *member;
    let (prefix, name) = match split(path) {
        Some(parts) => parts,
        None => {
            pax.extend(pax_record("path", path));
            (&b""[..], &b""[..])
        }
    };
    let data_name = format!("{id}.data");
    let is_long = name.is_empty();
    let mut shown_target = target;
    let see = format!("see {id}.paxheader");
    if target.len() > NAME_BYTES_MAX {
        pax.extend(pax_record("linkpath", target));
        shown_target = see.as_bytes();
    }
    let mut shown_size = size;
    if size > SIZE_MAX {
        pax.extend(pax_record("size", size.to_string().as_bytes()));
        shown_size = 0;
    }
    let time = time.min(TIME_MAX);
    if !pax.is_empty() {
        let name = format!("{id}.paxheader");
        out.extend(header(name.as_bytes(), b"", 0o666, b'x', pax.len() as u64, time, b""));
        push_padded(&mut out, &pax);
    }
    let name = if is_long { data_name.as_bytes() } else { name };
    out.extend(header(name, prefix, mode, kind, shown_size, time, shown_target));
    out
}

/// Returns the part of `path` for each of the two fields; `None` if there is no such cut.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() <= NAME_BYTES_MAX {
        return Some((b"", path));
    }
    // As git's get_path_prefix: the last slash that leaves a prefix short enough, not at the very end.
    let end = path.len().min(PREFIX_BYTES_MAX + 1).min(path.len() - 1);
    let slash = path[..end].iter().rposition(|c| *c == b'/').filter(|at| *at > 0)?;
    let (prefix, name) = (&path[..slash], &path[slash + 1..]);
    (name.len() <= NAME_BYTES_MAX).then_some((prefix, name))
}

/// Returns a record of an extended header: its own length, a keyword and a value.
fn pax_record(keyword: &str, value: &[u8]) -> Vec<u8> {
    let rest = 1 + keyword.len() + 1 + value.len() + 1;
    let mut len = rest + 1;
    while len.to_string().len() + rest > len {
        len += 1;
    }
    [format!("{len} {keyword}=").as_bytes(), value, b"\n"].concat()
}

/// Appends `data`, and zeroes up to a whole record.
pub(crate) fn push_padded(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(RECORD_BYTES), 0);
}

fn header(
    name: &[u8],
    prefix: &[u8],
    mode: u32,
    kind: u8,
    size: u64,
    time: u64,
    target: &[u8],
) -> [u8; RECORD_BYTES] {
    let mut out = [0; RECORD_BYTES];
    let mut put = |at: usize, text: &[u8]| out[at..at + text.len()].copy_from_slice(text);
    put(0, name);
    put(100, format!("{:07o}", mode & 0o7777).as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{time:011o}").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, target);
    put(257, b"ustar\x0000");
    put(265, b"root");
    put(297, b"root");
    put(329, b"0000000");
    put(337, b"0000000");
    put(345, prefix);
    let sum: u32 = out.iter().map(|byte| u32::from(*byte)).sum();
    out[148..156].copy_from_slice(format!("{sum:07o}\0").as_bytes());
    out
}
