//! Rules that map URLs to repositories: a host, a pattern of the path, a template of the name.
//!
//! They are modelled on those of egitd, but are data only: nothing is evaluated, patterns match whole paths,
//! a capture cannot lead elsewhere, and a host may have several rules.

use md5::Md5;
use regex_lite::Regex;
use sha1::Sha1;
use sha2::Digest;
use weir_ground::hex;

/// The most bytes of the host, the path and the template of a rule together.
const PATTERN_BYTES_MAX: usize = 4096;

/// One rule.
#[derive(Clone, Debug)]
pub struct MapRule {
    host: HostPattern,
    path: Regex,
    to: Vec<TemplatePart>,
    /// The host, the path and the template as they were written.
    pub source: (String, String, String),
}

#[derive(Clone, Debug)]
enum HostPattern {
    Any,
    Exact(String),
    Below(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Value(TemplateValue, Vec<Function>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplateValue {
    Host,
    Path,
    Capture(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Lower,
    Namespace3,
    Md5,
    Sha1,
    /// The first so many characters.
    First(usize),
    /// The remainder of a hexadecimal number.
    Mod(u64),
}

/// Why a rule is none, or what it makes of a path is no name.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The rule would take long to match.
    #[error("the rule is longer than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// The host is no pattern.
    #[error("host '{0}' must be a name, '*.name' or '*'")]
    Host(String),
    /// The path is no regular expression.
    #[error("path '{path}': {source}")]
    Path {
        /// The expression.
        path: String,
        /// The error of the parser.
        source: Box<regex_lite::Error>,
    },
    /// The name has a wrong part.
    #[error("to '{to}': {what}")]
    To {
        /// The name, as the rule has it.
        to: String,
        /// The reason.
        what: String,
    },
    /// No rule matches.
    #[error("no rule of serve.map matches")]
    NoRule,
    /// A rule makes something else of a path than a name.
    #[error("a rule makes '{}' of it, which is no name", .0.escape_default())]
    NoName(String),
}

impl MapError {
    fn to(to: &str, what: impl Into<String>) -> MapError {
        MapError::To { to: to.to_owned(), what: what.into() }
    }
}

impl MapRule {
    /// Returns a rule for `host` (a name, `*.name`, or `*` for all). `path` is a regular expression for the
    /// whole path. `to` names the repository: text that may contain `{host}`, `{path}`, `{1}`..., each with
    /// functions applied if need be: `{1|lower}`, `{1|namespace3}`, `{1|md5|first(2)}`,
    /// `{1|md5|first(1)|mod(8)}`.
    ///
    /// # Errors
    /// If one of them is malformed; the error says which, and how.
    pub fn new(host: &str, path: &str, to: &str) -> Result<MapRule, MapError> {
        if host.len() + path.len() + to.len() > PATTERN_BYTES_MAX {
            return Err(MapError::TooLong);
        }
        let pattern = match host {
            "" | "*" => HostPattern::Any,
            _ => match host.strip_prefix("*.") {
                Some(below) if !below.contains('*') && !below.is_empty() => {
                    HostPattern::Below(below.to_ascii_lowercase())
                }
                None if !host.contains('*') => HostPattern::Exact(host.to_ascii_lowercase()),
                _ => return Err(MapError::Host(host.to_owned())),
            },
        };
        let expression = Regex::new(&format!("^(?:{path})$"))
            .map_err(|source| MapError::Path { path: path.to_owned(), source: Box::new(source) })?;
        let to_parts = parse_template(to)?;
        for part in &to_parts {
            if let TemplatePart::Value(TemplateValue::Capture(n), _) = part
                && *n >= expression.captures_len()
            {
                return Err(MapError::to(to, format!("there is no group {n} in path '{path}'")));
            }
        }
        Ok(MapRule {
            host: pattern,
            path: expression,
            to: to_parts,
            source: (host.to_owned(), path.to_owned(), to.to_owned()),
        })
    }

    /// Returns the name that `path` at `host` is mapped to, if this rule matches.
    fn apply(&self, host: &str, path: &str) -> Option<String> {
        let is_meant = match &self.host {
            HostPattern::Any => true,
            HostPattern::Exact(name) => host == name,
            HostPattern::Below(name) => {
                host.strip_suffix(name.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        };
        if !is_meant {
            return None;
        }
        let captures = self.path.captures(path)?;
        let mut out = String::new();
        for part in &self.to {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Value(value, functions) => {
                    let value = match value {
                        TemplateValue::Host => host,
                        TemplateValue::Path => path.trim_start_matches('/'),
                        TemplateValue::Capture(n) => captures.get(*n).map_or("", |c| c.as_str()),
                    };
                    out.push_str(
                        &functions.iter().fold(value.to_owned(), |value, function| function.apply(&value)),
                    );
                }
            }
        }
        Some(out)
    }
}

/// Applies the first of `rules` that matches a URL's host (without its port) and path.
///
/// # Errors
/// If the resulting name could lead elsewhere: empty parts, `.`, `..`, control characters.
pub fn map(rules: &[MapRule], host: Option<&str>, path: &str) -> Option<Result<String, MapError>> {
    let host = host.map(without_port).unwrap_or_default().to_ascii_lowercase();
    let name = rules.iter().find_map(|rule| rule.apply(&host, path))?;
    let is_safe = name.trim_start_matches('/').split('/').all(|part| !matches!(part, "" | "." | ".."))
        && !name.chars().any(char::is_control);
    Some(if is_safe { Ok(name) } else { Err(MapError::NoName(name)) })
}

/// Returns `host` of `host:port`, `[::1]:port` and the like.
fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) && !name.contains(':') => name,
        _ => host,
    }
}

impl Function {
    fn parse(text: &str) -> Option<Function> {
        let argument = |name: &str| {
            text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?.trim().parse::<u64>().ok()
        };
        Some(match text {
            "lower" => Function::Lower,
            "namespace3" => Function::Namespace3,
            "md5" => Function::Md5,
            "sha1" => Function::Sha1,
            _ => match (argument("first"), argument("mod")) {
                (Some(n @ 1..=64), _) => Function::First(n as usize),
                (_, Some(n @ 1..)) => Function::Mod(n),
                _ => return None,
            },
        })
    }

    fn apply(self, value: &str) -> String {
        match self {
            Function::Lower => value.to_lowercase(),
            // As in egitd: short names are repeated until there are three characters.
            Function::Namespace3 => {
                let first: Vec<String> = value.chars().cycle().take(3).map(String::from).collect();
                first.join("/")
            }
            Function::Md5 => hex(&Md5::digest(value)),
            Function::Sha1 => hex(&Sha1::digest(value)),
            Function::First(n) => value.chars().take(n).collect(),
            // Digit by digit: a hash is larger than any integer type. Other characters are skipped.
            Function::Mod(n) => {
                let digits = value.chars().filter_map(|c| c.to_digit(16));
                digits.fold(0u128, |sum, digit| (sum * 16 + u128::from(digit)) % u128::from(n)).to_string()
            }
        }
    }
}

fn parse_template(template: &str) -> Result<Vec<TemplatePart>, MapError> {
    let fail = |what: &str| Err(MapError::to(template, what));
    if template.is_empty() {
        return fail("it names nothing");
    }
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((inside, behind)) = after.split_once('}') else { return fail("a '{' without its '}'") };
        if !before.is_empty() {
            parts.push(TemplatePart::Text(before.to_owned()));
        }
        let mut words = inside.split('|').map(str::trim);
        let value = match words.next().unwrap_or_default() {
            "host" => TemplateValue::Host,
            "path" => TemplateValue::Path,
            number => match number.parse() {
                Ok(n) => TemplateValue::Capture(n),
                Err(_) => {
                    return fail(&format!(
                        "'{{{number}}}' is unknown; there are {{host}}, {{path}} and groups {{1}}, {{2}}..."
                    ));
                }
            },
        };
        let mut functions = Vec::new();
        for word in words {
            let Some(function) = Function::parse(word) else {
                return fail(&format!(
                    "'{word}' is unknown; there are lower, namespace3, md5, sha1, first(N), mod(N)"
                ));
            };
            functions.push(function);
        }
        parts.push(TemplatePart::Value(value, functions));
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(TemplatePart::Text(rest.to_owned()));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(rules: &[(&str, &str, &str)], host: &str, path: &str) -> Option<Result<String, MapError>> {
        let rules: Vec<MapRule> = rules.iter().map(|(h, p, t)| MapRule::new(h, p, t).unwrap()).collect();
        map(&rules, Some(host), path)
    }

    #[test]
    fn the_rules_of_egitd() {
        let rules = [
            ("github.com", "/([^/]*)", "{1}"),
            ("gist.github.com", r"/(.*)\.git", "gist/{1|namespace3}/{1}"),
            ("solid.local", "/(.+)/(.+)", "{2|md5|first(1)|mod(8)}/{1|lower}/{2}"),
            ("*.example.org", "/(.+)", "{host}/{1}"),
        ];
        let is = |host: &str, path: &str, name: &str| {
            assert_eq!(mapped(&rules, host, path).unwrap().unwrap(), name, "{host}{path}")
        };
        is("github.com", "/x", "x");
        is("GitHub.com:9418", "/x", "x");
        is("gist.github.com", "/ab.git", "gist/a/b/a/ab");
        is("solid.local", "/Me/foo", "2/me/foo");
        is("a.example.org", "/r", "a.example.org/r");
        // The md5 of foo starts with a: 10 mod 8.
        assert!(mapped(&rules, "example.org", "/r").is_none());
        assert!(mapped(&rules, "github.com", "/x/y").is_none(), "patterns are about the whole path");
        assert!(mapped(&rules, "a.example.org", "/../etc").unwrap().is_err());
        assert!(mapped(&rules, "a.example.org", "/a//b").unwrap().is_err());
        assert_eq!(mapped(&[("*", "/(.*)", "{1|sha1|first(2)}")], "", "/x").unwrap().unwrap(), "11");
        assert_eq!(without_port("[::1]:80"), "::1");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let fails = |host: &str, path: &str, to: &str| MapRule::new(host, path, to).unwrap_err().to_string();
        assert!(fails("a*b", "/", "x").contains("host 'a*b'"));
        assert!(fails("*", "/(", "x").contains("path '/('"));
        assert!(fails("*", "/(.*)", "{2}").contains("no group 2"));
        assert!(fails("*", "/(.*)", "{1|rot13}").contains("'rot13' is unknown"));
        assert!(fails("*", "/(.*)", "{1").contains("without its '}'"));
        assert!(fails("*", "/(.*)", "").contains("names nothing"));
    }
}
