use epitaph_core::rollout::{Forecast, TookSeconds};
use epitaph_story::story::Snippet;
use expect_test::expect;

use super::*;

fn rollout() -> Rollout {
    let cost = |revision: u64, refused: u64| RevisionCost {
        revision: Some(revision),
        hash: format!("hash{revision}"),
        replaced_by: Some(revision + 1),
        pods: 3,
        unclean: u64::from(refused > 0),
        verdicts: [("clean".to_owned(), 2), ("refused-connections".to_owned(), 1)].into(),
        took: Some(TookSeconds {
            median: 1.25,
            worst: 31.0,
        }),
        refused,
        unobserved: 1,
        ..RevisionCost::default()
    };
    let mut newer = cost(6, 14);
    newer.missing.push("web-7d9f8b6c5-aaaaa".to_owned());
    newer.worst.push(PodCost {
        pod: "web-7d9f8b6c5-bbbbb".to_owned(),
        node: "node-7".to_owned(),
        verdict: "refused-connections".to_owned(),
        lost: Some(14),
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
        pods                   3                                3
        unclean                1                                0
        lost connections       14, unknown of 1 pod             0, unknown of 1 pod
          refused              14                               0
          reset                0                                0
          cut                  0                                0
        undecided              0                                0
        median time to exit    1.2 s                            1.2 s
        longest time to exit   31.0 s                           31.0 s
        without a report       1                                0
        verdicts               2 clean, 1 refused-connections   2 clean, 1 refused-connections

        Worse than the rollout before: 4.7 lost connections per pod, 0.0 then.

        Forecast for the next rollout, of 3 pods: 7 to 26 lost connections with today's
        settings, 0 to 2 with the settings below; from the ends of 2 pods.

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
        | pods | 3 | 3 |
        | unclean | 1 | 0 |
        | lost connections | 14, unknown of 1 pod | 0, unknown of 1 pod |
        | refused | 14 | 0 |
        | reset | 0 | 0 |
        | cut | 0 | 0 |
        | undecided | 0 | 0 |
        | median time to exit | 1.2 s | 1.2 s |
        | longest time to exit | 31.0 s | 31.0 s |
        | without a report | 1 | 0 |
        | verdicts | 2 clean, 1 refused-connections | 2 clean, 1 refused-connections |

        Worse than the rollout before: 4.7 lost connections per pod, 0.0 then.

        Forecast for the next rollout, of 3 pods: 7 to 26 lost connections with today's settings, 0 to 2 with the settings below; from the ends of 2 pods.

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
