//! Deliveries of webhooks: any headers and any body, for each forge, with and without secrets. What is kept
//! is a line that names a repository.
#![no_main]
use std::sync::{Arc, LazyLock};

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use tokio::sync::watch;
use weir_events::{
    LINE_BYTES_MAX, Notice, StreamLine, WebhookDoors, WebhookForge, WebhookOptions, gerrit_line,
};

static DOORS: LazyLock<WebhookDoors> = LazyLock::new(|| {
    let webhook = |unsigned: bool| {
        move |forge: WebhookForge| {
            let name = format!("{}-{unsigned}", forge.name());
            let has_secret = !unsigned && !forge.has_public_key();
            let secrets = has_secret.then(|| "secret".to_owned()).into_iter().collect();
            let site = Some("https://h".to_owned());
            WebhookOptions { name, forge, secrets, unsigned, site }
        }
    };
    let all = WebhookForge::ALL.map(webhook(true)).into_iter().chain(WebhookForge::ALL.map(webhook(false)));
    let (_, intake) = watch::channel(None);
    WebhookDoors::new(&all.collect::<Vec<_>>(), intake, Arc::default()).unwrap()
});

fuzz_target!(|data: &[u8]| {
    // Lines `NAME: VALUE`, an empty line, and the body.
    let end = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(0);
    let (head, body) = (&data[..end], &data[(end + 2).min(data.len())..]);
    let mut headers = HeaderMap::new();
    for line in head.split(|&byte| byte == b'\n') {
        let Some(at) = line.iter().position(|&byte| byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..at]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[at + 1..].trim_ascii())) {
            headers.append(name, value);
        }
    }
    if let Ok(StreamLine::Event(line)) = gerrit_line("https://h", body) {
        assert!(line.len() <= LINE_BYTES_MAX && Notice::parse(&line).is_ok());
    }
    for forge in WebhookForge::ALL {
        for unsigned in [true, false] {
            let name = format!("{}-{unsigned}", forge.name());
            if let Ok((line, _)) = DOORS.line_of(&name, &headers, body) {
                assert!(line.len() <= LINE_BYTES_MAX && !line.contains(&b'\n'));
                assert!(Notice::parse(&line).is_ok());
            }
        }
    }
});
