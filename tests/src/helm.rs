//! Helm, with the chart of this version.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use eno::install::chart;
use eno::install::installer::VERSION;
use eno_control_plane::parts::{Part, Parts};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A Helm program with files of its own, for releases in `eno-system`.
pub struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    directory: TempDir,
}

impl Helm {
    /// `part`: [`Part::Helm`] or [`Part::Helm3`].
    pub async fn new(part: Part, kubeconfig: &Path) -> Self {
        let parts = Parts::from_env().expect("a place for the programs");
        let program = parts.get(part).await.expect("helm");
        let directory = tempfile::tempdir().expect("a directory");
        let helm = Self { program, kubeconfig: kubeconfig.to_owned(), directory };
        helm.write_chart(VERSION);
        helm
    }

    /// The chart, as a folder.
    pub fn chart(&self) -> String {
        self.directory.path().join("chart").display().to_string()
    }

    /// Replaces the chart by that of another version with the same content.
    pub fn write_chart(&self, version: &str) {
        for (name, text) in chart::files().expect("a chart") {
            let path = self.directory.path().join("chart").join(&name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            let annotation = |version: &str| format!("eno.k8s.io/version: \"{version}\"\n");
            let text = match name.as_str() {
                "Chart.yaml" => {
                    text.replace(&format!("ersion: {VERSION}\n"), &format!("ersion: {version}\n"))
                }
                _ => text.replace(&annotation(VERSION), &annotation(version)),
            };
            std::fs::write(path, text).expect("written");
        }
    }

    /// Writes values, and returns the file.
    pub fn values(&self, text: &str) -> String {
        let path = self.directory.path().join("values.yaml");
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    /// Starts Helm.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(&self.program);
        for kind in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{kind}_HOME"), self.directory.path().join(kind));
        }
        command
            .args(arguments)
            .args(["--namespace", "eno-system"])
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("helm starts")
    }

    /// Runs Helm, and returns its output, or its errors.
    pub async fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.start(arguments).wait_with_output().await.expect("helm ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}
