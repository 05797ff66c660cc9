//! What the victim of an OOM kill was for its container. A worker's OOM kill is the container's; a probe's, a hook's or a session's is not.

use expect_test::expect;

use super::*;

/// A pod with a probe and a hook, and a victim, which the OOM killer kills a second before the container is stopped for its liveness probe.
fn stopped_after(victim: &str, comes_in: bool) -> String {
    let exec = if comes_in { "+0.5 exec victim" } else { "" };
    web(&format!(
        "
        pod web app app.liveness=exec:/bin/healthy app.prestop=exec:/bin/hook
        -58 pod web app=running
        proc victim in=web:app {victim}
        {exec}
        +1 oom victim
        +1.001 exit victim KILL
        +2 TERM runc -> main handler
        +2.01 enter main TERM
        +2.5 exit main 0
        +3 event web app Killing Container app failed liveness probe, will be restarted
        +4 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        "
    ))
}

fn role(script: &str) -> String {
    let mut text = String::new();
    for (_, report) in run(script) {
        match report {
            Report::ChildOomKilled { oom, .. } => writeln!(text, "{} lives on without its {}", oom.comm, oom.role.name()),
            Report::Terminated(of) => {
                let roles: Vec<&str> = of.oom.iter().map(|oom| oom.role.name()).collect();
                let v = &of.verdict;
                writeln!(text, "{} {:?} {}: {}", v.headline, v.severity, roles.join(", "), v.sentence)
            }
            _ => Ok(()),
        }
        .expect("a string");
    }
    text
}

#[test]
fn the_kubelets_exec_probe() {
    let probe = "pid=130 ns=7 start=+0.5 parent=shim comm=healthy";
    expect![[r#""#]].assert_eq(&role(&stopped_after(probe, true)));
}

/// A shell that runs the probe's command: its child is the victim.
#[test]
fn a_child_of_the_kubelets_exec_probe() {
    let script = stopped_after("pid=131 ns=8 start=+0.6 parent=probe comm=curl", false).replace(
        "proc victim",
        "proc probe in=web:app pid=130 ns=7 start=+0.5 parent=shim comm=healthy\n+0.5 exec probe\nproc victim",
    );
    expect![[r#""#]].assert_eq(&role(&script));
}

#[test]
fn an_exec_session() {
    let shell = "pid=130 ns=7 start=+0.5 parent=shim comm=bash";
    expect![[r#""#]].assert_eq(&role(&stopped_after(shell, true)));
}

#[test]
fn the_runtimes_own_process() {
    let runc = "pid=130 ns=7 start=+0.5 parent=runc comm=runc:[2:INIT]";
    expect![[r#""#]].assert_eq(&role(&stopped_after(runc, false)));
}

/// Next to all of these: the program's own, with and without clients.
#[test]
fn a_worker_and_a_helper() {
    let worker = stopped_after("pid=130 ns=7 start=-50 parent=main comm=worker", false);
    expect![[r#""#]].assert_eq(&role(&worker.replace("exit victim KILL", "exit victim KILL listening")));
    expect![[r#""#]].assert_eq(&role(&worker.replace("exit victim KILL", "exit victim KILL looked")));
    expect![[r#""#]].assert_eq(&role(&worker));
}

/// A grandchild is the program's own, unless the record of an exec from outside may be lost.
#[test]
fn a_lost_record_of_an_exec_leaves_the_role_open() {
    let script = stopped_after("pid=131 ns=8 start=+0.6 parent=unseen comm=curl", false).replace(
        "proc victim",
        "proc unseen in=web:app pid=130 ns=7 start=+0.5 parent=shim comm=healthy\nproc victim",
    );
    expect![[r#""#]].assert_eq(&role(&script));
    let lost = format!("{script}+1.9 lost sched_process_exec +0.4 3 within web:app\n");
    expect![[r#""#]].assert_eq(&role(&lost));
}

#[test]
fn the_hooks_process() {
    let script = web("
        pod web app app.prestop=exec:/bin/hook
        -58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
        +1.05 pod web deleted=+1:30
        +1.12 exec hook
        +3 oom hook
        +3.001 exit hook KILL
        +3.2 TERM runc -> main handler
        +3.21 enter main TERM
        +3.5 exit main 0
        +5 pod web app=0:Completed
        +6 gone web
        ");
    check_sentences(&script, expect![[r#""#]]);
    check(&script, expect![[r#""#]]);
}

#[test]
fn an_init_container() {
    let script = "
        -60 api synced
        pod web setup:init app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:setup
        proc setup in=web:setup pid=100 ns=1 start=-59 parent=shim comm=setup
        -59 exec setup
        -58 pod web setup=running
        +1 KILL setup -> setup kernel
        +1.0001 oom setup
        +1.001 exit setup KILL
        +2 pod web setup.last=web:setup:137:OOMKilled setup.restarts=1 setup.id=web:setup:2 setup=running
        ";
    expect![[r#""#]].assert_eq(&role(script));
}

/// The limit is too small for the runtime itself.
#[test]
fn the_runtime_before_it_starts_the_program() {
    let script = web("
        -1 mkdir web:app:2
        proc init in=web:app:2 pid=140 ns=1 start=-1 parent=shim comm=runc:[2:INIT]
        -1 exec init
        +1 KILL init -> init kernel
        +1.0001 oom init
        +1.001 exit init KILL
        +2 pod web app.last=web:app:2:137:OOMKilled app.restarts=2 app.id=web:app:3 app=waiting
        ");
    expect![[r#""#]].assert_eq(&role(&script));
}
