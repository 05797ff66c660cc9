//! A termination is found by what `ps` showed of its first process.

use epitaph_core::time::Wall;

use super::{Counts, Match, Report, Search, Wanted};

/// Ends of units, one per second: the unit, its first process and pid.
fn ended() -> Vec<(Report, String)> {
    let units = [
        ("a", "server", 1234),
        ("b", "server", 77),
        ("c", "nginx", 9),
        ("nginx", "sh", 8),
        ("d", "1234", 7),
    ];
    let lines = units.into_iter().enumerate().map(|(second, (unit, comm, pid))| {
        let line = serde_json::json!({
            "type": "termination", "verdict": "crashed", "trace_id": format!("123400000000000000000000000000{second:02}"),
            "end": Wall(second as u64 * 1_000_000_000).rfc3339(), "subject": {"kind": "unit", "name": format!("{unit}.service")},
            "main": {"pid": pid, "comm": comm},
        })
        .to_string();
        (serde_json::from_str(&line).unwrap(), line)
    });
    lines.collect()
}

/// The unit that was found, how, and the number of older ones.
fn found(what: &str) -> Option<(String, Match, u64)> {
    let mut search = Search::new(Wanted::new(what));
    for (report, line) in ended() {
        search.look(&report, &line, &Counts::default(), |_| ());
    }
    let (found, _, more) = search.finish()?;
    let report: Report = serde_json::from_str(&found.line).unwrap();
    Some((report.short_name(), found.by, more))
}

#[test]
fn by_the_name_or_the_pid_of_the_first_process() {
    let of = |unit: &str, by, more| Some((format!("{unit}.service"), by, more));
    assert_eq!(found("server"), of("b", Match::Process, 1));
    assert_eq!(found("77"), of("b", Match::Process, 0), "too short for an id");
    assert_eq!(found("nginx"), of("nginx", Match::Name, 0), "a unit before a process");
    // The pid, a name of the same digits, and the beginning of all traces' ids: what is whole is meant.
    assert_eq!(found("1234"), of("d", Match::Process, 1));
    assert_eq!(found("12340"), of("d", Match::IdPrefix, 4));
    for nothing in ["serv", "server ", "077", "0", "", "7a"] {
        assert_eq!(found(nothing), None, "{nothing}");
    }
}
