//! `epitaph explain tcp_send_reset`: what a probe shows, and what is not known without it.

use std::fmt::Write as _;

use epitaph_core::input::ProbeState;

use super::Width;
use crate::source::kernel::probes::{PROBES, Probe, RESET_FUNCTIONS};

/// None: no probe has the name.
pub(super) fn in_full(name: &str, width: Width) -> Option<String> {
    let probe = probe(name)?;
    let name = probe.tracepoint;
    let mut out = width.title(&format!("{name} (a probe: an eBPF program at this tracepoint of the kernel)"));
    for (title, text) in [
        ("What it shows", probe.shows),
        ("What is not known without it", probe.without),
    ] {
        let _ = write!(out, "\n{title}\n{}", width.paragraph(text, "  "));
    }
    let state = format!(
        "The first lines of `epitaph watch`, `/readyz` of the agent and the metric epitaph_probe_state{{probe=\"{name}\"}} show the probe's \
         state on a machine; `epitaph doctor` shows the reason and the remedy. docs/kernels.md has the state on each kernel."
    );
    let _ = write!(out, "\nWhether it is active\n{}", width.paragraph(&state, "  "));
    Some(out)
}

/// By the name of its tracepoint, as `/readyz`, metrics and evidence have it, or of a function that stands in for it.
fn probe(name: &str) -> Option<&'static Probe> {
    let name = name.trim().to_lowercase();
    let name = match RESET_FUNCTIONS.contains(&name.as_str()) {
        true => ProbeState::REFUSALS,
        false => name.as_str(),
    };
    PROBES.iter().find(|probe| probe.tracepoint == name)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::explain;
    use super::*;

    /// `/readyz`, `epitaph watch` and the alert EpitaphProbeNotActive name probes.
    #[test]
    fn a_probe_has_what_it_shows() {
        expect![[r#"
            inet_sk_error_report (a probe: an eBPF program at this tracepoint of the kernel)

            What it shows
              The error that a client on this machine got, such as ECONNREFUSED, also if
              the error came by ICMP.

            What is not known without it
              Connections that kube-proxy or a firewall rejected. On Linux 5.10, which
              lacks the tracepoint, inet_sock_set_state shows the error with which a
              connection closes.

            Whether it is active
              The first lines of `epitaph watch`, `/readyz` of the agent and the metric
              epitaph_probe_state{probe="inet_sk_error_report"} show the probe's state on
              a machine; `epitaph doctor` shows the reason and the remedy. docs/kernels.md
              has the state on each kernel.
        "#]]
        .assert_eq(&explain(&["inet_sk_error_report"], None).unwrap());
        for probe in PROBES {
            assert!(explain(&[probe.tracepoint], None).is_ok(), "{}", probe.tracepoint);
        }
        assert_eq!(explain(&["tcp_v6_send_reset"], None), explain(&["tcp_send_reset"], None));
        for lock in ["lock", "inhibitor", "delay-lock"] {
            assert!(explain(&[lock], None).unwrap().contains("unprotected"), "{lock}");
        }
    }
}
