//! Dense sets of numbers.

/// A dense set of object numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bits(pub(crate) Vec<u64>);

impl Bits {
    pub(crate) fn new(bits: u64) -> Bits {
        Bits(vec![0; bits.div_ceil(64) as usize])
    }

    #[inline]
    pub(crate) fn get(&self, n: u32) -> bool {
        (self.0[n as usize / 64] >> (n % 64)) & 1 != 0
    }

    /// Sets a bit; returns whether it was clear.
    #[inline]
    pub(crate) fn set(&mut self, n: u32) -> bool {
        let word = &mut self.0[n as usize / 64];
        let was_clear = (*word >> (n % 64)) & 1 == 0;
        *word |= 1 << (n % 64);
        was_clear
    }

    /// Clears a bit.
    #[inline]
    pub(crate) fn clear(&mut self, n: u32) {
        self.0[n as usize / 64] &= !(1 << (n % 64));
    }

    pub(crate) fn or(&mut self, other: &[u64]) {
        debug_assert!(other.len() <= self.0.len(), "a set with more numbers");
        for (a, b) in self.0.iter_mut().zip(other) {
            *a |= b;
        }
    }

    /// Returns the numbers in this set and not in `other`, ascending.
    pub(crate) fn minus<'a>(&'a self, other: &'a Bits) -> impl Iterator<Item = u32> + 'a {
        debug_assert_eq!(self.0.len(), other.0.len(), "sets of two repositories");
        self.0.iter().zip(&other.0).enumerate().flat_map(|(i, (a, b))| {
            let mut word = a & !b;
            std::iter::from_fn(move || {
                if word == 0 {
                    return None;
                }
                let n = word.trailing_zeros();
                word &= word - 1;
                Some(i as u32 * 64 + n)
            })
        })
    }
}
