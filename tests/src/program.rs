//! Runs the `eno` program against a sandbox, like a user.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::System;

impl System {
    /// Runs `eno` with these arguments and this standard input, configured for the sandbox's cluster and NATS.
    pub async fn eno(&self, arguments: &[&str], input: &str) -> Output {
        let info = self.sandbox.info();
        let built = || eno::programs::eno().expect("the program: cargo build --workspace --bins");
        let program = self.program.get().cloned().unwrap_or_else(built);
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", &info.kubeconfig);
        match &info.contexts {
            Some(contexts) => command.env("ENO_HOME", contexts),
            None => command
                .env("ENO_NATS_URL", &info.nats_url)
                .env("ENO_NATS_CREDENTIALS", &info.nats_credentials),
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(input.as_bytes()).await.expect("the program reads");
        drop(stdin);
        child.wait_with_output().await.expect("the program ends")
    }

    /// Has [`Self::eno`] run this program, such as that of the image under test.
    pub fn use_program(&self, program: PathBuf) {
        self.program.set(program).expect("one program");
    }

    /// A file with the administrator's kubeconfig as another user, with a namespace.
    pub fn kubeconfig_of(&self, dir: &Path, user: &str, namespace: &str) -> PathBuf {
        let text = std::fs::read_to_string(&self.sandbox.info().kubeconfig).expect("a kubeconfig");
        let mut config: Value = serde_saphyr::from_str(&text).expect("YAML");
        config["users"][0]["user"]["as"] = user.into();
        config["contexts"][0]["context"]["namespace"] = namespace.into();
        let path = dir.join(user);
        std::fs::write(&path, config.to_string()).expect("a file");
        path
    }

    /// Runs `eno … -o json`, which must end with this exit code, and parses its output.
    pub async fn eno_json(&self, arguments: &[&str], input: &str, code: i32) -> Value {
        let output = self.eno(&[arguments, &["-o", "json"]].concat(), input).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "eno {arguments:?}: {errors}{text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("eno {arguments:?}: {error} in {text}"))
    }
}
