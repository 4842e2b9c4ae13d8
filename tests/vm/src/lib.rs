//! Tests that need what the machine's kernel lacks, in a virtual machine.
//!
//! Machines for tests and small hosts have kernels without 802.1Q, VLAN-filtering bridges, bonds, VRFs, tunnels or
//! Open vSwitch. Here a test executable that is built anyway is run under a Debian kernel that has all of them: packed
//! into an initial file system with the libraries and programs that it needs, booted by QEMU in software (no KVM, no
//! root, no network), its output and its exit status carried out over serial lines. A boot takes two to three seconds.
//!
//! ```text
//! cargo test -p eno-vm-lane -- --include-ignored
//! ```
//!
//! It needs `qemu-system-x86_64` and a static `busybox` (Debian: qemu-system-x86, busybox-static), and once `apt-get`,
//! to get the kernel, which is unpacked into the cache and not installed ([`Kernel::get`]).
//!
//! **To write a test for it:** an ordinary test that needs root, marked `#[ignore = "needs root: …"]`, which makes
//! network namespaces of its own. Where a kernel lacks what it tests, it says so and returns; but where [`VARIABLE`]
//! is set in the environment, nothing may be lacking and it goes on, so that it fails rather than passes unseen. Time
//! passes five to twenty times as slowly for it: patience of ten seconds is not too much.
//!
//! **To register it:** an entry in `tests/lanes/mod.rs`: the package, the module of its tests, and the programs and files
//! that it wants. It then runs as root with `--include-ignored`, one test at a time.

mod archive;
mod executable;
mod kernel;
mod machine;
mod modules;
mod root;

pub use executable::build;
pub use kernel::Kernel;
pub use machine::{Ended, Machine};
pub use root::Root;

/// Set in the environment of what runs in the machine.
pub const VARIABLE: &str = "ENO_VM_LANE";
