//! Command-line arguments of `eno engine` for callbacks.

use std::path::PathBuf;

use ipnet::IpNet;
use reqwest::Url;

use super::address::Allowed;

/// Flags about callbacks. Each has an environment variable that is used in its absence.
#[derive(Clone, Debug, Default, clap::Args)]
#[allow(clippy::struct_field_names, reason = "they are the names of the flags")]
pub struct CallbackArgs {
    /// Addresses and hosts that callbacks may go to although they are refused otherwise, separated by commas: networks
    /// such as 127.0.0.0/8, hosts such as nfvo.example.com or, with all below, *.example.com. Refused otherwise are
    /// loopback, link-local, multicast, unspecified and reserved addresses, those of cloud metadata services, the API
    /// server's in the cluster, and what --callback-deny names.
    #[arg(long, env = "ENO_CALLBACK_ALLOW", value_name = "CIDR|HOST", value_delimiter = ',')]
    pub callback_allow: Vec<Allowed>,
    /// Networks that no callback may go to besides, separated by commas: those of the cluster's pods and services.
    #[arg(long, env = "ENO_CALLBACK_DENY", value_name = "CIDR", value_delimiter = ',')]
    pub callback_deny: Vec<IpNet>,
    /// Post to https URLs only.
    #[arg(long, env = "ENO_CALLBACK_HTTPS_ONLY")]
    pub callback_https_only: bool,
    /// The HTTP proxy that callbacks go through, which then is the one to refuse hosts by what their names resolve to;
    /// absent: HTTPS_PROXY and HTTP_PROXY. Hosts that NO_PROXY names are reached directly.
    #[arg(long, env = "ENO_CALLBACK_PROXY", value_name = "URL", value_parser = proxy_url)]
    pub callback_proxy: Option<Url>,
    /// A PEM file with certificate authorities that may have signed the endpoints' certificates, besides the system's.
    #[arg(long, env = "ENO_CALLBACK_CA", value_name = "FILE")]
    pub callback_ca: Option<PathBuf>,
    /// A PEM file with the certificate, and its private key, that is shown to endpoints that ask for one.
    #[arg(long, env = "ENO_CALLBACK_CLIENT_CERTIFICATE", value_name = "FILE")]
    pub callback_client_certificate: Option<PathBuf>,
    /// Before the first callback of an object, GET its CallbackURL, which has to be answered 204.
    #[arg(long, env = "ENO_CALLBACK_ENDPOINT_TEST")]
    pub callback_endpoint_test: bool,
}

/// Parses the URL of a proxy; without a scheme it is one of http. The error does not repeat it, since it may contain a
/// password.
pub fn proxy_url(text: &str) -> Result<Url, String> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&text).map_err(|error| format!("it is no URL: {error}"))?;
    match (url.scheme(), url.host_str()) {
        ("http" | "https", Some(_)) => Ok(url),
        _ => Err("it is no http or https URL with a host".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_http_urls_with_a_host() {
        for text in ["http://proxy:3128", "https://u:p@proxy.example.com", "proxy:3128", "http://[::1]:8080/"]
        {
            proxy_url(text).unwrap();
        }
        for text in
            ["", "http://[::1", "socks5://proxy", "http://", "http://proxy:99999", "http://a b", "unix:///x"]
        {
            let error = proxy_url(text).unwrap_err();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
    }
}
