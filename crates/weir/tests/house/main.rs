//! Rules that the code of every crate keeps: arrows between crates, imports between files, lines, names.

mod arrows;
mod circles;
mod docs;
mod imports;
mod lines;
mod names;
