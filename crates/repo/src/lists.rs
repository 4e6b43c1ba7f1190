//! Lists of numbers, one after the other in one table.

/// A list of numbers for each of several things: 4 bytes per thing and 4 per number.
#[derive(Debug)]
pub(crate) struct Lists {
    /// Where each list starts; the last value is where the last list ends.
    starts: Vec<u32>,
    numbers: Vec<u32>,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists { starts: vec![0], numbers: Vec::new() }
    }
}

impl Lists {
    /// Returns the number of lists.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the list of thing `n`.
    pub(crate) fn of(&self, n: u32) -> &[u32] {
        &self.numbers[self.starts[n as usize] as usize..self.starts[n as usize + 1] as usize]
    }

    /// Adds a number to the list that the next [`Lists::end`] ends.
    pub(crate) fn add(&mut self, number: u32) {
        self.numbers.push(number);
    }

    /// Ends the list of the next thing.
    pub(crate) fn end(&mut self) {
        self.starts.push(self.numbers.len() as u32);
    }

    /// Appends all lists of `other`.
    pub(crate) fn append(&mut self, other: &Lists) {
        debug_assert_eq!(
            self.starts.last().copied(),
            Some(self.numbers.len() as u32),
            "a list has not ended"
        );
        debug_assert_eq!(
            other.starts.last().copied(),
            Some(other.numbers.len() as u32),
            "a list has not ended"
        );
        let base = self.numbers.len() as u32;
        self.numbers.extend_from_slice(&other.numbers);
        self.starts.extend(other.starts[1..].iter().map(|end| base + end));
    }
}
