//! The absences that findings rest on.

use crate::event::Kind;
use crate::ledger::Hole;

/// An absence that a finding rests on: somebody must have looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// No such record of the main process.
    Main(Kind),
    /// Nor of the others, until the last of them is gone.
    Each(Kind),
    /// No stop signal before the observation.
    NoStop,
}

/// Proven by what was seen.
pub(super) const PROVEN: &[Ask] = &[];
pub(super) const NO_SIGNAL: &[Ask] = &[Ask::Main(Kind::SignalGenerate)];
pub(super) const NO_SIGNAL_NOR_STOP: &[Ask] = &[Ask::NoStop, Ask::Main(Kind::SignalGenerate)];
pub(super) const NO_HANDLER: &[Ask] = &[Ask::Main(Kind::SignalDeliver)];
pub(super) const NO_SIGNAL_NOR_HANDLER: &[Ask] = &[Ask::Main(Kind::SignalGenerate), Ask::Main(Kind::SignalDeliver)];
pub(super) const NO_OOM: &[Ask] = &[Ask::Main(Kind::OomVictim)];
pub(super) const NO_OOM_NOR_STOP: &[Ask] = &[Ask::NoStop, Ask::Main(Kind::OomVictim)];
pub(super) const NO_SIGNAL_NOR_OOM: &[Ask] = &[Ask::Main(Kind::SignalGenerate), Ask::Main(Kind::OomVictim)];
pub(super) const NO_SIGNAL_NOR_OOM_NOR_STOP: &[Ask] =
    &[Ask::NoStop, Ask::Main(Kind::SignalGenerate), Ask::Main(Kind::OomVictim)];
pub(super) const NO_EXEC: &[Ask] = &[Ask::Main(Kind::ProcessExec)];
pub(super) const NO_EXIT: &[Ask] = &[Ask::Main(Kind::ProcessExit)];
pub(super) const NO_EXIT_NOR_REMOVAL: &[Ask] = &[Ask::Main(Kind::ProcessExit), Ask::Main(Kind::CgroupRmdir)];
/// Systemd signals each process of a unit: another one may be the program.
pub(super) const NO_SIGNAL_TO_ANY: &[Ask] = &[Ask::Each(Kind::SignalGenerate)];
pub(super) const NO_SIGNAL_TO_ANY_NOR_OOM: &[Ask] = &[Ask::Each(Kind::SignalGenerate), Ask::Main(Kind::OomVictim)];
pub(super) const NO_SIGNAL_NOR_HANDLER_OF_ANY: &[Ask] = &[Ask::Each(Kind::SignalGenerate), Ask::Each(Kind::SignalDeliver)];
/// What could show that an exit was not clean: a signal, an OOM kill of another process, or the exit of a program below the main process.
pub(super) const CLEAN: &[Ask] = &[
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::OomVictim),
    Ask::Each(Kind::ProcessExit),
];
/// The same where nobody asked.
pub(super) const COMPLETED: &[Ask] = &[
    Ask::NoStop,
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::OomVictim),
    Ask::Each(Kind::ProcessExit),
];
/// The same of a main process that sent its stop signal on.
pub(super) const CLEAN_INSIDE: &[Ask] = &[
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::SignalDeliver),
    Ask::Each(Kind::ProcessExit),
    Ask::Each(Kind::OomVictim),
];
/// The same where the default action ended another process: with connections it would be a program.
pub(super) const CLEAN_OF_HELPERS: &[Ask] = &[
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::SignalDeliver),
    Ask::Each(Kind::ProcessExit),
    Ask::Each(Kind::OomVictim),
    Ask::Each(Kind::Tcp),
];
/// The same, and no OOM kill of another process: what an exit with an error rests on, which that goes before.
pub(super) fn nor_oom(rests: &'static [Ask]) -> &'static [Ask] {
    match rests {
        NO_SIGNAL => NO_SIGNAL_NOR_OOM,
        NO_SIGNAL_NOR_STOP => NO_SIGNAL_NOR_OOM_NOR_STOP,
        NO_SIGNAL_TO_ANY => NO_SIGNAL_TO_ANY_NOR_OOM,
        INSIDE => CLEAN_INSIDE,
        REFLEX => CLEAN_OF_HELPERS,
        rests => rests,
    }
}

/// What the way of a stop signal inside rests on.
pub(super) const INSIDE: &[Ask] = &[
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::SignalDeliver),
    Ask::Each(Kind::ProcessExit),
];
pub(super) const INSIDE_NOR_STOP: &[Ask] = &[
    Ask::NoStop,
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::SignalDeliver),
    Ask::Each(Kind::ProcessExit),
    Ask::Each(Kind::OomVictim),
];
/// The same where the default action ended another process.
pub(super) const HELPERS_NOR_STOP: &[Ask] = &[
    Ask::NoStop,
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::SignalDeliver),
    Ask::Each(Kind::ProcessExit),
    Ask::Each(Kind::OomVictim),
    Ask::Each(Kind::Tcp),
];
/// What could show that a reflex was none.
pub(super) const REFLEX: &[Ask] = &[
    Ask::Each(Kind::SignalGenerate),
    Ask::Each(Kind::SignalDeliver),
    Ask::Each(Kind::ProcessExit),
    Ask::Each(Kind::Tcp),
];

impl Ask {
    pub fn kind(self) -> Option<Kind> {
        match self {
            Ask::Main(kind) | Ask::Each(kind) => Some(kind),
            Ask::NoStop => None,
        }
    }

    pub fn is_of(self, hole: &Hole) -> bool {
        self.kind().is_some_and(|kind| hole.is_of(kind))
    }
}
