//! The kubelet's configuration of graceful node shutdown: one file, the drop-ins merged over it, and what the kubelet itself refuses.
//! Pure: the files' bytes come as values.
//!
//! The merge is the kubelet's: a JSON merge patch (RFC 7386) of each drop-in, in the order of their paths. Only the keys below are read.

use std::time::Duration;

use epitaph_core::node::{KubeletShutdown, PriorityPeriod};
use serde_json::{Map, Value};

use super::period;
use crate::source::bounded;

const TOTAL: &str = "shutdownGracePeriod";
const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";
const GATES: &str = "featureGates";

/// Gates without which the kubelet manages no shutdown, or not by priority. Both are on by default, from Kubernetes 1.21 and 1.24.
const GATE: &str = "GracefulNodeShutdown";
const PRIORITY_GATE: &str = "GracefulNodeShutdownBasedOnPodPriority";

/// A longer period is taken for a mistake.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);
/// Most entries by priority.
const PRIORITIES: usize = 64;

/// The keys that matter, merged so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged(Map<String, Value>);

/// The merged configuration, typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    pub total: Duration,
    pub critical: Duration,
    /// Lowest priority first.
    pub by_priority: Vec<PriorityPeriod>,
    /// The gate is off: the periods are not used.
    pub is_off: bool,
    /// With this configuration the kubelet does not start.
    pub refused: Option<&'static str>,
}

/// Why a file is not a configuration of the kubelet; text for people, without the content of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("not YAML: {0}")]
    Yaml(String),
    #[error("not a KubeletConfiguration of kubelet.config.k8s.io/v1beta1")]
    Kind,
    #[error("`{key}` is {problem}")]
    Value { key: &'static str, problem: &'static str },
}

impl Merged {
    /// Merges the next file over what there is. `is_drop_in`: the kubelet refuses a drop-in without `kind` and `apiVersion`.
    ///
    /// # Errors
    /// The file is not a configuration; nothing is merged.
    pub fn merge(&mut self, bytes: &[u8], is_drop_in: bool) -> Result<(), Invalid> {
        let mut object = parse(bytes)?;
        let is = |key: &str, value: &str| object.get(key).and_then(Value::as_str) == Some(value);
        let is_kind = is("kind", "KubeletConfiguration") && is("apiVersion", "kubelet.config.k8s.io/v1beta1");
        let has_none = !object.contains_key("kind") && !object.contains_key("apiVersion");
        if !is_kind && (is_drop_in || !has_none) {
            return Err(Invalid::Kind);
        }
        for key in [TOTAL, CRITICAL, BY_PRIORITY, GATES] {
            match (object.remove(key), self.0.get_mut(key)) {
                (None, _) => {}
                (Some(Value::Null), _) => drop(self.0.remove(key)),
                (Some(Value::Object(new)), Some(Value::Object(old))) => {
                    for (key, value) in new {
                        match value {
                            Value::Null => drop(old.remove(&key)),
                            value => drop(old.insert(key, value)),
                        }
                    }
                }
                (Some(new), _) => drop(self.0.insert(key.to_owned(), new)),
            }
        }
        Ok(())
    }

    /// A flag `--feature-gates=A=true,B=false` over all files.
    pub fn set_gates(&mut self, flag: &str) {
        let gates = self.0.entry(GATES).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(gates) = gates {
            for (name, value) in flag.split(',').take(256).filter_map(|gate| gate.split_once('=')) {
                gates.insert(name.trim().to_owned(), Value::Bool(value.trim().eq_ignore_ascii_case("true")));
            }
        }
    }

    /// # Errors
    /// A value that the kubelet does not read, or that is taken for a mistake.
    pub fn shutdown(&self) -> Result<Shutdown, Invalid> {
        let mut found = Shutdown {
            total: self.period(TOTAL)?,
            critical: self.period(CRITICAL)?,
            by_priority: self.by_priority()?,
            is_off: self.gate(GATE) == Some(false),
            refused: None,
        };
        found.refused = found.refusal(self.gate(PRIORITY_GATE) == Some(false));
        Ok(found)
    }

    fn period(&self, key: &'static str) -> Result<Duration, Invalid> {
        let value = |problem| Invalid::Value { key, problem };
        match self.0.get(key) {
            None => Ok(Duration::ZERO),
            Some(Value::String(text)) => match period::parse(text) {
                Some(period) if period > LONGEST => Err(value("longer than a year")),
                Some(period) => Ok(period),
                None => Err(value("not a duration, such as 60s")),
            },
            Some(_) => Err(value("not text, such as 60s")),
        }
    }

    fn by_priority(&self) -> Result<Vec<PriorityPeriod>, Invalid> {
        let value = |problem| Invalid::Value {
            key: BY_PRIORITY,
            problem,
        };
        let list = match self.0.get(BY_PRIORITY) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(value("not a list")),
        };
        if list.len() > PRIORITIES {
            return Err(value("a list of more than 64 entries"));
        }
        let mut periods = Vec::new();
        for entry in list {
            let entry = entry.as_object().ok_or(value("not a list of objects"))?;
            let number = |key: &str| entry.get(key).map_or(Some(0), Value::as_i64);
            let priority = number("priority").and_then(|priority| i32::try_from(priority).ok());
            let seconds = number("shutdownGracePeriodSeconds").and_then(|seconds| u64::try_from(seconds).ok());
            let (Some(priority), Some(seconds)) = (priority, seconds) else {
                return Err(value("a list with a priority or a period that is not a number"));
            };
            let period = Duration::from_secs(seconds);
            if period > LONGEST {
                return Err(value("a list with a period longer than a year"));
            }
            periods.push(PriorityPeriod { priority, period });
        }
        periods.sort_by_key(|period| period.priority);
        Ok(periods)
    }

    fn gate(&self, name: &str) -> Option<bool> {
        self.0.get(GATES)?.get(name)?.as_bool()
    }
}

impl Shutdown {
    /// The kubelet's own validation at its start.
    fn refusal(&self, is_priority_off: bool) -> Option<&'static str> {
        let second = Duration::from_secs(1);
        let too_short = |period: Duration| !period.is_zero() && period < second;
        let has_periods = !self.total.is_zero() || !self.critical.is_zero();
        if self.is_off {
            return has_periods.then_some("the periods need the feature gate GracefulNodeShutdown");
        }
        if self.critical > self.total {
            Some("shutdownGracePeriodCriticalPods is longer than shutdownGracePeriod")
        } else if too_short(self.total) || too_short(self.critical) {
            Some("a period is shorter than a second")
        } else if has_periods && !self.by_priority.is_empty() && !is_priority_off {
            Some("both shutdownGracePeriod and shutdownGracePeriodByPodPriority are set")
        } else if is_priority_off && !self.by_priority.is_empty() {
            Some("shutdownGracePeriodByPodPriority needs the feature gate GracefulNodeShutdownBasedOnPodPriority")
        } else {
            None
        }
    }

    /// As the core has it. A gate that is off protects no pod.
    pub fn protection(&self, source: &str) -> KubeletShutdown {
        let mut shutdown = KubeletShutdown {
            source: bounded(source, 256),
            ..KubeletShutdown::default()
        };
        if !self.is_off {
            shutdown.total = self.total;
            shutdown.critical = self.critical;
            shutdown.by_priority.clone_from(&self.by_priority);
        }
        shutdown
    }
}

/// An object of YAML, of which JSON is a part. Bounded in events, depth and what aliases expand to.
fn parse(bytes: &[u8]) -> Result<Map<String, Value>, Invalid> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 60_000,
            max_nodes: 30_000,
            max_depth: 32,
            flow_nesting_limit: 32,
            max_aliases: 100,
            max_anchors: 100,
            max_recorded_anchor_events: 20_000,
            max_recorded_anchor_bytes: 1 << 20,
            max_documents: 2,
        },
        emit_comments: false,
        with_snippet: false,
        // The kubelet warns of a duplicate key, and takes the last.
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 16,
            max_alias_expansions_per_anchor: 100,
        },
    };
    let value: Value = serde_saphyr::from_slice_with_options(bytes, options).map_err(|error| Invalid::Yaml(reason(&error)))?;
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(Invalid::Kind),
    }
}

/// Where the parser stopped. Its own message can quote the file.
fn reason(error: &serde_saphyr::Error) -> String {
    match error.location() {
        Some(location) => format!("line {}, column {}", location.line(), location.column()),
        None => "at a line that is not known".to_owned(),
    }
}
