//! The facts of a shutdown that is over: its delay, the kubelet's phases, and which pods were cut.

use super::NodeMachine;
use super::open::InProgress;
use crate::node::{InhibitMode, KubeletShutdown, PriorityPeriod};
use crate::shutdown::{Cut, Delay, Ending, NodeShutdownFacts, Phase, PodInShutdown, UnlistedPods};
use crate::time::Boot;
use crate::tolerances::{BUS_APART, LOGIND_TIMER};
use crate::verdict::ShutdownOutcome;
use crate::verdict::judge_shutdown;

impl InProgress {
    /// `now`: the last that was observed.
    pub fn complete(mut self: Box<Self>, ending: Ending, now: Boot, node: &NodeMachine) -> NodeShutdownFacts {
        self.fill_gaps(ending, node);
        let mut facts = self.facts;
        let signs = &facts.signs;
        let begins = [
            signs.prepared,
            signs.services(),
            signs.signal.map(|signal| signal.at),
            signs.swept,
            signs.spoofed.as_ref().map(|(at, _)| *at),
        ];
        facts.begin = begins.into_iter().flatten().min().unwrap_or(facts.begin).min(facts.begin);
        facts.end = now.max(facts.begin);
        facts.ending = ending;
        facts.logind.delay = delay(&facts, self.limit);
        let is_observed = facts.gaps.bus.is_none();
        if let Some(over) = facts.logind.delay.and_then(|delay| delay.end).filter(|_| is_observed) {
            for lock in &mut facts.logind.locks {
                let is_delay = lock.lock.mode == InhibitMode::Delay;
                lock.outlasted = is_delay && lock.released.is_none_or(|at| at > over.plus(BUS_APART));
            }
        }
        let more = self.runs.more;
        let over = facts.logind.delay.and_then(|delay| delay.end).or(facts.signs.stopped_since());
        let (ignored, begin, exits_lost) = (self.runs.ignored(), facts.begin, facts.gaps.exits);
        let pods = self.runs.into_list().map(|run| {
            let ended = run.ended();
            // It still ran when everything was stopped.
            let is_unsure = run.lacks_exits() || run.is_unexplained;
            let is_lost = ended.is_none() && (is_unsure || exits_lost);
            let left = over.filter(|over| ended.is_none_or(|ended| ended > *over) && !run.is_own && !is_lost);
            let cut = left.map(|at| Cut {
                at,
                had: run.stopped.filter(|stopped| *stopped <= at).map(|stopped| at.since(stopped)),
                killed: false,
            });
            PodInShutdown {
                priority: run.of.priority,
                grace: run.of.grace,
                phase: None,
                stopped: run.stopped,
                ended,
                cut: run.cut().or(cut),
                is_own: run.is_own,
                is_unsure,
                is_unexplained: run.is_unexplained && !run.lacks_exits(),
                started: run.of.since.filter(|since| *since > begin),
                loss: run.loss(),
                still_ready: run.still_ready(),
                pod: run.of.pod,
            }
        });
        facts.pods = pods.collect();
        facts
            .pods
            .sort_by(|a, b| (&a.pod.namespace, &a.pod.name, &a.pod.uid).cmp(&(&b.pod.namespace, &b.pod.name, &b.pod.uid)));
        phases(&mut facts, more > 0);
        // Their time belongs to the phases; of them nothing is reported.
        let (left_out, listed): (Vec<_>, Vec<_>) = std::mem::take(&mut facts.pods)
            .into_iter()
            .partition(|pod| ignored.contains(&pod.pod.uid));
        // The chart opts the agent's own pod out.
        let others = || left_out.iter().filter(|pod| !pod.is_own);
        facts.unlisted = UnlistedPods {
            more,
            ignored: others().count() as u64,
            ignored_losers: others().filter(|pod| facts.may_lose(pod)).count() as u64,
            own_ran: left_out.iter().chain(&listed).any(|pod| pod.is_own),
        };
        facts.pods = listed;
        facts
    }

    /// Whether nothing that follows can change the verdict.
    pub fn is_decided(&self, now: Boot, node: &NodeMachine) -> bool {
        let so_far = Box::new(self.clone()).complete(Ending::AgentEnded, now, node);
        let outcome = judge_shutdown(&so_far).outcome;
        let is_over = so_far.others().all(|pod| pod.ended.is_some());
        // Another reason than the shutdown may explain the cut.
        let is_settled = !self.is_unsettled || outcome != ShutdownOutcome::Truncated;
        outcome != ShutdownOutcome::Unknown && is_over && is_settled
    }

    fn fill_gaps(&mut self, ending: Ending, node: &NodeMachine) {
        let is_announced = self.facts.signs.prepared.is_some();
        // What the bus did not show any more is what the kernel's records stand for.
        if self.facts.signs.only_swept() {
            self.facts.gaps.bus = None;
        }
        self.facts.kubelet.is_there = node.kubelet.is_there;
        let gaps = &mut self.facts.gaps;
        // Without a kubelet there are no pods to know.
        gaps.pods &= node.kubelet.is_there || node.hidden.may_hide_pods();
        if !is_announced {
            gaps.bus = gaps.bus.take().or(self.doubt.take());
        }
        gaps.agent_ended = node.agent_ended && ending != Ending::AgentEnded;
    }
}

/// logind's wait: until systemd stops the services, or the limit is over.
fn delay(facts: &NodeShutdownFacts, limit: Option<std::time::Duration>) -> Option<Delay> {
    let begin = facts.signs.prepared?;
    let by_limit = limit.map(|limit| begin.plus(limit));
    let is_observed = facts.gaps.bus.is_none();
    let end = match facts.signs.services() {
        Some(at) => Some(at.max(begin)),
        // The machine continued before, or was not observed for so long.
        None => by_limit.filter(|at| *at <= facts.end && facts.ending != Ending::Continued && is_observed),
    };
    let held = |at: Boot| {
        let mut delays = facts.logind.locks.iter().filter(|lock| lock.lock.mode == InhibitMode::Delay);
        delays.any(|lock| lock.released.is_none_or(|released| released > at))
    };
    let expired = end
        .zip(by_limit)
        .is_some_and(|(end, by_limit)| is_observed && end.plus(LOGIND_TIMER) >= by_limit && held(end));
    Some(Delay {
        limit,
        begin,
        end,
        expired,
    })
}

/// The kubelet's phases one after the other, each until its last pod has ended or its period is over. `more`: there are pods that are not
/// followed.
fn phases(facts: &mut NodeShutdownFacts, more: bool) {
    let signs = &facts.signs;
    let acts = facts.kubelet.held != Some(false) || !signs.is_real();
    let begin = signs.prepared.or(signs.spoofed.as_ref().map(|(at, _)| *at));
    let Some((mut begin, config)) = begin.filter(|_| acts).zip(facts.kubelet.configured()) else {
        return;
    };
    let periods = ordered(config);
    for pod in &mut facts.pods {
        pod.phase = pod.priority.and_then(|priority| phase_of(priority, &periods));
    }
    // When logind's delay was over, or the observation.
    let delayed_until = facts.logind.delay.and_then(|delay| delay.end);
    let over = delayed_until.unwrap_or(facts.end);
    let may_go_on = delayed_until.is_none() && facts.may_outlast_evidence();
    let has_others = more || facts.gaps.pods || facts.gaps.observation || facts.others().any(|pod| pod.priority.is_none());
    let exits_lost = facts.gaps.exits;
    for (number, period) in periods.iter().enumerate() {
        if begin >= over && number > 0 {
            break;
        }
        let until = begin.plus(period.period);
        let mut members = facts
            .pods
            .iter()
            .filter(|pod| pod.phase == Some(number) && !pod.is_own)
            .peekable();
        // The kubelet waits for the agent's pod too, and the agent does not see its own end.
        let has_own = facts.pods.iter().any(|pod| pod.phase == Some(number) && pod.is_own);
        let is_empty = members.peek().is_none();
        let (mut last, mut overran, mut is_unsure) = (begin, false, false);
        for pod in members {
            match pod.ended {
                Some(ended) if ended <= until.plus(BUS_APART) => last = last.max(ended),
                // Perhaps it has ended, and its exit was lost.
                None if pod.cut.is_none() && (pod.is_unsure || exits_lost) => is_unsure = true,
                _ => overran = true,
            }
        }
        let end = match (is_empty, overran) {
            _ if has_own && !overran => last.max(facts.end.min(until)),
            (true, _) => begin,
            (false, true) => until,
            (false, false) => last,
        };
        facts.phases.push(Phase {
            priority: period.priority,
            period: period.period,
            begin,
            end: end.min(over).max(begin),
            overran: overran && until <= over,
            at_least: has_others || is_unsure || has_own && !overran || overran && until > over && may_go_on,
        });
        // The kubelet stops the pods of the next phase when this one is over, at the end of its period at the latest.
        let next = facts
            .pods
            .iter()
            .filter(|pod| pod.phase == Some(number + 1))
            .filter_map(|pod| pod.stopped)
            .min();
        begin = if is_unsure {
            next.map_or(until, |next| next.max(end))
        } else {
            end
        };
    }
}

fn ordered(config: &KubeletShutdown) -> Vec<PriorityPeriod> {
    let mut periods = config.phases();
    periods.truncate(MOST_PHASES);
    periods.sort_by_key(|period| period.priority);
    periods
}

/// A kubelet has two by default.
const MOST_PHASES: usize = 32;

/// The last phase that begins at or below the priority; a lower one is in the first.
fn phase_of(priority: i32, periods: &[PriorityPeriod]) -> Option<usize> {
    let above = periods
        .iter()
        .position(|period| period.priority > priority)
        .unwrap_or(periods.len());
    (!periods.is_empty()).then(|| above.saturating_sub(1))
}
