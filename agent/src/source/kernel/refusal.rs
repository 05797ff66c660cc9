//! Whether a program at a function runs: tried with connections that the kernel refuses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::Duration;

use nix::errno::Errno;

/// Only a filter of packets keeps the loopback from an answer at once.
const TO_REFUSE: Duration = Duration::from_millis(500);

const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Has the kernel refuse a connection of the loopback for each of `functions`, which are for IPv4 and IPv6, and asks `passed` whether the
/// program there ran. The inner error: why a program is taken not to run. A loopback that refuses nothing, as behind a filter, proves
/// nothing. Without the address, as where IPv6 is off, there is nothing to try, and the program is taken to run.
pub fn passes<E>(functions: &[&str], mut passed: impl FnMut(usize) -> Result<bool, E>) -> Result<Result<(), String>, E> {
    for (place, (function, address)) in functions.iter().zip(LOOPBACK).enumerate() {
        match refuse(address) {
            Ok(Refused::NoAddress) => tracing::debug!("{function} was not tried: this machine has no {address}"),
            Ok(Refused::ByKernel) if passed(place)? => {}
            Ok(Refused::ByKernel) => return Ok(Err(format!("the program at {function} did not see a refused connection"))),
            Err(error) => {
                return Ok(Err(format!(
                    "cannot test {function}: the kernel did not refuse a connection to a closed port of {address}: {error}"
                )));
            }
        }
    }
    Ok(Ok(()))
}

#[derive(Debug, PartialEq, Eq)]
enum Refused {
    ByKernel,
    /// No interface has the address, or the kernel lacks its family.
    NoAddress,
}

/// Has the kernel refuse a connection to a port of `address`.
fn refuse(address: IpAddr) -> io::Result<Refused> {
    let closed = match TcpListener::bind((address, 0)) {
        Ok(listener) => listener.local_addr()?,
        Err(error)
            if matches!(
                error.raw_os_error().map(Errno::from_raw),
                Some(Errno::EADDRNOTAVAIL | Errno::EAFNOSUPPORT)
            ) =>
        {
            return Ok(Refused::NoAddress);
        }
        Err(error) => return Err(error),
    };
    match TcpStream::connect_timeout(&closed, TO_REFUSE) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(Refused::ByKernel),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other("another process listens on the port")),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::{IpAddr, Ipv4Addr};

    use super::{Refused, passes, refuse};

    const FUNCTIONS: [&str; 2] = ["tcp_v4_send_reset", "tcp_v6_send_reset"];

    #[test]
    fn a_program_that_no_refused_connection_passes_does_not_run() {
        let tried = |runs: [bool; 1]| passes::<Infallible>(&FUNCTIONS[..1], |place| Ok(runs[place])).expect("infallible");
        assert_eq!(tried([true]), Ok(()));
        assert_eq!(
            tried([false]),
            Err("the program at tcp_v4_send_reset did not see a refused connection".to_owned())
        );
    }

    #[test]
    fn an_address_that_the_machine_lacks_is_not_tried() {
        // TEST-NET-1 (RFC 5737).
        let absent = refuse(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(absent.expect("nothing is sent"), Refused::NoAddress);
    }
}
