//! Bare segments to a closed port of the loopback: each is answered by a reset, and costs its sender no connect.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, setsockopt, socket, sockopt,
};
use nix::time::{ClockId, clock_gettime};

const HEADER: usize = 20;
const SYN: u8 = 2;
const PROTOCOL: u16 = 6;

/// Needs CAP_NET_RAW.
pub struct Segments {
    socket: OwnedFd,
    port: u16,
    sent: u32,
}

impl Segments {
    /// To that port of the loopback, where nobody listens.
    ///
    /// # Errors
    /// No raw socket.
    pub fn to(port: u16) -> anyhow::Result<Segments> {
        let socket = socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp);
        let socket = socket.context("open a raw socket")?;
        // It gets a copy of each answer, which nobody reads.
        setsockopt(&socket, sockopt::RcvBuf, &0).context("keep no answers")?;
        Ok(Segments { socket, port, sent: 0 })
    }

    /// # Errors
    /// The kernel takes none.
    pub fn send(&mut self, count: u32) -> anyhow::Result<()> {
        let to = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port));
        for _ in 0..count {
            let segment = syn(self.port, self.sent);
            self.sent = self.sent.wrapping_add(1);
            sendto(self.socket.as_raw_fd(), &segment, &to, MsgFlags::empty()).context("send a segment")?;
        }
        Ok(())
    }

    /// Processor time of one of so many, with its answer, which the kernel makes in the context of the sender.
    ///
    /// # Errors
    /// As [`Segments::send`].
    pub fn cost(&mut self, count: u32) -> anyhow::Result<Duration> {
        let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
        let begin = now()?;
        self.send(count)?;
        Ok((now()? - begin) / count)
    }
}

/// The `number`th SYN from the loopback to itself; its ports and sequence numbers repeat late.
fn syn(port: u16, number: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    // A port of its own: not that of the server.
    let from = 10_000 + (number % 50_000) as u16;
    header[0..2].copy_from_slice(&from.to_be_bytes());
    header[2..4].copy_from_slice(&port.to_be_bytes());
    header[4..8].copy_from_slice(&number.to_be_bytes());
    header[12] = ((HEADER / 4) << 4) as u8;
    header[13] = SYN;
    header[14..16].copy_from_slice(&0xffff_u16.to_be_bytes());
    let sum = checksum(&header);
    header[16..18].copy_from_slice(&sum.to_be_bytes());
    header
}

/// RFC 9293, 3.1: over the pseudo-header, too.
fn checksum(header: &[u8; HEADER]) -> u16 {
    let address = Ipv4Addr::LOCALHOST.octets();
    let words = header.chunks(2).chain(address.chunks(2)).chain(address.chunks(2));
    let words = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum::<u32>() + u32::from(PROTOCOL) + HEADER as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_its_checksum_adds_up_to_nothing() {
        for number in [0, 1, 49_999, 70_000, u32::MAX] {
            assert_eq!(checksum(&syn(7_002, number)), 0);
        }
    }

    /// The kernel drops a segment with a wrong checksum without an answer.
    #[test]
    fn each_is_answered_by_a_reset() {
        if !crate::machine::is_root() {
            return crate::skip::skip("each_is_answered_by_a_reset", "raw sockets need root");
        }
        let reserved = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let closed = reserved.local_addr().unwrap().port();
        drop(reserved);
        let before = resets();
        Segments::to(closed).unwrap().send(1_000).unwrap();
        assert!(resets() - before >= 1_000, "{} of 1000 were answered", resets() - before);
    }

    /// `OutRsts` of this network namespace.
    fn resets() -> u64 {
        let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
        let mut tcp = text
            .lines()
            .filter(|line| line.starts_with("Tcp:"))
            .map(str::split_whitespace);
        let (names, values) = (tcp.next().unwrap(), tcp.next().unwrap());
        let found = names.zip(values).find(|(name, _)| *name == "OutRsts");
        found.unwrap().1.parse().unwrap()
    }
}
