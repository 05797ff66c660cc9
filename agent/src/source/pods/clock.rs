//! Offset of the API server's clock, from the `Date` header of its answers. The header has whole seconds, so that one answer gives
//! the offset to within a second; the next request is timed so that its answer halves the interval.

use std::sync::Arc;
use std::time::Duration;

use epitaph_core::pod::ApiClock;
use epitaph_core::time::{Boot, Wall, WallOffset};
use http::Request;
use http::header::DATE;
use http_body_util::{BodyExt as _, Limited};
use jiff::fmt::rfc2822::DateTimeParser;
use kube::Client;
use kube::client::Body;
use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};

use super::counters::{Outcome, PodsCounters};
use super::error::Action;
use crate::clock;
use crate::error::line;
use crate::source::api_error::{ApiError, FailureReason};

/// How often the offset is measured again.
const INTERVAL: Duration = Duration::from_secs(60);

/// Limit of one answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Answers until the offset is as narrow as the way to the API server allows: the first ones include the connection's setup.
const REQUESTS: usize = 10;

/// The answer's body is read up to this size and discarded, so that its connection can be used again.
const MAX_BODY: usize = 64 << 10;

const SECOND: i128 = 1_000_000_000;

/// Two machines' clocks, each up to 100 ppm off.
const DRIFT_PPM: i128 = 200;

/// Narrow enough: far below the one-second resolution of a deletion request's time.
const NARROW: Duration = Duration::from_millis(50);

/// Measures until the receiver of the inputs is gone.
pub(in crate::source) async fn run<I>(
    client: Client,
    counters: Arc<PodsCounters>,
    inputs: Sender<I>,
    input: impl Fn(ApiClock) -> I,
) {
    let mut known: Option<Offset> = None;
    let mut sent = None;
    let mut is_logged = false;
    let mut answered = 0;
    loop {
        for _ in 0..most(answered) {
            let aged = known.map(|known| known.aged(clock::now()));
            if aged.is_some_and(Offset::is_narrow) {
                break;
            }
            if let Some(aged) = aged {
                sleep(aged.wait(clock::now())).await;
            }
            match measure(&client, &counters).await {
                Ok(measured) => {
                    answered += 1;
                    known = Some(known.map_or(measured, |known| known.and(measured)));
                }
                Err(why) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::debug!("{why}; the last measurement of its clock is used");
                    }
                    break;
                }
            }
        }
        if let Some(known) = known {
            let now = known.aged(clock::now()).against_our_wall(clock::wall_offset());
            if differs(sent, now) {
                sent = Some(now);
                if inputs.send(input(now)).await.is_err() {
                    return;
                }
            }
        }
        tokio::select! {
            () = sleep(INTERVAL) => {}
            () = inputs.closed() => return,
        }
    }
}

/// Requests of a round. Where answers are slow, or several API servers have different clocks, no number of them is enough: then one
/// each minute, or every agent of a fleet would ask a slow API server most.
fn most(answered: usize) -> usize {
    REQUESTS.saturating_sub(answered).max(1)
}

/// Every client may read `/version`; a refusal has a date, too.
async fn measure(client: &Client, counters: &PodsCounters) -> Result<Offset, String> {
    let failed = |reason, why: String| {
        counters.failure(Action::Clock, reason);
        why
    };
    let request = Request::get("/version")
        .body(Body::empty())
        .map_err(|e| failed(FailureReason::Connection, e.to_string()))?;
    let sent = clock::now();
    let (answer, received) = match timeout(LIMIT, client.send(request)).await {
        Ok(Ok(answer)) => (answer, clock::now()),
        Ok(Err(error)) => {
            let error = ApiError::of(&Action::Clock.purpose(), &error);
            counters.failure(Action::Clock, error.reason());
            return Err(line(&error));
        }
        Err(_) => {
            let why = format!("the API server did not answer within {LIMIT:?}");
            return Err(failed(FailureReason::Timeout, why));
        }
    };
    counters.request(Action::Clock, Outcome::Ok);
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok()).and_then(date);
    // Cut off: the next request makes a new connection.
    let _ = timeout(LIMIT, Limited::new(answer.into_body(), MAX_BODY).collect()).await;
    let date = date.ok_or("the API server's answer has no Date header that can be read")?;
    Ok(Offset::measured(date, sent, received))
}

/// Interval of the server's wall clock minus our boot clock, nanoseconds. Not our wall clock, which may be set meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    earliest: i128,
    latest: i128,
    /// Time of the measurement.
    at: Boot,
}

impl Offset {
    /// `date` was the server's clock, rounded down to the second, between `sent` and `received`.
    pub fn measured(date: Wall, sent: Boot, received: Boot) -> Offset {
        let date = i128::from(date.0);
        Offset {
            earliest: date - i128::from(received.0),
            latest: date + SECOND - i128::from(sent.0),
            at: received,
        }
    }

    /// Combines two measurements. If they contradict each other, a clock was set or several servers answer: then either may hold.
    pub fn and(self, newer: Offset) -> Offset {
        let older = self.aged(newer.at);
        let (earliest, latest) = (older.earliest.max(newer.earliest), older.latest.min(newer.latest));
        if earliest <= latest {
            return Offset {
                earliest,
                latest,
                at: newer.at,
            };
        }
        Offset {
            earliest: older.earliest.min(newer.earliest),
            latest: older.latest.max(newer.latest),
            at: newer.at,
        }
    }

    pub fn aged(self, now: Boot) -> Offset {
        let drift = i128::try_from(now.since(self.at).as_nanos()).unwrap_or(0) * DRIFT_PPM / 1_000_000;
        Offset {
            earliest: self.earliest - drift,
            latest: self.latest + drift,
            at: now.max(self.at),
        }
    }

    pub fn is_narrow(self) -> bool {
        self.latest - self.earliest <= NARROW.as_nanos() as i128
    }

    /// How long to wait so that the server's second probably begins in the middle of the possible interval.
    pub fn wait(self, now: Boot) -> Duration {
        let server = i128::from(now.0) + (self.earliest + self.latest).div_euclid(2);
        let nanos = (-server).rem_euclid(SECOND);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    pub fn against_our_wall(self, ours: WallOffset) -> ApiClock {
        let against =
            |bound: i128| i64::try_from(bound - i128::from(ours.0)).unwrap_or(if bound < 0 { i64::MIN } else { i64::MAX });
        ApiClock {
            earliest: against(self.earliest),
            latest: against(self.latest),
        }
    }
}

/// `Sat, 21 Nov 2026 14:49:10 GMT`.
pub(super) fn date(header: &str) -> Option<Wall> {
    let timestamp = DateTimeParser::new().parse_timestamp(header).ok()?;
    u64::try_from(timestamp.as_nanosecond()).ok().map(Wall)
}

/// Whether the core needs the new offset.
pub(super) fn differs(sent: Option<ApiClock>, now: ApiClock) -> bool {
    const WORTH: u64 = 5_000_000;
    sent.is_none_or(|sent| sent.earliest.abs_diff(now.earliest) > WORTH || sent.latest.abs_diff(now.latest) > WORTH)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_offset_that_does_not_become_narrow_costs_a_request_each_minute() {
        let rounds = |answers: &[bool]| {
            let mut answered = 0;
            let of_round = |answers: &bool| {
                let sent = most(answered);
                answered += if *answers { sent } else { 0 };
                sent
            };
            answers.iter().map(of_round).collect::<Vec<_>>()
        };
        assert_eq!(rounds(&[true, true, true]), [REQUESTS, 1, 1]);
        // Until the API server answers for the first time.
        assert_eq!(rounds(&[false, true, true]), [REQUESTS, REQUESTS, 1]);
    }

    #[test]
    fn a_date_is_read() {
        assert_eq!(date("Sat, 21 Nov 2026 14:49:10 GMT"), Some(Wall(1_795_272_550_000_000_000)));
        assert_eq!(date("yesterday"), None);
    }

    /// What the server would answer, `offset` ahead of our boot clock.
    fn answer(offset: i128, sent: Boot, received: Boot, within: u64) -> Offset {
        let at = sent.0 + within % (received.0 - sent.0 + 1);
        let server = i128::from(at) + offset;
        let date = server.div_euclid(SECOND) * SECOND;
        Offset::measured(Wall(date as u64), sent, received)
    }

    proptest! {
        #[test]
        fn the_truth_is_never_left_and_eight_answers_are_narrow(
            offset in 1_000_000_000_000_i128..4_000_000_000_000_000_000,
            within in proptest::collection::vec(any::<u64>(), 8),
            rtt in 100_000_u64..5_000_000,
        ) {
            let mut now = Boot(60_000_000_000);
            let mut known: Option<Offset> = None;
            for within in within {
                if let Some(known) = known {
                    now = now.plus(known.wait(now));
                }
                let received = Boot(now.0 + rtt);
                let new = answer(offset, now, received, within);
                known = Some(known.map_or(new, |known| known.and(new)));
                now = received;
                let known = known.unwrap();
                prop_assert!(known.earliest <= offset && offset <= known.latest);
            }
            prop_assert!(known.unwrap().is_narrow(), "{:?}", known);
        }
    }

    #[test]
    fn a_set_clock_widens_to_both_and_drift_widens_too() {
        let first = Offset {
            earliest: 100,
            latest: 200,
            at: Boot(0),
        };
        let second = Offset {
            earliest: 900,
            latest: 950,
            at: Boot(0),
        };
        assert_eq!(
            first.and(second),
            Offset {
                earliest: 100,
                latest: 950,
                at: Boot(0)
            }
        );
        let aged = first.aged(Boot(60_000_000_000));
        assert_eq!((aged.earliest, aged.latest), (100 - 12_000_000, 200 + 12_000_000));
    }

    #[test]
    fn our_own_clock_may_be_set() {
        let offset = Offset {
            earliest: 10_000_000_000,
            latest: 10_020_000_000,
            at: Boot(0),
        };
        let clock = offset.against_our_wall(WallOffset(9_000_000_000));
        assert_eq!((clock.earliest, clock.latest), (1_000_000_000, 1_020_000_000));
        assert!(!differs(Some(clock), clock) && differs(None, clock));
        assert!(differs(Some(clock), offset.against_our_wall(WallOffset(12_000_000_000))));
    }
}
