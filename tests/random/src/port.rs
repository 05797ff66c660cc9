//! A port for one history that no other process has, from before its server listens until its clients are gone.
//!
//! Below the ports that the kernel gives to clients: after the end of its server another history's client could have such a port, and a client
//! that connects to it from the same number meets itself.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn6, bind, setsockopt, socket, sockopt};

const PORTS: Range<u16> = 21_000..29_000;

/// See the module.
#[derive(Debug)]
pub struct Port {
    pub number: u16,
    /// Bound, and never listens: what connects is refused once the server has closed its own socket.
    _held: OwnedFd,
}

impl Port {
    /// The first free one, counted from the `place`th.
    ///
    /// # Errors
    /// None is free, or there is no IPv6.
    pub fn held(place: usize) -> Result<Port> {
        let count = usize::from(PORTS.end - PORTS.start);
        let numbers = (place..place + count).filter_map(|place| PORTS.clone().nth(place % count));
        for number in numbers {
            match hold(number) {
                Err(e) if e.kind() == ErrorKind::AddrInUse => {}
                result => return result,
            }
        }
        Err(Error::other("no port is free"))
    }
}

/// Of both families and protocols. Alone at first, then beside the server, which sets SO_REUSEADDR, too, as servers do.
fn hold(number: u16) -> Result<Port> {
    let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, number, 0, 0);
    let held = socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(held.as_raw_fd(), &SockaddrIn6::from(any)).map_err(|e: Errno| Error::from(e))?;
    setsockopt(&held, sockopt::ReuseAddr, &true)?;
    // Datagrams go to the newest of several sockets: the server's is to be the only one.
    match has_datagrams(number)? {
        true => Err(ErrorKind::AddrInUse.into()),
        false => Ok(Port { number, _held: held }),
    }
}

/// Whether a socket for datagrams has it. Not by binding one: a child that another thread is forking would have that one, too, until its `exec`, and
/// the server would find its port in use.
fn has_datagrams(number: u16) -> Result<bool> {
    let port = format!(":{number:04X}");
    for table in ["/proc/net/udp", "/proc/net/udp6"] {
        let text = fs::read_to_string(table)?;
        let mut local = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
        if local.any(|address| address.ends_with(&port)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn the_port_is_the_servers_alone_and_refuses_without_it() -> Result<()> {
        let port = Port::held(0)?;
        let other = Port::held(usize::from(port.number - PORTS.start))?;
        assert_ne!(port.number, other.number);
        let address = (Ipv4Addr::LOCALHOST, port.number);
        let refused = || TcpStream::connect(address).map(drop).map_err(|e| e.kind());
        assert_eq!(refused(), Err(ErrorKind::ConnectionRefused));
        // A server that is started again, too.
        for _ in 0..2 {
            let server = TcpListener::bind(address)?;
            let client = TcpStream::connect(address)?;
            drop(server.accept()?);
            drop(client);
            drop(server);
            assert_eq!(refused(), Err(ErrorKind::ConnectionRefused));
        }
        assert!(!has_datagrams(port.number)?);
        let _datagrams = UdpSocket::bind(address)?;
        assert!(has_datagrams(port.number)?);
        Ok(())
    }

    #[test]
    fn the_port_is_the_servers_although_others_fork() {
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        assert!(Command::new("true").status().is_ok_and(|status| status.success()));
                    }
                });
            }
            let bound = (0..4_000).try_for_each(|place| {
                let port = Port::held(place)?;
                TcpListener::bind((Ipv4Addr::LOCALHOST, port.number))?;
                UdpSocket::bind((Ipv4Addr::LOCALHOST, port.number)).map(drop)
            });
            is_done.store(true, Ordering::Relaxed);
            bound
        })
        .unwrap();
    }
}
