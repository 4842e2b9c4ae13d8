//! The CNI plugin `eno-ipam`: addresses for pods out of the files that the node's agent keeps.
//!
//! It follows the [CNI specification](https://www.cni.dev/docs/spec/) from 0.3.1 to 1.1.0. Of the configuration it reads
//! `ipam`, `runtimeConfig.ips` or `args.cni.ips`, `prevResult` and `cni.dev/valid-attachments`:
//!
//! ```json
//! {"cniVersion": "1.1.0", "name": "net",
//!  "ipam": {"type": "eno-ipam", "pools": ["storage"], "routes": [{"dst": "10.1.0.0/16", "gw": "10.0.0.1"}],
//!           "dns": {"nameservers": ["10.0.0.53"]}},
//!  "runtimeConfig": {"ips": ["10.0.0.9/24"]}}
//! ```
//!
//! Codes of errors are those of the specification, and 100: a file has other content than expected; 101: an interface
//! has not the address that CHECK expects. A pod for which there is no address waits 20 s, then ADD fails with 11.
//!
//! The folder of the pools is `/var/lib/eno/ipam`, for tests `ENO_IPAM_DIR`.
//!
//! `eno-ipam install DIR` copies the program into a folder of CNI plugins.

mod answer;
mod changes;
mod failure;
mod operations;
mod request;

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use eno_ipam::Root;
use eno_ipam::install::install;
use serde_json::Value;

use crate::failure::{Code, Failure};
use crate::request::{Request, Version};

/// Of the configuration.
const MAX_INPUT: u64 = 1 << 20;

fn main() -> ExitCode {
    // A container runtime passes no arguments.
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match &*arguments {
        [] => {}
        [command, folder] if command == "install" => return install_in(folder.as_ref()),
        _ => {
            eprintln!("eno-ipam is a CNI plugin without arguments, or: eno-ipam install DIR");
            return ExitCode::FAILURE;
        }
    }
    let config = read();
    let version = config.as_ref().map_or(&Value::Null, |config| &config["cniVersion"]);
    let version = version.as_str().unwrap_or(Version::NEWEST).to_owned();
    let (answer, code) = match config.and_then(|config| run(config, &version)) {
        Ok(answer) => (answer, ExitCode::SUCCESS),
        Err(failure) => (Some(failure.answer(&version)), ExitCode::FAILURE),
    };
    let Some(answer) = answer else { return code };
    match writeln!(std::io::stdout(), "{answer}") {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn install_in(folder: &Path) -> ExitCode {
    let installed = std::env::current_exe()
        .map_err(|error| format!("find this program: {error}"))
        .and_then(|program| install(&program, folder).map_err(|error| error.to_string()));
    match installed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("can't install the CNI plugin in {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// The configuration, bounded.
fn read() -> Result<Value, Failure> {
    let mut text = Vec::new();
    let read = std::io::stdin().take(MAX_INPUT + 1).read_to_end(&mut text);
    read.map_err(|error| Failure::new(Code::Io, format!("read the configuration from stdin: {error}")))?;
    if text.len() as u64 > MAX_INPUT {
        return Err(Failure::new(Code::Decode, format!("the configuration has more than {MAX_INPUT} bytes")));
    }
    if text.trim_ascii().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&text).map_err(|error| {
        let at = format!("line {}, column {}", error.line(), error.column());
        Failure::new(Code::Decode, format!("the configuration is no JSON at {at}"))
    })
}

/// Carries out `CNI_COMMAND`; `None`: there is nothing to tell.
fn run(config: Value, version: &str) -> Result<Option<Value>, Failure> {
    let command = request::variable("CNI_COMMAND")?;
    if command == "VERSION" {
        return Ok(Some(answer::versions(version)));
    }
    let root = Root::new(std::env::var_os("ENO_IPAM_DIR").unwrap_or_else(|| Root::DEFAULT.into()));
    let request = Request { version: Version::of(&config)?, config };
    request.version.allows(&command)?;
    match command.as_str() {
        "ADD" => operations::add(&root, &request).map(Some),
        "DEL" => operations::del(&root, &request).map(|()| None),
        "CHECK" => operations::check(&root, &request).map(|()| None),
        "GC" => operations::gc(&root, &request).map(|()| None),
        "STATUS" => operations::status(&root, &request).map(|()| None),
        _ => Err(Failure::new(Code::Environment, format!("CNI_COMMAND {command:?} is unknown"))),
    }
}
