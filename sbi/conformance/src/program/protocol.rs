//! The protocol of a fixture: requests on its standard input and answers on its standard output, each one line of
//! JSON, one answer to each request. `{"error": "…"}` answers a request that can't be carried out. The fixture starts
//! with a target that is reachable and has no items and some foreign configuration. At the end of its input it kills
//! the driver, removes what it has made, and ends.
//!
//! | request | answer | |
//! |---|---|---|
//! | `{"request": "describe"}` | `{"target": "leaf1", "items": 4}` | the target, and how many items it can have |
//! | `{"request": "start", "natsUrl": "…", "instance": "…"}` | `{}` | start the driver under this instance name |
//! | `{"request": "stop"}` | `{}` | end the driver with SIGTERM, and wait for its end |
//! | `{"request": "kill"}` | `{}` | end the driver with SIGKILL, and wait for its end |
//! | `{"request": "desired", "items": [0, 2]}` | `{"desired": {…}}` | the `desired` of a command with exactly these items |
//! | `{"request": "items"}` | `{"items": [0, 2]}` | the items that the target has |
//! | `{"request": "foreign"}` | `{"foreign": …}` | the foreign configuration, equal when nothing has changed |
//! | `{"request": "writes"}` | `{"writes": 7}` | a number that is another one after each write |
//! | `{"request": "reachable", "reachable": false}` | `{}` | whether the driver can reach the target |
//! | `{"request": "refuse", "item": 2}` | `{}` | the target refuses this item; null: none |
//! | `{"request": "edit", "item": 0, "present": true}` | `{}` | add an item as ours, or remove it, without the driver |
//! | `{"request": "names", "item": 2, "found": {"vlan": 102}}` | `{"names": true}` | whether a rejection is about an item |

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use eno_schemas::{Desired, Item};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Time limit of one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a fixture gets to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize)]
#[serde(tag = "request", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub(super) enum Request<'a> {
    Describe,
    Start { nats_url: &'a str, instance: &'a str },
    Stop,
    Kill,
    Desired { items: &'a BTreeSet<usize> },
    Items,
    Foreign,
    Writes,
    Reachable { reachable: bool },
    Refuse { item: Option<usize> },
    Edit { item: usize, present: bool },
    Names { item: usize, found: &'a Item },
}

#[derive(Debug, Deserialize)]
pub(super) struct Described {
    pub target: String,
    pub items: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct DesiredState {
    pub desired: Desired,
}

#[derive(Debug, Deserialize)]
pub(super) struct Items {
    pub items: BTreeSet<usize>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Foreign {
    pub foreign: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct Writes {
    pub writes: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Names {
    pub names: bool,
}

#[derive(Debug, Deserialize)]
struct Done {}

/// A fixture's process. Its end is awaited when this is dropped. All methods panic with a finding.
pub(super) struct FixtureProgram {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl FixtureProgram {
    pub fn start(program: &Path) -> Self {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("starting the fixture {}: {error}", program.display()));
        let requests = child.stdin.take();
        let output = child.stdout.take().expect("its output");
        let (lines, answers) = channel();
        // A thread, so that an answer that does not come is a finding.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, requests, answers }
    }

    /// A request with an empty answer.
    pub fn tell(&mut self, request: &Request<'_>) {
        let Done {} = self.ask(request);
    }

    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request<'_>) -> T {
        let line = serde_json::to_string(request).expect("a request is JSON");
        let answer = self.answer(&line);
        let wrong = |what: &dyn std::fmt::Display| -> ! {
            panic!("the fixture answers {line} with {answer}: {what}")
        };
        let value: Value = serde_json::from_str(&answer).unwrap_or_else(|error| wrong(&error));
        if let Some(error) = value.get("error") {
            panic!("the fixture can't do {line}: {error}");
        }
        T::deserialize(value).unwrap_or_else(|error| wrong(&error))
    }

    fn answer(&mut self, line: &str) -> String {
        let sent = self
            .requests
            .as_mut()
            .map(|requests| writeln!(requests, "{line}").and_then(|()| requests.flush()));
        if let Some(Err(error)) = sent {
            panic!("the fixture does not read {line}: {error}");
        }
        match self.answers.recv_timeout(ANSWER_TIMEOUT) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                panic!("the fixture does not answer {line} within {} s", ANSWER_TIMEOUT.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the fixture has ended instead of answering {line}")
            }
        }
    }
}

impl Drop for FixtureProgram {
    fn drop(&mut self) {
        drop(self.requests.take());
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > END_TIMEOUT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(super::POLL_INTERVAL);
        }
    }
}
