//! Workspaces and views that are really mounted, each test in namespaces of its own.

mod add;
mod fork;
mod inside;
mod namespace;
mod origin;
mod remote;
mod status;
mod switch;
mod view;
