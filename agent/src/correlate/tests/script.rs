//! Text timelines: a script of facts → inputs, and outputs → text.
//!
//! One fact per line, `+SECONDS verb …`. Standing cast: `systemd` (PID 1), `shim` and its child `runc` (in containerd.service),
//! `bash` (a shell of the host's). `proc NAME key=value…` adds to it: `in=CGROUP pid=N ns=PID level=N start=+S comm=TEXT
//! parent=NAME`. Cgroups: `mkdir NAME` makes a container, `mkdir NAME.service` a unit,
//! `mkdir NAME.service/NAME` a container below one, `mkdir NAME>NAME` one inside another, `mkdir POD:NAME` one of a pod (see `pods/cast.rs`, also for what the API says).

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::pods::cast::Cast;
use crate::correlate::{Correlator, Limits};
use crate::event::*;
use crate::pod::{ApiClock, PodsState};
use crate::termination::Output;

pub(super) struct Script {
    /// Own time, input. In the order of the script.
    pub inputs: Vec<(Boot, Input)>,
}

const CONTAINERD: CgroupId = CgroupId::v2(10);
const HOST: CgroupId = CgroupId::v2(11);
const INIT: CgroupId = CgroupId::v2(12);
/// Scripts begin an hour after boot, so that "long before" exists.
pub(super) const ZERO: Boot = Boot(3_600_000_000_000);

struct Parser {
    cgroups: HashMap<String, CgroupId>,
    paths: HashMap<String, String>,
    tasks: HashMap<String, Task>,
    parents: HashMap<Pid, Task>,
    inputs: Vec<(Boot, Input)>,
    api: Cast,
}

pub(super) fn parse(script: &str) -> Script {
    let mut parser = Parser {
        cgroups: HashMap::new(),
        paths: HashMap::new(),
        tasks: HashMap::new(),
        parents: HashMap::new(),
        inputs: Vec::new(),
        api: Cast::default(),
    };
    // Unless the script says when the observation began, it did long before.
    if !script.lines().any(|line| line.split_whitespace().nth(1) == Some("start")) {
        parser.begin(Boot(0));
    }
    for (name, cgroup) in [("containerd", CONTAINERD), ("host", HOST), ("init", INIT)] {
        parser.cgroups.insert(name.to_owned(), cgroup);
    }
    for (name, pid, ppid, cgroup) in [
        ("systemd", 1, 0, INIT),
        ("shim", 50, 1, CONTAINERD),
        ("runc", 60, 50, CONTAINERD),
        ("bash", 70, 69, HOST),
    ] {
        parser.cast(name, task(pid, ppid, cgroup, Boot(pid.into()), name));
    }
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        parser.line(line);
    }
    Script { inputs: parser.inputs }
}

impl Parser {
    fn begin(&mut self, since: Boot) {
        let observation = Observation {
            boot_id: "boot".to_owned(),
            host: "host".to_owned(),
            kernel: "6.18".to_owned(),
            wall_offset: WallOffset(0),
            since,
            cgroups: CgroupMode::V2,
        };
        self.inputs.push((since, Input::Start(observation)));
        let sockets = ["inet_sock_set_state", "tcp_send_reset"];
        for name in Kind::ALL.iter().map(|kind| kind.name()).chain(sockets) {
            let (name, state) = (name.to_owned(), ProbeState::Active);
            self.inputs.push((since, Input::Probe { name, state }));
        }
        for (cgroup, path) in [
            (CONTAINERD, "/system.slice/containerd.service"),
            (HOST, "/user.slice"),
            (INIT, "/init.scope"),
        ] {
            let path = Ok(path.to_owned());
            self.inputs.push((since, Input::Cgroup(CgroupFact { cgroup, path })));
        }
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0] == "proc" {
            return self.proc(&words[1..]);
        }
        if words[0] == "pod" {
            return self.api.declare(&words[1..]);
        }
        let at = time(words[0]);
        let rest = &words[2..];
        let event = match words[1] {
            "start" => return self.begin(at),
            "mkdir" => self.mkdir(rest[0], rest.get(1).and_then(|word| word.strip_prefix("as="))),
            "rmdir" => Event::CgroupRmdir(CgroupRmdir {
                cgroup: self.cgroups[rest[0]],
            }),
            "exec" => self.exec(rest),
            "found" => return self.found(at, rest[0]),
            "enter" => Event::SignalDeliver(SignalDeliver {
                task: self.task(rest[0]),
                signal: signal(rest[1]),
            }),
            "exit" => Event::ProcessExit(ProcessExit {
                task: self.task(rest[0]),
                status: status(&rest[1..]),
            }),
            "oom" => {
                let task = self.task(rest[0]);
                Event::OomVictim(OomVictim {
                    victim: task.tgid,
                    task: (!rest.contains(&"pid-only")).then_some(task),
                    trigger: task.tgid,
                })
            }
            "tcp" => self.tcp(rest),
            "lost" => {
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == rest[0]).expect("a kind");
                let (since, count) = (time(rest[1]), rest[2].parse().expect("a count"));
                return self.inputs.push((at, Input::Lost { kind, since, count }));
            }
            "probe" => {
                let state = match rest.get(1).and_then(|word| word.strip_prefix("by=")) {
                    Some(by) => ProbeState::Substituted { by: by.to_owned() },
                    None => ProbeState::Unsupported("not on this kernel".to_owned()),
                };
                let name = rest[0].to_owned();
                return self.inputs.push((at, Input::Probe { name, state }));
            }
            "api" => {
                let state = match rest[0] {
                    "synced" => PodsState::Synced,
                    _ => PodsState::Away {
                        reason: rest.get(1).map(|reason| (*reason).to_owned()),
                    },
                };
                return self.inputs.push((at, Input::Pods(state)));
            }
            "pod" => {
                let mut api = std::mem::take(&mut self.api);
                let input = api.version(at, rest, |name| self.cgroup(name));
                self.api = api;
                return self.inputs.push((at, input));
            }
            "gone" => return self.inputs.push((at, self.api.gone(at, rest))),
            "event" => return self.inputs.push((at, self.api.event(at, rest))),
            "events" => return self.inputs.push((at, self.api.events(at, rest))),
            // The API server's clock minus ours, milliseconds, at least and at most.
            "skew" => {
                let nanos = |word: &str| word.parse::<i64>().expect("milliseconds") * 1_000_000;
                let (earliest, latest) = (nanos(rest[0]), nanos(rest[1]));
                return self.inputs.push((at, Input::ApiClock(ApiClock { earliest, latest })));
            }
            "tick" => return self.inputs.push((at, Input::Tick)),
            "end" => return self.inputs.push((at, Input::End)),
            name => self.signal(name, rest),
        };
        self.inputs.push((at, Input::Kernel { at, event }));
    }

    fn proc(&mut self, words: &[&str]) {
        let mut process = task(0, 1, HOST, ZERO, words[0]);
        process.pidns = 4_026_531_836;
        for word in &words[1..] {
            let (key, value) = word.split_once('=').expect("key=value");
            match key {
                "in" => process.cgroup = self.cgroup(value),
                "pid" => process.tgid = Pid(value.parse().expect("a pid")),
                "level" => process.ns_level = value.parse().expect("a level"),
                "start" => process.start = time(value),
                "comm" => process.comm = Comm::new(&value.replace("\\e", "\x1b")),
                "parent" => process.ppid = self.task(value).tgid,
                "ns" => {
                    process.ns_pid = value.parse().expect("a pid");
                    process.ns_level = process.ns_level.max(1);
                    process.pidns = 77;
                }
                _ => panic!("unknown key {key}"),
            }
        }
        process.tid = process.tgid;
        if process.ns_pid == 0 {
            process.ns_pid = process.tgid.0;
        }
        self.cast(words[0], process);
    }

    fn cast(&mut self, name: &str, task: Task) {
        self.tasks.insert(name.to_owned(), task);
        self.parents.insert(task.tgid, task);
    }

    fn mkdir(&mut self, name: &str, like: Option<&str>) -> Event {
        let cgroup = self.cgroup(name);
        let shown = like.map_or(cgroup, |like| self.cgroup(like));
        let inside = name
            .split_once('>')
            .map(|(outer, _)| format!("{}/docker/{:0<64x}", self.paths[outer], cgroup.id));
        let pod = || name.split_once(':').map(|(pod, _)| self.api.path(pod, shown));
        let path = inside
            .or_else(pod)
            .unwrap_or_else(|| match (name.strip_suffix(".service"), name.split_once('/')) {
                (Some(_), _) => format!("/system.slice/{name}"),
                (None, Some((unit, _))) => format!("/system.slice/{unit}/libpod-payload-{:0<64x}", cgroup.id),
                (None, None) => format!("/system.slice/docker-{:0<64x}.scope", cgroup.id),
            });
        self.paths.insert(name.to_owned(), path.clone());
        Event::CgroupMkdir(CgroupMkdir {
            cgroup,
            parent: CgroupId::v2(2),
            path: Some(path),
        })
    }

    fn exec(&self, words: &[&str]) -> Event {
        let task = self.task(words[0]);
        let parent = self.parents.get(&task.ppid).expect("its parent");
        Event::ProcessExec(ProcessExec {
            task,
            parent_cgroup: parent.cgroup,
            parent_beside: parent.beside,
            parent_comm: parent.comm,
        })
    }

    fn found(&mut self, at: Boot, name: &str) {
        let task = self.task(name);
        let of_pod = self.cgroups.iter().find(|(_, cgroup)| **cgroup == task.cgroup);
        let of_pod = of_pod.and_then(|(name, cgroup)| Some(self.api.path(name.split_once(':')?.0, *cgroup)));
        let docker = || format!("/system.slice/docker-{:0<64x}.scope", task.cgroup.id);
        let fact = ProcessFact {
            tgid: task.tgid,
            ppid: task.ppid,
            start: Boot(task.start.0 / 10_000_000 * 10_000_000),
            ns_level: task.ns_level,
            ns_pid: task.ns_pid,
            comm: task.comm.to_string(),
            cgroups: vec![(task.cgroup, of_pod.unwrap_or_else(docker))],
        };
        self.inputs.push((at, Input::Process(fact)));
    }

    /// `TERM bash -> main ignored default blocked …`
    fn signal(&self, name: &str, words: &[&str]) -> Event {
        let (sender, target) = (self.task(words[0]), self.task(words[2]));
        let words = &words[3..];
        let has = |word: &str| words.contains(&word);
        let parent = self.parents.get(&sender.ppid);
        Event::SignalGenerate(SignalGenerate {
            sender,
            sender_parent_comm: parent.map_or(Comm::default(), |parent| parent.comm),
            sender_grandparent: parent.map_or(Pid(0), |parent| parent.ppid),
            target,
            signal: signal(name),
            code: match () {
                () if has("kernel") => si_code::KERNEL,
                () if has("fault") => 1,
                () if has("thread") => si_code::TKILL,
                () => si_code::USER,
            },
            group: !has("cgroup.kill") && !has("thread") && !has("fault"),
            result: match () {
                () if has("ignored") => SignalResult::Ignored,
                () if has("pending") => SignalResult::AlreadyPending,
                () => SignalResult::Delivered,
            },
            disposition: match () {
                () if has("default") => Disposition::Default,
                () if has("ignore") => Disposition::Ignore,
                () if has("handler") => Disposition::Handler,
                () => Disposition::Unknown,
            },
            state: TargetState {
                blocked: has("blocked"),
                stopped: has("stopped"),
                frozen: has("frozen"),
                exiting: has("exiting"),
                traced: has("traced"),
            },
        })
    }

    /// `tcp CGROUP closed|accepted|refused|refused-late|client-refused|queued|reset|cut|half-closed LOCAL_PORT REMOTE_PORT
    /// [server=IP] [client=IP] [errno=N] [kubelet]; connected|connect-failed|connect-reset are of the client's own socket
    /// [by-exit] [foreign] [sent=N] [received=N] [last-sent=N] [last-received=N]`
    fn tcp(&mut self, words: &[&str]) -> Event {
        let value = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let number = |key: &str| value(key).map_or(0, |value| value.parse::<u64>().expect("a number"));
        let port = |i: usize| words.get(i).and_then(|word| word.parse().ok()).unwrap_or(0);
        use TcpState::*;
        let state = |old, new| TcpOp::State { old, new };
        let (op, has_socket, by_exit) = match words[1] {
            "closed" => (state(Listen, Close), true, false),
            "queued" => (state(Established, Close), true, false),
            "refused-late" => (TcpOp::ResetSent { reason: 0 }, false, false),
            // Of the client's own socket; the ports are in the server's order all the same.
            "connected" => (state(SynSent, Established), true, false),
            "connect-failed" => (state(SynSent, Close), true, false),
            "connect-reset" => (TcpOp::ResetReceived, true, false),
            "accepted" => (state(SynRecv, Established), true, false),
            "refused" => (TcpOp::ResetSent { reason: 0 }, false, false),
            "client-refused" => (TcpOp::ResetReceived, false, false),
            "client-error" => (TcpOp::Error { errno: 111 }, false, false),
            "reset" => (TcpOp::ResetSent { reason: 0 }, true, false),
            "cut" => (state(Established, FinWait1), true, true),
            "closed-by-itself" => (state(Established, FinWait1), true, false),
            "half-closed" => (state(CloseWait, LastAck), true, true),
            verb => panic!("unknown tcp verb {verb}"),
        };
        let counts = words
            .iter()
            .any(|word| word.contains("sent=") || word.contains("received="))
            .then(|| TcpCounts {
                bytes_sent: number("sent"),
                bytes_received: number("received"),
                last_sent: number("last-sent") as u32,
                last_received: number("last-received") as u32,
            });
        let client = words[1].starts_with("connect").then(|| match words.contains(&"kubelet") {
            true => Client::Kubelet,
            false => Client::Other,
        });
        let ip = |key: &str, default| value(key).unwrap_or(default).parse::<IpAddr>().expect("an address");
        let server = SocketAddr::from((ip("server", "10.0.0.1"), port(2)));
        let peer = SocketAddr::from((ip("client", "10.0.0.2"), port(3)));
        let (local, remote) = if client.is_some() { (peer, server) } else { (server, peer) };
        Event::Tcp(Tcp {
            op,
            cgroup: Some(self.cgroup(words[0])),
            netns: 1,
            local,
            remote,
            has_socket,
            unheld: words[1] == "queued",
            not_syn: words[1] == "refused-late",
            client,
            by_exit: by_exit || words.contains(&"by-exit"),
            foreign: words.contains(&"foreign"),
            sk_err: number("errno") as u32,
            tgid: Pid(1),
            counts,
        })
    }

    fn cgroup(&mut self, name: &str) -> CgroupId {
        let next = CgroupId::v2(100 + self.cgroups.len() as u64);
        *self.cgroups.entry(name.to_owned()).or_insert(next)
    }

    fn task(&self, name: &str) -> Task {
        *self.tasks.get(name).unwrap_or_else(|| panic!("no process {name}"))
    }
}

fn task(pid: u32, ppid: u32, cgroup: CgroupId, start: Boot, comm: &str) -> Task {
    Task {
        tgid: Pid(pid),
        tid: Pid(pid),
        ppid: Pid(ppid),
        ns_level: 0,
        ns_pid: pid,
        pidns: 4_026_531_836,
        cgroup,
        beside: None,
        start,
        comm: Comm::new(comm),
    }
}

pub(super) fn time(word: &str) -> Boot {
    let (sign, seconds) = word.split_at(1);
    let seconds = Duration::from_secs_f64(seconds.parse().expect("seconds"));
    if sign == "-" {
        ZERO.minus(seconds)
    } else {
        ZERO.plus(seconds)
    }
}

fn signal(name: &str) -> Signal {
    let number = (1..=64).find(|&n| Signal::new(n).is_some_and(|s| s.to_string() == format!("SIG{name}")));
    Signal::new(number.unwrap_or_else(|| panic!("no signal {name}"))).expect("a signal")
}

fn status(words: &[&str]) -> ExitStatus {
    match words[0].parse() {
        Ok(code) => ExitStatus::Exited(code),
        Err(_) => ExitStatus::Signaled {
            signal: signal(words[0]),
            core_dumped: words.contains(&"core"),
        },
    }
}

/// Feeds a script in its own order, then time until all is final.
pub(super) fn run(script: &str) -> Vec<Output> {
    let mut correlator = Correlator::new(Limits::default());
    let mut out = Vec::new();
    let mut last = ZERO;
    for (at, input) in parse(script).inputs {
        last = last.max(at);
        out.extend(correlator.handle(at, input));
    }
    out.extend(correlator.handle(last.plus(Duration::from_secs(3)), Input::Tick));
    out
}

pub(super) fn show(outputs: &[Output], evidence: bool) -> String {
    let mut text = String::new();
    for output in outputs {
        match output {
            Output::Early(early) => writeln!(text, "early: {}", early.sentence),
            Output::ChildOomKilled { subject, oom } => writeln!(text, "child oom in {subject}: {} pid {}", oom.comm, oom.tgid),
            Output::Terminated(t) => {
                let v = &t.verdict;
                let axes = format!("{:?}/{:?}/{:?}", v.cause, v.exit, v.traffic);
                writeln!(text, "{}: {axes}\n  {}", v.headline, v.sentence).expect("a string");
                if let Some(remedy) = &v.remedy {
                    writeln!(text, "  fix: {remedy}").expect("a string");
                }
                if evidence {
                    for line in &v.evidence {
                        let at = verdict_time(line.at);
                        writeln!(text, "  {at} {}: {}", line.source.name(), line.text).expect("a string");
                    }
                }
                Ok(())
            }
            Output::Forget(_)
            | Output::OptedOut { .. }
            | Output::Stuck(_)
            | Output::Watch(_)
            | Output::Workload(_)
            | Output::WorkloadGone(_)
            | Output::PodTerminated(_) => Ok(()),
            Output::Dropped { reason, count } => writeln!(text, "dropped {}: {count}", reason.name()),
        }
        .expect("a string");
    }
    text
}

fn verdict_time(at: Boot) -> String {
    let after = at.0 as f64 - ZERO.0 as f64;
    format!("{:+.3}", after / 1e9)
}
