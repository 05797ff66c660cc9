//! A made-up machine full of containers, and what the probes would write of it: health checks that execute and end, workers
//! that their supervisors signal, and now and then a container that is stopped, drops its connections at exit, and is replaced.

use std::ops::Range;

use epitaph_core::time::Boot;
use epitaph_ebpf::{COMM_LEN, Kind, PATH_LEN, VERSION, disposition, tcp_flags, tcp_op};

/// Ten thousand records in a second of the machine's time.
const STEP_NS: u64 = 100_000;
const ROOT_CGROUP: u64 = 1;
const RUNTIME_CGROUP: u64 = 2;
const RUNTIME: u32 = 500;
const NETNS: u32 = 4_026_531_840;
/// Of so many things that happen, one is the stop of a container.
const STOPS: u64 = 500;

pub struct Machine {
    boot_ns: u64,
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

    /// What was played last.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(|range| &self.bytes[range.clone()])
    }

    /// Everything there is comes to be.
    pub fn boot(&mut self) {
        self.clear();
        self.mkdir(RUNTIME_CGROUP, "/system.slice/containerd.service");
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

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    fn start(&mut self, index: usize) {
        let cgroup = self.next_cgroup;
        self.next_cgroup += 1;
        self.mkdir(cgroup, &format!("/system.slice/cri-containerd-{:064x}.scope", cgroup));
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
        self.exit(check, 0);
    }

    fn reload(&mut self, index: usize) {
        let Container { main, worker, .. } = self.live[index];
        self.signal(main, worker, 1, disposition::HANDLER);
        self.deliver(worker, 1);
    }

    /// A stop as it should be but for one connection.
    fn stop(&mut self, index: usize) {
        let Container { cgroup, main, worker } = self.live[index];
        let runtime = Process {
            pid: RUNTIME,
            parent: 1,
            ns_pid: RUNTIME,
            cgroup: RUNTIME_CGROUP,
            start_ns: 1_000_000_000,
            comm: "containerd-shim",
        };
        self.signal(runtime, main, 15, disposition::HANDLER);
        self.deliver(main, 15);
        self.tcp(cgroup, tcp_op::STATE, 10, 7, 0, 0);
        for client in 0..8 {
            self.tcp(cgroup, tcp_op::STATE, 1, 4, 40_000 + client, 3_000);
        }
        self.tcp(cgroup, tcp_op::RESET_SENT, 0, 0, 40_001, 3_000);
        self.signal(main, worker, 15, disposition::HANDLER);
        self.deliver(worker, 15);
        self.exit(worker, 0);
        self.exit(main, 0);
        let record = self.begin(Kind::CgroupRmdir);
        self.u64(cgroup);
        self.u64(0);
        self.finish(record);
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
        let record = self.begin(Kind::CgroupMkdir);
        self.u64(id);
        self.u64(ROOT_CGROUP);
        self.u32(0);
        self.u32(path.len() as u32);
        self.padded(path, PATH_LEN);
        self.finish(record);
    }

    fn exec(&mut self, process: Process, parent_cgroup: u64) {
        let record = self.begin(Kind::ProcessExec);
        self.task(process);
        self.u64(parent_cgroup);
        self.u64(0);
        self.padded("parent", COMM_LEN);
        self.finish(record);
    }

    fn exit(&mut self, process: Process, status: u32) {
        let record = self.begin(Kind::ProcessExit);
        self.task(process);
        self.u32(status);
        self.u32(0);
        self.finish(record);
    }

    fn signal(&mut self, sender: Process, target: Process, sig: u32, disposition: u8) {
        let record = self.begin(Kind::SignalGenerate);
        self.task(sender);
        self.task(target);
        self.padded("init", COMM_LEN);
        self.u32(1);
        self.u32(sig);
        self.u32(0);
        // Group, result, disposition.
        self.bytes.extend([1, 0, disposition, 0]);
        self.u64(0);
        self.finish(record);
    }

    fn deliver(&mut self, process: Process, sig: u32) {
        let record = self.begin(Kind::SignalDeliver);
        self.task(process);
        self.u32(sig);
        self.u32(0);
        self.finish(record);
    }

    fn tcp(&mut self, cgroup: u64, op: u8, old: u8, new: u8, remote_port: u16, bytes: u64) {
        let address = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last];
        let record = self.begin(Kind::Tcp);
        self.u64(cgroup);
        self.u32(NETNS);
        self.bytes.extend([op, old, new, 0]);
        self.bytes.extend(address(1));
        self.bytes.extend(address(2));
        self.bytes.extend(8_080_u16.to_le_bytes());
        self.bytes.extend(remote_port.to_le_bytes());
        self.u32(tcp_flags::FULL_SOCKET | tcp_flags::COUNTS);
        // Error, reason, current's process, jiffies of the last send and receive, padding.
        for value in [0, 0, 0, 2, 1, 0] {
            self.u32(value);
        }
        self.u64(bytes);
        self.u64(bytes / 10);
        self.finish(record);
    }

    fn task(&mut self, process: Process) {
        let namespaced = process.cgroup != RUNTIME_CGROUP;
        self.u32(process.pid);
        self.u32(process.pid);
        self.u32(process.parent);
        self.u32(namespaced.into());
        self.u32(process.ns_pid);
        self.u32(if namespaced { NETNS } else { 0 });
        self.u64(process.cgroup);
        self.u64(0);
        self.u64(process.start_ns);
        self.padded(process.comm, COMM_LEN);
    }

    fn begin(&mut self, kind: Kind) -> usize {
        self.boot_ns += STEP_NS;
        let begin = self.bytes.len();
        self.bytes.extend((kind as u16).to_le_bytes());
        self.bytes.extend(VERSION.to_le_bytes());
        self.u32(0);
        self.u64(self.boot_ns);
        begin
    }

    fn finish(&mut self, begin: usize) {
        self.records.push(begin..self.bytes.len());
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn padded(&mut self, text: &str, length: usize) {
        let end = self.bytes.len() + length;
        self.bytes.extend(text.as_bytes());
        self.bytes.resize(end, 0);
    }

    /// xorshift: the same machine in every run.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
