//! What became of the preStop hook, by what happened rather than by what the kubelet's version would do.

use std::time::Duration;

use super::Case;
use crate::event::ExitStatus;
use crate::ids::Signal;
use crate::kubernetes::PreStopRun;
use crate::pod::PreStop;
use crate::verdict::spent::Spent;

/// The request's time is known to a second, and the kubelet counts whole ones.
const WHOLE_SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verdict) struct Hook<'a> {
    pub run: &'a PreStopRun,
    pub took: Option<Duration>,
    pub end: HookEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verdict) enum HookEnd {
    Done,
    /// With how it is known: bounded and escaped.
    Failed(String),
    /// It still ran when the grace was over, and the kubelet went on.
    Cut,
    /// Finished or cut at about the end of the grace: no evidence says which.
    Late,
    /// The main process ended while it ran, which may be what it was for.
    WithMain,
    /// Only an Event would show whether it failed, and the Events are not known: why.
    Unknown(String),
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
        // The kubelet sends the stop signal over a running hook only when it has waited enough, wherever the time went.
        let still_ran = run.seen && stop.is_some_and(|stop| run.end.is_none_or(|end| end > stop));
        let end = match run.status {
            Some(ExitStatus::Exited(0)) => HookEnd::Done,
            _ if stop.is_none() && outlived_main => HookEnd::WithMain,
            Some(ExitStatus::Signaled {
                signal: Signal::KILL, ..
            }) if to_the_end(WHOLE_SECOND) || still_ran => HookEnd::Cut,
            Some(status) => HookEnd::Failed(crate::verdict::evidence::status(status)),
            // The end of a sleep that lasts as long as the grace loses nothing.
            None if matches!(run.hook, PreStop::Sleep { .. }) && run.failed.is_none() => HookEnd::Done,
            None if let Some(why) = &run.events_unknown => HookEnd::Unknown(why.clone()),
            None => {
                // As long as the grace looks the same where the kubelet began late.
                let known = run.failed.is_some() || still_ran;
                match &run.failed {
                    _ if to_the_end(WHOLE_SECOND) && known => HookEnd::Cut,
                    _ if to_the_end(WHOLE_SECOND) => HookEnd::Late,
                    Some(failed) => HookEnd::Failed(format!("FailedPreStopHook: {}", quoted(failed))),
                    None => HookEnd::Done,
                }
            }
        };
        Some(Hook { run, took, end })
    }

    /// "preStop hook `drain.sh`".
    pub fn name(&self) -> String {
        match &self.run.hook {
            PreStop::Exec { program } => format!("preStop hook `{}`", escaped(program, 64)),
            PreStop::HttpGet { .. } => "preStop httpGet hook".to_owned(),
            PreStop::TcpSocket { .. } => "preStop tcpSocket hook".to_owned(),
            PreStop::Sleep { seconds } => format!("preStop sleep of {seconds} s"),
        }
    }
}

/// A message can hold anything: an Event's the hook's own output.
pub(in crate::verdict) fn quoted(message: &str) -> String {
    format!("\"{}\"", escaped(message, 120))
}

fn escaped(text: &str, limit: usize) -> String {
    let mut short: String = text.chars().take(limit).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string()
}
