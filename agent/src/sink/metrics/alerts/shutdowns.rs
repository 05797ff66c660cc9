//! The alert about shutdowns that a node's pods did not survive in order, and its runbook.

use super::pages::Page;
use super::{KEPT, RECENT, Rule, Rules, rule};
use crate::sink::metrics::table::NODE_SHUTDOWN_LAST;

pub(super) fn unclean(of: &Rules) -> Rule {
    let last = format!("{}{{unclean=\"true\"}}", NODE_SHUTDOWN_LAST.prometheus());
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
            "Pods of the node had less time to terminate than their grace period, or none. `epitaph explain \
             {{ $labels.verdict }}` has the meaning and the remedy; `epitaph why NODE` in the agent's pod of that node, or the trace `node.shutdown \
             {{ $labels.verdict }}`, has the sentence, the pods and the evidence."
                .into(),
        )
    }
}

pub(super) const PAGES: [Page; 1] = [Page {
    alert: "EpitaphNodeShutdownUnclean",
    means: "A node shut down or lost power, or a forged announcement made the kubelet terminate its pods. The kubelet's graceful node \
            shutdown did not protect the pods. The verdict has the reason: `unannounced` (power loss, reset, `reboot -f`), `bypassed` (systemd did not ask logind), \
            `unprotected` (the kubelet held no lock), `truncated` (the time was too short, or power was lost during the shutdown), `spoofed` (the announcement was forged).",
    proves: "The trace `node.shutdown VERDICT` of service `epitaph`, with logind's delay, each lock, the kubelet's phases and links to the \
             pods; `epitaph list` and `epitaph why NODE` in the agent's pod of that node show the same from the agent's journal.",
    to_do: &[
        "`epitaph why NODE`, on a host, or in the agent's pod of that node (docs/install.md, *Look back in the image*): the sentence names what was missing, the remedy what to change.",
        "`truncated`, `unprotected`: `epitaph doctor --only shutdown`, as root on the node itself, before the next shutdown.",
        "`bypassed`: see `docs/shutdowns.md` for the commands that go through logind on this systemd; drain the node before you use any other command.",
        "`unannounced`: the end of the previous boot's log (`journalctl -b -1 -e`), and the log of the machine's provider.",
        "`spoofed`: find the process that the sentence names. Restart the kubelet: it takes its lock only at its start.",
    ],
    silence: "By `instance` while a node is being repaired. On a machine without a kubelet no pod is affected by `bypassed`: silence it by verdict.",
}];
