//! Settings of `epitaph observer` only.

use std::time::Duration;

use epitaph_core::observe;
use epitaph_core::observe::election::Timing;
use epitaph_core::observe::kept::KeepLimits;
use epitaph_core::rollout::SETTLE;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ObserverSettings {
    /// Be active only while holding the Lease.
    pub election: bool,
    /// The Lease's name.
    pub lease: String,
    /// The Lease's namespace; None: that of the ServiceAccount, or of the kubeconfig's context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(with = "epitaph_core::duration")]
    pub lease_duration: Duration,
    #[serde(with = "epitaph_core::duration")]
    pub renew_deadline: Duration,
    #[serde(with = "epitaph_core::duration")]
    pub retry_period: Duration,
    /// Most pods of the cluster in memory.
    pub pods: usize,
    /// Most endpoints in memory, one per Service and pod.
    pub endpoints: usize,
    /// Report lost nodes: watch nodes and VolumeAttachments, too.
    pub lost_nodes: bool,
    /// After how long a held pod is reported as stuck.
    #[serde(with = "epitaph_core::duration")]
    pub stuck_after: Duration,
    /// How long an Epitaph of an unclean termination is kept, and one of a clean termination.
    #[serde(with = "epitaph_core::duration")]
    pub epitaphs_unclean: Duration,
    #[serde(with = "epitaph_core::duration")]
    pub epitaphs_clean: Duration,
    /// Most Epitaphs of a namespace, and of the cluster.
    pub epitaphs_per_namespace: usize,
    pub epitaphs: usize,
    /// How long no old pod exists before a rollout has settled.
    #[serde(with = "epitaph_core::duration")]
    pub rollout_settle: Duration,
}

impl Default for ObserverSettings {
    fn default() -> Self {
        let Timing {
            lease,
            renew_deadline,
            retry,
        } = Timing::default();
        let observe::ObserverLimits {
            pods,
            endpoints,
            stuck_after,
            ..
        } = observe::ObserverLimits::default();
        let KeepLimits {
            unclean,
            clean,
            per_namespace,
            cluster,
        } = KeepLimits::default();
        ObserverSettings {
            epitaphs_unclean: unclean,
            epitaphs_clean: clean,
            epitaphs_per_namespace: per_namespace,
            epitaphs: cluster,
            election: true,
            lease: "epitaph-observer".to_owned(),
            namespace: None,
            lease_duration: lease,
            renew_deadline,
            retry_period: retry,
            pods,
            endpoints,
            lost_nodes: true,
            stuck_after,
            rollout_settle: SETTLE,
        }
    }
}

impl ObserverSettings {
    pub fn timing(&self) -> Timing {
        Timing {
            lease: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry: self.retry_period,
        }
    }

    pub fn limits(&self) -> observe::ObserverLimits {
        observe::ObserverLimits {
            pods: self.pods,
            endpoints: self.endpoints,
            stuck_after: self.stuck_after,
            ..observe::ObserverLimits::default()
        }
    }

    pub fn kept(&self) -> KeepLimits {
        KeepLimits {
            unclean: self.epitaphs_unclean,
            clean: self.epitaphs_clean,
            per_namespace: self.epitaphs_per_namespace,
            cluster: self.epitaphs,
        }
    }

    /// The key with a wrong value, and the problem.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let Timing {
            lease,
            renew_deadline,
            retry,
        } = self.timing();
        if lease.subsec_nanos() != 0 || lease.as_secs() > 3600 {
            return Some((
                "observer.lease_duration",
                "must be whole seconds, as a Lease has them, up to an hour",
            ));
        }
        if renew_deadline >= lease {
            return Some(("observer.renew_deadline", "must be shorter than observer.lease_duration"));
        }
        if retry.is_zero() || retry * 2 > renew_deadline {
            return Some((
                "observer.retry_period",
                "must be more than zero, and at most half of observer.renew_deadline",
            ));
        }
        // Both values become part of a URL.
        let is_name = |name: &str| !name.is_empty() && name.len() <= 253 && name.bytes().all(is_name_byte);
        if !is_name(&self.lease) {
            return Some(("observer.lease", "must be a name of lower-case letters, digits, `-` and `.`"));
        }
        if !self.namespace.as_deref().is_none_or(is_name) {
            return Some(("observer.namespace", "must be a name of lower-case letters, digits and `-`"));
        }
        if self.pods == 0 {
            return Some(("observer.pods", "must be 1 or more"));
        }
        if self.endpoints == 0 {
            return Some(("observer.endpoints", "must be 1 or more"));
        }
        if self.stuck_after.is_zero() {
            return Some(("observer.stuck_after", "must be more than zero"));
        }
        None
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_gives_up_before_others_take_over() {
        let problem = |change: fn(&mut ObserverSettings)| {
            let mut config = ObserverSettings::default();
            change(&mut config);
            config.problem().map(|(key, _)| key)
        };
        assert_eq!(problem(|_| {}), None);
        assert_eq!(
            problem(|c| c.renew_deadline = c.lease_duration),
            Some("observer.renew_deadline")
        );
        assert_eq!(
            problem(|c| c.lease_duration = Duration::from_millis(15_500)),
            Some("observer.lease_duration")
        );
        assert_eq!(
            problem(|c| c.retry_period = Duration::from_secs(6)),
            Some("observer.retry_period")
        );
        assert_eq!(problem(|c| c.lease = "../pods".to_owned()), Some("observer.lease"));
        assert_eq!(problem(|c| c.namespace = Some(String::new())), Some("observer.namespace"));
        assert_eq!(problem(|c| c.stuck_after = Duration::ZERO), Some("observer.stuck_after"));
    }
}
