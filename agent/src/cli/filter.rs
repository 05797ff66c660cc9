//! Filter of the shown terminations.

use clap::Args;
use epitaph_core::attribute::Subject;
use epitaph_core::pod::PodIdentity;
use epitaph_core::report::PodTermination;
use epitaph_core::report::{StopSignalIgnored, Termination};
use epitaph_core::text::{glob, unit_matches};
use epitaph_core::verdict::node::ShutdownVerdict;
use epitaph_story::history;

use super::explain;
use crate::error;

/// Values of one flag are alternatives, also `--container` and `--unit` (no subject is both); different flags narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Filters")]
pub struct Filter {
    /// Containers with this name, or whose id begins with this; can be repeated
    #[arg(long, value_name = "NAME|ID", value_parser = container)]
    pub container: Vec<String>,
    /// systemd units with this name, which may have the wildcards * and ?; ".service" is added if the name has no suffix
    #[arg(long, value_name = "NAME", value_parser = unit_pattern)]
    pub unit: Vec<String>,
    /// Containers and units in this cgroup or below; path from the root of the hierarchy, or below /sys/fs/cgroup
    #[arg(long, value_name = "PATH", value_parser = cgroup_prefix)]
    pub cgroup: Vec<String>,
    /// Pods in this namespace, which may have the wildcards * and ?; can be repeated
    #[arg(long, short, value_name = "NAMESPACE", value_parser = name_pattern)]
    pub namespace: Vec<String>,
    /// Pods with this name, which may have the wildcards * and ?
    #[arg(long, value_name = "NAME", value_parser = name_pattern)]
    pub pod: Vec<String>,
    /// Pods of this workload, as NAME or KIND/NAME, which may have the wildcards * and ?
    #[arg(long, value_name = "[KIND/]NAME", value_parser = name_pattern)]
    pub workload: Vec<String>,
    /// Terminations, and shutdowns of the node, with this verdict; `epitaph explain` lists the verdicts. The name `down` stands for times
    /// in which the node was off
    #[arg(long, value_name = "VERDICT", value_parser = verdict)]
    pub verdict: Vec<String>,
    /// Unclean terminations only. The verdicts unknown, undecided-connections and clean-exit (what clients lost is not known) do not count
    /// as unclean: use --verdict to see them
    #[arg(long)]
    pub unclean: bool,
}

impl Filter {
    /// Everything is shown.
    pub fn is_empty(&self) -> bool {
        let Filter {
            container,
            unit,
            cgroup,
            namespace,
            pod,
            workload,
            verdict,
            unclean,
        } = self;
        let lists = [container, unit, cgroup, namespace, pod, workload, verdict];
        lists.into_iter().all(Vec::is_empty) && !unclean
    }

    /// Whether `--unclean` alone hides the report.
    pub fn hides_as_not_unclean(&self, r: &history::Report) -> bool {
        let all = || Filter {
            unclean: false,
            ..self.clone()
        };
        self.unclean && !r.unclean && all().matches_past(r)
    }

    pub fn matches(&self, t: &Termination) -> bool {
        self.matches_container(t)
            && self.matches_identity(t.kubernetes.as_ref().map(|context| Identity::of(&context.pod)))
            && self.matches_verdict(t.verdict.headline)
            && (!self.unclean || t.verdict.unclean)
    }

    /// An early warning passes if the announced termination could pass: `path` is the subject's cgroup, if known.
    pub fn matches_early(&self, e: &StopSignalIgnored, path: Option<&str>) -> bool {
        self.matches_name(
            name_of(
                &e.subject,
                None,
                e.kubernetes.as_ref().and_then(|context| context.container.as_deref()),
            ),
            path,
        ) && self.matches_identity(e.kubernetes.as_ref().map(|context| Identity::of(&context.pod)))
            && self.matches_verdict("ignored-stop-signal")
    }

    /// A pod passes with any of its containers, and by its own verdict or a container's.
    pub fn matches_pod(&self, p: &PodTermination) -> bool {
        let of_container = |t: &Termination| self.matches_container(t) && self.matches_verdict(t.verdict.headline);
        let by_subject = !self.container.is_empty() || !self.unit.is_empty() || !self.cgroup.is_empty();
        self.matches_identity(Some(Identity::of(&p.pod)))
            && (p.containers.iter().any(of_container) || (!by_subject && self.matches_verdict(p.verdict.headline)))
            && (!self.unclean || p.verdict.unclean)
    }

    /// As [`Filter::matches`] and [`Filter::matches_pod`], for a report that was read back.
    pub fn matches_past(&self, r: &history::Report) -> bool {
        let of_container = |r: &history::Report| {
            let name = match &r.subject {
                Some(history::Subject::Container { id, .. }) => Name::Container {
                    id,
                    name: r.container_name().map(|name| &**name),
                    in_pod: r.kubernetes.as_ref().and_then(|context| context.container.as_deref()),
                },
                Some(history::Subject::Unit { name }) => Name::Unit(name),
                Some(history::Subject::Other) | None => Name::None,
            };
            self.matches_name(name, r.cgroup.as_deref()) && self.matches_verdict(&r.verdict)
        };
        let by_subject = !self.container.is_empty() || !self.unit.is_empty() || !self.cgroup.is_empty();
        let passes = if r.pod.is_some() {
            r.containers.iter().any(of_container) || (!by_subject && self.matches_verdict(&r.verdict))
        } else {
            of_container(r)
        };
        let identity = r.pod().map(|pod| Identity {
            namespace: &pod.namespace,
            pod: &pod.name,
            kind: &pod.workload.kind,
            workload: &pod.workload.name,
        });
        passes && self.matches_identity(identity) && (!self.unclean || r.unclean)
    }

    pub fn matches_shutdown(&self, verdict: &ShutdownVerdict) -> bool {
        self.matches_node(verdict.headline, verdict.unclean)
    }

    /// What happened to the node has no container, unit or pod.
    pub fn matches_node(&self, headline: &str, unclean: bool) -> bool {
        let of_node = Filter {
            verdict: Vec::new(),
            unclean: false,
            ..self.clone()
        };
        of_node.is_empty() && self.matches_verdict(headline) && (!self.unclean || unclean)
    }

    fn matches_container(&self, t: &Termination) -> bool {
        let name = t.container.as_ref().and_then(|container| container.name.as_deref());
        let name = name_of(
            &t.subject,
            name,
            t.kubernetes.as_ref().and_then(|context| context.container.as_deref()),
        );
        self.matches_name(name, t.cgroup_path.as_deref())
    }

    fn matches_verdict(&self, headline: &str) -> bool {
        self.verdict.is_empty() || self.verdict.iter().any(|v| v == headline)
    }

    /// A subject without a pod, or of an unknown pod, matches no namespace.
    fn matches_identity(&self, of: Option<Identity<'_>>) -> bool {
        let Some(of) = of else {
            return self.namespace.is_empty() && self.pod.is_empty() && self.workload.is_empty();
        };
        let any = |patterns: &[String], name: &str| patterns.is_empty() || patterns.iter().any(|p| matches(p, name));
        any(&self.namespace, of.namespace)
            && any(&self.pod, of.pod)
            && (self.workload.is_empty() || self.workload.iter().any(|pattern| workload_matches(pattern, of)))
    }

    /// A subject with an unknown path matches no cgroup.
    pub fn matches_subject(&self, subject: &Subject, path: Option<&str>) -> bool {
        self.matches_name(name_of(subject, None, None), path)
    }

    fn matches_name(&self, name: Name<'_>, path: Option<&str>) -> bool {
        let named = match name {
            _ if self.container.is_empty() && self.unit.is_empty() => true,
            Name::Container { id, name, in_pod } => self
                .container
                .iter()
                .any(|wanted| is_beginning(wanted, id) || [name, in_pod].into_iter().flatten().any(|name| name == wanted)),
            Name::Unit(name) => self.unit.iter().any(|pattern| unit_matches(pattern, name)),
            Name::None => false,
        };
        named && (self.cgroup.is_empty() || path.is_some_and(|p| self.cgroup.iter().any(|prefix| is_below(p, prefix))))
    }
}

/// What a container or unit is called.
#[derive(Clone, Copy)]
enum Name<'a> {
    Container {
        id: &'a str,
        /// That people gave it.
        name: Option<&'a str>,
        /// In the pod's spec.
        in_pod: Option<&'a str>,
    },
    Unit(&'a str),
    None,
}

fn name_of<'a>(subject: &'a Subject, name: Option<&'a str>, in_pod: Option<&'a str>) -> Name<'a> {
    match subject {
        Subject::Container { id, .. } => Name::Container { id: &id.0, name, in_pod },
        Subject::Unit { name } => Name::Unit(name),
    }
}

/// Ids are written in lower case.
fn is_beginning(text: &str, id: &str) -> bool {
    id.get(..text.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(text))
}

/// What a pod is called.
#[derive(Clone, Copy)]
struct Identity<'a> {
    namespace: &'a str,
    pod: &'a str,
    kind: &'a str,
    workload: &'a str,
}

impl Identity<'_> {
    fn of(pod: &PodIdentity) -> Identity<'_> {
        Identity {
            namespace: &pod.namespace,
            pod: &pod.name,
            kind: &pod.workload.kind,
            workload: &pod.workload.name,
        }
    }
}

/// Refuses an unknown verdict: a filter for it would never show anything.
fn verdict(name: &str) -> Result<String, String> {
    explain::verdict(name)
        .map(|_| name.to_owned())
        .map_err(|unknown| error::line(&unknown))
}

fn container(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("no container has an empty name; write a name, or the beginning of an id".to_owned());
    }
    Ok(text.to_owned())
}

fn unit_pattern(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("no unit has an empty name; write a name such as nginx, or '*' for all units".to_owned());
    }
    Ok(text.to_owned())
}

fn name_pattern(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("nothing has an empty name; write a name, or '*' for all".to_owned());
    }
    Ok(text.to_owned())
}

fn cgroup_prefix(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("an empty path; write one such as /system.slice, or / for all".to_owned());
    }
    Ok(below_the_mount(text).to_owned())
}

/// A path pasted from the file system, without the mount point. The v2 hierarchy is mounted at the second place if v1 is mounted
/// at the first.
fn below_the_mount(path: &str) -> &str {
    let rests = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(|mount| path.strip_prefix(mount));
    match rests
        .into_iter()
        .flatten()
        .find(|rest| rest.is_empty() || rest.starts_with('/'))
    {
        Some("") => "/",
        Some(rest) => rest,
        None => path,
    }
}

/// As in kubectl: `deployment/web`, case-insensitive.
fn workload_matches(pattern: &str, of: Identity<'_>) -> bool {
    match pattern.split_once('/') {
        Some((kind, name)) => matches(&kind.to_ascii_lowercase(), &of.kind.to_ascii_lowercase()) && matches(name, of.workload),
        None => matches(pattern, of.workload),
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    glob(pattern.as_bytes(), name.as_bytes())
}

/// `path` is `prefix` or below it: whole components, so `/a` does not contain `/ab`.
fn is_below(path: &str, prefix: &str) -> bool {
    let path = path.trim_start_matches('/');
    let prefix = prefix.trim_matches('/');
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || prefix.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use epitaph_core::fixtures::{pods, sample};

    fn filter(set: impl FnOnce(&mut Filter)) -> Filter {
        let mut filter = Filter::default();
        set(&mut filter);
        filter
    }

    #[test]
    fn an_empty_filter_shows_everything() {
        assert!(Filter::default().matches(&sample::ignored()));
        assert!(Filter::default().matches(&sample::unknown_unit()));
    }

    #[test]
    fn containers_by_the_beginning_of_their_id() {
        let t = sample::ignored();
        assert!(filter(|f| f.container = vec!["3f1c".into()]).matches(&t));
        assert!(!filter(|f| f.container = vec!["f1c".into()]).matches(&t));
        assert!(filter(|f| f.container = vec!["aa".into(), "3f".into()]).matches(&t));
        assert!(!filter(|f| f.container = vec!["3f".into()]).matches(&sample::unknown_unit()));
        assert!(filter(|f| f.container = vec!["3F1C".into()]).matches(&t));
        assert!(container(" ").is_err());
    }

    #[test]
    fn containers_by_name() {
        let line = |container: &str| {
            let line = format!(
                r#"{{"type":"termination","subject":{{"kind":"container","id":"{:064x}"}},{container}}}"#,
                3
            );
            match history::parse(line.as_bytes()) {
                Some(history::Line::Report(report)) => report,
                _ => panic!("{line}"),
            }
        };
        let named = |name: &str| filter(|f| f.container = vec![container(name).unwrap()]);
        let (bare, in_pod) = (
            line(r#""container":{"name":"web"}"#),
            line(r#""kubernetes":{"pod":{"name":"web-1"},"container":"app"}"#),
        );
        assert!(named("web").matches_past(&bare) && !named("we").matches_past(&bare) && !named("web").matches_past(&in_pod));
        assert!(named("app").matches_past(&in_pod) && !named("app").matches_past(&bare));
        let restarted = pods::restarted(1);
        let name = restarted
            .kubernetes
            .as_ref()
            .and_then(|context| context.container.clone())
            .unwrap();
        assert!(named(&name).matches(&restarted) && !named("other").matches(&restarted));
    }

    #[test]
    fn shutdowns_of_the_node_by_their_verdict() {
        use epitaph_core::fixtures::shutdowns;
        assert_eq!(verdict("unannounced").as_deref(), Ok("unannounced"));
        let (truncated, spoofed) = (shutdowns::truncated().verdict, shutdowns::spoofed().verdict);
        let only = filter(|f| f.verdict = vec![verdict("truncated").unwrap()]);
        assert!(only.matches_shutdown(&truncated) && !only.matches_shutdown(&spoofed));
        assert!(Filter::default().matches_shutdown(&spoofed));
        assert!(!filter(|f| f.pod = vec!["*".into()]).matches_shutdown(&truncated));
        let line = r#"{"type":"node-shutdown","node":"n","verdict":"truncated"}"#;
        let Some(history::Line::Report(report)) = history::parse(line.as_bytes()) else {
            panic!()
        };
        assert!(only.matches_past(&report));
    }

    #[test]
    fn units_by_name_or_pattern() {
        let t = sample::unknown_unit();
        for (pattern, yes) in [
            ("nginx.service", true),
            ("nginx", true),
            ("ngin?", true),
            ("ng*", true),
            ("*.service", true),
            ("*", true),
            ("*x.scope", false),
            ("inx.service", false),
            ("nginx.serv", false),
            ("", false),
        ] {
            assert_eq!(filter(|f| f.unit = vec![pattern.into()]).matches(&t), yes, "{pattern}");
        }
        assert!(!filter(|f| f.unit = vec!["*".into()]).matches(&sample::ignored()));
        let either = filter(|f| {
            f.unit = vec!["nginx".into()];
            f.container = vec!["3f".into()];
        });
        assert!(either.matches(&t) && either.matches(&sample::ignored()));
    }

    #[test]
    fn cgroups_by_whole_components() {
        let mut t = sample::unknown_unit();
        for (prefix, yes) in [
            ("/system.slice", true),
            ("system.slice/", true),
            ("/system.slice/nginx.service", true),
            ("/", true),
            ("/system", false),
            ("/system.slice/nginx.service/below", false),
        ] {
            assert_eq!(filter(|f| f.cgroup = vec![prefix.into()]).matches(&t), yes, "{prefix}");
        }
        t.facts.cgroup_path = None;
        assert!(!filter(|f| f.cgroup = vec!["/system.slice".into()]).matches(&t));
    }

    #[test]
    fn cgroups_as_the_file_system_has_them() {
        for (pasted, path) in [
            ("/sys/fs/cgroup/system.slice/nginx.service", "/system.slice/nginx.service"),
            ("/sys/fs/cgroup/unified/system.slice/", "/system.slice/"),
            ("/sys/fs/cgroup/unifiedly", "/unifiedly"),
            ("/sys/fs/cgroup", "/"),
            ("/sys/fs/cgroup/", "/"),
            ("/sys/fs/cgroup/unified", "/"),
            ("/sys/fs/cgroups/a", "/sys/fs/cgroups/a"),
            ("/a/sys/fs/cgroup/b", "/a/sys/fs/cgroup/b"),
            ("system.slice", "system.slice"),
            ("/", "/"),
        ] {
            assert_eq!(cgroup_prefix(pasted).as_deref(), Ok(path), "{pasted}");
        }
    }

    #[test]
    fn empty_names_match_no_unit_and_no_cgroup() {
        for empty in ["", " "] {
            assert!(unit_pattern(empty).is_err() && cgroup_prefix(empty).is_err());
        }
        assert_eq!(unit_pattern("ngin?").as_deref(), Ok("ngin?"));
    }

    #[test]
    fn verdicts_and_unclean_narrow() {
        let (bad, unknown) = (sample::ignored(), sample::unknown_unit());
        let ignored = filter(|f| f.verdict = vec!["ignored-stop-signal".into()]);
        assert!(ignored.matches(&bad) && !ignored.matches(&unknown));
        let unclean = filter(|f| f.unclean = true);
        assert!(unclean.matches(&bad) && !unclean.matches(&unknown));
        assert!(
            !filter(|f| {
                f.unclean = true;
                f.unit = vec!["nginx".into()];
            })
            .matches(&bad)
        );
    }

    #[test]
    fn a_cause_or_a_traffic_value_is_not_a_verdict() {
        assert!(verdict("clean").is_ok() && verdict("unknown").is_ok());
        for name in ["quiet", "evicted-taint"] {
            let refused = verdict(name).unwrap_err();
            assert!(refused.starts_with(&format!("unknown verdict `{name}`")), "{refused}");
        }
    }

    #[test]
    fn an_early_warning_passes_with_the_announced_termination() {
        let early = sample::early();
        assert!(filter(|f| f.unclean = true).matches_early(&early, None));
        assert!(filter(|f| f.verdict = vec!["ignored-stop-signal".into()]).matches_early(&early, None));
        assert!(!filter(|f| f.verdict = vec!["crashed".into()]).matches_early(&early, None));
        assert!(!filter(|f| f.cgroup = vec!["/a".into()]).matches_early(&early, None));
        assert!(filter(|f| f.cgroup = vec!["/a".into()]).matches_early(&early, Some("/a/b")));
    }

    #[test]
    fn pods_by_namespace_name_and_workload() {
        let pod = pods::pod(1);
        let restarted = pods::restarted(1);
        type Set = fn(&mut Filter);
        let cases: [(Set, bool); 10] = [
            (|f| f.namespace = vec!["shop".into()], true),
            (|f| f.namespace = vec!["sho?".into()], true),
            (|f| f.namespace = vec!["bank".into()], false),
            (|f| f.pod = vec!["cart-*".into()], true),
            (|f| f.pod = vec!["cart".into()], false),
            (|f| f.workload = vec!["cart".into()], true),
            (|f| f.workload = vec!["deployment/cart".into()], true),
            (|f| f.workload = vec!["job/cart".into(), "Deployment/c*".into()], true),
            (|f| f.workload = vec!["job/cart".into()], false),
            (|f| (f.namespace, f.pod) = (vec!["shop".into()], vec!["x".into()]), false),
        ];
        for (n, (set, yes)) in cases.into_iter().enumerate() {
            assert_eq!(filter(set).matches_pod(&pod), yes, "pod, case {n}");
            assert_eq!(filter(set).matches(&restarted), yes, "container, case {n}");
            assert_eq!(
                filter(set).matches_early(&pods::early(&restarted), None),
                yes,
                "warning, case {n}"
            );
            assert!(!filter(set).matches(&sample::ignored()), "no pod's, case {n}");
        }
    }

    #[test]
    fn a_pod_passes_with_any_of_its_containers() {
        let pod = pods::pod(1);
        assert!(Filter::default().matches_pod(&pod));
        let clean = filter(|f| f.verdict = vec!["clean".into()]);
        assert!(clean.matches_pod(&pod), "its sidecar ended so");
        assert!(!filter(|f| f.verdict = vec!["crashed".into()]).matches_pod(&pod));
        assert!(filter(|f| f.container = vec![format!("{:064x}", 2)]).matches_pod(&pod));
        assert!(!filter(|f| f.container = vec!["ff".into()]).matches_pod(&pod));
        assert!(!filter(|f| f.unit = vec!["*".into()]).matches_pod(&pod));
        let empty = PodTermination {
            containers: vec![],
            ..pod
        };
        assert!(filter(|f| f.unclean = true).matches_pod(&empty));
        assert!(!filter(|f| f.cgroup = vec!["/".into()]).matches_pod(&empty));
    }

    fn glob_by_definition(p: &[u8], t: &[u8]) -> bool {
        match (p.first(), t.first()) {
            (None, None) => true,
            (Some(b'*'), _) => glob_by_definition(&p[1..], t) || (!t.is_empty() && glob_by_definition(p, &t[1..])),
            (Some(&c), Some(&d)) => (c == b'?' || c == d) && glob_by_definition(&p[1..], &t[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn glob_matches_its_definition(p in "[ab*?]{0,8}", t in "[ab]{0,10}") {
            prop_assert_eq!(glob(p.as_bytes(), t.as_bytes()), glob_by_definition(p.as_bytes(), t.as_bytes()));
        }
    }
}
