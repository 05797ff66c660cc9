//! logind's files: drop-ins of packages and administrators, and locks whose texts any process chose.

use super::conf::Parsed;
use super::inhibit;
use super::timespan::TimeSpan;
use crate::fuzz::{outcome, run, shape};

#[test]
fn logind_conf() {
    let seeds = [
        "[Login]\nInhibitDelayMaxSec=30\n",
        "# unattended-upgrades\n[Login]\nInhibitDelayMaxSec=1min 30s\nUserStopDelaySec=10\n",
        "\u{feff}[Login]\nInhibitDelay\\\n; a comment\nMaxSec = infinity\n[Other]\nInhibitDelayMaxSec=5\n[Login\n",
        "WHAT=sleep:shutdown\nMODE=delay\nUID=0\nPID=812\nWHO=kubelet\nWHY=a\\x20b\\040c\\n\n",
    ];
    run("logind_conf", seeds.map(|seed| seed.as_bytes().to_vec()).into(), |bytes| {
        let parsed = Parsed::read(bytes);
        let lines = bytes.split(|byte| matches!(byte, b'\n' | b'\r' | 0)).count();
        assert!(parsed.assignments.iter().all(|a| (1..=lines).contains(&a.line)), "{parsed:?}");
        let lock = inhibit::parse(bytes);
        if let Some(lock) = &lock {
            for text in [&lock.what, &lock.who, &lock.why] {
                assert!(text.len() < 2_000 && !text.contains(char::is_control), "{lock:?}");
            }
        }
        let span = std::str::from_utf8(bytes).ok().and_then(TimeSpan::parse);
        outcome((
            parsed
                .assignments
                .iter()
                .take(4)
                .map(|a| a.value.map(|value| shape(&value)))
                .collect::<Vec<_>>(),
            parsed.broken.map(|broken| broken.reason),
            lock.map(|lock| lock.mode),
            span.map(|span| shape(&span)),
        ))
    });
}
