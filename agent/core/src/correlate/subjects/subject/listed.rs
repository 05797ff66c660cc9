//! Where a subject stands in the lists of all subjects.

use crate::time::Boot;

/// [`Listed::spare`] of a subject that was not weighed yet.
pub(in crate::correlate::subjects) const NOT_LISTED: usize = usize::MAX;

/// See the module.
#[derive(Debug)]
pub(in crate::correlate::subjects) struct Listed {
    /// Its bytes, as the budget counts them.
    pub weighed: usize,
    /// Of these, bytes that it can give up.
    pub spare: usize,
    /// Of these, bytes that are free for others then.
    pub freed: usize,
    /// The subject's timer, if it has one.
    pub due: Option<Boot>,
    pub touched: Option<Boot>,
    pub place: Place,
    pub armed: Option<Boot>,
}

impl Default for Listed {
    fn default() -> Listed {
        Listed {
            weighed: 0,
            spare: NOT_LISTED,
            freed: 0,
            due: None,
            touched: None,
            place: Place::default(),
            armed: None,
        }
    }
}

/// Other subjects' noise must not evict a termination in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::correlate::subjects) enum Rank {
    /// Nothing stops the subject.
    Quiet,
    /// The exit is known. Only what clients met can still change, and a container's owner decides how long its cgroup stays.
    Ended,
    Stopping,
    /// The subject has exited, and records from before the exit may still arrive: without these the exit would be judged wrongly. The
    /// timeline is not evicted.
    Settling,
}

/// Where a subject stands.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::correlate::subjects) enum Place {
    /// It has no timeline.
    #[default]
    Nowhere,
    Changed,
    At(Rank, Boot),
}
