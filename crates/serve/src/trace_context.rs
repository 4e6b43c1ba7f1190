//! The place of a request in a trace (W3C Trace Context, level 1).

use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::access_line::AccessLine;

/// The place of a request in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The id of the trace, never 0.
    pub trace_id: u128,
    /// The span of the client that caused the request, if it named one.
    pub parent: Option<u64>,
    /// Whether the client wants the trace to be kept; `None`, if it says nothing.
    pub is_wanted: Option<bool>,
}

/// Takes requests that have ended, to trace them. It must not block.
pub trait RequestTracer: Debug + Send + Sync {
    /// Returns whether a request is to be traced.
    fn wants(&self, context: TraceContext) -> bool;

    /// Takes a request.
    fn ended(&self, line: &AccessLine, context: TraceContext);
}

impl TraceContext {
    /// Returns the context in a header `traceparent`; that of a new trace, if it has none.
    pub fn of(header: Option<&[u8]>) -> TraceContext {
        header.and_then(TraceContext::parse).unwrap_or_default()
    }

    /// Returns the context of a new trace.
    pub fn new() -> TraceContext {
        let trace_id = u128::from(new_id()) << 64 | u128::from(new_id());
        TraceContext { trace_id, parent: None, is_wanted: None }
    }

    /// Reads `VERSION-TRACE-PARENT-FLAGS`. A later version may have more behind it.
    fn parse(header: &[u8]) -> Option<TraceContext> {
        let text = std::str::from_utf8(header).ok()?;
        let mut parts = text.splitn(5, '-');
        let mut hex = |len: usize| {
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            parts.next().filter(|part| part.len() == len && part.bytes().all(is_hex))
        };
        let (version, trace, parent, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        if version == "ff" || version == "00" && parts.next().is_some() {
            return None;
        }
        let trace_id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let parent = u64::from_str_radix(parent, 16).ok().filter(|id| *id != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(TraceContext { trace_id, parent: Some(parent), is_wanted: Some(flags & 1 == 1) })
    }
}

impl Default for TraceContext {
    fn default() -> TraceContext {
        TraceContext::new()
    }
}

/// Returns an id that no other trace or span has, as far as chance allows; never 0.
pub fn new_id() -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let id = KEYS.hash_one((NEXT.fetch_add(1, Ordering::Relaxed), std::process::id()));
        if id != 0 {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_those_of_clients() {
        let parsed = TraceContext::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        assert_eq!(parsed.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((parsed.parent, parsed.is_wanted), (Some(0x00f0_67aa_0ba9_02b7), Some(true)));
        let later = b"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more";
        assert_eq!(TraceContext::parse(later).unwrap().is_wanted, Some(false));
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-+1",
        ] {
            assert_eq!(TraceContext::parse(wrong.as_bytes()), None, "{wrong}");
        }
        let (one, other) = (TraceContext::of(None), TraceContext::of(Some(b"\xff")));
        assert!(one.trace_id != 0 && one.trace_id != other.trace_id && one.parent.is_none());
    }
}
