//! One container's termination with its pod's side → verdict, as text. Times are seconds after the request.

mod clients;
mod containers;
mod hooks;
mod own_time;
mod pods;

use std::time::Duration;

use expect_test::Expect;

use super::{Cause, Severity, Verdict};
use crate::event::*;
use crate::fixtures::builder::*;
use crate::ids::*;
use crate::kubernetes::*;
use crate::ledger::{Claim, Hole, Origin};
use crate::pod::*;
use crate::termination::*;
use crate::time::*;

pub fn check(ended: Builder, expected: Expect) {
    expected.assert_eq(&text(&ended.judged().verdict));
}

pub fn text(v: &Verdict) -> String {
    let mut text = format!("{} ({:?}, {:?}): {}\n", v.headline, v.cause, v.traffic, v.sentence);
    if let Some(remedy) = &v.remedy {
        text += &format!("  remedy: {remedy}\n");
    }
    for advice in &v.advice {
        text += &format!("  {} {:?}: {}\n", advice.kind.name(), advice.seconds, advice.text);
    }
    text
}

pub fn evidence(ended: Builder, expected: Expect) {
    let verdict = ended.judged().verdict;
    let lines: Vec<String> = verdict
        .evidence
        .iter()
        .map(|line| format!("{:+.1} {}: {}\n", seconds_of(line.at), line.source.name(), line.text))
        .collect();
    expected.assert_eq(&lines.concat());
}

fn seconds_of(at_: Boot) -> f64 {
    let zero = at(0.0);
    if at_ >= zero {
        at_.since(zero).as_secs_f64()
    } else {
        -zero.since(at_).as_secs_f64()
    }
}
