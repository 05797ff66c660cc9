//! For a process that the shutdown of its node cut.

use super::asked::{Asked, Remedy};
use crate::verdict::judge::{self, Why};
use crate::verdict::sentence::settings::Managed;

pub const CUT: &[Remedy] = &[
    Remedy {
        name: "raise-the-shutdown-grace-period",
        helps_if: "The kubelet's shutdown grace period ended before the pod's own grace period had ended.",
        holds: |of| *of.why() == Why::CutByShutdown && judge::own_grace(of.case).is_some(),
        words: |of| {
            let (had, own) = judge::own_grace(of.case)?;
            Some(format!(
                "raise the kubelet's shutdown grace period by at least {} s, or lower terminationGracePeriodSeconds to what the shutdown of the \
                 process needs",
                own.saturating_sub(had).as_secs().max(1)
            ))
        },
    },
    Remedy {
        name: "more-time-at-the-shutdown",
        helps_if: "The shutdown of the node ended a container of a pod, and the pod's own grace period is not known.",
        holds: |of| is_cut(of, Managed::Pod),
        words: |of| Some(of.row()),
    },
    Remedy {
        name: "stop-before-the-shutdown",
        helps_if: "The shutdown of the node ended a container without a pod, and nothing had stopped this container before.",
        holds: |of| is_cut(of, Managed::Container),
        words: |_| {
            Some(
                "stop the container before the shutdown of the node stops everything: by a unit with a stop command (`ExecStop=`) and \
                 enough time for it (`TimeoutStopSec=`); or shorten the shutdown of the process"
                    .to_owned(),
            )
        },
    },
    Remedy {
        name: "raise-timeout-stop-sec-at-the-shutdown",
        helps_if: "The shutdown of the node ended a systemd unit, because the unit's own shutdown took longer than systemd waits.",
        holds: |of| is_cut(of, Managed::Unit),
        words: |_| Some("raise `TimeoutStopSec=` of the unit, or shorten the shutdown of the process".to_owned()),
    },
];

fn is_cut(of: &Asked<'_>, managed: Managed) -> bool {
    matches!(of.why(), Why::CutByShutdown | Why::RanAtShutdown) && Managed::of(of.case) == managed
}
