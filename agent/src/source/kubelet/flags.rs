//! The kubelet's command line. Pure.

use std::path::{Path, PathBuf};

/// Where a kubelet without `--root-dir` keeps its state.
pub const ROOT_DIRECTORY: &str = "/var/lib/kubelet";

/// Longest value that is kept.
const VALUE: usize = 4_096;

/// What matters of the flags. Of a repeated flag the last counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub config: Option<PathBuf>,
    pub config_directory: Option<PathBuf>,
    pub root_directory: Option<PathBuf>,
    pub feature_gates: Option<String>,
    /// MicroK8s' kubelite: the file with the kubelet's flags.
    pub arguments_file: Option<PathBuf>,
}

impl Flags {
    /// `arguments`: without the program. A flag's value is its own argument or follows a `=`; `_` counts as `-`.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Flags {
        let mut flags = Flags::default();
        let mut arguments = arguments.into_iter().peekable();
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix("--") else {
                continue;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            let name = name.replace('_', "-");
            if !["config", "config-dir", "root-dir", "feature-gates", "kubelet-args-file"].contains(&name.as_str()) {
                continue;
            }
            // An empty value switches the flag off.
            let value = value
                .or_else(|| arguments.next_if(|next| !next.starts_with("--")))
                .unwrap_or_default();
            let value = Some(value.trim_matches('"')).filter(|value| !value.is_empty() && value.len() <= VALUE);
            let path = value.map(PathBuf::from);
            match name.as_str() {
                "config" => flags.config = path,
                "config-dir" => flags.config_directory = path,
                "root-dir" => flags.root_directory = path,
                "feature-gates" => flags.feature_gates = value.map(str::to_owned),
                _ => flags.arguments_file = path,
            }
        }
        flags
    }

    /// A file of flags, as MicroK8s has it: separated by blanks and lines, `#` begins a comment, with `${SNAP_DATA}` in paths.
    pub fn parse_file(text: &str, snap_data: &Path) -> Flags {
        let data = snap_data.to_string_lossy();
        let text = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let text: String = text.flat_map(|line| [line, "\n"]).collect();
        let text = text.replace("${SNAP_DATA}", &data).replace("$SNAP_DATA", &data);
        Flags::parse(text.split_whitespace())
    }

    /// The kubelet writes the times of its last shutdown into this file.
    pub fn state_file(&self) -> PathBuf {
        let root = self.root_directory.as_deref().unwrap_or(Path::new(ROOT_DIRECTORY));
        root.join(super::state::FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_in_every_form() {
        let flags = Flags::parse([
            "--config=/first",
            "--v=2",
            "--config",
            "/etc/kubernetes/kubelet.yaml",
            "--config_dir=/etc/kubernetes/kubelet.d",
            "--root-dir",
            "/data/kubelet",
            "--feature-gates=A=true,B=false",
            "stray",
            "-config=/x",
        ]);
        assert_eq!(flags.config.as_deref(), Some(Path::new("/etc/kubernetes/kubelet.yaml")));
        assert_eq!(
            flags.config_directory.as_deref(),
            Some(Path::new("/etc/kubernetes/kubelet.d"))
        );
        assert_eq!(flags.feature_gates.as_deref(), Some("A=true,B=false"));
        assert_eq!(flags.state_file(), Path::new("/data/kubelet/graceful_node_shutdown_state"));
        assert_eq!(Flags::parse(["--config=/a", "--config="]).config, None);
        assert_eq!(Flags::parse(["--config", "--v=2"]).config, None);
        assert_eq!(
            Flags::default().state_file(),
            Path::new("/var/lib/kubelet/graceful_node_shutdown_state")
        );
    }

    #[test]
    fn a_file_of_flags() {
        let text = "--kubeconfig=${SNAP_DATA}/credentials/kubelet.config\n# --config=/no\n--root-dir=${SNAP_DATA}/x  --config=\"/a\"\n";
        let flags = Flags::parse_file(text, Path::new("/var/snap/microk8s/current"));
        assert_eq!(
            flags.root_directory.as_deref(),
            Some(Path::new("/var/snap/microk8s/current/x"))
        );
        assert_eq!(flags.config.as_deref(), Some(Path::new("/a")));
    }
}
