//! What people type after a look at another tool, and what docs/faq.md names.

use super::*;

/// Each name of a word leads to that word, in any form of its letters: no verdict, cause, alert or probe hides the word.
#[test]
fn every_word_is_explained_under_each_of_its_names() {
    for Word { names, meaning, .. } in typed::words() {
        let expected = format!("{}\n{}", names.join(", "), wrap(meaning, 78, "  "));
        for name in *names {
            let forms = [(*name).to_owned(), name.to_lowercase(), format!("Reason: {name}")];
            // In small letters one is a verdict.
            for typed in forms.iter().filter(|typed| *typed != "unknown") {
                let shown = one(typed, Width(None)).unwrap_or_else(|unknown| panic!("{typed}: {unknown}"));
                assert!(shown.contains(&expected), "{typed}: {shown}");
            }
        }
    }
}

/// The words that people type first: how the answer begins, and the verdicts that it names first.
#[test]
fn the_first_lines_of_what_people_type() {
    const DELETED: [&str; 2] = ["killed-after-grace", "ignored-stop-signal"];
    for (typed, begin, first) in [
        ("drain", "Before a node goes, `kubectl drain` evicts its pods", DELETED),
        (
            "kubectl drain",
            "Before a node goes, `kubectl drain` evicts its pods",
            DELETED,
        ),
        ("cordon", "Before a node goes, `kubectl drain` evicts its pods", DELETED),
        ("eviction", "The kubelet evicted the pod because the node ran out of", DELETED),
        ("Evicted", "The kubelet evicted the pod because the node ran out of", DELETED),
        ("Preempted", "The pod gave way to a pod of higher priority", DELETED),
        (
            "ScaleDown",
            "Who removes the node of the pod, by an eviction or a deletion",
            DELETED,
        ),
        ("Killing", "An Event of the kubelet: it is about to stop a container", DELETED),
        (
            "grace period",
            "The time from the deletion request to SIGKILL.",
            ["killed-after-grace", "force-killed"],
        ),
        (
            "--grace-period",
            "The time from the deletion request to SIGKILL.",
            ["killed-after-grace", "force-killed"],
        ),
        (
            "out of memory",
            "The OOM killer killed a process of the container",
            ["oom-killed", "oom-child"],
        ),
        (
            "OOMKilled",
            "The OOM killer killed a process of the container",
            ["oom-killed", "oom-child"],
        ),
        (
            "earlyoom",
            "A daemon that kills processes before memory has run out",
            ["oom-killed", "oom-child"],
        ),
        (
            "exec-probe",
            "What the victim of an OOM kill was, in `role`",
            ["oom-child", "oom-killed"],
        ),
        (
            "Terminating",
            "Deletion was requested, and the pod still exists",
            ["ignored-stop-signal", "killed-after-grace"],
        ),
        (
            "FailedKillPod",
            "Events of a pod that is still Terminating",
            ["held-by-runtime", "held-by-sandbox"],
        ),
        (
            "RestartingAllContainers",
            "The pod restarted in place (Kubernetes 1.36)",
            ["clean", "killed-after-grace"],
        ),
        (
            "ContainerStatusUnknown",
            "The kubelet did not find the container any more",
            ["unknown", "runtime-failed"],
        ),
        (
            "stopSignal",
            "The signal by which a container is asked to stop",
            ["clean", "ignored-stop-signal"],
        ),
        (
            "NodeShutdown",
            "The kubelet stopped the pod",
            ["truncated-by-shutdown", "killed-after-grace"],
        ),
        ("reboot", "The node booted again.", ["graceful", "truncated"]),
    ] {
        let words: Vec<&str> = typed.split(' ').collect();
        let shown = explain(&words, None).unwrap_or_else(|unknown| panic!("{typed}: {unknown}"));
        let (_, below) = shown.split_once('\n').expect("a title");
        let squeezed = below.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed.starts_with(begin), "{typed}: {shown}");
        let (_, verdicts) = shown.split_once("\nVerdicts that fit\n").expect(typed);
        let is_name = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
        let names = verdicts.lines().take_while(|line| !line.is_empty()).filter(is_name);
        let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).take(2).collect();
        assert_eq!(names, first, "{typed}");
    }
    // The only verdict, and what holds the pod.
    let finalizer = explain(&["finalizer"], None).unwrap();
    assert!(
        finalizer.contains("\nVerdicts that fit\n  held-by-finalizer  "),
        "{finalizer}"
    );
    for held in ["Terminating", "FailedKillPod", "finalizer"] {
        assert!(
            explain(&[held], None).unwrap().contains("epitaph explain held-by-HOLDER"),
            "{held}"
        );
    }
}

/// `oom` and `completed` are causes, too.
#[test]
fn a_cause_that_is_also_a_word_leads_to_the_verdicts() {
    for (typed, verdict) in [("oom", "oom-killed"), ("completed", "clean-exit")] {
        let shown = one(typed, Width(None)).unwrap();
        assert!(shown.starts_with(&format!("cause {typed}\n")), "{shown}");
        assert!(shown.contains(&format!("\n  {verdict}  ")), "{shown}");
    }
}

/// A verdict, a cause, an attribute, a metric or a command of docs/faq.md is one of those that exist.
#[test]
fn the_faq_names_what_exists() {
    let faq = include_str!("../../../../docs/faq.md");
    let (_, section) = faq.split_once("## Why was a container killed before").expect("the question");
    let section = section.split("\n## ").next().expect("a section");
    let rows = || section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let shown = rows().filter_map(|row| row.split(" | ").nth(1));
    let attributes = include_str!("../../../../docs/attributes.md");
    let spans = |text: &'static str| text.split('`').skip(1).step_by(2);
    let names: Vec<&str> = shown.flat_map(spans).collect();
    for name in &names {
        let is_known = one(name, Width(None)).is_ok() || attributes.contains(&format!("`{name}`"));
        assert!(is_known, "{name}");
    }
    assert!(names.len() >= 15 && rows().count() == 10, "{names:?}");
    for name in spans(faq).filter(|name| name.starts_with("epitaph_")) {
        assert!(
            include_str!("../../../../docs/metrics.md").contains(&format!("`{name}`")),
            "{name}"
        );
    }
    let commands = spans(faq).filter_map(|command| command.strip_prefix("epitaph explain "));
    for words in commands.filter(|words| *words != "PROBE") {
        let words: Vec<&str> = words.split([' ', '"']).filter(|word| !word.is_empty()).collect();
        assert!(explain(&words, None).is_ok(), "{words:?}");
    }
}
