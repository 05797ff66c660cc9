//! Text timelines, one per rule and one per pair of rules that could be confused; and what holds for any timeline.

mod below;
mod containers;
mod doubt;
mod endings;
mod evictions;
mod forgeries;
mod handled;
mod holes;
mod hosts;
mod inits;
mod killed;
mod kills;
mod losses;
mod lost;
mod monotone;
mod nested;
mod node;
mod oracle;
mod peers;
mod pods;
mod processes;
pub(super) mod properties;
mod remedies;
mod resumed;
mod senders;
mod shared_pids;
mod sockets;
mod stops;
mod strangers;
mod successors;
mod unseen;
mod unsignalled;
mod wrappers;

use std::collections::HashSet;

use expect_test::Expect;

use crate::event::{CgroupRmdir, Event, Task};
use crate::fixtures::recorded::Recorded;
use crate::fixtures::script;
use crate::ids::CgroupId;
use crate::input::{CgroupFact, CgroupMode, Input};
use crate::report::Answers;

/// The output of a script, without the evidence lines.
fn check(script: &str, expect: Expect) {
    expect.assert_eq(&script::show(&script::run(script), false));
}

/// The same with evidence lines.
fn check_evidence(script: &str, expect: Expect) {
    expect.assert_eq(&script::show(&script::run(script), true));
}

/// Of v1, with a cgroup for each container.
const HIERARCHIES: [u32; 2] = [9, 3];

/// The output of a script on a machine with v1 alongside v2, with containers in v1 only.
fn hybrid(script: &str) -> String {
    let mut correlator = Recorded::default();
    let mut out = Vec::new();
    for (now, mut input) in script::parse(script).inputs {
        match &mut input {
            Input::Start(observation) => observation.cgroups = CgroupMode::Hybrid,
            // As the agent's own preference sorts them, not by number.
            Input::Process(fact) => {
                let (cgroup, path) = fact.cgroups.remove(0);
                let of_v1 = HIERARCHIES.map(|hierarchy| (CgroupId { hierarchy, ..cgroup }, path.clone()));
                fact.cgroups.extend(of_v1);
                fact.cgroups.push((CgroupId::v2(11), "/user.slice".to_owned()));
            }
            _ => {}
        }
        let now = now.max(script::ZERO);
        if let Input::Kernel {
            at,
            event: Event::CgroupRmdir(CgroupRmdir { cgroup }),
        } = input
        {
            for hierarchy in HIERARCHIES {
                let event = Event::CgroupRmdir(CgroupRmdir {
                    cgroup: CgroupId { hierarchy, ..cgroup },
                });
                out.extend(correlator.handle(now, Input::Kernel { at, event }).reports);
            }
        } else {
            out.extend(correlator.handle(now, input).reports);
        }
    }
    script::show(&out, false)
}

/// The output of a script on a machine with containers in v1 only, and in v2 in their runtime's cgroup: kernel records have
/// both.
fn in_v1_only(script: &str) -> Vec<Answers> {
    const RUNTIMES: CgroupId = CgroupId::v2(10);
    let of_v1 = |id: u64| CgroupId { hierarchy: 4, id };
    let mut correlator = Recorded::default();
    let mut out = Vec::new();
    let mut containers = HashSet::new();
    for (now, mut input) in script::parse(script).inputs {
        let now = now.max(script::ZERO);
        let move_in = |task: &mut Task| {
            let is_contained = containers.contains(&task.cgroup.id);
            task.v1_cgroup = Some(of_v1(if is_contained { task.cgroup.id } else { 1 }));
            if is_contained {
                task.cgroup = RUNTIMES;
            }
        };
        match &mut input {
            Input::Start(observation) => {
                observation.cgroups = CgroupMode::Hybrid;
                out.push(correlator.handle(now, input));
                input = Input::Cgroup(CgroupFact::of(of_v1(1), Ok("/".to_owned())));
            }
            Input::Kernel { event, .. } => match event {
                Event::CgroupMkdir(made) if made.path.as_ref().is_some_and(|path| path.contains("docker-")) => {
                    containers.insert(made.cgroup.id);
                    made.cgroup = of_v1(made.cgroup.id);
                    made.parent = of_v1(made.parent.id);
                }
                Event::CgroupRmdir(gone) if containers.contains(&gone.cgroup.id) => gone.cgroup = of_v1(gone.cgroup.id),
                Event::SignalGenerate(signal) => [&mut signal.sender, &mut signal.target].into_iter().for_each(move_in),
                Event::SignalDeliver(deliver) => move_in(&mut deliver.task),
                Event::ProcessExit(exit) => move_in(&mut exit.task),
                Event::ProcessExec(exec) => move_in(&mut exec.task),
                Event::Tcp(tcp) => tcp.cgroup = Some(RUNTIMES),
                _ => {}
            },
            _ => {}
        }
        out.push(correlator.handle(now, input));
    }
    out
}

/// A container whose main process, PID 1 of its namespace, was started by the shim.
const CONTAINER: &str = "
    +0 mkdir app
    proc main in=app pid=100 ns=1 start=+0 parent=shim comm=app
    +0.001 exec main
";

/// A unit of systemd's.
const UNIT: &str = "
    +0 mkdir web.service
    proc main in=web.service pid=200 start=+0 parent=systemd comm=web
    +0.001 exec main
";

fn container(rest: &str) -> String {
    format!("{CONTAINER}{rest}")
}

fn unit(rest: &str) -> String {
    format!("{UNIT}{rest}")
}
