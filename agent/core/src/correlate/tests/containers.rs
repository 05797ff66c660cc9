//! What the files of a runtime say about a container: names for the report, and the sandbox.

use expect_test::expect;

use super::{check, container};
use crate::container::ContainerFact;
use crate::fixtures::script;
use crate::report::Report;

fn described(script: &str) -> Vec<Option<ContainerFact>> {
    let of = |report: Report| match report {
        Report::Terminated(t) => Some(t.facts.container.as_deref().cloned()),
        Report::StopSignalIgnored(early) => Some(early.container.as_deref().cloned()),
        Report::ChildOomKilled { container, .. } => Some(container.as_deref().cloned()),
        _ => None,
    };
    script::run(script).into_iter().filter_map(of).collect()
}

#[test]
fn every_report_of_a_container_has_its_name() {
    let script = container(
        "
        +0.01 describe app name=checkout image=shop:1.4 stop=TERM
        proc worker in=app pid=101 ns=7 start=+0.1 parent=main comm=worker
        +0.1 exec worker
        +0.5 oom worker
        +0.51 exit worker KILL
        +1 TERM runc -> main ignored default
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
    );
    let titles: Vec<String> = described(&script).iter().flatten().map(ContainerFact::title).collect();
    assert_eq!(titles, ["checkout (image shop:1.4)"; 3]);
}

/// The answer comes when it comes; nothing waits for it.
#[test]
fn a_description_that_comes_late_is_left_out() {
    let script = container("+1 exit main 3\n+9 tick\n+10 describe app name=checkout");
    assert_eq!(described(&script), [None]);
    assert_eq!(script::run(&script), script::run(&container("+1 exit main 3\n+9 tick")));
}

#[test]
fn the_description_of_one_container_is_not_anothers() {
    let script = container(
        "
        +0.01 mkdir other
        +0.01 describe other name=other
        +1 exit main 3
        ",
    );
    assert_eq!(described(&script), [None]);
}

/// A pod without the API: its sandbox gets only SIGKILL, its container is stopped.
fn pod(rest: &str) -> String {
    format!(
        "
        pod web app
        +0 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=+0 parent=shim comm=pause
        +0 exec pause
        +0.1 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=+0.1 parent=shim comm=app
        +0.1 exec main
        {rest}
        +5 TERM runc -> main handler
        +5.001 enter main TERM
        +5.1 exit main 0
        +5.2 KILL runc -> pause
        +5.201 exit pause KILL
        +5.3 rmdir web:app
        +5.3 rmdir web:pause
        "
    )
}

#[test]
fn the_sandbox_of_a_pod_is_known_without_the_api() {
    check(
        &pod("+0.2 describe web:pause sandbox"),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later
    "#]],
    );
    // No file describes it.
    check(
        &pod(""),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later
        force-killed: Stopped/ForceKilled/Quiet
          The container runtime sent SIGKILL to PID 1 `pause` without a stop signal first
          fix: stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0)
    "#]],
    );
}

/// The file says what the container is, not how it terminates.
#[test]
fn a_sandbox_that_another_process_kills_is_reported() {
    check(
        "
        pod web app
        +0 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=+0 parent=shim comm=pause
        +0 exec pause
        +0.1 describe web:pause sandbox
        +5 KILL bash -> pause
        +5.001 exit pause KILL
        +5.1 rmdir web:pause
        ",
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70, on the host) sent SIGKILL to PID 1 `pause`; the sender is neither the runtime nor the process itself
              fix: find out why `bash` (pid 70, on the host) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
}
