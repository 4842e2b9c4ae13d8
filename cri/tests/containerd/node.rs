//! A containerd in a PID and a mount namespace of its own, which are removed whenever the test ends.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use eno_control_plane::node::{PAUSE_IMAGE, write_pause_archive};
use tempfile::TempDir;

use crate::common::Resolver;
use crate::containerd::cri::Cri;

/// A CNI plugin without effect: containerd creates the namespace itself.
const PLUGIN: &str = r#"#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
ADD) echo '{"cniVersion":"0.3.1","interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"'$CNI_NETNS'"}],"ips":[{"version":"4","address":"192.0.2.1/32","interface":0}]}' ;;
VERSION) echo '{"cniVersion":"0.3.1","supportedVersions":["0.3.1"]}' ;;
esac
"#;

/// containerd and its processes.
pub struct Node {
    /// A shell, the first process of the PID namespace: when it ends, all processes in it end.
    shell: Child,
    /// The standard input of the shell.
    commands: Option<ChildStdin>,
    /// The standard output of the shell.
    output: BufReader<ChildStdout>,
    /// Configuration, state and sockets.
    folder: TempDir,
    /// The cgroup of all processes.
    cgroup: String,
    /// The client of containerd's CRI.
    pub cri: Cri,
}

impl Node {
    /// Starts it, with the image.
    pub async fn start() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "needs root, for containerd");
        let folder = TempDir::new().expect("a folder");
        configure(folder.path());
        let mut shell = Command::new("unshare")
            .args([
                "--pid",
                "--fork",
                "--kill-child",
                "--mount",
                "--mount-proc",
                "--propagation",
                "slave",
                "sh",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let commands = shell.stdin.take();
        let output = BufReader::new(shell.stdout.take().expect("a pipe"));
        let cgroup = format!("eno-cri-{}", folder.path().file_name().expect("a name").display());
        let cri = Cri::new(folder.path().join("containerd.sock"), format!("/{cgroup}"));
        let mut node = Self { shell, commands, output, folder, cgroup, cri };
        // Namespaces are bound at their usual path, invisible outside.
        node.command("mkdir -p /run/netns && mount -t tmpfs netns /run/netns");
        node.start_containerd().await;
        let archive = node.folder.path().join("image.tar");
        write_pause_archive(&archive).expect("an image");
        let imported = Command::new("ctr")
            .arg("--address")
            .arg(node.socket())
            .args(["--namespace", "k8s.io", "images", "import", "--snapshotter", "native"])
            .arg(archive)
            .output()
            .expect("ctr");
        assert!(imported.status.success(), "{imported:?}");
        node
    }

    fn command(&mut self, line: &str) {
        let commands = self.commands.as_mut().expect("the shell");
        writeln!(commands, "{line}").expect("a shell that listens");
    }

    pub fn socket(&self) -> OsString {
        self.folder.path().join("containerd.sock").into()
    }

    /// Starts containerd and waits until CRI answers.
    pub async fn start_containerd(&mut self) {
        let folder = self.folder.path().display().to_string();
        self.command(&format!("containerd --config {folder}/config.toml >>{folder}/containerd.log 2>&1 &"));
        let begin = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while !self.cri.is_ready().await {
            assert!(
                begin.elapsed() < Duration::from_mins(1),
                "containerd doesn't answer: {}",
                fs::read_to_string(self.folder.path().join("containerd.log")).unwrap_or_default()
            );
            ticks.tick().await;
        }
    }

    /// Kills containerd and waits for its end; the pods continue.
    pub fn kill_containerd(&mut self) {
        self.command("kill -9 $!; wait $!; echo killed");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("output of the shell");
        assert_eq!(line, "killed\n");
    }

    /// A resolver without capabilities that sees the host's `/run/netns`.
    pub fn resolver(&self) -> Resolver {
        let mut command = self.enter();
        command
            .args(["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"])
            .arg(Resolver::command().get_program());
        Resolver::start(command, &self.folder.path().join("cri.sock"), &self.socket())
    }

    /// The inode of the file at `path`, as the node sees it.
    pub fn inode(&self, path: &Path) -> u64 {
        let mut command = self.enter();
        let output = command.args(["stat", "--dereference", "--format=%i"]).arg(path).output().expect("stat");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().parse().unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// A command that enters the shell's namespaces; the shell is the only child of `unshare`.
    fn enter(&self) -> Command {
        let pid = self.shell.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
        let mut command = Command::new("nsenter");
        command.args(["--target", children.trim(), "--mount", "--pid"]);
        command
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The shell ends with its input, and all other processes with it.
        drop(self.commands.take());
        let _ = self.shell.wait();
        let controllers = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        for root in controllers.map(|entry| entry.path()).chain(["/sys/fs/cgroup".into()]) {
            remove_cgroup(&root.join(&self.cgroup));
        }
    }
}

/// Removes a control group with its children, if it exists.
fn remove_cgroup(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

/// Writes the configuration of containerd and its network below `folder`.
fn configure(folder: &Path) {
    let path = |name: &str| -> PathBuf { folder.join(name) };
    fs::create_dir(path("cni")).expect("a folder");
    fs::create_dir(path("bin")).expect("a folder");
    for plugin in ["loopback", "nowhere"] {
        let file = path("bin").join(plugin);
        fs::write(&file, PLUGIN).expect("a plugin");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its mode");
    }
    let network = r#"{"cniVersion":"0.3.1","name":"nowhere","type":"nowhere"}"#;
    fs::write(path("cni").join("10-nowhere.conf"), network).expect("a network");
    let root = folder.display();
    let config = format!(
        r#"version = 2
root = "{root}/root"
state = "{root}/state"
[grpc]
address = "{root}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{root}/bin"
conf_dir = "{root}/cni"
[plugins."io.containerd.internal.v1.opt"]
path = "{root}/opt"
"#
    );
    fs::write(path("config.toml"), config).expect("the configuration");
}
