//! The pods of a node that is shutting down: which ran at the begin, and when each had ended.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::correlate::readiness::Readiness;
use crate::ids::{CgroupId, PodUid, Signal};
use crate::pod::{PodFact, PodIdentity};
use crate::shutdown::{ClientLoss, Cut, StillReady};
use crate::termination::{Open, Role, TerminationFacts};
use crate::time::Boot;
use crate::tolerances::RESOLUTION;

/// Most pods that are followed: a kubelet runs 110 by default.
pub(in crate::correlate) const FOLLOWED: usize = 512;
/// Most containers of each.
const CONTAINERS: usize = 64;

/// A pod with containers that run.
#[derive(Clone, Debug)]
pub(in crate::correlate) struct RunningPod {
    pub pod: Arc<PodIdentity>,
    pub priority: Option<i32>,
    pub grace: Option<Duration>,
    pub cgroups: Vec<CgroupId>,
    /// Those of them whose end may be lost: neither the exit nor the removal need have been seen.
    pub perhaps_over: Vec<CgroupId>,
    /// A preStop hook uses up a part of the grace period before the stop signal.
    pub has_hook: bool,
    /// The status shows a running container that the kernel has not shown.
    pub is_unseen: bool,
    /// Its owner wants no reports about it.
    pub is_ignored: bool,
    /// The earliest start of a container, the sandbox among them; None if the kernel has shown none.
    pub since: Option<Boot>,
    /// By the last status; None without the condition.
    pub is_ready: Option<bool>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// In the order of the pods' names: the same for any order of the pods.
    pods: BTreeMap<PodUid, Run>,
    places: HashMap<CgroupId, PodUid>,
    pub more: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Run {
    pub of: RunningPod,
    /// Containers that have not ended.
    left: usize,
    pub stopped: Option<Boot>,
    last_end: Option<Boot>,
    /// Of each container that was cut.
    cuts: Vec<(CgroupId, Cut)>,
    pub is_unsure: bool,
    /// Whether the shutdown was why a container was killed, or cut its time, is not known.
    pub is_unexplained: bool,
    /// Containers that may have ended before the shutdown, unless anything of them is seen in it.
    perhaps_over: Vec<CgroupId>,
    pub is_own: bool,
    /// Of each container that the shutdown stopped.
    losses: Vec<(CgroupId, ClientLoss)>,
    /// Those of them that had a listener or clients.
    served: Vec<CgroupId>,
    /// What clients lost by the end of a container is not known.
    has_unseen_end: bool,
    ready: InApi,
}

/// The condition Ready of a pod during the shutdown, as the statuses of the API show it.
#[derive(Clone, Debug, Default)]
struct InApi {
    was_ready: bool,
    seen: Readiness,
    /// The watch was interrupted: what comes after comes late.
    over: Option<Boot>,
}

impl InApi {
    /// A Service may have sent clients to the address after `ended`, which get no reset where it is gone.
    fn may_be_after(&self, ended: Boot) -> bool {
        let is_known_unready = match self.seen.unready {
            Some(at) => at <= ended,
            None => !self.was_ready && self.seen.last.is_none(),
        };
        !is_known_unready || self.over.is_some_and(|over| over <= ended)
    }
}

impl Runs {
    /// What runs now: at the begin, and again at the end, where it also shows what started meanwhile.
    pub fn show(&mut self, mut running: Vec<RunningPod>) {
        running.sort_by(|a, b| a.pod.uid.cmp(&b.pod.uid));
        for mut of in running {
            let uid = of.pod.uid.clone();
            let is_known = self.pods.contains_key(&uid);
            if !is_known && self.pods.len() >= FOLLOWED {
                self.more += 1;
                continue;
            }
            let cgroups: Vec<CgroupId> = of.cgroups.iter().take(CONTAINERS).copied().collect();
            let perhaps_over = std::mem::take(&mut of.perhaps_over);
            let run = self.pods.entry(uid.clone()).or_insert_with(|| Run {
                left: 0,
                stopped: None,
                last_end: None,
                cuts: Vec::new(),
                is_unsure: of.is_unseen,
                is_unexplained: false,
                perhaps_over: Vec::new(),
                is_own: false,
                losses: Vec::new(),
                served: Vec::new(),
                has_unseen_end: false,
                ready: InApi {
                    was_ready: of.is_ready == Some(true),
                    ..InApi::default()
                },
                of,
            });
            for cgroup in cgroups {
                if run.left < CONTAINERS && self.places.insert(cgroup, uid.clone()).is_none() {
                    run.left += 1;
                    run.perhaps_over.extend(perhaps_over.contains(&cgroup).then_some(cgroup));
                }
            }
        }
    }

    /// The agent's own pod, by the UID of its cgroups: its container may have begun before the evidence.
    pub fn own(&mut self, own: &PodUid) {
        for run in self.pods.values_mut() {
            run.is_own |= run.of.pod.cgroup_uid == *own;
        }
    }

    pub fn stop_sent(&mut self, at: Boot, own: CgroupId) {
        if let Some(run) = self.of(own) {
            run.stopped = Some(run.stopped.map_or(at, |known| known.min(at)));
            run.perhaps_over.retain(|of| *of != own);
        }
    }

    /// Records about the container were lost.
    pub fn doubt(&mut self, own: CgroupId) {
        if let Some(run) = self.of(own) {
            run.is_unsure = true;
        }
    }

    /// A container has terminated, or the observation of it has. `begin`: of the shutdown; `is_by_it`: its runtime stopped the container
    /// after that.
    pub fn ended(&mut self, facts: &TerminationFacts, begin: Boot, is_by_it: bool) {
        let own = facts.key.cgroup;
        let Some(run) = self.of(own) else { return };
        if facts.exit.is_some() {
            run.perhaps_over.retain(|of| *of != own);
        }
        let stop = facts.runtime_stop().map(|stop| stop.at);
        if is_by_it {
            run.lost_clients(facts);
        }
        run.stopped = match (run.stopped, stop) {
            (Some(known), Some(stop)) => Some(known.min(stop)),
            (known, stop) => known.or(stop),
        };
        let Some(exit) = facts.exit else {
            run.has_unseen_end = true;
            // It ended in a gap, or its record is lost; or it still ran at the end of the observation.
            run.is_unsure |= !matches!(facts.open, Open::NodeDown { .. } | Open::ObservationEnded);
            return;
        };
        run.left = run.left.saturating_sub(1);
        run.last_end = Some(run.last_end.map_or(exit.at, |last| last.max(exit.at)));
        match run.kill(facts, begin) {
            Kill::None | Kill::InTime => {}
            Kill::Early(cut) if is_by_it => run.cuts.push((own, cut)),
            Kill::Early(_) => {}
            Kill::Unsure => run.is_unexplained = true,
        }
        self.places.remove(&own);
    }

    /// A container that has terminated was stopped by the shutdown, as was proven later. `begin`: of the shutdown.
    pub fn was_by_it(&mut self, uid: &PodUid, facts: &TerminationFacts, begin: Boot) {
        let Some(run) = self.pods.get_mut(uid) else { return };
        run.lost_clients(facts);
        if let Kill::Early(cut) = run.kill(facts, begin) {
            run.cuts.push((facts.key.cgroup, cut));
        }
    }

    /// Another reason than the shutdown explains the termination of a container of the pod, which had the given time for it.
    pub fn explained(&mut self, uid: &PodUid, own: CgroupId, grace: Option<Duration>) {
        let Some(run) = self.pods.get_mut(uid) else { return };
        let is_short = |cut: &Cut| grace.is_some_and(|grace| cut.had.is_none_or(|had| had + RESOLUTION < grace));
        // The shutdown may have shortened that time.
        run.is_unexplained |= run.cuts.iter().any(|(of, cut)| *of == own && is_short(cut));
        run.cuts.retain(|(of, _)| *of != own);
        run.losses.retain(|(of, _)| *of != own);
        run.served.retain(|of| *of != own);
    }

    /// The sockets of a container were not observed for the whole stop, as its judgement shows.
    pub fn saw_not_all(&mut self, uid: &PodUid, own: CgroupId) {
        let Some(run) = self.pods.get_mut(uid) else { return };
        for (_, loss) in run.losses.iter_mut().filter(|(of, _)| *of == own) {
            loss.is_least = true;
        }
    }

    /// A status of a pod.
    pub fn status(&mut self, now: Boot, fact: &PodFact) {
        let Some(run) = self.pods.get_mut(&fact.pod.uid) else { return };
        let Some(takes_clients) = fact.takes_clients().filter(|_| run.ready.over.is_none()) else {
            return;
        };
        run.ready.seen.status(takes_clients, now);
    }

    /// The watch of the pods was interrupted.
    pub fn statuses_end(&mut self, now: Boot) {
        for run in self.pods.values_mut() {
            run.ready.over.get_or_insert(now);
        }
    }

    /// Why a container of the pod was stopped is unknown: neither that the shutdown cut it, nor that it did not.
    pub fn unexplained(&mut self, uid: &PodUid, own: CgroupId) {
        let Some(run) = self.pods.get_mut(uid) else { return };
        let known = run.cuts.len();
        run.cuts.retain(|(of, _)| *of != own);
        run.is_unexplained |= run.cuts.len() < known;
        let losses = run.losses.len();
        run.losses.retain(|(of, _)| *of != own);
        run.has_unseen_end |= run.losses.len() < losses;
    }

    pub fn last_end(&self) -> Option<Boot> {
        self.pods.values().filter_map(|run| run.last_end).max()
    }

    /// Pods of which nothing is reported.
    pub fn ignored(&self) -> HashSet<PodUid> {
        let ignored = self.pods.iter().filter(|(_, run)| run.of.is_ignored);
        ignored.map(|(uid, _)| uid.clone()).collect()
    }

    pub fn into_list(self) -> impl Iterator<Item = Run> {
        self.pods.into_values()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.pods.len() + self.places.len()
    }

    pub fn bytes(&self) -> usize {
        let of = |run: &Run| {
            let losses =
                run.losses.capacity() * size_of::<(CgroupId, ClientLoss)>() + run.served.capacity() * size_of::<CgroupId>();
            let cgroups = run.of.cgroups.capacity() + run.perhaps_over.capacity();
            cgroups * size_of::<CgroupId>() + losses + size_of::<(PodUid, Run)>() * 2
        };
        let places = self.places.capacity() * size_of::<(CgroupId, PodUid)>() * 2;
        self.pods.values().map(of).sum::<usize>() + places
    }

    fn of(&mut self, own: CgroupId) -> Option<&mut Run> {
        self.pods.get_mut(self.places.get(&own)?)
    }
}

/// A SIGKILL that ended a container.
enum Kill {
    None,
    InTime,
    /// Before the container's grace period was over.
    Early(Cut),
    /// Who sent the signal, or how long the container had, is not known.
    Unsure,
}

impl Run {
    /// Adds what clients lost by a container that the shutdown stopped.
    fn lost_clients(&mut self, facts: &TerminationFacts) {
        if facts.is_sandbox() {
            return;
        }
        let own = facts.key.cgroup;
        match self.losses.len() < CONTAINERS {
            true => self.losses.push((own, loss(facts))),
            false => self.has_unseen_end = true,
        }
        if facts.traffic.serves() && self.served.len() < CONTAINERS {
            self.served.push(own);
        }
    }

    fn kill(&self, facts: &TerminationFacts, begin: Boot) -> Kill {
        if facts.exit.and_then(|exit| exit.status.signal()) != Some(Signal::KILL) {
            return Kill::None;
        }
        let Some(kill) = &facts.kill else { return Kill::Unsure };
        if kill.sender.role != Role::Runtime {
            return Kill::InTime;
        }
        let had = facts.runtime_stop().map(|stop| kill.at.since(stop.at));
        let is_short = |had: Duration| self.of.grace.is_some_and(|grace| had + RESOLUTION < grace);
        // With a hook, the kubelet began before the stop signal, and not before the shutdown.
        let is_early = match had {
            Some(_) if self.of.has_hook => is_short(kill.at.since(begin)),
            Some(had) => is_short(had),
            None => true,
        };
        match is_early {
            true => Kill::Early(Cut {
                at: kill.at,
                had,
                killed: true,
            }),
            false if self.of.has_hook && had.is_some_and(is_short) => Kill::Unsure,
            false => Kill::InTime,
        }
    }

    /// Not every exit was observed as it was: a container that seems to run may have ended before, too.
    pub fn lacks_exits(&self) -> bool {
        self.is_unsure || !self.perhaps_over.is_empty()
    }

    /// The last container that was cut.
    pub fn cut(&self) -> Option<Cut> {
        self.cuts.iter().map(|(_, cut)| *cut).max_by_key(|cut| cut.at)
    }

    /// Exit of the last container; None while one runs, or was not seen to end.
    pub fn ended(&self) -> Option<Boot> {
        self.last_end.filter(|_| self.left == 0)
    }

    /// What clients lost by the stop of all its containers.
    pub fn loss(&self) -> ClientLoss {
        let begin = match self.ended() {
            Some(_) if !self.has_unseen_end && !self.is_unsure && !self.is_unexplained => ClientLoss::default(),
            _ => ClientLoss::UNKNOWN,
        };
        let mut loss = self.losses.iter().map(|(_, loss)| *loss).fold(begin, ClientLoss::and);
        loss.is_least |= !self.served.is_empty() && self.ended().is_some_and(|ended| self.ready.may_be_after(ended));
        loss
    }

    /// By statuses only: that none came is no evidence, as the network of the node goes down, too.
    pub fn still_ready(&self) -> Option<StillReady> {
        let InApi { was_ready, seen, .. } = self.ready;
        let Readiness { last, unready } = seen;
        let stopped = self.stopped?;
        let until = unready.or(last).filter(|until| *until > stopped)?;
        (was_ready || last.is_some()).then(|| StillReady {
            lasted: until.since(stopped),
            is_least: unready.is_none(),
        })
    }
}

/// What clients lost by the stop of one container.
fn loss(facts: &TerminationFacts) -> ClientLoss {
    let of = &facts.traffic;
    ClientLoss {
        refused: of.refused_clients().count,
        reset: of.reset.count,
        cut: of.cut.count,
        undecided: of.undecided.all.count,
        is_least: of.may_go_on() || facts.exit.is_none(),
    }
}
