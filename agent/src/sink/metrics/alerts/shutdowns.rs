//! The alert about shutdowns that a node's pods did not survive in order, and its runbook.

use epitaph_core::verdict::node::table::{Row, TABLE};

use super::pages::Page;
use super::{KEPT, RECENT, Rule, Rules, rule, severity};
use crate::sink::metrics::table::NODE_SHUTDOWN_LAST;

/// One for each unclean verdict, of its severity: the chart's values change or disable each by its name.
pub(super) fn unclean(of: &Rules) -> impl Iterator<Item = Rule> {
    TABLE.iter().filter(|row| row.unclean).map(|row| one(of, row))
}

fn one(of: &Rules, row: &Row) -> Rule {
    let last = format!(
        "{}{{unclean=\"true\",verdict=\"{}\"}}",
        NODE_SHUTDOWN_LAST.prometheus(),
        row.headline
    );
    let seconds = of.seconds(RECENT);
    let by = "max by (cluster, instance, verdict)";
    let cost = match row.headline {
        "spoofed" => "",
        _ => " Pods of the node had less time to terminate than their grace period, or none.",
    };
    Rule {
        // A shutdown is mostly reported by the next boot, which may come long after it: then the series is new, and its time is not.
        expr: format!(
            "time() - {by} (\n  {last}\n) < {seconds}\nor\n{by} (\n  {last}\n  unless\n  {last} offset {seconds}s\n)"
        ),
        kept: of.seconds(KEPT),
        severity: severity(row.severity),
        verdict: Some(row.headline),
        ..rule(
            "EpitaphNodeShutdownUnclean",
            format!("The node of {{{{ $labels.instance }}}}: shutdown verdict {}", row.headline),
            format!(
                "{}{cost} {} `epitaph why NODE` in the agent's pod \
                 of that node, or the trace `node.shutdown {}`, has the sentence, the pods and the evidence.",
                row.meaning, row.remedy, row.headline
            ),
        )
    }
}

pub(super) const PAGES: [Page; 1] = [Page {
    alert: "EpitaphNodeShutdownUnclean",
    means: "A node shut down or lost power before its pods had their full grace period, or a forged announcement made the kubelet \
            terminate the node's pods. The kubelet's graceful node shutdown did not protect the pods. The verdict names the reason: \
            `unannounced` (power loss, reset, `reboot -f`), `bypassed` (systemd did not ask logind), \
            `unprotected` (the kubelet held no lock), `truncated` (the time was too short, or power was lost during the shutdown), `spoofed` (the announcement was forged).",
    proves: "The trace `node.shutdown VERDICT` of service `epitaph`, with logind's delay, each lock, the kubelet's phases and links to the \
             pods; `epitaph list` and `epitaph why NODE` in the agent's pod of that node show the same from the agent's journal.",
    to_do: &[
        "Run `epitaph why NODE` on a host, or in the agent's pod of that node (docs/install.md, *Look back in the image*): the sentence \
         names what was missing, and the remedy names what to change.",
        "`truncated`, `unprotected`: run `epitaph doctor --only shutdown` as root on the node itself, before the next shutdown.",
        "`bypassed`: see `docs/shutdowns.md` for the commands that go through logind on this systemd; drain the node before you use any other command.",
        "`unannounced`: read the end of the previous boot's log (`journalctl -b -1 -e`), and the log of the machine's provider.",
        "`spoofed`: find the process that the sentence names. Restart the kubelet, because it takes its lock only when it starts.",
    ],
    silence: "By `instance` while a node is being repaired. On a machine without a kubelet no pod is affected by `bypassed`: silence the \
              alert by verdict. The chart's values `prometheusRule.severities` and `.disabled` accept these verdicts, such as \
              `{unannounced: warning}` where \
              machines disappear by design.",
}];
