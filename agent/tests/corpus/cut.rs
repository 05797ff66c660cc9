//! One story out of a recording of a whole machine: what concerns its cgroups stays, and the machine's name goes.
//!
//! *Architecture invariant*: pure. Nothing that stays is changed but the names of host, kernel, PID 1 and foreign
//! cgroups; the order stays.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use epitaph::recording::{Reader, Writer};
use epitaph_core::decode::decode;
use epitaph_core::event::{Event, Task, Tcp};
use epitaph_core::ids::{CgroupId, Comm, Pid};
use epitaph_core::input::{Input, Observation};
use epitaph_core::time::Boot;

/// A recording in memory.
pub struct Evidence {
    pub observation: Observation,
    /// With a kernel record's bytes.
    pub inputs: Vec<(Boot, Input, Option<Vec<u8>>)>,
}

impl Evidence {
    pub fn read(file: &[u8]) -> Evidence {
        let last = RefCell::new(Vec::new());
        let mut reader = Reader::new(file, |record: &[u8]| {
            *last.borrow_mut() = record.to_vec();
            decode(record)
        })
        .unwrap();
        let observation = reader.header().observation.clone();
        let mut inputs = Vec::new();
        for (now, input) in reader.by_ref() {
            let record = matches!(input, Input::Kernel { .. }).then(|| last.borrow().clone());
            inputs.push((now, input, record));
        }
        let report = reader.report();
        let missing =
            report.damaged + report.tail_bytes + report.unknown_inputs + report.undecodable + report.missing.len() as u64;
        assert_eq!(missing, 0, "{report:?}");
        Evidence { observation, inputs }
    }

    pub fn written(&self) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), &self.observation).unwrap();
        for (now, input, record) in &self.inputs {
            match record {
                Some(record) => writer.record(*now, record).unwrap(),
                None => writer.input(*now, input).unwrap(),
            }
        }
        writer.into_inner()
    }

    /// What is said of this machine, as it is said of the one in [`Evidence::of`]: with another name for PID 1.
    pub fn said(&self, text: &str) -> String {
        let names = self.inputs.iter().filter_map(|(_, input, _)| match input {
            Input::Kernel { event, .. } => parent_comm(event),
            _ => None,
        });
        let names: BTreeSet<String> = names.map(|comm| comm.to_string()).filter(|comm| !comm.is_empty()).collect();
        names.iter().fold(text.to_owned(), |text, name| text.replace(name, INIT))
    }

    /// The evidence of the cgroups whose path names one of `subjects`, of those who signalled or called them, and of nothing else.
    pub fn of(&self, subjects: &[&str]) -> Evidence {
        let mut scope = Scope::default();
        for (_, input, _) in &self.inputs {
            scope.find(input, subjects);
        }
        for (_, input, _) in &self.inputs {
            scope.find_others(input);
        }
        let kept = self.inputs.iter().filter(|(_, input, _)| scope.keeps(input));
        let inputs = kept.map(|(now, input, record)| {
            let mut input = input.clone();
            match &mut input {
                Input::Start(observation) => *observation = anonymous(observation),
                Input::Cgroup(fact) => fact.path = fact.path.as_deref().map(|path| plain(path, subjects)).map_err(Clone::clone),
                Input::Process(fact) if fact.tgid == Pid(1) => fact.comm = INIT.to_owned(),
                Input::Process(fact) => fact.cgroups.iter_mut().for_each(|(_, path)| *path = plain(path, subjects)),
                _ => {}
            }
            let record = record.clone().map(|record| without_init(&input, record));
            (*now, input, record)
        });
        Evidence {
            observation: anonymous(&self.observation),
            inputs: inputs.collect(),
        }
    }
}

/// What the machine calls PID 1 is its own affair.
const INIT: &str = "init";

/// A record whose sender, or whose process, is a child of PID 1 names it.
fn without_init(input: &Input, mut record: Vec<u8>) -> Vec<u8> {
    let offset = match input {
        Input::Kernel { event, .. } if parent_comm(event).is_some() => match event {
            Event::ProcessExec(_) => offset_of!(epitaph_ebpf::ProcessExec, parent_comm),
            _ => offset_of!(epitaph_ebpf::SignalGenerate, sender_parent_comm),
        },
        _ => return record,
    };
    let name = Comm::new(INIT).0;
    record[offset..offset + name.len()].copy_from_slice(&name);
    record
}

fn parent_comm(event: &Event) -> Option<Comm> {
    match event {
        Event::SignalGenerate(signal) => (signal.sender.ppid == Pid(1)).then_some(signal.sender_parent_comm),
        Event::ProcessExec(exec) => (exec.task.ppid == Pid(1)).then_some(exec.parent_comm),
        _ => None,
    }
}

/// The kernel's version stays, its build's name does not.
fn anonymous(observation: &Observation) -> Observation {
    let version = observation.kernel.split('-').next().unwrap_or_default();
    Observation {
        host: "node".to_owned(),
        kernel: version.to_owned(),
        ..observation.clone()
    }
}

/// A cgroup's path in which every name is the story's or means something to attribution, as systemd's do.
fn plain(path: &str, subjects: &[&str]) -> String {
    let is_known = |name: &&str| {
        name.is_empty()
            || [".slice", ".service", ".scope"].iter().any(|kind| name.ends_with(kind))
            || subjects.iter().any(|subject| name.contains(subject))
    };
    let names = path.split('/').map(|name| if is_known(&name) { name } else { "host" });
    names.collect::<Vec<_>>().join("/")
}

#[derive(Default)]
struct Scope {
    /// The story's own.
    own: BTreeSet<CgroupId>,
    /// Local ports of their sockets: of a refused client nothing else may be known.
    ports: BTreeSet<u16>,
    /// Cgroups and processes that records about the story name.
    cgroups: BTreeSet<CgroupId>,
    processes: BTreeSet<Pid>,
    /// Parents that `/proc` gave.
    parents: BTreeMap<Pid, Pid>,
}

impl Scope {
    fn find(&mut self, input: &Input, subjects: &[&str]) {
        let mut of_path = |cgroup: CgroupId, path: &str| {
            if subjects.iter().any(|subject| path.contains(subject)) {
                self.own.insert(cgroup);
            }
            // That the machine has one says that probes are told apart from clients.
            if path.contains("kubelet") {
                self.cgroups.insert(cgroup);
            }
        };
        match input {
            Input::Kernel {
                event: Event::CgroupMkdir(made),
                ..
            } => of_path(made.cgroup, made.path.as_deref().unwrap_or_default()),
            Input::Cgroup(fact) => of_path(fact.cgroup, fact.path.as_deref().unwrap_or_default()),
            Input::Process(fact) => {
                for (cgroup, path) in &fact.cgroups {
                    of_path(*cgroup, path);
                }
                self.parents.insert(fact.tgid, fact.ppid);
            }
            _ => {}
        }
        if let Input::Kernel {
            event: Event::Tcp(tcp), ..
        } = input
            && tcp.client.is_none()
            && tcp.cgroup.is_some_and(|cgroup| self.own.contains(&cgroup))
        {
            self.ports.insert(tcp.local.port());
        }
    }

    fn find_others(&mut self, input: &Input) {
        let Input::Kernel { event, .. } = input else { return };
        if !self.concerns(event) {
            return;
        }
        let (tasks, cgroups) = named(event);
        self.cgroups.extend(cgroups);
        for task in tasks {
            let mut line = vec![task.tgid, task.ppid];
            while let Some(parent) = line
                .last()
                .and_then(|last| self.parents.get(last))
                .filter(|parent| !line.contains(parent))
            {
                line.push(*parent);
            }
            self.processes.extend(line);
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        let (tasks, cgroups) = named(event);
        let by_port = |tcp: &Tcp| [tcp.local, tcp.remote].iter().any(|end| self.ports.contains(&end.port()));
        cgroups.iter().any(|cgroup| self.own.contains(cgroup))
            || matches!(event, Event::Tcp(tcp) if by_port(tcp))
            || matches!(event, Event::OomVictim(oom) if tasks.is_empty() && self.processes.contains(&oom.victim))
    }

    fn keeps(&self, input: &Input) -> bool {
        let knows = |cgroup: &CgroupId| self.own.contains(cgroup) || self.cgroups.contains(cgroup);
        match input {
            Input::Kernel { event, .. } => match event {
                Event::CgroupMkdir(made) => knows(&made.cgroup),
                Event::CgroupRmdir(gone) => knows(&gone.cgroup),
                event => self.concerns(event),
            },
            Input::Cgroup(fact) => knows(&fact.cgroup),
            Input::Process(fact) => {
                self.processes.contains(&fact.tgid) || fact.cgroups.iter().any(|(cgroup, _)| self.own.contains(cgroup))
            }
            _ => true,
        }
    }
}

/// The tasks that an event names, and all cgroups.
fn named(event: &Event) -> (Vec<Task>, Vec<CgroupId>) {
    let (tasks, mut cgroups) = match event {
        Event::SignalGenerate(signal) => (vec![signal.sender, signal.target], vec![]),
        Event::PeerAnnouncement(announcement) => (vec![announcement.task], vec![]),
        Event::SignalDiscarded(discarded) => (vec![discarded.task], vec![]),
        Event::SignalDeliver(deliver) => (vec![deliver.task], vec![]),
        Event::ProcessExit(exit) => (vec![exit.task], vec![]),
        Event::ProcessExec(exec) => (
            vec![exec.task],
            [Some(exec.parent_cgroup), exec.parent_v1_cgroup]
                .into_iter()
                .flatten()
                .collect(),
        ),
        Event::OomVictim(oom) => (oom.task.into_iter().collect(), vec![]),
        Event::CgroupMkdir(made) => (vec![], vec![made.cgroup]),
        Event::CgroupRmdir(gone) => (vec![], vec![gone.cgroup]),
        Event::Tcp(tcp) => (vec![], tcp.cgroup.into_iter().collect()),
    };
    cgroups.extend(tasks.iter().flat_map(|task| [Some(task.cgroup), task.v1_cgroup]).flatten());
    (tasks, cgroups)
}
