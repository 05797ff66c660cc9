//! The smallest history that still fails in the same way: one change after the other, each kept if two plays of two fail again.

use nix::libc::SIGKILL;

use crate::history::{Bind, Client, Closes, Deed, Handling, History, Kill, Pool, Program, Reaction, Stop};

type Change = Box<dyn Fn(&mut History)>;

/// Every single change that makes `history` simpler.
fn changes(history: &History) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for index in 0..history.entry.len() {
        changes.push(Box::new(move |history| {
            history.entry.remove(index);
        }));
    }
    for index in 0..history.clients.len() {
        changes.push(Box::new(move |history| {
            history.clients.remove(index);
        }));
        changes.push(Box::new(move |history| {
            history.clients[index] = Client::Short {
                every_ms: 20,
                answer_ms: 0,
            };
        }));
    }
    let plain: [fn(&mut History); 20] = [
        |history| history.probes = None,
        |history| history.held = None,
        |history| history.pid_namespace = true,
        |history| history.own_network = true,
        |history| history.bind = Bind::V4,
        |history| history.program.pool = Pool::None,
        |history| history.lead_ms = 100,
        |history| history.program.code = 0,
        |history| history.program.handling = Handling::Handler,
        |history| history.program.reaction = Reaction::Graceful,
        |history| history.program.drains = true,
        |history| history.program.closes = Closes::Exit,
        |history| {
            history.program = Program {
                handling: Handling::Default,
                reaction: Reaction::AtOnce,
                ..history.program
            }
        },
        |history| {
            if let Stop::Runtime { frozen, .. } = &mut history.stop {
                *frozen = false;
            }
        },
        |history| {
            if let Stop::Runtime { again_ms, .. } = &mut history.stop {
                *again_ms = None;
            }
        },
        |history| {
            if let Stop::Runtime { to_all, .. } = &mut history.stop {
                *to_all = false;
            }
        },
        |history| {
            if let Stop::Two { second, .. } = history.stop {
                history.stop = alone(second);
            }
        },
        |history| {
            if let Stop::Two { first, .. } = history.stop {
                history.stop = alone(first);
            }
        },
        |history| {
            if let Stop::Runtime { kill, .. } | Stop::Force(kill) = &mut history.stop {
                *kill = Kill::Main;
            }
        },
        |history| {
            if let Stop::Runtime { signal, grace_ms, .. } = &mut history.stop {
                *signal = nix::libc::SIGTERM;
                *grace_ms = 700;
            }
        },
    ];
    changes.extend(plain.map(|change| Box::new(change) as Change));
    changes
}

fn alone(deed: Deed) -> Stop {
    match deed {
        Deed::Runtime(SIGKILL) => Stop::Force(Kill::Main),
        Deed::Runtime(signal) => Stop::Runtime {
            signal,
            grace_ms: 700,
            kill: Kill::Main,
            frozen: false,
            again_ms: None,
            to_all: false,
        },
        Deed::Stranger { signal, target } => Stop::Stranger { signal, target },
        Deed::Inside(signal) => Stop::Inside { signal },
        Deed::Exit => Stop::Exit,
        Deed::Fault => Stop::Fault,
    }
}

/// Makes `history` as small as `fails` allows. `fails` is asked of many histories at once, and answers for each.
///
/// # Errors
/// `fails` has one.
pub fn shrunk(history: &History, fails: impl Fn(&[History]) -> anyhow::Result<Vec<bool>>) -> anyhow::Result<History> {
    let mut smallest = history.clone();
    loop {
        let (mut candidates, mut kept) = (Vec::new(), Vec::new());
        for change in changes(&smallest) {
            let mut candidate = smallest.clone();
            change(&mut candidate);
            if candidate != smallest && is_simpler(&candidate, &smallest) && !candidates.contains(&candidate) {
                candidates.push(candidate);
                kept.push(change);
            }
        }
        let answers = fails(&candidates)?;
        let good: Vec<usize> = (0..candidates.len()).filter(|index| answers[*index]).collect();
        let Some(&first) = good.first() else { return Ok(smallest) };
        // Those that do not depend on positions, all together, if that fails too.
        let mut all = smallest.clone();
        for index in good
            .iter()
            .copied()
            .filter(|index| candidates[*index].entry == smallest.entry)
        {
            if candidates[index].clients.len() == smallest.clients.len() {
                kept[index](&mut all);
            }
        }
        let together = all != smallest && all != candidates[first] && fails(&[all.clone()])?[0];
        smallest = if together { all } else { candidates[first].clone() };
    }
}

/// An order without circles: fewer parts, then parts nearer to the plainest.
fn is_simpler(one: &History, than: &History) -> bool {
    weight(one) < weight(than)
}

fn weight(history: &History) -> u32 {
    let count = |parts: usize| u32::try_from(parts).unwrap_or(u32::MAX);
    let is = |is: bool| u32::from(is);
    let Program {
        handling,
        reaction,
        code,
        drains,
        closes,
        pool,
    } = history.program;
    let handling = match handling {
        Handling::Default => 0,
        Handling::Handler => 1,
        _ => 2,
    };
    let reaction = match reaction {
        Reaction::AtOnce => 0,
        Reaction::Graceful => 1,
        _ => 2,
    };
    let stop = match history.stop {
        Stop::Runtime {
            signal,
            grace_ms,
            kill,
            frozen,
            again_ms,
            to_all,
        } => {
            is(frozen)
                + is(to_all)
                + 2 * is(again_ms.is_some())
                + is(kill != Kill::Main)
                + is(signal != nix::libc::SIGTERM || grace_ms != 700)
        }
        Stop::Force(kill) => is(kill != Kill::Main),
        Stop::Two { .. } => 5,
        _ => 0,
    };
    let plain = Client::Short {
        every_ms: 20,
        answer_ms: 0,
    };
    let odd_clients = history.clients.iter().filter(|client| **client != plain).count();
    20 * count(history.entry.len())
        + 20 * count(history.clients.len())
        + 2 * count(odd_clients)
        + is(!history.pid_namespace)
        + is(!history.own_network)
        + is(history.bind != Bind::V4)
        + is(history.lead_ms != 100)
        + is(code != 0)
        + is(!drains)
        + is(closes != Closes::Exit)
        + is(pool != Pool::None)
        + 2 * is(history.probes.is_some())
        + 2 * is(history.held.is_some())
        + handling
        + reaction
        + stop
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{self, Draws};
    use crate::history::Wrapper;

    /// A fault that only `tini` and a client that keeps its connection bring out.
    #[test]
    fn what_does_not_matter_is_taken_away() -> anyhow::Result<()> {
        let fails = |history: &History| {
            history.entry.contains(&Wrapper::Tini)
                && history
                    .clients
                    .iter()
                    .any(|client| matches!(client, Client::KeepAlive { .. }))
        };
        let failing: Vec<History> = (0..3_000)
            .map(|seed| draw::history(seed, Draws::All, |_| true))
            .filter(|h| fails(h))
            .collect();
        assert!(failing.len() > 20);
        for history in failing {
            let small = shrunk(&history, |histories| Ok(histories.iter().map(fails).collect()))?;
            assert_eq!(small.entry, [Wrapper::Tini]);
            assert_eq!(small.clients.len(), 1);
            assert_eq!(small.program.code, 0);
            assert!(small.pid_namespace && small.own_network);
        }
        Ok(())
    }

    #[test]
    fn what_fails_no_more_stays_as_it_is() -> anyhow::Result<()> {
        let history = draw::history(7, Draws::All, |_| true);
        assert_eq!(shrunk(&history, |histories| Ok(vec![false; histories.len()]))?, history);
        Ok(())
    }
}
