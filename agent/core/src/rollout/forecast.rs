//! What the next rollout of a workload is expected to cost, by the pods that the last one replaced.
//!
//! Each pod that was replaced is one measurement of the connections that one pod's end costs. The forecast for `n` pods is `n` times
//! their mean, give or take two standard deviations: the pods' own spread (that of a Poisson distribution at least) for `n` pods, and the
//! error of a mean of few pods. An interval never goes beyond three times its lower end plus five: a wider one would be no
//! forecast, so the ends of a wider one are drawn in around the mean.

use serde::Serialize;

use super::RevisionCost;
use crate::render::resource::{EpitaphAdvice, EpitaphReport};
use crate::verdict::AdviceKind;

/// Of lost connections, for a rollout of so many pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// Pods that the next rollout replaces.
    pub pods: u64,
    /// Pods whose ends it is computed from.
    pub measured: u64,
    /// With the settings that the workload has now: what those that were advised, and are set by now, cover is left out.
    pub today: Outlook,
    /// With the settings that would have suited every pod; absent where none is advised that is not set by now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_settings: Option<Outlook>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Outlook {
    /// Lost connections, both ends included.
    Between { least: u64, most: u64 },
    /// No forecast.
    Unknown { reason: String },
}

/// With fewer pods a spread is not known.
const FEWEST: usize = 2;

/// Standard deviations to each side: 19 of 20 rollouts, if they are as the last one.
const SPREAD: f64 = 1.96;

/// The widest interval: `most` is at most so many times `least`, and so much more.
const TIMES: u64 = 3;
const MORE: u64 = 5;

impl Forecast {
    /// `replaced`: the reports that `cost` counts. `pods`: how many the workload has now. `is_set`: whether the workload has the advised
    /// setting by now.
    pub fn of(
        cost: &RevisionCost,
        replaced: &[&EpitaphReport],
        pods: u64,
        is_set: impl Fn(&EpitaphReport, &EpitaphAdvice) -> bool,
    ) -> Forecast {
        let measured: Vec<(&EpitaphReport, u64)> = replaced
            .iter()
            .filter_map(|report| {
                let of = report.connections.as_ref().filter(|of| of.at_least != Some(true))?;
                Some((*report, of.lost?))
            })
            .collect();
        let reason = why_not(cost, measured.len(), pods);
        let advised = |is_wanted: &dyn Fn(&EpitaphReport, &EpitaphAdvice) -> bool, kinds: &[AdviceKind]| {
            let of = |report: &EpitaphReport| report.advice.iter().any(|of| is_one_of(of, kinds) && is_wanted(report, of));
            replaced.iter().any(|report| of(report))
        };
        let still_coming = advised(&|_, _| true, &[AdviceKind::AcceptWhileDraining]);
        let outlook = |is_covered: &dyn Fn(&EpitaphReport, &EpitaphAdvice) -> bool| {
            // Of today's settings, too, once a sleep is set.
            if still_coming && advised(is_covered, &COVERING) {
                return Outlook::Unknown {
                    reason: "clients were still trying to connect when counting stopped, so the necessary length of a sleep was not \
                             measured"
                        .to_owned(),
                };
            }
            match &reason {
                Some(reason) => Outlook::Unknown { reason: reason.clone() },
                None => {
                    let left = measured.iter().map(|(report, lost)| left(report, *lost, is_covered));
                    between(&left.collect::<Vec<_>>(), pods)
                }
            }
        };
        Forecast {
            pods,
            measured: measured.len() as u64,
            today: outlook(&is_set),
            with_settings: advised(&|report, of| !is_set(report, of), &COVERING).then(|| outlook(&|_, _| true)),
        }
    }
}

/// Settings whose effect on the losses is known.
const COVERING: [AdviceKind; 2] = [AdviceKind::PreStopSleepLonger, AdviceKind::GraceLonger];

fn is_one_of(advice: &EpitaphAdvice, kinds: &[AdviceKind]) -> bool {
    kinds.iter().any(|kind| advice.kind == kind.name())
}

fn why_not(cost: &RevisionCost, measured: usize, pods: u64) -> Option<String> {
    if pods == 0 {
        return Some("the workload has no pods now".to_owned());
    }
    if measured < FEWEST {
        return Some(format!(
            "the connections of only {measured} replaced pods are known, too few for a range"
        ));
    }
    if cost.lost_at_least() > 0 {
        return Some(format!(
            "replaced pods lost at least {} connections, and it is not known how many more",
            cost.lost_at_least()
        ));
    }
    cost.unknown_of_half().map(|unknown| {
        let at_most = if cost.unreported.is_none() { "at most " } else { "" };
        format!("the connections of {at_most}{unknown} replaced pods are not known, and only the connections of {measured} are known")
    })
}

/// The advised preStop sleep covers what was refused; the advised grace period, what its end cut. What was reset is not told apart, and
/// stays.
fn left(report: &EpitaphReport, lost: u64, is_covered: &dyn Fn(&EpitaphReport, &EpitaphAdvice) -> bool) -> u64 {
    let Some(of) = &report.connections else { return lost };
    // The connections of a pod's containers are one number: a setting of one container covers them only if no other one lacks it.
    let covers = |kind: AdviceKind| {
        let mut all = report.advice.iter().filter(|advice| is_one_of(advice, &[kind])).peekable();
        all.peek().is_some() && all.all(|advice| is_covered(report, advice)) && lossy_are_advised(report, kind)
    };
    let mut left = lost;
    if covers(AdviceKind::PreStopSleepLonger) {
        left = left.saturating_sub(of.refused);
    }
    if covers(AdviceKind::GraceLonger) {
        left = left.saturating_sub(of.cut);
    }
    left
}

/// Each container that lost connections has the advice, or the pod has.
fn lossy_are_advised(report: &EpitaphReport, kind: AdviceKind) -> bool {
    let advised = || report.advice.iter().filter(|advice| is_one_of(advice, &[kind]));
    let is_advised = |name: &str| advised().any(|advice| advice.container.as_deref().is_none_or(|of| of == name));
    let mut lossy = report.containers.iter().filter(|of| of.lost.is_some_and(|lost| lost > 0));
    lossy.all(|of| is_advised(&of.name))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded, and not negative"
)]
fn between(losses: &[u64], pods: u64) -> Outlook {
    let (measured, pods) = (losses.len() as f64, pods as f64);
    let sum: f64 = losses.iter().map(|lost| *lost as f64).sum();
    let mean = sum / measured;
    let squares: f64 = losses.iter().map(|lost| (*lost as f64 - mean).powi(2)).sum();
    // Half a connection more: no loss among few pods does not prove that there is never one.
    let of_one = (squares / (measured - 1.0)).max((sum + 0.5) / measured);
    let deviation = (pods * of_one + pods * pods * of_one / measured).sqrt();
    let expected = pods * mean;
    let (times, more) = (TIMES as f64, MORE as f64);
    // The ends of the widest interval have the same ratio to the mean.
    let widest = (expected / times.sqrt() - more / (times + 1.0)).max(0.0);
    let least = (expected - SPREAD * deviation).max(widest).round() as u64;
    let most = (expected + SPREAD * deviation).min(times * widest + more).ceil() as u64;
    Outlook::Between {
        least,
        most: most.clamp(least, TIMES * least + MORE),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{lossy, pod};
    use super::*;

    fn of(losses: &[u64], pods: u64) -> (u64, u64) {
        match between(losses, pods) {
            Outlook::Between { least, most } => (least, most),
            Outlook::Unknown { reason } => panic!("{reason}"),
        }
    }

    #[test]
    fn an_interval_holds_the_mean_and_is_never_wider_than_its_bound() {
        for losses in [
            &[0, 0, 0][..],
            &[1, 0],
            &[14, 12, 13],
            &[40, 0, 2],
            &[1_000, 1_100, 900, 950],
            &[0, 90, 0],
        ] {
            for pods in [1, 3, 10, 500] {
                let (least, most) = of(losses, pods);
                let expected = pods as f64 * losses.iter().sum::<u64>() as f64 / losses.len() as f64;
                assert!(most <= 3 * least + 5, "{losses:?} {pods}: {least} to {most}");
                assert!(
                    least as f64 <= expected + 0.5 && expected <= most as f64 + 0.5,
                    "{losses:?} {pods}: {least} to {most}"
                );
            }
        }
    }

    #[test]
    fn many_alike_pods_give_a_narrow_interval() {
        assert_eq!(of(&[0, 0, 0], 3), (0, 2));
        let (least, most) = of(&[10; 100], 100);
        assert!(least > 900 && most < 1_100, "{least} to {most}");
    }

    fn measured(reports: &[EpitaphReport], pods: u64, cost: RevisionCost) -> Forecast {
        Forecast::of(&cost, &reports.iter().collect::<Vec<_>>(), pods, |_, _| false)
    }

    fn advised(mut report: EpitaphReport, kind: AdviceKind) -> EpitaphReport {
        report.advice.push(EpitaphAdvice {
            kind: kind.name().to_owned(),
            ..EpitaphAdvice::default()
        });
        report
    }

    #[test]
    fn the_advised_sleep_covers_what_was_refused() {
        let reports = ["a", "b", "c"].map(|name| advised(lossy(pod(name, "one", 100, 1), 10), AdviceKind::PreStopSleepLonger));
        let forecast = measured(&reports, 3, RevisionCost::default());
        assert_eq!(forecast.today, between(&[10, 10, 10], 3));
        assert_eq!(forecast.with_settings, Some(Outlook::Between { least: 0, most: 2 }));
        let still_coming = reports.map(|report| advised(report, AdviceKind::AcceptWhileDraining));
        let forecast = measured(&still_coming, 3, RevisionCost::default());
        assert!(
            matches!(forecast.with_settings, Some(Outlook::Unknown { .. })),
            "{forecast:?}"
        );
    }

    /// The patch was pasted, and nothing has been rolled out since: the replaced pods had the old settings.
    #[test]
    fn what_an_advised_setting_covers_is_left_out_once_it_is_set() {
        let reports = ["a", "b", "c"].map(|name| advised(lossy(pod(name, "one", 100, 1), 10), AdviceKind::PreStopSleepLonger));
        let reports: Vec<&EpitaphReport> = reports.iter().collect();
        let forecast = Forecast::of(&RevisionCost::default(), &reports, 3, |_, _| true);
        assert_eq!(
            (forecast.today, forecast.with_settings),
            (Outlook::Between { least: 0, most: 2 }, None)
        );
        // Of two advised settings one is set.
        let both: Vec<EpitaphReport> = reports
            .iter()
            .map(|report| {
                let mut of = advised((*report).clone(), AdviceKind::GraceLonger);
                let connections = of.connections.as_mut().expect("lossy");
                (connections.cut, connections.lost) = (5, Some(15));
                of
            })
            .collect();
        let sleep = |_: &EpitaphReport, advice: &EpitaphAdvice| advice.kind == AdviceKind::PreStopSleepLonger.name();
        let forecast = Forecast::of(&RevisionCost::default(), &both.iter().collect::<Vec<_>>(), 3, sleep);
        assert_eq!(forecast.today, between(&[5, 5, 5], 3));
        assert_eq!(forecast.with_settings, Some(Outlook::Between { least: 0, most: 2 }));
    }

    /// The connections of a pod are one number: what the other container, which has no sleep yet, will lose is not told apart.
    #[test]
    fn a_setting_of_one_container_covers_nothing_of_two() {
        let of = |name: &str| {
            let mut report = lossy(pod(name, "one", 100, 1), 10);
            report.advice = ["app", "proxy"]
                .map(|container| EpitaphAdvice {
                    kind: AdviceKind::PreStopSleepLonger.name().to_owned(),
                    container: Some(container.to_owned()),
                    seconds: None,
                })
                .into();
            report
        };
        let reports = ["a", "b", "c"].map(of);
        let app = |_: &EpitaphReport, advice: &EpitaphAdvice| advice.container.as_deref() == Some("app");
        let forecast = Forecast::of(&RevisionCost::default(), &reports.iter().collect::<Vec<_>>(), 3, app);
        assert_eq!(forecast.today, between(&[10, 10, 10], 3));
    }

    #[test]
    fn too_thin_evidence_gives_no_forecast_and_its_reason() {
        let one = [lossy(pod("a", "one", 100, 1), 3)];
        let reason = |forecast: Forecast| match forecast.today {
            Outlook::Unknown { reason } => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason(measured(&one, 3, RevisionCost::default())).contains("too few"));
        let two = ["a", "b"].map(|name| lossy(pod(name, "one", 100, 1), 3));
        assert!(reason(measured(&two, 0, RevisionCost::default())).contains("no pods"));
        let cost = RevisionCost {
            unobserved: 1,
            missing: vec!["c".to_owned()],
            ..RevisionCost::default()
        };
        assert!(reason(measured(&two, 3, cost)).contains("not known"));
        // How many pods were replaced is not known.
        let cost = RevisionCost {
            pods: 2,
            replaced_at_most: Some(30),
            ..RevisionCost::default()
        };
        let reason = reason(measured(&two, 3, cost));
        assert_eq!(
            reason,
            "the connections of at most 28 replaced pods are not known, and only the connections of 2 are known"
        );
        assert_eq!(measured(&two, 3, RevisionCost::default()).with_settings, None);
    }
}
