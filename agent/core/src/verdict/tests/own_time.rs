//! Whatever a deletion gave: no remedy and no advice names a value that is not more than the pod has in its spec.

use expect_test::expect;
use proptest::prelude::*;

use super::clients::refused;
use super::*;
use crate::report::Termination;
use crate::verdict::AdviceKind;

/// A termination with refused clients. Seconds.
#[derive(Clone, Debug)]
struct Sample {
    spec: u64,
    asked: Option<u64>,
    /// A second request, a second after the first.
    second: Option<u64>,
    hook: Hook,
    /// From the stop signal to the exit; None: killed.
    stopping: Option<f64>,
    /// From the close of the listener to the last refused client.
    refused: f64,
}

#[derive(Clone, Copy, Debug)]
enum Hook {
    None,
    Sleep(u64),
    Program(f64),
}

impl Sample {
    fn given(&self) -> u64 {
        self.second.or(self.asked).unwrap_or(self.spec).max(1)
    }

    fn judged(&self) -> Verdict {
        let given = self.given();
        let mut of = termination().with(|k| {
            k.grace = Some(Duration::from_secs(given));
            let request = k.request.as_mut().expect("a request");
            request.spec_grace = Some(Duration::from_secs(self.spec));
            request.grace = Duration::from_secs(self.asked.unwrap_or(self.spec));
            let second = self.second.map(|grace| (at(1.0), Duration::from_secs(grace)));
            request.shortened = second.into_iter().collect();
        });
        let limit = given as f64;
        let stop = match self.hook {
            Hook::None => 0.1,
            Hook::Sleep(seconds) => (seconds as f64).min(limit),
            Hook::Program(seconds) => seconds.min(limit),
        };
        of = match self.hook {
            Hook::None => of,
            Hook::Sleep(seconds) => of.wait(PreStop::Sleep { seconds }, stop, None),
            Hook::Program(seconds) if seconds > limit => {
                let killed = ExitStatus::Signaled {
                    signal: Signal::KILL,
                    core_dumped: false,
                };
                of.hook(0.1, stop, killed)
            }
            Hook::Program(_) => of.hook(0.1, stop, ExitStatus::Exited(0)),
        };
        of = of.term(stop);
        of = match self.stopping {
            Some(stopping) => of.exit(stop + stopping, 0),
            None => of.kill(limit.max(stop + 2.0)),
        };
        let closed = stop + 0.1;
        of.t.traffic.listeners.push(ListenerClosed {
            at: at(closed),
            local: ([10, 0, 0, 7], 8080).into(),
            by_exit: false,
        });
        of.t.traffic.refused.all = Count {
            count: 3,
            first: at(closed),
            last: at(closed + self.refused),
        };
        of.t.traffic.kubelet.known = true;
        of.judged().verdict
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    let hook = prop_oneof![
        Just(Hook::None),
        (1..90_u64).prop_map(Hook::Sleep),
        (1.0..90.0_f64).prop_map(Hook::Program),
    ];
    let seconds = |from: u64| prop::option::of(from..120_u64);
    let stopping = prop::option::of(0.1..60.0_f64);
    let all = (1..90_u64, seconds(0), seconds(0), hook, stopping, 0.1..20.0_f64);
    all.prop_map(|(spec, asked, second, hook, stopping, refused)| Sample {
        spec,
        asked,
        second,
        hook,
        stopping,
        refused,
    })
}

/// The numbers behind these words.
fn numbers(text: &str, before: &str) -> Vec<u64> {
    let behind = text.split(before).skip(1);
    let digits = |rest: &str| {
        rest.split(|c: char| !c.is_ascii_digit())
            .next()
            .and_then(|number| number.parse().ok())
    };
    behind.filter_map(digits).collect()
}

proptest! {
    #[test]
    fn no_words_lower_a_setting(of in sample()) {
        let verdict = of.judged();
        let texts = verdict.advice.iter().map(|advice| advice.text.clone()).chain(verdict.remedy.clone());
        let all = texts.collect::<Vec<String>>().join("\n");
        for before in ["terminationGracePeriodSeconds to at least ", "needs a grace period of at least "] {
            for seconds in numbers(&all, before) {
                prop_assert!(seconds > of.spec, "{before}{seconds}: {of:?}\n{all}");
            }
        }
        for seconds in numbers(&all, "raise terminationGracePeriodSeconds above ") {
            prop_assert!(seconds >= of.spec, "above {seconds}: {of:?}\n{all}");
        }
        let sleep = match of.hook {
            Hook::Sleep(seconds) => seconds,
            Hook::None | Hook::Program(_) => 0,
        };
        for seconds in numbers(&all, "a preStop sleep of ") {
            prop_assert!(seconds > sleep, "{seconds}: {of:?}\n{all}");
        }
        for text in all.lines().filter(|text| text.contains(" s avoids ") && text.contains("in the pod's own grace period of")) {
            let sleep = numbers(text, "a preStop sleep of ")[0];
            let whole = sleep as f64 + of.stopping.unwrap_or_default();
            prop_assert!(whole <= of.spec as f64 + 0.01, "{whole}: {of:?}\n{all}");
        }
        for advice in &verdict.advice {
            let present = match advice.kind {
                AdviceKind::GraceLonger => of.spec,
                AdviceKind::PreStopSleepLonger => sleep,
                _ => continue,
            };
            let is_more = advice.seconds.is_none_or(|seconds| seconds > present);
            prop_assert!(is_more, "{advice:?}: {of:?}");
        }
    }
}

/// No version of the pod was seen: a container is all that is known.
#[test]
fn nothing_is_claimed_of_a_grace_period_that_is_not_known() {
    let killed = || termination().grace(60).term(0.1).kill(5.2);
    let of_pod = killed().judged().verdict;
    let verdict = Termination::judged(killed().t, None).verdict;
    assert_eq!(verdict.headline, of_pod.headline);
    let remedy = of_pod.remedy.expect("a remedy");
    assert!(
        remedy.contains("terminationGracePeriodSeconds") && !of_pod.advice.is_empty(),
        "{remedy}"
    );
    let expected = expect![[r#"
        killed-after-grace (Stopped, Quiet): The container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.1 s later
          remedy: the shutdown needs more than the 5.1 s that it got: raise the grace period, or shorten the shutdown
    "#]];
    expected.assert_eq(&text(&verdict));
}

/// A row of docs/faq.md each.
#[test]
fn what_the_faq_quotes_is_in_the_sentences() {
    let asked = |seconds: u64, change: fn(&mut PodContext)| {
        let of = termination().grace(60).term(0.1).kill(5.2).with(|k| {
            let request = k.request.as_mut().expect("a request");
            request.grace = Duration::from_secs(seconds);
            k.grace = Some(request.grace);
        });
        of.with(change).judged().verdict.sentence
    };
    let sentences = [
        asked(5, |_| {}),
        asked(0, |_| {}),
        asked(60, |k| {
            let second = (at(2.0), Duration::from_secs(4));
            k.request.as_mut().expect("a request").shortened = vec![second];
            k.grace = Some(second.1);
        }),
        asked(5, |k| k.stop_reason.as_mut().expect("a reason").cause = Cause::EvictedApi),
        asked(5, |k| {
            k.request.as_mut().expect("a request").asker = Some(Asker::ClusterAutoscaler)
        }),
        asked(5, |k| k.request.as_mut().expect("a request").asker = Some(Asker::Karpenter)),
        asked(5, |k| {
            k.stop_reason.as_mut().expect("a reason").cause = Cause::EvictedNodePressure;
            (k.request, k.own_grace) = (None, Some(Duration::from_secs(60)));
        }),
    ];
    let page = include_str!("../../../../../docs/faq.md");
    let (_, section) = page.split_once("## Why was a container killed before").expect("the question");
    let section = section.split("\n## ").next().expect("a section");
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let quotes: Vec<&str> = rows.filter_map(|row| row.split('"').nth(1)).collect();
    assert_eq!(quotes.len(), sentences.len(), "{quotes:?}");
    for (quote, sentence) in quotes.into_iter().zip(&sentences) {
        assert!(sentence.contains(quote), "{quote}: {sentence}");
    }
}

/// `crictl stop` in the sleep, long before any grace period ends, and a begin that is known to within ten seconds.
#[test]
fn a_sleep_is_cut_only_when_the_grace_period_ends() {
    let sentence = |grace: u64, stop: f64, earliest: f64| {
        let slept = termination()
            .wait(PreStop::Sleep { seconds: 30 }, stop, None)
            .grace(grace)
            .with(|k| k.request.as_mut().expect("a request").earliest = at(earliest));
        let verdict = refused(slept, stop, stop + 0.1, stop + 2.0, stop + 1.0).judged().verdict;
        (verdict.sentence, verdict.remedy.expect("a remedy"))
    };
    let is_cut = |(sentence, remedy): &(String, String)| (sentence.contains("was cut"), remedy.contains("was cut"));
    assert_eq!(is_cut(&sentence(60, 3.0, -0.9)), (false, false));
    assert_eq!(is_cut(&sentence(20, 20.1, -0.9)), (true, true));
    assert_eq!(
        is_cut(&sentence(20, 20.1, -10.0)),
        (false, false),
        "it may have slept to its end"
    );
}

/// The sleep and the shutdown need more than the pod has, and the deletion gave less than that.
#[test]
fn a_sleep_that_fits_into_no_grace_period() {
    let of = |spec: u64, end: f64| {
        let asked = termination().grace(spec).with(|k| {
            k.grace = Some(Duration::from_secs(2));
            k.request.as_mut().expect("a request").grace = Duration::from_secs(2);
        });
        refused(asked, 0.2, 0.3, 7.3, end).judged().verdict.remedy.expect("a remedy")
    };
    let own = of(60, 1.2);
    assert!(
        own.ends_with("in the pod's own grace period of 60 s, of which 2 s were given"),
        "{own}"
    );
    for none in [of(6, 1.2), of(9, 2.0)] {
        assert!(none.contains("only if terminationGracePeriodSeconds ("), "{none}");
    }
}
