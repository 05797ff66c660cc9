//! Programs below the main process that were killed when it had left: the verdict is about them. Helpers have no sockets.

use expect_test::expect;

use super::{check, check_evidence, container};

/// `trap 'exit 0' TERM; server & wait`.
fn trap(with: &str) -> String {
    container(&format!(
        "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.001 exit main 0 already-armed
        +1.0011 KILL main -> server kernel waiting=none already-armed
        +1.002 exit server KILL
        {with}
        "
    ))
}

#[test]
fn a_program_with_a_listener_never_got_the_signal() {
    check_evidence(
        &trap("+1.0021 tcp app closed 8080 0 by-exit by=server"),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later; the kernel then killed `server`, which never got the signal, with its listener open
              fix: send SIGTERM on from PID 1 `app` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.000 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.001 sched_process_exit: PID 1 `app` exited with code 0
              +1.001 signal_generate: SIGKILL from the kernel to `server` (pid 107)
              +1.002 tcp: the exit of `server` (pid 107) closed a listener
              +1.002 tcp: listener 10.0.0.1:8080 closed by process exit
        "#]],
    );
}

#[test]
fn a_program_with_a_connection_never_got_the_signal() {
    check(
        &trap("+1.0021 tcp app cut 8080 40001 sent=9 received=90 last-sent=20 last-received=19 by=server"),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later; the kernel then killed `server`, which never got the signal, with connections open
              fix: send SIGTERM on from PID 1 `app` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
    // It had closed first, or its own half.
    check(
        &trap("+1.0021 tcp app half-closed 8080 40001 sent=9 received=90 last-sent=20 last-received=19 by=server"),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later; the kernel then killed `server`, which never got the signal, with connections open
              fix: send SIGTERM on from PID 1 `app` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
}

#[test]
fn a_program_with_a_connection_to_a_server_never_got_the_signal() {
    check(
        &trap("+1.0021 tcp app cut 41000 5432 sent=9 received=90 last-sent=20 last-received=19 by=server"),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later; the kernel then killed `server`, which never got the signal, with connections open
              fix: send SIGTERM on from PID 1 `app` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
}

/// The `sleep` of a shell: neither a word nor an advice.
#[test]
fn a_helper_has_no_sockets() {
    check(
        &trap(""),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later
    "#]],
    );
}

/// The other side's FIN or RST is handled in the context of any process, also of one that exits.
#[test]
fn what_the_other_side_closes_is_not_the_helpers() {
    check(
        &trap("+1.0021 tcp app half-closed 8080 40001 errno=104 by=server"),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later
        "#]],
    );
}

#[test]
fn whether_the_killed_process_had_sockets_is_not_known() {
    let lost = "+1.5 lost tcp +1 1 within app";
    check(
        &trap(lost),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: SIGKILL ended `server` below the main process, and nothing shows whether a program with connections was killed: its sockets were not observed
              fix: run `epitaph doctor`: the report names each probe that is not active on this kernel; records that were lost need a larger `kernel.ring_bytes`
        "#]],
    );
    let without = trap("")
        .replace("handler armed", "handler unarmed")
        .replace("already-armed", "unarmed");
    check(
        &without,
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: SIGKILL ended `server` below the main process, and nothing shows whether a program with connections was killed: its sockets were not observed
              fix: run `epitaph doctor`: the report names each probe that is not active on this kernel; records that were lost need a larger `kernel.ring_bytes`
        "#]],
    );
}

/// A probe of the kubelet, or `kubectl exec`, with its connection.
#[test]
fn a_process_from_outside_is_not_a_program_of_the_container() {
    check(
        &container(
            "
        proc exec in=app pid=120 ns=20 start=+0.5 parent=shim comm=sh
        proc probe in=app pid=121 ns=21 start=+0.6 parent=exec comm=curl
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.001 exit main 0 already-armed
        +1.0011 KILL main -> exec kernel waiting=none already-armed
        +1.0012 KILL main -> probe kernel waiting=none already-armed
        +1.002 exit exec KILL
        +1.0021 exit probe KILL
        +1.0022 tcp app cut 41000 80 sent=9 received=90 last-sent=20 last-received=19 by=probe
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later
        "#]],
    );
}

/// Without a pid namespace of its own the container runtime kills what is left, a probe among them.
#[test]
fn a_process_from_outside_in_a_shared_pid_namespace() {
    let script = |by: &str| {
        format!(
            "
        +0 mkdir app
        proc main in=app pid=100 start=+0 parent=shim comm=sh
        proc server in=app pid=107 start=+0.1 parent=main comm=server
        proc exec in=app pid=120 start=+0.5 parent=shim comm=sh
        proc probe in=app pid=121 start=+0.6 parent=exec comm=curl
        +0.001 exec main
        +0.1 exec server
        +0.5 exec exec
        +0.6 exec probe
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.001 exit main 0 already-armed
        +1.1 KILL runc -> server waiting=none already-armed
        +1.1001 KILL runc -> exec waiting=none already-armed
        +1.1002 KILL runc -> probe waiting=none already-armed
        +1.102 exit server KILL
        +1.1021 exit exec KILL
        +1.1022 exit probe KILL
        +1.1023 tcp app cut 41000 80 sent=9 received=90 last-sent=20 last-received=19 by={by}
        "
        )
    };
    check(
        &script("probe"),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to `sh` (pid 100), the handler ran, and the process exited with code 0, 1 ms later
    "#]],
    );
    check(
        &script("server"),
        expect![[r#"
        force-killed: Stopped/ForceKilled/Quiet
          The container runtime sent SIGTERM to `sh` (pid 100), the handler ran, and the process exited with code 0, 1 ms later; the container runtime then killed `server`, which never got the signal, with connections open
          fix: send SIGTERM on from `sh` (pid 100) to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
    "#]],
    );
}

/// A process group's signal, which the server ignores; the init waits for its own child only.
#[test]
fn a_program_that_got_the_signal_was_killed_all_the_same() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=dumb-init
        proc sh in=app pid=107 ns=7 start=+0.1 parent=main comm=sh
        proc server in=app pid=108 ns=8 start=+0.2 parent=sh comm=server
        +0.001 exec main
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> sh handler already-armed
        +1.0002 TERM main -> server ignored ignore already-armed
        +1.0003 enter sh TERM
        +1.1 exit sh 0
        +1.101 exit main 0 already-armed
        +1.1011 KILL main -> server kernel waiting=none already-armed
        +1.102 exit server KILL
        +1.1021 tcp app closed 8080 0 by-exit by=server
        ",
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `dumb-init`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to 2 processes, and the process exited with code 0, 0.1 s later; the kernel then killed `server`, which had not finished, with its listener open
              fix: let PID 1 `dumb-init` wait until `server` has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must wait for its children before its own exit
        "#]],
    );
}

/// `trap 'kill -9 $server; exit 0' TERM`.
#[test]
fn a_shell_kills_its_program() {
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0005 KILL main -> server waiting=none already-armed
        +1.0006 exit server KILL
        +1.0007 tcp app closed 8080 0 by-exit by=server
        +1.001 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later; `app` killed `server`, which never got the signal, with its listener open
              fix: send SIGTERM on from PID 1 `app` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
}

#[test]
fn a_stranger_kills_the_program_of_a_shell() {
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0005 KILL bash -> server waiting=none already-armed
        +1.0006 exit server KILL
        +1.0007 tcp app closed 8080 0 by-exit by=server
        +1.001 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            killed-by-other: Stopped/KilledByOther/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later; `bash` (pid 70) killed `server`, which never got the signal, with its listener open
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
        "#]],
    );
}

/// A SIGKILL that comes too late finds the process on its way out.
#[test]
fn a_program_that_had_exited_by_itself_was_not_killed() {
    check(
        &trap("+1.0021 tcp app closed 8080 0 by-exit by=server").replace("exit server KILL", "exit server 0"),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later
        "#]],
    );
}

/// `KillMode=mixed`.
#[test]
fn systemd_kills_the_program_of_a_unit() {
    check(
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc server in=app.service pid=107 start=+0.1 parent=main comm=server
        +0.001 exec main
        +0.1 exec server
        +1 TERM systemd -> main handler armed
        +1.0001 enter main TERM
        +1.001 exit main 0 already-armed
        +1.01 KILL systemd -> server waiting=none already-armed
        +1.011 exit server KILL
        +1.0111 tcp app.service closed 8080 0 by-exit by=server
        ",
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              systemd sent SIGTERM to `sh` (pid 100), the handler ran, and the process exited with code 0, 1 ms later; systemd then killed `server`, which never got the signal, with its listener open
              fix: let systemd send SIGTERM to `server` (`KillMode=control-group`), or let `sh` (pid 100) stop `server` and wait for it
        "#]],
    );
}

/// An exit code that is declared as expected, and 128 + n, are as clean as 0.
#[test]
fn another_clean_exit_of_the_first_process() {
    check(
        &trap("+1.0021 tcp app closed 8080 0 by-exit by=server").replace("exit main 0", "exit main 143"),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 143, 1 ms later (128 + SIGTERM: the usual code of many language runtimes after a shutdown); the kernel then killed `server`, which never got the signal, with its listener open
              fix: send SIGTERM on from PID 1 `app` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
    check(
        &trap("+1.0021 tcp app closed 8080 0 by-exit by=server").replace("exit main 0", "exit main 3"),
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 3, 1 ms later
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

/// A unit whose main process is a shell without a trap (`KillMode=control-group`).
fn shell_of_a_unit(with: &str) -> String {
    format!(
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc server in=app.service pid=107 start=+0.1 parent=main comm=server
        +0.001 exec main
        +0.1 exec server
        +1 TERM systemd -> main default exiting armed
        +1.0001 TERM systemd -> server handler already-armed
        +1.0002 exit main TERM already-armed
        +1.0003 enter server TERM
        {with}
        "
    )
}

#[test]
fn the_program_below_the_shell_of_a_unit_finishes() {
    check_evidence(
        &shell_of_a_unit("+4 tcp app.service closed 8080 0 by=server\n+4.5 exit server 0 already-armed"),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `server` (pid 107), the handler ran, and the process exited with code 0, 3.5 s later
              +1.000 signal_generate: SIGTERM from `systemd` (pid 1, on the host), systemd, to `server` (pid 107): delivered, handler installed
              +1.000 signal_deliver: `server` (pid 107) entered the SIGTERM handler
              +4.000 tcp: listener 10.0.0.1:8080 closed by close()
              +4.500 sched_process_exit: `server` (pid 107) exited with code 0
        "#]],
    );
    check(
        &shell_of_a_unit("+4 tcp app.service closed 8080 0 by=server\n+4.5 exit server 3 already-armed"),
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Quiet
              systemd sent SIGTERM to `server` (pid 107), the handler ran, and the process exited with code 3, 3.5 s later
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
    check(
        &shell_of_a_unit("+4 tcp app.service closed 8080 0 by=server\n+4.5 exit server SEGV already-armed"),
        expect![[r#"
            crashed: Stopped/Crashed/Quiet
              `server` (pid 107) crashed with SIGSEGV, 3.5 s after SIGTERM
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
    check(
        &shell_of_a_unit(
            "+91 KILL systemd -> server waiting=none already-armed\n+91.001 exit server KILL already-armed\n+91.0011 tcp app.service closed 8080 0 by-exit by=server",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              systemd sent SIGTERM to `server` (pid 107), the handler started, but the process did not exit: systemd sent SIGKILL 90 s later
              fix: the shutdown needs more than the 90 s that it got: raise `TimeoutStopSec=` of the unit, or shorten the shutdown; the listener stayed open, so SIGTERM may not stop this program (some reload at SIGTERM): then declare the signal that does (`KillSignal=` of the unit)
        "#]],
    );
    check(
        &shell_of_a_unit("+1.001 exit server TERM already-armed\n+1.0011 tcp app.service closed 8080 0 by-exit by=server")
            .replace("server handler", "server default exiting")
            .replace("+1.0003 enter server TERM\n", "\n"),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              SIGTERM terminated `server` (pid 107): the process has no SIGTERM handler, so any work in flight was lost
              fix: install a handler that finishes the work in flight and then exits with 0; the process was 0.9 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

/// Nothing shows that the shell was not the program: its script may have had more to do.
#[test]
fn the_shell_of_a_unit_and_a_helper() {
    check(
        &shell_of_a_unit("+4.5 exit server 0 already-armed"),
        expect![[r#"
        default-action: Stopped/DefaultAction/Unknown
          SIGTERM terminated `sh` (pid 100): the process has no SIGTERM handler, so any work in flight was lost
          fix: install a handler that finishes the work in flight and then exits with 0
    "#]],
    );
    let own = "+1.00021 tcp app.service closed 80 0 by-exit by=main\n+4 tcp app.service closed 8080 0 by=server\n+4.5 exit server 0 already-armed";
    check(
        &shell_of_a_unit(own),
        expect![[r#"
        default-action: Stopped/DefaultAction/Unknown
          SIGTERM terminated `sh` (pid 100): the process has no SIGTERM handler, so any work in flight was lost
          fix: install a handler that finishes the work in flight and then exits with 0
    "#]],
    );
}

#[test]
fn what_the_others_of_a_unit_had_is_not_known() {
    let lost = "+4.5 exit server 0 already-armed\n+4.6 lost tcp +4 1 within app.service";
    check(
        &shell_of_a_unit(lost),
        expect![[r#"
        unknown: Stopped/Unknown/Unknown
          `sh` (pid 100) was terminated by SIGTERM, but the reason is unknown: systemd stopped other processes of the unit, too, and nothing shows whether one of them was the program: the sockets were not observed
          fix: run `epitaph doctor`: the report names each probe that is not active on this kernel; records that were lost need a larger `kernel.ring_bytes`
    "#]],
    );
    let unarmed = shell_of_a_unit("+4.5 exit server 0 unarmed")
        .replace("already-armed", "unarmed")
        .replace(" armed", " unarmed");
    check(
        &unarmed,
        expect![[r#"
        unknown: Stopped/Unknown/Unknown
          `sh` (pid 100) was terminated by SIGTERM, but the reason is unknown: systemd stopped other processes of the unit, too, and nothing shows whether one of them was the program: the sockets were not observed
          fix: run `epitaph doctor`: the report names each probe that is not active on this kernel; records that were lost need a larger `kernel.ring_bytes`
    "#]],
    );
}

/// Its main process is gone for a minute when systemd kills what still runs.
#[test]
fn systemd_kills_the_rest_of_a_unit_late() {
    let late = "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc server in=app.service pid=107 start=+0.1 parent=main comm=server
        +0.001 exec main
        +0.1 exec server
        +1 TERM systemd -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM systemd -> server handler already-armed
        +1.001 exit main 0 already-armed
        +1.002 enter server TERM
        +91 KILL systemd -> server waiting=none already-armed
        +91.001 exit server KILL
        +91.0011 tcp app.service closed 8080 0 by-exit by=server
        ";
    check(
        late,
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Unknown
              systemd sent SIGTERM to `sh` (pid 100), the handler ran, and the process exited with code 0, 1 ms later; systemd then killed `server`, which had not finished, with its listener open
              fix: the shutdown of `server` needs more than the 90 s that systemd gave it: raise `TimeoutStopSec=` of the unit, or shorten the shutdown
        "#]],
    );
    // What its clients meet long after the exit of the main process is not counted.
    let in_time = late
        .replace("+91 KILL systemd -> server waiting=none already-armed", "")
        .replace("exit server KILL", "exit server 0 already-armed");
    assert_eq!(headline(&in_time), "clean-exit: Stopped/Clean/Unknown");
    // Also soon after the exit of the main process, which would wait in vain.
    let soon = late
        .replace("+1.001 exit main", "+89 exit main")
        .replace("+1.002 enter", "+1.0021 enter");
    check(
        &soon,
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Unknown
              systemd sent SIGTERM to `sh` (pid 100), the handler ran, and the process exited with code 0, 88 s later; systemd then killed `server`, which had not finished, with its listener open
              fix: the shutdown of `server` needs more than the 90 s that systemd gave it: raise `TimeoutStopSec=` of the unit, or shorten the shutdown
        "#]],
    );
    // Next to it: with `KillMode=mixed` systemd kills what `sh` did not wait for.
    let mixed = late
        .replace("TERM systemd -> server", "TERM main -> server")
        .replace("+91 ", "+1.003 ")
        .replace("+91.", "+1.003");
    check(
        &mixed,
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `sh` forwarded SIGTERM to `server`, whose handler ran; `sh` (pid 100) then exited with code 0, and systemd killed `server`, whose shutdown had not finished
              fix: let `sh` (pid 100) wait until `server` has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must wait for its children before its own exit
        "#]],
    );
}

/// `sh -c 'server; exit 0'`
fn hidden(server: &str) -> String {
    container(&format!(
        "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        {server}
        +60.02 exit main 0 already-armed
        "
    ))
}

#[test]
fn a_program_with_clients_that_crashes_is_not_hidden_by_the_code_0_of_its_wrapper() {
    check_evidence(
        &hidden("+60 exit server SEGV listening armed"),
        expect![[r#"
        crashed: Crash/Crashed/Quiet
          `server` was terminated by SIGSEGV, and PID 1 `app` exited with code 0
          fix: look at the core dump or the last lines of the log: the fault is in the program
          +60.000 sched_process_exit: `server` (pid 107) was terminated by SIGSEGV
          +60.020 sched_process_exit: PID 1 `app` exited with code 0
    "#]],
    );
    check(
        &hidden("+55 exit server ABRT serving armed"),
        expect![[r#"
        crashed: Crash/Crashed/Quiet
          `server` was terminated by SIGABRT, and 5.0 s later PID 1 `app` exited with code 0
          fix: look at the core dump or the last lines of the log: the fault is in the program
    "#]],
    );
}

/// The next cases to it: a helper, one that finished, and one of long before.
#[test]
fn a_helper_that_crashes_is_hidden() {
    for server in [
        "+60 exit server SEGV looked armed",
        "+60 exit server 0 listening armed",
        "+40 exit server SEGV listening armed",
    ] {
        let shown = super::script::show(&super::script::run(&hidden(server)), false);
        assert!(shown.starts_with("clean"), "{server}: {shown}");
    }
}

#[test]
fn who_killed_a_program_with_clients_is_known_only_from_a_record() {
    check(
        &hidden("+60 exit server KILL listening armed"),
        expect![[r#"
        unknown: Unknown/Unknown/Quiet
          PID 1 `app` exited with code 0, but the reason is unknown: `server`, which had clients, ended by SIGKILL before, and the sender of SIGKILL was not seen
          fix: search the kernel log and the audit log for the sender of SIGKILL: epitaph has no record of the sender
    "#]],
    );
    check(
        &hidden("+59.999 KILL bash -> server waiting=none armed\n+60 exit server KILL listening armed"),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70) killed `server`, which still ran, with its listener open; PID 1 `app` then exited with code 0
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
        "#]],
    );
    check(
        &hidden("+59.999 KILL main -> server waiting=none armed\n+60 exit server KILL listening armed"),
        expect![[r#"
            force-killed: Completed/ForceKilled/Quiet
              PID 1 `app` exited by itself with code 0; `app` killed `server`, which still ran, with its listener open
              fix: if `server` is the service, start it in the foreground (with `exec` in a shell): a container ends with its first process
        "#]],
    );
}

#[test]
fn a_lost_exit_may_be_the_programs() {
    check(
        &hidden("+60.01 lost sched_process_exit +59 1 within app"),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: kernel records of process exits were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

/// On the host's pids: the program's parent is not the shim that started the first process, and kills all that is left.
#[test]
fn the_runtime_that_stopped_the_first_process_kills_the_program() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 start=+0 parent=shim comm=runsvdir
        proc runsv in=app pid=106 start=+0.05 parent=main comm=runsv
        proc server in=app pid=107 start=+0.1 parent=runsv comm=server
        +0.001 exec main
        +0.1 exec server
        +1 TERM shim -> main handler armed
        +1.0001 enter main TERM
        +1.001 exit main 0 already-armed
        +1.5 KILL shim -> server waiting=none already-armed
        +1.501 exit server KILL
        +1.5011 tcp app closed 8080 0 by-exit by=server
        ",
        expect![[r#"
            force-killed: Stopped/ForceKilled/Unknown
              The container runtime sent SIGTERM to `runsvdir` (pid 100), the handler ran, and the process exited with code 0, 1 ms later; the container runtime then killed `server`, which never got the signal, with its listener open
              fix: `runsvdir` (pid 100) exits without waiting for `server`: let a shell stop the services first and wait for them (`trap 'kill $!; sv -w 8 shutdown DIR/*; exit 0' TERM; runsvdir DIR & wait`, with the directory of the services as DIR)
        "#]],
    );
}

#[test]
fn a_program_with_clients_by_a_unix_socket_never_got_the_signal() {
    check_evidence(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=app
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.001 exec main
        +0.1 exec server
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.001 exit main 0 already-armed
        +1.0011 KILL main -> server kernel waiting=none already-armed
        +1.002 exit server KILL other-sockets armed
        ",
        expect![[r#"
            force-killed: Stopped/ForceKilled/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later; the kernel then killed `server`, which never got the signal, with a Unix or UDP socket open
              fix: send SIGTERM on from PID 1 `app` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.000 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.001 sched_process_exit: PID 1 `app` exited with code 0
              +1.001 signal_generate: SIGKILL from the kernel to `server` (pid 107)
              +1.002 sched_process_exit: `server` (pid 107) had a Unix or UDP socket for clients when it exited
        "#]],
    );
}

/// `dumb-init sh -c 'trap "kill $!; exit 0" TERM; server & wait'`: the group's signal ends the program, and everybody above exits with 0.
#[test]
fn a_program_with_clients_that_the_groups_signal_ends_is_not_hidden_by_its_wrappers() {
    let stopped = |server: &str| {
        container(&format!(
            "
        proc sh in=app pid=106 ns=6 start=+0.1 parent=main comm=sh
        proc server in=app pid=107 ns=7 start=+0.2 parent=sh comm=server
        +1 TERM runc -> main handler armed
        +1.0001 TERM main -> server default exiting already-armed
        +1.0002 TERM main -> sh handler already-armed
        +1.0003 exit server TERM {server} already-armed
        +1.0005 enter sh TERM
        +1.0006 exit sh 0 looked already-armed
        +1.001 enter main TERM
        +1.002 exit main 0 already-armed
        "
        ))
    };
    check(
        &stopped("serving"),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `app` forwarded SIGTERM to `server`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0; `server` was 0.8 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
    // A helper.
    check(
        &stopped("looked"),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran and sent the signal on to 2 processes, and the process exited with code 0, 2 ms later
    "#]],
    );
}

/// The same of a trap that sends the signal on and does not wait.
#[test]
fn a_shell_that_does_not_wait_for_its_program_is_a_wrapper() {
    check(
        &container(
            "
        proc sh in=app pid=106 ns=6 start=+0.1 parent=main comm=sh
        proc server in=app pid=107 ns=7 start=+0.2 parent=sh comm=server
        +1 TERM runc -> main handler armed
        +1.0002 TERM main -> sh handler already-armed
        +1.0005 enter sh TERM
        +1.0006 TERM sh -> server default exiting already-armed
        +1.0007 exit sh 0 looked already-armed
        +1.0009 exit server TERM listening already-armed
        +1.001 enter main TERM
        +1.002 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `app` forwarded SIGTERM to `sh`, which forwarded SIGTERM to `server`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0; `server` was 0.8 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

/// No TCP: a listener on a path shows a program, too.
#[test]
fn a_server_on_a_path_without_a_client_is_a_program() {
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.001 exit main 0 already-armed
        +1.0011 KILL main -> server kernel waiting=none already-armed
        +1.002 exit server KILL on-a-path already-armed
        ",
        ),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later; the kernel then killed `server`, which never got the signal, with a Unix or UDP socket open
              fix: send SIGTERM on from PID 1 `app` to `server`: a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other program must signal its children and wait for them before its own exit
        "#]],
    );
}

/// Two shells and a program on the host's pids; the outer one does not wait for the inner one.
fn two_shells(with: &str) -> String {
    format!(
        "
        +0 mkdir app
        proc main in=app pid=100 start=+0 parent=shim comm=sh
        proc inner in=app pid=106 start=+0.1 parent=main comm=sh
        proc server in=app pid=107 start=+0.2 parent=inner comm=server
        +0.001 exec main
        +0.2 exec server
        +1 TERM shim -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> inner handler already-armed
        +1.0003 exit main 0 already-armed
        {with}
        "
    )
}

/// The inner shell sends the signal on when the main process has exited: no SIGKILL, and no signal on the way to that exit.
#[test]
fn a_signal_after_the_exit_of_the_main_process_ends_the_program() {
    check_evidence(
        &two_shells(
            "
        +1.001 enter inner TERM
        +1.0015 TERM inner -> server default exiting already-armed
        +1.0018 exit server TERM listening already-armed
        +1.0019 tcp app closed 8080 0 by-exit by=server
        +1.002 exit inner 143 looked already-armed
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              The container runtime sent SIGTERM to `sh` (pid 100), the handler ran and sent the signal on to `sh` (pid 106), and the process exited with code 0, less than 1 ms later; `sh` (pid 106) then sent SIGTERM to `server`, which its default action terminated with its listener open
              fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0, and let `sh` (pid 100) wait until `server` has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must wait for its children before its own exit
              +1.000 signal_generate: SIGTERM from `shim` (pid 50, unit containerd.service, child of `systemd`), the container runtime, to `sh` (pid 100): delivered, handler installed
              +1.000 signal_deliver: `sh` (pid 100) entered the SIGTERM handler
              +1.000 signal_generate: SIGTERM from `sh` (pid 100) to `sh` (pid 106): delivered, handler installed
              +1.000 sched_process_exit: `sh` (pid 100) exited with code 0
              +1.001 signal_deliver: `sh` (pid 106) entered the SIGTERM handler
              +1.002 signal_generate: SIGTERM from `sh` (pid 106) to `server` (pid 107)
              +1.002 tcp: the exit of `server` (pid 107) closed a listener
              +1.002 tcp: listener 10.0.0.1:8080 closed by process exit
              +1.002 sched_process_exit: `sh` (pid 106) exited with code 143
        "#]],
    );
    // A helper.
    check(
        &two_shells(
            "
        +1.001 enter inner TERM
        +1.0015 TERM inner -> server default exiting already-armed
        +1.0018 exit server TERM looked already-armed
        +1.002 exit inner 143 looked already-armed
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to `sh` (pid 100), the handler ran and sent the signal on to `sh` (pid 106), and the process exited with code 0, less than 1 ms later
        "#]],
    );
    // The program handles the signal.
    check(
        &two_shells(
            "
        +1.001 enter inner TERM
        +1.0015 TERM inner -> server handler already-armed
        +1.0016 enter server TERM
        +1.0017 tcp app closed 8080 by=server
        +1.0018 exit server 0 looked already-armed
        +1.002 exit inner 0 looked already-armed
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to `sh` (pid 100), the handler ran and sent the signal on to `sh` (pid 106), and the process exited with code 0, less than 1 ms later
        "#]],
    );
    // And raises it again, at once.
    check(
        &two_shells(
            "
        +1.001 enter inner TERM
        +1.0015 TERM inner -> server handler already-armed
        +1.0016 enter server TERM
        +1.0017 TERM server -> server default exiting already-armed
        +1.0018 exit server TERM listening already-armed
        +1.002 exit inner 0 looked already-armed
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              The container runtime sent SIGTERM to `sh` (pid 100), the handler ran and sent the signal on to `sh` (pid 106), and the process exited with code 0, less than 1 ms later; `sh` (pid 106) then sent SIGTERM to `server`, which its default action terminated with its listener open
              fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0, and let `sh` (pid 100) wait until `server` has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must wait for its children before its own exit
        "#]],
    );
    // And raises it again, when it has finished.
    check(
        &two_shells(
            "
        +1.001 enter inner TERM
        +1.0015 TERM inner -> server handler already-armed
        +1.0016 enter server TERM
        +1.2 TERM server -> server default exiting already-armed
        +1.201 exit server TERM listening already-armed
        +1.202 exit inner 0 looked already-armed
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to `sh` (pid 100), the handler ran and sent the signal on to `sh` (pid 106), and the process exited with code 0, less than 1 ms later
        "#]],
    );
}

/// `trap 'kill -USR1 $server; exit 0' TERM`: not a signal that sends a stop on.
#[test]
fn another_signal_of_a_shell_ends_its_program() {
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0005 USR1 main -> server default exiting already-armed
        +1.0006 exit server USR1 listening already-armed
        +1.001 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later; `app` sent SIGUSR1 to `server`, which its default action terminated with its listener open
              fix: install a SIGUSR1 handler in `server` that finishes the work in flight and then exits with 0
        "#]],
    );
}

/// `trap 'exit 0' TERM; server & wait` as a unit (`KillMode=control-group`).
#[test]
fn systemds_signal_ends_the_program_below_a_shell_that_exits() {
    let unit = |server: &str| {
        format!(
            "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc server in=app.service pid=107 start=+0.1 parent=main comm=server
        +0.001 exec main
        +0.1 exec server
        +1 TERM systemd -> main handler armed
        +1.0001 TERM systemd -> server default exiting already-armed
        +1.0002 enter main TERM
        +1.001 exit server TERM {server} already-armed
        +1.002 exit main 0 already-armed
        "
        )
    };
    check(
        &unit("listening"),
        expect![[r#"
        default-action: Stopped/DefaultAction/Quiet
          systemd sent SIGTERM to `sh` (pid 100), the handler ran, and the process exited with code 0, 2 ms later; systemd sent SIGTERM to `server`, which its default action terminated with its listener open
          fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0
    "#]],
    );
    check(
        &unit("looked"),
        expect![[r#"
        clean: Stopped/Clean/Quiet
          systemd sent SIGTERM to `sh` (pid 100), the handler ran, and the process exited with code 0, 2 ms later
    "#]],
    );
    // Workers that the main process has forked: with a client, and without.
    let worker = |held: &str| unit(held).replace("comm=sh", "comm=server");
    check(
        &worker("listening serving"),
        expect![[r#"
        default-action: Stopped/DefaultAction/Quiet
          systemd sent SIGTERM to `server` (pid 100), the handler ran, and the process exited with code 0, 2 ms later; systemd sent SIGTERM to `server` (pid 107), which its default action terminated with its listener and connections open
          fix: install a SIGTERM handler in `server` (pid 107) that finishes the work in flight and then exits with 0
    "#]],
    );
    // Also the listener is not of its own: what else it did at that time, nothing shows.
    check(
        &worker("listening"),
        expect![[r#"
            unknown: Stopped/Unknown/Quiet
              `server` (pid 100) exited with code 0, but the reason is unknown: the stop signal reached a process with the name of its parent, `server`, the default action ended that process, and nothing shows whether it had work in hand
              fix: set `KillMode=mixed` in the unit, with `server` as its main process, and set `KillSignal=` to a signal at which `server` finishes the work of its processes (PHP-FPM: SIGQUIT): systemd then sends this signal to `server` alone
        "#]],
    );
    assert_eq!(headline(&worker("looked")), "unknown: Stopped/Unknown/Quiet");
}

/// Celery in a unit with systemd's default, `KillMode=control-group`.
#[test]
fn systemds_signal_ends_the_pool_of_a_program() {
    let unit = |before: &str, child: &str, main: &str| {
        format!(
            "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=celery
        proc child in=app.service pid=107 start=+0.1 parent=main comm={child}
        +0.001 exec main
        {before}
        +1 TERM systemd -> main handler armed
        +1.0001 TERM systemd -> child default exiting already-armed
        +1.0002 enter main TERM
        +1.001 exit child TERM looked already-armed
        +1.5 exit main {main} looked already-armed
        "
        )
    };
    check(
        &unit("", "celery", "0"),
        expect![[r#"
            unknown: Stopped/Unknown/Quiet
              `celery` (pid 100) exited with code 0, but the reason is unknown: the stop signal reached a process with the name of its parent, `celery`, the default action ended that process, and nothing shows whether it had work in hand
              fix: set `KillMode=mixed` in the unit, with `celery` as its main process, and set `KillSignal=` to a signal at which `celery` finishes the work of its processes (PHP-FPM: SIGQUIT): systemd then sends this signal to `celery` alone
        "#]],
    );
    // The record of its exit is not needed: the kernel had begun with the end at the signal.
    let late = unit("", "celery", "0").replace("+1.001 exit child TERM looked already-armed", "+1.6 rmdir app.service");
    assert_eq!(headline(&late), "unknown: Stopped/Unknown/Quiet");
    for (same, expected) in [
        (unit("", "celery", "143"), "unknown: Stopped/Unknown/Quiet"),
        // A helper that it has executed.
        (unit("", "sleep", "0"), "clean: Stopped/Clean/Quiet"),
        // What the program sends to it itself is its own decision: a second signal to a process that exits is discarded.
        (
            unit("", "celery", "0")
                .replace("TERM systemd -> child default", "TERM systemd -> child ignored default")
                .replace(
                    "+1.0001",
                    "+1.00005 TERM main -> child default exiting already-armed\n+1.0001",
                ),
            "clean: Stopped/Clean/Quiet",
        ),
        // It handled the signal.
        (
            unit("", "celery", "0")
                .replace("-> child default exiting", "-> child handler")
                .replace("exit child TERM", "exit child 0"),
            "clean: Stopped/Clean/Quiet",
        ),
        // All of the program ended so: the verdict has that.
        (
            unit("", "celery", "TERM").replace("+1.0002 enter main TERM", ""),
            "default-action: Stopped/DefaultAction/Quiet",
        ),
    ] {
        assert_eq!(headline(&same), expected, "{same}");
    }
    // By an operator: `pkill -TERM celery`.
    let other = unit("", "celery", "0").replace("TERM systemd", "TERM bash");
    check(
        &other,
        expect![[r#"
        unknown: External/Unknown/Quiet
          `celery` (pid 100) exited with code 0, but the reason is unknown: the stop signal reached a process with the name of its parent, `celery`, the default action ended that process, and nothing shows whether it had work in hand
          fix: send SIGTERM to the main process alone, so that `celery` stops its own processes
    "#]],
    );
    // By Ctrl-C, which reaches each process of a program in the foreground.
    let key = unit("", "celery", "0")
        .replace("TERM systemd -> main handler", "INT bash -> main handler kernel")
        .replace("TERM systemd -> child default", "INT bash -> child default kernel")
        .replace("enter main TERM", "enter main INT")
        .replace("exit child TERM", "exit child INT");
    check(
        &key,
        expect![[r#"
        unknown: External/Unknown/Quiet
          `celery` (pid 100) exited with code 0, but the reason is unknown: the stop signal reached a process with the name of its parent, `celery`, the default action ended that process, and nothing shows whether it had work in hand
          fix: stop `celery` by a signal to that process alone (`kill`), not by the terminal, so that `celery` stops its own processes
    "#]],
    );
    // Below a shell without a trap, and signalled before the program.
    check(
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc celery in=app.service pid=106 start=+0.1 parent=main comm=celery
        proc child in=app.service pid=107 start=+0.2 parent=celery comm=celery
        +0.001 exec main
        +1 TERM systemd -> main default exiting armed
        +1.0001 TERM systemd -> child default exiting already-armed
        +1.0002 TERM systemd -> celery handler already-armed
        +1.0003 exit main TERM looked already-armed
        +1.0004 enter celery TERM
        +1.001 exit child TERM looked already-armed
        +1.5 exit celery 0 serving already-armed
        +1.5001 tcp app.service closed 8080 0 by=celery
        ",
        expect![[r#"
            unknown: Stopped/Unknown/Quiet
              `celery` (pid 106) exited with code 0, but the reason is unknown: the stop signal reached a process with the name of its parent, `celery`, the default action ended that process, and nothing shows whether it had work in hand
              fix: set `KillMode=mixed` in the unit, with `celery` as its main process, and set `KillSignal=` to a signal at which `celery` finishes the work of its processes (PHP-FPM: SIGQUIT): systemd then sends this signal to `celery` alone
        "#]],
    );
}

/// The verdict and its axes.
fn headline(script: &str) -> String {
    let shown = super::script::show(&super::script::run(script), false);
    shown.lines().next().map(str::to_owned).unwrap_or_default()
}

/// Its own decision, for which nobody asked: whether the helper had work is not known.
#[test]
fn the_main_process_ends_its_own_server_before_its_exit() {
    let shown = |line: &str| headline(&hidden(line));
    let ends = "+59.999 TERM main -> server default exiting armed\n+60 exit server TERM listening armed";
    assert_eq!(shown(ends), "unknown: Unknown/Unknown/Quiet");
    // The handler's entry of a process that nobody stops is not recorded, nor that it raises the signal again.
    let handles = "+57.999 TERM bash -> server handler unarmed\n+60 exit server TERM listening armed";
    assert_eq!(shown(handles), "unknown: Unknown/Unknown/Quiet");
}

/// Of a manager below a shell: workers that it has forked, a helper beside a server that closes its listener, and more helpers than are kept.
#[test]
fn what_is_no_program_of_its_own_is_ended_by_systemds_signal() {
    let unit = |others: &str| {
        let shown = headline(&format!(
            "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc manager in=app.service pid=106 start=+0.1 parent=main comm=manager
        proc worker in=app.service pid=107 start=+0.2 parent=manager comm=manager
        proc exporter in=app.service pid=108 start=+0.2 parent=manager comm=exporter
        +0.001 exec main
        +1 TERM systemd -> main handler armed
        +1.0001 TERM systemd -> manager handler already-armed
        +1.0002 enter main TERM
        +1.0003 enter manager TERM
        {others}
        +1.4 exit manager 0 looked already-armed
        +1.5 exit main 0 already-armed
        "
        ));
        shown.split('/').nth(1).unwrap_or_default().to_owned()
    };
    let worker = "+1.01 TERM systemd -> worker default exiting already-armed\n+1.011 exit worker TERM listening already-armed";
    assert_eq!(unit(worker), "Unknown");
    let exporter = worker.replace("worker", "exporter");
    assert_eq!(unit(&exporter), "DefaultAction");
    let serves = format!("+1.005 tcp app.service closed 8080 by=manager\n{exporter}");
    assert_eq!(unit(&serves), "Clean");
    let with_client = serves.replace("listening", "listening serving");
    assert_eq!(unit(&with_client), "DefaultAction");
}

/// Whether a program has forked a process is seen by the names of both when that got its signal: afterwards either may rename itself.
#[test]
fn a_name_is_the_one_at_the_time_of_the_signal() {
    let unit = |at_signal: &str, later: &str, held: &str| {
        let manager = |comm: &str| format!("proc manager in=app.service pid=106 start=+0.1 parent=main comm={comm}");
        headline(&format!(
            "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        {}
        proc worker in=app.service pid=107 start=+0.2 parent=manager comm=manager
        +0.001 exec main
        +1 TERM systemd -> main handler armed
        +1.0001 TERM systemd -> manager handler already-armed
        +1.0002 enter main TERM
        +1.0003 enter manager TERM
        +1.01 TERM systemd -> worker default exiting already-armed
        +1.011 exit worker TERM {held} already-armed
        {}
        +1.4 exit manager 0 looked already-armed
        +1.5 exit main 0 already-armed
        ",
            manager(at_signal),
            manager(later)
        ))
    };
    for held in ["listening", "looked"] {
        assert_eq!(unit("manager", "stopping", held), unit("manager", "manager", held), "{held}");
        assert_eq!(
            unit("starting", "manager", held),
            unit("starting", "starting", held),
            "{held}"
        );
        assert_ne!(unit("manager", "manager", held), unit("starting", "starting", held), "{held}");
    }
}

#[test]
fn a_gap_after_the_exit_of_the_main_process_may_hide_the_end_of_the_program() {
    let script = two_shells(
        "
        +1.5 TERM inner -> server default exiting already-armed
        +1.5018 exit server TERM listening already-armed
        +1.502 exit inner 143 looked already-armed
        ",
    );
    assert_eq!(headline(&script), "default-action: Stopped/DefaultAction/Quiet");
    let missed = two_shells("+1.3 tick\n+1.9 start\n+1.9 scanned\n+20 tick");
    assert_eq!(headline(&format!("-100 start\n{missed}")), "unknown: Stopped/Unknown/Unknown");
}

/// The kernel ends the others only when PID 1 has closed its files. The removal of the cgroup shows that they are gone.
#[test]
fn a_gap_after_the_exit_of_pid_1_may_hide_the_end_of_the_program() {
    let shown = |left: &str, removed: &str| {
        let script = container(&format!(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.001 exit main 0 already-armed {left}
        {removed}
        +1.3 tick
        +1.9 start
        +1.9 scanned
        +20 tick
        "
        ));
        headline(&format!("-100 start\n{script}"))
    };
    assert_eq!(shown("leaves-others", "+1.2 stays app"), "unknown: Stopped/Unknown/Unknown");
    assert_eq!(shown("leaves-others", "+1.2 rmdir app"), "clean-exit: Stopped/Clean/Unknown");
    assert_eq!(shown("", "+1.2 stays app"), "clean-exit: Stopped/Clean/Unknown");
}

/// systemd holds the listener of a socket unit, and its wrapper has it, too.
#[test]
fn a_wrapper_with_the_listener_of_its_program_is_no_program() {
    check(
        &shell_of_a_unit("+1.2 tcp app.service closed 8080 by=server\n+1.5 exit server 0 already-armed")
            .replace("exit main TERM", "exit main TERM listening"),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `server` (pid 107), the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
}

/// What ended it is recorded: no signal that asks for a stop reached the shell.
#[test]
fn a_strangers_signal_ends_the_program_below_a_shell() {
    check(
        &hidden("+59.999 TERM bash -> server default exiting armed\n+60 exit server TERM listening armed"),
        expect![[r#"
            killed-by-other: External/KilledByOther/Quiet
              `bash` (pid 70) sent SIGTERM to `server`, which its default action terminated with its listener open; PID 1 `app` then exited with code 0
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
        "#]],
    );
    let stopped = |server: &str| {
        container(&format!(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        {server}
        +1.0005 HUP bash -> server default exiting already-armed
        +1.0006 exit server HUP listening already-armed
        +1.001 exit main 0 already-armed
        "
        ))
    };
    check(
        &stopped(""),
        expect![[r#"
        killed-by-other: Stopped/KilledByOther/Quiet
          The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1 ms later; `bash` (pid 70) sent SIGHUP to `server`, which its default action terminated with its listener open
          fix: find out why `server` was killed, and use the stop command of the container runtime instead
    "#]],
    );
    // In its shutdown.
    check(
        &stopped("+1.0002 TERM main -> server handler already-armed\n+1.0003 enter server TERM"),
        expect![[r#"
            killed-by-other: Stopped/KilledByOther/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran and sent the signal on to `server`, and the process exited with code 0, 1 ms later; `bash` (pid 70) sent SIGHUP to `server`, which its default action terminated with its listener open
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
        "#]],
    );
}

/// The daemon's own unit proves it: not its name, which any process can have.
#[test]
fn a_daemon_that_kills_before_memory_has_run_out() {
    let by = |unit: &str, comm: &str| {
        container(&format!(
            "
            +0 mkdir {unit}
            proc daemon in={unit} pid=80 start=+0 parent=systemd comm={comm}
            +5 KILL daemon -> main
            +5.001 exit main KILL
            "
        ))
    };
    check(
        &by("systemd-oomd.service", "systemd-oomd"),
        expect![[r#"
            oom-killed: Oom/OomKilled/Quiet
              `systemd-oomd` (pid 80, unit systemd-oomd.service, child of `systemd`) killed PID 1 `app` because memory was running out
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `ManagedOOMPreference=omit` exempts a unit (`avoid` makes it the last choice), and `ManagedOOMMemoryPressureLimit=` of its slice sets the limit; the log of `systemd-oomd` has the memory values that led to the kill (`journalctl -u systemd-oomd.service`)
        "#]],
    );
    check(
        &by("other.service", "systemd-oomd"),
        expect![[r#"
        killed-by-other: External/KilledByOther/Quiet
          `systemd-oomd` (pid 80, unit other.service, child of `systemd`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
          fix: find out why `systemd-oomd` (pid 80, unit other.service, child of `systemd`) sent SIGKILL, and use the stop command of the container runtime instead
    "#]],
    );
    // On the bus it says why, for a cgroup above, too; of another cgroup nothing.
    let said = |cgroup: &str| {
        let said = format!("+5.0005 node oomd {cgroup} memory-pressure\n            +5.001 exit");
        by("systemd-oomd.service", "systemd-oomd").replace("+5.001 exit", &said)
    };
    check(
        &said("/system.slice"),
        expect![[r#"
            oom-killed: Oom/OomKilled/Quiet
              `systemd-oomd` (pid 80, unit systemd-oomd.service, child of `systemd`) killed PID 1 `app` because memory was running out (memory-pressure)
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `ManagedOOMPreference=omit` exempts a unit (`avoid` makes it the last choice), and `ManagedOOMMemoryPressureLimit=` of its slice sets the limit; the log of `systemd-oomd` has the memory values that led to the kill (`journalctl -u systemd-oomd.service`)
        "#]],
    );
    check(
        &said("/user.slice"),
        expect![[r#"
            oom-killed: Oom/OomKilled/Quiet
              `systemd-oomd` (pid 80, unit systemd-oomd.service, child of `systemd`) killed PID 1 `app` because memory was running out
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `ManagedOOMPreference=omit` exempts a unit (`avoid` makes it the last choice), and `ManagedOOMMemoryPressureLimit=` of its slice sets the limit; the log of `systemd-oomd` has the memory values that led to the kill (`journalctl -u systemd-oomd.service`)
        "#]],
    );
    // earlyoom begins with SIGTERM.
    let earlyoom = by("earlyoom.service", "earlyoom");
    let first = earlyoom.replace(
        "+5 KILL",
        "+4 TERM daemon -> main handler\n+4.001 enter main TERM\n            +5 KILL",
    );
    check(
        &first,
        expect![[r#"
            oom-killed: Oom/OomKilled/Quiet
              `earlyoom` (pid 80, unit earlyoom.service, child of `systemd`) killed PID 1 `app` because memory was running out, 1.0 s after SIGTERM
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `--avoid` of earlyoom exempts a program by its name; the log of `earlyoom` has the memory values that led to the kill (`journalctl -u earlyoom.service`)
        "#]],
    );
    // Most programs that it chooses have no handler.
    let by_default = |daemon: &str| {
        daemon
            .replace("+5 KILL daemon -> main", "+5 TERM daemon -> main default")
            .replace("exit main KILL", "exit main TERM")
    };
    check(
        &by_default(&earlyoom),
        expect![[r#"
            oom-killed: Oom/OomKilled/Quiet
              `earlyoom` (pid 80, unit earlyoom.service, child of `systemd`) ended PID 1 `app` because memory was running out, by SIGTERM, for which it had no handler
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `--avoid` of earlyoom exempts a program by its name; the log of `earlyoom` has the memory values that led to the kill (`journalctl -u earlyoom.service`)
        "#]],
    );
    check(
        &by_default(&by("other.service", "earlyoom")),
        expect![[r#"
        default-action: External/DefaultAction/Quiet
          SIGTERM from `earlyoom` (pid 80, unit other.service, child of `systemd`) terminated PID 1 `app`: the process has no SIGTERM handler, so any work in flight was lost
          fix: install a handler that finishes the work in flight and then exits with 0
    "#]],
    );
    let handled = earlyoom
        .replace(
            "+5 KILL daemon -> main",
            "+4 TERM daemon -> main handler\n+4.001 enter main TERM",
        )
        .replace("exit main KILL", "exit main 0");
    check(
        &handled,
        expect![[r#"
        clean: Oom/Clean/Quiet
          `earlyoom` (pid 80, unit earlyoom.service, child of `systemd`) sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
    "#]],
    );
}

/// The same of a program below the first process, which hides or passes on how the program ended.
#[test]
fn a_daemon_that_kills_a_program_below_the_first_process() {
    let by = |unit: &str, code: &str| {
        let daemon = format!(
            "+0 mkdir {unit}
            proc daemon in={unit} pid=80 start=+0 parent=systemd comm=earlyoom
            +59.999 KILL daemon -> server waiting=none armed
            +60 exit server KILL listening armed"
        );
        hidden(&daemon).replace("exit main 0", &format!("exit main {code}"))
    };
    check(
        &by("earlyoom.service", "0"),
        expect![[r#"
            oom-child: Oom/OomChild/Quiet
              `earlyoom` (pid 80) killed `server`, which still ran, with its listener open, because memory was running out; PID 1 `app` then exited with code 0
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `--avoid` of earlyoom exempts a program by its name; the log of `earlyoom` has the memory values that led to the kill
        "#]],
    );
    check(
        &by("earlyoom.service", "137"),
        expect![[r#"
            oom-child: Oom/OomChild/Quiet
              `earlyoom` (pid 80) killed `server`, which still ran, with its listener open, because memory was running out; PID 1 `app` then exited with code 137
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `--avoid` of earlyoom exempts a program by its name; the log of `earlyoom` has the memory values that led to the kill
        "#]],
    );
    // A process of that name in another unit.
    check(
        &by("other.service", "0"),
        expect![[r#"
        killed-by-other: External/KilledByOther/Quiet
          `earlyoom` (pid 80) killed `server`, which still ran, with its listener open; PID 1 `app` then exited with code 0
          fix: find out why `server` was killed, and use the stop command of the container runtime instead
    "#]],
    );
    // By SIGTERM, as earlyoom begins.
    let ended = by("earlyoom.service", "0")
        .replace("KILL daemon -> server waiting=none", "TERM daemon -> server default exiting")
        .replace("exit server KILL", "exit server TERM");
    check(
        &ended,
        expect![[r#"
            oom-child: Oom/OomChild/Quiet
              `earlyoom` (pid 80) sent SIGTERM, because memory was running out, to `server`, which its default action terminated with its listener open; PID 1 `app` then exited with code 0
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `--avoid` of earlyoom exempts a program by its name; the log of `earlyoom` has the memory values that led to the kill
        "#]],
    );
    // Who asked for the exit is not known: not the daemon's kill.
    let asked = "+50 TERM server -> main handler armed\n+50.001 enter main TERM\n            +59.999 KILL";
    check(
        &by("earlyoom.service", "0").replace("+59.999 KILL", asked),
        expect![[r#"
            oom-child: Unknown/OomChild/Quiet
              `server` (pid 107, container 670000000000, child of `app`) sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 10.0 s later; `earlyoom` (pid 80) killed `server`, which never got the signal, with its listener open, because memory was running out
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `--avoid` of earlyoom exempts a program by its name; the log of `earlyoom` has the memory values that led to the kill
        "#]],
    );
    // During a stop, too.
    let stop = "+50 TERM runc -> main handler armed\n+50.001 enter main TERM\n            +59.999 KILL";
    check(
        &by("earlyoom.service", "0").replace("+59.999 KILL", stop),
        expect![[r#"
            oom-child: Oom/OomChild/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 10.0 s later; `earlyoom` (pid 80) killed `server`, which never got the signal, with its listener open, because memory was running out
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `--avoid` of earlyoom exempts a program by its name; the log of `earlyoom` has the memory values that led to the kill
        "#]],
    );
}

/// Of a signal that an init or a shell has sent on: the program was in its shutdown.
#[test]
fn a_daemon_that_kills_a_program_in_its_shutdown() {
    let by = |unit: &str, code: &str| {
        container(&format!(
            "
            +0 mkdir {unit}
            proc daemon in={unit} pid=80 start=+0 parent=systemd comm=earlyoom
            proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
            +0.1 exec server
            +1 TERM runc -> main handler armed
            +1.0001 enter main TERM
            +1.0002 TERM main -> server handler already-armed
            +1.0003 enter server TERM
            +2 KILL daemon -> server waiting=none already-armed
            +2.001 exit server KILL listening already-armed
            +2.01 exit main {code} already-armed
            "
        ))
    };
    check(
        &by("earlyoom.service", "137"),
        expect![[r#"
            oom-child: Oom/OomChild/Quiet
              `app` forwarded SIGTERM to `server`; `earlyoom` (pid 80) sent SIGKILL to `server`, 1.0 s after SIGTERM, because memory was running out; PID 1 `app` then exited with code 137
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `--avoid` of earlyoom exempts a program by its name; the log of `earlyoom` has the memory values that led to the kill
        "#]],
    );
    check(
        &by("earlyoom.service", "0"),
        expect![[r#"
            oom-child: Oom/OomChild/Quiet
              `app` forwarded SIGTERM to `server`; `earlyoom` (pid 80) sent SIGKILL to `server`, 1.0 s after SIGTERM, because memory was running out; PID 1 `app` then exited with code 0
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `--avoid` of earlyoom exempts a program by its name; the log of `earlyoom` has the memory values that led to the kill
        "#]],
    );
    check(
        &by("other.service", "137"),
        expect![[r#"
        killed-by-other: Stopped/KilledByOther/Quiet
          `app` forwarded SIGTERM to `server`; `earlyoom` (pid 80) sent SIGKILL to `server`, 1.0 s after SIGTERM, during the grace period; the sender is neither the runtime nor a process of the container
          fix: find out why `earlyoom` (pid 80) sent SIGKILL, and use the stop command of the container runtime instead
    "#]],
    );
}

/// Of a unit whose first process exits by itself, and leaves its server behind.
#[test]
fn a_daemon_that_kills_after_the_exit_is_not_the_reason_of_that() {
    let unit = |killed: &str| {
        format!(
            "
            +0 mkdir earlyoom.service
            proc daemon in=earlyoom.service pid=80 start=+0 parent=systemd comm=earlyoom
            +0 mkdir app.service
            proc main in=app.service pid=100 start=+0 parent=systemd comm=app
            proc server in=app.service pid=107 start=+0.1 parent=main comm=server
            +0.001 exec main
            +0.1 exec server
            +60 exit main 0 looked leaves-others armed
            {killed}
            +61 rmdir app.service
            "
        )
    };
    check(
        &unit("+60.5 KILL daemon -> server waiting=none already-armed\n+60.501 exit server KILL listening already-armed"),
        expect![[r#"
            oom-child: Completed/OomChild/Quiet
              `app` (pid 100) exited by itself with code 0; `earlyoom` (pid 80) then killed `server`, which still ran, with its listener open, because memory was running out
              fix: use less memory (heap size, caches, concurrency), or give the node more memory; `--avoid` of earlyoom exempts a program by its name; the log of `earlyoom` has the memory values that led to the kill
        "#]],
    );
}
