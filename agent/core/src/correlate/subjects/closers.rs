//! Subjects with closed listeners, by network namespace.

use std::collections::HashMap;

use crate::attribute::Map;
use crate::event::{Kind, Tcp};
use crate::ids::CgroupId;
use crate::ledger::{Hole, Origin};
use crate::time::Boot;
use crate::tolerances::CLOSERS_SWEEP;

use super::listeners::Listeners;
use super::subject::State;

/// Network namespaces for which closers are kept. In further namespaces nothing shows whose clients are refused.
const NAMESPACES: usize = 1_024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Closers {
    of_namespace: HashMap<u32, Vec<CgroupId>>,
    swept: Boot,
}

impl Closers {
    /// A listener of a subject closed. Returns the subjects whose refused clients are not known from then on.
    ///
    /// The probes attribute a refused client to the last closed listener of the port. A neighbour in the same network namespace that listens
    /// on the port for a moment gets the refusals of a server that terminates: the traffic of this server is then unknown.
    pub fn closed(
        &mut self,
        now: Boot,
        subjects: &Map<CgroupId, State>,
        (at, own): (Boot, CgroupId),
        tcp: &Tcp,
    ) -> Vec<CgroupId> {
        let is_closer = |of: &CgroupId| listeners(subjects, *of).is_some_and(|listeners| !listeners.is_empty());
        if self.of_namespace.len() >= NAMESPACES && !self.of_namespace.contains_key(&tcp.netns) {
            if self.swept.plus(CLOSERS_SWEEP) <= now {
                self.swept = now;
                self.of_namespace.retain(|_, closers| closers.iter().any(is_closer));
            }
            if self.of_namespace.len() >= NAMESPACES {
                return vec![own];
            }
        }
        let closers = self.of_namespace.entry(tcp.netns).or_default();
        if !closers.contains(&own) {
            closers.retain(is_closer);
            closers.push(own);
        }
        let mut doubtful = Vec::new();
        for &other in closers.iter().filter(|other| **other != own) {
            let Some(others) = listeners(subjects, other) else { continue };
            let is_succeeded = others.is_succeeded_by(tcp.local, at);
            doubtful.extend(is_succeeded.then_some(if tcp.close.by_own { own } else { other }));
            doubtful.extend(others.succeeds(tcp.local, at).then_some(own));
        }
        doubtful
    }

    /// A network namespace has one closer, or a few.
    pub fn bytes(&self) -> usize {
        2 * self.of_namespace.len() * (size_of::<(u32, Vec<CgroupId>)>() + 4 * size_of::<CgroupId>())
    }
}

fn listeners(subjects: &Map<CgroupId, State>, of: CgroupId) -> Option<&Listeners> {
    let timeline = subjects.get(&of)?.timeline.as_deref()?;
    Some(timeline.sockets.listeners())
}

/// Whose a refused connection is cannot be told any more.
pub(super) fn from_then_on(at: Boot) -> Hole {
    Hole {
        to: None,
        ..Hole::of(Origin::Dropped, Kind::Tcp, at, at, 1)
    }
}

#[cfg(test)]
mod tests {
    use crate::correlate::{Correlator, Limits};
    use crate::event::Event;
    use crate::fixtures::script;
    use crate::input::Input;
    use crate::time::Boot;

    fn play(namespaces: u32) -> usize {
        let text = "
            +0 mkdir app
            proc main in=app pid=100 ns=1 start=+0 parent=shim comm=app
            +0.001 exec main
            +0.1 mkdir other
            proc other in=other pid=300 ns=1 start=+0.1 parent=shim comm=other
            +0.2 exec other
            +1 TERM runc -> main handler
            +1.1 tcp app closed 80
            +1.2 TERM runc -> other handler
            ";
        let mut core = Correlator::new(Limits::default());
        let mut close = None;
        let mut last = Boot(0);
        for (at, input) in script::parse(text).inputs {
            if let Input::Kernel {
                event: Event::Tcp(_), ..
            } = &input
            {
                close = Some(input.clone());
            }
            last = at;
            core.handle(at, input);
        }
        for n in 0..namespaces {
            let mut input = close.clone().expect("a close");
            if let Input::Kernel {
                event: Event::Tcp(tcp),
                at,
            } = &mut input
            {
                tcp.netns = 1_000 + n;
                last = last.plus(std::time::Duration::from_micros(122));
                *at = last;
            }
            core.handle(last, input);
        }
        core.subjects.closers.of_namespace.len()
    }

    #[test]
    fn listeners_in_many_network_namespaces_are_bounded() {
        let most = play(4_000);
        assert!(most <= 2 * super::NAMESPACES, "{most}");
    }
}
