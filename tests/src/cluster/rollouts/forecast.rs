//! The forecast of `kubectl epitaph rollout`, held to account: each Deployment is rolled twice under the same load, and what the clients lose in
//! the second rollout is compared with what was forecast after the first.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;

use super::{AT_ONCE, REPLICAS, Rollout, SLEEPS, clients, played};
use crate::cluster::kubectl::output;
use crate::cluster::play::{Stage, until};
use crate::cluster::stories::NAMESPACE;

/// As the plugin prints it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Outlook {
    Between { least: u64, most: u64 },
    Unknown { reason: String },
}

impl Display for Outlook {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Outlook::Between { least, most } => write!(f, "{least} to {most}"),
            Outlook::Unknown { reason } => write!(f, "none ({reason})"),
        }
    }
}

/// What the plugin prints of the next rollout.
struct Known {
    today: Outlook,
    with_settings: Option<Outlook>,
    /// The patch to paste.
    settings: Option<String>,
}

/// Forecasts of all of [`super::SERVERS`] that may be wrong: the interval is for 19 of 20 rollouts of an idle cluster.
const WRONG: usize = 1;

/// A forecast, and what came.
#[derive(Clone, Debug)]
struct Held {
    outlook: Outlook,
    /// By the clients' log.
    lost: u64,
}

impl Held {
    /// Also of an interval that promises something.
    fn is_inside(&self) -> bool {
        match self.outlook {
            Outlook::Between { least, most } => (least..=most).contains(&self.lost) && most <= 3 * least + 5,
            Outlook::Unknown { .. } => false,
        }
    }
}

impl Display for Held {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = if self.is_inside() { "" } else { " (BAD)" };
        write!(f, "forecast {}, lost {}{sign}", self.outlook, self.lost)
    }
}

/// The forecasts after one rollout, and what came.
#[derive(Clone, Debug)]
pub struct Compared {
    rollout: Rollout,
    /// The next rollout.
    today: Held,
    /// A rollout of pods with the advised settings, where there are some and their effect is known.
    with_settings: Option<Held>,
}

impl Display for Compared {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:32} {}", self.rollout.to_string(), self.today)?;
        match &self.with_settings {
            Some(held) => write!(f, "; with the advised settings {held}"),
            None => Ok(()),
        }
    }
}

/// A forecast with each of the preStop hooks, and what the next rollout then cost. `plugin`: the program `kubectl-epitaph`.
///
/// # Errors
/// A rollout could not be played, or the plugin knows no forecast of it.
pub fn of_server(stage: &Stage, server: &'static str, plugin: &Path) -> anyhow::Result<Vec<Compared>> {
    let every = SLEEPS.map(|sleep| Rollout {
        server,
        sleep,
        late_proxy: false,
        placed: None,
    });
    let rows = played(every.into(), AT_ONCE, |rollout| stage.compared(rollout, plugin));
    rows.into_iter().collect()
}

/// What the rows of several servers do not prove, a line each: those of one server alone may have all of the wrong ones.
pub fn unproven(rows: &[Compared]) -> Vec<String> {
    let wrong = |of: fn(&Compared) -> Option<&Held>| {
        let wrong = rows.iter().filter(|row| of(row).is_some_and(|held| !held.is_inside()));
        let wrong: Vec<String> = wrong.map(Compared::to_string).collect();
        if wrong.len() > WRONG { wrong } else { Vec::new() }
    };
    let mut all = wrong(|row| Some(&row.today));
    all.extend(wrong(|row| row.with_settings.as_ref()));
    all
}

impl Stage {
    fn compared(&self, rollout: Rollout, plugin: &Path) -> anyhow::Result<Compared> {
        let name = format!("fore-{rollout}");
        let clients = clients(&name, rollout);
        self.deploy(&name, rollout)?;
        self.round(&name, rollout)?;
        let forecast = self.forecast(&name, plugin)?;
        let next = |outlook: Outlook| -> anyhow::Result<Held> {
            for (client, _) in &clients {
                let args = ["delete", "pod", client, "--namespace", NAMESPACE, "--grace-period=1"];
                self.kubectl.run(&args)?;
            }
            let lost = self.round(&name, rollout)?.clients.iter().sum();
            Ok(Held { outlook, lost })
        };
        let today = next(forecast.today)?;
        let with_settings = match (forecast.with_settings, forecast.settings) {
            (Some(outlook @ Outlook::Between { .. }), Some(patch)) => {
                self.change(&name, &patch)?;
                Some(next(outlook)?)
            }
            _ => None,
        };
        self.remove(&name, &clients)?;
        Ok(Compared {
            rollout,
            today,
            with_settings,
        })
    }

    /// Applies a patch, and waits until all pods have its settings.
    fn change(&self, name: &str, patch: &str) -> anyhow::Result<()> {
        let before = self.uids(name)?;
        let here = |args: &[&str]| self.kubectl.run(&[&["--namespace", NAMESPACE], args].concat());
        let workload = format!("deployment/{name}");
        here(&["patch", &workload, "--patch", patch])?;
        here(&["rollout", "status", &workload, "--timeout=900s"])?;
        until(super::TIMEOUT, "the pods without the settings to be gone", || {
            let now = self.uids(name)?;
            Ok((!before.iter().any(|uid| now.contains(uid))).then_some(()))
        })
    }

    /// What `kubectl epitaph rollout` answers, once it counts every pod that was replaced.
    fn forecast(&self, name: &str, plugin: &Path) -> anyhow::Result<Known> {
        let admin = self.cluster.control_plane()?.admin();
        let workload = format!("deployment/{name}");
        let rollout = until(super::TIMEOUT, "a report of each replaced pod", || {
            let mut command = Command::new(plugin);
            command
                .args(["--namespace", NAMESPACE, "rollout", &workload, "--output", "json"])
                .env("KUBECONFIG", &admin);
            let answer = output(command, "kubectl epitaph rollout", "")?;
            let rollout: Value =
                serde_json::from_str(&answer).with_context(|| format!("kubectl epitaph rollout: not JSON: {answer}"))?;
            let pods = rollout["cost"]["pods"].as_u64().unwrap_or(0);
            Ok((pods >= REPLICAS as u64).then_some(rollout))
        })?;
        let outlook = |of: &str| {
            let outlook = rollout["forecast"][of].clone();
            serde_json::from_value(outlook).with_context(|| format!("no forecast `{of}`: {rollout}"))
        };
        let has_settings = !rollout["forecast"]["withSettings"].is_null();
        Ok(Known {
            today: outlook("today")?,
            with_settings: has_settings.then(|| outlook("withSettings")).transpose()?,
            settings: rollout["settings"][0]["text"].as_str().map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::rollouts::Sleep;

    fn row(today: Outlook, lost: u64) -> Compared {
        Compared {
            rollout: Rollout {
                server: "abrupt",
                sleep: Sleep::None,
                late_proxy: false,
                placed: None,
            },
            today: Held { outlook: today, lost },
            with_settings: None,
        }
    }

    fn between(least: u64, most: u64) -> Outlook {
        Outlook::Between { least, most }
    }

    #[test]
    fn a_forecast_that_is_missed_unknown_or_of_anything_does_not_count() {
        let none = || Outlook::Unknown {
            reason: "too few".to_owned(),
        };
        let good = || row(between(10, 35), 12);
        let is_inside = |row: &Compared| row.today.is_inside();
        assert!(is_inside(&good()) && is_inside(&row(between(0, 5), 0)));
        let wrong = [
            row(between(10, 35), 9),
            row(between(10, 35), 36),
            row(between(10, 36), 12),
            row(none(), 0),
        ];
        assert!(!wrong.iter().any(is_inside), "{wrong:?}");
        let mut rows = vec![good(); 8];
        rows.push(wrong[0].clone());
        assert_eq!(unproven(&rows), [""; 0]);
        rows[0] = wrong[3].clone();
        assert_eq!(unproven(&rows).len(), 2, "{:?}", unproven(&rows));
        let mut cured = vec![good(); 9];
        for row in &mut cured[..2] {
            row.with_settings = Some(wrong[0].today.clone());
        }
        assert_eq!(unproven(&cured).len(), 2);
        assert_eq!(unproven(&cured[1..]), [""; 0]);
    }
}
