//! A line of the access log.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::access_log::AccessLogFormat;

/// A line of the access log. Its keys in JSON are stable (docs/book/src/operating.md, "Access log").
#[derive(Clone, Debug, Serialize)]
pub struct AccessLine {
    /// When the request came: RFC 3339, in UTC, to the millisecond.
    #[serde(serialize_with = "rfc3339")]
    pub time: OffsetDateTime,
    /// A name for the request: that of the client's header `X-Request-Id`, or one that no other request has.
    pub request_id: String,
    /// The address of the client; `None` over a Unix socket or a pipe.
    pub client: Option<IpAddr>,
    /// The port of the client.
    pub port: Option<u16>,
    /// The name of the token with which the client has authenticated.
    pub user: Option<String>,
    /// `git`, `http`, `https` or `ssh`.
    pub protocol: &'static str,
    /// The version of the protocol, such as `HTTP/1.1`.
    pub version: &'static str,
    /// The method, or the git command.
    pub method: String,
    /// The path with its parameters, as it was sent.
    pub target: String,
    /// The repository, as the client names it.
    pub repository: Option<String>,
    /// The status, of HTTP or in its terms.
    pub status: u16,
    /// `answered`, `refused`, `failed` or `broken_off`.
    pub result: &'static str,
    /// Bytes of the answer's body that were sent.
    pub bytes: u64,
    /// How long it took until the answer was sent.
    pub seconds: f64,
    /// The header `Referer`.
    pub referer: Option<String>,
    /// The header `User-Agent`.
    pub user_agent: Option<String>,
    /// The id of the trace, in hexadecimal, if requests are traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

impl AccessLine {
    /// Returns the line of a request that has just ended, after `took`.
    pub fn ended(peer: Option<SocketAddr>, took: Duration) -> AccessLine {
        AccessLine {
            time: OffsetDateTime::now_utc() - took,
            request_id: String::new(),
            client: peer.map(|peer| peer.ip().to_canonical()),
            port: peer.map(|peer| peer.port()),
            user: None,
            protocol: "",
            version: "",
            method: String::new(),
            target: String::new(),
            repository: None,
            status: 0,
            result: "",
            bytes: 0,
            seconds: took.as_micros() as f64 / 1e6,
            referer: None,
            user_agent: None,
            trace_id: None,
        }
    }

    /// Returns the line in a form, with a line feed.
    pub fn encode(&self, format: AccessLogFormat) -> Vec<u8> {
        let mut line = match format {
            AccessLogFormat::Json => serde_json::to_vec(self).unwrap_or_default(),
            AccessLogFormat::Combined => self.combined(),
        };
        line.push(b'\n');
        line
    }

    /// Returns the line in the combined log format (Apache, mod_log_config: `%h %l %u %t "%r" %>s %b
    /// "%{Referer}i" "%{User-agent}i"`).
    fn combined(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(256);
        match self.client {
            Some(client) => write!(line, "{client}"),
            // As nginx names a client over a Unix socket.
            None => write!(line, "unix:"),
        }
        .expect("to memory");
        line.extend_from_slice(b" - ");
        match &self.user {
            // A blank would begin the next field.
            Some(user) => push_escaped(&mut line, &user.replace(' ', "_")),
            None => line.push(b'-'),
        }
        line.extend_from_slice(b" [");
        push_common_time(&mut line, self.time);
        line.extend_from_slice(b"] \"");
        push_escaped(&mut line, &self.method);
        line.push(b' ');
        push_escaped(&mut line, &self.target);
        write!(line, " {}\" {} ", self.version, self.status).expect("to memory");
        match self.bytes {
            0 => line.push(b'-'),
            bytes => write!(line, "{bytes}").expect("to memory"),
        }
        for text in [&self.referer, &self.user_agent] {
            line.extend_from_slice(b" \"");
            push_escaped(&mut line, text.as_deref().unwrap_or("-"));
            line.push(b'"');
        }
        line
    }
}

/// Adds text of a client: what could end a field or control a terminal is escaped, as Apache does.
fn push_escaped(line: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => line.push(byte),
            _ => write!(line, "\\x{byte:02x}").expect("to memory"),
        }
    }
}

/// Writes a time as RFC 3339 does, to the millisecond.
fn rfc3339<S: Serializer>(time: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    let time = time.replace_millisecond(time.millisecond()).unwrap_or(*time);
    serializer.serialize_str(&time.format(&Rfc3339).map_err(serde::ser::Error::custom)?)
}

/// Writes a time as the combined log format does: `06/Nov/1994:08:49:37 +0000`.
fn push_common_time(line: &mut Vec<u8>, time: OffsetDateTime) {
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    let month = &month.to_string()[..3];
    write!(line, "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000").expect("to memory");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> AccessLine {
        AccessLine {
            time: OffsetDateTime::UNIX_EPOCH + Duration::from_micros(784_111_777_042_678),
            request_id: "1-2".to_owned(),
            user: Some("some one".to_owned()),
            protocol: "http",
            version: "HTTP/1.1",
            method: "GET".to_owned(),
            target: "/a?b=\"c\\".to_owned(),
            status: 200,
            result: "answered",
            user_agent: Some("git/2\u{1b}[2J\n".to_owned()),
            ..AccessLine::ended(Some("[::ffff:192.0.2.7]:5".parse().unwrap()), Duration::from_micros(1500))
        }
    }

    #[test]
    fn the_combined_format_is_that_of_web_servers() {
        let text = String::from_utf8(line().encode(AccessLogFormat::Combined)).unwrap();
        assert_eq!(
            text,
            "192.0.2.7 - some_one [06/Nov/1994:08:49:37 +0000] \"GET /a?b=\\\"c\\\\ HTTP/1.1\" 200 - \"-\" \
            \"git/2\\x1b[2J\\x0a\"\n"
        );
        let local = AccessLine { client: None, user: None, bytes: 7, ..line() };
        let text = String::from_utf8(local.encode(AccessLogFormat::Combined)).unwrap();
        assert!(text.starts_with("unix: - - [") && text.contains("200 7 "), "{text}");
    }

    #[test]
    fn json_has_every_field() {
        let value: serde_json::Value = serde_json::from_slice(&line().encode(AccessLogFormat::Json)).unwrap();
        assert_eq!((&value["time"], &value["seconds"]), (&"1994-11-06T08:49:37.042Z".into(), &0.0015.into()));
        assert_eq!((&value["client"], &value["port"]), (&"192.0.2.7".into(), &5.into()));
        assert_eq!(value.as_object().unwrap().len(), 16);
    }
}
