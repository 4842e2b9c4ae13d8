//! The addresses of pods that start: agent and plugin on the same files.

mod damaged;
mod files;
mod fixture;
mod program;
mod race;
mod watch;
