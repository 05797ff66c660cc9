//! What a container can do so that another one is blamed, or so that an end looks better than it was.

use std::fmt::Write as _;

use expect_test::expect;

use super::evictions::traffic;
use super::{check, container};
use crate::correlate::Limits;
use crate::fixtures::script::run;
use crate::report::Report;
use crate::verdict::TrafficAxis;

fn headline(script: &str) -> String {
    let reports = run(script).into_iter();
    let mut ended = reports.filter_map(|report| match report {
        Report::Terminated(of) => Some(of.verdict.headline.to_owned()),
        _ => None,
    });
    ended.next().expect("a termination")
}

/// O_ASYNC with F_SETSIG: the kernel makes the signal while it receives the packet of an innocent client, which runs just then.
#[test]
fn a_signal_of_a_file_blames_nobody_who_ran_just_then() {
    check(
        &container(
            "
        +5 mkdir tenant
        proc client in=tenant pid=300 ns=1 start=+5 parent=shim comm=honest
        +5.1 exec client
        +10 KILL client -> main file
        +10.001 exit main KILL
        ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Quiet
              PID 1 `app` was terminated by SIGKILL, but the reason is unknown: the sender of SIGKILL was not seen
              fix: search the kernel log and the audit log for the sender of SIGKILL: epitaph has no record of the sender
        "#]],
    );
}

/// A POSIX timer's, in the time of whoever it interrupts: its handler ran.
#[test]
fn a_signal_of_a_timer_has_an_unknown_sender() {
    check(
        &container(
            "
        +5 mkdir tenant
        proc client in=tenant pid=300 ns=1 start=+5 parent=shim comm=honest
        +5.1 exec client
        +10 TERM client -> main timer handler
        +10.001 enter main TERM
        +10.2 exit main 0
        ",
        ),
        expect![[r#"
            clean: Unknown/Clean/Quiet
              An unknown sender sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later
        "#]],
    );
}

/// A process's own signal is its own, whatever its code.
#[test]
fn a_fault_is_the_process_itself() {
    let script = container("+10 SEGV main -> main fault default\n+10.1 exit main SEGV");
    assert_eq!(headline(&script), "crashed");
}

/// A container names the cgroups below its own as it likes.
#[test]
fn a_nested_cgroup_with_a_runtimes_name_makes_no_runtime() {
    let kill = |place: &str| {
        container(&format!(
            "
        +5 mkdir evil
        {}
        proc killer in=evil{place} pid=300 ns=5 start=+5 parent=shim comm=killer
        +5.2 exec killer
        +10 KILL killer -> main
        +10.001 exit main KILL
        ",
            if place.is_empty() {
                String::new()
            } else {
                format!("+5.1 mkdir evil{place}")
            }
        ))
    };
    for place in ["", "+containerd.service", "+init.scope"] {
        assert_eq!(headline(&kill(place)), "killed-by-other", "{place}");
    }
}

/// A shim can be the parent of several containers. Where the record of the sender's cgroup was lost, a sibling is not the runtime.
#[test]
fn a_relative_in_a_cgroup_that_was_not_seen_is_no_runtime() {
    let kill = |seen: &str| {
        container(&format!(
            "
        {seen}
        proc killer in=evil pid=300 ns=5 start=+5 parent=shim comm=killer
        +5.2 exec killer
        +10 KILL killer -> main
        +10.001 exit main KILL
        +20 mkdir evil
        "
        ))
    };
    assert_eq!(headline(&kill("+5 mkdir evil")), "killed-by-other");
    super::check_evidence(
        &kill(""),
        expect![[r#"
        unknown: Unknown/Unknown/Quiet
          PID 1 `app` was terminated by SIGKILL, but the reason is unknown: the sender of SIGKILL was not seen
          fix: search the kernel log and the audit log for the sender of SIGKILL: epitaph has no record of the sender
          +10.000 signal_generate: SIGKILL from an unknown sender, the runtime or another container: the cgroup of the sender is not known, to PID 1 `app`
          +10.001 sched_process_exit: PID 1 `app` was terminated by SIGKILL
        dropped unattributed: 1
    "#]],
    );
}

/// The main process sends the signal on to `app`, which ignores it, kills it, and exits with 0.
fn supervisor(noise: &str, forward: &str) -> String {
    container(&format!(
        "
        proc app in=app pid=130 ns=13 start=+0.2 parent=main comm=app
        +0.2 exec app
        +1 TERM runc -> main handler armed
        +1.001 enter main TERM
        {noise}
        {forward}
        +3 KILL main -> app already-armed
        +3.001 exit app KILL
        +3.1 exit main 0
        "
    ))
}

#[test]
fn a_lost_signal_inside_makes_no_end_clean() {
    let forward = "+1.9 TERM main -> app ignored ignore already-armed";
    let lost = "+2 lost signal_generate +1.5 1 others app";
    assert_eq!(headline(&supervisor("", forward)), "ignored-stop-signal");
    assert_eq!(headline(&supervisor("", lost)), "unknown");
    assert_eq!(
        headline(&supervisor(
            "",
            "+1.95 mkdir other\n+2 lost signal_generate +1.5 1 others other"
        )),
        "clean"
    );
}

/// So many children that the signal to the one that matters is not kept.
#[test]
fn signals_inside_beyond_the_cap_make_no_end_clean() {
    let mut noise = String::new();
    for child in 0..400 {
        let _ = writeln!(
            noise,
            "proc c{child} in=app pid={} ns={} start=+0.3 parent=main comm=c
            +1.1 HUP main -> c{child} handler already-armed",
            1_000 + child,
            100 + child,
        );
    }
    let forward = "+1.9 TERM main -> app ignored ignore already-armed";
    let judged = headline(&supervisor(&noise, forward));
    assert!(["unknown", "ignored-stop-signal"].contains(&judged.as_str()), "{judged}");
}

/// Whoever gives a network namespace of his own the server's address and a client's can fail to connect there as often as he likes.
#[test]
fn a_refusal_that_only_a_client_shows_counts_after_the_close_alone() {
    let served = |rest: &str| {
        container(&format!(
            "
        +1 TERM runc -> main handler armed
        +1.001 enter main TERM
        +1.1 tcp app accepted 80 4001 client=10.0.0.9
        +1.2 tcp app closed-by-itself 80 4001 client=10.0.0.9
        +4 tcp app closed 80 0
        {rest}
        +5 exit main 0
        "
        ))
    };
    let forged = "+2 mkdir evil\n+2 tcp evil connect-reset 80 5001 client=10.0.0.9";
    assert_eq!(headline(&served(forged)), "clean", "the listener was open");
    let late = "+4.5 mkdir node\n+4.5 tcp node connect-reset 80 5001 client=10.0.0.9";
    assert_eq!(headline(&served(late)), "refused-connections", "of another pod of this node");
}

/// Both sockets are watched, and the neighbour's listener is the last that was closed on the port.
#[test]
fn a_neighbour_that_closed_the_same_port_later_hides_no_refusal() {
    for (server, expected) in [("10.0.0.1", TrafficAxis::Unknown), ("10.0.0.9", TrafficAxis::Quiet)] {
        for closes in [
            "+1.2 tcp app closed 80\n+1.3 tcp neighbour closed 80",
            "+1.3 tcp neighbour closed 80\n+1.2 tcp app closed 80",
        ] {
            let script = container(&format!(
                "
                +0.1 mkdir neighbour
                proc other in=neighbour pid=300 ns=1 start=+0.1 parent=shim comm=other
                +0.2 exec other
                +1 TERM runc -> main handler
                +1.001 enter main TERM
                +1.1 tcp app accepted 80 5001
                {closes} server={server}
                +1.4 tcp neighbour refused 80 5002 server={server}
                +2 exit main 0
                +5 tick
                "
            ));
            assert_eq!(traffic(Limits::default(), &script), [expected], "{server}: {closes}");
        }
    }
}

fn neighbour(closes: &str, who: &str) -> String {
    container(&format!(
        "
        +0.1 mkdir neighbour
        proc other in=neighbour pid=300 ns=1 start=+0.1 parent=shim comm=other
        +0.2 exec other
        +1 KILL runc -> other armed
        +1.2 tcp app accepted 80 5001
        {closes}
        +10 TERM runc -> main handler
        +10.001 enter main TERM
        +11 tcp {who} refused 80 5002
        +12 exit main 0
        +15 tick
        "
    ))
}

#[test]
fn a_neighbour_that_closed_before_the_stop_hides_no_refusal() {
    let own = traffic(Limits::default(), &neighbour("+5 tcp app closed 80", "app"));
    let hidden = traffic(
        Limits::default(),
        &neighbour("+5 tcp app closed 80\n+6 tcp neighbour closed 80", "neighbour"),
    );
    assert_eq!(own, [TrafficAxis::Refused]);
    assert_eq!(hidden, [TrafficAxis::Unknown]);
}
