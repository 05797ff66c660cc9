//! The preStop sleep, and how the server stops accepting, compared with how long clients tried to connect.

use std::time::Duration;

use super::kind::{Advice, AdviceKind, Need};
use crate::event::ExitStatus;
use crate::kubernetes::{PodContext, PreStopRun};
use crate::pod::{ContainerKind, PreStop};
use crate::time::Boot;
use crate::tolerances::{LEAST_EXCESS, RESOLUTION};
use crate::verdict::case::Case;
use crate::verdict::own_time::{Longer, cut_sleep, in_spec, sleep_avoids};
use crate::verdict::spent::Spent;
use crate::verdict::words::{at_least, many, seconds, whole_seconds};

/// A sleep gets advice if it is this many times too long, and by this much.
const FAR_TOO_LONG: u32 = 4;
/// With fewer new connections a silence may be chance; with so many, the silence in a sleep that is far too long is sixty times
/// their pauses.
const ENOUGH: u64 = 20;

pub(super) fn advice(case: &Case<'_>) -> Vec<Advice> {
    // Proxies send clients elsewhere only if the pod is deleted: a sleep before a restart helps no client.
    let Some(context) = case.kubernetes.filter(|context| context.request.is_some()) else {
        return Vec::new();
    };
    match Missed::of(case).zip(NeededSleep::of(case)) {
        Some((missed, sleep)) => missed.advice(&sleep, case, context),
        None => too_long(case, context).into_iter().collect(),
    }
}

/// The preStop sleep that would have covered all clients that connected too late.
pub struct NeededSleep {
    pub seconds: u64,
    /// The part of it that the server already had before its stop signal.
    had: Duration,
}

impl NeededSleep {
    /// None if no client connected too late, if no close of a listener was seen, or if the pod has such a sleep: one that is cut needs a
    /// longer grace period.
    pub fn of(case: &Case<'_>) -> Option<NeededSleep> {
        let needed = NeededSleep::whole(case)?;
        let run = case.kubernetes.and_then(|context| context.pre_stop.as_ref());
        let has_enough = match run.map(|run| &run.hook) {
            Some(PreStop::Sleep { seconds }) => *seconds >= needed.seconds || cut_sleep(case).is_some(),
            // Its arguments are not known: only what it took.
            Some(hook) if is_sleep(hook) => run.is_some_and(|run| is_sleep_unknown(case, run)),
            _ => false,
        };
        (!has_enough).then_some(needed)
    }

    /// From the begin of the termination.
    fn whole(case: &Case<'_>) -> Option<NeededSleep> {
        let traffic = case.traffic();
        let spent = Spent::of(case);
        // A hook that closes the listener itself (`nginx -s quit`) covers clients only until then.
        let had = |closed: Boot| {
            let before_stop = spent.as_ref().and_then(|spent| spent.before_stop);
            before_stop.map_or(Duration::ZERO, |(begin, took)| took.min(closed.since(begin)))
        };
        let refused = traffic
            .refusal_windows()
            .into_iter()
            .map(|window| (had(window.closed) + window.length(), had(window.closed)));
        // Which listener had the queue is unknown.
        let closes = traffic.listeners.iter().filter(|_| traffic.reset_queued > 0);
        let queued = closes.map(|listener| (had(listener.at), had(listener.at)));
        let (needed, had) = refused.chain(queued).max()?;
        Some(NeededSleep {
            seconds: cover(needed),
            had,
        })
    }
}

/// Clients that connected after the listener had closed.
struct Missed {
    /// "14 connections refused in the 3.2 s after the listener closed".
    what: String,
    /// Clients were still trying to connect when counting stopped.
    still_coming: bool,
}

impl Missed {
    fn of(case: &Case<'_>) -> Option<Missed> {
        let traffic = case.traffic();
        let refused = traffic.refusal_window().map(|window| {
            format!(
                "{}{} refused in the {} after the listener closed",
                at_least(traffic),
                many(traffic.refused_clients().count, "connection"),
                seconds(window)
            )
        });
        let queued = (traffic.reset_queued > 0).then(|| {
            format!(
                "{}{} reset in the accept queue",
                at_least(traffic),
                many(traffic.reset_queued, "connection")
            )
        });
        let what: Vec<String> = refused.into_iter().chain(queued).collect();
        (!what.is_empty()).then(|| Missed {
            what: what.join(" and "),
            still_coming: traffic.refused.goes_on,
        })
    }

    fn advice(&self, sleep: &NeededSleep, case: &Case<'_>, context: &PodContext) -> Vec<Advice> {
        let &NeededSleep { seconds: sleep, had } = sleep;
        let stopping = case.exit.zip(case.stop()).map(|(exit, stop)| exit.at.since(stop.at));
        let name = context.name();
        let after = match context.kind {
            _ if had.is_zero() => String::new(),
            Some(ContainerKind::Sidecar) => format!(
                " (including the {} from the deletion request to the stop signal)",
                seconds(had)
            ),
            _ => format!(" (including the {} of the present preStop hook)", seconds(had)),
        };
        let more = if self.still_coming {
            "; clients were still trying to connect when counting stopped, so more may be needed"
        } else {
            ""
        };
        let needed = Duration::from_secs(sleep) + stopping.unwrap_or_default();
        let (fits, room) = match (context.spec_grace(), stopping) {
            (Some(grace), Some(stopping)) => {
                let (fits, how) = match Longer::than(context, needed).filter(|_| needed > grace) {
                    None => (true, "fits in the grace period of".to_owned()),
                    Some(longer) => (false, format!("needs a grace period of at least {} s, not", longer.seconds())),
                };
                let (stopping, own) = (seconds(stopping), whole_seconds(grace));
                (
                    fits,
                    format!(
                        "; with the {stopping} of the shutdown, this sleep {how} {own}{}",
                        in_spec(context, grace)
                    ),
                )
            }
            _ => (true, String::new()),
        };
        let mut list = vec![Advice {
            kind: AdviceKind::PreStopSleepLonger,
            seconds: Some(sleep),
            text: format!(
                "{name}: {}; {}{after}{room}{more}",
                self.what,
                sleep_avoids(case, at_least(case.traffic()), sleep, "this"),
            ),
        }];
        if !fits || self.still_coming {
            list.push(Advice {
                kind: AdviceKind::AcceptWhileDraining,
                seconds: None,
                text: format!(
                    "{name} closed the listener while clients were still trying to connect ({}): keep accepting after the stop signal until \
                     clients stop connecting",
                    self.what
                ),
            });
        }
        list
    }
}

/// A sleep during most of which no client connected.
fn too_long(case: &Case<'_>, context: &PodContext) -> Option<Advice> {
    let Slept { begin, took } = Slept::of(case)?;
    let Need::Seconds(sleep) = sleep_need(case) else { return None };
    let accepted = case.traffic().accepted;
    let needed = accepted.last.since(begin);
    let advised = Duration::from_secs(sleep);
    let is_far_too_long = took > advised * FAR_TOO_LONG && took > advised + LEAST_EXCESS;
    (is_far_too_long && accepted.count >= ENOUGH).then(|| Advice {
        kind: AdviceKind::PreStopSleepShorter,
        seconds: Some(sleep),
        text: format!(
            "the preStop hook of {} slept {}, and the last of {} came {} after the sleep began: {sleep} s would have been enough",
            context.name(),
            seconds(took),
            many(accepted.count, "new connection"),
            seconds(needed)
        ),
    })
}

/// The preStop sleep that clients needed, independent of the configured one.
pub(super) fn sleep_need(case: &Case<'_>) -> Need {
    let traffic = case.traffic();
    let lost = [traffic.refused.all, traffic.reset, traffic.cut, traffic.rejected];
    match Slept::of(case) {
        // Without clients there is no measurement.
        None => Need::Nothing,
        Some(_) if lost.iter().any(|count| count.count > 0) => Need::NotKnown,
        Some(_) if !traffic.observed || traffic.accepted.count == 0 => Need::Nothing,
        Some(slept) => Need::Seconds(cover(traffic.accepted.last.since(slept.begin))),
    }
}

/// A preStop sleep that a stop followed.
struct Slept {
    begin: Boot,
    took: Duration,
}

impl Slept {
    fn of(case: &Case<'_>) -> Option<Slept> {
        let context = case.kubernetes.filter(|context| context.request.is_some())?;
        let run = context.pre_stop.as_ref().filter(|run| is_sleep(&run.hook))?;
        let spent = Spent::of(case).filter(|spent| spent.stop.is_some())?;
        Some(Slept {
            begin: run.begin?,
            took: spent.hook?,
        })
    }
}

/// It ended with the grace period, or how long it took is not known.
fn is_sleep_unknown(case: &Case<'_>, run: &PreStopRun) -> bool {
    if run.status == Some(ExitStatus::Exited(0)) && run.begin.is_some() {
        return false;
    }
    let took = Spent::of(case).and_then(|spent| spent.hook);
    let given = case.kubernetes.and_then(|context| context.grace);
    took.is_none_or(|took| given.is_some_and(|given| took + RESOLUTION >= given))
}

/// A shell that sleeps and does something else cannot be recognized by its name.
fn is_sleep(hook: &PreStop) -> bool {
    match hook {
        PreStop::Sleep { .. } => true,
        PreStop::Exec { program } => program.rsplit('/').next() == Some("sleep"),
        PreStop::HttpGet { .. } | PreStop::TcpSocket { .. } => false,
    }
}

/// Whole seconds that cover `needed` and an eighth more: proxies do not take the same time twice.
fn cover(needed: Duration) -> u64 {
    let millis = needed.as_millis() * 9 / 8;
    u64::try_from(millis.div_ceil(1_000).max(1)).unwrap_or(u64::MAX)
}
