//! The forecast of `kubectl epitaph rollout`, held to account: each Deployment is rolled twice under the same load, and what the clients lose in
//! the second rollout is compared with what was forecast after the first.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use anyhow::Context as _;
use epitaph_core::render::resource::EpitaphReport;
use epitaph_core::rollout::{Forecast, KnownRevision, Outlook, costs, replaced};
use epitaph_core::time::Wall;
use serde_json::Value;

use super::{Rollout, SERVERS, SLEEPS, clients};
use crate::cluster::play::{Stage, text, until};
use crate::cluster::stories::NAMESPACE;

/// Rows that may be wrong: the interval is for 19 of 20 rollouts of an idle cluster.
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
    fn is_inside(&self) -> bool {
        match self.today {
            Outlook::Between { least, most } => (least..=most).contains(&self.lost),
            Outlook::Unknown { .. } => false,
        }
    }
}

impl Display for Compared {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = if self.is_inside() { "ok " } else { "BAD" };
        write!(
            f,
            "{sign} {:32} forecast {:?}, lost {}",
            self.rollout.to_string(),
            self.today,
            self.lost
        )
    }
}

/// # Errors
/// A rollout could not be played, or has no Epitaphs.
pub fn all(stage: &Stage) -> anyhow::Result<Vec<Compared>> {
    let every = SERVERS.iter().flat_map(|server| {
        SLEEPS.iter().map(move |&sleep| Rollout {
            server,
            sleep,
            late_proxy: false,
            placed: None,
        })
    });
    every
        .map(|rollout| {
            let row = stage.compared(rollout).with_context(|| format!("rollout {rollout}"))?;
            eprintln!("{row}");
            Ok(row)
        })
        .collect()
}

/// What the rows of [`all`] do not prove, a line each.
pub fn unproven(rows: &[Compared]) -> Vec<String> {
    let wrong: Vec<String> = rows.iter().filter(|row| !row.is_inside()).map(Compared::to_string).collect();
    if wrong.len() > WRONG { wrong } else { Vec::new() }
}

impl Stage {
    fn compared(&self, rollout: Rollout) -> anyhow::Result<Compared> {
        let name = format!("fore-{rollout}");
        let clients = clients(&name, rollout);
        self.deploy(&name, rollout)?;
        let old = self.uids(&name)?;
        self.round(&name, rollout)?;
        let today = self.forecast(&name, &old)?;
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

    /// As `kubectl epitaph rollout` computes it. `old`: UIDs of the pods that were replaced.
    fn forecast(&self, name: &str, old: &[String]) -> anyhow::Result<Outlook> {
        let all = until(super::TIMEOUT, "the Epitaphs of the old pods", || {
            let list = self
                .kubectl
                .json(&["--namespace", NAMESPACE, "get", "epitaphs", "-o", "json"])?;
            let all: Vec<EpitaphReport> = list["items"]
                .as_array()
                .context("a list of Epitaphs")?
                .iter()
                .filter_map(|object| serde_json::from_value(object["report"].clone()).ok())
                .filter(|report: &EpitaphReport| report.owner.as_ref().is_some_and(|owner| owner.name == name))
                .collect();
            let is_there = |uid: &String| all.iter().any(|report| report.pod.uid == *uid);
            Ok(old.iter().all(is_there).then_some(all))
        })?;
        let reports: Vec<&EpitaphReport> = all.iter().collect();
        let selector = format!("--selector=story={name}");
        let sets = self
            .kubectl
            .json(&["--namespace", NAMESPACE, "get", "replicasets", &selector, "-o", "json"])?;
        let sets = sets["items"].as_array().context("a list of ReplicaSets")?;
        let known: Vec<KnownRevision> = sets.iter().filter_map(known).collect();
        let by_number: BTreeMap<u64, &KnownRevision> = known.iter().map(|of| (of.number, of)).collect();
        let newest = *by_number.last_key_value().context("no revision")?.0;
        let cost = costs(&reports, &known)
            .into_iter()
            .find(|cost| cost.replaced_by == Some(newest))
            .context("no report of a replaced pod")?;
        let replaced = replaced(&reports, &known, cost.revision.context("its number")?);
        Ok(Forecast::of(&cost, &replaced, super::REPLICAS as u64).today)
    }
}

fn known(set: &Value) -> Option<KnownRevision> {
    let meta = &set["metadata"];
    Some(KnownRevision {
        number: meta["annotations"]["deployment.kubernetes.io/revision"]
            .as_str()?
            .parse()
            .ok()?,
        hash: text(&meta["labels"]["pod-template-hash"]),
        created: Wall::parse_rfc3339(meta["creationTimestamp"].as_str()?),
        ..KnownRevision::default()
    })
}
