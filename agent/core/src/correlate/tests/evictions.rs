//! What the core drops for lack of room makes a verdict unknown, for the subject that it could concern; never cleaner.

use std::collections::HashMap;
use std::fmt::Write;

use super::{container, script};
use crate::attribute::Question;
use crate::correlate::{Correlator, Limits};
use crate::event::Event;
use crate::input::{CgroupFact, Input};
use crate::report::{Answers, DropReason, Report};
use crate::time::Boot;
use crate::verdict::{Exit, TrafficAxis};

pub(super) fn limited(limits: Limits, script: &str) -> Vec<Report> {
    let mut correlator = Correlator::new(limits);
    let mut out = Vec::new();
    let mut last = script::ZERO;
    for (at, input) in script::parse(script).inputs {
        last = last.max(at);
        out.extend(correlator.handle(at, input).reports);
    }
    let last = Boot(last.0 + 3_000_000_000);
    out.extend(correlator.handle(last, Input::Tick).reports);
    out
}

/// The traffic of each termination, in order.
pub(super) fn traffic(limits: Limits, script: &str) -> Vec<TrafficAxis> {
    let of = |report| match report {
        Report::Terminated(termination) => Some(termination.verdict.traffic),
        _ => None,
    };
    limited(limits, script).into_iter().filter_map(of).collect()
}

/// A termination with one rejected client, and `noise` by others between its begin and its end.
fn rejected(noise: &str) -> String {
    container(&format!(
        "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app accepted 80 5001
        +1.2 tcp app closed 80
        +1.3 tcp client connect-failed 80 5002 errno=113
        {noise}
        +2 exit main 0
        "
    ))
}

/// Failed connects of `client`, each from a port of its own.
fn fails(client: &str, count: u32, rest: &str) -> String {
    let mut text = String::new();
    for port in 0..count {
        let micros = 400_000 + port;
        let host = format!("10.1.{}.{}", port / 60_000, port / 60_000 % 200 + 1);
        let rest = if rest.contains("client=") {
            rest.to_owned()
        } else {
            format!("client={host} {rest}")
        };
        writeln!(
            text,
            "+1.{micros} tcp {client} connect-failed 9 {} {rest}",
            1_024 + port % 60_000
        )
        .expect("a string");
    }
    text
}

#[test]
fn a_neighbour_that_fails_on_its_own_addresses_hides_no_rejection() {
    for server in ["127.0.0.1", "::1", "10.7.7.7"] {
        let noise = fails("neighbour", 8_000, &format!("server={server} errno=111"));
        assert_eq!(
            traffic(Limits::default(), &rejected(&noise)),
            [TrafficAxis::ProxyRejected],
            "{server}"
        );
    }
}

#[test]
fn the_client_with_the_most_failed_connects_loses_its_oldest() {
    let limits = Limits {
        connections: 8,
        ..Limits::default()
    };
    let noise = fails("neighbour", 100, "server=10.7.7.7 errno=111");
    assert_eq!(traffic(limits, &rejected(&noise)), [TrafficAxis::ProxyRejected]);
    // Of its own: the rejected connect is among those that were dropped.
    let own = fails("client", 100, "server=10.7.7.7 errno=111");
    assert_eq!(traffic(limits, &rejected(&own)), [TrafficAxis::Unknown]);
}

/// The connect is dropped before the first accepted connection shows the address.
#[test]
fn a_dropped_connect_is_doubt_about_its_server_alone() {
    let limits = Limits {
        connections: 8,
        ..Limits::default()
    };
    let noise = fails("client", 100, "server=10.7.7.7 errno=111");
    let of = |server: &str| {
        container(&format!(
            "
            +1 TERM runc -> main handler
            +1.001 enter main TERM
            +1.3 tcp client connect-failed 80 5002 errno=113
            {noise}
            +1.5 tcp app accepted 80 5001 server={server}
            +1.6 tcp app closed 80 server={server}
            +2 exit main 0
            "
        ))
    };
    assert_eq!(traffic(limits, &of("10.0.0.1")), [TrafficAxis::Unknown]);
    assert_eq!(traffic(limits, &of("10.0.0.9")), [TrafficAxis::Quiet]);
}

/// Lost by the probes, whenever the address became known.
#[test]
fn a_lost_connect_is_doubt_about_its_server_alone() {
    for (server, expected) in [("10.0.0.1", TrafficAxis::Unknown), ("10.0.0.9", TrafficAxis::Quiet)] {
        for (at, until) in [("+1.05", "+1.08"), ("+1.65", "+1.7")] {
            let script = container(&format!(
                "
                +1 TERM runc -> main handler
                +1.001 enter main TERM
                {until} lost tcp {at} 7 connects-to 10.0.0.1
                +1.5 tcp app accepted 80 5001 server={server}
                +1.6 tcp app closed 80 server={server}
                +2 exit main 0
                "
            ));
            assert_eq!(traffic(Limits::default(), &script), [expected], "{server} {at}");
        }
    }
}

#[test]
fn a_later_termination_is_not_doubted() {
    let limits = Limits {
        connections: 8,
        ..Limits::default()
    };
    let own = fails("client", 100, "server=10.7.7.7 errno=111");
    let script = rejected(&own)
        + "
        +3 mkdir next
        proc other in=next pid=300 ns=1 start=+3 parent=shim comm=app
        +3.001 exec other
        +4 TERM runc -> other handler
        +4.001 enter other TERM
        +4.1 tcp next accepted 80 5001
        +4.2 tcp next closed 80
        +5 exit other 0
        ";
    assert_eq!(traffic(limits, &script), [TrafficAxis::Unknown, TrafficAxis::Quiet]);
}

/// The facts of a termination in progress are dropped because others begin: its exit is judged without them.
#[test]
fn a_timeline_that_had_to_go_is_unknown_at_the_exit() {
    let limits = Limits {
        timelines: 2,
        ..Limits::default()
    };
    let mut script = container(
        "
        +1 TERM runc -> main ignored default
        ",
    );
    for i in 0..3 {
        let at = 2 + i;
        write!(
            script,
            "
            +{at} mkdir n{i}
            proc m{i} in=n{i} pid={} ns=1 start=+{at} parent=shim comm=app
            +{at}.1 exec m{i}
            +{at}.2 TERM runc -> m{i} handler
            ",
            300 + i
        )
        .expect("a string");
    }
    script += "
        +9 KILL runc -> main
        +9.001 exit main KILL
        ";
    let of = |report: &Report| match report {
        Report::Terminated(termination) => Some((termination.verdict.exit, termination.verdict.traffic)),
        _ => None,
    };
    let ends: Vec<_> = limited(limits, &script).iter().filter_map(of).collect();
    assert!(!ends.is_empty());
    assert!(
        ends.iter().all(|end| *end == (Exit::Unknown, TrafficAxis::Unknown)),
        "{ends:?}"
    );
}

/// Others start and end containers whose cgroups stay: the termination in progress goes last, and theirs keep their exits.
#[test]
fn ended_containers_whose_cgroups_stay_close_no_termination_in_progress() {
    let limits = Limits {
        timelines: 2,
        ..Limits::default()
    };
    let mut script = container(
        "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        ",
    );
    for i in 0..3 {
        let at = format!("+1.{}", 1 + 3 * i);
        write!(
            script,
            "
            {at} mkdir n{i}
            {at} stays n{i}
            proc m{i} in=n{i} pid={} ns=1 start={at} parent=shim comm=app
            {at}1 exec m{i}
            {at}2 TERM runc -> m{i} handler
            {at}3 enter m{i} TERM
            {at}4 exit m{i} 0
            ",
            300 + i
        )
        .expect("a string");
    }
    script += "
        +2 exit main 0
        +15 tick
        ";
    let of = |report: &Report| match report {
        Report::Terminated(termination) => Some((
            termination.facts.main.as_ref()?.tgid.0,
            termination.verdict.exit,
            termination.verdict.traffic,
        )),
        _ => None,
    };
    let mut ends: Vec<_> = limited(limits, &script).iter().filter_map(of).collect();
    ends.sort_unstable_by_key(|(tgid, ..)| *tgid);
    assert_eq!(ends.first(), Some(&(100, Exit::Clean, TrafficAxis::Quiet)));
    let others: Vec<_> = ends.iter().skip(1).map(|(_, exit, traffic)| (*exit, *traffic)).collect();
    assert_eq!(others, [(Exit::Clean, TrafficAxis::Unknown); 3]);
}

/// Others fill the timelines with stops that do not end: an exit is not judged before the records of other processors have arrived, because
/// the first in the order is then the handler's entry, which makes the code a clean one.
#[test]
fn an_ended_container_keeps_its_timeline_while_records_may_arrive() {
    let limits = Limits {
        timelines: 2,
        ..Limits::default()
    };
    let other = |number: u32, at: &str| {
        format!(
            "
            {at} mkdir n{number}
            proc m{number} in=n{number} pid={} ns=1 start={at} parent=shim comm=app
            {at}1 exec m{number}
            {at}2 TERM runc -> m{number} handler
            ",
            300 + number
        )
    };
    let script = other(0, "+0.5")
        + &container(&format!(
            "
            +1 TERM runc -> main handler
            +1.6 exit main 143
            {}
            +1.55 enter main TERM
            +13 tick
            ",
            other(1, "+1.6")
        ));
    let of = |report: &Report| match report {
        Report::Terminated(of) if of.facts.main.as_ref()?.tgid.0 == 100 => Some((of.verdict.exit, of.verdict.traffic)),
        _ => None,
    };
    let ends: Vec<_> = limited(limits, &script).iter().filter_map(of).collect();
    assert_eq!(ends, [(Exit::Clean, TrafficAxis::Quiet)]);
}

/// A grace period of hours: what clients met at its begin is not kept so long.
#[test]
fn refusals_that_were_forgotten_in_a_long_grace_are_not_quiet() {
    let script = |rest: &str| {
        container(&format!(
            "
            +1 TERM runc -> main handler
            +1.001 enter main TERM
            +1.1 tcp app accepted 80 5001
            {rest}
            +1900 enter main TERM
            +3700 tick
            +5500 tick
            +5500 KILL runc -> main
            +5500.001 exit main KILL
            "
        ))
    };
    let refused = script("+1.2 tcp app closed 80\n+1.3 tcp app refused 80 5002");
    assert_eq!(traffic(Limits::default(), &refused), [TrafficAxis::Unknown]);
}

/// The accepted connections are merged for lack of room, and one of them is cut. Its listener is not the container's.
#[test]
fn a_merged_connection_that_is_cut_is_still_a_clients() {
    let limits = Limits {
        connections: 8,
        ..Limits::default()
    };
    let accepted: String = (0..30).map(|i| format!("+1.1 tcp app accepted 80 {}\n", 5_000 + i)).collect();
    let script = container(&format!(
        "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        {accepted}
        +2 exit main 0
        +2.001 tcp app cut 80 5000 sent=0 received=5 last-sent=0 last-received=3
        "
    ));
    assert_eq!(traffic(limits, &script), [TrafficAxis::Cut]);
}

/// Events of a cgroup that is not known yet wait; who floods the queue is in doubt, and nobody else.
#[test]
fn a_party_that_floods_the_waiting_events_is_in_doubt_alone() {
    let limits = Limits {
        pending: 16,
        ..Limits::default()
    };
    let of = |flood: &str| {
        let flood: String = (0..40)
            .map(|i| format!("+1.06 tcp {flood} refused 80 {}\n", 5_000 + i))
            .collect();
        format!(
            "
            proc main in=app pid=100 ns=1 start=+0 parent=shim comm=app
            +1 TERM runc -> main handler
            +1.001 enter main TERM
            {flood}
            +1.1 mkdir app
            +1.11 exec main
            +2 exit main 0
            "
        )
    };
    assert_eq!(traffic(limits, &of("noise")), [TrafficAxis::Quiet]);
    assert_eq!(traffic(limits, &of("app")), [TrafficAxis::Unknown]);
}

/// Without room at its begin, a container is known only at its exit.
#[test]
fn a_container_that_was_refused_at_first_is_unknown() {
    let limits = Limits {
        subjects: 1,
        ..Limits::default()
    };
    let script = "
        +0 mkdir first
        proc first in=first pid=90 ns=1 start=+0 parent=shim comm=app
        +0.001 exec first
        +0.1 mkdir app
        proc main in=app pid=100 ns=1 start=+0.1 parent=shim comm=app
        +0.2 exec main
        +1 TERM runc -> main ignored default
        +1.1 KILL runc -> first
        +1.101 exit first KILL
        +1.102 rmdir first
        +9 tick
        +10 exit main 0
        ";
    let reports = limited(limits, script);
    let exits: Vec<_> = reports
        .iter()
        .filter_map(|report| match report {
            Report::Terminated(of) => Some((of.verdict.exit, of.verdict.traffic)),
            _ => None,
        })
        .collect();
    assert_eq!(exits.last(), Some(&(Exit::Unknown, TrafficAxis::Unknown)), "{exits:?}");
}

/// What a node full of containers leads to.
#[derive(Default)]
struct Crowd {
    /// The most containers that were known.
    known: usize,
    /// What was dropped for lack of memory, but for names, which are looked up again.
    dropped: u64,
    ends: Vec<(Exit, TrafficAxis)>,
}

impl Crowd {
    fn of(memory: usize, script: &str) -> Crowd {
        let mut core = Correlator::new(Limits {
            memory,
            ..Limits::default()
        });
        let mut crowd = Crowd::default();
        let mut paths = HashMap::new();
        for (at, input) in script::parse(script).inputs {
            if let Input::Kernel {
                event: Event::CgroupMkdir(made),
                ..
            } = &input
            {
                paths.insert(made.cgroup, made.path.clone().expect("a path"));
            }
            for question in core.questions(&input) {
                let Question::Cgroup(cgroup) = question else { continue };
                let Some(path) = paths.get(&cgroup) else { continue };
                crowd.add(core.handle(at, Input::Cgroup(CgroupFact::of(cgroup, Ok(path.clone())))));
            }
            crowd.add(core.handle(at, input));
            crowd.known = crowd.known.max(core.sizes().0);
        }
        crowd
    }

    fn add(&mut self, answers: Answers) {
        for report in answers.reports {
            match report {
                Report::Terminated(of) => self.ends.push((of.verdict.exit, of.verdict.traffic)),
                Report::Dropped {
                    reason: DropReason::IndexCap,
                    ..
                } => {}
                Report::Dropped { count, .. } => self.dropped += count,
                _ => {}
            }
        }
    }
}

/// A container that is being stopped, and `others` besides, of which the last begins meanwhile.
fn stopped_among(others: usize) -> String {
    let other = |i: usize, at: &str| {
        let pid = 1_000 + i;
        format!("{at} mkdir n{i}\nproc m{i} in=n{i} pid={pid} ns=1 start={at} parent=shim comm=app\n{at}1 exec m{i}\n")
    };
    let before: String = (1..others).map(|i| other(i, "+0.1")).collect();
    container(&format!(
        "
        {before}
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        {}
        +2 exit main 0
        +2.3 rmdir app
        +4.5 tick
        ",
        other(0, "+1.5")
    ))
}

/// The map of so many is full, and doubles.
#[test]
fn a_full_map_of_containers_takes_another_one_in() {
    let crowd = Crowd::of(Limits::default().memory, &stopped_among(3_584));
    assert_eq!((crowd.known, crowd.dropped), (3_585, 0));
    assert_eq!(crowd.ends, [(Exit::Clean, TrafficAxis::Quiet)]);
}

/// For the double of this map there is no room, whoever gives up facts: docs/limits/scale.md has the number.
#[test]
fn a_container_that_cannot_fit_costs_the_others_nothing() {
    let crowd = Crowd::of(Limits::default().memory, &stopped_among(7_168));
    assert_eq!((crowd.known, crowd.dropped), (7_168, 1), "the exec of the last one");
    assert_eq!(crowd.ends, [(Exit::Clean, TrafficAxis::Quiet)]);
}

/// All in one second, each step of all before the next step.
#[test]
fn two_thousand_containers_that_end_at_once_are_judged() {
    const ALL: std::ops::Range<usize> = 0..2_000;
    let mut script = String::new();
    let mut each = |line: &dyn Fn(usize) -> String| {
        for i in ALL {
            writeln!(script, "{}", line(i)).expect("a string");
        }
    };
    each(&|i| {
        format!(
            "+0.{i:04} mkdir n{i}
            proc m{i} in=n{i} pid={} ns=1 start=+0.{i:04} parent=shim comm=server
            proc w{i} in=n{i} pid={} ns=7 start=+0.{i:04}1 parent=m{i} comm=worker
            +0.{i:04}1 exec m{i}
            +0.{i:04}2 exec w{i}",
            10_000 + i,
            20_000 + i
        )
    });
    each(&|i| format!("+1.{:06} TERM runc -> m{i} handler armed", i * 100));
    each(&|i| {
        let at = 200_000 + i * 100;
        format!(
            "+1.{at:06} enter m{i} TERM
            +1.{:06} TERM m{i} -> w{i} handler already-armed
            +1.{:06} enter w{i} TERM",
            at + 1,
            at + 2
        )
    });
    each(&|i| {
        let at = 400_000 + i * 100;
        format!(
            "+1.{at:06} tcp n{i} closed 80 server=10.1.{}.{}
            +1.{:06} exit w{i} 0",
            i / 250,
            i % 250 + 1,
            at + 1
        )
    });
    each(&|i| format!("+1.{:06} exit m{i} 0\n+1.{0:06} rmdir n{i}", 600_000 + i * 100));
    for tick in 2..10 {
        writeln!(script, "+{tick} tick").expect("a string");
    }
    let crowd = Crowd::of(Limits::default().memory, &script);
    let clean = crowd
        .ends
        .iter()
        .filter(|end| **end == (Exit::Clean, TrafficAxis::Quiet))
        .count();
    assert_eq!((crowd.ends.len(), clean, crowd.dropped), (ALL.len(), ALL.len(), 0));
}

/// A signal to a worker that is too old to count has left an empty list behind, which others' stops need.
#[test]
fn an_empty_list_is_given_up_once() {
    let mut script = container(
        "
        proc worker in=app pid=101 ns=7 start=+0.1 parent=main comm=worker
        +0.1 exec worker
        +1 TERM bash -> worker handler unarmed
        +9 CHLD bash -> worker default unarmed
        ",
    );
    for i in 0..6 {
        write!(
            script,
            "
            +10.{i} mkdir n{i}
            proc m{i} in=n{i} pid={} ns=1 start=+10.{i} parent=shim comm=app
            +10.{i}1 exec m{i}
            +11.{i} TERM runc -> m{i} handler
            ",
            200 + i
        )
        .expect("a string");
    }
    for memory in (8_000..30_000).step_by(200) {
        limited(
            Limits {
                memory,
                ..Limits::default()
            },
            &script,
        );
    }
}
