//! Compressed bitmaps, as git's index has them.

/// Returns a bitmap in which the bits of `positions`, which ascend, are set (gitformat-bitmap, EWAH): the
/// number of bits and of words, the words, and where the last one is that tells what follows. Such a word has
/// the number of words without bits in its bits 1 to 32, and of those with bits behind it in bits 33 to 63.
pub fn ewah(positions: &[u32]) -> Vec<u8> {
    debug_assert!(positions.is_sorted(), "bits are set out of order");
    let mut words: Vec<(u64, u64)> = Vec::new();
    for &position in positions {
        let (at, bit) = (u64::from(position / 64), 1 << (position % 64));
        match words.last_mut() {
            Some((last, word)) if *last == at => *word |= bit,
            _ => words.push((at, bit)),
        }
    }
    let (mut buffer, mut last, mut next) = (Vec::new(), 0, 0);
    for run in words.chunk_by(|a, b| a.0 + 1 == b.0) {
        last = buffer.len();
        buffer.push((run[0].0 - next) << 1 | (run.len() as u64) << 33);
        buffer.extend(run.iter().map(|(_, word)| *word));
        next = run[0].0 + run.len() as u64;
    }
    if buffer.is_empty() {
        buffer.push(0);
    }
    let bits = positions.last().map_or(0, |last| last + 1);
    let mut out = [bits.to_be_bytes(), (buffer.len() as u32).to_be_bytes()].concat();
    buffer.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    out.extend_from_slice(&(last as u32).to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_is_as_git_reads_it() {
        assert_eq!(ewah(&[]), [[0; 7].to_vec(), vec![1], vec![0; 12]].concat());
        let words = |bitmap: &[u8]| -> Vec<u64> {
            bitmap[8..bitmap.len() - 4]
                .chunks(8)
                .map(|word| u64::from_be_bytes(word.try_into().unwrap()))
                .collect()
        };
        let bitmap = ewah(&[0, 3, 64, 640]);
        assert_eq!(bitmap[..8], [0, 0, 2, 129, 0, 0, 0, 5]);
        assert_eq!(words(&bitmap), [2 << 33, 0b1001, 1, 8 << 1 | 1 << 33, 1]);
        assert_eq!(bitmap[bitmap.len() - 4..], [0, 0, 0, 3]);
    }
}
