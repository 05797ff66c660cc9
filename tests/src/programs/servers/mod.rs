//! Servers, without clients: what each signal does to their processes.

mod applications;
pub mod common;
mod daemons;
mod others;

use crate::story::Story;

pub fn stories() -> impl Iterator<Item = &'static Story> {
    let tables = [common::STORIES, daemons::STORIES, applications::STORIES, others::STORIES];
    tables.into_iter().flatten()
}
