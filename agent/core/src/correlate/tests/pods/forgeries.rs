//! What a tenant can write (annotations of its own pods, cgroups below its own container) does not hide or forge another pod's
//! terminations.

use std::sync::Arc;
use std::time::Duration;

use expect_test::expect;

use super::{check, web};
use crate::correlate::{Correlator, Limits};
use crate::fixtures::script::parse;
use crate::input::Input;
use crate::report::{DropReason, Report};
use crate::time::Boot;

/// A container with a writable cgroup tree, and `forge` below it.
fn hostile(forge: &str, exit: &str) -> String {
    web(&format!(
        "
        pod evil app
        -50 mkdir evil:app
        proc evil in=evil:app pid=300 ns=1 start=-50 parent=shim comm=evil
        -50 exec evil
        -49 pod evil app=running
        +1 mkdir evil:app>web:{forge}
        proc fake in=evil:app>web:{name} pid=310 ns=1 level=2 start=+1.1 parent=evil comm=web
        +1.2 exec fake
        {exit}
        +3 rmdir evil:app>web:{name}
        ",
        name = forge.split(' ').next().expect("a name"),
    ))
}

#[test]
fn a_cgroup_below_a_container_that_names_another_pod_is_not_that_pods() {
    check(&hostile("fake", "+2 exit fake 1"), expect![[""]]);
    // With the id of the victim's container.
    check(&hostile("fake as=web:app", "+2 exit fake 1"), expect![[""]]);
}

/// An early warning is no less a report than a termination.
#[test]
fn a_forged_stop_is_not_the_victims() {
    check(
        &hostile(
            "fake",
            "+2 TERM evil -> fake ignored default\n+2.5 KILL evil -> fake\n+2.51 exit fake KILL",
        ),
        expect![[""]],
    );
}

/// The victim's own termination is judged as without the forgery.
#[test]
fn a_forged_container_does_not_change_the_victims_termination() {
    const DELETED: &str = "
        +2 exit fake 1
        +10.05 pod web deleted=+10:30
        +10.3 TERM runc -> main handler
        +10.31 enter main TERM
        +10.5 exit main 0
        +11 pod web app=0:Completed
        +12 gone web";
    check(
        &hostile("fake as=web:app", DELETED),
        expect![[r#"
            +12.800 pod web +10.000…+10.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +10.000…+10.050 grace 30 s
              web/app +10.300…+10.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
              gone +12.000
        "#]],
    );
}

const DELETION: &str = "
    +1.05 pod web deleted=+1:30
    +1.3 TERM runc -> main handler
    +1.31 enter main TERM
    +1.5 exit main 0
    +2 pod web app=0:Completed
    +3 gone web
    +4 tick
    ";

/// As an annotation of a pod of another tenant may claim it, with an opt-out: before and after the victim.
#[test]
fn a_pod_that_claims_anothers_uid_hides_nothing() {
    let claim = "pod evil uid=00000000-0000-4000-8000-0000000000ee hash=00000000-0000-4000-8000-000000000001 ignore app";
    for claimed in ["-50 pod evil", "-50 pod evil\n+0 gone evil", "+1.2 pod evil", "+2.5 pod evil"] {
        check(
            &web(&format!("{claim}\n{claimed}\n{DELETION}")),
            expect![[r#"
                +3.800 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
                  request +1.000…+1.050 grace 30 s
                  web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                    Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                  gone +3.000
            "#]],
        );
    }
    // Even if the tenant could write the status of its pod; the second object of a name is counted.
    check(
        &web(&format!("{claim}\n-50 pod evil app=running\n{DELETION}")),
        expect![[r#"
            -49.800 dropped unattributed: 1
            +3.800 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
              gone +3.000
        "#]],
    );
}

/// The claim is there before the pod: the object's own UID counts for more than an annotation.
#[test]
fn a_pod_whose_uid_was_claimed_before_is_itself() {
    check(
        &format!(
            "
        -70 api synced
        pod web app
        pod evil hash=00000000-0000-4000-8000-000000000001 ignore app
        -69 pod evil app=running
        {}
        {DELETION}",
            super::WEB.replace("-60 api synced", "").replace("pod web app\n", "\n")
        ),
        expect![[r#"
            +3.800 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
              gone +3.000
        "#]],
    );
}

/// A static pod's hash is no secret. Only the kubelet writes a status, so only a status proves the claim of a mirror pod.
#[test]
fn a_pod_that_claims_a_static_pods_hash_hides_nothing() {
    for (before, after) in [("-50 pod evil", ""), ("", "+1.02 pod evil")] {
        check(
            &format!(
                "
                -60 api synced
                pod evil uid=00000000-0000-4000-8000-0000000000ee hash=abc ignore app
                {before}
                pod web hash=abc app
                -60 mkdir web:pause
                proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
                -60 exec pause
                -59 mkdir web:app
                proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
                -59 exec main
                -58 pod web
                -57 pod web app=running
                {after}
                +2 TERM runc -> main handler
                +2.1 enter main TERM
                +3 exit main 0
                +3.5 gone web
                "
            ),
            expect![[r#"
                +5.300 pod web +2.000…+3.000 clean: Deleted/Clean/Quiet (the mirror pod was deleted and not created again)
                  web/app +2.000…+3.000 clean: Deleted/Clean/Quiet
                    Deleted: the mirror pod was deleted and not created again
                  gone +3.500
            "#]],
        );
    }
}

/// Some runtimes copy annotations of a pod into the files of its containers.
#[test]
fn a_container_that_a_status_names_is_not_a_sandbox_by_its_file() {
    check(
        &web("
        +0.5 describe web:app sandbox
        +1 SEGV main -> main fault
        +1.001 exit main SEGV
        +2 pod web app=139:Error
        +2.5 pod web app=waiting app.last=web:app:139:Error app.restarts=1
        "),
        expect![[r#"
            +4.100 web/app +1.000…+1.001 crashed: Crash/Crashed/Quiet
              reported 139 Error
        "#]],
    );
}

/// Whoever creates pods can bind any number of them to this node, as large as an object may be. The kubelet runs none of these.
#[test]
fn pods_that_anybody_can_bind_to_the_node_push_no_running_pod_out() {
    // The hook closes the listener: clients count from the request on only if the pod is known.
    const STOP: &str = "
        +1.05 pod web deleted=+1:30
        +2 tcp web:app closed 80
        +2.1 tcp web:app refused 80 5001
        +6 TERM runc -> main handler
        +6.01 enter main TERM
        +6.5 exit main 0
        +7 pod web app=0:Completed
        +8 gone web";
    let limits = Limits {
        pods: 16,
        ..Limits::default()
    };
    for of in ["shop", "evil"] {
        let evil: String = (0..100).map(|n| format!("pod evil{n} app\n-40 pod evil{n}\n")).collect();
        let mut correlator = Correlator::new(limits);
        let (mut now, mut reports) = (Boot(0), Vec::new());
        for (at, mut input) in parse(&web(&format!("{evil}{STOP}"))).inputs {
            if let Input::Pod(fact) = &mut input
                && fact.pod.name.starts_with("evil")
            {
                Arc::make_mut(&mut Arc::make_mut(fact).pod).namespace = of.to_owned();
            }
            now = now.max(at);
            reports.extend(correlator.handle(now, input).reports);
        }
        reports.extend(correlator.handle(now.plus(Duration::from_secs(60)), Input::Tick).reports);
        let pods = reports.iter().filter_map(|report| match report {
            Report::PodTerminated(pod) => Some((pod.pod.name.as_str(), pod.verdict.headline)),
            _ => None,
        });
        assert_eq!(
            pods.collect::<Vec<_>>(),
            [("web", "refused-connections")],
            "evil pods in {of}"
        );
        let is_cap = |report: &Report| matches!(report, Report::Dropped { reason: DropReason::PodCap, count } if *count > 0);
        assert!(reports.iter().any(is_cap), "none is counted");
    }
}
