use epitaph_story::story::columns;
use expect_test::{Expect, expect, expect_file};

use super::*;
use crate::error;

fn check(verdict: Option<&str>, expected: Expect) {
    expected.assert_eq(&explain(verdict.as_slice(), None).unwrap_or_else(|e| format!("error: {}\n", error::lines(&e))));
}

/// Programs, such as grep, get a line for each name.
#[test]
fn the_list_fits_into_the_terminal() {
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let whole = list(None);
    for width in [60, 80, 100, 200] {
        let shown = list(Some(width));
        let longest = shown.lines().map(columns).max().unwrap_or_default();
        assert!(
            (width.min(WIDEST) - 10..=width.min(WIDEST)).contains(&longest),
            "{longest} of {width}"
        );
        assert_eq!(squeezed(&shown), squeezed(&whole));
    }
    let texts = TABLE.iter().map(|row| first_sentence(row.meaning));
    for text in texts {
        assert_eq!(whole.lines().filter(|line| line.ends_with(text)).count(), 1, "{text}");
    }
}

/// Steps refer to each other by number.
#[test]
fn an_alert_has_the_words_of_its_runbook() {
    check(
        Some("EpitaphTaintLeftBehind"),
        expect![[r#"
            EpitaphTaintLeftBehind (an alert; docs/runbooks/EpitaphTaintLeftBehind.md)

            What it means
              A node is ready and has the taint `node.kubernetes.io/out-of-service`, set
              while the node was lost, or set on the wrong node by mistake. With the
              effect `NoExecute` the taint evicts pods and keeps new pods away; with
              `NoSchedule` the taint only keeps new pods away.

            What proves it
              `epitaph_node_out_of_service{ready="true"}`, and `kubectl get node NODE -o
              jsonpath={.spec.taints}`.

            What to do
              1. Check that the node is really repaired: a machine that was only paused
                 may run old containers for some seconds; the verdict `duplicate-run` in
                 the pods' traces shows that.
              2. `kubectl taint nodes NODE node.kubernetes.io/out-of-service-`

            When to silence
              While the node is kept empty on purpose; `kubectl cordon` is the better tool
              for that.
        "#]],
    );
}

/// "The verdict below" is below.
#[test]
fn an_alert_about_several_verdicts_has_the_remedy_of_each() {
    for row in &TABLE {
        let Some((alert, _)) = alerts::alert_of(row) else {
            continue;
        };
        let shown = explain(&[alert], None).unwrap();
        let (_, verdicts) = shown.split_once("Its verdicts").expect(alert);
        let begin = format!("\n  {} (", row.headline);
        let remedy = verdicts.split_once(&begin).expect(row.headline).1;
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        assert!(squeezed(remedy).contains(&squeezed(row.remedy)), "{}", row.headline);
    }
    assert!(!explain(&["EpitaphAgentDown"], None).unwrap().contains("Its verdicts"));
}

#[test]
fn what_is_shown_of_a_lost_node_leads_to_the_observer() {
    check(
        Some("NodeStatusUnknown"),
        expect![[r#"
            NodeStatusUnknown, NodeNotReady, NotReady, node gone, TaintManagerEviction, DeletionByTaintManager
              The kubelet stopped posting the node's status. So the control plane set
              `Ready` to Unknown, and after five minutes it requested the deletion of the
              pods because of a taint. It is not known whether the machine runs, and
              nothing has stopped the containers.

            Verdicts that fit
              lost             The node is not ready, nothing on it answers, and its pods
                               cannot be terminated.
              unreachable      The node is not ready, but its agent answers, or its
                               kubelet itself reports Ready=False.
              fenced-by-taint  The node is lost and has the taint
                               node.kubernetes.io/out-of-service.

            Next
              kubectl -n epitaph logs -l app.kubernetes.io/component=observer --prefix --tail=-1
              epitaph explain lost
        "#]],
    );
}

#[test]
fn all_with_a_line_each() {
    check(
        None,
        expect![[r#"
            ! oom-killed             The OOM killer killed the main process because memory ran out.
            ! oom-child              The OOM killer killed another process of the container or unit, during the stop or within the ten seconds before the main process exited.
            ! crashed                The main process was terminated by a signal that it caused itself: a fault, an abort, or a resource limit.
            ! killed-by-other        A signal killed the main process, and the sender of the signal is neither the container runtime (or systemd) nor the main process itself.
            ! stuck                  The grace period ended long ago, and the process is still running.
            ! runtime-failed         The container runtime did not start the program of the container, or lost the container.
            ! truncated-by-shutdown  The shutdown of the node ended the process before the process had finished and before its own grace period was over.
            ! killed-after-grace     The process was shutting down but had not finished when the grace period ended, so the runtime killed it.
            ! prestop-overran        The preStop hook used up the grace period: the hook was cut off, or the time left for the main process was too short.
            ! sidecar-starved        A sidecar was killed because the main containers had used up the grace period before the sidecar got its stop signal.
            ! force-killed           The main process was killed without a stop signal first, or the pod was deleted with a grace period of 0.
            ! blocked-stop-signal    The stop signal was never read: the process was frozen or stopped, blocked the signal, never ran its handler, or was killed before it had time to run.
            ! ignored-stop-signal    The kernel discarded the stop signal, so the process kept running until the runtime killed it: PID 1 has no handler, its handler only raised the signal again (Node.js), or the process below an init ignores it.
            ! default-action         The process has no handler for the stop signal, so the signal terminated the process at once, and any work in flight was lost.
            ! prestop-failed         The main process exited cleanly, but the preStop hook failed, so the work of the hook may be incomplete.
            ! nonzero-exit           The main process exited with a code other than 0.
            ! cut-connections        The process exited cleanly, but open connections with an unanswered request were dropped at exit.
            ! reset-connections      The process exited cleanly, but client connections were reset.
            ! refused-connections    The process exited cleanly, but clients tried to connect after the listener had closed, and were refused.
            ! proxy-rejected         The process exited cleanly, but connections of clients on this node were rejected by the network before they reached the process.
              undecided-connections  The process exited cleanly, and connections were open at the exit: idle connections, or requests and answers under way, which the kernel cannot tell apart.
            ! refused-new-peers      The process exited cleanly; only peers that had not connected before were refused: new clients, health checks, or a port scan.
              clean-exit             The process exited cleanly; what clients saw was not observed.
              clean                  The process exited cleanly, and no client connection was lost.
              unknown                The evidence is not sufficient: for example, records were lost, a probe was not active, or the process started before the observation began.

            ! marks the unclean verdicts. `epitaph explain VERDICT` shows what proves a verdict and how to fix it.

            The observer's verdicts about lost nodes and their pods:

            ! stuck-by-finalizer  Kubernetes no longer waits for a kubelet (grace period 0), but finalizers keep the pod's object.
            ! stuck-by-volume     The replacement waited for a volume that was still attached to the lost node.
            ! duplicate-run       The node came back without a reboot: its containers existed all the time, and may have run at the same time as their replacements.
            ! fenced-by-taint     The node is lost and has the taint node.kubernetes.io/out-of-service.
            ! unreachable         The node is not ready, but its agent answers, or its kubelet itself reports Ready=False.
            ! lost                The node is not ready, nothing on it answers, and its pods cannot be terminated.
              taint-left-behind   The node is ready and still has the taint node.kubernetes.io/out-of-service.

            What holds a pod that is still Terminating although its containers have exited:

              held-by-runtime    The main process of a container has exited, but the pod's status still shows the container as running.
              held-by-sandbox    All containers have exited, and the pod's sandbox (the pause process and the pod's network) is not stopped yet.
              held-by-network    The containers have exited, and the network of the pod's sandbox cannot be torn down: the CNI plugin fails, and the kubelet repeats the attempt.
              held-by-volume     Containers and sandbox are gone, and the pod has volumes of PersistentVolumeClaims.
              held-by-kubelet    No container runs, and nothing shows which layer holds the pod: the kubelet has not finished its work for the pod, or an admission webhook or policy refuses the kubelet's deletion of the pod.
              held-by-finalizer  Kubernetes does not wait for the kubelet any more, but finalizers keep the pod's object.
              held-by-api        Kubernetes does not wait for the kubelet any more, and no finalizer keeps the pod's object: only the API server must still remove the object.

            Each verdict comes with a cause (why the container or unit terminated) and a traffic value (what clients saw):

            cause    deleted                The pod was deleted: by a rollout, a scale-down, `kubectl delete`, or pod garbage collection (which the sentence names).
            cause    evicted-api            The pod was evicted through the Eviction API: `kubectl drain`, the cluster autoscaler, a descheduler.
            cause    evicted-node-pressure  The kubelet evicted the pod: the node ran out of memory, disk or process ids, or the pod exceeded its own ephemeral storage limit.
            cause    evicted-taint          The pod was evicted because of a NoExecute taint that it does not tolerate, or no longer tolerates.
            cause    evicted-preempted      The pod was preempted by a pod of higher priority.
            cause    deadline               The pod exceeded its own `activeDeadlineSeconds`. If a Job exceeds the deadline of the Job, the cause of its pods is `deleted`.
            cause    liveness               The kubelet stopped the container because the liveness probe failed.
            cause    startup                The kubelet stopped the container because the startup probe did not succeed in time.
            cause    restart                The kubelet stopped only this container. An Event shows the reason: the container definition changed, or a resize requires a restart. Without such an Event the reason is unknown.
            cause    restart-in-place       The kubelet restarted all containers of the pod in place (`RestartAllContainers`, Kubernetes 1.36): one container exited with a code of its `restartPolicyRules`, and the others were stopped without a grace period.
            cause    node-shutdown          The node was shutting down.
            cause    oom                    Memory ran out: the memory limit was reached, or the node had no memory left.
            cause    crash                  The process failed by itself: a signal that it caused, or an exit code other than 0 without a stop signal.
            cause    external               A signal came from a sender that is neither the runtime nor the process itself.
            cause    stopped                The container runtime or systemd stopped the process; without Kubernetes the reason is unknown.
            cause    completed              The process exited by itself with exit code 0.
            cause    unknown                The evidence does not show the cause.
            traffic  cut                    Open connections with an unanswered request were dropped at exit.
            traffic  reset                  Client connections were reset.
            traffic  refused                Clients tried to connect after the listener had closed, and were refused.
            traffic  refused-new-peers      Only peers that had not connected before were refused: new clients, or a port scan. The clients that had been seen before connect repeatedly, and none of them was refused.
            traffic  proxy-rejected         Connections of clients on this node were rejected by the network (ICMP) before they reached the process.
            traffic  undecided              Connections were open at the exit, and whether a request or an answer was under way is not known. No other connection was lost.
            traffic  quiet                  The sockets were observed until they ended (the sockets of a container: until its cgroup was removed). No connection was dropped, reset, refused or rejected, and no connection in use was open at the exit.
            traffic  unknown                What clients saw is not known, for one of these reasons: the sockets were not observed, or only for part of the time; a listener closed on a kernel that does not show whether clients of other machines and of Services were refused; or nobody deleted the pod, and the pod was still Ready in the API when it ended.

            A shutdown of the node has verdicts of its own:

            ! unannounced  The node went down without any announcement: power loss, a reset, a kernel panic, `reboot -f` or `systemctl reboot --force --force`.
            ! bypassed     systemd shut the node down without asking logind, so no lock could delay the shutdown.
            ! unprotected  The kubelet held no lock that delays the shutdown, so the shutdown did not wait for the pods.
            ! truncated    logind announced the shutdown, and the shutdown ended too early: a phase of the kubelet or logind's delay expired before all pods had terminated, or the machine lost power or was reset during the shutdown.
            ! spoofed      A process other than logind sent the announcement PrepareForShutdown.
              blocked      The time of a scheduled shutdown came, but the shutdown did not begin, because a process holds a block lock.
              cancelled    The shutdown was cancelled after its announcement, or a scheduled shutdown was cancelled before its time.
              graceful     logind waited for the kubelet, and all pods terminated within their phases; or, on a machine without a kubelet, systemd stopped the services after logind's announcement.
              unknown      The evidence is not sufficient: logind was not observed, messages or records were lost, or the agent stopped before the pods had terminated.

            `epitaph explain` also explains what kubectl, docker, systemctl, shells, proxies and clients show:

            exit codes  0, 1, 2, 124, 125, 126, 127, 128, 129, 130, 131, 132, 134, 135, 136, 137, 138, 139,
                        140, 141, 143, 159, 165, 200, 203, 217, 226, 255
            signals     SIGKILL, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGSEGV, SIGABRT, SIGILL, SIGSYS, SIGBUS,
                        SIGFPE, SIGUSR1, SIGUSR2, SIGPIPE, SIGRTMIN+3, SIGTERM ignored, SIGTERM was ignored
            reasons     Killed, 502, 502 Bad Gateway, 503, 504, 503 Service Unavailable, 504 Gateway Timeout,
                        StartError, RunContainerError, ContainerCannotRun, CreateContainerError, Segmentation
                        fault, Aborted, Bad system call, seccomp, 200/CHDIR, 203/EXEC, 217/USER,
                        226/NAMESPACE, Unknown, StopSignalIgnored, stop signal ignored, OOMKilled, OOM,
                        oom-kill, out of memory, oom killer, unclean, Error, CrashLoopBackOff, BackOff,
                        Completed, ECONNREFUSED, connection refused, connect: connection refused, ECONNRESET,
                        connection reset by peer, connection reset, EPIPE, broken pipe, unexpected EOF, socket
                        hang up, upstream prematurely closed connection, Terminating, RestartingAllContainers,
                        AllContainersRestarting, RestartAllContainers, restarts in place, restartPolicyRules,
                        systemd-oomd, earlyoom, nohang, oomd, worker, helper, exec-probe, pre-stop,
                        exec-session, from-outside, unattributed, TerminationHeld, FailedKillPod,
                        TerminationStuck, terminationGracePeriodSeconds, gracePeriodSeconds, grace period,
                        grace, ScaleDown, Disrupted, cluster autoscaler, autoscaler, Karpenter, NodePool,
                        aws-node-termination-handler, node-termination-handler, stopSignal,
                        lifecycle.stopSignal, ContainerStopSignals, sidecar, sidecars, native sidecar,
                        disagrees, kubectl shows, wrong status, endpoint, endpoints, EndpointSlice,
                        ContainerStatusUnknown, Evicted, Evict, evictionHard, evictionSoft, eviction,
                        Terminated, Preempting, Preempted, Unhealthy, FailedPreStopHook, preStop, preStop
                        hook, lifecycle.preStop, DeadlineExceeded, ImagePullBackOff, ErrImagePull, Killing,
                        finalizer, finalizers, NodeStatusUnknown, NodeNotReady, NotReady, node gone,
                        TaintManagerEviction, DeletionByTaintManager, PodStuckOnLostNode, node.lost, pod.lost,
                        out-of-service, node.kubernetes.io/out-of-service, FailedAttachVolume, Multi-Attach,
                        NodeLost, NodeShutdown, Shutdown, Rebooted, reboot, node reboot, down, node down,
                        node.down, lock, inhibitor, inhibitor lock, delay lock, block lock, systemd-inhibit,
                        drain, drained, kubectl drain, cordon, cordoned, core-dump, dumped, watchdog, timeout,
                        start-limit-hit, exit-code, signal
            probes      cgroup_mkdir, cgroup_rmdir, sched_process_exit, sched_process_exec, mark_victim,
                        signal_deliver, signal_generate, inet_sock_set_state, tcp_send_reset,
                        tcp_receive_reset, inet_sk_error_report
        "#]],
    );
}

#[test]
fn one_in_full() {
    check(
        Some("ignored-stop-signal"),
        expect![[r#"
            ignored-stop-signal (unclean, severity warning)

            What it means
              The kernel discarded the stop signal, so the process kept running until the
              runtime killed it: PID 1 has no handler, its handler only raised the signal
              again (Node.js), or the process below an init ignores it.

            What proves it
              signal_generate has the result `ignored`: for the stop signal to the main
              process, for the signal that the main process raised again, or for the
              signal that an init forwarded to a process below. Or signal_deliver shows
              that PID 1 had no handler when it read the signal that it had raised again.
              SIGKILL came later.

            How to fix it
              Install a handler, use `exec` in the shell that starts the program, or run a
              small init (tini, dumb-init) as PID 1.
        "#]],
    );
    check(
        Some("clean"),
        expect![[r#"
            clean (not unclean, severity info)

            What it means
              The process exited cleanly, and no client connection was lost.

            What proves it
              The exit is one of these: exit code 0; the code of the stop signal (128 + n)
              after the process handled the signal; the stop signal itself, which the
              process raised again after its shutdown (for PID 1 the kernel discards that
              signal, and the error code that follows counts as clean); or a code that an
              annotation or the restart rules of the container declare as expected. The
              sockets were observed, no connection was lost, and no connection that had
              been used was open at the exit.

            How to fix it
              Nothing.
        "#]],
    );
}

#[test]
fn a_cause_and_a_traffic_value_are_explained() {
    check(
        Some("evicted-taint"),
        expect![[r#"
            cause evicted-taint
              The pod was evicted because of a NoExecute taint that it does not tolerate,
              or no longer tolerates.
        "#]],
    );
    check(
        Some("quiet"),
        expect![[r#"
            traffic quiet
              The sockets were observed until they ended (the sockets of a container:
              until its cgroup was removed). No connection was dropped, reset, refused or
              rejected, and no connection in use was open at the exit.
        "#]],
    );
}

#[test]
fn what_kubectl_shows() {
    check(
        Some("137"),
        expect![[r#"
            137, SIGKILL, signal 9, Killed, signal: killed
              Exit code 137 is 128 + 9: SIGKILL ended the process. The code alone shows
              neither the sender nor the reason: the OOM killer, the container runtime
              after the grace period, systemd at a shutdown of the node, or another
              process. The kubelet can also make up this code in a pod's status.

            Verdicts that fit
              oom-killed             The OOM killer killed the main process because memory
                                     ran out.
              ignored-stop-signal    The kernel discarded the stop signal, so the process
                                     kept running until the runtime killed it: PID 1 has
                                     no handler, its handler only raised the signal again
                                     (Node.js), or the process below an init ignores it.
              killed-after-grace     The process was shutting down but had not finished
                                     when the grace period ended, so the runtime killed
                                     it.
              blocked-stop-signal    The stop signal was never read: the process was
                                     frozen or stopped, blocked the signal, never ran its
                                     handler, or was killed before it had time to run.
              prestop-overran        The preStop hook used up the grace period: the hook
                                     was cut off, or the time left for the main process
                                     was too short.
              sidecar-starved        A sidecar was killed because the main containers had
                                     used up the grace period before the sidecar got its
                                     stop signal.
              force-killed           The main process was killed without a stop signal
                                     first, or the pod was deleted with a grace period of
                                     0.
              truncated-by-shutdown  The shutdown of the node ended the process before the
                                     process had finished and before its own grace period
                                     was over.
              killed-by-other        A signal killed the main process, and the sender of
                                     the signal is neither the container runtime (or
                                     systemd) nor the main process itself.

            Next
              epitaph why POD    # which of them it was, with timeline and remedy
              epitaph list --since 1h --unclean
              epitaph explain oom-killed
        "#]],
    );
    check(
        Some("oomkilled"),
        expect![[r#"
            OOMKilled, OOM, oom-kill, out of memory, oom killer
              The OOM killer killed a process of the container. This may not have been the
              main process, and it may have happened long before the container exited,
              because the reason stays in the pod's status once any process was killed.
              The reason can also be missing although the main process was killed.

            Verdicts that fit
              oom-killed  The OOM killer killed the main process because memory ran out.
              oom-child   The OOM killer killed another process of the container or unit,
                          during the stop or within the ten seconds before the main
                          process exited.

            Next
              epitaph why POD    # which of them it was, with timeline and remedy
              epitaph list --since 1h --verdict oom-killed --verdict oom-child
              epitaph explain oom-killed
        "#]],
    );
    check(
        Some("42"),
        expect![[r#"
            42
              Exit code 42: the program reported an error of its own. Read the program's
              log, and look for the code in the program's documentation.

            Verdicts that fit
              nonzero-exit  The main process exited with a code other than 0.
              oom-child     The OOM killer killed another process of the container or
                            unit, during the stop or within the ten seconds before the
                            main process exited.

            Next
              epitaph why POD    # which of them it was, with timeline and remedy
              epitaph list --since 1h --verdict nonzero-exit --verdict oom-child
              epitaph explain nonzero-exit
        "#]],
    );
}

#[test]
fn a_name_with_several_meanings_is_explained_for_each() {
    check(
        Some("unknown"),
        expect![[r#"
            unknown (not unclean, severity warning)

            What it means
              The evidence is not sufficient: for example, records were lost, a probe was
              not active, or the process started before the observation began.

            What proves it
              None: the sentence of the report names what is missing.

            How to fix it
              Follow the remedy in the report of the termination: it depends on the
              evidence that is missing. If the process started before the observation
              began, there is nothing to fix.

            cause unknown
              The evidence does not show the cause.

            traffic unknown
              What clients saw is not known, for one of these reasons: the sockets were
              not observed, or only for part of the time; a listener closed on a kernel
              that does not show whether clients of other machines and of Services were
              refused; or nobody deleted the pod, and the pod was still Ready in the API
              when it ended.

            shutdown of the node: unknown (not unclean, severity warning)

            What it means
              The evidence is not sufficient: logind was not observed, messages or records
              were lost, or the agent stopped before the pods had terminated.

            What proves it
              None: the sentence of the report names what is missing.

            How to fix it
              `epitaph doctor` shows what cannot be observed on this node.
        "#]],
    );
    check(
        Some("proxy-rejected"),
        expect![[r#"
            proxy-rejected (unclean, severity warning)

            What it means
              The process exited cleanly, but connections of clients on this node were
              rejected by the network before they reached the process.

            What proves it
              Processes on this node tried to connect to the address of the container or
              unit. These attempts ended with an ICMP error and without an RST.

            How to fix it
              Find the network policy, proxy rule or missing route that rejected
              connections while the process was still running.

            traffic proxy-rejected
              Connections of clients on this node were rejected by the network (ICMP)
              before they reached the process.
        "#]],
    );
}

#[test]
fn an_unknown_name_suggests_the_nearest() {
    check(
        Some("evicted-tain"),
        expect![[r#"
            error: unknown verdict, cause, traffic value, alert, probe or reason `evicted-tain`
            remedy: did you mean `evicted-taint`? `epitaph explain` lists all of them
        "#]],
    );
    check(
        Some("quite"),
        expect![[r#"
            error: unknown verdict, cause, traffic value, alert, probe or reason `quite`
            remedy: did you mean `quiet`? `epitaph explain` lists all of them
        "#]],
    );
    check(
        Some("ignored-signal"),
        expect![[r#"
            error: unknown verdict, cause, traffic value, alert, probe or reason `ignored-signal`
            remedy: did you mean `ignored-stop-signal`? `epitaph explain` lists all of them
        "#]],
    );
    check(
        Some("IGNORED_STOP_SIGNAL"),
        expect![[r#"
            error: unknown verdict, cause, traffic value, alert, probe or reason `IGNORED_STOP_SIGNAL`
            remedy: did you mean `ignored-stop-signal`? `epitaph explain` lists all of them
        "#]],
    );
    check(
        Some("\u{1b}[2Jx"),
        expect![[r#"
            error: unknown verdict, cause, traffic value, alert, probe or reason `\u{1b}[2Jx`
            remedy: `epitaph explain` lists all of them
        "#]],
    );
}

#[test]
fn the_documentation_lists_what_the_code_has() {
    let doc = format!(
        "# Verdicts\n\n\
         This page answers: what does each verdict mean, what proves it, and what do I do? `epitaph explain VERDICT` shows the same in a terminal.\n\n\
         <!-- Generated from the code by `UPDATE_EXPECT=1 cargo test -p epitaph --lib explain`; do not edit. -->\n\n{}{}\n\
         Next: [137, 143, 255, OOMKilled: who is right](exit-codes.md), or [why a verdict is `unknown`](limits/verdicts.md).\n",
        markdown(),
        plays_tests::markdown()
    );
    expect_file!["../../../../docs/verdicts.md"].assert_eq(&doc);
}

#[test]
fn several_names_are_explained_one_after_the_other() {
    let both = explain(&["oom-killed", "crashed"], None).unwrap();
    assert_eq!(
        both,
        [one("oom-killed", Width(None)).unwrap(), one("crashed", Width(None)).unwrap()].join("\n")
    );
    // The words of one name are one name.
    assert_eq!(explain(&["exit", "code", "137"], None), one("137", Width(None)));
    let refused = explain(&["oom-killed", "crashd"], None).unwrap_err();
    assert_eq!(
        (refused.name.as_str(), refused.nearest),
        ("crashd", vec!["crashed".to_owned()])
    );
    assert_eq!(explain(&["no", "such", "thing"], None).unwrap_err().name, "no such thing");
}

#[test]
fn a_part_of_several_names_suggests_them() {
    let meant = |name: &str| verdict(name).unwrap_err().nearest;
    assert_eq!(meant("oom"), ["oom-killed", "oom-child"]);
    assert_eq!(meant("OOM_kiled"), ["oom-killed"]);
    assert_eq!(meant("ignored"), ["ignored-stop-signal"]);
    assert_eq!(meant("unanounced"), ["unannounced"]);
    assert!(meant("xyz").is_empty());
}

/// Each command that is recommended is one that is accepted, and shows all verdicts that fit.
#[test]
fn the_recommended_list_shows_every_verdict_that_fits() {
    for &Word { names, verdicts, .. } in typed::words() {
        let text = one(names[0], Width(None)).unwrap();
        let Some((_, list)) = text.rsplit_once("epitaph list --since 1h") else {
            assert!(
                verdicts.iter().any(|verdict| loss_verdict::by_headline(verdict).is_some())
                    || text.contains("--field-selector reason=TerminationHeld"),
                "{text}"
            );
            continue;
        };
        let list = list.lines().next().unwrap();
        for verdict in verdicts.iter().filter(|verdict| held::by_headline(verdict).is_none()) {
            let shown = match list {
                " --unclean" => by_headline(verdict).is_some_and(|row| row.unclean),
                list => list.split(" --verdict ").any(|of| of == *verdict),
            };
            assert!(shown && super::verdict(verdict).is_ok(), "{}: {verdict}: {list}", names[0]);
        }
    }
}

#[test]
fn what_lists_and_tools_show_of_a_node_leads_to_its_shutdowns() {
    for name in ["down", "reboot", "Rebooted"] {
        let text = one(name, Width(None)).unwrap();
        assert!(text.contains("epitaph why NODE ") && text.contains("unannounced "), "{text}");
    }
    for name in ["NotReady", "node gone"] {
        assert!(one(name, Width(None)).unwrap().contains("component=observer"), "{name}");
    }
    assert!(one("preStop", Width(None)).unwrap().contains("prestop-overran"));
    assert!(one("SIGTERM ignored", Width(None)).unwrap().contains("ignored-stop-signal"));
    assert_eq!(verdict("down"), Ok(()));
}
