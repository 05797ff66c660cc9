//! The probes, live on the running kernel. As root; what the machine cannot do is skipped, and says why.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus as Status, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use epitaph::decode::decode;
use epitaph::event::{
    Boot, CgroupId, Disposition, Event, ExitStatus, Pid, ProbeState, ProcessExit, Signal, SignalGenerate, SignalResult, Tcp,
    TcpOp, TcpState, si_code,
};
use epitaph::source::kernel::{Kernel, Options};
use epitaph_ebpf::{Kind, watch};
use epitaph_tests::skip::skip;
use nix::sys::signal::{self, kill};

const UNIFIED: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// Ends the test where it cannot run here.
macro_rules! need {
    ($what:expr, $reason:expr) => {
        match $what {
            Some(what) => what,
            None => {
                skip(std::thread::current().name().unwrap_or("probes"), $reason);
                return;
            }
        }
    };
}

/// The probes and what they have said so far.
struct Probes {
    kernel: Kernel,
    seen: Vec<(Boot, Event)>,
}

impl Probes {
    fn load() -> Option<Probes> {
        Self::with(&Options::default())
    }

    fn oldest() -> Option<Probes> {
        Self::with(&Options {
            oldest: true,
            ..Options::default()
        })
    }

    fn with(options: &Options) -> Option<Probes> {
        if !nix::unistd::geteuid().is_root() {
            return None;
        }
        let kernel = Kernel::load(options).unwrap_or_else(|error| panic!("{error}"));
        Some(Probes {
            kernel,
            seen: Vec::new(),
        })
    }

    fn drain(&mut self) {
        let seen = &mut self.seen;
        self.kernel
            .drain(|bytes| seen.push(decode(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"))));
    }

    /// The first event that `pick` takes, of those seen and those to come.
    fn wait<T>(&mut self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        for _ in 0..1000 {
            self.drain();
            if let Some(found) = self.seen.iter().find_map(|(_, event)| pick(event)) {
                return found;
            }
            sleep(Duration::from_millis(10));
        }
        panic!(
            "never seen: {what}; lost {:?}; of {} events the last: {:?}",
            self.kernel.lost(),
            self.seen.len(),
            self.seen.last()
        )
    }

    fn signal_to(&mut self, pid: u32, number: i32) -> SignalGenerate {
        self.wait(&format!("signal {number} to {pid}"), |event| match event {
            Event::SignalGenerate(s) if s.target.tgid == Pid(pid) && i32::from(s.signal.number()) == number => Some(*s),
            _ => None,
        })
    }

    fn exit_of(&mut self, pid: u32) -> ProcessExit {
        self.wait(&format!("the end of {pid}"), |event| exit_of(event, pid))
    }

    fn tcp(&mut self, what: &str, pick: impl Fn(&Tcp) -> bool) -> Tcp {
        self.wait(what, |event| match event {
            Event::Tcp(tcp) if pick(tcp) => Some(*tcp),
            _ => None,
        })
    }

    /// Everything until now: an event of our own making is the mark.
    fn settle(&mut self) {
        let mark = Command::new("true").spawn().and_then(|mut child| {
            kill(pid(child.id()), signal::Signal::SIGUSR1)?;
            child.wait()?;
            Ok(child.id())
        });
        let mark = mark.expect("spawn the mark");
        self.signal_to(mark, 10);
    }

    fn count(&self, pick: impl Fn(&Event) -> bool) -> usize {
        self.seen.iter().filter(|(_, event)| pick(event)).count()
    }
}

fn exit_of(event: &Event, pid: u32) -> Option<ProcessExit> {
    match event {
        Event::ProcessExit(exit) if exit.task.tgid == Pid(pid) => Some(*exit),
        _ => None,
    }
}

/// A cgroup that is removed at the end of the test.
struct Cgroup(PathBuf);

impl Cgroup {
    fn v2() -> Option<Cgroup> {
        let root = UNIFIED
            .iter()
            .map(Path::new)
            .find(|root| root.join("cgroup.controllers").exists())?;
        Some(Self::at(root))
    }

    fn v1(controller: &str) -> Option<Cgroup> {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        root.join("cgroup.procs").exists().then(|| Self::at(&root))
    }

    fn at(root: &Path) -> Cgroup {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let dir = root.join(format!(
            "epitaph-probes-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&dir).expect("make a cgroup");
        Cgroup(dir)
    }

    fn child(&self, name: &str) -> Cgroup {
        let dir = self.0.join(name);
        fs::create_dir(&dir).expect("make a cgroup");
        Cgroup(dir)
    }

    fn id(&self) -> CgroupId {
        CgroupId::v2(fs::metadata(&self.0).expect("stat a cgroup").ino())
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap_or_else(|error| panic!("write {file}: {error}"));
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        eprintln!("left behind: {}", self.0.display());
    }
}

/// A `probe-player`; killed and waited for at the end.
struct Player {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Player {
    fn start(args: &[&str]) -> Player {
        let mut child = Command::new(env!("CARGO_BIN_EXE_probe-player"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the player");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Player { child, out }
    }

    /// One that says `ready`, with what it says after that.
    fn ready(args: &[&str]) -> (Player, String) {
        let mut player = Self::start(args);
        let line = player.line();
        let rest = line
            .strip_prefix("ready")
            .unwrap_or_else(|| panic!("player said {line:?}"))
            .trim()
            .to_owned();
        (player, rest)
    }

    fn in_cgroup(cgroup: &Cgroup, role: &str) -> Player {
        Self::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), role]).0
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("read the player");
        line
    }

    fn say(&mut self) {
        self.child
            .stdin
            .as_mut()
            .expect("piped")
            .write_all(b"\n")
            .expect("write to the player");
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(&self, signal: signal::Signal) {
        kill(pid(self.pid()), signal).expect("send a signal");
    }

    fn wait(&mut self) -> Status {
        self.child.wait().expect("wait for the player")
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid(pid: u32) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(pid.cast_signed())
}

/// As wait(2) told its parent.
fn as_event(status: Status) -> ExitStatus {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitStatus::Exited(u8::try_from(code).expect("8 bits")),
        (_, Some(number)) => ExitStatus::Signaled {
            signal: Signal::new(number.cast_unsigned()).expect("a signal"),
            core_dumped: status.core_dumped(),
        },
        _ => panic!("neither exited nor signalled: {status:?}"),
    }
}

fn own_cgroup_is_root() -> bool {
    fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| text.lines().any(|line| line == "0::/"))
}

#[test]
fn every_probe_of_this_kernel_is_active() {
    let probes = need!(Probes::load(), "not root");
    for (name, state) in probes.kernel.probes() {
        match state {
            ProbeState::Active => {}
            ProbeState::Unsupported(reason) => println!("{name} is not for this kernel: {reason}"),
            ProbeState::Failed(error) => panic!("{name}: {error}"),
        }
    }
    assert_eq!(probes.kernel.probes().len(), 11);
}

#[test]
fn a_signal_tells_what_the_kernel_did_with_it() {
    let mut probes = need!(Probes::load(), "not root");
    let me = std::process::id();
    for (role, disposition, result, blocked, exiting) in [
        ("default", Disposition::Default, SignalResult::Delivered, false, true),
        ("ignore", Disposition::Ignore, SignalResult::Ignored, false, false),
        ("handler", Disposition::Handler, SignalResult::Delivered, false, false),
        ("block", Disposition::Default, SignalResult::Delivered, true, false),
    ] {
        let (player, _) = Player::ready(&[role]);
        player.kill(signal::Signal::SIGTERM);
        let seen = probes.signal_to(player.pid(), 15);
        assert_eq!((seen.disposition, seen.result), (disposition, result), "{role}");
        assert_eq!((seen.state.blocked, seen.state.exiting), (blocked, exiting), "{role}");
        assert_eq!((seen.code, seen.group), (si_code::USER, true), "{role}");
        assert_eq!((seen.sender.tgid, seen.target.ppid), (Pid(me), Pid(me)), "{role}");
        assert_eq!(seen.target.comm.to_string(), "probe-player", "{role}");
        assert_eq!(
            (seen.target.ns_pid, seen.target.is_ns_init()),
            (player.pid(), false),
            "{role}"
        );
        assert!(seen.target.start > seen.sender.start, "{role}");
    }
}

#[test]
fn a_handler_entered_is_told_and_a_default_action_is_not() {
    let mut probes = need!(Probes::load(), "not root");
    let (handler, _) = Player::ready(&["handler"]);
    let (default, _) = Player::ready(&["default"]);
    default.kill(signal::Signal::SIGTERM);
    handler.kill(signal::Signal::SIGTERM);
    let entered = probes.wait("handler entered", |event| match event {
        Event::SignalDeliver(deliver) if deliver.task.tgid == Pid(handler.pid()) => Some(*deliver),
        _ => None,
    });
    assert_eq!(entered.signal, Signal::TERM);
    probes.exit_of(default.pid());
    assert_eq!(
        probes.count(|e| matches!(e, Event::SignalDeliver(d) if d.task.tgid == Pid(default.pid()))),
        0
    );
}

#[test]
fn stopped_and_frozen_targets_are_told() {
    let mut probes = need!(Probes::load(), "not root");
    let (stopped, _) = Player::ready(&["default"]);
    stopped.kill(signal::Signal::SIGSTOP);
    let stat = format!("/proc/{}/stat", stopped.pid());
    while !fs::read_to_string(&stat).expect("stat").contains(") T ") {
        sleep(Duration::from_millis(1));
    }
    stopped.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(stopped.pid(), 15);
    assert!(
        seen.state.stopped && !seen.state.frozen && !seen.state.exiting,
        "{:?}",
        seen.state
    );

    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let frozen = Player::in_cgroup(&cgroup, "default");
    cgroup.write("cgroup.freeze", "1");
    while !fs::read_to_string(cgroup.0.join("cgroup.events"))
        .expect("events")
        .contains("frozen 1")
    {
        sleep(Duration::from_millis(1));
    }
    frozen.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(frozen.pid(), 15);
    assert!(seen.state.frozen && !seen.state.stopped, "{:?}", seen.state);
    assert_eq!(seen.target.cgroup, cgroup.id());
    cgroup.write("cgroup.freeze", "0");

    let Some(v1) = Cgroup::v1("freezer") else {
        println!("no v1 freezer on this machine, so none to be told");
        return;
    };
    let frozen = Player::in_cgroup(&v1, "default");
    v1.write("freezer.state", "FROZEN");
    while fs::read_to_string(v1.0.join("freezer.state")).expect("state").trim() != "FROZEN" {
        sleep(Duration::from_millis(1));
    }
    frozen.kill(signal::Signal::SIGUSR1);
    let seen = probes.signal_to(frozen.pid(), 10);
    v1.write("freezer.state", "THAWED");
    assert!(seen.state.frozen, "{:?}", seen.state);
}

#[test]
fn noise_is_dropped_in_the_kernel_and_stop_signals_of_any_number_are_kept() {
    let mut probes = need!(Probes::load(), "not root");
    let (player, _) = Player::ready(&["default"]);
    let send = |number: i32| {
        let status = Command::new("kill")
            .args([format!("-{number}"), player.pid().to_string()])
            .status()
            .expect("kill(1)");
        assert!(status.success());
    };
    for number in [17, 23, 18, 28] {
        send(number);
    }
    // 37, systemd's own: its default action ends the player.
    send(37);
    probes.signal_to(player.pid(), 37);
    let count = |number: u8| {
        probes.count(
            |e| matches!(e, Event::SignalGenerate(s) if s.target.tgid == Pid(player.pid()) && s.signal.number() == number),
        )
    };
    assert_eq!([17, 23, 18, 28, 37].map(count), [0, 0, 1, 1, 1]);
}

#[test]
fn init_of_a_pid_namespace_drops_what_it_does_not_handle_and_takes_the_rest_with_it() {
    let mut probes = need!(Probes::load(), "not root");
    let mut unshare = Command::new("unshare")
        .args(["--pid", "--fork", "sh", "-c", "sleep 1000 & sleep 1000 & wait"])
        .spawn()
        .expect("unshare(1)");
    let init = descendant(unshare.id());
    let kids = wait_for(|| Some(children_of(init)).filter(|kids| kids.len() == 2));

    kill(pid(init), signal::Signal::SIGTERM).expect("signal");
    let seen = probes.signal_to(init, 15);
    assert_eq!((seen.result, seen.disposition), (SignalResult::Ignored, Disposition::Default));
    assert!(seen.target.is_ns_init(), "{:?}", seen.target);
    let inum = fs::metadata(format!("/proc/{init}/ns/pid")).expect("ns").ino();
    assert_eq!(
        (u64::from(seen.target.pidns), seen.target.ns_level),
        (inum, seen.sender.ns_level + 1)
    );

    kill(pid(init), signal::Signal::SIGKILL).expect("signal");
    let exit = probes.exit_of(init);
    assert_eq!(
        exit.status,
        ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false
        }
    );
    assert!(exit.task.is_ns_init());
    for kid in kids {
        let seen = probes.signal_to(kid, 9);
        assert_eq!((seen.code, seen.sender.tgid), (si_code::KERNEL, Pid(init)));
        assert!(seen.target.ns_pid > 1);
        probes.exit_of(kid);
    }
    unshare.wait().expect("wait");
}

#[test]
fn a_process_ends_once_with_the_status_that_its_parent_got_in_whatever_order_its_threads_leave() {
    ends_are_told_once(need!(Probes::load(), "not root"));
}

#[test]
fn the_programs_for_old_kernels_tell_ends_once_too() {
    ends_are_told_once(need!(Probes::oldest(), "not root"));
}

fn ends_are_told_once(mut probes: Probes) {
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let dir = cgroup.0.to_str().expect("utf-8");
    let mut ended = Vec::new();
    for role in ["leader-first", "leader-last", "exit-group", "abort"]
        .into_iter()
        .cycle()
        .take(24)
    {
        let mut player = Player::start(&["--cgroup", dir, role]);
        let status = as_event(player.wait());
        ended.push((role, player.pid(), status));
    }
    for (role, pid, status) in &ended {
        let exit = probes.exit_of(*pid);
        assert_eq!(exit.status, *status, "{role}");
        assert_eq!(exit.task.cgroup, cgroup.id(), "{role}");
        assert_eq!(exit.task.comm.to_string(), "probe-player", "{role}");
    }
    probes.settle();
    for (role, pid, _) in ended {
        assert_eq!(probes.count(|event| exit_of(event, pid).is_some()), 1, "{role}");
    }
}

#[test]
fn an_unwatched_process_that_nobody_signalled_ends_unheard() {
    let mut probes = need!(Probes::load(), "not root");
    if !own_cgroup_is_root() {
        skip(
            "an_unwatched_process_that_nobody_signalled_ends_unheard",
            "the tests run in a cgroup of their own, which may be watched",
        );
        return;
    }
    let mut child = Command::new("true").spawn().expect("true(1)");
    child.wait().expect("wait");
    probes.settle();
    assert_eq!(probes.count(|event| exit_of(event, child.id()).is_some()), 0);
}

#[test]
fn what_is_born_in_a_new_cgroup_is_watched_from_its_first_moment() {
    let mut probes = need!(Probes::load(), "not root");
    let parent = need!(Cgroup::v2(), "no cgroup v2");
    let child = parent.child("pod");
    let grandchild = child.child("container");
    let procs = grandchild.0.join("cgroup.procs");
    // In one breath after mkdir, before user space has read the first record.
    let script = format!("echo 0 > {} && exec sh -c 'exit 3'", procs.display());
    let mut shell = Command::new("sh").args(["-c", &script]).spawn().expect("sh");
    shell.wait().expect("wait");

    let exit = probes.exit_of(shell.id());
    assert_eq!((exit.status, exit.task.cgroup), (ExitStatus::Exited(3), grandchild.id()));
    let exec = probes.wait("exec", |event| match event {
        Event::ProcessExec(exec) if exec.task.tgid == Pid(shell.id()) && exec.task.cgroup == grandchild.id() => Some(*exec),
        _ => None,
    });
    assert_eq!(exec.task.comm.to_string(), "sh");
    assert_ne!(exec.parent_cgroup, grandchild.id());
    let made = probes.wait("mkdir", |event| match event {
        Event::CgroupMkdir(made) if made.cgroup == grandchild.id() => Some(made.clone()),
        _ => None,
    });
    assert_eq!(made.parent, child.id());
    assert!(
        made.path.as_deref().is_some_and(|path| path.ends_with("/pod/container")),
        "{made:?}"
    );

    let id = grandchild.id();
    drop(grandchild);
    probes.wait("rmdir", |event| {
        matches!(event, Event::CgroupRmdir(gone) if gone.cgroup == id).then_some(())
    });
}

#[test]
fn a_cgroup_of_another_hierarchy_is_told_by_its_number() {
    let mut probes = need!(Probes::load(), "not root");
    let Some(cgroup) = Cgroup::v1("memory") else {
        println!("no v1 hierarchy on this machine, so none to be told");
        return;
    };
    let id = cgroup.id().id;
    let made = probes.wait("mkdir", |event| match event {
        Event::CgroupMkdir(made) if made.cgroup.id == id && made.cgroup.hierarchy != 0 => Some(made.clone()),
        _ => None,
    });
    let listed = fs::read_to_string("/proc/self/cgroup").expect("cgroups");
    assert!(
        listed
            .lines()
            .any(|line| line.starts_with(&format!("{}:memory:", made.cgroup.hierarchy))),
        "{made:?}\n{listed}"
    );
}

#[test]
fn an_oom_kill_names_its_victim() {
    let mut probes = need!(Probes::load(), "not root");
    let (cgroup, limit) = need!(
        Cgroup::v1("memory")
            .map(|c| (c, "memory.limit_in_bytes"))
            .or_else(|| Some((Cgroup::v2()?, "memory.max"))),
        "no memory controller"
    );
    need!(
        cgroup.0.join(limit).exists().then_some(()),
        "the memory controller is not enabled here"
    );
    cgroup.write(limit, "16777216");
    let mut player = Player::start(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "hog"]);
    let status = as_event(player.wait());
    assert_eq!(
        status,
        ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false
        }
    );
    let oom = probes.wait("oom", |event| match event {
        Event::OomVictim(oom) if oom.victim == Pid(player.pid()) => Some(*oom),
        _ => None,
    });
    assert_eq!(oom.trigger, Pid(player.pid()));
    assert!(oom.task.is_none_or(|task| task.comm.to_string() == "probe-player"));
    let seen = probes.signal_to(player.pid(), 9);
    assert_eq!(seen.code, si_code::KERNEL);
    assert_eq!(probes.exit_of(player.pid()).status, status);
}

#[test]
fn a_name_with_escape_sequences_stays_text() {
    let mut probes = need!(Probes::load(), "not root");
    let (player, _) = Player::ready(&["comm"]);
    player.kill(signal::Signal::SIGTERM);
    assert_eq!(
        probes.signal_to(player.pid(), 15).target.comm.to_string(),
        r"a\u{1b}[31m\xff\\z"
    );
}

#[test]
fn refused_reset_and_cut_connections_are_the_servers() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let (mut server, ports) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "serve"]);
    let [v4, v6]: [u16; 2] = ports
        .split(' ')
        .map(|port| port.parse().expect("port"))
        .collect::<Vec<_>>()
        .try_into()
        .expect("two");
    let hosts = [("127.0.0.1", v4), ("::1", v6)];
    let mut clients = hosts.map(|to| TcpStream::connect(to).expect("connect"));
    assert_eq!(server.line(), "accepted\n");
    // Unread bytes: the end of the server resets this one; the other it closes with a FIN.
    clients[0].write_all(b"never read").expect("write");

    probes.kernel.arm(cgroup.id()).expect("arm");
    server.say();
    assert_eq!(server.line(), "closed\n");
    for (host, port) in hosts {
        let closed = probes.tcp("listener closed", |tcp| {
            tcp.op
                == TcpOp::State {
                    old: TcpState::Listen,
                    new: TcpState::Close,
                }
                && tcp.local.port() == port
        });
        assert_eq!(
            (closed.cgroup, closed.by_exit, closed.tgid),
            (Some(cgroup.id()), false, Pid(server.pid())),
            "{host}"
        );
        assert_eq!(
            TcpStream::connect((host, port)).expect_err("nobody listens").kind(),
            ErrorKind::ConnectionRefused
        );
        let refused = probes.tcp("refused", |tcp| !tcp.has_socket && tcp.local.port() == port);
        assert_eq!(
            (refused.cgroup, refused.local.ip().to_string().as_str()),
            (Some(cgroup.id()), host)
        );
        assert!(
            matches!(refused.op, TcpOp::ResetSent { .. } | TcpOp::Error { errno: 111 }),
            "{refused:?}"
        );
        let netns = fs::metadata("/proc/self/ns/net").expect("ns").ino();
        assert_eq!(u64::from(refused.netns), netns);
    }

    server.kill(signal::Signal::SIGKILL);
    let client_port = |i: usize| clients[i].local_addr().expect("address").port();
    let reset = probes.tcp("reset", |tcp| {
        matches!(tcp.op, TcpOp::ResetSent { .. }) && tcp.remote.port() == client_port(0)
    });
    assert_eq!(
        (reset.cgroup, reset.has_socket, reset.by_exit),
        (Some(cgroup.id()), true, true)
    );
    assert_eq!(reset.counts.expect("counts").bytes_received, 10);
    let cut = probes.tcp("cut", |tcp| {
        tcp.op
            == TcpOp::State {
                old: TcpState::Established,
                new: TcpState::FinWait1,
            }
            && tcp.remote.port() == client_port(1)
    });
    assert_eq!((cut.cgroup, cut.by_exit, cut.local.port()), (Some(cgroup.id()), true, v6));
    assert_eq!((reset.foreign, cut.foreign), (false, false));
    assert_eq!(cut.remote.ip().to_string(), "::1");
    server.wait();

    // Disarmed, the port is nobody's again.
    probes.kernel.disarm(cgroup.id()).expect("disarm");
    probes.drain();
    probes.seen.clear();
    TcpStream::connect(hosts[0]).expect_err("nobody listens");
    probes.settle();
    assert_eq!(
        probes.count(|event| matches!(event, Event::Tcp(tcp) if tcp.local.port() == v4)),
        0
    );
}

#[test]
fn connections_of_a_listener_handed_over_are_told_to_the_cgroup_that_ends() {
    let mut probes = need!(Probes::load(), "not root");
    let maker = need!(Cgroup::v2(), "no cgroup v2");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let [made_in, served_in] = [&maker, &cgroup].map(|cgroup| cgroup.0.to_str().expect("utf-8"));
    // Armed or not, the cgroup that made the listener is not the one whose end this is.
    for both in [false, true] {
        let (mut server, ports) = Player::ready(&["--cgroup", made_in, "serve", served_in]);
        let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("port")).collect();
        let mut clients = [("127.0.0.1", ports[0]), ("::1", ports[1])].map(|to| TcpStream::connect(to).expect("connect"));
        assert_eq!(server.line(), "accepted\n");
        // Unread bytes: the end of the server resets this one; the other it closes with a FIN.
        clients[0].write_all(b"never read").expect("write");
        // Arrived, and not only sent: a busy machine takes its time.
        let server_end = format!("0100007F:{:04X}", ports[0]);
        wait_for(|| {
            let table = fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp");
            let arrived = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words[1] == server_end && words[3] == "01" && words[4].ends_with(":0000000A")
            };
            table.lines().any(arrived).then_some(())
        });
        probes.kernel.arm(cgroup.id()).expect("arm");
        if both {
            probes.kernel.arm(maker.id()).expect("arm");
        }
        server.kill(signal::Signal::SIGKILL);
        server.wait();
        let old = TcpState::Established;
        let client_port = |i: usize| clients[i].local_addr().expect("address").port();
        for (i, what, new) in [(0, "reset", TcpState::Close), (1, "cut", TcpState::FinWait1)] {
            let seen = probes.tcp(what, |tcp| {
                tcp.foreign && tcp.op == TcpOp::State { old, new } && tcp.remote.port() == client_port(i)
            });
            assert_eq!(
                (seen.cgroup, seen.by_exit, seen.has_socket, seen.local.port()),
                (Some(cgroup.id()), true, true, ports[i]),
                "{what}"
            );
        }
        let sent = probes.tcp("reset sent", |tcp| {
            tcp.foreign && matches!(tcp.op, TcpOp::ResetSent { .. }) && tcp.remote.port() == client_port(0)
        });
        assert_eq!((sent.cgroup, sent.local.port()), (Some(cgroup.id()), ports[0]));
        probes.settle();
        // Its own facts go on being told to the maker, where that is armed; the clients' sockets are nobody's here.
        let of_maker =
            |event: &Event| matches!(event, Event::Tcp(t) if t.cgroup == Some(maker.id()) && ports.contains(&t.local.port()));
        assert_eq!(probes.count(of_maker) > 0, both);
        let of_clients = |event: &Event| matches!(event, Event::Tcp(t) if t.foreign && !ports.contains(&t.local.port()));
        assert_eq!(probes.count(of_clients), 0);
        for armed in [&maker, &cgroup] {
            probes.kernel.disarm(armed.id()).expect("disarm");
        }
        probes.drain();
        probes.seen.clear();
    }
}

#[test]
fn where_no_reset_is_told_the_clients_error_stands_in() {
    let mut probes = need!(Probes::oldest(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let (mut server, ports) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "serve"]);
    let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("port")).collect();
    server.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(server.pid(), 15);
    // Old kernels give no BTF pointer to the sender: it was read by the helper.
    let comm = fs::read_to_string("/proc/self/comm").expect("comm");
    assert_eq!(
        (seen.sender.tgid, seen.sender.comm.to_string().as_str()),
        (Pid(std::process::id()), comm.trim())
    );
    server.wait();
    assert_eq!(probes.kernel.armed().iter().filter(|&&armed| armed == cgroup.id()).count(), 1);
    for (host, port) in [("127.0.0.1", ports[0]), ("::1", ports[1])] {
        TcpStream::connect((host, port)).expect_err("nobody listens");
        let refused = probes.tcp("refused", |tcp| {
            tcp.op == TcpOp::Error { errno: 111 } && tcp.local.port() == port
        });
        assert_eq!((refused.has_socket, refused.cgroup), (false, Some(cgroup.id())));
        assert_eq!(
            (
                refused.local.ip().to_string().as_str(),
                refused.remote.ip().to_string().as_str()
            ),
            (host, host)
        );
    }
}

#[test]
fn the_kernel_arms_by_itself_before_the_sockets_close() {
    let mut probes = need!(Probes::load(), "not root");
    if !own_cgroup_is_root() {
        skip("the_kernel_arms_by_itself_before_the_sockets_close", "not in the root cgroup");
        return;
    }
    // Killed from outside; and ended of its own accord, where no signal tells of it.
    for killed in [true, false] {
        let cgroup = need!(Cgroup::v2(), "no cgroup v2");
        let (mut server, ports) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "serve"]);
        let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("port")).collect();
        if killed {
            server.kill(signal::Signal::SIGKILL);
        } else {
            let _clients = [("127.0.0.1", ports[0]), ("::1", ports[1])].map(|to| TcpStream::connect(to).expect("connect"));
            assert_eq!(server.line(), "accepted\n");
            drop(server.child.stdin.take());
        }
        server.wait();
        for port in ports {
            let closed = probes.tcp("listener closed", |tcp| {
                tcp.op
                    == TcpOp::State {
                        old: TcpState::Listen,
                        new: TcpState::Close,
                    }
                    && tcp.local.port() == port
            });
            assert_eq!((closed.cgroup, closed.by_exit), (Some(cgroup.id()), true));
        }
    }
}

#[test]
fn what_finds_no_room_is_counted() {
    const SENT: usize = 500;
    let mut probes = need!(
        Probes::with(&Options {
            ring_bytes: 4096,
            ..Options::default()
        }),
        "not root"
    );
    let (player, _) = Player::ready(&["ignore"]);
    for _ in 0..SENT {
        player.kill(signal::Signal::SIGTERM);
    }
    probes.drain();
    let kept = probes.count(|e| matches!(e, Event::SignalGenerate(s) if s.target.tgid == Pid(player.pid())));
    let lost: Vec<(Kind, u64)> = probes.kernel.lost();
    let signals = lost
        .iter()
        .find(|(kind, _)| *kind == Kind::SignalGenerate)
        .map_or(0, |(_, count)| *count as usize);
    assert!(kept < SENT && kept + signals >= SENT, "{kept} kept, {lost:?}");
    assert!(
        probes.seen.len() <= probes.kernel.ring_records(),
        "{} records of at most {}",
        probes.seen.len(),
        probes.kernel.ring_records()
    );
    // A report is of what is new since the last one.
    assert!(probes.kernel.lost().iter().all(|(_, count)| (*count as usize) < SENT));
}

#[test]
fn records_wake_the_reader() {
    let mut probes = need!(Probes::load(), "not root");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .expect("runtime");
    let (player, _) = Player::ready(&["ignore"]);
    runtime.block_on(async {
        for round in 0..3 {
            player.kill(signal::Signal::SIGTERM);
            while probes.count(|e| matches!(e, Event::SignalGenerate(s) if s.target.tgid == Pid(player.pid()))) <= round {
                probes.kernel.readable().await.expect("wait");
                probes.drain();
            }
        }
    });
}

#[test]
fn only_v2_can_be_watched_and_what_is_forgotten_stays_forgotten() {
    let mut probes = need!(Probes::load(), "not root");
    assert!(probes.kernel.watch(CgroupId { hierarchy: 4, id: 7 }, watch::SELF).is_err());
    let ghost = CgroupId::v2(u64::MAX);
    probes.kernel.watch(ghost, watch::SELF).expect("watch");
    probes.kernel.watch(ghost, 0).expect("forget");
    probes.kernel.watch(ghost, 0).expect("forget twice");
    probes.kernel.arm(ghost).expect("arm");
    probes.kernel.arm(ghost).expect("arm twice");
    probes.kernel.disarm(ghost).expect("disarm");
    probes.kernel.disarm(ghost).expect("disarm twice");
}

#[test]
fn two_capabilities_are_enough_and_a_missing_one_is_named() {
    need!(nix::unistd::geteuid().is_root().then_some(()), "not root");
    let with = |capabilities: &str| {
        let output = Command::new("setpriv")
            .args(["--bounding-set", capabilities, "--"])
            .arg(std::env::current_exe().expect("own path"))
            .args(["--exact", "load_only", "--ignored", "--nocapture"])
            .output()
            .expect("setpriv(1)");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    // As many as with all capabilities: an old kernel has fewer tracepoints.
    let all = with("+all");
    let loaded = all
        .lines()
        .find(|line| line.starts_with("loaded: "))
        .unwrap_or_else(|| panic!("{all}"));
    let both = with("-all,+bpf,+perfmon");
    assert!(both.contains(loaded), "{both}");
    let neither = with("-all");
    assert!(neither.contains("needs CAP_BPF and CAP_PERFMON"), "{neither}");
    let one = with("-all,+bpf");
    assert!(one.contains("needs CAP_PERFMON"), "{one}");
}

/// Run by the test above with fewer capabilities.
#[test]
#[ignore = "a part of two_capabilities_are_enough_and_a_missing_one_is_named"]
fn load_only() {
    match Kernel::load(&Options::default()) {
        Ok(kernel) => {
            println!(
                "loaded: {} active",
                kernel
                    .probes()
                    .iter()
                    .filter(|(_, state)| *state == ProbeState::Active)
                    .count()
            );
            println!("{:?}", kernel.probes());
        }
        Err(error) => println!("{error}"),
    }
}

#[test]
fn a_wrong_btf_file_is_named() {
    need!(nix::unistd::geteuid().is_root().then_some(()), "not root");
    let file = tempfile::NamedTempFile::new().expect("file");
    fs::write(file.path(), "not BTF").expect("write");
    for path in [file.path().to_owned(), PathBuf::from("/nonexistent/btf")] {
        let options = Options {
            btf: Some(path.clone()),
            ..Options::default()
        };
        let error = Kernel::load(&options).err().expect("no BTF").to_string();
        assert!(
            error.contains(path.to_str().expect("utf-8")) && error.contains("--btf FILE"),
            "{error}"
        );
    }
}

fn wait_for<T>(mut what: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        if let Some(found) = what() {
            return found;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("waited in vain")
}

fn descendant(of: u32) -> u32 {
    wait_for(|| children_of(of).first().copied())
}

fn children_of(of: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let pids = fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| parent(pid) == Some(of)).collect()
}
