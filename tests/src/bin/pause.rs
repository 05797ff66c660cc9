//! Holds a pod's namespaces: waits, reaps orphans as PID 1, and exits at SIGTERM or SIGINT.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

fn main() -> nix::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM] {
        signals.add(signal);
    }
    // Blocked, not handled: even PID 1 then gets them.
    signals.thread_block()?;
    while signals.wait()? == Signal::SIGCHLD {
        while !matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive) | Err(_)) {}
    }
    Ok(())
}
