//! Rules that the code of every crate keeps: arrows between crates, imports between files, lines.

mod arrows;
mod circles;
mod imports;
mod lines;
