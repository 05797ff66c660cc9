//! Missing evidence gives `unknown`; positive proof stands.

use expect_test::expect;

use super::{check, container, unit};

#[test]
fn a_lost_signal_makes_a_clean_exit_unknown() {
    check(
        &container(
            "
        +5 exit main 0
        +5.5 lost signal_generate +4.5 3
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_lost_signal_makes_a_handled_stop_unknown() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        +2 lost signal_generate +1 3
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_loss_before_the_stop_that_was_seen_does_not_matter() {
    check(
        &container(
            "
        +0.9 lost signal_generate +0.1 3
        +2 TERM runc -> main handler
        +2.001 enter main TERM
        +2.5 exit main 0
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_loss_after_the_end_does_not_matter() {
    check(
        &container(
            "
        +5 exit main 0
        +6.5 lost signal_generate +5.5 3
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_lost_handler_entry_does_not_matter_where_it_was_ignored() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored default
        +5 lost signal_deliver +4 3
        +5 lost signal_generate +4 3
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_lost_handler_entry_makes_never_entered_unknown() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +5 lost signal_deliver +4 3
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_lost_signal_leaves_an_oom_kill_proven() {
    check(
        &container(
            "
        +1 KILL main -> main kernel
        +1.0001 oom main
        +1.001 exit main KILL
        +1.5 lost signal_generate +0.5 9
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_lost_stop_makes_force_killed_unknown() {
    check(
        &container(
            "
        +10.5 lost signal_generate +9.5 1
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_lost_signal_makes_nonzero_and_default_action_unknown() {
    check(
        &unit(
            "
        +1 TERM systemd -> main default
        +1.001 exit main TERM
        +1.5 lost signal_generate +0.5 1
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn lost_tcp_records_make_quiet_unknown() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        +2 lost tcp +1 3
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_kill_that_was_not_seen() {
    check(
        &container(
            "
        +1 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_term_that_was_not_seen() {
    check(
        &unit(
            "
        +1 exit main TERM
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn late_start_and_no_stop_seen_is_unknown() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +60 exit main 0
        ",
        expect![[""]],
    );
}

#[test]
fn late_start_and_a_nonzero_exit_is_unknown() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +60 exit main 1
        ",
        expect![[""]],
    );
}

#[test]
fn late_start_long_ago_does_not_matter() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +700 exit main 0
        ",
        expect![[""]],
    );
}

#[test]
fn late_start_and_the_stop_was_seen_is_complete() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +60 TERM runc -> main handler
        +60.001 enter main TERM
        +61 exit main 0
        ",
        expect![[""]],
    );
}

#[test]
fn late_start_and_a_runtimes_kill_may_have_had_a_stop_before() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +6 KILL runc -> main
        +6.001 exit main KILL
        ",
        expect![[""]],
    );
}

#[test]
fn late_start_and_a_strangers_kill_is_proven() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +6 KILL bash -> main
        +6.001 exit main KILL
        ",
        expect![[""]],
    );
}

#[test]
fn late_start_and_a_fault_is_proven() {
    check(
        "
        +0 start
        -0.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0.001 found main
        +6 SEGV main -> main fault
        +6.001 exit main SEGV
        ",
        expect![[""]],
    );
}

#[test]
fn a_gap_in_the_middle() {
    check(
        "
        -100 start
        -100 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        -99 exec main
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +5 start
        +6 exit main 0
        ",
        expect![[""]],
    );
}

#[test]
fn signal_deliver_not_active_makes_143_unknown() {
    check(
        &container(
            "
        +0.5 probe signal_deliver
        +1 TERM runc -> main handler
        +1.5 exit main 143
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn signal_deliver_not_active_leaves_exit_0_clean() {
    check(
        &container(
            "
        +0.5 probe signal_deliver
        +1 TERM runc -> main handler
        +1.5 exit main 0
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn tcp_not_active_leaves_a_clean_exit() {
    check(
        &container(
            "
        +0.5 probe tcp_send_reset
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn the_cgroup_goes_and_no_end_was_seen() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +2 rmdir app
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_cgroup_that_nothing_happened_in() {
    check(
        "
        +0 mkdir app
        +1 rmdir app
        ",
        expect![[""]],
    );
}

#[test]
fn the_observation_ends_during_a_stop() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 end
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn the_observation_ends_and_nobody_was_asked() {
    check(
        &container(
            "
        +2 end
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn the_observation_ends_just_after_the_end() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        +1.6 end
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn an_event_of_a_cgroup_that_nobody_names_is_counted() {
    check(
        "
        proc main in=app pid=100 ns=1 start=+0 parent=shim
        +1 TERM runc -> main
        +3 tick
        ",
        expect![[r#"
            dropped unattributed: 1
        "#]],
    );
}
