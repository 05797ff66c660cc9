//! Shutdowns of which a part of the evidence is missing: no more is claimed than was seen, in spans and evidence lines, too.

use expect_test::expect;

use super::*;
use crate::shutdown::NodeShutdownFacts;

fn facts(script: &str) -> NodeShutdownFacts {
    let of = |(_, report): &(crate::time::Boot, Report)| match report {
        Report::NodeShutdown(of) => Some(of.facts.clone()),
        _ => None,
    };
    play_all(script).reports.iter().find_map(of).expect("a shutdown")
}

/// Exit and removal of the container before are lost; the status shows that it has terminated.
#[test]
fn a_container_whose_exit_was_lost_long_before_does_not_run() {
    let restarted = "
        proc again in=web:app:2 pid=200 ns=1 start=-49 parent=shim comm=app
        -50 lost sched_process_exit -51 1
        -50 lost cgroup_rmdir -51 1
        -49 mkdir web:app:2
        -49 exec again
        -48 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        ";
    let orderly = ORDERLY
        .replace("main", "again")
        .replace("rmdir web:app", "rmdir web:app:2")
        .replace(
            "phase=failed reason=Terminated app=0:Completed",
            "phase=failed reason=Terminated app.id=web:app:2 app=0:Completed",
        );
    check(
        &node(&format!(
            "{restarted}{orderly}\n+17 node agent-ends\n+20 reboot back=+40\n+21 node kubelet-state start=+1 end=+13"
        )),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +16.100 pod dns clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
            +17.000 node 1 Info +1.000…+17.000 graceful AgentEnded
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waited 12.3 s of at most 60 s
            +21.000 down +19.800…+40.000 of 1
        "#]],
    );
    // An outage hides the status: the container before may have ended.
    let script = node(&format!(
        "-57 api away\n{restarted}{orderly}\n+17 node agent-ends\n+20 reboot back=+40"
    ));
    let is_shown = |line: &&str| !line.trim_start().starts_with("-48 pod web") && !line.contains(" pod web phase=");
    let hidden = script.lines().filter(is_shown).collect::<Vec<_>>().join("\n");
    assert_eq!(verdicts(&hidden), ["unknown"], "{hidden}");
}

/// What was found at a later start had not exited before it.
#[test]
fn a_container_that_a_later_start_found_did_not_exit_in_an_earlier_loss() {
    const EXIT: &str = "lost sched_process_exit";
    const RMDIR: &str = "lost cgroup_rmdir";
    const OVERRUN: &str = "
        +1 node prepare true reboot
        +61 node job reboot.target
        +61.1 node state stopping
        +63 node agent-ends
        +64 reboot back=+90
        ";
    let restarted = |lost: &str| {
        gap(&format!(
            "{lost}
            -40 start
            -40 found pause
            -40 found main
            -40 found dns
            -40 scanned
            -40 node bus connected
            -40 node limit 60
            -40 node locks kubelet:delay:812 epitaph:delay:900
            -40 node kubelet 60 20
            -40 api synced
            -39 pod web app=running
            -39 pod dns dns=running
            {OVERRUN}"
        ))
    };
    let before = format!("-58 {EXIT} -59 1 damaged\n-58 {RMDIR} -59 1 damaged");
    assert_eq!(verdicts(&restarted(&before)), ["truncated"]);
    // A loss after the start.
    let after = restarted("").replace(
        "+1 node prepare",
        &format!("-30 {EXIT} -31 1\n-30 {RMDIR} -31 1\n+1 node prepare"),
    );
    assert_eq!(verdicts(&after), ["unknown"]);
    // Without a later start, and in the order in which a container ends.
    let lost = |exit: &str, rmdir: &str| node(&format!("-50 {EXIT} {exit} 1\n-50 {RMDIR} {rmdir} 1\n{OVERRUN}"));
    assert_eq!(verdicts(&lost("-51", "-51")), ["unknown"]);
    let removed_first = format!("-55 {RMDIR} -56 1\n-50 {EXIT} -51 1");
    assert_eq!(verdicts(&node(&format!("{removed_first}\n{OVERRUN}"))), ["truncated"]);
}

/// The locks were released and systemd went on, unseen.
#[test]
fn without_the_bus_no_delay_expires() {
    let of = facts(&node(
        "
        -80 node limit 5
        +1 node prepare true reboot
        +2 node bus gone the_role_has_ended
        +8 tick
        +9 end
        ",
    ));
    let delay = of.logind.delay.expect("a delay");
    assert_eq!((delay.end, delay.expired), (None, false));
    assert!(of.logind.locks.iter().all(|lock| !lock.outlasted), "{:?}", of.logind.locks);
    assert!(!of.logind.locks.is_empty());
}

/// The API did not answer, or exits were lost: pods may have terminated.
#[test]
fn no_pod_terminated_only_where_pods_are_known() {
    let sentence = |script: &str| {
        let text = show(&play_all(script));
        text.lines()
            .filter(|line| line.starts_with("  the ") || line.contains("sent Prepare"))
            .collect::<String>()
    };
    const NO_API: &str = "
        -90 node bus connected
        -90 node limit 60
        -90 node locks kubelet:delay:812 epitaph:delay:900
        -90 node kubelet 60 20
        ";
    for begin in [NO_API.to_owned(), node("+3 lost sched_process_exit +2 1")] {
        for rest in [
            "+1 node prepare true\n{}\n+5 node prepare false\n+100 tick",
            "+1 node prepare true by=:1.42\n{}\n+100 tick",
        ] {
            let (events, rest) = rest.split_once("{}").expect("a place");
            let lost = begin
                .rsplit_once("+3 lost")
                .map(|(_, lost)| format!("+3 lost{lost}"))
                .unwrap_or_default();
            let begin = begin.split("+3 lost").next().unwrap_or_default();
            let text = sentence(&format!("{begin}\n{events}\n{lost}{rest}"));
            assert!(!text.is_empty() && !text.contains("no pod"), "{text}");
        }
    }
    // The next case to it.
    let text = sentence(&node("+1 node prepare true\n+5 node prepare false\n+100 tick"));
    assert!(text.contains("no pod was terminated"), "{text}");
}

/// The exit of a pod is lost: whether it was cut is not known.
#[test]
fn a_pod_whose_exit_was_lost_overran_no_phase() {
    let lost = "+9 lost sched_process_exit +8.9 1 within web:app\n+9.05 lost cgroup_rmdir +8.9 1 within web:app";
    let orderly = ORDERLY
        .replace("+9 exit main 0", lost)
        .replace("+9.1 rmdir web:app", "+9.1 stays web:app");
    let script = node(&format!(
        "{orderly}\n+17 node agent-ends\n+20 reboot back=+40\n+21 node kubelet-state start=+1 end=+13"
    ));
    let of = facts(&script);
    assert!(of.pods.iter().any(|pod| pod.is_unsure), "{:?}", of.pods);
    assert!(of.cut().next().is_none(), "{:?}", of.pods);
    assert!(of.phases.iter().all(|phase| !phase.overran), "{:?}", of.phases);
    assert!(of.phases[0].at_least, "{:?}", of.phases);
    assert_eq!(verdicts(&script), ["unknown"]);
    // When the next phase began is not known either.
    let of = facts(&node(
        "
        +1 node prepare true reboot
        +1.1 TERM runc -> main handler
        +9 lost sched_process_exit +8.9 1 within web:app
        +31 node locks
        +31.1 node job reboot.target
        +33 node agent-ends
        +40 reboot back=+60
        +41 node kubelet-state start=+1 end=+31
        ",
    ));
    assert!(
        of.phases[0].at_least && of.phases.iter().all(|phase| !phase.overran),
        "{:?}",
        of.phases
    );
}

/// The exit of a pod before the shutdown was lost, or may have been: not every pod that seems to have run did.
#[test]
fn a_pod_whose_exit_was_lost_need_not_have_run() {
    let sentence = |lost: &str| {
        let script = node(&format!(
            "
            -80 node locks
            +1 node prepare true reboot
            {lost}
            +2 node job reboot.target
            +4 reboot back=+40
            +5 node kubelet-state
            "
        ));
        let text = show(&play_all(&script));
        let line = text
            .lines()
            .find(|line| line.contains("held no delay lock"))
            .map(str::to_owned);
        line.unwrap_or_else(|| panic!("{text}"))
    };
    assert!(sentence("").contains(", and 2 pods still ran when"));
    let one = sentence("+1.5 lost sched_process_exit +1.2 1 within web:app");
    assert!(one.contains(", and at least 1 pod still ran when"), "{one}");
    let any = sentence("+1.5 lost sched_process_exit +1.2 1");
    assert!(!any.contains("still ran"), "{any}");
}

/// Without the pods, or without their priorities, a phase of 0 s is not what was seen.
#[test]
fn a_phase_of_pods_that_are_not_known_lasted_at_least() {
    let script = "
        -90 node bus connected
        -90 node limit 60
        -90 node locks kubelet:delay:812 epitaph:delay:900
        -90 node kubelet 60 20
        +1 node prepare true reboot
        +13 node locks epitaph:delay:900
        +13.2 node locks
        +13.3 node job reboot.target
        +17 node agent-ends
        +20 end
        ";
    let of = facts(script);
    assert!(
        !of.phases.is_empty() && of.phases.iter().all(|phase| phase.at_least),
        "{:?}",
        of.phases
    );
}

/// What the agent did not see, it does not date.
#[test]
fn after_the_agents_end_the_node_was_down_at_most_so_long() {
    let down = |script: &str| {
        let of = |(_, report): &(crate::time::Boot, Report)| match report {
            Report::NodeDown(of) => Some(of.at_most),
            _ => None,
        };
        play_all(script).reports.iter().find_map(of)
    };
    let back = "+20 reboot back=+40\n+21 node kubelet-state start=+1 end=+13";
    assert_eq!(down(&node(&format!("{ORDERLY}\n+17 node agent-ends\n{back}"))), Some(true));
    assert_eq!(down(&node(&format!("{ORDERLY}\n{back}"))), Some(false));
}

/// A link from the shutdown leads to a trace: the pod is reported, under its own id.
#[test]
fn a_pod_with_a_trace_is_reported() {
    let swept = swept::scripts();
    let mut linked = 0;
    for script in properties::shutdowns().into_iter().chain(swept) {
        let played = play_all(&script).reports;
        let reported: Vec<_> = played
            .iter()
            .filter_map(|(_, report)| match report {
                Report::PodTerminated(of) => Some(&of.pod.uid),
                _ => None,
            })
            .collect();
        for (_, report) in &played {
            let Report::NodeShutdown(of) = report else { continue };
            for pod in of.pods.iter().filter(|pod| of.has_trace(pod)) {
                linked += 1;
                assert!(
                    reported.contains(&&pod.pod.uid),
                    "{:?} of {}\n{script}",
                    pod.pod,
                    of.verdict.headline
                );
            }
        }
    }
    assert!(linked > 0);
}
