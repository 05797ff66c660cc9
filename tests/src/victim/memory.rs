//! Allocation beyond any limit of a story.

use std::io::{Error, Result};

/// Far over a story's limit, and harmless to the machine where the limit does not hold.
const BYTES: usize = 256 << 20;
const PAGE: usize = 4096;

/// Touches page after page until the kernel ends it.
///
/// # Errors
/// The kernel did not.
pub fn allocate() -> Result<i32> {
    let mut memory = vec![0u8; BYTES];
    for page in memory.chunks_mut(PAGE) {
        page[0] = 1;
    }
    let touched: usize = std::hint::black_box(&memory)
        .iter()
        .step_by(PAGE)
        .map(|&b| usize::from(b))
        .sum();
    Err(Error::other(format!("survived {touched} pages")))
}
