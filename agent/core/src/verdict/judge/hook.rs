//! The result of the preStop hook, from observed facts, not from the rules of a kubelet's version.

use std::time::Duration;

use crate::event::ExitStatus;
use crate::ids::Signal;
use crate::kubernetes::{PreStopRun, Unshown};
use crate::pod::PreStop;
use crate::tolerances::RESOLUTION;
use crate::verdict::case::Case;
use crate::verdict::spent::Spent;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verdict) struct Hook<'a> {
    pub run: &'a PreStopRun,
    pub took: Option<Duration>,
    pub end: HookEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verdict) enum HookEnd {
    Done,
    Failed,
    /// The hook still ran when the grace period expired, and the kubelet continued.
    Cut,
    /// Finished or cut near the end of the grace period: no evidence shows which.
    Late,
    /// The main process exited while the hook ran; that may be the purpose of the hook.
    WithMain,
    /// Only an Event would show a failure, and the Events are not known; with the reason.
    Unknown(String),
}

fn is_request_hidden(case: &Case<'_>) -> bool {
    case.kubernetes.is_some_and(|context| context.may_miss(Unshown::Request))
}

impl<'a> Hook<'a> {
    pub fn of(case: &Case<'a>) -> Option<Hook<'a>> {
        let run = case.kubernetes?.pre_stop.as_ref()?;
        let spent = Spent::of(case);
        let took = spent.as_ref().and_then(|spent| spent.hook);
        let stop = spent.as_ref().and_then(|spent| spent.stop);
        let grace = case.kubernetes.and_then(|context| context.grace);
        let to_the_end = |reserve| grace.zip(took).is_some_and(|(grace, took)| took + reserve >= grace);
        let main_end = case.exit.map_or(case.end, |exit| exit.at);
        let outlived_main = run.end.is_none_or(|end| end >= main_end);
        // The kubelet sends the stop signal during a running hook only after the full wait.
        let still_ran = run.seen && stop.is_some_and(|stop| run.end.is_none_or(|end| end > stop));
        let end = match run.status {
            Some(ExitStatus::Exited(0)) => HookEnd::Done,
            _ if stop.is_none() && outlived_main => HookEnd::WithMain,
            Some(ExitStatus::Signaled {
                signal: Signal::KILL, ..
            }) if to_the_end(RESOLUTION) || still_ran => HookEnd::Cut,
            // The end of a grace period that was not shown kills it, too.
            Some(status) if status.signal() == Some(Signal::KILL) && is_request_hidden(case) => {
                HookEnd::Unknown("a deletion request or a shorter grace period may not have been seen".to_owned())
            }
            Some(_) => HookEnd::Failed,
            // A sleep that is cut at the end of the grace period loses nothing.
            None if matches!(run.hook, PreStop::Sleep { .. }) && run.failed.is_none() => HookEnd::Done,
            None if let Some(why) = &run.events_unknown => HookEnd::Unknown(why.clone()),
            None => {
                // A hook as long as the grace period looks the same if the kubelet started late.
                let known = run.failed.is_some() || still_ran;
                match &run.failed {
                    _ if to_the_end(RESOLUTION) && known => HookEnd::Cut,
                    _ if to_the_end(RESOLUTION) => HookEnd::Late,
                    Some(_) => HookEnd::Failed,
                    None => HookEnd::Done,
                }
            }
        };
        Some(Hook { run, took, end })
    }
}
