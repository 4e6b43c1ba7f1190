//! The parameters of a request.

use std::ops::RangeInclusive;

use percent_encoding::percent_decode_str;

use crate::problem::Problem;

/// The parameters behind the `?` of a URL. Each endpoint takes those that it knows.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<(String, Vec<u8>)>);

impl Parameters {
    /// Reads a query. Values may be any bytes, as paths are.
    ///
    /// # Errors
    /// If a parameter is there twice, or its name is no text.
    pub(crate) fn parse(query: &str) -> Result<Parameters, Problem> {
        let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).collect::<Vec<u8>>();
        let mut all: Vec<(String, Vec<u8>)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = String::from_utf8(decoded(name))
                .map_err(|_| Problem::bad_request("the name of a parameter is not UTF-8"))?;
            if all.iter().any(|(known, _)| *known == name) {
                return Err(Problem::bad_request(format!("the parameter '{name}' is there twice")));
            }
            all.push((name, decoded(value)));
        }
        Ok(Parameters(all))
    }

    /// Returns parameters with these names, no two alike.
    pub(crate) fn of(all: Vec<(String, Vec<u8>)>) -> Parameters {
        Parameters(all)
    }

    /// Returns the names and values of those that are not taken, by name.
    pub(crate) fn sorted(&self) -> Vec<(&str, &[u8])> {
        let mut all: Vec<(&str, &[u8])> =
            self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        all.sort_unstable();
        all
    }

    /// Takes a parameter as bytes.
    pub(crate) fn bytes(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    /// Takes a parameter as text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let Some(bytes) = self.bytes(name) else { return Ok(None) };
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|_| Problem::bad_request(format!("the parameter '{name}' is not UTF-8")))
    }

    /// Takes a parameter as a number within `range`.
    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let digits = Some(&text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = digits.and_then(|text| text.parse().ok()).filter(|number| range.contains(number));
        let wrong = || {
            let (first, last) = (range.start(), range.end());
            Problem::bad_request(format!("the parameter '{name}' must be a number from {first} to {last}"))
        };
        number.map(Some).ok_or_else(wrong)
    }

    /// Takes a parameter that is `true` or `false`; `false`, if it is not there.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Problem> {
        match self.text(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::bad_request(format!("the parameter '{name}' must be true or false"))),
        }
    }

    /// Checks that the endpoint has taken all of them.
    pub(crate) fn end(&self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::bad_request(format!("there is no parameter '{name}' here"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked() {
        let mut all =
            Parameters::parse("a=1+2%20%ff&n=7&f=true&big=99999999999999999999&t=x%ff&&empty").unwrap();
        assert_eq!(all.bytes("a").unwrap(), b"1 2 \xff");
        assert_eq!(all.number("n", 1..=7).unwrap(), Some(7));
        assert!(all.flag("f").unwrap() && !all.flag("f").unwrap());
        let why = all.number("big", 1..=100).unwrap_err().detail;
        assert_eq!(why, "the parameter 'big' must be a number from 1 to 100");
        assert!(all.text("t").is_err());
        assert_eq!(all.end().unwrap_err().detail, "there is no parameter 'empty' here");
        assert_eq!(all.text("empty").unwrap().as_deref(), Some(""));
        assert!(all.end().is_ok());
        assert!(Parameters::parse("a=1&a=2").is_err());
        for wrong in ["n=+1", "n=-1", "n=", "n=0x1", "n=8"] {
            assert!(Parameters::parse(wrong).unwrap().number("n", 1..=7).is_err(), "{wrong}");
        }
    }
}
