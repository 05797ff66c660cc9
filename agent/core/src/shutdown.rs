//! The facts of one shutdown of the node: what logind, systemd, the kubelet's files and the kernel showed, before the judgement. Made by
//! `correlate`, read by `verdict`, `render` and the sinks.
//!
//! Times are those of the boot that the shutdown ended; [`NodeShutdownFacts::clock`] is its clock, because the report may come from the
//! next boot.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Comm, Pid, Signal};
use crate::node::{Inhibitor, KubeletShutdown, KubeletState, OwnLock, ScheduledShutdown, ShutdownKind, SignalSender};
use crate::pod::{PodIdentity, Workload};
use crate::time::{Boot, WallOffset};
use crate::tolerances::JOBS_DONE;

/// Identifies a shutdown on any machine and after any restart of the agent. A spoofed or cancelled shutdown has a number of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShutdownKey {
    pub boot_id: String,
    /// Within the boot, from 1.
    pub ordinal: u32,
}

/// The node's shutdown that ended a container or unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedByShutdown {
    pub key: ShutdownKey,
    pub begin: Boot,
    /// What announced it: `PrepareForShutdown`, `job poweroff.target`, …
    pub evidence: &'static str,
    /// The subject still ran when logind's delay was over, or systemd stopped the services.
    pub ran_at: Option<Boot>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShutdownFacts {
    pub key: ShutdownKey,
    pub host: String,
    /// Of the begin: a later step of the clock moves nothing.
    pub clock: WallOffset,
    pub kind: Option<ShutdownKind>,
    /// First evidence.
    pub begin: Boot,
    /// Last evidence.
    pub end: Boot,
    pub ending: Ending,
    pub signs: Signs,
    pub logind: LogindFacts,
    pub kubelet: KubeletFacts,
    /// The kubelet's phases; empty without its configuration, or where it was not asked.
    pub phases: Vec<Phase>,
    pub pods: Vec<PodInShutdown>,
    pub unlisted: UnlistedPods,
    /// Pods of the node that stayed Ready in the API until the node was back, whether in `pods` or not: a minimum, because the condition of
    /// other pods is not known. None if it is not known of any pod.
    pub pods_ready: Option<u64>,
    pub gaps: ShutdownGaps,
}

/// What showed the shutdown, each with the time of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// `PrepareForShutdown(true)` of logind.
    pub prepared: Option<Boot>,
    /// `PrepareForShutdown(false)` of logind, or the machine continued.
    pub cancelled: Option<Boot>,
    /// The first spoofed signal, and how many there were.
    pub spoofed: Option<(Boot, SignalSender)>,
    pub spoofs: u64,
    /// The plan, and when it was first seen.
    pub scheduled: Option<(ScheduledShutdown, Boot)>,
    /// systemd's job for a target that ends the machine.
    pub job: Option<(Boot, String)>,
    /// `SystemState` is `stopping`.
    pub stopping: Option<Boot>,
    /// A signal to PID 1 that asks for a shutdown.
    pub signal: Option<InitSignal>,
    /// systemd stopped pods and services alike: on a busy machine the kernel's records show it before the bus does.
    pub swept: Option<Boot>,
    /// systemd-shutdown's SIGTERM to all processes, and its SIGKILL.
    pub terminated: Option<Boot>,
    pub killed: Option<Boot>,
}

/// Pods that are not in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnlistedPods {
    /// Above the bound.
    pub more: u64,
    /// Their owners want no reports (`epitaph.dev/ignore`). Without the agent's own.
    pub ignored: u64,
    /// Those of them with something to lose: [`NodeShutdownFacts::may_lose`].
    pub ignored_losers: u64,
    /// The agent's own pod ran: in the list, or without reports.
    pub own_ran: bool,
}

/// Why no more evidence of the shutdown came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Another boot began; its time on the clock here.
    Down { back: Boot },
    /// The machine continued: cancelled, spoofed, or blocked.
    Continued,
    /// The agent ended, in order, and nothing was open.
    AgentEnded,
    /// The observation ended during the shutdown.
    ObservationEnded,
}

/// SIGRTMIN+n to PID 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitSignal {
    pub at: Boot,
    pub signal: Signal,
    pub pid: Pid,
    pub comm: Comm,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogindFacts {
    pub delay: Option<Delay>,
    /// Locks for shutdowns that were held at the begin, or taken later.
    pub locks: Vec<Lock>,
    /// What [`NodeEvent::OwnLock`](crate::node::NodeEvent::OwnLock) last said.
    pub own_lock: Option<OwnLock>,
}

/// logind's wait for delay locks, from `PrepareForShutdown` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// `InhibitDelayMaxUSec`; None not known.
    pub limit: Option<Duration>,
    pub begin: Boot,
    /// None: not observed until then.
    pub end: Option<Boot>,
    /// The limit ended it while a lock was held.
    pub expired: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub lock: Inhibitor,
    /// None: held when the locks were first listed.
    pub taken: Option<Boot>,
    pub released: Option<Boot>,
    /// Held when the delay was over.
    pub outlasted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletFacts {
    /// A kubelet works here: its configuration, also one that cannot be read, its lock or a pod was seen.
    pub is_there: bool,
    pub config: Option<Result<KubeletShutdown, String>>,
    /// Whether its delay lock was held at the begin; None not known.
    pub held: Option<bool>,
    /// It had let go of its lock at a spoofed signal before, and had taken none since.
    pub dropped: bool,
    /// `graceful_node_shutdown_state`, if it is about this shutdown.
    pub state: Option<KubeletState>,
}

impl KubeletFacts {
    /// Its configuration, where that could be read.
    pub fn configured(&self) -> Option<&KubeletShutdown> {
        self.config.as_ref()?.as_ref().ok()
    }
}

/// A phase of the kubelet's shutdown: pods from a priority on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    pub priority: i32,
    pub period: Duration,
    pub begin: Boot,
    /// The exit of its last pod, or the end of its period.
    pub end: Boot,
    /// A pod of it still ran when its period was over.
    pub overran: bool,
    /// The phase may have lasted longer than was observed: the agent's own pod was in it, or a pod of it still ran at the last evidence.
    pub at_least: bool,
}

/// A pod that ran when the shutdown began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInShutdown {
    pub pod: Arc<PodIdentity>,
    /// `spec.priority`; None not known.
    pub priority: Option<i32>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace: Option<Duration>,
    /// Its phase, by number in [`NodeShutdownFacts::phases`].
    pub phase: Option<usize>,
    /// The first stop signal of its runtime.
    pub stopped: Option<Boot>,
    /// Exit of the last container; None: not seen.
    pub ended: Option<Boot>,
    pub cut: Option<Cut>,
    /// The agent's own.
    pub is_own: bool,
    /// Not every exit was observed as it was.
    pub is_unsure: bool,
    /// The same, because nothing shows whether the shutdown was why a container was killed, or cut its time.
    pub is_unexplained: bool,
    /// The first container of the pod started then, during the shutdown; None: the pod was there before, or that is not known.
    pub started: Option<Boot>,
    pub loss: ClientLoss,
    /// None: not known, or the pod was not Ready when it got its stop signal.
    pub still_ready: Option<StillReady>,
}

/// Connections that clients lost by the stop of a pod, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLoss {
    pub refused: u64,
    pub reset: u64,
    /// Closed while a request or an answer was under way.
    pub cut: u64,
    /// Closed with the exit; whether a request or an answer was under way is not known. Not lost.
    pub undecided: u64,
    /// There may be more: sockets were not observed, or only for a part of the stop.
    pub is_least: bool,
}

/// How long a pod was Ready in the API after its stop signal: until then a Service sends clients to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StillReady {
    /// To the status that was not Ready any more; otherwise to the last status that was Ready.
    pub lasted: Duration,
    /// No status followed that was not Ready.
    pub is_least: bool,
}

/// The shutdown ended a pod before the pod was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub at: Boot,
    /// From the stop signal on; None: it got none.
    pub had: Option<Duration>,
    /// By SIGKILL before its own grace period was over; otherwise it still ran when the time of all was over.
    pub killed: bool,
}

/// Evidence that may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownGaps {
    /// logind was not observed, or messages were lost: why.
    pub bus: Option<String>,
    /// Exits of processes were not observed, or lost.
    pub exits: bool,
    /// Records of signals were lost, of any process.
    pub signals: bool,
    /// The agent did not observe for a part of it.
    pub observation: bool,
    /// The pods of the node were not known.
    pub pods: bool,
    /// The agent had ended, in order, before the node went down.
    pub agent_ended: bool,
}

/// The time in which a node was down: from the last evidence to the begin of the next boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDown {
    pub key: ShutdownKey,
    pub host: String,
    /// Of both times.
    pub clock: WallOffset,
    pub begin: Boot,
    pub end: Boot,
    pub next_boot_id: String,
    /// The boot is the same: systemd's soft reboot.
    pub is_soft: bool,
    /// The agent ended in order, and the node later: nobody saw when.
    pub at_most: bool,
}

/// Whether a machine that was back then may have gone down for the sweep that the last evidence shows: systemd ends a shutdown by force after
/// this time, and a machine that was up for longer without an agent may have gone down for any reason.
pub(crate) fn is_soon(last: Boot, back: Boot) -> bool {
    back.since(last) <= JOBS_DONE
}

impl Signs {
    /// Since when systemd stops the services.
    pub fn services(&self) -> Option<Boot> {
        let job = self.job.as_ref().map(|(at, _)| *at);
        [job, self.stopping, self.terminated, self.killed].into_iter().flatten().min()
    }

    /// The same, by the kernel's records where the bus shows nothing.
    pub fn stopped_since(&self) -> Option<Boot> {
        self.services().or(self.swept)
    }

    /// Something other than a spoofed signal or a plan shows a shutdown.
    pub fn is_real(&self) -> bool {
        self.prepared.is_some() || self.services().is_some() || self.signal.is_some() || self.swept.is_some()
    }

    /// Nobody announced it, and systemd's state does not show it: a signal to PID 1 whose target is masked, for example. When that was.
    pub fn only_signals(&self) -> Option<Boot> {
        let signals = [self.signal.map(|signal| signal.at), self.swept];
        let first = signals.into_iter().flatten().min()?;
        (self.prepared.is_none() && self.services().is_none()).then_some(first)
    }

    /// Nothing but systemd's stop signals shows it: perhaps only units were stopped.
    pub fn only_swept(&self) -> bool {
        self.signal.is_none() && self.only_signals().is_some()
    }

    /// What announced it, in the order of importance.
    pub fn announcement(&self) -> &'static str {
        match self {
            Signs { prepared: Some(_), .. } => "PrepareForShutdown",
            Signs { job: Some(_), .. } => "JobNew",
            Signs { stopping: Some(_), .. } => "SystemState=stopping",
            Signs { signal: Some(_), .. } => "signal to PID 1",
            Signs { terminated: Some(_), .. } | Signs { killed: Some(_), .. } => "systemd-shutdown",
            Signs { swept: Some(_), .. } => "stop signals of PID 1",
            Signs { spoofed: Some(_), .. } => "spoofed PrepareForShutdown",
            _ => "none",
        }
    }
}

impl ClientLoss {
    /// What is not known.
    pub const UNKNOWN: ClientLoss = ClientLoss {
        refused: 0,
        reset: 0,
        cut: 0,
        undecided: 0,
        is_least: true,
    };

    pub fn lost(&self) -> u64 {
        self.refused + self.reset + self.cut
    }

    /// None: nothing was seen, and not all could be.
    pub fn known(&self) -> Option<u64> {
        (self.lost() > 0 || !self.is_least).then(|| self.lost())
    }

    #[must_use]
    pub fn and(self, other: ClientLoss) -> ClientLoss {
        ClientLoss {
            refused: self.refused + other.refused,
            reset: self.reset + other.reset,
            cut: self.cut + other.cut,
            undecided: self.undecided + other.undecided,
            is_least: self.is_least || other.is_least,
        }
    }
}

impl NodeShutdownFacts {
    /// What clients lost by all pods that the shutdown stopped.
    pub fn loss(&self) -> ClientLoss {
        let is_least = self.unlisted.more > 0 || self.gaps.pods || self.gaps.observation;
        let begin = ClientLoss {
            is_least,
            ..ClientLoss::default()
        };
        self.others().map(|pod| pod.loss).fold(begin, ClientLoss::and)
    }

    /// The workloads whose clients lost connections, those with the most first.
    pub fn loss_by_workload(&self) -> Vec<(&Workload, ClientLoss)> {
        let mut all: Vec<(&Workload, ClientLoss)> = Vec::new();
        for pod in self.others() {
            let of = &pod.pod.workload;
            let is_same =
                |known: &Workload| (&known.kind, &known.namespace, &known.name) == (&of.kind, &of.namespace, &of.name);
            match all.iter_mut().find(|(known, _)| is_same(known)) {
                Some((_, loss)) => *loss = loss.and(pod.loss),
                None => all.push((of, pod.loss)),
            }
        }
        all.retain(|(_, loss)| loss.lost() > 0);
        all.sort_by_key(|(of, loss)| (std::cmp::Reverse(loss.lost()), &of.namespace, &of.name, &of.kind));
        all
    }

    /// Pods that were started during the shutdown, as far as they were seen.
    pub fn started(&self) -> impl Iterator<Item = &PodInShutdown> {
        self.others().filter(|pod| pod.started.is_some())
    }

    /// Of the pods whose clients lost connections, the one that was Ready for longest after its stop signal.
    pub fn longest_ready(&self) -> Option<(&PodInShutdown, StillReady)> {
        let lost = self.others().filter(|pod| pod.loss.lost() > 0);
        lost.filter_map(|pod| Some((pod, pod.still_ready?))).max_by_key(|(_, of)| *of)
    }

    /// Also where that is not known.
    pub fn may_have_ended_pods(&self) -> bool {
        self.kubelet.is_there && !self.knows_pods() || self.others().any(|pod| pod.ended.is_some())
    }

    /// Which pods ran, and which of them have ended.
    pub fn knows_pods(&self) -> bool {
        let gaps = &self.gaps;
        let may_miss = gaps.pods || gaps.exits || gaps.observation || self.unlisted.more > 0;
        !may_miss && !self.others().any(|pod| pod.is_unsure)
    }

    /// The pods other than the agent's own.
    pub fn others(&self) -> impl Iterator<Item = &PodInShutdown> {
        self.pods.iter().filter(|pod| !pod.is_own)
    }

    pub fn cut(&self) -> impl Iterator<Item = (&PodInShutdown, Cut)> {
        self.others().filter_map(|pod| Some((pod, pod.cut?)))
    }

    /// The node went down and lost its power or was reset: another boot began, and the agent was observing to the last. A shutdown that
    /// comes to its end asks the agent to end before, and systemd-shutdown every process.
    pub fn was_cut_off(&self) -> bool {
        let (signs, gaps) = (&self.signs, &self.gaps);
        let is_observed = gaps.bus.is_none() && !gaps.observation && !gaps.exits && !gaps.agent_ended;
        let is_over = signs.terminated.is_some() || signs.killed.is_some();
        matches!(self.ending, Ending::Down { .. }) && is_observed && !is_over
    }

    /// Nothing but systemd's stop signals showed it, and the next boot began so soon that they were for the end of the machine. To an agent
    /// that was observing to the last, the machine ended under it.
    pub fn may_be_swept_down(&self) -> bool {
        let is_observed = !self.gaps.agent_ended && !self.gaps.observation;
        matches!(self.ending, Ending::Down { back } if is_observed || is_soon(self.end, back))
    }

    /// The pod ran when everything was stopped, and is none of those that a drain leaves.
    pub fn may_lose(&self, pod: &PodInShutdown) -> bool {
        let over = self.signs.stopped_since().unwrap_or(self.end);
        let stays = pod.pod.is_static || pod.pod.workload.kind == "DaemonSet";
        !stays && (pod.ran_at(over) || pod.cut.is_some())
    }

    /// What had not ended at the last evidence may have gone on, for a time that nobody observed.
    pub fn may_outlast_evidence(&self) -> bool {
        match self.ending {
            Ending::Continued => false,
            Ending::AgentEnded | Ending::ObservationEnded => true,
            Ending::Down { .. } => !self.was_cut_off() || self.gaps.signals,
        }
    }

    /// systemd still stopped the services at the last evidence: systemd-shutdown follows when it is done.
    pub fn services_outlast_evidence(&self) -> bool {
        let is_done = self.signs.terminated.is_some() || self.signs.killed.is_some();
        self.signs.services().is_some() && !is_done && self.may_outlast_evidence()
    }

    /// The kubelet still held its lock when logind's delay ran out.
    pub fn kubelet_outlasted(&self) -> bool {
        let is_kubelets = |lock: &Lock| lock.lock.is_kubelets() && lock.outlasted;
        self.logind.delay.is_some_and(|delay| delay.expired) && self.logind.locks.iter().any(is_kubelets)
    }
}

impl LogindFacts {
    pub fn kubelet_lock(&self) -> Option<&Lock> {
        self.kubelet_locks().next()
    }

    /// The kubelet has a lock at the end.
    pub fn kubelet_holds(&self) -> bool {
        self.kubelet_locks().any(|lock| lock.released.is_none())
    }

    /// When the kubelet let go of its last lock; None while it has one, and if it had none.
    pub fn kubelet_let_go(&self) -> Option<Boot> {
        let released = self.kubelet_locks().filter_map(|lock| lock.released).max();
        released.filter(|_| !self.kubelet_holds())
    }

    fn kubelet_locks(&self) -> impl Iterator<Item = &Lock> {
        self.locks.iter().filter(|lock| lock.lock.is_kubelets())
    }
}

impl PodInShutdown {
    /// Whether it still ran at `at`, as far as observed.
    pub fn ran_at(&self, at: Boot) -> bool {
        self.ended.is_none_or(|ended| ended > at)
    }
}
