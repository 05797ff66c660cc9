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

/// Forecasts of all of [`super::SERVERS`] that may be wrong: the interval is for 19 of 20 rollouts of an idle cluster.
const WRONG: usize = 1;

/// A forecast, and what came.
#[derive(Clone, Debug)]
pub struct Compared {
    rollout: Rollout,
    today: Outlook,
    /// By the clients' log of the second rollout.
    lost: u64,
}

impl Compared {
    /// Also of an interval that promises something.
    fn is_inside(&self) -> bool {
        match self.today {
            Outlook::Between { least, most } => (least..=most).contains(&self.lost) && most <= 3 * least + 5,
            Outlook::Unknown { .. } => false,
        }
    }
}

impl Display for Compared {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = if self.is_inside() { "ok " } else { "BAD" };
        write!(
            f,
            "{sign} {:32} forecast {}, lost {}",
            self.rollout.to_string(),
            self.today,
            self.lost
        )
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
    let wrong: Vec<String> = rows.iter().filter(|row| !row.is_inside()).map(Compared::to_string).collect();
    if wrong.len() > WRONG { wrong } else { Vec::new() }
}

impl Stage {
    fn compared(&self, rollout: Rollout, plugin: &Path) -> anyhow::Result<Compared> {
        let name = format!("fore-{rollout}");
        let clients = clients(&name, rollout);
        self.deploy(&name, rollout)?;
        self.round(&name, rollout)?;
        let today = self.forecast(&name, plugin)?;
        for (client, _) in &clients {
            let args = ["delete", "pod", client, "--namespace", NAMESPACE, "--grace-period=1"];
            self.kubectl.run(&args)?;
        }
        let row = self.round(&name, rollout)?;
        self.remove(&name, &clients)?;
        Ok(Compared {
            rollout,
            today,
            lost: row.clients.iter().sum(),
        })
    }

    /// What `kubectl epitaph rollout` answers, once it counts every pod that was replaced.
    fn forecast(&self, name: &str, plugin: &Path) -> anyhow::Result<Outlook> {
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
        let today = rollout["forecast"]["today"].clone();
        serde_json::from_value(today).with_context(|| format!("no forecast: {rollout}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::rollouts::Sleep;

    fn row(today: Outlook, lost: u64) -> Compared {
        let rollout = Rollout {
            server: "abrupt",
            sleep: Sleep::None,
            late_proxy: false,
            placed: None,
        };
        Compared { rollout, today, lost }
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
        assert!(good().is_inside() && row(between(0, 5), 0).is_inside());
        let wrong = [
            row(between(10, 35), 9),
            row(between(10, 35), 36),
            row(between(10, 36), 12),
            row(none(), 0),
        ];
        assert!(wrong.iter().all(|row| !row.is_inside()), "{wrong:?}");
        let mut rows = vec![good(); 8];
        rows.push(wrong[0].clone());
        assert_eq!(unproven(&rows), [""; 0]);
        rows[0] = wrong[3].clone();
        assert_eq!(unproven(&rows).len(), 2, "{:?}", unproven(&rows));
    }
}
