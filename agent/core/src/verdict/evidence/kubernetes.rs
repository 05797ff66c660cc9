//! Evidence from the Kubernetes API, added to the evidence from the kernel.

use crate::kubernetes::{Asker, PodContext, Reported, Unshown};
use crate::verdict::case::Case;
use crate::verdict::judge::{Hook, HookEnd};
use crate::verdict::words::{how, seconds, whole_seconds};
use crate::verdict::{Evidence, Source};

pub(super) fn add(case: &Case<'_>, list: &mut Vec<Evidence>) {
    let Some(context) = case.kubernetes else { return };
    let mut add = |at, text: String| {
        let source = Source::Kubernetes;
        list.push(Evidence { at, source, text });
    };
    if let Some(request) = &context.request {
        let within = request.latest.since(request.earliest);
        let skew = request
            .skew
            .map_or(", the clock of the API server was not compared".to_owned(), |_| String::new());
        let own = request
            .overridden()
            .map_or(String::new(), |own| format!("{} in the pod's spec; ", whole_seconds(own)));
        let grace = match context.may_miss(Unshown::FirstGrace) {
            true => format!("(the grace period of the request was not shown; {own}"),
            false => format!("with a grace period of {} ({own}", whole_seconds(request.grace)),
        };
        let by = match request.asker {
            Some(asker @ Asker::ClusterAutoscaler) => format!(" after an announcement of {}", asker.name()),
            Some(asker) => format!(" by {}", asker.name()),
            None => String::new(),
        };
        add(
            request.latest,
            format!(
                "deletion requested{by} {grace}time known to within {}{skew})",
                seconds(within)
            ),
        );
        for (at, grace) in &request.shortened {
            add(
                *at,
                format!(
                    "a later delete request shortened the grace period to {}",
                    whole_seconds(*grace)
                ),
            );
        }
    }
    if let Some(stop_reason) = &context.stop_reason {
        let at = context.request.as_ref().map_or(case.begin, |request| request.latest);
        add(
            at,
            format!("reason for the termination: {}", stop_reason.evidence.escape_debug()),
        );
    }
    if let Some(hook) = Hook::of(case) {
        let name = hook.name();
        let how = if hook.run.seen {
            "the process of the hook was observed"
        } else {
            "times taken from the kubelet's wait for the hook"
        };
        if let Some(begin) = hook.run.begin {
            add(begin, format!("{name} started; {how}"));
        }
        if let Some(end) = hook.run.end {
            add(end, format!("{name} {}", ended(&hook)));
        }
    }
    if let Some(ended) = context.mains_ended() {
        add(ended, "the last main container exited".to_owned());
    }
    if let Some(reported) = &context.reported {
        add(case.end, reported_line(case, reported));
    }
    if let Some(why) = incomplete(context) {
        add(case.end, why);
    }
}

fn ended(hook: &Hook<'_>) -> String {
    match (&hook.end, hook.run.status) {
        (HookEnd::Cut, _) => "was still running when the grace period ended".to_owned(),
        (_, Some(status)) => how(status),
        (HookEnd::Failed, None) => format!("failed: {}", hook.failure()),
        (_, None) => "finished".to_owned(),
    }
}

/// If the two differ, the kernel is right: the API keeps OOMKilled from an earlier kill, and reports 137 for an
/// exit that the runtime did not observe.
fn reported_line(case: &Case<'_>, reported: &Reported) -> String {
    let reason = reported.reason.as_deref().unwrap_or("no reason");
    let status = format!(
        "the pod's status reports {}, exit code {}",
        reason.escape_debug(),
        reported.exit_code
    );
    let seen = case.exit.map(|exit| exit.status.reported_code());
    match seen {
        None => format!("{status}; the exit was not observed here"),
        Some(seen) if seen != reported.exit_code => format!("{status}; the kernel reports {seen}, which takes precedence"),
        Some(_) if reason == "OOMKilled" && case.oom().is_empty() => {
            let earlier = case.kubernetes.and_then(|context| context.last_oom);
            let earlier = earlier.map_or(String::new(), |oom| {
                format!(", after that of `{}` {} before", oom.comm, seconds(case.end.since(oom.at)))
            });
            format!("{status}; no OOM kill during this termination was observed{earlier}")
        }
        Some(_) => status,
    }
}

fn incomplete(context: &PodContext) -> Option<String> {
    let reason = context.incomplete.as_ref()?;
    Some(format!("the Kubernetes context may be incomplete: {}", reason.escape_debug()))
}
