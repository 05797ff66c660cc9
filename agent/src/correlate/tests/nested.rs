//! Containers within containers.

use expect_test::expect;

use super::check;

/// Docker in Docker: each has its own death, and the inner one's runtime is in the outer one.
#[test]
fn a_container_in_a_container_dies_its_own_death() {
    check(
        "
        +0 mkdir outer
        proc dockerd in=outer pid=100 ns=1 start=+0 parent=shim comm=dockerd
        +0.01 exec dockerd
        +1 mkdir outer>inner
        proc shim2 in=outer pid=110 ns=20 start=+1 parent=dockerd comm=containerd-shim
        proc main in=outer>inner pid=120 ns=1 level=2 start=+1.1 parent=shim2 comm=web
        +1.2 exec main
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
              SIGTERM reached PID 1 `web`, its handler ran, and it exited with code 0, 0.5 s later
            early: SIGTERM reached PID 1 `dockerd`, which has no handler, so the kernel dropped it
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              SIGTERM reached PID 1 `dockerd`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in PID 1 `dockerd`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 10.0 s of waiting
        "#]],
    );
}

/// Nobody's runtime, though it is in the container around it.
#[test]
fn whoever_signals_from_the_container_around_it_is_no_runtime_by_that() {
    check(
        "
        +0 mkdir outer
        proc dockerd in=outer pid=100 ns=1 start=+0 parent=shim comm=dockerd
        +0.01 exec dockerd
        +1 mkdir outer>inner
        proc shim2 in=outer pid=110 ns=20 start=+1 parent=dockerd comm=containerd-shim
        proc main in=outer>inner pid=120 ns=1 level=2 start=+1.1 parent=shim2 comm=web
        +1.2 exec main
        proc admin in=outer pid=140 ns=40 start=+9 parent=shim comm=kill
        +10 KILL admin -> main
        +10.01 exit main KILL
        ",
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `kill` (pid 140, container 670000000000, child of `shim`) sent SIGKILL to PID 1 `web`: neither its runtime nor itself
              fix: find out why `kill` (pid 140, container 670000000000, child of `shim`) does that; stop it by the runtime's own command
        "#]],
    );
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
              SIGTERM reached PID 1 `dockerd`, its handler ran, and it exited with code 0, 0.5 s later
        "#]],
    );
}
