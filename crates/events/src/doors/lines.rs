//! Lines of one connection: where they end, and what asks for an answer.
//!
//! A line is anything up to a newline; a carriage return before it does not count. Lines that begin with
//! `id=TOKEN` and a space are answered with `ok TOKEN` once they are durable, in order; `ping` is answered
//! with `pong`, and `quit` ends the connection. A line that cannot be taken is answered with `err`, the token
//! if it has one, and the reason.

use memchr::memchr;

/// The maximum length of a line, in bytes.
pub const LINE_BYTES_MAX: usize = 8 << 10;
/// The maximum length of a token, in bytes.
const TOKEN_BYTES_MAX: usize = 128;

/// The request that a line makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineVerdict<'l> {
    /// Nothing: it is empty.
    Empty,
    /// An event, and the token with which it is acknowledged, if it asks for that.
    Event { token: Option<&'l [u8]>, line: &'l [u8] },
    /// The sender wants a sign of life.
    Ping,
    /// The sender is done.
    Quit,
    /// The sender speaks HTTP: a browser may have been made to send this.
    Http,
    /// It cannot be taken.
    Bad { token: Option<&'l [u8]>, why: &'static str },
}

/// Parses `line`, which has no newline.
pub(crate) fn judge(line: &[u8]) -> LineVerdict<'_> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Some(rest) = line.trim_ascii_start().strip_prefix(b"id=") else {
        return match line.trim_ascii() {
            b"" => LineVerdict::Empty,
            b"ping" => LineVerdict::Ping,
            b"quit" => LineVerdict::Quit,
            text if text.ends_with(b" HTTP/1.1") || text.ends_with(b" HTTP/1.0") => LineVerdict::Http,
            // Blanks at the ends may be fields of a table.
            _ => LineVerdict::Event { token: None, line },
        };
    };
    let end = memchr(b' ', rest).unwrap_or(rest.len());
    let (token, event) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
    let is_token = (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
    match (is_token, event) {
        (false, _) => {
            LineVerdict::Bad { token: None, why: "no token behind id=, or a longer one than 128 bytes" }
        }
        (true, event) if event.trim_ascii().is_empty() => {
            LineVerdict::Bad { token: Some(token), why: "nothing behind the id" }
        }
        (true, line) => LineVerdict::Event { token: Some(token), line },
    }
}

/// Returns the verdict on a line that is too long and begins with `start`.
pub(crate) fn judge_long(start: &[u8]) -> LineVerdict<'_> {
    let token = match judge(&start[..start.len().min(4 + TOKEN_BYTES_MAX)]) {
        LineVerdict::Event { token, .. } => token,
        _ => None,
    };
    LineVerdict::Bad { token, why: "longer than 8192 bytes" }
}

/// The bytes of a line whose end has not come yet.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    rest: Vec<u8>,
    /// Whether a line that is too long is being passed over.
    is_skipping: bool,
}

/// Why not all bytes were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// `each` wants no more for now.
    Full,
    /// `each` wants no more at all.
    Quit,
}

/// The answer of a function that is given a line.
pub(crate) enum LineFate {
    /// It was taken.
    Taken,
    /// It must come again.
    NoRoom,
    /// It was taken, and no more is wanted.
    Last,
}

impl LineBuffer {
    /// Gives the lines of `chunk` to `each`, and says which are too long. Of such a line, it gives what has
    /// come. Keeps a line that has not ended. If `each` has no room, keeps all from that line on: call it
    /// again with an empty chunk.
    pub(crate) fn take(
        &mut self,
        chunk: &[u8],
        each: &mut dyn FnMut(&[u8], bool) -> LineFate,
    ) -> Result<(), Stopped> {
        if self.rest.is_empty() {
            // The usual case: the lines lie in the chunk, and no byte is copied.
            let (used, result) = lines(chunk, &mut self.is_skipping, each);
            self.rest.extend_from_slice(&chunk[used..]);
            debug_assert!(result.is_err() || self.rest.len() <= LINE_BYTES_MAX, "a long line is kept");
            return result;
        }
        self.rest.extend_from_slice(chunk);
        let rest = std::mem::take(&mut self.rest);
        let (used, result) = lines(&rest, &mut self.is_skipping, each);
        self.rest = rest;
        self.rest.drain(..used);
        debug_assert!(result.is_err() || self.rest.len() <= LINE_BYTES_MAX, "a long line is kept");
        if self.rest.is_empty() {
            // An idle connection keeps no memory.
            self.rest = Vec::new();
        }
        result
    }

    /// Returns whether no line has begun that has not ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Gives the lines in `bytes` to `each`. Returns how many bytes are done with.
fn lines(
    bytes: &[u8],
    is_skipping: &mut bool,
    each: &mut dyn FnMut(&[u8], bool) -> LineFate,
) -> (usize, Result<(), Stopped>) {
    let mut used = 0;
    while let Some(length) = memchr(b'\n', &bytes[used..]) {
        let line = &bytes[used..used + length];
        // The one that was too long was told of when it became so.
        if !std::mem::take(is_skipping) {
            match each(line, line.len() > LINE_BYTES_MAX) {
                LineFate::Taken => {}
                LineFate::NoRoom => return (used, Err(Stopped::Full)),
                LineFate::Last => return (used + length + 1, Err(Stopped::Quit)),
            }
        }
        used += length + 1;
    }
    if *is_skipping {
        return (bytes.len(), Ok(()));
    }
    if bytes.len() - used > LINE_BYTES_MAX {
        *is_skipping = true;
        each(&bytes[used..], true);
        return (bytes.len(), Ok(()));
    }
    (used, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines that `chunks` give; `-` for one that is too long.
    fn lines_of(chunks: &[&[u8]]) -> Vec<String> {
        let (mut buffer, mut found) = (LineBuffer::default(), Vec::new());
        for chunk in chunks {
            let each = &mut |line: &[u8], is_long: bool| {
                let text = if is_long { "-".into() } else { String::from_utf8_lossy(line).into_owned() };
                found.push(text);
                LineFate::Taken
            };
            buffer.take(chunk, each).unwrap();
            assert!(buffer.rest.len() <= LINE_BYTES_MAX);
        }
        found
    }

    #[test]
    fn lines_come_out_however_they_came_in() {
        let text = b"one\ntwo\r\n\nthree is longer\n";
        let whole = lines_of(&[text]);
        assert_eq!(whole, ["one", "two\r", "", "three is longer"]);
        for size in 1..text.len() {
            assert_eq!(lines_of(&text.chunks(size).collect::<Vec<_>>()), whole, "{size}");
        }
        assert_eq!(lines_of(&[b"unfinished"]), Vec::<String>::new());
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let long = vec![b'x'; 100_000];
        assert_eq!(lines_of(&[b"a\n", &long, &long, b"y\nb\n"]), ["a", "-", "b"]);
        assert_eq!(lines_of(&[&long[..LINE_BYTES_MAX], b"\n"]).concat().len(), LINE_BYTES_MAX);
        assert_eq!(lines_of(&[&long[..LINE_BYTES_MAX + 1], b"\nc\n"]), ["-", "c"]);
        assert_eq!(lines_of(&[&[&long[..], b"\nd\n"].concat()]), ["-", "d"]);
    }

    #[test]
    fn what_finds_no_room_comes_again() {
        let (mut buffer, mut found, mut room) = (LineBuffer::default(), Vec::new(), 1);
        let mut each = |line: &[u8], _: bool| {
            if room == 0 {
                return LineFate::NoRoom;
            }
            room -= 1;
            found.push(line.to_vec());
            LineFate::Taken
        };
        assert_eq!(buffer.take(b"a\nb\nc\nd", &mut each), Err(Stopped::Full));
        assert_eq!(buffer.take(b"", &mut each), Err(Stopped::Full));
        let mut each = |line: &[u8], _: bool| {
            found.push(line.to_vec());
            LineFate::Taken
        };
        assert_eq!(buffer.take(b"", &mut each), Ok(()));
        assert_eq!(buffer.take(b"\n", &mut each), Ok(()));
        assert_eq!(found.concat(), b"abcd");
        assert!(buffer.is_empty());
        assert_eq!(buffer.take(b"quit\nmore\n", &mut |_, _| LineFate::Last), Err(Stopped::Quit));
    }

    #[test]
    fn tokens_are_taken_from_the_front() {
        let event = |token, line| LineVerdict::Event { token, line };
        assert_eq!(judge(b"https://h/r"), event(None, b"https://h/r"));
        assert_eq!(judge(b"id=7 push u\r"), event(Some(b"7"), b"push u"));
        assert_eq!(judge(b"  id=a-b   {}  "), event(Some(b"a-b"), b"  {}  "));
        assert_eq!(judge(b"\ta\t\r"), event(None, b"\ta\t"));
        assert_eq!([judge(b""), judge(b"\r"), judge(b"ping"), judge(b"quit\r")].len(), 4);
        assert_eq!((judge(b" "), judge(b"ping\r")), (LineVerdict::Empty, LineVerdict::Ping));
        assert_eq!(judge(b"POST /x HTTP/1.1\r"), LineVerdict::Http);
        let long = [b"id=t ".as_slice(), &[b'x'; 9000]].concat();
        assert!(matches!(judge_long(&long), LineVerdict::Bad { token: Some(b"t"), .. }));
        for bad in [
            b"id=".as_slice(),
            b"id= x",
            b"id=7",
            b"id=\xff x",
            &[b"id=".as_slice(), &[b'x'; 129], b" u"].concat(),
        ] {
            assert!(matches!(judge(bad), LineVerdict::Bad { .. }), "{bad:?}");
        }
    }
}
