//! What the next boot adds: an end that nothing announced, the kubelet's state, and the time in which the node was down.

use std::time::Duration;

use expect_test::expect;

use super::*;
use crate::correlate::{Correlator, Keeper, Limits};
use crate::fixtures::script::{ZERO, parse};
use crate::input::Input;
use crate::shutdown::Ending;
use crate::time::{Boot, WallOffset};

#[test]
fn nothing_announced_the_end() {
    check(
        &node("+2 tick\n+60 reboot back=+105"),
        expect![[r#"
            +90.000 down +59.800…+105.000 of 1
            +90.000 node 1 Critical +59.800…+59.800 unannounced UNCLEAN Down { back: Boot(3705000000000) }
              the node went down without any announcement, and was back 45.2 s after the last evidence; 2 pods ran at the last evidence
              fix: look at the end of the previous boot's log (`journalctl -b -1 -e`) and at the log of the power supply, the hypervisor or the cloud provider; reboot with `systemctl reboot`, without `-f`
        "#]],
    );
}

/// The next case to it: the agent had ended, so that nobody listened.
#[test]
fn an_agent_that_had_ended_does_not_know() {
    check(
        &node("+2 node agent-ends\n+60 reboot back=+105"),
        expect![[r#"
            +90.000 node 1 Warning +59.800…+59.800 unknown Down { back: Boot(3705000000000) }
              why the node went down is unknown: the agent stopped before the node went down
              fix: keep epitaph running until the pods have terminated: give it the highest priority and a long grace period
        "#]],
    );
}

#[test]
fn a_lost_message_may_have_been_the_announcement() {
    check(
        &node("+1 node lost 3\n+2 tick\n+60 reboot back=+105"),
        expect![[r#"
            +90.000 down +59.800…+105.000 of 1
            +90.000 node 1 Warning +59.800…+59.800 unknown Down { back: Boot(3705000000000) }
              why the node went down is unknown: the queue was full; the node was back 45.2 s after the last evidence
              fix: run `epitaph logind` (chart: `logind.enabled`), and keep it connected: without it a shutdown and a power loss look the same
        "#]],
    );
}

/// At a boot the role is there before logind: a state that is read later shows that nothing was announced meanwhile.
#[test]
fn what_was_missed_before_the_state_was_read_announced_nothing() {
    let gone = "-5 node bus gone logind_does_not_run\n";
    let rest = "+2 tick\n+60 reboot back=+105";
    assert_eq!(
        verdicts(&node(&format!("{gone}-3 node bus connected\n{rest}"))),
        ["unannounced"]
    );
    assert_eq!(verdicts(&node(&format!("{gone}{rest}"))), ["unknown"]);
    assert_eq!(
        verdicts(&node(&format!("{gone}-3 node bus connected\n-2 node lost 3\n{rest}"))),
        ["unknown"],
        "lost after it"
    );
}

/// The agent was not asked to end: the machine lost its power within the delay.
#[test]
fn a_power_cut_within_the_delay() {
    check(
        "-90 node bus connected\n-90 node limit 30\n-90 node locks backup:delay:812\n+1 node prepare true poweroff\n+4 reboot back=+49",
        expect![[r#"
            +4.000 down +3.800…+49.000 of 1
            +4.000 node 1 Critical +1.000…+3.800 truncated UNCLEAN Down { back: Boot(3649000000000) }
              the machine lost power or was reset during the power-off that logind had announced: the last evidence is 2.8 s after the announcement, within logind's delay; the node was back 45.2 s after the last evidence
              fix: look at the log of the power supply, the hypervisor or the cloud provider at that time; if the provider switches machines off after a time limit, the limit must exceed logind's delay (30 s) and the stop of the services
        "#]],
    );
}

/// The kubelet's phases, by its own state, too: the periods are not to blame.
#[test]
fn a_power_cut_within_a_phase() {
    check(
        &node(
            "
            +1 node prepare true poweroff
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +9 exit main 0
            +9.1 rmdir web:app
            +12 reboot back=+49
            +13 node kubelet-state start=+1
            ",
        ),
        expect![[r#"
            +42.000 down +11.900…+49.000 of 1
            +42.000 node 1 Critical +1.000…+11.900 truncated UNCLEAN Down { back: Boot(3649000000000) }
              the machine lost power or was reset during the power-off that logind had announced: the last evidence is 10.9 s after the announcement, within logind's delay; the node was back 37.1 s after the last evidence; 1 pod ran then: shop/dns
              fix: look at the log of the power supply, the hypervisor or the cloud provider at that time; if the provider switches machines off after a time limit, the limit must exceed logind's delay (60 s) and the stop of the services
            +72.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
        "#]],
    );
}

#[test]
fn a_power_cut_while_the_services_stop() {
    check(
        "-90 node bus connected\n-90 node limit 5\n-90 node locks\n+1 node prepare true poweroff\n+1.1 node job poweroff.target\n\
         +1.2 node bus gone the_role_has_ended\n+4 reboot back=+49",
        expect![[r#"
            +4.000 down +3.800…+49.000 of 1
            +4.000 node 1 Critical +1.000…+3.800 truncated UNCLEAN Down { back: Boot(3649000000000) }
              the machine lost power or was reset during the power-off that logind had announced: the last evidence is 2.8 s after the announcement, while systemd stopped the services; the node was back 45.2 s after the last evidence
              fix: look at the log of the power supply, the hypervisor or the cloud provider at that time; if the provider switches machines off after a time limit, the limit must exceed logind's delay (5 s) and the stop of the services
        "#]],
    );
}

/// The next cases to it: the shutdown came to its end, or the agent could not know.
#[test]
fn what_is_no_power_cut() {
    const HOST: &str = "
        -90 node bus connected
        -90 node limit 5
        -90 node locks
        proc last in=init pid=1 start=-3600 comm=systemd-shutdow
        proc other in=init pid=50 start=-60 comm=other
        +1 node prepare true poweroff
        +1.1 node job poweroff.target
        ";
    assert_eq!(verdicts(&format!("{HOST}\n+4 reboot back=+49")), ["truncated"]);
    for rest in [
        "+3 node agent-ends\n+4 reboot back=+49",
        "+3 TERM last -> other handler\n+4 reboot back=+49",
    ] {
        assert_eq!(verdicts(&format!("{HOST}\n{rest}")), ["graceful"], "{rest}");
    }
    assert_eq!(
        verdicts("-90 node bus connected\n+1 node prepare true poweroff\n+2 node lost 3\n+4 reboot back=+49"),
        ["unknown"]
    );
    // The one record of systemd-shutdown that the kernel made may be the one that it lost, whatever the loss is counted for.
    for scope in ["", " others init", " within init"] {
        assert_eq!(
            verdicts(&format!("{HOST}\n+3.5 lost signal_generate +2 1{scope}\n+4 reboot back=+49")),
            ["unknown"],
            "{scope}"
        );
    }
    // systemd-shutdown signals all processes: a container that loses records of its own hides not all of that.
    let noisy = "+0 mkdir app\nproc main in=app pid=100 ns=1 start=+0 parent=shim comm=app\n+0.001 exec main";
    for scope in ["others app", "within app"] {
        assert_eq!(
            verdicts(&format!(
                "{noisy}\n{HOST}\n+3.5 lost signal_generate +2 1 {scope}\n+4 reboot back=+49"
            )),
            ["truncated"],
            "{scope}"
        );
    }
    // Of other records none is a sign.
    assert_eq!(
        verdicts(&format!("{HOST}\n+3.5 lost sched_process_exec +2 1\n+4 reboot back=+49")),
        ["truncated"]
    );
}

/// A damaged journal states losses, also of a machine without logind.
#[test]
fn a_loss_is_not_a_source() {
    assert_eq!(
        verdicts("+1 node lost 3\n+2 tick\n+60 reboot back=+105"),
        <[&str; 0]>::default()
    );
}

#[test]
fn a_message_that_was_lost_long_before_was_not() {
    assert_eq!(
        verdicts(&node("-89 node lost 3\n+2000 tick\n+2060 reboot back=+2105")),
        ["unannounced"]
    );
}

#[test]
fn without_the_role_nothing_is_known() {
    check(
        "-10 node bus off\n+2 tick\n+60 reboot back=+105",
        expect![[r#"
            +60.000 down +59.800…+105.000 of 1
            +60.000 node 1 Warning +59.800…+59.800 unknown Down { back: Boot(3705000000000) }
              why the node went down is unknown: the observation of logind is switched off; the node was back 45.2 s after the last evidence
              fix: run `epitaph logind` (chart: `logind.enabled`), and keep it connected: without it a shutdown and a power loss look the same
        "#]],
    );
}

#[test]
fn without_a_source_nothing_is_reported() {
    assert_eq!(verdicts("+2 tick\n+60 reboot back=+105"), Vec::<&str>::new());
}

#[test]
fn the_kubelets_state_shows_that_it_did_not_finish() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +5 tick
            +50 node agent-ends
            +60 reboot back=+105
            +61 node bus connected
            +62 node kubelet-state start=+1
            ",
        ),
        expect![[r#"
            +90.000 down +59.800…+105.000 of 1
            +90.000 node 1 Critical +1.000…+59.800 truncated UNCLEAN Down { back: Boot(3705000000000) }
              the kubelet began to stop the pods for the reboot and did not finish; 2 pods were not seen to end: shop/dns, shop/web
              fix: raise shutdownGracePeriod (and logind's InhibitDelayMaxSec with it) to the time that the named pods need, or shorten the shutdown of these pods
            +120.000 container 000000000000 unknown: NodeShutdown, by 1 PrepareForShutdown
              container `app`: how PID 1 `app` terminated is unknown: epitaph's last evidence is 58.7 s after SIGTERM, and no exit was seen until then; the node was shutting down
        "#]],
    );
}

/// The pods' traces before the step have the clock of the begin, and the kubelet's state has it, too.
#[test]
fn a_step_of_the_clock_within_the_delay_leaves_the_times_of_the_begin() {
    for (step, back) in [("+3600", "+3705"), ("-60", "+45")] {
        let script = node(&format!(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +5 clock {step}
            +6 tick
            +60 reboot back={back}
            +62 node kubelet-state start=+1
            "
        ));
        assert_eq!(verdicts(&script), ["truncated"], "{step}");
        let played = play_all(&script);
        let of_node = |(_, report): &(Boot, Report)| match report {
            Report::NodeShutdown(of) => Some((of.clock, of.ending)),
            _ => None,
        };
        let ending = Ending::Down {
            back: ZERO.plus(Duration::from_secs(105)),
        };
        assert_eq!(
            played.reports.iter().find_map(of_node),
            Some((WallOffset(0), ending)),
            "{step}"
        );
    }
}

/// The agent ended with the pods of its phase, before the kubelet had reported the status of the pod `dns`.
const DNS_HAS_EXITED: &str = "
    +1 node prepare true reboot
    +1.1 TERM runc -> main handler
    +1.11 enter main TERM
    +9 exit main 0
    +9.1 rmdir web:app
    +9.5 pod web phase=succeeded app=0:Completed
    +10 TERM runc -> dns handler
    +10.01 enter dns TERM
    +12 exit dns 0
    +12.1 rmdir dns:dns
    +12.2 node agent-ends
    +13 reboot back=+105
    +14 node kubelet-state start=+1 end=+13
    ";

#[test]
fn a_pod_whose_status_came_after_the_agents_end_is_completed() {
    check(
        &node(&format!(
            "{DNS_HAS_EXITED}\n+16 pod dns phase=succeeded dns=0:Completed\n+16.1 api synced"
        )),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +16.000 pod dns clean-exit: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down; the sockets of the container were not observed
            +43.100 down +13.000…+105.000 of 1
            +43.100 node 1 Info +1.000…+12.800 graceful Down { back: Boot(3705000000000) }
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waits at most 60 s
        "#]],
    );
}

#[test]
fn a_pod_that_was_deleted_while_the_node_was_down_is_completed() {
    check(
        &node(&format!("{DNS_HAS_EXITED}\n+16.1 api synced")),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +16.100 pod dns clean-exit: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down; the sockets of the container were not observed
            +43.100 down +13.000…+105.000 of 1
            +43.100 node 1 Info +1.000…+12.800 graceful Down { back: Boot(3705000000000) }
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waits at most 60 s
        "#]],
    );
}

/// The status of the old boot is no answer, and without one the termination is reported alone.
#[test]
fn a_pod_whose_end_is_not_shown_is_not_completed() {
    check(
        &node(&format!(
            "{DNS_HAS_EXITED}\n+16 pod dns dns=running\n+16.1 api synced\n+130 tick"
        )),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +43.100 down +13.000…+105.000 of 1
            +43.100 node 1 Info +1.000…+12.800 graceful Down { back: Boot(3705000000000) }
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waits at most 60 s
            +73.100 container 000000000000 clean-exit: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down; the sockets of the container were not observed
        "#]],
    );
}

/// The next case to it: the kubelet started its container again.
#[test]
fn a_pod_that_goes_on_after_the_boot_has_not_terminated() {
    check(
        &node(&format!(
            "{DNS_HAS_EXITED}\n+16 pod dns dns.id=another dns=running\n+16.1 api synced"
        )),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +16.000 container 000000000000 clean-exit: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down; the sockets of the container were not observed
            +43.100 down +13.000…+105.000 of 1
            +43.100 node 1 Info +1.000…+12.800 graceful Down { back: Boot(3705000000000) }
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waits at most 60 s
        "#]],
    );
}

/// Its `lastState`, which nobody recorded: the runtime lost the exit with the boot, and the kernel's record is in the journal.
#[test]
fn what_kubectl_shows_of_a_pod_that_goes_on_after_the_boot() {
    let next = "+16 pod dns dns.id=another dns=running dns.last=dns:dns:255:Unknown dns.restarts=1\n+16.1 api synced";
    check(
        &node(&format!("{DNS_HAS_EXITED}\n{next}")),
        expect![[r#"
        +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
          container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
        +16.000 container 000000000000 clean-exit: NodeShutdown, by 1 PrepareForShutdown
          container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down; kubectl shows Unknown, exit code 255; the kernel: exited with 0 at SIGTERM; the sockets of the container were not observed
        +43.100 down +13.000…+105.000 of 1
        +43.100 node 1 Info +1.000…+12.800 graceful Down { back: Boot(3705000000000) }
          the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waits at most 60 s
    "#]],
    );
}

/// The state of an earlier shutdown.
#[test]
fn an_older_state_shows_nothing() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +5 tick
            +50 node agent-ends
            +60 reboot back=+105
            +62 node kubelet-state start=-3000
            ",
        ),
        expect![[r#"
            +90.000 down +59.800…+105.000 of 1
            +90.000 node 1 Warning +1.000…+59.800 unknown Down { back: Boot(3705000000000) }
              how the reboot went is unknown: the agent stopped before the node went down; the node was back 45.2 s after the last evidence
              fix: keep epitaph running until the pods have terminated: give it the highest priority and a long grace period
            +120.000 container 000000000000 unknown: NodeShutdown, by 1 PrepareForShutdown
              container `app`: how PID 1 `app` terminated is unknown: epitaph's last evidence is 58.7 s after SIGTERM, and no exit was seen until then; the node was shutting down
        "#]],
    );
}

/// The agent ended while pods of a phase ran: what it saw of the phase is less than the phase.
#[test]
fn a_phase_whose_pods_outlast_the_agent_lasted_at_least_as_long_as_was_seen() {
    let begin = "+1 node prepare true reboot\n+1.1 TERM runc -> main handler\n+1.11 enter main TERM\n";
    let of = |rest: &str| phases(&node(&format!("{begin}{rest}")));
    assert_eq!(
        of("+12 node agent-ends\n+15 reboot back=+60\n+17 node kubelet-state start=+1"),
        ["0 +1.000…+14.800 at least"]
    );
    // The phase before had its whole period, as the agent saw.
    assert_eq!(
        of("+50 node agent-ends\n+55 reboot back=+105\n+57 node kubelet-state start=+1"),
        ["0 +1.000…+41.000 overran", "2000000000 +41.000…+54.800 at least"]
    );
    // The next cases to it: a power cut ended the phase, and so did the kubelet's end with the services.
    assert_eq!(
        of("+12 reboot back=+60\n+17 node kubelet-state start=+1"),
        ["0 +1.000…+11.910"]
    );
    assert_eq!(
        of("+10 node job reboot.target\n+12 node agent-ends\n+15 reboot back=+60\n+17 node kubelet-state start=+1"),
        ["0 +1.000…+10.000"]
    );
}

/// Of the node's shutdowns: priority, begin and end of each phase.
fn phases(script: &str) -> Vec<String> {
    let of = |(_, report): (Boot, Report)| match report {
        Report::NodeShutdown(of) => of.facts.phases,
        _ => Vec::new(),
    };
    let show = |phase: crate::shutdown::Phase| {
        let over = match (phase.overran, phase.at_least) {
            (true, _) => " overran",
            (_, true) => " at least",
            _ => "",
        };
        format!("{} {}…{}{over}", phase.priority, at(phase.begin), at(phase.end))
    };
    play_all(script).reports.into_iter().flat_map(of).map(show).collect()
}

#[test]
fn what_an_agent_reported_before_its_end_is_not_reported_again() {
    check(
        &node(&format!(
            "{ORDERLY}\n+17 node agent-ends\n+60 reboot back=+105\n+62 node kubelet-state start=+1 end=+13"
        )),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +16.100 pod dns clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
            +17.000 node 1 Info +1.000…+17.000 graceful AgentEnded
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waited 12.3 s of at most 60 s
            +62.000 down +59.800…+105.000 of 1
        "#]],
    );
}

#[test]
fn a_soft_reboot_keeps_the_boot() {
    check(
        &gap("
            +1 node prepare true soft-reboot
            +2 node locks
            +2.1 node job soft-reboot.target
            +10 start
            +11 node bus connected
            "),
        expect![[r#"
            +11.000 node 1 Critical +1.000…+2.100 truncated UNCLEAN Down { back: Boot(3610000000000) }
              the soft-reboot did not wait for the shutdown of 2 of 2 pods: shop/dns (got no stop signal), shop/web (got no stop signal) (normal phase took at least 1.1 s of 40 s)
              fix: look at the log of the kubelet's service in that boot: the kubelet released its lock after 1.0 s, before its periods (60 s) had passed and its pods had ended
            +11.000 down +2.100…+10.000 of 1, soft
        "#]],
    );
}

/// As systemd does it: the agent ends with the services, and has reported the shutdown by then.
#[test]
fn a_soft_reboot_after_the_agent_has_ended_in_order() {
    check(
        &gap(&format!(
            "{}\n+17 node agent-ends\n+20 start\n+21 node bus connected",
            ORDERLY.replace("reboot", "soft-reboot")
        )),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +16.100 pod dns clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
            +17.000 node 1 Info +1.000…+17.000 graceful AgentEnded
              the soft-reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waited 12.3 s of at most 60 s
            +21.000 down +17.000…+20.000 of 1, soft
        "#]],
    );
}

/// The successor continues in the same boot, which then loses its power: another shutdown.
#[test]
fn a_reboot_that_did_not_happen_is_not_the_end_of_the_boot() {
    check(
        &gap(&format!(
            "{ORDERLY}\n+17 node agent-ends\n+20 start\n+21 node bus connected\n+900 reboot back=+940"
        )),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +16.100 pod dns clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
            +17.000 node 1 Info +1.000…+17.000 graceful AgentEnded
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waited 12.3 s of at most 60 s
            +930.000 down +899.800…+940.000 of 2
            +930.000 node 2 Critical +899.800…+899.800 unannounced UNCLEAN Down { back: Boot(4540000000000) }
              the node went down without any announcement, and was back 40.2 s after the last evidence
              fix: look at the end of the previous boot's log (`journalctl -b -1 -e`) and at the log of the power supply, the hypervisor or the cloud provider; reboot with `systemctl reboot`, without `-f`
        "#]],
    );
}

/// The agent is started again within a shutdown that is cancelled meanwhile.
#[test]
fn a_shutdown_that_is_over_after_a_gap() {
    check(
        &gap("+1 node prepare true reboot\n+10 start\n+11 node bus connected"),
        expect![[r#"
            +11.000 node 1 Warning +1.000…+11.000 unknown Continued
              how the reboot went is unknown: epitaph was not observing for a part of the shutdown
              fix: keep epitaph running until the pods have terminated: give it the highest priority and a long grace period
        "#]],
    );
}

/// The states of the node are sent on change only: when the journal's oldest segments are removed, the others have these states.
#[test]
fn the_tail_of_a_journal_has_the_states_of_the_node() {
    for (rest, expected) in [
        ("+2 tick\n+60 reboot back=+105\n+62 node kubelet-state", "unannounced"),
        (
            "+1 node job reboot.target\n+4 reboot back=+40\n+5 node kubelet-state",
            "bypassed",
        ),
        (
            "-1 node locks epitaph:delay:900\n+1 node prepare true reboot\n+2 node job reboot.target\n+4 reboot back=+40\n+5 node kubelet-state",
            "unprotected",
        ),
    ] {
        assert_eq!(verdicts(&node(rest)), [expected], "{rest}");
        assert_eq!(of_tail(&node(rest), true), [expected], "{rest}");
        assert_ne!(of_tail(&node(rest), false), [expected], "{rest}");
    }
}

/// Verdicts by what is kept if the frames before the script's time 0 are gone.
fn of_tail(script: &str, with_states: bool) -> Vec<&'static str> {
    let mut core = Correlator::new(Limits::default());
    let (mut keeper, mut tail) = (Keeper::default(), Correlator::new(Limits::default()));
    let mut reports = Vec::new();
    let mut is_cut = false;
    for (now, input) in parse(script).inputs {
        if !is_cut && now >= ZERO {
            is_cut = true;
            keeper.forget(&core);
            for state in keeper.owed(&core).iter().filter(|_| with_states) {
                tail.handle(ZERO, state.clone());
            }
            assert!(keeper.owed(&core).is_empty(), "once");
        }
        keeper.note(&input);
        // The header of each segment has it.
        if is_cut || matches!(input, Input::Start(_)) {
            reports.extend(tail.handle(now, input.clone()).reports);
        }
        core.handle(now, input);
    }
    reports.extend(tail.handle(ZERO.plus(Duration::from_secs(600)), Input::Tick).reports);
    let headline = |report: Report| match report {
        Report::NodeShutdown(of) => Some(of.verdict.headline),
        _ => None,
    };
    reports.into_iter().filter_map(headline).collect()
}

/// The kubelet of the next boot writes 255 for a container whose exit nobody recorded. That is no second exit, and nothing contradicts it: the
/// machine ended, and with it the process. Without a stop the node's report alone remains.
#[test]
fn a_status_of_the_next_boot_is_no_second_exit() {
    let next = "
            +5 tick
            +60 reboot back=+105
            +61 node bus connected
            +70 pod web app=255:Unknown
            +80 pod dns dns=255:Unknown
            +400 tick
            ";
    let stopped = "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM";
    check(
        &node(&format!("{stopped}{next}")),
        expect![[r#"
        +90.000 down +59.800…+105.000 of 1
        +90.000 node 1 Critical +1.000…+59.800 truncated UNCLEAN Down { back: Boot(3705000000000) }
          the machine lost power or was reset during the reboot that logind had announced: the last evidence is 58.8 s after the announcement, within logind's delay; the node was back 45.2 s after the last evidence; 2 pods ran then: shop/dns, shop/web
          fix: look at the log of the power supply, the hypervisor or the cloud provider at that time; if the provider switches machines off after a time limit, the limit must exceed logind's delay (60 s) and the stop of the services
        +120.000 container 000000000000 unknown: NodeShutdown, by 1 PrepareForShutdown
          container `app`: how PID 1 `app` terminated is unknown: the node went down 58.7 s after SIGTERM, and no exit was seen until then; the node was shutting down
    "#]],
    );
    check(
        &node(next),
        expect![[r#"
        +90.000 down +59.800…+105.000 of 1
        +90.000 node 1 Critical +59.800…+59.800 unannounced UNCLEAN Down { back: Boot(3705000000000) }
          the node went down without any announcement, and was back 45.2 s after the last evidence; 2 pods ran at the last evidence
          fix: look at the end of the previous boot's log (`journalctl -b -1 -e`) and at the log of the power supply, the hypervisor or the cloud provider; reboot with `systemctl reboot`, without `-f`
    "#]],
    );
}
