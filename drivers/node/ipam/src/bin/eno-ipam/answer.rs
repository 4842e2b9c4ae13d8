//! Answers, as the version of the configuration has them.

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::request::{Request, Version};

/// The answer to VERSION.
pub fn versions(version: &str) -> Value {
    json!({ "cniVersion": version, "supportedVersions": Version::ALL })
}

/// The answer to ADD. It has no interfaces: those are the calling plugin's.
pub fn addresses(request: &Request, addresses: &[IpNet]) -> Result<Value, Failure> {
    let version = request.version.as_str();
    let ips = addresses.iter().map(|address| {
        let mut ip = json!({ "address": address });
        if version < "1.0.0" {
            ip["version"] = json!(if address.addr().is_ipv4() { "4" } else { "6" });
        }
        ip
    });
    let mut answer = json!({ "cniVersion": version, "ips": ips.collect::<Vec<_>>() });
    let routes = request.routes()?;
    if !routes.is_empty() {
        answer["routes"] = json!(routes);
    }
    let dns = &request.config["ipam"]["dns"];
    if dns.is_object() {
        answer["dns"] = dns.clone();
    }
    Ok(answer)
}
