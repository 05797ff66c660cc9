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
    expect![[r#"
        healthy lives on without its exec-probe
        clean Info exec-probe: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the OOM killer had killed `healthy` (pid 130), the kubelet's exec probe, because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&stopped_after(probe, true)));
}

/// A shell that runs the probe's command: its child is the victim.
#[test]
fn a_child_of_the_kubelets_exec_probe() {
    let script = stopped_after("pid=131 ns=8 start=+0.6 parent=probe comm=curl", false).replace(
        "proc victim",
        "proc probe in=web:app pid=130 ns=7 start=+0.5 parent=shim comm=healthy\n+0.5 exec probe\nproc victim",
    );
    expect![[r#"
        curl lives on without its exec-probe
        clean Info exec-probe: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the OOM killer had killed `curl` (pid 131), the kubelet's exec probe, because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&script));
}

#[test]
fn an_exec_session() {
    let shell = "pid=130 ns=7 start=+0.5 parent=shim comm=bash";
    expect![[r#"
        bash lives on without its exec-session
        clean Info exec-session: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the OOM killer had killed `bash` (pid 130), which came from outside, as by `kubectl exec`, because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&stopped_after(shell, true)));
}

#[test]
fn the_runtimes_own_process() {
    let runc = "pid=130 ns=7 start=+0.5 parent=runc comm=runc:[2:INIT]";
    expect![[r#"
        runc:[2:INIT] lives on without its runtime
        clean Info runtime: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the OOM killer had killed `runc:[2:INIT]` (pid 130), the container runtime's own process, because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&stopped_after(runc, false)));
    // Next to it: the program runs containers itself.
    let nested = "pid=130 ns=1 level=2 start=+0.5 parent=runc comm=runc:[2:INIT]";
    expect![[r#"
        runc:[2:INIT] lives on without its process
        oom-child Critical process: container `app`: the OOM killer killed `runc:[2:INIT]` (pid 130) because memory ran out, and the main process, PID 1 `app`, exited with code 0, 1.5 s later, and 0.5 s after SIGTERM
    "#]].assert_eq(&role(&stopped_after(nested, false)));
}

/// Next to all of these: the program's own, with and without clients.
#[test]
fn a_worker_and_a_helper() {
    let worker = stopped_after("pid=130 ns=7 start=-50 parent=main comm=worker", false);
    expect![[r#"
        worker lives on without its worker
        oom-child Critical worker: container `app`: the OOM killer killed `worker` (pid 130), which had sockets of clients, because memory ran out, and the main process, PID 1 `app`, exited with code 0, 1.5 s later, and 0.5 s after SIGTERM
    "#]].assert_eq(&role(&worker.replace("exit victim KILL", "exit victim KILL already-armed listening")));
    expect![[r#"
        worker lives on without its helper
        oom-child Critical helper: container `app`: the OOM killer killed `worker` (pid 130) because memory ran out, and the main process, PID 1 `app`, exited with code 0, 1.5 s later, and 0.5 s after SIGTERM
    "#]].assert_eq(&role(&worker.replace("exit victim KILL", "exit victim KILL already-armed looked")));
    expect![[r#"
        worker lives on without its process
        oom-child Critical process: container `app`: the OOM killer killed `worker` (pid 130) because memory ran out, and the main process, PID 1 `app`, exited with code 0, 1.5 s later, and 0.5 s after SIGTERM
    "#]].assert_eq(&role(&worker));
}

/// Found by monotone doubt: without the probe of execs nobody is known to have come from outside.
#[test]
fn without_the_probe_of_execs_the_role_is_open() {
    let probe = "pid=130 ns=7 start=+0.5 parent=shim comm=healthy";
    let script = stopped_after(probe, false);
    expect![[r#"
        healthy lives on without its process
        unknown Warning process: container `app`: PID 1 `app` exited with code 0, but the reason is unknown: the probe for program starts was not active; the OOM killer had killed `healthy` (pid 130) because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&format!("-70 probe sched_process_exec failed\n{script}")));
}

/// A grandchild is the program's own, unless the record of an exec from outside may be lost.
#[test]
fn a_lost_record_of_an_exec_leaves_the_role_open() {
    let script = stopped_after("pid=131 ns=8 start=+0.6 parent=unseen comm=curl", false).replace(
        "proc victim",
        "proc unseen in=web:app pid=130 ns=7 start=+0.5 parent=shim comm=healthy\nproc victim",
    );
    expect![[r#"
        curl lives on without its process
        oom-child Critical process: container `app`: the OOM killer killed `curl` (pid 131) because memory ran out, and the main process, PID 1 `app`, exited with code 0, 1.5 s later, and 0.5 s after SIGTERM
    "#]].assert_eq(&role(&script));
    let lost = format!("{script}+1.9 lost sched_process_exec +0.4 3 within web:app\n");
    expect![[r#"
        curl lives on without its process
        unknown Warning process: container `app`: PID 1 `app` exited with code 0, but the reason is unknown: kernel records of program starts were lost during the termination; the OOM killer had killed `curl` (pid 131) because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&lost));
}

/// A probe `sh -c …`, and a person's `kubectl exec -- sh`: the child of a shell may be of either.
#[test]
fn a_shell_may_be_of_a_probe_or_of_a_person() {
    let script = stopped_after("pid=131 ns=8 start=+0.6 parent=shell comm=python", false).replace(
        "proc victim",
        "proc shell in=web:app pid=130 ns=7 start=+0.5 parent=shim comm=sh\n+0.5 exec shell\nproc victim",
    );
    let probe = script.replace("exec:/bin/healthy", "exec:/bin/sh");
    expect![[r#"
        python lives on without its from-outside
        clean Info from-outside: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the OOM killer had killed `python` (pid 131), which came from outside (an exec probe, a hook or `kubectl exec`: not known which), because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&probe));
    // From just before the stop signal on, also of a hook.
    let hook = script.replace("exec:/bin/hook", "exec:/bin/sh");
    expect![[r#"
        python lives on without its exec-session
        clean Info from-outside: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the OOM killer had killed `python` (pid 131), which came from outside (an exec probe, a hook or `kubectl exec`: not known which), because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&hook));
    // A program that both run.
    let both =
        stopped_after("pid=130 ns=7 start=+0.5 parent=shim comm=healthy", true).replace("exec:/bin/hook", "exec:/bin/healthy");
    expect![[r#"
        healthy lives on without its exec-probe
        clean Info from-outside: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the OOM killer had killed `healthy` (pid 130), which came from outside (an exec probe, a hook or `kubectl exec`: not known which), because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&both));
    // Next to it: neither is a shell.
    expect![[r#"
        python lives on without its exec-session
        clean Info exec-session: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the OOM killer had killed `python` (pid 131), which came from outside, as by `kubectl exec`, because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&script));
}

/// `kubectl exec -- sh -c "a; ./b.sh"`, and what `b.sh` runs. `session`: how long the session runs.
fn grandchild(session: &str) -> String {
    stopped_after("pid=132 ns=9 start=+0.7 parent=script comm=tar", false).replace(
        "proc victim",
        &format!(
            "proc session in=web:app pid=130 ns=7 start=+0.5 parent=shim comm=sh
        +0.5 exec session
        {session}
        proc script in=web:app pid=131 ns=8 start=+0.6 parent=session comm=b.sh
        +0.6 exec script
        proc victim"
        ),
    )
}

#[test]
fn a_grandchild_of_a_session_need_not_be_the_programs() {
    expect![[r#"
        tar lives on without its unattributed
        unknown Warning unattributed: container `app`: PID 1 `app` exited with code 0, but the reason is unknown: the OOM killer killed a process below the main process, and nothing shows who had started that process: the program, or a process from outside (an exec probe, `kubectl exec`); the OOM killer had killed `tar` (pid 132), started by the program or by a process from outside (not known which), because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&grandchild("")));
    // Nor an error that follows from its end.
    expect![[r#"
        tar lives on without its unattributed
        unknown Warning unattributed: container `app`: PID 1 `app` exited with code 3, but the reason is unknown: the OOM killer killed a process below the main process, and nothing shows who had started that process: the program, or a process from outside (an exec probe, `kubectl exec`); the OOM killer had killed `tar` (pid 132), started by the program or by a process from outside (not known which), because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed; kubectl shows exit code 0; the kernel: exited with 3 at SIGTERM
    "#]].assert_eq(&role(&grandchild("").replace("+2.5 exit main 0", "+2.5 exit main 3")));
    // The session is killed with it.
    expect![[r#"
        tar lives on without its unattributed
        unknown Warning unattributed: container `app`: PID 1 `app` exited with code 0, but the reason is unknown: the OOM killer killed a process below the main process, and nothing shows who had started that process: the program, or a process from outside (an exec probe, `kubectl exec`); the OOM killer had killed `tar` (pid 132), started by the program or by a process from outside (not known which), because memory ran out, 1.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&grandchild("+1 exit session KILL")));
    // Next to it: the session had ended, or began after the victim.
    expect![[r#"
        tar lives on without its process
        oom-child Critical process: container `app`: the OOM killer killed `tar` (pid 132) because memory ran out, and the main process, PID 1 `app`, exited with code 0, 0.8 s later, and 0.5 s after SIGTERM
    "#]].assert_eq(&role(&grandchild("+0.65 exit session 0").replace("+1 oom", "+1.7 oom").replace("+1.001", "+1.701")));
    let later = grandchild("")
        .replace("start=+0.5 parent=shim", "start=+0.8 parent=shim")
        .replace("+0.5 exec session", "+0.8 exec session");
    expect![[r#"
        tar lives on without its process
        oom-child Critical process: container `app`: the OOM killer killed `tar` (pid 132) because memory ran out, and the main process, PID 1 `app`, exited with code 0, 1.5 s later, and 0.5 s after SIGTERM
    "#]].assert_eq(&role(&later));
    // And what serves clients is the program's.
    let server = grandchild("").replace("exit victim KILL", "exit victim KILL already-armed listening");
    expect![[r#"
        tar lives on without its worker
        oom-child Critical worker: container `app`: the OOM killer killed `tar` (pid 132), which had sockets of clients, because memory ran out, and the main process, PID 1 `app`, exited with code 0, 1.5 s later, and 0.5 s after SIGTERM
    "#]].assert_eq(&role(&server));
    // What to do is not known either: one of two.
    let remedies: Vec<Option<String>> = run(&grandchild(""))
        .into_iter()
        .filter_map(|(_, report)| match report {
            Report::Terminated(of) => Some(of.verdict.remedy.clone()),
            _ => None,
        })
        .collect();
    expect![[r#"[Some("find out why the livenessProbe failed (`kubectl describe pod` shows the answers), or give the probe more time (timeoutSeconds, failureThreshold); raise the memory limit if the named process belongs to the program; if a probe, a hook or an exec session starts the process, let it use less: its memory counts for the container")]"#]].assert_eq(&format!("{remedies:?}"));
}

/// Twenty processes from outside, one after the other, from +1.1 to +1.9.
fn probes(comm: &str) -> String {
    let mut probes = String::new();
    for n in 0..20 {
        let at = 1.1 + f64::from(n) * 0.04;
        writeln!(
            probes,
            "proc p{n} in=web:app pid={} ns={} start=+{at:.2} parent=shim comm={comm}
            +{at:.2} exec p{n}
            +{:.2} exit p{n} 0",
            300 + n,
            30 + n,
            at + 0.02
        )
        .expect("a string");
    }
    probes
}

/// Twenty probes after the OOM kill: what the victim was is not forgotten, nor a session that still runs.
#[test]
fn many_probes_leave_the_role_as_it_was() {
    let probes = probes("healthy");
    let late = |script: String| {
        script
            .replace("+2 TERM", "+8 TERM")
            .replace("+2.01", "+8.01")
            .replace("+2.5 exit", "+8.5 exit")
            .replace("+3 event", "+9 event")
            .replace("+4 pod", "+10 pod")
    };
    let after = |script: String| late(script).replace("+8 TERM", &format!("{}+8 TERM", probes.replace("+1.", "+5.")));
    let shell = stopped_after("pid=130 ns=7 start=+0.5 parent=shim comm=bash", true);
    expect![[r#"
        bash lives on without its exec-session
        clean Info exec-session: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the OOM killer had killed `bash` (pid 130), which came from outside, as by `kubectl exec`, because memory ran out, 7.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&after(shell)));
    expect![[r#"
        tar lives on without its unattributed
        unknown Warning unattributed: container `app`: PID 1 `app` exited with code 0, but the reason is unknown: the OOM killer killed a process below the main process, and nothing shows who had started that process: the program, or a process from outside (an exec probe, `kubectl exec`); the OOM killer had killed `tar` (pid 132), started by the program or by a process from outside (not known which), because memory ran out, 7.0 s before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&after(grandchild(""))));
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
    check_sentences(
        &script,
        expect![[r#"
        container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.3 s later; the OOM killer had killed `hook` (pid 130), the preStop hook, because memory ran out, 0.2 s before SIGTERM; the preStop hook `/bin/hook` failed (was terminated by SIGKILL), so the work of the hook may be incomplete
    "#]],
    );
    check(
        &script,
        expect![[r#"
        +3.200 child oom: hook
        +6.200 pod web +1.000…+3.500 prestop-failed: Deleted/PrestopFailed/Quiet (deletionTimestamp)
          request +1.000…+1.050 grace 30 s
          web/app +3.200…+3.500 prestop-failed: Deleted/PrestopFailed/Quiet
            Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
            preStop +1.120…+3.001 Signaled { signal: Signal(9), core_dumped: false }
          gone +6.000
    "#]],
    );
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
    expect![[r#"
        oom-killed Critical main: container `setup`: the OOM killer killed PID 1 `setup` because memory ran out; the init container did not finish, so the containers behind it were not started
    "#]].assert_eq(&role(script));
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
    expect![[r#"
        oom-killed Critical main: container `app`: the OOM killer killed PID 1 `runc:[2:INIT]` because memory ran out; that was the container runtime's own process, which had not yet started the program
    "#]].assert_eq(&role(&script));
}

/// Recorded on Debian 12 (runc 1.1.5, 128 KiB): the limit is set once runc's first process has exited, and the init has not executed.
#[test]
fn the_runtime_behind_its_own_first_process() {
    let killed = |stage: &str, init: &str| {
        role(&web(&format!(
            "
            -3 mkdir web:app:2
            proc stage in=web:app:2 pid=139 start=-3 {stage}
            -2.9 exec stage
            proc init in=web:app:2 pid=140 ns=1 start=-2 {init} comm=runc:[2:INIT]
            -1 exit stage 0
            -0.2 KILL init -> init kernel
            -0.1999 oom init
            -0.199 exit init KILL
            -0.1 rmdir web:app:2
            +2 pod web app.last=web:app:2:137:OOMKilled app.restarts=2 app.id=web:app:3 app=waiting
            "
        )))
    };
    expect![[r#"
        oom-killed Critical main: container `app`: the OOM killer killed PID 1 `runc:[2:INIT]` because memory ran out; that was the container runtime's own process, which had not yet started the program
    "#]].assert_eq(&killed("parent=runc comm=runc:[0:PARENT]", "parent=runc"));
    // Below a program of that name, or beside one of another name, it is a sandbox of the container's own.
    expect![[r#"
        clean Info process: container `app`: `runc:[0:PARENT]` (pid 139) exited by itself with code 0; the OOM killer killed `runc:[2:INIT]` (pid 140) because memory ran out, 0.8 s after the end; kubectl shows OOMKilled, exit code 137; the kernel: exited with 0
    "#]].assert_eq(&killed("parent=runc comm=runc:[0:PARENT]", "parent=stage"));
    expect![[r#"
        clean Info process: container `app`: `app` (pid 139) exited by itself with code 0; the OOM killer killed `runc:[2:INIT]` (pid 140) because memory ran out, 0.8 s after the end; kubectl shows OOMKilled, exit code 137; the kernel: exited with 0
    "#]].assert_eq(&killed("parent=runc comm=app", "parent=runc"));
}

/// crun's has no name of its own, and has executed nothing.
#[test]
fn crun_before_it_starts_the_program() {
    let killed = |exec: &str| {
        role(&web(&format!(
            "
            -1 mkdir web:app:2
            proc init in=web:app:2 pid=140 ns=1 start=-1 parent=shim comm=3
            {exec}
            +1 KILL init -> init kernel
            +1.0001 oom init
            +1.001 exit init KILL
            +2 pod web app.last=web:app:2:137:OOMKilled app.restarts=2 app.id=web:app:3 app=waiting
            "
        )))
    };
    expect![[r#"
        oom-killed Critical main: container `app`: the OOM killer killed PID 1 `3` because memory ran out; that was the container runtime's own process, which had not yet started the program
    "#]].assert_eq(&killed(""));
    // Nothing shows an exec that is not recorded.
    expect![[r#"
        unknown Warning main: container `app`: PID 1 `3` was terminated by SIGKILL, but the reason is unknown: the probe for program starts was not active
    "#]].assert_eq(&killed("-2 probe sched_process_exec failed"));
    expect![[r#"
        oom-killed Critical main: container `app`: the OOM killer killed PID 1 `3` because memory ran out
    "#]]
    .assert_eq(&killed("-0.9 exec init"));
}

/// The spec's probe, its hook and a person's session are the same shell. The session still runs after twenty probes: what it starts is not
/// the program's.
#[test]
fn many_probes_do_not_hide_a_session_of_the_same_shell() {
    let session = "proc session in=web:app pid=130 ns=7 start=+0.5 parent=shim comm=sh\n+0.5 exec session\n";
    let before = format!("{session}{}", probes("sh"));
    let script = stopped_after("pid=132 ns=9 start=+1.95 parent=session comm=python", false)
        .replace("exec:/bin/healthy", "exec:/bin/sh")
        .replace("exec:/bin/hook", "exec:/bin/sh")
        .replace("proc victim", &format!("{before}proc victim"))
        .replace("+1 oom", "+1.96 oom")
        .replace("+1.001", "+1.961");
    expect![[r#"
        python lives on without its from-outside
        clean Info from-outside: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the OOM killer had killed `python` (pid 132), which came from outside (an exec probe, a hook or `kubectl exec`: not known which), because memory ran out, 40 ms before SIGTERM; the kubelet stopped the container because the liveness probe failed
    "#]].assert_eq(&role(&script));
}

/// The status keeps the mark of an OOM kill that came in a gap: nothing shows that the mark is wrong.
#[test]
fn an_oom_kill_in_a_gap_is_not_contradicted() {
    let stopped = |before: &str| {
        let script = web(&format!(
            "
        proc worker in=web:app pid=130 ns=7 start=-50 parent=main comm=worker
        {before}
        +10 TERM runc -> main handler
        +10.01 enter main TERM
        +12 exit main 1
        +12.5 pod web app.last=web:app:1:OOMKilled app.restarts=1 app.id=web:app:2 app=running
        "
        ));
        format!("-100 start\n{script}")
    };
    expect![[r#"
        worker lives on without its process
        oom-child Critical process: container `app`: the OOM killer killed `worker` (pid 130) because memory ran out, and the main process, PID 1 `app`, exited with code 1, 7.0 s later, and 2.0 s after SIGTERM
    "#]].assert_eq(&role(&stopped("+5 oom worker\n+5.001 exit worker KILL")));
    expect![[r#"
        nonzero-exit Warning : container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 1, 2.0 s later; the reason for the termination is unknown: the watch of the pods was interrupted, so the time of the deletion is unknown; epitaph did not observe for part of the time before this SIGTERM: the stop may have begun before it, and the shutdown may have taken longer than stated
    "#]].assert_eq(&role(&stopped("+4 tick\n+6 start\n+6 found main\n+6 scanned\n+6 api synced")));
    expect![[r#"
        nonzero-exit Warning : container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 1, 2.0 s later; the kubelet stopped the container, and no evidence shows why; kubectl shows OOMKilled; the kernel: exited with 1 at SIGTERM
    "#]].assert_eq(&role(&stopped("")));
}
