//! The resolver's socket: permissions, request limits, startup and shutdown.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use eno_cri::Reason;
use nix::unistd::{getegid, geteuid};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::Resolver;

const NO_RUNTIME: &str = "/nonexistent/runtime.sock";

/// A resolver that permits this process.
fn resolver(folder: &TempDir) -> Resolver {
    let mut command = Resolver::command();
    command.args(["--allow-uid", &geteuid().to_string()]);
    Resolver::start(command, &folder.path().join("cri.sock"), OsStr::new(NO_RUNTIME))
}

/// Sends bytes; returns the response lines until the connection is closed.
fn send_lines(socket: &Path, bytes: &[u8]) -> Vec<Value> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    BufReader::new(stream).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

#[test]
fn malformed_lines_get_an_error_and_affect_no_other_request() {
    let folder = TempDir::new().unwrap();
    let resolver = resolver(&folder);
    let answers = send_lines(
        &resolver.socket,
        b"\nnull\n{\"pod\":\"../../proc/1\"}\n{\"pod\":\"a\",\"exec\":\"sh\"}\n\xff\xfe\n{\"pod\":\"a\"}\n",
    );
    let reasons: Vec<_> = answers.iter().map(|answer| answer["reason"].as_str().unwrap()).collect();
    let bad = "BadRequest";
    assert_eq!(reasons, [bad, bad, bad, bad, bad, "Unavailable"]);
    assert!(answers.iter().take(5).all(|answer| answer["retryable"] == false));
    assert_eq!(answers[5]["retryable"], true);
    let text = answers[5]["error"].as_str().unwrap();
    assert!(text.contains(NO_RUNTIME) && text.contains("No such file"), "{text}");
}

#[test]
fn overlong_line_is_refused_and_closes_the_connection() {
    let folder = TempDir::new().unwrap();
    let resolver = resolver(&folder);
    for bytes in [vec![b' '; 512], br#"{"pod":"a"}"#.to_vec()] {
        let answers = send_lines(&resolver.socket, &bytes);
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers[0]["reason"], "BadRequest");
    }
}

#[test]
fn idle_connections_delay_no_request() {
    let folder = TempDir::new().unwrap();
    let resolver = resolver(&folder);
    let open = || {
        let mut stream = UnixStream::connect(&resolver.socket).unwrap();
        stream.write_all(b"{").unwrap();
        stream
    };
    let mut idle: Vec<UnixStream> = (0..500).map(|_| open()).collect();
    // Half of the time after which idle connections are closed anyway.
    let answer = |stream: &UnixStream| {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).map(|_| line)
    };
    let mut asking = UnixStream::connect(&resolver.socket).unwrap();
    asking.write_all(b"{\"pod\":\"a\"}\n").unwrap();
    assert!(answer(&asking).unwrap().contains("Unavailable"));
    // The oldest one had to go, and the others stay.
    assert_eq!(answer(&idle[0]).unwrap(), "");
    let last = idle.last_mut().unwrap();
    last.write_all(b"}\n").unwrap();
    assert!(answer(last).unwrap().contains("BadRequest"));
}

#[test]
fn socket_mode_allows_user_and_group_only() {
    let folder = TempDir::new().unwrap();
    let resolver = resolver(&folder);
    assert_eq!(resolver.socket.metadata().unwrap().permissions().mode() & 0o777, 0o660);
}

#[tokio::test]
async fn peers_without_permission_are_refused() {
    let folder = TempDir::new().unwrap();
    let other = geteuid().as_raw() + 1;
    let mut command = Resolver::command();
    command.args(["--allow-uid", &other.to_string()]);
    let denies = Resolver::start(command, &folder.path().join("denies.sock"), OsStr::new(NO_RUNTIME));
    let error = denies.client().resolve("a", None).await.unwrap_err();
    assert_eq!((error.reason(), error.retryable()), (Some(Reason::Denied), false), "{error}");

    let mut command = Resolver::command();
    command.args(["--allow-uid", &other.to_string(), "--allow-gid", &getegid().to_string()]);
    let by_group = Resolver::start(command, &folder.path().join("group.sock"), OsStr::new(NO_RUNTIME));
    assert_eq!(by_group.socket.metadata().unwrap().gid(), getegid().as_raw());
    let error = by_group.client().resolve("a", None).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::Unavailable), "{error}");
}

#[test]
fn sigterm_stops_the_resolver_and_removes_the_socket() {
    let folder = TempDir::new().unwrap();
    let mut resolver = resolver(&folder);
    // A silent client does not delay the shutdown.
    let mut idle = UnixStream::connect(&resolver.socket).unwrap();
    assert!(resolver.terminate().success());
    assert!(!resolver.socket.exists());
    assert_eq!(idle.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn stale_socket_is_replaced_and_other_files_are_kept() {
    let folder = TempDir::new().unwrap();
    drop(UnixListener::bind(folder.path().join("cri.sock")).unwrap());
    let first = resolver(&folder);
    let refused = |path: &Path, why: &str| {
        let output = Resolver::command().arg("--socket").arg(path).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(why), "{stderr}");
    };
    refused(&first.socket, "another process listens there");
    let file = folder.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    refused(&file, "no socket");
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
    refused(Path::new("/nonexistent/cri.sock"), "listening at /nonexistent/cri.sock: No such file");
    assert_eq!(send_lines(&first.socket, b"{}\n").len(), 1, "the first goes on");
}

#[test]
fn invalid_log_filter_is_named_in_the_error() {
    let output = Command::new(Resolver::command().get_program()).args(["--log", "a=b=c"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("log filter"), "{output:?}");
}
