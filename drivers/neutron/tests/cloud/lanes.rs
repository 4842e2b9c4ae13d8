//! The same tests with another release of OpenStack.

use std::process::Command;

use crate::cloud::fixture::RELEASE;

/// Needs Debian's packages `python3-neutron`, `python3-keystone` and `python3-waitress`.
#[test]
fn release_of_debian_passes_all_tests() {
    let tests = std::env::current_exe().unwrap();
    let mut command = Command::new(tests);
    command.args(["cloud::", "--skip", "lanes::", "--test-threads", "2"]).env(RELEASE, "debian");
    assert!(command.status().unwrap().success());
}
