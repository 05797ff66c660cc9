//! The host's part of `tests/src/guest/outside.rs`: clients outside of the machine.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
};

use anyhow::{Context as _, Result};

/// Ports of the guest: its server, and where it waits for the clients' count.
pub const SERVICE: u16 = 7_000;
pub const CONTROL: u16 = 7_001;

/// A loopback address of this process's own, so that two runs at once forward no port of each other's.
pub fn address() -> Ipv4Addr {
    let [.., a, b] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 77, a, b)
}

/// Answers the guest's line `clients N`; any other line is None.
///
/// # Errors
/// The guest does not accept the count.
pub fn answer(line: &str) -> Option<Result<()>> {
    let count: u64 = line.strip_prefix("clients ")?.parse().ok()?;
    // QEMU accepts in the guest's place, and closes the connection that the guest refuses.
    let is_served = || -> std::io::Result<bool> {
        let mut answer = Vec::new();
        TcpStream::connect((address(), SERVICE))?.read_to_end(&mut answer)?;
        Ok(!answer.is_empty())
    };
    let unserved = (0..count).filter(|_| !is_served().unwrap_or(false)).count();
    let sent =
        TcpStream::connect((address(), CONTROL)).and_then(|mut control| control.write_all(unserved.to_string().as_bytes()));
    Some(sent.context("sending the guest its clients' count"))
}
