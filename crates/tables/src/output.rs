//! The trait of the places to which rows of mining go.

use std::io;

use weir_mine::MinedState;

use crate::error::{Error, Result};
use crate::removal::OriginEdit;
use crate::sink::BatchWriter;

/// A place for the rows of mining. One that remembers nothing needs two functions
/// (`examples/own_output.rs`): then each repository is mined as a whole each time.
pub trait MineOutput: Send {
    /// Takes rows, a batch at a time. Each thread of a miner has its own.
    type Writer: BatchWriter;

    /// Returns `count` writers, whose rows are committed together.
    fn writers(&mut self, count: usize) -> Vec<Self::Writer>;

    /// Makes the rows of `writers` durable in one step, with `states`: what they hold of repositories. No
    /// lock is held meanwhile: it may wait for other writers.
    ///
    /// # Errors
    /// If they cannot be written. Then none are.
    fn commit(writers: &mut [&mut Self::Writer], states: &[(String, MinedState)]) -> Result<()> {
        let _ = (writers, states);
        Ok(())
    }

    /// Makes rows that were committed part of the output.
    ///
    /// # Errors
    /// If that cannot be done. Then none are.
    fn add(&mut self, writers: &mut [&mut Self::Writer], states: Vec<(String, MinedState)>) -> Result<()> {
        let _ = (writers, states);
        Ok(())
    }

    /// Returns a writer in place of `writer`, whose rows are dropped.
    fn discard(&mut self, writer: &mut Self::Writer) -> Self::Writer;

    /// Returns whether rows should be committed now, between two repositories.
    fn wants_commit(writer: &Self::Writer) -> bool {
        let _ = writer;
        true
    }

    /// Returns what of the repository `origin` was mined before: that is left out.
    fn state(&self, origin: &str) -> MinedState {
        let _ = origin;
        MinedState::default()
    }

    /// Returns the names of the repositories that have rows.
    fn origins(&self) -> Vec<String> {
        Vec::new()
    }

    /// Changes the rows of repositories, in one step and durably.
    ///
    /// # Errors
    /// If that cannot be done. Then none are changed.
    fn edit(&mut self, edits: Vec<OriginEdit>) -> Result<()> {
        let _ = edits;
        Ok(())
    }

    /// Ends a run that wrote rows.
    ///
    /// # Errors
    /// If that cannot be done.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns whether other rows can be written after some could not.
    fn is_usable(&self) -> bool {
        false
    }

    /// Returns the error `e` of writing rows, with the place of the output.
    fn error(&self, e: io::Error) -> Error {
        Error::Stream(e)
    }
}
