//! Gives up the process's privileges as soon as they are not needed any more.
//!
//! Capabilities belong to threads. Threads of the runtime give up theirs as they start. The main thread reads the files that the
//! user named, loads the probes, and then gives up its own, so that every later thread starts without any.

use std::path::Path;

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use tokio::runtime::Handle;

/// A capability that a thread may still need.
pub struct Need<'n> {
    /// Each of these is enough; the first that works is kept.
    pub any_of: &'n [Capability],
    /// Whether the present capabilities are enough. Tried on the kernel, because the kernel's rule changed and was backported.
    pub works: &'n mut dyn FnMut() -> bool,
}

#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    #[error("cannot forbid new privileges: {0}")]
    NoNewPrivileges(nix::Error),
    #[error("cannot give up {set} capabilities: {source}")]
    Capabilities { set: &'static str, source: CapsError },
}

/// Gives up all capabilities of the calling thread except the needed ones; returns the kept ones.
///
/// # Errors
/// The first step that the kernel refused; all other steps are still done.
pub fn drop_all_but(needs: &mut [Need<'_>]) -> Result<Vec<Capability>, PrivilegeError> {
    // Without CAP_SETPCAP the bounding set stays, which does not matter for a thread that can gain nothing by execve(2).
    let _ = caps::clear(None, CapSet::Bounding);
    let refused = |set| move |source| PrivilegeError::Capabilities { set, source };
    let forbidden = nix::sys::prctl::set_no_new_privs().map_err(PrivilegeError::NoNewPrivileges);
    // A kernel or a seccomp profile without ambient capabilities has none to give up.
    let ambient = match caps::read(None, CapSet::Ambient) {
        Ok(held) if !held.is_empty() => caps::clear(None, CapSet::Ambient).map_err(refused("ambient")),
        _ => Ok(()),
    };
    let inheritable = caps::clear(None, CapSet::Inheritable).map_err(refused("inheritable"));
    let kept = keep(needs);
    forbidden.and(ambient).and(inheritable)?;
    kept.map_err(refused("permitted"))
}

/// As [`drop_all_but`] with no exception, for threads that never need a capability. A failure here also happens on the main
/// thread, which logs it.
pub fn drop_all() {
    let _ = drop_all_but(&mut []);
}

/// Does `work` on a thread without capabilities, so that the threads that `work` starts have none.
pub fn without<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let runtime = Handle::try_current().ok();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            drop_all();
            let _entered = runtime.as_ref().map(Handle::enter);
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Number of processes that `proc` shows to the calling thread: with `hidepid` it hides most of them, or makes them unreadable.
pub fn shown(proc: &Path) -> usize {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let processes = entries.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    processes
        .filter(|entry| std::fs::read(entry.path().join("stat")).is_ok())
        .count()
}

fn keep(needs: &mut [Need<'_>]) -> Result<Vec<Capability>, CapsError> {
    let held = caps::read(None, CapSet::Effective)?;
    caps::clear(None, CapSet::Effective)?;
    let mut kept = CapsHashSet::new();
    for need in needs {
        for &capability in need.any_of.iter().filter(|capability| held.contains(capability)) {
            if (need.works)() {
                break;
            }
            caps::raise(None, CapSet::Effective, capability)?;
            if (need.works)() {
                kept.insert(capability);
            } else {
                caps::drop(None, CapSet::Effective, capability)?;
            }
        }
    }
    caps::set(None, CapSet::Permitted, &kept)?;
    Ok(kept.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test on a separate thread, because capabilities belong to threads.
    fn on_a_thread(test: fn()) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn nothing_is_left() {
        on_a_thread(|| {
            drop_all();
            for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable, CapSet::Ambient] {
                assert!(caps::read(None, set).unwrap().is_empty(), "{set:?}");
            }
            assert!(nix::sys::prctl::get_no_new_privs().unwrap());
            // The second call has nothing left to give up.
            drop_all_but(&mut []).unwrap();
        });
    }

    #[test]
    fn threads_started_by_an_unprivileged_thread_have_no_capability() {
        let held = caps::read(None, CapSet::Effective).unwrap();
        let inner = without(|| {
            std::thread::spawn(|| caps::read(None, CapSet::Permitted).unwrap())
                .join()
                .unwrap()
        });
        assert!(inner.is_empty());
        assert_eq!(caps::read(None, CapSet::Effective).unwrap(), held);
    }

    #[test]
    fn only_readable_processes_are_counted() {
        let proc = tempfile::tempdir().unwrap();
        for name in ["1", "23", "self", "4x"] {
            std::fs::create_dir(proc.path().join(name)).unwrap();
        }
        std::fs::write(proc.path().join("23/stat"), "23 (x) S").unwrap();
        std::fs::write(proc.path().join("4x/stat"), "").unwrap();
        assert_eq!(shown(proc.path()), 1);
        assert_eq!(shown(&proc.path().join("none")), 0);
    }

    #[test]
    fn only_a_needed_capability_is_kept() {
        on_a_thread(|| {
            let has = |capability| caps::has_cap(None, CapSet::Effective, capability).unwrap();
            let held = has(Capability::CAP_SETUID);
            let mut needs = [
                Need {
                    any_of: &[Capability::CAP_SETGID, Capability::CAP_SETUID],
                    works: &mut || has(Capability::CAP_SETUID),
                },
                Need {
                    any_of: &[Capability::CAP_KILL],
                    works: &mut || true,
                },
                Need {
                    any_of: &[Capability::CAP_CHOWN],
                    works: &mut || false,
                },
            ];
            let kept = drop_all_but(&mut needs).unwrap();
            // Without any capability at the start none is kept.
            let expected = if held { vec![Capability::CAP_SETUID] } else { Vec::new() };
            assert_eq!(kept, expected);
            assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), expected.into_iter().collect());
            assert!(!has(Capability::CAP_KILL) && !has(Capability::CAP_CHOWN));
        });
    }
}
