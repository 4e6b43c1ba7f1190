//! pkt-lines, first lines of git://, URLs, ref names, packed-refs, object parsing: everything that takes
//! plain bytes.
#![no_main]
use libfuzzer_sys::fuzz_target;
use weir_git::{HashKind, Kind, pktline};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((pkt, used))) = pktline::decode(rest) {
        let _ = pkt.text();
        rest = &rest[used..];
    }
    let mut reader = pktline::PktReader::new(data);
    while let Ok(Some(_)) = reader.next_pkt() {}
    let _ = weir_upload::parse_daemon_request(data);
    let _ = weir_git::refname::is_valid(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = weir_transport::Url::parse(text).map(|u| u.default_name());
    }
    for hash in [HashKind::Sha1, HashKind::Sha256] {
        let _ = weir_repo::parse_packed_refs(hash, data);
        let _ = weir_repo::parse_head(hash, data);
        for kind in [Kind::Commit, Kind::Tree, Kind::Tag] {
            let _ = weir_git::link_targets(hash, kind, data, |_| {});
        }
    }
});
