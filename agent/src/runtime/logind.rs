//! `epitaph logind`: the role that observes the system bus. And its counterpart in the agent, which listens for the role.

use std::io::{self, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;

use epitaph_core::node::NodeEvent;
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
use serde::Serialize;
use tokio::sync::watch;

use crate::cli::{self, SysExit};
use crate::clock;
use crate::config::{Config, Env};
use crate::sink::metrics::Metrics;
use crate::source::logind::{self, AgentOptions, LinkState, Logind, LogindDropReason, RoleOptions};

use super::{FLUSH, RuntimeError, block_on, logging, privileges, stop_on_signal};

/// The first passed descriptor: sd_listen_fds(3).
const FIRST_PASSED: i32 = 3;

/// `FileDescriptorName=` of the socket unit.
const PASSED_AS: &str = "logind";

/// `epitaph logind`.
pub fn logind(args: &cli::LogindArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let config = Config::for_person(env, &args.overrides())?;
    let options = RoleOptions {
        bus: config.logind.bus.clone(),
        lock: config.logind.lock,
        proc: config.host.proc.clone(),
    };
    let socket = match (&config.logind.socket, args.print) {
        (_, true) => None,
        (Some(socket), false) => Some(socket.clone()),
        (None, false) => {
            return Err(RuntimeError::new(SysExit::Usage, "no socket of an agent is given")
                .with_remedy("give --socket PATH, the agent's `logind.socket`, or --print"));
        }
    };
    // Before any thread, and before the bus: what it thinks of a caller depends on the uid.
    let changed = give_up_root(config.logind.uid);
    block_on(async {
        let logging = logging::start(&config, logging::Terminations::Messages)?;
        if let Err(error) = changed {
            tracing::warn!(
                remedy = "run the role as another user than root: uid 0 with the bus can do anything on this machine",
                "cannot become uid {}: {error}",
                config.logind.uid
            );
        }
        if let Err(error) = privileges::drop_all_but(&mut []) {
            tracing::warn!("{error}; running with more privileges than needed");
        }
        let (stop_sender, mut stop) = watch::channel(false);
        tokio::spawn(stop_on_signal(stop_sender, true));
        let stopped = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        let done = match &socket {
            Some(socket) => {
                tracing::info!(bus = %options.bus.display(), socket = %socket.display(), "observing logind");
                logind::run(&options, socket, stopped).await;
                Ok(())
            }
            None => tokio::select! {
                ended = logind::follow(&options, print) => match ended {
                    Ok(never) => match never {},
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                    Err(error) => Err(RuntimeError::os("write to standard output")(error)),
                },
                () = stopped => Ok(()),
            },
        };
        logging.finish(FLUSH).await;
        done
    })
}

/// A line of `--print`.
#[derive(Serialize)]
struct Line<'n> {
    at: String,
    node: &'n NodeEvent,
}

fn print(node: NodeEvent) -> io::Result<()> {
    let line = Line {
        at: clock::wall_offset().wall(clock::now()).rfc3339(),
        node: &node,
    };
    let mut text = serde_json::to_string(&line)?;
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Changes from root to `uid`. Of root itself: nothing is given up, which a person has to ask for.
fn give_up_root(uid: u32) -> nix::Result<()> {
    if !geteuid().is_root() || uid == 0 {
        return Ok(());
    }
    setgroups(&[])?;
    setgid(Gid::from_raw(uid))?;
    setuid(Uid::from_raw(uid))
}

/// Listens for the role; None if the agent has no socket for it.
pub(super) fn listen(config: &Config, env: &dyn Env, metrics: &Metrics) -> Result<Option<Logind>, RuntimeError> {
    let inherited = inherited(env);
    let socket = match (&config.logind.socket, &inherited) {
        (None, None) => return Ok(None),
        (socket, _) => socket.clone().unwrap_or_default(),
    };
    let logind = Logind::start(AgentOptions {
        socket,
        inherited,
        uid: config.logind.uid,
        proc: config.host.proc.clone(),
    })?;
    let counters = logind.counters.clone();
    metrics.follow_logind(LinkState::ALL.map(LinkState::name), move || counters.state().name());
    for reason in LogindDropReason::ALL {
        metrics.dropped(reason.name(), 0);
    }
    Ok(Some(logind))
}

/// The socket that systemd has made for the role: so the agent's unit needs no right to make one of its own (AF_UNIX).
fn inherited(env: &dyn Env) -> Option<UnixListener> {
    let own = env.get("LISTEN_PID")?.parse::<u32>().ok()? == std::process::id();
    let count: i32 = env.get("LISTEN_FDS")?.parse().ok()?;
    let names = env.get("LISTEN_FDNAMES").unwrap_or_default();
    let at = names.split(':').position(|name| name == PASSED_AS)?;
    let fd = FIRST_PASSED + i32::try_from(at).ok()?;
    if !own || fd >= FIRST_PASSED + count {
        return None;
    }
    #[expect(unsafe_code, reason = "a descriptor that systemd passes has a number only")]
    // SAFETY: systemd has opened the descriptor for the process with this id, before its first instruction, so that no other
    // descriptor has the number; nothing else here takes it, and this function runs once.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Some(fd.into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    struct Vars(HashMap<&'static str, String>);

    impl Env for Vars {
        fn get(&self, name: &str) -> Option<String> {
            self.0.get(name).cloned()
        }

        fn names(&self) -> Vec<String> {
            self.0.keys().map(|&name| name.to_owned()).collect()
        }
    }

    #[test]
    fn a_socket_of_another_process_or_name_is_left_alone() {
        let own = std::process::id().to_string();
        for (pid, count, names) in [
            ("1", "1", "logind"),
            (own.as_str(), "1", "other"),
            (own.as_str(), "0", "logind"),
            (own.as_str(), "1", "other:logind"),
            (own.as_str(), "x", "logind"),
        ] {
            let all = [("LISTEN_PID", pid), ("LISTEN_FDS", count), ("LISTEN_FDNAMES", names)];
            let vars = Vars(all.map(|(name, value)| (name, value.to_owned())).into());
            assert!(inherited(&vars).is_none(), "{pid} {count} {names}");
        }
        assert!(inherited(&Vars(HashMap::new())).is_none());
    }
}
