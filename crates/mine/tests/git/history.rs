//! Random histories, as input of `git fast-import`.

use std::collections::BTreeMap;
use std::io::Write;

/// A generator of numbers (xorshift64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    fn one_of<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[self.below(list.len())]
    }
}

#[derive(Clone, PartialEq)]
struct File {
    mode: &'static str,
    data: Vec<u8>,
}

type Files = BTreeMap<Vec<u8>, File>;

/// Makes commits on a few branches.
pub struct Generator {
    random: Random,
    id_len: usize,
    branches: Vec<(Files, usize)>,
    mark: usize,
    pub stream: Vec<u8>,
}

const NAMES: &[&[u8]] = &[
    b"a.c",
    b"b.c",
    b"Makefile",
    b"lib",
    b"lib.c",
    b"lib-x",
    b"README",
    b"d\xe9j\xe0 vu",
    b"with space",
    b"tab\there",
    b"quo\"te",
    "\u{fc}ber".as_bytes(),
];
const FOLDERS: &[&[u8]] = &[b"", b"lib/", b"src/", b"src/deep/er/", b"lib-x/", b"a/", b"a.c/", b"\xff/"];
const IDENTS: &[&[u8]] = &[
    b"A U Thor <author@example.org>",
    b"<nameless@example.org>",
    b"J\xf6rg <latin@example.org>",
    b"No Mail <>",
    "\u{540d}\u{524d} <utf8@example.org>".as_bytes(),
    b"  Spaces   Inside  <a b@c>",
    b"Dot. <x@y.z>",
];
const ZONES: &[&str] = &["+0000", "-0730", "+0545", "+1400"];
const MESSAGES: &[&[u8]] = &[
    b"subject\n",
    b"",
    b"no line break",
    b"subject\n\nbody\n\nSigned-off-by: A <a@b>\n",
    b"latin \xe9\n",
    b"\n\nlate\n",
    b"tabs\tand\r\ncarriage returns\n",
];

impl Generator {
    pub fn new(seed: u64, id_len: usize) -> Generator {
        let random = Random::new(seed);
        Generator { random, id_len, branches: vec![(Files::new(), 0); 3], mark: 0, stream: Vec::new() }
    }

    fn line(&mut self) -> Vec<u8> {
        match self.random.below(8) {
            0 => b"\n".to_vec(),
            1 => b"}\n".to_vec(),
            2 => b"\treturn 0;\r\n".to_vec(),
            3 => [vec![b'x'; self.random.below(200)], b"\n".to_vec()].concat(),
            _ => format!("line {} of {}\n", self.random.below(60), self.random.below(7)).into_bytes(),
        }
    }

    fn text(&mut self) -> Vec<u8> {
        let lines = match self.random.below(12) {
            0 => 0,
            1 => 600,
            n => n * self.random.below(12),
        };
        let mut data: Vec<u8> = (0..lines).flat_map(|_| self.line()).collect();
        if self.random.below(4) == 0 {
            data.pop();
        }
        data
    }

    /// Changes some lines of `data`.
    fn edit(&mut self, data: &[u8]) -> Vec<u8> {
        let mut lines: Vec<Vec<u8>> = data.split_inclusive(|&c| c == b'\n').map(<[u8]>::to_vec).collect();
        let edits = match self.random.below(5) {
            0 => lines.len(),
            n => n,
        };
        for _ in 0..edits {
            let at = self.random.below(lines.len() + 1);
            let line = self.line();
            match self.random.below(4) {
                0 => lines.insert(at, line),
                1 if at < lines.len() => drop(lines.remove(at)),
                2 if at < lines.len() => {
                    let moved = lines.remove(at);
                    lines.push(moved);
                }
                _ if at < lines.len() => lines[at] = line,
                _ => lines.push(line),
            }
        }
        lines.concat()
    }

    fn new_file(&mut self) -> File {
        match self.random.below(12) {
            0 => File { mode: "120000", data: b"../target".to_vec() },
            1 => {
                let digit = b"0123456789abcdef"[self.random.below(16)];
                File { mode: "160000", data: vec![digit; self.id_len * 2] }
            }
            2 => File { mode: "100644", data: [&b"bin\0"[..], &self.text()].concat() },
            3 => File { mode: "100755", data: self.text() },
            _ => File { mode: "100644", data: self.text() },
        }
    }

    fn path(&mut self) -> Vec<u8> {
        [*self.random.one_of(FOLDERS), *self.random.one_of(NAMES)].concat()
    }

    /// Puts `file` at `path`, in place of what is in the way.
    fn put(files: &mut Files, path: Vec<u8>, file: File) {
        let below = [&path[..], b"/"].concat();
        files
            .retain(|other, _| !other.starts_with(&below) && !path.starts_with(&[&other[..], b"/"].concat()));
        files.insert(path, file);
    }

    fn change(&mut self, files: &mut Files) {
        let paths: Vec<Vec<u8>> = files.keys().cloned().collect();
        if paths.is_empty() || self.random.below(4) == 0 {
            let (path, file) = (self.path(), self.new_file());
            return Self::put(files, path, file);
        }
        let path = self.random.one_of(&paths).clone();
        let mut file = files[&path].clone();
        match self.random.below(8) {
            0 => drop(files.remove(&path)),
            1 => {
                file.mode = if file.mode == "100644" { "100755" } else { file.mode };
                files.insert(path, file);
            }
            kind @ 2..=4 => {
                if kind < 4 {
                    files.remove(&path);
                }
                if kind > 2 && file.mode.starts_with("100") {
                    file.data = self.edit(&file.data);
                }
                let to = self.path();
                Self::put(files, to, file);
            }
            5 => {
                // A folder moves, and the files in it change a little.
                let (from, to) = (*self.random.one_of(FOLDERS), *self.random.one_of(FOLDERS));
                for path in paths.iter().filter(|path| path.starts_with(from)) {
                    if let Some(mut file) = files.remove(path) {
                        if file.mode.starts_with("100") && self.random.below(2) == 0 {
                            file.data = self.edit(&file.data);
                        }
                        Self::put(files, [to, &path[from.len()..]].concat(), file);
                    }
                }
            }
            6 => {
                let other = self.new_file();
                Self::put(files, path, other);
            }
            _ => {
                if file.mode.starts_with("100") {
                    file.data = self.edit(&file.data);
                }
                files.insert(path, file);
            }
        }
    }

    fn data(&mut self, data: &[u8]) {
        writeln!(self.stream, "data {}", data.len()).unwrap();
        self.stream.extend_from_slice(data);
        self.stream.push(b'\n');
    }

    /// Appends a commit on a random branch.
    pub fn commit(&mut self) {
        let branch = self.random.below(self.branches.len());
        let other = self.random.below(self.branches.len());
        let (mut files, parent) = self.branches[branch].clone();
        for _ in 0..=self.random.below(4) {
            self.change(&mut files);
        }
        let is_root = parent == 0 || self.random.below(60) == 0;
        let (theirs, their_mark) = self.branches[other].clone();
        let is_merge = !is_root && other != branch && their_mark != 0 && self.random.below(3) == 0;
        if is_merge {
            for (path, file) in theirs {
                if self.random.below(2) == 0 {
                    Self::put(&mut files, path, file);
                }
            }
        }
        let parent = if is_root { 0 } else { parent };
        self.write_commit(branch, files, parent, is_merge.then_some(their_mark));
    }

    /// Writes a commit with `files`. `parent` is 0 for a root.
    fn write_commit(&mut self, branch: usize, files: Files, parent: usize, merged: Option<usize>) {
        self.mark += 1;
        writeln!(self.stream, "commit refs/heads/b{branch}\nmark :{}", self.mark).unwrap();
        for who in ["author", "committer"] {
            let (ident, zone) = (*self.random.one_of(IDENTS), *self.random.one_of(ZONES));
            let time = 1_000_000_000 + self.mark * 100 + self.random.below(1000);
            self.stream.extend_from_slice(&[who.as_bytes(), b" ", ident].concat());
            writeln!(self.stream, " {time} {zone}").unwrap();
        }
        if self.random.below(9) == 0 {
            self.stream.extend_from_slice(b"encoding ISO-8859-1\n");
        }
        let message = *self.random.one_of(MESSAGES);
        self.data(message);
        if parent == 0 {
            self.stream.extend_from_slice(b"from 0000000000000000000000000000000000000000");
            self.stream.extend_from_slice(&vec![b'0'; (self.id_len - 20) * 2]);
            self.stream.push(b'\n');
        } else {
            writeln!(self.stream, "from :{parent}").unwrap();
        }
        if let Some(mark) = merged {
            writeln!(self.stream, "merge :{mark}").unwrap();
        }
        self.stream.extend_from_slice(b"deleteall\n");
        for (path, file) in &files {
            self.modify(path, file);
        }
        self.stream.push(b'\n');
        self.branches[branch] = (files, self.mark);
    }

    fn modify(&mut self, path: &[u8], file: &File) {
        let quoted: Vec<u8> = path
            .iter()
            .flat_map(|c| match c {
                b'"' | b'\\' => vec![b'\\', *c],
                c => vec![*c],
            })
            .collect();
        let shown = [b"\"", &quoted[..], b"\"\n"].concat();
        if file.mode == "160000" {
            self.stream.extend_from_slice(b"M 160000 ");
            self.stream.extend_from_slice(&[&file.data[..], b" ", &shown].concat());
            return;
        }
        self.stream.extend_from_slice(&[b"M ", file.mode.as_bytes(), b" inline ", &shown].concat());
        self.data(&file.data);
    }

    /// Appends a commit that changes one long file in many places, and moves parts of it.
    pub fn commit_to_long_file(&mut self, words: usize) {
        let (mut files, parent) = self.branches[0].clone();
        let path = b"long".to_vec();
        let old = files.get(&path).map(|file| file.data.clone()).unwrap_or_default();
        let mut lines: Vec<Vec<u8>> = old.split_inclusive(|&c| c == b'\n').map(<[u8]>::to_vec).collect();
        let blocks = if lines.is_empty() { 1 } else { self.random.below(40) };
        for _ in 0..blocks {
            let at = self.random.below(lines.len() + 1);
            let len = self.random.below(60).min(lines.len() - at);
            let taken: Vec<Vec<u8>> = lines.drain(at..at + len).collect();
            let to = self.random.below(lines.len() + 1);
            if self.random.below(3) == 0 {
                lines.splice(to..to, taken);
            }
            let count = if parent == 0 { 3000 } else { self.random.below(60) };
            let new: Vec<Vec<u8>> =
                (0..count).map(|_| format!("{}\n", self.random.below(words)).into_bytes()).collect();
            let to = self.random.below(lines.len() + 1);
            lines.splice(to..to, new);
        }
        files.insert(path, File { mode: "100644", data: lines.concat() });
        self.write_commit(0, files, parent, None);
    }

    /// Ends the stream: annotated tags, and a tag of a tag.
    pub fn finish(mut self) -> Vec<u8> {
        writeln!(self.stream, "tag v1\nmark :{}\nfrom :1\ntagger T <t@x> 5 +0100", self.mark + 1).unwrap();
        self.data(b"first\n");
        writeln!(self.stream, "tag v1-signed\nfrom :{}\ntagger T <t@x> 6 +0100", self.mark + 1).unwrap();
        self.data(b"tag of a tag\n");
        self.stream
    }
}
