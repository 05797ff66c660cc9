//! Live observation of one machine: inputs from the probes, `/proc` and the pods' watch go to the pipeline.

mod ending;

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::time::Duration;

use epitaph_core::attribute::Attribution;
use epitaph_core::correlate::Limits;
use epitaph_core::decode::decode;
use epitaph_core::event::{Event, Kind, Task};
use epitaph_core::ids::CgroupId;
use epitaph_core::input::{Input, LossScope, Observation, ProbeState};
use epitaph_core::node::NodeEvent;
use epitaph_core::peers::Peers;
use epitaph_core::report::Command;
use epitaph_core::time::{Boot, WallOffset};
use epitaph_ebpf::watch as bits;
use nix::libc;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::clock;
use crate::journal::Past;
use crate::recording::lost_in;
use crate::sink::terminal::screen::Act;
use crate::source::kernel::{Attached, Hierarchies, Loss, MapError, announcement};
use crate::source::kubelet::KubeletFiles;
use crate::source::logind::{Logind, LogindDropReason};
use crate::source::pods::{PodSource, PodsDropReason};
use crate::source::procfs::Procfs;
use crate::source::runtimes::{Runtimes, RuntimesDropReason};

use super::RuntimeError;
use super::holding::Holding;
use super::pipeline::Pipeline;
use super::throttle::Throttle;

/// How often the core gets the time and the loss counters are read: well under the core's linger, so that a loss is known before
/// a termination with that loss is judged.
const TICK: Duration = Duration::from_millis(200);

/// Batches of records taken before the core gets the time or a pod's status, at most: in a storm both go on.
const BATCHES: usize = 64;

/// How often cgroups are disarmed that the probes armed although no termination followed.
const SWEEP: Duration = Duration::from_secs(60);

/// A step of the wall clock smaller than this is not worth an input.
const CLOCK_STEP: Duration = Duration::from_millis(1);
/// A slewing clock passes [`CLOCK_STEP`] every few seconds; from here on it is a step, or a pause of a virtual machine.
const NOTED_STEP: Duration = Duration::from_secs(1);

pub struct Live {
    kernel: Attached,
    procfs: Procfs,
    pipeline: Pipeline,
    /// None without Kubernetes.
    pods: Option<PodSource>,
    files: FileSources,
    /// None if the agent has no socket for the role that observes logind.
    logind: Option<Logind>,
    holding: Holding,
    peers: Peers,
    announcing: Announcing,
    /// Already counted on `/metrics`, by reason.
    pods_dropped: [u64; PodsDropReason::ALL.len()],
    runtimes_dropped: [u64; RuntimesDropReason::ALL.len()],
    logind_dropped: [u64; LogindDropReason::ALL.len()],
    wall_offset: WallOffset,
    /// When the loss counters were last read.
    losses_read: Boot,
    /// When the armed cgroups were last checked.
    swept: Boot,
    /// The agent's own grace period; None for a person's command, which ends at once.
    grace: Option<Duration>,
}

/// Of the agent's grace period, what is left for its end: see [`super::FLUSH`].
const LAST: Duration = Duration::from_secs(2);

/// Threads that read files.
pub struct FileSources {
    /// None if no directory of a runtime is configured.
    pub runtimes: Option<Runtimes>,
    /// None if no file of the kubelet is configured.
    pub kubelet: Option<KubeletFiles>,
}

/// Whether this epitaph can announce itself to others on this machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Announcing {
    Works,
    /// The last attempt failed, which is logged; the next one follows.
    Failed,
    /// A policy forbids announcements for the lifetime of this process.
    Forbidden,
}

/// Peers that are logged with their place, at most; of the others only the pids are.
const PLACES: usize = 4;

/// Updates of the kernel's maps that follow from a drain of the ring buffer.
#[derive(Default)]
struct MapUpdates {
    created: Vec<CgroupId>,
    removed: Vec<CgroupId>,
    commands: Vec<Command>,
}

impl Live {
    /// Starts observing. The probes are already running: events during the scan wait in the ring buffer.
    pub fn start(
        kernel: Attached,
        procfs: Procfs,
        pods: Option<PodSource>,
        files: FileSources,
        observation: Observation,
        mut pipeline: Pipeline,
        past: Option<&Past>,
    ) -> Result<Live, RuntimeError> {
        let since = observation.since;
        let wall_offset = observation.wall_offset;
        let watched = past.map(|past| pipeline.resume(past, &observation)).transpose()?;
        pipeline.feed(since, Input::Start(observation))?;
        for (name, state) in kernel.probes() {
            let (name, state) = (name.clone(), state.clone());
            pipeline.feed(since, Input::Probe { name, state })?;
        }
        let mut live = Live {
            kernel,
            procfs,
            pipeline,
            pods,
            files,
            logind: None,
            holding: Holding::default(),
            peers: Peers::new(RandomState::new().hash_one(()) as u32, std::process::id()),
            announcing: Announcing::Works,
            pods_dropped: [0; PodsDropReason::ALL.len()],
            runtimes_dropped: [0; RuntimesDropReason::ALL.len()],
            logind_dropped: [0; LogindDropReason::ALL.len()],
            wall_offset,
            losses_read: since,
            swept: since,
            grace: None,
        };
        procfs_facts(&mut live)?;
        if let Some(watched) = watched {
            let commands = live.pipeline.feed(since, Input::Scanned)?;
            live.pipeline.resumed();
            live.obey(watched)?;
            live.obey(commands)?;
        }
        live.ask_runtimes();
        live.pipeline.alive(clock::now())?;
        live.meet_peers(clock::now())?;
        Ok(live)
    }

    /// With the agent's own grace period.
    #[must_use]
    pub fn with_grace(self, grace: Option<Duration>) -> Live {
        Live { grace, ..self }
    }

    #[must_use]
    pub fn with_logind(self, logind: Option<Logind>) -> Live {
        Live { logind, ..self }
    }

    /// Runs until `stop` is true or the reader of the output is gone, then handles the remaining inputs.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>, mut acts: mpsc::Receiver<Act>) -> Result<(), RuntimeError> {
        let mut ticks = interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // At a shutdown of the node, from the stop signal on.
        let mut until = None;
        while !self.pipeline.sinks().reader_gone {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop), if until.is_none() => {
                    self.hear_role_out().await?;
                    match self.stays() {
                        Some(stays) => until = Some(Instant::now() + stays),
                        None => break,
                    }
                }
                Some(act) = acts.recv() => match act {
                    Act::Quit => break,
                    Act::Resize { columns } => self.pipeline.sinks().resize(columns)?,
                },
                ready = self.kernel.readable() => {
                    ready.map_err(RuntimeError::os("wait for the probes' records"))?;
                    self.drain()?;
                }
                Some(input) = next(&mut self.pods) => self.take_pod(input)?,
                Some(input) = announced(&mut self.logind) => self.take_node(input)?,
                Some(input) = described(&mut self.files.runtimes) => {
                    let commands = self.pipeline.feed(clock::now(), input)?;
                    self.obey(commands)?;
                }
                Some(input) = of_kubelet(&mut self.files.kubelet) => {
                    let commands = self.pipeline.feed(clock::now(), input)?;
                    self.obey(commands)?;
                }
                _ = ticks.tick() => {
                    let read_until = self.catch_up(Duration::ZERO)?;
                    self.tick(read_until)?;
                    let is_quiet = || self.pipeline.core().is_quiet(self.procfs.own_pid());
                    if until.is_some_and(|until| Instant::now() >= until || is_quiet()) {
                        break;
                    }
                }
            }
        }
        self.drain_rest()?;
        self.know_losses(Duration::ZERO)?;
        self.tick(Some(clock::now()))?;
        self.agent_ends()?;
        // The successor goes on with what is in the journal.
        if self.pipeline.sinks().is_kept() {
            self.pipeline.hand_over(clock::now());
        } else {
            self.pipeline.feed(clock::now(), Input::End)?;
        }
        self.pipeline.flush()?;
        self.pipeline.sinks().finish()
    }

    /// The records that wait now, and no more: under a storm the ring buffer is never empty.
    fn drain_rest(&mut self) -> Result<(), RuntimeError> {
        let mut left = self.kernel.ring_records();
        while left > 0 {
            match self.drain()? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        Ok(())
    }

    /// `read_until`: the core gets this time. Without one, terminations that are due by the clock wait for their records.
    fn tick(&mut self, read_until: Option<Boot>) -> Result<(), RuntimeError> {
        if let Some(time) = read_until {
            // Any input can complete a termination, after which its sockets are disarmed.
            let commands = self.pipeline.tick(time)?;
            self.obey(commands)?;
        }
        self.feed_clock_step()?;
        let now = clock::now();
        self.pipeline.flush()?;
        self.count_dropped();
        let evidence = self.pipeline.core().memory();
        self.pipeline.sinks().memory(evidence, self.kernel.memory());
        if let Some(logind) = &self.logind
            && self.holding.is_over(now, self.pipeline.sinks().unsent())
        {
            self.pipeline.sinks().sync();
            logind.release();
        }
        self.meet_peers(now)?;
        self.pipeline.alive(now)?;
        let written = self.kernel.give_back_ports();
        count_map_error(&mut self.pipeline, written);
        if now.since(self.swept) >= SWEEP {
            let before = std::mem::replace(&mut self.swept, now);
            self.sweep(now)?;
            self.test_refusals(before)?;
        }
        Ok(())
    }

    /// Reads the losses if the last reading is as old as `age`.
    fn know_losses(&mut self, age: Duration) -> Result<(), RuntimeError> {
        let now = clock::now();
        if now.since(self.losses_read) < age {
            return Ok(());
        }
        // Before the counters are read: the next losses may have happened meanwhile.
        let since = std::mem::replace(&mut self.losses_read, now);
        for Loss { kind, scope, count } in self.kernel.lost() {
            let lost = Input::Lost {
                kind,
                scope,
                since,
                count,
            };
            let commands = self.pipeline.feed(clock::now(), lost)?;
            self.obey(commands)?;
        }
        Ok(())
    }

    fn feed_clock_step(&mut self) -> Result<(), RuntimeError> {
        let offset = clock::wall_offset();
        let step = Duration::from_nanos(offset.0.abs_diff(self.wall_offset.0));
        if step <= CLOCK_STEP {
            return Ok(());
        }
        if step >= NOTED_STEP {
            let is_ahead = offset.0 > self.wall_offset.0;
            tracing::info!(
                ?step,
                is_ahead,
                "the wall clock stepped, or the machine was paused: earlier times that are not exported yet are wrong by as much"
            );
        }
        self.wall_offset = offset;
        let commands = self.pipeline.feed(clock::now(), Input::Clock(offset))?;
        self.obey(commands)
    }

    /// The kernel's records come first: a pod's status always follows what it reports.
    fn take_pod(&mut self, input: Input) -> Result<(), RuntimeError> {
        self.catch_up(TICK)?;
        let commands = self.pipeline.feed(clock::now(), input)?;
        self.obey(commands)
    }

    /// As for pods: what ended before the shutdown was announced has ended before.
    fn take_node(&mut self, input: Input) -> Result<(), RuntimeError> {
        // On disk soon: the machine may be cut off at any moment, and without these a power loss cannot be told from a shutdown that
        // could not be observed.
        let mut is_state_of_bus = false;
        if let Input::Node(event) = &input {
            self.holding.see(clock::now(), event);
            is_state_of_bus = matches!(
                event,
                NodeEvent::Bus { .. } | NodeEvent::Prepare { .. } | NodeEvent::Job { .. }
            );
        }
        self.take_pod(input)?;
        if is_state_of_bus {
            self.pipeline.sinks().sync();
        }
        Ok(())
    }

    /// Two epitaphs on one machine are not an error, but a person who sees each termination twice needs to know why.
    fn meet_peers(&mut self, now: Boot) -> Result<(), RuntimeError> {
        let act = self.peers.tick(now);
        if act.announce && self.announcing != Announcing::Forbidden {
            self.announce();
        }
        if !act.log.is_empty() {
            const PROBLEM: &str = "another epitaph observes this machine: if both export, every termination is exported twice";
            const REMEDY: &str = "run one agent per node; `epitaph watch` at the same time does no harm";
            let who = self.who(&act.log);
            if !self.pipeline.sinks().note(&format!("{PROBLEM}; {REMEDY} ({who})"))? {
                tracing::warn!(%who, remedy = REMEDY, "{PROBLEM}");
            }
        }
        if let Some(count) = self.peers.count() {
            self.pipeline.sinks().neighbours(count);
        }
        Ok(())
    }

    fn announce(&mut self) {
        let Err(error) = announcement::send(self.peers.nonce()) else {
            return;
        };
        if is_forbidden(&error) {
            self.announcing = Announcing::Forbidden;
            tracing::warn!(%error, remedy = "allow rt_sigqueueinfo(2)", "cannot announce this epitaph to others on this machine");
        } else if self.announcing == Announcing::Works {
            self.announcing = Announcing::Failed;
            tracing::warn!(%error, "cannot announce this epitaph to others on this machine; the next attempt follows within a minute");
        }
    }

    /// Several processes in one bounded line: any process can forge an announcement.
    fn who(&self, tasks: &[Task]) -> String {
        let one = |(at, task): (usize, &Task)| match at < PLACES {
            true => format!("pid {} `{}`, {}", task.tgid, task.comm, self.place(task)),
            false => format!("pid {}", task.tgid),
        };
        tasks.iter().enumerate().map(one).collect::<Vec<_>>().join("; ")
    }

    /// The container, unit or cgroup of a process, for people.
    fn place(&self, task: &Task) -> String {
        let index = self.pipeline.core().index();
        match (&*index.attribute(task), index.path(task.cgroup)) {
            (Attribution::Subject(subject, _), Some(path)) => format!("{subject}, cgroup {path}"),
            (Attribution::Subject(subject, _), None) => subject.to_string(),
            (_, Some(path)) => format!("cgroup {path}"),
            (Attribution::Host, None) => "the host".to_owned(),
            (Attribution::Unknown(_), None) => "unknown".to_owned(),
        }
    }

    fn count_dropped(&mut self) {
        if let Some(pods) = &self.pods {
            for (reason, counted) in PodsDropReason::ALL.into_iter().zip(&mut self.pods_dropped) {
                let total = pods.counters.dropped(reason);
                self.pipeline.sinks().dropped(reason.name(), total - *counted);
                *counted = total;
            }
        }
        if let Some(runtimes) = &self.files.runtimes {
            for (reason, counted) in RuntimesDropReason::ALL.into_iter().zip(&mut self.runtimes_dropped) {
                let total = runtimes.counters.dropped(reason);
                self.pipeline.sinks().dropped(reason.name(), total - *counted);
                *counted = total;
            }
        }
        if let Some(logind) = &self.logind {
            for (reason, counted) in LogindDropReason::ALL.into_iter().zip(&mut self.logind_dropped) {
                let total = logind.counters.dropped(reason);
                self.pipeline.sinks().dropped(reason.name(), total - *counted);
                *counted = total;
            }
        }
    }

    /// Asks for the names of the containers that are new. The answers are inputs, and nothing waits for them.
    fn ask_runtimes(&mut self) {
        for id in self.pipeline.take_undescribed() {
            if let Some(runtimes) = &self.files.runtimes {
                runtimes.ask(id);
            }
        }
    }

    /// The core disarms the cgroups that it attributes to containers and units. This sweep disarms all other cgroups: an armed cgroup adds a look-up
    /// to every TCP event of the machine. Then it gives back what the probes keep of cgroups that make nothing any more.
    fn sweep(&mut self, now: Boot) -> Result<(), RuntimeError> {
        let index = self.pipeline.core().index();
        let mut idle = self.kernel.armed();
        idle.retain(|&cgroup| !matches!(index.attribute_within(cgroup), Attribution::Subject(..)));
        self.obey(idle.into_iter().map(Command::Forget).collect())?;
        let written = self.kernel.give_back(now);
        count_map_error(&mut self.pipeline, written);
        Ok(())
    }

    /// Some programs can stop without an error: see [`Kernel::test_refusals`](crate::source::kernel::Kernel::test_refusals).
    fn test_refusals(&mut self, before: Boot) -> Result<(), RuntimeError> {
        let (state, turn) = match self.kernel.test_refusals(before) {
            Ok(None) => return Ok(()),
            Ok(Some(turned)) => turned,
            Err(error) => {
                count_map_error(&mut self.pipeline, Err(error));
                return Ok(());
            }
        };
        if turn.have_stopped {
            tracing::warn!(
                remedy = "set kernel.ftrace_enabled to 1 on the node (sysctl)",
                "refused clients are seen by {} only: the programs at tcp_v4_send_reset and tcp_v6_send_reset have stopped",
                turn.by
            );
        } else {
            tracing::info!("refused clients are seen by {} again", turn.by);
        }
        // What they did not show can be any number.
        let missed = Input::Lost {
            kind: Kind::Tcp,
            scope: LossScope::Machine,
            since: turn.missed_since,
            count: 1,
        };
        let name = ProbeState::REFUSALS.to_owned();
        for input in [missed, Input::Probe { name, state }] {
            let commands = self.pipeline.feed(clock::now(), input)?;
            self.obey(commands)?;
        }
        Ok(())
    }

    /// Takes all waiting records, but at most [`BATCHES`] batches: time and pods must not wait longer.
    ///
    /// Returns a time up to which every record was taken, and every loss of earlier than `age` and a tick before it is known, however long
    /// this process waited for a processor in between. None: more records wait.
    fn catch_up(&mut self, age: Duration) -> Result<Option<Boot>, RuntimeError> {
        for _ in 0..BATCHES {
            self.know_losses(age)?;
            let now = clock::now();
            if self.take_batch()? == 0 && now.since(self.losses_read) < age + TICK {
                return Ok(Some(now));
            }
        }
        Ok(None)
    }

    /// Takes a batch of records; returns how many.
    fn drain(&mut self) -> Result<usize, RuntimeError> {
        self.know_losses(2 * TICK)?;
        self.take_batch()
    }

    fn take_batch(&mut self) -> Result<usize, RuntimeError> {
        // The core judges by a record's time what is due by then: a later record waits until the losses before it are known.
        let until = self.losses_read.plus(3 * TICK);
        let mut updates = MapUpdates::default();
        let mut result = Ok(());
        let mut later = Vec::new();
        let Live {
            kernel,
            procfs,
            pipeline,
            peers,
            ..
        } = self;
        let hierarchies = kernel.hierarchies();
        let count = kernel.drain(|bytes| {
            if result.is_err() {
                return;
            }
            if !later.is_empty() || clock::now() > until {
                later.push(bytes.to_vec());
            } else {
                result = take_record(procfs, pipeline, peers, bytes, hierarchies, &mut updates);
            }
        });
        result?;
        if !later.is_empty() {
            self.know_losses(Duration::ZERO)?;
        }
        for bytes in later {
            take_record(
                &mut self.procfs,
                &mut self.pipeline,
                &mut self.peers,
                &bytes,
                hierarchies,
                &mut updates,
            )?;
        }
        for cgroup in updates.created {
            watch_cgroup(&mut self.kernel, &mut self.pipeline, cgroup);
        }
        // After the created ones: the probes have already removed the entry of a removed cgroup, and a late entry would never go.
        for cgroup in updates.removed {
            let mut written = self.kernel.watch(cgroup, 0, None);
            if cgroup.hierarchy == 0 {
                written = written.and_then(|()| self.kernel.kubelet(cgroup, false));
            }
            count_map_error(&mut self.pipeline, written);
        }
        self.obey(updates.commands)?;
        self.ask_runtimes();
        Ok(count)
    }

    /// Carries out the core's commands: in the probes' maps, and as requests to the Kubernetes API.
    fn obey(&mut self, commands: Vec<Command>) -> Result<(), RuntimeError> {
        let mut commands = VecDeque::from(commands);
        while let Some(command) = commands.pop_front() {
            // The probes see no sockets of other hierarchies.
            let written = match command {
                Command::Watch(cgroup) if cgroup.hierarchy == 0 => self.kernel.arm(cgroup),
                Command::Forget(cgroup) if cgroup.hierarchy == 0 => self.kernel.disarm(cgroup),
                Command::Watch(_) | Command::Forget(_) => continue,
                Command::ListEvents(pod) => {
                    let Some(pods) = &self.pods else { continue };
                    for input in pods.list_events(pod) {
                        commands.extend(self.pipeline.feed(clock::now(), input)?);
                    }
                    continue;
                }
            };
            count_map_error(&mut self.pipeline, written);
        }
        Ok(())
    }
}

/// Whether seccomp forbids the call, by the errors of its usual profiles. Any other error may be temporary.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
}

/// Waits forever without Kubernetes.
async fn next(pods: &mut Option<PodSource>) -> Option<Input> {
    match pods {
        Some(pods) => pods.inputs.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits forever without files of runtimes.
async fn described(runtimes: &mut Option<Runtimes>) -> Option<Input> {
    match runtimes {
        Some(runtimes) => runtimes.inputs.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits forever without the kubelet's files.
async fn of_kubelet(kubelet: &mut Option<KubeletFiles>) -> Option<Input> {
    match kubelet {
        Some(kubelet) => kubelet.inputs.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits forever without a role that observes logind.
async fn announced(logind: &mut Option<Logind>) -> Option<Input> {
    match logind {
        Some(logind) => logind.inputs.recv().await,
        None => std::future::pending().await,
    }
}

/// Feeds the cgroups and processes that existed before the probes.
#[tracing::instrument(skip_all)]
fn procfs_facts(live: &mut Live) -> Result<(), RuntimeError> {
    let Live {
        procfs,
        kernel,
        pipeline,
        ..
    } = live;
    procfs.scan_after_first(|fact| {
        let cgroup = match &fact {
            Input::Cgroup(fact) => Some(fact.cgroup),
            _ => None,
        };
        pipeline.feed(clock::now(), fact)?;
        if let Some(cgroup) = cgroup {
            watch_cgroup(kernel, pipeline, cgroup);
        }
        Ok(())
    })
}

/// Takes one record from the ring buffer: decodes it, answers its open questions first, and hands it on.
fn take_record(
    procfs: &mut Procfs,
    pipeline: &mut Pipeline,
    peers: &mut Peers,
    bytes: &[u8],
    hierarchies: Hierarchies,
    updates: &mut MapUpdates,
) -> Result<(), RuntimeError> {
    let (at, event) = match decode(bytes) {
        Ok(decoded) => decoded,
        Err(error) => {
            static MESSAGE: Throttle = Throttle::new();
            if let Some(suppressed) = MESSAGE.admit(clock::now()) {
                tracing::warn!(%error, suppressed, "cannot decode a record of the probes");
            }
            pipeline.sinks().dropped("undecodable", 1);
            // As at a replay: a termination that the record may belong to has lost evidence.
            let now = clock::now();
            if let Some(lost) = lost_in(bytes, now.minus(Limits::default().reorder), now) {
                updates.commands.extend(pipeline.feed(now, lost)?);
            }
            return Ok(());
        }
    };
    match &event {
        Event::CgroupMkdir(mkdir) if hierarchies.has(mkdir.cgroup) => updates.created.push(mkdir.cgroup),
        Event::CgroupRmdir(rmdir) if hierarchies.has(rmdir.cgroup) => updates.removed.push(rmdir.cgroup),
        Event::PeerAnnouncement(announcement) => peers.receive(clock::now(), announcement),
        Event::ProcessExit(exit) => peers.exited(&exit.task),
        _ => {}
    }
    let input = Input::Kernel { at, event };
    let now = clock::now();
    for question in pipeline.core().questions(&input) {
        updates.commands.extend(pipeline.feed(now, procfs.answer(&question))?);
    }
    updates.commands.extend(pipeline.feed_record(now, bytes, input)?);
    Ok(())
}

/// Sets which exits the probes record: in a container or unit those of the cgroup and of cgroups created below; elsewhere
/// only those of cgroups created below.
///
/// The probes have already set both bits of a new cgroup, so that no process starts unseen; here the unneeded bits are removed.
fn watch_cgroup(kernel: &mut Attached, pipeline: &mut Pipeline, cgroup: CgroupId) {
    let index = pipeline.core().index();
    let (bits, subject) = match index.attribute_cgroup(cgroup) {
        Attribution::Subject(_, own) => (bits::SELF | bits::CHILDREN, Some(own)),
        Attribution::Host => (bits::CHILDREN, None),
        // Of too many in one container: it has the container's budget, not the machine's.
        Attribution::Unknown(_) => match index.party(cgroup) {
            Some(party) => (bits::SELF | bits::CHILDREN, Some(party)),
            None => return,
        },
    };
    let container = index.outermost_container(cgroup);
    let container = container.or_else(|| index.outermost_container(subject?));
    let mut written = kernel.watch_for(cgroup, bits, container, container.or(subject));
    // The probes see no sockets of other hierarchies.
    if cgroup.hierarchy == 0 && pipeline.core().is_kubelet(cgroup) {
        written = written.and(kernel.kubelet(cgroup, true));
    }
    count_map_error(pipeline, written);
}

/// One cgroup that is not in the probes' maps (a map is full, no memory) is not a reason to stop observing all others.
fn count_map_error(pipeline: &mut Pipeline, written: Result<(), MapError>) {
    if let Err(error) = written {
        static MESSAGE: Throttle = Throttle::new();
        if let Some(suppressed) = MESSAGE.admit(clock::now()) {
            tracing::warn!(%error, suppressed, "cannot update the probes' map for a cgroup; terminations in it may be missed");
        }
        pipeline.sinks().dropped("probe_map", 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_policy_stops_announcements_for_good() {
        let forbidden = [libc::EPERM, libc::ENOSYS, libc::EAGAIN, libc::ENOMEM]
            .map(|code| is_forbidden(&io::Error::from_raw_os_error(code)));
        assert_eq!(forbidden, [true, true, false, false]);
    }
}
