//! logind and systemd on the bus: states, signals, jobs, locks, and a shutdown that logind has scheduled.

use super::NodeMachine;
use super::parts::{FromNode, LOCKS, Left, Plan, TEXT};
use crate::ids::PodUid;
use crate::node::{BusState, Inhibitor, OwnLock, ScheduledShutdown, ShutdownKind, SignalSender};
use crate::report::Report;
use crate::shutdown::{Ending, Lock, NodeDown};
use crate::text::bounded;
use crate::time::Boot;
use crate::tolerances::{BUS_APART, PLAN_BEGINS, PLAN_LATE, SPOOF_SLACK};

impl NodeMachine {
    pub(super) fn bus_state(&mut self, now: Boot, state: BusState, out: &mut FromNode) {
        match state {
            BusState::Connected { preparing, .. } => {
                self.bus.connected.get_or_insert(now);
                self.bus.reason = None;
                if preparing {
                    if self.open.as_ref().is_none_or(|open| !open.facts.signs.is_real()) && self.left.is_none() {
                        let open = self.real(now, out);
                        open.facts.signs.prepared = Some(now);
                        open.begun_before = true;
                        open.facts.gaps.observation = true;
                    }
                } else {
                    // What was missed until now announced no shutdown that is still to come.
                    self.bus.gap = None;
                    self.not_preparing(now, out);
                }
            }
            BusState::Unavailable { reason } => {
                self.bus_gap(now, &reason);
                self.bus.lose(&reason);
            }
            BusState::Off => {
                let reason = "the observation of logind is switched off";
                if self.bus.connected.is_some() {
                    self.bus_gap(now, reason);
                }
                self.bus.lose(reason);
            }
        }
    }

    /// logind prepares no shutdown: one that was in progress before a gap is over.
    fn not_preparing(&mut self, now: Boot, out: &mut FromNode) {
        let left = self.left.take_if(|left| left.back.is_some());
        if let Some(left) = left.filter(|left| left.kind == Some(ShutdownKind::SoftReboot))
            && let Some(back) = left.back
        {
            out.reports.push(Report::NodeDown(Box::new(NodeDown {
                host: self.host.clone(),
                clock: self.clock,
                begin: left.end.min(back),
                end: back,
                next_boot_id: left.key.boot_id.clone(),
                is_soft: true,
                at_most: true,
                key: left.key,
            })));
        }
        let Some(open) = &mut self.open else { return };
        let signs = &open.facts.signs;
        if signs.prepared.is_none_or(|at| now.since(at) < BUS_APART) || signs.services().is_some() && open.resumed.is_none() {
            return;
        }
        match open.resumed {
            Some(back) if open.facts.kind == Some(ShutdownKind::SoftReboot) => {
                let down = open.down(back, open.facts.key.boot_id.clone(), true);
                self.close(down.begin, Ending::Down { back }, out);
                out.reports.push(Report::NodeDown(Box::new(down)));
            }
            _ => {
                open.facts.gaps.observation = true;
                self.close(now, Ending::Continued, out);
            }
        }
    }

    /// A message may be missing.
    pub(super) fn bus_gap(&mut self, now: Boot, reason: &str) {
        let reason = bounded(reason, TEXT).into_owned();
        if let Some(open) = &mut self.open
            && open.facts.signs.services().is_none()
        {
            open.facts.gaps.bus.get_or_insert_with(|| reason.clone());
        }
        self.bus.gap = Some((now, reason));
    }

    /// Of the recording or the journal, a part is missing, until `now`: what is held may have changed.
    pub fn part_missing(&mut self, now: Boot) {
        self.hidden.part_missing(now);
        self.bus.locks = None;
        self.bus.own_lock = None;
    }

    /// logind's `PrepareForShutdown(false)`.
    pub(super) fn cancelled(&mut self, now: Boot, out: &mut FromNode) {
        let is_prepared = self.open.as_ref().is_some_and(|open| open.facts.signs.prepared.is_some());
        if is_prepared {
            self.continued(now, out);
        }
    }

    /// The shutdown in progress was cancelled at `at`.
    pub(super) fn continued(&mut self, at: Boot, out: &mut FromNode) {
        if let Some(open) = &mut self.open {
            open.facts.signs.cancelled = Some(at);
        }
        self.close(at, Ending::Continued, out);
    }

    /// Of a shutdown that is in progress anyway, only the number is kept.
    pub(super) fn spoofed(&mut self, now: Boot, sender: SignalSender, start: bool) {
        if self.open.is_none() && start {
            let mut open = self.begin(now);
            let needed = self.kubelet.configured().map_or(SPOOF_SLACK, |config| config.needed());
            open.acts_until = Some(now.plus(needed).plus(SPOOF_SLACK));
            self.open = Some(open);
        }
        let Some(open) = &mut self.open else { return };
        let signs = &mut open.facts.signs;
        signs.spoofs += 1;
        signs.spoofed.get_or_insert((now, tamed(sender)));
    }

    pub(super) fn listed(&mut self, now: Boot, locks: Vec<Inhibitor>) {
        let mut locks: Vec<Inhibitor> = locks.into_iter().filter(Inhibitor::is_for_shutdown).map(tame).collect();
        locks.sort();
        locks.dedup();
        // The kubelet's first: it decides the verdict.
        locks.sort_by_key(|lock| !lock.is_kubelets());
        locks.truncate(LOCKS);
        self.kubelet.is_there |= locks.iter().any(Inhibitor::is_kubelets);
        if let Some(open) = &mut self.open {
            open.listed(now, &locks, self.bus.locks.is_none());
        }
        self.bus.locks = Some(locks);
        self.kubelet.dropped &= self.bus.kubelet_holds() == Some(false);
    }

    pub(super) fn job(&mut self, now: Boot, unit: &str, removed: bool, out: &mut FromNode) {
        let unit = bounded(unit, TEXT).into_owned();
        if !removed {
            let open = self.real(now, out);
            open.facts.kind = open.facts.kind.or(kind_of(&unit));
            open.jobs_gone = None;
            open.facts.signs.job.get_or_insert((now, unit));
        } else if let Some(open) = &mut self.open
            && open.facts.signs.job.as_ref().is_some_and(|(_, known)| *known == unit)
        {
            open.jobs_gone = Some(now);
        }
    }

    pub(super) fn system_state(&mut self, now: Boot, state: &str, out: &mut FromNode) {
        if state == "stopping" {
            let open = self.real(now, out);
            open.facts.signs.stopping.get_or_insert(now);
        } else if self.open.as_ref().is_some_and(|open| open.facts.signs.stopping.is_some()) {
            self.continued(now, out);
        }
    }

    /// The agent ends: what is decided is reported now, because the machine may never be back.
    pub(super) fn agent_ends(&mut self, now: Boot, own: Option<&PodUid>, out: &mut FromNode) {
        self.agent_ended = true;
        let Some(open) = &mut self.open else { return };
        if let Some(own) = own {
            open.runs.own(own);
        }
        if !open.facts.signs.is_real() {
            return;
        }
        if self.open.as_ref().is_some_and(|open| open.is_decided(now, self)) {
            let kind = self.open.as_ref().and_then(|open| open.facts.kind);
            self.left = self.close(now, Ending::AgentEnded, out).map(|key| Left {
                key,
                kind,
                end: now,
                back: None,
            });
        }
    }
}

impl super::InProgress {
    /// The role's word. logind goes on at once where no other lock is held, and its list is not read again before the end.
    pub(super) fn own_lock(&mut self, now: Boot, state: &OwnLock) {
        if *state == OwnLock::Released {
            for lock in self.facts.logind.locks.iter_mut().filter(|lock| lock.lock.is_own()) {
                lock.released.get_or_insert(now);
            }
        }
        self.facts.logind.own_lock = Some(state.clone());
    }

    /// The locks that are held now. `first`: none were known before.
    pub(super) fn listed(&mut self, now: Boot, held: &[Inhibitor], first: bool) {
        for known in &mut self.facts.logind.locks {
            if known.released.is_none() && !held.contains(&known.lock) {
                known.released = Some(now);
            }
        }
        for lock in held {
            // The own lock is not taken again during the shutdown: a list with it is older than its release.
            let is_known = |known: &Lock| known.lock == *lock && (known.released.is_none() || lock.is_own());
            if !self.facts.logind.locks.iter().any(is_known) && self.facts.logind.locks.len() < LOCKS {
                self.facts.logind.locks.push(Lock {
                    lock: lock.clone(),
                    taken: (!first).then_some(now),
                    released: None,
                    outlasted: false,
                });
            }
        }
        // logind refuses delay locks once it has announced a shutdown: a lock that appears then was held before.
        let is_of_the_begin = first && self.facts.kubelet.held.is_none() || self.facts.signs.prepared.is_some();
        if is_of_the_begin && held.iter().any(Inhibitor::is_kubelets) {
            self.facts.kubelet.held = Some(true);
        }
    }
}

fn kind_of(unit: &str) -> Option<ShutdownKind> {
    Some(match unit {
        "poweroff.target" => ShutdownKind::PowerOff,
        "reboot.target" => ShutdownKind::Reboot,
        "halt.target" => ShutdownKind::Halt,
        "kexec.target" => ShutdownKind::Kexec,
        "soft-reboot.target" => ShutdownKind::SoftReboot,
        _ => return None,
    })
}

fn tame(lock: Inhibitor) -> Inhibitor {
    let text = |text: &str| bounded(text, TEXT).into_owned();
    Inhibitor {
        what: text(&lock.what),
        who: text(&lock.who),
        why: text(&lock.why),
        ..lock
    }
}

fn tamed(sender: SignalSender) -> SignalSender {
    let text = |text: String| bounded(&text, TEXT).into_owned();
    match sender {
        SignalSender::Logind => SignalSender::Logind,
        SignalSender::Other {
            name,
            pid,
            uid,
            comm,
            unit,
        } => SignalSender::Other {
            name: text(name),
            pid,
            uid,
            comm: comm.map(text),
            unit: unit.map(text),
        },
    }
}

/// In front of a type: nothing will happen.
const DRY: &str = "dry-";

impl NodeMachine {
    pub(super) fn scheduled(&mut self, now: Boot, shutdown: Option<ScheduledShutdown>) {
        let in_progress = self.is_shutting_down();
        match shutdown.filter(|plan| !plan.kind.starts_with(DRY)) {
            Some(plan) if !in_progress => {
                let plan = ScheduledShutdown {
                    kind: bounded(&plan.kind, TEXT).into_owned(),
                    ..plan
                };
                let known = self.bus.plan.as_ref();
                let is_same = known.is_some_and(|known| known.plan == plan && known.dropped.is_none());
                if !is_same {
                    self.bus.plan = Some(Plan {
                        plan,
                        seen: now,
                        dropped: None,
                        was_blocked: false,
                    });
                }
            }
            Some(_) => {}
            None => {
                if let Some(plan) = &mut self.bus.plan {
                    plan.dropped.get_or_insert(now);
                }
            }
        }
    }

    pub(super) fn plan_due(&mut self, now: Boot, out: &mut FromNode) {
        let Some(plan) = &self.bus.plan else { return };
        let due = self.clock.boot(plan.plan.at);
        let blocked = due.plus(PLAN_LATE) <= now && self.bus.locks.iter().flatten().any(Inhibitor::blocks);
        let dropped = plan.dropped.filter(|at| at.plus(PLAN_BEGINS) <= now);
        if self.open.is_some() || plan.was_blocked && dropped.is_none() {
            return;
        }
        if blocked && !plan.was_blocked {
            self.planned(due, None, now, out);
            if let Some(plan) = &mut self.bus.plan {
                plan.was_blocked = true;
            }
        } else if let Some(dropped) = dropped {
            if !plan.was_blocked {
                self.planned(plan.seen, Some(dropped), dropped, out);
            }
            self.bus.plan = None;
        }
    }

    /// A shutdown that did not begin.
    fn planned(&mut self, begin: Boot, cancelled: Option<Boot>, now: Boot, out: &mut FromNode) {
        let mut open = self.begin(begin);
        open.wants_pods = false;
        if let Some(plan) = &self.bus.plan {
            open.facts.kind = ShutdownKind::parse(&plan.plan.kind);
            open.facts.signs.scheduled = Some((plan.plan.clone(), plan.seen));
        }
        open.facts.signs.cancelled = cancelled;
        self.open = Some(open);
        let last = self.last.take();
        self.close(now, Ending::Continued, out);
        self.last = last;
    }
}
