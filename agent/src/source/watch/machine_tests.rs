use super::*;
use crate::source::api_error::Purpose;

const SECOND: u64 = 1_000_000_000;

const PATIENCE: Patience = Patience {
    watch: Duration::from_secs(290),
    silence: Duration::from_secs(100),
};

/// A machine, its clock in seconds, and a line for each request and event.
struct Script {
    machine: Machine,
    now: f64,
}

fn error(reason: FailureReason, problem: &str) -> ApiError {
    let purpose = Purpose {
        what: "watch".into(),
        right: &crate::rights::AGENT_PODS,
    };
    ApiError::new(&purpose, reason, problem)
}

fn failed(reason: FailureReason) -> Reply<&'static str> {
    Reply::Failed(error(reason, "x"))
}

fn page(version: &str, token: &str) -> Reply<&'static str> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Reply::Page {
        version: text(version),
        continue_token: text(token),
    }
}

fn applied(object: &'static str, version: &str) -> Reply<&'static str> {
    Reply::Change(Change::Applied { object, listed: false }, Some(version.to_owned()))
}

impl Script {
    fn new() -> Script {
        Script {
            machine: Machine::new(Boot(0), PATIENCE, error),
            now: 0.0,
        }
    }

    /// Listed at second 0, and watched since.
    fn synced() -> Script {
        let mut script = Script::new();
        script.step(0.0, page("10", ""));
        assert_eq!(script.step(0.0, Reply::Opened), ["-> event within 100s"]);
        script
    }

    /// Events, then the next request.
    fn step(&mut self, after: f64, reply: Reply<&'static str>) -> Vec<String> {
        self.now += after;
        let now = Boot((self.now * SECOND as f64) as u64);
        let seconds = |at: Boot| at.0 as f64 / SECOND as f64;
        let mut lines: Vec<String> = Vec::new();
        for event in self.machine.step(now, reply) {
            lines.push(match event {
                WatchEvent::ListStarted => "list started".into(),
                WatchEvent::Changed(Change::Applied { object, listed }) => {
                    format!("{object} {}", if listed { "listed" } else { "applied" })
                }
                WatchEvent::Changed(Change::Deleted(object)) => format!("{object} deleted"),
                WatchEvent::ListFinished => "list finished".into(),
                WatchEvent::Interrupted { since, error } => format!("interrupted at {}: {:?}", seconds(since), error.reason()),
                WatchEvent::Synced { gap: None } => "synced".into(),
                WatchEvent::Synced { gap: Some(gap) } => {
                    format!(
                        "synced, gap {}..{}: {:?}",
                        seconds(gap.since),
                        seconds(gap.until),
                        gap.why.reason()
                    )
                }
            });
        }
        lines.push(match self.machine.ask(now) {
            Ask::List {
                not_older_than,
                continue_token,
            } => format!(
                "-> list {} {}",
                not_older_than.as_deref().unwrap_or("etcd"),
                continue_token.as_deref().unwrap_or_default()
            )
            .trim_end()
            .to_owned(),
            Ask::Open { version } => format!("-> watch {version}"),
            Ask::Event { within } => format!("-> event within {within:?}"),
            Ask::Rest(pause) => format!("-> rest {pause:?}"),
        });
        lines
    }
}

#[test]
fn the_first_list_is_from_the_cache_and_may_have_pages() {
    let mut of = Script::new();
    assert_eq!(
        of.machine.ask(Boot(0)),
        Ask::List {
            not_older_than: Some("0".into()),
            continue_token: None
        }
    );
    assert_eq!(of.step(0.1, Reply::Item("a")), ["list started", "a listed", "-> list 0"]);
    assert_eq!(of.step(0.1, page("10", "more")), ["-> list etcd more"]);
    assert_eq!(of.step(0.1, Reply::Item("b")), ["b listed", "-> list etcd more"]);
    assert_eq!(of.step(0.1, page("10", "")), ["list finished", "synced", "-> watch 10"]);
    assert_eq!(of.step(0.1, Reply::Opened), ["-> event within 100s"]);
    assert_eq!(of.step(9.0, applied("a", "11")), ["a applied", "-> event within 100s"]);
    let deleted = Reply::Change(Change::Deleted("b"), Some("12".into()));
    assert_eq!(of.step(9.0, deleted), ["b deleted", "-> event within 100s"]);
    assert_eq!(of.step(9.0, Reply::Ended), ["-> watch 12"]);
}

#[test]
fn an_empty_list_is_a_list() {
    let mut of = Script::new();
    assert_eq!(
        of.step(0.1, page("10", "")),
        ["list started", "list finished", "synced", "-> watch 10"]
    );
}

#[test]
fn a_list_that_fails_half_way_begins_anew() {
    let mut of = Script::new();
    of.step(0.1, Reply::Item("a"));
    of.step(0.1, page("10", "more"));
    assert_eq!(
        of.step(0.1, failed(FailureReason::Expired)),
        ["interrupted at 0.3: Expired", "-> rest 800ms"]
    );
    assert_eq!(of.step(0.4, Reply::Rested), ["-> list etcd"]);
    assert_eq!(of.step(0.1, Reply::Item("a")), ["list started", "a listed", "-> list etcd"]);
    // Never synced before: without a gap.
    assert_eq!(of.step(0.1, page("11", "")), ["list finished", "synced", "-> watch 11"]);
}

#[test]
fn a_list_without_a_version_cannot_be_watched() {
    let mut of = Script::new();
    assert_eq!(
        of.step(1.0, page("", "")),
        ["list started", "interrupted at 1: Undecodable", "-> rest 800ms"]
    );
    assert_eq!(of.step(1.0, Reply::Rested), ["-> list 0"]);
}

#[test]
fn failures_wait_longer_each_time_and_no_longer_than_half_a_minute() {
    let mut of = Script::new();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        pauses.push(of.step(0.0, failed(FailureReason::Connection)).pop().unwrap());
        of.step(0.0, Reply::Rested);
    }
    let expected = ["800ms", "1.6s", "3.2s", "6.4s", "12.8s", "25.6s", "30s", "30s", "30s"];
    assert_eq!(pauses, expected.map(|pause| format!("-> rest {pause}")));
    of.step(0.0, page("10", ""));
    of.step(0.0, Reply::Opened);
    assert_eq!(
        of.step(2.0, failed(FailureReason::Connection)).pop().unwrap(),
        "-> rest 800ms"
    );
}

#[test]
fn a_watch_that_broke_resumes_and_is_synced_after_its_backlog() {
    let mut of = Script::synced();
    of.step(20.0, applied("a", "10"));
    assert_eq!(
        of.step(30.0, failed(FailureReason::Connection)),
        ["interrupted at 20: Connection", "-> rest 800ms"]
    );
    of.step(1.0, Reply::Rested);
    assert_eq!(
        of.step(1.0, failed(FailureReason::Connection)),
        ["interrupted at 20: Connection", "-> rest 1.6s"]
    );
    assert_eq!(of.step(1.0, Reply::Rested), ["-> watch 10"]);
    assert_eq!(of.step(1.0, Reply::Opened), ["-> event within 500ms"]);
    assert_eq!(of.step(0.1, applied("a", "11")), ["a applied", "-> event within 500ms"]);
    assert_eq!(
        of.step(0.5, Reply::Silence),
        ["synced, gap 20..54.6: Connection", "-> event within 100s"]
    );
}

#[test]
fn a_backlog_without_a_pause_ends_as_well() {
    let mut of = Script::synced();
    of.step(50.0, failed(FailureReason::Connection));
    of.step(1.0, Reply::Rested);
    of.step(0.0, Reply::Opened);
    assert_eq!(of.step(4.9, applied("a", "11")), ["a applied", "-> event within 100ms"]);
    assert_eq!(
        of.step(0.1, applied("a", "12")),
        ["synced, gap 0..56: Connection", "a applied", "-> event within 100s"]
    );
}

#[test]
fn an_expired_or_unreadable_watch_leads_to_a_list_not_older_than_seen() {
    for reason in [FailureReason::Expired, FailureReason::Undecodable, FailureReason::TooNew] {
        let mut of = Script::synced();
        of.step(5.0, applied("a", "17"));
        of.step(5.0, failed(reason));
        assert_eq!(of.step(1.0, Reply::Rested), ["-> list 17"], "{reason:?}");
        assert_eq!(of.step(0.0, Reply::Item("a"))[0], "list started");
        // An older copy of etcd was restored.
        of.step(0.0, failed(FailureReason::TooNew));
        assert_eq!(of.step(1.0, Reply::Rested), ["-> list etcd"]);
        let line = format!("synced, gap 5..12: {reason:?}");
        assert_eq!(
            of.step(0.0, page("3", "")),
            ["list started", "list finished", &line, "-> watch 3"]
        );
    }
}

#[test]
fn a_refused_watch_is_not_a_list() {
    let mut of = Script::synced();
    of.step(5.0, failed(FailureReason::Forbidden));
    assert_eq!(of.step(1.0, Reply::Rested), ["-> watch 10"]);
}

#[test]
fn a_watch_that_ends_at_once_failed() {
    let mut of = Script::synced();
    assert_eq!(of.step(0.5, Reply::Ended), ["interrupted at 0.5: Closed", "-> rest 800ms"]);
    of.step(1.0, Reply::Rested);
    of.step(0.0, Reply::Opened);
    of.step(0.1, applied("a", "11"));
    assert_eq!(of.step(0.0, Reply::Ended), ["-> watch 11"]);
}

#[test]
fn a_watch_that_the_server_ended_and_that_fails_to_open_is_a_gap_since_its_end() {
    let mut of = Script::synced();
    of.step(20.0, applied("a", "11"));
    assert_eq!(of.step(30.0, Reply::Ended), ["-> watch 11"]);
    assert_eq!(
        of.step(9.0, failed(FailureReason::Timeout)),
        ["interrupted at 50: Timeout", "-> rest 800ms"]
    );
}

#[test]
fn a_watch_that_opens_late_is_a_gap_since_the_last_one_ended() {
    let mut of = Script::synced();
    assert_eq!(of.step(50.0, Reply::Ended), ["-> watch 10"]);
    assert_eq!(of.step(0.75, Reply::Opened), ["-> event within 100s"]);
    assert_eq!(of.step(9.25, Reply::Ended), ["-> watch 10"]);
    assert_eq!(
        of.step(5.0, Reply::Opened),
        ["interrupted at 60: Timeout", "-> event within 500ms"]
    );
    assert_eq!(of.step(0.25, applied("a", "11"))[0], "a applied");
    assert_eq!(
        of.step(0.5, Reply::Silence),
        ["synced, gap 60..65.75: Timeout", "-> event within 100s"]
    );
    // After the failed request the gap is known already.
    of.step(9.4, failed(FailureReason::Connection));
    of.step(2.0, Reply::Rested);
    assert_eq!(of.step(2.0, Reply::Opened), ["-> event within 500ms"]);
}

#[test]
fn lists_that_never_lead_to_a_working_watch_wait_longer_each_time() {
    for reason in [FailureReason::TooNew, FailureReason::Expired, FailureReason::Undecodable] {
        let mut of = Script::synced();
        let mut pauses = Vec::new();
        for _ in 0..4 {
            pauses.push(of.step(0.1, failed(reason)).pop().unwrap());
            of.step(0.0, Reply::Rested);
            assert_eq!(of.step(0.1, page("10", "")).pop().unwrap(), "-> watch 10");
        }
        let expected = ["800ms", "1.6s", "3.2s", "6.4s"];
        assert_eq!(pauses, expected.map(|pause| format!("-> rest {pause}")), "{reason:?}");
        // A watch that lives proves that all works again.
        of.step(0.0, Reply::Opened);
        assert_eq!(of.step(1.1, failed(reason)).pop().unwrap(), "-> rest 800ms");
    }
}

#[test]
fn silence_is_a_gap_only_if_the_server_sends_bookmarks() {
    let mut of = Script::synced();
    // This server has not sent a bookmark yet.
    assert_eq!(of.step(100.0, Reply::Silence), ["-> watch 10"]);
    of.step(0.0, Reply::Opened);
    let bookmark = Reply::Bookmark { version: "20".into() };
    assert_eq!(of.step(60.0, bookmark), ["-> event within 100s"]);
    assert_eq!(of.step(100.0, Reply::Silence), ["interrupted at 160: Stalled", "-> watch 20"]);
    of.step(0.0, Reply::Opened);
    assert_eq!(
        of.step(0.5, Reply::Silence),
        ["synced, gap 160..260.5: Stalled", "-> event within 100s"]
    );
}

#[test]
fn silence_past_the_servers_own_end_of_a_watch_is_a_gap() {
    let patience = Patience {
        watch: Duration::from_secs(60),
        silence: Duration::from_secs(65),
    };
    let mut of = Script {
        machine: Machine::new(Boot(0), patience, error),
        now: 0.0,
    };
    of.step(0.0, page("10", ""));
    of.step(0.0, Reply::Opened);
    of.step(20.0, applied("a", "11"));
    assert_eq!(of.step(65.0, Reply::Silence), ["interrupted at 20: Stalled", "-> watch 11"]);
}

#[test]
fn a_reply_that_answers_another_request_changes_nothing() {
    let mut of = Script::synced();
    for reply in [Reply::Item("a"), page("99", ""), Reply::Opened, Reply::Rested] {
        assert_eq!(of.step(0.0, reply), ["-> event within 100s"]);
    }
    assert_eq!(of.step(9.0, Reply::Ended), ["-> watch 10"]);
    assert_eq!(of.step(0.0, applied("a", "11")), ["-> watch 10"]);
}

mod any_replies {
    use proptest::prelude::*;

    use super::*;

    fn reply(kind: u8, version: u8) -> Reply<u8> {
        let text = Some(version.to_string());
        match kind {
            0 => Reply::Item(version),
            1 => Reply::Page {
                version: text,
                continue_token: None,
            },
            2 => Reply::Page {
                version: text.clone(),
                continue_token: text,
            },
            3 => Reply::Opened,
            4 => Reply::Change(
                Change::Applied {
                    object: version,
                    listed: false,
                },
                text,
            ),
            5 => Reply::Change(Change::Deleted(version), None),
            6 => Reply::Bookmark {
                version: version.to_string(),
            },
            7 => Reply::Ended,
            8 => Reply::Silence,
            9 => Reply::Rested,
            _ => {
                let reason = FailureReason::ALL[usize::from(version) % FailureReason::ALL.len()];
                Reply::Failed(error(reason, "x"))
            }
        }
    }

    proptest! {
        #[test]
        fn keep_lists_whole_and_gaps_between_interruption_and_sync(
            replies in proptest::collection::vec((0u8..12, any::<u8>(), 0u64..200), 0..200)
        ) {
            let mut machine = Machine::new(Boot(0), PATIENCE, error);
            let (mut now, mut in_list, mut is_synced, mut was_synced, mut interrupted) = (0, false, false, false, None);
            for (kind, version, after) in replies {
                now += after * SECOND;
                for event in machine.step(Boot(now), reply(kind, version)) {
                    match event {
                        // After a failed list, the next list starts from the beginning.
                        WatchEvent::ListStarted => in_list = true,
                        WatchEvent::ListFinished => {
                            prop_assert!(std::mem::take(&mut in_list));
                        }
                        WatchEvent::Changed(Change::Applied { listed, .. }) => prop_assert_eq!(listed, in_list),
                        WatchEvent::Changed(Change::Deleted(_)) => prop_assert!(!in_list),
                        WatchEvent::Interrupted { since, .. } => {
                            prop_assert!(since <= Boot(now));
                            (is_synced, in_list) = (false, false);
                            interrupted.get_or_insert(since);
                        }
                        WatchEvent::Synced { gap } => {
                            prop_assert!(!is_synced);
                            prop_assert_eq!(gap.map(|gap| (gap.since, gap.until)), interrupted.filter(|_| was_synced).map(|since| (since, Boot(now))));
                            (is_synced, was_synced, interrupted) = (true, true, None);
                        }
                    }
                }
                if let Ask::Rest(pause) = machine.ask(Boot(now)) {
                    prop_assert!(!is_synced && pause <= LONGEST_PAUSE);
                }
            }
        }
    }
}
