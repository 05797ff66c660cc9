//! Pods that stayed Ready in the API until the node was back, as the first statuses of the next boot show.

use expect_test::expect;

use super::*;
use crate::time::Boot;

/// The node loses its power, and is back 45 s after the last evidence, at +105 of its clock. Statuses have times of that clock.
const LOST: &str = "
    pod job priority=0 app
    +60 reboot back=+105
    +61 skew -100 100
    +61 api away
    +61 node kubelet-state
    ";

/// When the shutdown was reported, and how many pods stayed Ready.
fn reported(script: &str) -> (String, Option<u64>) {
    let of = |(now, report): &(Boot, Report)| match report {
        Report::NodeShutdown(of) => Some((at(*now), of.pods_ready)),
        _ => None,
    };
    let reports: Vec<_> = play_all(script).reports.iter().filter_map(of).collect();
    let [report] = &reports[..] else { panic!("{reports:?}") };
    report.clone()
}

fn lost(rest: &str) -> String {
    node(&format!("{LOST}{rest}"))
}

/// With a complete list of these pods.
fn count(statuses: &str) -> Option<u64> {
    let (at, count) = reported(&lost(&format!("{statuses}\n+63 api synced")));
    assert_eq!(at, "+63.000", "{statuses}");
    count
}

#[test]
fn pods_stayed_ready_until_the_node_was_back() {
    check(
        &lost(
            "
            +62 pod web ready=-50
            +62 pod dns unready=+112/-59
            +62 pod job unready=+40/-59
            +63 api synced
            ",
        ),
        expect![[r#"
            +63.000 down +59.800…+105.000 of 1
            +63.000 node 1 Critical +59.800…+59.800 unannounced UNCLEAN Down { back: Boot(3705000000000) }
              the node went down without any announcement, and was back 45.2 s after the last evidence; 2 pods ran at the last evidence; at least 2 pods stayed Ready in the API until the node was back, and a Service sends clients to Ready pods
              fix: look at the end of the previous boot's log (`journalctl -b -1 -e`) and at the log of the power supply, the hypervisor or the cloud provider; reboot with `systemctl reboot`, without `-f`
        "#]],
    );
}

#[test]
fn a_status_shows_whether_a_pod_stayed_ready() {
    for (status, expected) in [
        ("ready=-50", Some(1)),
        // The kubelet, or the node controller, wrote it after the boot had begun.
        ("unready=+112/-59", Some(1)),
        // The node controller wrote it while the node was down, or the pod was not ready before.
        ("unready=+80/-59", Some(0)),
        ("unready=+40/-59", Some(0)),
        ("unready=-50", Some(0)),
        ("phase=running", None),
    ] {
        assert_eq!(count(&format!("+62 pod web {status}")), expected, "{status}");
    }
}

/// Each next to a case above.
#[test]
fn what_shows_nothing() {
    for statuses in [
        // It was anything before.
        "+62 pod web ready=+120",
        // After the last evidence, by a clock that may be wrong by now.
        "+62 pod web ready=+80",
        // The first status of the pod, for all that is known.
        "+62 pod web unready=+112",
        // It may have become ready in this boot.
        "+62 pod web unready=+112/+108",
        "+62 pod web unready=+112/+80",
        // Whole seconds, and a node controller with a clock of its own.
        "+62 pod web unready=+105/-59",
        "+62 pod web unready=+104/-59",
        "+62 skew -100 9000\n+62 pod web unready=+112/-59",
        "+62 skew -70000 100\n+62 pod web unready=+40/-59",
        // The clock was set after the boot: the statuses may have times from before.
        "+62 pod web ready=-50\n+62.1 clock +107",
        "+62 pod web unready=+112/-59\n+62.1 clock +107",
        // Without clients, or without reports.
        "+62 pod web ready=-50 phase=failed",
        "+62 pod web ready=-50 deleted=+50:30",
        "pod web ignore app\n+62 pod web ready=-50",
    ] {
        assert_eq!(count(statuses), None, "{statuses}");
    }
}

/// A kubelet that began before the clock was set writes times from before the boot.
#[test]
fn a_status_with_a_container_of_this_boot_is_of_this_boot() {
    const AGAIN: &str = "
        proc again in=web:app:2 pid=200 ns=1 start=+61.2 parent=shim comm=app
        +61.2 mkdir web:app:2
        +61.3 exec again
        ";
    let of = |id: &str| count(&format!("{AGAIN}+62 pod web app.id={id} app=running ready=-50"));
    assert_eq!((of("web:app:2"), of("web:app")), (None, Some(1)));
}

#[test]
fn a_clock_that_went_back_orders_no_times() {
    let of = |status: &str| {
        let script = lost(&format!("+62 pod web {status}\n+63 api synced"));
        reported(&script.replace("back=+105", "back=+30")).1
    };
    assert_eq!(of("unready=+40/-59"), None);
    assert_eq!((of("ready=-50"), of("ready=+35")), (Some(1), None));
}

#[test]
fn the_first_status_counts() {
    for (first, second, expected) in [
        ("ready=-50", "ready=+120", Some(1)),
        ("unready=+40/-59", "unready=+130/-59", Some(0)),
        ("ready=+120", "unready=+130/-59", None),
    ] {
        let statuses = format!("+62 pod web {first}\n+62.5 pod web {second}");
        assert_eq!(count(&statuses), expected, "{first}, {second}");
    }
}

#[test]
fn the_report_waits_for_the_list_and_the_kubelets_state() {
    const STATUS: &str = "+62 pod web ready=-50\n";
    let (skew, state) = ("+61 skew -100 100", "+61 node kubelet-state");
    for (script, expected) in [
        (lost(&format!("{STATUS}+70 api synced")), ("+70.000", Some(1))),
        (
            lost(&format!("{STATUS}+65 api synced\n+70 node kubelet-state")).replacen(state, "", 1),
            ("+70.000", Some(1)),
        ),
        (
            lost(&format!("{STATUS}+65 api synced\n+70 skew -100 100")).replacen(skew, "", 1),
            ("+70.000", Some(1)),
        ),
        // At most for 30 s.
        (lost(STATUS), ("+90.000", Some(1))),
        (lost("+90.5 pod web ready=-50\n+91 api synced"), ("+90.000", None)),
        (
            lost(&format!("{STATUS}+63 api synced")).replace(state, ""),
            ("+90.000", Some(1)),
        ),
        // There was a connection to the API before, and none is announced yet.
        (lost("").replace("+61 api away", ""), ("+90.000", None)),
        // Without Kubernetes there is nothing to wait for.
        (
            lost("").replace("+61 api away", "").replace("-60 api synced", ""),
            ("+61.000", None),
        ),
    ] {
        let (at, count) = reported(&script);
        assert_eq!((at.as_str(), count), expected, "{script}");
    }
}
