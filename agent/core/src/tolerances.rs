//! Every constant of time by which facts and verdicts are made, once, with what was measured for it.

use std::time::Duration;

/// Two agents measure the time of the same event themselves: at most so far apart.
pub const BETWEEN_AGENTS: Duration = Duration::from_millis(1);

/// A process that was running when the observation began and ends this soon may have been asked to stop before, whatever its grace period.
pub const LATE_REACH: Duration = Duration::from_secs(600);
/// Signals further apart than this are different requests.
pub const RUN_GAP: Duration = Duration::from_secs(600);
/// A stop signal this long before the exit did not cause the exit, unless the runtime's SIGKILL followed.
pub const STOP_REACH: Duration = Duration::from_secs(3600);
/// The same with that SIGKILL: the longest plausible grace period.
pub const GRACE_REACH: Duration = Duration::from_secs(24 * 3600);
/// The same of a signal that mostly means something else, as "reload".
pub const HANDLED_REACH: Duration = Duration::from_secs(10);
/// abort(3) goes on at once after a signal in vain.
pub const ABORT_REACH: Duration = Duration::from_millis(100);

/// If the main process exits this soon after the OOM kill of a child, the OOM kill is the reason.
pub const OOM_CHILD_REACH: Duration = Duration::from_secs(10);
/// `mark_victim` comes just after the SIGKILL and possibly just after the exit.
pub const OOM_SLACK: Duration = Duration::from_secs(1);

/// An init passes the status of its child on at once.
pub const CHILD_REACH: Duration = Duration::from_secs(1);
/// A wrapper passes its program's end on within milliseconds; one that cleans up takes seconds.
pub const PASSED_ON: Duration = Duration::from_secs(10);
