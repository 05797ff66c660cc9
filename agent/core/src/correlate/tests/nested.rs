//! Containers within containers.

use expect_test::{Expect, expect};

use super::{check, hybrid};

/// What happens to a container (`main`) that a runtime in another one (`dockerd`) started.
fn check_inner(script: &str, expected: Expect) {
    const STARTED: &str = "
        +0 mkdir outer
        proc dockerd in=outer pid=100 ns=1 start=+0 parent=shim comm=dockerd
        +0.01 exec dockerd
        +1 mkdir outer>inner
        proc shim2 in=outer pid=110 ns=20 start=+1 parent=dockerd comm=containerd-shim
        proc main in=outer>inner pid=120 ns=1 level=2 start=+1.1 parent=shim2 comm=web
        +1.2 exec main
        ";
    check(&format!("{STARTED}{script}"), expected);
}

/// Docker in Docker: each container has its own termination, and the inner container's runtime is in the outer container.
#[test]
fn a_container_in_a_container_dies_its_own_death() {
    check_inner(
        "
        proc runc2 in=outer pid=130 ns=30 start=+9 parent=shim2 comm=runc
        +10 TERM runc2 -> main handler
        +10.001 enter main TERM
        +10.5 exit main 0
        +10.6 rmdir outer>inner
        +20 TERM runc -> dockerd ignored default
        +30 KILL runc -> dockerd
        +30.01 exit dockerd KILL
        ",
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `web`, the handler ran, and the process exited with code 0, 0.5 s later
            early: `dockerd` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `dockerd` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in PID 1 `dockerd`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s
        "#]],
    );
}

/// Nobody's runtime, though it is in the container around it.
#[test]
fn whoever_signals_from_the_container_around_it_is_no_runtime_by_that() {
    check_inner(
        "
        proc admin in=outer pid=140 ns=40 start=+9 parent=shim comm=kill
        +10 KILL admin -> main
        +10.01 exit main KILL
        ",
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `kill` (pid 140, container 670000000000, child of `shim`) sent SIGKILL to PID 1 `web`; the sender is neither the runtime nor the process itself
              fix: find out why `kill` (pid 140, container 670000000000, child of `shim`) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
}

/// Nor is one of a sibling, though both are the same shim's children.
#[test]
fn whoever_signals_from_a_container_beside_it_is_no_runtime() {
    check_inner(
        "
        +1.25 mkdir outer>beside
        proc sidecar in=outer>beside pid=130 ns=1 level=2 start=+1.3 parent=shim2 comm=sidecar
        +1.4 exec sidecar
        +10 KILL sidecar -> main
        +10.01 exit main KILL
        ",
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `sidecar` (pid 130, container 690000000000, child of `containerd-shim`) sent SIGKILL to PID 1 `web`; the sender is neither the runtime nor the process itself
              fix: find out why `sidecar` (pid 130, container 690000000000, child of `containerd-shim`) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
}

/// On a machine with v1, where the victim was gone before it was read: a fork is where its parent is, but the first process of
/// a container in the container is its runtime's child.
#[test]
fn memorys_gone_victim_is_told_of_its_parents_container_only_where_it_shares_its_depth() {
    let script = "
        proc dockerd in=outer pid=100 ns=1 start=+0 parent=shim comm=dockerd
        +0.5 found dockerd
        proc worker in=host pid=110 ns=7 start=+0.6 parent=dockerd comm=worker
        proc inner in=host pid=120 ns=1 level=2 start=+0.6 parent=dockerd comm=web
        +10 KILL inner -> inner kernel
        +10.0001 oom inner
        +10.001 exit inner KILL
        +13 tick
        +20 KILL worker -> worker kernel
        +20.0001 oom worker
        +20.001 exit worker KILL
        +23 tick
    ";
    expect![[r#"
        dropped unattributed: 3
        child oom in container 670000000000: worker pid 110
    "#]]
    .assert_eq(&hybrid(script));
}

/// Of a pod's container it is a part: the kubelet knows no other, and the pod goes on.
#[test]
fn a_container_in_a_pods_container_is_a_part_of_it() {
    check(
        "
        pod web
        +0 mkdir web:app
        proc dockerd in=web:app pid=100 ns=1 start=+0 parent=shim comm=dockerd
        +0.01 exec dockerd
        +1 mkdir web:app>inner
        proc shim2 in=web:app pid=110 ns=20 start=+1 parent=dockerd comm=containerd-shim
        proc main in=web:app>inner pid=120 ns=1 level=2 start=+1.1 parent=shim2 comm=web
        +1.2 exec main
        +10 KILL shim2 -> main
        +10.5 exit main KILL
        +10.6 rmdir web:app>inner
        +20 TERM runc -> dockerd handler
        +20.01 enter dockerd TERM
        +20.5 exit dockerd 0
        ",
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `dockerd`, the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
}
