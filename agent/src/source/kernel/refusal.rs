//! Whether the programs at functions run: tested with connections that the kernel refuses, at the start and again and again.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use epitaph_core::time::Boot;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, bind, getsockname, socket,
};

use super::probes::StandIn;

/// Only a filter of packets keeps the loopback from an answer at once.
const TO_REFUSE: Duration = Duration::from_millis(200);

const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// What a try showed of all functions: they run, apart from what is not known of one, in words; or why they count as not running.
pub type Tested = Result<Option<String>, String>;

/// Has the kernel refuse a connection of the loopback for each of `functions`, which are for IPv4 and IPv6, and asks `passed` how many
/// resets without a socket the program there has seen. A loopback that refuses nothing, as behind a filter, proves nothing, and the program
/// counts as not running.
///
/// An address that the network namespace lacks, as ::1 where IPv6 is off, cannot be tested: the kernel has attached both programs, so that
/// one that runs speaks for the other. Where none can be tested, both count as not running.
pub fn test<E>(functions: &[&str], mut passed: impl FnMut(usize) -> Result<u64, E>) -> Result<Tested, E> {
    let (mut tested, mut untested) = (false, None);
    for (place, (function, address)) in functions.iter().zip(LOOPBACK).enumerate() {
        let before = passed(place)?;
        match refuse(address) {
            Ok(Refused::NoAddress) => untested = Some(format!("{function} was not tested: no interface here has {address}")),
            Ok(Refused::ByKernel) if passed(place)? != before => tested = true,
            Ok(Refused::ByKernel) => return Ok(Err(format!("the program at {function} did not see a refused connection"))),
            Err(error) => {
                return Ok(Err(format!(
                    "cannot test {function}: the kernel did not refuse a connection to a closed port of {address}: {error}"
                )));
            }
        }
    }
    Ok(match untested {
        Some(untested) if !tested => Err(untested),
        untested => Ok(untested),
    })
}

/// Whether the programs still run: setting `kernel.ftrace_enabled` to 0, for one, stops them without an error.
#[derive(Debug, Default)]
pub struct Running {
    /// None while they run; the last try that they passed otherwise.
    since: Option<Boot>,
}

/// The programs have stopped, or run again.
#[derive(Debug, PartialEq, Eq)]
pub struct Turn {
    /// What shows refused clients from now on.
    pub by: StandIn,
    /// They have stopped; otherwise they run again.
    pub have_stopped: bool,
    /// The last try that they passed: who was refused since then may be missing.
    pub missed_since: Boot,
}

impl Running {
    /// `before`: the try before this one.
    pub fn took(&mut self, before: Boot, tested: &Tested) -> Option<Turn> {
        match (tested, self.since) {
            (Ok(_), None) | (Err(_), Some(_)) => None,
            (Ok(untested), Some(since)) => {
                self.since = None;
                Some(Turn {
                    by: StandIn::by_functions(untested.as_deref()),
                    have_stopped: false,
                    missed_since: since,
                })
            }
            (Err(why), None) => {
                self.since = Some(before);
                Some(Turn {
                    by: StandIn::by_client(why),
                    have_stopped: true,
                    missed_since: before,
                })
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Refused {
    ByKernel,
    /// No interface has the address, or the kernel lacks its family.
    NoAddress,
}

/// Has the kernel refuse a connection to a port of `address`.
fn refuse(address: IpAddr) -> io::Result<Refused> {
    let (_held, closed) = match held(address) {
        Ok(held) => held,
        Err(Errno::EADDRNOTAVAIL | Errno::EAFNOSUPPORT) => return Ok(Refused::NoAddress),
        Err(error) => return Err(error.into()),
    };
    match TcpStream::connect_timeout(&closed, TO_REFUSE) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(Refused::ByKernel),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other("another process listens on the port")),
    }
}

/// A port that no process can listen on while the socket lives. The socket itself does not listen: a listener that closes is recorded.
fn held(address: IpAddr) -> nix::Result<(OwnedFd, SocketAddr)> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let held = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(held.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, 0)))?;
    let bound: SockaddrStorage = getsockname(held.as_raw_fd())?;
    let v4 = bound.as_sockaddr_in().map(SockaddrIn::port);
    let port = v4.or_else(|| bound.as_sockaddr_in6().map(SockaddrIn6::port));
    Ok((held, SocketAddr::new(address, port.ok_or(Errno::EAFNOSUPPORT)?)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const FUNCTIONS: [&str; 2] = ["tcp_v4_send_reset", "tcp_v6_send_reset"];

    #[test]
    fn a_program_that_no_refused_connection_passes_does_not_run() {
        let tested = |more: u64| {
            let mut seen = 7;
            let passed = |_| {
                seen += more;
                Ok::<u64, Infallible>(seen)
            };
            test(&FUNCTIONS[..1], passed).expect("infallible")
        };
        assert_eq!(tested(1), Ok(None));
        assert_eq!(
            tested(0),
            Err("the program at tcp_v4_send_reset did not see a refused connection".to_owned())
        );
    }

    #[test]
    fn an_address_that_the_machine_lacks_is_not_tried() {
        // TEST-NET-1 (RFC 5737).
        let absent = refuse(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(absent.expect("nothing is sent"), Refused::NoAddress);
    }

    #[test]
    fn programs_that_stop_and_run_again_change_what_is_seen() {
        let at = |seconds: u64| Boot(seconds * 1_000_000_000);
        let (passes, fails): (Tested, Tested) = (Ok(None), Err("the program did not see it".to_owned()));
        let mut running = Running::default();
        assert_eq!(running.took(at(0), &passes), None);
        let stopped = running.took(at(60), &fails).expect("a turn");
        assert_eq!(stopped.by, StandIn::by_client("the program did not see it"));
        // Clients of this machine as well, until the probe's state says who sees them.
        assert_eq!((stopped.have_stopped, stopped.missed_since), (true, at(60)));
        assert_eq!(running.took(at(120), &fails), None);
        let again = running.took(at(180), &passes).expect("a turn");
        assert_eq!(again.by, StandIn::by_functions(None));
        // The last try that they had passed.
        assert_eq!((again.have_stopped, again.missed_since), (false, at(60)));
        assert_eq!(running.took(at(240), &passes), None);
    }
}
