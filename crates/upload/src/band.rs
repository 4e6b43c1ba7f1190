//! Side-band framing of pack bytes.

use weir_git::pktline::{self, BAND_BYTES_MAX};

/// The framing of pack bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No framing (v0 clients without side-band).
    Raw,
    /// `side-band`: packets of at most 1,000 bytes.
    Small,
    /// `side-band-64k` and v2.
    Large,
}

impl Framing {
    /// Returns the maximum number of pack bytes in a packet; `None` if there are no packets.
    pub fn payload_bytes_max(self) -> Option<usize> {
        match self {
            Framing::Raw => None,
            Framing::Small => Some(1000 - 5),
            Framing::Large => Some(BAND_BYTES_MAX),
        }
    }

    /// Returns the five bytes before `payload_bytes` of a pack in a packet; NULs if there are no packets.
    pub fn packet_head(self, payload_bytes: usize) -> [u8; 5] {
        if self == Framing::Raw {
            return [0; 5];
        }
        let [a, b, c, d] = pktline::length_digits(payload_bytes + 5);
        [a, b, c, d, 1]
    }

    /// Appends `data`, framed, to `out`.
    pub fn push(self, out: &mut Vec<u8>, data: &[u8]) {
        match self.payload_bytes_max() {
            None => out.extend_from_slice(data),
            Some(max) => {
                for part in data.chunks(max) {
                    out.extend_from_slice(&self.packet_head(part.len()));
                    out.extend_from_slice(part);
                }
            }
        }
    }

    /// Appends a message on `band` (2: progress, 3: fatal error).
    pub fn push_message(self, out: &mut Vec<u8>, band: u8, text: &str) {
        if let Some(max) = self.payload_bytes_max() {
            let text = &text.as_bytes()[..text.len().min(max)];
            pktline::push_length(out, text.len() + 5);
            out.push(band);
            out.extend_from_slice(text);
        }
    }

    /// Returns an empty packet, which keeps the connection alive; `None` without side-band.
    pub fn keepalive(self) -> Option<&'static [u8]> {
        (self != Framing::Raw).then_some(b"0005\x01")
    }
}
