//! Text timelines, one per rule and one per pair of rules that could be confused; and what holds for any timeline.

mod doubt;
mod hosts;
mod kills;
mod nested;
mod pods;
mod processes;
mod properties;
mod script;
mod sockets;
mod stops;
mod successors;

use expect_test::Expect;

use crate::correlate::{Correlator, Limits};
use crate::event::{CgroupId, CgroupMode, CgroupRmdir, Event, Input};

/// What comes out of a script, without the evidence lines.
fn check(script: &str, expect: Expect) {
    expect.assert_eq(&script::show(&script::run(script), false));
}

/// The same with them.
fn check_evidence(script: &str, expect: Expect) {
    expect.assert_eq(&script::show(&script::run(script), true));
}

/// Of v1, with a cgroup for each container.
const HIERARCHIES: [u32; 2] = [9, 3];

/// What comes out of a script on a machine with v1 beside v2, whose containers are in v1 only.
fn hybrid(script: &str) -> String {
    let mut correlator = Correlator::new(Limits::default());
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
                out.extend(correlator.handle(now, Input::Kernel { at, event }));
            }
        } else {
            out.extend(correlator.handle(now, input));
        }
    }
    script::show(&out, false)
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
