//! What a process did with a stop signal.

use crate::event::{Disposition, SignalResult, TargetState};
use crate::termination::{Forward, RaisedAgain, Stop};
use crate::time::Boot;
use crate::tolerances::REFLEX;
use crate::verdict::case::Case;
use crate::verdict::judge::finding::Blocked;

/// What a process did with a stop signal until it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verdict::judge) enum Answer {
    Discarded,
    /// The handler entered, the process sent itself the signal again, and the kernel discarded this second one.
    RaisedInVain,
    Unread(Blocked),
    Handled,
    /// Without a handler: by sigwait(3) or signalfd(2).
    Read,
}

impl Answer {
    pub fn of_main(case: &Case<'_>, stop: &Stop) -> Answer {
        let got = (stop.result, stop.disposition, stop.state);
        let answer = Answer::of(got, stop.handler_entered, stop.raised_again, stop.still_pending);
        // Whoever sends the signal on has read it; the one that still waits is a later one.
        let by_main = |forward: &Forward| case.main().is_some_and(|main| main.tgid == forward.sender.tgid);
        match answer {
            Answer::Unread(_) if case.inside.forwards.iter().any(by_main) => Answer::Read,
            // The shutdown had begun before, and did not end.
            Answer::RaisedInVain if !is_reflex(case, stop.handler_entered, stop.raised_again) => Answer::Handled,
            answer => answer,
        }
    }

    pub fn of_forward(forward: &Forward) -> Answer {
        let got = (forward.result, forward.disposition, forward.state);
        Answer::of(got, forward.handler_entered, forward.raised_again, forward.still_pending)
    }

    fn of(
        (result, disposition, state): (SignalResult, Disposition, TargetState),
        entered: Option<Boot>,
        raised_again: Option<RaisedAgain>,
        still_pending: Option<bool>,
    ) -> Answer {
        let unread = || match state {
            state if state.frozen => Blocked::Frozen,
            state if state.stopped => Blocked::Stopped,
            state if state.traced => Blocked::Traced,
            state if state.blocked => Blocked::Masked,
            _ if disposition == Disposition::Handler => Blocked::HandlerNeverEntered,
            _ => Blocked::NothingEntered,
        };
        let needs_no_handler = state.blocked || state.sigwait || disposition == Disposition::Handler;
        if result == SignalResult::Ignored {
            return Answer::Discarded;
        }
        match (entered, raised_again, still_pending) {
            (Some(_), Some(raised), _) if raised.discarded => Answer::RaisedInVain,
            (Some(_), ..) => Answer::Handled,
            // A debugger takes the signal out of the queue and keeps it.
            (None, _, _) if state.traced => Answer::Unread(Blocked::Traced),
            (None, _, Some(false)) if needs_no_handler => Answer::Read,
            (None, _, None) if state.sigwait && !state.frozen => Answer::Read,
            (None, ..) => Answer::Unread(unread()),
        }
    }

    pub fn is_fault(self) -> bool {
        !matches!(self, Answer::Handled | Answer::Read)
    }
}

/// Nothing but the second signal came of the handler: the application has none. A signal to another process, a child that ended, or a
/// listener that was closed in between is the application's doing.
pub(in crate::verdict::judge) fn is_reflex(
    case: &Case<'_>,
    handler_entered: Option<Boot>,
    raised_again: Option<RaisedAgain>,
) -> bool {
    let Some((entered, raised)) = handler_entered.zip(raised_again) else {
        return false;
    };
    let is_between = |at: Boot| entered <= at && at <= raised.at;
    let mut listeners = case.traffic().listeners.iter();
    let has_closed = listeners.any(|listener| !listener.by_exit && is_between(listener.at));
    is_at_once(entered, raised) && !has_closed
}

/// Without a sign of work between the handler's entry and the second signal, listeners apart.
pub fn is_at_once(entered: Boot, raised: RaisedAgain) -> bool {
    raised.at.since(entered) <= REFLEX && !raised.acted
}
