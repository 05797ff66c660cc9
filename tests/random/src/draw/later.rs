//! Later draws: commands in the container, stops of all processes, and more.

use fastrand::Rng;
use nix::libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};

use super::{Extra, client, extra, pick};
use crate::history::{Bind, Exec, Handling, Held, History, Kill, Pool, Probes, Reaction, Stop, Wrapper};

/// Drawn by a generator of their own, too: a third of all histories has one of these, with one of [`EXTRAS`] or without.
pub const LATER: [Extra; 10] = [
    extra("codes", None, codes),
    extra("other-signals", None, other_signals),
    extra("real-time-reflex", None, real_time_reflex),
    extra("held", None, held),
    extra("changes-handler", None, changes_handler),
    extra("to-all", None, to_all),
    extra("to-all-readers", None, to_all_readers),
    extra("exec", None, exec),
    extra("two-sockets", None, two_sockets),
    extra("nested-namespace", None, nested_namespace),
];

/// An exit code that looks like a signal's.
fn codes(rng: &mut Rng, history: &mut History) {
    let of_stop = history.stop.signals().first().map_or(129, |signal| 128 + signal);
    history.program.code = pick(rng, &[130, 137, 255, of_stop]);
    if history.program.handling == Handling::Default {
        history.program.handling = Handling::Handler;
    }
}

/// Signals that mostly mean something else than a stop, and systemd's.
fn other_signals(rng: &mut Rng, history: &mut History) {
    const SIGRTMIN_3: i32 = 37;
    // By docs/limits SIGWINCH is no stop of a process without a handler of it: it is a new size of a terminal.
    let signal = pick(rng, &[SIGHUP, SIGHUP, SIGWINCH, SIGRTMIN_3]);
    if signal == SIGWINCH {
        history.entry.clear();
        history.program.handling = Handling::Handler;
        history.program.pool = Pool::None;
    }
    history.stop = Stop::Runtime {
        signal,
        grace_ms: rng.u32(700..1_200),
        kill: pick(rng, &[Kill::Main, Kill::Cgroup]),
        frozen: false,
        again_ms: None,
        to_all: false,
    };
}

fn real_time_reflex(_: &mut Rng, history: &mut History) {
    history.entry.clear();
    history.pid_namespace = true;
    history.program.handling = Handling::Handler;
    history.program.reaction = Reaction::ReRaise;
    history.stop = Stop::Runtime {
        signal: 37,
        grace_ms: 1_000,
        kill: Kill::Main,
        frozen: false,
        again_ms: None,
        to_all: false,
    };
}

fn held(rng: &mut Rng, history: &mut History) {
    history.stop = Stop::Runtime {
        signal: SIGTERM,
        grace_ms: rng.u32(900..1_300),
        kill: pick(rng, &[Kill::Main, Kill::Cgroup]),
        frozen: false,
        again_ms: None,
        to_all: false,
    };
    history.held = Some(Held {
        until_ms: rng.bool().then(|| rng.u32(20..600)),
    });
}

fn changes_handler(rng: &mut Rng, history: &mut History) {
    history.program.handling = pick(rng, &[Handling::Drops, Handling::IgnoresLater, Handling::Unblocks]);
    // Before the change, and after it.
    history.lead_ms = rng.u32(1..250);
}

fn to_all(rng: &mut Rng, history: &mut History) {
    let signal = pick(rng, &[SIGTERM, SIGTERM, SIGINT, SIGQUIT]);
    // A supervisor starts again what the same signal ended, in the middle of the stop.
    history.entry.retain(|wrapper| !wrapper.supervises());
    if history.pid_namespace && rng.u8(..3) == 0 {
        history.stop = Stop::InsideAll { signal };
        return;
    }
    history.stop = Stop::Runtime {
        signal,
        grace_ms: rng.u32(700..1_200),
        kill: pick(rng, &[Kill::Main, Kill::Cgroup]),
        frozen: false,
        again_ms: None,
        to_all: true,
    };
}

fn to_all_readers(rng: &mut Rng, history: &mut History) {
    history.pid_namespace = false;
    to_all(rng, history);
    history.entry = vec![Wrapper::Background];
    history.bind = Bind::Unix;
    history.program.handling = Handling::SignalFd;
    history.program.reaction = Reaction::Graceful;
    if history.clients.is_empty() {
        history.clients.push(client(rng));
    }
}

fn exec(rng: &mut Rng, history: &mut History) {
    history.probes = Some(Probes {
        every_ms: rng.u32(40..400),
        does: pick(rng, &[Exec::True, Exec::False, Exec::Connects, Exec::Connects, Exec::Hangs]),
    });
}

fn two_sockets(rng: &mut Rng, history: &mut History) {
    history.bind = pick(rng, &[Bind::TcpAndUnix, Bind::TcpAndUdp]);
    if matches!(history.program.pool, Pool::Serving { .. }) {
        history.program.pool = Pool::None;
    }
    while history.clients.len() < 2 {
        history.clients.push(client(rng));
    }
}

fn nested_namespace(rng: &mut Rng, history: &mut History) {
    let place = rng.usize(..=history.entry.len());
    history.entry.insert(place, Wrapper::PidNamespace);
    // The first process of a namespace ends it: a launcher would as soon as the program serves.
    history.entry.retain(|wrapper| *wrapper != Wrapper::DoubleFork);
}
