//! What objects of all kinds have.

use std::time::Duration;

use serde::Serialize;

use crate::event::ExitStatus;
use crate::ids::Signal;
use crate::text::escape;
use crate::time::{Boot, WallOffset};
use crate::verdict::{Advice, Evidence, Verdict};

#[derive(Clone, Debug, Serialize)]
pub(super) struct AdviceObject {
    kind: &'static str,
    seconds: Option<u64>,
    text: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct EvidenceObject {
    source: &'static str,
    time: String,
    boot_ns: Boot,
    after_begin_ms: f64,
    text: String,
}

/// RFC 3339, UTC, nanoseconds.
pub(super) fn time(clock: WallOffset, at: Boot) -> String {
    clock.wall(at).rfc3339()
}

/// Milliseconds to the microsecond: all that a reader can use, and no float noise after it.
pub(super) fn millis(d: Duration) -> f64 {
    d.as_micros() as f64 / 1000.0
}

/// Negative for evidence before the begin of the termination.
pub(in crate::render) fn after_ms(at: Boot, begin: Boot) -> f64 {
    if at < begin {
        -millis(begin.since(at))
    } else {
        millis(at.since(begin))
    }
}

pub(super) fn code_or_signal(status: ExitStatus) -> (Option<u8>, Option<Signal>, bool) {
    match status {
        ExitStatus::Exited(code) => (Some(code), None, false),
        ExitStatus::Signaled { signal, core_dumped } => (None, Some(signal), core_dumped),
    }
}

pub(super) fn advice(v: &Verdict) -> Vec<AdviceObject> {
    let one = |advice: &Advice| AdviceObject {
        kind: advice.kind.name(),
        seconds: advice.seconds,
        text: escape(&advice.text),
    };
    v.advice.iter().map(one).collect()
}

pub(super) fn evidence(all: &[Evidence], begin: Boot, clock: WallOffset) -> Vec<EvidenceObject> {
    let one = |e: &Evidence| EvidenceObject {
        source: e.source.name(),
        time: time(clock, e.at),
        boot_ns: e.at,
        after_begin_ms: after_ms(e.at, begin),
        text: escape(&e.text),
    };
    all.iter().map(one).collect()
}
