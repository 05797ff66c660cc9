//! What the README, SECURITY.md and the threat model claim, each with the tests or the command that proves it.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use super::attacks::{self, Tests};

/// Pages, from the root of the checkout.
const README: &str = "README.md";
const SECURITY: &str = "SECURITY.md";
pub const THREATS: &str = "docs/threat-model.md";

pub struct Claim {
    pub page: &'static str,
    /// As it stands in the page, but for the ends of lines.
    pub text: String,
    pub proof: Proof,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    Tests(Vec<Test>),
    /// After `cargo xtask`.
    Command {
        words: String,
        /// Within five minutes on two cores, once built.
        is_quick: bool,
    },
    /// No test has it.
    ByHand,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    /// As for `cargo xtask test --only`.
    pub program: String,
    pub name: String,
}

impl Proof {
    pub fn command(words: &str, is_quick: bool) -> Proof {
        Proof::Command {
            words: words.to_owned(),
            is_quick,
        }
    }

    /// A program's tests run within five minutes.
    pub fn is_quick(&self) -> bool {
        match self {
            Proof::Tests(_) => true,
            Proof::Command { is_quick, .. } => *is_quick,
            Proof::ByHand => false,
        }
    }
}

/// All claims, each with a test that there is.
///
/// # Errors
/// A page cannot be read or lacks a claim, or a test is missing.
pub fn all(root: &Path) -> Result<Vec<Claim>> {
    let tests = Tests::read(root)?;
    let page = |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
    let mut claims = Vec::new();
    for written in WRITTEN {
        ensure!(
            joined(&page(written.page)?).contains(&joined(written.text)),
            "{} does not claim: {}",
            written.page,
            written.text
        );
        let proof = match written.by {
            By::Tests(named) => Proof::Tests(named.iter().map(test).collect::<Result<_>>()?),
            By::Command(words, is_quick) => Proof::command(words, is_quick),
        };
        claims.push(Claim {
            page: written.page,
            text: written.text.to_owned(),
            proof,
        });
    }
    claims.extend(attacks::claims(&page(THREATS)?, &tests)?);
    for claim in &claims {
        if let Proof::Tests(named) = &claim.proof {
            let missing: Vec<&Test> = named.iter().filter(|test| !tests.has(test)).collect();
            ensure!(
                missing.is_empty(),
                "no such test: {missing:?}, which is to prove: {}",
                claim.text
            );
        }
    }
    Ok(claims)
}

fn test((file, name): &(&str, &str)) -> Result<Test> {
    Ok(Test {
        program: attacks::program(file).with_context(|| format!("no tests in {file}"))?,
        name: (*name).to_owned(),
    })
}

/// Ends of lines are spaces.
pub fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Written {
    page: &'static str,
    text: &'static str,
    by: By,
}

enum By {
    /// File and name of each.
    Tests(&'static [(&'static str, &'static str)]),
    /// And whether it is quick.
    Command(&'static str, bool),
}

const fn tests(page: &'static str, text: &'static str, tests: &'static [(&'static str, &'static str)]) -> Written {
    Written {
        page,
        text,
        by: By::Tests(tests),
    }
}

const fn command(page: &'static str, text: &'static str, words: &'static str, is_quick: bool) -> Written {
    Written {
        page,
        text,
        by: By::Command(words, is_quick),
    }
}

const WRITTEN: &[Written] = &[
    command(
        README,
        "Epitaph observes signals, process exits and TCP resets with eBPF, and attributes them to containers and \
         systemd units.",
        "demo",
        true,
    ),
    tests(
        README,
        "For every termination it reports what happened in one sentence, with one remedy and one OpenTelemetry \
         trace.",
        &[
            ("tests/tests/jaeger.rs", "jaeger_shows_each_termination_as_one_trace"),
            ("tests/tests/jaeger.rs", "jaeger_shows_a_pod_as_one_trace"),
        ],
    ),
    tests(
        README,
        "needs only the role `view` in the namespace",
        &[(
            "tests/tests/epitaphs/kubectl.rs",
            "whoever_may_read_a_namespace_asks_with_kubectl",
        )],
    ),
    command(
        README,
        "The kernel must be 5.10 or later for x86_64 or arm64, with BTF; some before 6.10 hide refused clients, \
         and traffic is then `unknown`",
        "test kernels",
        false,
    ),
    command(
        README,
        "real processes terminate in over fifty ways; one plain sentence for each",
        "demo",
        true,
    ),
    command(
        README,
        "every test that runs on one machine: unit, property, live probes, the demo's stories, a real Jaeger and \
         kube-apiserver",
        "test",
        false,
    ),
    command(
        README,
        "12.1 MiB (goal 10 **missed**); 14.3 MiB; 7.0 MiB",
        "test image",
        false,
    ),
    command(
        README,
        "a connection of a container that stops, relative to one without probes",
        "bench --only connections",
        false,
    ),
    command(
        README,
        "CPU time of the agent, while the processes of a database send each other 100 000 signals a second",
        "bench --only signals",
        false,
    ),
    tests(
        README,
        "never `clean` without evidence",
        &[
            (
                "agent/core/src/correlate/tests/monotone.rs",
                "no_verdict_is_cleaner_or_blames_another_for_less_evidence",
            ),
            (
                "agent/tests/corpus/monotone.rs",
                "no_verdict_is_cleaner_or_blames_another_for_less_evidence",
            ),
        ],
    ),
    tests(
        README,
        "cause and exit as elsewhere; traffic is `unknown`",
        &[(
            "tests/tests/cgroups.rs",
            "with_v1_alone_terminations_are_judged_and_their_clients_are_unknown",
        )],
    ),
    tests(
        SECURITY,
        "A process without the rights of the agent makes a termination look cleaner than it was, attributes a \
         termination to another tenant, hides a termination, or keeps the agent from observing others.",
        &[
            (
                "agent/core/src/correlate/tests/forgeries.rs",
                "a_lost_signal_inside_makes_no_end_clean",
            ),
            ("tests/tests/nested.rs", "a_container_cannot_forge_another_pods_termination"),
            (
                "agent/core/src/correlate/tests/forgeries.rs",
                "a_nested_cgroup_with_a_runtimes_name_makes_no_runtime",
            ),
            ("tests/tests/hostile.rs", "a_neighbour_that_signals_itself"),
            ("tests/tests/hostile.rs", "a_neighbour_whose_processes_exit"),
        ],
    ),
    tests(
        SECURITY,
        "Anyone who reaches the agent's ports stops or stalls the agent, or makes the agent exceed its memory \
         limit.",
        &[
            ("tests/tests/http_attacks.rs", "unfinished_heads_are_no_memory_of_the_agent"),
            ("tests/tests/http_attacks.rs", "idle_connections_hold_no_place"),
            (
                "tests/tests/http_attacks.rs",
                "clients_that_read_no_answer_are_no_memory_of_the_agent",
            ),
            ("tests/tests/http_attacks.rs", "a_full_health_port_answers_too"),
            ("tests/tests/hostile.rs", "a_neighbour_that_keeps_the_metrics_port_busy"),
        ],
    ),
    tests(
        SECURITY,
        "Text that a process, a tenant, a collector or an API server chooses becomes code, a control sequence of a \
         terminal, or part of another record.",
        &[
            ("agent/core/src/text.rs", "text_of_others_is_cut_and_escaped"),
            ("agent/core/src/render/text.rs", "nothing_that_a_terminal_obeys_comes_through"),
            (
                "agent/core/src/render/json/tests.rs",
                "no_text_of_a_process_leaves_a_control_character",
            ),
            (
                "agent/src/render/span/tests/pods.rs",
                "texts_from_outside_are_bounded_and_escaped",
            ),
            (
                "agent/src/sink/kubernetes_events/tests.rs",
                "a_note_is_bounded_and_shows_no_control_characters",
            ),
            ("agent/story/src/story/tests.rs", "hostile_names_stay_names"),
            (
                "agent/kubectl/tests/kubectl_usage.rs",
                "text_of_an_object_is_nothing_that_a_terminal_obeys",
            ),
        ],
    ),
    tests(
        SECURITY,
        "A recording from somebody else does more than produce wrong verdicts for that recording.",
        &[
            ("tests/tests/replay.rs", "a_recording_is_read_without_a_capability"),
            ("agent/src/fuzz.rs", "recording"),
            ("agent/src/fuzz.rs", "replay"),
        ],
    ),
    tests(
        SECURITY,
        "The agent or the observer keeps or gains a right that",
        &[
            (
                "tests/tests/privileges.rs",
                "every_thread_drops_privileges_that_are_no_longer_needed",
            ),
            ("tests/tests/privileges.rs", "an_observer_keeps_no_privilege"),
            ("agent/src/rights.rs", "every_role_has_a_rule_and_no_rule_is_there_twice"),
        ],
    ),
    tests(
        SECURITY,
        "doubt may grow, a verdict must not become cleaner",
        &[
            (
                "agent/core/src/correlate/tests/monotone.rs",
                "no_verdict_is_cleaner_or_blames_another_for_less_evidence",
            ),
            (
                "agent/tests/corpus/monotone.rs",
                "no_verdict_is_cleaner_or_blames_another_for_less_evidence",
            ),
        ],
    ),
    command(
        SECURITY,
        "checks licences, sources and known vulnerabilities of all dependencies",
        "deny",
        true,
    ),
    command(
        SECURITY,
        "`cargo xtask fuzz` runs hostile input against every parser of outside bytes.",
        "fuzz --time 120",
        true,
    ),
    tests(
        THREATS,
        "Doubt is monotone: lost, late or forged evidence may make a verdict `unknown`, never cleaner, and never \
         blames another process.",
        &[
            (
                "agent/core/src/correlate/tests/monotone.rs",
                "no_verdict_is_cleaner_or_blames_another_for_less_evidence",
            ),
            (
                "agent/tests/corpus/monotone.rs",
                "no_verdict_is_cleaner_or_blames_another_for_less_evidence",
            ),
            (
                "agent/core/src/correlate/tests/monotone.rs",
                "no_verdict_is_cleaner_on_a_kernel_that_shows_the_clients_of_this_machine_only",
            ),
        ],
    ),
    tests(
        THREATS,
        "After the start Epitaph gives up CAP_PERFMON, and from 5.19 on CAP_BPF.",
        &[(
            "tests/tests/privileges.rs",
            "every_thread_drops_privileges_that_are_no_longer_needed",
        )],
    ),
    tests(
        THREATS,
        "The agent stays within its memory limit and answers the kubelet.",
        &[
            (
                "agent/core/tests/memory.rs",
                "whatever_a_node_does_memory_is_bounded_and_given_back",
            ),
            ("tests/tests/http_attacks.rs", "a_full_health_port_answers_too"),
        ],
    ),
    tests(
        THREATS,
        "Keep the kubelet's probes or a scrape from an answer, or raise the agent's memory, by connections, heads, \
         unread answers or repeated scrapes.",
        &[
            ("tests/tests/http_attacks.rs", "unfinished_heads_are_no_memory_of_the_agent"),
            ("tests/tests/http_attacks.rs", "idle_connections_hold_no_place"),
            (
                "tests/tests/http_attacks.rs",
                "clients_that_read_no_answer_are_no_memory_of_the_agent",
            ),
            ("tests/tests/http_attacks.rs", "a_full_health_port_answers_too"),
        ],
    ),
    tests(
        THREATS,
        "the ports accept GET only and read no body",
        &[("agent/src/sink/http/tests.rs", "metrics_are_served_and_other_paths_are_not")],
    ),
    tests(
        THREATS,
        "Put control characters into terminals, logs or labels: text is bounded and escaped.",
        &[
            ("agent/core/src/text.rs", "text_of_others_is_cut_and_escaped"),
            ("agent/core/src/render/text.rs", "nothing_that_a_terminal_obeys_comes_through"),
            (
                "agent/core/src/render/json/tests.rs",
                "no_text_of_a_process_leaves_a_control_character",
            ),
            (
                "agent/src/render/span/tests/pods.rs",
                "texts_from_outside_are_bounded_and_escaped",
            ),
        ],
    ),
    tests(
        THREATS,
        "Read a recording of another user: files are created with mode 0600, new, through no link.",
        &[(
            "agent/src/recording/tests.rs",
            "a_recording_is_its_owners_only_and_replaces_nothing",
        )],
    ),
    tests(
        THREATS,
        "Stop the observation: queues are bounded and drops are counted.",
        &[
            ("tests/tests/service.rs", "a_silent_collector_holds_nothing_up"),
            ("tests/tests/service.rs", "a_collector_that_is_down_holds_nothing_up"),
            ("tests/tests/service.rs", "a_collector_that_is_overloaded_holds_nothing_up"),
        ],
    ),
    tests(
        THREATS,
        "the sender is compared with the owner of org.freedesktop.login1",
        &[("tests/tests/logind.rs", "a_forged_signal_names_its_sender")],
    ),
    tests(
        THREATS,
        "Hide a real announcement by a flood.",
        &[("tests/tests/logind.rs", "a_flood_and_garbage_hide_nothing_of_logind")],
    ),
    tests(
        THREATS,
        "End or slow the agent, raise its memory, use its rights, or do anything as root on the bus",
        &[
            ("tests/tests/logind.rs", "the_agent_goes_on_whatever_becomes_of_the_role"),
            ("agent/src/source/logind/tests.rs", "a_flood_of_the_role_is_slowed_down"),
        ],
    ),
    tests(
        THREATS,
        "where kernel and API differ, the kernel's evidence decides",
        &[(
            "agent/core/src/verdict/tests/containers.rs",
            "the_kernel_is_believed_before_the_api",
        )],
    ),
    tests(
        THREATS,
        "`replay` gives up all capabilities before the first byte is read",
        &[("tests/tests/replay.rs", "a_recording_is_read_without_a_capability")],
    ),
    tests(
        THREATS,
        "if the address is at its own limit, that address's oldest connection; otherwise the oldest connection of \
         the address with the most",
        &[
            (
                "agent/src/sink/http/connections.rs",
                "a_peer_at_its_limit_loses_its_own_oldest_connection",
            ),
            (
                "agent/src/sink/http/connections.rs",
                "at_the_limit_in_total_the_peer_with_the_most_connections_loses_one",
            ),
        ],
    ),
    tests(
        THREATS,
        "Under attack the agent's memory grows by less than 24 MiB; the test asserts this bound.",
        &[
            ("tests/tests/http_attacks.rs", "unfinished_heads_are_no_memory_of_the_agent"),
            (
                "tests/tests/http_attacks.rs",
                "clients_that_read_no_answer_are_no_memory_of_the_agent",
            ),
        ],
    ),
    command(
        THREATS,
        "plays 200 terminations next to a hostile container, at several rates",
        "bench --only attacks",
        false,
    ),
];
