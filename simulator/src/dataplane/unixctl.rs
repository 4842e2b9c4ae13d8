//! A client of the control socket (unixctl) of Open vSwitch daemons, like ovs-appctl(8): JSON-RPC without framing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Timeout of a call.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Response {
    result: Option<String>,
    error: Option<String>,
}

/// Calls a method and returns its result. `socket` is a file in `directory`.
pub(super) async fn call(
    directory: &Path,
    socket: &str,
    method: &str,
    parameters: &[String],
) -> io::Result<String> {
    tokio::time::timeout(RESPONSE_TIMEOUT, exchange(directory, socket, method, parameters)).await?
}

/// Connects to a socket in a directory.
pub(super) async fn connect(directory: &Path, socket: &str) -> io::Result<UnixStream> {
    // A socket path has at most 107 bytes; the path of the directory may be longer.
    let directory = File::open(directory)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{socket}", directory.as_raw_fd())).await
}

async fn exchange(directory: &Path, socket: &str, method: &str, parameters: &[String]) -> io::Result<String> {
    let mut stream = connect(directory, socket).await?;
    let request = serde_json::json!({ "id": 0, "method": method, "params": parameters });
    stream.write_all(request.to_string().as_bytes()).await?;
    let mut text = Vec::new();
    loop {
        if stream.read_buf(&mut text).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A message ends with its JSON value.
        match serde_json::from_slice::<Response>(&text) {
            Ok(Response { error: Some(error), .. }) => return Err(io::Error::other(error)),
            Ok(Response { result, .. }) => return Ok(result.unwrap_or_default()),
            Err(error) if error.is_eof() => {}
            Err(error) => return Err(error.into()),
        }
    }
}
