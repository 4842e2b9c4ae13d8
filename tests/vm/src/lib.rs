//! Runs tests in a virtual machine whose kernel has features that the machine's own lacks.
//!
//! Kernels of test machines and small hosts lack 802.1Q, VLAN-filtering bridges, bonds, VRFs, tunnels or Open vSwitch.
//! This crate runs an existing test executable under a Debian kernel with all of them. The executable is packed into an
//! initial RAM file system with its libraries and programs. QEMU boots it in software (no KVM, no root, no network),
//! and serial lines carry its output and exit status. A boot takes two to three seconds.
//!
//! ```text
//! cargo test -p eno-vm-lane -- --include-ignored
//! ```
//!
//! It needs `qemu-system-x86_64` and a static `busybox` (Debian: qemu-system-x86, busybox-static). It needs `apt-get`
//! once, to download the kernel, which is unpacked into the cache and not installed ([`Kernel::get`]).
//!
//! **To write a test for it:** write an ordinary test that needs root, marked `#[ignore = "needs root: …"]`, with its
//! own network namespaces. Where a kernel lacks a feature, the test prints that and returns. Where [`VARIABLE`] is set,
//! the test must fail instead. Code runs five to twenty times slower here, so timeouts of ten seconds are not too long.
//!
//! **To register it:** add an entry to `tests/vm_lanes/mod.rs` with the package, the module of its tests, and the programs
//! and files that it needs. The tests run as root with `--include-ignored`, one at a time.

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

/// This environment variable is set in the virtual machine.
pub const VARIABLE: &str = "ENO_VM_LANE";
