//! git's configuration files (git-config, "Syntax"), as far as a server needs them: values are read, nothing is included and
//! nothing executed.

/// Values of a configuration, in the order they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitConfig {
    /// Keys as `section.key` or `section.subsection.key`, section and key in lower case; a key without a value is true.
    values: Vec<(String, String)>,
}

impl GitConfig {
    /// Reads a file. Lines that are malformed are passed over: whoever keeps the repository hears of them from git.
    pub fn parse(data: &[u8]) -> GitConfig {
        let mut config = GitConfig::default();
        config.extend(data);
        config
    }

    /// Reads a further file, whose values count more.
    pub fn extend(&mut self, data: &[u8]) {
        let text = String::from_utf8_lossy(data);
        let mut section = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let mut rest = line.trim_start();
            if let Some(header) = rest.strip_prefix('[') {
                let Some((name, after)) = parse_header(header) else { continue };
                section = name;
                rest = after.trim_start();
            }
            if rest.is_empty() || rest.starts_with(['#', ';']) {
                continue;
            }
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
            let (key, rest) = rest.split_at(end);
            if key.is_empty() || section.is_empty() {
                continue;
            }
            let value = match rest.trim_start().strip_prefix('=') {
                Some(value) => parse_value(value, &mut lines),
                None => "true".to_owned(),
            };
            self.values.push((format!("{section}.{}", key.to_ascii_lowercase()), value));
        }
    }

    /// The last value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All values of any of `keys`, in the order they stand.
    pub fn all<'c>(&'c self, keys: &'c [&str]) -> impl Iterator<Item = &'c str> {
        self.values.iter().filter(move |(k, _)| keys.contains(&k.as_str())).map(|(_, v)| v.as_str())
    }

    /// A truth; `None` if it is not set, or no truth.
    pub fn truth(&self, key: &str) -> Option<bool> {
        match self.get(key)?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" | "" => Some(false),
            number => number.parse::<i64>().ok().map(|n| n != 0),
        }
    }

    /// Keys `<section>.<subsection>.<key>` with their subsections, in order.
    pub fn subsections<'c>(&'c self, section: &'c str, key: &'c str) -> impl Iterator<Item = (&'c str, &'c str)> {
        self.values.iter().filter_map(move |(k, v)| {
            let within = k.strip_prefix(section)?.strip_prefix('.')?.strip_suffix(key)?.strip_suffix('.')?;
            Some((within, v.as_str()))
        })
    }
}

/// `section]` or `section "subsection"]`, after the bracket; gives its name and what follows.
fn parse_header(header: &str) -> Option<(String, &str)> {
    let end = header.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.'))?;
    let section = header[..end].to_ascii_lowercase();
    let rest = header[end..].trim_start();
    if let Some(after) = rest.strip_prefix(']') {
        return Some((section, after));
    }
    let mut name = String::new();
    let mut chars = rest.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return rest[1 + at + 1..].trim_start().strip_prefix(']').map(|after| (format!("{section}.{name}"), after)),
            '\\' => name.push(chars.next()?.1),
            c => name.push(c),
        }
    }
    None
}

/// A value after its equals sign; it goes on in the next line after a backslash.
fn parse_value<'t>(first: &'t str, lines: &mut impl Iterator<Item = &'t str>) -> String {
    let mut value = String::new();
    // Spaces count only between other characters, and in quotes.
    let mut solid = 0;
    let mut quoted = false;
    let mut line = first.trim_start();
    'lines: loop {
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    None => match lines.next() {
                        Some(next) => {
                            line = next;
                            continue 'lines;
                        }
                        None => break 'lines,
                    },
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    Some('b') => value.push('\u{8}'),
                    Some(c) => value.push(c),
                },
                '"' => quoted = !quoted,
                '#' | ';' if !quoted => break 'lines,
                c => value.push(c),
            }
            if quoted || !c.is_whitespace() {
                solid = value.len();
            }
        }
        break;
    }
    value.truncate(solid);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_git_reads_them() {
        let config = GitConfig::parse(
            b"; a comment\n[core]\n\tbare = true # yes\n\tName = \"a ; b\" c  \n[uploadpack] allowFilter\n\thideRefs = refs/a\n\
              hiderefs=!refs/a/b\n[uploadpackfilter \"blob:none\"]\n allow=false\n[x \"A\\\"b\"]\nk = one\\\n two\\t3\n[Core]\nbare = no\nbad line here\n",
        );
        assert_eq!(config.truth("core.bare"), Some(false));
        assert_eq!(config.get("core.name"), Some("a ; b c"));
        assert_eq!(config.truth("uploadpack.allowfilter"), Some(true));
        assert_eq!(config.all(&["uploadpack.hiderefs"]).collect::<Vec<_>>(), ["refs/a", "!refs/a/b"]);
        assert_eq!(config.subsections("uploadpackfilter", "allow").collect::<Vec<_>>(), [("blob:none", "false")]);
        assert_eq!(config.get("x.A\"b.k"), Some("one two\t3"));
        assert_eq!(config.truth("core.missing"), None);
    }

    #[test]
    fn nonsense_is_passed_over() {
        for bad in
            [&b"["[..], b"[a", b"[a \"", b"[a \"\\", b"= x", b"[a]\n=x", b"[a]\nk = \\", b"\xff\xfe[a]\n\xff = 1", b"[a \"b\" c]\nk=1"]
        {
            let _ = GitConfig::parse(bad);
        }
    }
}
