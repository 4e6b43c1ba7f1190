//! Lists of numbers, one after the other in one table.

/// For each of some things a list: 4 bytes a thing and 4 a number.
#[derive(Debug)]
pub(crate) struct Lists {
    /// Where each list starts; the last one is where all end.
    starts: Vec<u32>,
    numbers: Vec<u32>,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists { starts: vec![0], numbers: Vec::new() }
    }
}

impl Lists {
    /// How many lists there are.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The list of thing `n`.
    pub(crate) fn of(&self, n: u32) -> &[u32] {
        &self.numbers[self.starts[n as usize] as usize..self.starts[n as usize + 1] as usize]
    }

    /// Adds a number to the list that [`Lists::end`] ends.
    pub(crate) fn add(&mut self, number: u32) {
        self.numbers.push(number);
    }

    /// Ends the list of the next thing.
    pub(crate) fn end(&mut self) {
        self.starts.push(self.numbers.len() as u32);
    }

    /// Adds all lists of `other` behind these.
    pub(crate) fn append(&mut self, other: &Lists) {
        let base = self.numbers.len() as u32;
        self.numbers.extend_from_slice(&other.numbers);
        self.starts.extend(other.starts[1..].iter().map(|end| base + end));
    }
}
