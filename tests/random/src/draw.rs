//! A history from a seed.

mod later;

use fastrand::Rng;
pub use later::LATER;
use nix::libc::{SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::entry;
use crate::history::{
    Bind, Client, Closes, Deed, Eater, Handling, History, Kill, Master, Pool, Program, Reaction, Stop, Target, Wrapper,
};

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

/// A change of a history that was drawn, by a generator of its own: the other values of a seed are what they were before there was such
/// a draw.
#[derive(Clone, Copy, Debug)]
pub struct Extra {
    pub name: &'static str,
    /// The product fault that it shows, and that is not mended: only `--all-draws` draws it.
    pub shows: Option<&'static str>,
    change: fn(&mut Rng, &mut History),
}

pub const EXTRAS: [Extra; 11] = [
    extra("serving-pool", None, serving_pool),
    extra("two-parties", None, two_parties),
    extra("second-stop", None, second_stop),
    extra("raise-after", None, raise_after),
    extra("lingers", None, lingers),
    extra(
        "next-life",
        Some(
            "after an earlier life of a supervised program, a few refused clients of the stop are not counted, once in some hundred histories",
        ),
        next_life,
    ),
    extra("oom", None, oom),
    extra(
        "pool-exits",
        Some("what the processes of a pool cut while the program exits by itself is not seen, and traffic is `quiet`"),
        pool_exits,
    ),
    extra("raise-after-read", None, raise_after_read),
    extra("other-stops-first", None, other_stops_first),
    extra("struck-program", None, struck_program),
];

const fn extra(name: &'static str, shows: Option<&'static str>, change: fn(&mut Rng, &mut History)) -> Extra {
    Extra { name, shows, change }
}

/// Which of [`EXTRAS`] a run draws.
#[derive(Clone, Copy, Debug)]
pub enum Draws {
    /// What shows no fault that is known.
    Everyday,
    All,
    /// Each history has this one.
    Only(Extra),
}

/// The history of `seed`, of the wrappers that `may` run here.
pub fn history(seed: u64, draws: Draws, may: impl Fn(Wrapper) -> bool) -> History {
    let rng = &mut Rng::with_seed(seed);
    let entry = entry(rng);
    let mut history = History {
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
        probes: None,
        held: None,
    };
    let rng = &mut Rng::with_seed(seed ^ 0x6578_7472_6173);
    let extra = match draws {
        Draws::Only(extra) => Some(extra),
        _ => EXTRAS.get(rng.usize(..3 * EXTRAS.len())).copied(),
    };
    if let Some(extra) = extra.filter(|extra| extra.shows.is_none() || !matches!(draws, Draws::Everyday)) {
        (extra.change)(rng, &mut history);
    }
    let rng = &mut Rng::with_seed(seed ^ 0x006c_6174_6572);
    let later = match draws {
        Draws::Only(_) => None,
        _ => LATER.get(rng.usize(..3 * LATER.len())).copied(),
    };
    if let Some(later) = later.filter(|later| later.shows.is_none() || !matches!(draws, Draws::Everyday)) {
        (later.change)(rng, &mut history);
    }
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
            again_ms: None,
            to_all: false,
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
pub fn here(seed: u64, draws: Draws) -> History {
    history(seed, draws, entry::is_here)
}

fn serving_pool(rng: &mut Rng, history: &mut History) {
    let master = pick(rng, &[Master::Forwards, Master::Forgets, Master::Exits]);
    let drains = rng.bool();
    // See `pool_exits`.
    let ends_well = master == Master::Exits || master == Master::Forwards && drains;
    let master = if history.stop == Stop::Exit && ends_well {
        Master::Forgets
    } else {
        master
    };
    history.program.pool = Pool::Serving { master, drains };
    if !matches!(history.bind, Bind::V4 | Bind::V6 | Bind::Any) {
        history.bind = Bind::V4;
    }
    if history.clients.is_empty() {
        history.clients.push(client(rng));
    }
}

fn pool_exits(rng: &mut Rng, history: &mut History) {
    serving_pool(rng, history);
    let (master, drains) = pick(
        rng,
        &[(Master::Exits, false), (Master::Exits, true), (Master::Forwards, true)],
    );
    history.program.pool = Pool::Serving { master, drains };
    history.stop = Stop::Exit;
}

fn two_parties(rng: &mut Rng, history: &mut History) {
    let signal = pick(rng, &[SIGTERM, SIGTERM, SIGTERM, SIGINT, SIGQUIT, SIGUSR1]);
    let runtime = Deed::Runtime(signal);
    let [stranger, by_stranger] = [signal, SIGKILL].map(|signal| Deed::Stranger {
        signal,
        target: Target::Main,
    });
    let to_program = Deed::Stranger {
        signal: pick(rng, &[signal, SIGKILL]),
        target: Target::Program,
    };
    let (first, second) = pick(
        rng,
        &[
            (runtime, by_stranger),
            (runtime, by_stranger),
            (runtime, stranger),
            (runtime, Deed::Inside(SIGTERM)),
            (runtime, Deed::Runtime(SIGKILL)),
            (runtime, to_program),
            (stranger, Deed::Runtime(SIGKILL)),
            (stranger, by_stranger),
            (Deed::Inside(signal), by_stranger),
        ],
    );
    let after_ms = rng.u32(5..700);
    history.stop = Stop::Two { first, after_ms, second };
}

fn other_stops_first(rng: &mut Rng, history: &mut History) {
    let signal = pick(rng, &[SIGTERM, SIGTERM, SIGTERM, SIGINT, SIGQUIT]);
    let stranger = Deed::Stranger {
        signal,
        target: Target::Main,
    };
    history.stop = Stop::Two {
        first: pick(rng, &[stranger, stranger, Deed::Inside(signal)]),
        after_ms: rng.u32(5..700),
        second: Deed::Runtime(signal),
    };
}

fn second_stop(rng: &mut Rng, history: &mut History) {
    history.stop = Stop::Runtime {
        signal: pick(rng, &[SIGTERM, SIGTERM, SIGINT]),
        grace_ms: rng.u32(900..1_500),
        kill: pick(rng, &[Kill::Main, Kill::Cgroup]),
        frozen: false,
        again_ms: Some(rng.u32(5..800)),
        to_all: false,
    };
    if rng.bool() {
        history.program.handling = pick(rng, &[Handling::Handler, Handling::SignalFd, Handling::SigWait]);
        history.program.reaction = Reaction::Second;
    }
}

fn raise_after(rng: &mut Rng, history: &mut History) {
    if rng.u8(..3) == 0 {
        history.entry.push(Wrapper::TrapRaises);
    } else {
        history.program.handling = Handling::Handler;
        history.program.reaction = Reaction::ReRaiseAfter;
    }
}

fn raise_after_read(rng: &mut Rng, history: &mut History) {
    history.program.handling = pick(rng, &[Handling::SignalFd, Handling::SigWait]);
    history.program.reaction = Reaction::ReRaiseAfter;
}

fn lingers(rng: &mut Rng, history: &mut History) {
    let ms = pick(rng, &[0, 200, 400, 900, 1_500, 2_500]);
    let place = rng.usize(..=history.entry.len());
    history.entry.insert(place, Wrapper::Lingers { ms, zero: rng.bool() });
    // Mostly the wrapper's own end.
    if rng.bool() {
        history.stop = pick(rng, &[Stop::Exit, Stop::Exit, Stop::Fault]);
    }
}

/// A supervised program ends, and starts again; the stop follows.
fn next_life(rng: &mut Rng, history: &mut History) {
    if !history.entry.iter().any(|wrapper| wrapper.supervises()) {
        let supervisor = pick(rng, &[Wrapper::Runit, Wrapper::S6, Wrapper::Supervisord]);
        history.entry.insert(0, supervisor);
    }
    history.stop = Stop::Two {
        first: pick(rng, &[Deed::Exit, Deed::Exit, Deed::Fault]),
        after_ms: rng.u32(50..2_000),
        second: Deed::Runtime(SIGTERM),
    };
}

/// A stranger stops the program, and then the runtime the container.
fn struck_program(rng: &mut Rng, history: &mut History) {
    history.stop = Stop::Two {
        first: Deed::Stranger {
            signal: pick(rng, &[SIGTERM, SIGTERM, SIGINT, SIGKILL]),
            target: Target::Program,
        },
        after_ms: rng.u32(50..2_000),
        second: Deed::Runtime(SIGTERM),
    };
    if rng.bool() && !history.entry.iter().any(|wrapper| wrapper.supervises()) {
        let supervisor = pick(rng, &[Wrapper::Runit, Wrapper::S6, Wrapper::Supervisord]);
        history.entry.insert(0, supervisor);
    }
}

fn oom(rng: &mut Rng, history: &mut History) {
    let eater = pick(rng, &[Eater::Program, Eater::Worker]);
    if eater == Eater::Worker {
        history.program.pool = Pool::Busy;
    }
    history.stop = Stop::Oom(eater);
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
            again_ms: None,
            to_all: false,
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
            assert_eq!(history(seed, Draws::All, |_| true), history(seed, Draws::All, |_| true));
        }
        assert_ne!(history(1, Draws::All, |_| true), history(2, Draws::All, |_| true));
    }

    #[test]
    fn what_this_machine_lacks_changes_nothing_else() {
        for seed in 0..200 {
            let (with, without) = (
                history(seed, Draws::All, |_| true),
                history(seed, Draws::All, |wrapper| wrapper != Wrapper::Tini),
            );
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
            let entry = history(seed, Draws::All, |_| true).entry;
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
            } = history(seed, Draws::All, |_| true);
            let of = |value: String| value.split([' ', '(']).next().unwrap_or_default().to_owned();
            drawn.extend(entry.iter().map(|wrapper| of(format!("{wrapper:?}"))));
            drawn.insert(format!("{:?}", program.handling));
            drawn.insert(format!("closes by {:?}", program.closes));
            drawn.insert(of(format!("pool:{:?}", program.pool)));
            drawn.insert(format!("{bind:?}"));
            drawn.insert(of(format!("{:?}", program.reaction)));
            drawn.extend(clients.iter().map(|client| of(format!("{client:?}"))));
            drawn.insert(of(format!("stop:{stop:?}")));
        }
        // 20 wrappers, 10 ways of handling, 3 of closing, 7 addresses, 7 reactions, 6 clients, 9 ends, 4 pools.
        assert_eq!(drawn.len(), 20 + 10 + 3 + 7 + 7 + 6 + 9 + 4, "{drawn:?}");
    }

    /// A third of all histories has one of the first, a third one of the later; the others are what they were before.
    #[test]
    fn a_later_draw_changes_only_the_histories_that_have_it() {
        let plain = |seed| {
            let none = |_: &mut Rng, _: &mut History| {};
            history(seed, Draws::Only(extra("none", None, none)), |_| true)
        };
        let same = (0..3_000)
            .filter(|seed| history(*seed, Draws::All, |_| true) == plain(*seed))
            .count();
        assert!((1_200..1_500).contains(&same), "{same}");
        for extra in EXTRAS.into_iter().chain(LATER) {
            let changed = (0..200)
                .filter(|seed| history(*seed, Draws::Only(extra), |_| true) != plain(*seed))
                .count();
            assert!(changed > 150, "{}: {changed}", extra.name);
        }
    }
}
