//! Servers.

use crate::story::Story;

pub(super) static STORIES: &[Story] = &[];
