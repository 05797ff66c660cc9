//! No patch takes time away from a setting, unless a measurement advises that: of the journal's lines, of the custom resource, and of a
//! rollout.

use std::sync::Arc;
use std::time::Duration;

use epitaph_core::fixtures::{pods, terminations};
use epitaph_core::kubernetes::{PreStopRun, StopReason};
use epitaph_core::pod::PreStop;
use epitaph_core::render::json as core_json;
use epitaph_core::render::resource::{self, EpitaphReport};
use epitaph_core::report::{PodTermination, Report as CoreReport, Termination};
use epitaph_core::verdict::{Advice, AdviceKind, Cause, Exit};
use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Template, object, settings};
use crate::history::Report;
use crate::story::{Snippet, snippets};

/// A pod with one container, and what was set for it.
#[derive(Clone, Debug)]
struct Sample {
    spec: u64,
    /// What the deletion asked for; None: the pod lives on.
    asked: Option<u64>,
    /// A second request.
    shortened: Option<u64>,
    /// Of a kill by the probe.
    probe: Option<u64>,
    sleep: Option<u64>,
    advice: Vec<(AdviceKind, Option<u64>)>,
}

const KINDS: [AdviceKind; 5] = [
    AdviceKind::GraceLonger,
    AdviceKind::GraceShorter,
    AdviceKind::PreStopSleepLonger,
    AdviceKind::PreStopSleepShorter,
    AdviceKind::AcceptWhileDraining,
];

fn sample() -> impl Strategy<Value = Sample> {
    let seconds = || prop::option::of(0..90_u64);
    let advice = (prop::sample::select(KINDS.to_vec()), seconds());
    let advice = prop::collection::vec(advice, 0..3);
    let all = (1..90_u64, seconds(), seconds(), seconds(), seconds(), advice);
    all.prop_map(|(spec, asked, shortened, probe, sleep, advice)| Sample {
        spec,
        asked,
        shortened,
        probe,
        sleep,
        advice,
    })
}

impl Sample {
    fn pod(&self) -> PodTermination {
        let mut pod = pods::pod(1);
        pod.containers.truncate(1);
        let request = pod.facts.request.as_mut().expect("a request");
        request.grace = Duration::from_secs(self.asked.unwrap_or(self.spec));
        request.spec_grace = Some(Duration::from_secs(self.spec));
        let at = request.latest.plus(Duration::from_secs(1));
        request.shortened = self
            .shortened
            .map(|grace| (at, Duration::from_secs(grace)))
            .into_iter()
            .collect();
        let request = pod.facts.request.clone();
        let app = &mut pod.containers[0];
        let advice = self.advice.iter().map(|(kind, seconds)| Advice {
            kind: *kind,
            seconds: *seconds,
            text: "a clause".to_owned(),
        });
        app.verdict.advice = advice.collect();
        app.verdict.exit = Exit::KilledAfterGrace;
        let context = app.kubernetes.as_mut().map(Arc::make_mut).expect("a pod's");
        let last = request.as_ref().and_then(|of| of.shortened.last()).map(|(_, grace)| *grace);
        context.grace = last.or(request.as_ref().map(|request| request.grace));
        context.request = request;
        context.pre_stop = self.sleep.map(|seconds| PreStopRun {
            hook: PreStop::Sleep { seconds },
            begin: None,
            end: None,
            status: None,
            seen: false,
            failed: None,
            events_unknown: None,
        });
        if let Some(probe) = self.probe {
            context.grace = Some(Duration::from_secs(probe));
            context.stop_reason = Some(StopReason {
                cause: Cause::Liveness,
                evidence: "Event Killing".to_owned(),
                detail: None,
            });
            app.verdict.cause = Cause::Liveness;
        }
        pod.verdict = app.verdict.clone();
        pod
    }

    /// The container of a pod that lives on.
    fn container(&self) -> Termination {
        let mut of = self.pod().containers.remove(0);
        let context = of.kubernetes.as_mut().map(Arc::make_mut).expect("a pod's");
        context.request = None;
        context.grace = Some(Duration::from_secs(self.probe.unwrap_or(self.spec)));
        of
    }

    fn report(&self) -> CoreReport {
        match self.asked {
            Some(_) => CoreReport::PodTerminated(Box::new(self.pod())),
            None => CoreReport::Terminated(Box::new(self.container())),
        }
    }

    fn of_resource(&self) -> EpitaphReport {
        resource::of(&self.report(), &terminations::observation())
            .expect("a pod's")
            .report
    }

    fn of_journal(&self) -> Value {
        let observation = terminations::observation();
        let line = match self.report() {
            CoreReport::PodTerminated(pod) => core_json::line(&core_json::pod_termination(&pod, &observation)),
            CoreReport::Terminated(of) => core_json::line(&core_json::termination(&of, &observation)),
            _ => unreachable!("a termination"),
        };
        serde_json::from_str(&line).expect("JSON")
    }

    fn workload(&self) -> Value {
        let sleep = self.sleep.map(|seconds| json!({"sleep": {"seconds": seconds}}));
        let app = json!({"name": "app", "lifecycle": {"preStop": sleep}});
        let spec = json!({"terminationGracePeriodSeconds": self.spec, "containers": [app]});
        json!({"spec": {"template": {"spec": spec}}})
    }

    fn advises(&self, kind: AdviceKind) -> bool {
        self.advice.iter().any(|(of, _)| *of == kind)
    }

    fn check(&self, what: &str, all: &[Snippet]) -> Result<(), TestCaseError> {
        for Set { setting, seconds } in all.iter().flat_map(set) {
            let (present, lowers) = match setting {
                "pod" => (Some(self.spec), self.advises(AdviceKind::GraceShorter)),
                "preStop" => (self.sleep, self.advises(AdviceKind::PreStopSleepShorter)),
                _ => (self.probe, false),
            };
            let is_more = seconds > present.unwrap_or(0);
            prop_assert!(is_more || lowers, "{what} sets {setting} to {seconds}: {self:?}");
        }
        // Behind the object, each note begins with its setting.
        for note in all.iter().flat_map(|of| of.about.split("; ").skip(1)) {
            let setting = note.split(": ").next().unwrap_or_default();
            let is_known = ["terminationGracePeriodSeconds", "lifecycle.preStop of `app`"].contains(&setting)
                || setting == "livenessProbe.terminationGracePeriodSeconds of `app`";
            prop_assert!(is_known, "{what}: {note}: {self:?}");
        }
        Ok(())
    }
}

/// A number of a patch.
struct Set {
    setting: &'static str,
    seconds: u64,
}

fn set(of: &Snippet) -> Vec<Set> {
    let mut setting = "pod";
    let mut all = Vec::new();
    for line in of.text.lines().map(str::trim) {
        setting = match line {
            "preStop:" => "preStop",
            "livenessProbe:" | "startupProbe:" => "probe",
            _ => setting,
        };
        let number = line.rsplit_once(": ").and_then(|(_, value)| value.parse().ok());
        all.extend(number.map(|seconds| Set { setting, seconds }));
    }
    all
}

fn read(line: &Value) -> Report {
    serde_json::from_value(line.clone()).expect("an object of docs/json.md")
}

fn of_rollout(workload: &Value, of: &[&EpitaphReport]) -> Vec<Snippet> {
    settings("shop", of, Template::of(workload).expect("a template"))
}

proptest! {
    #[test]
    fn no_patch_lowers_a_setting(first in sample(), second in sample()) {
        first.check("the journal", &snippets(&read(&first.of_journal())))?;
        let (own, other) = (first.of_resource(), second.of_resource());
        first.check("the resource", &snippets(&read(&object("shop", &own))))?;
        // The pods that were replaced need not have what the workload has.
        let present = Sample { probe: None, ..first.clone() };
        let all = of_rollout(&first.workload(), &[&own, &other]);
        let lowers = [&first, &second].map(|of| of.advice.clone()).concat();
        let present = Sample { advice: lowers, ..present };
        if first.probe.is_none() && second.probe.is_none() {
            present.check("the rollout", &all)?;
        }
        // What an older agent did not write is not known.
        let older = EpitaphReport { spec_grace_seconds: None, ..own };
        first.check("an older agent's", &snippets(&read(&object("shop", &older))))?;
    }
}

/// The deletion asked for 5 s, and the spec has 60.
fn cut_short(kind: AdviceKind, seconds: Option<u64>) -> Sample {
    Sample {
        spec: 60,
        asked: Some(5),
        shortened: None,
        probe: None,
        sleep: None,
        advice: vec![(kind, seconds)],
    }
}

fn texts(all: &[Snippet]) -> String {
    all.iter().map(|of| of.text.as_str()).collect()
}

#[test]
fn a_shortened_grace_period_is_not_the_one_that_is_set() {
    let longer = cut_short(AdviceKind::GraceLonger, Some(10));
    let of_resource = |of: &EpitaphReport| texts(&snippets(&read(&object("shop", of))));
    let (report, workload) = (longer.of_resource(), longer.workload());
    assert_eq!((report.grace_seconds, report.spec_grace_seconds), (Some(5), Some(60)));
    assert_eq!(of_resource(&report), "");
    assert_eq!(of_rollout(&workload, &[&report]), []);
    let twice = cut_short(AdviceKind::GraceLonger, None).of_resource();
    let expected = "spec:\n  template:\n    spec:\n      terminationGracePeriodSeconds: 120\n";
    assert_eq!(of_resource(&twice), expected);
    assert_eq!(texts(&of_rollout(&workload, &[&twice])), expected);
    let sleep = cut_short(AdviceKind::PreStopSleepLonger, Some(4)).of_resource();
    let shown = expect![[r#"
        spec:
          template:
            spec:
              containers:
              - name: app
                lifecycle:
                  preStop:
                    sleep:
                      seconds: 4
    "#]];
    shown.assert_eq(&of_resource(&sleep));
    shown.assert_eq(&texts(&of_rollout(&workload, &[&sleep])));
    // An older agent did not write what the spec has.
    for of in [&report, &twice] {
        let older = EpitaphReport {
            spec_grace_seconds: None,
            ..of.clone()
        };
        assert_eq!(of_resource(&older), "");
    }
}

/// Somebody has raised it since, or replaced the hook.
#[test]
fn a_rollouts_patch_is_for_what_the_workload_has_now() {
    let of = |kind, seconds| Sample {
        asked: Some(30),
        spec: 30,
        ..cut_short(kind, Some(seconds))
    };
    let (grace, sleep) = (of(AdviceKind::GraceLonger, 45), of(AdviceKind::PreStopSleepLonger, 5));
    let now = Sample {
        spec: 120,
        sleep: Some(20),
        ..grace.clone()
    };
    let (grace, sleep) = (grace.of_resource(), sleep.of_resource());
    assert_eq!(of_rollout(&now.workload(), &[&grace, &sleep]), []);
    let mut raised = now.workload();
    let app = &mut raised["spec"]["template"]["spec"]["containers"][0];
    app["lifecycle"] = json!({"preStop": {"httpGet": {"port": 80}}});
    assert_eq!(of_rollout(&raised, &[&sleep]), []);
    app_renamed(&mut raised);
    assert_eq!(of_rollout(&raised, &[&sleep]), []);
}

fn app_renamed(workload: &mut Value) {
    let app = &mut workload["spec"]["template"]["spec"]["containers"][0];
    *app = json!({"name": "web"});
}
