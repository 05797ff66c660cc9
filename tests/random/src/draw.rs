//! A history from a seed.

use fastrand::Rng;
use nix::libc::{SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::entry;
use crate::history::{Bind, Client, Closes, Handling, History, Kill, Pool, Program, Reaction, Stop, Target, Wrapper};

const WRAPPERS: [Wrapper; 17] = [
    Wrapper::Sh,
    Wrapper::Exec,
    Wrapper::ShZero,
    Wrapper::Background,
    Wrapper::TrapWaits,
    Wrapper::TrapExits,
    Wrapper::TrapForgets,
    Wrapper::Tini,
    Wrapper::TiniGroup,
    Wrapper::DumbInit,
    Wrapper::DumbInitChild,
    Wrapper::Setsid,
    Wrapper::DoubleFork,
    Wrapper::Service,
    Wrapper::Runit,
    Wrapper::S6,
    Wrapper::Supervisord,
];

/// The history of `seed`, of the wrappers that `may` run here.
pub fn history(seed: u64, may: impl Fn(Wrapper) -> bool) -> History {
    let rng = &mut Rng::with_seed(seed);
    let entry = entry(rng);
    let history = History {
        entry,
        pid_namespace: rng.u8(..100) < 75,
        own_network: rng.u8(..100) < 75,
        bind: pick(
            rng,
            &[Bind::V4, Bind::V4, Bind::V4, Bind::V6, Bind::Any, Bind::Unix, Bind::Udp],
        ),
        program: program(rng),
        clients: (0..rng.usize(..4)).map(|_| client(rng)).collect(),
        lead_ms: rng.u32(50..500),
        stop: stop(rng),
    };
    // What is supervised starts again: the end of the program is not the end of the container.
    let is_supervised = history.entry.iter().any(|wrapper| wrapper.supervises());
    let stop = match history.stop {
        Stop::Exit
        | Stop::Fault
        | Stop::Stranger {
            target: Target::Program, ..
        } if is_supervised => Stop::Runtime {
            signal: SIGTERM,
            grace_ms: 1_500,
            kill: Kill::Cgroup,
            frozen: false,
        },
        other => other,
    };
    // Drawn first and left out then: the other values of a seed do not depend on the machine.
    let entry: Vec<Wrapper> = history.entry.iter().copied().filter(|wrapper| may(*wrapper)).collect();
    // The supervisor of a launcher, which exits once its daemon serves, starts another one, whose daemon finds the port taken.
    let supervisor = entry.iter().position(|wrapper| wrapper.supervises()).unwrap_or(entry.len());
    let is_one_of_many = |place: usize, wrapper: Wrapper| place > supervisor && wrapper == Wrapper::DoubleFork;
    History {
        entry: entry
            .into_iter()
            .enumerate()
            .filter(|(place, wrapper)| !is_one_of_many(*place, *wrapper))
            .map(|(_, wrapper)| wrapper)
            .collect(),
        stop,
        ..history
    }
}

/// As [`history`], on this machine.
pub fn here(seed: u64) -> History {
    history(seed, entry::is_here)
}

fn entry(rng: &mut Rng) -> Vec<Wrapper> {
    let levels = pick(rng, &[0, 0, 1, 1, 1, 1, 2, 2, 3]);
    (0..levels).map(|_| pick(rng, &WRAPPERS)).collect()
}

fn program(rng: &mut Rng) -> Program {
    let handling = pick(
        rng,
        &[
            Handling::Default,
            Handling::Default,
            Handling::Ignored,
            Handling::Blocked,
            Handling::Handler,
            Handling::Handler,
            Handling::Handler,
            Handling::LateHandler,
            Handling::SignalFd,
            Handling::SigWait,
        ],
    );
    let in_handler = matches!(handling, Handling::Handler | Handling::LateHandler);
    let reaction = match rng.u8(..10) {
        0..=1 => Reaction::AtOnce,
        2..=4 => Reaction::Graceful,
        5 => Reaction::Slow { ms: rng.u32(100..600) },
        6 => Reaction::Slow { ms: 5_000 },
        7 => Reaction::Second,
        8 if in_handler => Reaction::ReRaise,
        9 if in_handler => Reaction::Crash,
        _ => Reaction::Graceful,
    };
    Program {
        handling,
        reaction,
        code: pick(rng, &[0, 0, 0, 0, 1, 3, 7, 143]),
        drains: rng.bool(),
        closes: pick(rng, &[Closes::Exit, Closes::Close, Closes::Shutdown]),
        pool: pick(
            rng,
            &[
                Pool::None,
                Pool::None,
                Pool::None,
                Pool::None,
                Pool::None,
                Pool::Idle,
                Pool::Busy,
            ],
        ),
    }
}

fn client(rng: &mut Rng) -> Client {
    let every_ms = rng.u32(10..120);
    let answer_ms = pick(rng, &[0, 0, 1, 20, 150]);
    match rng.u8(..9) {
        0..=2 => Client::Short { every_ms, answer_ms },
        3..=4 => Client::KeepAlive { every_ms, answer_ms },
        5 => Client::Kept,
        6 => Client::Silent,
        7 => Client::Long,
        _ => Client::Half,
    }
}

fn stop(rng: &mut Rng) -> Stop {
    let signal = pick(rng, &[SIGTERM, SIGTERM, SIGTERM, SIGTERM, SIGINT, SIGQUIT, SIGUSR1]);
    let kill = pick(rng, &[Kill::Main, Kill::Cgroup]);
    match rng.u8(..20) {
        0..=9 => Stop::Runtime {
            signal,
            grace_ms: rng.u32(700..1_200),
            kill,
            frozen: rng.u8(..12) == 0,
        },
        10..=11 => Stop::Force(kill),
        12 => Stop::Inside {
            signal: pick(rng, &[SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2]),
        },
        13..=14 => Stop::Stranger {
            signal: if rng.bool() { SIGKILL } else { signal },
            target: pick(rng, &[Target::Main, Target::Program]),
        },
        15..=18 => Stop::Exit,
        _ => Stop::Fault,
    }
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_is_a_history() {
        for seed in 0..100 {
            assert_eq!(history(seed, |_| true), history(seed, |_| true));
        }
        assert_ne!(history(1, |_| true), history(2, |_| true));
    }

    #[test]
    fn what_this_machine_lacks_changes_nothing_else() {
        for seed in 0..200 {
            let (with, without) = (history(seed, |_| true), history(seed, |wrapper| wrapper != Wrapper::Tini));
            assert!(!without.entry.contains(&Wrapper::Tini));
            assert_eq!(
                History {
                    entry: Vec::new(),
                    ..with
                },
                History {
                    entry: Vec::new(),
                    ..without
                }
            );
        }
    }

    #[test]
    fn no_supervisor_starts_one_daemon_after_the_other() {
        let mut supervised = 0;
        for seed in 0..2_000 {
            let entry = history(seed, |_| true).entry;
            if let Some(place) = entry.iter().position(|wrapper| wrapper.supervises()) {
                assert!(!entry[place..].contains(&Wrapper::DoubleFork), "{seed}: {entry:?}");
                supervised += 1;
            }
        }
        assert!(supervised > 100, "{supervised}");
    }

    /// A value that is never drawn is never tested.
    #[test]
    fn two_thousand_seeds_draw_every_kind() {
        let mut drawn = BTreeSet::new();
        for seed in 0..2_000 {
            let History {
                entry,
                program,
                clients,
                stop,
                bind,
                ..
            } = history(seed, |_| true);
            drawn.extend(entry.iter().map(|wrapper| format!("{wrapper:?}")));
            drawn.insert(format!("{:?}", program.handling));
            drawn.insert(format!("closes by {:?}", program.closes));
            drawn.insert(format!("pool {:?}", program.pool));
            drawn.insert(format!("{bind:?}"));
            let of = |value: String| value.split([' ', '(']).next().unwrap_or_default().to_owned();
            drawn.insert(of(format!("{:?}", program.reaction)));
            drawn.extend(clients.iter().map(|client| of(format!("{client:?}"))));
            drawn.insert(of(format!("stop:{stop:?}")));
        }
        // 17 wrappers, 7 ways of handling, 3 of closing, 5 addresses, 6 reactions, 6 clients, 6 ends, 3 pools.
        assert_eq!(drawn.len(), 17 + 7 + 3 + 5 + 6 + 6 + 6 + 3, "{drawn:?}");
    }
}
