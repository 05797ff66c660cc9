//! The way of the stop signal inside a container or unit: a span for each process that another one sent it to.

use epitaph_core::event::{Kind, SignalResult};
use epitaph_core::report::Termination;
use epitaph_core::termination::Forward;
use epitaph_core::time::Boot;
use opentelemetry::trace::{Event, SpanId};
use opentelemetry_sdk::trace::SpanData;

use super::attributes::{Attributes, raised_again};
use super::{Frame, stop};
use crate::render::attributes::key;

/// `forwarded SIGTERM`: from the signal to the exit of the process that got it. Bounded by `Inside::MOST`.
pub(super) fn spans(t: &Termination, at: &Frame, parent: SpanId) -> Vec<SpanData> {
    t.inside.forwards.iter().map(|forward| span(forward, t, at, parent)).collect()
}

/// Whether one of these spans has what a line of evidence says.
pub(super) fn shows(t: &Termination, source: Kind, when: Boot) -> bool {
    t.inside.forwards.iter().any(|forward| match source {
        Kind::SignalGenerate => forward.at == when || forward.raised_again.is_some_and(|raised| raised.at == when),
        Kind::SignalDeliver => forward.handler_entered == Some(when),
        Kind::ProcessExit => forward.exit.is_some_and(|exit| exit.at == when),
        _ => false,
    })
}

fn span(forward: &Forward, t: &Termination, at: &Frame, parent: SpanId) -> SpanData {
    let (sender, target) = (&forward.sender, &forward.target);
    let mut a = Attributes::default();
    a.count(key::PROCESS_PID, target.tgid.0.into());
    a.text(key::PROCESS_EXECUTABLE_NAME, target.comm.to_string());
    stop::status(forward.exit.map(|exit| exit.status), &mut a);
    a.text(key::STOP_RESULT, forward.result.name());
    a.text(key::STOP_DISPOSITION, forward.disposition.name());
    a.texts(key::STOP_STATE, forward.state.names().map(str::to_owned));
    a.count(key::STOP_SENDER_PID, sender.tgid.0.into());
    a.text(key::STOP_SENDER_COMM, sender.comm.to_string());

    let mut events: Vec<(Boot, &'static str)> = Vec::new();
    events.extend((forward.result == SignalResult::Ignored).then_some((forward.at, "stop-signal-ignored")));
    events.extend(forward.handler_entered.map(|at| (at, "handler.entered")));
    events.extend(forward.raised_again.map(|raised| (raised.at, raised_again(raised))));
    events.extend(forward.kill.map(|kill| (kill.at, "SIGKILL")));
    events.sort_by_key(|(when, _)| *when);

    // Its exit, or, not observed, the latest time at which it can have run: in a pid namespace the exit of the init ends all others.
    let end = forward.exit.or(t.exit).map_or(t.end, |exit| exit.at);
    let name = format!("forwarded {}", forward.signal);
    let id = at.span_id(&format!("{name} {} {}", target.tgid.0, target.start.0));
    let mut span = at.span(name, parent, forward.at, end.max(forward.at), a);
    span.span_context = at.context(id);
    let events = events.into_iter();
    span.events.events = events
        .map(|(when, name)| Event::new(name, at.wall(when), Vec::new(), 0))
        .collect();
    span
}
