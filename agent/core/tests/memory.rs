//! The core keeps no more than [`Limits::memory`], whatever a hostile node feeds: by its own count and by the allocator's, and gives
//! all of it back. A test binary of its own, because the allocator counts for the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use epitaph_core::correlate::{Correlator, Limits};
use epitaph_core::event::*;
use epitaph_core::ids::{CgroupId, Comm, Pid, Signal};
use epitaph_core::input::{CgroupFact, CgroupMode, Input, Observation, ProbeState};
use epitaph_core::pod::PodsState;
use epitaph_core::time::{Boot, WallOffset};

/// Bytes that are allocated now.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[expect(unsafe_code, reason = "an allocator that counts, in a test only")]
// SAFETY: each call is the system allocator's; only a number is kept besides.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What the allocator may give out for each byte of the budget: ordered maps, texts that are shared, and a map that grows holds its old
/// table meanwhile.
const FACTOR: usize = 2;
/// What stays when nothing lives: maps of a few slots each.
const LEFT: usize = 1 << 20;

struct Node {
    core: Correlator,
    limits: Limits,
    now: Boot,
    before: usize,
    most: (usize, usize),
}

impl Node {
    fn new() -> Node {
        let before = ALLOCATED.load(Ordering::Relaxed);
        let limits = Limits::default();
        let mut node = Node {
            core: Correlator::new(limits),
            limits,
            now: Boot(3_600_000_000_000),
            before,
            most: (0, 0),
        };
        node.feed(Input::Start(Observation {
            boot_id: "boot".to_owned(),
            host: "host".to_owned(),
            kernel: "6.18".to_owned(),
            wall_offset: WallOffset(0),
            since: Boot(0),
            cgroups: CgroupMode::V2,
            nodes_in_containers: false,
            ticks_per_second: None,
            observes_followed: true,
        }));
        for name in Kind::ALL.iter().map(|kind| kind.name()) {
            let (name, state) = (name.to_owned(), ProbeState::Active);
            node.feed(Input::Probe { name, state });
        }
        node.feed(Input::Pods(PodsState::Synced));
        node
    }

    fn feed(&mut self, input: Input) {
        self.now = self.now.plus(Duration::from_micros(20));
        drop(self.core.handle(self.now, input));
        let memory = self.core.memory();
        assert!(memory <= self.limits.memory, "{memory} bytes of {}", self.limits.memory);
        let allocated = ALLOCATED.load(Ordering::Relaxed).saturating_sub(self.before);
        self.most = (self.most.0.max(memory), self.most.1.max(allocated));
    }

    fn event(&mut self, event: Event) {
        let at = self.now;
        self.feed(Input::Kernel { at, event });
    }

    fn mkdir(&mut self, id: u64, path: String) {
        let (cgroup, parent) = (CgroupId::v2(id), CgroupId::v2(2));
        let (container, path) = (None, Some(path));
        self.event(Event::CgroupMkdir(CgroupMkdir {
            cgroup,
            parent,
            container,
            path,
        }));
    }

    fn rmdir(&mut self, id: u64) {
        let cgroup = CgroupId::v2(id);
        self.event(Event::CgroupRmdir(CgroupRmdir { cgroup }));
    }

    /// Time passes; then hardly anything is kept.
    fn rests(&mut self, of: &str) {
        for _ in 0..500 {
            self.now = self.now.plus(Duration::from_secs(20));
            self.feed(Input::Tick);
        }
        let allocated = ALLOCATED.load(Ordering::Relaxed).saturating_sub(self.before);
        let (memory, most) = (self.core.memory(), self.most);
        assert!(
            most.1 <= FACTOR * self.limits.memory,
            "{of}: {} bytes were allocated at once",
            most.1
        );
        assert!(
            memory <= LEFT && allocated <= LEFT,
            "{of}: {memory} bytes are kept, {allocated} allocated"
        );
    }
}

fn task(cgroup: u64, tgid: u32) -> Task {
    Task {
        tgid: Pid(tgid),
        tid: Pid(tgid),
        ppid: Pid(1),
        ns_level: 1,
        ns_pid: 1,
        pidns: 77,
        cgroup: CgroupId::v2(cgroup),
        v1_cgroup: None,
        container: None,
        start: Boot(1_000_000),
        comm: Comm::new("app"),
    }
}

fn path(id: u64) -> String {
    format!("/system.slice/docker-{id:064x}.scope")
}

fn runtime() -> Task {
    Task {
        ns_level: 0,
        ns_pid: 1,
        ..task(1, 1)
    }
}

fn exec(cgroup: u64, tgid: u32) -> Event {
    Event::ProcessExec(ProcessExec {
        task: task(cgroup, tgid),
        parent_cgroup: CgroupId::v2(1),
        parent_v1_cgroup: None,
        parent_container: None,
        parent_comm: Comm::new("runc"),
    })
}

fn stop(cgroup: u64, tgid: u32) -> Event {
    Event::SignalGenerate(SignalGenerate {
        sender: runtime(),
        sender_parent_comm: Comm::new("shim"),
        sender_grandparent: Pid(0),
        target: task(cgroup, tgid),
        signal: Signal::TERM,
        code: 0,
        from_kernel: false,
        group: true,
        result: SignalResult::Delivered,
        disposition: Disposition::Handler,
        state: TargetState::default(),
        call: None,
        pending: None,
        armed: Some(Armed::ByThis),
    })
}

fn exit(cgroup: u64, tgid: u32) -> Event {
    Event::ProcessExit(ProcessExit {
        task: task(cgroup, tgid),
        status: ExitStatus::Exited(0),
        armed: Some(Armed::Already),
        held: None,
        unobserved: false,
        leaves_others: false,
        is_own: false,
    })
}

fn tcp(cgroup: u64, op: TcpOp, peer: u32) -> Tcp {
    let address = |host: u32, port: u32| SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + host)), port as u16);
    Tcp {
        op,
        cgroup: Some(CgroupId::v2(cgroup)),
        container: None,
        netns: 1,
        local: address(1 + cgroup as u32 % 1000, 80),
        remote: address(100_000 + peer, 1_024 + peer % 60_000),
        has_socket: true,
        close: Close::default(),
        not_syn: false,
        client: None,
        sequence: None,
        sk_err: 0,
        tgid: Pid(1),
        counts: None,
        progress: None,
    }
}

const ACCEPTED: TcpOp = TcpOp::State {
    old: TcpState::SynRecv,
    new: TcpState::Established,
};
const FAILED: TcpOp = TcpOp::State {
    old: TcpState::SynSent,
    new: TcpState::Close,
};

/// One test: the allocator counts for all threads.
#[test]
fn whatever_a_node_does_memory_is_bounded_and_given_back() {
    let mut node = Node::new();
    node.feed(Input::Cgroup(CgroupFact::of(CgroupId::v2(1), Ok("/init.scope".to_owned()))));
    nested(&mut node);
    node.rests("nested cgroups");
    connections(&mut node);
    node.rests("connections");
    subjects(&mut node);
    node.rests("containers");
    clients(&mut node);
    node.rests("failed connects");
    unknown(&mut node);
    node.rests("unknown cgroups");
}

/// 70,000 cgroups in one container, and in each a process.
fn nested(node: &mut Node) {
    node.mkdir(100, path(100));
    node.event(exec(100, 100));
    for i in 0..70_000 {
        let mut name = path(100);
        write!(name, "/a-name-that-is-rather-long-and-counts-for-itself-{i:06}").expect("a string");
        node.mkdir(1_000 + i, name);
        if i % 7 == 0 {
            node.event(exec(1_000 + i, 1_000));
        }
    }
    for i in 0..70_000 {
        node.rmdir(1_000 + i);
    }
    node.event(exit(100, 100));
    node.rmdir(100);
}

/// 200 terminations with 10,000 connections each, of which the half is in use.
fn connections(node: &mut Node) {
    let ids = || (0..200).map(|i| (200_000 + i, 2_000 + i as u32));
    for (id, tgid) in ids() {
        node.mkdir(id, path(id));
        node.event(exec(id, tgid));
        node.event(stop(id, tgid));
    }
    for peer in 0..10_000 {
        for (id, _) in ids() {
            let op = if peer % 2 == 0 {
                ACCEPTED
            } else {
                TcpOp::ResetSent { reason: 0, state: None }
            };
            node.event(Event::Tcp(tcp(id, op, peer)));
        }
    }
    for (id, tgid) in ids() {
        node.event(exit(id, tgid));
        node.rmdir(id);
    }
}

/// 8,000 containers of as many pods at once, each being stopped.
fn subjects(node: &mut Node) {
    let pod = |id: u64| {
        let uid = format!("{id:08x}_0000_0000_0000_000000000000");
        format!("/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{id:064x}.scope")
    };
    let ids = || (0..8_000).map(|i| (300_000 + i, 3_000 + i as u32));
    for (id, tgid) in ids() {
        node.mkdir(id, pod(id));
        node.event(exec(id, tgid));
        node.event(stop(id, tgid));
    }
    for (id, tgid) in ids() {
        node.event(exit(id, tgid));
        node.rmdir(id);
    }
}

/// 500 clients fail 80 times each, to as many addresses, while something terminates.
fn clients(node: &mut Node) {
    node.mkdir(500_000, path(500_000));
    node.event(exec(500_000, 50));
    node.event(stop(500_000, 50));
    for i in 0..40_000 {
        let failed = Tcp {
            client: Some(Client::Other),
            sk_err: 111,
            ..tcp(500_001 + u64::from(i % 500), FAILED, i)
        };
        let (local, remote) = (failed.remote, failed.local);
        let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0b00_0000 + i)), remote.port());
        node.event(Event::Tcp(Tcp { local, remote, ..failed }));
    }
    node.event(exit(500_000, 50));
    node.rmdir(500_000);
}

/// Events of 20,000 cgroups that nothing is known of.
fn unknown(node: &mut Node) {
    for i in 0..20_000 {
        node.event(exec(600_000 + i, 7));
    }
}
