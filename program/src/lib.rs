//! What every program of the operator has: its version and its allocator.

/// The version, and the commit that `make image` built it from.
pub const VERSION: &str = match option_env!("ENO_VERSION") {
    Some(version) => version,
    None => concat!(env!("CARGO_PKG_VERSION"), " (development build)"),
};

/// The programs of the image are linked with musl.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
