//! Allocation beyond any limit of a story.

use std::fs::File;
use std::io::{Error, Read as _, Result};

/// Far over a story's limit, and harmless to the machine where the limit does not hold.
const BYTES: usize = 256 << 20;

/// Has the kernel touch page after page until the kernel ends it.
///
/// # Errors
/// The kernel did not.
pub fn allocate() -> Result<i32> {
    touch(BYTES)?;
    Err(Error::other(format!("survived {BYTES} bytes")))
}

/// # Errors
/// /dev/zero cannot be read.
pub fn touch(bytes: usize) -> Result<()> {
    std::hint::black_box(touched(bytes)?);
    Ok(())
}

/// Memory whose every page was touched.
///
/// # Errors
/// /dev/zero cannot be read.
pub fn touched(bytes: usize) -> Result<Vec<u8>> {
    let mut memory = vec![0u8; bytes];
    // In one system call: at the limit the kernel reclaims the pages of the process's own code first. A loop here would wait for these
    // pages again and again, for minutes on an emulated machine, before the kernel gives up and kills.
    File::open("/dev/zero")?.read_exact(&mut memory)?;
    Ok(memory)
}
