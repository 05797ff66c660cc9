//! Coverage of the observation: times without observation, inactive probes, lost records, steps of the clock.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::attribute::Index;
use crate::event::Kind;
use crate::ids::CgroupId;
use crate::input::{LossScope, ProbeState, SeenClients};
use crate::termination::{LATE_REACH, MissingEvidence, Unobserved};
use crate::time::{Boot, WallClock};

use super::timeline::RUN_GAP;
use crate::correlate::attribution::Concerned;
use crate::correlate::limits::STEPS;

/// Most separate gaps; older ones are merged.
const KEPT: usize = 256;
/// The same of losses: all containers of a node can be noisy at once.
const KEPT_LOSSES: usize = 1024;
/// Two agents measure the time of the same event themselves: at most so far apart.
pub(super) const BETWEEN_AGENTS: Duration = Duration::from_millis(1);
/// The probes without which sockets are not observed.
const TCP_PROBES: [&str; 2] = ["inet_sock_set_state", ProbeState::REFUSALS];

#[derive(Debug, Default)]
pub(super) struct Coverage {
    probes: BTreeMap<String, ProbeState>,
    lost: VecDeque<Loss>,
    /// Losses of more subjects than are kept, merged: they concern all subjects. One for each kind and [`Whose`].
    lost_of_all: Vec<Loss>,
    /// Times without observation; the first is from boot to the first start.
    gaps: VecDeque<(Boot, Boot)>,
    pub clock: WallClock<STEPS>,
    /// When both this run and the one before observed, as an agent that waited for its predecessor's journal.
    twice: Option<(Boot, Boot)>,
}

#[derive(Clone, Debug)]
struct Loss {
    kind: Kind,
    of: Whose,
    place: LossPlace,
    why: Hole,
    from: Boot,
    to: Boot,
    count: u64,
}

/// Why records are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::correlate) enum Hole {
    /// They were written, or could not be, and are lost.
    Lost,
    /// The recording begins later.
    NotRecorded,
    /// A part of the recording or of the journal is damaged or missing.
    Damaged,
}

/// The processes that a loss concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::correlate) enum Whose {
    Any,
    /// Others than the first ones: what became of a stop signal inside.
    Others,
}

/// The subjects that a loss concerns. By path, as it was when the loss was reported: the index forgets removed cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::correlate) enum LossPlace {
    Anywhere,
    /// Around this cgroup of that hierarchy, and below it.
    Cgroup {
        hierarchy: u32,
        path: Arc<str>,
    },
}

impl LossPlace {
    /// None: no evidence of any subject. Anywhere, if nothing is known of the cgroup.
    pub fn of(scope: LossScope, index: &Index) -> Option<LossPlace> {
        let cgroup = match scope {
            LossScope::Machine | LossScope::NotRecorded | LossScope::Damaged => return Some(LossPlace::Anywhere),
            LossScope::Within(cgroup) | LossScope::Others(cgroup) => cgroup,
            LossScope::ConnectsTo(_) => return None,
        };
        Some(match index.exact_path(cgroup) {
            Some(path) => LossPlace::Cgroup {
                hierarchy: cgroup.hierarchy,
                path: Arc::clone(path),
            },
            None => LossPlace::Anywhere,
        })
    }

    pub fn of_dropped(of: &Concerned) -> LossPlace {
        match of {
            Concerned::Around { hierarchy, path } => LossPlace::Cgroup {
                hierarchy: *hierarchy,
                path: Arc::clone(path),
            },
            Concerned::Anybody | Concerned::Cgroup(_) => LossPlace::Anywhere,
        }
    }

    /// Whether the loss can have been evidence of that subject's end.
    fn concerns(&self, home: Home<'_>) -> bool {
        match (self, home.path) {
            (LossPlace::Anywhere, _) | (_, None) => true,
            (LossPlace::Cgroup { hierarchy, path }, Some(own)) => {
                *hierarchy != home.hierarchy || is_below(path, own) || is_below(own, path)
            }
        }
    }

    /// Whether what was lost is of the subject's own processes.
    fn is_in(&self, home: Home<'_>) -> bool {
        match (self, home.path) {
            (LossPlace::Cgroup { hierarchy, path }, Some(own)) => *hierarchy == home.hierarchy && is_below(path, own),
            (LossPlace::Anywhere, _) | (_, None) => false,
        }
    }
}

/// Both are whole paths; the same one is below itself.
fn is_below(path: &str, above: &str) -> bool {
    let above = above.trim_end_matches('/');
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A subject's own cgroup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home<'a> {
    hierarchy: u32,
    /// None: not known any more.
    path: Option<&'a str>,
}

impl<'a> Home<'a> {
    pub fn of(own: CgroupId, index: &'a Index) -> Home<'a> {
        Home {
            hierarchy: own.hierarchy,
            path: index.exact_path(own).map(|path| &**path),
        }
    }
}

impl Coverage {
    /// The observation starts (again) at `since`; the previous one ended at `ended`.
    pub fn start(&mut self, ended: Boot, since: Boot) {
        self.twice = (since < ended).then_some((since, ended));
        self.gaps.push_back((ended.min(since), since));
        if self.gaps.len() > KEPT
            && let (Some(first), Some(second)) = (self.gaps.pop_front(), self.gaps.front_mut())
        {
            second.0 = first.0;
        }
    }

    /// The record may be the second one of the same event: the run before may have had it, too.
    pub fn was_observed_twice(&self, at: Boot) -> bool {
        let is_in = |(since, ended): (Boot, Boot)| since.minus(BETWEEN_AGENTS) <= at && at <= ended.plus(BETWEEN_AGENTS);
        self.twice.is_some_and(is_in)
    }

    pub fn forget_probes(&mut self) {
        self.probes.clear();
    }

    /// Nothing is known from now on.
    pub fn cut(&mut self, now: Boot) {
        self.gaps.push_back((now, Boot(u64::MAX)));
    }

    pub fn probe(&mut self, name: String, state: ProbeState) {
        // The agent has a dozen names; a recording can contain any number.
        if self.probes.len() < KEPT || self.probes.contains_key(&name) {
            self.probes.insert(name, state);
        }
    }

    pub fn lost(&mut self, kind: Kind, of: Whose, place: LossPlace, from: Boot, to: Boot, count: u64) {
        let why = Hole::Lost;
        self.add(Loss {
            kind,
            of,
            place,
            why,
            from,
            to,
            count,
        });
    }

    /// What there was of that kind between the two is not in the recording or the journal.
    pub fn not_kept(&mut self, kind: Kind, why: Hole, from: Boot, to: Boot) {
        self.add(Loss {
            kind,
            of: Whose::Any,
            place: LossPlace::Anywhere,
            why,
            from,
            to,
            count: 1,
        });
    }

    fn add(&mut self, loss: Loss) {
        if loss.count == 0 {
            return;
        }
        // One that goes on, report after report, is one loss.
        if let Some(last) = self.lost.iter_mut().rev().find(|last| last.is_like(&loss))
            && last.to >= loss.from
        {
            return last.extend(loss.from, loss.to, loss.count);
        }
        self.lost.push_back(loss);
        if self.lost.len() > KEPT_LOSSES {
            self.merge_one();
        }
    }

    /// Merges the oldest loss that the same subjects had again into the next of these losses: a subject with many losses pushes no loss
    /// of another subject out. If no subjects had a loss again, the oldest loss concerns all subjects.
    fn merge_one(&mut self) {
        let mut later = HashSet::new();
        let losses = self.lost.iter().enumerate().rev();
        let oldest = losses.filter(|(_, loss)| !later.insert(loss.key())).map(|(at, _)| at).last();
        let Some(old) = self.lost.remove(oldest.unwrap_or(0)) else {
            return;
        };
        let next = match oldest {
            Some(at) => self.lost.iter_mut().skip(at).find(|next| next.is_like(&old)),
            None => {
                let mut of_all = self.lost_of_all.iter_mut();
                of_all.find(|known| known.kind == old.kind && known.of == old.of)
            }
        };
        match next {
            Some(next) => next.extend(old.from, old.to, old.count),
            None => self.lost_of_all.push(Loss {
                place: LossPlace::Anywhere,
                why: Hole::Lost,
                ..old
            }),
        }
    }

    fn all_lost(&self) -> impl Iterator<Item = &Loss> {
        self.lost_of_all.iter().chain(&self.lost)
    }

    /// Records lost between the two that can have been evidence of that subject's end, by kind.
    pub fn losses(&self, home: Home<'_>, from: Boot, to: Boot) -> Vec<(Kind, u64)> {
        self.losses_of(|loss| loss.of == Whose::Any, home, from, to)
    }

    /// The number of [`Coverage::losses`], and the time in which they were lost, if all are of the subject's own processes.
    fn own_losses(&self, home: Home<'_>, from: Boot, to: Boot) -> Option<(u64, Duration)> {
        let in_time = |loss: &&Loss| loss.of == Whose::Any && loss.from <= to && loss.to >= from;
        let (mut count, mut time): (u64, Option<(Boot, Boot)>) = (0, None);
        for loss in self.all_lost().filter(in_time).filter(|loss| loss.place.concerns(home)) {
            if loss.why != Hole::Lost || !loss.place.is_in(home) {
                return None;
            }
            count = count.saturating_add(loss.count);
            let (first, last) = time.unwrap_or((loss.from, loss.to));
            time = Some((first.min(loss.from), last.max(loss.to)));
        }
        time.map(|(first, last)| (count, last.since(first)))
    }

    /// When the first record of that kind between the two may have been lost.
    pub fn lost_since(&self, kind: Kind, home: Home<'_>, from: Boot, to: Boot) -> Option<Boot> {
        let of_kind = self.all_lost().filter(|loss| loss.kind == kind && loss.of == Whose::Any);
        let in_time = of_kind.filter(|loss| loss.from <= to && loss.to >= from);
        let concerned = in_time.filter(|loss| loss.place.concerns(home));
        concerned.map(|loss| loss.from.max(from)).min()
    }

    /// The same, and those that can only have been evidence of the way of a stop signal inside.
    pub fn losses_inside(&self, home: Home<'_>, from: Boot, to: Boot) -> Vec<(Kind, u64)> {
        self.losses_of(|_| true, home, from, to)
    }

    /// Those of them with one of these reasons.
    pub fn losses_by(&self, why: &[Hole], home: Home<'_>, from: Boot, to: Boot) -> Vec<(Kind, u64)> {
        self.losses_of(|loss| why.contains(&loss.why), home, from, to)
    }

    fn losses_of(&self, of: impl Fn(&Loss) -> bool, home: Home<'_>, from: Boot, to: Boot) -> Vec<(Kind, u64)> {
        let mut sums: BTreeMap<Kind, u64> = BTreeMap::new();
        let in_time = self.all_lost().filter(|loss| of(loss) && loss.from <= to && loss.to >= from);
        for loss in in_time.filter(|loss| loss.place.concerns(home)) {
            let sum = sums.entry(loss.kind).or_default();
            *sum = sum.saturating_add(loss.count);
        }
        sums.into_iter().collect()
    }

    /// Names of the probes that are not active and not substituted.
    pub fn inactive_probes(&self) -> Vec<String> {
        let inactive = self.probes.iter().filter(|(_, state)| !state.is_observed());
        inactive.map(|(name, _)| name.clone()).collect()
    }

    pub fn sees_sockets(&self) -> bool {
        TCP_PROBES.iter().all(|name| self.is_observed(name))
    }

    /// Of which clients a refused connection is recorded.
    pub fn refused_clients(&self) -> SeenClients {
        let state = self.probes.get(ProbeState::REFUSALS);
        state.map_or(SeenClients::None, ProbeState::clients)
    }

    /// Missing evidence of a termination from `begin` to `end`, of a process that started at `born`. `stop_requested`: a stop signal
    /// was observed at `begin`, so earlier losses do not matter. `reach`: how long before the end a stop signal may have come that was not.
    pub fn missing(
        &self,
        home: Home<'_>,
        born: Boot,
        (begin, end): (Boot, Boot),
        stop_requested: bool,
        reach: Duration,
    ) -> MissingEvidence {
        let from = self.reach(born, begin, stop_requested);
        let kinds = [
            Kind::SignalGenerate,
            Kind::SignalDeliver,
            Kind::ProcessExec,
            Kind::ProcessExit,
            Kind::OomVictim,
        ];
        let late = self.late_gaps(born, end, reach).filter(|_| !stop_requested);
        let before_stop = self
            .late_gaps(born, begin, RUN_GAP)
            .filter(|(from, to)| stop_requested && born < *from && from < to);
        MissingEvidence {
            lost: self.losses(home, from, end).into_iter().map(|(kind, _)| kind).collect(),
            own_lost: self.own_losses(home, from, end),
            lost_inside: Vec::new(),
            over_cap_inside: false,
            earlier_stop: false,
            gap_before_stop: before_stop.map(|(_, to)| to).max(),
            inactive: kinds.into_iter().filter(|kind| !self.is_observed(kind.name())).collect(),
            gap: self.has_gap(begin, end),
            gap_of_ooms: false,
            late_start: late.map(|(_, to)| to).max(),
            over_cap: false,
            main_unsure: None,
            not_recorded: false,
            damaged: false,
            begins_late: false,
            stop_lost_since: None,
        }
    }

    fn late_gaps(&self, born: Boot, end: Boot, reach: Duration) -> impl Iterator<Item = (Boot, Boot)> {
        self.gaps.iter().copied().filter(move |gap| is_late(*gap, born, end, reach))
    }

    /// Whether the process ran before its observation began, no longer before that end than `reach`.
    pub fn is_late_start(&self, born: Boot, end: Boot, reach: Duration) -> bool {
        self.late_gaps(born, end, reach).any(|(from, to)| from <= born || from == to)
    }

    /// The gaps after the begin of the process's observation: those within that time, and those that ended no longer before the end than
    /// `late`. Without a gap whose end is not known.
    pub fn unobserved(&self, born: Boot, (begin, end, until): (Boot, Boot, Boot), late: Option<Duration>) -> Vec<Unobserved> {
        let overlaps = |gap: &(Boot, Boot)| gap.0 < until && gap.1 > begin && gap.1 != Boot(u64::MAX);
        let gaps = self
            .gaps
            .iter()
            .filter(|gap| overlaps(gap) || late.is_some_and(|late| is_late(**gap, born, end, late)));
        let later = gaps.filter(|(from, to)| born < *from && from < to);
        later.map(|&(since, until)| Unobserved { since, until }).collect()
    }

    /// Whether a process that started then began in a gap, the one before the first observation included.
    pub fn began_unobserved(&self, start: Boot) -> bool {
        self.gaps.iter().any(|&(from, to)| from <= start && start < to)
    }

    /// Whether a part of that time was not observed.
    pub fn has_gap(&self, begin: Boot, end: Boot) -> bool {
        self.gaps.iter().any(|&(from, to)| from < end && to > begin)
    }

    /// The earliest time at which missing evidence could matter.
    pub fn reach(&self, born: Boot, begin: Boot, stop_requested: bool) -> Boot {
        if stop_requested {
            begin
        } else {
            begin.minus(LATE_REACH).max(born)
        }
    }

    pub fn is_observed(&self, name: &str) -> bool {
        self.probes.get(name).is_some_and(ProbeState::is_observed)
    }
}

/// The gap was in the process's life, and ended so shortly before that end that a stop signal of then may be the reason for it.
fn is_late((_, to): (Boot, Boot), born: Boot, end: Boot, reach: Duration) -> bool {
    born < to && to.plus(reach) > end && to <= end
}

impl Loss {
    /// Of the same records.
    fn is_like(&self, other: &Loss) -> bool {
        self.key() == other.key()
    }

    fn key(&self) -> (Kind, Whose, Hole, &LossPlace) {
        (self.kind, self.of, self.why, &self.place)
    }

    fn extend(&mut self, from: Boot, to: Boot, count: u64) {
        self.from = self.from.min(from);
        self.to = self.to.max(to);
        self.count = self.count.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> LossPlace {
        let (hierarchy, path) = (0, Arc::from(path));
        LossPlace::Cgroup { hierarchy, path }
    }

    fn home(path: &str) -> Home<'_> {
        let (hierarchy, path) = (0, Some(path));
        Home { hierarchy, path }
    }

    #[test]
    fn a_loss_concerns_the_subjects_around_its_cgroup_and_below_it() {
        let node = place("/kubepods.slice/pod1/a");
        let concerned = ["/kubepods.slice/pod1/a", "/kubepods.slice/pod1/a/b", "/kubepods.slice/pod1"];
        let others = [
            "/kubepods.slice/pod1/ab",
            "/kubepods.slice/pod1/b",
            "/kubepods.slice/pod10",
            "/system.slice",
        ];
        assert!(concerned.into_iter().all(|path| node.concerns(home(path))));
        assert!(!others.into_iter().any(|path| node.concerns(home(path))));
        let root = place("/");
        assert!(concerned.into_iter().chain(others).all(|path| root.concerns(home(path))));
        assert!(LossPlace::Anywhere.concerns(home("/system.slice")));
        let of_v1 = Home {
            hierarchy: 4,
            ..home("/system.slice")
        };
        assert!(node.concerns(of_v1), "paths of two hierarchies cannot be compared");
        assert!(node.concerns(Home {
            hierarchy: 0,
            path: None
        }));
    }

    #[test]
    fn noisy_containers_never_doubt_a_quiet_one_however_often_they_lose() {
        const NOISY: u64 = 100;
        const REPORTS: u64 = 50;
        let mut coverage = Coverage::default();
        for report in 0..REPORTS {
            for noisy in 0..NOISY {
                // With a pause in between, so that each is a loss of its own.
                let from = Boot(report * 1_000 + noisy);
                let place = place(&format!("/kubepods.slice/noisy{noisy}"));
                coverage.lost(
                    Kind::ProcessExit,
                    Whose::Any,
                    place,
                    from,
                    from.plus(Duration::from_nanos(5)),
                    2,
                );
            }
        }
        assert!(coverage.lost.len() <= KEPT_LOSSES);
        let (from, to) = (Boot(0), Boot(REPORTS * 2_000));
        assert_eq!(coverage.losses(home("/kubepods.slice/quiet"), from, to), []);
        let own = coverage.losses(home("/kubepods.slice/noisy7"), from, to);
        assert_eq!(own, [(Kind::ProcessExit, 2 * REPORTS)]);
    }

    #[test]
    fn losses_of_more_subjects_than_are_kept_concern_all() {
        let mut coverage = Coverage::default();
        for noisy in 0..=KEPT_LOSSES as u64 {
            let place = place(&format!("/kubepods.slice/noisy{noisy}"));
            coverage.lost(Kind::ProcessExit, Whose::Any, place, Boot(noisy), Boot(noisy), 1);
        }
        let lost = coverage.losses(home("/kubepods.slice/quiet"), Boot(0), Boot(5));
        assert_eq!(lost, [(Kind::ProcessExit, 1)]);
        let later = coverage.losses(home("/kubepods.slice/quiet"), Boot(6), Boot(u64::MAX));
        assert_eq!(later, [], "only the loss that is not kept concerns all");
    }

    #[test]
    fn losses_with_pauses_push_no_other_containers_out() {
        let mut coverage = Coverage::default();
        let lost = |coverage: &mut Coverage, path: &str, at: u64| {
            coverage.lost(Kind::ProcessExit, Whose::Any, place(path), Boot(at), Boot(at), 1);
        };
        lost(&mut coverage, "/kubepods.slice/once", 0);
        for at in 1..3 * KEPT_LOSSES as u64 {
            lost(&mut coverage, "/kubepods.slice/noisy", 10 * at);
        }
        assert!(coverage.lost.len() <= KEPT_LOSSES);
        assert_eq!(coverage.losses(home("/kubepods.slice/quiet"), Boot(0), Boot(u64::MAX)), []);
        let once = coverage.losses(home("/kubepods.slice/once"), Boot(0), Boot(u64::MAX));
        assert_eq!(once, [(Kind::ProcessExit, 1)]);
        // The latest are still separate.
        let between = Boot(10 * (3 * KEPT_LOSSES as u64 - 3) + 5);
        assert_eq!(coverage.losses(home("/kubepods.slice/noisy"), between, between), []);
    }
}
