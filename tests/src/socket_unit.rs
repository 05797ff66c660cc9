//! A socket unit's listener, which its manager holds over the restarts of the service, as systemd does.

use std::io::{BufRead, BufReader, ErrorKind, Result, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The address in a service's arguments, in place of one to listen on.
pub const INHERITED: &str = "inherited";
/// What the service gets in its place, with the number of the file descriptor.
pub const FD: &str = "fd:";

const ROUND: u16 = 5;

pub struct SocketUnit(TcpListener);

impl SocketUnit {
    /// # Errors
    /// No free port.
    pub fn listen() -> Result<SocketUnit> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        // The service and what starts it inherit the descriptor under its number.
        fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(SocketUnit(listener))
    }

    /// The service's command, with the listener.
    pub fn handed_to(&self, command: &[String]) -> Vec<String> {
        let fd = format!("{FD}{}", self.0.as_raw_fd());
        let word = |word: &String| if word == INHERITED { fd.clone() } else { word.clone() };
        command.iter().map(word).collect()
    }

    /// Answers clients, as the next start of the service does, until the other side of `orders` closes.
    ///
    /// # Errors
    /// As accept(2), and what happens to a client.
    pub fn serve_until_closed(&self, orders: BorrowedFd<'_>) -> Result<()> {
        self.0.set_nonblocking(true)?;
        loop {
            let mut polled = [
                PollFd::new(orders, PollFlags::POLLIN),
                PollFd::new(self.0.as_fd(), PollFlags::POLLIN),
            ];
            poll(&mut polled, PollTimeout::from(ROUND))?;
            let is_closed = polled[0].revents().is_some_and(|of| of.contains(PollFlags::POLLHUP));
            match self.0.accept() {
                Ok((client, _)) => answer(client)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock && is_closed => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn answer(client: TcpStream) -> Result<()> {
    client.set_nonblocking(false)?;
    BufReader::new(&client).read_line(&mut String::new())?;
    (&client).write_all(b"ok\n")?;
    client.shutdown(Shutdown::Write)
}
