//! The probes: loading, attaching, draining.
//!
//! *Architecture invariant*: bytes go out, ids come in. What a record means is decode's business.

pub mod announcement;
mod attached;
pub mod btf;
mod error;
mod held;
mod loader;
mod losses;
mod memlock;
pub mod probes;
mod refusal;
mod rights;
mod ring;
mod verifier;

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use aya::maps::{Array, HashMap, Map, MapData};
use aya::programs::{BtfTracePoint, FEntry, ProgramFd};
use aya::{Btf, Ebpf, VerifierLogLevel};
use aya_log::EbpfLogger;
use epitaph_ebpf::{
    CgroupRmdir, ClosedPort, Kind, ListenerKey, Part, Watched, armed_by, armed_count, at_functions, closed_by, watch,
};

pub use attached::{Attached, NEWER, incapable};
use btf::Layout;
use epitaph_core::ids::CgroupId;
use epitaph_core::input::{ProbeState, SeenClients, V1};
use epitaph_core::time::Boot;
use error::{AttachError, Refusal};
pub use error::{LoadError, MapError};
pub use losses::Loss;
use losses::{Losses, WasArmed};
use memlock::Sizes;
use nix::unistd::{SysconfVar, sysconf};
use probes::{Choice, PROBES, Probe, RESET_FUNCTIONS, StandIn};
pub use refusal::Turn;
pub use rights::Rights;
use ring::{Buffer, Rings};
pub use verifier::{Verified, verify};

/// Every kernel gives the root of any hierarchy this id (5.10 to 7.3, mounted or not).
const ROOT: u64 = 1;

const V2: u32 = 0;

#[derive(Clone, Debug)]
pub struct Options {
    /// The running kernel's type information; None: `/sys/kernel/btf/vmlinux`. A file helps where sysfs is not visible: a
    /// kernel that was built without BTF cannot run the probes at all.
    pub btf: Option<PathBuf>,
    /// Bytes of the ring buffer for ordinary records; rounded up to a power of two of at least one page. The one for rare records
    /// has an eighth of it.
    pub ring_bytes: u32,
    /// Takes the oldest programs that fit, as an old kernel would get them, so that these programs are tested on new kernels, too.
    pub oldest: bool,
    /// The v1 hierarchy that identifies tasks alongside cgroup v2, or alone. None: v2 alone, which the kernel has whether mounted
    /// or not.
    pub v1: Option<V1>,
    pub programs: Programs,
}

/// Which programs are attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Programs {
    /// All that the kernel supports.
    #[default]
    All,
    /// Only an empty one at `signal_generate`: the baseline of `cargo xtask bench`.
    Empty,
    /// Only that of `signal_generate`, from an object that was built with the feature `parts`, up to this part: the profile of
    /// `cargo xtask bench --only parts`.
    UpTo { object: PathBuf, last: Part },
}

impl Programs {
    /// The only one at `signal_generate`.
    fn alone(&self) -> Option<&'static str> {
        match self {
            Programs::All => None,
            Programs::Empty => Some("signal_generate_empty"),
            Programs::UpTo { .. } => Some("signal_generate"),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            btf: None,
            ring_bytes: ring_bytes_for(cpus()),
            oldest: false,
            v1: None,
            programs: Programs::All,
        }
    }
}

/// Possible CPUs of this machine.
fn cpus() -> u32 {
    aya::util::nr_cpus()
        .ok()
        .and_then(|cpus| u32::try_from(cpus).ok())
        .unwrap_or(1)
}

/// The ring buffer for ordinary records holds what containers make between two looks of its one reader: 10 ms, or the time that it
/// takes for a batch. How fast it reads does not depend on the number of CPUs, so no size is enough for all that 128 CPUs can make;
/// it need not be, because each container's records are bounded by its budget: a container that spends a whole second's at once
/// takes 3 MiB at most, and its TCP records alone 1.2 MiB. What grows with the CPUs is the number of containers that do so at the
/// same time. 8 MiB, the size that all releases had, is room for the TCP records of 7; from 64 CPUs on each CPU adds 128 KiB, so that
/// 128 CPUs have room for 14. No more than 32 MiB: a DaemonSet's memory limit includes it.
fn ring_bytes_for(cpus: u32) -> u32 {
    const LEAST: u32 = 8 << 20;
    const MOST: u32 = 32 << 20;
    cpus.saturating_mul(128 << 10).clamp(LEAST, MOST).next_power_of_two()
}

#[cfg(test)]
mod ring_tests {
    use super::ring_bytes_for;

    #[test]
    fn a_ring_grows_with_the_cpus_within_bounds() {
        let mib = |cpus: u32| ring_bytes_for(cpus) >> 20;
        assert_eq!([1, 2, 64, 65, 128, 256, u32::MAX].map(mib), [8, 8, 8, 16, 16, 32, 32]);
    }
}

/// Numbers of the hierarchies by which the probes identify tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hierarchies {
    /// Hierarchy of the tasks' cgroups in all records: 0 (v2), unless the machine has v1 only.
    of_tasks: u32,
    /// The v1 hierarchy alongside v2; 0 if there is none.
    of_v1: u32,
}

impl Hierarchies {
    fn of(options: &Options) -> Hierarchies {
        let (of_tasks, of_v1) = match &options.v1 {
            None => (V2, 0),
            Some(v1) if v1.is_alone => (v1.hierarchy.into(), 0),
            Some(v1) => (V2, v1.hierarchy.into()),
        };
        Hierarchies { of_tasks, of_v1 }
    }

    /// Whether the probes know the cgroups of this cgroup's hierarchy.
    pub fn has(self, cgroup: CgroupId) -> bool {
        self.all().any(|hierarchy| hierarchy == cgroup.hierarchy)
    }

    fn all(self) -> impl Iterator<Item = u32> {
        std::iter::once(self.of_tasks).chain(Some(self.of_v1).filter(|&number| number != 0))
    }

    /// Key in the map of watched cgroups.
    fn key(self, cgroup: CgroupId) -> Result<u64, MapError> {
        match u16::try_from(cgroup.hierarchy) {
            Ok(number) if cgroup.is_known() && self.has(cgroup) => Ok(match cgroup.hierarchy == self.of_tasks {
                true => cgroup.id,
                false => epitaph_ebpf::v1_cgroup(number, cgroup.id),
            }),
            _ => Err(MapError::Hierarchy(cgroup)),
        }
    }

    /// The cgroup of a key in that map.
    fn cgroup(self, key: u64) -> CgroupId {
        let of_tasks = CgroupId {
            hierarchy: self.of_tasks,
            id: key,
        };
        epitaph_ebpf::split_v1_cgroup(key).map_or(of_tasks, |(hierarchy, id)| CgroupId {
            hierarchy: hierarchy.into(),
            id,
        })
    }
}

/// The loaded probes. Dropping it detaches them.
pub struct Kernel {
    rings: Rings,
    sizes: Sizes,
    memory: u64,
    hierarchies: Hierarchies,
    watched: HashMap<MapData, u64, Watched>,
    armed: HashMap<MapData, u64, u32>,
    /// Since the last [`Kernel::give_back_ports`].
    has_disarmed: bool,
    armed_count: Array<MapData, u64>,
    was_armed: WasArmed,
    closed_ports: HashMap<MapData, ListenerKey, ClosedPort>,
    ports_held: HashMap<MapData, u64, u64>,
    kubelets: HashMap<MapData, u64, u32>,
    refused_by_client: Array<MapData, u32>,
    /// Of programs that show refused clients.
    at_functions: Option<AtFunctions>,
    losses: Losses,
    probes: Vec<(String, ProbeState)>,
    /// Reads the probes' log messages; None if their log cannot be read.
    flush_log: Option<Box<dyn FnMut() + Send>>,
    /// Owns the links.
    ebpf: Ebpf,
}

/// Programs at functions.
struct AtFunctions {
    functions: &'static [&'static str],
    /// Resets without a socket that passed each.
    passed: Array<MapData, u64>,
    running: refusal::Running,
}

impl Kernel {
    /// Loads and attaches every probe that this kernel supports. New cgroups are watched from the moment of the return at the
    /// latest, so that no new cgroup is missed.
    ///
    /// # Errors
    /// What is missing, with the remedy. One failed probe is not an error: see [`Kernel::probes`].
    #[tracing::instrument(name = "load_probes", skip_all)]
    pub fn load(options: &Options) -> Result<Kernel, LoadError> {
        error::check_capabilities()?;
        let (layout, types) = read_types(options)?;
        let _raised = memlock::Raised::where_it_counts();
        let mut sizes = sizes(options)?;
        let loaded = loop {
            let loaded = Kernel::load_sized(options, sizes, &layout, &types);
            let (Err(LoadError::Memlock(_)), Some(smaller)) = (&loaded, sizes.smaller()) else {
                break loaded;
            };
            // The kernel's workers free the memory of the failed attempt; until then the memory counts against the limit.
            std::thread::sleep(memlock::SETTLE);
            sizes = smaller;
        };
        drop((layout, types));
        trim_heap();
        let mut kernel = loaded?;
        kernel.memory = held::bytes();
        Ok(kernel)
    }

    /// Bytes of the kernel's memory that the probes take: the same from the load on.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Which part of the probes' memory the kernel refused, and the remedy; None if the probes have all of their memory.
    pub fn shrunk(&self) -> Option<(String, &'static str)> {
        self.sizes.shrunk().map(|words| (words, error::MORE_MEMLOCK))
    }

    fn load_sized(options: &Options, sizes: Sizes, layout: &Layout, types: &Btf) -> Result<Kernel, LoadError> {
        let mut ebpf = load_object(options, sizes, layout, types, VerifierLogLevel::default())?;
        let mut kernel = Kernel {
            sizes,
            memory: 0,
            hierarchies: Hierarchies::of(options),
            rings: Rings::new(ring(&mut ebpf, "RARE")?, ring(&mut ebpf, "EVENTS")?),
            watched: HashMap::try_from(take(&mut ebpf, "WATCHED")?).map_err(LoadError::Map)?,
            armed: HashMap::try_from(take(&mut ebpf, "ARMED")?).map_err(LoadError::Map)?,
            armed_count: Array::try_from(take(&mut ebpf, "ARMED_COUNT")?).map_err(LoadError::Map)?,
            has_disarmed: false,
            was_armed: WasArmed::default(),
            closed_ports: HashMap::try_from(take(&mut ebpf, "CLOSED_PORTS")?).map_err(LoadError::Map)?,
            kubelets: HashMap::try_from(take(&mut ebpf, "KUBELETS")?).map_err(LoadError::Map)?,
            ports_held: HashMap::try_from(take(&mut ebpf, "PORTS_HELD")?).map_err(LoadError::Map)?,
            refused_by_client: Array::try_from(take(&mut ebpf, "REFUSED_BY_CLIENT")?).map_err(LoadError::Map)?,
            at_functions: None,
            losses: Losses::take(&mut ebpf)?,
            probes: Vec::new(),
            flush_log: log_reader(&mut ebpf),
            ebpf,
        };
        if let Some(alone) = options.programs.alone() {
            let state = kernel.attach(Choice::Program(alone), &probes::SIGNAL_GENERATE, types)?;
            kernel.probes.push((probes::SIGNAL_GENERATE.tracepoint.to_owned(), state));
            return Ok(kernel);
        }
        // Before cgroup_mkdir is attached: from its first event on, the probe marks new cgroups, even below cgroups that no scan
        // has seen.
        for hierarchy in kernel.hierarchies.all() {
            let root = CgroupId { hierarchy, id: ROOT };
            kernel.watch(root, watch::CHILDREN, None).map_err(LoadError::Watch)?;
        }
        for probe in PROBES {
            let is_blind = kernel.hierarchies.of_tasks != V2 && probe.kind == Kind::Tcp;
            let choice = match is_blind {
                true => Choice::Unsupported(ProbeState::NO_SOCKETS.to_owned()),
                false => probe.choose(layout, options.oldest),
            };
            // Where the probes of sockets are not attached, none of them stands in for another.
            let stand_in = if is_blind {
                None
            } else if probe.lacks_refusals(&choice, layout, options.oldest) {
                Some(kernel.refusals(options, layout, types)?)
            } else {
                probe.stand_in(&choice)
            };
            let state = kernel.attach(choice, probe, types)?;
            let state = match stand_in {
                Some(stand_in) => kernel.substituted(state, stand_in),
                None => state,
            };
            kernel.probes.push((probe.tracepoint.to_owned(), state));
        }
        Ok(kernel)
    }

    /// An error if not even the first program may be loaded, or if smaller maps could make room for the program.
    fn attach(&mut self, choice: Choice, probe: &Probe, types: &Btf) -> Result<ProbeState, LoadError> {
        let name = match choice {
            Choice::Program(name) => name,
            Choice::Unsupported(reason) => return Ok(ProbeState::Unsupported(reason)),
        };
        match attach(&mut self.ebpf, name, probe.tracepoint, types) {
            Ok(program) => {
                self.losses.attached(probe.kind, probe.tracepoint, program);
                if let Some(Err(error)) = probe
                    .nested(name)
                    .map(|name| attach(&mut self.ebpf, &name, probe.tracepoint, types))
                {
                    tracing::warn!(
                        "events that interrupt the probe at {} will be lost: {}",
                        probe.tracepoint,
                        error::chain(&error)
                    );
                }
                Ok(ProbeState::Active)
            }
            Err(error) => self.failed(&error).map(ProbeState::Failed),
        }
    }

    /// Why a program could not be attached; an error if not even the first program may be loaded, or if smaller maps could make room for
    /// the program.
    fn failed(&self, error: &AttachError) -> Result<String, LoadError> {
        let (is_first, reason) = (!self.losses.has_attached(), error::chain(error));
        match (Refusal::of(error), memlock::limits()) {
            (Some(Refusal::Permission), true) if is_first || self.sizes.smaller().is_some() => Err(LoadError::Memlock(reason)),
            (Some(Refusal::Permission), true) | (None, _) => Ok(reason),
            (Some(refusal), _) if is_first => Err(refusal.error(reason)),
            _ => Ok(reason),
        }
    }

    /// Attaches what shows refused clients where `tcp_send_reset` does not.
    fn refusals(&mut self, options: &Options, layout: &Layout, types: &Btf) -> Result<StandIn, LoadError> {
        let why = if options.oldest {
            String::new()
        } else {
            match self.attach_to_resets(layout, types)? {
                Ok(untested) => return Ok(StandIn::by_functions(untested.as_deref())),
                Err(why) => why,
            }
        };
        self.show_by_client(true).map_err(LoadError::Watch)?;
        Ok(StandIn::by_client(&why))
    }

    /// The error of a client on this machine counts where it `is` all that shows a refused connection.
    fn show_by_client(&mut self, is: bool) -> Result<(), MapError> {
        let written = self.refused_by_client.set(0, u32::from(is), 0);
        written.map_err(|source| MapError::Write {
            map: "REFUSED_BY_CLIENT",
            source,
        })
    }

    /// The inner error: why not all of the functions have a program that runs. Then none has one: the stand-in shows the same clients.
    fn attach_to_resets(&mut self, layout: &Layout, types: &Btf) -> Result<refusal::Tested, LoadError> {
        let functions = match probes::reset_functions(layout) {
            Ok(functions) => functions,
            Err(why) => return Ok(Err(why)),
        };
        let attached = match self.attach_each(functions, types)? {
            Ok(()) => {
                let passed = Array::try_from(take(&mut self.ebpf, "AT_FUNCTIONS")?).map_err(LoadError::Map)?;
                self.at_functions = Some(AtFunctions {
                    functions,
                    passed,
                    running: refusal::Running::default(),
                });
                self.test_functions().map_err(LoadError::Watch)?
            }
            Err(why) => Err(why),
        };
        if attached.is_err() {
            self.at_functions = None;
            functions
                .iter()
                .for_each(|function| detach_from_function(&mut self.ebpf, function));
        }
        Ok(attached)
    }

    fn attach_each(&mut self, functions: &[&'static str], types: &Btf) -> Result<Result<(), String>, LoadError> {
        for function in functions {
            match attach_to_function(&mut self.ebpf, function, types) {
                Ok(program) => self.losses.attached(Kind::Tcp, function, program),
                Err(error) => {
                    let why = self.failed(&error)?;
                    return Ok(Err(format!("no program can be attached to {function}: {why}")));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Whether refused connections of the loopback pass the programs at functions: a function that the compiler inlined where it is called
    /// has an address for a program all the same.
    fn test_functions(&mut self) -> Result<refusal::Tested, MapError> {
        const SLOTS: [u32; 2] = [at_functions::IPV4, at_functions::IPV6];
        // The programs count while a cgroup is armed. No cgroup is, and no event of a socket is lost by this.
        self.add_armed(1)?;
        let tested = match &self.at_functions {
            None => Ok(Ok(None)),
            Some(at) => refusal::test(at.functions, |place| at.passed.get(&SLOTS[place], 0)),
        };
        self.add_armed(-1)?;
        tested.map_err(|source| MapError::Write {
            map: "AT_FUNCTIONS",
            source,
        })
    }

    /// Tries the programs at functions again, and changes over to what shows refused clients instead where they have stopped, and back where
    /// they run again. Some: the state of [`ProbeState::REFUSALS`] has changed. `before`: the call before this one.
    ///
    /// # Errors
    /// If a map cannot be read or written.
    pub fn test_refusals(&mut self, before: Boot) -> Result<Option<(ProbeState, Turn)>, MapError> {
        if self.at_functions.is_none() || !self.probes.iter().any(is_of_refusals) {
            return Ok(None);
        }
        // Twice: the machine may have been busy.
        let tested = match self.test_functions()? {
            Err(_) => self.test_functions()?,
            passes => passes,
        };
        let Some(turn) = self.at_functions.as_mut().and_then(|at| at.running.took(before, &tested)) else {
            return Ok(None);
        };
        self.show_by_client(turn.by.clients != SeenClients::All)?;
        let state = self.substituted(ProbeState::Active, turn.by.clone());
        if let Some((_, known)) = self.probes.iter_mut().find(|probe| is_of_refusals(probe)) {
            known.clone_from(&state);
        }
        Ok(Some((state, turn)))
    }

    /// Whether the calling thread may still write the probes' maps. Before 5.19 writing takes CAP_BPF if
    /// `kernel.unprivileged_bpf_disabled` is set; later the maps' file descriptors are enough.
    pub fn may_write_maps(&mut self) -> bool {
        self.count_armed(0).is_ok()
    }

    /// `state` of a probe that `stand_in` has to replace: no better than the stand-in's state. A probe that stands in precedes it in the
    /// table.
    fn substituted(&self, state: ProbeState, stand_in: StandIn) -> ProbeState {
        let of_probe = self.probes.iter().find(|(name, _)| *name == stand_in.name);
        match state {
            ProbeState::Failed(_) => state,
            _ if of_probe.is_none_or(|(_, state)| *state == ProbeState::Active) => stand_in.state(),
            _ => ProbeState::Unsupported(format!("on this kernel the probe needs {stand_in}, which is not active")),
        }
    }

    /// State of every probe, by the tracepoint's name.
    pub fn probes(&self) -> &[(String, ProbeState)] {
        &self.probes
    }

    /// The hierarchies by which the probes identify cgroups.
    pub fn hierarchies(&self) -> Hierarchies {
        self.hierarchies
    }

    /// Sets a cgroup's [`watch`] bits, and its container, which is also its owner (None keeps both: inherited, or not known).
    /// Without any bit the cgroup is forgotten. Only ids of [`Kernel::hierarchies`]: the probes know no other hierarchy.
    ///
    /// # Errors
    /// If the map is full, or the cgroup is of another hierarchy.
    pub fn watch(&mut self, cgroup: CgroupId, bits: u64, container: Option<CgroupId>) -> Result<(), MapError> {
        self.watch_for(cgroup, bits, container, container)
    }

    /// As [`Kernel::watch`], with an owner (see [`Watched`]) of its own: a unit's cgroup outside any container.
    ///
    /// # Errors
    /// As [`Kernel::watch`].
    pub fn watch_for(
        &mut self,
        cgroup: CgroupId,
        bits: u64,
        container: Option<CgroupId>,
        owner: Option<CgroupId>,
    ) -> Result<(), MapError> {
        let id = self.hierarchies.key(cgroup)?;
        if bits == 0 {
            return forget(&mut self.watched, id).map(drop);
        }
        let known = match (container, owner) {
            (Some(_), Some(_)) => [0; 3],
            _ => self.watched.get(&id, 0).unwrap_or_default(),
        };
        let key = |named: Option<CgroupId>, place: usize| match named {
            Some(named) => self.hierarchies.key(named),
            None => Ok(known[place]),
        };
        let entry = [bits, key(container, watch::CONTAINER)?, key(owner, watch::OWNER)?];
        self.watched
            .insert(id, entry, 0)
            .map_err(|source| MapError::Write { map: "WATCHED", source })
    }

    /// Records the TCP events of a cgroup's sockets until [`Kernel::disarm`]. The probes arm a cgroup themselves when a signal that
    /// can end it comes to its first process from another container or the host, when that process exits, when the OOM killer
    /// chose one of its processes, and, within a budget, when a process with a client's socket exits or a listener closes.
    ///
    /// # Errors
    /// As [`Kernel::watch`]. The hierarchy must be v2: the kernel knows a socket's cgroup of v2 only.
    pub fn arm(&mut self, cgroup: CgroupId) -> Result<(), MapError> {
        const NO_EXIST: u64 = 1;
        const EXIST: u64 = 2;
        let id = v2(cgroup)?;
        match self.armed.insert(id, armed_by::OTHERS, NO_EXIST) {
            Ok(()) => self.count_armed(1),
            // Only user space disarms.
            Err(_) if self.armed.insert(id, armed_by::OTHERS, EXIST).is_ok() => Ok(()),
            Err(source) => Err(MapError::Write { map: "ARMED", source }),
        }
    }

    /// Disarms a cgroup that the probes or [`Kernel::arm`] armed. [`Kernel::give_back_ports`] forgets the cgroup's closed ports.
    ///
    /// # Errors
    /// As [`Kernel::arm`].
    pub fn disarm(&mut self, cgroup: CgroupId) -> Result<(), MapError> {
        let id = v2(cgroup)?;
        if !forget(&mut self.armed, id)? {
            return Ok(());
        }
        self.has_disarmed = true;
        self.count_armed(-1)
    }

    /// Removes the closed ports of cgroups that are not armed, if any was disarmed since the last call, and counts the others anew: the
    /// probes count without locks, and a count that has drifted would deny its owner room, or give it too much.
    ///
    /// One walk for all that were disarmed: whoever signals processes in many nested cgroups has one disarmed at each signal.
    ///
    /// # Errors
    /// If a map cannot be written. The next call tries again.
    pub fn give_back_ports(&mut self) -> Result<(), MapError> {
        if !self.has_disarmed {
            return Ok(());
        }
        let entries: Vec<(ListenerKey, ClosedPort)> = self.closed_ports.iter().flatten().collect();
        let mut held = std::collections::HashMap::<u64, u64>::new();
        for (port, by) in entries {
            // Looked up after the port was read: only user space disarms, so whoever closed the port while armed still is.
            if self.armed.get(&by[closed_by::CGROUP], 0).is_err() {
                forget(&mut self.closed_ports, port)?;
            } else {
                *held.entry(by[closed_by::OWNER]).or_default() += 1;
            }
        }
        let counts: Vec<(u64, u64)> = self.ports_held.iter().flatten().collect();
        for (owner, count) in counts {
            match held.get(&owner) {
                None => {
                    forget(&mut self.ports_held, owner)?;
                }
                Some(&is) if is == count => {}
                Some(&is) => {
                    let written = self.ports_held.insert(owner, is, 0);
                    let map = "PORTS_HELD";
                    written.map_err(|source| MapError::Write { map, source })?;
                }
            }
        }
        self.has_disarmed = false;
        Ok(())
    }

    /// Gives back what nothing uses any more: the accounts of idle owners, and closed ports of cgroups that are not armed. Call
    /// after [`Kernel::lost`].
    ///
    /// # Errors
    /// If a map cannot be written.
    pub fn give_back(&mut self, now: Boot) -> Result<(), MapError> {
        self.losses.forget_idle(now);
        // A probe on another CPU may have closed a port of a cgroup that was disarmed meanwhile.
        self.has_disarmed = true;
        self.give_back_ports()
    }

    /// Marks a cgroup as the kubelet's: while any cgroup is armed, the targets of its sockets' connections are recorded. `is_one`
    /// false removes the mark.
    ///
    /// # Errors
    /// As [`Kernel::arm`].
    pub fn kubelet(&mut self, cgroup: CgroupId, is_one: bool) -> Result<(), MapError> {
        let id = v2(cgroup)?;
        if !is_one {
            return forget(&mut self.kubelets, id).map(drop);
        }
        self.kubelets
            .insert(id, 1, 0)
            .map_err(|source| MapError::Write { map: "KUBELETS", source })
    }

    /// The armed cgroups. Each of them adds a cost to every TCP event of the whole machine: the correlator disarms those that did
    /// not terminate.
    pub fn armed(&self) -> Vec<CgroupId> {
        self.armed.keys().flatten().map(CgroupId::v2).collect()
    }

    fn count_armed(&mut self, change: i64) -> Result<(), MapError> {
        self.was_armed.by_user |= change > 0;
        self.add_armed(change)
    }

    fn add_armed(&mut self, change: i64) -> Result<(), MapError> {
        let write = |source| MapError::Write {
            map: "ARMED_COUNT",
            source,
        };
        let count = self.armed_count.get(&armed_count::USER, 0).map_err(write)?;
        self.armed_count
            .set(armed_count::USER, count.wrapping_add_signed(change), 0)
            .map_err(write)
    }

    /// Records lost since the last call, by owner. The probes' log messages since the last call are written to the log.
    pub fn lost(&mut self) -> Vec<Loss> {
        if let Some(flush) = &mut self.flush_log {
            flush();
        }
        let (count, was) = (&self.armed_count, &mut self.was_armed);
        self.losses.read(self.hierarchies, || was.since_last(count))
    }

    /// Waits until there may be records. Cancel-safe; call [`Kernel::drain`] after it.
    ///
    /// # Errors
    /// If the runtime cannot wait on the ring buffer (no I/O driver, descriptor limit).
    pub async fn readable(&mut self) -> io::Result<()> {
        self.rings.readable().await
    }

    /// Passes the present records to `each`, at most a batch, each as the probes wrote it. Returns their number; with records left,
    /// the next [`Kernel::readable`] returns at once. The order is nearly that of time.
    pub fn drain(&mut self, each: impl FnMut(&[u8])) -> usize {
        self.rings.drain(each)
    }

    /// The most records that the ring buffers can hold: after draining so many, a reader has seen all records from before its first
    /// drain.
    pub fn ring_records(&self) -> usize {
        // The kernel's header of each record (BPF_RINGBUF_HDR_SZ), and the smallest record.
        const LEAST: usize = 8 + size_of::<CgroupRmdir>();
        self.sizes.all_ring_bytes() as usize / LEAST
    }
}

/// Path of the kernel's type information.
pub fn btf_path(options: &Options) -> PathBuf {
    options.btf.clone().unwrap_or_else(|| btf::SYS_BTF.into())
}

/// A probe by its tracepoint; Err: what this kernel lacks for the probe.
pub type Fitting = (String, Result<(), String>);

/// Whether this kernel has what each probe needs, regardless of the right to load the probe.
///
/// # Errors
/// If the kernel's BTF cannot be read.
pub fn fitting(options: &Options) -> Result<Vec<Fitting>, LoadError> {
    let layout = layout(options)?;
    let fits = |probe: &Probe| match probe.choose(&layout, options.oldest) {
        Choice::Program(_) => Ok(()),
        Choice::Unsupported(reason) => Err(reason),
    };
    Ok(PROBES
        .iter()
        .map(|probe| (probe.tracepoint.to_owned(), fits(probe)))
        .collect())
}

fn layout(options: &Options) -> Result<Layout, LoadError> {
    Layout::read(&btf_path(options), &probes::tracepoints(), &RESET_FUNCTIONS).map_err(LoadError::Btf)
}

/// The kernel's types: for the probes' offsets, and for aya.
fn read_types(options: &Options) -> Result<(Layout, Btf), LoadError> {
    let layout = layout(options)?;
    let types = Btf::parse(layout.programs_types(), aya::Endianness::default());
    let types = types.map_err(|source| LoadError::BtfParse {
        path: btf_path(options),
        source,
    })?;
    Ok((layout, types))
}

/// Gives the kernel back what the allocator keeps of memory that was needed for a moment: for the kernel's types, or a first scan.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "no safe crate of ours offers malloc_trim")]
    // SAFETY: takes an integer, touches only free memory of the allocator's own.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Whether other programs show what the probe of refused clients does not.
fn is_of_refusals((name, state): &(String, ProbeState)) -> bool {
    name == ProbeState::REFUSALS && matches!(state, ProbeState::Substituted { .. } | ProbeState::Unsupported(_))
}

fn sizes(options: &Options) -> Result<Sizes, LoadError> {
    Sizes::all(options.ring_bytes, page()).ok_or(LoadError::RingSize(options.ring_bytes))
}

/// Bytes of a page.
fn page() -> u32 {
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    page.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(4096)
}

fn load_object(
    options: &Options,
    sizes: Sizes,
    layout: &Layout,
    types: &Btf,
    log: VerifierLogLevel,
) -> Result<Ebpf, LoadError> {
    let current = u32::from(layout.current_task_btf && !options.oldest);
    let open_numbers = u32::from(layout.open_numbers && !options.oldest);
    let offsets = layout.offsets();
    let Hierarchies { of_tasks, of_v1 } = Hierarchies::of(options);
    let state = match &options.v1 {
        None => 0,
        Some(v1) => {
            let state = layout.controller(&v1.controller);
            state.ok_or_else(|| LoadError::Controller(v1.controller.clone()))?
        }
    };
    let mut loader = loader::without_types();
    for (table, entries) in sizes.tables() {
        loader.map_max_entries(table, entries);
    }
    let mut object = Cow::Borrowed(aya::include_bytes_aligned!(env!("EPITAPH_BPF_OBJECT")));
    let mut stop_after = Part::Nothing as u32;
    if let Programs::UpTo { object: file, last } = &options.programs {
        let read = std::fs::read(file).map_err(|error| LoadError::Object(format!("{}: {error}", file.display())));
        object = Cow::Owned(read?);
        stop_after = *last as u32;
    }
    loader
        .btf(Some(types))
        .verifier_log_level(log)
        .override_global("OFFSETS", &offsets[..], true)
        .override_global("CURRENT_TASK_BTF", &current, true)
        .override_global("OPEN_NUMBERS", &open_numbers, true)
        .override_global("HIERARCHY", &of_tasks, true)
        .override_global("V1_HIERARCHY", &of_v1, true)
        .override_global("CSS_SET_STATE", &state, true)
        .override_global("STOP_AFTER", &stop_after, false)
        .map_max_entries("RARE", sizes.rare_bytes())
        .map_max_entries("EVENTS", sizes.ring_bytes)
        .load(&object)
        .map_err(|error| error::load(&error))
}

/// Made before a program is loaded, and kept: the programs refer to the log's map.
fn log_reader(ebpf: &mut Ebpf) -> Option<Box<dyn FnMut() + Send>> {
    match EbpfLogger::init(ebpf) {
        Ok(mut logger) => Some(Box::new(move || logger.flush())),
        Err(error) => {
            tracing::warn!("cannot read the probes' log messages: {}", error::chain(&error));
            None
        }
    }
}

/// Loads the program of the function's name for the function's entry.
fn load_at_function<'a>(ebpf: &'a mut Ebpf, function: &str, types: &Btf) -> Result<&'a mut FEntry, AttachError> {
    let missing = || AttachError::Missing(function.to_owned());
    let program: &mut FEntry = ebpf.program_mut(function).ok_or_else(missing)?.try_into()?;
    program.load(function, types)?;
    Ok(program)
}

fn load_at<'a>(ebpf: &'a mut Ebpf, name: &str, tracepoint: &str, types: &Btf) -> Result<&'a mut BtfTracePoint, AttachError> {
    let missing = || AttachError::Missing(name.to_owned());
    let program: &mut BtfTracePoint = ebpf.program_mut(name).ok_or_else(missing)?.try_into()?;
    program.load(tracepoint, types)?;
    Ok(program)
}

fn attach_to_function(ebpf: &mut Ebpf, function: &str, types: &Btf) -> Result<ProgramFd, AttachError> {
    let program = load_at_function(ebpf, function, types)?;
    program.attach()?;
    Ok(program.fd()?.try_clone()?)
}

fn detach_from_function(ebpf: &mut Ebpf, function: &str) {
    if let Some(aya::programs::Program::FEntry(program)) = ebpf.program_mut(function) {
        // Not loaded, or not attached: then there is nothing to detach.
        let _ = program.unload();
    }
}

fn attach(ebpf: &mut Ebpf, name: &str, tracepoint: &str, types: &Btf) -> Result<ProgramFd, AttachError> {
    let program = load_at(ebpf, name, tracepoint, types)?;
    program.attach()?;
    Ok(program.fd()?.try_clone()?)
}

fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, LoadError> {
    ebpf.take_map(name).ok_or(LoadError::NoMap(name))
}

fn ring(ebpf: &mut Ebpf, name: &'static str) -> Result<Buffer, LoadError> {
    let Map::RingBuf(map) = take(ebpf, name)? else {
        return Err(LoadError::NoMap(name));
    };
    Buffer::new(map, page() as usize).map_err(LoadError::Ring)
}

/// True if there was an entry.
fn forget<K: aya::Pod, V: aya::Pod>(map: &mut HashMap<MapData, K, V>, key: K) -> Result<bool, MapError> {
    match map.remove(&key) {
        Ok(()) => Ok(true),
        Err(_) if map.get(&key, 0).is_err() => Ok(false),
        Err(source) => Err(MapError::Write {
            map: "a hash map",
            source,
        }),
    }
}

/// Key in the maps for sockets.
fn v2(cgroup: CgroupId) -> Result<u64, MapError> {
    if cgroup.hierarchy == V2 && cgroup.is_known() {
        Ok(cgroup.id)
    } else {
        Err(MapError::Hierarchy(cgroup))
    }
}

// The loop that owns it may move between threads.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Kernel>();
};
