//! What the journal reports of itself: its counters, and why it is in memory only or late.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::files::RefusedError;
use crate::error::{HasRemedy, Remedy};

/// Why the journal does not hold what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Slow,
    Full,
    ReadOnly,
    /// Nothing is there to create the directory in, or the directory was removed.
    Missing,
    /// The agent may not use the directory.
    Refused,
    Failing,
}

impl Trouble {
    pub const ALL: [Trouble; 6] = [
        Trouble::Slow,
        Trouble::Full,
        Trouble::ReadOnly,
        Trouble::Missing,
        Trouble::Refused,
        Trouble::Failing,
    ];

    /// On `/readyz`, on metrics and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Trouble::Slow => "slow",
            Trouble::Full => "full",
            Trouble::ReadOnly => "read_only",
            Trouble::Missing => "missing",
            Trouble::Refused => "refused",
            Trouble::Failing => "failing",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Trouble::Slow => "put `journal.directory` on a faster disk",
            Trouble::Full => "free space on the disk of `journal.directory`, or lower `journal.max_bytes`",
            Trouble::ReadOnly => {
                "mount the file system of `journal.directory` writable; where the agent is a systemd unit, allow the directory there \
                 (`ReadWritePaths=`)"
            }
            Trouble::Missing => {
                "create the parent of `journal.directory`, on a disk; if the directory was removed while the agent ran, restart the agent"
            }
            Trouble::Refused => "let the agent's user create files in `journal.directory`, or give a directory of that user",
            Trouble::Failing => "check the disk of `journal.directory` (`dmesg`)",
        }
    }

    /// A slow disk still takes what is written, late.
    pub fn is_memory_only(self) -> bool {
        self != Trouble::Slow
    }

    fn of(error: &io::Error) -> Trouble {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Trouble::Full,
            ErrorKind::ReadOnlyFilesystem => Trouble::ReadOnly,
            ErrorKind::NotFound | ErrorKind::NotADirectory => Trouble::Missing,
            ErrorKind::PermissionDenied => Trouble::Refused,
            _ if refusal(error).is_some() => Trouble::Refused,
            _ => Trouble::Failing,
        }
    }
}

/// The directory was not taken, on a later attempt.
fn refusal(error: &io::Error) -> Option<&RefusedError> {
    error.get_ref()?.downcast_ref()
}

/// The journal is in memory only or written late, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Troubled {
    pub kind: Trouble,
    /// What failed.
    pub error: String,
    pub remedy: Remedy,
}

impl Troubled {
    pub(super) fn slow(error: String) -> Troubled {
        Troubled {
            kind: Trouble::Slow,
            error,
            remedy: Trouble::Slow.remedy().into(),
        }
    }

    pub(super) fn of(error: &io::Error) -> Troubled {
        let kind = Trouble::of(error);
        Troubled {
            kind,
            error: error.to_string(),
            remedy: refusal(error)
                .and_then(HasRemedy::remedy)
                .unwrap_or_else(|| kind.remedy().into()),
        }
    }
}

/// Why a frame is not in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalDropReason {
    /// The thread did not keep up.
    QueueFull,
    /// The disk is in trouble.
    Disk,
    /// Longer than a frame.
    TooLong,
    /// Finished reports: the disk was in trouble, and they were too many to be held in memory until it works again.
    Report,
}

impl JournalDropReason {
    pub const ALL: [JournalDropReason; 4] = [
        JournalDropReason::QueueFull,
        JournalDropReason::Disk,
        JournalDropReason::TooLong,
        JournalDropReason::Report,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            JournalDropReason::QueueFull => "queue_full",
            JournalDropReason::Disk => "disk",
            JournalDropReason::TooLong => "too_long",
            JournalDropReason::Report => "report",
        }
    }
}

/// Counters since the start, and the state.
#[derive(Debug, Default)]
pub struct JournalStats {
    pub(super) frames: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
    dropped: [AtomicU64; JournalDropReason::ALL.len()],
    pub(super) removed_segments: AtomicU64,
    pub(super) size: AtomicU64,
    /// Never held during a call of the disk.
    trouble: Mutex<Option<Troubled>>,
    /// Segments before this one are removed.
    pub(super) oldest: AtomicU64,
}

impl JournalStats {
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
    pub fn dropped(&self, reason: JournalDropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }
    /// Segments that were removed because the directory was full.
    pub fn removed_segments(&self) -> u64 {
        self.removed_segments.load(Ordering::Relaxed)
    }
    /// Bytes on the disk.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }
    /// None: what is written is held.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble_lock().as_ref().map(|trouble| trouble.kind)
    }
    /// Nothing of what is written reaches the disk.
    pub fn is_memory_only(&self) -> bool {
        self.trouble().is_some_and(Trouble::is_memory_only)
    }
    /// The same, with its cause and what to do.
    pub fn troubled(&self) -> Option<Troubled> {
        self.trouble_lock().clone()
    }
    /// Whether a frame's segment is still there.
    pub(super) fn has(&self, segment: u64) -> bool {
        segment >= self.oldest.load(Ordering::Relaxed)
    }

    pub(super) fn trouble_lock(&self) -> MutexGuard<'_, Option<Troubled>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count_dropped(&self, reason: JournalDropReason, count: u64) {
        self.dropped[reason as usize].fetch_add(count, Ordering::Relaxed);
    }
}
