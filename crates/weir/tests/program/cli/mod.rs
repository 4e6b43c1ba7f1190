//! Commands, exit codes, hooks, and several hosts with one catalog.

mod beside;
mod check;
mod colors;
mod exports;
mod first_hour;
mod fleet;
mod hooks;
mod json_shapes;
mod pool_search;
mod recipes;
mod reference;
mod selections;
mod show;
