//! Pods that are still `Terminating` although their containers have exited: the layer that holds them, and the next layer, which must not be
//! confused with it.

use expect_test::expect;

use super::*;
use crate::correlate::{Correlator, Limits};
use crate::fixtures::script::{parse, play_all};
use crate::input::Input;
use crate::report::Command;

/// Deleted, stopped and gone from the kernel's view, with its status.
const ENDED: &str = "
    -1 skew 0 0
    +1 pod web deleted=+1:30
    +2 TERM runc -> main handler
    +2.01 enter main TERM
    +3 exit main 0
    +3.1 rmdir web:app
    ";
const REPORTED: &str = "+4 pod web app=0:Completed\n";
const SANDBOX_GONE: &str = "
    +4.2 KILL runc -> pause
    +4.21 exit pause KILL
    +4.3 rmdir web:pause
    ";

/// Each time the layer with its sentence.
fn held(rest: &str) -> String {
    held_of(&web(&format!("{ENDED}{rest}")))
}

fn held_of(script: &str) -> String {
    let of = |(now, report): &(Boot, Report)| match report {
        Report::PodHeld(of) => Some(format!(
            "{} {}\n  {}\n",
            at(*now),
            of.verdict.row.headline,
            of.verdict.sentence
        )),
        _ => None,
    };
    play_all(script).reports.iter().filter_map(of).collect()
}

#[test]
fn the_exit_does_not_reach_the_status() {
    expect![[r#"
        +63.100 held-by-runtime
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and its status still shows `app` as running; not known: whether a process of the container is in state D, whether the shim is alive, and whether the shim, the runtime or the kubelet waits; the pod's Events were not listed
    "#]].assert_eq(&held(""));
}

/// A status with the exit, the exit of the sandbox or an Event may be in the part of the evidence that is missing.
#[test]
fn a_missing_part_names_no_layer() {
    for missing in ["damaged", "not-recorded"] {
        let held = held(&format!("+10 lost tcp +5 1 {missing}"));
        assert!(
            held.contains("held-by-kubelet") && !held.contains("held-by-runtime"),
            "{held}"
        );
        assert!(held.contains("whether the sandbox is gone"), "{held}");
    }
    // The next case to it: the part is from before the deletion.
    let before = held("").replace("held-by", "");
    assert_eq!(
        held_of(&web(&format!("-5 lost tcp -6 1 damaged{ENDED}"))).replace("held-by", ""),
        before
    );
}

/// A shim that is stopped: the process stays a zombie, and its cgroup stays too. The pod's own report has come before.
#[test]
fn a_shim_that_takes_no_exit() {
    let script = web(ENDED).replace("+3.1 rmdir web:app", "+110 tick");
    let pods = |(now, report): &(Boot, Report)| match report {
        Report::PodTerminated(of) => {
            let incomplete: Vec<_> = of
                .containers
                .iter()
                .filter_map(|of| of.kubernetes.as_ref()?.incomplete.clone())
                .collect();
            Some(format!(
                "{} {} {:?} {incomplete:?}: {}\n",
                at(*now),
                of.verdict.headline,
                of.verdict.cause,
                of.verdict.sentence
            ))
        }
        _ => None,
    };
    let pods: String = play_all(&script).reports.iter().filter_map(pods).collect();
    expect![[r#"
        +63.100 held-by-runtime
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and its status still shows `app` as running; not known: whether a process of the container is in state D, whether the shim is alive, and whether the shim, the runtime or the kubelet waits; the pod's Events were not listed
        +35.100 clean Deleted ["the API server had not reported the pod as finished"]: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
    "#]].assert_eq(&(held_of(&script) + &pods));
}

/// Next to it: the kubelet has gone on to the sandbox, so the exit did reach it.
#[test]
fn the_stop_of_the_sandbox_keeps_the_status_back() {
    expect![[r#"
        +63.100 held-by-sandbox
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and its sandbox is not stopped yet: the sandbox's process is gone, and the pod's status still shows `app` as running; not known: what the container runtime waits for; the pod's Events were not listed
    "#]].assert_eq(&held(SANDBOX_GONE));
}

#[test]
fn the_sandbox_still_runs() {
    expect![[r#"
        +63.000 held-by-sandbox
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and no exit of its sandbox's process was observed; not known: what the container runtime waits for; the pod's Events were not listed
    "#]].assert_eq(&held(REPORTED));
}

#[test]
fn the_network_cannot_be_torn_down() {
    let rest = format!(
        "{REPORTED}{SANDBOX_GONE}
        +40 event web - FailedKillPod error killing pod: failed to \"KillPodSandbox\" with KillPodSandboxError: failed to destroy network for sandbox: plugin type=bridge failed (delete)
        +48.5 events web known
        "
    );
    expect![[r#"
        +63.100 held-by-network
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and the network of its sandbox could not be torn down; the kubelet reported 23.1 s ago: error killing pod: failed to "KillPodSandbox" with KillPodSandboxError: failed to destroy network for sandbox: plugin type=bridge failed (delete); not known: what the plugin has already removed
    "#]].assert_eq(&held(&rest));
}

/// Next to it: the kubelet has tried again since, and an Event of before the deletion.
#[test]
fn an_old_event_does_not_name_the_layer() {
    let of = |at: &str| {
        let rest = format!(
            "{REPORTED}{SANDBOX_GONE}
            +48.5 event web - FailedKillPod at={at} error killing pod: failed to \"KillPodSandbox\" with KillPodSandboxError: failed to destroy network
            +130 events web known as-of=+128
            "
        );
        let script = web(&format!("{ENDED}{rest}")).replace("pod web app\n", "pod web claim=data-web-0 app\n");
        held_of(&script)
    };
    expect![[r#"
        +63.100 held-by-kubelet
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and its sandbox is gone; the kubelet has not finished its work for the pod, or an admission webhook or policy refuses the kubelet's deletion; the kubelet reported 57.1 s ago: error killing pod: failed to "KillPodSandbox" with KillPodSandboxError: failed to destroy network; not known: what the kubelet waits for, and whether an admission webhook or policy refuses its deletion of the pod; the pod's Events were not listed
    "#]].assert_eq(&of("+6"));
    expect![[r#"
        +63.100 held-by-kubelet
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and its sandbox is gone; the kubelet has not finished its work for the pod, or an admission webhook or policy refuses the kubelet's deletion; not known: what the kubelet waits for, and whether an admission webhook or policy refuses its deletion of the pod; the pod's Events were not listed
        +183.200 held-by-volume
          pod shop/web is still Terminating 182 s after its deletion was seen: its last container exited 180 s ago, and its sandbox is gone; either its volumes (data-web-0) are not unmounted yet, or an admission webhook or policy refuses the kubelet's deletion; not known: which volumes are unmounted, and whether an admission webhook or policy refuses the kubelet's deletion of the pod
    "#]].assert_eq(&of("-30"));
}

/// The network is not torn down, and that is the last thing that is known: no other layer is named behind it.
#[test]
fn the_events_are_not_listed_again() {
    let rest = format!(
        "{REPORTED}{SANDBOX_GONE}
        +40 event web - FailedKillPod error killing pod: failed to \"KillPodSandbox\" with KillPodSandboxError: failed to destroy network
        +48.5 events web known
        +400 pod web ready=+400
        "
    );
    let script = web(&format!("{ENDED}{rest}")).replace("pod web app\n", "pod web claim=data-web-0 app\n");
    expect![[r#"
        +63.100 held-by-network
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and the network of its sandbox could not be torn down; the kubelet reported 23.1 s ago: error killing pod: failed to "KillPodSandbox" with KillPodSandboxError: failed to destroy network; not known: what the plugin has already removed
    "#]].assert_eq(&held_of(&script));
}

#[test]
fn the_sandbox_cannot_be_stopped_for_another_reason() {
    let rest = format!(
        "{REPORTED}
        +40 event web - FailedKillPod error killing pod: failed to \"KillPodSandbox\" with KillPodSandboxError: context deadline exceeded
        +48.5 events web known
        "
    );
    expect![[r#"
        +63.100 held-by-sandbox
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and no exit of its sandbox's process was observed; the kubelet reported 23.1 s ago: error killing pod: failed to "KillPodSandbox" with KillPodSandboxError: context deadline exceeded; not known: what the container runtime waits for
    "#]].assert_eq(&held(&rest));
}

#[test]
fn volumes_are_left() {
    let of = |rest: &str| {
        let script = web(&format!("{ENDED}{REPORTED}{SANDBOX_GONE}{rest}"));
        held_of(&script.replace("pod web app\n", "pod web claim=data-web-0 app\n"))
    };
    expect![[r#"
        +63.100 held-by-volume
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and its sandbox is gone; either its volumes (data-web-0) are not unmounted yet, or an admission webhook or policy refuses the kubelet's deletion; not known: which volumes are unmounted, and whether an admission webhook or policy refuses the kubelet's deletion of the pod
    "#]].assert_eq(&of("+48.5 events web known\n"));
    // Next to it: an Event may say that it is the network.
    expect![[r#"
        +63.100 held-by-kubelet
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and its sandbox is gone; the kubelet has not finished its work for the pod, or an admission webhook or policy refuses the kubelet's deletion; not known: what the kubelet waits for, and whether an admission webhook or policy refuses its deletion of the pod; the pod's Events were not listed
    "#]].assert_eq(&of("+48.5 events web forbidden\n"));
}

/// Next to it: no claim, so nothing shows what the kubelet waits for.
#[test]
fn the_kubelet_does_not_give_it_up() {
    expect![[r#"
        +63.100 held-by-kubelet
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and its sandbox is gone; the kubelet has not finished its work for the pod, or an admission webhook or policy refuses the kubelet's deletion; not known: what the kubelet waits for, and whether an admission webhook or policy refuses its deletion of the pod; the pod's Events were not listed
    "#]].assert_eq(&held(&format!("{REPORTED}{SANDBOX_GONE}")));
}

#[test]
fn a_finalizer_keeps_the_object() {
    let rest = format!("{REPORTED}{SANDBOX_GONE}+6 pod web deleted=+1:0 finalizer=example.com/hold\n");
    expect![[r#"
        +63.000 held-by-finalizer
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and Kubernetes does not wait for the kubelet any more; finalizers keep the pod's object: example.com/hold; not known: what the controller waits for
    "#]].assert_eq(&held(&rest));
}

/// Next to it: a finalizer, and the kubelet is not done.
#[test]
fn a_finalizer_does_not_hold_before_the_kubelet_is_done() {
    let rest = format!("{REPORTED}+4.5 pod web finalizer=example.com/hold\n");
    expect![[r#"
        +63.100 held-by-sandbox
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and no exit of its sandbox's process was observed; not known: what the container runtime waits for; the pod's Events were not listed
    "#]].assert_eq(&held(&rest));
}

#[test]
fn the_api_server_does_not_remove_it() {
    let rest = format!("{REPORTED}{SANDBOX_GONE}+6 pod web deleted=+1:0\n");
    expect![[r#"
        +63.000 held-by-api
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and Kubernetes does not wait for the kubelet any more; no finalizer keeps the pod's object, and the API server has not removed the object; not known: what the API server's storage waits for
    "#]].assert_eq(&held(&rest));
}

#[test]
fn one_layer_after_the_other() {
    let rest = format!(
        "{REPORTED}
        +80 KILL runc -> pause
        +80.1 exit pause KILL
        +80.2 rmdir web:pause
        +150 pod web deleted=+1:0 finalizer=example.com/hold
        "
    );
    expect![[r#"
        +63.000 held-by-sandbox
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and no exit of its sandbox's process was observed; not known: what the container runtime waits for; the pod's Events were not listed
        +123.000 held-by-kubelet
          pod shop/web is still Terminating 122 s after its deletion was seen: its last container exited 120 s ago, and its sandbox is gone; the kubelet has not finished its work for the pod, or an admission webhook or policy refuses the kubelet's deletion; not known: what the kubelet waits for, and whether an admission webhook or policy refuses its deletion of the pod; the pod's Events were not listed
        +183.000 held-by-finalizer
          pod shop/web is still Terminating 182 s after its deletion was seen: its last container exited 180 s ago, and Kubernetes does not wait for the kubelet any more; finalizers keep the pod's object: example.com/hold; not known: what the controller waits for
    "#]].assert_eq(&held(&rest));
}

/// The status alone shows that the sandbox is gone.
#[test]
fn the_condition_shows_that_the_sandbox_is_gone() {
    let script = web(&format!("{ENDED}+4 pod web app=0:Completed sandbox=no"))
        .replace("-60 mkdir web:pause\n", "")
        .replace("proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause\n", "")
        .replace("-60 exec pause\n", "");
    expect![[r#"
        +63.000 held-by-kubelet
          pod shop/web is still Terminating 62 s after its deletion was seen: its last container exited 60 s ago, and its sandbox is gone; the kubelet has not finished its work for the pod, or an admission webhook or policy refuses the kubelet's deletion; not known: what the kubelet waits for, and whether an admission webhook or policy refuses its deletion of the pod; the pod's Events were not listed
    "#]].assert_eq(&held_of(&script));
}

#[test]
fn what_is_not_held() {
    let gone = format!("{REPORTED}{SANDBOX_GONE}+5 gone web\n");
    assert_eq!(held(&gone), "");
    // In time.
    assert_eq!(held(&format!("{REPORTED}{SANDBOX_GONE}+55 gone web\n")), "");
    // A process runs: another report's.
    assert_eq!(held_of(&web("+1 pod web deleted=+1:30\n+2 TERM runc -> main handler\n")), "");
    // The API does not answer: nothing is known of the object.
    assert_eq!(held(&format!("{REPORTED}{SANDBOX_GONE}+10 api away timeout\n")), "");
    // It opted out.
    let ignored = web(&format!("{ENDED}{REPORTED}{SANDBOX_GONE}")).replace("pod web app\n", "pod web ignore app\n");
    assert_eq!(held_of(&ignored), "");
}

/// After an outage of the API, at once.
#[test]
fn an_outage_delays_the_report() {
    let rest = format!("{REPORTED}{SANDBOX_GONE}+10 api away timeout\n+100 api synced\n");
    let held = held(&rest);
    assert!(held.starts_with("+100."), "{held}");
}

/// Its Events are asked for before, once for this.
#[test]
fn the_events_are_listed_before() {
    let asked: Vec<String> = play_all(&web(&format!("{ENDED}{REPORTED}{SANDBOX_GONE}")))
        .commands
        .iter()
        .filter(|(_, command)| matches!(command, Command::ListEvents(_)))
        .map(|(now, _)| at(*now))
        .collect();
    expect![[r#"["+48.100"]"#]].assert_eq(&format!("{asked:?}"));
}

/// A pod that had finished before its deletion: a Job's, with a finalizer that nobody removes.
#[test]
fn a_finished_pod_is_held_too() {
    let script = "
        -60 api synced
        pod web policy=never app
        -60 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        -58 pod web app=running finalizer=batch.kubernetes.io/job-tracking
        -50 exit main 0
        -49.9 rmdir web:app
        -49 pod web phase=succeeded app=0:Completed
        +1 pod web deleted=+1:0
        ";
    expect![[r#"
        +61.000 held-by-finalizer
          pod shop/web is still Terminating 60 s after its deletion was seen: its last container exited 111 s ago, and Kubernetes does not wait for the kubelet any more; finalizers keep the pod's object: batch.kubernetes.io/job-tracking; not known: what the controller waits for
    "#]].assert_eq(&held_of(script));
}

/// A recording can have any time: at the last one that a clock has, nothing is due a minute later.
#[test]
fn the_end_of_time_is_not_looked_at_twice() {
    let mut correlator = Correlator::new(Limits::default());
    let mut reports = Vec::new();
    for (now, input) in parse(&web(&format!("{ENDED}{REPORTED}{SANDBOX_GONE}"))).inputs {
        reports.extend(correlator.handle(now.max(ZERO), input).reports);
    }
    for _ in 0..2 {
        reports.extend(correlator.handle(Boot(u64::MAX), Input::Tick).reports);
    }
    let held = reports.iter().filter(|report| matches!(report, Report::PodHeld(_)));
    assert_eq!(held.count(), 1);
}
