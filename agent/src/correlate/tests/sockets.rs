//! What the clients saw.

use expect_test::expect;

use super::{check, check_evidence, container};

#[test]
fn refused_after_the_listener_closed() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app closed 80
        +1.5 tcp app refused 80 5001
        +1.5001 tcp app client-refused 80 5001
        +1.5002 tcp app client-error 80 5001
        +2.5 tcp app refused 80 5002
        +2.6 tcp app refused 80 5002
        +2.7 exit main 0
        +4.3 tcp app refused 80 5003
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn refused_as_only_the_client_shows_it() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app closed 80
        +1.5 tcp app client-refused 80 5001
        +1.5002 tcp app client-error 80 5001
        +2 exit main 0
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn refused_after_the_linger_is_another_story() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app closed 80
        +2 exit main 0
        +5 tcp app refused 80 5001
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn reset_of_the_accept_queue() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 tcp app accepted 80 5001
        +1.5 tcp app accepted 80 5002
        +2 tcp app closed 80
        +2 tcp app reset 80 5001
        +2 tcp app reset 80 5002
        +2 tcp app reset 80 5002
        +2.1 exit main 0
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn cut_with_a_request_unanswered() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.001 tcp app closed 80 0 by-exit
        +2.002 tcp app cut 80 5001 sent=100 received=50 last-sent=10 last-received=20
        +2.003 tcp app cut 80 5002 sent=0 received=50 last-sent=0 last-received=20
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn idle_keep_alive_is_not_cut() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.002 tcp app cut 80 5001 sent=100 received=50 last-sent=30 last-received=20
        +2.003 tcp app cut 80 5002 sent=100 received=50 last-sent=20 last-received=20
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn idle_across_the_wrap_of_jiffies() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.002 tcp app cut 80 5001 sent=100 received=50 last-sent=5 last-received=4294967290
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn cut_across_the_wrap_of_jiffies() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.002 tcp app cut 80 5001 sent=100 received=50 last-sent=4294967290 last-received=5
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn cut_where_nothing_is_known_of_its_use() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.002 tcp app cut 80 5001
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn cut_and_then_reset_is_one_reset() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        +2.002 tcp app cut 80 5001 sent=0 received=50 last-sent=0 last-received=20
        +2.5 tcp app refused 80 5001
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_close_of_its_own_and_a_half_closed_connection_are_not_cut() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 tcp app closed-by-itself 80 5001
        +2 exit main 0
        +2.002 tcp app half-closed 80 5002
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn cut_goes_before_refused() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.1 tcp app closed 80
        +1.5 tcp app refused 80 5001
        +2 exit main 0
        +2.002 tcp app cut 80 5002 sent=0 received=50 last-sent=0 last-received=20
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn the_exit_speaks_before_the_traffic() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +11 KILL runc -> main
        +11.001 exit main KILL
        +11.002 tcp app cut 80 5002 sent=0 received=50 last-sent=0 last-received=20
        ",
        ),
        expect![[""]],
    );
}
