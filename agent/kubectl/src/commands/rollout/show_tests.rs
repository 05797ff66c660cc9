use epitaph_core::rollout::{Forecast, TookSeconds};
use epitaph_story::story::Snippet;
use expect_test::expect;

use super::*;

fn rollout() -> Rollout {
    let cost = |revision: u64, refused: u64| RevisionCost {
        revision: Some(revision),
        hash: format!("hash{revision}"),
        replaced_by: Some(revision + 1),
        pods: 4,
        unclean: u64::from(refused > 0),
        verdicts: [("clean".to_owned(), 3), ("refused-connections".to_owned(), 1)].into(),
        took: Some(TookSeconds {
            median: 1.25,
            worst: 31.0,
        }),
        refused: Some(refused),
        reset: Some(0),
        cut: Some(0),
        undecided: Some(0),
        unobserved: 1,
        lost_of_observed: refused,
        unreported: Some(0),
        ..RevisionCost::default()
    };
    let mut newer = cost(6, 14);
    newer.missing.push("web-7d9f8b6c5-aaaaa".to_owned());
    newer.unreported = Some(1);
    newer.worst.push(PodCost {
        pod: "web-7d9f8b6c5-bbbbb".to_owned(),
        node: "node-7".to_owned(),
        verdict: "refused-connections".to_owned(),
        lost: Some(14),
        at_least: false,
        sentence: "14 connections were refused in the 3.2 s after the listener closed <b>".to_owned(),
        remedy: Some("a preStop sleep of 4 s would have avoided them".to_owned()),
    });
    Rollout {
        kind: "Deployment",
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        revision: Some(7),
        cost: Some(newer),
        before: Some(cost(5, 0)),
        is_missing_known: true,
        is_at_bound: false,
        is_set_by_now: false,
        forecast: Some(Forecast {
            pods: 3,
            measured: 2,
            today: Outlook::Between { least: 7, most: 26 },
            with_settings: Some(Outlook::Between { least: 0, most: 2 }),
        }),
        settings: vec![Snippet {
            about: "Deployment shop/web".to_owned(),
            language: "yaml",
            text: "spec:\n  template:\n".to_owned(),
        }],
        forgotten: vec!["old".to_owned()],
        failed_on: Vec::new(),
    }
}

#[test]
fn a_rollout_reads_in_a_terminal() {
    expect![[r#"
        Deployment shop/web: what the rollout to revision 7 cost, by the pods of
        revision 6

                               revision 6                       before: revision 5
        pods                   4                                4
        unclean                1                                0
        lost connections       14, unknown of 1 pod             0, unknown of 1 pod
          refused              14                               0
          reset                0                                0
          cut                  0                                0
        undecided              0                                0
        median time to exit    1.2 s                            1.2 s
        longest time to exit   31.0 s                           31.0 s
        without a report       1                                0
        verdicts               3 clean, 1 refused-connections   3 clean, 1 refused-connections

        Worse than the rollout before: 4.7 lost connections per pod now, 0.0 before.

        Forecast for the next rollout, of 3 pods: 7 to 26 lost connections with today's
        settings, 0 to 2 with the settings below; calculated from 2 pods of this
        rollout.

        web-7d9f8b6c5-bbbbb on node-7: refused-connections, 14 lost connections
          14 connections were refused in the 3.2 s after the listener closed <b>

        Without a report: web-7d9f8b6c5-aaaaa. No agent ran on their node, or the report
        was not written yet.

        The API no longer has the revisions with the hashes old.

        Remedy: a preStop sleep of 4 s would have avoided them

        # Deployment shop/web
        spec:
          template:
    "#]]
    .assert_eq(&plain(&rollout(), 80));
}

#[test]
fn a_rollout_is_a_summary_of_a_pipeline() {
    expect![[r#"
        ## Deployment shop/web: what the rollout to revision 7 cost, by the pods of revision 6

        | | revision 6 | before: revision 5 |
        |---|---|---|
        | pods | 4 | 4 |
        | unclean | 1 | 0 |
        | lost connections | 14, unknown of 1 pod | 0, unknown of 1 pod |
        | refused | 14 | 0 |
        | reset | 0 | 0 |
        | cut | 0 | 0 |
        | undecided | 0 | 0 |
        | median time to exit | 1.2 s | 1.2 s |
        | longest time to exit | 31.0 s | 31.0 s |
        | without a report | 1 | 0 |
        | verdicts | 3 clean, 1 refused-connections | 3 clean, 1 refused-connections |

        Worse than the rollout before: 4.7 lost connections per pod now, 0.0 before.

        Forecast for the next rollout, of 3 pods: 7 to 26 lost connections with today's settings, 0 to 2 with the settings below; calculated from 2 pods of this rollout.

        Without a report: web-7d9f8b6c5-aaaaa. No agent ran on their node, or the report was not written yet.

        The API no longer has the revisions with the hashes old.

        - web-7d9f8b6c5-bbbbb on node-7: refused-connections, 14 lost connections: 14 connections were refused in the 3.2 s after the listener closed \<b\>

        **Remedy**: a preStop sleep of 4 s would have avoided them

        Deployment shop/web

        ```yaml
        spec:
          template:
        ```
    "#]].assert_eq(&markdown(&rollout()));
}

#[test]
fn too_thin_evidence_gives_no_forecast() {
    let mut of = rollout();
    let reason = "the workload has no pods now".to_owned();
    of.forecast.as_mut().expect("a forecast").today = Outlook::Unknown { reason };
    let text = plain(&of, 80);
    assert!(
        text.contains("No forecast for the next rollout: the workload has no pods now."),
        "{text}"
    );
}

#[test]
fn without_a_report_the_text_says_what_may_be_the_reason() {
    let mut of = rollout();
    (of.cost, of.before, of.forecast, of.settings) = (None, None, None, Vec::new());
    let text = plain(&of, 80);
    assert!(
        text.contains("no pod that the rollout to revision 7 replaced has a report"),
        "{text}"
    );
    assert!(text.contains("kubectl epitaph doctor"), "{text}");
}

/// Agents were down, and Events name the pods.
#[test]
fn no_report_is_not_no_loss() {
    let mut of = rollout();
    let cost = of.cost.as_mut().expect("a cost");
    *cost = RevisionCost {
        revision: Some(6),
        replaced_by: Some(7),
        missing: vec!["web-1".to_owned(), "web-2".to_owned()],
        unreported: Some(2),
        ..RevisionCost::default()
    };
    let text = plain(&of, 80);
    for part in [
        "no pod that the rollout to revision 7 replaced has a report",
        "lost connections       unknown",
        "  refused              unknown",
        "Without a report: web-1, web-2.",
        "Not comparable with the rollout before: for one of the two rollouts, the\nconnections of no pod are known.",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("Better"), "{text}");
    let json = json(&of).expect("JSON");
    assert!(json.matches("\"refused\"").count() == 1, "only of the rollout before: {json}");
}

/// Reports of agents that did not see the sockets.
#[test]
fn unobserved_connections_are_not_comparable() {
    let mut of = rollout();
    let cost = of.cost.as_mut().expect("a cost");
    (cost.refused, cost.reset, cost.cut, cost.undecided) = (None, None, None, None);
    cost.unobserved = cost.pods;
    let text = markdown(&of);
    assert!(text.contains("| lost connections | unknown |"), "{text}");
    assert!(
        text.contains("Not comparable with the rollout before") && !text.contains("Better"),
        "{text}"
    );
}

/// Three pods lost nothing, two lost 50 connections each, and more may have been missed.
#[test]
fn what_pods_lost_at_least_makes_no_rollout_better() {
    let mut of = rollout();
    let cost = of.cost.as_mut().expect("a cost");
    (cost.pods, cost.unobserved, cost.refused, cost.lost_of_observed) = (5, 2, Some(100), 0);
    let before = of.before.as_mut().expect("a cost");
    (before.pods, before.unobserved, before.refused, before.lost_of_observed) = (4, 0, Some(4), 4);
    for unreported in [&mut of.cost, &mut of.before] {
        let cost = unreported.as_mut().expect("a cost");
        (cost.unreported, cost.missing) = (Some(0), Vec::new());
    }
    let text = plain(&of, 200);
    assert!(
        text.contains("at least 100, unknown of 2 pods") && text.contains("Worse than the rollout before: at least 20.0"),
        "{text}"
    );
    std::mem::swap(&mut of.cost, &mut of.before);
    let text = plain(&of, 200);
    assert!(text.contains("Not comparable with the rollout before"), "{text}");
}

#[test]
fn at_the_bound_of_a_namespace_nothing_is_compared() {
    let mut of = rollout();
    of.is_at_bound = true;
    let text = plain(&of, 200);
    for part in [
        "Not comparable with the rollout before",
        "The namespace has 500 Epitaphs or more",
        "or it was removed",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("Worse"), "{text}");
}

/// One of twelve pods has a report, and it lost nothing.
#[test]
fn a_fraction_of_the_pods_is_not_compared() {
    let mut of = rollout();
    of.before = of.cost.clone();
    let cost = of.cost.as_mut().expect("a cost");
    (cost.pods, cost.unobserved, cost.refused, cost.unreported) = (1, 0, Some(0), Some(11));
    let before = of.before.as_mut().expect("a cost");
    (before.unreported, before.missing) = (Some(0), Vec::new());
    let text = plain(&of, 200);
    assert!(
        text.contains("Not comparable with the rollout before") && !text.contains("Better"),
        "{text}"
    );
    // The other way round.
    std::mem::swap(&mut of.cost, &mut of.before);
    let text = plain(&of, 200);
    assert!(
        text.contains("Not comparable with the rollout before") && !text.contains("Worse"),
        "{text}"
    );
}

#[test]
fn a_rollout_that_replaced_pods_of_two_revisions_names_both() {
    let mut of = rollout();
    of.cost.as_mut().expect("a cost").also_of = vec![5];
    of.is_set_by_now = true;
    let text = plain(&of, 200);
    for part in [
        "by the pods of revisions 5 and 6",
        "The workload now has advised settings; the replaced pods did not have them yet.",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// Events do not name all pods, and none after an hour.
#[test]
fn an_incomplete_number_of_pods_without_a_report_is_named_as_such() {
    let mut of = rollout();
    let cost = of.cost.as_mut().expect("a cost");
    (cost.unreported, cost.replaced_at_most) = (None, Some(12));
    let text = plain(&of, 200);
    for part in [
        "without a report       1 or more ",
        "How many pods have no report is not known: the rollout has reports of 4 pods; it replaced at most 12.",
        "Not comparable with the rollout before: for one of the two rollouts, the connections of half of the pods or more are not known.",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("Worse"), "{text}");
}
