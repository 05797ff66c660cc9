//! The tables as `docs/verdicts.md`.

use super::*;

/// The body of `docs/verdicts.md`.
pub fn markdown() -> String {
    let mut out = String::from("| verdict | unclean | severity | meaning |\n|---|---|---|---|\n");
    for e in &TABLE {
        let unclean = if e.unclean { "yes" } else { "no" };
        let name = e.headline;
        let _ = writeln!(
            out,
            "| [`{name}`](#{name}) | {unclean} | {} | {} |",
            severity(e.severity),
            first_sentence(e.meaning)
        );
    }
    out.push_str(
        "\nA verdict summarizes three axes: why the container or unit terminated (`epitaph.cause`), how the main process exited\n\
         (`epitaph.exit`) and what clients saw (`epitaph.traffic`). The value of `exit` is the name of the verdict. For the verdicts about clients\n\
         and for `clean` the value of `exit` is `clean`. The values of `cause` and `traffic` are:\n\n\
         | axis | value | meaning |\n|---|---|---|\n",
    );
    for (axis, value, words) in axes() {
        let _ = writeln!(out, "| {axis} | `{value}` | {words} |");
    }
    for e in &TABLE {
        let (name, meaning) = (e.headline, e.meaning_for_all());
        let _ = write!(out, "\n## {name}\n\n{meaning}\n\n**Proof.** {}\n", e.proof);
        if !e.remedy.is_empty() {
            let _ = write!(out, "\n**Remedy.** {}\n", e.remedy);
        }
    }
    out.push_str(
        "\n## Rules\n\n\
         Epitaph finds the value of `exit` with these rules. The rules have four groups (the first column). In each group the first rule that applies\n\
         counts, and its value replaces the value that an earlier group gave. If evidence that a rule needs may be missing, `exit` is `unknown`.\n\n\
         | group | what was observed | value of `exit` |\n|---|---|---|\n",
    );
    for of in &RULES {
        for rule in of.rules {
            let exits: Vec<String> = rule.exits.iter().map(|exit| format!("`{}`", table::name(exit))).collect();
            let exits = if exits.is_empty() {
                "`unknown`".to_owned()
            } else {
                exits.join(", ")
            };
            let _ = writeln!(out, "| {} | {} | {exits} |", of.of, rule.observed);
        }
    }
    out.push_str(
        "\n## Lost nodes\n\n\
         The observer reports nodes that do not answer, and their pods: [lost-nodes.md](lost-nodes.md). These verdicts have no axes: they have no\n\
         `exit` and no `traffic`.\n\n\
         | verdict | unclean | severity | meaning | proof | remedy |\n|---|---|---|---|---|---|\n",
    );
    for row in &loss_verdict::TABLE {
        let unclean = if row.unclean { "yes" } else { "no" };
        let (name, severity) = (row.headline, severity(row.severity));
        let _ = writeln!(
            out,
            "| `{name}` | {unclean} | {severity} | {} | {} | {} |",
            row.meaning, row.proof, row.remedy
        );
    }
    out.push_str(
        "\n## Pods that are held\n\n\
         A pod can stay `Terminating` although its containers have exited. If this lasts for a minute after the exit of the last container, or after the\n\
         deletion, the agent of the pod's node reports which layer holds the pod: in an Event `TerminationHeld` on the pod and its workload, and in\n\
         the metric `epitaph_workload_held_total{holder}`. If another layer holds the pod later, the agent reports that layer, too. The layers have\n\
         the order in which a kubelet works; the first layer that has not visibly finished holds the pod. To find it, the agent lists the pod's\n\
         Events once. A pod with a container that still runs is [`stuck`](#stuck). While the API does not answer, nothing is reported.\n\n\
         | verdict | severity | meaning | proof | remedy | not known |\n|---|---|---|---|---|---|\n",
    );
    for row in &held::TABLE {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} |",
            row.headline,
            severity(row.severity),
            row.meaning,
            row.proof,
            row.remedy,
            row.unseen
        );
    }
    out.push_str(
        "\n## Shutdowns of the node\n\n\
         The verdict on a shutdown of the node says how the shutdown treated the pods. The shutdown has a trace of its own: its root span is named\n\
         `node.shutdown VERDICT`, and the traces of the shutdown and of its pods link to each other. After the next boot, the sentence also has the\n\
         number of pods that stayed Ready in the API until the node was back (`epitaph.shutdown.pods_ready`): a Service sends clients to such\n\
         pods, although the node is down.\n\n\
         **A graceful shutdown can lose requests.** The kubelet does not delete the pods that it stops at a shutdown, so their endpoints do not become\n\
         terminating: they stay ready until the pod's readiness probe fails, the node controller marks the pod, or the pod has ended\n\
         ([kubernetes#116965](https://github.com/kubernetes/kubernetes/issues/116965)). With any verdict, the sentence has three things: the number of\n\
         connections that clients lost because the pods stopped, by workload (`epitaph.shutdown.clients.*`); how long one of these pods was still\n\
         Ready in the API after its stop signal; and the pods that were started during the shutdown. A number is \"at least\" if some sockets or exits\n\
         could not be observed. If the sentence has no number, connections may still have been lost. The same trace has a span `endpoints.ready` of\n\
         the observer for each Service, which shows when the endpoints were ready.\n\n\
         | verdict | unclean | severity | meaning | proof | remedy |\n|---|---|---|---|---|---|\n",
    );
    for row in &node::TABLE {
        let unclean = if row.unclean { "yes" } else { "no" };
        let _ = writeln!(
            out,
            "| `{}` | {unclean} | {} | {} | {} | {} |",
            row.headline,
            severity(row.severity),
            row.meaning,
            row.proof,
            row.remedy
        );
    }
    out.push_str(
        "\n## What other tools show\n\n\
         The first column has exit codes, signals, reasons and errors as `kubectl`, `docker`, `systemctl`, shells, proxies and clients show them. The\n\
         last column has the verdicts that can belong to them. `epitaph why POD` shows which verdict a termination had.\n\n\
         | shown | meaning | verdicts |\n|---|---|---|\n",
    );
    for Word {
        names,
        meaning,
        verdicts,
    } in typed::words()
    {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let link = |name: &&str| match by_headline(name) {
            Some(_) => format!("[`{name}`](#{name})"),
            None if node::by_headline(name).is_some() => format!("[`{name}`](#shutdowns-of-the-node)"),
            None if held::by_headline(name).is_some() => format!("[`{name}`](#pods-that-are-held)"),
            None => format!("[`{name}`](#lost-nodes)"),
        };
        let verdicts: Vec<String> = verdicts.iter().map(link).collect();
        let _ = writeln!(out, "| {} | {meaning} | {} |", names.join(", "), verdicts.join(", "));
    }
    out
}
