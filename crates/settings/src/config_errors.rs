//! Errors in the configuration file: which line is wrong, and what the writer may have meant.

/// An error in a configuration.
pub(crate) struct Wrong {
    /// The setting, or the table.
    pub(crate) key: &'static str,
    /// The index of the table, from 0, among those with the same name.
    pub(crate) table: usize,
    pub(crate) why: String,
}

impl From<(&'static str, String)> for Wrong {
    fn from((key, why): (&'static str, String)) -> Wrong {
        Wrong { key, table: 0, why }
    }
}

/// Returns the line on which `key` is set, or where the table of that name begins. If there are several such
/// tables, `table` is the index of one, from 0.
pub(crate) fn line_of(text: &str, key: &str, table: usize) -> Option<usize> {
    let header_of =
        |line: &str| line.starts_with('[').then(|| line.trim_matches(['[', ']']).trim().to_owned());
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).enumerate();
    let headers = lines.clone().filter(|(_, line)| header_of(line).is_some_and(|name| name == key));
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    let mut inside = false;
    let is_set = |&(_, line): &(usize, &str)| {
        inside = header_of(line).map_or(inside, |header| header == section);
        inside && line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    headers.skip(table).map(|(n, _)| n + 1).next().or_else(|| lines.find(is_set).map(|(n, _)| n + 1))
}

/// Returns what is wrong with `text`, which is no configuration: `:LINE:COLUMN: ` and a message.
pub(crate) fn toml_error(text: &str, e: &toml::de::Error) -> String {
    let message = without_text(e.message().trim()).replace('\n', " ");
    let Some(span) = e.span() else { return format!(": {message}") };
    let before = &text[..span.start.min(text.len())];
    let line = before.matches('\n').count();
    let column = before.len() - before.rfind('\n').map_or(0, |n| n + 1) + 1;
    let lines: Vec<&str> = text.lines().collect();
    let hint = match &message {
        message if message.starts_with("duplicate key") => first_of(&lines, line),
        message if message.starts_with("unknown field") => commented_table(&lines, line),
        _ => None,
    };
    format!(":{}:{column}: {}", line + 1, hint.unwrap_or(message))
}

/// Returns `message` without the text that stands where another type is expected: it may be a secret.
fn without_text(message: &str) -> String {
    let text = message.find("string \"").zip(message.rfind("\", expected"));
    text.filter(|(start, end)| start < end).map_or_else(
        || message.to_owned(),
        |(start, end)| format!("{}a text{}", &message[..start], &message[end + 1..]),
    )
}

/// A line of TOML that says what the lines below it, or it alone, are about.
#[derive(PartialEq, Eq)]
enum TomlLine<'t> {
    /// `[name]` or `[[name]]`.
    Table(&'t str),
    /// `name = value`.
    Key(&'t str),
    Other,
}

fn parse_line(line: &str) -> TomlLine<'_> {
    let line = line.trim();
    if let Some(table) = line.strip_prefix('[') {
        let name = table.split(']').next().unwrap_or_default();
        return TomlLine::Table(name.trim_matches('[').trim());
    }
    match line.split_once('=') {
        Some((key, _)) if !line.starts_with('#') => TomlLine::Key(key.trim()),
        _ => TomlLine::Other,
    }
}

/// Returns `text` without its tables that are empty and stand again further down, as in a file that has all
/// tables and to which one was pasted; `None` if there are none.
pub(crate) fn without_empty_tables(text: &str) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let tables: Vec<usize> = (0..lines.len())
        .filter(|&n| !lines[n].trim().starts_with("[[") && matches!(parse_line(lines[n]), TomlLine::Table(_)))
        .collect();
    let is_blank = |line: &&str| line.trim().is_empty() || line.trim().starts_with('#');
    let mut is_changed = false;
    for (at, &n) in tables.iter().enumerate() {
        let end = tables.get(at + 1).map_or(lines.len(), |next| *next);
        let stands_again =
            tables[at + 1..].iter().any(|&next| parse_line(lines[next]) == parse_line(lines[n]));
        if stands_again && lines[n + 1..end].iter().all(is_blank) {
            lines[n] = "";
            is_changed = true;
        }
    }
    is_changed.then(|| lines.join("\n"))
}

/// Returns a message that names the line on which the table or key of line `at` (from 0) stands already.
fn first_of(lines: &[&str], at: usize) -> Option<String> {
    let twice = parse_line(lines.get(at)?);
    let is_table = |line: &&str| matches!(parse_line(line), TomlLine::Table(_));
    // Keys of one name may stand in different tables.
    let start = match twice {
        TomlLine::Key(_) => lines[..at].iter().rposition(is_table).map_or(0, |n| n + 1),
        _ => 0,
    };
    let first = start + lines[start..at].iter().position(|line| parse_line(line) == twice)? + 1;
    match twice {
        TomlLine::Table(name) => {
            Some(format!("the table [{name}] stands on line {first} already: put its keys there"))
        }
        TomlLine::Key(name) => Some(format!("'{name}' is set on line {first} already: keep one of the two")),
        TomlLine::Other => None,
    }
}

/// Returns a message if the key of line `at` (from 0) stands below a table that is a comment.
fn commented_table(lines: &[&str], at: usize) -> Option<String> {
    let TomlLine::Key(key) = parse_line(lines.get(at)?) else { return None };
    let table = |line: &str| match parse_line(line.trim_start_matches(['#', ' '])) {
        TomlLine::Table(name) => Some(name.to_owned()),
        _ => None,
    };
    let above = lines[..at].iter().rposition(|line| table(line).is_some())?;
    let name = lines[above].trim_start().starts_with('#').then(|| table(lines[above]))??;
    Some(format!("'{key}' belongs to no table: take away the # before [{name}] on line {}, too", above + 1))
}

#[cfg(test)]
mod tests {
    use crate::config::{TEMPLATE, parse};

    fn error_of(text: &str) -> String {
        parse(text, "f").unwrap_err().to_string()
    }

    #[test]
    fn no_error_repeats_a_secret() {
        let forge = "[[forge]]\ntype = 'gitlab'\nurl = 'https://g.example'\n";
        let wrong = [
            &format!("{forge}tokens = 'PWSEC'\n"),
            "[[forge]]\ntype = 'gitlab'\nurl = 'https://u:PWSEC@g.example'\n",
            "[[forge]]\ntype = 'gitlab'\nurl = 'htps://u:PWSEC@g.example'\n",
            "[[events.webhook]]\nname = 'x'\nforge = 'github'\nsecrets = 'PWSEC'\n",
            "[[hooks.webhook]]\nname = 'x'\nurl = 'htp://u:PWSEC@h/x'\n",
            "[traces]\nheaders = 'Bearer PWSEC'\n",
        ];
        for text in wrong {
            let said = error_of(text);
            assert!(said.starts_with("f:") && !said.contains("PWSEC"), "{said}");
        }
    }

    #[test]
    fn config_error_names_the_line_of_the_first() {
        let text = "[mirror]\njobs = 1\n\n[serve]\nfiles = true\n[ mirror ] # again\nlfs = true\n";
        assert_eq!(error_of(text), "f:6:3: the table [mirror] stands on line 1 already: put its keys there");
        let text = "[mirror]\njobs = 1\n[serve]\nqueue_max = 2\n  queue_max=3\n";
        assert_eq!(error_of(text), "f:5:3: 'queue_max' is set on line 4 already: keep one of the two");
    }

    #[test]
    fn config_error_names_the_table_that_is_a_comment() {
        let text = TEMPLATE.replace("\n#jobs = 8\n", "\njobs = 8\n");
        assert_eq!(parse(&text, "f").unwrap().mirror.jobs, 8);
        let error = error_of(&text.replace("\n[mirror]\n", "\n#[mirror]\n"));
        assert!(
            error.contains(": 'jobs' belongs to no table: take away the # before [mirror] on line "),
            "{error}"
        );
        // A table can be pasted at the end, once.
        let pasted = format!("{TEMPLATE}\n[serve]\nqueue_max = 3\n[mirror]\njobs = 3\n");
        assert_eq!(parse(&pasted, "f").unwrap().mirror.jobs, 3);
        let error = error_of(&format!("{pasted}[mirror]\nlfs = true\n"));
        assert!(error.contains("the table [mirror] stands on line "), "{error}");
        let error = error_of("[mirror]\njobz = 8\n");
        assert!(error.contains("unknown field `jobz`, expected one of"), "{error}");
    }
}
