//! Runs a program in a container of a pod, as `kubectl exec` does.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{Sandbox, SandboxError};

/// Output and exit code of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Its exit code.
    pub code: i32,
}

impl ExecOutput {
    /// Whether it ended with 0.
    pub fn success(&self) -> bool {
        self.code == 0
    }
}

impl Sandbox {
    /// Runs a program in the first container of a pod until it ends.
    pub async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        command: &[&str],
    ) -> Result<ExecOutput, SandboxError> {
        let what = || format!("running {command:?} in pod {namespace}/{pod}");
        let pods: Api<Pod> = Api::namespaced(self.client(), namespace);
        let params = AttachParams::default().stdin(false).stdout(true).stderr(true);
        let mut process = pods
            .exec(pod, command.iter().copied(), &params)
            .await
            .map_err(SandboxError::kubernetes(what()))?;
        let status = process.take_status();
        let (stdout, stderr) = tokio::join!(text(process.stdout()), text(process.stderr()));
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        process
            .join()
            .await
            .map_err(|source| SandboxError::Exec { what: what(), why: source.to_string() })?;
        let lost = || SandboxError::Exec { what: what(), why: "the connection ended".to_owned() };
        let status = status.ok_or_else(lost)?;
        let code = match status.status.as_deref() {
            Some("Success") => 0,
            // `ExitCode` is the cause of a program's own failure; anything else is the kubelet's.
            _ => status
                .details
                .iter()
                .flat_map(|details| details.causes.iter().flatten())
                .find(|cause| cause.reason.as_deref() == Some("ExitCode"))
                .and_then(|cause| cause.message.as_deref()?.parse().ok())
                .ok_or_else(|| SandboxError::Exec {
                    what: what(),
                    why: status.message.unwrap_or_default(),
                })?,
        };
        Ok(ExecOutput { stdout, stderr, code })
    }
}

async fn text(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // An error ends the output; a broken connection shows as a missing status.
        let _ = stream.read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
