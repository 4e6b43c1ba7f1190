//! Numbers of variable length, as git's index has them (varint.c of git; the offsets of deltas are the same).

/// Reads a number; `None` if it is cut, or too large.
pub fn varint(rest: &mut &[u8]) -> Option<usize> {
    let mut value: usize = 0;
    loop {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value = value.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?;
    }
}

/// Appends a number.
pub fn push_varint(out: &mut Vec<u8>, number: usize) {
    let mut bytes = vec![(number & 0x7f) as u8];
    let mut rest = number >> 7;
    while rest > 0 {
        rest -= 1;
        bytes.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.extend(bytes.iter().rev());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for number in [0, 1, 127, 128, 16_511, 16_512, 1 << 30] {
            let mut out = Vec::new();
            push_varint(&mut out, number);
            assert_eq!(varint(&mut &out[..]), Some(number));
        }
        assert_eq!(varint(&mut &[0xff; 12][..]), None);
    }
}
