//! What hosts really do: systemd's steps, runtimes without a daemon, containers without a namespace of their own.

use expect_test::expect;

use super::{check, container, hybrid, in_v1_only, script};
use crate::ids::CgroupId;
use crate::report::{Answers, Command, Report};

#[test]
fn a_units_steps_before_and_after_are_no_deaths() {
    check(
        "
        +0 mkdir web.service
        proc pre in=web.service pid=190 start=+0 parent=systemd comm=modprobe
        +0.001 exec pre
        +0.050 exit pre 0
        proc main in=web.service pid=200 start=+0.06 parent=systemd comm=web
        +0.061 exec main
        +5 TERM systemd -> main handler
        +5.001 enter main TERM
        +5.5 exit main 0
        proc post in=web.service pid=210 start=+5.51 parent=systemd comm=rm
        +5.511 exec post
        +5.52 exit post 0
        +5.53 rmdir web.service
        ",
        expect![[r#"
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
}

#[test]
fn a_runtimes_own_stage_is_not_the_main_process() {
    check(
        "
        +0 mkdir app
        proc stage0 in=app pid=95 start=+0 parent=runc comm=runc
        +0.001 exec stage0
        proc main in=app pid=100 start=+0.01 parent=runc comm=app
        +0.02 exit stage0 0
        +0.05 exec main
        +5 TERM runc -> main handler
        +5.1 enter main TERM
        +5.2 exit main 1
        +5.3 rmdir app
        ",
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Quiet
              The container runtime sent SIGTERM to `app` (pid 100), the handler ran, and the process exited with code 1, 0.2 s later
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

/// On a slow machine runc's first process ends seconds before the container's init executes.
#[test]
fn a_stage_that_ended_long_before_the_init_executes() {
    check(
        "
        +0 mkdir app
        proc stage0 in=app pid=95 start=+0 parent=runc comm=runc
        +0.001 exec stage0
        proc main in=app pid=100 ns=1 start=+0.01 parent=runc comm=app
        +0.02 exit stage0 0
        +9 exec main
        +15 TERM runc -> main handler
        +15.1 enter main TERM
        +15.2 exit main 1
        +15.3 rmdir app
        ",
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 1, 0.2 s later
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

/// An agent that starts while a container is made finds runc's first process, and on an emulated machine the init executes minutes later.
#[test]
fn a_stage_that_is_found_at_the_start_is_no_termination() {
    let made = "
        +0 mkdir app
        proc stage0 in=app pid=95 start=-1 parent=runc comm=runc:[0:PARENT]
        +0 start
        +0 found stage0
        +0 scanned
        +0.5 exit stage0 0
        +0.5 stays app
        ";
    let runs = "
        proc main in=app pid=100 ns=1 start=+0.01 parent=runc comm=app
        +150 exec main
        +155 TERM runc -> main handler
        +155.1 enter main TERM
        +155.2 exit main 1
        +155.3 rmdir app
        ";
    check(
        &[made, runs].concat(),
        expect![[r#"
        nonzero-exit: Stopped/NonzeroExit/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 1, 0.2 s later
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
    // Whoever took the name terminated all the same.
    check(
        &[made, "+150 rmdir app\n+160 tick"].concat(),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `runc:[0:PARENT]` (pid 95) exited with code 0, but the reason is unknown: the process started before the observation began, so a stop signal may have been missed
              fix: nothing to fix: the process started before the observation began
        "#]],
    );
    check(&[made, "+150 tick"].concat(), expect![[r#""#]]);
}

#[test]
fn a_sandbox_inside_a_container_without_a_namespace_is_not_its_main_process() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 start=+0.01 parent=shim comm=app
        +0.05 exec main
        proc box in=app pid=110 ns=1 start=+1 parent=main comm=box
        +1.05 exec box
        +2 exit box 0
        +10 TERM runc -> main handler
        +10.1 enter main TERM
        +10.2 exit main 1
        +10.3 rmdir app
        ",
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Quiet
              The container runtime sent SIGTERM to `app` (pid 100), the handler ran, and the process exited with code 1, 0.2 s later
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn a_runtime_without_a_daemon_that_asked_and_waited() {
    check(
        "
        +0 mkdir app
        proc conmon in=host pid=90 start=+0 parent=systemd comm=conmon
        proc main in=app pid=100 ns=1 start=+0 parent=conmon comm=sh
        +0.001 exec main
        proc podman in=host pid=300 start=+1 parent=bash comm=podman
        proc crun in=host pid=301 start=+1.01 parent=podman comm=crun
        proc crun2 in=host pid=302 start=+11.01 parent=podman comm=crun
        +1.02 TERM crun -> main ignored default
        +11.02 KILL crun2 -> main
        +11.03 exit main KILL
        +11.1 rmdir app
        ",
        expect![[r#"
            early: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            ignored-stop-signal: External/IgnoredStopSignal/Quiet
              `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal from `crun` (pid 301, on the host, child of `podman`); `crun` (pid 302, on the host, child of `podman`) sent SIGKILL 10.0 s later
              fix: handle SIGTERM in PID 1 `sh`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn a_stop_from_inside_that_was_handled_is_no_crash() {
    check(
        &container(
            "
        proc hook in=app pid=120 ns=20 start=+1 parent=shim comm=kill
        +1.001 exec hook
        +1.01 TERM hook -> main handler
        +1.02 enter main TERM
        +1.03 exit hook 0
        +1.5 exit main 143
        ",
        ),
        expect![[r#"
            clean-exit: Unknown/Clean/Unknown
              `kill` (pid 120, container 670000000000, child of `shim`) sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 143, 0.5 s later (128 + SIGTERM: the usual code of many language runtimes after a shutdown); the sockets of the container were not observed
        "#]],
    );
}

#[test]
fn a_cgroup_that_went_while_records_were_lost_is_unknown() {
    check(
        "
        +0 mkdir app
        +1 lost sched_process_exec +0 3
        +1 lost sched_process_exit +0 3
        +3 rmdir app
        +6 tick
        ",
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              How the main process terminated is unknown: the cgroup was removed, and no exit of the main process was seen
              fix: look up the exit code in the log of the container runtime or systemd: epitaph did not see the main process exit
        "#]],
    );
}

#[test]
fn the_end_of_a_namespace_is_no_step() {
    check(
        &container(
            "
        proc hook in=app pid=120 ns=20 start=+1 parent=shim comm=hook
        +1.001 exec hook
        +1.5 exit main 0
        ",
        ),
        expect![[r#"
            clean: Completed/Clean/Quiet
              PID 1 `app` exited by itself with code 0
        "#]],
    );
}

#[test]
fn a_step_that_fails_is_told() {
    check(
        "
        +0 mkdir web.service
        proc pre in=web.service pid=190 start=+0 parent=systemd comm=check
        +0.001 exec pre
        +0.050 exit pre 1
        +0.060 rmdir web.service
        ",
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Quiet
              `check` (pid 190) exited by itself with code 1
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn another_shells_kill_into_the_grace_is_not_the_askers() {
    check(
        &container(
            "
        proc other in=host pid=75 start=+0 parent=systemd comm=bash
        +1 TERM bash -> main handler
        +1.001 enter main TERM
        +2 KILL other -> main
        +2.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 75, on the host, child of `systemd`) sent SIGKILL to PID 1 `app`, 1.0 s after SIGTERM, during the grace period; the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 75, on the host, child of `systemd`) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
}

#[test]
fn the_unit_around_a_container_is_its_runtime() {
    check(
        "
        +0 mkdir web.service
        +0 mkdir web.service/box
        proc conmon in=web.service pid=90 start=+0 parent=systemd comm=conmon
        +0.001 exec conmon
        proc main in=web.service/box pid=100 ns=1 start=+0.01 parent=conmon comm=app
        +0.011 exec main
        proc podman in=web.service pid=300 start=+1 parent=systemd comm=podman
        proc crun in=web.service pid=301 start=+1.01 parent=podman comm=crun
        +1.02 TERM crun -> main handler
        +1.03 enter main TERM
        +1.5 exit main 0
        ",
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
}

/// A container that only cgroup v1 knows: the kernel arms sockets by their v2 cgroup, so these were not watched.
#[test]
fn the_sockets_of_a_v1_container_are_not_observed() {
    let script = "
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=app
        +0.5 found main
        +700 TERM runc -> main handler
        +700.1 enter main TERM
        +700.5 exit main 0
        +700.6 rmdir app
        +703 tick
        +703.5 tick
    ";
    expect![[r#"
        clean-exit: Stopped/Clean/Unknown
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the sockets of the container were not observed: socket tracking needs a cgroup v2 of its own, and this container shares its cgroup v2 or has none
    "#]]
    .assert_eq(&hybrid(script));
}

/// Its v2 cgroup is the runtime's, and so are the kernel's words for its sockets.
#[test]
fn a_container_that_only_v1_knows_is_no_part_of_its_runtime() {
    let out = in_v1_only(
        "
        proc containerd in=containerd pid=40 start=-9 parent=systemd comm=containerd
        -9 exec containerd
        +0 mkdir app
        +0 mkdir other
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=app
        +0.001 exec main
        proc bully in=other pid=200 start=+0 parent=shim comm=bully
        +0.002 exec bully
        +10 KILL bully -> main
        +10.001 exit main KILL
        +10.1 rmdir app
        +15 tick
        +20 TERM systemd -> containerd handler
        +20.1 enter containerd TERM
        +20.2 tcp containerd reset 8080 40000
        +20.5 exit containerd 0
        +31 tick
        ",
    );
    let reports: Vec<Report> = out.iter().flat_map(|answers| answers.reports.clone()).collect();
    expect![[r#"
        killed-by-other: External/KilledByOther/Unknown
          `bully` (pid 200, container 680000000000, child of `shim`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
          fix: find out why `bully` (pid 200, container 680000000000, child of `shim`) sent SIGKILL, and use the stop command of the container runtime instead
        clean-exit: Stopped/Clean/Unknown
          systemd sent SIGTERM to `containerd` (pid 40), the handler ran, and the process exited with code 0, 0.5 s later; the sockets of the unit were not observed: socket tracking needs a cgroup v2 of its own, and this unit shares its cgroup v2 or has none
    "#]].assert_eq(&script::show(&reports, false));
    // The runtime's sockets stay watched when a container ends.
    let has_end = |answers: &Answers| answers.reports.iter().any(|report| matches!(report, Report::Terminated(_)));
    let unit = out.iter().rposition(has_end).expect("two ends");
    assert_eq!(out.iter().filter(|answers| has_end(answers)).count(), 2);
    let forgotten = |answers: &[Answers]| {
        answers
            .iter()
            .flat_map(|answers| &answers.commands)
            .filter(|command| matches!(command, Command::Forget(CgroupId { hierarchy: 0, .. })))
            .count()
    };
    assert_eq!((forgotten(&out[..unit]), forgotten(&out[unit..])), (0, 1));
}

/// On the host's network, all processes share one address.
const TWO: &str = "
        +0 mkdir other
        proc two in=other pid=300 ns=1 start=+0 parent=shim comm=other
        +0.001 exec two
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1 TERM runc -> two handler
        +1.001 enter two TERM
        ";

#[test]
fn of_two_on_the_hosts_network_each_has_its_own_ports_clients() {
    check(
        &container(&format!(
            "{TWO}
        +1.05 tcp app accepted 80 5001
        +1.05 tcp other accepted 81 5002
        +1.1 tcp app closed 80
        +1.1 tcp other closed 81
        +1.5 tcp app refused 80 5003
        +1.6 tcp host connect-reset 80 5004
        +1.6 tcp host connect-failed 80 5004 errno=111
        +1.7 tcp host connect-failed 82 5005 errno=111
        +2 exit main 0
        +2 exit two 0
        "
        )),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 2 connections were refused in the 0.5 s after the listener closed (10.0.0.2)
              fix: 2 connections were refused in the 0.5 s after the listener closed: keep accepting for 1 s after the stop signal, or send clients elsewhere before the stop
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `other`, the handler ran, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

#[test]
fn what_is_refused_where_it_never_listened_is_not_its_own() {
    let refused = |listener: &str, at: &str| {
        let script = format!(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app closed 80 0 server={listener}
        +1.5 tcp app refused 80 5001 server={at}
        +2 exit main 0
        "
        );
        script::show(&script::run(&container(&script)), false).starts_with("refused-connections")
    };
    for (listener, at, is_its_own) in [
        ("10.0.0.1", "10.0.0.1", true),
        ("10.0.0.1", "127.0.0.1", false),
        ("0.0.0.0", "127.0.0.1", true),
        ("0.0.0.0", "::1", false),
        ("::1", "::1", true),
        ("::1", "127.0.0.1", false),
        ("::", "::1", true),
        ("::", "127.0.0.1", true),
    ] {
        assert_eq!(refused(listener, at), is_its_own, "{listener}, refused at {at}");
    }
}

/// A limit: the probes drop a port's owner when another process listens there, but a client's socket only has the address.
#[test]
fn a_port_that_another_took_over_and_gave_up_is_still_its_own_to_a_client_of_this_node() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.05 tcp app accepted 80 5001
        +1.1 tcp app closed 80
        +1.2 tcp app refused 80 5002
        # From 1.3 to 1.5 a process that nobody watches listens there.
        +1.6 tcp host connect-reset 80 5003
        +1.6 tcp host connect-failed 80 5003 errno=111
        +2 exit main 0
        ",
        ),
        expect![[r#"
            refused-connections: Stopped/Clean/Refused
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; 2 connections were refused in the 0.5 s after the listener closed (10.0.0.2)
              fix: 2 connections were refused in the 0.5 s after the listener closed: keep accepting for 1 s after the stop signal, or send clients elsewhere before the stop
        "#]],
    );
}
