//! A workload's pod template as the API has it now: what a patch changes. The pods that terminated may have had other settings.

use epitaph_core::render::resource::{EpitaphAdvice, EpitaphContainer, EpitaphReport};
use epitaph_core::tolerances::DEFAULT_GRACE;
use epitaph_core::verdict::AdviceKind;
use serde_json::Value;

/// `spec.template.spec` of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Template<'a>(&'a Value);

impl<'a> Template<'a> {
    /// None for an object without pods of its own.
    pub fn of(workload: &'a Value) -> Option<Template<'a>> {
        let spec = &workload["spec"]["template"]["spec"];
        spec.is_object().then_some(Template(spec))
    }

    /// Has by now what was advised for a pod that terminated.
    pub fn has(self, report: &EpitaphReport, advice: &EpitaphAdvice) -> bool {
        let is = |kind: AdviceKind| advice.kind == kind.name();
        if is(AdviceKind::GraceLonger) {
            // Without a measured value the patch has twice the present one.
            let given = report.grace_seconds.max(report.spec_grace_seconds);
            let wanted = advice.seconds.or(given.map(|given| given.saturating_mul(2)));
            return self.grace().zip(wanted).is_some_and(|(grace, wanted)| grace >= wanted);
        }
        if is(AdviceKind::PreStopSleepLonger) {
            let found = advice.container.as_deref().and_then(|name| self.found(name));
            let sleep = found.and_then(|(_, container)| sleep(&container["lifecycle"]["preStop"]));
            return sleep.zip(advice.seconds).is_some_and(|(sleep, wanted)| sleep >= wanted);
        }
        false
    }

    /// With the settings of the template in place of those of the pods that terminated.
    #[must_use]
    pub(super) fn applied(self, report: EpitaphReport) -> EpitaphReport {
        let containers = report.containers.into_iter();
        EpitaphReport {
            spec_grace_seconds: self.grace(),
            containers: containers.filter_map(|of| self.container(of)).collect(),
            ..report
        }
    }

    /// What the API server adds where nothing is set may be missing from a manifest.
    fn grace(self) -> Option<u64> {
        match &self.0["terminationGracePeriodSeconds"] {
            Value::Null => Some(DEFAULT_GRACE.as_secs()),
            set => set.as_u64(),
        }
    }

    /// None if the template has it no more.
    fn container(self, of: EpitaphContainer) -> Option<EpitaphContainer> {
        let (kind, found) = self.found(&of.name)?;
        Some(EpitaphContainer {
            kind: Some(kind.to_owned()),
            pre_stop: hook(&found["lifecycle"]["preStop"]),
            ..of
        })
    }

    /// With its kind.
    fn found(self, name: &str) -> Option<(&'static str, &'a Value)> {
        let lists = [("containers", "main"), ("initContainers", "init")];
        lists.into_iter().find_map(|(list, kind)| {
            let mut all = self.0[list].as_array()?.iter();
            Some((kind, all.find(|found| found["name"] == *name)?))
        })
    }
}

/// Seconds of a hook that only sleeps: the action of Kubernetes 1.30, or the program.
fn sleep(hook: &Value) -> Option<u64> {
    let command = || {
        let command = hook["exec"]["command"].as_array()?;
        let [program, seconds] = command.as_slice() else { return None };
        let is_sleep = program.as_str()?.rsplit('/').next() == Some("sleep");
        seconds.as_str().filter(|_| is_sleep)?.parse().ok()
    };
    hook["sleep"]["seconds"].as_u64().or_else(command)
}

/// As [`EpitaphContainer::pre_stop`] has it.
fn hook(of: &Value) -> Option<String> {
    let (action, how) = of.as_object()?.iter().next()?;
    Some(match action.as_str() {
        "sleep" => match how["seconds"].as_u64() {
            Some(seconds) => format!("sleep {seconds}"),
            None => "sleep".to_owned(),
        },
        "exec" => format!("exec {}", how["command"][0].as_str().unwrap_or_default()),
        other => other.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_template_has_an_advised_setting_or_not() {
        let report = EpitaphReport {
            spec_grace_seconds: Some(30),
            ..EpitaphReport::default()
        };
        let has = |spec: Value, kind: AdviceKind, seconds: Option<u64>| {
            let workload = json!({"spec": {"template": {"spec": spec}}});
            let advice = EpitaphAdvice {
                kind: kind.name().to_owned(),
                container: (kind == AdviceKind::PreStopSleepLonger).then(|| "app".to_owned()),
                seconds,
            };
            Template::of(&workload).expect("a template").has(&report, &advice)
        };
        let grace = |seconds: u64| json!({"terminationGracePeriodSeconds": seconds});
        assert!(has(grace(45), AdviceKind::GraceLonger, Some(45)));
        assert!(!has(grace(44), AdviceKind::GraceLonger, Some(45)));
        assert!(has(grace(60), AdviceKind::GraceLonger, None), "twice the 30 s that were");
        assert!(!has(grace(30), AdviceKind::GraceLonger, None));
        assert!(has(json!({}), AdviceKind::GraceLonger, Some(30)), "the default");
        let hook = |hook: Value| json!({"containers": [{"name": "app", "lifecycle": {"preStop": hook}}]});
        for (present, expected) in [
            (json!({"sleep": {"seconds": 4}}), true),
            (json!({"sleep": {"seconds": 3}}), false),
            (json!({"exec": {"command": ["/bin/sleep", "5"]}}), true),
            (json!({"exec": {"command": ["sh", "-c", "sleep 5"]}}), false),
            (Value::Null, false),
        ] {
            let text = present.to_string();
            assert_eq!(
                has(hook(present), AdviceKind::PreStopSleepLonger, Some(4)),
                expected,
                "{text}"
            );
        }
        let other = json!({"containers": [{"name": "web", "lifecycle": {"preStop": {"sleep": {"seconds": 9}}}}]});
        assert!(!has(other, AdviceKind::PreStopSleepLonger, Some(4)), "another container");
        assert!(!has(grace(5), AdviceKind::GraceShorter, Some(5)));
    }
}
