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
         (`epitaph.exit`) and what clients saw (`epitaph.traffic`). `exit` has the name of the verdict, or `clean` for the verdicts about\n\
         clients. The values of `cause` and `traffic` are:\n\n\
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
         The rules by which `exit` is found, in the order of their precedence: of each part, the first rule that applies; a later part replaces what\n\
         an earlier one has found. Where evidence that a rule rests on may be missing, `exit` is `unknown`.\n\n\
         | part | observed | exit |\n|---|---|---|\n",
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
         What the observer reports about nodes that do not answer, and about their pods: [lost-nodes.md](lost-nodes.md). These verdicts\n\
         have no axes.\n\n\
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
         A pod that is still `Terminating` a minute after its last container exited, or after its deletion: the agent of its node names the layer\n\
         that holds it, in an Event `TerminationHeld` on the pod and its workload and as `epitaph_workload_held_total{holder}`, and again when\n\
         another layer does. The layers are those of a kubelet, in order; the first that is not shown to be done holds the pod. The pod's Events\n\
         are listed once for it. A pod with a container that runs is [`stuck`](#stuck). While the API does not answer, nothing is reported.\n\n\
         | what holds it | severity | meaning | proof | remedy | not known |\n|---|---|---|---|---|---|\n",
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
         The verdict of `node.shutdown`: one axis, how the shutdown treated the pods. The root span of its trace has the verdict in its name; the\n\
         traces of the shutdown and of its pods link to each other. After the next boot, its sentence also has the pods that stayed Ready in the API until the node was\n\
         back (`epitaph.shutdown.pods_ready`): a Service sends clients to them, although the node is down.\n\n\
         **A graceful shutdown can lose requests.** The kubelet does not delete the pods that it stops at a shutdown, so their endpoints do not become\n\
         terminating: they stay ready until the pod's readiness probe fails, the node controller marks the pod, or the pod has ended\n\
         ([kubernetes#116965](https://github.com/kubernetes/kubernetes/issues/116965)). The sentence of any verdict has the connections that clients lost\n\
         by the stop of the pods, by workload (`epitaph.shutdown.clients.*`), for how long one of these pods was still Ready in the API after its stop\n\
         signal, and pods that were started during the shutdown. A number is \"at least\" where sockets or exits could not be observed; without a number,\n\
         it is not known that none was lost. What the endpoints did is in the observer's spans `endpoints.ready` of the same trace, one for each Service.\n\n\
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
         Exit codes, signals, reasons and errors, as `kubectl`, `docker`, `systemctl`, shells, proxies and clients show them, and the verdicts that fit.\n\
         `epitaph why POD` shows which of them it was.\n\n\
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
