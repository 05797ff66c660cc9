//! The API away, clocks apart, the agent late.

use std::collections::BTreeMap;

use expect_test::expect;

use super::{check, run, show, web};
use crate::fixtures::script::run_all;
use crate::pod::Workload;
use crate::report::PodTermination;
use crate::report::Report;
use crate::verdict::Cause;

#[test]
fn a_relist_hid_the_deletion() {
    check(
        &web("
        +0 api away timeout
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +20 gone web unwatched
        +20.1 api synced
        "),
        expect![[r#"
            +20.300 pod web +1.300…+1.500 clean-exit: Unknown/Clean/Unknown (missing from a new list of the pods)
              web/app +1.300…+1.500 clean-exit: Unknown/Clean/Unknown
                Unknown: missing from a new list of the pods
                incomplete: the Kubernetes API did not answer during the termination: timeout; the watch of the pods was interrupted, so the time of the deletion is unknown; when deletion was requested, if it was, is unknown
              gone +20.000 (relist)
        "#]],
    );
}

#[test]
fn the_api_comes_back_in_time() {
    check(
        "
        -60 api away refused
        pod web app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +20 pod web deleted=+1:30 app=0:Completed phase=succeeded
        +20.1 api synced
        +21 gone web
        ",
        expect![[r#"
            +21.200 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.300 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                incomplete: the Kubernetes API did not answer during the termination: refused
              gone +21.000
        "#]],
    );
}

#[test]
fn the_api_never_comes() {
    check(
        "
        -60 api away refused
        pod web app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        ",
        expect![[r#"
            +63.600 ? +1.300…+1.500 clean: Stopped/Clean/Quiet
        "#]],
    );
}

#[test]
fn nobody_asks_the_api() {
    check(
        "
        pod web app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        ",
        expect![[r#"
            +3.600 ? +1.300…+1.500 clean: Stopped/Clean/Quiet
        "#]],
    );
}

#[test]
fn the_agent_came_in_the_middle() {
    check(
        "
        +2 start
        pod web app other
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        +2.1 found main
        +2.2 api synced
        +2.3 pod web deleted=+1:30 app=running other=0:Completed
        +4 TERM runc -> main handler
        +4.01 enter main TERM
        +5 exit main 0
        +6 pod web app=0:Completed
        +7 gone web
        ",
        expect![[r#"
            +7.200 pod web +1.000…+5.000 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request +1.000…+2.000 grace 30 s
              web/app +4.000…+5.000 unknown: Deleted/Unknown/Unknown
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                incomplete: epitaph started 1.0 s after the deletion request
              unseen other Some(Reported { exit_code: 0, reason: Some("Completed") })
              gone +7.000
        "#]],
    );
}

#[test]
fn a_pod_that_was_over_before_is_not_told() {
    check(
        "
        -60 api synced
        pod web policy=never app
        -59 pod web app=0:Completed phase=succeeded
        +1 gone web
        ",
        expect![[""]],
    );
}

#[test]
fn the_clocks_were_compared() {
    check(
        &web("
        +0 skew 3000 3100
        +1.05 pod web deleted=+4:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +2 pod web app=0:Completed
        +3 gone web
        "),
        expect![[r#"
            +3.800 pod web +0.900…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +0.900…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
              gone +3.000
        "#]],
    );
}

#[test]
fn the_clocks_were_never_compared() {
    check(
        &web("
        +1.05 pod web deleted=+4:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +2 pod web app=0:Completed
        +3 gone web
        "),
        expect![[r#"
            +3.800 pod web +1.050…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.050…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                incomplete: the API server's clock is at least 3.0 s further ahead than measured
              gone +3.000
        "#]],
    );
}

#[test]
fn the_observation_ends_in_the_middle() {
    check(
        &web("
        pod web app slow
        -59 mkdir web:slow
        proc slow in=web:slow pid=110 ns=1 start=-59 parent=shim comm=slow
        -59 exec slow
        -58 pod web app=running slow=running
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.32 TERM runc -> slow ignored default
        +1.5 exit main 0
        +4 end
        "),
        expect![[r#"
            +1.320 early: `slow` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, 29.7 s left
            +4.000 web/app +1.300…+1.500 clean: Deleted/Clean/Quiet, in its pod's trace
              Deleted: deletionTimestamp, grace 30 s
              incomplete: epitaph stopped before the state of the pod was known
            +4.000 web/slow +1.320…+4.000 unknown: Deleted/Unknown/Unknown, in its pod's trace, still ending
              Deleted: deletionTimestamp, grace 30 s
              incomplete: epitaph stopped before the state of the pod was known
        "#]],
    );
}

#[test]
fn the_observation_ends_before_the_api_says_that_the_pod_is_over() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +1.6 end
        "),
        expect![[r#"
            +1.600 web/app +1.300…+1.500 clean-exit: Deleted/Clean/Unknown, in its pod's trace
              Deleted: deletionTimestamp, grace 30 s
              incomplete: epitaph stopped before the state of the pod was known
        "#]],
    );
}

/// The termination is not reported again: not as a termination of the pod.
#[test]
fn the_observation_ends_after_a_restart_in_a_pod_that_is_ending() {
    check(
        &web("
        +0 exit main 3
        +0.1 mkdir web:app:2
        proc again in=web:app:2 pid=120 ns=1 start=+0.1 parent=shim comm=app
        +0.1 exec again
        +0.2 pod web app=running app.id=web:app:2 app.restarts=1 app.last=web:app:3:Error
        +0.25 pod web deleted=+0:30
        +0.5 TERM runc -> again handler
        +0.51 enter again TERM
        +0.7 end
        "),
        expect![[r#"
            +0.700 web/app +0.000…+0.000 nonzero-exit: Crash/NonzeroExit/Unknown
              reported 3 Error
              incomplete: epitaph stopped before the state of the pod was known
            +0.700 web/app +0.500…+0.700 unknown: Deleted/Unknown/Unknown, in its pod's trace, still ending
              Deleted: deletionTimestamp, grace 30 s, restarts 1
              incomplete: epitaph stopped before the state of the pod was known
        "#]],
    );
}

/// The next to observe does not hear of that pod.
#[test]
fn the_observation_ends_when_the_pod_is_gone_and_one_of_it_runs() {
    check(
        &web("
        pod web app slow
        -59 mkdir web:slow
        proc slow in=web:slow pid=110 ns=1 start=-59 parent=shim comm=slow
        -59 exec slow
        -58 pod web app=running slow=running
        +1.05 pod web deleted=+1:0
        +1.1 gone web
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.32 TERM runc -> slow handler
        +1.5 exit main 0
        +1.6 end
        "),
        expect![[r#"
            +1.600 web/app +1.300…+1.500 clean-exit: Deleted/Clean/Unknown
              Deleted: deletionTimestamp, grace 0 s
              incomplete: epitaph stopped before the state of the pod was known
            +1.600 web/slow +1.320…+1.600 unknown: Deleted/Unknown/Unknown, still ending
              Deleted: deletionTimestamp, grace 0 s
              incomplete: epitaph stopped before the state of the pod was known
        "#]],
    );
}

/// The API shows the exit, and the kernel has no record of it.
#[test]
fn an_end_whose_record_was_lost() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +2 pod web app=0:Completed phase=succeeded
        +2.1 KILL runc -> pause
        +2.11 exit pause KILL
        +3 gone web
        "),
        expect![[r#"
            +12.000 pod web +1.000…+3.000 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              unseen app Some(Reported { exit_code: 0, reason: Some("Completed") })
              gone +3.000
        "#]],
    );
}

/// A restart that no Event explained, and a deletion behind it.
#[test]
fn measured_clocks_say_that_the_stop_came_first() {
    check(
        &web("
        +0 skew -10 10
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +5.1 pod web deleted=+5:30
        +8 exit main 0
        +9 pod web app=0:Completed
        +10 gone web
        "),
        expect![[r#"
            +10.400 pod web +1.100…+8.000 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +4.990…+5.100 grace 30 s
              web/app +1.100…+8.000 clean: Unknown/Clean/Quiet
                grace 30 s, reported 0 Completed
                incomplete: no restart of the container was reported
              gone +10.000
        "#]],
    );
}

#[test]
fn an_early_loss_of_the_api_is_no_doubt_later() {
    check(
        &web("
        -50 api away timeout
        -40 api synced
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +3 gone web
        "),
        expect![[r#"
            +3.800 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s
              gone +3.000
        "#]],
    );
}

/// The preStop hook drains, and the kubelet knew of the deletion before the agent: clients' errors until then were not observed.
#[test]
fn the_deletion_is_heard_of_late() {
    for outage in ["-2 api away refused\n +10.9 api synced", ""] {
        let heard = web(&format!(
            "
            {outage}
            +11 skew 0 0
            +11 pod web deleted=+1:30
            +16 TERM runc -> main handler
            +16.01 enter main TERM
            +16.5 exit main 0
            +18 gone web
            "
        ));
        let told = show(&run(&heard));
        let why = if outage.is_empty() {
            ""
        } else {
            "the Kubernetes API did not answer during the termination: refused; "
        };
        let incomplete = format!("incomplete: {why}connections were observed only from 9.0 s after the deletion request\n");
        assert!(
            told.contains("clean-exit: Deleted/Clean/Unknown") && !told.contains("Quiet"),
            "{told}"
        );
        assert!(told.contains(&incomplete), "{told}");
    }
}

/// Its sockets are watched from its begin.
#[test]
fn a_container_that_begins_after_the_request_was_watched_all_its_life() {
    check(
        &web("
        pod web app late
        -58 pod web app=running
        +1.05 pod web deleted=+1:30
        +4 mkdir web:late
        proc late in=web:late pid=120 ns=2 start=+4 parent=shim comm=late
        +4 exec late
        +4.1 pod web late=running
        +6 TERM runc -> main handler
        +6 TERM runc -> late handler
        +6.01 enter main TERM
        +6.01 enter late TERM
        +6.5 exit main 0
        +6.5 exit late 0
        +8 gone web
        "),
        expect![[r#"
            +8.800 pod web +1.000…+6.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +6.000…+6.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s
              web/late +6.000…+6.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s
              gone +8.000
        "#]],
    );
}

/// Nor counts for ever.
#[test]
fn an_owner_that_the_api_names_late_is_no_second_one() {
    let script = web("
        pod other app
        -58 pod other app=running
        pod web owner=u app
        -50 pod web app=running
        -49 pod web app=running
        pod other owner=u app
        -40 pod other app=running
        +1 gone web
        +2 gone other
        ");
    let workload = |of: &Workload| format!("{} {:?}", of.name, of.uid);
    let lines = run(&script).into_iter().filter_map(|(now, output)| match output {
        Report::Workload(of) => Some(format!("{} {}\n", super::at(now), workload(&of))),
        Report::WorkloadGone(of) => Some(format!("{} gone {}\n", super::at(now), workload(&of))),
        _ => None,
    });
    expect![[r#"
        -58.000 web None
        -58.000 other None
        -50.000 web Some("u")
        -50.000 gone web None
        -40.000 other Some("u")
        -40.000 gone other None
        +152.000 gone other Some("u")
    "#]]
    .assert_eq(&lines.collect::<String>());
}

#[test]
fn the_pod_reaches_us_before_the_kernels_own_records() {
    check(
        "
        -60 api synced
        pod web app
        -59.5 pod web app=running
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +3 gone web
        ",
        expect![[r#"
            +3.800 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s
              gone +3.000
        "#]],
    );
}

#[test]
fn the_observation_ends_when_the_pod_is_gone() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +1.7 KILL runc -> pause
        +1.71 exit pause KILL
        +1.8 gone web
        +1.9 end
        "),
        expect![[r#"
            +1.900 pod web +1.000…+1.500 clean-exit: Deleted/Clean/Unknown (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean-exit: Deleted/Clean/Unknown
                Deleted: deletionTimestamp, grace 30 s
              gone +1.800
        "#]],
    );
}

/// The previous agent reported its observations: the pod's own trace is this agent's.
#[test]
fn all_had_ended_before_the_agent_came_and_the_pod_is_still_there() {
    check(
        "
        +2 start
        +2.2 api synced
        pod web app
        +2.3 pod web deleted=+1:30 app=0:Completed
        +3 gone web
        ",
        expect![[r#"
            +3.200 pod web +1.000…+3.000 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request +1.000…+2.000 grace 30 s
              unseen app Some(Reported { exit_code: 0, reason: Some("Completed") })
              gone +3.000
        "#]],
    );
}

/// Forged: a cgroup of the container's own making bears the container's id.
#[test]
fn a_second_cgroup_of_the_same_id_hides_no_death() {
    check(
        &web("
        +0 mkdir web:fake as=web:app
        proc fake in=web:fake pid=160 start=+0 parent=main comm=fake
        +0 exec fake
        +0.5 exit fake 0
        +0.6 rmdir web:fake
        +1 exit main 3
        +2 pod web app=waiting app.last=web:app:3:Error app.restarts=1
        "),
        expect![[r#"
            +2.800 dropped unattributed: 1
            +4.000 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 3 Error
        "#]],
    );
}

/// As many as a node may have, and a word of the API's for each between the kernel's records of all others.
#[test]
fn a_hundred_and_ten_pods_are_deleted_in_the_same_second() {
    const PODS: usize = 110;
    let (mut cast, mut lines) = (String::new(), Vec::new());
    for i in 0..PODS {
        let mut at =
            |seconds: f64, line: &str| lines.push((seconds, format!("{seconds:+.4} {}", line.replace('%', &i.to_string()))));
        let (pause, app) = (1_000 + 10 * i, 1_001 + 10 * i);
        cast += &format!("pod p{i} app\nproc pause{i} in=p{i}:pause pid={pause} ns=1 start=-60 parent=shim comm=pause\n");
        cast += &format!("proc app{i} in=p{i}:app pid={app} ns=1 start=-59 parent=shim comm=app\n");
        at(-60.0, "mkdir p%:pause");
        at(-60.0, "exec pause%");
        at(-59.0, "mkdir p%:app");
        at(-59.0, "exec app%");
        at(-58.0, "pod p% app=running");
        // All within the second in which all were asked for.
        let asked = 1.0 + i as f64 / 200.0;
        let (told, end) = match i % 3 {
            0 => (asked + 0.05, asked + 0.4),
            // The kubelet knows of the deletion before the agent.
            1 => (asked + 0.3, asked + 0.2),
            _ => (asked + 0.05, asked + 30.3),
        };
        at(told, "pod p% deleted=+1:30");
        match i % 3 {
            2 => {
                at(asked + 0.1, "TERM runc -> app% ignored default");
                at(end, "KILL runc -> app%");
                at(end, "exit app% KILL");
                at(end + 0.5, "pod p% app=137:Error");
            }
            _ => {
                at(asked + 0.1, "TERM runc -> app% handler");
                at(asked + 0.11, "enter app% TERM");
                at(end, "exit app% 0");
                at(end + 0.5, "pod p% app=0:Completed");
            }
        }
        at(end + 0.1, "rmdir p%:app");
        at(end + 0.6, "KILL runc -> pause%");
        at(end + 0.6, "exit pause% KILL");
        at(end + 0.7, "rmdir p%:pause");
        at(end + 1.0, "gone p%");
    }
    lines.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();

    let mut told: BTreeMap<String, Box<PodTermination>> = BTreeMap::new();
    let mut warned = 0;
    for (_, output) in run(&format!("-60 api synced\n{cast}{}", lines.join("\n"))) {
        match output {
            Report::PodTerminated(pod) => {
                let name = pod.pod.name.clone();
                assert!(told.insert(name.clone(), pod).is_none(), "{name} was told twice");
            }
            Report::StopSignalIgnored(_) => warned += 1,
            Report::Workload(_) | Report::WorkloadGone(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((told.len(), warned), (PODS, PODS / 3));
    for i in 0..PODS {
        let pod = &told[&format!("p{i}")];
        let headline = if i % 3 == 2 { "ignored-stop-signal" } else { "clean" };
        assert_eq!(
            (pod.verdict.headline, pod.verdict.cause),
            (headline, Cause::Deleted),
            "{pod:?}"
        );
        let [app] = &pod.containers[..] else { panic!("{pod:?}") };
        let context = app.kubernetes.as_deref().expect("its pod");
        assert_eq!(
            (context.container.as_deref(), context.incomplete.as_deref()),
            (Some("app"), None)
        );
        assert!(pod.unseen.is_empty() && app.main.is_some_and(|main| main.tgid.0 as usize == 1_001 + 10 * i));
    }
}

/// A crafted recording: a record that comes after the last time that a clock can show arms a container whose termination is not due by
/// the record's own time. It stayed armed, and was due again at once, for ever.
#[test]
fn the_end_of_time_comes_once() {
    let answers = run_all(&web("+18446744073 tick\n+1 exit main 0 armed\n+1 tick"));
    assert!(!answers.is_empty());
}

/// Clients count from the deletion request on, so do lost records of sockets.
#[test]
fn sockets_lost_between_the_request_and_the_signal_make_traffic_unknown() {
    let traffic = |between: &str| {
        let reports = run(&web(&format!(
            "
            +1.05 pod web deleted=+1:30
            +2 tcp web:app accepted 80 5001
            {between}
            +5 TERM runc -> main handler
            +5.01 enter main TERM
            +6 exit main 0
            +7 pod web app=0:Completed
            +8 gone web
            "
        )));
        let mut ended = reports.into_iter().filter_map(|(_, report)| match report {
            Report::PodTerminated(pod) => Some(format!("{:?}", pod.verdict.traffic)),
            _ => None,
        });
        ended.next().expect("a pod")
    };
    assert_eq!(traffic(""), "Quiet");
    assert_eq!(
        traffic("+2.2 tcp web:app closed 80\n+2.3 tcp web:app refused 80 5002"),
        "Refused"
    );
    assert_eq!(traffic("+2.6 lost tcp +2.1 5"), "Unknown");
}
