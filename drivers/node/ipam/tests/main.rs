//! The choice of addresses, the files, and the program `eno-ipam`.

mod choice;
mod common;
mod files;
mod plugin;
