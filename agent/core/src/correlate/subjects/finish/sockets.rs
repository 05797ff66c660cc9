//! What clients met, and whether all of it was observed.

use super::Life;
use crate::event::{Armed, Disposition, ExitStatus, Kind, SignalResult, TargetState};
use crate::ids::{Pid, Signal};
use crate::ledger::Hole;
use crate::termination::{Inside, Role, Stop, Traffic, Unlooked};
use crate::time::Boot;

use crate::correlate::subjects::inner::{self, InnerSignal};
use crate::correlate::subjects::inside::{self, ended_by_default, killed, killed_by_end_of, unseen};
use crate::correlate::subjects::process::Served;
use crate::correlate::subjects::subject::Others;
use crate::correlate::subjects::timeline::SignalFact;
use crate::correlate::subjects::traffic::Window;
use crate::tolerances::RUN_GAP;

/// How far the sockets were observed.
#[derive(Clone, Copy)]
pub(super) struct Observed {
    /// What closed was recorded, once the sockets were watched.
    is_seen: bool,
    /// And to the end of the clients' time.
    is_to_the_end: bool,
    /// The cgroup still existed then.
    is_unclosed: bool,
    is_v1: bool,
}

impl Life<'_> {
    pub fn observed(&self, has_gap: bool) -> Observed {
        let (state, until) = (self.state, self.until);
        let is_v1 = self.own.hierarchy != 0 || state.shares_cgroup;
        let is_unclosed = self.exit().is_some() && until <= self.now && !state.is_removed_by(until);
        let lost_from = self.reach().min(self.clients_since());
        let mut sockets_lost = self.ledger.of_all(lost_from, until).filter(|hole| hole.is_of(Kind::Tcp));
        let is_seen = self.ledger.sees_sockets() && sockets_lost.next().is_none() && !has_gap && !is_v1 && !state.below.over;
        Observed {
            is_seen,
            is_to_the_end: is_seen
                // The observation ended before all of the clients' time.
                && until <= self.now
                && !is_unclosed
                // Its record shows whether the sockets were recorded by then, and which connections it dropped.
                && self.exit().is_some(),
            is_unclosed,
            is_v1,
        }
    }

    /// Of a termination without a stop.
    fn is_unasked(&self) -> bool {
        self.stop.is_none() && self.state.requested.is_none()
    }

    fn own_since(&self) -> Option<Boot> {
        let own_exits = &self.state.rare().own_exits;
        self.is_unasked()
            .then(|| own_exits.since(self.below_from(), self.begin))
            .flatten()
    }

    /// Clients count from the deletion request on; of a termination without a stop, from the exit of the program below the main process.
    pub fn clients_since(&self) -> Boot {
        let is_watched = |first: &&SignalFact| first.armed_sockets() && self.state.is_watched_since(first.at);
        let asked = self.first_asked.filter(is_watched).map(|first| first.at);
        let since = [self.state.requested.or(self.own_since()), asked];
        since.into_iter().flatten().fold(self.begin, Boot::min)
    }

    /// What a process had open is in the record of its exit, and of the handler that may close it before.
    fn exits_since(&self) -> Boot {
        if self.is_unasked() {
            self.below_from()
        } else {
            self.clients_since()
        }
    }

    pub fn traffic(&self, observed: Observed, is_main_sure: bool, stop: Option<&Stop>, inside: &Inside) -> Traffic {
        let (state, timeline, end, until) = (self.state, self.timeline, self.end, self.until);
        let exits_since = self.exits_since();
        let mut traffic = timeline.sockets.within(&Window {
            since: self.clients_since(),
            until,
            refusing_from: state.refusing_from(end, self.context.linger),
            end,
            observed: observed.is_to_the_end && is_main_sure && self.is_whole(),
            sees_all: self.ledger.sees_all_clients(),
            clients: self.context.clients,
            kubelet_known: self.context.kubelet_known,
        });
        // The same close refused them, longer ago than what counts of a termination without a request.
        let refused_before = self.is_unasked() && timeline.sockets.has_refused_before(self.clients_since());
        traffic.observed &= !refused_before;
        traffic.unseen.refused_before = refused_before;
        traffic.unseen.cgroup_v1 = observed.is_v1;
        traffic.unseen.unclosed = observed.is_unclosed;
        let own_exits = &state.rare().own_exits;
        // Beside a TCP listener one on a Unix socket is mostly for the administrator, and no kernel keeps whom it has accepted.
        let serves_tcp = !traffic.listeners.is_empty() || traffic.accepted.count > 0;
        let is_unix_server = !serves_tcp && own_exits.unix.since(exits_since, until).is_some();
        // A lost signal may be one that was read without a handler.
        let lacks = |kind: Kind, until: Boot| self.ledger.may_lack(kind, exits_since, until);
        let lacks_reads = lacks(Kind::SignalGenerate, end.plus(self.context.reorder)) || lacks(Kind::SignalDeliver, until);
        // Or one to another process, before the sockets were recorded.
        let has_others = state.exits.iter().any(|(at, _)| (exits_since..=until).contains(at));
        let mut early = self.ledger.of_all(self.in_life(exits_since.minus(RUN_GAP)), exits_since);
        let lacks_early = has_others && early.any(|hole| hole.is_of(Kind::SignalGenerate));
        traffic.observed &= serves_tcp || !(lacks_reads || lacks_early);
        traffic.unseen.other_sockets = is_unix_server || own_exits.unobserved.since(exits_since, until).is_some();
        traffic.unseen.unlooked = match () {
            () if serves_tcp => None,
            () if reads_unlooked(stop, self.kill.is_some(), inside) => Some(Unlooked::NoHandler),
            () if let Some(unlooked) = self.signalled_unlooked(inside, (exits_since, until)) => Some(unlooked),
            () => own_exits.more.since(exits_since, until).map(|_| Unlooked::TooMany),
        };
        traffic
    }

    /// A signal from outside to another process than the main one, which ended in that time without a socket of clients, and may have closed
    /// them at the signal: the probes look at a handler's begin only while the sockets are recorded.
    fn signalled_unlooked(&self, inside: &Inside, (since, until): (Boot, Boot)) -> Option<Unlooked> {
        let (state, timeline) = (self.state, self.timeline);
        let is_armed = |fact: &&SignalFact| fact.armed_sockets() && state.is_watched_since(fact.at);
        let armed = timeline.signals.iter().filter(is_armed).map(|fact| fact.at);
        let looked_from = armed.chain(state.requested).min().unwrap_or(self.end);
        let entries = inside::entries(timeline);
        let unlooked = |fact: &InnerSignal| {
            let of = inner::id(&fact.target);
            let exit = inside::exit(state, &of).filter(|exit| (since..=until).contains(&exit.at))?;
            let own = entries.iter().filter(|entry| !entry.discarded && entry.signal == fact.signal);
            let entered = own
                .filter(|entry| entry.process.same(&of))
                .filter_map(|entry| entry.at_or_after(fact.at))
                .min();
            let reads = fact.state.blocked || fact.state.sigwait;
            let may_have_read = || {
                let kill = inside::signals(timeline).find(|kill| kill.signal == Signal::KILL && kill.to(&fact.target));
                let is_read = kill
                    .and_then(|kill| kill.pending)
                    .is_some_and(|left| !left.contains(fact.signal));
                is_read || exit.status.signal() != Some(Signal::KILL)
            };
            let is_init = || inside.forwards.iter().any(|other| other.sender.is(&fact.target));
            if reads && entered.is_none() && !is_init() && may_have_read() {
                return Some(Unlooked::NoHandler);
            }
            let is_early = fact.at < looked_from && entered.is_none_or(|at| at >= looked_from);
            (is_early && !reads && fact.disposition == Disposition::Handler).then_some(Unlooked::EarlyHandler)
        };
        let main = self.main.as_ref()?;
        inside::signals(timeline)
            .filter(|fact| matches!(fact.role, Role::Runtime | Role::Other | Role::Unknown))
            .filter(|fact| fact.signal != Signal::KILL && fact.result != SignalResult::Ignored)
            .filter(|fact| !main.id.same(&inner::id(&fact.target)) && !inside::served(state, &inner::id(&fact.target)))
            .find_map(|fact| unlooked(&fact))
    }

    /// Nothing that clients met is missing from when on they count.
    fn is_whole(&self) -> bool {
        let (state, ledger) = (self.state, self.ledger);
        let (since, until) = (self.clients_since(), self.until);
        let from = if self.is_unasked() { self.end } else { since };
        // A signal of longer ago would be another request.
        let first_stop = self.in_life(from.minus(RUN_GAP)).min(self.stops_from());
        let own_exits = self.is_unasked().then(|| &state.rare().own_exits);
        let is_recorded = own_exits.is_none_or(|own| {
            let is_watched = self.own_since().is_none_or(|at| state.is_watched_since(at));
            is_watched && own.unrecorded.since(self.below_from(), self.end).is_none()
        });
        // A lost stop signal would be the start of what counts, and of what the kernel recorded. A gap is one, too: the maps of an agent that
        // comes after it do not have the port of a listener that had closed.
        let gap = ledger.gap(first_stop, from).filter(|_| self.stop.is_some());
        let had_closed = |gap: Hole| self.timeline.sockets.has_closed_listener(first_stop, gap.to.unwrap_or(from));
        let starts_in_gap = gap.is_some_and(|gap| state.requested.is_none() || had_closed(gap));
        ledger.gap(since, until).is_none()
            && self.timeline.sockets.over_cap() == 0
            && ledger.sees(Kind::SignalGenerate)
            && ledger.lost_since(Kind::SignalGenerate, first_stop, from).is_none()
            && !starts_in_gap
            && is_recorded
            && !ledger.may_lack(Kind::ProcessExit, self.exits_since(), until)
            && self.is_watched(true)
    }

    /// Whether the kernel watched the sockets, and did not let them go since: from the deletion request or the stop signal on, without
    /// both from the exit. Records up to version 3 do not have this for an exit; then from the exit of a process that looks like a main
    /// process.
    fn is_watched(&self, by_fatal: bool) -> bool {
        let (state, main) = (self.state, self.main.as_ref());
        if state.requested.is_some_and(|at| state.is_watched_since(at)) {
            return true;
        }
        let by_exit = main.and_then(|main| main.exit?.armed).map(Armed::is_armed);
        let (is_armed, at) = match (self.stop, self.fatal.as_ref().filter(|_| by_fatal)) {
            (Some(stop), _) => (stop.armed_sockets(), Some(stop.at)),
            (None, _) if by_exit.is_some() => (by_exit == Some(true), self.exit().map(|exit| exit.at)),
            (None, Some(fatal)) => (true, Some(fatal.at)),
            (None, None) => {
                let exit = self.exit();
                let failed = exit.is_some_and(|exit| exit.status != ExitStatus::Exited(0));
                let looks_main = main.is_some_and(|main| main.is_ns_init() || main.ns_level == 0 || failed);
                (looks_main && exit.is_some(), exit.map(|exit| exit.at))
            }
        };
        is_armed && at.is_some_and(|at| state.is_watched_since(at))
    }

    /// With the processes that were killed, and whether it is known what they had open.
    pub fn with_killed(&self, inside: Inside, observed: Observed, exits_lost: bool) -> Inside {
        let Some((main, exit)) = self.main.as_ref().and_then(|main| Some((main, main.exit?))) else {
            return inside;
        };
        let (state, timeline, stop) = (self.state, self.timeline, self.stop);
        let since = self.first_asked.map_or(exit.at, |first| first.at);
        let (mut killed, others_killed) = killed(state, timeline, main, (stop, since, exit.at));
        // The party that stopped the main process, or started it: of a process with another parent its relation is not seen.
        let stopper = stop.filter(|stop| stop.sender.role == Role::Runtime);
        let stopper = stopper.map(|stop| [stop.signal.sender.tgid, stop.signal.target.ppid]);
        let starter = Some(main.parent).filter(|_| main.outside && !main.is_ns_init() && main.parent != Pid::INIT);
        for killed in killed.iter_mut().filter(|killed| killed.kill.role == Role::Other) {
            let by = killed.kill.sender.tgid;
            if starter == Some(by) || stopper.is_some_and(|stopper| stopper.contains(&by)) {
                killed.kill.role = Role::Runtime;
            }
        }
        // What a stop from inside leads to is not recorded: then it is not known whether they were asked to stop.
        let is_last = stop.is_none() && main.is_ns_init();
        let by_end = |(of, signal): &(Served, Signal)| is_last && of.at >= exit.at && of.is_own && *signal == Signal::KILL;
        let unseen = unseen(state, timeline, &main.id, (since, exit.at, &inside.forwards));
        let (by_end, unseen): (Vec<_>, Vec<_>) = unseen.into_iter().partition(by_end);
        let room = Inside::KILLED.saturating_sub(killed.len());
        killed.extend(by_end.iter().take(room).map(|(of, _)| killed_by_end_of(main, exit.at, *of)));
        let first = killed
            .iter()
            .map(|killed| killed.kill.at)
            .filter(|at| *at >= since)
            .min()
            .unwrap_or(exit.at);
        // A process that was killed after that exit closed its sockets later.
        let by_exit = first >= exit.at && exit.armed.is_some_and(Armed::is_armed) && state.is_watched_since(exit.at);
        let is_watched = by_exit || self.is_watched(false);
        // What each of them had open by other sockets is in the record of its exit.
        let mut exits = killed.iter().map(|killed| inside::exit(state, &inner::id(&killed.process)));
        let are_shown = !exits_lost || exits.all(|exit| exit.is_some());
        Inside {
            sockets_known: observed.is_to_the_end && is_watched && are_shown && timeline.sockets.knows_holders(first),
            killed,
            others_killed,
            // Where no init takes the orphans, one may have a parent outside.
            ended_unseen: unseen
                .iter()
                .find(|(of, _)| of.is_own || !main.is_ns_init())
                .map(|(of, signal)| (of.process(), *signal)),
            program_unsure: self.is_program_unsure(observed),
            ended_by_default: ended_by_default(state, timeline, &main.id, since),
            ..inside
        }
    }

    /// See [`Inside::program_unsure`].
    fn is_program_unsure(&self, observed: Observed) -> bool {
        let (state, timeline) = (self.state, self.timeline);
        if !state.may_be_wrapped() {
            return false;
        }
        // systemd's signal to one of the others is a fact that does not matter otherwise.
        if timeline.over_cap > 0 || timeline.inside.over_cap > 0 || self.ledger.dropped_exits().is_some() {
            return true;
        }
        let last = match state.others() {
            Others::None => return false,
            Others::Exited(last) => last.plus(self.context.linger),
            Others::Run => self.now,
        };
        let from = self.stop.map_or(last, |stop| stop.at);
        let is_watched = self
            .stop
            .is_some_and(|stop| stop.armed_sockets() && state.is_watched_since(stop.at));
        // Also of the exits: how the program ended, and whether it had sockets that no probe observes.
        let is_lost = [Kind::Tcp, Kind::ProcessExit]
            .into_iter()
            .any(|kind| self.ledger.may_lack(kind, from, last));
        !observed.is_seen || is_lost || !is_watched || !timeline.sockets.knows_holders(from)
    }
}

/// See [`Unlooked::NoHandler`]. A process that sends the signal on is an init. One that was killed may not have read it.
fn reads_unlooked(stop: Option<&Stop>, is_killed: bool, inside: &Inside) -> bool {
    let reads = |state: TargetState, entered: Option<Boot>, still_pending: Option<bool>, is_killed: bool| {
        (state.blocked || state.sigwait) && entered.is_none() && (still_pending == Some(false) || !is_killed)
    };
    let of_main = stop.is_some_and(|stop| reads(stop.state, stop.handler_entered, stop.still_pending, is_killed));
    let mut others = inside.forwards.iter();
    of_main && inside.forwards.is_empty()
        || others.any(|of| {
            let sent_on = inside.forwards.iter().any(|other| other.sender.is(&of.target));
            !sent_on && reads(of.state, of.handler_entered, of.still_pending, of.kill.is_some())
        })
}
