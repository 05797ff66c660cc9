//! A node's agent without probes: the agent's own client of the API, its core, its poster of Events and its writer of Epitaphs. Only the kernel's records are
//! made up, from the pods that the API shows: so everything that an agent asks of the API server is asked, and nothing else.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use epitaph::clock;
use epitaph::sink::epitaphs::{self, EpitaphOutcome, EpitaphStats, EpitaphsWorker};
use epitaph::sink::kubernetes_events::{EventStats, EventsWorker, Outcome, Settings, Sink, start};
use epitaph::source::pods::{Access, Allowed, PodSource, PodsCounters};
use epitaph_core::correlate::{Correlator, Limits};
use epitaph_core::event::{
    CgroupMkdir, Disposition, Event, ExitStatus, Kind, ProcessExec, ProcessExit, SignalDeliver, SignalGenerate, SignalResult,
    TargetState, Task, UnseenSockets, si_code,
};
use epitaph_core::ids::{CgroupId, Comm, ContainerId, Pid, Signal};
use epitaph_core::input::{CgroupFact, CgroupMode, Input, Observation, ProbeState};
use epitaph_core::pod::{ContainerState, PodFact, PreStop};
use epitaph_core::report::{Command, Report};
use epitaph_core::time::Boot;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

/// As the agent's loop.
const TICK: Duration = Duration::from_millis(200);

const CONTAINERD: CgroupId = CgroupId::v2(10);
const SHIM: Pid = Pid(50);
const RUNC: Pid = Pid(60);

/// How a container ends. The name of its image begins with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A handler, exit code 0.
    Clean,
    /// A handler, exit code 143.
    Handled,
    /// No handler: the kernel discards the signal, and the runtime kills.
    Ignored,
    /// By itself, exit code 3, once a status shows the exit.
    Crash,
    /// As `Clean`, without a deletion: once a status shows the exit.
    Restarted,
}

impl Ending {
    fn of(image: &str) -> Ending {
        let is = |name: &str| image.starts_with(name);
        match () {
            () if is("handled") => Ending::Handled,
            () if is("ignored") => Ending::Ignored,
            () if is("crash") => Ending::Crash,
            () if is("restarted") => Ending::Restarted,
            () => Ending::Clean,
        }
    }
}

/// From the stop signal to the SIGKILL.
pub const GRACE: Duration = Duration::from_secs(2);

pub struct Agent {
    pods: PodSource,
    core: Correlator,
    sink: Sink,
    worker: EventsWorker,
    epitaphs: epitaphs::Sink,
    epitaphs_worker: EpitaphsWorker,
    observation: Observation,
    lives: HashMap<ContainerId, Life>,
    /// Made-up records that are not due yet, in order.
    records: VecDeque<(Boot, Event)>,
    reports: mpsc::UnboundedSender<Report>,
}

struct Life {
    task: Task,
    is_over: bool,
}

/// What a running agent counts.
#[derive(Clone)]
pub struct Counts {
    pub requests: Arc<PodsCounters>,
    pub posted: Arc<EventStats>,
    pub epitaphs: Arc<EpitaphStats>,
}

impl Counts {
    /// Requests for the resource that the API server answered, as the agent's metrics name it.
    pub fn requested(&self, resource: &str) -> u64 {
        let all = self.requests.requests();
        all.filter(|(of, outcome, _)| (*of, *outcome) == (resource, "ok"))
            .map(|(.., count)| count)
            .sum()
    }

    pub fn posted(&self, outcome: Outcome) -> u64 {
        self.posted.get(outcome)
    }

    /// Epitaphs.
    pub fn written(&self) -> u64 {
        self.epitaphs.get(EpitaphOutcome::Written)
    }
}

impl Agent {
    pub async fn start(node: &str, access: &Access, reports: mpsc::UnboundedSender<Report>) -> anyhow::Result<(Agent, Counts)> {
        let pods = PodSource::start(Some(node), access, Allowed::default()).await?;
        let (sink, worker) = start(pods.client(), Settings::of_node(node), clock::now);
        let (epitaphs, epitaphs_worker) = epitaphs::start(pods.client(), epitaphs::Settings::default(), clock::now);
        let counts = Counts {
            requests: pods.counters.clone(),
            posted: sink.stats().clone(),
            epitaphs: epitaphs.stats().clone(),
        };
        let since = clock::now();
        let observation = Observation {
            boot_id: "boot".into(),
            host: node.into(),
            kernel: "6.18".into(),
            wall_offset: clock::wall_offset(),
            // The agent runs for long.
            since: since.minus(Duration::from_secs(3600)),
            cgroups: CgroupMode::V2,
            nodes_in_containers: false,
            ticks_per_second: None,
            observes_followed: true,
        };
        let mut core = Correlator::new(Limits::default());
        core.handle(since, Input::Start(observation.clone()));
        for kind in Kind::ALL {
            let (name, state) = (kind.name().to_owned(), ProbeState::Active);
            core.handle(since, Input::Probe { name, state });
        }
        let path = Ok("/system.slice/containerd.service".to_owned());
        core.handle(since, Input::Cgroup(CgroupFact::of(CONTAINERD, path)));
        let agent = Agent {
            pods,
            core,
            sink,
            worker,
            epitaphs,
            epitaphs_worker,
            observation,
            lives: HashMap::new(),
            records: VecDeque::new(),
            reports,
        };
        Ok((agent, counts))
    }

    /// Runs until the receiver of the reports is gone.
    pub async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.reports.is_closed() {
            tokio::select! {
                Some(input) = self.pods.inputs.recv() => self.take(input),
                _ = ticks.tick() => self.feed_due(),
            }
        }
        self.worker.shutdown(Duration::ZERO).await;
        self.epitaphs_worker.shutdown(Duration::ZERO).await;
    }

    fn take(&mut self, input: Input) {
        let pod = match &input {
            Input::Pod(pod) => Some(pod.clone()),
            _ => None,
        };
        // What the kernel shows comes before what the status says of it.
        if let Some(pod) = &pod {
            self.follow(pod);
        }
        self.feed_due();
        self.feed(input);
    }

    fn feed_due(&mut self) {
        let now = clock::now();
        while self.records.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((at, event)) = self.records.pop_front() {
                self.feed(Input::Kernel { at, event });
            }
        }
        self.feed(Input::Tick);
    }

    fn feed(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = clock::now();
            let answers = self.core.handle(now, input);
            for report in answers.reports {
                self.sink.offer(&report, &self.observation, now);
                self.epitaphs.offer(&report, &self.observation, None, now);
                let _ = self.reports.send(report);
            }
            for command in answers.commands {
                if let Command::ListEvents(pod) = command {
                    inputs.extend(self.pods.list_events(pod));
                }
            }
        }
    }

    /// The kernel's side of this version of the pod.
    fn follow(&mut self, pod: &PodFact) {
        for status in &pod.containers {
            let Some(spec) = pod.spec.containers.iter().find(|spec| spec.name == status.name) else {
                continue;
            };
            let ended = match (&status.state, &status.last) {
                (ContainerState::Terminated(ended), _) => ended.id.clone(),
                (_, Some(last)) => last.id.clone(),
                _ => None,
            };
            if let Some(id) = &status.id
                && status.state == ContainerState::Running
                && !self.lives.contains_key(id)
            {
                self.born(pod, id);
            }
            let ending = Ending::of(&spec.image);
            let now = clock::now();
            if let Some(id) = ended {
                // The exit was a moment before the status.
                self.over(&id, ending, now.minus(Duration::from_millis(500)));
            } else if let Some(id) = &status.id
                && pod.deletion.is_some()
            {
                let hook = match spec.pre_stop {
                    Some(PreStop::Sleep { seconds }) => Duration::from_secs(seconds),
                    _ => Duration::ZERO,
                };
                self.over(id, ending, now.plus(hook + Duration::from_millis(100)));
            }
        }
    }

    fn born(&mut self, pod: &PodFact, id: &ContainerId) {
        // A number of this container alone, as the kernel's inodes are.
        let number = u64::from_str_radix(&id.0[..12], 16).unwrap_or_default() | 1 << 50;
        let cgroup = CgroupId::v2(number);
        let uid = pod.pod.cgroup_uid.0.replace('-', "_");
        let path = format!("/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{}.scope", id.0);
        let pid = 1_000 + u32::try_from(self.lives.len()).unwrap_or_default();
        let now = clock::now();
        let task = Task {
            ns_level: 1,
            ns_pid: 1,
            pidns: pid,
            ..task(Pid(pid), SHIM, cgroup, now, "app")
        };
        let mkdir = CgroupMkdir {
            cgroup,
            parent: CgroupId::v2(2),
            container: None,
            path: Some(path),
        };
        let exec = ProcessExec {
            task,
            parent_cgroup: CONTAINERD,
            parent_v1_cgroup: None,
            parent_container: None,
            parent_comm: Comm::new("shim"),
        };
        self.lives.insert(id.clone(), Life { task, is_over: false });
        for event in [Event::CgroupMkdir(mkdir), Event::ProcessExec(exec)] {
            self.feed(Input::Kernel { at: now, event });
        }
    }

    /// Records of the end, which begins at `at`.
    fn over(&mut self, id: &ContainerId, ending: Ending, at: Boot) {
        let Some(life) = self.lives.get_mut(id).filter(|life| !life.is_over) else {
            return;
        };
        life.is_over = true;
        let task = life.task;
        let exit = |status| {
            Event::ProcessExit(ProcessExit {
                task,
                status,
                armed: None,
                held: None,
                unobserved: false,
                leaves_others: false,
                is_own: false,
            })
        };
        let entered = Event::SignalDeliver(SignalDeliver {
            task,
            signal: Signal::TERM,
            open: UnseenSockets::default(),
        });
        let handled = sent(task, Signal::TERM, SignalResult::Delivered, Disposition::Handler);
        let later = |millis| at.plus(Duration::from_millis(millis));
        let handles = |code| {
            vec![
                (at, handled.clone()),
                (later(10), entered.clone()),
                (later(200), exit(ExitStatus::Exited(code))),
            ]
        };
        let records = match ending {
            Ending::Clean | Ending::Restarted => handles(0),
            Ending::Handled => handles(143),
            Ending::Crash => vec![(at, exit(ExitStatus::Exited(3)))],
            Ending::Ignored => {
                let killed = ExitStatus::Signaled {
                    signal: Signal::KILL,
                    core_dumped: false,
                };
                let kill = sent(task, Signal::KILL, SignalResult::Delivered, Disposition::Default);
                vec![
                    (at, sent(task, Signal::TERM, SignalResult::Ignored, Disposition::Default)),
                    (at.plus(GRACE), kill),
                    (at.plus(GRACE), exit(killed)),
                ]
            }
        };
        self.records.extend(records);
        self.records.make_contiguous().sort_by_key(|(at, _)| *at);
    }
}

/// The runtime's signal to a container's first process.
fn sent(target: Task, signal: Signal, result: SignalResult, disposition: Disposition) -> Event {
    Event::SignalGenerate(SignalGenerate {
        sender: task(RUNC, SHIM, CONTAINERD, Boot(60), "runc"),
        sender_parent_comm: Comm::new("shim"),
        sender_grandparent: Pid(1),
        target,
        signal,
        code: si_code::USER,
        from_kernel: false,
        group: true,
        result,
        disposition,
        state: TargetState::default(),
        call: None,
        pending: None,
        armed: None,
    })
}

fn task(pid: Pid, parent: Pid, cgroup: CgroupId, start: Boot, comm: &str) -> Task {
    Task {
        tgid: pid,
        tid: pid,
        ppid: parent,
        ns_level: 0,
        ns_pid: pid.0,
        pidns: 4_026_531_836,
        cgroup,
        v1_cgroup: None,
        container: None,
        start,
        comm: Comm::new(comm),
    }
}
