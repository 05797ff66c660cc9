//! What the API said, beside what the kernel saw.

use crate::event::ExitStatus;
use crate::kubernetes::{PodContext, Reported};
use crate::verdict::advice::whole_seconds;
use crate::verdict::judge::{Case, Hook, HookEnd};
use crate::verdict::{Evidence, Source, seconds};

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
            .map_or(", the API server's clock not compared".to_owned(), |_| String::new());
        add(
            request.latest,
            format!(
                "deletion asked for, with a grace of {} (the time is known to {}{skew})",
                whole_seconds(request.grace),
                seconds(within)
            ),
        );
        for (at, grace) in &request.shortened {
            add(
                *at,
                format!("a later delete shortened the grace to {}", whole_seconds(*grace)),
            );
        }
    }
    if let Some(asked) = &context.asked {
        let at = context.request.as_ref().map_or(case.begin, |request| request.latest);
        add(at, format!("why it had to end: {}", asked.evidence.escape_debug()));
    }
    if let Some(hook) = Hook::of(case) {
        let name = hook.name();
        let how = if hook.run.seen {
            "its process was seen"
        } else {
            "its times are those of the kubelet's wait"
        };
        if let Some(begin) = hook.run.begin {
            add(begin, format!("{name} began; {how}"));
        }
        if let Some(end) = hook.run.end {
            add(end, format!("{name} {}", ended(&hook.end, hook.run.status)));
        }
    }
    if let Some(ended) = context.mains_ended {
        add(ended, "the last main container ended".to_owned());
    }
    if let Some(reported) = &context.reported {
        add(case.end, reported_line(case, reported));
    }
    if let Some(why) = incomplete(context) {
        add(case.end, why);
    }
}

fn ended(end: &HookEnd, status: Option<ExitStatus>) -> String {
    match (end, status) {
        (HookEnd::Cut, _) => "was cut".to_owned(),
        (_, Some(status)) => super::status(status),
        (HookEnd::Failed(how), None) => format!("failed: {how}"),
        (_, None) => "ended".to_owned(),
    }
}

/// Where the two differ the kernel counts: the API's OOMKilled is sticky, and its 137 can be made up.
fn reported_line(case: &Case<'_>, reported: &Reported) -> String {
    let reason = reported.reason.as_deref().unwrap_or("no reason");
    let says = format!("the API says {}, exit code {}", reason.escape_debug(), reported.exit_code);
    let seen = case.exit.map(|exit| match exit.status {
        ExitStatus::Exited(code) => i32::from(code),
        ExitStatus::Signaled { signal, .. } => 128 + i32::from(signal.number()),
    });
    match seen {
        None => format!("{says}; its end was not seen here"),
        Some(seen) if seen != reported.exit_code => format!("{says}; the kernel's {seen} counts"),
        Some(_) if reason == "OOMKilled" && case.oom().is_empty() => format!("{says}; no OOM kill was seen here"),
        Some(_) => says,
    }
}

fn incomplete(context: &PodContext) -> Option<String> {
    let reason = context.incomplete.as_ref()?;
    Some(format!("what the API says may be incomplete: {}", reason.escape_debug()))
}
