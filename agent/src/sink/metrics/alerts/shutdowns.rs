//! The alert about shutdowns that a node's pods did not survive in order, and its runbook.

use epitaph_core::verdict::node::table::TABLE;

use super::pages::Page;
use super::{KEPT, RECENT, Rule, Rules, rule};
use crate::sink::metrics::table::NODE_SHUTDOWN_LAST;

pub(super) fn unclean(of: &Rules) -> Rule {
    let verdicts: Vec<&str> = TABLE.iter().filter(|row| row.unclean).map(|row| row.headline).collect();
    let last = format!("{}{{verdict=~\"{}\"}}", NODE_SHUTDOWN_LAST.prometheus(), verdicts.join("|"));
    let seconds = of.seconds(RECENT);
    let by = "max by (cluster, instance, verdict)";
    Rule {
        // A shutdown is mostly reported by the next boot, which may come long after it: then the series is new, and its time is not.
        expr: format!(
            "time() - {by} (\n  {last}\n) < {seconds}\nor\n{by} (\n  {last}\n  unless\n  {last} offset {seconds}s\n)"
        ),
        kept: of.seconds(KEPT),
        severity: "warning",
        ..rule(
            "EpitaphNodeShutdownUnclean",
            "A shutdown of the node of {{ $labels.instance }} was {{ $labels.verdict }}".into(),
            "Pods of the node had less time to terminate than they are granted, or none at all. `epitaph explain \
             {{ $labels.verdict }}` has the meaning and the remedy; `epitaph why NODE` in the agent's pod of that node, or the trace `node.shutdown \
             {{ $labels.verdict }}`, has the sentence, the pods and the evidence."
                .into(),
        )
    }
}

pub(super) const PAGES: [Page; 1] = [Page {
    alert: "EpitaphNodeShutdownUnclean",
    means: "A node went down, or pods on it were terminated as if it did, and the graceful node shutdown of the kubelet did not protect the \
            pods. The verdict says how: `unannounced` (power loss, reset, `reboot -f`), `bypassed` (systemd did not ask logind), \
            `unprotected` (the kubelet held no lock), `truncated` (the time was too short, or power was lost within it), `spoofed` (the announcement was forged).",
    proves: "The trace `node.shutdown VERDICT` of service `epitaph`, with logind's delay, each lock, the kubelet's phases and links to the \
             pods; `epitaph list` and `epitaph why NODE` in the agent's pod of that node show the same from the agent's journal.",
    to_do: &[
        "`epitaph why NODE`, on a host, or in the agent's pod of that node (docs/install.md, *Look back in the image*): the sentence names what was missing, the remedy what to change.",
        "`truncated`, `unprotected`: `epitaph doctor --only shutdown`, as root on the node itself, before the next shutdown.",
        "`bypassed`: see `docs/shutdowns.md` for the commands that go through logind on this systemd; drain the node before you use any other command.",
        "`unannounced`: the end of the previous boot's log (`journalctl -b -1 -e`), and the log of the machine's provider.",
        "`spoofed`: find the process that the sentence names. Restart the kubelet: it does not take its lock again by itself.",
    ],
    silence: "By `instance` while a node is being repaired. On a machine without a kubelet `bypassed` costs nothing: silence it by verdict.",
}];
