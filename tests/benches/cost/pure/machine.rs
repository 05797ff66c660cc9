//! A made-up machine full of containers, and what the probes would write of it: health checks that execute and end, workers
//! that their supervisors signal, and now and then a container that is stopped, drops its connections at exit, and is replaced.

use std::net::SocketAddr;
use std::ops::Range;

use epitaph_core::decode::encode::encode;
use epitaph_core::event::{
    Armed, CgroupMkdir, CgroupRmdir, Close, Disposition, Event, ExitStatus, ProcessExec, ProcessExit, SignalDeliver,
    SignalGenerate, SignalResult, TargetState, Task, Tcp, TcpCounts, TcpOp, TcpState, UnseenSockets,
};
use epitaph_core::ids::{CgroupId, Comm, Pid, Signal};
use epitaph_core::time::Boot;

/// Ten thousand records in a second of the machine's time.
const STEP_NS: u64 = 100_000;
/// Of the end of a container in [`Machine::end_all`].
const RECORDS_OF_END: u64 = 8;
const ROOT_CGROUP: u64 = 1;
const RUNTIME_CGROUP: u64 = 2;
const RUNTIME: u32 = 500;
const NETNS: u32 = 4_026_531_840;
const SIGHUP: Signal = Signal::new(1).unwrap();
/// Of so many things that happen, one is the stop of a container.
const STOPS: u64 = 500;

pub struct Machine {
    boot_ns: u64,
    step_ns: u64,
    random: u64,
    next_cgroup: u64,
    next_pid: u32,
    live: Vec<Container>,
    pub terminations: u64,
    bytes: Vec<u8>,
    records: Vec<Range<usize>>,
}

#[derive(Clone, Copy)]
struct Container {
    cgroup: u64,
    main: Process,
    worker: Process,
}

#[derive(Clone, Copy)]
struct Process {
    pid: u32,
    parent: u32,
    ns_pid: u32,
    cgroup: u64,
    start_ns: u64,
    comm: &'static str,
}

const RUNTIME_PROCESS: Process = Process {
    pid: RUNTIME,
    parent: 1,
    ns_pid: RUNTIME,
    cgroup: RUNTIME_CGROUP,
    start_ns: 1_000_000_000,
    comm: "containerd-shim",
};

impl Process {
    fn task(self) -> Task {
        let namespaced = self.cgroup != RUNTIME_CGROUP;
        Task {
            tgid: Pid(self.pid),
            tid: Pid(self.pid),
            ppid: Pid(self.parent),
            ns_level: namespaced.into(),
            ns_pid: self.ns_pid,
            pidns: if namespaced { NETNS } else { 0 },
            cgroup: CgroupId::v2(self.cgroup),
            v1_cgroup: None,
            container: None,
            start: Boot(self.start_ns),
            comm: Comm::new(self.comm),
        }
    }
}

impl Machine {
    pub fn new(live: usize) -> Machine {
        let none = Process {
            pid: 0,
            parent: 0,
            ns_pid: 0,
            cgroup: 0,
            start_ns: 0,
            comm: "",
        };
        let nothing = Container {
            cgroup: 0,
            main: none,
            worker: none,
        };
        Machine {
            boot_ns: 1_000_000_000_000,
            step_ns: STEP_NS,
            random: 0x9e37_79b9_7f4a_7c15,
            next_cgroup: 1_000,
            next_pid: 10_000,
            live: vec![nothing; live],
            terminations: 0,
            bytes: Vec::new(),
            records: Vec::new(),
        }
    }

    pub fn now(&self) -> Boot {
        Boot(self.boot_ns)
    }

    /// Path of a cgroup of the machine.
    pub fn path(cgroup: u64) -> String {
        match cgroup {
            RUNTIME_CGROUP => "/system.slice/containerd.service".to_owned(),
            _ => format!("/system.slice/cri-containerd-{cgroup:064x}.scope"),
        }
    }

    /// What was played last.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(|range| &self.bytes[range.clone()])
    }

    /// Everything there is comes to be.
    pub fn boot(&mut self) {
        self.clear();
        self.mkdir(RUNTIME_CGROUP, &Machine::path(RUNTIME_CGROUP));
        for index in 0..self.live.len() {
            self.start(index);
        }
    }

    /// At least `count` records of daily life.
    pub fn play(&mut self, count: usize) {
        self.clear();
        while self.records.len() < count {
            let index = self.random() as usize % self.live.len();
            match self.random() % STOPS {
                0 => {
                    self.stop(index);
                    self.start(index);
                }
                1..350 => self.health_check(index),
                _ => self.reload(index),
            }
        }
    }

    /// All containers are stopped and end, in the same second: each step of all before the next step.
    pub fn end_all(&mut self) {
        self.clear();
        let all = self.live.clone();
        self.step_ns = 1_000_000_000 / (RECORDS_OF_END * all.len() as u64);
        for of in &all {
            self.signal(RUNTIME_PROCESS, of.main, Signal::TERM);
        }
        for of in &all {
            self.deliver(of.main, Signal::TERM);
            self.signal(of.main, of.worker, Signal::TERM);
            self.deliver(of.worker, Signal::TERM);
        }
        let closed = TcpOp::State {
            old: TcpState::Listen,
            new: TcpState::Close,
        };
        for of in &all {
            self.tcp(of.cgroup, closed, 0, 0);
            self.exit(of.worker);
        }
        for of in &all {
            self.exit(of.main);
            self.record(&Event::CgroupRmdir(CgroupRmdir {
                cgroup: CgroupId::v2(of.cgroup),
            }));
        }
        self.terminations += all.len() as u64;
        self.step_ns = STEP_NS;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    fn start(&mut self, index: usize) {
        let cgroup = self.next_cgroup;
        self.next_cgroup += 1;
        self.mkdir(cgroup, &Machine::path(cgroup));
        let main = self.process(cgroup, RUNTIME, 1, "server");
        let worker = self.process(cgroup, main.pid, 7, "worker");
        self.exec(main, RUNTIME_CGROUP);
        self.exec(worker, cgroup);
        self.live[index] = Container { cgroup, main, worker };
    }

    fn health_check(&mut self, index: usize) {
        let Container { cgroup, .. } = self.live[index];
        let check = self.process(cgroup, RUNTIME, 20, "healthcheck");
        self.exec(check, RUNTIME_CGROUP);
        self.exit(check);
    }

    fn reload(&mut self, index: usize) {
        let Container { main, worker, .. } = self.live[index];
        self.signal(main, worker, SIGHUP);
        self.deliver(worker, SIGHUP);
    }

    /// A stop as it should be but for one connection.
    fn stop(&mut self, index: usize) {
        let Container { cgroup, main, worker } = self.live[index];
        self.signal(RUNTIME_PROCESS, main, Signal::TERM);
        self.deliver(main, Signal::TERM);
        let changed = |old, new| TcpOp::State { old, new };
        self.tcp(cgroup, changed(TcpState::Listen, TcpState::Close), 0, 0);
        for client in 0..8 {
            self.tcp(
                cgroup,
                changed(TcpState::Established, TcpState::FinWait1),
                40_000 + client,
                3_000,
            );
        }
        let refused = TcpOp::ResetSent { reason: 0, state: None };
        self.tcp(cgroup, refused, 40_001, 3_000);
        self.signal(main, worker, Signal::TERM);
        self.deliver(worker, Signal::TERM);
        self.exit(worker);
        self.exit(main);
        self.record(&Event::CgroupRmdir(CgroupRmdir {
            cgroup: CgroupId::v2(cgroup),
        }));
        self.terminations += 1;
    }

    fn process(&mut self, cgroup: u64, parent: u32, ns_pid: u32, comm: &'static str) -> Process {
        let pid = self.next_pid;
        self.next_pid += 1;
        Process {
            pid,
            parent,
            ns_pid,
            cgroup,
            start_ns: self.boot_ns,
            comm,
        }
    }

    fn mkdir(&mut self, id: u64, path: &str) {
        self.record(&Event::CgroupMkdir(CgroupMkdir {
            cgroup: CgroupId::v2(id),
            parent: CgroupId::v2(ROOT_CGROUP),
            container: None,
            path: Some(path.to_owned()),
        }));
    }

    fn exec(&mut self, process: Process, parent_cgroup: u64) {
        self.record(&Event::ProcessExec(ProcessExec {
            task: process.task(),
            parent_cgroup: CgroupId::v2(parent_cgroup),
            parent_v1_cgroup: None,
            parent_container: None,
            parent_comm: Comm::new("parent"),
        }));
    }

    fn exit(&mut self, process: Process) {
        self.record(&Event::ProcessExit(ProcessExit {
            task: process.task(),
            status: ExitStatus::Exited(0),
            armed: Some(Armed::No),
            held: None,
            unobserved: false,
            leaves_others: false,
            is_own: false,
        }));
    }

    fn signal(&mut self, sender: Process, target: Process, signal: Signal) {
        self.record(&Event::SignalGenerate(SignalGenerate {
            sender: sender.task(),
            sender_parent_comm: Comm::new("init"),
            sender_grandparent: Pid(1),
            target: target.task(),
            signal,
            code: 0,
            from_kernel: false,
            group: true,
            result: SignalResult::Delivered,
            disposition: Disposition::Handler,
            state: TargetState::default(),
            call: None,
            pending: None,
            armed: Some(Armed::No),
        }));
    }

    fn deliver(&mut self, process: Process, signal: Signal) {
        self.record(&Event::SignalDeliver(SignalDeliver {
            task: process.task(),
            signal,
            open: UnseenSockets::default(),
        }));
    }

    fn tcp(&mut self, cgroup: u64, op: TcpOp, client: u16, bytes: u64) {
        let address = |last, port| SocketAddr::from(([10, 0, 0, last], port));
        self.record(&Event::Tcp(Tcp {
            op,
            cgroup: Some(CgroupId::v2(cgroup)),
            container: None,
            netns: NETNS,
            local: address(1, 8_080),
            remote: address(2, client),
            has_socket: true,
            close: Close::default(),
            not_syn: false,
            client: None,
            sequence: None,
            sk_err: 0,
            tgid: Pid(0),
            counts: Some(TcpCounts {
                bytes_sent: bytes,
                bytes_received: bytes / 10,
                last_sent: 2,
                last_received: 1,
            }),
            progress: None,
        }));
    }

    fn record(&mut self, event: &Event) {
        self.boot_ns += self.step_ns;
        let begin = self.bytes.len();
        self.bytes.extend(encode(self.boot_ns, event));
        self.records.push(begin..self.bytes.len());
    }

    /// xorshift: the same machine in every run.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
