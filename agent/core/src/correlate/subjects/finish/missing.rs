//! What may be missing of one termination, as its [`Ledger`] has it.

use std::time::Duration;

use super::Life;
use crate::attribute::Subject;
use crate::event::{Disposition, Kind};
use crate::ids::CgroupId;
use crate::ledger::{Claim, Hole, Ledger, MissingEvidence, Origin, merged};
use crate::termination::{Gaps, Inside, OomKill, Open, Role, Unobserved};
use crate::time::Boot;

use crate::correlate::subjects::finish::Context;
use crate::correlate::subjects::process::Candidate;
use crate::correlate::subjects::subject::{Others, State};
use crate::correlate::subjects::timeline::SignalFact;
use crate::tolerances::{GRACE_REACH, LATE_REACH, OOM_CHILD_REACH, PASSED_ON, RUN_GAP, STOP_REACH};

/// Whose probes a judgement can rest on.
const PROBES: [Kind; 6] = [
    Kind::SignalGenerate,
    Kind::SignalDeliver,
    Kind::ProcessExec,
    Kind::ProcessExit,
    Kind::OomVictim,
    Kind::Tcp,
];

impl Life<'_> {
    pub fn missing(&self, inside: &Inside, oom: &[OomKill]) -> MissingEvidence {
        let (ledger, timeline) = (self.ledger, self.timeline);
        let (begin, end) = (self.begin, self.end);
        // If no main process is known, it may be any since the boot.
        let born = self.born().unwrap_or_default();
        let (reach, stops_from) = (self.reach(), self.stops_from());
        // An OOM kill of another process counts from before the stop signal on.
        let ooms_from = self.in_life(begin.min(end.minus(OOM_CHILD_REACH)));
        // Whether a victim came in from outside, its exec shows, or that of the process which started it.
        let others = oom.iter().filter(|oom| !oom.is_main() && !oom.of_main);
        let execs_from = others.map(|oom| self.in_life(oom.start.minus(LATE_REACH))).min();
        let execs_from = execs_from.filter(|from| *from < end).unwrap_or(end);
        let from = |hole: &Hole| match hole.kind {
            Some(Kind::OomVictim) => reach.min(ooms_from),
            Some(Kind::ProcessExec) => reach.min(execs_from),
            _ => reach,
        };
        let since = |hole: &Hole, from: Boot| Hole {
            from: hole.from.max(from),
            ..*hole
        };
        let lost = ledger.of_main(reach.min(ooms_from).min(execs_from), end);
        let lost = lost.filter(|hole| hole.overlaps(from(hole), end));
        let inactive = PROBES.into_iter().filter_map(|kind| ledger.unseen(kind, reach));
        let over_cap = timeline.over_cap_matters.then(|| Hole::over_cap(begin, end));
        let sockets_over = Some(timeline.sockets.over_cap()).filter(|over| *over > 0);
        let sockets_over = sockets_over.map(|over| Hole::of(Origin::Dropped, Kind::Tcp, begin, end, over));
        let lost = lost.map(|hole| since(hole, from(hole))).chain(inactive);
        let lost = merged(lost.chain(over_cap).chain(sockets_over));
        let stops = ledger
            .of_main(stops_from, reach)
            .filter(|hole| hole.is_of(Kind::SignalGenerate));
        let stops = stops.filter(|_| stops_from < reach).map(|hole| since(hole, stops_from));
        let late = ledger.late_gaps(born, end, self.stop_reach()).filter(|_| !self.is_asked_for);
        let stops = merged(stops.chain(late.map(|gap| since(gap, self.in_life(gap.from)))));
        // The one before the first observation, too.
        let before_stop = ledger.late_gaps(born, begin, RUN_GAP);
        let before_stop = before_stop.filter(|gap| self.is_asked_for && gap.to > Some(gap.from));
        let mut missing = MissingEvidence::default();
        missing.add(Claim::Main, lost);
        // Records of other CPUs may arrive that much later than the exit's.
        missing.add(Claim::Main, ledger.gap(begin, end.plus(self.context.reorder)));
        missing.add(Claim::NoStop, stops);
        missing.add(Claim::Others, self.lost_inside(inside));
        let below_from = execs_from.min(ooms_from).min(self.below_from());
        missing.add(Claim::Others, ledger.gap(below_from, self.below_until()));
        missing.add(Claim::FirstStop, self.earlier_stops());
        missing.add(Claim::FirstStop, before_stop.copied());
        missing.add(Claim::WhichMain, self.main_unsure());
        let execs = ledger.of_main(self.in_life(end.minus(LATE_REACH)), end);
        missing.add(Claim::Executed, execs.filter(|hole| hole.is_of(Kind::ProcessExec)).copied());
        missing
    }

    /// The same for the reader.
    pub fn gaps(&self, missing: &MissingEvidence) -> Gaps {
        let (begin, end, until) = (self.begin, self.end, self.until);
        let born = self.born().unwrap_or_default();
        let stop_reach = self.stop_reach();
        let mut late = self.ledger.late_gaps(born, end, stop_reach);
        let is_late_start = late.any(|gap| gap.from <= born || gap.to == Some(gap.from));
        let within = self.ledger.gaps_between(begin, until.max(end.plus(self.context.reorder)));
        let late = missing.late_start().map(|_| self.ledger.late_gaps(born, end, stop_reach));
        let all = within.chain(late.into_iter().flatten());
        let mut unobserved: Vec<(Boot, Boot)> = all.filter_map(|gap| Some((gap.from, gap.to?))).collect();
        unobserved.sort_unstable();
        unobserved.dedup();
        let later = unobserved.into_iter().filter(|(from, to)| born < *from && from < to);
        let is_by_stops = missing.lost(Claim::Main).next().is_none() && missing.lost(Claim::NoStop).next().is_some();
        let lost_from = if is_by_stops { self.stops_from() } else { self.reach() };
        Gaps {
            lost: self.lost_records(),
            own_lost: self.ledger.own_lost(lost_from, end),
            over_cap: self.timeline.over_cap + self.timeline.sockets.over_cap(),
            late_start: missing.late_start().is_some() && !missing.begins_late(end) && is_late_start,
            unobserved: later.map(|(since, until)| Unobserved { since, until }).collect(),
            inactive_probes: self.ledger.inactive_probes(),
            clock_step: self.context.observing.clock.step_after(begin),
        }
    }

    /// By kind, what the kernel lost. Lost events of sockets count from the clients' time on, and those of a damaged recording, too: the
    /// severity depends on them.
    fn lost_records(&self) -> Vec<(&'static str, u64)> {
        let (reach, until) = (self.reach(), self.until);
        let sockets_from = reach.min(self.clients_since());
        let is_stated = |hole: &&Hole| match (hole.why, hole.kind) {
            (Origin::NotRecorded, _) => false,
            (_, Some(Kind::Tcp)) => hole.overlaps(sockets_from, until),
            (why, _) => why != Origin::Damaged && hole.overlaps(reach, until),
        };
        let mut sums: Vec<(Kind, u64)> = Vec::new();
        for hole in self.ledger.of_all(reach.min(sockets_from), until).filter(is_stated) {
            let Some((kind, most)) = hole.kind.zip(hole.most) else {
                continue;
            };
            match sums.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, sum)) => *sum = sum.saturating_add(most),
                None => sums.push((kind, most)),
            }
        }
        sums.sort_by_key(|(kind, _)| (*kind == Kind::Tcp, *kind));
        sums.into_iter().map(|(kind, count)| (kind.name(), count)).collect()
    }

    /// The earliest time at which missing evidence could matter.
    pub fn reach(&self) -> Boot {
        if self.is_asked_for {
            self.begin
        } else {
            self.in_life(self.begin.minus(LATE_REACH))
        }
    }

    /// The same of a stop signal.
    pub fn stops_from(&self) -> Boot {
        if self.is_asked_for {
            self.begin
        } else {
            self.in_life(self.begin.minus(self.stop_reach()))
        }
    }

    /// How long before the end a stop signal may have come that nobody saw: as long as one that was seen would count. Of a pod the grace
    /// periods are known: see [`TerminationFacts::with_grace`](crate::termination::TerminationFacts::with_grace).
    fn stop_reach(&self) -> Duration {
        match self.kill.is_some_and(|fact| fact.sender.role == Role::Runtime) {
            true => GRACE_REACH,
            false => STOP_REACH,
        }
    }

    /// From when on the end of a program below the main process counts: from shortly before the stop.
    pub fn below_from(&self) -> Boot {
        self.in_life(self.begin.minus(PASSED_ON))
    }

    /// Until when a gap may hide the end of another process. A cgroup that is removed has no process.
    fn below_until(&self) -> Boot {
        match self.main.as_ref().is_none_or(is_last) {
            true => self.end,
            false => self.others_until().min(self.state.removed.unwrap_or(self.now)),
        }
    }

    /// Until when the end of other processes counts: those of a unit end later.
    fn others_until(&self) -> Boot {
        match self.state.others() {
            Others::None => self.until,
            Others::Exited(last) => self.until.max(last.plus(self.context.reorder)),
            Others::Run => self.until.max(self.now),
        }
    }

    /// What was about the way of the stop signal inside, which does not end before the last process does.
    fn lost_inside(&self, inside: &Inside) -> Vec<Hole> {
        let (from, until) = (self.below_from(), self.others_until());
        let is_early = |hole: &&Hole| hole.is_of(Kind::SignalGenerate) || hole.is_of(Kind::ProcessExit);
        let is_late = |hole: &&Hole| hole.is_of(Kind::SignalDeliver) && hole.overlaps(self.begin, until);
        let lost = self.ledger.of_all(from, until).filter(|hole| is_early(hole) || is_late(hole));
        // A process without an exit may be one whose exit was dropped: that concerns whatever rests on others.
        let lacks_exit = self.stop.is_none() || inside.forwards.iter().any(|forward| forward.exit.is_none());
        let dropped = self.ledger.dropped_exits().filter(|_| lacks_exit);
        let dropped = dropped.map(|hole| Hole { kind: None, ..*hole });
        let is_over = self.timeline.over_cap_matters || self.timeline.inside.over_cap > 0;
        let over_cap = is_over.then(|| Hole::over_cap(self.begin, self.end));
        merged(lost.copied().chain(dropped).chain(over_cap))
    }

    /// The stop signal may not be the first: a handler for the signal entered before, or records that could show one were lost. A process
    /// that resets its handler has the later signal discarded, one that is still in its handler does not enter it again.
    fn earlier_stops(&self) -> Vec<Hole> {
        let Some(stop) = self.stop else { return Vec::new() };
        let is_discarded = stop.is_discarded();
        if is_discarded && stop.signal.disposition != Disposition::Default {
            return Vec::new();
        }
        let since = stop.at.minus(RUN_GAP);
        let entered = self.timeline.delivers.iter().any(|(at, deliver)| {
            let in_time = since <= *at && *at < stop.at;
            let is_mains = self.main.is_some_and(|main| main.id.is(&deliver.task));
            in_time && deliver.signal == stop.signal.signal && is_mains
        });
        let lost = |kind: Kind| self.ledger.lost_since(kind, since, stop.at).is_some();
        let handled = |fact: &SignalFact| {
            let is_like = fact.signal.signal == stop.signal.signal && since <= fact.at && fact.at < stop.at;
            is_like && fact.is_handled() && self.main.is_some_and(|main| main.id.is(&fact.signal.target))
        };
        let entered = entered || lost(Kind::SignalDeliver) && self.timeline.signals.iter().any(handled);
        // Of an entry without a loss, the signal is observed: another party's.
        let is_unexplained = entered && (is_discarded || lost(Kind::SignalGenerate));
        let is_lost = lost(Kind::SignalGenerate) && lost(Kind::SignalDeliver);
        let hides = |hole: &&Hole| hole.is_of(Kind::SignalGenerate) || hole.is_of(Kind::SignalDeliver);
        let known = self.ledger.of_main(since, stop.at).filter(hides);
        let known = known.filter(|_| is_unexplained || is_lost);
        // The handler's entry alone shows that there was a signal.
        let is_unrecorded = is_unexplained && !lost(Kind::SignalGenerate);
        let unrecorded = is_unrecorded.then(|| Hole::of(Origin::Lost, Kind::SignalGenerate, since, stop.at, 1));
        merged(known.copied().chain(unrecorded))
    }

    /// Why another process may be the main process.
    fn main_unsure(&self) -> Vec<Hole> {
        let (state, now) = (self.state, self.now);
        if let Some(gap) = self.main.as_ref().and_then(|main| self.hides_main(main)) {
            return vec![*gap];
        }
        let lost = |kind: Kind, from: Boot| {
            let lost = self.ledger.of_main(from, now).filter(|hole| hole.is_of(kind));
            merged(lost.copied().chain(self.ledger.unseen(kind, from)))
        };
        // Also one that comes later, as an init's after the runtime's own first stage.
        let since = || since(self.context, (self.own, state), self.born().unwrap_or_default());
        let by_exec = if self.is_sure() {
            Vec::new()
        } else {
            lost(Kind::ProcessExec, since())
        };
        if !by_exec.is_empty() || !state.is_last_step(self.context.linger) {
            return by_exec;
        }
        lost(
            Kind::CgroupRmdir,
            self.main.and_then(|main| main.exit_at()).or(state.removed).unwrap_or(now),
        )
    }

    /// The gap in which a process of a unit began that has ended or is young: systemd also runs commands before and after the main process
    /// (`ExecStartPre=`, `ExecStopPost=`), and gives them 90 s by default. One after whose begin a listener was closed is a server. Or the gap
    /// in which the main process before it ended: what is left of a unit is no main process.
    fn hides_main(&self, main: &Candidate) -> Option<&Hole> {
        let (ledger, start) = (self.ledger, main.id.start);
        let end = main.exit_at().unwrap_or(self.now);
        let is_server = || !self.timeline.sockets.listeners().closed(|at| at >= start).is_empty();
        let may_be_command = || end.since(start) < LATE_REACH && !is_server();
        let last = self.state.finished.filter(|(_, last)| !main.is_after(*last));
        let began = || ledger.began_in(start).filter(|_| may_be_command());
        let before = || ledger.gaps_between(start, last?.1).last();
        matches!(self.state.subject, Subject::Unit { .. }).then(|| began().or_else(before))?
    }

    /// The main process is proven: the init that came from outside, or that the runtime stopped. Any other process is the main process
    /// only because no other is known.
    fn is_sure(&self) -> bool {
        let by_runtime = self.stop.is_some_and(|stop| stop.sender.role == Role::Runtime);
        let is_container = matches!(self.state.subject, Subject::Container { .. });
        let main = self.main.as_ref();
        is_container && main.is_none_or(|main| main.is_ns_init() && (main.outside || by_runtime))
    }

    /// The cgroup was removed without an observed event, and records that could show one were lost.
    pub fn is_unseen(&self, open: Open) -> bool {
        let state = self.state;
        let untouched = state.exits.is_empty() && state.finished.is_none() && state.removed.is_some();
        let from = since(self.context, (self.own, state), self.end);
        let lost = |kind: Kind| self.ledger.lost_since(kind, from, self.end).is_some();
        open == Open::CgroupRemoved && untouched && [Kind::ProcessExec, Kind::ProcessExit].into_iter().any(lost)
    }
}

/// PID 1, which has exited and left no process that the kernel would end after it. Any other process leaves the others to end later.
fn is_last(main: &Candidate) -> bool {
    main.is_ns_init() && main.exit.is_none_or(|exit| !exit.left_others)
}

/// Since when a record of the subject's processes that matters at that time may have been lost: of a unit not before its cgroup was
/// created. A container can make a cgroup that bears its own id: which of them has the main process, older records show.
fn since(context: &Context<'_>, (own, state): (CgroupId, &State), at: Boot) -> Boot {
    let reach = at.minus(LATE_REACH);
    let created = match state.subject {
        Subject::Unit { .. } => context.index.empty_until(own),
        Subject::Container { .. } => None,
    };
    created.map_or(reach, |created| reach.max(created))
}

/// The record of a stop signal to a unit's process that has exited may be lost: then the exit was not a step of the unit.
pub(in crate::correlate::subjects) fn may_have_been_stopped(ledger: Ledger<'_>, state: &State) -> bool {
    let Some((main, end)) = state.main().and_then(|main| Some((main, main.exit_at()?))) else {
        return false;
    };
    let from = end.minus(LATE_REACH).max(main.id.start);
    let is_lost = ledger.lost_since(Kind::SignalGenerate, from, end).is_some();
    matches!(state.subject, Subject::Unit { .. }) && is_lost
}
