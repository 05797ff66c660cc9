//! The subjects that a loss concerns.

use std::sync::Arc;

use crate::attribute::Index;
use crate::ids::CgroupId;
use crate::input::LossScope;

/// The subjects that a loss concerns. By path, as it was when the loss was reported: the index forgets removed cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LossPlace {
    Anywhere,
    /// Around this cgroup of that hierarchy, and below it.
    Cgroup {
        hierarchy: u32,
        path: Arc<str>,
    },
}

impl LossPlace {
    /// None: no evidence of any subject. Anywhere, if nothing is known of the cgroup.
    pub fn of(scope: LossScope, index: &Index) -> Option<LossPlace> {
        let cgroup = match scope {
            LossScope::Machine | LossScope::NotRecorded | LossScope::Damaged => return Some(LossPlace::Anywhere),
            LossScope::Within(cgroup) | LossScope::Others(cgroup) => cgroup,
            LossScope::ConnectsTo(_) => return None,
        };
        Some(match index.exact_path(cgroup) {
            Some(path) => LossPlace::Cgroup {
                hierarchy: cgroup.hierarchy,
                path: Arc::clone(path),
            },
            None => LossPlace::Anywhere,
        })
    }

    /// Whether the loss can have been evidence of that subject's end.
    pub(super) fn concerns(&self, home: Home<'_>) -> bool {
        match (self, home.path) {
            (LossPlace::Anywhere, _) | (_, None) => true,
            (LossPlace::Cgroup { hierarchy, path }, Some(own)) => {
                *hierarchy != home.hierarchy || is_below(path, own) || is_below(own, path)
            }
        }
    }

    /// Whether what was lost is of the subject's own processes.
    pub(super) fn is_in(&self, home: Home<'_>) -> bool {
        match (self, home.path) {
            (LossPlace::Cgroup { hierarchy, path }, Some(own)) => *hierarchy == home.hierarchy && is_below(path, own),
            (LossPlace::Anywhere, _) | (_, None) => false,
        }
    }
}

/// Both are whole paths; the same one is below itself.
fn is_below(path: &str, above: &str) -> bool {
    let above = above.trim_end_matches('/');
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A subject's own cgroup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home<'a> {
    pub(super) hierarchy: u32,
    /// None: not known any more.
    pub(super) path: Option<&'a str>,
}

impl<'a> Home<'a> {
    pub fn of(own: CgroupId, index: &'a Index) -> Home<'a> {
        Home {
            hierarchy: own.hierarchy,
            path: index.exact_path(own).map(|path| &**path),
        }
    }
}
