//! Container images, made here from programs of this machine: a layer, its configuration, and the archive that containerd
//! imports. Nothing is pulled, so pods ask for them with `imagePullPolicy: Never`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use epitaph_image::{Arch, CERTIFICATES, Layer, Parts, Root, contents};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cluster::Tools;

/// Holds a pod's namespaces; only SIGKILL stops the process.
pub const PAUSE: &str = "localhost/pause:test";
/// busybox under all its names; runs `sh`.
pub const BUSYBOX: &str = "localhost/busybox:test";
/// `/victim`, and busybox for hooks and probes.
pub const VICTIM: &str = "localhost/victim:test";
/// The same, with SIGQUIT for its STOPSIGNAL.
pub const VICTIM_STOPPED_BY_QUIT: &str = "localhost/victim-quit:test";
/// The agent as `cargo xtask image` packs it, of the unoptimised binary.
pub const EPITAPH: &str = "localhost/epitaph:test";
/// `/go-server`, an HTTP server that handles no signal.
pub const GO_SERVER: &str = "localhost/go-server:test";

/// Debian's programs of `stories::programs`, each at its own path, with busybox and the victim.
pub const PROGRAMS: &str = "localhost/programs:test";
/// Paths of these on this machine, from the packages that `cargo xtask cluster` installs.
const INSTALLED: [&str; 5] = [
    "/usr/bin/tini",
    "/usr/bin/dumb-init",
    "/usr/sbin/nginx",
    "/usr/sbin/haproxy",
    "/usr/bin/redis-server",
];
const NGINX_CONF: &str = "\
daemon off;
user root root;
pid /tmp/nginx.pid;
error_log stderr;
worker_processes 2;
events {}
http {
  access_log off;
  client_body_temp_path /tmp/body;
  proxy_temp_path /tmp/proxy;
  fastcgi_temp_path /tmp/fastcgi;
  uwsgi_temp_path /tmp/uwsgi;
  scgi_temp_path /tmp/scgi;
  server { listen 8080; return 200; }
}
";
const HAPROXY_CFG: &str = "\
defaults
  mode http
  timeout connect 1s
  timeout client 5s
  timeout server 5s
frontend f
  bind :8080
  http-request return status 200
";

/// An archive on this machine, as `docker save` would write it.
#[derive(Clone, Debug)]
pub struct Image {
    pub name: String,
    pub archive: PathBuf,
}

/// What an image is made of.
#[derive(Clone, Debug)]
pub struct Recipe {
    name: String,
    /// The lowest first. Files are added to the last.
    layers: Vec<Layer>,
    config: BTreeMap<&'static str, Value>,
}

/// Every image that a node needs before its first pod, and those of the stories, made in `dir`. `players` has this package's
/// programs and `epitaph`.
///
/// # Errors
/// A program is missing, or a file cannot be written.
pub fn all(tools: &Tools, players: &Path, dir: &Path) -> anyhow::Result<Vec<Image>> {
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let scratch = dir.join("stripped");
    fs::create_dir_all(&scratch).with_context(|| format!("create {}", scratch.display()))?;
    let stripped = |name: &str| strip(&players.join(name), &scratch.join(name));
    let victim = Recipe::new(VICTIM)
        .busybox(&tools.node("busybox"))?
        .program(&stripped("victim")?, "/victim")?
        .entrypoint(&["/victim"]);
    let programs = programs(&victim)?;
    let recipes = [
        Recipe::new(PAUSE)
            .program(&stripped("pause")?, "/pause")?
            .entrypoint(&["/pause"]),
        Recipe::new(BUSYBOX).busybox(&tools.node("busybox"))?.entrypoint(&["sh"]),
        victim.clone().named(VICTIM_STOPPED_BY_QUIT).stop_signal("SIGQUIT"),
        victim,
        Recipe::new(EPITAPH)
            .layers(epitaph(stripped("epitaph")?)?)
            .entrypoint(&["/epitaph"])
            .user(epitaph_image::command::USER),
        Recipe::new(GO_SERVER)
            .program(&tools.program("go-server"), "/go-server")?
            .entrypoint(&["/go-server"]),
    ];
    recipes.iter().chain(&programs).map(|recipe| recipe.write(dir)).collect()
}

/// Whether this machine has them.
pub fn programs_are_here() -> bool {
    INSTALLED.iter().all(|path| Path::new(path).is_file())
}

/// None where a program is not installed.
fn programs(victim: &Recipe) -> anyhow::Result<Option<Recipe>> {
    if !programs_are_here() {
        return Ok(None);
    }
    let mut programs = victim
        .clone()
        .named(PROGRAMS)
        .text("/etc/group", "root:x:0:\n", 0o644)
        .text("/tmp/.keep", "", 0o644)
        .text("/etc/nginx.conf", NGINX_CONF, 0o644)
        .text("/etc/haproxy.cfg", HAPROXY_CFG, 0o644);
    for path in INSTALLED {
        programs = programs.program(Path::new(path), path)?;
    }
    Ok(Some(programs))
}

impl Recipe {
    /// Empty, for `name` with its tag.
    #[must_use]
    pub fn new(name: &str) -> Recipe {
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        Recipe {
            name: name.to_owned(),
            layers: vec![Layer::default()],
            config: BTreeMap::from([("Env", json!([path]))]),
        }
    }

    /// The same files under another name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Recipe {
        name.clone_into(&mut self.name);
        self
    }

    /// The executable `source` as `path`, with the libraries it names.
    ///
    /// # Errors
    /// `source` is not a program, or a library is missing.
    pub fn program(mut self, source: &Path, path: &str) -> anyhow::Result<Recipe> {
        let root = Root::of(Arch::host()?, None)?;
        let what = format!("make image {}", self.name);
        self.top().program(path, source, &root).context(what)?;
        Ok(self)
    }

    /// The static `busybox`, under the name of every applet.
    ///
    /// # Errors
    /// busybox cannot be run here.
    pub fn busybox(mut self, busybox: &Path) -> anyhow::Result<Recipe> {
        let list = Command::new(busybox)
            .arg("--list")
            .output()
            .with_context(|| format!("run {}", busybox.display()))?;
        for applet in String::from_utf8_lossy(&list.stdout)
            .lines()
            .filter(|applet| *applet != "busybox")
        {
            self.top().link(Path::new("/bin").join(applet), "busybox");
        }
        self = self.program(busybox, "/bin/busybox")?;
        Ok(self.text(
            "/etc/passwd",
            "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
            0o644,
        ))
    }

    #[must_use]
    pub fn text(mut self, path: &str, text: &str, mode: u32) -> Recipe {
        self.top().text(path, text, mode);
        self
    }

    #[must_use]
    pub fn entrypoint(mut self, words: &[&str]) -> Recipe {
        self.config.insert("Entrypoint", json!(words));
        self
    }

    /// `NAME=value`, added to PATH.
    #[must_use]
    pub fn env(mut self, variable: &str) -> Recipe {
        if let Some(Value::Array(variables)) = self.config.get_mut("Env") {
            variables.push(json!(variable));
        }
        self
    }

    /// A user's number or name.
    #[must_use]
    pub fn user(mut self, user: &str) -> Recipe {
        self.config.insert("User", json!(user));
        self
    }

    /// STOPSIGNAL, as `SIGQUIT`.
    #[must_use]
    pub fn stop_signal(mut self, signal: &str) -> Recipe {
        self.config.insert("StopSignal", json!(signal));
        self
    }

    /// These instead of the files so far.
    #[must_use]
    fn layers(mut self, layers: Vec<Layer>) -> Recipe {
        self.layers = layers;
        self
    }

    fn top(&mut self) -> &mut Layer {
        let last = self.layers.len().saturating_sub(1);
        &mut self.layers[last]
    }

    /// Writes the archive into `dir`.
    ///
    /// # Errors
    /// A file of it cannot be read, or the archive not written.
    pub fn write(&self, dir: &Path) -> anyhow::Result<Image> {
        let layers = self.layers.iter().map(Layer::tar).collect::<anyhow::Result<Vec<_>>>()?;
        let diff_ids: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", sha256(layer))).collect();
        let names: Vec<String> = (1..=layers.len()).map(|number| format!("layer-{number}.tar")).collect();
        let config = serde_json::to_vec(&json!({
            "architecture": Arch::host()?.name(),
            "os": "linux",
            "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        }))?;
        let config_name = format!("{}.json", sha256(&config));
        let manifest = serde_json::to_vec(&json!([{
            "Config": config_name,
            "RepoTags": [self.name],
            "Layers": names,
        }]))?;
        let file_name = self.name.replace(['/', ':'], "-");
        let archive = dir.join(format!("{file_name}.tar"));
        let what = || format!("write {}", archive.display());
        let mut tar = tar::Builder::new(File::create(&archive).with_context(what)?);
        let described = [(&config_name, &config), (&"manifest.json".to_owned(), &manifest)];
        for (name, bytes) in names.iter().zip(&layers).chain(described) {
            epitaph_image::append(&mut tar, Path::new(name), bytes, 0o644).with_context(what)?;
        }
        tar.finish().with_context(what)?;
        Ok(Image {
            name: self.name.clone(),
            archive,
        })
    }
}

/// The layers of the agent's own image.
fn epitaph(program: PathBuf) -> anyhow::Result<Vec<Layer>> {
    let parts = Parts {
        arch: Arch::host()?,
        program,
        root: None,
        certificates: CERTIFICATES.into(),
        licence: None,
        crates: None,
        checkout: String::new(),
    };
    Ok(contents(&parts)?.layers)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A copy without debug information, a tenth of the size; the program itself if strip is not installed. xtask has its own, which
/// installs strip: this crate cannot depend on xtask, which is compiled before anything else and depends on nothing here.
fn strip(program: &Path, to: &Path) -> anyhow::Result<PathBuf> {
    ensure!(program.is_file(), "{} is not built", program.display());
    let done = Command::new("strip").arg("-o").arg(to).arg(program).output();
    Ok(match done {
        Ok(done) if done.status.success() => to.to_owned(),
        _ => program.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
            assert!(found.insert(path, bytes).is_none(), "an entry twice");
        }
        found
    }

    #[test]
    fn an_archive_names_its_parts_by_their_hashes() {
        let dir = tempfile::tempdir().unwrap();
        let recipe = Recipe::new("localhost/a:test")
            .text("/etc/b/c", "d", 0o640)
            .program(Path::new("/bin/sh"), "/bin/sh")
            .unwrap()
            .entrypoint(&["/bin/sh"])
            .stop_signal("SIGQUIT")
            .user("65534")
            .env("E=f");
        let image = recipe.write(dir.path()).unwrap();
        let parts = read(&fs::read(&image.archive).unwrap());
        let manifest: Value = serde_json::from_slice(&parts["manifest.json"]).unwrap();
        let config_name = manifest[0]["Config"].as_str().unwrap();
        assert_eq!(config_name, format!("{}.json", sha256(&parts[config_name])));
        let config: Value = serde_json::from_slice(&parts[config_name]).unwrap();
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            format!("sha256:{}", sha256(&parts["layer-1.tar"]))
        );
        assert_eq!(config["config"]["StopSignal"], "SIGQUIT");
        assert_eq!(config["config"]["User"], "65534");
        assert_eq!(config["config"]["Env"][1], "E=f");
        let layer = read(&parts["layer-1.tar"]);
        assert_eq!(layer["etc/b/c"], b"d");
        assert_eq!(layer["bin/sh"], fs::read("/bin/sh").unwrap());
        // Its libraries came along, the loader too.
        assert!(layer.keys().any(|path| path.contains("libc.so")), "{:?}", layer.keys());
        assert!(layer.keys().any(|path| path.contains("ld-linux")), "{:?}", layer.keys());
        assert_eq!(
            fs::read(recipe.write(dir.path()).unwrap().archive).unwrap(),
            fs::read(&image.archive).unwrap()
        );
    }
}
